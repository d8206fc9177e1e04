"""JSON equality: booleans are no numbers, numbers compare by value, and the order of members does not matter."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.api.equality import json_key, same_json

CASES: list[tuple[Any, Any, bool]] = [
    (1, True, False),
    (0, False, False),
    (1.0, True, False),
    (1, 1.0, True),
    (10**20, 1e20, True),
    (2**53 + 1, float(2**53), False),
    (None, False, False),
    ("1", 1, False),
    ("", None, False),
    ([], {}, False),
    ([1], [True], False),
    ({"a": [{"b": 1}]}, {"a": [{"b": True}]}, False),
    ({"a": 1, "b": True}, {"b": True, "a": 1}, True),
    ({"a": 1, "b": True}, {"b": 1, "a": True}, False),
    ({"a": 1}, {"a": 1.0}, True),
    ({"a": 1}, {"a": 1, "b": None}, False),
    ([1, 2], [2, 1], False),
]


@pytest.mark.parametrize(("left", "right", "same"), CASES)
def test_same_json(left: Any, right: Any, same: bool) -> None:
    assert same_json(left, right) is same
    assert same_json(right, left) is same
    assert (json_key(left) == json_key(right)) is same


# Few different values, so that pairs are often equal for Python, and often nearly so.
LEAVES = st.sampled_from([None, True, False, 0, 1, 0.0, 1.0, "", "1", "a"])
DATA = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


def canonical(value: Any) -> str:
    """The text of a value: members sorted, whole numbers without a fraction."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{canonical(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    return json.dumps(int(value) if isinstance(value, float) and value.is_integer() else value)


@given(DATA, DATA)
def test_same_json_is_equality_of_canonical_texts(left: Any, right: Any) -> None:
    assert same_json(left, right) is (canonical(left) == canonical(right))
    assert (json_key(left) == json_key(right)) is same_json(left, right)


@given(DATA, st.randoms(use_true_random=False))
def test_neither_encoding_nor_the_order_of_members_changes_a_value(data: Any, random: Any) -> None:
    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            keys = sorted(value)
            random.shuffle(keys)
            return {key: shuffled(value[key]) for key in keys}
        return [shuffled(item) for item in value] if isinstance(value, list) else value

    assert same_json(data, shuffled(data))
    assert same_json(data, msgspec.json.decode(msgspec.json.encode(data)))


@given(DATA)
def test_a_boolean_replaced_by_its_number_is_another_value(data: Any) -> None:
    def numbered(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: numbered(item) for key, item in value.items()}
        if isinstance(value, list):
            return [numbered(item) for item in value]
        return int(value) if isinstance(value, bool) else value

    has_booleans = "true" in canonical(data) or "false" in canonical(data)
    assert same_json(data, numbered(data)) is not has_booleans
