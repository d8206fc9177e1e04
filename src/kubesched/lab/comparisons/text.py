"""Comparison as lines for people. Caller: the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kubesched.base.lines import Line, table, title

from ..simulate.results.durations import seconds
from .report import KINDS, ComparisonReport, Figure, PodDifference, WorkloadDifference

__all__ = ["HEADINGS", "change_text", "comparison_lines", "figure_text", "places_text", "shown_figures"]

#: Kinds of differences in words.
HEADINGS: Final = {
    "lost": "placed in A, not in B",
    "gained": "placed in B, not in A",
    "moved": "on another node",
    "onlyA": "in A only",
    "onlyB": "in B only",
    "outcome": "ended in another way",
    "wait": "waited longer or shorter",
}
#: Most pods of one kind that are listed, unless all are.
_MOST: Final = 10
_SHARES: Final = ("requested ", "utilisation ", "peak utilisation ", "goodput ", "fragmentation ")
_TIMES: Final = ("wait_", "turnaround_", "makespan", "virtual_seconds")


def figure_text(figure: Figure, value: float | str | None) -> str:
    """Return a figure for people: a share as percent, a time as a duration, ``-`` for an unknown one."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if figure.name.startswith(_SHARES):
        return f"{100 * value:.1f}%"
    return seconds(value) if figure.name.startswith(_TIMES) else f"{value:,g}"


def change_text(figure: Figure) -> str:
    """Return the difference of a figure, B minus A, with its sign; empty for equal or unknown ones and for texts."""
    a, b = figure.a, figure.b
    if a is None or b is None or isinstance(a, str) or isinstance(b, str) or a == b:
        return ""
    sign = "+" if b > a else "-"
    if figure.name.startswith(_SHARES):
        return f"{sign}{100 * abs(b - a):.1f} points"
    text = seconds(abs(b - a)) if figure.name.startswith(_TIMES) else f"{abs(b - a):,g}"
    return f"{sign}{text}"


def shown_figures(comparison: ComparisonReport, *, wide: bool) -> list[Figure]:
    """Return the figures to show: those that differ, and the numbers of pods; all if ``wide``."""
    always = ("nodes", "pods", "placed", "pending")
    return [one for one in comparison.figures if wide or one.name in always or one.a != one.b]


def comparison_lines(comparison: ComparisonReport, *, wide: bool = False, width: int | None = None) -> list[Line]:
    """Return the figures side by side, and the pods that differ by kind. ``wide`` shows all figures and pods."""
    a, b = comparison.a, comparison.b
    lines = [Line(f"A: {a.name} ({a.form})"), Line(f"B: {b.name} ({b.form})")]
    rows = [
        (one.name, figure_text(one, one.a), figure_text(one, one.b), change_text(one))
        for one in shown_figures(comparison, wide=wide)
    ]
    lines += title("Figures") + table(("FIGURE", "A", "B", "CHANGE"), rows, (1, 2, 3), width)
    lines += _workloads(comparison.workloads, wide=wide, width=width)
    lines += title("Pods")
    lines.append(Line(f"{comparison.counts['same']:,} the same", "dim"))
    for kind in KINDS:
        pods = [one for one in comparison.pods if one.kind == kind]
        if pods:
            lines.append(Line(f"{len(pods):,} {HEADINGS[kind]}", "warn" if kind in ("lost", "onlyA") else ""))
            lines += _pods(pods, wide=wide)
    return lines


def _workloads(workloads: Sequence[WorkloadDifference], *, wide: bool, width: int | None) -> list[Line]:
    if not workloads:
        return []
    shown = workloads if wide else workloads[:_MOST]
    rows = [
        (
            f"{one.namespace}/{one.workload}",
            places_text(one.zones_a, one.nodes_a),
            places_text(one.zones_b, one.nodes_b),
        )
        for one in shown
    ]
    lines = [*title("Workloads"), *table(("WORKLOAD", "PODS IN A", "PODS IN B"), rows, (), width)]
    if len(shown) < len(workloads):
        lines.append(Line(f"and {len(workloads) - len(shown):,} more (-o wide lists them all)", "dim"))
    return lines


def places_text(zones: Mapping[str, int], nodes: int) -> str:
    """Return pods by zone and the number of their nodes for people."""
    by_zone = ", ".join(f"{zone} {count:,}" for zone, count in zones.items() if zone)
    return f"{sum(zones.values()):,} on {nodes:,} nodes" + (f": {by_zone}" if by_zone else "")


def _pods(pods: Sequence[PodDifference], *, wide: bool) -> list[Line]:
    shown = pods if wide else pods[:_MOST]
    lines = []
    for one in shown:
        nodes = f"{one.a or '-'} → {one.b or '-'}" if one.a != one.b else one.a
        waits = f", waits {_wait(one.wait_a)} → {_wait(one.wait_b)}" if one.kind == "wait" else ""
        why = f": {one.why}" if one.why else ""
        lines.append(Line(f"  {one.pod}  {nodes}{waits}{why}"))
    if len(shown) < len(pods):
        lines.append(Line(f"  and {len(pods) - len(shown):,} more (-o wide lists them all)", "dim"))
    return lines


def _wait(value: float | None) -> str:
    return "-" if value is None else seconds(value)
