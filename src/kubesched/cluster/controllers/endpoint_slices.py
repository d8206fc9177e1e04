"""EndpointSlices from the pods that a Service selects, and an address for each Service of type LoadBalancer.

Rules: upstream ``pkg/controller/endpointslice``. A slice has at most 100 endpoints. Pods that give the named ports
different numbers get separate slices. A Service without pods has one empty slice. Endpoints objects, which are
deprecated, are not made.
"""

from __future__ import annotations

from typing import Any, Final

from kubesched.api.kinds import ENDPOINT_SLICES, NODES, PODS, SERVICES
from kubesched.api.types import Pod
from kubesched.api.wire import Item

from ..kubelets import pod_ip
from .base import ObjectController
from .context import BY_NAMESPACE, BY_OWNER, Context, Data, data_of, differ, spec_of, status_of
from .pods import is_finished, is_ready, owner_reference

__all__ = ["EndpointSlices"]

_MOST: Final = 100
_SERVICE: Final = "kubernetes.io/service-name"
_MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
_MANAGER: Final = "endpointslice-controller.k8s.io"
_ZONE: Final = "topology.kubernetes.io/zone"
#: Time during which changes of pods are collected, in seconds.
_BATCH_SECONDS: Final = 1.0


class EndpointSlices(ObjectController):
    """Controller that keeps the slices of each Service that has a selector."""

    name = "endpointslice"
    component = "endpoint-slice-controller"
    kind = SERVICES

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._slices = context.owned_cache(ENDPOINT_SLICES)
        self._nodes = context.cache(NODES)
        self.cache.add_index(BY_NAMESPACE, lambda item: (item.namespace,))
        #: Selectors of Services by key.
        self._selectors: dict[str, dict[str, str]] = {}
        context.watch(ENDPOINT_SLICES, self._slice_changed)
        context.watch(PODS, self._pod_changed)

    def enqueue(self, item: Item, old: Item | None, new: Item | None) -> None:
        super().enqueue(item, old, new)
        self._selectors.pop(item.key, None)
        if new is not None and (selector := spec_of(new).get("selector")):
            self._selectors[item.key] = selector

    def _slice_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        """Repair a slice that another client changed or deleted."""
        labels = data_of(item)["metadata"].get("labels") or {}
        if labels.get(_MANAGED_BY) == _MANAGER:
            self.queue.add(f"{item.namespace}/{labels.get(_SERVICE, '')}")

    def _pod_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        services = self.cache.indexed(BY_NAMESPACE, item.namespace)
        if not services or not differ(old, new, _seen):
            return
        pods = [one.typed.metadata.labels.items() for one in (old, new) if one is not None]
        for service in services:
            selector = self._selectors.get(service.key)
            if selector and any(selector.items() <= labels for labels in pods):
                self.queue.add_after(service.key, _BATCH_SECONDS)

    async def reconcile_object(self, item: Item) -> None:
        if self.context.is_going(item):
            return
        spec = spec_of(item)
        await self._balance(item, spec)
        selector = spec.get("selector")
        if not selector or spec.get("type") == "ExternalName":
            return
        groups: dict[tuple[tuple[str, int, str], ...], list[Data]] = {}
        for one in self.context.pods.indexed(BY_NAMESPACE, item.namespace):
            pod: Pod = one.typed
            if selector.items() <= pod.metadata.labels.items() and not is_finished(pod) and (ip := pod_ip(one)):
                groups.setdefault(_ports(spec, pod), []).append(self._endpoint(one, ip, spec))
        wanted = [
            {
                "addressType": "IPv4",
                "endpoints": endpoints[start : start + _MOST],
                "ports": [{"name": name, "port": port, "protocol": protocol} for name, port, protocol in ports],
            }
            for ports, endpoints in (groups or {(): []}).items()
            for start in range(0, max(1, len(endpoints)), _MOST)
        ]
        await self._write(item, wanted)

    async def _write(self, service: Item, wanted: list[Data]) -> None:
        """Write the wanted slices of a Service. Existing slices are changed in order."""
        there = sorted(self._slices.indexed(BY_OWNER, service.uid), key=lambda one: one.name)
        for body, item in zip(wanted, there, strict=False):
            if any(data_of(item).get(name) != value for name, value in body.items() if name != "addressType"):
                await self.context.update(item, {**data_of(item), **body})
        for item in there[len(wanted) :]:
            await self.context.delete(item)
        labels = {**(data_of(service)["metadata"].get("labels") or {}), _SERVICE: service.name, _MANAGED_BY: _MANAGER}
        owner = owner_reference(service)
        for body in wanted[len(there) :]:
            metadata = {"generateName": f"{service.name}-", "labels": labels, "ownerReferences": [owner]}
            await self.context.create(ENDPOINT_SLICES, service.namespace, {"metadata": metadata, **body})

    def _endpoint(self, item: Item, ip: str, spec: Data) -> Data:
        pod: Pod = item.typed
        ready, going = is_ready(pod), self.context.is_going(item)
        published = bool(spec.get("publishNotReadyAddresses"))
        node = self._nodes.get(pod.spec.node_name)
        zone = node.typed.metadata.labels.get(_ZONE) if node is not None else None
        return {
            "addresses": [ip],
            "conditions": {"ready": published or (ready and not going), "serving": ready, "terminating": going},
            "targetRef": {"kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid},
            "nodeName": pod.spec.node_name,
            **({"zone": zone} if zone else {}),
        }

    async def _balance(self, service: Item, spec: Data) -> None:
        """Give a LoadBalancer Service an address at once. It is made from the cluster IP and lies in the network
        reserved for benchmarks.
        """
        there = (status_of(service).get("loadBalancer") or {}).get("ingress")
        balanced = spec.get("type") == "LoadBalancer" and not spec.get("loadBalancerClass")
        if balanced is bool(there):
            return
        balancer: Data = {}
        if balanced:
            _, second, third, fourth = (int(part) for part in spec["clusterIP"].split("."))
            balancer["ingress"] = [{"ip": f"198.{18 + (second & 1)}.{third}.{fourth}", "ipMode": "VIP"}]
        await self.context.write_status(service, {**status_of(service), "loadBalancer": balancer})


def _seen(item: Item) -> tuple[Any, ...]:
    """Fields of a pod that slices depend on."""
    pod: Pod = item.typed
    status = pod.status
    return pod.metadata.labels, pod.metadata.deletion_timestamp, status.phase, is_ready(pod), pod_ip(item)


def _ports(spec: Data, pod: Pod) -> tuple[tuple[str, int, str], ...]:
    """Return name, number and protocol of a Service's ports in a pod. A named port that the pod lacks is left out."""
    found = []
    for port in spec.get("ports") or ():
        target, protocol = port.get("targetPort", port["port"]), port.get("protocol", "TCP")
        if isinstance(target, str):
            named = (
                one.container_port
                for container in pod.spec.containers
                for one in container.ports
                if one.name == target and (one.protocol or "TCP") == protocol
            )
            target = next(named, None)
        if target is not None:
            found.append((port.get("name") or "", target, protocol))
    return tuple(found)
