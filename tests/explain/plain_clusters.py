"""Random clusters without volumes and devices: nodes, the pods on them, and a pending pod."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from builders import a_node, a_taint
from kubesched.api.decode import from_builtins
from kubesched.api.types import Node, Pod

ZONES, DISKS, APPS = ("a", "b"), ("ssd", "hdd"), ("web", "db")


@st.composite
def nodes(draw: st.DrawFn) -> list[Node]:
    """One to five nodes in zones, some tainted or cordoned."""
    found = []
    for number in range(draw(st.integers(1, 5))):
        labels = {"kubernetes.io/hostname": f"n{number}"}
        if draw(st.booleans()):
            labels["zone"] = draw(st.sampled_from(ZONES))
        if draw(st.booleans()):
            labels["disk"] = draw(st.sampled_from(DISKS))
        taints = draw(st.lists(st.sampled_from(["spot=true:NoSchedule", "gpu=x:NoSchedule"]), max_size=2, unique=True))
        cpu = draw(st.sampled_from(["1", "2", "4"]))
        found.append(a_node(f"n{number}", cpu=cpu, labels=labels, taints=map(a_taint, taints)))
    return found


def rule(draw: st.DrawFn) -> dict[str, Any]:
    key = draw(st.sampled_from(("zone", "kubernetes.io/hostname")))
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": draw(st.sampled_from(APPS))}}}


@st.composite
def pods(draw: st.DrawFn, name: str, node: str = "", *, is_demanding: bool = False) -> Pod:
    """A pod with a label; one that is demanding has a selector, host ports, spread constraints and affinity terms, too."""
    requests = {"cpu": draw(st.sampled_from(["500m", "1", "3", "9"]))}
    ports = [{"containerPort": 80, "hostPort": 80}] if draw(st.integers(0, 3)) == 0 else []
    spec: dict[str, Any] = {
        "nodeName": node,
        "containers": [{"name": "c", "image": "i", "resources": {"requests": requests}, "ports": ports}],
        "tolerations": [{"operator": "Exists"}] if node else [],
    }
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity: dict[str, Any] = {}
    if draw(st.integers(0, 2)) == 0:
        affinity["podAntiAffinity"] = {required: [rule(draw)]}
    if is_demanding:
        if draw(st.booleans()):
            spec["nodeSelector"] = {"disk": draw(st.sampled_from(DISKS))}
        if draw(st.integers(0, 2)) == 0:
            affinity["podAffinity"] = {required: [rule(draw) for _ in range(draw(st.integers(1, 2)))]}
        if draw(st.booleans()):
            spread = {**rule(draw), "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
            spec["topologySpreadConstraints"] = [spread]
    spec["affinity"] = affinity
    data = {
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": draw(st.sampled_from(APPS))}},
        "spec": spec,
    }
    return from_builtins(data, Pod)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Node], list[Pod], Pod]:
    """Nodes, the pods on them, and a pending pod."""
    listed = draw(nodes())
    there = [
        draw(pods(f"p{number}", draw(st.sampled_from(listed)).metadata.name))
        for number in range(draw(st.integers(0, 5)))
    ]
    return listed, there, draw(pods("new", is_demanding=True))
