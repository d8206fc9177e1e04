"""The example ``examples/node-failure``, played through: failure and recovery are commanded by an annotation."""

from __future__ import annotations

import asyncio
from pathlib import Path

from controllers_world import BUDGETS, DEPLOYMENTS, World, play

from kubesched.api.kinds import NODES
from kubesched.cluster.files import load_manifests
from kubesched.cluster.kubelets import FAILED

EXAMPLE = Path(__file__).parents[2] / "examples" / "node-failure"


def test_pods_of_an_unresponsive_node_are_created_elsewhere_and_the_node_recovers() -> None:
    async def scenario(world: World) -> None:
        for item in load_manifests([EXAMPLE]).objects:
            world.create(item.kind, item.data)
        await world.settle()
        assert len(world.nodes_used(app="orders")) == 6
        assert world.get(BUDGETS, "orders")["status"]["disruptionsAllowed"] == 2
        victim = world.nodes_used(app="orders")[0]
        world.patch(NODES, victim, {"metadata": {"annotations": {FAILED: "true"}}})
        await asyncio.sleep(30)
        assert world.kubelets.failed_nodes == {victim}
        assert victim in world.nodes_used(app="orders")  # not noticed yet
        await asyncio.sleep(200)
        await world.settle()
        assert victim not in world.nodes_used(app="orders")
        assert len(world.nodes_used(app="orders")) == 6
        assert world.get(DEPLOYMENTS, "orders")["status"]["readyReplicas"] == 6
        conditions = {item["type"]: item["status"] for item in world.get(NODES, victim)["status"]["conditions"]}
        assert conditions["Ready"] == "Unknown"
        world.patch(NODES, victim, {"metadata": {"annotations": {FAILED: None}}})
        await asyncio.sleep(60)
        await world.settle()
        assert world.kubelets.failed_nodes == frozenset()
        node = world.get(NODES, victim)
        conditions = {item["type"]: item["status"] for item in node["status"]["conditions"]}
        assert conditions["Ready"] == "True"
        assert not node["spec"].get("taints")

    play(scenario, nodes=6)
