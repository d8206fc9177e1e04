"""Server-side apply: ownership, conflicts, removal, and what other writers do to it."""

from __future__ import annotations

from typing import Any

import pytest
from http_world import DEPLOYMENTS, MERGE, PODS, Api, a_definition, a_deployment, a_pod, run, served
from hypothesis import given
from hypothesis import strategies as st

from kubesched.api.kinds import kind_by_plural
from kubesched.cluster.http.catalog import Resource
from kubesched.cluster.http.fieldsets import Places, Shape, decode_fields, encode_fields, leaves, merge

WEB = f"{DEPLOYMENTS}/web"


def _managers(data: dict[str, Any]) -> dict[str, str]:
    return {entry["manager"]: entry["operation"] for entry in data["metadata"].get("managedFields", ())}


def _fields(data: dict[str, Any], manager: str) -> Any:
    return next(e["fieldsV1"] for e in data["metadata"]["managedFields"] if e["manager"] == manager)


async def _live(api: Api) -> Any:
    return (await api.get(WEB)).data


def test_apply_creates_and_applying_again_changes_nothing() -> None:
    async def main() -> None:
        async with served() as api:
            first = await api.apply(WEB, a_deployment())
            assert first.status == 201
            fields = _fields(first.data, "me")
            assert fields["f:spec"]["f:replicas"] == {}
            containers = fields["f:spec"]["f:template"]["f:spec"]["f:containers"]
            ports = containers['k:{"name":"c"}']["f:ports"]
            assert ports == {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}}
            again = await api.apply(WEB, a_deployment())
            assert (again.status, again.data) == (200, first.data)

    run(main())


def test_what_another_manager_set_is_a_conflict_unless_forced() -> None:
    async def main() -> None:
        async with served() as api:
            await api.apply(WEB, a_deployment(replicas=1), manager="first")
            answer = await api.apply(WEB, a_deployment(replicas=2), manager="second")
            assert (answer.status, answer.reason) == (409, "Conflict")
            (cause,) = answer.data["details"]["causes"]
            assert cause == {
                "reason": "FieldManagerConflict",
                "message": 'conflict with "first"',
                "field": ".spec.replicas",
            }
            assert (await _live(api))["spec"]["replicas"] == 1
            forced = (await api.apply(WEB, a_deployment(replicas=2), manager="second", force="true")).data
            assert forced["spec"]["replicas"] == 2
            assert "f:replicas" not in _fields(forced, "first")["f:spec"]
            # Equal values are shared, not fought over.
            shared = await api.apply(WEB, a_deployment(replicas=2), manager="third")
            assert set(_managers(shared.data)) == {"first", "second", "third"}

    run(main())


def test_fields_no_longer_applied_are_removed_unless_another_manager_owns_them() -> None:
    async def main() -> None:
        async with served() as api:
            body = a_deployment()
            body["metadata"]["labels"] = {"mine": "1", "ours": "1"}
            body["spec"]["template"]["spec"]["containers"].append({"name": "extra", "image": "x"})
            await api.apply(WEB, body, manager="first")
            other = {**a_deployment(), "spec": {}, "metadata": {"name": "web", "labels": {"ours": "1"}}}
            assert (await api.apply(WEB, other, manager="second")).status == 200
            after = (await api.apply(WEB, a_deployment(), manager="first")).data
            assert after["metadata"]["labels"] == {"ours": "1"}
            assert [item["name"] for item in after["spec"]["template"]["spec"]["containers"]] == ["c"]

    run(main())


def test_what_was_there_before_the_first_apply_has_an_owner_too() -> None:
    async def main() -> None:
        async with served() as api:
            created = (await api.post(DEPLOYMENTS, a_deployment(replicas=1))).data
            assert "managedFields" not in created["metadata"]
            answer = await api.apply(WEB, a_deployment(replicas=4))
            assert (answer.status, '"before-first-apply"' in answer.message) == (409, True)
            same = await api.apply(WEB, a_deployment(replicas=1))
            assert _managers(same.data) == {"me": "Apply", "before-first-apply": "Update"}

    run(main())


