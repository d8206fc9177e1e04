"""Plugins that say which pods concern them: left out of the others' attempts, at every point but PostFilter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from harness import World, a_pod, play
from recording import Answers, holder

from builders import a_node
from builders import a_pod as typed
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.status import Status
from kubesched.scheduler.diagnosis import Rejection
from kubesched.scheduler.search import Path
from search_kit import SIGNING, House, make_asking, rows_like

POINTS = (
    "pre_enqueue", "pre_filter", "filter", "post_filter", "pre_score", "score", "reserve", "unreserve", "permit",
    "pre_bind_pre_flight", "pre_bind", "post_bind",
)  # fmt: skip


def is_special(self: Any, info: PodInfo) -> bool:
    return info.spec.priority is not None and info.spec.priority > 0


def picky(diary: Answers, concerns: Any = is_special) -> type:
    plugin = holder(diary, "Picky", *POINTS)
    plugin.concerns = concerns  # type: ignore[attr-defined]
    return plugin


def played(diary: Answers, plugin: type, *, special: bool, errors: list[str] | None = None) -> list[str]:
    """The methods called for one pod of a cluster."""

    async def scenario(world: World) -> None:
        world.nodes(2)
        more = {"priorityClassName": "system-node-critical"} if special else {}
        world.create(a_pod("one", **more))
        await world.settle()
        assert world.node_of("one")

    play(scenario, plugins=[plugin], expect_errors=errors or [])
    return [line.removeprefix("Picky.") for line in dict.fromkeys(diary.diary)]


def test_a_plugin_is_called_at_every_point_for_a_pod_that_concerns_it_and_at_none_for_another() -> None:
    diary = Answers(score=0)
    assert played(diary, picky(diary), special=True) == [
        point for point in POINTS if point not in ("post_filter", "unreserve")
    ]
    diary.clear()
    assert played(diary, picky(diary), special=False) == []


def test_post_filter_is_called_for_every_pod() -> None:
    diary = Answers(filter=Status.unschedulable("no"), post_filter=(None, Status.unschedulable()))
    no_space = holder(diary, "Full", "filter")

    async def scenario(world: World) -> None:
        world.nodes(1)
        world.create(a_pod("one"))
        await world.settle()
        assert not world.node_of("one")

    play(scenario, plugins=[no_space, picky(diary)])
    assert set(diary.diary) == {"Full.filter", "Picky.post_filter"}


def test_a_plugin_that_cannot_say_is_called_everywhere() -> None:
    def broken(self: Any, info: PodInfo) -> bool:
        raise RuntimeError("boom")

    diary = Answers(score=0)
    called = played(diary, picky(diary, broken), special=False, errors=["?plugin Picky failed in concerns"])
    assert {"pre_enqueue", "pre_filter", "pre_bind"} <= set(called)


def rejecting(**more: Any) -> type:
    """A plugin whose filter rejects every node for the pods that concern it."""
    return make_asking(
        "Picky",
        concerns=is_special,
        verdicts=rows_like(1, np.uint64),
        why=lambda self, verdict: Status.unschedulable("not for this one"),
        **more,
    )


@pytest.mark.parametrize("signs", [True, False])
def test_equal_signatures_do_not_mix_pods_that_concern_a_plugin_with_others(signs: bool) -> None:
    """Pods differ in priority alone, which no plugin signs."""
    plugin = rejecting(key=() if signs else None)
    house = House([a_node("a"), a_node("b")], plugins=(*SIGNING, plugin))
    paths: list[Path] = []
    house.search.observer = paths.append
    for _ in range(3):
        house.find(typed("plain"))
        assert isinstance(house.failure(typed("special", priority=7)), Rejection)
    assert paths[0::2] == [Path.SIGNATURE] * 3


def test_a_plugin_that_normalises_all_scores_at_once_costs_other_pods_no_full_scan() -> None:
    plugin = make_asking(
        "Picky",
        concerns=is_special,
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
