"""Entry of an attempt: what a decision record is made of, noted with little work while the scheduler decides.

An entry holds texts, numbers and small tuples. :meth:`Entry.record` makes the record when it is read or written.
"""

from __future__ import annotations

from typing import Final

from kubesched.scheduler.framework.status import Status

from .schema import PodRef, Preempted, RankedNode, Record, Verdict

__all__ = ["Entry"]

#: Bytes of an entry, of a node with scores and of a verdict, besides texts of their own.
_ENTRY: Final = 700
_NODE: Final = 200
_VERDICT: Final = 150


class Entry:
    """Entry of one attempt. The attributes are those of :class:`~.schema.Record` where their names are equal.

    Attributes:
        ranked: names of the score plugins, and (node, total, final scores) of the best nodes.
        counts: distinct statuses of nodes that do not fit, and their numbers of nodes.
        victims: a preemption, or None.
        start: see :class:`~.schema.Decided`.
        ended: time of the end.
    """

    __slots__ = (
        "at",
        "attempt",
        "counts",
        "ended",
        "evaluated",
        "feasible",
        "message",
        "name",
        "namespace",
        "node",
        "nodes",
        "nominated",
        "outcome",
        "path",
        "popped",
        "profile",
        "queued",
        "ranked",
        "seq",
        "stage",
        "start",
        "ties",
        "uid",
        "version",
        "victims",
    )

    def __init__(self, seq: int, namespace: str, name: str, uid: str, version: str) -> None:
        self.seq = seq
        self.namespace, self.name, self.uid, self.version = namespace, name, uid, version
        self.at = self.popped = self.queued = self.ended = 0.0
        self.nodes = self.evaluated = self.feasible = self.ties = 0
        self.outcome = self.stage = self.node = self.message = self.path = self.nominated = ""
        self.ranked: tuple[tuple[str, ...], list[tuple[str, int, tuple[int, ...]]]] = ((), [])
        self.counts: list[tuple[Status, int]] = []
        self.victims: Preempted | None = None
        self.start: int | None = None

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def size(self) -> int:
        """Approximate number of bytes, without texts that many entries share."""
        victims = 100 * len(self.victims.victims) if self.victims is not None else 0
        return _ENTRY + _NODE * len(self.ranked[1]) + _VERDICT * len(self.counts) + len(self.message) + victims

    def record(self) -> Record:
        """Return the record of the attempt, once it has ended."""
        names, ranked = self.ranked
        return Record(
            seq=self.seq,
            at=self.at,
            pod=PodRef(self.namespace, self.name, self.uid, self.version),
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
                for node, total, scores in ranked
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
