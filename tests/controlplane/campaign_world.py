"""Objects of a bad day: nodes, volumes, devices, budgets and pods of many kinds, and another writer who changes them.

The nodes ``n0`` to ``n3`` stay: they have the local volumes and the devices. ``x`` nodes come and go. Controllers for
volumes, claims and budgets run beside the day, on a network without faults; a kubelet of a few lines runs the pods.
"""

from __future__ import annotations

from random import Random
from typing import Any

from kubesched.api.kinds import (
    BUDGETS,
    CLAIMS,
    CSI_DRIVERS,
    DEVICE_CLASSES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STORAGE_CLASSES,
    VOLUMES,
    Kind,
)
from kubesched.api.types import Pod
from kubesched.api.wire import ApiError
from kubesched.cluster.store import Store
from volume_check import DRIVER, HOSTNAME, ZONE

from campaign_checks import Checks  # isort: skip

__all__ = ["World"]

Data = dict[str, Any]
_MERGE = "application/merge-patch+json"
_CPU = 3
_GPU = "gpu.example"
#: Holds a deleted pod, also one without a node, until somebody else lets it go.
_FINALIZER = "example.com/wait"


class World:
    """Store with objects, and the deeds of the other writer and of the kubelets."""

    def __init__(self, store: Store, checks: Checks, rng: Random) -> None:
        self.store = store
        self.checks = checks
        self.rng = rng
        self.made = 0

    # -- the beginning and the end -----------------------------------------------------------------------

    def build(self) -> None:
        """Create what a day begins with."""
        for number in range(4):
            self._node(f"n{number}", "abca"[number], _CPU)
            for disk in range(2):
                self._local_volume(f"disk-{number}-{disk}", f"n{number}")
        for number in range(2):
            self._devices(f"n{number}", 2)
        selector = {"cel": {"expression": f"device.driver == '{_GPU}'"}}
        self._create(DEVICE_CLASSES, {"metadata": {"name": "gpu"}, "spec": {"selectors": [selector]}})
        for name, provisioner in (("fast", DRIVER), ("local", "kubernetes.io/no-provisioner")):
            mode = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
            self._create(STORAGE_CLASSES, {"metadata": {"name": name}, **mode})
        capacity = {"kubesched.io/capacity": "a=9Gi,b=9Gi,c=9Gi"}
        self._create(
            CSI_DRIVERS,
            {"metadata": {"name": DRIVER, "annotations": capacity}, "spec": {"storageCapacity": True}},
        )
        for app, least in (("a", 2), ("b", "50%")):
            spec = {"minAvailable": least, "selector": {"matchLabels": {"app": app}}}
            self._create(BUDGETS, {"metadata": {"name": app}, "spec": spec})

    def make_room(self) -> None:
        """Repair the nodes, and add so much of everything that every pod can be placed."""
        for item in self.store.list(NODES).items:
            amounts = self._amounts(1000)
            self._merge(NODES, item.name, {"spec": {"taints": None, "unschedulable": None}})
            self._merge(NODES, item.name, {"status": {"allocatable": amounts, "capacity": amounts}}, "status")
            self.checks.disturbed.add(item.name)
        for number, zone in enumerate("abc"):
            self._node(f"roomy{number}", zone, 1000)
            self._devices(f"roomy{number}", 60)
        for number in range(12):
            self._node(f"spare{number}", "abc"[number % 3], 100)
        # A pod with two claims needs both volumes on one node, where one of them may be bound already.
        claims = [item.typed.spec for item in self.store.list(CLAIMS).items]
        for number in range(sum(not claim.volume_name and claim.storage_class_name == "local" for claim in claims)):
            for node in ("roomy0", "n0", "n1", "n2", "n3"):
                self._local_volume(f"spare-disk-{number}-{node}", node)
        annotations = {"kubesched.io/capacity": "a=900Gi,b=900Gi,c=900Gi"}
        self._merge(CSI_DRIVERS, DRIVER, {"metadata": {"annotations": annotations}})

    def waiting(self) -> list[Pod]:
        """Return the pods that a scheduler has to place; those with a claim that is gone can never be placed."""
        pods = [item.typed for item in self.store.list(PODS).items]
        return [
            pod
            for pod in pods
            if not pod.spec.node_name and not pod.spec.scheduling_gates and pod.metadata.deletion_timestamp is None
        ]

    def is_ending(self) -> bool:
        """Return True while pods are being deleted."""
        return any(item.typed.metadata.deletion_timestamp is not None for item in self.store.list(PODS).items)

    # -- new pods ----------------------------------------------------------------------------------------

    def new_pods(self) -> None:
        for _ in range(self.rng.randint(1, 6)):
            self.made += 1
            self._create(PODS, self._pod(f"p{self.made}"))

    def new_pod(self, kind: str) -> None:
        """Create one pod: ``plain``, with a claim for a ``volume``, or for a ``device``."""
        self.made += 1
        demands = {"plain": self._plain, "volume": self._with_claim, "device": self._with_device}
        container: Data = {"name": "c", "image": "i"}
        spec: Data = {"containers": [container]}
        demands[kind](spec, {})
        self._create(PODS, {"metadata": {"name": f"p{self.made}"}, "spec": spec})

    def _pod(self, name: str) -> Data:
        rng = self.rng
        container: Data = {"name": "c", "image": "i", "resources": {"requests": {"cpu": rng.choice(_SIZES)}}}
        spec: Data = {
            "containers": [container],
            "priority": rng.choice((0, 0, 0, 50, 100)),
            "terminationGracePeriodSeconds": rng.choice((0, 0, 5)),
        }
        labels = {"app": rng.choice("abc")}
        rng.choices(
            (self._plain, self._gated, self._with_port, self._spread, self._with_claim, self._with_device),
            weights=(10, 1, 1, 1, 3, 2),
        )[0](spec, labels)
        finalizers = [_FINALIZER] if rng.random() < 0.2 else []
        return {"metadata": {"name": name, "labels": labels, "finalizers": finalizers}, "spec": spec}

    def _plain(self, spec: Data, labels: Data) -> None:
        if self.rng.random() < 0.1:
            spec["tolerations"] = [{"operator": "Exists"}]

    def _gated(self, spec: Data, labels: Data) -> None:
        spec["schedulingGates"] = [{"name": "example.com/gate"}]

    def _with_port(self, spec: Data, labels: Data) -> None:
        spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]

    def _spread(self, spec: Data, labels: Data) -> None:
        labels["app"] = "spread"
        selector = {"matchLabels": {"app": "spread"}}
        if self.rng.random() < 0.5:
            spec["topologySpreadConstraints"] = [
                {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
            ]
        else:
            apart = [{"topologyKey": HOSTNAME, "labelSelector": selector}]
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}}

    def _with_claim(self, spec: Data, labels: Data) -> None:
        names = [f"claim-{self.made}"]
        if self.rng.random() < 0.2:
            names.append(f"claim-{self.made}-more")
        storage_class = self.rng.choice(("fast", "fast", "local"))
        for name in names:
            amounts = {"requests": {"storage": "1Gi"}}
            body = {"accessModes": ["ReadWriteOnce"], "storageClassName": storage_class, "resources": amounts}
            self._create(CLAIMS, {"metadata": {"name": name}, "spec": body})
        spec["volumes"] = [
            {"name": f"v{at}", "persistentVolumeClaim": {"claimName": name}} for at, name in enumerate(names)
        ]

    def _with_device(self, spec: Data, labels: Data) -> None:
        name = f"device-{self.made}"
        exactly = {"deviceClassName": "gpu", "count": self.rng.choice((1, 1, 2))}
        self._create(
            RESOURCE_CLAIMS,
            {"metadata": {"name": name}, "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}},
        )
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]

    # -- the other writer --------------------------------------------------------------------------------

    def delete_pod(self) -> None:
        if name := self._some(PODS):
            self.store.delete(PODS, "default", name, grace_period_seconds=self.rng.choice((0, 0, None)))

    def replace_pod(self) -> None:
        """Gone and made again under its name, between two looks of any watch."""
        if (name := self._some(PODS)) and not self.store.get(PODS, "default", name).typed.metadata.finalizers:
            self.store.delete(PODS, "default", name, grace_period_seconds=0)
            container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "200m"}}}
            self._create(PODS, {"metadata": {"name": name}, "spec": {"containers": [container]}})

    def touch_pod(self) -> None:
        if name := self._some(PODS):
            self._merge(PODS, name, {"metadata": {"labels": {"touched": str(self.rng.randint(0, 9))}}})

    def lift_gate(self) -> None:
        if (name := self._some(PODS)) and self.store.get(PODS, "default", name).typed.spec.scheduling_gates:
            self._merge(PODS, name, {"spec": {"schedulingGates": None}})

    def bind_elsewhere(self) -> None:
        """Another scheduler takes a pod."""
        waiting = [pod for pod in self.waiting() if not pod.spec.volumes and not pod.spec.resource_claims]
        if waiting and (node := self._some(NODES)):
            pod = self.rng.choice(waiting)
            self.checks.elsewhere(pod.name)
            self.store.bind("default", pod.name, pod.uid, node)

    def urgent_pod(self) -> None:
        """Create a pod that needs the room of others."""
        self.made += 1
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": self.rng.choice(_SIZES)}}}
        spec = {"containers": [container], "priority": 1000}
        self._create(PODS, {"metadata": {"name": f"p{self.made}", "labels": {"app": "urgent"}}, "spec": spec})

    def take_away(self, pod: Pod) -> None:
        """Delete a pod that is being bound, or bind it elsewhere."""
        stored = self.store.table(PODS).objects.get((pod.namespace, pod.name))
        if stored is None or stored.uid != pod.uid or stored.typed.spec.node_name:
            return
        if pod.spec.volumes or pod.spec.resource_claims or self.rng.random() < 0.3:
            self.store.delete(PODS, pod.namespace, pod.name, grace_period_seconds=0)
        elif node := self._some(NODES):
            self.checks.elsewhere(pod.name)
            self.store.bind(pod.namespace, pod.name, pod.uid, node)

    def change_node(self) -> None:
        rng = self.rng
        if not (name := self._some(NODES)):
            return
        draw = rng.random()
        if draw < 0.4:
            taints = [{"key": "k", "effect": "NoSchedule"}] if rng.random() < 0.5 else None
            self._merge(NODES, name, {"spec": {"taints": taints, "unschedulable": rng.random() < 0.3}})
        elif draw < 0.7:
            amounts = self._amounts(rng.choice((0, 2, _CPU)))
            self.checks.disturbed.add(name)
            self._merge(NODES, name, {"status": {"allocatable": amounts, "capacity": amounts}}, "status")
        else:
            self._merge(NODES, name, {"metadata": {"labels": {"touched": str(rng.randint(0, 9))}}})

    def new_node(self) -> None:
        name = f"x{self.rng.randint(0, 3)}"
        if ("", name) not in self.store.table(NODES).objects:
            self._node(name, self.rng.choice("abc"), self.rng.choice((1, 2, 3)))

    def delete_node(self) -> None:
        """A node goes, and its pods with it."""
        name = f"x{self.rng.randint(0, 3)}"
        if ("", name) in self.store.table(NODES).objects:
            self.checks.disturbed.add(name)
            self.store.delete(NODES, "", name)
            self.collect_garbage()

    def collect_garbage(self) -> None:
        """Delete pods whose node is gone, as the garbage collector of pods does."""
        nodes = self.store.table(NODES).objects
        for item in self.store.list(PODS).items:
            node = item.typed.spec.node_name
            if node and ("", node) not in nodes:
                self.store.delete(PODS, "default", item.name, grace_period_seconds=0)

    def run_pods(self, now: str) -> None:
        """Do the kubelets' work: bound pods are ready, and deleted ones end."""
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
        for item in self.store.list(PODS).items:
            pod = item.typed
            if pod.metadata.deletion_timestamp is not None and pod.metadata.finalizers and self.rng.random() < 0.2:
                self._merge(PODS, pod.name, {"metadata": {"finalizers": None}})
                continue
            if not pod.spec.node_name:
                continue
            if pod.metadata.deletion_timestamp is not None:
                if pod.metadata.deletion_timestamp <= now:
                    self.store.delete(PODS, "default", pod.name, grace_period_seconds=0)
            elif pod.status.phase != "Running":
                status = {"phase": "Running", "conditions": [ready]}
                self.store.patch(PODS, "default", pod.name, {"status": status}, subresource="status")

    # -- parts -------------------------------------------------------------------------------------------

    def _some(self, kind: Kind) -> str:
        names = [item.name for item in self.store.list(kind).items]
        return self.rng.choice(names) if names else ""

    def _create(self, kind: Kind, obj: Data) -> None:
        self.store.create(kind, "default" if kind.namespaced else "", obj)

    def _merge(self, kind: Kind, name: str, patch: Data, subresource: str = "") -> None:
        namespace = "default" if kind.namespaced else ""
        try:
            self.store.patch(kind, namespace, name, patch, patch_type=_MERGE, subresource=subresource)
        except ApiError as error:
            if error.code != 422:  # a gate of a bound pod, for example, cannot be changed
                raise

    def _amounts(self, cpu: int) -> Data:
        return {"cpu": str(cpu), "memory": "64Gi", "pods": "500"}

    def _node(self, name: str, zone: str, cpu: int) -> None:
        labels = {ZONE: zone, HOSTNAME: name}
        status = {"capacity": self._amounts(cpu), "allocatable": self._amounts(cpu)}
        self._create(NODES, {"metadata": {"name": name, "labels": labels}, "status": status})

    def _local_volume(self, name: str, node: str) -> None:
        expression = {"key": HOSTNAME, "operator": "In", "values": [node]}
        spec = {
            "capacity": {"storage": "5Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": f"/mnt/{name}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
        }
        self._create(VOLUMES, {"metadata": {"name": name}, "spec": spec})

    def _devices(self, node: str, count: int) -> None:
        spec = {
            "driver": _GPU,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{number}"} for number in range(count)],
        }
        self._create(RESOURCE_SLICES, {"metadata": {"name": f"{node}-gpu"}, "spec": spec})


_SIZES = ("200m", "500m", "500m", "1", "2")
