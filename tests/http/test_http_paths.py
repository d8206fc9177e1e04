"""Paths, verbs, health, discovery and OpenAPI."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from http_world import PODS, Answer, Api, a_definition, a_node, a_pod, run, served

from kubesched.base.times import parse_time

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
REFUSED: list[tuple[str, str, str, int, str]] = [
    ("a resource that does not exist", "GET", "/api/v1/frogs", 404, "NotFound"),
    ("a group that does not exist", "GET", "/apis/frogs/v1/frogs", 404, "NotFound"),
    ("a version that does not exist", "GET", "/apis/apps/v9/deployments", 404, "NotFound"),
    ("a path outside the API", "GET", "/frogs", 404, "NotFound"),
    ("a pod that does not exist", "GET", f"{PODS}/frog", 404, "NotFound"),
    ("a subresource that does not exist", "GET", f"{PODS}/p/frog", 404, "NotFound"),
    ("a path below a subresource", "GET", f"{PODS}/p/status/frog", 404, "NotFound"),
    ("a node in a namespace", "GET", "/api/v1/namespaces/default/nodes", 404, "NotFound"),
    ("a pod without its namespace", "GET", "/api/v1/pods/p", 404, "NotFound"),
    ("an empty path segment", "GET", "/api/v1//pods", 404, "NotFound"),
    ("PUT on a collection", "PUT", PODS, 405, "MethodNotAllowed"),
    ("POST on an object", "POST", f"{PODS}/p", 405, "MethodNotAllowed"),
    ("POST of pods for all namespaces", "POST", "/api/v1/pods", 405, "MethodNotAllowed"),
    ("DELETE of a status", "DELETE", f"{PODS}/p/status", 405, "MethodNotAllowed"),
    ("GET of a binding", "GET", f"{PODS}/p/binding", 405, "MethodNotAllowed"),
    ("POST on the version", "POST", "/version", 405, "MethodNotAllowed"),
    ("execution in a pod without a node", "GET", f"{PODS}/p/exec", 400, "BadRequest"),
    ("exec into a pod without a node", "POST", f"{PODS}/p/exec", 400, "BadRequest"),
    ("GET of a review", "GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", 405, "MethodNotAllowed"),
]


@pytest.mark.parametrize(
    ("method", "path", "code", "reason"), [case[1:] for case in REFUSED], ids=[c[0] for c in REFUSED]
)
def test_what_does_not_exist_is_refused_with_a_status(method: str, path: str, code: int, reason: str) -> None:
    async def main() -> None:
        async with served() as api:
            await api.post(PODS, a_pod())
            answer = await api(method, path)
            assert (answer.status, answer.data["kind"], answer.data["code"]) == (code, "Status", code)
            assert answer.reason == reason
            if code == 405 or answer.message.startswith("the server could not find the requested resource"):
                # kubectl looks into the details of such answers without asking whether there are any.
                assert answer.data["details"] == {}

    run(main())


@pytest.mark.parametrize(
    ("path", "elsewhere"),
    [
        ("/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers", ": it is in autoscaling/v2 here"),
        ("/api/v2/pods", ": it is in v1 here"),
        ("/apis/autoscaling/v1/namespaces/default/frogs", ""),
    ],
)
def test_a_version_without_the_kind_names_those_that_have_it(path: str, elsewhere: str) -> None:
    async def main() -> None:
        async with served() as api:
            answer = await api.post(path, {})
            assert (answer.status, answer.data["details"]) == (404, {})
            assert answer.message == "the server could not find the requested resource" + elsewhere

    run(main())


TARGET = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}


def test_nothing_can_be_executed_in_a_pod_because_it_is_hollow() -> None:
    async def main() -> None:
        async with served() as api:
            await api.post(PODS, a_pod())
            assert (await api.post(f"{PODS}/p/binding", TARGET)).status == 201
            for subresource in ("exec", "attach", "portforward"):
                answer = await api.get(f"{PODS}/p/{subresource}")
                assert (answer.status, answer.reason) == (501, "NotImplemented")

    run(main())


def test_the_log_of_a_hollow_pod_is_empty_with_a_warning() -> None:
    async def main() -> None:
        async with served() as api:
            await api.post(PODS, a_pod())
            assert (await api.get(f"{PODS}/p/log", follow=True)).status == 204, "it has no node yet"
            assert (await api.post(f"{PODS}/p/binding", TARGET)).status == 201
            answer = await api.get(f"{PODS}/p/log", container="main", tailLines=10)
            assert (answer.status, answer.raw, answer.headers["Content-Type"]) == (200, b"", "text/plain")
            assert ["hollow" in text for text in answer.warnings] == [True]
            assert (await api.get(f"{PODS}/p/log", container="d")).message == "container d is not valid for pod p"
            two = {"metadata": {"name": "two"}, "spec": {"containers": [{"name": name, "image": "i"} for name in "cd"]}}
            await api.post(PODS, two)
            text = "a container name must be specified for pod two, choose one of: [c d]"
            assert (await api.get(f"{PODS}/two/log")).message == text
            assert (await api.get(f"{PODS}/none/log")).status == 404

    run(main())


@pytest.mark.parametrize("end", ["Succeeded", "deleted", "server"])
def test_a_log_that_is_followed_ends_with_its_pod(end: str) -> None:
    async def main() -> None:
        async with served() as api:
            await api.post(PODS, a_pod())
            await api.post(f"{PODS}/p/binding", TARGET)
            async with api.session.get(f"{api.server.url}{PODS}/p/log?follow=true") as response:
                reading = asyncio.ensure_future(response.read())
                await api.patch(f"{PODS}/p/status", {"status": {"phase": "Running"}})
                assert (response.status, reading.done()) == (200, False)
                if end == "Succeeded":
                    await api.patch(f"{PODS}/p/status", {"status": {"phase": end}})
                elif end == "deleted":
                    await api.delete(f"{PODS}/p", gracePeriodSeconds=0)
                else:
                    await api.server.stop()
                assert await asyncio.wait_for(reading, 30) == b""
            if end == "Succeeded":
                assert (await api.get(f"{PODS}/p/log", follow=True)).raw == b""

    run(main())


HEALTH = [
    ("/healthz", {}, "ok"),
    ("/livez", {}, "ok"),
    ("/readyz", {}, "ok"),
    ("/readyz/ping", {}, "ok"),
    ("/livez", {"verbose": ""}, "[+]ping ok\n[+]store ok\nlivez check passed\n"),
    ("/livez", {"verbose": "", "exclude": "store"}, "[+]ping ok\n[+]store excluded: ok\nlivez check passed\n"),
]


@pytest.mark.parametrize(("path", "query", "text"), HEALTH)
def test_health(path: str, query: dict[str, str], text: str) -> None:
    async def main() -> None:
        async with served() as api:
            answer = await api.get(path, **query)
            assert (answer.status, answer.raw.decode()) == (200, text)

    run(main())


async def _documents(api: Api, *paths: str, **options: Any) -> list[Any]:
    return [(await api.get(path, **options)).data for path in paths]


def test_discovery_in_the_old_form() -> None:
    async def main() -> None:
        async with served() as api:
            version, core, groups, group, apps = await _documents(
                api, "/version", "/api", "/apis", "/apis/scheduling.k8s.io", "/apis/apps/v1"
            )
            assert version["major"] == "1"
            assert version["minor"] == "36"
            assert core["versions"] == ["v1"]
            names = [item["name"] for item in groups["groups"]]
            assert {"apps", "batch", "resource.k8s.io", "authorization.k8s.io"} <= set(names)
            assert group["preferredVersion"]["version"] == "v1"
            assert [item["version"] for item in group["versions"]] == ["v1", "v1alpha2"]
            hashes = {item["name"]: item.get("storageVersionHash") for item in apps["resources"]}
            assert hashes["controllerrevisions"] == "85nkx63pcBU=", "as of a real server"
            assert hashes["deployments/scale"] is None
            found = {item["name"]: item for item in apps["resources"]}
            assert found["deployments"]["shortNames"] == ["deploy"]
            assert found["deployments/scale"]["group"] == "autoscaling"
            assert "watch" in found["deployments"]["verbs"]

    run(main())


def test_aggregated_discovery_says_the_same_and_names_its_type() -> None:
    async def main() -> None:
        async with served() as api:
            for path in ("/api", "/apis"):
                answer = await api.get(path, accept=AGGREGATED)
                assert answer.headers["Content-Type"].endswith("as=APIGroupDiscoveryList")
                for item in answer.data["items"]:
                    for version in item["versions"]:
                        group = item["metadata"].get("name", "")
                        prefix = f"/apis/{group}" if group else "/api"
                        plain = (await api.get(f"{prefix}/{version['version']}")).data
                        want = {entry["name"] for entry in plain["resources"] if "/" not in entry["name"]}
                        assert {entry["resource"] for entry in version["resources"]} == want

    run(main())


def test_openapi_v3_has_a_document_for_every_group_version_and_resolves_its_references() -> None:
    async def main() -> None:
        async with served() as api:
            await api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", a_definition())
            index = (await api.get("/openapi/v3")).data["paths"]
            assert {"api/v1", "apis/apps/v1", "apis/example.com/v1"} <= set(index)
            for entry in index.values():
                document = (await api.get(entry["serverRelativeURL"].split("?")[0])).data
                schemas = document["components"]["schemas"]
                for ref in _references(document):
                    assert ref.removeprefix("#/components/schemas/") in schemas
            pods = (await api.get("/openapi/v3/api/v1")).data
            kinds = pods["components"]["schemas"]["io.k8s.api.core.v1.Pod"]["x-kubernetes-group-version-kind"]
            assert kinds == [{"group": "", "version": "v1", "kind": "Pod"}]
            patch = pods["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
            assert {"dryRun", "fieldValidation"} <= {item["name"] for item in patch["parameters"]}
            spec = pods["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]
            assert all(spec[name].get("description") for name in ("tolerations", "affinity", "schedulerName"))
            assert spec["restartPolicy"] == {
                "type": "string",
                "enum": ["Always", "OnFailure", "Never"],
                "default": "Always",
                "description": "Always, OnFailure or Never.",
            }
            assert (spec["activeDeadlineSeconds"]["minimum"], spec["securityContext"]["default"]) == (1, {})
            claim = pods["components"]["schemas"]["io.k8s.api.core.v1.PersistentVolumeClaimSpec"]["properties"]
            assert "ReadWriteOnce" in claim["accessModes"]["items"]["enum"]
            devices = (await api.get("/openapi/v3/apis/resource.k8s.io/v1")).data["components"]["schemas"]
            assert devices["io.k8s.api.resource.v1.DeviceClaim"]["properties"]["requests"]["maxItems"] == 32
            policies = (await api.get("/openapi/v3/apis/networking.k8s.io/v1")).data["components"]["schemas"]
            types = policies["io.k8s.api.networking.v1.NetworkPolicySpec"]["properties"]["policyTypes"]
            assert "default" not in types  # it depends on whether there are egress rules

    run(main())


def test_openapi_v2_in_json_and_protobuf() -> None:
    async def main() -> None:
        async with served() as api:
            document = (await api.get("/openapi/v2")).data
            assert document["swagger"] == "2.0"
            for ref in _references(document):
                assert ref.removeprefix("#/definitions/") in document["definitions"]
            protobuf = await api.get("/openapi/v2", accept="application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
            assert protobuf.status == 200
            # Field 1 (swagger) is the text 2.0, and every definition is named in what follows.
            assert protobuf.raw.startswith(b"\x0a\x032.0")
            assert all(name.encode() in protobuf.raw for name in document["definitions"])

    run(main())


MARKED = [
    ("core.v1.PodSpec", "containers", "merge", "name"),
    ("core.v1.PodSpec", "volumes", "merge,retainKeys", "name"),
    ("core.v1.PodSpec", "tolerations", None, None),
    ("core.v1.Container", "ports", "merge", "containerPort"),
    ("core.v1.Container", "args", None, None),
    ("core.v1.ServiceSpec", "ports", "merge", "port"),
    ("core.v1.PodStatus", "conditions", "merge", "type"),
    ("apps.v1.DeploymentSpec", "strategy", "retainKeys", None),
    ("apps.v1.DeploymentSpec", "template", None, None),
]


@pytest.mark.parametrize(("type_", "field", "strategy", "key"), MARKED)
def test_openapi_says_how_lists_merge(type_: str, field: str, strategy: str | None, key: str | None) -> None:
    """Older kubectl makes its patches from this: unmarked lists would be sent, and replaced, as a whole."""

    async def main() -> None:
        async with served() as api:
            definitions = (await api.get("/openapi/v2")).data["definitions"]
            found = definitions[f"io.k8s.api.{type_}"]["properties"][field]
            assert found.get("x-kubernetes-patch-strategy") == strategy
            assert found.get("x-kubernetes-patch-merge-key") == key

    run(main())


def test_a_free_form_kind_forbids_nothing_to_clients_that_validate_themselves() -> None:
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

    async def main() -> None:
        async with served() as api:
            definition = a_definition(schema={"openAPIV3Schema": free})
            assert (await api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)).status == 201
            old = (await api.get("/openapi/v2")).data["definitions"]
            assert "properties" not in old["com.example.v1.Widget"]
            assert "properties" in old["com.example.v1beta1.Widget"]
            new = (await api.get("/openapi/v3/apis/example.com/v1")).data["components"]["schemas"]
            assert set(new["com.example.v1.Widget"]["properties"]) == {"apiVersion", "kind", "metadata"}

    run(main())


def test_what_version_2_cannot_express_is_free_form_there() -> None:
    inner = {
        "loose": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"a": {"type": "string"}},
        },
        "maybe": {"type": "array", "nullable": True, "items": {"type": "string"}},
        "exact": {
            "type": "array",
            "items": {"type": "object", "properties": {"b": {"type": "string", "not": {"enum": ["c"]}}}},
        },
    }

    async def main() -> None:
        async with served() as api:
            spec = {"type": "object", "properties": inner}
            definition = a_definition(schema={"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}})
            assert (await api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)).status == 201
            old = (await api.get("/openapi/v2")).data["definitions"]["com.example.v1.Widget"]["properties"]
            assert old["spec"]["properties"] == {
                "loose": {"x-kubernetes-preserve-unknown-fields": True},
                "maybe": {},
                "exact": {"type": "array", "items": {"type": "object", "properties": {"b": {"type": "string"}}}},
            }
            assert "APIVersion defines" in old["apiVersion"]["description"]
            new = (await api.get("/openapi/v3/apis/example.com/v1")).data["components"]["schemas"]
            assert new["com.example.v1.Widget"]["properties"]["spec"] == spec

    run(main())


def _references(data: Any) -> list[str]:
    if isinstance(data, dict):
        found = [data["$ref"]] if isinstance(data.get("$ref"), str) else []
        return found + [ref for value in data.values() for ref in _references(value)]
    return [ref for value in data for ref in _references(value)] if isinstance(data, list) else []


REVIEWS = [
    ("selfsubjectaccessreviews", "SelfSubjectAccessReview", {"resourceAttributes": {"verb": "get"}}, "allowed", True),
    ("subjectaccessreviews", "SubjectAccessReview", {"user": "u"}, "allowed", True),
    ("selfsubjectrulesreviews", "SelfSubjectRulesReview", {"namespace": "default"}, "incomplete", False),
]


@pytest.mark.parametrize(("plural", "kind", "spec", "field", "value"), REVIEWS)
def test_access_reviews_allow_everything(plural: str, kind: str, spec: Any, field: str, value: bool) -> None:
    async def main() -> None:
        async with served() as api:
            answer = await api.post(f"/apis/authorization.k8s.io/v1/{plural}", {"kind": kind, "spec": spec})
            assert answer.status == 201
            assert answer.data["status"][field] is value
            assert answer.data["spec"] == spec

    run(main())


@pytest.mark.parametrize(
    ("token", "user", "allowed"), [("t", "u", True), ("t", "system:anonymous", False), (None, "system:anonymous", True)]
)
def test_access_reviews_deny_whoever_comes_without_the_token(token: str | None, user: str, allowed: bool) -> None:
    async def main() -> None:
        async with served(token=token) as api:
            headers = {"Authorization": f"Bearer {token}"}
            path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
            answer = await api.post(path, {"spec": {"user": user}}, headers=headers)
            assert answer.data["status"]["allowed"] is allowed

    run(main())


def test_token_reviews_know_the_token_of_the_server() -> None:
    async def main() -> None:
        async with served(token="secret") as api:
            headers = {"Authorization": "Bearer secret"}
            path = "/apis/authentication.k8s.io/v1/tokenreviews"
            for token, good in (("secret", True), ("other", None)):
                answer = await api.post(path, {"spec": {"token": token}}, headers=headers)
                assert answer.data["status"].get("authenticated") is good

    run(main())


@pytest.mark.parametrize("path", ["/api/v1/nodes/n1", "/api/v1/nodes", "/api/v1/watch/nodes"])
def test_cluster_scoped_paths(path: str) -> None:
    async def main() -> None:
        async with served() as api:
            assert (await api.post("/api/v1/nodes", a_node())).status == 201
            answer = await api.get(path, **({"timeoutSeconds": 1} if "watch" in path else {}))
            assert answer.status == 200
            assert b'"n1"' in answer.raw

    run(main())


@pytest.mark.parametrize("token", ["secret", None])
def test_service_accounts_get_tokens_that_the_server_knows(token: str | None) -> None:
    async def main() -> None:
        async with served(token=token) as api:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            path = "/api/v1/namespaces/default/serviceaccounts"

            async def ask(name: str, **spec: Any) -> Answer:
                body = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": spec}
                return await api.post(f"{path}/{name}/token", body, headers=headers)

            assert (await ask("robot")).status == 404
            await api.post(path, {"metadata": {"name": "robot"}}, headers=headers)
            answer = await ask("robot", expirationSeconds=600)
            assert answer.status == 201
            assert answer.data["kind"] == "TokenRequest"
            made = parse_time(answer.data["metadata"]["creationTimestamp"])
            assert parse_time(answer.data["status"]["expirationTimestamp"]) == made + 600
            given = {"Authorization": f"Bearer {answer.data['status']['token']}"}
            assert (await api.get(path, headers=given)).status == 200
            short = await ask("robot", expirationSeconds=10)
            assert (short.status, "must be between 600" in short.message) == (422, True)
            assert (await ask("robot", expirationSeconds="x")).status == 400
            assert (await ask("robot", audiences="x")).message.startswith("spec.audiences: must be a list of strings")
            bodies: list[Any] = [[], {"spec": [1]}, {"metadata": 5}]
            for body in bodies:
                assert (await api.post(f"{path}/robot/token", body, headers=headers)).status == 400
            assert (await api.get(f"{path}/robot/token", headers=headers)).status == 405

    run(main())


def test_metrics_count_requests_watches_and_objects() -> None:
    async def main() -> None:
        async with served(token="secret") as api:
            headers = {"Authorization": "Bearer secret"}
            assert (await api.get("/metrics")).status == 401
            for name in ("a", "b"):
                assert (await api.post("/api/v1/nodes", a_node(name), headers=headers)).status == 201
            for path in ("/api/v1/frogs/x", "/api/v1/nodes/a/frogs", "/frogs"):
                await api.get(path, headers=headers)
                await api.get(path)
            answer = await api.get("/metrics", headers=headers)
            assert answer.headers["Content-Type"].startswith("text/plain")
            lines = answer.raw.decode().splitlines()
            labels = 'group="",resource="nodes",subresource="",verb="POST",version="v1"'
            assert any(
                line.startswith("apiserver_request_total{") and line.endswith(" 2.0")
                for line in lines
                if all(label in line for label in labels.split(","))
            )
            assert 'apiserver_storage_objects{resource="nodes"} 2.0' in lines
            assert "apiserver_longrunning_requests 0.0" in lines
            assert not any("frogs" in line for line in lines)

    run(main())
