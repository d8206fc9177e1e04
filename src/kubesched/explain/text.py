"""Explanations as lines for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubesched.base.lines import Line, title
from kubesched.scheduler.plugins.demands.words import counted, listed

from .report import ObstacleReport, Pending, PreemptionReport, Reason

__all__ = ["pending_lines", "preemption_lines"]

#: Most names shown of a group of pending pods.
_MOST_NAMES: Final = 3


def pending_lines(pending: Sequence[Pending]) -> list[Line]:
    """Return pending pods, the reasons, and hints."""
    if not pending:
        return []
    lines = title("Pending")
    for index, group in enumerate(pending):
        if index:
            lines.append(Line(""))
        lines += _pending_group(group)
    return lines


def _pending_group(group: Pending) -> list[Line]:
    subject = group.pods[0] if group.count == 1 else f"{group.count:,} pods"
    if group.count > 1 and group.workload:
        subject += f" of {group.workload} in {group.pods[0].split('/', 1)[0]}"
    lines = [Line(f"{subject}: {group.reason}", "warn")]
    if group.count > 1:
        lines.append(Line(f"  {listed(group.pods[:_MOST_NAMES], group.count)}", "dim"))
    lines.append(Line(f"  {group.message}"))
    lines += [Line(f"    {_obstacle(one)}") for one in group.obstacles or group.reasons]
    lines += [Line(f"  {text}") for text in group.waits_for]
    lines += [Line(f"  what would help: {hint}", "good") for hint in group.hints]
    return lines


def _obstacle(one: ObstacleReport | Reason) -> str:
    text = f"{counted(one.nodes, 'node')}: {one.text}"
    if one.plugin:
        text += f" [{one.plugin}]"
    if one.examples:
        text += f": {listed(one.examples[:_MOST_NAMES], one.nodes)}"
    return text


def preemption_lines(item: PreemptionReport, when: str) -> list[Line]:
    """Return lines about a preemption: a summary, then indented lines about victims and other nodes."""
    budgets = f", {counted(item.budget_violations, 'budget violation')}" if item.budget_violations else ""
    lines = [Line(f"{item.pod} (priority {item.priority:,}) on {item.node} {when}{budgets}")]
    lines.append(Line(f"  evicted: {', '.join(item.victims)}"))
    for why, nodes in _by_reason(item).items():
        lines.append(Line(f"  not {', '.join(nodes)}: {why}", "dim"))
    hidden = item.candidates - 1 - len(item.lost)
    if hidden:
        lines.append(Line(f"  {counted(hidden, 'other candidate')} lost as well", "dim"))
    for reason, count in item.not_helpful.items():
        lines.append(Line(f"  {counted(count, 'node')} not helped: {reason}", "dim"))
    return lines


def _by_reason(item: PreemptionReport) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for lost in item.lost:
        found.setdefault(lost.why, []).append(lost.node)
    return found
