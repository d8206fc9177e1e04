"""Plugins that say which pods concern them: those without a question leave them out of Filter and Score, or throughout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from harness import World, a_pod, play
from recording import Answers, holder

from builders import a_node
from builders import a_pod as typed
from kubesched.scheduler.core.diagnosis import Rejection
from kubesched.scheduler.core.search import Path
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes.podinfo import PodInfo
from search_kit import SIGNING, House, make_asking, make_plugin, rows_like

AFTER = ("reserve", "unreserve", "permit", "pre_bind_pre_flight", "pre_bind", "post_bind")
QUESTIONS = {"pre_filter": None, "verdicts": np.uint64, "pre_score": None, "scores": np.int64}


def is_special(pod: PodInfo) -> bool:
    return pod.spec.priority is not None and pod.spec.priority > 0


def picky(diary: Answers, **members: Any) -> type:
    """A plugin at every point but Bind; ordinary pods do not concern it."""

    def noting(method: str, dtype: Any) -> Any:
        def method_of_question(self: Any, rows: Any) -> Any:
            diary.ask("Picky", method)
            return None if dtype is None else np.zeros(len(rows), dtype)

        return method_of_question

    questions = {method: noting(method, dtype) for method, dtype in QUESTIONS.items()}
    asking: Any = make_asking("Picky", **questions, **members)
    ask = asking.ask
    plugin = holder(diary, "Picky", "pre_enqueue", "post_filter", *AFTER)
    plugin.asks = asking.asks  # type: ignore[attr-defined]
    plugin.ask = lambda self, pod, nodes: ask(self, pod, nodes) if is_special(pod) else None  # type: ignore[attr-defined]
    return plugin


def played(diary: Answers, plugin: type, *, special: bool) -> list[str]:
    """The methods called for one pod of a cluster."""

    async def scenario(world: World) -> None:
        world.nodes(2)
        more = {"priorityClassName": "system-node-critical"} if special else {}
        world.create(a_pod("one", **more))
        await world.settle()
        assert world.node_of("one")

    play(scenario, plugins=[plugin])
    return [line.removeprefix("Picky.") for line in dict.fromkeys(diary.diary)]


def test_a_plugin_is_asked_about_nodes_for_pods_that_concern_it_only() -> None:
    diary, after = Answers(), [method for method in AFTER if method != "unreserve"]
    assert played(diary, picky(diary), special=True) == ["pre_enqueue", *QUESTIONS, *after]
    diary.clear()
    assert played(diary, picky(diary), special=False) == ["pre_enqueue", *after]
    diary.clear()
    assert played(diary, picky(diary, throughout=True), special=False) == ["pre_enqueue"]


def test_post_filter_is_called_for_every_pod() -> None:
    diary = Answers(filter=Status.unschedulable("no"), post_filter=(None, Status.unschedulable()))
    no_space = holder(diary, "Full", "filter")

    async def scenario(world: World) -> None:
        world.nodes(1)
        world.create(a_pod("one"))
        await world.settle()
        assert not world.node_of("one")

    play(scenario, plugins=[no_space, picky(diary)])
    assert set(diary.diary) == {"Full.filter", "Picky.pre_enqueue", "Picky.post_filter"}


def special_only(**members: Any) -> type:
    """A plugin with questions for special pods only."""
    plugin: Any = make_asking("Picky", **members)
    ask = plugin.ask
    plugin.ask = lambda self, pod, nodes: ask(self, pod, nodes) if is_special(pod) else None
    return plugin  # type: ignore[no-any-return]


@pytest.mark.parametrize("signs", [True, False])
def test_equal_signatures_do_not_mix_pods_that_concern_a_plugin_with_others(signs: bool) -> None:
    """Pods differ in priority alone, which no plugin signs."""
    plugin = special_only(
        verdicts=rows_like(1, np.uint64),
        why=lambda self, verdict: Status.unschedulable("no"),
        key=() if signs else None,
    )
    house = House([a_node("a"), a_node("b")], plugins=(*SIGNING, plugin))
    paths: list[Path] = []
    house.search.observer = paths.append
    for _ in range(3):
        house.find(typed("plain"))
        assert isinstance(house.failure(typed("special", priority=7)), Rejection)
    assert paths[0::2] == [Path.SIGNATURE] * 3


def test_a_plugin_that_normalises_all_scores_at_once_costs_other_pods_no_full_scan() -> None:
    plugin = special_only(
        scores=lambda self, rows: np.arange(len(rows), dtype=np.int64),
        normalize_score=lambda self, state, info, nodes, scores: scores * 50,
    )
    house = House([a_node("a"), a_node("b")], plugins=(*SIGNING, plugin))
    paths: list[Path] = []
    house.search.observer = paths.append
    house.find(typed("plain"))
    house.find(typed("special", priority=7))
    assert paths == [Path.SIGNATURE, Path.FULL_SCAN]
    assert "Picky" in (house.evaluate(typed("special", priority=7)).scores or {})
    assert "Picky" not in (house.evaluate(typed("plain")).scores or {})


def test_a_plain_plugin_that_skips_a_pod_at_pre_filter_costs_it_no_full_scan() -> None:
    seen: list[str] = []

    def filter_(self: Any, state: Any, pod: PodInfo, node: Any) -> None:
        seen.append(pod.name)

    plugin = make_plugin(
        "Picky",
        pre_filter=lambda self, state, pod, nodes: None if is_special(pod) else Status.skip(),
        filter=filter_,
    )
    house = House([a_node("a"), a_node("b")], plugins=(*SIGNING, plugin))
    paths: list[Path] = []
    house.search.observer = paths.append
    house.find(typed("plain"))
    house.find(typed("special", priority=7))
    house.find(typed("plain"))
    assert paths == [Path.SIGNATURE, Path.FULL_SCAN, Path.SIGNATURE]
    assert set(seen) == {"special"}
