"""Create, update, patch, delete, binding, eviction, bodies and their checks."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from http_world import (
    APPLY,
    DEPLOYMENTS,
    JSON_PATCH,
    MERGE,
    PODS,
    STRATEGIC,
    Api,
    a_definition,
    a_deployment,
    a_node,
    a_pod,
    run,
    served,
)

from kubesched.api import kinds
from kubesched.cluster.schema import root_type, unknown_paths

PODS_KIND = kinds.PODS
UNKNOWN = {**a_pod(), "spec": {"containers": [{"name": "c", "image": "i", "comand": ["x"]}], "frogs": 1}}
VALIDATIONS: list[tuple[str, dict[str, Any], int, int]] = [
    ("warned of by default", {}, 201, 2),
    ("warned of when asked", {"fieldValidation": "Warn"}, 201, 2),
    ("ignored", {"fieldValidation": "Ignore"}, 201, 0),
    ("refused when strict", {"fieldValidation": "Strict"}, 400, 0),
    ("an unknown level", {"fieldValidation": "Frog"}, 422, 0),
]


@pytest.mark.parametrize(("query", "status", "warnings"), [c[1:] for c in VALIDATIONS], ids=[c[0] for c in VALIDATIONS])
def test_unknown_fields(query: dict[str, Any], status: int, warnings: int) -> None:
    async def main() -> None:
        async with served() as api:
            answer = await api.post(PODS, UNKNOWN, **query)
            assert (answer.status, len(answer.warnings)) == (status, warnings)
            if warnings:
                assert answer.warnings[0] == '299 - "unknown field \\"spec.containers[0].comand\\""'
            if query.get("fieldValidation") == "Strict":
                assert 'strict decoding error: unknown field "spec.containers[0].comand"' in answer.message

    run(main())


@pytest.mark.parametrize(("query", "status", "warnings"), [c[1:] for c in VALIDATIONS], ids=[c[0] for c in VALIDATIONS])
def test_unknown_fields_that_a_json_patch_adds(query: dict[str, Any], status: int, warnings: int) -> None:
    change = [
        {"op": "add", "path": "/frogs", "value": 1},
        {"op": "add", "path": "/data", "value": {"a": "b"}},
        {"op": "add", "path": "/metadata/label", "value": {}},
    ]

    async def main() -> None:
        async with served() as api:
            maps = "/api/v1/namespaces/default/configmaps"
            assert (await api.post(maps, {"metadata": {"name": "m"}})).status == 201
            answer = await api.patch(f"{maps}/m", change, type=JSON_PATCH, **query)
            assert (answer.status, len(answer.warnings)) == ({201: 200}.get(status, status), warnings)
            if query.get("fieldValidation") == "Strict":
                assert 'strict decoding error: unknown field "metadata.label"' in answer.message
            assert ("data" in (await api.get(f"{maps}/m")).data) == (answer.status == 200)

    run(main())


def without_unknown(change: Any, patch_type: str = "") -> None:
    """A pod is stored without the field ``frogs`` that a write puts into its spec, with a warning."""

    async def main() -> None:
        async with served() as api:
            kept = (await api.post(PODS, {**a_pod(), "spec": {**a_pod()["spec"], "frogs": 1}})).data
            assert "frogs" not in kept["spec"]
            if patch_type:
                answer = await api.patch(f"{PODS}/p", change, type=patch_type)
            else:
                answer = await api.put(f"{PODS}/p", {**kept, "spec": {**kept["spec"], **change}})
            assert (answer.status, answer.warnings) == (200, ['299 - "unknown field \\"spec.frogs\\""'])
            assert (await api.get(f"{PODS}/p")).data == kept
            if patch_type:
                strict = await api.patch(f"{PODS}/p", change, type=patch_type, fieldValidation="Strict")
            else:
                strict = await api.put(
                    f"{PODS}/p", {**kept, "spec": {**kept["spec"], **change}}, fieldValidation="Strict"
                )
            assert (strict.status, 'unknown field "spec.frogs"' in strict.message) == (400, True)

    run(main())


def test_unknown_fields_of_a_pod_are_dropped_from_updates_and_patches() -> None:
    without_unknown({"frogs": 2})
    for patch_type in (MERGE, STRATEGIC):
        without_unknown({"spec": {"frogs": 2}}, patch_type)
    without_unknown([{"op": "add", "path": "/spec/frogs", "value": 2}], JSON_PATCH)


def test_a_field_that_a_pod_should_not_have_does_not_stop_its_updates() -> None:
    async def main() -> None:
        async with served() as api:
            api.store.create(kinds.PODS, "default", {**a_pod(), "spec": {**a_pod()["spec"], "frogs": 1}})
            data = (await api.get(f"{PODS}/p")).data
            data["spec"]["containers"][0]["image"] = "other"
            answer = await api.put(f"{PODS}/p", data)
            assert (answer.status, answer.data["spec"]["containers"][0]["image"]) == (200, "other")
            assert "frogs" not in answer.data["spec"]

    run(main())


MIXED = """{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "frog": 1, "labels": {}, "labels": {}},
"spec": {"restartPolicy": "Never", "restartPolicy": "Always", "containers": [{"name": "c", "nest": 1, "image": "i", "image": "j"}],
"frogs": 1, "frogs": 2}}"""
MIXED_YAML = (
    "metadata:\n  name: p\n  name: p\nspec:\n  frogs: 1\n  containers:\n  - {name: c, image: i, nest: 1}\n  frogs: 2\n"
)


def test_strict_errors_come_in_the_order_of_the_document() -> None:
    async def main() -> None:
        async with served() as api:
            answer = await api("POST", PODS, raw=MIXED.encode(), type="application/json", fieldValidation="Strict")
            assert answer.message.partition("strict decoding error: ")[2].split(", ") == [
                'unknown field "metadata.frog"',
                'duplicate field "metadata.labels"',
                'duplicate field "spec.restartPolicy"',
                'unknown field "spec.containers[0].nest"',
                'duplicate field "spec.containers[0].image"',
                'unknown field "spec.frogs"',
            ]
            answer = await api("POST", PODS, raw=MIXED_YAML.encode(), type="application/yaml", fieldValidation="Strict")
            assert answer.message.endswith(
                'strict decoding error: yaml: unmarshal errors:\n  line 3: key "name" already set in map\n'
                '  line 8: key "frogs" already set in map, unknown field "spec.containers[0].nest", unknown field "spec.frogs"'
            )
            answer = await api("POST", PODS, raw=MIXED_YAML.encode(), type="application/yaml")
            assert [text.replace("\\", "") for text in answer.warnings] == [
                '299 - "line 3: key "name" already set in map"',
                '299 - "line 8: key "frogs" already set in map"',
                '299 - "unknown field "spec.containers[0].nest""',
                '299 - "unknown field "spec.frogs""',
            ]

    run(main())


def test_an_applied_field_that_the_kind_does_not_have_is_refused() -> None:
    async def main() -> None:
        async with served() as api:
            answer = await api.apply(f"{PODS}/p", UNKNOWN)
            assert answer.status == 500
            assert answer.message == (
                "failed to create typed patch object (default/p; /v1, Kind=Pod): errors:\n"
                "  .spec.containers[0].comand: field not declared in schema\n  .spec.frogs: field not declared in schema"
            )

    run(main())


def test_looking_for_unknown_fields_leaves_no_cycles_for_the_collector() -> None:
    gc.collect()
    assert unknown_paths(root_type("", "Pod"), UNKNOWN) == ["spec.containers[0].comand", "spec.frogs"]
    assert gc.collect() == 0


BODIES: list[tuple[str, bytes, str, int, str]] = [
    ("a text that is not UTF-8", b'{"kind": "\xff"}', "application/json", 400, "json parse error: the text is not UTF-8"),
    ("JSON cut short", b'{"kind": "Pod",\n "metadata": ', "application/json", 400, "json parse error"),
    ("JSON with an error on line 2", b'{"kind": "Pod",\n  frog}', "application/json", 400, "line 2, column"),
    ("nothing", b"", "application/json", 400, "empty"),
    ("a list", b"[]", "application/json", 400, "object"),
    ("a number", b"7", "application/json", 400, "object"),
    ("another kind", b'{"kind":"Node","apiVersion":"v1"}', "application/json", 400, "cannot be handled as a Pod"),
    ("metadata that is no object", b'{"metadata": 3}', "application/json", 400, "metadata"),
    ("bad YAML", b"a: [1\nb: }", "application/yaml", 400, "yaml"),
    ("YAML that grows", b"a: &a [x,x,x,x,x,x,x,x]\n" + b"".join(b"%c: &%c [%s]\n" % (98 + i, 98 + i, b",".join([b"*%c" % (97 + i)] * 9)) for i in range(8)), "application/yaml", 400, "excessive aliasing"),
    ("deep nesting", b"[" * 5000 + b"]" * 5000, "application/json", 400, ""),
    ("deeper nesting", b"[" * 100_000, "application/json", 413, ""),
    ("deep nesting in YAML", b"[" * 100_000, "application/yaml", 400, "line 1: nested more than 200 levels deep"),
    ("a body that is too large", b'{"a":"' + b"x" * (3 * 1024 * 1024) + b'"}', "application/json", 413, "too large"),
    ("another media type", b"<pod/>", "text/xml", 415, "media types"),
    ("broken protobuf", b"k8s\0\x0a\x7f", "application/vnd.kubernetes.protobuf", 400, "protobuf"),
    ("no protobuf at all", b"{}", "application/vnd.kubernetes.protobuf", 400, "magic"),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "kind", "status", "text"), [case[1:] for case in BODIES], ids=[c[0] for c in BODIES])
def test_bodies_that_cannot_be_read(raw: bytes, kind: str, status: int, text: str) -> None:
    async def main() -> None:
        async with served() as api:
            answer = await api("POST", PODS, raw=raw, type=kind)
            assert answer.status == status
            assert text in answer.message

    run(main())


def test_yaml_bodies_and_keys_that_come_twice() -> None:
    async def main() -> None:
        async with served() as api:
            text = b"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers: [{name: c, image: i}]\n  nodeSelector: {a: b, a: c}\n"
            answer = await api("POST", PODS, raw=text, type="application/yaml")
            assert answer.status == 201
            assert answer.warnings == ['299 - "line 6: key \\"a\\" already set in map"']
            twice = b'{"metadata":{"name":"j","name":"k"},"spec":{"containers":[{"name":"c","image":"i"}]}}'
            assert (await api("POST", PODS, raw=twice, type="application/json")).warnings == [
                '299 - "duplicate field \\"metadata.name\\""'
            ]
            strict = await api("POST", PODS, raw=twice, type="application/json", fieldValidation="Strict")
            assert strict.status == 400

    run(main())


def test_dry_runs_change_nothing() -> None:
    async def main() -> None:
        async with served() as api:
            live = (await api.post(PODS, a_pod("a"))).data
            live["metadata"]["labels"] = {"x": "y"}
            before = api.store.resource_version
            all_ = {"dryRun": "All"}
            answers = [
                await api.post(PODS, a_pod("b"), **all_),
                await api.put(f"{PODS}/a", live, **all_),
                await api.patch(f"{PODS}/a", {"metadata": {"labels": {"x": "y"}}}, **all_),
                await api.apply(f"{PODS}/a", a_pod("a"), **all_),
                await api.post(f"{PODS}/a/binding", {"metadata": {"name": "a"}, "target": {"name": "n"}}, **all_),
                await api.post(f"{PODS}/a/eviction", {}, **all_),
                await api.delete(f"{PODS}/a", **all_),
                await api.delete(PODS, **all_),
            ]
            assert [answer.status for answer in answers] == [201, 200, 200, 200, 201, 201, 200, 200]
            assert api.store.resource_version == before
            assert (await api.post(PODS, a_pod("b"), dryRun="Some")).status == 422

    run(main())


def test_wrong_options_are_refused_before_a_wrong_body_and_before_what_is_not_there() -> None:
    async def main() -> None:
        async with served() as api:
            for wrong in ({"dryRun": "Some"}, {"fieldValidation": "strict"}, {"fieldManager": "x" * 129}):
                scale = {"kind": "Scale", "spec": {"replicas": 1}}
                answers = [
                    await api("POST", PODS, raw=b"{", type="application/json", **wrong),
                    await api("PUT", f"{PODS}/a", raw=b"{", type="application/json", **wrong),
                    await api.put(f"{PODS}/none", a_pod("none"), **wrong),
                    await api.put(f"{DEPLOYMENTS}/none/scale", scale, **wrong),
                    await api.patch(f"{PODS}/none", {}, **wrong),
                    await api("PATCH", f"{PODS}/none", [], type=JSON_PATCH, **wrong),
                ]
                assert [(answer.status, answer.data["details"]["causes"][0]["field"]) for answer in answers] == [
                    (422, *wrong)
                ] * 6

    run(main())


def test_two_clients_race_for_one_object_and_one_gets_a_conflict() -> None:
    async def main() -> None:
        async with served() as api:
            body = (await api.post(DEPLOYMENTS, a_deployment())).data
            bodies = [{**body, "spec": {**body["spec"], "replicas": replicas}} for replicas in (5, 6)]
            answers = await asyncio.gather(*(api.put(f"{DEPLOYMENTS}/web", one) for one in bodies))
            assert sorted(answer.status for answer in answers) == [200, 409]
            loser = next(answer for answer in answers if answer.status == 409)
            assert (loser.reason, loser.data["details"]["name"]) == ("Conflict", "web")

    run(main())


def test_created_twice() -> None:
    async def main() -> None:
        async with served() as api:
            answers = await asyncio.gather(*(api.post(PODS, a_pod()) for _ in range(2)))
            assert sorted(answer.status for answer in answers) == [201, 409]
            assert {answer.reason for answer in answers if answer.status == 409} == {"AlreadyExists"}

    run(main())


PATCHES: list[tuple[str, Any, str, int, Any]] = [
    ("merge", {"metadata": {"labels": {"a": "b"}}}, MERGE, 200, {"a": "b"}),
    ("strategic", {"metadata": {"labels": {"a": "c"}}}, STRATEGIC, 200, {"a": "c"}),
    ("json", [{"op": "add", "path": "/metadata/labels", "value": {"d": "e"}}], JSON_PATCH, 200, {"d": "e"}),
    ("a failed test", [{"op": "test", "path": "/kind", "value": "Frog"}], JSON_PATCH, 422, None),
    ("no list", {"op": "add"}, JSON_PATCH, 400, None),
    ("no object", [1], MERGE, 400, None),
    ("another name", {"metadata": {"name": "q"}}, MERGE, 400, None),
    ("another type", {}, "application/json", 415, None),
    ("too many operations", [{"op": "test", "path": "/kind", "value": "Pod"}] * 10_001, JSON_PATCH, 413, None),
]


@pytest.mark.parametrize(("body", "kind", "status", "labels"), [c[1:] for c in PATCHES], ids=[c[0] for c in PATCHES])
def test_patches(body: Any, kind: str, status: int, labels: Any) -> None:
    async def main() -> None:
        async with served() as api:
            await api.post(PODS, a_pod())
            answer = await api.patch(f"{PODS}/p", body, type=kind)
            assert answer.status == status, answer.raw
            if labels is not None:
                assert answer.data["metadata"]["labels"] == labels

    run(main())


def test_force_is_for_apply_only() -> None:
    async def main() -> None:
        async with served() as api:
            await api.post(PODS, a_pod())
            assert (await api.patch(f"{PODS}/p", {}, force="true")).status == 422

    run(main())


def test_binding_sets_the_node_once() -> None:
    async def main() -> None:
        async with served() as api:
            pod = (await api.post(PODS, a_pod())).data
            body = {"metadata": {"name": "p", "uid": pod["metadata"]["uid"]}, "target": {"kind": "Node", "name": "n"}}
            wrong = {**body, "metadata": {"name": "p", "uid": "other"}}
            assert (await api.post(f"{PODS}/p/binding", wrong)).status == 409
            for name in ("q", ""):
                other = await api.post(f"{PODS}/p/binding", {**body, "metadata": {"name": name}})
                assert (other.status, other.message) == (400, "name in URL does not match name in Binding object")
            elsewhere = {**body, "metadata": {"name": "p", "namespace": "other"}}
            for path in (f"{PODS}/p/binding", "/api/v1/namespaces/default/bindings"):
                other = await api.post(path, elsewhere)
                assert (other.status, "does not match the namespace sent" in other.message) == (400, True)
            answer = await api.post(f"{PODS}/p/binding", body)
            assert (answer.status, answer.data["status"]) == (201, "Success")
            again = await api.post("/api/v1/namespaces/default/bindings", body)
            assert (again.status, again.data["details"]["kind"]) == (409, "pods/binding")
            assert (await api.get(f"{PODS}/p")).data["spec"]["nodeName"] == "n"
            wrongs: list[Any] = [
                {"target": 3},
                {"target": {"kind": "Frog", "name": "x"}},
                {"metadata": {"annotations": 3}},
                [],
            ]
            for bad in wrongs:
                assert 400 <= (await api.post(f"{PODS}/p/binding", bad)).status < 500

    run(main())


def test_eviction_asks_the_budget() -> None:
    async def main() -> None:
        async with served() as api:
            await api.post(PODS, a_pod(labels={"a": "b"}))
            await api.post(f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"name": "n"}})
            await api.patch(f"{PODS}/p/status", {"status": {"phase": "Running"}})
            budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
            spec = {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}
            await api.post(budgets, {"metadata": {"name": "b"}, "spec": spec})
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
            answer = await api.post(f"{PODS}/p/eviction", body)
            assert (answer.status, answer.data["details"]["causes"][0]["reason"]) == (429, "DisruptionBudget")
            for metadata in ({"name": "q"}, {"name": "p", "namespace": "other"}):
                assert (await api.post(f"{PODS}/p/eviction", {**body, "metadata": metadata})).status == 400
            await api.delete(f"{budgets}/b")
            for preconditions in ({"uid": "x"}, {"resourceVersion": "1"}):
                options = {"deleteOptions": {"preconditions": preconditions}}
                assert (await api.post(f"{PODS}/p/eviction", {**body, **options})).status == 409
            assert (await api.post(f"{PODS}/p/eviction", body)).status == 201
            assert "deletionTimestamp" in (await api.get(f"{PODS}/p")).data["metadata"]

    run(main())


DELETIONS: list[tuple[str, Any, dict[str, Any], int]] = [
    ("plain", None, {}, 200),
    ("options in the body", {"kind": "DeleteOptions", "gracePeriodSeconds": 0}, {}, 200),
    ("options in the query", None, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}, 200),
    ("another UID", {"preconditions": {"uid": "x"}}, {}, 409),
    ("another version", {"preconditions": {"resourceVersion": "1"}}, {}, 409),
    ("an unknown policy", {"propagationPolicy": "Frog"}, {}, 422),
    ("two policies", {"propagationPolicy": "Orphan", "orphanDependents": True}, {}, 422),
    ("a grace period that is no number", {"gracePeriodSeconds": "x"}, {}, 400),
    ("a grace period beyond all bounds", {"gracePeriodSeconds": 1 << 64}, {}, 400),
    ("preconditions that are no object", {"preconditions": "x"}, {}, 400),
    ("a list", [], {}, 400),
    ("another kind of options", {"kind": "Pod"}, {}, 400),
]


@pytest.mark.parametrize(("body", "query", "status"), [c[1:] for c in DELETIONS], ids=[c[0] for c in DELETIONS])
def test_delete(body: Any, query: dict[str, Any], status: int) -> None:
    async def main() -> None:
        async with served() as api:
            await api.post(DEPLOYMENTS, a_deployment())
            answer = await api("DELETE", f"{DEPLOYMENTS}/web", body, **query)
            assert answer.status == status
            if status == 200:
                assert (answer.data["kind"], answer.data["details"]["kind"]) == ("Status", "deployments")
                assert (await api.get(f"{DEPLOYMENTS}/web")).status == 404

    run(main())


def test_a_pod_on_a_node_lingers_and_one_without_goes() -> None:
    async def main() -> None:
        async with served() as api:
            await api.post(PODS, a_pod("here"))
            await api.post(PODS, a_pod("there"))
            await api.post(f"{PODS}/there/binding", {"metadata": {"name": "there"}, "target": {"name": "n"}})
            for name, lingers in (("here", False), ("there", True)):
                answer = await api.delete(f"{PODS}/{name}")
                assert (answer.data["kind"], "deletionTimestamp" in answer.data["metadata"]) == ("Pod", lingers)
                assert (await api.get(f"{PODS}/{name}")).status == (200 if lingers else 404)

    run(main())


def test_delete_a_collection_by_its_labels() -> None:
    async def main() -> None:
        async with served() as api:
            for name, label in (("a", "x"), ("b", "x"), ("c", "y")):
                await api.post(PODS, a_pod(name, labels={"l": label}))
            answer = await api.delete(PODS, labelSelector="l=x")
            assert [item["metadata"]["name"] for item in answer.data["items"]] == ["a", "b"]
            assert len((await api.get(PODS)).data["items"]) == 1

    run(main())


COLLECTIONS: list[tuple[str, dict[str, Any] | None, dict[str, Any], int, list[str]]] = [
    ("a dry run", {"kind": "DeleteOptions", "dryRun": ["All"]}, {}, 200, ["a", "b", "c"]),
    ("by field", None, {"fieldSelector": "metadata.name!=b"}, 200, ["b"]),
    ("an unknown policy, with nothing to delete", None, {"propagationPolicy": "Frog", "labelSelector": "l=z"}, 422, ["a", "b", "c"]),
    ("a UID that none of them has", {"preconditions": {"uid": "x"}}, {}, 409, ["a", "b", "c"]),
    ("the first of them", None, {"limit": 1}, 200, ["b", "c"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "query", "status", "left"), [case[1:] for case in COLLECTIONS], ids=[case[0] for case in COLLECTIONS]
)
def test_the_options_of_a_deleted_collection(body: Any, query: dict[str, Any], status: int, left: list[str]) -> None:
    async def main() -> None:
        async with served() as api:
            for name in "abc":
                await api.post(PODS, a_pod(name))
            assert (await api("DELETE", PODS, body, **query)).status == status
            assert [item["metadata"]["name"] for item in (await api.get(PODS)).data["items"]] == left

    run(main())


def test_a_deleted_collection_orphans_or_takes_along_what_its_members_own() -> None:
    async def main() -> None:
        async with served() as api:
            for policy, left in (("Background", []), ("Orphan", ["child"])):
                owner = (await api.post(DEPLOYMENTS, a_deployment())).data
                child = a_pod("child")
                child["metadata"]["ownerReferences"] = [
                    {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": owner["metadata"]["uid"]}
                ]
                await api.post(PODS, child)
                assert (await api.delete(DEPLOYMENTS, propagationPolicy=policy)).status == 200
                api.store.settle()
                assert [item["metadata"]["name"] for item in (await api.get(PODS)).data["items"]] == left

    run(main())


OLD_DEFAULTS = [
    ("/apis/batch/v1/namespaces/default/jobs", "batch/v1", "Job", 1),
    ("/api/v1/namespaces/default/replicationcontrollers", "v1", "ReplicationController", 0),
    ("/apis/apps/v1/namespaces/default/replicasets", "apps/v1", "ReplicaSet", None),
]


@pytest.mark.parametrize(("path", "version", "kind", "warnings"), OLD_DEFAULTS, ids=[row[2] for row in OLD_DEFAULTS])
def test_pods_of_jobs_and_replication_controllers_stay_by_default(
    path: str, version: str, kind: str, warnings: int | None
) -> None:
    async def main() -> None:
        async with served() as api:
            for options, stays in (({}, warnings is not None), ({"propagationPolicy": "Background"}, False)):
                pod = a_pod("child", labels={"a": "b"})
                pod["spec"] = {**pod["spec"], **({"restartPolicy": "Never"} if kind == "Job" else {})}
                selector = {"selector": {"matchLabels": {"a": "b"}}} if kind == "ReplicaSet" else {}
                template = {"metadata": {"labels": {"a": "b"}}, "spec": pod["spec"]}
                owner = await api.post(path, {"metadata": {"name": "x"}, "spec": {"template": template, **selector}})
                reference = {"apiVersion": version, "kind": kind, "name": "x", "uid": owner.data["metadata"]["uid"]}
                pod["metadata"]["ownerReferences"] = [reference]
                assert (await api.post(PODS, pod)).status == 201
                answer = await api.delete(f"{path}/x", **options)
                assert (answer.status, len(answer.warnings)) == (200, 0 if options else warnings or 0)
                api.store.settle()
                assert len((await api.get(PODS)).data["items"]) == stays
                await api.delete(f"{PODS}/child")
                assert (await api.get(f"{path}/x")).status == 404

    run(main())


def test_namespaces_are_deleted_one_by_one() -> None:
    async def main() -> None:
        async with served() as api:
            answer = await api.delete("/api/v1/namespaces")
            assert (answer.status, answer.reason) == (405, "MethodNotAllowed")
            resources = {item["name"]: item for item in (await api.get("/api/v1")).data["resources"]}
            assert "deletecollection" not in resources["namespaces"]["verbs"]
            assert "deletecollection" in resources["pods"]["verbs"]

    run(main())


def test_a_pod_that_waits_can_be_replaced_by_its_own_manifest() -> None:
    async def main() -> None:
        async with served() as api:
            first = (await api.post(PODS, a_pod())).data
            answer = await api.put(f"{PODS}/p", a_pod(labels={"a": "b"}))
            assert answer.status == 200, answer.message
            assert answer.data["spec"] == first["spec"]

    run(main())


def test_ownership_can_be_moved_before_there_is_any() -> None:
    """kubectl does it after each server-side apply, and after the dry run of one too."""

    async def main() -> None:
        async with served() as api:
            live = (await api.post(PODS, a_pod())).data
            assert "managedFields" not in live["metadata"]
            entry = {
                "manager": "kubectl",
                "operation": "Apply",
                "apiVersion": "v1",
                "fieldsType": "FieldsV1",
                "fieldsV1": {},
            }
            moved = [
                {"op": "replace", "path": "/metadata/managedFields", "value": [entry]},
                {"op": "replace", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"]},
            ]
            answer = await api.patch(f"{PODS}/p", moved, type=JSON_PATCH, dryRun="All")
            assert answer.status == 200, answer.message
            assert (await api.get(f"{PODS}/p")).data == live

    run(main())


def test_statuses_are_written_through_their_subresource_only() -> None:
    async def main() -> None:
        async with served() as api:
            await api.post("/api/v1/nodes", a_node())
            status = {"status": {"phase": "Running"}}
            node = (await api.patch("/api/v1/nodes/n1", status)).data
            assert "phase" not in node["status"]
            node["status"]["phase"] = "Running"
            assert (await api.put("/api/v1/nodes/n1/status", node)).data["status"]["phase"] == "Running"

    run(main())


DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"


def _widget(name: str = "w", **more: Any) -> dict[str, Any]:
    body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": 3}}
    return {**body, **more}


async def _define(api: Api, **version: Any) -> None:
    assert (await api.post(DEFINITIONS, a_definition(**version))).status == 201


def test_custom_resources_are_stored_and_served_as_soon_as_they_are_defined() -> None:
    async def main() -> None:
        async with served() as api:
            assert (await api.get(WIDGETS)).status == 404
            await _define(api, additionalPrinterColumns=[{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}])
            conditions = (await api.get(f"{DEFINITIONS}/widgets.example.com")).data["status"]["conditions"]
            assert {item["type"]: item["status"] for item in conditions}["Established"] == "True"
            answer = await api.post(WIDGETS, _widget(status={"kept": True}))
            assert (answer.status, answer.data["status"]) == (201, {"kept": True})
            table = (await api.get(WIDGETS, accept="application/json;as=Table;v=v1;g=meta.k8s.io")).data
            assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Size"]
            assert table["rows"][0]["cells"] == ["w", 3]
            other = (await api.get(WIDGETS.replace("/v1/", "/v1beta1/") + "/w")).data
            assert other["apiVersion"] == "example.com/v1beta1"
            assert (await api.patch(f"{WIDGETS}/w", {}, type=STRATEGIC)).status == 415
            strict = await api.post(WIDGETS, _widget("x", spec={"sice": 1}), fieldValidation="Strict")
            assert (strict.status, 'unknown field "spec.sice"' in strict.message) == (400, True)
            await api.delete(f"{DEFINITIONS}/widgets.example.com")
            assert (await api.get(WIDGETS)).status == 404
            await _define(api)
            assert (await api.get(WIDGETS)).data["items"] == []

    run(main())


def test_subresources_of_custom_resources() -> None:
    async def main() -> None:
        async with served() as api:
            scale = {"specReplicasPath": ".spec.count", "statusReplicasPath": ".status.count"}
            await _define(api, subresources={"status": {}, "scale": scale})
            created = (await api.post(WIDGETS, _widget(status={"gone": True}))).data
            assert "status" not in created
            changed = await api.patch(f"{WIDGETS}/w/status", {"status": {"count": 2}, "spec": {"size": 9}})
            assert (changed.data["status"], changed.data["spec"]) == ({"count": 2}, {"size": 3})
            assert (await api.patch(f"{WIDGETS}/w", {"status": {"count": 9}})).data["status"] == {"count": 2}
            assert (await api.patch(f"{WIDGETS}/w/scale", {"spec": {"replicas": 4}})).status == 200
            found = (await api.get(f"{WIDGETS}/w/scale")).data
            assert (found["spec"], found["status"]) == ({"replicas": 4}, {"replicas": 2})

    run(main())


BAD_DEFINITIONS: list[tuple[str, dict[str, Any], str]] = [
    ("another name", {"metadata": {"name": "frogs.example.com"}}, "metadata.name"),
    ("no group", {"spec": {**a_definition()["spec"], "group": ""}}, "spec.group"),
    ("no versions", {"spec": {**a_definition()["spec"], "versions": []}}, "spec.versions"),
    ("no scope", {"spec": {**a_definition()["spec"], "scope": "Frog"}}, "spec.scope"),
    ("no spec", {"spec": {}}, "spec.group"),
]


@pytest.mark.parametrize(("change", "field"), [c[1:] for c in BAD_DEFINITIONS], ids=[c[0] for c in BAD_DEFINITIONS])
def test_definitions_that_cannot_be_served(change: dict[str, Any], field: str) -> None:
    async def main() -> None:
        async with served() as api:
            answer = await api.post(DEFINITIONS, {**a_definition(), **change})
            assert answer.status == 422
            assert field in [cause["field"] for cause in answer.data["details"]["causes"]]

    run(main())


def test_apply_needs_a_manager_and_the_object_it_names() -> None:
    async def main() -> None:
        async with served() as api:
            for path, body, query, status in (
                (f"{PODS}/p", a_pod(), {}, 422),
                (f"{PODS}/p", a_pod("q"), {"fieldManager": "m"}, 400),
                (f"{PODS}/p", {**a_pod(), "kind": "Frog"}, {"fieldManager": "m"}, 400),
                (f"{PODS}/p", [], {"fieldManager": "m"}, 400),
                (f"{PODS}/p", a_pod(), {"fieldManager": "m" * 200}, 422),
                (f"{PODS}/p/status", a_pod(), {"fieldManager": "m"}, 404),
            ):
                answer = await api("PATCH", path, body, type=APPLY, **query)
                assert answer.status == status, (path, body, answer.raw)

    run(main())


def test_defaults_that_clients_read() -> None:
    async def main() -> None:
        async with served() as api:
            secret = {"metadata": {"name": "s"}, "stringData": {"a": "b"}, "data": {"c": "ZA=="}}
            stored = (await api.post("/api/v1/namespaces/default/secrets", secret)).data
            assert (stored["type"], stored["data"], "stringData" in stored) == (
                "Opaque",
                {"c": "ZA==", "a": "Yg=="},
                False,
            )
            service = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
            spec = (await api.post("/api/v1/namespaces/default/services", service)).data["spec"]
            assert spec["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
            assert (spec["type"], spec["sessionAffinity"]) == ("ClusterIP", "None")

    run(main())


def test_workloads_get_the_strategies_and_selectors_that_kubectl_asks_for() -> None:
    async def main() -> None:
        async with served() as api:

            async def spec(plural: str, kind: str, body: dict[str, Any], group: str = "apps") -> Any:
                whole = {**body, "apiVersion": f"{group}/v1" if group else "v1", "kind": kind}
                prefix = f"/apis/{group}/v1" if group else "/api/v1"
                answer = await api.post(f"{prefix}/namespaces/default/{plural}", whole)
                assert answer.status == 201, answer.message
                return answer.data["spec"]

            web = a_deployment()
            deployment = await spec("deployments", "Deployment", web)
            assert deployment["strategy"] == {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
            }
            ports = deployment["template"]["spec"]["containers"][0]["ports"]
            assert ports == [{"containerPort": 80, "protocol": "TCP"}]
            stateful = await spec("statefulsets", "StatefulSet", web)
            assert stateful["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
            daemons = await spec(
                "daemonsets", "DaemonSet", {**web, "spec": {**web["spec"], "updateStrategy": {"type": "OnDelete"}}}
            )
            assert daemons["updateStrategy"] == {"type": "OnDelete"}
            template = web["spec"]["template"]
            controller = await spec(
                "replicationcontrollers",
                "ReplicationController",
                {"metadata": {"name": "w"}, "spec": {"template": template}},
                "",
            )
            assert (controller["replicas"], controller["selector"]) == (1, {"app": "web"})
            pod = {"spec": {**template["spec"], "restartPolicy": "Never"}}
            job = await spec(
                "jobs", "Job", {"metadata": {"name": "j"}, "spec": {"template": pod, "selector": {}}}, "batch"
            )
            uid = job["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"]
            assert job["template"]["metadata"]["labels"] == {
                "controller-uid": uid,
                "batch.kubernetes.io/controller-uid": uid,
                "job-name": "j",
                "batch.kubernetes.io/job-name": "j",
            }
            cron = {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": pod}}}
            assert (await spec("cronjobs", "CronJob", {"metadata": {"name": "c"}, "spec": cron}, "batch"))[
                "concurrencyPolicy"
            ] == "Allow"

    run(main())


def test_what_a_kubelet_leaves_out_of_its_node_is_there_though_empty() -> None:
    async def main() -> None:
        async with served() as api:
            status = {**a_node()["status"], "nodeInfo": {"kubeletVersion": "v1.36.0"}}
            info = (await api.post("/api/v1/nodes", a_node(status=status))).data["status"]["nodeInfo"]
            assert (info["kubeletVersion"], info["bootID"], info["osImage"]) == ("v1.36.0", "", "")

    run(main())


def test_an_extended_resource_that_is_added_to_a_node_can_be_allocated() -> None:
    async def main() -> None:
        async with served() as api:
            assert (await api.post("/api/v1/nodes", a_node(status={"capacity": {"cpu": "4"}}))).status == 201
            added = {"status": {"capacity": {"example.com/foo": "5"}}}
            status = (await api.patch("/api/v1/nodes/n1/status", added)).data["status"]
            assert status["allocatable"] == {"cpu": "4", "example.com/foo": "5"}
            fewer = {"status": {"allocatable": {"example.com/foo": "3"}}}
            status = (await api.patch("/api/v1/nodes/n1/status", fewer)).data["status"]
            assert status["allocatable"] == {"cpu": "4", "example.com/foo": "3"}

    run(main())


def test_writes_over_http_and_in_process_see_each_other() -> None:
    async def main() -> None:
        async with served() as api:
            watch = api.store.watch(PODS_KIND, resource_version=str(api.store.resource_version))
            await api.post(PODS, a_pod())
            assert [(event.type, event.item.name) for event in watch.drain()] == [("ADDED", "p")]
            watch.close()
            api.store.create(PODS_KIND, "default", a_pod("q"))
            assert [item["metadata"]["name"] for item in (await api.get(PODS)).data["items"]] == ["p", "q"]

    run(main())


def test_a_put_creates_a_lease_that_is_not_there() -> None:
    async def main() -> None:
        async with served() as api:
            path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l"
            spec = {"holderIdentity": "me", "leaseDurationSeconds": 15}
            assert (await api.put(path, {"metadata": {"name": "l"}, "spec": spec}, dryRun="All")).status == 201
            assert (await api.get(path)).status == 404
            nameless = await api.put(path, {"spec": spec})
            text = "the name of the object (l based on URL) was undeterminable: name must be provided"
            assert (nameless.status, nameless.message) == (400, text)
            made = await api.put(path, {"metadata": {"name": "l"}, "spec": spec})
            assert (made.status, made.data["spec"]) == (201, spec)
            again = await api.put(path, {**made.data, "spec": {**spec, "holderIdentity": "you"}})
            assert (again.status, again.data["spec"]["holderIdentity"]) == (200, "you")
            other = await api.put(f"{path}2", {"metadata": {"name": "l"}, "spec": spec})
            assert (other.status, "does not match the name on the URL (l2)" in other.message) == (400, True)
            stale = {"metadata": {"name": "l3", "resourceVersion": "1"}, "spec": spec}
            assert (await api.put(f"{path}3", stale)).status == 400
            assert (await api.put(f"{path}4", [])).status == 400
            assert (await api.put(f"{PODS}/p", a_pod())).status == 404
            assert (await api.put(f"{path}5/status", {"spec": spec})).status == 404

    run(main())
