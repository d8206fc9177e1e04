"""Cluster whose simulation has everything that a recording shows, and what a page would show of a recording's documents."""

from __future__ import annotations

import random
from typing import Any

from kubesched.dashboard.schema import NodeColumns, Played, State

JSON = dict[str, Any]


def node(name: str, zone: str, cpu: str = "4") -> JSON:
    labels = {"topology.kubernetes.io/zone": zone, "kubernetes.io/hostname": name}
    amounts = {"cpu": cpu, "memory": "8Gi", "pods": "20"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": amounts},
    }


def pod(name: str, cpu: int, arrival: int, duration: int, priority: str = "", gated: bool = False) -> JSON:
    times = {"kubesched.io/arrival": f"{arrival}s", "kubesched.io/duration": f"{duration}s"}
    requests = {"cpu": f"{cpu}m", "memory": "256Mi"}
    spec: JSON = {"containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}]}
    if priority:
        spec["priorityClassName"] = priority
    if gated:
        spec["schedulingGates"] = [{"name": "example.com/wait"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": times}, "spec": spec}


def objects(seed: int = 3, pods: int = 90) -> list[JSON]:
    chance = random.Random(seed)
    urgent = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 1000,
    }
    found = [urgent, *(node(f"n{index}", "abc"[index % 3]) for index in range(6))]
    found.append(pod("gated", 100, 5, 10, gated=True))
    for number in range(pods):
        cpu, at, seconds = chance.choice((250, 900, 1500, 3000)), chance.randint(0, 120), chance.randint(20, 90)
        found.append(pod(f"p{number}", cpu, at, seconds, "urgent" if number % 11 == 0 else ""))
    found.append(pod("giant", 9000, 30, 10))
    return found


EVENTS = [
    {"at": 20, "do": "drain", "nodes": ["n1"], "force": True, "for": 40},
    {"at": 35, "do": "delete", "nodes": ["n2"]},
    {"at": 45, "do": "fail", "nodes": ["n3"], "for": "3m"},
    {"at": 50, "do": "label", "nodes": ["n4"], "labels": {"pool": "spot"}},
    {"at": 60, "do": "taint", "nodes": ["n4"], "taints": [{"key": "team", "value": "red", "effect": "NoSchedule"}]},
]


def columns(nodes: NodeColumns) -> dict[str, JSON]:
    """Return what the columns say of each node."""
    found: dict[str, JSON] = {}
    for row, name in enumerate(nodes.names):
        if name:
            found[name] = {
                "requested": {one.name: one.requested[row] for one in nodes.resources},
                "allocatable": {one.name: one.allocatable[row] for one in nodes.resources},
                "labels": {one.key: one.values[one.index[row]] for one in nodes.labels if one.index[row] >= 0},
                "taints": nodes.taints.values[nodes.taints.index[row]] if nodes.taints.index[row] >= 0 else "",
                "status": nodes.status.values[nodes.status.index[row]],
            }
    return found


def applied(state: State, played: Played) -> dict[str, JSON]:
    """Return what a page shows after the changes: the rules of the documents, carried out."""
    shown = dict(enumerate(columns_by_row(state.nodes)))
    for change in played.changes:
        for one in change.nodes:
            shown[one.row] = {
                "name": one.name,
                "requested": dict(one.requested),
                "allocatable": dict(one.allocatable),
                "labels": dict(one.labels),
                "taints": one.taints,
                "status": one.status,
            }
        for position, row in enumerate(change.rows):
            shown[row]["requested"] = {name: amounts[position] for name, amounts in change.requested.items()}
    return {
        one["name"]: {key: value for key, value in one.items() if key != "name"}
        for one in shown.values()
        if one["name"]
    }


def columns_by_row(nodes: NodeColumns) -> list[JSON]:
    by_name = columns(nodes)
    return [{"name": name, **by_name[name]} if name else {"name": ""} for name in nodes.names]
