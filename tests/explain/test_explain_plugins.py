"""Plugins in explanations: those that name demands, plain ones that do not, and those that fail."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from builders import a_node, a_pod
from kubesched.api.types import Pod
from kubesched.explain.pending import PendingExplanation, explain_pod
from kubesched.scheduler.core.diagnosis import Rejection
from kubesched.scheduler.framework import Plugin, Status
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.demand import Amounts, Change, Demand
from kubesched.scheduler.nodes import PodInfo
from search_kit import House

NODES = [a_node("day-1"), a_node("day-2"), a_node("night-1", cpu="1")]


class NightOnly(Plugin):
    """Pods of the priority class ``night`` run on nodes of the night."""

    name = "NightOnly"

    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        is_night = pod.spec.priority_class_name == "night"
        return Status.unschedulable(f"node sleeps: {node.name}") if is_night and node.name.startswith("day") else None


class NightDemand(NightOnly):
    """The plugin with words."""

    def demands(self, pod: Any, nodes: Any) -> Iterable[Demand]:
        change = Change.of_spec("leave the class night", lambda spec: replace(spec, priority_class_name=""))
        return [Demand(lambda rows: f"class night, on {len(rows)} nodes of the day", change)]


class Broken(NightOnly):
    """The plugin with a defect."""

    def demands(self, pod: Any, nodes: Any) -> Iterable[Demand]:
        raise RuntimeError("no words")


class Vast(NightOnly):
    """The plugin with endless demands."""

    def demands(self, pod: Any, nodes: Any) -> Iterable[Demand]:
        while True:
            yield Demand(lambda rows: "more", Change.of_spec("less", lambda spec: spec))


def explained(plugin: type, pod: Pod) -> PendingExplanation:
    house = House(NODES, plugins=("NodeResourcesFit", plugin))
    return explain_pod(house.framework, house.search, PodInfo(pod))


def large(**more: Any) -> Pod:
    return a_pod(cpu="3", priority_class_name="night", **more)


def test_a_plain_plugin_is_explained_by_its_reasons() -> None:
    found = explained(NightOnly, large())
    assert [(one.plugin, one.text, int(one.stands.sum())) for one in found.obstacles.found] == [
        ("NightOnly", "node sleeps: day-1", 1),
        ("NightOnly", "node sleeps: day-2", 1),
        ("NodeResourcesFit", "cpu: asks for 3, but the largest of these nodes has 1; at most 1 is free (night-1)", 1),
    ]
    assert [one.texts for one in found.remedies] == [("ask for 2 less cpu",)]


def test_a_plugin_that_names_its_demands_proposes_changes() -> None:
    found = explained(NightDemand, large())
    assert "class night, on 2 nodes of the day" in [one.text for one in found.obstacles.found]
    assert [(one.texts, len(one.rows)) for one in found.remedies] == [
        (("leave the class night",), 2),
        (("ask for 2 less cpu",), 1),
    ]


def test_a_plugin_that_fails_to_name_them_is_logged_and_explained_by_its_reasons(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, logger="kubesched.explain"):
        found = explained(Broken, large())
    assert "plugin NightOnly failed to name the demands of pod ns/p" in caplog.text
    assert "node sleeps: day-1" in [one.text for one in found.obstacles.found]
    assert found.obstacles.remarks == ["plugin NightOnly failed, so its demands are not told apart: no words"]


def raises(*given: Any) -> Any:
    raise RuntimeError("a defect")


@contextmanager
def fails_at_end() -> Iterator[list[str]]:
    yield []
    raises()


WAYS: list[tuple[str, Callable[..., Any]]] = [
    ("called", raises),
    ("left", lambda *given: fails_at_end()),
    ("no block", lambda *given: None),
]


@pytest.mark.parametrize(("way", "method"), WAYS, ids=[way for way, _ in WAYS])
@pytest.mark.parametrize("name", ["new_node", "without_pods"])
def test_a_what_if_that_fails_costs_its_proposal_alone(name: str, way: str, method: Callable[..., Any]) -> None:
    plugin = type("Failing", (NightDemand,), {name: method})
    house = House([*NODES, a_node("night-2")], plugins=("NodeResourcesFit", plugin))
    house.add(a_pod("old", cpu="3", on="night-2"))
    found = explain_pod(house.framework, house.search, PodInfo(large()))
    assert ("leave the class night",) in [one.texts for one in found.remedies]
    costs = "one more node like" if name == "new_node" else "not all evictions were tried"
    remarks = [
        one for one in found.obstacles.remarks if one.startswith("plugin NightOnly failed, so ") and costs in one
    ]
    assert remarks, found.obstacles.remarks
    verdicts = house.search.evaluate(CycleState(), PodInfo(large(on="")))
    assert isinstance(verdicts, Rejection), "the what-if was undone"


def bad_demand(**more: Any) -> type:
    def demands(self: Any, pod: Any, nodes: Any) -> Iterable[Demand]:
        change = Change.of_spec("leave the class night", lambda spec: replace(spec, priority_class_name=""))
        yield Demand(**{"text": lambda rows: "class night", "without": change, **more})

    return type("Bad", (NightOnly,), {"demands": demands})


@pytest.mark.parametrize("more", [
    {"text": raises},
    {"data": raises},
    {"data": lambda rows: {"x": object()}},
    {"holders": raises},
    {"weaker": [Change("be weaker", raises)]},
    {"weaker": [Change("be weaker", around=raises)]},
], ids=["text", "data", "data that is none", "holders", "weaker", "around"])  # fmt: skip
def test_a_demand_that_fails_leaves_its_other_parts(more: dict[str, Any]) -> None:
    found = explained(bad_demand(**more), large())
    assert ("leave the class night",) in [one.texts for one in found.remedies]


@pytest.mark.parametrize("more", [
    {"without": Change("fail", raises)},
    {"without": Change("fail", around=raises)},
    {"amounts": Amounts(5, raises, raises)},
    {"weaker": None},
], ids=["without", "around", "amounts", "no sequence"])  # fmt: skip
def test_a_demand_that_cannot_be_changed_is_remarked_on(more: dict[str, Any]) -> None:
    found = explained(bad_demand(**more), large())
    assert ("ask for 2 less cpu",) in [one.texts for one in found.remedies]
    assert any(one.startswith("plugin NightOnly failed, so ") for one in found.obstacles.remarks)


def test_endless_demands_end() -> None:
    found = explained(Vast, large())
    note = " (only the first 24 demands told apart)"
    assert "node sleeps: day-1" + note in [one.text for one in found.obstacles.found]
    assert [one.texts for one in found.remedies] == [("ask for 2 less cpu",)]


def test_nothing_helps() -> None:
    found = explained(NightOnly, a_pod(cpu="1", priority_class_name="night", requests={"memory": "1Ti"}))
    house = House([a_node("day-1")], plugins=("NodeResourcesFit", NightOnly))
    assert found.remedies
    alone = explain_pod(house.framework, house.search, PodInfo(a_pod(cpu="1", priority_class_name="night")))
    assert (alone.remedies, alone.evictions) == ([], None)
