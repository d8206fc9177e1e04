"""Pod groups as lines for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubesched.base.lines import Line, title
from kubesched.scheduler.plugins.demands.words import counted, listed

from ..report import ObstacleReport, PodGroupReport
from .words import placement_text

__all__ = ["group_lines"]

#: Most groups, and lines of one list, that are shown unless all are asked for; and names in one line.
_MOST_GROUPS: Final = 8
_MOST_LINES: Final = 6
_MOST_NAMES: Final = 3


def group_lines(groups: Sequence[PodGroupReport], *, wide: bool = True, head: str = "Pod groups") -> list[Line]:
    """Return pod groups below a title, what stands in the way of each, and what helps. Without ``wide`` long lists are cut."""
    if not groups:
        return []
    lines = title(head)
    shown = groups if wide else groups[:_MOST_GROUPS]
    for index, group in enumerate(shown):
        lines += [Line("")] if index else []
        lines += _group(group, None if wide else _MOST_LINES)
    hidden = len(groups) - len(shown)
    if hidden:
        lines += [Line(""), Line(f"{counted(hidden, 'more pod group')}: --wide shows all", "dim")]
    return lines


def _group(group: PodGroupReport, most: int | None) -> list[Line]:
    lines = [
        Line(f"{group.group}: {group.state}", "good" if group.state == "Scheduled" else "warn"),
        Line(f"  {group.summary}"),
        Line(f"  {_members(group)}", "dim"),
    ]
    if group.topology or len(group.placements) > 1:
        lines += _cut([Line(f"    {placement_text(one)}") for one in group.placements], most)
        hidden = group.placements_tried - len(group.placements)
        if hidden:
            lines.append(Line(f"    and {hidden:,} more placements, none of them nearer", "dim"))
    if group.next:
        where = f" in {group.placements[0].name}" if group.placements and group.placements[0].name else ""
        lines.append(Line(f"  the next member, {group.next}, finds no node{where}:"))
        lines += _cut([Line(f"    {_obstacle(one)}") for one in group.obstacles], most)
    lines += _cut([Line(f"  what would help: {hint}", "good") for hint in group.hints], most)
    lines += [Line(f"  {remark}", "dim") for remark in group.remarks]
    return lines


def _members(group: PodGroupReport) -> str:
    needs = f", at least {group.min_count:,} together" if group.policy == "gang" else ""
    parts = [f"{group.scheduled:,} with a node", f"{group.queued:,} to be tried", f"{group.gated:,} held"]
    if group.deleting:
        parts.append(f"{group.deleting:,} being deleted")
    key = f"; one {group.topology} for all" if group.topology else ""
    return f"{counted(group.members, 'member')}{needs}: {', '.join(parts)}{key}"


def _obstacle(one: ObstacleReport) -> str:
    names = listed(one.examples[:_MOST_NAMES], one.nodes)
    return f"{counted(one.nodes, 'node')}: {one.text} [{one.plugin}]: {names}"


def _cut(lines: list[Line], most: int | None) -> list[Line]:
    hidden = len(lines) - most if most is not None else 0
    return lines if hidden <= 1 else [*lines[:most], Line(f"    and {hidden:,} more: --wide shows all", "dim")]
