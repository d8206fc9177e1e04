"""Reader of the rows of attempts in a file of decisions, which makes records of them.

Caller: :mod:`.reading`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .entry import record_of
from .schema import PLUGINS, Bound, Decided, Ended, Plugins, Record, Row, Tried

__all__ = ["AttemptReader"]

#: Bytes of rows that a reader holds, because the ends of their attempts have not come.
_MOST_HELD: Final = 64 << 20
_NONE: Final = (None, (), 0)


class AttemptReader:
    """Reader of the rows of one file, which joins both halves of each attempt."""

    def __init__(self) -> None:
        #: By number of the attempt: its first half, the names of its plugins, and bytes. By number of plugins: likewise.
        self._open: dict[int, tuple[Tried | None, tuple[str, ...], int]] = {}
        self._plugins: dict[int, tuple[tuple[str, ...], int]] = {0: ((), 0)}
        self._held = 0

    def take(self, row: Row, size: int) -> Sequence[Decided | Record]:
        """Return what a row of ``size`` bytes says: a moment of a decision, a record, both, or nothing.

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
                key = f"{row.namespace}/{row.name}" if row.namespace else row.name
                decided = Decided(row.seq, row.at, key, row.uid, row.top[0][0] if row.top else "", row.start)
                if row.bound is not None:
                    return decided, record_of(row, names, None)
                self._hold(size - self._open.get(row.seq, _NONE)[2])
                self._open[row.seq] = row, names, size
                return (decided,)
            case Plugins():
                if not 1 <= row.number <= PLUGINS:
                    raise ValueError(f"number of plugins: {row.number} is not between 1 and {PLUGINS}")
                self._hold(size - self._plugins.get(row.number, ((), 0))[1])
                self._plugins[row.number] = row.names, size
                return ()
            case Bound() | Ended():
                return (self._ended(row),)
        raise AssertionError(row)

    def _hold(self, size: int) -> None:
        self._held += size
        if self._held > _MOST_HELD:
            raise ValueError(f"attempts without an end have more than {_MOST_HELD >> 20} MiB")

    def _ended(self, end: Bound | Ended) -> Record:
        tried, plugins, size = self._open.pop(end.seq, _NONE)
        if tried is None:
            raise ValueError(f"no earlier line has the attempt {end.seq}")
        self._held -= size
        if isinstance(end, Ended):
            return record_of(tried, plugins, end)
        tried.bound = end.binding
        return record_of(tried, plugins, None)
