"""Messages taken apart: recorded ones, generated ones, cut ones and hostile ones."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.explain.messages import MOST_CHARACTERS, Told, read_message
from kubesched.explain.reasons import could_begin, find, find_all, sections
from kubesched.scheduler.framework.fit_error import fit_error_text
from recorded_kit import RecordedPod, recorded

ROWS = [row for section in sections() for row in section.row]
#: Reasons with every kind of awkward text.
AWKWARD = [
    "Insufficient example.com/gpu-2",
    "node(s) had taint {dedicated: a, 7}, that the pod didn't tolerate",
    "node(s) didn't satisfy plugin(s) [NodeAffinity TaintToleration]",
    "node(s) didn't match pod topology spread constraints (missing required label)",
    "claim default/c: number of requested devices 40 exceeds the claim limit of 32",
    "resource claim default/c, request r: has subrequests, but the DRAPrioritizedList feature is disabled",
    'all pods in a single pod group should have the same .spec.schedulerName set, got: "a" and "b"',
]
PLAIN = [row.text for row in ROWS if "{" not in row.text]
COUNTED = [text for text in PLAIN if not text.endswith(".")]
#: Names, as of resources.
WORDS = st.from_regex(r"[a-z0-9]([a-z0-9./-]{0,28}[a-z0-9])?", fullmatch=True)
REASONS = st.one_of(
    st.sampled_from(COUNTED), st.sampled_from(AWKWARD), WORDS.map(lambda word: f"Insufficient {word}"), WORDS
)
#: Messages of PostFilter plugins, each with the parts that are read from it.
AFTER = [
    ("", []),
    ("no new claims to deallocate", ["no new claims to deallocate"]),
    ("not found", ["not found"]),
    ("preemption: not eligible due to preemptionPolicy=Never.", ["not eligible due to preemptionPolicy=Never."]),
    ("still not schedulable, preemption: no candidate node for preemption",
     ["still not schedulable", "no candidate node for preemption"]),
]  # fmt: skip


def counts(told: list[Told], stage: str) -> dict[str, int]:
    return {one.text: one.nodes for one in told if one.stage == stage and one.nodes is not None}


@given(
    st.dictionaries(REASONS, st.integers(1, 100_000), min_size=1, max_size=8),
    st.dictionaries(REASONS, st.integers(1, 100_000), max_size=4),
    st.sampled_from(AFTER),
)
def test_a_message_of_any_reasons_is_read_as_it_was_written(
    reasons: dict[str, int], nested: dict[str, int], after: tuple[str, list[str]]
) -> None:
    text, said = fit_error_text(100_000, reasons), after[1]
    if nested:
        text += f" no new claims to deallocate, preemption: {fit_error_text(100_000, nested)}"
        said = ["no new claims to deallocate"]
    elif after[0]:
        text += f" {after[0]}"
    message = read_message(text)
    assert message.nodes == 100_000
    assert not message.is_cut
    assert counts(message.reasons, "nodes") == reasons
    assert counts(message.reasons, "preemption") == nested
    assert [one.text for one in message.reasons if one.nodes is None] == said
    for one in message.reasons:
        assert ([one.row] if one.row else []) == [found.row for found in find_all(one.text)]


@given(st.dictionaries(REASONS, st.integers(1, 5000), min_size=1, max_size=12), st.integers(40, 1020))
def test_a_cut_message_loses_its_last_reason_alone(reasons: dict[str, int], length: int) -> None:
    text = fit_error_text(5000, reasons)
    if len(text) <= length:
        return
    message = read_message(f"{text[:length]} ...")
    assert message.is_cut
    whole = [one for one in message.reasons if not one.is_cut]
    assert all(reasons[one.text] == one.nodes for one in whole)
    expected = read_message(text).reasons
    assert [one.text for one in whole] == [one.text for one in expected[: len(whole)]]
    assert len(message.reasons) - len(whole) <= 1


def test_a_message_cut_after_its_list_is_whole_so_far() -> None:
    one = read_message("0/9 nodes are available: 9 Too many pods. ...").reasons
    assert [(told.text, told.is_cut) for told in one] == [("Too many pods", False)]
    name = read_message("0/9 nodes are available: 9 Insufficient example. ...").reasons
    assert [(told.text, told.is_cut) for told in name] == [("Insufficient example", True)]


def test_the_end_of_a_cut_message_is_recognised_if_one_reason_begins_so() -> None:
    message = read_message("0/9 nodes are available: 2 Insufficient cpu, 7 node(s) had untole ...")
    assert [(one.nodes, one.is_cut) for one in message.reasons] == [(2, False), (7, True)]
    assert message.reasons[1].row is find("node(s) had untolerated taint(s)").row  # type: ignore[union-attr]
    open_ = read_message("0/9 nodes are available: 2 Insufficient cpu, 7 node(s) didn't match ...").reasons[1]
    assert len(could_begin("node(s) didn't match")) > 3
    assert (open_.row, open_.is_cut) == (None, True)


def _sees_all_nodes(pod: RecordedPod) -> bool:
    return pod.pre_filter is not None and pod.pre_filter.code == "Success" and pod.pre_filter.nodes is None


def test_every_recorded_message_is_read_and_agrees_with_the_recorded_verdicts() -> None:
    """Golden files hold each node's reasons beside the message, so that counts can be compared with the truth."""
    texts, compared = set(), 0
    for pod in recorded():
        if not pod.message or pod.message in texts:
            continue
        texts.add(pod.message)
        message = read_message(pod.message)
        unknown = [one.text for one in message.reasons if one.row is None]
        assert not unknown, f"{pod.message!r}: {unknown}"
        if pod.outcome == "unschedulable" and pod.filters and _sees_all_nodes(pod):
            wanted = Counter(reason for status in pod.filters.values() for reason in set(status.reasons))
            assert counts(message.reasons, "nodes") == wanted, pod.message
            compared += 1
    assert len(texts) > 800
    assert compared > 300


