"""Clusters that the tests of the dashboard look at."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

__all__ = ["EVIL", "hostile", "live_cluster", "pod", "pod_spec", "recording"]

#: Text that does harm where it is taken for HTML.
EVIL: Final = "<img src=x onerror=\"console.error('harm')\"><script>console.error('harm')</script>"

_ZONE: Final = "topology.kubernetes.io/zone"
_GPU: Final = "nvidia.com/gpu"


def node(name: str, zone: str, cpu: int, gpus: int = 0) -> dict[str, Any]:
    amounts = {"cpu": str(cpu), "memory": f"{4 * cpu}Gi", "pods": "110", **({_GPU: str(gpus)} if gpus else {})}
    taints = [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}] if gpus else []
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {_ZONE: zone, "size": f"cpu-{cpu}"}},
        "spec": {"taints": taints},
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def pod_spec(cpu: str, memory: str = "1Gi", **more: Any) -> dict[str, Any]:
    requests = {"cpu": cpu, "memory": memory}
    return {"containers": [{"name": "app", "image": "app:1", "resources": {"requests": requests}}], **more}


def pod(name: str, spec: Mapping[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": spec,
    }


def deployment(name: str, replicas: int, spec: Mapping[str, Any]) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def recording(folder: Path) -> tuple[Path, Path]:
    """Simulate two minutes of a small cluster, with a preemption and a pod that stays pending: the result and its decisions."""
    objects = [node(f"node-{at}", f"zone-{'abc'[at % 3]}", 4) for at in range(6)]
    objects += [
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}
    ]
    for at in range(24):
        times = {"kubesched.io/arrival": f"{5 * at}s", "kubesched.io/duration": "60s"}
        objects += [pod(f"job-{at:02}", pod_spec("1900m"), annotations=times)]
    late = {"kubesched.io/arrival": "70s", "kubesched.io/duration": "40s"}
    objects += [pod("urgent", pod_spec("3", priorityClassName="high"), annotations=late)]
    objects += [pod("giant", pod_spec("5"), annotations={"kubesched.io/arrival": "30s"})]
    source, result, decisions = written(folder, "day.yaml", objects), folder / "result.json", folder / "decisions.gz"
    command = [sys.executable, "-m", "kubesched.cli", "simulate", "-f", str(source), "-o", "json"]
    command += ["--decisions", str(decisions)]
    with result.open("w") as output:
        subprocess.run(command, stdout=output, check=True, cwd=folder)
    return result, decisions


def hostile(result: Path) -> Path:
    """Write a result again with texts in it that do harm where they are taken for HTML, and return the file."""
    text = result.read_text(encoding="utf-8")
    evil = json.dumps(EVIL)[1:-1].replace("/", "\\/")
    for name in ("job-01", "node-1", "zone-b", "NodeResourcesFit", "Insufficient cpu"):
        text = text.replace(name, evil)
    path = result.with_name("hostile.json")
    path.write_text(text, encoding="utf-8")
    return path


def written(folder: Path, name: str, objects: Sequence[Mapping[str, Any]]) -> Path:
    path = folder / name
    path.write_text("\n---\n".join(json.dumps(each) for each in objects), encoding="utf-8")
    return path


def live_cluster(folder: Path) -> Path:
    """Write a small cluster in three zones, with pods that fit, a pod that fits nowhere, and texts that do harm."""
    zones = ("zone-a", "zone-b", "zone-c")
    objects = [node(f"small-{zone[-1]}", zone, 4) for zone in zones]
    objects += [node(f"large-{zone[-1]}", zone, 16) for zone in zones]
    objects += [node("gpu-a", "zone-a", 8, gpus=4)]
    objects += [deployment("web", 12, pod_spec("1")), deployment("db", 3, pod_spec("4", "8Gi"))]
    objects += [pod("trainer", pod_spec("12", "8Gi", nodeSelector={"size": "cpu-8"}))]
    owner = {"apiVersion": "example.com/v1", "kind": EVIL, "name": EVIL, "uid": "1", "controller": True}
    evil = pod(
        "evil", pod_spec("100m", schedulerName="other"), annotations={"example.com/note": EVIL}, ownerReferences=[owner]
    )
    objects += [evil]
    objects[0]["status"]["conditions"] = [{"type": "Ready", "status": "True", "reason": EVIL, "message": EVIL}]
    return written(folder, "cluster.yaml", objects)
