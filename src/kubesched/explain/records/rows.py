"""Rows of attempts in a file of decisions: their writer, and the reader that makes records of them.

Callers: :mod:`.file`, :mod:`.reading`.
"""

from __future__ import annotations

from typing import Final

from .entry import Entry, micros, seconds, verdicts_of
from .schema import PLUGINS, Bound, Decided, Ended, Plugins, PodRef, RankedNode, Record, Row, Tried

__all__ = ["AttemptReader", "AttemptRows"]

#: Bytes of rows that a reader holds, because the ends of their attempts have not come.
_MOST_HELD: Final = 64 << 20
_NONE: Final = (None, (), 0)


class AttemptRows:
    """Maker of the rows of one file."""

    def __init__(self) -> None:
        self._plugins: dict[tuple[str, ...], int] = {(): 0}

    def tried(self, rows: list[object], entry: Entry) -> None:
        """Append the rows for the first half of an attempt."""
        plugins = self._plugins.get(entry.plugins)
        if plugins is None:
            plugins = self._number(rows, entry.plugins)
        meta, path, popped, counts = entry.meta, entry.path, entry.popped, entry.counts
        rows.append(
            Tried(
                entry.profile,
                entry.attempt,
                path.value if path is not None else "",
                entry.nodes,
                entry.evaluated,
                entry.feasible,
                entry.start,
                plugins,
                entry.seq,
                entry.at,
                meta.namespace,
                meta.name,
                meta.uid,
                meta.resource_version,
                micros(entry.queued, popped),
                micros(popped, entry.at),
                entry.ties,
                [*zip(entry.top, entry.scores, strict=True)],
                verdicts_of(counts) if counts and entry.node else [],
            )
        )

    def _number(self, rows: list[object], names: tuple[str, ...]) -> int:
        if len(self._plugins) > PLUGINS:
            self._plugins = {(): 0}
        number = self._plugins[names] = len(self._plugins)
        rows.append(Plugins(number, names))
        return number

    @staticmethod
    def ended(rows: list[object], entry: Entry) -> None:
        """Append the row for the second half of an attempt."""
        binding = micros(entry.at, entry.ended)
        if entry.outcome == "bound":
            rows.append(Bound(entry.seq, binding))
            return
        rows.append(
            Ended(
                entry.seq,
                binding,
                entry.outcome,
                entry.stage,
                entry.message,
                verdicts_of(entry.counts),
                entry.victims,
                entry.nominated,
            )
        )


class AttemptReader:
    """Reader of the rows of one file, which joins both halves of each attempt."""

    def __init__(self) -> None:
        #: By number of the attempt: its first half, the names of its plugins, and bytes. By number of plugins: likewise.
        self._open: dict[int, tuple[Tried | None, tuple[str, ...], int]] = {}
        self._plugins: dict[int, tuple[tuple[str, ...], int]] = {0: ((), 0)}
        self._held = 0

    def take(self, row: Row, size: int) -> Decided | Record | None:
        """Return what a row of ``size`` bytes says: a moment of a decision, a record, or nothing.

        Raises:
            ValueError: if the row cannot belong there.
        """
        match row:
            case Tried():
                if row.plugins not in self._plugins:
                    raise ValueError(f"no earlier line has the plugins {row.plugins}")
                names = self._plugins[row.plugins][0]
                if any(len(scores) not in (0, len(names)) for _, scores in row.top):
                    raise ValueError(f"attempt {row.seq}: expected {len(names)} scores for each node")
                self._hold(size - self._open.get(row.seq, _NONE)[2])
                self._open[row.seq] = row, names, size
                key = f"{row.namespace}/{row.name}" if row.namespace else row.name
                return Decided(row.seq, row.at, key, row.uid, row.top[0][0] if row.top else "", row.start)
            case Plugins():
                if not 1 <= row.number <= PLUGINS:
                    raise ValueError(f"number of plugins: {row.number} is not between 1 and {PLUGINS}")
                self._hold(size - self._plugins.get(row.number, ((), 0))[1])
                self._plugins[row.number] = row.names, size
                return None
            case Bound() | Ended():
                return self._record(row)
        raise AssertionError(row)

    def _hold(self, size: int) -> None:
        self._held += size
        if self._held > _MOST_HELD:
            raise ValueError(f"attempts without an end have more than {_MOST_HELD >> 20} MiB")

    def _record(self, end: Bound | Ended) -> Record:
        tried, plugins, size = self._open.pop(end.seq, _NONE)
        if tried is None:
            raise ValueError(f"no earlier line has the attempt {end.seq}")
        self._held -= size
        ended = end if isinstance(end, Ended) else None
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
            queue_seconds=seconds(tried.queue),
            search_seconds=seconds(tried.search),
            binding_seconds=seconds(end.binding),
        )
