"""JSON bodies: keys that come twice are found however the text is laid out, and never where there are none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.api.documents import Document
from kubesched.api.wire import ApiError
from kubesched.cluster.http.bodies import decode_body


def _twice(body: Document) -> list[str]:
    return [found.path for found in body.duplicates]


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
    assert _twice(decode_body(raw, "application/json")) == twice


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
    assert _twice(decode_body(f"{{{','.join(written)}}}".encode(), "application/json")) == [again]


NESTS = [
    ("lists in brackets", "[", 100_000),
    ("objects in braces", "{a: ", 100_000),
    ("lists by dashes", "- ", 100_000),
    ("lists by dashes with wider blanks", "-   ", 100_000),
    ("keys that are lists", "[[a]: ", 50_000),
    ("keys of keys", "? ", 100_000),
    ("keys in braces", "{? ", 100_000),
    ("tagged lists", "!x [", 100_000),
    ("anchored lists", "&a [", 100_000),
    ("lists of objects of lists", "- ? ", 50_000),
]


@pytest.mark.parametrize("before", ["", "a: 1\n---\n", "# a comment\n"], ids=["at once", "second document", "comment"])
@pytest.mark.parametrize(("unit", "count"), [case[1:] for case in NESTS], ids=[case[0] for case in NESTS])
def test_yaml_that_would_exhaust_the_stack_is_refused_before_it_is_composed(unit: str, count: int, before: str) -> None:
    text = before + unit * count
    refusals = "nested more than 200 levels deep|cannot be a key|tag .* is not supported"
    with pytest.raises(ApiError, match=refusals) as refused:
        decode_body(text.encode(), "application/yaml")
    assert (refused.value.code, refused.value.reason) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 201 + "]" * 201, "nested more than 200"),
        ("\n".join(" " * level + "a:" for level in range(300)), "nested more than 200"),
        ("\n".join(" " * level + "-" for level in range(300)), "nested more than 200"),
        ("a: &a [*a]", "contains itself"),
        ("a: &a {b: *a}", "contains itself"),
        ("a: &a {<<: *a}", "contains itself"),
        ("? [a]\n: 1", "line 1: invalid map key"),
        (
            "l0: &l0 [x, x]\n" + "".join(f"l{n + 1}: &l{n + 1} [*l{n}, *l{n}]\n" for n in range(40)),
            "excessive aliasing",
        ),
        (
            "l0: &l0 [x, x]\n" + "".join(f"l{n + 1}: &l{n + 1} [*l{n}, *l{n}]\n" for n in range(16)) + "? *l16\n: 1\n",
            "excessive aliasing|invalid map key",
        ),
        (
            "m0: &m0 {a: 1}\n" + "".join(f"m{n + 1}: &m{n + 1} {{<<: [*m{n}, *m{n}]}}\n" for n in range(40)),
            "excessive aliasing",
        ),
    ],
)
def test_yaml_that_is_too_deep_or_grows_is_refused(text: str, why: str) -> None:
    with pytest.raises(ApiError, match=why) as refused:
        decode_body(text.encode(), "application/apply-patch+yaml")
    assert refused.value.code == 400


def test_yaml_with_many_lists_that_are_not_deep_is_read() -> None:
    text = "a:\n" + "- [x, {y: [z]}]\n" * 3000 + "- - - b\n"
    body = decode_body(text.encode(), "application/yaml")
    assert (len(body.data["a"]), body.data["a"][-1]) == (3001, [["b"]])
    nested = decode_body(("[" * 200 + "]" * 200).encode(), "application/yaml")
    assert nested.data[0][0][0]
