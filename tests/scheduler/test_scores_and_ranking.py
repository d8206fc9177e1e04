"""Bounds of raw scores and the ranking of totals, against counting anew."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.framework.entries import PluginFailedError, ScoreEntry
from kubesched.framework.interface import NOT_SCORED
from kubesched.scheduler.bounded_scores import BoundedScores
from kubesched.scheduler.ranking import INFEASIBLE, Ranking, pick_uniformly


class Scale:
    """Normalises to 0…100; all the same: 7 or 93, by what they are."""

    name = "Scale"
    factor = 1

    def score_rows(self, state: Any, pod: Any, nodes: Any, rows: Any) -> Any:
        raise AssertionError("not asked here")

    def normalize_score(self, *args: Any) -> Any:
        raise AssertionError("not asked here")

    def normalize_within(self, scores: Any, low: int, high: int) -> Any:
        if low == high:
            return np.full(len(scores), 7 if low < 10 else 93)
        return (scores - low) * 100 * self.factor // (high - low)


_raw = st.one_of(st.integers(-3, 12), st.just(NOT_SCORED), st.sampled_from([5000, -5000]))


@given(
    start=st.lists(_raw, min_size=2, max_size=8),
    closed=st.sets(st.integers(0, 7), max_size=4),
    steps=st.lists(st.tuples(st.integers(0, 7), _raw, st.booleans()), max_size=25),
    weight=st.integers(1, 3),
)
def test_bounds_and_final_scores_are_those_of_counting_anew(
    start: list[int], closed: set[int], steps: list[tuple[int, int, bool]], weight: int
) -> None:
    passes = np.array([slot not in closed for slot in range(len(start))])
    raw = np.array([value if ok else NOT_SCORED for value, ok in zip(start, passes, strict=True)], np.int64)
    scores = BoundedScores(ScoreEntry(Scale(), weight), raw.copy(), None if passes.all() else passes)
    for slot, value, ok in [(-1, 0, True), *steps]:
        if slot >= len(raw):
            continue
        if slot >= 0:
            passes[slot], raw[slot] = ok, value if ok else NOT_SCORED
            before = (scores.low, scores.high)
            moved, lost = scores.put(slot, int(raw[slot]), ok)
            if lost:
                scores.measure(passes)
            assert moved or before == (scores.low, scores.high)
        known = raw[passes & (raw != NOT_SCORED)]
        if len(known):
            assert (scores.low, scores.high) == (known.min(), known.max())
        want = Scale().normalize_within(raw, scores.low, scores.high) * weight if len(known) else np.zeros_like(raw)
        want[raw == NOT_SCORED] = 0
        assert scores.final(raw)[passes].tolist() == want[passes].tolist()
        assert [scores.final_one(int(one)) for one in raw[passes]] == want[passes].tolist()
        one_level = len(known) > 0 and known.min() == known.max() and not (raw[passes] == NOT_SCORED).any()
        if one_level and scores.level is not None:
            assert scores.level == want[passes][0]


@pytest.mark.parametrize("spread", [5, 5000])
def test_a_final_score_out_of_range_names_the_plugin(spread: int) -> None:
    plugin = SimpleNamespace(name="Wild", score_rows=None, normalize_within=lambda raw, low, high: raw * 0 + 101)
    scores = BoundedScores(ScoreEntry(plugin, 1), np.array([0, spread]), None)
    with pytest.raises(PluginFailedError, match='plugin "Wild" returns an invalid score 101'):
        scores.final(scores.raw)


@given(
    totals=st.lists(st.integers(0, 4), min_size=1, max_size=40),
    steps=st.lists(st.tuples(st.lists(st.integers(0, 39), min_size=1, max_size=12), st.integers(-1, 6)), max_size=15),
    flat=st.booleans(),
    seed=st.integers(0, 9),
)
def test_the_best_is_one_of_the_greatest_and_each_may_be_chosen(
    totals: list[int], steps: list[tuple[list[int], int]], flat: bool, seed: int
) -> None:
    with (
        patch("kubesched.scheduler.ranking._FLAT", 1000 if flat else 0),
        patch("kubesched.scheduler.ranking._BLOCK", 4),
    ):
        ranking = Ranking()
        ranking.replace(np.array(totals, np.int64))
        for listed, total in [([0], totals[0]), *steps]:
            rows = [row for row in listed if row < len(totals)]
            if len(rows) > 6:
                ranking.put(np.array(rows), total)
                ranking.settle(np.array(rows))
            else:
                for row in rows:
                    ranking.put(row, total)
                ranking.settle(rows)
            if ranking.total.max() == INFEASIBLE:
                continue
            best = np.flatnonzero(ranking.total == ranking.total.max()).tolist()
            assert ranking.best(random.Random(seed)) == best[pick_index(len(best), seed)]


def pick_index(ties: int, seed: int) -> int:
    """What a seeded generator picks of so many."""
    return random.Random(seed).randrange(ties) if ties > 1 else 0


def test_rows_that_are_added_are_infeasible() -> None:
    ranking = Ranking()
    ranking.replace(np.array([3, 5], np.int64))
    ranking.grow(4)
    assert ranking.total.tolist() == [3, 5, INFEASIBLE, INFEASIBLE]
    assert ranking.best(random.Random(0)) == 1


def test_ties_are_chosen_with_the_same_chance() -> None:
    rng = random.Random(1)
    found = [pick_uniformly(rng, np.array([7, 2, 7, 7])) for _ in range(3000)]
    assert {row: found.count(row) > 900 for row in set(found)} == {0: True, 2: True, 3: True}
