"""Claims of pods: made, recorded, released and freed; and pods that leave tainted devices."""

from __future__ import annotations

import asyncio
from typing import Any

from controllers_world import Data, World, play

from kubesched.api.kinds import (
    CORE_EVENTS,
    DEVICE_TAINT_RULES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from kubesched.api.resource import CLAIM_FINALIZER
from kubesched.cluster.controllers import ControllerManager, ControllerSettings
from kubesched.cluster.controllers.taint_eviction import DeviceTaintEviction

CLAIM_SPEC: Data = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}
DRIVER = "gpu.example.com"


def _template(name: str = "gpu") -> Data:
    metadata = {"labels": {"from": "template"}, "annotations": {"note": "kept"}}
    return {"metadata": {"name": name}, "spec": {"metadata": metadata, "spec": CLAIM_SPEC}}


def _pod(name: str, *claims: Data, **spec: Any) -> Data:
    return {
        "metadata": {"name": name},
        "spec": {
            "containers": [{"name": "main", "image": "app:1"}],
            "resourceClaims": list(claims),
            "terminationGracePeriodSeconds": 0,
            "schedulingGates": [{"name": "wait"}],
            **spec,
        },
    }


def _placed(name: str, *claims: Data, node: str = "n0", **spec: Any) -> Data:
    return _pod(name, *claims, nodeName=node, schedulingGates=[], **spec)


def _from_template(name: str = "one", template: str = "gpu") -> Data:
    return {"name": name, "resourceClaimTemplateName": template}


def _by_name(claim: str) -> Data:
    return {"name": "one", "resourceClaimName": claim}


def _slice(node: str, *taints: Data, generation: int = 1) -> Data:
    device: Data = {"name": "gpu-0", "attributes": {"model": {"string": "a"}}}
    if taints:
        device["taints"] = list(taints)
    pool = {"name": node, "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": node, "devices": [device]}
    return {"metadata": {"name": f"{node}-gpus"}, "spec": spec}


def _allocate(
    world: World, claim: str, *pods: str, tolerations: list[Data] | None = None, device: str = "gpu-0"
) -> None:
    """Write what a scheduler writes: finalizer, allocation of a device of node n0, reservations."""
    result: Data = {"request": "gpu", "driver": DRIVER, "pool": "n0", "device": device}
    if tolerations:
        result["tolerations"] = tolerations
    world.patch(RESOURCE_CLAIMS, claim, {"metadata": {"finalizers": [CLAIM_FINALIZER]}})
    consumers = [{"resource": "pods", "name": name, "uid": world.get(PODS, name)["metadata"]["uid"]} for name in pods]
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": consumers}
    world.patch(RESOURCE_CLAIMS, claim, {"status": status}, subresource="status")


def _recorded(world: World, pod: str) -> dict[str, str | None]:
    statuses = world.get(PODS, pod)["status"].get("resourceClaimStatuses") or []
    return {one["name"]: one.get("resourceClaimName") for one in statuses}


