"""One reader for YAML and JSON: places, duplicate keys, limits, aliases."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.api.yamltext import (
    MAX_DEPTH,
    TextError,
    parse_documents,
    parse_json,
    parse_single,
    read_documents,
    read_single,
    to_yaml,
)

TEXT = """\
kind: Pod
spec:
  containers:
  - name: a
  - name: b
    ports: {}
---
- 1
"""


def test_lines_of_values_are_known_by_path() -> None:
    first, second = parse_documents(TEXT)
    assert first.line_of() == 1
    assert first.line_of("spec", "containers", 1, "ports") == 6
    assert first.line_of("spec", "containers", 7) == 4, "the deepest that exists"
    assert (second.number, second.start, second.line_of(0)) == (2, 7, 8)


def test_duplicate_keys_are_found_with_line_and_path_and_refused_in_files() -> None:
    text = "a:\n- b: 1\n  b: 2\n"
    (found,) = parse_single(text).duplicates
    assert (found.line, found.key, found.path) == (3, "b", "a[0].b")
    with pytest.raises(TextError) as refused:
        read_single(text, "file")
    assert refused.value.in_file("f.yaml") == "f.yaml: document 1, line 3: key 'b' is given twice; keep one of them"
    (found,) = parse_json(b'{"a":[{"b":1,"b":2}]}').duplicates
    assert (found.line, found.path) == (0, "a[0].b")
    with pytest.raises(TextError) as refused:
        list(read_documents('{"b":1,"b":2}', "f.json"))
    assert refused.value.in_file("f.json") == "f.json: key 'b' is given twice; keep one of them"


def test_the_place_of_a_mistake_names_the_document() -> None:
    with pytest.raises(TextError) as refused:
        list(parse_documents("a: 1\n---\nb: [\n"))
    assert refused.value.in_file("f.yaml").startswith("f.yaml: document 2, line ")
    assert ": not valid YAML: " in refused.value.in_file("f.yaml")
    with pytest.raises(TextError) as refused:
        parse_json(b'{"a":\n x}')
    assert refused.value.in_file("f.json") == (
        "f.json: not valid JSON: JSON is malformed: invalid character (byte 7), line 2, column 2"
    )
    with pytest.raises(TextError) as refused:
        parse_json(b'{"a":\n [1,\n')
    assert refused.value.in_file("f.json") == "f.json: not valid JSON: Input data was truncated, line 2, column 5"


def test_every_alias_is_a_value_of_its_own() -> None:
    data = read_single("a: &x {k: [1]}\nb: *x\nc: {<<: *x}\n", "file")
    data["b"]["k"].append(2)
    assert data == {"a": {"k": [1]}, "b": {"k": [1, 2]}, "c": {"k": [1]}}


@pytest.mark.parametrize(("open_", "close"), [("[", "]"), ("{a: ", "}")])
def test_yaml_may_nest_to_the_limit_and_no_deeper_by_aliases_too(open_: str, close: str) -> None:
    def nested(levels: int) -> str:
        return open_ * levels + close * levels

    assert parse_single(nested(MAX_DEPTH)).data
    below = f"a: &x {nested(MAX_DEPTH - 2)}\nb: "
    assert parse_single(below + "[*x]").data
    for text in (nested(MAX_DEPTH + 1), below + "[[*x]]"):
        with pytest.raises(TextError, match=f"nested more than {MAX_DEPTH} levels deep"):
            parse_single(text)


def test_json_may_nest_to_the_limit_and_no_deeper() -> None:
    assert parse_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH).data
    for levels in (MAX_DEPTH + 1, 100_000):
        with pytest.raises(TextError, match=f"nested more than {MAX_DEPTH} levels deep"):
            parse_json(b"[" * levels + b"]" * levels)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abn1~ :-", max_size=3), inner, max_size=3),
)


@given(values)
def test_what_is_written_reads_the_same(data: Any) -> None:
    assert read_single(to_yaml(data), "file") == data
