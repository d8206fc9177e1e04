"""Answers to "how many more fit?" as lines for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubesched.base.lines import Line, table, title
from kubesched.explain.text import pending_lines
from kubesched.scheduler.plugins.demands.words import amount_text, counted, listed

from .capacity_report import Answer, Asked, Capacity, Preempting

__all__ = ["capacity_lines"]

#: Most nodes, and names of evicted workloads, that are listed unless all are asked for.
_MOST_NODES: Final = 20
_MOST_NAMES: Final = 5


def capacity_lines(found: Capacity, *, wide: bool = False, width: int | None = None) -> list[Line]:
    """Return the answers for people. ``wide`` lists every node and reason; tables fit into ``width``."""
    lines = [Line(_cluster(found), "dim")]
    if len(found.answers) == 1:
        return lines + _one(found.answers[0], wide, width)
    return lines + _table(found.answers, width)


def _cluster(found: Capacity) -> str:
    text = f"{counted(found.cluster_nodes, 'node')}, {counted(found.cluster_pods, 'pod')}"
    return f"{text}, of which {found.pending:,} pending: they were tried first" if found.pending else text


def _one(answer: Answer, wide: bool, width: int | None) -> list[Line]:
    lines = [Line(_fit(answer), "good" if answer.copies else "warn")]
    if answer.why_run:
        lines.append(Line(f"  counted by a run of the whole cluster: {answer.why_run}", "dim"))
    if len(answer.pods) > 1:
        rows = [[one.name, str(one.share), f"{one.placed:,}", _requests(one)] for one in answer.pods]
        lines += table(["POD", "SHARE", "PLACED", "REQUESTS"], rows, (1, 2), width)
    lines += _zones(answer, width)
    lines += _nodes(answer, wide, width)
    lines += _resources(answer, width)
    if answer.stopped == "refused":
        lines += [*title("What stops the next one"), Line(f"the cluster refuses it: {answer.refused}", "warn")]
    elif answer.stopped == "most":
        lines.append(Line(f"counting ended at {_copies(answer.copies)}; more may fit (--most)", "dim"))
    else:
        shown = pending_lines(answer.stops, wide=wide)
        lines += [*title("What stops the next one"), *shown[2:]]
    if answer.preempting is not None:
        lines += _preempting(answer.preempting, wide)
    return lines


def _copies(count: int) -> str:
    return "1 copy" if count == 1 else f"{count:,} copies"


def _fit(answer: Answer) -> str:
    if len(answer.pods) == 1 and answer.pods[0].share == 1:
        one = answer.pods[0]
        return f"{answer.copies:,} more of {one.name} fit ({_requests(one)} each)"
    mix = " + ".join(f"{one.share} {one.name}" for one in answer.pods)
    rest = answer.placed - answer.copies * sum(one.share for one in answer.pods)
    more = f", and {counted(rest, 'pod')} of the next" if rest else ""
    return f"{_copies(answer.copies)} of {mix} fit{more}"


def _requests(one: Asked) -> str:
    return ", ".join(f"{name} {amount_text(name, amount)}" for name, amount in one.requests.items()) or "no requests"


def _zones(answer: Answer, width: int | None) -> list[Line]:
    if len(answer.zones) < 2:
        return []
    rows = [[one.zone or "(none)", str(one.nodes), str(one.used), f"{one.pods:,}"] for one in answer.zones]
    return [*title("Zones"), *table(["ZONE", "NODES", "WITH NEW PODS", "NEW PODS"], rows, (1, 2, 3), width)]


def _nodes(answer: Answer, wide: bool, width: int | None) -> list[Line]:
    if not answer.nodes:
        return []
    if not wide and len(answer.nodes) > _MOST_NODES:
        alike: dict[int, int] = {}
        for one in answer.nodes:
            alike[one.pods] = alike.get(one.pods, 0) + 1
        rows = [[f"{pods:,}", f"{nodes:,}"] for pods, nodes in list(alike.items())[:_MOST_NODES]]
        more = [Line("--wide lists every node", "dim")]
        return [*title("Nodes"), *table(["NEW PODS", "ON SO MANY NODES"], rows, (0, 1), width), *more]
    names = [one.name for one in answer.pods]
    several = names if len(names) > 1 else []
    rows = [
        [one.node, one.zone, f"{one.pods:,}", *(f"{one.by_name.get(name, 0):,}" for name in several)]
        for one in answer.nodes
    ]
    right = (2, *range(3, 3 + len(several)))
    return [*title("Nodes"), *table(["NODE", "ZONE", "NEW PODS", *several], rows, right, width)]


def _resources(answer: Answer, width: int | None) -> list[Line]:
    rows = [
        [
            one.name,
            amount_text(one.name, one.allocatable),
            _share(one.before, one.allocatable),
            _share(one.after, one.allocatable),
        ]
        for one in answer.resources
        if one.allocatable and (one.after or one.name in ("cpu", "memory"))
    ]
    return [
        *title("Cluster"),
        *table(["RESOURCE", "ALLOCATABLE", "REQUESTED", "WITH NEW PODS"], rows, (1, 2, 3), width),
    ]


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else ""


def _preempting(found: Preempting, wide: bool) -> list[Line]:
    lines = title("With preemption")
    lines.append(Line(f"{_copies(found.copies)} fit, with {counted(found.victims, 'pod')} evicted"))
    names = [f"{name} {count:,}" for name, count in found.evicted.items()]
    if names:
        lines.append(Line(f"  evicted: {', '.join(names) if wide else listed(names[:_MOST_NAMES], len(names))}"))
    if found.refused:
        lines.append(Line(f"  then the cluster refuses the next one: {found.refused}", "warn"))
    lines += [Line(f"  then: {one.message}") for one in found.stops]
    return lines


def _table(answers: Sequence[Answer], width: int | None) -> list[Line]:
    """Return one row for each kind of pod, asked about alone."""
    preempting = any(one.preempting is not None for one in answers)
    head = ["POD", "FIT", *(["WITH PREEMPTION"] if preempting else []), "REQUESTS", "WHAT STOPS THE NEXT ONE"]
    rows = []
    for one in answers:
        more = []
        if preempting:
            more = [f"{one.preempting.copies:,} ({one.preempting.victims:,} evicted)" if one.preempting else ""]
        rows.append([one.pods[0].name, f"{one.copies:,}", *more, _requests(one.pods[0]), _stop(one)])
    return table(head, rows, (1,), width)


def _stop(answer: Answer) -> str:
    if answer.stopped == "refused":
        return answer.refused
    if answer.stopped == "most" or not answer.stops:
        return "more may fit (--most)" if answer.stopped == "most" else ""
    return answer.stops[0].message
