"""Entry of an attempt: what a decision record is made of, noted with little work while the scheduler decides.

An entry holds texts, numbers and small tuples. :meth:`Entry.record` makes the record when it is read or written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubesched.api.types import ObjectMeta
from kubesched.scheduler.framework.status import Status

from .schema import PodRef, Preempted, RankedNode, Record, Verdict

__all__ = ["Entry"]

#: Bytes of an entry with its best nodes, and of a verdict, besides texts of their own.
_ENTRY: Final = 1200
_VERDICT: Final = 150


class Entry:
    """Entry of one attempt. The attributes are those of :class:`~.schema.Record` where their names are equal.

    Defaults are attributes of the class: an attempt sets only what it has.

    Attributes:
        meta: the pod's metadata.
        popped, queued, ended: times of the pop, of the entry into the queue, and of the end.
        names, ranked: the score plugins, and (node, total, final scores) of the best nodes.
        counts: distinct statuses of nodes that do not fit, and their numbers of nodes.
        victims: a preemption, or None.
        start: see :class:`~.schema.Decided`.
    """

    at = popped = queued = ended = 0.0
    attempt = nodes = evaluated = feasible = ties = 0
    profile = outcome = stage = node = message = path = nominated = ""
    names: tuple[str, ...] = ()
    ranked: Sequence[tuple[str, int, tuple[int, ...]]] = ()
    counts: Sequence[tuple[Status, int]] = ()
    victims: Preempted | None = None
    start: int | None = None

    def __init__(self, seq: int, meta: ObjectMeta) -> None:
        self.seq = seq
        self.meta = meta

    @property
    def key(self) -> str:
        meta = self.meta
        return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name

    @property
    def size(self) -> int:
        """Approximate number of bytes, without what many entries share."""
        if self.outcome == "bound":
            return _ENTRY
        victims = 100 * len(self.victims.victims) if self.victims is not None else 0
        return _ENTRY + _VERDICT * len(self.counts) + len(self.message) + victims

    def record(self) -> Record:
        """Return the record of the attempt, once it has ended."""
        meta, names = self.meta, self.names
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
            path=self.path,
            nodes=self.nodes,
            evaluated=self.evaluated,
            feasible=self.feasible,
            ties=self.ties,
            top=[
                RankedNode(node, total, dict(zip(names, scores, strict=True)) if scores else {})
                for node, total, scores in self.ranked
            ],
            verdicts=[
                Verdict(status.plugin, status.code.label, list(status.reasons()), nodes)
                for status, nodes in self.counts
            ],
            preemption=self.victims,
            nominated_node=self.nominated,
            queue_seconds=round(max(self.popped - self.queued, 0.0), 6),
            search_seconds=round(max(self.at - self.popped, 0.0), 6),
            binding_seconds=round(max(self.ended - self.at, 0.0), 6),
        )
