"""Invariants of a bad day that the API server's objects show, whoever wrote them.

S1  a pod is bound once, by its UID
S2  one leader does not over-commit a node
S5  a pod that is gated or being deleted is not bound
S6  a device belongs to one claim
S7  a claim keeps its volume, no two claims have the same one, and a pod's node reaches its volumes

Who has sent a write is known by its path. Two leaders in succession may over-commit a node, and give one device to two
claims, if a write of the first arrives after the second has decided. kube-scheduler has the same window, and the kubelet
rejects the second pod.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import Any

from memory_net import IS_REPETITION

from kubesched.api.kinds import CLAIMS, LEASES, NODES, PODS, RESOURCE_CLAIMS, VOLUMES, Kind
from kubesched.api.storage import BIND_COMPLETED
from kubesched.api.types import Pod
from kubesched.cluster.store import Store
from kubesched.scheduler.nodes.podinfo import PodInfo
from volume_check import claims_of, reaches

__all__ = ["Checks"]

_CLAIM = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/"
_POD = "/api/v1/namespaces/default/pods/"


class Checks:
    """Onlooker of a store.

    Attributes:
        bound: node of each binding, by UID of the pod.
        renewed: time at which the API server took the last renewal of the lease, by holder.
        disturbed: nodes that somebody else has shrunk, or bound pods to, or that got a pod by the second copy of a binding.
    """

    def __init__(self, store: Store, broken: list[str]) -> None:
        self._store = store
        self._broken = broken
        self.bound: dict[str, str] = {}
        self.disturbed: set[str] = set()
        self._senders: dict[str, set[str]] = {}
        self._binders: dict[str, set[str]] = {}
        self._volume_of: dict[str, str] = {}
        self._seen = -1
        self._elsewhere: set[str] = set()
        self.renewed: dict[str, float] = {}
        self._watch_bindings()
        self._watch_lease()

    def sent(self, path: str, client: str) -> None:
        """Note who sends a write."""
        if path.startswith(_CLAIM):
            self._senders.setdefault(_CLAIM + re.split("[/?]", path[len(_CLAIM) :])[0], set()).add(client)
        elif path.endswith("/binding"):
            self._senders.setdefault(path, set()).add(client)

    def bound_by(self, pod: Pod, client: str) -> str:
        """Return the node that exactly this pod was bound to when a client had sent a binding; empty if there is none."""
        return self.bound[pod.uid] if client in self._binders.get(pod.uid, ()) else ""

    def elsewhere(self, name: str) -> None:
        """Note that another scheduler is about to bind a pod."""
        self._elsewhere.add(name)

    # -- bindings ----------------------------------------------------------------------------------------

    def _watch_bindings(self) -> None:
        real = self._store.bind

        def bind(namespace: str, name: str, uid: str, node_name: str, **options: Any) -> Any:
            if not uid:
                self._broken.append(f"S1: the binding of {name} carries no UID")
            before = self._store.table(PODS).objects.get((namespace, name))
            stored = real(namespace, name, uid, node_name, **options)
            if uid in self.bound:
                self._broken.append(f"S1: {name} was bound to {self.bound[uid]} before {node_name}")
            self.bound[uid] = node_name
            if before is not None and before.typed.metadata.deletion_timestamp is not None:
                self._broken.append(f"S5: {name} was being deleted, and was bound")
            if stored.typed.spec.scheduling_gates:
                self._broken.append(f"S5: {name} is gated, and was bound")
            if name in self._elsewhere or IS_REPETITION.get():
                self._elsewhere.discard(name)
                self.disturbed.add(node_name)
                return stored
            senders = self._binders[uid] = set(self._senders.get(f"{_POD}{name}/binding", ()))
            self._check_volumes(stored.typed)
            self._check_room(node_name, senders)
            return stored

        self._store.bind = bind  # the test's onlooker

    def _watch_lease(self) -> None:
        real, loop = self._store.commit, asyncio.get_running_loop()

        def commit(kind: Kind, obj: Any, *more: Any, **options: Any) -> Any:
            stored = real(kind, obj, *more, **options)
            if kind is LEASES:
                self.renewed[stored.data()["spec"].get("holderIdentity") or ""] = loop.time()
            return stored

        self._store.commit = commit  # type: ignore[method-assign, assignment]  # the test's onlooker

    def _check_room(self, node_name: str, senders: set[str]) -> None:
        """S2, by what the API server has."""
        node = self._store.table(NODES).objects.get(("", node_name))
        if node is None or node_name in self.disturbed or len(senders) > 1:
            return
        pods = [item.typed for item in self._store.list(PODS).items if item.typed.spec.node_name == node_name]
        if any(self._binders.get(pod.uid) != senders for pod in pods):
            return
        infos = [PodInfo(pod) for pod in pods]
        room = node.typed.status.allocatable
        used = sum(info.requests.milli_cpu for info in infos)
        if used > 1000 * int(room["cpu"]):
            self._broken.append(f"S2: {senders} bound pods to {node_name} that ask for {used}m of {room['cpu']}")
        ports = Counter(port.host_port for pod in pods for one in pod.spec.containers for port in one.ports)
        if twice := [port for port, count in ports.items() if port and count > 1]:
            self._broken.append(f"S2: {senders} bound pods to {node_name} that share the host ports {twice}")
        spread = [pod for pod in pods if pod.metadata.labels.get("app") == "spread"]
        if len(spread) > 1 and any(pod.spec.affinity is not None for pod in spread):
            self._broken.append(f"S2: {senders} bound pods to {node_name} that keep away from each other")

    def _check_volumes(self, pod: Pod) -> None:
        """S7, at a binding."""
        node = self._store.table(NODES).objects.get(("", pod.spec.node_name))
        for name in claims_of(pod):
            item = self._store.table(CLAIMS).objects.get(("default", name))
            if item is None:
                continue  # deleted meanwhile: the pod waits for it on its node
            volume = self._store.table(VOLUMES).objects.get(("", item.typed.spec.volume_name))
            if volume is None:
                self._broken.append(f"S7: {pod.name} is bound, and its claim {name} is not")
            elif node is not None and not reaches(volume.typed, node.typed.metadata.labels):
                self._broken.append(f"S7: {pod.name} is on {pod.spec.node_name}, which does not reach {volume.name}")

    # -- claims ------------------------------------------------------------------------------------------

    def check(self) -> None:
        """S6, S7: at any moment."""
        if self._seen == self._store.resource_version:
            return
        self._seen = self._store.resource_version
        owners: dict[str, str] = {}
        for claim in (item.typed for item in self._store.list(CLAIMS).items):
            if BIND_COMPLETED not in claim.metadata.annotations:
                continue
            name, uid = claim.spec.volume_name, claim.metadata.uid
            if self._volume_of.setdefault(uid, name) != name:
                self._broken.append(f"S7: {claim.key} had volume {self._volume_of[uid]} and has {name}")
            if owners.setdefault(name, claim.key) != claim.key:
                self._broken.append(f"S7: {owners[name]} and {claim.key} both have volume {name}")
        self._check_devices()

    def _check_devices(self) -> None:
        holders: dict[tuple[str, str, str], Any] = {}
        for claim in (item.typed for item in self._store.list(RESOURCE_CLAIMS).items):
            if claim.status.allocation is None:
                continue
            for result in claim.status.allocation.devices.results:
                device = (result.driver, result.pool, result.device)
                other = holders.setdefault(device, claim)
                writers = self._writers(claim) | self._writers(other)
                if other is not claim and len(writers) < 2:
                    self._broken.append(f"S6: {claim.key} and {other.key} both have device {device}, by {writers}")

    def is_of_two_leaders(self, problem: str) -> bool:
        """Return True if a check of a replica found a device that two leaders in succession gave to two claims."""
        claims = re.fullmatch("device .* is allocated . times: (.*)", problem)
        names = claims[1].replace("default/", "").split(", ") if claims else []
        return len(set().union(*map(self._writers_of, names))) > 1

    def _writers(self, claim: Any) -> set[str]:
        return self._writers_of(claim.metadata.name)

    def _writers_of(self, name: str) -> set[str]:
        return self._senders.get(_CLAIM + name, set())
