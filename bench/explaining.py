"""CPU that ``kubesched explain`` of all pending pods, and ``kubesched audit``, take on a large cluster.

    python bench/explaining.py
    python bench/explaining.py --nodes 500 --pods 5000 --waiting 1000

Makes a dump of nodes and pods as ``kubectl get -o json`` writes it. Pods are of workloads of 50; half of them have rules about
other pods. ``--waiting`` pods of 50 kinds fit nowhere, most for two reasons. For each command it prints the seconds of CPU of
its whole process, reading included, and the number of lines it wrote.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any, Final

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_ZONE: Final = "topology.kubernetes.io/zone"
_SINCE: Final = "2026-03-02T10:00:00Z"
_KINDS: Final = 50


def _node(number: int) -> dict[str, Any]:
    name = f"node-{number:05}"
    labels = {"kubernetes.io/hostname": name, _ZONE: f"z{number % 3}", "disk": "ssd" if number % 2 else "hdd"}
    taints = [{"key": "dedicated", "value": "batch", "effect": "NoSchedule"}] if number % 50 == 0 else []
    amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    metadata = {"name": name, "labels": labels, "creationTimestamp": _SINCE}
    return {"kind": "Node", "metadata": metadata, "spec": {"taints": taints}, "status": {"allocatable": amounts}}


def _pod(name: str, app: str, cpu: str, spec: dict[str, Any]) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": app, "controller": True}
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": {"app": app}, "creationTimestamp": _SINCE}
    container = {"name": "c", "image": "app", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    status = {"phase": "Running" if "nodeName" in spec else "Pending"}
    metadata["ownerReferences"] = [owner]
    return {"kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}, "status": status}


def _rules(number: int, app: str) -> dict[str, Any]:
    selector = {"matchLabels": {"app": app}}
    if number % 4 == 0:
        spread = {"maxSkew": 1, "topologyKey": _ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
        return {"topologySpreadConstraints": [spread]}
    if number % 4 == 1:
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
        return {"affinity": {"podAntiAffinity": {_REQUIRED: [term]}}}
    return {}


def _objects(nodes: int, pods: int, waiting: int) -> Iterator[dict[str, Any]]:
    yield from map(_node, range(nodes))
    for number in range(pods):
        workload, place = divmod(number, 50)
        app = f"app-{workload}"
        node = f"node-{(workload * 37 + place * 101) % nodes:05}"
        yield _pod(f"{app}-{place}", app, "1", {"nodeName": node, **_rules(workload, app)})
    for number in range(waiting):
        kind = number % _KINDS
        app = f"waits-{kind}"
        selector = {"nodeSelector": {"disk": "nvme" if kind % 4 == 2 else "ssd"}} if kind % 2 == 0 else {}
        yield _pod(f"{app}-{number}", app, f"{17 + kind}", {**_rules(kind, app), **selector})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--waiting", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for command, waiting in ((("explain", "--all-pending"), options.waiting), (("audit",), 0)):
            dump = Path(folder) / "dump.json"
            items = [{"apiVersion": "v1", **one} for one in _objects(options.nodes, options.pods, waiting)]
            dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
            before = getrusage(RUSAGE_CHILDREN).ru_utime
            words = [sys.executable, "-m", "kubesched", *command, "--from", str(dump), "--quiet"]
            out = subprocess.run(words, check=True, capture_output=True, text=True).stdout
            spent = getrusage(RUSAGE_CHILDREN).ru_utime - before
            what = f"{options.nodes:,} nodes, {options.pods:,} pods, {waiting:,} waiting"
            print(f"{' '.join(command)}: {spent:.1f} s of CPU, {len(out.splitlines())} lines ({what})")


if __name__ == "__main__":
    main()
