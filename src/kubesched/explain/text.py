"""Explanations as lines for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kubesched.base.lines import Line, columns, title
from kubesched.base.times import timestamp
from kubesched.scheduler.plugins.demands.words import counted, listed

from .pod_groups.text import group_lines
from .quotas import quota_notes
from .records.schema import Record
from .report import (
    Alternative,
    Criteria,
    Explanation,
    NodeScore,
    NotCreated,
    ObstacleReport,
    Pending,
    Placed,
    PreemptionReport,
    QueueState,
    Reason,
)

__all__ = ["explanation_lines", "pending_lines", "preemption_lines"]

#: Most names shown of a group of pending pods.
_MOST_NAMES: Final = 3
#: Most groups of pending pods, pods with a node, lines of one list, that are shown unless all are asked for.
_MOST_GROUPS: Final = 5
_MOST_PLACED: Final = 5
_MOST_LINES: Final = 6
#: Most lines of one list where there are more groups than this, so that the answer stays on one screen.
_FEW_GROUPS: Final = 2
_FEW_LINES: Final = 2


def explanation_lines(
    document: Explanation, *, wide: bool = False, moment: Callable[[float], str] = lambda at: f"at {timestamp(at)}"
) -> list[Line]:
    """Return an explanation for people. ``wide`` shows every group, pod, reason and score.

    ``moment`` returns the time of a preemption in words.
    """
    groups = document.pending if wide else document.pending[:_MOST_GROUPS]
    lines = [*group_lines(document.pod_groups, wide=wide), *pending_lines(groups, wide=wide)]
    lines += _hidden(document.pending[len(groups) :])
    lines += not_created_lines(document.not_created, wide=wide)
    placed = document.placed if wide else document.placed[:_MOST_PLACED]
    if placed:
        lines += title("Why on this node")
    for index, one in enumerate(placed):
        lines += [Line("")] if index else []
        lines += _placed(one, wide)
    if len(placed) < len(document.placed):
        lines += [
            Line(""),
            Line(f"{len(document.placed) - len(placed):,} more pods with a node: --wide shows all", "dim"),
        ]
    if document.evicted:
        lines += title("Why evicted")
        for item in document.evicted:
            lines += preemption_lines(item, moment(item.at), wide=True)
    return [*lines, *(Line(note) for note in document.notes)]


def not_created_lines(found: Sequence[NotCreated], *, wide: bool = True) -> list[Line]:
    """Return lines about workloads that lack pods because of quotas. Without ``wide`` a long list is cut."""
    lines = title("Not created") if found else []
    shown = found if wide else found[:_MOST_GROUPS]
    for one in shown:
        lines.append(Line(f"{one.workload} in {one.namespace}: {one.existing:,} of {one.wanted:,} pods", "warn"))
        lines += [Line(f"    {text}") for text in quota_notes([one])]
        if one.event:
            lines.append(Line(f"  {one.event}", "dim"))
        lines += [Line(f"  what would help: {hint}", "good") for hint in one.hints]
    if len(shown) < len(found):
        lines.append(Line(f"and {len(found) - len(shown):,} more workloads: --wide shows all", "dim"))
    return lines


def _hidden(groups: Sequence[Pending]) -> list[Line]:
    if not groups:
        return []
    pods = sum(group.count for group in groups)
    return [Line(""), Line(f"{len(groups)} more groups with {pods:,} pods: --wide shows all", "dim")]


def pending_lines(pending: Sequence[Pending], *, wide: bool = True) -> list[Line]:
    """Return pending pods, the reasons, and hints. Without ``wide`` long lists are cut."""
    if not pending:
        return []
    lines = title("Pending")
    most = None if wide else _MOST_LINES if len(pending) <= _FEW_GROUPS else _FEW_LINES
    for index, group in enumerate(pending):
        if index:
            lines.append(Line(""))
        lines += _pending_group(group, most)
    return lines


def _pending_group(group: Pending, most: int | None) -> list[Line]:
    """Return lines about pods; ``most`` lines of each list, or all."""
    subject = group.pods[0] if group.count == 1 else f"{group.count:,} pods"
    if group.count > 1 and group.workload:
        subject += f" of {group.workload} in {group.pods[0].split('/', 1)[0]}"
    lines = [Line(f"{subject}: {group.reason}", "warn")]
    if group.count > 1:
        lines.append(Line(f"  {listed(group.pods[:_MOST_NAMES], group.count)}", "dim"))
    lines.append(Line(f"  {group.message}"))
    lines += _cut([Line(f"    {_obstacle(one)}") for one in group.obstacles or group.reasons], most)
    lines += _cut([Line(f"  {text}") for text in group.waits_for], most)
    lines += _cut([Line(f"  what would help: {hint}", "good") for hint in group.hints], most)
    lines += _cut([Line(f"  {text}", "warn") for text in group.remarks], most)
    for other in group.alternatives:
        lines += _alternative(other, "")
    if group.queue is not None:
        lines += _queue(group.queue, most)
    return lines


def _cut(lines: list[Line], most: int | None) -> list[Line]:
    """Return the first ``most`` lines, and how many more there are; all lines if it is None."""
    hidden = len(lines) - most if most is not None else 0
    if hidden <= 1:
        return lines
    return [*lines[:most], Line(f"    and {hidden:,} more: --wide shows all", "dim")]


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes}m" if hours else f"{minutes}m {rest}s" if minutes else f"{rest}s"


_PLACES: Final = {
    "Active": "is next in line",
    "Backoff": "waits for the end of its backoff",
    "Unschedulable": "waits for an event that may help",
    "Gated": "is held back before scheduling",
    "InFlight": "is being scheduled now",
    "WaitingOnPermit": "has a node, and waits for permission",
    "Binding": "has a node, and is being bound",
}


def _queue(state: QueueState, most: int | None) -> list[Line]:
    """Return the place in the queue, and the events that wake the pod."""
    parts = [_PLACES[state.place]]
    if state.attempts:
        parts.append(f"tried {counted(state.attempts, 'time')}")
    if state.waited is not None:
        parts.append(f"queued for {_duration(state.waited)}")
    if state.ahead is not None:
        parts.append(f"{counted(state.ahead, 'pod')} before it")
    if state.backoff is not None:
        parts.append(f"backoff ends in {_duration(state.backoff)}")
    if state.rejected_by:
        parts.append(f"rejected by {', '.join(state.rejected_by)}")
    if state.held_by:
        parts.append(f"held by {', '.join(state.held_by)}")
    if state.nominated_node:
        parts.append(f"nominated to {state.nominated_node}")
    if state.retry is not None:
        parts.append(f"tried again in {_duration(state.retry)} at the latest")
    by_text: dict[str, dict[str, None]] = {}
    for wake in state.wakes:
        by_text.setdefault(wake.text, {})[wake.plugin] = None
    by_plugins: dict[tuple[str, ...], list[str]] = {}
    for text, names in by_text.items():
        by_plugins.setdefault(tuple(names), []).append(text)
    woken = [
        Line(f"    when {_either(texts)}, if that helps against {', '.join(names)}")
        for names, texts in by_plugins.items()
    ]
    lines = [Line(f"  in the queue: {'; '.join(parts)}")]
    if woken:
        lines += [Line("  tried again before:"), *_cut(woken, most)]
    return lines


def _either(texts: Sequence[str]) -> str:
    return f"{'; '.join(texts[:-1])}; or {texts[-1]}" if len(texts) > 1 else texts[0]


# -- pods with a node --------------------------------------------------------------------------------------


def _placed(one: Placed, wide: bool) -> list[Line]:
    head = f"{one.pod} on {one.node}"
    if one.rank is not None:
        head += f": place {one.rank:,} of {counted(one.feasible, 'node')} that fit, of {one.nodes:,}"
    lines = [Line(head, "warn" if one.problems else "good"), Line(f"  {one.decided}")]
    if one.decision is not None:
        lines.append(Line(f"  {_decision(one.decision)}"))
    lines += [Line(f"  {remark}", "dim") for remark in one.remarks]
    lines += [Line(f"    {problem.text} [{problem.plugin}]") for problem in one.problems]
    lines += _score_table(one.best, one.node, wide)
    for other in one.alternatives:
        lines += _alternative(other, one.node)
    return lines + _cut(
        [Line(f"    {_obstacle(reason)}", "dim") for reason in one.reasons], None if wide else _MOST_LINES
    )


def _decision(record: Record) -> str:
    """Return what the scheduler recorded when it chose the node."""
    text = f"decided at {timestamp(record.at)}, attempt {record.attempt}: {record.feasible:,} of {counted(record.nodes, 'node')} fitted"
    best = [f"{one.node} {one.total}" for one in record.top if one.scores]
    if best:
        text += f"; {', '.join(best)}"
    if record.ties > 1:
        text += f"; {record.ties:,} tied, and chance chose {record.node}"
    return text


def _score_table(best: Sequence[NodeScore], own: str, wide: bool) -> list[Line]:
    """Return the best nodes with their scores: raw, normalised, weighted. Plugins without any difference share a line."""
    if not best:
        return []
    plugins = [score.plugin for score in best[0].scores]
    by_plugin = {name: [next(one for one in node.scores if one.plugin == name) for node in best] for name in plugins}
    shown = [name for name in plugins if wide or len({one.score for one in by_plugin[name]}) > 1]
    head = ["", "NODE", "TOTAL", *(f"{name} x{by_plugin[name][0].weight}" for name in shown)]
    rows = []
    for at, node in enumerate(best):
        cells = (f"{one.score} ({one.raw} -> {one.normalized})" for one in (by_plugin[name][at] for name in shown))
        rows.append(["*" if node.node == own else "", node.node, str(node.total), *cells])
    lines = [Line(f"    {text}", "" if at else "dim") for at, text in enumerate(columns(head, rows))]
    alike = [f"{name} {by_plugin[name][0].score}" for name in plugins if name not in shown]
    if alike:
        lines.append(Line(f"    equal for these nodes: {', '.join(alike)}", "dim"))
    return lines


def _alternative(other: Alternative, own: str) -> list[Line]:
    """Return why another node was not chosen, and what would have turned that."""
    if not other.fits:
        lines = [Line(f"  {other.node} does not fit:")]
        lines += [Line(f"    {one.text} [{one.plugin}]") for one in other.obstacles]
        changes = [" AND ".join(one.changes) for one in other.remedies]
        return lines + [Line(f"    it would fit: {text}", "good") for text in changes]
    points = ", ".join(f"{plugin} {points:+d}" for plugin, points in other.differences.items())
    if other.lost_by is None:
        lines = [Line(f"  {other.node} fits, with a total of {other.total}")]
    elif other.lost_by > 0:
        lines = [Line(f"  {other.node} lost against {own} by {other.lost_by}: {points}")]
    elif other.lost_by < 0:
        lines = [Line(f"  {other.node} is ahead of {own} now by {-other.lost_by}: {points}")]
    else:
        lines = [Line(f"  {other.node} is as good as {own}" + (f": {points}" if points else ""))]
    return lines + [Line(f"    {turn.text}", "good") for turn in other.turns]


# -- preemptions -------------------------------------------------------------------------------------------


def _obstacle(one: ObstacleReport | Reason) -> str:
    text = f"{counted(one.nodes, 'node')}: {one.text}"
    if one.plugin:
        text += f" [{one.plugin}]"
    if one.examples:
        text += f": {listed(one.examples[:_MOST_NAMES], one.nodes)}"
    return text


def preemption_lines(item: PreemptionReport, when: str, *, wide: bool = False) -> list[Line]:
    """Return lines about a preemption: a summary, then indented lines about victims and other nodes.

    ``wide`` adds the values that decided between the candidates.
    """
    budgets = f", {counted(item.budget_violations, 'budget violation')}" if item.budget_violations else ""
    lines = [Line(f"{item.pod} (priority {item.priority:,}) on {item.node} {when}{budgets}")]
    lines.append(Line(f"  evicted: {', '.join(item.victims)}"))
    if item.budgets:
        lines.append(Line(f"  budgets violated: {', '.join(item.budgets)}"))
    if wide and item.criteria is not None:
        lines.append(Line(f"  {item.node}: {_criteria(item.criteria)}", "dim"))
    for why, nodes in _by_reason(item).items():
        lines.append(Line(f"  not {', '.join(nodes)}: {why}", "dim"))
    if wide:
        lines += [
            Line(f"    {lost.node}: {_criteria(lost.criteria)}", "dim")
            for lost in item.lost
            if lost.criteria is not None
        ]
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


def _criteria(values: Criteria) -> str:
    return (
        f"{counted(values.budget_violations, 'budget violation')}, highest priority {values.highest_priority:,}, "
        f"sum of priorities {values.priority_sum:,}, {counted(values.victims, 'victim')}, "
        f"running since {timestamp(values.earliest_start)}"
    )
