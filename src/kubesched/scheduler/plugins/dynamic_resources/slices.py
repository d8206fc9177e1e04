"""ResourceSlices with the taints that DeviceTaintRules add to their devices (upstream's slice tracker).

Without the gate DRADeviceTaintRules there are no rules, and slices pass through as they are.

Source: rules/devices §14.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from kubesched.api.resource import Device, DeviceTaintRule, ResourceSlice
from kubesched.api.tombstone import DeletedFinalStateUnknown, final_state

from ..assume_cache import Subscriber

__all__ = ["SliceTracker"]


class SliceTracker:
    """Slices by name, with the taints of the rules that apply; it is a handler of the slices' informer."""

    def __init__(self) -> None:
        self._plain: Final[dict[str, ResourceSlice]] = {}
        self._published: Final[dict[str, ResourceSlice]] = {}
        self._rules: Final[dict[str, DeviceTaintRule]] = {}
        self._subscribers: Final[list[Subscriber]] = []

    def slices(self) -> Iterator[ResourceSlice]:
        return iter(self._published.values())

    def __len__(self) -> int:
        return len(self._published)

    def add_handler(self, handler: Subscriber) -> None:
        """Subscribe a handler. All slices are delivered to it as additions first."""
        for each in list(self._published.values()):
            handler.on_add(each, True)
        self._subscribers.append(handler)

    # -- slices ----------------------------------------------------------------------------------------

    def on_add(self, obj: ResourceSlice, is_initial: bool) -> None:
        name = obj.metadata.name
        self._plain[name] = obj
        new = self._published[name] = self._tainted(obj)
        for subscriber in self._subscribers:
            subscriber.on_add(new, is_initial)

    def on_update(self, old: ResourceSlice, new: ResourceSlice) -> None:
        name = new.metadata.name
        self._plain[name] = new
        before = self._published.get(name, old)
        after = self._published[name] = self._tainted(new)
        for subscriber in self._subscribers:
            subscriber.on_update(before, after)

    def on_delete(self, obj: ResourceSlice | DeletedFinalStateUnknown) -> None:
        name = final_state(obj).metadata.name
        self._plain.pop(name, None)
        old = self._published.pop(name, None)
        if old is not None:
            for subscriber in self._subscribers:
                subscriber.on_delete(old)

    # -- rules -----------------------------------------------------------------------------------------

    @property
    def rules(self) -> _RuleHandler:
        """Return a handler for the rules' informer."""
        return _RuleHandler(self)

    def set_rule(self, name: str, rule: DeviceTaintRule | None) -> None:
        """Set or remove a rule. Slices whose devices have other taints afterwards are published again."""
        if rule is None:
            self._rules.pop(name, None)
        else:
            self._rules[name] = rule
        for slice_name, plain in list(self._plain.items()):
            before, after = self._published[slice_name], self._tainted(plain)
            if [device.taints for device in before.spec.devices] != [device.taints for device in after.spec.devices]:
                self._published[slice_name] = after
                for subscriber in self._subscribers:
                    subscriber.on_update(before, after)

    def _tainted(self, plain: ResourceSlice) -> ResourceSlice:
        if not self._rules:
            return plain
        rules = [rule for _, rule in sorted(self._rules.items()) if _selects_pool(rule, plain)]
        devices = tuple(_with_taints(device, rules) for device in plain.spec.devices)
        if all(new is old for new, old in zip(devices, plain.spec.devices, strict=True)):
            return plain
        return msgspec.structs.replace(plain, spec=msgspec.structs.replace(plain.spec, devices=devices))


def _selects_pool(rule: DeviceTaintRule, plain: ResourceSlice) -> bool:
    selector = rule.spec.device_selector
    return selector is None or (
        selector.driver in (None, plain.spec.driver) and selector.pool in (None, plain.spec.pool.name)
    )


def _with_taints(device: Device, rules: list[DeviceTaintRule]) -> Device:
    added = tuple(
        rule.spec.taint
        for rule in rules
        if rule.spec.device_selector is None or rule.spec.device_selector.device in (None, device.name)
    )
    return msgspec.structs.replace(device, taints=(*device.taints, *added)) if added else device


class _RuleHandler:
    """Handler that hands DeviceTaintRules to the tracker."""

    def __init__(self, tracker: SliceTracker) -> None:
        self._tracker = tracker

    def on_add(self, obj: Any, is_initial: bool) -> None:
        self._tracker.set_rule(obj.metadata.name, obj)

    def on_update(self, old: Any, new: Any) -> None:
        self._tracker.set_rule(new.metadata.name, new)

    def on_delete(self, obj: Any) -> None:
        self._tracker.set_rule(final_state(obj).metadata.name, None)
