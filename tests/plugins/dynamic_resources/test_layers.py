"""Pods whose claims ask for the same share what is remembered of nodes; never wrongly.

A random cluster changes; whenever a pod is evaluated, the node found must be one of those that a search finds which
remembers nothing by node, and what a layer holds must be that search's answer.
"""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from dra_kit import DRIVER, claim, device_class, pod, resource_slice
from hypothesis import given, settings
from hypothesis import strategies as st
from plugin_kit import House, scenario

from builders import a_node
from kubesched.api.decode import from_builtins, to_builtins
from kubesched.api.resource import DeviceClass
from kubesched.api.types import Pod
from kubesched.scheduler.config.args import (
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    ResourceSpec,
    ScoringStrategy,
)
from kubesched.scheduler.core.diagnosis import Rejection
from kubesched.scheduler.core.full_scan import Rotation
from kubesched.scheduler.core.layers import PASSES, Layer
from kubesched.scheduler.core.search import Decision, Path, Search
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.nodes.nominating import NoNominations
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.plugins.balanced_allocation import NodeResourcesBalancedAllocation
from kubesched.scheduler.plugins.node_resources_fit import NodeResourcesFit
from kubesched.scheduler.plugins.node_unschedulable import NodeUnschedulable

GPU, OTHER, NIC = "example.com/gpu", "example.com/other", "nic.example.com"
#: The classes, and what they serve.
CLASSES = {"gpu": GPU, "other": OTHER}


