"""Taint eviction: pods leave nodes and devices with NoExecute taints, at once or when ``tolerationSeconds`` are over.

Rules: upstream ``taint_eviction.go``. Pods are deleted in the ordinary way, so disruption budgets are not asked. On an
unresponsive node, pods stay Terminating until the node recovers or is removed.

Taints of devices come from ResourceSlices, and from DeviceTaintRules when the setting ``device_taint_rules`` is on
(upstream's gate DRADeviceTaintRules, off by default). Rules: upstream ``pkg/controller/devicetainteviction``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

from kubesched.api.kinds import DEVICE_TAINT_RULES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from kubesched.api.resource import (
    DeviceRequestAllocationResult,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintSelector,
    DeviceToleration,
    ResourceClaimStatus,
    ResourceSliceSpec,
)
from kubesched.api.taints import NO_EXECUTE, tolerates
from kubesched.api.types import Pod, Taint, Toleration
from kubesched.api.wire import Item
from kubesched.base.times import parse_time
from kubesched.client.event_writer import NORMAL

from .base import ObjectController
from .context import BY_NODE, Context, differ
from .pods import is_finished
from .resource_claims import claims_of

__all__ = ["DeviceTaintEviction", "TaintEviction", "toleration_seconds"]

#: Indexes of slices by pool: of all slices, and of those with NoExecute taints. The latter are also filed under "".
_BY_POOL, _TAINTED = "pool", "tainted"


def toleration_seconds(
    tolerations: Iterable[Toleration | DeviceToleration], taints: Iterable[Taint | DeviceTaint]
) -> float | None:
    """Return the seconds that NoExecute taints leave a pod or a device's user: 0 to go at once, None without limit."""
    limits: list[float] = []
    for taint in taints:
        matching = [item.toleration_seconds for item in tolerations if tolerates(item, taint)]
        if not matching:
            return 0.0
        limits += [max(0.0, float(seconds)) for seconds in matching if seconds is not None]
    return min(limits, default=None)


class Evictor(ObjectController):
    """Base of controllers that delete pods when their time is over."""

    kind = PODS
    #: Texts of an eviction: the reason of its event, and reason and message of the pod's condition.
    event: ClassVar[str]
    reason: ClassVar[str]
    message: ClassVar[str]

    def left(self, pod: Pod) -> float | None:
        """Return the seconds until a pod has to go; None when it may stay."""
        raise AssertionError("every evictor says what it does")

    async def reconcile_object(self, item: Item) -> None:
        context = self.context
        left = self.left(item.typed) if not context.is_going(item) else None
        if left is None:
            return
        if left > 0:
            self.queue.add_after(item.key, left)
            return
        await self.record(item, NORMAL, self.event, f"Marking for deletion Pod {item.key}")
        condition = context.condition("DisruptionTarget", "True", self.reason, self.message)
        changed = await context.patch_status(item, {"conditions": [condition]})
        if changed is not None:
            await context.delete(changed)


class TaintEviction(Evictor):
    """Controller that deletes pods that do not tolerate the taints of their node."""

    name = "taint-eviction"
    event, reason = "TaintManagerEviction", "DeletionByTaintManager"
    message = "Taint manager: deleting due to NoExecute taint"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._tainted: dict[str, list[Taint]] = {}
        context.watch(NODES, self._node_changed)

    def _node_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        given: list[Taint] = new.typed.spec.taints if new is not None else []
        taints = [taint for taint in given if taint.effect == NO_EXECUTE]
        before = self._tainted.pop(item.name, [])
        if taints:
            self._tainted[item.name] = taints
        if taints == before:
            return
        for pod in self.context.pods.indexed(BY_NODE, item.name):
            self.queue.add(pod.key)

    def enqueue(self, item: Item, old: Item | None, new: Item | None) -> None:
        is_tainted = new is not None and new.typed.spec.node_name in self._tainted
        if is_tainted and differ(old, new, lambda pod: (pod.typed.spec.node_name, pod.typed.spec.tolerations)):
            self.queue.add(item.key)

    def left(self, pod: Pod) -> float | None:
        taints = self._tainted.get(pod.spec.node_name, [])
        left = toleration_seconds(pod.spec.tolerations, taints)
        dates = [parse_time(taint.time_added) for taint in taints if taint.time_added]
        # For a taint without a date, and for a pod that came later, the time counts from now. Look again after the
        # whole time.
        return max(dates) + left - self.context.now() if dates and left is not None else left


