"""Slices as they are published: with the taints of rules that apply."""

from __future__ import annotations

from typing import Any

from dra_kit import DRIVER, resource_slice

from kubesched.api.decode import from_builtins
from kubesched.api.resource import DeviceTaintRule, ResourceSlice
from kubesched.scheduler.plugins.dynamic_resources.slices import SliceTracker


class Recorder:
    def __init__(self) -> None:
        self.events: list[str] = []
        self.slices: dict[str, ResourceSlice] = {}

    def on_add(self, obj: ResourceSlice, is_initial: bool) -> None:
        self.events.append(f"add {obj.metadata.name}")
        self.slices[obj.metadata.name] = obj

    def on_update(self, old: ResourceSlice, new: ResourceSlice) -> None:
        assert self.slices[old.metadata.name] is old
        self.events.append(f"update {new.metadata.name}")
        self.slices[new.metadata.name] = new

    def on_delete(self, obj: ResourceSlice) -> None:
        assert self.slices.pop(obj.metadata.name) is obj
        self.events.append(f"delete {obj.metadata.name}")

    def taints(self) -> dict[str, list[str]]:
        return {
            f"{each.spec.pool.name}/{device.name}": [taint.key for taint in device.taints]
            for each in self.slices.values()
            for device in each.spec.devices
        }


def rule(name: str, key: str, **selector: str) -> DeviceTaintRule:
    spec: dict[str, Any] = {"taint": {"key": key, "effect": "NoSchedule"}}
    if selector:
        spec["deviceSelector"] = selector
    return from_builtins({"metadata": {"name": name}, "spec": spec}, DeviceTaintRule)


def tracker(*slices: ResourceSlice) -> tuple[SliceTracker, Recorder]:
    found, recorder = SliceTracker(), Recorder()
    found.add_handler(recorder)
    for each in slices:
        found.on_add(each, True)
    recorder.events.clear()
    return found, recorder


def test_without_rules_slices_pass_through_unchanged() -> None:
    first, second = resource_slice("n1"), resource_slice("n1", 3)
    found, recorder = tracker(first)
    assert list(found.slices()) == [first]
    found.on_update(first, second)
    assert recorder.slices == {first.metadata.name: second}
    found.on_delete(second)
    assert (recorder.events, len(found)) == (["update n1-gpu.example.com", "delete n1-gpu.example.com"], 0)


def test_a_rule_taints_the_devices_that_all_its_fields_match() -> None:
    found, recorder = tracker(resource_slice("n1"), resource_slice("n2"))
    found.rules.on_add(rule("one", "broken", driver=DRIVER, pool="n2", device="gpu-1"), False)
    assert recorder.events == ["update n2-gpu.example.com"]
    assert recorder.taints() == {"n1/gpu-0": [], "n1/gpu-1": [], "n2/gpu-0": [], "n2/gpu-1": ["broken"]}


def test_a_rule_without_selector_taints_every_device() -> None:
    found, recorder = tracker(resource_slice("n1", 1), resource_slice("n2", 1, driver="nic.example.com"))
    found.rules.on_add(rule("all", "drain"), False)
    assert recorder.taints() == {"n1/gpu-0": ["drain"], "n2/gpu-0": ["drain"]}
    late = resource_slice("n3", 1)
    found.on_add(late, False)
    assert recorder.taints()["n3/gpu-0"] == ["drain"]


def test_the_taints_of_a_rule_follow_those_of_the_device_and_end_with_the_rule() -> None:
    own = {"name": "gpu-0", "taints": [{"key": "own", "effect": "NoSchedule"}]}
    found, recorder = tracker(resource_slice("n1", [own]))
    found.rules.on_add(rule("a", "first"), False)
    found.rules.on_add(rule("b", "second", pool="n1"), False)
    assert recorder.taints() == {"n1/gpu-0": ["own", "first", "second"]}
    found.rules.on_update(rule("a", "first"), rule("a", "first", pool="elsewhere"))
    found.rules.on_delete(rule("b", "second"))
    assert recorder.taints() == {"n1/gpu-0": ["own"]}


def test_a_rule_that_changes_no_taint_causes_no_event() -> None:
    found, recorder = tracker(resource_slice("n1"))
    found.rules.on_add(rule("a", "x", driver="nic.example.com"), False)
    found.rules.on_update(rule("a", "x", driver="nic.example.com"), rule("a", "y", driver="nic.example.com"))
    assert recorder.events == []
