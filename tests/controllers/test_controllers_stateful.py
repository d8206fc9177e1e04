"""The example ``examples/stateful``, played through: capacity runs out, a zone is lost, comes back, or is given up."""

from __future__ import annotations

import asyncio
from pathlib import Path

from controllers_world import CAPACITIES, CLAIMS, VOLUMES, Data, World, play

from kubesched.api.kinds import NODES, PODS
from kubesched.cluster.files import load_manifests
from kubesched.lab.simulate.inputs.intake import in_order

EXAMPLES = Path(__file__).parents[2] / "examples"
ZONE = "topology.kubernetes.io/zone"


def load(world: World, folder: str) -> None:
    for item in in_order(load_manifests([EXAMPLES / folder]).objects):
        if not world.exists(item.kind, item.name):
            world.create(item.kind, item.data)


def zone_of(world: World, pod: str) -> str:
    node = world.get(PODS, pod)["spec"].get("nodeName")
    return world.get(NODES, node)["metadata"]["labels"][ZONE] if node else ""


def condition(world: World, pod: str) -> Data:
    return next(one for one in world.get(PODS, pod)["status"]["conditions"] if one["type"] == "PodScheduled")


def free(world: World) -> dict[str, str]:
    found = [item.data() for item in world.store.list(CAPACITIES).items]
    return {one["nodeTopology"]["matchLabels"][ZONE]: one["capacity"] for one in found}


def test_a_database_keeps_its_zones_and_storage_runs_out() -> None:
    async def scenario(world: World) -> None:
        load(world, "nodes")
        load(world, "stateful")
        await world.settle()
        members = {f"db-{index}": zone_of(world, f"db-{index}") for index in range(3)}
        assert sorted(members.values()) == ["zone-a", "zone-b", "zone-c"]
        for name, zone in members.items():
            volume = world.get(VOLUMES, world.get(CLAIMS, f"data-{name}")["spec"]["volumeName"])
            [term] = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
            assert term["matchExpressions"] == [{"key": ZONE, "operator": "In", "values": [zone]}]
        placed = [f"reports-{index}" for index in range(3) if zone_of(world, f"reports-{index}")]
        assert sorted(zone_of(world, name) for name in placed) == ["zone-a", "zone-b"]
        assert free(world) == {"zone-a": "5Gi", "zone-b": "5Gi", "zone-c": "5Gi"}
        [waiting] = {f"reports-{index}" for index in range(3)} - set(placed)
        assert "node(s) did not have enough free storage" in condition(world, waiting)["message"]

        # Zone b is lost: its member comes back and waits for its disk.
        lost = next(name for name, zone in members.items() if zone == "zone-b")
        before = world.get(CLAIMS, f"data-{lost}")["spec"]["volumeName"]
        for name in ("general-b", "gpu-b"):
            world.store.delete(NODES, "", name)
        await asyncio.sleep(120)
        await world.settle()
        assert zone_of(world, lost) == ""
        assert "didn't match PersistentVolume's node affinity" in condition(world, lost)["message"]

        # It is back, and so is the member, on the same disk.
        load(world, "nodes")
        await asyncio.sleep(120)
        await world.settle()
        assert zone_of(world, lost) == "zone-b"
        assert world.get(CLAIMS, f"data-{lost}")["spec"]["volumeName"] == before

        # It is lost again; the disk is given up, and with it the one of a report, whose zone has enough storage then.
        for name in ("general-b", "gpu-b"):
            world.store.delete(NODES, "", name)
        await asyncio.sleep(120)
        report = next(name for name in placed if zone_of(world, name) in ("", "zone-a"))
        for name, owner in ((f"data-{lost}", lost), (f"scratch-{report}", report)):
            world.store.delete(CLAIMS, "default", name)
            world.store.delete(PODS, "default", owner)
        await asyncio.sleep(120)
        await world.settle()
        assert before not in world.names(VOLUMES)
        assert zone_of(world, lost) in ("zone-a", "")

    play(scenario, nodes=0)
