"""Report of a simulation's result as text: aligned columns for people, JSON and YAML for programs.

Nothing here writes anywhere; the command line prints the lines, in colour on a terminal. Columns are cut for a terminal
only, so the table can be piped through grep. The schema of JSON and YAML is in :mod:`.result`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from kubesched.api.yamltext import to_yaml
from kubesched.base.large_json import as_text, large_json
from kubesched.base.lines import Line, table, title
from kubesched.explain.pod_groups.text import group_lines
from kubesched.explain.report import Explanation, Pending, PreemptionReport
from kubesched.explain.text import explanation_lines, not_created_lines, pending_lines, preemption_lines
from kubesched.scheduler.plugins.demands.words import counted

from .column_units import Unit, unit_of
from .durations import seconds
from .event_lines import event_lines
from .plugin_times import plugin_time_lines
from .result import (
    ErrorReport,
    GroupOutcome,
    NodeUse,
    Placement,
    Refusal,
    ResourceUse,
    Result,
    RunTimes,
)
from .scaling_lines import scaling_lines

__all__ = [
    "GROUP_HEAD",
    "error_text",
    "group_cells",
    "render_json",
    "render_table",
    "render_yaml",
    "usage_histogram",
]

#: Most pods and nodes that are listed one by one; beyond, workloads and a histogram are shown.
MOST_PODS: Final = 40
MOST_NODES: Final = 20
MOST_PREEMPTIONS: Final = 10
MOST_GROUPS: Final = 20
#: Columns of :func:`group_cells`.
GROUP_HEAD: Final = (
    "NAMESPACE",
    "GROUP",
    "POLICY",
    "MEMBERS",
    "MIN",
    "PLACED",
    "WAITING",
    "PLACEMENT",
    "SINCE",
    "WAIT",
)
_BAR: Final = 40


def render_json(result: Result) -> str:
    """Return the result as indented JSON, with a newline at the end."""
    return large_json(result, indent=2).decode() + "\n"


def render_yaml(result: Result) -> str:
    """Return the result as YAML, keys in the order of the schema."""
    return to_yaml(as_text(msgspec.to_builtins(result)), sort_keys=False)


def render_table(result: Result, *, wide: bool = False, width: int | None = None) -> list[Line]:
    """Return the result for people. ``wide`` lists every pod and node; tables fit into ``width``."""
    return [
        *_summary(result),
        *_placements(result.placements, wide, width),
        *_nodes(result.nodes, wide, width),
        *_cluster(result, width),
        *scaling_lines(result.scaling, width),
        *event_lines(result.events, wide=wide),
        *_preemptions(result.preemptions, wide),
        *_groups(result.groups, wide, width),
        *pending_lines(_alone(result)),
        *not_created_lines(result.not_created, wide=wide),
        *(_explained(result.explanation, wide) if result.explanation is not None else ()),
        *_refused(result.refused),
        *plugin_time_lines(result.plugin_times),
    ]


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
    if totals.on_failed_nodes:
        parts.append(f"{totals.on_failed_nodes:,} on failed nodes")
    if totals.gated:
        parts.append(f"{totals.gated:,} of them gated")
    if totals.refused:
        parts.append(f"{totals.refused:,} refused")
    if totals.removed:
        parts.append(f"{totals.removed:,} removed")
    text = f"{counted(totals.nodes, 'node')}, {counted(totals.pods, 'pod')}: {', '.join(parts)}"
    end = f"after {seconds(result.virtual_seconds)} of virtual time {_ENDINGS[result.stopped]} (seed {result.seed})"
    return [
        Line(
            text,
            "warn"
            if totals.pending
            or result.not_created
            or totals.refused
            or totals.on_missing_nodes
            or totals.on_failed_nodes
            or result.errors
            else "good",
        ),
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
    lines = title("Preempted")
    for item in preemptions if wide else preemptions[:MOST_PREEMPTIONS]:
        lines += preemption_lines(item, f"after {seconds(item.at)}")
    if not wide and len(preemptions) > MOST_PREEMPTIONS:
        lines.append(Line(f"and {len(preemptions) - MOST_PREEMPTIONS:,} more (--wide lists them all)", "dim"))
    return lines


# -- placed ------------------------------------------------------------------------------------------------


def _placements(placements: Sequence[Placement], wide: bool, width: int | None) -> list[Line]:
    if not placements:
        return []
    lines = title("Placed")
    if wide or len(placements) <= MOST_PODS:
        head = ("NAMESPACE", "POD", "NODE", "PHASE", "BOUND AT")
        rows = [
            (item.namespace, item.name, item.node, item.phase, "-" if item.bound_at is None else seconds(item.bound_at))
            for item in placements
        ]
        return lines + table(head, rows, (4,), width)
    grouped: dict[tuple[str, str], list[Placement]] = {}
    for item in placements:
        grouped.setdefault((item.namespace, item.workload or "(bare pods)"), []).append(item)
    rows = [
        (namespace, workload, f"{len(items):,}", f"{len({item.node for item in items}):,}", _phases(items))
        for (namespace, workload), items in sorted(grouped.items())
    ]
    lines += table(("NAMESPACE", "WORKLOAD", "PODS", "NODES", "PHASES"), rows, (2, 3), width)
    return [*lines, Line(f"({len(placements):,} pods by workload; --wide lists each of them)", "dim")]


def _phases(items: Iterable[Placement]) -> str:
    return ", ".join(f"{count:,} {phase}" for phase, count in sorted(Counter(item.phase for item in items).items()))


# -- pod groups --------------------------------------------------------------------------------------------


def _groups(groups: Sequence[GroupOutcome], wide: bool, width: int | None) -> list[Line]:
    """Return the pod groups as a table, those with waiting members first, and why these wait."""
    if not groups:
        return []
    ordered = sorted(groups, key=lambda one: not one.waiting)
    shown = ordered if wide else ordered[:MOST_GROUPS]
    lines = title("Pod groups") + table(GROUP_HEAD, [group_cells(one) for one in shown], (3, 4, 5, 6, 8, 9), width)
    if len(shown) < len(ordered):
        lines.append(Line(f"and {len(ordered) - len(shown):,} more (--wide lists them all)", "dim"))
    why = [one.why for one in shown if one.why is not None]
    return lines + group_lines(why, wide=wide, head="Waiting pod groups")


def group_cells(one: GroupOutcome) -> tuple[str, ...]:
    """Return a row about a pod group: namespace, name, policy, counts of members, placement, times."""
    return (
        one.namespace,
        one.name,
        one.policy or "-",
        f"{one.members:,}",
        f"{one.min_count:,}" if one.min_count else "-",
        f"{one.placed:,}",
        f"{one.waiting:,}",
        one.placement or "-",
        "-" if one.since is None else seconds(one.since),
        "-" if one.wait is None else seconds(one.wait),
    )


def _alone(result: Result) -> list[Pending]:
    """Return the pending pods but those of groups that are explained as a whole."""
    told = {pod for one in result.groups if one.why is not None for pod in one.why.pods}
    return [one for one in result.pending if not told.issuperset(one.pods)]


# -- nodes -------------------------------------------------------------------------------------------------


def _percent(use: ResourceUse) -> str:
    return f"{100 * use.requested / use.allocatable:.0f}%" if use.allocatable else "-"


def _cell(use: ResourceUse | None, unit: Unit) -> str:
    """Return requested and allocatable amounts in the column's unit; ``-`` for a resource that the node lacks."""
    return "-" if use is None else f"{unit.text(use.requested)}/{unit.text(use.allocatable)} {_percent(use)}"


