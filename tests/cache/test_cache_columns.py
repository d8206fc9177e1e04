"""Encoded columns say what the strings say, and hand codes back when their last user goes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from builders import a_node, a_taint
from kubesched.api.selectors import Operator, Requirement
from kubesched.api.types import Taint
from kubesched.scheduler.cache import Cache
from kubesched.scheduler.nodes.columns import ABSENT, LabelColumn, LabelColumns, TaintSets

ROWS = 6
VALUES = ["", "a", "b", "5", "17"]
_requirements = [
    *(Requirement("k", operator, frozenset(values)) for operator in (Operator.IN, Operator.NOT_IN) for values in (["a"], ["b", "5"], ["gone"], [""])),
    Requirement("k", Operator.EXISTS),
    Requirement("k", Operator.DOES_NOT_EXIST),
    Requirement("k", Operator.GT, frozenset(["5"]), 5),
    Requirement("k", Operator.LT, frozenset(["17"]), 17),
]  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, ROWS - 1), st.none() | st.sampled_from(VALUES)), max_size=25))
def test_a_label_column_answers_as_the_labels_do(writes: list[tuple[int, str | None]]) -> None:
    column = LabelColumn(ROWS)
    model: list[str | None] = [None] * ROWS
    rows = np.arange(ROWS)
    for row, value in writes:
        column.set(row, value)
        model[row] = value
    labels: list[dict[str, str]] = [{} if value is None else {"k": value} for value in model]
    for requirement in _requirements:
        got = column.lookup(requirement)[column.codes[rows]]
        assert got.tolist() == [requirement.matches(found) for found in labels], requirement
    assert column.at(rows).tolist() == column.codes.tolist()
    assert set(column.code_of) == {value for value in model if value is not None}
    column.grow(2 * ROWS)
    assert column.codes[ROWS:].tolist() == [ABSENT] * ROWS


_sets: st.SearchStrategy[tuple[Taint, ...]] = st.sampled_from([(), (a_taint("a:NoSchedule"),), (a_taint("b:NoSchedule"),), (a_taint("a:NoSchedule"), a_taint("b:NoSchedule"))])  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, ROWS - 1), _sets), max_size=25))
def test_taint_sets_are_gathered_as_they_were_written(writes: list[tuple[int, tuple[Taint, ...]]]) -> None:
    table = TaintSets(ROWS)
    model: list[tuple[Taint, ...]] = [()] * ROWS
    for row, taints in writes:
        table.set(row, taints)
        model[row] = taints
    assert [table.sets[code] for code in table.codes.tolist()] == model
    assert table.gather(len, np.arange(ROWS)).tolist() == [len(taints) for taints in model]


def test_codes_remembered_for_an_array_of_rows_follow_the_column() -> None:
    column = LabelColumn(4)
    rows = np.array([0, 2], np.int32)
    rows.flags.writeable = False
    column.set(0, "a")
    first = column.at(rows)
    assert column.at(rows) is first
    column.set(2, "b")
    assert column.at(rows).tolist() == [column.code_of["a"], column.code_of["b"]]


def test_a_churning_cluster_does_not_make_columns_grow() -> None:
    cache = Cache()
    column = cache.table.labels.column("name")
    for index in range(300):
        cache.set_node(a_node(f"n{index}", labels={"name": f"n{index}"}, taints=[a_taint(f"k{index}:NoSchedule")]))
        if index >= 3:
            cache.remove_node(f"n{index - 3}")
    assert len(column.values) <= 4
    assert len(cache.table.taints.sets) <= 5
    assert cache.table.capacity == 64


def test_a_column_that_was_dropped_is_made_again_when_asked_for() -> None:
    cache = Cache()
    cache.set_node(a_node("n", labels={f"k{index}": str(index) for index in range(300)}))
    rows = cache.table.order()
    for index in (*range(300), *range(300)):
        requirement = Requirement(f"k{index}", Operator.IN, frozenset([str(index)]))
        assert cache.table.labels.matches([requirement], rows).tolist() == [True]
    assert len(list(cache.table.labels.items())) <= 256


def test_keys_that_no_node_has_cost_one_look_at_the_nodes() -> None:
    labels = {0: {"a": "1"}, 1: {"b": "2"}}
    scans = 0

    def scan() -> Iterator[tuple[int, dict[str, str]]]:
        nonlocal scans
        scans += 1
        return iter(labels.items())

    columns = LabelColumns(4, scan)
    for number in range(2_000):
        assert columns.column(f"k{number}").codes.tolist() == [ABSENT] * 4
    assert scans == 1
    assert columns.column("b").codes.tolist() == [ABSENT, 0, ABSENT, ABSENT]
    # Keys come and go with nodes, many more than nodes have at once.
    for number in range(2_000):
        labels[2] = {f"k{number}": "v"}
        columns.set_row(2, labels[2])
        assert columns.column(f"k{number}").codes.tolist() == [ABSENT, ABSENT, 0, ABSENT]
    assert scans < 2_000 + 20
    assert columns.column("k7").codes.tolist() == [ABSENT] * 4
