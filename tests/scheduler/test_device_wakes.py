"""Pods that wait for devices: they are tried as soon as devices become free, whatever frees them (rules/devices §6)."""

from __future__ import annotations

from typing import Any

from harness import World, a_config, a_node, a_pod, play
from recording import Answers, holder

from kubesched.api.kinds import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES, kind_by_plural
from kubesched.scheduler.config.features import FeatureGates
from kubesched.scheduler.framework.status import Status

DRIVER = "gpu.example.com"
_RULES = kind_by_plural("resource.k8s.io", "devicetaintrules")
assert _RULES is not None
RULES = _RULES


def a_profile(*plugins: str) -> Any:
    points = {"enabled": [{"name": name} for name in plugins], "disabled": [{"name": "DefaultPreemption"}]}
    return a_config(profiles=[{"schedulerName": "default-scheduler", "plugins": {"multiPoint": points}}])


def one_device(there: World) -> None:
    """A node with one device."""
    there.create(a_node("n1"))
    there.store.create(DEVICE_CLASSES, "", {"metadata": {"name": "gpu"}, "spec": {}})
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": "n1", "pool": pool, "devices": [{"name": "gpu-0"}]}
    there.store.create(RESOURCE_SLICES, "", {"metadata": {"name": "n1"}, "spec": spec})


def asks(there: World, name: str) -> None:
    """A pod with a claim of its own for a device."""
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    claim = {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}
    there.store.create(RESOURCE_CLAIMS, "default", claim)
    there.create(a_pod(name, resourceClaims=[{"name": "gpu", "resourceClaimName": name}]))


def test_devices_of_a_pod_that_is_rejected_before_its_claim_is_written() -> None:
    diary = Answers(permit=(Status.wait(), 10.0))

    async def scenario(there: World) -> None:
        one_device(there)
        asks(there, "first")
        await there.sleep(1)
        asks(there, "second")
        await there.sleep(1)
        assert "cannot allocate all claims" in there.condition("second").message
        diary.answers["permit"] = None
        await there.until(lambda: there.node_of("second") == "n1", "binding", 30)
        assert there.node_of("first") == ""

    play(scenario, config=a_profile("Slow"), plugins=[holder(diary, "Slow", "permit")])


def test_a_pod_that_another_plugin_rejects_does_not_wake_itself() -> None:
    """Its devices were in flight, so pods that wait for devices are woken; it is not one of them."""
    diary = Answers(permit=Status.unschedulable("never"))

    async def scenario(there: World) -> None:
        one_device(there)
        for name in ("first", "second"):
            asks(there, name)
        await there.settle()
        await there.sleep(60)
        assert diary.diary == ["Slow.permit", "Slow.permit"]

    play(scenario, config=a_profile("Slow"), plugins=[holder(diary, "Slow", "permit")])


def test_devices_that_a_rule_no_longer_taints() -> None:
    async def scenario(there: World) -> None:
        one_device(there)
        taint = {"key": "broken", "effect": "NoSchedule"}
        rule = {"metadata": {"name": "r"}, "spec": {"taint": taint, "deviceSelector": {"driver": DRIVER}}}
        there.store.create(RULES, "", rule)
        await there.settle()
        asks(there, "p")
        await there.settle()
        assert "cannot allocate all claims" in there.condition("p").message
        there.store.delete(RULES, "", "r")
        await there.until(lambda: there.node_of("p") == "n1", "binding", 30)

    play(scenario, config=a_profile(), gates=FeatureGates.of({"DRADeviceTaintRules": True}))