def _nodes(nodes: Sequence[NodeUse], wide: bool, width: int | None) -> list[Line]:
    if not nodes:
        return []
    lines = title("Nodes (requested/allocatable)")
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
    units = {
        name: unit_of(name, [use.allocatable for node in nodes for use in node.resources if use.name == name])
        for name in names
    }
    rows = []
    for node in nodes:
        by_name = {use.name: use for use in node.resources}
        rows.append(
            (node.name, node.status, node.zone or "-", *(_cell(by_name.get(name), units[name]) for name in names))
        )
    return lines + table(
        ("NODE", "STATUS", "ZONE", *(name.upper() for name in names)), rows, range(3, 3 + len(names)), width
    )


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


def _cluster(result: Result, width: int | None) -> list[Line]:
    """Return amounts of the cluster at the end and at the peak; where pods ended, also means over the time."""
    if not result.totals.nodes:
        return []
    shares = {one.name: one for one in result.times.resources} if result.times.makespan is not None else {}
    rows = []
    for use in result.resources:
        if use.name == "ephemeral-storage" and not use.peak:
            continue
        unit, share = unit_of(use.name, [use.allocatable, use.peak or 0]), shares.get(use.name)
        peak = unit.text(use.peak) if use.peak is not None else "-"
        over_time = (f"{share.utilisation:.0%}", f"{share.goodput:.0%}") if share is not None else ("-", "-")
        amounts = (unit.text(use.requested), unit.text(use.allocatable))
        rows.append((use.name, *amounts, _percent(use), peak, *(over_time if shares else ())))
    head = ("RESOURCE", "REQUESTED", "ALLOCATABLE", "SHARE", "PEAK", *(("MEAN", "GOODPUT") if shares else ()))
    return title("Cluster") + table(head, rows, range(1, len(head)), width)


def _explained(document: Explanation, wide: bool) -> list[Line]:
    return explanation_lines(document, wide=wide, moment=lambda at: f"after {seconds(at)}")


# -- refused ---------------------------------------------------------------------------------------------


def _refused(refused: Sequence[Refusal]) -> list[Line]:
    if not refused:
        return []
    lines = title("Refused by the API server")
    for item in refused:
        subject = f"{item.count:,} pods of {item.workload}" if item.workload and item.count > 1 else item.pods[0]
        lines += [Line(f"{item.source}: {subject}", "bad"), Line(f"  {item.message}")]
    return lines


def error_text(item: ErrorReport) -> str:
    """Return an exception as text: its message, its type, and where it was raised."""
    times = f", {item.count:,} times" if item.count > 1 else ""
    return f"{item.text} ({item.type} at {item.file}:{item.line}{times})"
