"""The hollow DRA driver: publishes the devices that nodes are annotated with, and sets binding conditions.

    node with ``kubesched.io/devices`` ──▶ ResourceSlices owned by the node, in one pool per driver
    annotation changed ──▶ the slices change, in the pool's next generation
    allocated device with binding conditions ──after a while──▶ condition True in the claim's ``status.devices``

The slices are kept: a slice that another client changes or deletes is written again. Slices are collected with their
node. Kubelets prepare devices for pods (:mod:`kubesched.cluster.kubelets`). Descriptions:
:mod:`.device_pools`.
"""

from __future__ import annotations

from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

from kubesched.api.equality import same_json
from kubesched.api.kinds import NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from kubesched.api.resource import DeviceRequestAllocationResult, ResourceClaim, ResourceSliceSpec
from kubesched.api.wire import ApiError, Item
from kubesched.client.event_writer import WARNING

from .base import Controller
from .context import BY_OWNER, Context, Data, annotations_of
from .device_pools import DEVICES, DevicePool, DevicesError, parse_devices
from .pods import owner_reference

__all__ = ["DeviceDriver"]

_NODE, _CLAIM = "node:", "claim:"
_TRUE: Final = "True"
#: Parsed descriptions. Nodes of one template share a description.
_parsed: Final = lru_cache(maxsize=64)(parse_devices)


class DeviceDriver(Controller):
    """Controller of devices. Keys are ``node:name`` and ``claim:namespace/name``."""

    name = "device-driver"
    component = "hollow-dra-driver"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._nodes = context.watch(NODES, self._node_changed)
        self._slices = context.owned_cache(RESOURCE_SLICES)
        context.watch(RESOURCE_SLICES, self._slice_changed)
        self._claims = context.watch(RESOURCE_CLAIMS, self._claim_changed)
        #: By node: the text that was read last, and the pools of the last text that could be parsed (None if there was
        #: none).
        self._read: dict[str, tuple[str, list[DevicePool] | None]] = {}
        #: Times at which the conditions of a claim's devices will be set, by claim UID.
        self._due: dict[str, float] = {}
        self.each(self._nodes, self._publish, _NODE)
        self.each(self._claims, self._bind, _CLAIM)

    def _node_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if new is None:
            self._read.pop(item.name, None)
        elif annotations_of(new).get(DEVICES, "") != annotations_of(old).get(DEVICES, ""):
            self.queue.add(f"{_NODE}{new.name}")

    def _slice_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        node = item.typed.spec.node_name
        if node in self._read:
            self.queue.add(f"{_NODE}{node}")

    def _claim_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if new is not None and _waiting_results(new.typed):
            self.queue.add(f"{_CLAIM}{new.key}")
        else:
            self._due.pop(item.uid, None)

    async def _pools(self, node: Item) -> list[DevicePool] | None:
        """Return the pools in a node's annotation.

        An unreadable annotation is reported once; the pools of the last readable one stay.
        """
        text = annotations_of(node).get(DEVICES, "")
        last, pools = self._read.get(node.name, (None, None))
        if last != text:
            try:
                pools = _parsed(text) if text else []
            except DevicesError as error:
                self.context.problems.note(f"{self.name} node {node.name}: {error}")
                await self.record(node, WARNING, "InvalidAnnotation", str(error))
            self._read[node.name] = (text, pools)
        return pools

    async def _publish(self, node: Item) -> None:
        pools = await self._pools(node)
        if pools is None:
            return  # no readable description so far: published slices stay
        published: dict[str, dict[str, Item]] = {}
        for item in self._slices.indexed(BY_OWNER, node.uid):
            published.setdefault(item.typed.spec.driver, {})[item.name] = item
        for pool in pools:
            await self._publish_pool(node, pool, published.pop(pool.driver, {}))
        for rest in published.values():
            for item in rest.values():
                await self.context.delete(item)

    async def _publish_pool(self, node: Item, pool: DevicePool, published: dict[str, Item]) -> None:
        """Bring the slices of one pool up to date; any change is a new generation of the whole pool."""
        generation = max((item.typed.spec.pool.generation for item in published.values()), default=1)
        wanted = pool.specs(node.name, generation)
        if wanted.keys() == published.keys() and all(
            same_json(published[name].data()["spec"], _dated(spec, published[name])) for name, spec in wanted.items()
        ):
            return
        for name in wanted:
            if name not in published and self._slices.get(name) is not None:
                # The slice belongs to another client. The rest of the pool stays, because a new generation would meet
                # the same slice again.
                raise ApiError.already_exists(RESOURCE_SLICES, name)
        for name, spec in pool.specs(node.name, generation + 1 if published else 1).items():
            item = published.pop(name, None)
            if item is not None:
                await self.context.update(item, {**item.data(), "spec": spec})
            else:
                metadata = {"name": name, "ownerReferences": [owner_reference(node)]}
                await self.context.create(RESOURCE_SLICES, "", {"metadata": metadata, "spec": spec})
        for item in published.values():
            await self.context.delete(item)

    async def _bind(self, item: Item) -> None:
        """Set the binding conditions of a claim's devices once the driver's time is over."""
        waiting = [(result, pool) for result in _waiting_results(item.typed) if (pool := self._pool_of(result))]
        if not waiting:
            return
        now = self.context.now()
        due = self._due.setdefault(item.uid, now + max(pool.binding_seconds for _, pool in waiting))
        if due > now:
            self.queue.add_after(f"{_CLAIM}{item.key}", due - now)
            return
        data = item.data()
        devices: list[Data] = data["status"].get("devices") or []
        for result, pool in waiting:
            failed = result.binding_failure_conditions and self.context.rng.random() < pool.binding_failure
            types = result.binding_failure_conditions[:1] if failed else result.binding_conditions
            reason, message = ("BindingFailed", "the hollow driver failed") if failed else ("Bound", "")
            conditions = [self.context.condition(type_, _TRUE, reason, message) for type_ in types]
            shared = {} if result.share_id is None else {"shareID": result.share_id}
            device = {"driver": result.driver, "pool": result.pool, "device": result.device, **shared}
            devices = [one for one in devices if not device.items() <= one.items()]
            devices.append({**device, "conditions": conditions})
        status = {**data["status"], "devices": devices}
        await self.context.update(item, {**data, "status": status}, subresource="status")

    def _pool_of(self, result: DeviceRequestAllocationResult) -> DevicePool | None:
        """Return the description of an allocated device's pool, if it is a pool of ours."""
        _, pools = self._read.get(result.pool, ("", None))
        return next((pool for pool in pools or () if pool.driver == result.driver), None)


