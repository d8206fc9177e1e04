"""scheduler_plugin_evaluation_total: what counts as an evaluation of a plugin."""

from __future__ import annotations

from typing import Any

import pytest

from builders import a_node, a_pod, info
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.framework.question import NO_ROWS, Reads
from kubesched.scheduler.framework.status import Code, Status
from search_kit import SIGNING, House, make_asking, make_plugin, rows_like

NODES = 8


def evaluations(house: House) -> dict[tuple[str, str], float]:
    """(plugin, extension point) to the value of its series."""
    family = house.framework.metrics.plugin_evaluation_total
    return {(plugin, point): value.value for (plugin, point, _), value in family.children.items()}


def nodes() -> list[Any]:
    return [a_node(f"n{index}") for index in range(NODES)]


def test_every_enabled_plugin_has_its_series_from_the_start() -> None:
    house = House(nodes(), plugins=["NodeName", "TaintToleration"], without=[("TaintToleration", "score")])
    assert evaluations(house) == {
        ("NodeName", "Filter"): 0,
        ("TaintToleration", "Filter"): 0,
        ("TaintToleration", "PreScore"): 0,
    }
    families = {family.name: family for family in house.framework.metrics.collect()}
    samples = families["scheduler_plugin_evaluation_total"].samples
    assert (("NodeName", "Filter", "default-scheduler"), 0) in samples


def test_filter_and_score_count_the_nodes_and_later_filters_only_those_left() -> None:
    plain = make_plugin(
        "Plain",
        filter=lambda self, state, pod, node: None if node.name != "n3" else Status.unschedulable("not this one"),
        score=lambda self, state, pod, node: 1,
    )
    asking = make_asking(
        "Asking",
        verdicts=rows_like(0),
        why=lambda self, verdict: Status.unschedulable("no"),
        scores=rows_like(1),
    )
    house = House(nodes(), plugins=[plain, asking])
    house.evaluate(a_pod())
    assert evaluations(house) == {
        ("Plain", "Filter"): NODES,
        ("Asking", "Filter"): NODES - 1,
        ("Plain", "Score"): NODES - 1,
        ("Asking", "Score"): NODES - 1,
    }


@pytest.mark.parametrize("by_row", [True, False])
def test_what_a_layer_remembers_is_no_evaluation(by_row: bool) -> None:
    members: dict[str, Any] = {
        "key": 0,
        "verdicts": rows_like(0),
        "why": lambda self, verdict: Status.unschedulable("no"),
    }
    if by_row:
        members["verdict"] = lambda self, node: 0
    house = House(nodes(), plugins=[make_asking("Signing", **members)])
    house.find(a_pod("first"))
    assert evaluations(house) == {("Signing", "Filter"): NODES}
    house.find(a_pod("second"))
    assert evaluations(house) == {("Signing", "Filter"): NODES}
    house.cache.set_node(a_node("n0", cpu="17"))
    house.find(a_pod("third"))
    assert evaluations(house) == {("Signing", "Filter"): NODES + 1}


@pytest.mark.parametrize("changes", [1, 9])
def test_a_plugin_that_reads_no_pods_is_not_called_for_nodes_that_took_some(changes: int) -> None:
    reading = make_asking("Reading", key=0, reads=Reads.NODE, verdicts=rows_like(0), scores=rows_like(1))
    house = House([a_node(f"n{index}") for index in range(40)], plugins=[reading])
    house.find(a_pod("first"))
    assert evaluations(house) == {("Reading", "Filter"): 40, ("Reading", "Score"): 40}
    for index in range(changes):
        house.add(a_pod(f"x{index}", on=f"n{index}"))
    house.find(a_pod("second"))
    assert evaluations(house) == {("Reading", "Filter"): 40, ("Reading", "Score"): 40}
    for index in range(changes):
        house.cache.set_node(a_node(f"n{index}", cpu="17"))
    house.find(a_pod("third"))
    assert evaluations(house) == {("Reading", "Filter"): 40 + changes, ("Reading", "Score"): 40 + changes}


def test_a_question_that_names_no_rows_has_none_evaluated_again() -> None:
    none = {"changed": lambda self: NO_ROWS}  # and ``rescored`` as it is without a definition
    far = make_asking("Far", key=0, is_local=False, verdicts=rows_like(0), scores=rows_like(1), **none)
    house = House(nodes(), plugins=[*SIGNING, far])
    for attempt in range(2):
        house.find(a_pod(f"p{attempt}"))
    before = evaluations(house)
    house.find(a_pod("again"))
    assert evaluations(house) == before


@pytest.mark.parametrize(
    ("answer", "counted"),
    [(None, 1), (Status(Code.SKIP), 0), (Status.unschedulable("no"), 1), (Status.from_error(ValueError("broken")), 1)],
)
def test_pre_filter_and_pre_score_are_counted_unless_they_skip(answer: Status | None, counted: int) -> None:
    plugin = make_plugin(
        "Preparing",
        pre_filter=lambda self, state, pod, nodes: answer,
        pre_score=lambda self, state, pod, nodes: answer,
    )
    house = House(nodes(), plugins=[plugin])
    framework, pod = house.framework, info(a_pod())
    try:
        framework.pre_filter(CycleState(), pod, house.cache.snapshot().nodes())
    except PluginFailedError:
        assert answer is not None
        assert answer.code is Code.ERROR
    framework.pre_score(CycleState(), pod, house.cache.snapshot().nodes())
    assert evaluations(house) == {("Preparing", "PreFilter"): counted, ("Preparing", "PreScore"): counted}
