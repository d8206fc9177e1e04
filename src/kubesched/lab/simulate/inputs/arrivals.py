"""Arrivals: objects with the annotation ``kubesched.io/arrival`` are created that long after the start.

Any object may have it: a pod, a Job, a Deployment with its pods, a node that joins later. Callers: :mod:`.intake` reads
the annotation, :mod:`..run.simulation` creates the objects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final

from kubesched.base.times import parse_duration
from kubesched.cluster.files import Manifest, ManifestError
from kubesched.cluster.kubelets import DURATION

from ...traces.table import ARRIVAL

__all__ = ["ARRIVAL", "DEFAULT_EPOCH", "Arrivals", "arrival_of", "template_arrival", "wrong_durations"]

#: Start of simulated time by default: 2025-01-01T00:00:00Z.
DEFAULT_EPOCH: Final = 1_735_689_600.0


def _annotation(metadata: Any, name: str = ARRIVAL) -> str | None:
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    text = annotations.get(name) if isinstance(annotations, dict) else None
    return text if isinstance(text, str) else None


def arrival_of(item: Manifest) -> float:
    """Return the seconds after the start at which an object arrives; 0 without the annotation.

    Raises:
        ManifestError: when the annotation is not a duration, or negative.
    """
    text = _annotation(item.data["metadata"])
    if text is None:
        return 0.0
    try:
        seconds = parse_duration(text)
        problem = f"{text!r} is before the start; write a duration after it" if seconds < 0 else ""
    except ValueError as error:
        seconds, problem = 0.0, str(error)
    if problem:
        raise ManifestError(f"{item.source}: {item.kind.kind} {item.name}: metadata.annotations[{ARRIVAL}]: {problem}")
    return seconds


def wrong_durations(items: Iterable[Manifest]) -> Iterator[str]:
    """Yield a message about each annotation ``kubesched.io/duration`` that is no duration, or negative."""
    for item in items:
        data: Any = item.data
        path = ""
        while isinstance(data, dict):
            text = _annotation(data.get("metadata"), DURATION)
            problem = _wrong_duration(text) if text else ""
            if problem:
                place = f"{path}metadata.annotations[{DURATION}]"
                yield f"{item.source}: {item.kind.kind} {item.name}: {place}: {problem}"
            spec = data.get("spec")
            field = "jobTemplate" if isinstance(spec, dict) and "jobTemplate" in spec else "template"
            data, path = spec.get(field) if isinstance(spec, dict) else None, f"{path}spec.{field}."


def _wrong_duration(text: str) -> str:
    try:
        return "" if parse_duration(text) >= 0 else f"{text!r} is negative; write how long the pod runs, such as 30s"
    except ValueError as error:
        return str(error)


def template_arrival(item: Manifest) -> bool:
    """True if the annotation is in the pod template of a workload, where it has no effect."""
    spec = item.data.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    return isinstance(template, dict) and _annotation(template.get("metadata")) is not None


class Arrivals:
    """Objects that are still to arrive, the next first."""

    def __init__(self, later: Iterable[tuple[float, list[Manifest]]], start: float) -> None:
        """``later``: pairs of seconds after the start, and the objects that arrive together at that time.

        ``start`` is the time of the start on the clock that :attr:`next` and :meth:`due` refer to.
        """
        self._later = deque(sorted(((start + at, objects) for at, objects in later), key=lambda item: item[0]))

    def __len__(self) -> int:
        return len(self._later)

    @property
    def next(self) -> float | None:
        """Time of the next arrival; None when nothing is left to arrive."""
        return self._later[0][0] if self._later else None

    def due(self, now: float) -> list[Manifest]:
        """Return the objects that arrive at ``now`` or before. Each is returned once."""
        found: list[Manifest] = []
        while self._later and self._later[0][0] <= now:
            found += self._later.popleft()[1]
        return found