def _dated(spec: Data, published: Item) -> Data:
    """Return a spec as the server stores it: taints without a date get the date of the published taint."""
    slice_: ResourceSliceSpec = published.typed.spec
    dates = {(one.name, taint.key, taint.effect): taint.time_added for one in slice_.devices for taint in one.taints}
    if not dates:
        return spec
    devices = []
    for device in spec.get("devices", ()):
        taints = [
            {"timeAdded": dates.get((device["name"], taint["key"], taint["effect"])), **taint}
            for taint in device.get("taints", ())
        ]
        devices.append({**device, "taints": taints} if taints else device)
    return {**spec, "devices": devices} if devices else spec


#: Identity of a device, in an allocation and in its status.
_identity: Final = attrgetter("driver", "pool", "device", "share_id")


def _waiting_results(claim: ResourceClaim) -> list[DeviceRequestAllocationResult]:
    """Return the allocated devices of a claim that wait for their binding conditions."""
    said: dict[Any, set[str]] = {}
    for device in claim.status.devices:
        true = {condition.type for condition in device.conditions if condition.status == _TRUE}
        said.setdefault(_identity(device), set()).update(true)
    found = []
    for result in claim.status.allocation.devices.results if claim.status.allocation is not None else ():
        known = said.get(_identity(result), set())
        if not known.issuperset(result.binding_conditions) and known.isdisjoint(result.binding_failure_conditions):
            found.append(result)
    return found