def exactly(class_name: str = "gpu", count: int = 1) -> dict[str, Any]:
    return {"exactly": {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": count}}


def sub(name: str, count: int) -> dict[str, Any]:
    return {"name": name, "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}


#: What claims ask for, by name.
CONTENTS: dict[str, list[dict[str, Any]]] = {
    "one": [{"name": "gpu", **exactly()}],
    "two": [{"name": "gpu", **exactly(count=2)}],
    "list": [{"name": "gpu", "firstAvailable": [sub("many", 2), sub("few", 1)]}],
    "other": [{"name": "gpu", **exactly("other")}],
    "with-nic": [{"name": "gpu", **exactly()}, {"name": "nic", **exactly("nic")}],
}
#: Kinds of pods that request an extended resource, which a class serves.
RESOURCES = {"resource": GPU, "other-resource": OTHER}
KINDS = (*CONTENTS, *RESOURCES)


def asking(house: House, kind: str, name: str) -> Pod:
    """A pod of a kind, with its claim in the server."""
    if kind in RESOURCES:
        return pod(name, requests={RESOURCES[kind]: "1"})
    house.server.put(claim(f"c-{name}", requests=CONTENTS[kind]))
    return pod(name, f"c-{name}")


def layer_of(house: House, info: PodInfo) -> Layer | None:
    search = house.search
    asked = search.ask(info)
    return search._layers.get((asked.signature, asked.linked))


def agree(house: House, wanted: Pod) -> Decision | None:
    """Find a node; it and the layer, if there is one, must be what a search finds that remembers nothing by node."""
    info = PodInfo(wanted)
    fresh = Search(house.framework, house.cache.snapshot(), NoNominations(), random.Random(0), Rotation())
    try:
        evaluation = fresh.evaluate(CycleState(), info)
    except PluginFailedError as error:
        with pytest.raises(PluginFailedError, match=f"^{re.escape(str(error))}$"):
            house.search.find(info)
        return None
    used: list[Path] = []
    house.search.observer = used.append
    decision = house.search.find(info)
    if isinstance(evaluation, Rejection):
        assert isinstance(decision, Rejection)
        assert decision.message() == evaluation.message()
        return None
    assert isinstance(decision, Decision)
    assert decision.feasible == len(evaluation.feasible)
    assert evaluation.totals is not None
    best = evaluation.feasible[evaluation.totals == evaluation.totals.max()].tolist()
    assert decision.node.row in best
    layer = layer_of(house, info)
    if used == [Path.INTERACTION]:
        assert layer is not None
        assert [row for row, owner in enumerate(layer.owner) if owner == PASSES] == sorted(evaluation.feasible.tolist())
        if layer.is_scored:
            assert layer.ranking.total[evaluation.feasible].tolist() == evaluation.totals.tolist()
    return decision


def scorers() -> dict[str, Any]:
    """The plugins that score by devices, set up to do so."""
    resources = tuple(ResourceSpec(name=name, weight=weight) for name, weight in ((GPU, 3), (OTHER, 1), ("cpu", 1)))
    fit = NodeResourcesFitArgs(scoring_strategy=ScoringStrategy(type="MostAllocated", resources=resources))
    return {
        "NodeResourcesFit": (NodeResourcesFit, fit),
        "NodeResourcesBalancedAllocation": (
            NodeResourcesBalancedAllocation,
            NodeResourcesBalancedAllocationArgs(resources=resources),
        ),
    }


class World:
    """A cluster of up to six nodes, changed by one operation after the other."""

    def __init__(self, scored: dict[str, Any] | None = None) -> None:
        self.house = House(nodes=4, devices=2, resource=GPU, scored=scored)
        self.house.objects.put("deviceclasses", "nic", device_class("nic"))
        self.house.objects.put("deviceclasses", "other", device_class("other", OTHER))
        self.placed: list[str] = []
        self.count = 0

    def node(self, number: int) -> str:
        return f"n{number}"

    async def do(self, operation: tuple[Any, ...]) -> None:
        name, *args = operation
        await getattr(self, name)(*args)

    async def look(self, kind: str) -> None:
        self.count += 1
        wanted = asking(self.house, kind, f"look-{self.count}")
        agree(self.house, wanted)
        if kind not in RESOURCES:
            self.house.server.delete(f"default/c-{wanted.name}")

    async def place(self, kind: str, fails: bool) -> None:
        """Schedule a pod; ``fails``: it is given up after Reserve."""
        self.count += 1
        wanted = asking(self.house, kind, f"p{self.count}")
        decision = agree(self.house, wanted)
        if decision is None:
            return
        info = PodInfo(wanted)
        again = self.house.search.find(info)
        assert isinstance(again, Decision)
        attempt = (again.state, info, again.node.name)
        assert self.house.framework.reserve(*attempt) is None
        plugged = kind in RESOURCES and again.node.allocatable.get(RESOURCES[kind]) > 0
        assert len(self.house.manager.in_flight) == (0 if plugged else 1)
        if fails:
            self.house.framework.unreserve(*attempt)
        else:
            assert await self.house.bind(attempt) is None
            self.placed += [key for key in self.house.server.claims if wanted.name in key]
        await self.house.settle()

    async def release(self, number: int) -> None:
        if self.placed:
            self.house.server.delete(self.placed.pop(number % len(self.placed)))

    async def set_slice(self, number: int, devices: list[dict[str, Any]]) -> None:
        each = resource_slice(self.node(number), devices)
        self.house.objects.put("resourceslices", each.metadata.name, each)

    async def remove_slice(self, number: int) -> None:
        name = resource_slice(self.node(number)).metadata.name
        if name in self.house.objects.informed("resourceslices"):
            self.house.objects.remove("resourceslices", name)

    async def set_common(self, count: int) -> None:
        """Network cards that are open to all nodes, in one pool."""
        name = "cards"
        if count:
            cards = [{"name": f"nic-{number}"} for number in range(count)]
            each = resource_slice("cards", cards, driver=NIC, name=name, nodeName=None, allNodes=True)
            self.house.objects.put("resourceslices", name, each)
        elif name in self.house.objects.informed("resourceslices"):
            self.house.objects.remove("resourceslices", name)

    async def set_class(self, name: str, expression: str) -> None:
        selectors = [{"cel": {"expression": expression}}] if expression else []
        body = {
            "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"},
            "spec": {"extendedResourceName": CLASSES[name], "selectors": selectors},
        }
        self.house.objects.put("deviceclasses", name, from_builtins(body, DeviceClass))

    async def set_node(self, number: int, plugged: str | None) -> None:
        """``plugged``: the extended resource that a device plugin serves there."""
        self.house.cache.set_node(a_node(self.node(number), allocatable={plugged: "4"} if plugged else None))

    async def remove_node(self, number: int) -> None:
        if self.house.cache.table.row_of(self.node(number)) is not None:
            self.house.cache.remove_node(self.node(number))


def model(name: str) -> dict[str, Any]:
    return {"model": {"string": name}}


_kinds = st.sampled_from(KINDS)
_numbers = st.integers(1, 6)
_SORTS: list[dict[str, Any]] = [
    {},
    {"attributes": model("a")},
    {"attributes": model("b")},
    {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
]
_devices = st.lists(st.sampled_from(_SORTS), max_size=4).map(
    lambda devices: [{"name": f"gpu-{number}", **each} for number, each in enumerate(devices)]
)
_expressions = st.sampled_from(
    [
        "",
        f'device.driver == "{DRIVER}"',
        f'device.attributes["{DRIVER}"].?model.orValue("") != "b"',
        f'device.attributes["{DRIVER}"].model == "a"',
    ]
)
_operations = st.one_of(
    st.tuples(st.just("look"), _kinds),
    st.tuples(st.just("place"), _kinds, st.sampled_from([False, False, True])),
    st.tuples(st.just("place"), _kinds, st.just(False)),
    st.tuples(st.just("release"), st.integers(0, 9)),
    st.tuples(st.just("set_slice"), _numbers, _devices),
    st.tuples(st.just("remove_slice"), _numbers),
    st.tuples(st.just("set_common"), st.integers(0, 2)),
    st.tuples(st.just("set_class"), st.sampled_from([*CLASSES]), _expressions),
    st.tuples(st.just("set_node"), _numbers, st.sampled_from([None, None, *CLASSES.values()])),
    st.tuples(st.just("remove_node"), _numbers),
)


@settings(max_examples=max(20, settings().max_examples // 3))
@given(st.lists(_operations, min_size=5, max_size=30), st.booleans())
def test_layers_hold_what_a_search_without_them_finds(operations: list[tuple[Any, ...]], scoring: bool) -> None:
    async def main() -> None:
        world = World(scorers() if scoring else None)
        for kind in (*KINDS, *KINDS):
            await world.look(kind)
        for operation in operations:
            await world.do(operation)
        for kind in KINDS:
            await world.look(kind)

    scenario(main)


def paths(house: House, *pods: Pod) -> list[Path]:
    found: list[Path] = []
    house.search.observer = found.append
    for each in pods:
        house.find(each)
    return found


@pytest.mark.parametrize("kind", ["one", "list", "resource"])
def test_the_second_pod_of_a_kind_makes_a_layer_and_later_ones_evaluate_what_changed(kind: str) -> None:
    async def main() -> None:
        house = House(nodes=40, devices=2, resource=GPU)
        wanted = [asking(house, kind, f"p{number}") for number in range(4)]
        assert paths(house, *wanted[:2]) == [Path.FULL_SCAN, Path.INTERACTION]
        attempt = house.decide(wanted[2])
        assert len(house.in_use()) == (2 if kind == "list" else 1)
        (entry,) = house.framework.filters
        entry.evaluations.value = 0
        assert paths(house, wanted[3]) == [Path.INTERACTION]
        assert entry.evaluations.value == 1  # the node whose devices were reserved
        assert await house.bind(attempt) is None
        entry.evaluations.value = 0
        house.find(wanted[3])
        assert entry.evaluations.value == 0  # written or in flight, the same devices are in use

    scenario(main)


def test_a_pod_whose_score_counts_devices_shares_a_layer() -> None:
    async def main() -> None:
        house = House(nodes=40, devices=2, resource=GPU, scored=scorers())
        wanted = [asking(house, "resource", f"p{number}") for number in range(4)]
        assert paths(house, *wanted[:2]) == [Path.FULL_SCAN, Path.INTERACTION]
        assert len(house.in_use()) == 0
        _, _, node = house.decide(wanted[2])
        counts = [entry.evaluations for entry in house.framework.scores]
        for each in counts:
            each.value = 0
        assert paths(house, wanted[3]) == [Path.INTERACTION]
        assert [each.value for each in counts] == [1, 1, 1]  # the node whose devices were reserved
        assert house.decide(wanted[3])[2] == node  # MostAllocated

    scenario(main)


def test_classes_with_equal_selectors_share_a_layer_and_keep_their_configuration() -> None:
    async def main() -> None:
        house = House(nodes=40, devices=2, resource=GPU)
        for name, resource in CLASSES.items():
            config = [{"opaque": {"driver": DRIVER, "parameters": {"class": name}}}]
            body = {"metadata": {"name": name}, "spec": {"extendedResourceName": resource, "config": config}}
            house.objects.put("deviceclasses", name, from_builtins(body, DeviceClass))
        kinds = ("one", "other")
        first = {kind: asking(house, kind, f"{kind}-first") for kind in kinds}
        second = {kind: asking(house, kind, f"{kind}-second") for kind in kinds}
        assert paths(house, *first.values(), *second.values()) == [Path.FULL_SCAN] + [Path.INTERACTION] * 3
        for kind in kinds:
            assert await house.bind(house.decide(second[kind])) is None
            allocation = house.server.claims[f"default/c-{kind}-second"].status.allocation
            assert allocation is not None
            (given,) = allocation.devices.config
            assert given.opaque is not None
            assert to_builtins(given.opaque)["parameters"] == {"class": {"one": "gpu"}.get(kind, kind)}
        resources = [asking(house, kind, f"p-{kind}") for kind in RESOURCES]
        assert paths(house, *resources) == [Path.FULL_SCAN, Path.INTERACTION]
        # Where a device plugin serves one of the resources, they are two again.
        house.cache.set_node(a_node("n1", allocatable={OTHER: "4"}))
        assert paths(house, *resources, *resources) == [Path.INTERACTION, Path.FULL_SCAN] + [Path.INTERACTION] * 2
        assert not isinstance(house.find(resources[1]), Rejection)

    scenario(main)


def test_the_error_of_a_shared_search_names_the_class_of_the_claim() -> None:
    async def main() -> None:
        house = House(nodes=2)
        for name in CLASSES:
            selectors = [{"cel": {"expression": f'device.attributes["{DRIVER}"].missing == "a"'}}]
            body = {"metadata": {"name": name}, "spec": {"selectors": selectors}}
            house.objects.put("deviceclasses", name, from_builtins(body, DeviceClass))
        for kind, name in (("one", "gpu"), ("other", "other")):
            with pytest.raises(PluginFailedError, match=rf"class {name}: selector #0: CEL runtime error: no such key"):
                house.find(asking(house, kind, f"p-{kind}"))

    scenario(main)


def test_a_search_that_fails_counts_also_on_a_node_that_a_later_filter_rejects() -> None:
    async def main() -> None:
        house = House(nodes=4, later=NodeUnschedulable)
        selectors = [{"cel": {"expression": f'device.attributes["{DRIVER}"].model == "a"'}}]
        body = {"metadata": {"name": "gpu"}, "spec": {"selectors": selectors}}
        house.objects.put("deviceclasses", "gpu", from_builtins(body, DeviceClass))
        for number in (2, 3, 4):
            each = resource_slice(f"n{number}", [{"name": "gpu-0", "attributes": model("a")}])
            house.objects.put("resourceslices", each.metadata.name, each)
        house.cache.set_node(a_node("n1", unschedulable=True))
        for number in range(4):
            with pytest.raises(PluginFailedError, match="no such key: model"):
                house.find(asking(house, "one", f"p{number}"))
        each = resource_slice("n1", [{"name": "gpu-0", "attributes": model("a")}])
        house.objects.put("resourceslices", each.metadata.name, each)
        assert paths(house, *[asking(house, "one", f"q{number}") for number in range(3)]) == [Path.FULL_SCAN] * 3

    scenario(main)


def test_claims_that_have_devices_or_need_those_that_all_nodes_see_are_not_shared() -> None:
    async def main() -> None:
        house = House(nodes=4, resource=GPU)
        house.objects.put("deviceclasses", "nic", device_class("nic"))
        cards = [{"name": f"nic-{number}"} for number in range(9)]
        each = resource_slice("cards", cards, driver=NIC, name="cards", nodeName=None, allNodes=True)
        house.objects.put("resourceslices", "cards", each)
        wanted = [asking(house, "with-nic", f"p{number}") for number in range(3)]
        assert paths(house, *wanted) == [Path.FULL_SCAN] * 3
        assert await house.bind(house.decide(wanted[0])) is None
        house.search.observer = None
        assert paths(house, *[pod(f"again-{number}", "c-p0") for number in range(3)]) == [Path.FULL_SCAN] * 3

    scenario(main)


def test_a_pod_of_the_profile_without_pre_filter_is_not_bound_without_devices() -> None:
    async def main() -> None:
        house = House()
        house.server.put(claim())
        status = house.framework.reserve(CycleState(), PodInfo(pod("p", "c")), "n1")
        assert status is not None
        assert status.message() == 'running Reserve plugin "DynamicResources": not found'

    scenario(main)
