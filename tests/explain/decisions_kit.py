"""Random clusters whose scheduling is recorded: every plugin of the default profile has something to do."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

from kubesched.api.kinds import (
    CLAIMS,
    DEVICE_CLASSES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIM_TEMPLATES,
    STORAGE_CLASSES,
    Kind,
)
from kubesched.cluster.controllers import DEVICES_ANNOTATION
from kubesched.explain.records import DecisionFile, Recorder
from kubesched.lab.simulate.embedded import Embedded
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual
from kubesched.scheduler.config import KubeSchedulerConfiguration, default_config
from kubesched.scheduler.core.observer import AttemptObserver
from kubesched.scheduler.framework.registry import Registry
from kubesched.scheduler.plugins import in_tree_registry

__all__ = ["Data", "a_spec", "record"]

Data = dict[str, Any]

DEVICES = """
- driver: gpu.example.com
  devices:
  - {name: gpu, count: 3, attributes: {kind: whole}}
"""
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def a_node(rng: random.Random, number: int) -> Data:
    labels = {
        "kubernetes.io/hostname": f"n{number}",
        "topology.kubernetes.io/zone": rng.choice("abc"),
        "disk": rng.choice(("ssd", "hdd")),
    }
    annotations = {DEVICES_ANNOTATION: DEVICES} if rng.random() < 0.5 else {}
    taints = rng.choice(([], [], [{"key": "spot", "effect": rng.choice(("NoSchedule", "PreferNoSchedule"))}]))
    amounts = {"cpu": str(rng.choice((4, 6, 8))), "memory": "32Gi", "pods": str(rng.choice((6, 110)))}
    images = [{"names": ["image-a:latest"], "sizeBytes": 500_000_000}] if rng.random() < 0.5 else []
    return {
        "metadata": {"name": f"n{number}", "labels": labels, "annotations": annotations},
        "spec": {"taints": taints},
        "status": {"allocatable": amounts, "capacity": amounts, "images": images},
    }


def _rule(rng: random.Random) -> Data:
    key = rng.choice(("kubernetes.io/hostname", "topology.kubernetes.io/zone"))
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": rng.choice(("web", "db"))}}}


def a_spec(rng: random.Random) -> Data:
    """Spec of a template, with a demand of some plugin or none."""
    requests = {"cpu": rng.choice(("500m", "1", "2")), "memory": "1Gi"}
    container: Data = {"name": "c", "image": rng.choice(("image-a", "image-b")), "resources": {"requests": requests}}
    spec: Data = {"containers": [container]}
    if rng.random() < 0.4:
        spec["priorityClassName"] = rng.choice(("high", "low"))
    if rng.random() < 0.3:
        spec["tolerations"] = [{"key": "spot", "operator": "Exists"}]
    match rng.randrange(10):
        case 0:
            spec["nodeSelector"] = {"disk": rng.choice(("ssd", "hdd"))}
        case 1:
            spec["affinity"] = {"podAntiAffinity": {REQUIRED: [_rule(rng)]}}
        case 2:
            spec["affinity"] = {"podAffinity": {PREFERRED: [{"weight": 50, "podAffinityTerm": _rule(rng)}]}}
        case 3:
            when = rng.choice(("DoNotSchedule", "ScheduleAnyway"))
            spec["topologySpreadConstraints"] = [{**_rule(rng), "maxSkew": 1, "whenUnsatisfiable": when}]
        case 4:
            container["ports"] = [{"containerPort": 80, "hostPort": 80}]
        case 5:
            spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
            container["resources"]["claims"] = [{"name": "gpu"}]
        case 6:
            spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "of the pod"}}]
        case 7:
            term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
            spec["affinity"] = {"nodeAffinity": {PREFERRED: [{"weight": 10, "preference": term}]}}
    return spec


def _fixed() -> list[tuple[Kind, str, Data]]:
    expression = '"kind" in device.attributes["gpu.example.com"]'
    request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    return [
        (PRIORITY_CLASSES, "", {"metadata": {"name": "high"}, "value": 100}),
        (PRIORITY_CLASSES, "", {"metadata": {"name": "low"}, "value": 10}),
        (
            STORAGE_CLASSES,
            "",
            {
                "metadata": {"name": "late"},
                "provisioner": "csi.example.com",
                "volumeBindingMode": "WaitForFirstConsumer",
            },
        ),
        (
            DEVICE_CLASSES,
            "",
            {"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": expression}}]}},
        ),
        (
            RESOURCE_CLAIM_TEMPLATES,
            "default",
            {"metadata": {"name": "gpu"}, "spec": {"spec": {"devices": {"requests": [request]}}}},
        ),
    ]


def _create(embedded: Embedded, rng: random.Random, name: str, spec: Data) -> None:
    spec = {**spec}
    if "volumes" in spec:
        claim = {
            "metadata": {"name": name},
            "spec": {
                "storageClassName": "late",
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        embedded.store.create(CLAIMS, "default", claim)
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
    metadata = {
        "name": name,
        "labels": {"app": rng.choice(("web", "db"))},
        "annotations": {"kubesched.io/duration": f"{rng.choice((20, 60, 300))}s"},
    }
    embedded.store.create(PODS, "default", {"metadata": metadata, "spec": spec})


def record(
    path: Path | None,
    seed: int,
    *,
    config: KubeSchedulerConfiguration | None = None,
    registry: Registry | None = None,
    observers: tuple[AttemptObserver, ...] = (),
    nodes: int = 6,
    pods: int = 40,
    most_bytes: int = 512 << 20,
) -> Recorder:
    """Schedule pods of some templates over five minutes; nodes and pods come, change and go. Return the recorder."""
    rng = random.Random(seed)

    async def main() -> Recorder:
        file = DecisionFile(path, most_bytes=most_bytes) if path is not None else None
        recorder = Recorder(file=file)
        embedded = Embedded(
            config or default_config(),
            registry or in_tree_registry(),
            clock=VirtualClock(asyncio.get_running_loop()),
            seed=seed,
            controllers=True,
            observers=(recorder, *observers),
        )
        recorder.attach(embedded.scheduler)
        for kind, namespace, data in _fixed():
            embedded.store.create(kind, namespace, data)
        async with embedded.running():
            for number in range(nodes):
                embedded.store.create(NODES, "", a_node(rng, number), restore=True)
            specs = [a_spec(rng) for _ in range(12)]
            for number in range(pods):
                _create(embedded, rng, f"p{number}", rng.choice(specs))
                await asyncio.sleep(rng.choice((0.0, 0.0, 1.5, 9.0)))
                _disturb(embedded, rng)
            await asyncio.sleep(120)
        recorder.close()
        return recorder

    return run_virtual(main())


def _disturb(embedded: Embedded, rng: random.Random) -> None:
    """Now and then delete a pod, or change a node."""
    chance = rng.random()
    if chance < 0.05:
        pods = embedded.pods()
        pod = rng.choice(sorted(pods, key=lambda pod: pod.key))
        embedded.store.delete(PODS, pod.namespace, pod.name)
    elif chance < 0.1:
        node = rng.choice(sorted(embedded.nodes(), key=lambda node: node.name))
        patch = {"metadata": {"labels": {"disk": rng.choice(("ssd", "hdd"))}}}
        embedded.store.patch(NODES, "", node.name, patch)
    elif chance < 0.12:
        node = rng.choice(sorted(embedded.nodes(), key=lambda node: node.name))
        embedded.store.patch(NODES, "", node.name, {"spec": {"unschedulable": not node.spec.unschedulable}})
