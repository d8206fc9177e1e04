"""Eviction of pods whose devices have NoExecute taints, at once or when ``tolerationSeconds`` are over.

Taints come from ResourceSlices, and from DeviceTaintRules when the setting ``device_taint_rules`` is on (upstream's gate
DRADeviceTaintRules, off by default). Rules: upstream ``pkg/controller/devicetainteviction``; the eviction itself
is that of :mod:`.taint_eviction`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...api.kinds import DEVICE_TAINT_RULES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from ...api.resource import DeviceTaint, DeviceTaintRule, DeviceToleration, ResourceClaim, ResourceSlice
from ...api.taints import NO_EXECUTE
from ...api.times import parse_time
from ...api.types import Pod
from ...api.wire import Item
from .base import Controller
from .context import Context
from .pods import is_finished
from .resource_claims import claims_of
from .taint_eviction import Eviction, evict

__all__ = ["DeviceTaintEviction"]

_EVICTION = Eviction(
    "DeviceTaintManagerEviction",
    "DeletionByDeviceTaintManager",
    "Device Taint manager: deleting due to NoExecute taint",
)
#: Driver and name.
_Pool = tuple[str, str]
#: By device.
_Taints = dict[str, list[DeviceTaint]]


class DeviceTaintEviction(Controller):
    """Deletes pods that may not keep their devices. The key is a pod's."""

    name = "device-taint-eviction"
    component = "device-taint-eviction"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        #: By pool, then by slice: the generation and the NoExecute taints of its devices.
        self._slices: dict[_Pool, dict[str, tuple[int, _Taints]]] = {}
        self._tainted: dict[_Pool, _Taints] = {}
        self._rules: dict[str, DeviceTaintRule] = {}
        self.watch(PODS, self._pod_changed)
        self._claims = self.watch(RESOURCE_CLAIMS, self._claim_changed)
        self.watch(RESOURCE_SLICES, self._slice_changed)
        if context.settings.device_taint_rules:
            self.watch(DEVICE_TAINT_RULES, self._rule_changed)

    # -- noticing --------------------------------------------------------------------------------------

    @property
    def _is_quiet(self) -> bool:
        return not self._tainted and not self._rules

    def _slice_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        pools = {_pool(one) for one in (old, new) if one is not None}
        before = {pool: self._tainted.pop(pool, None) for pool in pools}
        if old is not None:
            self._slices[_pool(old)].pop(old.key, None)
        if new is not None:
            content: ResourceSlice = new.typed
            self._slices.setdefault(_pool(new), {})[new.key] = (content.spec.pool.generation, _taints(content))
        for pool in pools:
            slices = self._slices[pool]
            newest = max((generation for generation, _ in slices.values()), default=0)
            # Slices of older generations describe devices as they were.
            taints = [devices for generation, devices in slices.values() if generation == newest and devices]
            if taints:
                self._tainted[pool] = {name: found for devices in taints for name, found in devices.items()}
            if not slices:
                del self._slices[pool]
            if self._tainted.get(pool) != before[pool]:
                self._look_at_all(pool)

    def _rule_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if new is not None and new.typed.spec.taint.effect == NO_EXECUTE:
            self._rules[item.name] = new.typed
        elif self._rules.pop(item.name, None) is None:
            return
        self._look_at_all(None)

    def _look_at_all(self, pool: _Pool | None) -> None:
        """Evaluate the users of the devices of a pool, or of all."""
        for item in self._claims.values():
            allocation = item.typed.status.allocation
            if allocation is not None and (
                pool is None or any((one.driver, one.pool) == pool for one in allocation.devices.results)
            ):
                self._add_users(item)

    def _claim_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if new is not None and not self._is_quiet and new.typed.status.allocation is not None:
            self._add_users(new)

    def _add_users(self, claim: Item) -> None:
        for consumer in claim.typed.status.reserved_for:
            if consumer.resource == "pods" and not consumer.api_group:
                self.queue.add(f"{claim.namespace}/{consumer.name}")

    def _pod_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if new is None or self._is_quiet or not new.typed.spec.node_name:
            return
        if old is None or old.typed.spec.node_name != new.typed.spec.node_name:
            self.queue.add(new.key)

    # -- deciding --------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> None:
        item = self.context.pods.get(key)
        if item is None or self.context.is_going(item) or is_finished(item.typed) or not item.typed.spec.node_name:
            return
        due = self._due(item.typed)
        if due is None:
            return
        left = due - self.context.now()
        if left > 0:
            self.queue.add_after(key, left)
        else:
            await evict(self, item, _EVICTION)

    def _due(self, pod: Pod) -> float | None:
        """When a pod has to go; None when it may stay."""
        times = []
        for name in claims_of(pod):
            item = self._claims.get(f"{pod.namespace}/{name}")
            if item is None:
                continue
            claim: ResourceClaim = item.typed
            if claim.status.allocation is None or all(one.uid != pod.uid for one in claim.status.reserved_for):
                continue
            for result in claim.status.allocation.devices.results:
                for taint in self._taints_of(result.driver, result.pool, result.device):
                    seconds = _toleration_seconds(result.tolerations, taint)
                    if seconds is not None:
                        begun = parse_time(taint.time_added) if taint.time_added else self.context.now()
                        times.append(begun + seconds)
        return min(times, default=None)

    def _taints_of(self, driver: str, pool: str, device: str) -> Iterator[DeviceTaint]:
        yield from self._tainted.get((driver, pool), {}).get(device, ())
        for rule in self._rules.values():
            wanted = rule.spec.device_selector
            if wanted is None or all(
                value is None or value == given
                for value, given in zip(
                    (wanted.driver, wanted.pool, wanted.device), (driver, pool, device), strict=True
                )
            ):
                yield rule.spec.taint


def _pool(item: Item) -> _Pool:
    spec = item.typed.spec
    return (spec.driver, spec.pool.name)


def _taints(content: ResourceSlice) -> _Taints:
    found = {}
    for device in content.spec.devices:
        taints = [taint for taint in device.taints if taint.effect == NO_EXECUTE]
        if taints:
            found[device.name] = taints
    return found


def _toleration_seconds(tolerations: tuple[DeviceToleration, ...], taint: DeviceTaint) -> float | None:
    """How long a device may be used under a taint: 0 not at all, None without limit."""
    matching = [item for item in tolerations if _tolerates(item, taint)]
    if not matching:
        return 0.0
    limits = [max(0.0, float(item.toleration_seconds)) for item in matching if item.toleration_seconds is not None]
    return min(limits, default=None)


def _tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value
