"""Small clusters and pods of all sorts, for comparisons with brute force."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

ZONES = ("a", "b", "c")
APPS = ("web", "db", "job")
_ZONE = "topology.kubernetes.io/zone"
_HOST = "kubernetes.io/hostname"


def node(name: str, zone: str, cpu: int, memory: int, **more: Any) -> dict[str, Any]:
    amounts = {"cpu": str(cpu), "memory": f"{memory}Gi", "pods": str(more.get("pods", 110))}
    if more.get("gpu"):
        amounts["nvidia.com/gpu"] = str(more["gpu"])
    labels = {_HOST: name, _ZONE: zone, "kubernetes.io/os": "linux", "disk": more.get("disk", "hdd")}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": more["taints"]} if more.get("taints") else {},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def pod(name: str, spec: dict[str, Any], app: str = "web") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
        "spec": spec,
    }


_TAINT = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}


@st.composite
def nodes(draw: st.DrawFn, most: int = 4) -> list[dict[str, Any]]:
    made = []
    for number in range(draw(st.integers(1, most))):
        taints = draw(st.sampled_from([[], [], [], [_TAINT], [{**_TAINT, "effect": "PreferNoSchedule"}]]))
        made.append(
            node(
                f"n{number}",
                draw(st.sampled_from(ZONES)),
                draw(st.integers(1, 4)),
                draw(st.integers(1, 6)),
                pods=draw(st.sampled_from([110, 110, 3])),
                gpu=draw(st.sampled_from([0, 0, 2])),
                disk=draw(st.sampled_from(["hdd", "ssd"])),
                taints=taints,
            )
        )
    return made


@st.composite
def specs(draw: st.DrawFn, *, rules: bool = True) -> dict[str, Any]:
    requests = {
        "cpu": f"{draw(st.sampled_from([250, 500, 700, 1000, 2000]))}m",
        "memory": f"{draw(st.integers(1, 3))}Gi",
    }
    container: dict[str, Any] = {"name": "c", "image": "i", "resources": {"requests": requests}}
    if draw(st.integers(0, 9)) == 0:
        container["resources"] = {"requests": {**requests, "nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
    if draw(st.integers(0, 6)) == 0:
        container["ports"] = [{"containerPort": 80, "hostPort": 8080}]
    spec: dict[str, Any] = {"containers": [container]}
    if draw(st.booleans()):
        spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
    if draw(st.integers(0, 5)) == 0:
        spec["nodeSelector"] = {"disk": draw(st.sampled_from(["hdd", "ssd"]))}
    if rules:
        spec |= draw(_rules())
    return spec


@st.composite
def _rules(draw: st.DrawFn) -> dict[str, Any]:
    found: dict[str, Any] = {}
    match = {"matchLabels": {"app": draw(st.sampled_from(APPS))}}
    key = draw(st.sampled_from([_ZONE, _HOST]))
    kind = draw(st.integers(0, 7))
    if kind == 0:
        found["topologySpreadConstraints"] = [
            {
                "maxSkew": draw(st.integers(1, 2)),
                "topologyKey": key,
                "whenUnsatisfiable": draw(st.sampled_from(["DoNotSchedule", "ScheduleAnyway"])),
                "labelSelector": match,
            }
        ]
    elif kind in (1, 2, 3):
        field = draw(st.sampled_from(["podAffinity", "podAntiAffinity"]))
        term = {"labelSelector": match, "topologyKey": key}
        rule: dict[str, Any] = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        if kind == 3:
            weighted = [{"weight": 50, "podAffinityTerm": term}]
            rule = {"preferredDuringSchedulingIgnoredDuringExecution": weighted}
        found["affinity"] = {field: rule}
    return found


@st.composite
def running(draw: st.DrawFn, on: list[dict[str, Any]], most: int = 4) -> list[dict[str, Any]]:
    """Return pods that run on the nodes. They may take more than there is, as in a real cluster."""
    made = []
    for number in range(draw(st.integers(0, most))):
        spec = draw(specs())
        spec["nodeName"] = draw(st.sampled_from(on))["metadata"]["name"]
        made.append(pod(f"old-{number}", spec, draw(st.sampled_from(APPS))))
    return made
