"""JSON bodies: keys that come twice are found however the text is laid out, and never where there are none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.cluster.http.bodies import decode_body

CASES = [
    ("twice, tightly written", b'{"a":1,"a":2}', ["a"]),
    ("twice, with blanks before the colon", b'{"a" :1,"a" :2}', ["a"]),
    ("twice, a line end before one colon", b'{"a"\n:1,"a":2}', ["a"]),
    ("twice, deep inside a list", b'{"x":[{"b":{"c":1,"c":2}}]}', ["x[0].b.c"]),
    ("twice, and a text that looks like a key", b'{"a":"\\":","a":2}', ["a"]),
    ("a text that looks like a key", b'{"a":"\\":","b":2}', []),
    ("colons in texts", b'{"image":"nginx:1.27","at":"10:00"}', []),
    ("the same key in two objects", b'{"a":{"n":1},"b":{"n":1}}', []),
    ("no object", b"[1,2]", []),
]


@pytest.mark.parametrize(("raw", "twice"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_keys_that_come_twice(raw: bytes, twice: list[str]) -> None:
    assert decode_body(raw, "application/json").duplicates == twice


TEXTS = st.text(alphabet='ab":\\ \n', max_size=4)
DATA = st.recursive(
    TEXTS | st.integers(0, 9) | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(DATA, st.sampled_from([(",", ":"), (", ", ": "), (",", " :"), (",\n", "\t:\n")]))
def test_no_key_comes_twice_in_what_a_dict_was(data: Any, separators: tuple[str, str]) -> None:
    body = decode_body(json.dumps(data, separators=separators).encode(), "application/json")
    assert (body.data, body.duplicates) == (data, [])


@given(st.dictionaries(TEXTS, TEXTS, min_size=1, max_size=4), st.sampled_from([":", ": ", " :", "\n:"]), st.data())
def test_a_pair_written_twice_is_found(pairs: dict[str, str], colon: str, data: st.DataObject) -> None:
    again = data.draw(st.sampled_from(sorted(pairs)))
    written = [f"{json.dumps(key)}{colon}{json.dumps(value)}" for key, value in (*pairs.items(), (again, "x"))]
    assert decode_body(f"{{{','.join(written)}}}".encode(), "application/json").duplicates == [again]
