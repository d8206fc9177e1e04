"""Contents of a recording: the time line, and what is known besides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from kubesched.base.pages import Answer
from kubesched.lab.simulate.results.result import PodTimes

from ..schema import Moment, Profile, Sample, Verdicts
from .queue import Told
from .timeline import Rows, Timeline

__all__ = ["Preempting", "Reasons", "Recording", "key_of"]


#: Most attempts in the life of a pod, the last ones, and most characters of a reason.
_MOST_TRIES: Final = 200
_MOST_TEXT: Final = 2_000


@dataclass(frozen=True, slots=True)
class Preempting:
    """Preemption: the preemptor and its victims, as ``namespace/name``, and the node."""

    at: float
    pod: str
    node: str
    victims: Sequence[str]


class Reasons(Protocol):
    """Explanations and verdicts of a recording."""

    async def explain(self, path: str, query: Mapping[str, Sequence[str]], at: float) -> Answer: ...

    async def verdicts(self, namespace: str, name: str, at: float, line: Timeline) -> Verdicts: ...


class Recording:
    """Contents of a recording.

    Attributes:
        name: file.
        line: nodes and pods over time.
        profiles: profiles of the scheduler, as far as they are known.
        told: reasons why pods wait.
        preemptions: in the order of time.
        samples: figures over time, if the recording has them.
        reasons: explanations.
        explains: they are there for every pod at every moment.
        remarks: sentences about what the recording lacks.
    """

    def __init__(
        self,
        name: str,
        line: Timeline,
        reasons: Reasons,
        *,
        profiles: Sequence[Profile] = (),
        told: Told | None = None,
        preemptions: Sequence[Preempting] = (),
        samples: Sequence[Sample] = (),
        explains: bool = False,
        remarks: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.line = line
        self.reasons = reasons
        self.profiles = list(profiles)
        self.told = told if told is not None else Told()
        self.preemptions = sorted(preemptions, key=lambda one: one.at)
        self.samples = list(samples)
        self.explains = explains
        self.remarks = [text[:_MOST_TEXT] for text in remarks]
        self.preempting_times = np.array([one.at for one in self.preemptions], np.float64)
        self.sample_times = np.array([one.at for one in self.samples], np.float64)
        numbers: dict[tuple[str, str], int] = {}
        self.workloads: Rows = np.array(
            [numbers.setdefault((one.namespace, one.workload), len(numbers)) for one in line.pods], np.int32
        )

    def moments_of(self, index: int) -> list[Moment]:
        """Return what is known of a pod's life besides its times. A kind of recording may know more."""
        key = key_of(self.line.pods[index])
        found = []
        for one in self.preemptions:
            if one.pod == key:
                text = f"room was made by the eviction of {_listed(one.victims)}"
                found.append(Moment(at=one.at, what="nominated", text=text, node=one.node))
            elif key in one.victims:
                found.append(Moment(at=one.at, what="evicted", text=f"made room for {one.pod}", node=one.node))
        if self.told.every:
            tries = np.flatnonzero(self.told.pods == index)[-_MOST_TRIES:]
            for entry in tries.tolist():
                text, _ = self.told.texts[int(self.told.reasons[entry])]
                found.append(Moment(at=float(self.told.times[entry]), what="rejected", text=text[:_MOST_TEXT]))
        return found


def key_of(pod: PodTimes) -> str:
    return f"{pod.namespace}/{pod.name}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}"