def test_reasons_within_errors_are_read_one_by_one() -> None:
    text = (
        'failed to schedule other pod from a pod group: running Permit plugin "GangScheduling": '
        'failed to get podGroup default/g: podgroup.scheduling.k8s.io "g" not found'
    )
    assert [one.text for one in read_message(text).reasons] == [
        "failed to schedule other pod from a pod group",
        'running Permit plugin "GangScheduling"',
        'failed to get podGroup default/g: podgroup.scheduling.k8s.io "g" not found',
    ]


def test_the_columns_before_a_message_are_left_out() -> None:
    line = "  Warning  FailedScheduling  5m (x3 over 9m)  default-scheduler  0/4 nodes are available: 4 Too many pods."
    assert [(one.nodes, one.text) for one in read_message(line).reasons] == [(4, "Too many pods")]


def test_a_number_above_that_of_the_nodes_is_part_of_a_reason() -> None:
    told = read_message("0/4 nodes are available: 1 wants a, 40 b, 3 sleeps.").reasons
    assert [(one.nodes, one.text) for one in told] == [(1, "wants a, 40 b"), (3, "sleeps")]


HOSTILE = {
    "one million brackets": "[" * 1_000_000,
    "many counts": "0/9 nodes are available: " + ", ".join(["1 a"] * 200_000),
    "many lists within lists": "0/1 nodes are available: 1 x. preemption: " * 20_000,
    "many errors within errors": "waiting on permit for pod: " * 40_000,
    "half of a pattern": "claim " * 170_000,
    "pieces of a pattern": "0/9 nodes are available: " + "1 claim a, request b, " * 50_000,
    "periods": "0/9 nodes are available: 1 a" + ". " * 500_000,
    "digits": "0/9 nodes are available: " + "9" * 1_000_000,
    "braces": "node(s) had taint {" + "{}, " * 250_000,
    "escapes": "0/9 nodes are available: 1 \x1b[31m\x00. " * 30_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_text_is_read_within_bounds(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = 0

    def counting(piece: str) -> Any:
        nonlocal looked_at
        looked_at += len(piece)
        return find(piece)

    monkeypatch.setattr("kubesched.explain.messages.find", counting)
    message = read_message(text)
    assert message.is_cut
    assert len(message.reasons) <= 4096
    assert len(json.dumps([one.text for one in message.reasons])) < 8 * MOST_CHARACTERS
    assert looked_at < 40 * MOST_CHARACTERS
