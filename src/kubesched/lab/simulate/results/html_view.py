"""Summary of a result in a few lines of HTML, for notebooks. Caller: :mod:`.views`."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Final

from kubesched.explain.quotas import quota_notes

from .column_units import unit_of
from .report import GROUP_HEAD, group_cells
from .result import Result
from .scaling_lines import SCALING_HEAD, scaling_cells, scaling_text

__all__ = ["html_of", "html_table"]

#: Most groups of pending pods, and most warnings, that are shown.
_MOST: Final = 10
_WARN: Final = ' style="color:#b00"'


def html_of(result: Result) -> str:
    """Return counts, the resources of the cluster, reasons of pending pods, and warnings. All text is escaped."""
    totals = result.totals
    counts = {
        "nodes": totals.nodes,
        "pods": totals.pods,
        "placed": totals.placed,
        "succeeded": totals.succeeded,
        "failed": totals.failed,
        "pending": totals.pending,
        "on missing nodes": totals.on_missing_nodes,
        "on failed nodes": totals.on_failed_nodes,
        "refused": totals.refused,
        "removed": totals.removed,
    }
    always = ("nodes", "pods", "placed", "pending")
    shown = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count or name in always)
    parts = [f"<p><b>{shown}</b><br>{result.virtual_seconds:g} s of virtual time, {result.stopped}</p>"]
    parts.append(_resources(result))
    if result.scaling is not None:
        parts.append(html_table([name.lower() for name in SCALING_HEAD], map(scaling_cells, result.scaling.groups)))
        parts.append(f"<p>{html.escape(scaling_text(result.scaling))}</p>")
    if result.groups:
        ordered = sorted(result.groups, key=lambda one: not one.waiting)
        rows = [(*group_cells(one), one.why.summary if one.why is not None else "") for one in ordered[:_MOST]]
        parts.append(html_table((*(name.lower() for name in GROUP_HEAD), "why"), rows))
        parts += _more(len(ordered), "pod groups")
    if result.pending:
        pending = [
            (group.workload or group.pods[0], f"{group.count:,}", group.reason, group.message, "; ".join(group.hints))
            for group in result.pending[:_MOST]
        ]
        parts.append(html_table(("pending", "pods", "reason", "message", "what would help"), pending))
        parts += _more(len(result.pending), "groups")
    if result.not_created:
        lacking = [
            (one.workload, f"{one.wanted - one.existing:,}", "; ".join(quota_notes([one])), "; ".join(one.hints))
            for one in result.not_created[:_MOST]
        ]
        parts.append(html_table(("not created", "pods", "why", "what would help"), lacking))
        parts += _more(len(result.not_created), "workloads")
    said = [error.text for error in result.errors]
    said += [f"{item.source}: {item.count:,} refused: {item.message}" for item in result.refused]
    said += result.warnings
    parts += [f"<div{_WARN}>{html.escape(text)}</div>" for text in said[:_MOST]]
    parts += _more(len(said), "remarks")
    return "".join(parts)


def _resources(result: Result) -> str:
    shares = {one.name: one for one in result.times.resources}
    rows = []
    for use in result.resources:
        if not (use.requested or use.peak or use.name in ("cpu", "memory", "pods")):
            continue
        unit, share = unit_of(use.name, [use.allocatable, use.peak or 0]), shares.get(use.name)
        amounts = (unit.text(amount) for amount in (use.requested, use.allocatable, use.peak or 0))
        means = (f"{share.utilisation:.0%}", f"{share.goodput:.0%}") if share is not None else ("-", "-")
        rows.append((use.name, *amounts, f"{use.requested / use.allocatable:.0%}" if use.allocatable else "-", *means))
    head = ("resource", "requested", "allocatable", "peak", "share", "mean over time", "goodput")
    return html_table(head, rows)


def _more(count: int, what: str) -> list[str]:
    return [f"<div>and {count - _MOST:,} more {what}</div>"] if count > _MOST else []


def html_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of texts, which are escaped."""

    def line(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return f"<table>{line('th', head)}{''.join(line('td', row) for row in rows)}</table>"