def test_a_claim_is_made_from_a_template_and_recorded() -> None:
    async def scenario(world: World) -> None:
        world.create(RESOURCE_CLAIM_TEMPLATES, _template())
        made = world.create(PODS, _pod("p", _from_template("one"), _from_template("two")))
        await world.settle()
        recorded = _recorded(world, "p")
        assert set(recorded) == {"one", "two"}
        assert sorted(world.names(RESOURCE_CLAIMS)) == sorted(name or "" for name in recorded.values())
        claim = world.get(RESOURCE_CLAIMS, recorded["one"] or "")
        assert claim["metadata"]["name"].startswith("p-one-")
        assert claim["metadata"]["labels"] == {"from": "template"}
        assert claim["metadata"]["annotations"] == {"note": "kept", "resource.kubernetes.io/pod-claim-name": "one"}
        owner = claim["metadata"]["ownerReferences"][0]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("Pod", made["metadata"]["uid"], True)
        assert claim["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1

    play(scenario)


def test_a_missing_template_is_reported_and_waited_for() -> None:
    async def scenario(world: World) -> None:
        world.create(PODS, _pod("p", _from_template()))
        await world.settle()
        assert world.names(RESOURCE_CLAIMS) == []
        events = [item.data() for item in world.store.list(CORE_EVENTS, "default").items]
        failed = [one for one in events if one["reason"] == "FailedResourceClaimCreation"]
        assert (
            'resource claim template "gpu": resourceclaimtemplate.resource.k8s.io "gpu" not found'
            in (failed[0]["message"])
        )
        world.create(RESOURCE_CLAIM_TEMPLATES, _template())
        await world.settle()
        assert _recorded(world, "p")["one"] in world.names(RESOURCE_CLAIMS)

    play(scenario)


def test_a_claim_that_was_made_but_not_recorded_is_used() -> None:
    async def scenario(world: World) -> None:
        pod = world.create(PODS, _pod("p", _from_template()))
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"], "controller": True}
        annotations = {"resource.kubernetes.io/pod-claim-name": "one"}
        metadata = {"name": "left-over", "ownerReferences": [owner], "annotations": annotations}
        world.create(RESOURCE_CLAIMS, {"metadata": metadata, "spec": CLAIM_SPEC})
        world.create(RESOURCE_CLAIM_TEMPLATES, _template())
        await world.settle()
        assert _recorded(world, "p") == {"one": "left-over"}
        assert world.names(RESOURCE_CLAIMS) == ["left-over"]

    play(scenario)


def test_a_shared_claim_is_freed_after_its_last_user() -> None:
    async def scenario(world: World) -> None:
        world.create(RESOURCE_CLAIMS, {"metadata": {"name": "shared"}, "spec": CLAIM_SPEC})
        for name in ("p", "q"):
            world.create(PODS, _placed(name, _by_name("shared")))
        _allocate(world, "shared", "p", "q")
        await world.settle()
        world.store.delete(PODS, "default", "p")
        await world.settle()
        claim = world.get(RESOURCE_CLAIMS, "shared")
        assert [one["name"] for one in claim["status"]["reservedFor"]] == ["q"]
        assert claim["status"]["allocation"]
        world.patch(PODS, "q", {"status": {"phase": "Succeeded"}}, subresource="status")
        await world.settle()
        claim = world.get(RESOURCE_CLAIMS, "shared")
        assert not claim["status"].get("reservedFor")
        assert "allocation" not in claim["status"]
        assert "finalizers" not in claim["metadata"]

    play(scenario)


def test_a_generated_claim_goes_when_its_pod_has_ended_or_is_gone() -> None:
    async def scenario(world: World) -> None:
        world.create(RESOURCE_CLAIM_TEMPLATES, _template())
        for name in ("p", "q"):
            world.create(PODS, _placed(name, _from_template()))
        await world.settle()
        claims = {name: _recorded(world, name)["one"] or "" for name in ("p", "q")}
        for name, claim in claims.items():
            _allocate(world, claim, name)
        await world.settle()
        world.patch(PODS, "p", {"status": {"phase": "Failed"}}, subresource="status")
        world.store.delete(PODS, "default", "q")
        await world.settle()
        assert world.names(RESOURCE_CLAIMS) == []
        assert world.exists(PODS, "p")

    play(scenario)


def test_a_reservation_of_a_pod_that_is_gone_already_is_removed() -> None:
    async def scenario(world: World) -> None:
        world.create(RESOURCE_CLAIMS, {"metadata": {"name": "c"}, "spec": CLAIM_SPEC})
        world.create(PODS, _placed("p", _by_name("c")))
        _allocate(world, "c", "p")
        world.store.delete(PODS, "default", "p")
        world.create(PODS, _placed("p", _by_name("other")))  # another pod of the same name
        await world.settle()
        claim = world.get(RESOURCE_CLAIMS, "c")
        assert not claim["status"].get("reservedFor")
        assert "allocation" not in claim["status"]

    play(scenario)


def test_a_deleted_claim_stays_while_it_is_used() -> None:
    async def scenario(world: World) -> None:
        world.create(RESOURCE_CLAIMS, {"metadata": {"name": "c"}, "spec": CLAIM_SPEC})
        world.create(RESOURCE_CLAIMS, {"metadata": {"name": "unused"}, "spec": CLAIM_SPEC})
        world.create(PODS, _placed("p", _by_name("c")))
        _allocate(world, "c", "p")
        _allocate(world, "unused")
        for name in ("c", "unused"):
            world.store.delete(RESOURCE_CLAIMS, "default", name)
        await world.settle()
        assert world.names(RESOURCE_CLAIMS) == ["c"]
        world.store.delete(PODS, "default", "p")
        await world.settle()
        assert world.names(RESOURCE_CLAIMS) == []

    play(scenario)


def test_a_pod_that_no_scheduler_placed_gets_its_reservation() -> None:
    async def scenario(world: World) -> None:
        for claim in ("c", "later"):
            world.create(RESOURCE_CLAIMS, {"metadata": {"name": claim}, "spec": CLAIM_SPEC})
        _allocate(world, "c")
        world.create(PODS, _placed("p", _by_name("c")))
        world.create(PODS, _placed("q", _by_name("later")))
        await world.settle()
        _allocate(world, "later", device="gpu-1")
        await world.settle()
        for claim, pod in (("c", "p"), ("later", "q")):
            users = world.get(RESOURCE_CLAIMS, claim)["status"]["reservedFor"]
            assert [one["name"] for one in users] == [pod]

    play(scenario)


# -- taints --------------------------------------------------------------------------------------------------

GONE: Data = {"key": "broken", "effect": "NoExecute"}


def _with_device(world: World, tolerations: list[Data] | None = None) -> None:
    world.create(RESOURCE_SLICES, _slice("n0"))
    world.create(RESOURCE_CLAIMS, {"metadata": {"name": "c"}, "spec": CLAIM_SPEC})
    world.create(PODS, _placed("p", _by_name("c")))
    world.create(PODS, _placed("other"))
    _allocate(world, "c", "p", tolerations=tolerations)


def test_a_pod_leaves_a_tainted_device_at_once() -> None:
    async def scenario(world: World) -> None:
        _with_device(world)
        await world.settle()
        world.patch(RESOURCE_SLICES, "n0-gpus", {"spec": _slice("n0", {**GONE, "effect": "NoSchedule"})["spec"]})
        await world.settle()
        assert world.exists(PODS, "p")
        world.patch(RESOURCE_SLICES, "n0-gpus", {"spec": _slice("n0", GONE)["spec"]})
        await world.settle()
        assert world.names(PODS) == ["other"]
        assert "allocation" not in world.get(RESOURCE_CLAIMS, "c")["status"]
        events = [item.data() for item in world.store.list(CORE_EVENTS, "default").items]
        assert "DeviceTaintManagerEviction" in {one["reason"] for one in events}

    play(scenario)


def test_a_toleration_delays_the_eviction_and_its_end_cancels_it() -> None:
    async def scenario(world: World) -> None:
        _with_device(world, [{"key": "broken", "operator": "Exists", "tolerationSeconds": 300}])
        await world.settle()
        world.patch(RESOURCE_SLICES, "n0-gpus", {"spec": _slice("n0", GONE)["spec"]})
        await asyncio.sleep(200)
        world.patch(RESOURCE_SLICES, "n0-gpus", {"spec": _slice("n0")["spec"]})
        await asyncio.sleep(200)
        assert world.exists(PODS, "p")
        world.patch(RESOURCE_SLICES, "n0-gpus", {"spec": _slice("n0", GONE)["spec"]})
        await asyncio.sleep(299)
        assert world.exists(PODS, "p")
        await asyncio.sleep(2)
        assert not world.exists(PODS, "p")

    play(scenario)


def test_taints_of_an_older_generation_do_not_count() -> None:
    async def scenario(world: World) -> None:
        _with_device(world)
        newer = _slice("n0", generation=2)
        newer["metadata"]["name"] = "n0-newer"
        world.create(RESOURCE_SLICES, newer)
        world.patch(RESOURCE_SLICES, "n0-gpus", {"spec": _slice("n0", GONE)["spec"]})
        await world.settle()
        assert world.exists(PODS, "p")
        world.store.delete(RESOURCE_SLICES, "", "n0-newer")
        await world.settle()
        assert not world.exists(PODS, "p")

    play(scenario)


def test_taint_rules_evict_only_when_they_are_switched_on() -> None:
    async def scenario(world: World) -> None:
        _with_device(world)
        rule = {"metadata": {"name": "r"}, "spec": {"deviceSelector": {"device": "gpu-0"}, "taint": GONE}}
        world.create(DEVICE_TAINT_RULES, rule)
        await world.settle()
        assert world.exists(PODS, "p")
        manager = ControllerManager(
            world.embedded.client,
            world.embedded.clock,
            world.controllers.context.rng,
            [DeviceTaintEviction],
            settings=ControllerSettings(device_taint_rules=True),
        )
        task = asyncio.ensure_future(manager.run())
        await asyncio.sleep(1)
        manager.stop()
        await task
        assert not world.exists(PODS, "p")
        assert world.exists(PODS, "other")

    play(scenario)


# -- preparing -----------------------------------------------------------------------------------------------

SLOW = f"""
stages:
- {{name: slow, kind: ResourceClaim, selector: {{drivers: [{DRIVER}], nodeLabels: {{topology.kubernetes.io/zone: a}}}},
   delay: {{seconds: 20}}}}
- {{name: other, kind: ResourceClaim, selector: {{drivers: [other.example.com]}}, delay: {{seconds: 500}}}}
"""
FAILING = "stages: [{name: broken, kind: ResourceClaim, failure: {rate: 1, reason: no such device}}]"


def _phase(world: World, pod: str) -> str:
    return str(world.get(PODS, pod)["status"].get("phase"))


def _events(world: World, reason: str) -> list[str]:
    events = [item.data() for item in world.store.list(CORE_EVENTS, "default").items]
    return [one["message"] for one in events if one["reason"] == reason]


def test_a_pod_starts_once_its_claim_is_allocated_and_reserved() -> None:
    async def scenario(world: World) -> None:
        world.create(RESOURCE_CLAIMS, {"metadata": {"name": "c"}, "spec": CLAIM_SPEC})
        world.create(PODS, _placed("p", _by_name("c")))
        world.create(PODS, _placed("free"))
        await world.settle()
        assert (_phase(world, "p"), _phase(world, "free")) == ("Pending", "Running")
        assert _events(world, "FailedPrepareDynamicResources") == [
            "Failed to prepare dynamic resources: the ResourceClaim c referenced by pod p has not been allocated"
        ]
        _allocate(world, "c", "p")
        await world.settle()
        assert _phase(world, "p") == "Running"

    play(scenario)


def test_preparing_takes_the_time_that_a_stage_rule_says() -> None:
    async def scenario(world: World) -> None:
        for name, node in (("here", "n0"), ("there", "n1")):  # zone a has the rule, zone b has not
            world.create(RESOURCE_CLAIMS, {"metadata": {"name": name}, "spec": CLAIM_SPEC})
            world.create(PODS, _placed(name, _by_name(name), node=node))
            _allocate(world, name, name, device=f"gpu-{node}")
        await asyncio.sleep(15)
        assert (_phase(world, "here"), _phase(world, "there")) == ("Pending", "Running")
        await asyncio.sleep(10)
        assert _phase(world, "here") == "Running"

    play(scenario, stages=SLOW)


def test_a_failure_to_prepare_is_reported_and_tried_again() -> None:
    async def scenario(world: World) -> None:
        world.create(RESOURCE_CLAIMS, {"metadata": {"name": "c"}, "spec": CLAIM_SPEC})
        world.create(PODS, _placed("p", _by_name("c")))
        _allocate(world, "c", "p")
        await asyncio.sleep(10)
        assert _phase(world, "p") == "Pending"
        text = "Failed to prepare dynamic resources: NodePrepareResources failed: no such device"
        assert _events(world, "FailedPrepareDynamicResources") == [text]
        (event,) = [
            item.data()
            for item in world.store.list(CORE_EVENTS, "default").items
            if item.data()["reason"] == "FailedPrepareDynamicResources"
        ]
        assert event["count"] > 3
        world.store.delete(PODS, "default", "p")

    play(scenario, stages=FAILING)
