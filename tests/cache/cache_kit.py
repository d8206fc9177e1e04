"""Shared by the cache's tests: pods and nodes that touch every account, and a picture of a whole table."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from builders import a_container, a_node, a_pod, a_port, a_taint, an_image
from kubesched.api.types import Node, Pod
from kubesched.scheduler.cache import Cache
from kubesched.scheduler.nodes import NodeTable
from kubesched.scheduler.nodes.podinfo import PodInfo

NODE_NAMES = tuple(f"n{index}" for index in range(5))

#: Variants of a node: every column differs somewhere.
NODES: list[Node] = [
    a_node(""),
    a_node("", cpu="2", allocatable={"example.com/gpu": 4}, labels={"disk": "ssd"}, zone="a"),
    a_node("", unschedulable=True, taints=[a_taint("k=v:NoSchedule")], zone="b", images=[an_image("app:1", 100)]),
    a_node(
        "",
        labels={"disk": "hdd", "rank": "7"},
        taints=[a_taint("k=w:NoExecute")],
        images=[an_image("app:1", 200), an_image("db:1", 50)],
        features=["UserNamespacesHostNetworkSupport"],
        zone="a",
    ),
    a_node("", exactly={"cpu": "9E", "memory": "8E", "pods": 3}),
]

#: Variants of a pod: requests, scalars, ports (two hold the same), claims, overhead.
PODS: list[Pod] = [
    a_pod(""),
    a_pod("", cpu="500m", memory="1Gi", ports=[a_port(80)]),
    a_pod("", requests={"example.com/gpu": 2, "ephemeral-storage": "1Gi"}, claims=["data", "data", "logs"]),
    a_pod("", containers=[a_container("c", {"cpu": "1"}, ports=[a_port(80), a_port(81, "UDP", "10.0.0.1")])]),
    a_pod("", requests={"cpu": "9E", "memory": "8E"}, overhead={"cpu": "100m"}, claims=["logs"]),
]


def node_like(variant: int, name: str) -> Node:
    base = NODES[variant]
    return msgspec.structs.replace(base, metadata=msgspec.structs.replace(base.metadata, name=name, uid=f"{name}-uid"))


def pod_like(variant: int, uid: str, on: str = "") -> Pod:
    base = PODS[variant]
    meta = msgspec.structs.replace(base.metadata, name=uid, uid=uid)
    return msgspec.structs.replace(base, metadata=meta).on_node(on)


def add(cache: Cache, *pods: Pod) -> None:
    for pod in pods:
        cache.add_pod(PodInfo(pod))


def picture(table: NodeTable) -> dict[str, Any]:
    """Everything a reader could see of a table, as plain data that can be compared."""

    def plain(array: Any) -> list[Any]:
        rows: list[Any] = np.asarray(array).tolist()
        return rows

    return {
        "journal": table.journal.position,
        "resources": dict(table.resource_index),
        "allocatable": plain(table.allocatable),
        "requested": plain(table.requested),
        "nonzero": plain(table.nonzero),
        "alive": plain(table.alive),
        "unschedulable": plain(table.unschedulable),
        "features": plain(table.features),
        "taints": [table.taints.sets[code] for code in table.taints.codes.tolist()],
        "labels": {key: plain(column.codes) for key, column in table.labels.items()},
        "images": {name: (state.size, set(state.rows)) for name, state in table.images.states.items()},
        "ports": {key: set(rows) for key, rows in table.port_rows.items()},
        "pvcs": dict(table.pvc_counts),
        "order": plain(table.order()),
        "infos": [
            None
            if node is None
            else (
                node.name,
                node.node,
                list(node.pods.items()),
                (node.requested.milli_cpu, node.requested.memory, node.requested.ephemeral_storage),
                {name: amount for name, amount in node.requested.scalars.items() if amount},
                (node.nonzero_cpu, node.nonzero_memory),
                {ip: set(used) for ip, used in node.used_ports.by_ip.items()},
                dict(node.pvc_counts),
                node.image_names,
            )
            for node in table.infos
        ],
    }
