"""Plain twins of the retired plugins: straight from the specification, one node at a time.

Rules: rules/configuration §11.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence

from node_twins import UU, Outcome, U, allocatable, nonzero, requested

from kubesched.api.types import Node, Pod

Placed = Mapping[str, Sequence[Pod]]


# -- labels of nodes ---------------------------------------------------------------------------------------


def node_label(node: Node, present: Sequence[str], absent: Sequence[str]) -> Outcome:
    if all(key in node.labels for key in present) and not any(key in node.labels for key in absent):
        return None
    return UU, ("node(s) didn't have the requested labels",)


def node_label_score(node: Node, present: Sequence[str], absent: Sequence[str]) -> int:
    held = [100 if key in node.labels else 0 for key in present] + [0 if key in node.labels else 100 for key in absent]
    return sum(held) // len(held) if held else 0


# -- avoided pods ------------------------------------------------------------------------------------------


def avoided(pod: Pod, node: Node) -> int:
    owners = [item for item in pod.metadata.owner_references if item.controller]
    if not owners or owners[0].kind not in ("ReplicationController", "ReplicaSet"):
        return 100
    try:
        entries = json.loads(node.metadata.annotations["scheduler.alpha.kubernetes.io/preferAvoidPods"])[
            "preferAvoidPods"
        ]
        named = [
            (item["podSignature"]["podController"]["kind"], item["podSignature"]["podController"]["uid"])
            for item in entries
        ]
    except (KeyError, TypeError, ValueError):
        return 100
    return 0 if (owners[0].kind, owners[0].uid) in named else 100


# -- resources ---------------------------------------------------------------------------------------------


def allocation(
    pod: Pod,
    node: Node,
    there: Sequence[Pod],
    strategy: str,
    resources: Sequence[tuple[str, int]],
    shape: Sequence[tuple[int, int]],
) -> int:
    all_pods = [*there, pod]
    offered, used_by_name = allocatable(node), requested(all_pods)
    used_by_name["cpu"] = sum(nonzero(item)[0] for item in all_pods)
    used_by_name["memory"] = sum(nonzero(item)[1] for item in all_pods)
    total = weights = 0
    for name, weight in resources:
        capacity, used = offered.get(name, 0), used_by_name.get(name, 0)
        if strategy == "least":
            score = 0 if capacity == 0 or used > capacity else (capacity - used) * 100 // capacity
        elif strategy == "most":
            score = 0 if capacity == 0 else min(used, capacity) * 100 // capacity
        else:
            utilization = 100 if capacity == 0 or used > capacity else 100 - (capacity - used) * 100 // capacity
            score = _on_line(utilization, [(x, y * 10) for x, y in shape])
            if score == 0:
                continue
        total += score * weight
        weights += weight
    if not weights:
        return 0
    return math.floor(total / weights + 0.5) if strategy == "ratio" else total // weights


def _on_line(x: int, points: Sequence[tuple[int, int]]) -> int:
    if x <= points[0][0]:
        return points[0][1]
    for (left, low), (right, high) in itertools.pairwise(points):
        if x <= right:
            rise = (high - low) * (x - left)
            return low + (abs(rise) // (right - left)) * (1 if rise >= 0 else -1)
    return points[-1][1]


# -- services ----------------------------------------------------------------------------------------------


def _selects(service: Mapping[str, str], pod: Pod) -> bool:
    return bool(service) and all(pod.metadata.labels.get(key) == value for key, value in service.items())


def service_affinity(
    pod: Pod,
    node: Node,
    nodes: Sequence[Node],
    placed: Placed,
    services: Sequence[Mapping[str, str]],
    labels: Sequence[str],
) -> Outcome:
    wanted = {key: value for key, value in (pod.spec.node_selector or {}).items() if key in labels}
    if any(_selects(service, pod) for service in services):
        for other in nodes:
            alike = [
                item
                for item in placed.get(other.name, ())
                if item.namespace == pod.namespace and pod.metadata.labels.items() <= item.metadata.labels.items()
            ]
            if alike and other.name != node.name:
                wanted = {**{key: other.labels[key] for key in labels if key in other.labels}, **wanted}
                break
    if all(node.labels.get(key) == value for key, value in wanted.items()):
        return None
    return U, ("node(s) didn't match service affinity",)


def _counted(pod: Pod, there: Sequence[Pod], selector: Mapping[str, str]) -> int:
    return sum(
        item.namespace == pod.namespace and item.metadata.deletion_timestamp is None and _selects(selector, item)
        for item in there
    )


def service_scores(
    pod: Pod, nodes: Sequence[Node], placed: Placed, services: Sequence[Mapping[str, str]], labels: Sequence[str]
) -> dict[str, int]:
    first = next((service for service in services if _selects(service, pod)), None)
    raw = {node.name: _counted(pod, placed.get(node.name, ()), first or {}) for node in nodes}
    total = sum(raw.values())
    scores = dict.fromkeys(raw, 0.0)
    for label in labels:
        for node in nodes:
            if label in node.labels:
                same = sum(raw[other.name] for other in nodes if other.labels.get(label) == node.labels[label])
                scores[node.name] += (100.0 * ((total - same) / total) if total else 100.0) / len(labels)
    return {name: int(score) for name, score in scores.items()}


def selector_spread(
    pod: Pod, nodes: Sequence[Node], placed: Placed, services: Sequence[Mapping[str, str]]
) -> dict[str, int]:
    merged: dict[str, str] = {}
    for service in services:
        if _selects(service, pod):
            merged.update(service)
    raw = {node.name: _counted(pod, placed.get(node.name, ()), merged) for node in nodes}

    def part(count: int, most: int) -> float:
        return 100.0 * ((most - count) / most) if most else 100.0

    zones: dict[str, int] = {}
    for node in nodes:
        zone = node.labels.get("topology.kubernetes.io/zone")
        if zone:
            zones[zone] = zones.get(zone, 0) + raw[node.name]
    scores = {}
    for node in nodes:
        score = part(raw[node.name], max(raw.values()))
        zone = node.labels.get("topology.kubernetes.io/zone")
        if zone:
            score = score * (1.0 - 2 / 3) + part(zones[zone], max(zones.values())) * (2 / 3)
        scores[node.name] = int(score)
    return scores


__all__ = [
    "allocation",
    "avoided",
    "node_label",
    "node_label_score",
    "selector_spread",
    "service_affinity",
    "service_scores",
]
