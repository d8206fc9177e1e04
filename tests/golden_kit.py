"""A small golden vector to change, from the format's description; and how to replay it."""

from __future__ import annotations

import copy
import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from kubesched.lab.conformance import Comparison, Verdict, replay_vector
from kubesched.scheduler.framework.registry import Registry
from kubesched.scheduler.plugins import in_tree_registry

__all__ = ["GOLDEN", "JSON", "SKIPPED", "a_vector", "big", "pod", "read", "replayed", "sequence", "verdict_of", "write"]

JSON = dict[str, Any]
GOLDEN = Path(__file__).parent / "golden"

#: Filter plugins with nothing to do for a pod that has only requests.
SKIPPED = [
    "DynamicResources",
    "InterPodAffinity",
    "NodeAffinity",
    "NodeDeclaredFeatures",
    "NodePorts",
    "NodeVolumeLimits",
    "PodTopologySpread",
    "VolumeBinding",
    "VolumeRestrictions",
    "VolumeZone",
]


def _node(name: str, cpu: str, memory: str) -> JSON:
    labels = {"kubernetes.io/hostname": name}
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": "10"}},
    }


def pod(name: str, cpu: str = "700m", memory: str = "300Mi", **spec: Any) -> JSON:
    resources = {"requests": {"cpu": cpu, "memory": memory}}
    status = spec.pop("status", {})
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "c", "resources": resources}], **spec},
        **({"status": status} if status else {}),
    }


_OLD = {
    "metadata": {"name": "old", "namespace": "default"},
    "spec": {
        "nodeName": "b",
        "priority": 1,
        "containers": [
            {"name": "c", "image": "app:1", "resources": {"requests": {"cpu": "1200m", "memory": "1Gi"}}},
        ],
    },
    "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"},
}

_SMALL: JSON = {
    "pod": "default/small",
    "preFilter": {"code": "Success", "nodes": None, "skipped": SKIPPED},
    "feasible": ["a", "b", "c"],
    "scoreSkipped": ["InterPodAffinity", "NodeAffinity", "PodTopologySpread", "VolumeBinding"],
    "scores": {
        "DynamicResources": {"a": 0, "b": 0, "c": 0},
        "ImageLocality": {"a": 0, "b": 0, "c": 0},
        "NodeResourcesBalancedAllocation": {"a": 61, "b": 68, "c": 70},
        "NodeResourcesFit": {"a": 57, "b": 36, "c": 84},
        "TaintToleration": {"a": 300, "b": 300, "c": 300},
    },
    "totals": {"a": 418, "b": 404, "c": 454},
    "best": ["c"],
    "outcome": "scheduled",
}

_ELSEWHERE = {
    "plugin": "NodeAffinity",
    "code": "UnschedulableAndUnresolvable",
    "reasons": ["node(s) didn't match Pod's node affinity/selector"],
}

_BIG: JSON = {
    "pod": "default/big",
    "preFilter": {"code": "Success", "nodes": None, "skipped": [name for name in SKIPPED if name != "NodeAffinity"]},
    "filters": {
        "a": _ELSEWHERE,
        "b": {"plugin": "NodeResourcesFit", "code": "Unschedulable", "reasons": ["Insufficient cpu"]},
        "c": _ELSEWHERE,
    },
    "feasible": [],
    "best": [],
    "outcome": "unschedulable",
    "message": "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't match Pod's node affinity/selector.",
    "unschedulablePlugins": ["NodeAffinity", "NodeResourcesFit"],
    "preemption": {
        "status": {"code": "Success"},
        "nominated": ["b"],
        "candidates": {"b": {"victims": ["default/old"], "numPDBViolations": 0}},
    },
}


def a_vector() -> JSON:
    """Three nodes, a running pod, and one small pod to place: the example of the format's description."""
    return copy.deepcopy(
        {
            "name": "example",
            "area": "example",
            "mode": "independent",
            "scenario": {
                "config": None,
                "nodes": [_node("a", "1", "2Gi"), _node("b", "2", "4Gi"), _node("c", "3", "4Gi")],
                "pods": [_OLD],
                "pending": [pod("small")],
                "objects": [],
            },
            "expected": {"pods": [_SMALL]},
        }
    )


def big() -> JSON:
    """Return :func:`a_vector` with a pod that fits nowhere unless the running one is preempted."""
    vector = a_vector()
    vector["scenario"]["pending"] = [pod("big", "1800m", priority=9, nodeSelector={"kubernetes.io/hostname": "b"})]
    vector["expected"]["pods"] = [copy.deepcopy(_BIG)]
    return vector


def sequence(*steps: JSON, pending: Sequence[JSON], pods: Sequence[JSON] = ()) -> JSON:
    """The cluster of :func:`a_vector` with these attempts, one after the other."""
    vector = a_vector()
    vector["mode"] = "sequential"
    vector["scenario"]["pending"] = list(pending)
    vector["scenario"]["pods"] += pods
    vector["expected"] = {"steps": [{"pass": 1, **step} for step in steps]}
    return vector


def replayed(vector: JSON, registry: Registry | None = None) -> Comparison:
    return replay_vector(vector, registry if registry is not None else in_tree_registry())[0]


def verdict_of(vector: JSON, registry: Registry | None = None) -> Verdict:
    return replay_vector(vector, registry if registry is not None else in_tree_registry())[1]


def read(area: str) -> list[JSON]:
    with gzip.open(GOLDEN / f"{area}.jsonl.gz") as lines:
        return [msgspec.json.decode(line) for line in lines]


def write(path: Path, *vectors: JSON | str) -> Path:
    """A golden file of these vectors; a string is a line as it is."""
    lines = [vector if isinstance(vector, str) else msgspec.json.encode(vector).decode() for vector in vectors]
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0))
    return path
