"""Plugins in explanations: those that name demands, plain ones that do not, and those that fail."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from builders import a_node, a_pod
from kubesched.api.types import Pod
from kubesched.explain.pending import PendingExplanation, explain_pod
from kubesched.scheduler.framework import Plugin, Status
from kubesched.scheduler.framework.demand import Change, Demand
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
