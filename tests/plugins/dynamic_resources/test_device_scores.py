"""NodeResourcesFit and NodeResourcesBalancedAllocation count devices where a node has no device plugin for the resource."""

from __future__ import annotations

import numpy as np
import pytest
from dra_kit import DRIVER, claim, device_class, pod, resource_slice, results
from plugin_kit import House

from builders import a_node
from kubesched.lab.simulate.run.virtual_time import run_virtual
from kubesched.scheduler.config.args import (
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    ResourceSpec,
    ScoringStrategy,
)
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.plugins.balanced_allocation import NodeResourcesBalancedAllocation
from kubesched.scheduler.plugins.node_resources_fit import NodeResourcesFit

GPU = "example.com/gpu"


def fit(house: House, strategy: str = "LeastAllocated") -> NodeResourcesFit:
    scoring = ScoringStrategy(type=strategy, resources=(ResourceSpec(name=GPU, weight=1),))
    return NodeResourcesFit(NodeResourcesFitArgs(scoring_strategy=scoring), house.handle)


def scores(house: House, plugin: NodeResourcesFit | NodeResourcesBalancedAllocation, asking: PodInfo) -> list[int]:
    table = house.cache.table
    rows = np.array([table.row_of(f"n{number}") for number in (1, 2, 3)], np.intp)
    question = plugin.ask(asking, table)
    assert question is not None
    many: list[int] = question.scores(rows).tolist()
    assert [question.score(table.info(row)) for row in rows.tolist()] == many
    return many


def with_a_device_plugin() -> House:
    """Two nodes with devices of the class, and one that has the resource itself."""
    house = House(nodes=2, devices=4, resource=GPU)
    house.cache.set_node(a_node("n3", allocatable={GPU: "2"}))
    return house


def test_devices_are_capacity_and_those_in_use_are_used() -> None:
    async def main() -> None:
        house = with_a_device_plugin()
        asking = PodInfo(pod("p", requests={GPU: "1"}))
        plugin = fit(house)
        assert scores(house, plugin, asking) == [75, 75, 50]
        house.server.put(claim("c", allocation=results("gpu-0", "gpu-1", pool="n2")))
        assert scores(house, plugin, asking) == [75, 25, 50]
        house.objects.put("resourceslices", f"n1-{DRIVER}", resource_slice("n1", 1))
        assert scores(house, plugin, asking) == [0, 25, 50]
        house.objects.put("deviceclasses", "gpu", device_class("gpu", "example.com/other"))
        assert scores(house, plugin, asking) == [0, 0, 50]  # no class serves it any more
        assert scores(house, fit(house, "MostAllocated"), asking) == [0, 0, 50]

    run_virtual(main())


def test_balance_counts_devices() -> None:
    async def main() -> None:
        house = with_a_device_plugin()
        house.server.put(claim("c", allocation=results("gpu-0", "gpu-1", pool="n2")))
        resources = (ResourceSpec(name=GPU, weight=1), ResourceSpec(name="cpu", weight=1))
        plugin = NodeResourcesBalancedAllocation(NodeResourcesBalancedAllocationArgs(resources=resources), house.handle)
        asking = PodInfo(pod("p", requests={GPU: "2", "cpu": "1m"}))
        first, second, third = scores(house, plugin, asking)
        assert first > third  # half of the devices instead of all that the node has
        assert first == second  # the pod adds as much to either

    run_virtual(main())


@pytest.mark.parametrize(("resource", "is_local"), [(GPU, False), ("example.com/other", True)])
def test_scores_that_count_devices_are_not_local(resource: str, is_local: bool) -> None:
    async def main() -> None:
        house = with_a_device_plugin()
        question = fit(house).ask(PodInfo(pod("p", requests={resource: "1"})), house.cache.table)
        assert question is not None
        assert question.is_local is is_local

    run_virtual(main())


def test_fit_leaves_resources_to_classes_where_nodes_have_none() -> None:
    async def main() -> None:
        house = with_a_device_plugin()
        plugin = NodeResourcesFit(None, house.handle)
        asking = PodInfo(pod("p", requests={GPU: "3"}))
        table = house.cache.table
        question = plugin.ask(asking, table)
        assert question is not None
        rows = np.array([table.row_of(f"n{number}") for number in (1, 2, 3)], np.intp)
        verdicts = question.verdicts(rows).tolist()
        assert [bool(verdict) for verdict in verdicts] == [False, False, True]
        assert [question.verdict(table.info(row)) for row in rows.tolist()] == verdicts
        assert question.why(verdicts[2]).reasons() == [f"Insufficient {GPU}"]
        house.objects.remove("deviceclasses", "gpu")
        again = plugin.ask(asking, table)
        assert again is not None
        assert again.key != question.key  # results for it are not those for ordinary resources

    run_virtual(main())
