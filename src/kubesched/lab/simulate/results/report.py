"""Report of a simulation's result as text: aligned columns for people, JSON and YAML for programs.

Nothing here writes anywhere; the command line prints the lines, in colour on a terminal. Columns are cut for a terminal
only, so the table can be piped through grep. The schema of JSON and YAML is in :mod:`.result`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from kubesched.api.yamltext import to_yaml
from kubesched.base.large_json import as_text, large_json
from kubesched.scheduler.plugins.demands.words import amount_text, counted, listed

from .result import (
    ErrorReport,
    NodeUse,
    ObstacleReport,
    Pending,
    Placement,
    PreemptionReport,
    Reason,
    Refusal,
    ResourceUse,
    Result,
    RunTimes,
)

__all__ = [
    "Line",
    "Style",
    "columns",
    "error_text",
    "pending_lines",
    "preemption_lines",
    "render_json",
    "render_table",
    "render_yaml",
    "usage_histogram",
]

Style = Literal["", "title", "dim", "good", "warn", "bad"]

#: Most pods and nodes that are listed one by one; beyond, workloads and a histogram are shown.
MOST_PODS: Final = 40
MOST_NODES: Final = 20
MOST_PREEMPTIONS: Final = 10
#: Most names shown of a group of pending pods.
_MOST_NAMES: Final = 3
_BAR: Final = 40
#: Characters to which a text may be shortened.
_SHORTEST: Final = 12


class Line(NamedTuple):
    """Line of output, with its style on a terminal."""

    text: str
    style: Style = ""


def render_json(result: Result) -> str:
    """Return the result as indented JSON, with a newline at the end."""
    return large_json(result, indent=2).decode() + "\n"


def render_yaml(result: Result) -> str:
    """Return the result as YAML, keys in the order of the schema."""
    return to_yaml(as_text(msgspec.to_builtins(result)), sort_keys=False)


def columns(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = (), width: int | None = None
) -> list[str]:
    """Return aligned columns, two blanks apart; ``right`` are the columns that hold numbers.

    With a ``width``, the longest texts (not numbers) are shortened in the middle until the lines fit, but not below
    ``_SHORTEST`` characters.
    """
    table = [list(head), *(list(row) for row in rows)]
    widths = [max(len(row[index]) for row in table) for index in range(len(head))]
    if width is not None:
        texts = [index for index in range(len(head)) if index not in right]
        while texts and sum(widths) + 2 * (len(widths) - 1) > width:
            longest = max(texts, key=lambda index: widths[index])
            if widths[longest] <= _SHORTEST:
                break
            widths[longest] -= 1
        table = [[_shortened(cell, limit) for cell, limit in zip(row, widths, strict=True)] for row in table]
    return [
        "  ".join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]


def _shortened(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    tail = (limit - 1) // 2
    return f"{text[: limit - 1 - tail]}…{text[len(text) - tail :]}"


def render_table(result: Result, *, wide: bool = False, width: int | None = None) -> list[Line]:
    """Return the result for people. ``wide`` lists every pod and node; tables fit into ``width``."""
    return [
        *_summary(result),
        *_placements(result.placements, wide, width),
        *_nodes(result.nodes, wide, width),
        *_cluster(result.resources, result.totals.nodes, width),
        *_preemptions(result.preemptions, wide),
        *pending_lines(result.pending),
        *_refused(result.refused),
    ]


def _title(text: str) -> list[Line]:
    return [Line(""), Line(text, "title")]


def _table(
    head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = (), width: int | None = None
) -> list[Line]:
    lines = columns(head, rows, right=right, width=width)
    return [Line(lines[0], "dim"), *(Line(text) for text in lines[1:])]


def seconds(value: float) -> str:
    """Return a duration for people: ``45s``, ``2h 5m``."""
    whole = round(value)
    if whole < 120:
        return f"{value:.3g}s"
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}h {minutes}m" if hours else f"{minutes}m {whole % 60}s"


_ENDINGS: Final = {
    "settled": "nothing moves any more",
    "until": "the time limit is reached, which --until sets",
    "noProgress": "pods are tried again and again without success",
}


def _summary(result: Result) -> list[Line]:
    totals = result.totals
    parts = [f"{totals.placed:,} placed"]
    if totals.succeeded:
        parts.append(f"{totals.succeeded:,} of them succeeded")
    if totals.failed:
        parts.append(f"{totals.failed:,} failed")
    parts.append(f"{totals.pending:,} pending")
    if totals.on_missing_nodes:
        parts.append(f"{totals.on_missing_nodes:,} on missing nodes")
    if totals.gated:
        parts.append(f"{totals.gated:,} of them gated")
    if totals.refused:
        parts.append(f"{totals.refused:,} refused")
    if totals.removed:
        parts.append(f"{totals.removed:,} removed")
    text = f"{counted(totals.nodes, 'node')}, {counted(totals.pods, 'pod')}: {', '.join(parts)}"
    end = f"after {seconds(result.virtual_seconds)} of virtual time {_ENDINGS[result.stopped]} (seed {result.seed})"
    return [
        Line(text, "warn" if totals.pending or totals.refused or totals.on_missing_nodes or result.errors else "good"),
        Line(end, "dim"),
        *_times(result.times),
    ]


def _times(times: RunTimes) -> list[Line]:
    """Return makespan and waits, if pods ended or had to wait."""
    parts = []
    if times.makespan is not None:
        parts.append(f"makespan {seconds(times.makespan)}")
    wait = times.wait
    if wait is not None and wait.max:
        most = ", ".join(
            f"{name} {seconds(value)}" for name, value in (("p50", wait.p50), ("p95", wait.p95), ("max", wait.max))
        )
        parts.append(f"wait until bound: mean {seconds(wait.mean)}, {most}")
    return [Line("; ".join(parts), "dim")] if parts else []


# -- preemptions -------------------------------------------------------------------------------------------


def _preemptions(preemptions: Sequence[PreemptionReport], wide: bool) -> list[Line]:
    """Return victims, node and preemptor of each preemption, and why other nodes were not chosen."""
    if not preemptions:
        return []
    lines = _title("Preempted")
    for item in preemptions if wide else preemptions[:MOST_PREEMPTIONS]:
        lines += preemption_lines(item, f"after {seconds(item.at)}")
    if not wide and len(preemptions) > MOST_PREEMPTIONS:
        lines.append(Line(f"and {len(preemptions) - MOST_PREEMPTIONS:,} more (--wide lists them all)", "dim"))
    return lines


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


# -- placed ------------------------------------------------------------------------------------------------


def _placements(placements: Sequence[Placement], wide: bool, width: int | None) -> list[Line]:
    if not placements:
        return []
    lines = _title("Placed")
    if wide or len(placements) <= MOST_PODS:
        head = ("NAMESPACE", "POD", "NODE", "PHASE", "BOUND AT")
        rows = [
            (item.namespace, item.name, item.node, item.phase, "-" if item.bound_at is None else seconds(item.bound_at))
            for item in placements
        ]
        return lines + _table(head, rows, (4,), width)
    grouped: dict[tuple[str, str], list[Placement]] = {}
    for item in placements:
        grouped.setdefault((item.namespace, item.workload or "(bare pods)"), []).append(item)
    rows = [
        (namespace, workload, f"{len(items):,}", f"{len({item.node for item in items}):,}", _phases(items))
        for (namespace, workload), items in sorted(grouped.items())
    ]
    lines += _table(("NAMESPACE", "WORKLOAD", "PODS", "NODES", "PHASES"), rows, (2, 3), width)
    return [*lines, Line(f"({len(placements):,} pods by workload; --wide lists each of them)", "dim")]


def _phases(items: Iterable[Placement]) -> str:
    return ", ".join(f"{count:,} {phase}" for phase, count in sorted(Counter(item.phase for item in items).items()))


# -- nodes -------------------------------------------------------------------------------------------------


def _percent(use: ResourceUse) -> str:
    return f"{100 * use.requested / use.allocatable:.0f}%" if use.allocatable else "-"


def _cell(use: ResourceUse | None) -> str:
    if use is None:
        return "-"
    requested, allocatable = amount_text(use.name, use.requested), amount_text(use.name, use.allocatable)
    return f"{requested}/{allocatable} {_percent(use)}"


def _nodes(nodes: Sequence[NodeUse], wide: bool, width: int | None) -> list[Line]:
    if not nodes:
        return []
    lines = _title("Nodes (requested/allocatable)")
    if not wide and len(nodes) > MOST_NODES:
        lines += usage_histogram(nodes)
        return [*lines, Line(f"({len(nodes):,} nodes by how full they are; --wide lists each of them)", "dim")]
    names = list(dict.fromkeys(use.name for node in nodes for use in node.resources))
    # Storage that no pod requests gets no column.
    names = [
        name
        for name in names
        if name != "ephemeral-storage"
        or any(use.requested for node in nodes for use in node.resources if use.name == name)
    ]
    rows = []
    for node in nodes:
        by_name = {use.name: use for use in node.resources}
        rows.append((node.name, node.zone or "-", *(_cell(by_name.get(name)) for name in names)))
    return lines + _table(("NODE", "ZONE", *(name.upper() for name in names)), rows, range(2, 2 + len(names)), width)


def usage_histogram(nodes: Sequence[NodeUse]) -> list[Line]:
    """Return numbers of nodes by use of the scarcer of cpu and memory, in steps of ten percent."""
    counts = [0] * 11
    for node in nodes:
        shares = [
            use.requested / use.allocatable
            for use in node.resources
            if use.name in ("cpu", "memory") and use.allocatable
        ]
        counts[min(10, int(max(shares, default=0.0) * 10))] += 1
    most = max(counts)
    lines = []
    for step, count in enumerate(counts):
        label = "     100%" if step == 10 else f"{step * 10:>3}-{step * 10 + 10:>3} %"
        bar = "#" * (0 if not count else max(1, round(_BAR * count / most)))
        lines.append(Line(f"{label:>9}  {count:>6,}  {bar}".rstrip()))
    return lines


def _cluster(resources: Sequence[ResourceUse], nodes: int, width: int | None) -> list[Line]:
    if not nodes:
        return []
    rows = []
    for use in resources:
        if use.name == "ephemeral-storage" and not use.peak:
            continue
        amounts = [amount_text(use.name, amount) for amount in (use.requested, use.allocatable, use.peak or 0)]
        rows.append((use.name, *amounts[:2], _percent(use), amounts[2]))
    return _title("Cluster") + _table(
        ("RESOURCE", "REQUESTED", "ALLOCATABLE", "SHARE", "PEAK"), rows, range(1, 5), width
    )


# -- pending -----------------------------------------------------------------------------------------------


def pending_lines(pending: Sequence[Pending]) -> list[Line]:
    """Return pending pods, the reasons, and hints."""
    if not pending:
        return []
    lines = _title("Pending")
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
    lines += [Line(f"  {explanation.text}") for explanation in group.explanations]
    lines += [Line(f"  what would help: {hint}", "good") for hint in group.hints]
    return lines


def _obstacle(one: ObstacleReport | Reason) -> str:
    text = f"{counted(one.nodes, 'node')}: {one.text}"
    if one.plugin:
        text += f" [{one.plugin}]"
    if one.examples:
        text += f": {listed(one.examples[:_MOST_NAMES], one.nodes)}"
    return text


def _refused(refused: Sequence[Refusal]) -> list[Line]:
    if not refused:
        return []
    lines = _title("Refused by the API server")
    for item in refused:
        subject = f"{item.count:,} pods of {item.workload}" if item.workload and item.count > 1 else item.pods[0]
        lines += [Line(f"{item.source}: {subject}", "bad"), Line(f"  {item.message}")]
    return lines


def error_text(item: ErrorReport) -> str:
    """Return an exception as text: its message, its type, and where it was raised."""
    times = f", {item.count:,} times" if item.count > 1 else ""
    return f"{item.text} ({item.type} at {item.file}:{item.line}{times})"
