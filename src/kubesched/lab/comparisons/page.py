"""Comparison as a page of HTML, which loads nothing from elsewhere. Callers: the command line and :mod:`.views`."""

from __future__ import annotations

import html
from typing import Final

from ..simulate.results.html_report import page_of
from ..simulate.results.html_view import html_table
from .report import KINDS, ComparisonReport, Figure
from .text import HEADINGS, change_text, figure_text, places_text, shown_figures

__all__ = ["content", "render_page"]

#: Most pods of one kind, and most workloads, that the page lists.
_MOST: Final = 500


def render_page(comparison: ComparisonReport) -> str:
    """Return the page. All text is escaped."""
    return page_of(f"{comparison.a.name} and {comparison.b.name}", content(comparison, wide=True))


def content(comparison: ComparisonReport, *, wide: bool = False) -> str:
    """Return the figures and the pods that differ as a piece of HTML. All text is escaped."""
    a, b = comparison.a, comparison.b
    parts = [f"<p>A: {html.escape(a.name)} ({a.form})<br>B: {html.escape(b.name)} ({b.form})</p>"]
    rows = [_row(one) for one in shown_figures(comparison, wide=wide)]
    parts.append(html_table(("figure", "A", "B", "change"), rows))
    if comparison.workloads:
        places = [
            (
                f"{one.namespace}/{one.workload}",
                places_text(one.zones_a, one.nodes_a),
                places_text(one.zones_b, one.nodes_b),
            )
            for one in comparison.workloads[:_MOST]
        ]
        parts.append(html_table(("workload", "pods in A", "pods in B"), places))
    if len(comparison.workloads) > _MOST:
        parts.append(f"<p>and {len(comparison.workloads) - _MOST:,} more</p>")
    for kind in KINDS:
        pods = [one for one in comparison.pods if one.kind == kind]
        if pods:
            parts.append(f"<h2>{len(pods):,} {HEADINGS[kind]}</h2>")
            listed = [(one.pod, one.workload, one.a, one.b, one.why) for one in pods[:_MOST]]
            parts.append(html_table(("pod", "workload", "node in A", "node in B", "why"), listed))
        if len(pods) > _MOST:
            parts.append(f"<p>and {len(pods) - _MOST:,} more</p>")
    parts.append(f"<p>{comparison.counts['same']:,} pods are the same.</p>")
    return "".join(parts)


def _row(figure: Figure) -> tuple[str, str, str, str]:
    return figure.name, figure_text(figure, figure.a), figure_text(figure, figure.b), change_text(figure)
