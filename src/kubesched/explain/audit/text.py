"""Audits as lines for people."""

from __future__ import annotations

from typing import Final

from kubesched.base.lines import Line, Style, title
from kubesched.scheduler.plugins.demands.words import counted, listed

from .report import LEVELS, Audit, Finding, Level

__all__ = ["audit_lines"]

_STYLES: Final[dict[Level, Style]] = {"error": "bad", "warning": "warn", "info": ""}
_HEADS: Final[dict[Level, str]] = {"error": "Errors", "warning": "Warnings", "info": "Worth knowing"}
#: Most findings of a level, and most names of a finding, unless all are asked for.
_MOST: Final = 10
_MOST_NAMES: Final = 3


def audit_lines(audit: Audit, *, is_wide: bool = False) -> list[Line]:
    """Return an audit for people. ``is_wide`` shows every finding and name that the audit has."""
    totals = audit.totals
    pods = f"{counted(totals.pods, 'pod')} ({totals.pending:,} pending)"
    lines = [Line(f"{counted(totals.nodes, 'node')}, {pods}, as of {audit.as_of}", "dim")]
    for level in LEVELS:
        found = [one for one in audit.findings if one.level == level]
        if not found:
            continue
        lines += title(f"{_HEADS[level]} ({getattr(totals, level):,})")
        shown = found if is_wide else found[:_MOST]
        for one in shown:
            lines += _finding(one, is_wide)
        left = getattr(totals, level) - len(shown)
        if left:
            lines.append(Line(f"{counted(left, 'more finding')}: -o wide shows all", "dim"))
    if not audit.findings:
        lines.append(Line("nothing was found", "good"))
    if audit.unchecked:
        lines += title("Not checked")
        some = audit.unchecked if is_wide else audit.unchecked[:_MOST]
        lines += [Line(f"  {text}") for text in some]
        if len(some) < len(audit.unchecked):
            lines.append(Line(f"  {len(audit.unchecked) - len(some):,} more", "dim"))
    return lines


def _finding(one: Finding, is_wide: bool) -> list[Line]:
    most = None if is_wide else _MOST_NAMES
    lines = [Line(f"{one.rule}: {one.message}", _STYLES[one.level])]
    lines += [Line(f"  {text}") for text in one.details]
    names = listed(one.objects[:most], one.count)
    where = f", on {listed(one.nodes[:most], one.node_count)}" if one.nodes and one.kind != "Node" else ""
    if names not in one.message or where:
        lines.append(Line(f"  {names}{where}", "dim"))
    by = f"{one.plugin}, " if one.plugin else ""
    lines.append(Line(f"  what to do: {one.advice} [{by}{one.source}]", "good"))
    return lines
