"""Table of recorded decisions in Python: ``kubesched.decisions(path)``.

A table is a list of :class:`~kubesched.explain.records.Record`; ``frame()`` makes a data frame of it.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from kubesched.explain.records import Record, RecordFilter, read_records
from kubesched.explain.records.schema import PodRef

from ..simulate.results.frames import frame_of

__all__ = ["Decisions", "columns_of", "decisions"]

#: Records that a table holds, unless told otherwise.
_MOST: Final = 1_000_000


class Decisions(list[Record]):
    """Table of decisions, oldest first.

    Attributes:
        warnings: remarks about the file: its last line may be torn.
    """

    def __init__(self, records: Iterable[Record] = (), warnings: Iterable[str] = ()) -> None:
        super().__init__(records)
        self.warnings = list(warnings)

    def table(self) -> dict[str, list[Any]]:
        """Return values by column name."""
        return columns_of(self)

    def frame(self, library: str | None = None) -> Any:
        """Return :meth:`table` as a data frame of ``pandas`` or ``polars``; by default of the one that is installed.

        Raises:
            ValueError: for another library.
            ImportError: when it is not installed.
        """
        return frame_of(self.table(), library)


def decisions(
    path: str | os.PathLike[str],
    *,
    pod: str = "",
    node: str = "",
    plugin: str = "",
    outcome: str = "",
    since: float | None = None,
    until: float | None = None,
    most: int | None = _MOST,
) -> Decisions:
    """Read decisions from a file that was written with ``--decisions``.

    The arguments choose decisions as the options of ``kubesched decisions`` do; times are epoch seconds. Of more than
    ``most`` decisions the last are returned.

    Raises:
        DecisionsError: if the file is no file of decisions or is damaged; the text names the line.
        OSError: if it cannot be read.
    """
    wanted = RecordFilter(pod=pod, node=node, plugin=plugin, outcome=outcome, since=since, until=until)
    torn: list[str] = []
    records = read_records(os.fspath(path), on_torn=torn.append)
    found = deque((record for record in records if record is not None and wanted.accepts(record)), maxlen=most)
    return Decisions(found, torn)


def columns_of(records: Iterable[Record]) -> dict[str, list[Any]]:
    """Return values by column name, a row per record."""
    rows = [_row(record) for record in records]
    names = list(_row(_EMPTY)) if not rows else list(rows[0])
    return {name: [row[name] for row in rows] for name in names}


def _row(record: Record) -> dict[str, Any]:
    best = record.top[0].total if record.top else None
    second = record.top[1] if len(record.top) > 1 else None
    return {
        "seq": record.seq,
        "at": record.at,
        "namespace": record.pod.namespace,
        "pod": record.pod.name,
        "profile": record.profile,
        "attempt": record.attempt,
        "outcome": record.outcome,
        "stage": record.stage,
        "node": record.node,
        "total": best,
        "second_node": second.node if second is not None else "",
        "second_total": second.total if second is not None else None,
        "ties": record.ties,
        "feasible": record.feasible,
        "evaluated": record.evaluated,
        "nodes": record.nodes,
        "rejected_by": ",".join(sorted({verdict.plugin for verdict in record.verdicts if verdict.plugin})),
        "victims": len(record.preemption.victims) if record.preemption is not None else 0,
        "nominated_node": record.nominated_node,
        "path": record.path,
        "message": record.message,
        "queue_seconds": record.queue_seconds,
        "search_seconds": record.search_seconds,
        "binding_seconds": record.binding_seconds,
    }


_EMPTY: Final = Record(seq=0, at=0.0, pod=PodRef("", "", ""), outcome="")
