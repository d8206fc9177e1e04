"""Texts that others choose are kept within a bound in bytes, not only in number."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from kubesched.api import cron, quantity, requests, selectors, shared_parts
from kubesched.base import kept, times
from kubesched.cluster.admission import checks, custom, formats
from kubesched.cluster.http import answers, calls, jsonpath
from kubesched.cluster.schema import stored_pods
from kubesched.cluster.store import deletion
from kubesched.scheduler.dra import models

LONG = "x" * 1_000_000
DIGITS = "0" * 1_000_000


def a_raw_pod(number: int) -> bytes:
    metadata = {"name": "p", "annotations": {"a": LONG}, "ownerReferences": [{"uid": str(number), "name": "o"}]}
    condition = {"type": "Ready", "status": "True", "message": f"{number}{LONG}"}
    return msgspec.json.encode({"metadata": metadata, "spec": {}, "status": {"conditions": [condition]}})


#: What keeps results, called with a text of a megabyte that differs by a number.
KEEPERS: dict[str, Callable[[int], object]] = {
    "a label key": lambda number: selectors.is_qualified_name(f"{number}{LONG}"),
    "an extended resource": lambda number: requests.is_extended_resource(f"a/{number}{LONG}"),
    "a scalar resource": lambda number: requests.is_scalar_resource(f"a/{number}{LONG}"),
    "a resource of devices": lambda number: requests.may_be_devices(f"a/{number}{LONG}"),
    "a time": lambda number: times.cached_time(f"{number}{LONG}"),
    "a duration": lambda number: times.parse_duration(f"{DIGITS}{number}s"),
    "a quantity": lambda number: quantity.parse_quantity(f"{DIGITS}{number}"),
    "thousandths": lambda number: quantity.milli_value(f"{DIGITS}{number}"),
    "whole units": lambda number: quantity.int_value(f"{DIGITS}{number}"),
    "a schedule": lambda number: cron.parse_cron(f"{number} * * * * {' ' * 1_000_000}"),
    "a selector of devices": lambda number: formats._device_expression(f"true ||{' ' * 1_000_000}{number}"),
    "a value of a field": lambda number: checks._is_right("Container", "image", f"{number}{LONG}", is_item=False),
    "a path": lambda number: calls.parse_path(f"/api/v1/namespaces/{number}{LONG}"),
    "a header": lambda number: answers.accepted(f"application/json;{number}{LONG}"),
    "a JSON path": lambda number: jsonpath.found_all({}, f".a{number}{LONG}"),
    "a metadata text": lambda number: stored_pods._says_deleted(f"{number}{LONG}".encode()),
    "a metadata text of finalizers": lambda number: deletion._has_finalizers(f"{number}{LONG}".encode()),
    "a version": lambda number: models._version(f"1.0.0-a{number}{LONG}"),
    "labels": lambda number: shared_parts.shared_labels({"a": f"{number}{LONG}"}),
}


@pytest.mark.parametrize("name", KEEPERS)
def test_long_texts_are_not_kept(name: str) -> None:
    call = KEEPERS[name]
    with suppress(Exception):
        call(0)
    tracemalloc.start()
    try:
        for number in range(1, 50):
            with suppress(Exception):  # most are no good; that is remembered, too
                call(number)
        assert tracemalloc.get_traced_memory()[0] < 34_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "call",
    [
        lambda number: stored_pods._once(f"{number}{LONG}".encode()),
        lambda number: shared_parts.decode_pod(a_raw_pod(number)),
        lambda number: custom.custom_schema(b'{"type": "object", "description": "%d%s"}' % (number, LONG.encode())),
    ],
    ids=["sections of pods", "pods", "schemas"],
)
def test_texts_that_may_be_long_are_kept_within_bytes(call: Callable[[int], Any]) -> None:
    tracemalloc.start()
    try:
        for number in range(300):
            call(number)
        assert tracemalloc.get_traced_memory()[0] < 150_000_000
    finally:
        tracemalloc.stop()


def test_results_are_remembered_and_forgotten_together() -> None:
    made: list[str] = []

    @kept.remembered(16 * 100)
    def length(text: str) -> int:
        made.append(text)
        if text == "bad":
            raise ValueError(text)
        return len(text)

    assert [length("a"), length("a"), length("x" * 37), length("x" * 37)] == [1, 1, 37, 37]
    assert made == ["a", "x" * 37, "x" * 37]  # the long one is not kept
    for _ in range(2):
        with pytest.raises(ValueError, match="bad"):
            length("bad")
    assert made[3:] == ["bad", "bad"]
    for number in range(100):
        assert length(f"{number}") == len(f"{number}")
    made.clear()
    assert length("a") == 1
    assert made == ["a"]  # it was forgotten when there was too much


def test_what_is_not_used_between_two_calls_is_forgotten() -> None:
    used, unused, timed = (kept.Kept[str, list[int]](10_000) for _ in range(3))
    timed.is_timed = True
    value = [1]
    for each in (used, unused, timed):
        each.keep("text", value, 4)
    kept.forget(timed_only=True)
    assert (used, unused, timed) == ({"text": value}, {"text": value}, {})
    assert timed.keep("text", [1], 4) is not value
    for _ in range(3):
        kept.forget()
        assert used == unused == timed == {}
        assert used.keep("text", [1], 4) is value
    assert unused.keep("text", [1], 4) is not value
    used.forget()
    used.clear()
    assert used.keep("text", [1], 4) is not value, "clear is for values that are wrong from now on"
