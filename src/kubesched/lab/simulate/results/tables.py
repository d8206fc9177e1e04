"""Flat tables of a result, column by column: for data frames, CSV and Parquet.

One row per pod, node and resource, resource, moment, group of pending pods, pod group,
preemption, event, or node group. Amounts and times are those
of :mod:`.result`. Caller: :mod:`.views`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

from .result import Result

__all__ = ["TABLES", "Columns", "table"]

#: Values of all rows by column name.
Columns: TypeAlias = dict[str, list[Any]]


def _columns(items: Sequence[Any], names: Iterable[str]) -> Columns:
    return {name: [getattr(item, name) for item in items] for name in names}


def _pods(result: Result) -> Columns:
    pods = result.pods
    found = _columns(pods, ("namespace", "name", "workload", "node", "phase"))
    times = ("created", "queued", "bound", "started", "finished", "removed")
    found |= _columns(pods, times)
    found["wait"] = [_between(pod.queued, pod.bound) for pod in pods]
    found |= _columns(pods, ("attempts", "preempted"))
    resources = dict.fromkeys(name for pod in pods for name in pod.requests)
    found |= {f"request.{name}": [pod.requests.get(name, 0) for pod in pods] for name in resources}
    return found


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else round(end - start, 6)


def _nodes(result: Result) -> Columns:
    rows = [(node, use) for node in result.nodes for use in node.resources]
    return {
        "node": [node.name for node, _ in rows],
        "zone": [node.zone for node, _ in rows],
        "status": [node.status for node, _ in rows],
        "resource": [use.name for _, use in rows],
        "allocatable": [use.allocatable for _, use in rows],
        "requested": [use.requested for _, use in rows],
        "share": [_share(use.requested, use.allocatable) for _, use in rows],
    }


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 6) if whole else None


def _resources(result: Result) -> Columns:
    uses = result.resources
    shares = {share.name: share for share in result.times.resources}
    found = _columns(uses, ("name", "allocatable", "requested", "peak"))
    found["share"] = [_share(use.requested, use.allocatable) for use in uses]
    for name in ("utilisation", "peak_utilisation", "goodput", "fragmentation"):
        found[name] = [getattr(shares[use.name], name) if use.name in shares else None for use in uses]
    return found


def _series(result: Result) -> Columns:
    series = result.series
    found: Columns = {"time": list(series.times)}
    for name in ("active", "backoff", "unschedulable", "gated", "on_nodes"):
        found[name] = list(getattr(series, name))
    for what in ("allocatable", "requested", "fragmentation"):
        found |= {f"{what}.{name}": list(values) for name, values in getattr(series, what).items()}
    if result.scaling is not None:
        found |= {f"nodes.{name}": list(values) for name, values in series.nodes.items()}
        found["cost"] = list(series.cost)
    return found


def _pending(result: Result) -> Columns:
    groups = result.pending
    found = _columns(groups, ("workload", "reason", "count", "message"))
    found["namespace"] = [group.pods[0].partition("/")[0] for group in groups]
    found["hints"] = ["; ".join(group.hints) for group in groups]
    return {"namespace": found.pop("namespace"), **found}


def _preemptions(result: Result) -> Columns:
    found = _columns(result.preemptions, ("at", "pod", "priority", "node"))
    found["victims"] = [", ".join(item.victims) for item in result.preemptions]
    found["budget_violations"] = [item.budget_violations for item in result.preemptions]
    return found


def _groups(result: Result) -> Columns:
    names = ("namespace", "name", "policy", "members", "min_count", "placed", "waiting", "placement", "nodes")
    found = _columns(result.groups, (*names, "since", "bound", "wait"))
    found["why"] = [group.why.summary if group.why is not None else "" for group in result.groups]
    return found


def _events(result: Result) -> Columns:
    events = result.events
    found = _columns(events, ("at", "action"))
    found["targets"] = [", ".join(one.targets) for one in events]
    found["why"] = [one.why for one in events]
    found["undone"] = [one.undone for one in events]
    found["evicted"] = [sum(len(drain.evicted) for drain in one.drains) for one in events]
    found["blocked"] = [
        "; ".join(f"{pod.pod} {pod.why}" for drain in one.drains for pod in drain.blocked) for one in events
    ]
    return found


def _node_groups(result: Result) -> Columns:
    names = ("name", "price", "minimum", "maximum", "nodes", "peak", "added", "removed", "interrupted")
    return _columns(result.scaling.groups if result.scaling is not None else [], (*names, "node_hours", "cost"))


#: Functions that read a table from a result, by its name.
TABLES: Final[dict[str, Callable[[Result], Columns]]] = {
    "pods": _pods,
    "nodes": _nodes,
    "resources": _resources,
    "series": _series,
    "pending": _pending,
    "groups": _groups,
    "preemptions": _preemptions,
    "events": _events,
    "node_groups": _node_groups,
}


def table(result: Result, name: str) -> Columns:
    """Return one table of a result; :data:`TABLES` has the names.

    Raises:
        ValueError: when no table has this name.
    """
    if name not in TABLES:
        raise ValueError(f"no table is named {name!r}; there are {', '.join(TABLES)}")
    return TABLES[name](result)