class DeviceTaintEviction(Evictor):
    """Controller that deletes pods that do not tolerate the taints of their devices."""

    name = "device-taint-eviction"
    component = "device-taint-eviction"
    event, reason = "DeviceTaintManagerEviction", "DeletionByDeviceTaintManager"
    message = "Device Taint manager: deleting due to NoExecute taint"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._claims = context.watch(RESOURCE_CLAIMS, self._claim_changed)
        self._slices = context.watch(RESOURCE_SLICES, self._slice_changed)
        self._slices.add_index(_BY_POOL, _pool_of)
        self._slices.add_index(_TAINTED, lambda item: ("", *_pool_of(item)) if any(_taints(item)) else ())
        has_rules = context.settings.device_taint_rules
        self._rules = context.watch(DEVICE_TAINT_RULES, self._rule_changed) if has_rules else None

    def _evicting_rules(self) -> list[DeviceTaintRule]:
        rules = self._rules.values() if self._rules is not None else ()
        return [one.typed for one in rules if one.typed.spec.taint.effect == NO_EXECUTE]

    @property
    def _is_quiet(self) -> bool:
        return not self._slices.indexed(_TAINTED, "") and not self._evicting_rules()

    def _slice_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        for pool in {pool for one in (old, new) if one is not None for pool in _pool_of(one)}:
            if self._slices.indexed(_TAINTED, pool):
                self._evaluate_users(pool)

    def _rule_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if new is not None and new.typed.spec.taint.effect == NO_EXECUTE:
            self._evaluate_users(None)

    def _evaluate_users(self, pool: str | None) -> None:
        """Evaluate the users of the devices of a pool; None stands for all pools."""
        for item in self._claims.values():
            allocation = item.typed.status.allocation
            if allocation is not None and (
                pool is None or any(f"{one.driver}/{one.pool}" == pool for one in allocation.devices.results)
            ):
                self._add_users(item)

    def _claim_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if new is not None and new.typed.status.allocation is not None and not self._is_quiet:
            self._add_users(new)

    def _add_users(self, claim: Item) -> None:
        for consumer in claim.typed.status.reserved_for:
            key = f"{claim.namespace}/{consumer.name}"
            if consumer.is_pod:
                self.queue.add(key)
            elif consumer.is_pod_group and self.context.settings.features:
                for pod in self.context.members(key):
                    self.queue.add(pod.key)

    def enqueue(self, item: Item, old: Item | None, new: Item | None) -> None:
        placed = new is not None and new.typed.spec.node_name and differ(old, new, lambda pod: pod.typed.spec.node_name)
        if placed and not self._is_quiet:
            self.queue.add(item.key)

    def left(self, pod: Pod) -> float | None:
        due = min(self._due(pod), default=None) if pod.spec.node_name and not is_finished(pod) else None
        return due - self.context.now() if due is not None else None

    def _due(self, pod: Pod) -> Iterator[float]:
        """Yield the times at which a pod's toleration of a device's taint ends."""
        for name in claims_of(pod):
            item = self._claims.get(f"{pod.namespace}/{name}")
            status = item.typed.status if item is not None else ResourceClaimStatus()
            if status.allocation is None or not status.is_reserved_for(pod):
                continue
            for result in status.allocation.devices.results:
                for taint in self._taints_of(result):
                    seconds = toleration_seconds(result.tolerations, [taint])
                    if seconds is not None:
                        yield seconds + (parse_time(taint.time_added) if taint.time_added else self.context.now())

    def _taints_of(self, result: DeviceRequestAllocationResult) -> Iterator[DeviceTaint]:
        pool = f"{result.driver}/{result.pool}"
        tainted = self._slices.indexed(_TAINTED, pool)
        # Slices of older generations are out of date.
        slices = self._slices.indexed(_BY_POOL, pool) if tainted else ()
        newest = max((item.typed.spec.pool.generation for item in slices), default=0)
        for item in tainted:
            if item.typed.spec.pool.generation == newest:
                yield from (taint for device, taint in _taints(item) if device == result.device)
        for rule in self._evicting_rules():
            wanted = rule.spec.device_selector or DeviceTaintSelector()
            pairs = ((wanted.driver, result.driver), (wanted.pool, result.pool), (wanted.device, result.device))
            if all(value is None or value == given for value, given in pairs):
                yield rule.spec.taint


def _pool_of(item: Item) -> tuple[str]:
    spec: ResourceSliceSpec = item.typed.spec
    return (f"{spec.driver}/{spec.pool.name}",)


def _taints(item: Item) -> Iterator[tuple[str, DeviceTaint]]:
    """Yield the NoExecute taints in a slice, each with the name of its device."""
    spec: ResourceSliceSpec = item.typed.spec
    return ((one.name, taint) for one in spec.devices for taint in one.taints if taint.effect == NO_EXECUTE)
