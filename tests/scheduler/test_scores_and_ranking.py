"""Bounds of raw scores and the ranking of totals, against counting again."""

from __future__ import annotations

import random
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import a_node, a_pod, a_stopwatch, info
from kubesched.scheduler.core.ranking import INFEASIBLE, Ranking, pick_uniformly
from kubesched.scheduler.core.score_column import ScoreColumn
from kubesched.scheduler.framework.asking import answering
from kubesched.scheduler.framework.entries import ScoreEntry
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.framework.interface import NOT_SCORED, Normalize
from search_kit import SIGNING, House, best_names, make_asking


def scale(scores: Any, low: int, high: int) -> Any:
    """Normalises to 0…100; all the same: 7 or 93, by what they are."""
    if low == high:
        return np.full(len(scores), 7 if low < 10 else 93)
    return np.array([(score - low) * 100 // (high - low) for score in scores.tolist()])


def asked(name: str, **members: Any) -> Any:
    """Return what the decision core calls of a plugin whose questions normalise scores like this, and are not called here."""
    handle: Any = None
    return answering(make_asking(name, scores=None, **members)(None, handle), handle)


def ready_made(how: Normalize | None) -> Any:
    return asked("Ready", normalize=how)


_raw = st.one_of(st.integers(-3, 12), st.just(NOT_SCORED), st.sampled_from([5000, -5000, 10**17, 3 * 10**17, 1 << 62]))
#: How a score is normalised, and what raw scores are allowed for it.
_KINDS: list[tuple[Any, Any]] = [
    (asked("Scale", normalized=scale), _raw),
    (ready_made(Normalize.FORWARD), st.one_of(st.integers(0, 12), st.sampled_from([2000, 10**17, (1 << 63) - 1]))),
    (ready_made(Normalize.REVERSE), st.one_of(st.integers(0, 12), st.sampled_from([2000, 10**17, (1 << 63) - 1]))),
    (ready_made(None), st.integers(0, 100)),
]


def expected(plugin: Any, raw: list[int], weight: int) -> list[int]:
    """Final scores in plain integers, of all feasible rows at a time."""
    known = [score for score in raw if score != NOT_SCORED]
    if plugin.name == "Scale":
        low, high = min(known, default=0), max(known, default=-1)
        return [0 if score == NOT_SCORED else int(scale(np.array([score]), low, high)[0]) * weight for score in raw]
    greatest = max(known, default=0)
    if plugin.asks.normalize is None:
        return [score * weight for score in raw]
    scaled = [score * 100 // greatest if greatest else 0 for score in raw]
    return [(100 - score if plugin.asks.normalize is Normalize.REVERSE else score) * weight for score in scaled]


@given(data=st.data(), kind=st.sampled_from(_KINDS), weight=st.integers(1, 3), size=st.integers(2, 8))
def test_final_scores_are_those_of_normalising_again_however_many_rows_change(
    data: st.DataObject, kind: tuple[Any, Any], weight: int, size: int
) -> None:
    plugin, scores = kind
    feasible = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    raw = [data.draw(scores) if open_ else NOT_SCORED for open_ in feasible]
    column = ScoreColumn(ScoreEntry(plugin, weight, a_stopwatch()), size)
    rows = np.flatnonzero(feasible)
    column.replace(rows, np.array(raw, np.int64)[rows])
    column.settle(len(rows))
    finals = dict(zip(rows.tolist(), expected(plugin, [raw[row] for row in rows.tolist()], weight), strict=True))
    for _ in range(data.draw(st.integers(1, 12))):
        written = data.draw(st.lists(st.integers(0, size - 1), max_size=3, unique=True))
        for row in written:
            feasible[row] = data.draw(st.booleans())
            raw[row] = data.draw(scores) if feasible[row] else NOT_SCORED
        if data.draw(st.booleans()):
            for row in written:
                column.put(row, raw[row])
        else:
            left = [row for row in written if feasible[row]]
            column.drop(np.array([row for row in written if not feasible[row]], np.intp))
            column.put_many(np.array(left, np.intp), np.array([raw[row] for row in left], np.int64))
        rows = np.flatnonzero(feasible)
        moved = column.settle(len(rows))
        want = expected(plugin, [raw[row] for row in rows.tolist()], weight)
        assert column.final(rows).tolist() == want
        assert [column.final_at(row) for row in rows.tolist()] == want
        if want and column.level is not None:
            assert want == [column.level] * len(want)
        for row, final in zip(rows.tolist(), want, strict=True):
            assert moved or row in written or finals[row] == final
            finals[row] = final


@pytest.mark.parametrize("spread", [5, 5000, 10**12])
def test_a_row_that_a_plugin_leaves_out_gets_nothing_however_far_the_others_are_apart(spread: int) -> None:
    column, rows = ScoreColumn(ScoreEntry(asked("Scale", normalized=scale), 2, a_stopwatch()), 4), np.arange(4)
    column.replace(rows, np.array([0, NOT_SCORED, spread, NOT_SCORED]))
    column.settle(4)
    assert column.final(rows).tolist() == [column.final_at(row) for row in range(4)] == [0, 0, 200, 0]
    column.put(3, 1 << 40)
    assert column.raw(rows).tolist() == [0, NOT_SCORED, spread, 1 << 40]


@pytest.mark.parametrize("spread", [5, 5000])
@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda raw, low, high: raw * 0 + 101, 'plugin "Wild" returns an invalid score 101'),
        (lambda raw, low, high: raw * 0 - 1, 'plugin "Wild" returns an invalid score -1'),
        (lambda raw, low, high: raw[:-1], r"normalized returned int64\[\d+\]; expected int64\[\d+\]"),
        (lambda raw, low, high: raw / 2, r"normalized returned float64\[\d+\]; expected int64\[\d+\]"),
        (lambda raw, low, high: 3, r"normalized returned 3; expected int64\[\d+\]"),
    ],
)
def test_normalised_scores_are_checked_for_one_row_and_for_many(spread: int, answer: Any, text: str) -> None:
    column = ScoreColumn(ScoreEntry(asked("Wild", normalized=answer), 1, a_stopwatch()), 3)
    column.replace(np.arange(2), np.array([0, spread]))
    column.settle(2)
    with pytest.raises(PluginFailedError, match=text):
        column.final(np.arange(2))
    with pytest.raises(PluginFailedError, match=text):
        column.final_at(1)


