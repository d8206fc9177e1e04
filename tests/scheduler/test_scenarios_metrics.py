"""Gauges that are measured when they are read."""

from __future__ import annotations

from harness import World, a_pod, play


def test_cache_sizes_are_those_of_the_cache_when_metrics_are_read() -> None:
    async def scenario(world: World) -> None:
        world.nodes(3)
        world.create(a_pod("one"), a_pod("two"))
        await world.settle()
        families = {family.name: family for family in world.scheduler.metrics.collect()}
        samples = dict(families["scheduler_cache_size"].samples)
        assert samples == {("nodes",): 3, ("pods",): 2, ("assumed_pods",): 0}

    play(scenario)
