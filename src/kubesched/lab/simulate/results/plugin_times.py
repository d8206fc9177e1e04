"""Time by plugin in a simulation: the report, and the table for people."""

from __future__ import annotations

from collections.abc import Sequence

from kubesched.base.lines import Line, table, title
from kubesched.scheduler.framework.plugin_times import PluginTime

from .result import PluginTimeReport

__all__ = ["plugin_time_lines", "plugin_times_report"]


def plugin_times_report(rows: Sequence[PluginTime]) -> list[PluginTimeReport]:
    """Return the report of measured times."""
    whole = sum(row.total for row in rows) or 1.0
    return [
        PluginTimeReport(
            plugin=row.plugin,
            point=row.point,
            calls=row.calls,
            total=row.total,
            mean=row.mean,
            longest=row.longest,
            share=row.total / whole,
            pod=row.pod,
        )
        for row in rows
    ]


def plugin_time_lines(rows: Sequence[PluginTimeReport]) -> list[Line]:
    """Return the table for people; nothing without rows."""
    if not rows:
        return []
    head = ("plugin", "point", "calls", "total", "mean", "max", "share", "longest for")
    cells = [
        (
            row.plugin,
            row.point,
            f"{row.calls:,}",
            f"{row.total:.3f} s",
            f"{row.mean * 1e6:,.1f} µs",
            f"{row.longest * 1e6:,.1f} µs",
            f"{row.share:.1%}",
            row.pod,
        )
        for row in rows
    ]
    return [*title("Time by plugin"), *table(head, cells, right=(2, 3, 4, 5, 6))]
