"""Plans for nodes as lines for people."""

from __future__ import annotations

from typing import Final

from kubesched.base.lines import Line, table, title
from kubesched.explain.text import pending_lines
from kubesched.scheduler.plugins.demands.words import counted, listed

from ...node_groups import MOST_NODES
from .plan_report import Plan, Removal

__all__ = ["plan_lines"]

#: Most rows of a table, and names of pods, unless all are asked for.
_MOST_ROWS: Final = 20
_MOST_NAMES: Final = 3
#: Hours of a month, as clouds count it.
_MONTH: Final = 730


def plan_lines(plan: Plan, *, wide: bool = False, width: int | None = None) -> list[Line]:
    """Return a plan for people. ``wide`` lists everything; tables fit into ``width``."""
    lines = [Line(f"{counted(plan.cluster_nodes, 'node')}, {counted(plan.cluster_pods, 'pod')}", "dim")]
    if plan.removal is not None:
        return lines + _removal(plan.removal, wide, width)
    lines.append(Line(_summary(plan), "good" if plan.verified and not plan.unplaced else "warn"))
    if plan.add:
        lines += _bought(plan, width)
        lines += [Line(f"  {text}", "dim") for text in _quality(plan)]
        lines += _nodes(plan, wide, width)
    if plan.unplaced:
        lines += [*title("No node of these groups helps"), *pending_lines(plan.unplaced, wide=wide)[2:]]
    if plan.left_out:
        text = f"{counted(plan.left_out, 'pod')} not planned for: they wait for their gates, or for another scheduler"
        lines.append(Line(text, "dim"))
    return lines


def _summary(plan: Plan) -> str:
    if not plan.wanted:
        return "no pod is without a node: nothing to add"
    if not plan.add:
        return f"{counted(plan.wanted, 'pod')} without a node, and no node to add places {'it' if plan.wanted == 1 else 'them'}"
    nodes = counted(sum(one.count for one in plan.add), "node")
    return f"{nodes} for {plan.placed:,} of {counted(plan.wanted, 'pod')} without one: {_money(plan.cost)} per hour, {_money(plan.cost * _MONTH)} per month"


def _money(amount: float) -> str:
    return f"{amount:,.2f}" if amount >= 10 else f"{amount:,.4g}"


def _quality(plan: Plan) -> list[str]:
    """Return what is known about the plan, as sentences."""
    found = []
    if plan.verified:
        found.append(
            "simulated: with these nodes the scheduler placed every one of them"
            + (", but those below" if plan.unplaced else "")
        )
    else:
        found.append("not confirmed: in the run with these nodes some pods found no node")
    if plan.steps:
        steps = (", ".join(f"{count:,} {name}" for name, count in step.items()) for step in plan.steps)
        found.append(f"one after another, since pods spread over nodes that others need whole: {'; then '.join(steps)}")
    if plan.exact:
        found.append("the cheapest there is")
    elif plan.bound:
        gap = 100 * (plan.cost / plan.bound - 1)
        found.append(f"no choice costs less than {_money(plan.bound)} per hour: at most {gap:.1f} % too dear")
    if plan.ready_after:
        found.append(f"the last node is ready after {plan.ready_after:g} s")
    interruptions = sum(one.interruptions for one in plan.add)
    if interruptions:
        found.append(f"{interruptions:.2g} interruptions of spot nodes are expected per hour")
    return found


def _bought(plan: Plan, width: int | None) -> list[Line]:
    rows = [
        [
            one.group,
            f"{one.count:,}",
            _money(one.price),
            _money(one.cost),
            ", ".join(f"{zone} {count}" for zone, count in one.zones.items()),
            f"{one.existing + one.count:,}" + (f" of {one.maximum:,}" if one.maximum < MOST_NODES else ""),
        ]
        for one in plan.add
    ]
    return table(["GROUP", "ADD", "PRICE", "COST PER HOUR", "ZONES", "NODES THEN"], rows, (1, 2, 3), width)


def _nodes(plan: Plan, wide: bool, width: int | None) -> list[Line]:
    shown = plan.nodes if wide else plan.nodes[:_MOST_ROWS]
    rows = []
    for one in shown:
        used = [
            f"{100 * one.requested.get(name, 0) / one.allocatable[name]:.0f} %" if one.allocatable.get(name) else ""
            for name in ("cpu", "memory")
        ]
        names = one.pods if wide else one.pods[:_MOST_NAMES]
        rows.append([one.node, one.zone, *used, f"{len(one.pods)}", listed(names, len(one.pods))])
    lines = [*title("New nodes"), *table(["NODE", "ZONE", "CPU", "MEMORY", "PODS", ""], rows, (2, 3, 4), width)]
    if len(shown) < len(plan.nodes):
        lines.append(Line(f"{len(plan.nodes) - len(shown):,} more: --wide lists every node", "dim"))
    return lines


def _removal(found: Removal, wide: bool, width: int | None) -> list[Line]:
    nodes = counted(len(found.drains), "node")
    if not found.drains:
        lines = [Line("no node can go", "warn")]
    else:
        saved = f": {_money(found.saving)} per hour, {_money(found.saving * _MONTH)} per month" if found.saving else ""
        lines = [Line(f"{nodes} can go{saved}", "good")]
        lines.append(
            Line(
                "  simulated: each pod that is evicted found another node, one after another, within its budgets", "dim"
            )
        )
    if found.exact:
        lines.append(Line("  no other set of nodes saves more", "dim"))
    for number, drain in enumerate(found.drains if wide else found.drains[:_MOST_ROWS], 1):
        group = f" ({drain.group})" if drain.group else ""
        lines += [
            Line(""),
            Line(f"{number}. drain {drain.node}{group}: {counted(len(drain.moves), 'pod')} to move", "title"),
        ]
        moves = drain.moves if wide else drain.moves[:_MOST_ROWS]
        lines += (
            table(
                ["  EVICT", "ITS PLACE IS TAKEN ON", "BUDGET"],
                [[f"  {move.pod}", move.to, move.budget] for move in moves],
                width=width,
            )
            if moves
            else []
        )
        if len(moves) < len(drain.moves):
            lines.append(Line(f"  {len(drain.moves) - len(moves):,} more: --wide lists every pod", "dim"))
    if len(found.drains) > _MOST_ROWS and not wide:
        lines.append(Line(f"{len(found.drains) - _MOST_ROWS:,} more: --wide lists every node", "dim"))
    if found.kept:
        rows = [[one.node, one.why] for one in (found.kept if wide else found.kept[:_MOST_ROWS])]
        lines += [*title("What stays"), *table(["NODE", "WHY"], rows, width=width)]
        if len(rows) < len(found.kept):
            lines.append(Line(f"{len(found.kept) - len(rows):,} more: --wide lists every node", "dim"))
    return lines
