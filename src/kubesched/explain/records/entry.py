"""Entry of an attempt: the rows of its two halves, made while the scheduler decides, of what is at hand.

A ring keeps entries, a file has their rows; :func:`record_of` makes a record when one is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from kubesched.scheduler.framework.status import Status

from .schema import Ended, PodRef, Preempted, RankedNode, Record, Tried, Verdict

__all__ = ["Entry", "record_of", "verdicts_of"]

#: Bytes of an entry with its best nodes, and of a verdict, besides texts of their own.
_ENTRY: Final = 1200
_VERDICT: Final = 150


class Entry(msgspec.Struct, gc=False, eq=False):
    """Entry of one attempt.

    Attributes:
        row, end: first and second half; None while the attempt has not ended, or if the pod was bound.
        plugins: names of the score plugins.
        verdicts: of nodes that do not fit, if no node does.
        victims: a preemption, or None.
        size: approximate number of bytes, without what many entries share.
        file, line: number of the file that has the first half, and the place there; 0 if none has it.
    """

    row: Tried
    plugins: tuple[str, ...] = ()
    verdicts: list[Verdict] = []
    victims: Preempted | None = None
    end: Ended | None = None
    size: int = _ENTRY
    file: int = 0
    line: int = 0

    def finish(self, end: Ended) -> None:
        """Set the end of an attempt whose pod was not bound."""
        self.end = end
        victims = 100 * len(self.victims.victims) if self.victims is not None else 0
        self.size = _ENTRY + _VERDICT * len(end.verdicts) + len(end.message) + victims

    def record(self) -> Record:
        """Return the record of the attempt, once it has ended."""
        return record_of(self.row, self.plugins, self.end)


def record_of(tried: Tried, plugins: tuple[str, ...], ended: Ended | None) -> Record:
    """Return the record of an attempt. ``plugins`` are the names of the score plugins, ``ended`` is None of a bound pod."""
    return Record(
        seq=tried.seq,
        at=tried.at,
        pod=PodRef(tried.namespace, tried.name, tried.uid, tried.resource_version),
        outcome=ended.outcome if ended is not None else "bound",
        profile=tried.profile,
        attempt=tried.attempt,
        stage=ended.stage if ended is not None else "",
        node=tried.top[0][0] if tried.top else "",
        message=ended.message if ended is not None else "",
        path=tried.path,
        nodes=tried.nodes,
        evaluated=tried.evaluated,
        feasible=tried.feasible,
        ties=tried.ties,
        top=[RankedNode.of(node, plugins, scores) for node, scores in tried.top],
        verdicts=ended.verdicts if ended is not None else tried.verdicts,
        preemption=ended.preemption if ended is not None else None,
        nominated_node=ended.nominated_node if ended is not None else "",
        queue_seconds=_seconds(tried.queue),
        search_seconds=_seconds(tried.search),
        binding_seconds=_seconds(ended.binding if ended is not None else tried.bound or 0),
    )


def _seconds(microseconds: int) -> float:
    return max(microseconds, 0) / 1e6


def verdicts_of(counts: Sequence[tuple[Status, int]]) -> list[Verdict]:
    """Return statuses and their numbers of nodes as verdicts."""
    return [Verdict(status.plugin, status.code.label, list(status.reasons()), nodes) for status, nodes in counts]
