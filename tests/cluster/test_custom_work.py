"""Definitions and custom resources that would take for ever, or all memory: refused before the work is begun."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from kubesched.api.wire import ApiError
from kubesched.cluster.admission.custom import CustomSchema, schema_problems, unknown_fields
from kubesched.cluster.admission.validation import Causes

Schema = dict[str, Any]


def an_object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


def a_list(items: Schema, **more: Any) -> Schema:
    return an_object(list={"type": "array", "items": items, **more})


KEYS = [f"key{number}" for number in range(5_000)]
#: What took minutes, or ended the process for lack of memory: a schema, and an object.
ENDLESS: dict[str, tuple[Schema, Any]] = {
    "alternatives": (
        a_list({"type": "integer", "oneOf": [{"minimum": number} for number in range(20_000)]}),
        {"list": [0] * 50_000},
    ),
    "alternatives for members": (
        a_list(
            {
                **an_object(a={"type": "integer"}),
                "allOf": [{"properties": {"a": {"minimum": number}}} for number in range(5_000)],
            },
        ),
        {"list": [{"a": 1} for _ in range(20_000)]},
    ),
    "a pattern": (an_object(text={"type": "string", "pattern": "(?:a{1,50}){1,50}b"}), {"text": "a" * 1_000_000}),
    "patterns of alternatives": (
        an_object(text={"type": "string", "anyOf": [{"pattern": f"^{'b?' * 50}{number}"} for number in range(1_000)]}),
        {"text": "a" * 100_000},
    ),
    "a default": (
        a_list(an_object(a={"type": "string", "default": "x" * 100_000})),
        {"list": [{} for _ in range(10_000)]},
    ),
    "keys of items": (
        a_list(
            an_object(**{key: {"type": "integer"} for key in KEYS}),
            **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": KEYS},
        ),
        {"list": [{"key1": number} for number in range(10_000)]},
    ),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_an_object_that_takes_too_long_to_check_is_refused_in_words(name: str) -> None:
    schema, data = ENDLESS[name]
    custom = CustomSchema(schema)

    def admit() -> None:
        custom.fill(data)
        custom.check(data, None, Causes())

    with pytest.raises(ApiError, match="checking this object by the schema of its definition takes too long") as caught:
        admit()
    assert caught.value.code == 413


@pytest.mark.parametrize("size", [50_000, 500_000])
def test_errors_that_would_copy_the_object_many_times_are_not_described(size: int) -> None:
    """Each alternative that fails has a copy of the object: 10 GB of these, and the process was ended."""
    alternatives = [{"required": [f"no{number}"]} for number in range(20_000)]
    preserved: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    for schema in ({**preserved, "anyOf": alternatives}, {**preserved, "required": [f"no{n}" for n in range(50_000)]}):
        causes = Causes()
        CustomSchema(schema).check({"a": "x" * size}, None, causes)
        assert len(causes) == 1


def test_an_object_of_a_usual_schema_may_be_large() -> None:
    port = {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}
    name = {"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"}
    custom = CustomSchema(a_list(an_object(name=name, port=port, protocol={"type": "string", "default": "TCP"})))
    data: Any = {"list": [{"name": f"backend-{number}.example", "port": number} for number in range(30_000)]}
    custom.fill(data)
    causes = Causes()
    custom.check(data, None, causes)
    assert not causes
    assert data["list"][-1]["protocol"] == "TCP"
    data["list"][20_000]["name"] = "Not a name"
    custom.check(data, None, causes)
    assert [path for path, *_ in causes] == ["list[20000].name"]


@pytest.mark.parametrize(
    ("what", "schema"),
    [
        ("patterns", an_object(**{f"a{n}": {"type": "string", "pattern": rf"(\w{{1000}}){n}"} for n in range(3_000)})),
        (
            "expressions",
            an_object(
                **{
                    f"a{n}": {"type": "string", "x-kubernetes-validations": [{"rule": f"self.size() > {n}"}]}
                    for n in range(9_000)
                }
            ),
        ),
        ("parts that have defaults", an_object(**{key: {"type": "string", "default": ""} for key in KEYS})),
    ],
)
def test_a_definition_that_takes_too_long_to_be_made_ready_is_refused(what: str, schema: Schema) -> None:
    if what == "parts that have defaults":
        for _ in range(20):  # each of these defaults is checked by everything below
            schema = an_object(inner={**schema, "default": {}})
    with pytest.raises(ApiError, match=f"Request entity too large: the {what}"):
        schema_problems(schema, "spec", Causes())


def test_the_paths_of_unknown_fields_are_made_when_they_are_shown() -> None:
    """Below a key of 1 MB each had another MB."""
    schema = {"type": "object", "additionalProperties": {"type": "object", "properties": {}}}
    key = "k" * 1_000_000
    data: Any = {key: {f"u{number}": {} for number in range(10_000)}}
    tracemalloc.start()
    try:
        found = list(unknown_fields(schema, data))
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()
    assert len(found) == 10_000
    assert str(found[7][2]) == f"{key}.u7"
