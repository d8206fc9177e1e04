"""Everyday life of the scheduler, end to end in virtual time."""

from __future__ import annotations

from harness import World, a_pod, play


def test_pods_spread_over_nodes_until_they_are_full() -> None:
    async def scenario(world: World) -> None:
        world.nodes(3, "2")
        world.create(*(a_pod(f"p{number}", "500m") for number in range(12)))
        await world.settle()
        assert len(world.binds) == 12
        world.create(a_pod("late", "500m"))
        await world.settle()
        assert world.where("late") == "Unschedulable"
        assert world.condition("late").message == "0/3 nodes are available: 3 Insufficient cpu."
        world.delete("p0", grace_period_seconds=0)
        await world.settle()
        assert world.node_of("late")

    play(scenario)
