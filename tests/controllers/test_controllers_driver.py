"""The hollow DRA driver: descriptions of devices, the slices made of them, and binding conditions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from controllers_world import Data, World, play

from kubesched.api.kinds import CORE_EVENTS, NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from kubesched.cluster.controllers import DEVICES_ANNOTATION, DevicesError, parse_devices

GPUS = """
- driver: gpu.example.com
  devices:
  - name: gpu
    count: 2
    attributes: {model: A100, healthy: true, driverVersion: {version: 1.2.3}}
    capacity: {memory: 80Gi}
    perDevice: [{numa: 0}, {numa: 1}]
"""
PARTITIONS = """
- driver: gpu.example.com
  devices:
  - name: gpu
    count: 2
    attributes: {model: A100}
    capacity: {memory: 40Gi}
    perDevice: [{numa: 0}, {numa: 1}]
    counters: {slices: 7, memory: 40Gi}
    partitions:
    - {name: 1g, count: 7, attributes: {profile: 1g.5gb}, capacity: {memory: 5Gi}, consumes: {slices: 1, memory: 5Gi}}
    - {name: 3g, count: 2, attributes: {profile: 3g.20gb}, capacity: {memory: 20Gi}, consumes: {slices: 3}}
"""


def _annotate(world: World, node: str, text: str | None) -> None:
    world.patch(NODES, node, {"metadata": {"annotations": {DEVICES_ANNOTATION: text}}})


def _slices(world: World) -> dict[str, Data]:
    return {item.name: item.data()["spec"] for item in world.store.list(RESOURCE_SLICES).items}


def test_devices_are_described_by_count_attributes_and_capacity() -> None:
    (pool,) = parse_devices(GPUS)
    (spec,) = pool.specs("n1", 3).values()
    assert spec["pool"] == {"name": "n1", "generation": 3, "resourceSliceCount": 1}
    assert (spec["driver"], spec["nodeName"]) == ("gpu.example.com", "n1")
    assert [device["name"] for device in spec["devices"]] == ["gpu-0", "gpu-1"]
    assert spec["devices"][1] == {
        "name": "gpu-1",
        "attributes": {
            "model": {"string": "A100"},
            "healthy": {"bool": True},
            "driverVersion": {"version": "1.2.3"},
            "numa": {"int": 1},
        },
        "capacity": {"memory": {"value": "80Gi"}},
    }


def test_partitions_share_the_counters_of_their_device() -> None:
    (pool,) = parse_devices(PARTITIONS)
    counters, devices = pool.specs("n1", 1).values()
    assert counters["pool"]["resourceSliceCount"] == 2
    assert counters["sharedCounters"] == [
        {"name": f"gpu-{n}", "counters": {"slices": {"value": "7"}, "memory": {"value": "40Gi"}}} for n in (0, 1)
    ]
    by_name = {device["name"]: device for device in devices["devices"]}
    assert len(by_name) == 2 * (1 + 7 + 2)
    assert by_name["gpu-1"]["consumesCounters"] == [
        {"counterSet": "gpu-1", "counters": counters["sharedCounters"][0]["counters"]}
    ]
    assert by_name["gpu-1-3g-0"] == {
        "name": "gpu-1-3g-0",
        "attributes": {"numa": {"int": 1}, "model": {"string": "A100"}, "profile": {"string": "3g.20gb"}},
        "capacity": {"memory": {"value": "20Gi"}},
        "consumesCounters": [{"counterSet": "gpu-1", "counters": {"slices": {"value": "3"}}}],
    }


def test_a_large_pool_is_spread_over_slices() -> None:
    (pool,) = parse_devices("[{driver: d, devices: [{name: nic, count: 300}]}]")
    specs = pool.specs("n1", 1).values()
    assert [len(spec["devices"]) for spec in specs] == [128, 128, 44]
    assert {spec["pool"]["resourceSliceCount"] for spec in specs} == {3}
    (pool,) = parse_devices("[{driver: d, devices: [{name: a, count: 65, taints: [{key: k, effect: NoSchedule}]}]}]")
    assert [len(spec["devices"]) for spec in pool.specs("n1", 1).values()] == [64, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "annotation kubesched.io/devices"),
        ("{driver: d}", "expected a list of drivers"),
        ("[{devices: []}]", "[0].driver: is missing"),
        ("[{driver: d}]", "[0].devices: must be a list"),
        ("[{driver: d, devices: [], colour: red}]", "'colour' is not known here; there are driver, devices, binding"),
        ("[{driver: d, devices: []}, {driver: d, devices: []}]", "driver 'd' is given twice"),
        ("[{driver: d, devices: [{count: 2}]}]", "[0].devices[0].name: is missing"),
        ("[{driver: d, devices: [{name: a, count: -1}]}]", "count: must be an integer that is not negative"),
        ("[{driver: d, devices: [{name: a, attributes: {x: 1.5}}]}]", "attributes.x: must be an integer, true"),
        ("[{driver: d, devices: [{name: a, capacity: {m: lots}}]}]", "capacity.m:"),
        ("[{driver: d, devices: [{name: a, allowMultipleAllocations: often}]}]", "Expected `bool`"),
        ("[{driver: d, devices: [{name: a}, {name: a}]}]", "device 'a-0' exists twice"),
        ("[{driver: d, devices: [{name: a, counters: {c: 1}}]}]", "counters and partitions belong together"),
        (
            "[{driver: d, devices: [{name: a, counters: {c: 1}, partitions: [{name: p, consumes: {x: 1}}]}]}]",
            "consumes: must name some of the counters c",
        ),
        ("[{driver: d, devices: [], binding: {failure: 2}}]", "binding.failure: must be between 0 and 1"),
    ],
)
def test_a_description_that_cannot_be_used_is_explained(text: str, message: str) -> None:
    with pytest.raises(DevicesError) as error:
        parse_devices(text)
    assert message in str(error.value)


def test_slices_follow_nodes_and_their_annotations() -> None:
    async def scenario(world: World) -> None:
        _annotate(world, "n0", PARTITIONS)
        _annotate(world, "n1", GPUS)
        await world.settle()
        found = _slices(world)
        assert sorted(found) == [
            "n0-gpu.example.com-counters-0",
            "n0-gpu.example.com-devices-0",
            "n1-gpu.example.com-devices-0",
        ]
        version = world.get(RESOURCE_SLICES, "n0-gpu.example.com-devices-0")["metadata"]["resourceVersion"]
        _annotate(world, "n1", GPUS.replace("80Gi", "40Gi"))
        await world.settle()
        changed = _slices(world)["n1-gpu.example.com-devices-0"]
        assert changed["pool"]["generation"] == 2
        assert changed["devices"][0]["capacity"] == {"memory": {"value": "40Gi"}}
        assert world.get(RESOURCE_SLICES, "n0-gpu.example.com-devices-0")["metadata"]["resourceVersion"] == version
        _annotate(world, "n1", None)
        world.store.delete(NODES, "", "n0")
        await world.settle()
        assert _slices(world) == {}

    play(scenario)


def test_a_slice_that_is_changed_or_deleted_is_published_again() -> None:
    async def scenario(world: World) -> None:
        _annotate(world, "n0", GPUS)
        await world.settle()
        (name,) = _slices(world)
        world.store.delete(RESOURCE_SLICES, "", name)
        await world.settle()
        assert list(_slices(world)) == [name]
        world.patch(RESOURCE_SLICES, name, {"spec": {"devices": [{"name": "other"}]}})
        await world.settle()
        spec = _slices(world)[name]
        assert [device["name"] for device in spec["devices"]] == ["gpu-0", "gpu-1"]
        assert spec["pool"]["generation"] == 2

    play(scenario)


def test_a_slice_that_is_not_the_drivers_keeps_its_name_and_leaves_the_pool_as_it_is() -> None:
    async def scenario(world: World) -> None:
        _annotate(world, "n0", "[{driver: d, devices: [{name: a, count: 300}]}]")
        await world.settle()
        world.patch(RESOURCE_SLICES, "n0-d-devices-2", {"metadata": {"ownerReferences": None}})
        await world.settle()
        assert [spec["pool"]["generation"] for spec in _slices(world).values()] == [1, 1, 1]
        world.store.delete(RESOURCE_SLICES, "", "n0-d-devices-2")
        await world.settle()
        assert [spec["pool"]["generation"] for spec in _slices(world).values()] == [2, 2, 2]

    play(scenario)


def test_tainted_devices_are_published_once() -> None:
    async def scenario(world: World) -> None:
        _annotate(world, "n0", "[{driver: d, devices: [{name: a, taints: [{key: k, effect: NoSchedule}]}]}]")
        await world.settle()
        assert world.get(RESOURCE_SLICES, "n0-d-devices-0")["metadata"]["generation"] == 1
        await asyncio.sleep(100)
        assert world.get(RESOURCE_SLICES, "n0-d-devices-0")["metadata"]["generation"] == 1

    play(scenario)


def test_a_broken_description_is_reported_and_leaves_what_is_published() -> None:
    async def scenario(world: World) -> None:
        _annotate(world, "n0", GPUS)
        await world.settle()
        _annotate(world, "n0", "[{driver: d}]")
        await world.settle()
        assert list(_slices(world)) == ["n0-gpu.example.com-devices-0"]
        events = [item.data() for item in world.store.list(CORE_EVENTS, "default").items]
        messages = [one["message"] for one in events if one["reason"] == "InvalidAnnotation"]
        assert messages == ["annotation kubesched.io/devices: [0].devices: must be a list, got None"]
        assert any("n0" in text for text in world.controllers.problems)

    play(scenario)


def _bound_claim(world: World, device: str = "a-0") -> None:
    claim: dict[str, Any] = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": []}}}
    world.create(RESOURCE_CLAIMS, claim)
    result: Data = {"request": "r", "driver": "d", "pool": "n0", "device": device}
    result |= {"bindingConditions": ["attached"], "bindingFailureConditions": ["broken"]}
    status = {"allocation": {"devices": {"results": [result]}}}
    world.patch(RESOURCE_CLAIMS, "c", {"status": status}, subresource="status")


@pytest.mark.parametrize(("failure", "expected"), [(0, "attached"), (1, "broken")])
def test_binding_conditions_are_set_after_a_while(failure: int, expected: str) -> None:
    async def scenario(world: World) -> None:
        device = "{name: a, bindingConditions: [attached], bindingFailureConditions: [broken]}"
        binding = f"{{seconds: 20, failure: {failure}}}"
        _annotate(world, "n0", f"[{{driver: d, binding: {binding}, devices: [{device}]}}]")
        await world.settle()
        _bound_claim(world)
        await asyncio.sleep(19)
        assert "devices" not in world.get(RESOURCE_CLAIMS, "c")["status"]
        await world.settle()
        (device_status,) = world.get(RESOURCE_CLAIMS, "c")["status"]["devices"]
        assert [one["type"] for one in device_status["conditions"]] == [expected]
        assert device_status["conditions"][0]["status"] == "True"

    play(scenario)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "[{driver: a.b, devices: [{name: gpu, count: 1000000000}]}]",
            "more than 4096 devices of one driver on a node",
        ),
        (
            "[{driver: a.b, devices: [{name: gpu, count: 100, counters: {m: 1}, "
            "partitions: [{name: p, count: 1000000000, consumes: {m: 1}}]}]}]",
            "more than 4096 devices of one driver on a node",
        ),
        ("[" + "{}," * 30_000 + "]", "more than 20000 values"),
    ],
)
def test_a_description_of_too_many_devices_is_refused_before_they_are_made(text: str, problem: str) -> None:
    with pytest.raises(DevicesError, match=problem):
        parse_devices(text)