def test_other_writes_take_over_what_they_change() -> None:
    async def main() -> None:
        async with served() as api:
            await api.apply(WEB, a_deployment(replicas=1))
            scaled = await api.patch(WEB, {"spec": {"replicas": 7}}, type=MERGE, fieldManager="scaler")
            assert _managers(scaled.data) == {"me": "Apply", "scaler": "Update"}
            assert _fields(scaled.data, "scaler") == {"f:spec": {"f:replicas": {}}}
            refused = await api.apply(WEB, a_deployment(replicas=1))
            assert refused.data["details"]["causes"][0]["message"] == 'conflict with "scaler" using apps/v1'
            body = await _live(api)
            body["metadata"]["labels"] = {"a": "b"}
            put = await api.put(WEB, body, fieldManager="editor")
            assert _fields(put.data, "editor") == {"f:metadata": {"f:labels": {"f:a": {}}}}
            cleared = await api.patch(WEB, {"metadata": {"managedFields": [{}]}})
            assert "managedFields" not in cleared.data["metadata"]

    run(main())


def test_entries_that_a_client_wrote_are_kept_as_the_server_would_have_written_them() -> None:
    async def main() -> None:
        async with served() as api:
            await api.apply(WEB, a_deployment())
            mine = {"manager": "x", "fieldsType": "V0", "fieldsV1": {"f:spec": {"f:replicas": {}}}, "more": 1}
            entries = (await api.patch(WEB, {"metadata": {"managedFields": [mine]}})).data["metadata"]["managedFields"]
            fields: dict[str, Any] = {"f:spec": {"f:replicas": {}}}
            assert entries == [{"manager": "x", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": fields}]

    run(main())


@pytest.mark.parametrize("verb", ["PUT", "PATCH"])
def test_scaling_takes_over_the_replica_count(verb: str) -> None:
    async def main() -> None:
        async with served() as api:
            await api.apply(WEB, a_deployment(replicas=2))
            headers = {"User-Agent": "kubectl/v1.36.0"}
            scale = (await api.get(f"{WEB}/scale")).data
            same = await api(verb, f"{WEB}/scale", scale, type=MERGE if verb == "PATCH" else None, headers=headers)
            assert same.data["metadata"]["resourceVersion"] == scale["metadata"]["resourceVersion"], "nothing changed"
            scale["spec"]["replicas"] = 4
            for options in ({"dryRun": "All"}, {}):
                kind = MERGE if verb == "PATCH" else "application/json"
                answer = await api(verb, f"{WEB}/scale", scale, type=kind, headers=headers, **options)
                assert (answer.status, answer.data["spec"]) == (200, {"replicas": 4})
                assert (await _live(api))["spec"]["replicas"] == (2 if options else 4)
            entry = next(e for e in (await _live(api))["metadata"]["managedFields"] if e["manager"] == "kubectl")
            assert (entry["operation"], entry["subresource"], entry["apiVersion"]) == ("Update", "scale", "apps/v1")
            assert entry["fieldsV1"] == {"f:spec": {"f:replicas": {}}}
            refused = await api.apply(WEB, a_deployment(replicas=2))
            assert refused.status == 409
            assert refused.data["details"]["causes"] == [
                {
                    "reason": "FieldManagerConflict",
                    "message": 'conflict with "kubectl" with subresource "scale" using apps/v1',
                    "field": ".spec.replicas",
                }
            ]
            stale = await api(verb, f"{WEB}/scale", {**scale, "spec": {"replicas": 5}}, type=kind, headers=headers)
            assert (stale.status, stale.reason) == (409, "Conflict")
            forced = await api.apply(WEB, a_deployment(replicas=2), force="true")
            assert (forced.data["spec"]["replicas"], _managers(forced.data)) == (2, {"me": "Apply"})

    run(main())


def test_status_is_applied_apart() -> None:
    async def main() -> None:
        async with served() as api:
            await api.apply(WEB, a_deployment())
            config = {"apiVersion": "apps/v1", "kind": "Deployment", "status": {"replicas": 3}}
            answer = await api.apply(f"{WEB}/status", config, manager="controller")
            assert (answer.status, answer.data["status"]["replicas"]) == (200, 3)
            entry = next(e for e in answer.data["metadata"]["managedFields"] if e["manager"] == "controller")
            assert entry["subresource"] == "status"
            again = await api.apply(WEB, {**a_deployment(), "status": {"replicas": 9}})
            assert again.data["status"]["replicas"] == 3

    run(main())


def test_a_stale_version_and_managed_fields_in_the_body_are_refused() -> None:
    async def main() -> None:
        async with served() as api:
            await api.apply(f"{PODS}/p", a_pod())
            stale = a_pod()
            stale["metadata"]["resourceVersion"] = "1"
            assert (await api.apply(f"{PODS}/p", stale)).status == 409
            managed = a_pod()
            managed["metadata"]["managedFields"] = [{"manager": "x"}]
            assert (await api.apply(f"{PODS}/p", managed)).message == "metadata.managedFields must be nil"

    run(main())


def test_lists_of_custom_resources_merge_as_their_schema_says() -> None:
    async def main() -> None:
        async with served() as api:
            definition = a_definition()
            items = {"type": "object", "properties": {"id": {"type": "string"}, "n": {"type": "integer"}}}
            spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
            spec["parts"] = {
                "type": "array",
                "items": items,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["id"],
            }
            spec["tags"] = {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}
            await api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
            path = "/apis/example.com/v1/namespaces/default/widgets/w"

            def widget(part: str, tag: str) -> dict[str, Any]:
                return {
                    "apiVersion": "example.com/v1",
                    "kind": "Widget",
                    "spec": {"parts": [{"id": part, "n": 1}], "tags": [tag]},
                }

            await api.apply(path, widget("a", "x"), manager="first")
            both = (await api.apply(path, widget("b", "y"), manager="second")).data["spec"]
            assert ([part["id"] for part in both["parts"]], both["tags"]) == (["a", "b"], ["x", "y"])
            left = (await api.apply(path, widget("c", "z"), manager="first")).data["spec"]
            assert ([part["id"] for part in left["parts"]], left["tags"]) == (["b", "c"], ["y", "z"])

    run(main())


# -- fieldsets by property ---------------------------------------------------------------------------------

_PODS = kind_by_plural("", "pods")
assert _PODS is not None
SHAPE = Shape(Resource(_PODS, "v1"))
NAMES = st.sampled_from(["a", "b", "c"])
CONTAINERS = st.lists(
    st.fixed_dictionaries({"name": NAMES}, optional={"image": NAMES, "args": st.lists(NAMES, max_size=2)}),
    max_size=3,
    unique_by=lambda item: item["name"],
)
SPECS = st.fixed_dictionaries(
    {},
    optional={"nodeName": NAMES, "containers": CONTAINERS, "nodeSelector": st.dictionaries(NAMES, NAMES, min_size=1)},
)
OBJECTS = st.fixed_dictionaries({"spec": SPECS})
#: A list of no items has no leaves, so that nobody owns what applying it changes.
APPLIED = OBJECTS.filter(lambda data: data["spec"].get("containers") != [])


@given(OBJECTS)
def test_fields_survive_being_written_and_read(data: dict[str, Any]) -> None:
    found = set(leaves(data, SHAPE))
    assert set(decode_fields(encode_fields(found))) == found


@given(OBJECTS, APPLIED)
def test_after_a_merge_every_applied_leaf_holds_and_nothing_else_changed(live: Any, applied: Any) -> None:
    merged = merge(live, applied, SHAPE)
    wanted = set(leaves(applied, SHAPE))
    for path in wanted:
        if path[-1].startswith("f:") and Places(applied).at(path) != {}:
            assert Places(merged).at(path) == Places(applied).at(path)
    for path in set(leaves(live, SHAPE)) - wanted:
        if path[-1].startswith("f:") and not any(
            other[: len(path)] == path or path[: len(other)] == other for other in wanted
        ):
            assert Places(merged).at(path) == Places(live).at(path)
    assert merge(merged, applied, SHAPE) == merged
