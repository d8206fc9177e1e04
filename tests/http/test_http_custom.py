"""Custom resources are pruned, defaulted and checked by the schema of their definition, as by an API server of 1.36."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from http_world import APPLY, JSON_PATCH, MERGE, Api, a_definition, run, served

from kubesched.api.equality import same_json

Data = dict[str, Any]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"


def obj(**properties: Any) -> Data:
    return {"type": "object", "properties": properties}


SPEC: Data = {
    **obj(
        size={"type": "integer", "minimum": 1, "maximum": 9, "default": 3},
        least={"type": "integer", "minimum": 0, "exclusiveMinimum": True},
        even={"type": "integer", "multipleOf": 2},
        ratio={"type": "number"},
        mode={"type": "string", "enum": ["fast", "slow"]},
        name={"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 5},
        until={"type": "string", "format": "date-time"},
        port={"x-kubernetes-int-or-string": True},
        tags={"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set", "maxItems": 2},
        parts={
            "type": "array",
            "minItems": 1,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["id"],
            "items": {
                **obj(id={"type": "string"}, n={"type": "integer", "default": 7}),
                "required": ["id"],
                "x-kubernetes-validations": [
                    {"rule": "!has(oldSelf.n) || self.n >= oldSelf.n", "message": "n cannot shrink", "fieldPath": ".n"}
                ],
            },
        },
        limits={"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 2},
        either={**obj(a={"type": "string"}, b={"type": "string"}), "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        free={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        plan=obj(steps={"type": "integer", "default": 2}),
        kept={"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "is immutable"}]},
        **{"two-words": {"type": "string"}},
    ),
    "required": ["mode"],
    "x-kubernetes-validations": [
        {"rule": "!has(self.least) || self.least <= self.size", "message": "least must not exceed size"},
        {"rule": "!has(self.ratio) || self.ratio < 0.5", "messageExpression": "'ratio ' + string(self.ratio) + ' is too large'"},
        {"rule": "!has(self.until) || self.until < timestamp('2030-01-01T00:00:00Z')"},
        {"rule": "!has(self.two__dash__words) || self.two__dash__words != 'no'", "reason": "FieldValueForbidden", "message": "no"},
    ],
}  # fmt: skip


def definition(spec: Data | None = None, **root: Any) -> Data:
    schema = {**obj(spec=spec if spec is not None else SPEC, status=obj(done={"type": "integer"})), **root}
    return a_definition(schema={"openAPIV3Schema": schema}, subresources={"status": {}})


def widget(**spec: Any) -> Data:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w"},
        "spec": {"mode": "fast", **spec},
    }


def with_widgets(main: Callable[[Api], Awaitable[None]], **definition_: Any) -> None:
    async def play() -> None:
        async with served() as api:
            answer = await api.post(DEFINITIONS, definition(**definition_))
            assert answer.status == 201, answer.raw
            await main(api)

    run(play())


REFUSED: list[tuple[Data, str]] = [
    ({"size": "x"}, 'spec.size: Invalid value: "string": spec.size in body must be of type integer: "string"'),
    ({"size": 0}, "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1"),
    ({"size": 10}, "spec.size: Invalid value: 10: spec.size in body should be less than or equal to 9"),
    ({"least": 0}, "spec.least: Invalid value: 0: spec.least in body should be greater than 0"),
    ({"even": 3}, "spec.even: Invalid value: 3: spec.even in body should be a multiple of 2"),
    ({"mode": "odd"}, 'spec.mode: Unsupported value: "odd": supported values: "fast", "slow"'),
    ({"mode": None}, "spec.mode: Required value"),
    ({"name": "A1"}, "spec.name: Invalid value: \"A1\": spec.name in body should match '^[a-z]+$'"),
    ({"name": "a"}, 'spec.name: Invalid value: "a": spec.name in body should be at least 2 chars long'),
    ({"name": "abcdef"}, "spec.name: Too long: may not be more than 5 bytes"),
    ({"until": "soon"}, 'spec.until: Invalid value: "soon": spec.until in body must be of type date-time: "soon"'),
    ({"port": True}, 'spec.port: Invalid value: "boolean": spec.port in body must be of type integer'),
    ({"tags": ["a", "a"]}, 'spec.tags[1]: Duplicate value: "a"'),
    ({"tags": ["a", "b", "c"]}, "spec.tags: Too many: 3: must have at most 2 items"),
    ({"parts": []}, "spec.parts: Invalid value: 0: spec.parts in body should have at least 1 items"),
    ({"parts": [{"n": 1}]}, "spec.parts[0].id: Required value"),
    ({"parts": [{"id": "a"}, {"id": "a"}]}, 'spec.parts[1]: Duplicate value: {"id":"a"}'),
    ({"limits": {"a": "b"}}, 'spec.limits.a: Invalid value: "string": spec.limits.a in body must be of type integer'),
    ({"either": {}}, '"spec.either" must validate one and only one schema (oneOf). Found none valid'),
    ({"least": 5}, 'spec: Invalid value: "object": least must not exceed size'),
    ({"ratio": 1}, 'spec: Invalid value: "object": ratio 1 is too large'),
    (
        {"until": "2031-01-01T00:00:00Z"},
        'spec: Invalid value: "object": failed rule: !has(self.until) || self.until < timestamp',
    ),
    ({"two-words": "no"}, "spec: Forbidden: no"),
]


def test_values_are_refused_with_the_words_of_a_real_server() -> None:
    async def main(api: Api) -> None:
        for spec, text in REFUSED:
            answer = await api.post(WIDGETS, widget(**spec), dryRun="All")
            assert (answer.status, answer.reason) == (422, "Invalid"), (spec, answer.raw)
            assert text in answer.message, (spec, answer.message)
        fine = {"size": 9, "least": 1, "even": 4, "ratio": 0.25, "name": "abc", "until": "2029-01-01T00:00:00Z"}
        more = {"port": "http", "tags": ["a", "b"], "parts": [{"id": "a"}], "limits": {"a": 1}, "either": {"a": "x"}}
        assert (await api.post(WIDGETS, widget(**fine, **more))).status == 201

    with_widgets(main)


def test_unknown_fields_are_pruned_and_absent_ones_get_their_defaults() -> None:
    async def main(api: Api) -> None:
        body = widget(sise=1, parts=[{"id": "a", "colour": "red"}], plan={}, free={"any": {"thing": 1}})
        strict = await api.post(WIDGETS, body, fieldValidation="Strict")
        assert (strict.status, 'unknown field "spec.sise"' in strict.message) == (400, True)
        answer = await api.post(WIDGETS, {**body, "colour": "blue"}, fieldValidation="Ignore")
        want = {
            "mode": "fast",
            "size": 3,
            "parts": [{"id": "a", "n": 7}],
            "plan": {"steps": 2},
            "free": {"any": {"thing": 1}},
        }
        assert answer.data["spec"] == want
        assert "colour" not in answer.data
        patched = await api.patch(f"{WIDGETS}/w", {"spec": {"sise": 3, "plan": None}}, type=MERGE)
        assert patched.data["spec"] == {key: value for key, value in want.items() if key != "plan"}
        applied = await api.apply(f"{WIDGETS}/w", {**widget(sise=1, size=4), "metadata": {}}, force="true")
        assert (applied.status, ".spec.sise: field not declared in schema" in applied.message) == (500, True)

    with_widgets(main)


def test_nulls_stay_where_a_schema_allows_them_and_count_as_absent_elsewhere() -> None:
    nullable = {"type": "string", "nullable": True}
    spec = obj(
        until={**nullable, "default": "x"},
        parts={"type": "object", "additionalProperties": nullable},
        size={"type": "integer", "default": 3},
        name={"type": "string"},
        free={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    )

    async def main(api: Api) -> None:
        body = {**widget(), "metadata": {"name": "w", "labels": None, "annotations": {"a": "b"}}}
        body["spec"] = {"until": None, "parts": {"a": None}, "size": None, "name": None, "free": {"any": None}}
        want: Data = {"until": None, "parts": {"a": None}, "size": 3, "free": {"any": None}}
        created = await api.post(WIDGETS, body)
        assert (created.status, created.data["spec"]) == (201, want), created.raw
        assert "labels" not in created.data["metadata"]
        read = (await api.get(f"{WIDGETS}/w")).data
        assert read["spec"] == want
        read["spec"] |= {"name": "abc", "size": None}
        assert (await api("PUT", f"{WIDGETS}/w", read)).data["spec"] == {**want, "name": "abc"}
        patched = await api.patch(f"{WIDGETS}/w", {"spec": {"until": None, "name": None}}, type=MERGE)
        assert patched.data["spec"] == {**want, "until": "x"}  # a merge patch removes, and the default comes back

    with_widgets(main, spec=spec)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ({"jsonPath": "spec.size"}, 'jsonPath: Invalid value: "spec.size": must be a simple json path starting with .'),
        ({"jsonPath": ""}, "jsonPath: Required value"),
        ({"type": "text"}, 'type: Invalid value: "text": must be one of boolean,date,integer,number,string'),
        ({"format": "hex"}, 'format: Invalid value: "hex": must be one of byte,date,'),
        ({"name": ""}, "name: Required value"),
    ],
)
def test_a_definition_with_columns_that_cannot_be_shown_is_refused(column: Data, text: str) -> None:
    async def main() -> None:
        async with served() as api:
            columns = [{"name": "Size", "type": "integer", "jsonPath": ".spec.size", **column}]
            answer = await api.post(DEFINITIONS, a_definition(additionalPrinterColumns=columns))
            assert (answer.status, answer.reason) == (422, "Invalid")
            assert f"spec.versions[0].additionalPrinterColumns[0].{text}" in answer.message

    run(main())


def test_rules_about_changes_see_the_last_state() -> None:
    async def main(api: Api) -> None:
        parts = [{"id": "a", "n": 5}, {"id": "b", "n": 5}]
        assert (await api.post(WIDGETS, widget(kept="x", parts=parts))).status == 201
        for bad, text in (
            ({"kept": "y"}, 'spec.kept: Invalid value: "string": is immutable'),
            ({"parts": [{"id": "b", "n": 4}, *parts[:1]]}, 'spec.parts[0].n: Invalid value: "object": n cannot shrink'),
        ):
            answer = await api.patch(f"{WIDGETS}/w", {"spec": bad}, type=MERGE)
            assert (answer.status, text in answer.message) == (422, True), answer.raw
        change: Data = {"kept": "x", "parts": [{"id": "b", "n": 6}, {"id": "c", "n": 0}, *parts[:1]]}
        assert (await api.patch(f"{WIDGETS}/w", {"spec": change}, type=MERGE)).status == 200
        assert (await api.patch(f"{WIDGETS}/w/status", {"status": {"done": "x"}}, type=MERGE)).status == 422
        assert (await api.patch(f"{WIDGETS}/w/status", {"status": {"done": 1}}, type=MERGE)).status == 200

    with_widgets(main)


def test_an_update_names_the_version_that_it_replaces() -> None:
    async def main(api: Api) -> None:
        created = (await api.post(WIDGETS, widget(size=5))).data
        for version in ({}, {"resourceVersion": "0"}):
            answer = await api.put(f"{WIDGETS}/w", {**created, "metadata": {"name": "w", **version}})
            text = "metadata.resourceVersion: Invalid value: 0x0: must be specified for an update"
            assert (answer.status, text in answer.message) == (422, True), answer.raw
        assert (await api.put(f"{WIDGETS}/w", created)).status == 200
        assert (await api.patch(f"{WIDGETS}/w", {"spec": {"size": 6}}, type=MERGE)).status == 200

    with_widgets(main)


def test_objects_read_with_the_defaults_that_their_definition_got_later() -> None:
    async def main(api: Api) -> None:
        made = (await api.post(WIDGETS, widget(size=5, name="abc"))).data
        assert "least" not in made["spec"]
        path = f"{DEFINITIONS}/widgets.example.com"
        fields = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties"
        change = [
            {"op": "add", "path": f"{fields}/least/default", "value": 3},
            {"op": "remove", "path": f"{fields}/name"},
        ]
        assert (await api.patch(path, change, type=JSON_PATCH)).status == 200
        for _ in range(100):
            read = (await api.get(f"{WIDGETS}/w")).data
            if "least" in read["spec"]:
                break
        assert (read["spec"]["least"], "name" in read["spec"]) == (3, False)
        assert read["metadata"] == made["metadata"], "nobody has written the object"
        listed = (await api.get(WIDGETS)).data["items"]
        assert [one["spec"]["least"] for one in listed] == [3]

    with_widgets(main)


def test_what_was_wrong_before_does_not_stop_other_changes() -> None:
    async def main() -> None:
        async with served() as api:
            assert (await api.post(DEFINITIONS, definition())).status == 201
            assert (await api.post(WIDGETS, widget(name="abc", size=5))).status == 201
            stricter = {**SPEC, "properties": {**SPEC["properties"], "name": {"type": "string", "enum": ["x"]}}}
            version = definition(spec=stricter)["spec"]["versions"]
            path = f"{DEFINITIONS}/widgets.example.com"
            assert (await api.patch(path, {"spec": {"versions": version}}, type=MERGE)).status == 200
            assert (await api.patch(f"{WIDGETS}/w", {"spec": {"size": 6}}, type=MERGE)).status == 200
            answer = await api.patch(f"{WIDGETS}/w", {"spec": {"name": "y"}}, type=MERGE)
            assert (answer.status, 'supported values: "x"' in answer.message) == (422, True)

    run(main())


DEFINED: list[tuple[Data, int, str]] = [
    ({"size": {}}, 422, "properties[spec].properties[size].type: Required value: must not be empty for specified object fields"),
    ({"l": {"type": "array", "items": {}}}, 422, "properties[l].items.type: Required value: must not be empty for specified array items"),
    ({"size": {"type": "integer", "default": "x"}}, 422, "properties[size].default in body must be of type integer: \"string\""),
    ({"size": {"$ref": "#/definitions/x"}}, 422, "properties[size].$ref: Forbidden: $ref is not supported"),
    ({"l": {"type": "array", "items": {"type": "object", "$ref": "#"}}}, 422, "properties[l].items.$ref: Forbidden: $ref is not supported"),
    ({"size": {"type": "object", "allOf": [{"not": {"$ref": "#"}}]}}, 422, "properties[size].allOf[0].not.$ref: Forbidden"),
    ({"size": {"type": "object", "patternProperties": {"a": {}}}}, 422, "patternProperties is not supported"),
    ({"size": {"type": "string", "pattern": "["}}, 422, "spec.versions[0].schema.openAPIV3Schema: Invalid value"),
    ({"size": {"type": "string", "x-kubernetes-validations": [{"rule": "self +"}]}}, 422, "x-kubernetes-validations[0].rule: Invalid value: \"self +\": compilation failed: ERROR: <input>:1:7: Syntax error"),
    ({"size": {"type": "string", "x-kubernetes-validations": [{"rule": "1 + 1"}]}}, 422, "cel expression must evaluate to a bool"),
    ({"size": {"type": "object", "properties": {"a": {"type": "object", "properties": 3}}}}, 400, "cannot be handled as a CustomResourceDefinition"),
    ({"size": {"type": "object", "properties": {"a": {"type": ["string"]}}}}, 400, "cannot be handled as a CustomResourceDefinition"),
]  # fmt: skip


@pytest.mark.parametrize(("properties", "status", "text"), DEFINED)
def test_a_schema_that_cannot_be_used_is_refused_with_its_definition(properties: Data, status: int, text: str) -> None:
    async def main() -> None:
        async with served() as api:
            answer = await api.post(DEFINITIONS, definition(spec=obj(**properties)))
            assert (answer.status, text in answer.message) == (status, True), answer.raw
            assert (await api.get(WIDGETS)).status == 404

    run(main())


def test_the_cost_of_rules_is_limited() -> None:
    nested = "self.a.all(x, self.a.all(y, self.a.all(z, x + y + z >= 0)))"
    spec = {
        **obj(a={"type": "array", "items": {"type": "integer"}}, mode={"type": "string"}),
        "x-kubernetes-validations": [{"rule": nested}],
    }

    async def main(api: Api) -> None:
        assert (await api.post(WIDGETS, widget(a=[1, 2, 3]), dryRun="All")).status == 201
        answer = await api.post(WIDGETS, widget(a=[1] * 200))
        assert (answer.status, "running out of cost budget" in answer.message) == (422, True)

    with_widgets(main, spec=spec)


def test_the_rules_of_one_object_have_one_budget() -> None:
    rules = [{"rule": f"self >= {-number}"} for number in range(10)]
    numbers = {"type": "array", "items": {"type": "integer", "x-kubernetes-validations": rules}}
    spec = obj(mode={"type": "string"}, a={"type": "array", "items": numbers})

    async def main(api: Api) -> None:
        assert (await api.post(WIDGETS, widget(a=[[0] * 10] * 100))).status == 201
        answer = await api.patch(f"{WIDGETS}/w", {"spec": {"a": [[0] * 1_000] * 40}}, type=MERGE)
        assert (answer.status, answer.reason) == (422, "Invalid")
        (cause,) = answer.data["details"]["causes"]
        assert cause["message"] == (
            'Invalid value: "integer": validation failed due to running out of cost budget, '
            "no further validation rules will be run"
        )
        assert re.fullmatch(r"spec\.a\[[1-9]\d?\]\[\d+\]", cause["field"])

    with_widgets(main, spec=spec)


#: More than an object may have for all its wrong values to be in the answer.
WORDS = [f"word{number}" for number in range(20_000)]


def test_for_a_large_object_the_answer_has_the_first_wrong_value() -> None:
    async def main(api: Api) -> None:
        for words, wrong in ((WORDS[:2], 2), (WORDS, 1)):
            answer = await api.post(WIDGETS, widget(list=words))
            assert (answer.status, len(answer.data["details"]["causes"])) == (422, wrong)
            assert answer.data["details"]["causes"][0]["field"] == "spec.list[0]"
            assert ("there may be more" in answer.message) is (words is WORDS)

    with_widgets(main, spec=obj(mode={"type": "string"}, list={"type": "array", "items": {"type": "integer"}}))


@pytest.mark.parametrize(
    "stricter",
    [
        {"items": {"type": "integer"}},
        {"items": {"type": "string", "x-kubernetes-validations": [{"rule": "self == ''"}]}, "maxItems": 30_000},
        {"items": {"type": "string"}, "maxItems": 1},
    ],
)
def test_what_was_wrong_in_a_large_list_is_compared_once(stricter: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each item may be wrong, and the list of all is compared for it."""
    compared = 0

    def counted(old: Any, new: Any) -> bool:
        nonlocal compared
        compared += 1
        return same_json(old, new)

    def define(**list_: Any) -> Data:
        return definition(spec=obj(mode={"type": "string"}, size={"type": "integer"}, list={"type": "array", **list_}))

    async def main() -> None:
        nonlocal compared
        async with served() as api:
            assert (await api.post(DEFINITIONS, define(items={"type": "string"}))).status == 201
            assert (await api.post(WIDGETS, widget(list=WORDS))).status == 201
            path = f"{DEFINITIONS}/widgets.example.com"
            version = {"spec": {"versions": define(**stricter)["spec"]["versions"]}}
            assert (await api.patch(path, version, type=MERGE)).status == 200
            monkeypatch.setattr("kubesched.cluster.admission.custom.same_json", counted)
            answer = await api.patch(f"{WIDGETS}/w", {"metadata": {"labels": {"a": "b"}}}, type=MERGE)
            assert (answer.status, compared < 10) == (200, True), answer.raw[:1000]
            assert (await api.patch(f"{WIDGETS}/w", {"spec": {"list": WORDS[:-1]}}, type=MERGE)).status == 422

    run(main())


def test_applying_keeps_what_the_schema_knows() -> None:
    async def main(api: Api) -> None:
        raw = b"apiVersion: example.com/v1\nkind: Widget\nspec: {mode: slow, size: 2}\n"
        answer = await api("PATCH", f"{WIDGETS}/w", raw=raw, type=APPLY, fieldManager="m")
        assert (answer.status, answer.data["spec"]) == (201, {"mode": "slow", "size": 2})

    with_widgets(main)
