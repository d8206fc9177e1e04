"""Comparison of two sides: their figures, and the pods that differ, each with the reason that the sides know.

Pods are matched by namespace and name. Pods of a workload whose pods are alike, such as a Deployment's, and pods of a
workload that only one side has by their name, are matched in pairs: those on the same node first. Caller: :mod:`.entry`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from kubesched.explain.records import Record

from ..simulate.results.pod_times import FINISHED, SERVING
from ..simulate.results.result import PodTimes, Result
from ..sweeps.simulated import figures_of
from .report import KINDS, Figure, Kind, PodDifference, SideReport, WorkloadDifference
from .sides import Side
from .views import Comparison

__all__ = ["compare"]

#: Workloads whose pods may take each other's places.
_ALIKE: Final = SERVING - {"StatefulSet"}

#: Number of pods by zone, and the names of their nodes.
_Places: TypeAlias = tuple[Counter[str], set[str]]

#: Difference of waiting times, in seconds, above which a pod differs, and the part of the longer one.
_WAIT: Final = 1.0
_WAIT_PART: Final = 0.05
#: Beginnings of the names of figures that a recorded run does not tell.
_UNKNOWN_TO_RECORDS: Final = ("succeeded", "failed", "removed", "preemptions", "nodes_in_use", "makespan", "turnaround")


def compare(a: Side, b: Side) -> Comparison:
    """Return the comparison of two sides."""
    pairs = list(_pairs(_pods_of(a.result), _pods_of(b.result)))
    found = [one for one in (_difference(a, b, first, second) for first, second in pairs) if one is not None]
    found.sort(key=lambda one: (KINDS.index(one.kind), one.workload, one.pod))
    counts = Counter(one.kind for one in found)
    warnings = [
        f"{side.name}: a recorded run has no figures about nodes, ends of pods and preempted pods"
        for side in (a, b)
        if not side.has_cluster
    ]
    return Comparison(
        a=SideReport(name=a.name, form=a.form),
        b=SideReport(name=b.name, form=b.form),
        figures=list(_figures(a, b)),
        counts={**{kind: counts[kind] for kind in KINDS}, "same": len(pairs) - len(found)},
        pods=found,
        workloads=list(_workloads(a.result, b.result)),
        warnings=[*warnings, *dict.fromkeys((*a.remarks, *b.remarks))],
    )


def _figures(a: Side, b: Side) -> Iterator[Figure]:
    first, second = _figures_of(a), _figures_of(b)
    for name in dict.fromkeys((*first, *second)):
        yield Figure(name=name, a=first.get(name), b=second.get(name))


def _figures_of(side: Side) -> dict[str, float | str | None]:
    figures: dict[str, float | str | None] = {"nodes": side.result.totals.nodes, **figures_of(side.result)}
    if not side.has_cluster:
        for name in figures:
            if name.startswith(_UNKNOWN_TO_RECORDS):
                figures[name] = None
    return figures


def _workloads(a: Result, b: Result) -> Iterator[WorkloadDifference]:
    """Yield the workloads whose placed pods differ by number, zones or number of nodes."""
    places = _places(a), _places(b)
    nothing: _Places = (Counter(), set())
    for key in sorted(places[0].keys() | places[1].keys()):
        (zones_a, nodes_a), (zones_b, nodes_b) = (side.get(key, nothing) for side in places)
        if zones_a != zones_b or len(nodes_a) != len(nodes_b):
            yield WorkloadDifference(
                namespace=key[0],
                workload=key[1],
                zones_a=dict(sorted(zones_a.items())),
                zones_b=dict(sorted(zones_b.items())),
                nodes_a=len(nodes_a),
                nodes_b=len(nodes_b),
            )


def _places(result: Result) -> dict[tuple[str, str], _Places]:
    """Return the zones and nodes of the placed pods of each workload, by namespace and name."""
    zones = {node.name: node.zone for node in result.nodes}
    found: dict[tuple[str, str], _Places] = {}
    for pod in _pods_of(result).values():
        if pod.workload and _is_placed(pod):
            by_zone, nodes = found.setdefault((pod.namespace, pod.workload), (Counter(), set()))
            by_zone[zones.get(pod.node, "")] += 1
            nodes.add(pod.node)
    return found


def _pods_of(result: Result) -> dict[str, PodTimes]:
    """Return the pods by ``namespace/name``: the last of each name. Pods that were replaced are left out."""
    found: dict[str, PodTimes] = {}
    for pod in result.pods:
        is_replaced = pod.removed is not None and pod.workload.partition("/")[0] in SERVING
        if not is_replaced:
            found[f"{pod.namespace}/{pod.name}"] = pod
    return found


def _pairs(
    first: Mapping[str, PodTimes], second: Mapping[str, PodTimes]
) -> Iterator[tuple[PodTimes | None, PodTimes | None]]:
    by_name = {key: None for key, pod in first.items() if key in second and not _is_one_of_many(pod)}
    for key in by_name:
        yield first[key], second[key]
    left: dict[tuple[str, str], tuple[list[PodTimes], list[PodTimes]]] = {}
    for index, mine in enumerate((first, second)):
        for key, pod in mine.items():
            if key not in by_name:
                group = (pod.namespace, pod.workload) if pod.workload else (key, "")
                left.setdefault(group, ([], []))[index].append(pod)
    for ours, theirs in left.values():
        yield from _matched(ours, theirs)


def _is_one_of_many(pod: PodTimes) -> bool:
    return pod.workload.partition("/")[0] in _ALIKE


def _matched(ours: list[PodTimes], theirs: list[PodTimes]) -> Iterator[tuple[PodTimes | None, PodTimes | None]]:
    """Pair the pods of one workload: those on the same node, then the rest in their order."""
    by_node: dict[str, list[PodTimes]] = {}
    for pod in theirs:
        by_node.setdefault(pod.node, []).append(pod)
    rest = []
    for pod in ours:
        same = by_node.get(pod.node)
        if same:
            yield pod, same.pop(0)
        else:
            rest.append(pod)
    others = [pod for pods in by_node.values() for pod in pods]
    for index in range(max(len(rest), len(others))):
        yield (rest[index] if index < len(rest) else None), (others[index] if index < len(others) else None)


def _difference(a: Side, b: Side, first: PodTimes | None, second: PodTimes | None) -> PodDifference | None:
    one = first or second
    assert one is not None
    kind = _kind(first, second)
    if kind is None:
        return None
    return PodDifference(
        pod=_key(one),
        kind=kind,
        workload=one.workload,
        a=first.node if first is not None else "",
        b=second.node if second is not None else "",
        wait_a=_wait(first),
        wait_b=_wait(second),
        why=_why(kind, a, b, first, second),
    )


def _kind(first: PodTimes | None, second: PodTimes | None) -> Kind | None:
    if first is None or second is None:
        return "onlyB" if first is None else "onlyA"
    if _is_placed(first) != _is_placed(second):
        return "lost" if _is_placed(first) else "gained"
    if first.node != second.node:
        return "moved"
    ends = [pod.phase if pod.phase in FINISHED else "" for pod in (first, second)]
    if ends[0] != ends[1]:
        return "outcome"
    waits = _wait(first), _wait(second)
    if waits[0] is None or waits[1] is None:
        return None
    return "wait" if abs(waits[0] - waits[1]) > max(_WAIT, _WAIT_PART * max(waits[0], waits[1])) else None


def _is_placed(pod: PodTimes) -> bool:
    return bool(pod.node) and (pod.removed is None or pod.phase in FINISHED)


def _wait(pod: PodTimes | None) -> float | None:
    return None if pod is None or pod.bound is None or pod.queued is None else round(pod.bound - pod.queued, 6)


def _key(pod: PodTimes) -> str:
    return f"{pod.namespace}/{pod.name}"


def _why(kind: Kind, a: Side, b: Side, first: PodTimes | None, second: PodTimes | None) -> str:
    if kind in ("lost", "gained"):
        side, pod = (b, second) if kind == "lost" else (a, first)
        return f"in {side.name}: {_why_without(side, pod)}" if pod is not None else ""
    if kind == "moved" and first is not None and second is not None:
        return _why_elsewhere(b, first.node) or _why_scored(a, b, first, second)
    if kind == "outcome" and first is not None and second is not None:
        return f"{first.phase} in {a.name}, {second.phase} in {b.name}"
    if kind == "wait" and first is not None and second is not None:
        return f"{first.attempts:,} attempts in {a.name}, {second.attempts:,} in {b.name}"
    return ""


def _why_without(side: Side, pod: PodTimes) -> str:
    """Return why a pod has no node: it was preempted or removed, or what the scheduler says."""
    key = _key(pod)
    for preemption in side.result.preemptions:
        if key in preemption.victims:
            return f"preempted by {preemption.pod} on {preemption.node}"
    for event in side.result.events:
        if any(key in drain.evicted for drain in event.drains):
            return f"evicted by the drain after {event.at:g} s"
    if pod.removed is not None:
        return f"removed after {pod.removed:g} s"
    return side.reasons.get(key) or "no node yet"


def _why_elsewhere(b: Side, node: str) -> str:
    """Return why B cannot have used a node; "" when nothing is known against it."""
    if not b.has_cluster:
        return ""
    statuses = {one.name: one.status for one in b.result.nodes}
    if node not in statuses:
        return f"{b.name} has no node {node}"
    return f"{node} is {statuses[node]} in {b.name}" if statuses[node] != "Ready" else ""


def _why_scored(a: Side, b: Side, first: PodTimes, second: PodTimes) -> str:
    """Return by which scores B preferred its node, from its record; otherwise where to find that out."""
    record = b.records.get(_key(second))
    if record is None:
        return ""
    totals = {one.node: one for one in record.top}
    chosen, other = totals.get(second.node), totals.get(first.node)
    if chosen is None or other is None:
        return _verdict(record)
    if chosen.total == other.total:
        return f"a tie in {b.name}: {record.ties} nodes with {chosen.total}"
    gaps = {name: score - other.scores.get(name, 0) for name, score in chosen.scores.items()}
    plugin = max(gaps, key=lambda name: gaps[name], default="")
    gap = f", most by {plugin} ({gaps[plugin]:+})" if plugin else ""
    return f"in {b.name} {second.node} has {chosen.total} and {first.node} {other.total}{gap}"


def _verdict(record: Record) -> str:
    texts: Iterable[str] = (f"{one.plugin}: {', '.join(one.reasons)} ({one.nodes})" for one in record.verdicts)
    return "not among the best nodes; others were rejected by " + "; ".join(texts) if record.verdicts else ""
