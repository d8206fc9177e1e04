"""Entry of an attempt: what a decision record is made of, noted with little work while the scheduler decides.

An entry refers to what is at hand. :meth:`Entry.record` makes the record when it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from kubesched.api.types import ObjectMeta
from kubesched.scheduler.core.search import Path
from kubesched.scheduler.framework.status import Status

from .schema import PodRef, Preempted, RankedNode, Record, Verdict

__all__ = ["Entry", "micros", "seconds", "verdicts_of"]

#: Bytes of an entry with its best nodes, and of a verdict, besides texts of their own.
_ENTRY: Final = 1200
_VERDICT: Final = 150


class Entry(msgspec.Struct, gc=False, eq=False):
    """Entry of one attempt. The attributes are those of :class:`~.schema.Record` where their names are equal.

    Attributes:
        meta: the pod's metadata.
        popped, queued, ended: times of the pop, of the entry into the queue, and of the end.
        path: the way of the search; None if it failed.
        plugins, top, scores: the score plugins; the best nodes; and each one's final scores, which add up to its total.
        counts: distinct statuses of nodes that do not fit, and their numbers of nodes.
        victims: a preemption, or None.
        start: see :class:`~.schema.Decided`.
        file: number of the file that has the first half of the entry; 0 if none has.
    """

    seq: int
    meta: ObjectMeta
    at: float = 0.0
    popped: float = 0.0
    queued: float = 0.0
    attempt: int = 0
    profile: str = ""
    nodes: int = 0
    path: Path | None = None
    node: str = ""
    evaluated: int = 0
    feasible: int = 0
    ties: int = 0
    plugins: tuple[str, ...] = ()
    top: Sequence[str] = ()
    scores: Sequence[tuple[int, ...]] = ()
    counts: Sequence[tuple[Status, int]] = ()
    start: int | None = None
    ended: float = 0.0
    outcome: str = ""
    stage: str = ""
    message: str = ""
    nominated: str = ""
    victims: Preempted | None = None
    file: int = 0

    @property
    def size(self) -> int:
        """Approximate number of bytes, without what many entries share."""
        if self.outcome == "bound":
            return _ENTRY
        victims = 100 * len(self.victims.victims) if self.victims is not None else 0
        return _ENTRY + _VERDICT * len(self.counts) + len(self.message) + victims

    def record(self) -> Record:
        """Return the record of the attempt, once it has ended."""
        meta, plugins = self.meta, self.plugins
        return Record(
            seq=self.seq,
            at=self.at,
            pod=PodRef(meta.namespace, meta.name, meta.uid, meta.resource_version),
            outcome=self.outcome,
            profile=self.profile,
            attempt=self.attempt,
            stage=self.stage,
            node=self.node,
            message=self.message,
            path=self.path.value if self.path is not None else "",
            nodes=self.nodes,
            evaluated=self.evaluated,
            feasible=self.feasible,
            ties=self.ties,
            top=[RankedNode.of(node, plugins, scores) for node, scores in zip(self.top, self.scores, strict=True)],
            verdicts=verdicts_of(self.counts),
            preemption=self.victims,
            nominated_node=self.nominated,
            queue_seconds=seconds(micros(self.queued, self.popped)),
            search_seconds=seconds(micros(self.popped, self.at)),
            binding_seconds=seconds(micros(self.at, self.ended)),
        )


def micros(start: float, end: float) -> int:
    """Return the microseconds between two times; less than 0 if the clock was set back."""
    return int((end - start) * 1e6 + 0.5)


def seconds(microseconds: int) -> float:
    """Return microseconds in seconds, at least 0."""
    return max(microseconds, 0) / 1e6


def verdicts_of(counts: Sequence[tuple[Status, int]]) -> list[Verdict]:
    """Return statuses and their numbers of nodes as verdicts."""
    return [Verdict(status.plugin, status.code.label, list(status.reasons()), nodes) for status, nodes in counts]