def _vast(how: dict[str, Any]) -> type:
    """A plugin whose questions are all alike, and whose raw scores are 10¹⁷ times what the node's pods request in CPUs."""

    def score(self: Any, node: Any) -> int:
        vast: int = 10**17 * node.requested.milli_cpu // 1000 + node.row
        return vast

    def scores(self: Any, rows: Any) -> Any:
        return np.array([score(self, self.nodes.info(row)) for row in rows.tolist()], np.int64)

    return make_asking("Vast", key=(), score=score, scores=scores, **how)


def _exactly(scores: Any, low: int, high: int) -> Any:
    return np.array([100 * (score - low) // max(1, high - low) for score in scores.tolist()], np.int64)


@pytest.mark.parametrize("changes", [1, 5, 30, 60])
@pytest.mark.parametrize(
    "how",
    [{"normalize": Normalize.FORWARD}, {"normalize": Normalize.REVERSE}, {"normalized": _exactly}],
    ids=["forward", "reverse", "within"],
)
def test_scores_near_10_to_the_17_are_the_same_after_few_changes_many_and_in_a_fresh_scan(
    how: dict[str, Any], changes: int
) -> None:
    house = House([a_node(f"n{index}", cpu="100") for index in range(60)], plugins=[*SIGNING, _vast(how)])
    pod = a_pod(cpu="1")
    for number in range(3):
        for index in range(changes):
            house.add(
                a_pod(f"x{number}-{index}", on=f"n{(7 * index + number) % 60}", cpu=str(1 + (index + number) % 9))
            )
        decision, evaluation = house.find(pod), house.evaluate(pod)
        assert evaluation.totals is not None
        assert evaluation.scores is not None
        assert evaluation.scores["Vast"].min() >= 0
        assert len(set(evaluation.scores["Vast"].tolist())) > 1
        layer = house.search._layers.get((house.search.ask(info(pod)).signature, None))
        assert layer is not None
        assert layer.ranking.total[evaluation.feasible].tolist() == evaluation.totals.tolist()
        assert decision.node.name in best_names(house, evaluation)


@given(
    totals=st.lists(st.integers(0, 4), min_size=1, max_size=40),
    steps=st.lists(st.tuples(st.lists(st.integers(0, 39), min_size=1, max_size=12), st.integers(-1, 6)), max_size=15),
    flat=st.booleans(),
    part=st.sampled_from([5, 40]),
    most=st.sampled_from([1000, 1 << 40]),
    seed=st.integers(0, 9),
)
def test_the_best_is_one_of_the_greatest_and_each_may_be_chosen(
    totals: list[int], steps: list[tuple[list[int], int]], flat: bool, part: int, most: int, seed: int
) -> None:
    with (
        patch("kubesched.scheduler.core.ranking._FLAT", 1000 if flat else 0),
        patch("kubesched.scheduler.core.ranking._BLOCK", 4),
        patch("kubesched.scheduler.core.ranking._WORTH_A_LIST", 3),
        patch("kubesched.scheduler.core.ranking._PART", part),
    ):
        ranking = Ranking(most)
        ranking.replace(np.array(totals, np.int64))
        for listed, total in [([0], totals[0]), *steps]:
            rows = [row for row in listed if row < len(totals)]
            if len(rows) > 6:
                ranking.put_many(np.array(rows), np.full(len(rows), total))
            else:
                for row in rows:
                    ranking.put(row, total)
            if ranking.total.max() == INFEASIBLE:
                continue
            best = np.flatnonzero(ranking.total == ranking.total.max()).tolist()
            assert ranking.best(random.Random(seed)) == best[pick_index(len(best), seed)]


def pick_index(ties: int, seed: int) -> int:
    """Return the index that a seeded generator picks out of ``ties``."""
    return random.Random(seed).randrange(ties) if ties > 1 else 0


def test_rows_that_are_added_are_infeasible() -> None:
    ranking = Ranking(100)
    ranking.replace(np.array([3, 5], np.int64))
    ranking.grow(4)
    assert ranking.total.tolist() == [3, 5, INFEASIBLE, INFEASIBLE]
    assert ranking.best(random.Random(0)) == 1


def test_ties_are_chosen_with_the_same_chance() -> None:
    rng = random.Random(1)
    found = [pick_uniformly(rng, np.array([7, 2, 7, 7])) for _ in range(3000)]
    assert {row: found.count(row) > 900 for row in set(found)} == {0: True, 2: True, 3: True}


@pytest.mark.parametrize("flat", [True, False])
def test_without_ties_nothing_is_drawn(flat: bool) -> None:
    """Later choices of the same generator are the same whether a layer or a scan answered."""
    rng = random.Random(1)
    before = rng.getstate()
    totals = np.array([3, 5, 4], np.int64)
    assert pick_uniformly(rng, totals) == 1
    with patch("kubesched.scheduler.core.ranking._FLAT", 1000 if flat else 0):
        ranking = Ranking(100)
        ranking.replace(totals)
        for total in (6, 7, 8):
            ranking.put(2, total)
            assert [ranking.best(rng) for _ in range(3)] == [2, 2, 2]
    assert rng.getstate() == before


@pytest.mark.parametrize("seed", range(12))
def test_the_rows_near_the_top_are_those_of_a_sort(seed: int) -> None:
    rng = random.Random(seed)
    rows = (3, 10, 500, 20_000)[seed % 4]
    distinct = rng.choice((2, 5, 50))

    def a_total() -> int:
        return INFEASIBLE if rng.random() < 0.2 else rng.randrange(distinct)

    ranking = Ranking(1000)
    ranking.replace(np.array([0, *(a_total() for _ in range(rows - 1))]))
    for _ in range(60):
        match rng.randrange(20):
            case 0:
                ranking.replace(np.array([a_total() for _ in range(rows)]))
            case 1:
                ranking.put_many(np.array([0, 1, 2]), np.array([a_total() for _ in range(3)]))
            case _:
                ranking.put(rng.randrange(min(rows, 30)), a_total())
        totals = [total for total in ranking.total.tolist() if total != INFEASIBLE]
        if not totals:
            continue
        ranking.best(rng)
        count = rng.choice((1, 3, 3, 12))
        found = ranking.top(count)
        assert len(set(found)) == len(found)
        assert [ranking.total.item(row) for row in found] == sorted(totals, reverse=True)[:count]
