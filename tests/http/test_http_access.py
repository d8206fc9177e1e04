"""Users of the embedded server and what stored roles let them do (rules/serving §10; KEP-4817 for claims)."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from http_world import MERGE, PODS, Answer, Api, FakeClock, a_node, a_pod, a_store, run, served

from kubesched.cluster.http import HttpServer
from kubesched.cluster.http.rbac import MOST_PARTS, Attributes, RoleAuthorizer
from kubesched.cluster.http.users import User

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
REVIEWS = "/apis/authorization.k8s.io/v1"
ROBOT = "system:serviceaccount:default:robot"


def rule(verbs: str, resources: str = "pods", groups: str = "", **more: Any) -> dict[str, Any]:
    words = {"verbs": verbs.split(), "resources": resources.split(), "apiGroups": [groups]}
    return {**words, **more}


async def grant(api: Api, *rules: dict[str, Any], subject: Any = None, namespace: str = "", **role: Any) -> None:
    """Give ROBOT, or another subject, the rules of one more role."""
    name = f"role-{len(api.store.table(_kind('clusterroles')).objects) + len(api.store.table(_kind('roles')).objects)}"
    kind, place = ("Role", f"{RBAC}/namespaces/{namespace}/") if namespace else ("ClusterRole", f"{RBAC}/")
    made = await api.post(f"{place}{kind.lower()}s", {"metadata": {"name": name}, "rules": rules, **role})
    assert made.status == 201, made.message
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
        "subjects": [subject or {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}],
    }
    made = await api.post(f"{place}{kind.lower()}bindings", binding)
    assert made.status == 201, made.message


def as_user(name: str, *groups: str) -> dict[str, str]:
    headers = {"Impersonate-User": name}
    return {**headers, "Impersonate-Group": groups[0]} if groups else headers


@asynccontextmanager
async def guarded(**options: Any) -> AsyncIterator[tuple[Api, dict[str, str]]]:
    """A server that checks roles, and the headers of a service account without any."""
    async with served(authorization_mode="RBAC", **options) as api:
        assert (await api.post(ACCOUNTS, {"metadata": {"name": "robot"}})).status == 201
        answer = await api.post(f"{ACCOUNTS}/robot/token", {"kind": "TokenRequest", "spec": {}})
        yield api, {"Authorization": f"Bearer {answer.data['status']['token']}"}


# -- users -------------------------------------------------------------------------------------------------


def test_without_authorization_everybody_may_do_everything() -> None:
    async def main() -> None:
        async with served() as api:
            assert (await api.get(PODS, headers=as_user("nobody"))).status == 200
            assert (await api.get("/apis/rbac.authorization.k8s.io/v1/clusterroles")).data["items"] == []

    run(main())


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="'ABAC' is none of AlwaysAllow, RBAC"):
        HttpServer(a_store(), authorization_mode="ABAC")


def test_a_service_account_is_known_by_its_token_until_it_expires_or_the_account_is_made_anew() -> None:
    async def main() -> None:
        store = a_store()
        clock = store.clock
        assert isinstance(clock, FakeClock)
        async with guarded(store=store) as (api, headers):
            who = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
            info = (await api.post(who, {}, headers=headers)).data["status"]["userInfo"]
            assert (info["username"], "system:serviceaccounts:default" in info["groups"]) == (ROBOT, True)
            given = headers["Authorization"].removeprefix("Bearer ")
            claims = msgspec.json.decode(base64.urlsafe_b64decode(given.split(".")[1] + "=="))
            assert (claims["sub"], claims["exp"] - claims["iat"]) == (ROBOT, 3600)
            review = await api.post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": given}})
            assert review.data["status"]["user"]["username"] == ROBOT
            forged = {"Authorization": headers["Authorization"][:-2]}
            assert (await api.post(who, {}, headers=forged)).status == 401
            clock.time += 3601
            assert (await api.post(who, {}, headers=headers)).status == 401
            clock.time -= 3601
            assert (await api.delete(f"{ACCOUNTS}/robot")).status == 200
            assert (await api.post(ACCOUNTS, {"metadata": {"name": "robot"}})).status == 201
            assert (await api.post(who, {}, headers=headers)).status == 401

    run(main())


@pytest.mark.parametrize("text", ["x", "a.b.c", ".", "", "\udcff"])
def test_a_token_that_is_nobodys_is_refused(text: str) -> None:
    async def main() -> None:
        async with guarded() as (api, _):
            body = {"spec": {"token": text.encode("utf-8", "replace").decode()}}
            review = await api.post("/apis/authentication.k8s.io/v1/tokenreviews", body)
            assert "authenticated" not in review.data["status"]

    run(main())


def test_users_are_impersonated_with_permission_only() -> None:
    async def main() -> None:
        async with guarded() as (api, headers):
            await grant(api, rule("list"), subject={"kind": "User", "name": "ann"})
            await grant(api, rule("list", "nodes"), subject={"kind": "Group", "name": "ops"})
            assert (await api.get(PODS, headers=as_user("ann"))).status == 200
            assert (await api.get("/api/v1/nodes", headers=as_user("ann"))).status == 403
            assert (await api.get("/api/v1/nodes", headers=as_user("ann", "ops"))).status == 200
            refused = await api.get(PODS, headers={**headers, **as_user("ann")})
            assert refused.message == (
                f'users "ann" is forbidden: User "{ROBOT}" cannot impersonate resource "users" in API group "" '
                "at the cluster scope"
            )
            await grant(api, rule("impersonate", "users", resourceNames=["ann"]))
            assert (await api.get(PODS, headers={**headers, **as_user("ann")})).status == 200
            assert (await api.get(PODS, headers={**headers, **as_user("ann", "ops")})).status == 403
            assert (await api.get(PODS, headers={**headers, **as_user("ben")})).status == 403
            assert (await api.get(PODS, headers={"Impersonate-Group": "ops"})).status == 400
            other = as_user(ROBOT)
            assert (await api.get(PODS, headers={**headers, **other})).message.startswith('serviceaccounts "robot" is')

    run(main())


# -- rules -------------------------------------------------------------------------------------------------

#: What a rule allows, as (rule, method, path, query), and whether it does.
CASES: dict[str, tuple[dict[str, Any], str, str, dict[str, str], bool]] = {
    "the verb, group and resource match": (rule("list"), "GET", PODS, {}, True),
    "another verb": (rule("get"), "GET", PODS, {}, False),
    "another group": (rule("list", groups="apps"), "GET", PODS, {}, False),
    "every verb": (rule("*"), "GET", PODS, {}, True),
    "every resource": (rule("list", "*"), "GET", PODS, {}, True),
    "every group": (rule("list", groups="*"), "GET", PODS, {}, True),
    "a watch is no list": (rule("list"), "GET", PODS, {"watch": "true"}, False),
    "a watch": (rule("watch"), "GET", PODS, {"watch": "true", "timeoutSeconds": "1"}, True),
    "an old watch path": (rule("list get"), "GET", "/api/v1/watch/pods", {}, False),
    "one object": (rule("get"), "GET", f"{PODS}/p", {}, True),
    "one object by name": (rule("get", resourceNames=["p"]), "GET", f"{PODS}/p", {}, True),
    "another name": (rule("get", resourceNames=["q"]), "GET", f"{PODS}/p", {}, False),
    "a name is not the collection": (rule("list", resourceNames=["p"]), "GET", PODS, {}, False),
    "the collection, selecting that name": (
        rule("list", resourceNames=["p"]), "GET", PODS, {"fieldSelector": "metadata.name=p"}, True,
    ),
    "the collection, selecting another name": (
        rule("list", resourceNames=["p"]), "GET", PODS, {"fieldSelector": "metadata.name=q"}, False,
    ),
    "all but that name": (
        rule("list", resourceNames=["p"]), "GET", PODS, {"fieldSelector": "metadata.name!=p"}, False,
    ),
    "a subresource is another resource": (rule("get"), "GET", f"{PODS}/p/status", {}, False),
    "a subresource": (rule("get", "pods/status"), "GET", f"{PODS}/p/status", {}, True),
    "a subresource of every resource": (rule("get", "*/status"), "GET", f"{PODS}/p/status", {}, True),
    "deletion": (rule("delete"), "DELETE", f"{PODS}/p", {"dryRun": "All"}, True),
    "deletion of a collection is another verb": (rule("delete"), "DELETE", PODS, {}, False),
    "a collection": (rule("deletecollection"), "DELETE", PODS, {"dryRun": "All"}, True),
    "a path": ({"verbs": ["get"], "nonResourceURLs": ["/metrics"]}, "GET", "/metrics", {}, True),
    "paths below": ({"verbs": ["get"], "nonResourceURLs": ["/metr*"]}, "GET", "/metrics", {}, True),
    "another path": ({"verbs": ["get"], "nonResourceURLs": ["/metrics/x"]}, "GET", "/metrics", {}, False),
    "a resource rule is for no path": (rule("*", "*", "*"), "GET", "/metrics", {}, False),
    "discovery is for everybody": (rule("list"), "GET", "/apis/apps/v1", {}, True),
    "health is for everybody": (rule("list"), "GET", "/readyz", {}, True),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_rule_allows_what_it_names(case: str) -> None:
    given, method, path, query, allowed = CASES[case]

    async def main() -> None:
        async with guarded() as (api, headers):
            assert (await api.post(PODS, a_pod("p"))).status == 201
            before = await api(method, path, headers=headers, **query)
            is_open = path.startswith(("/apis/apps", "/readyz"))
            assert before.status == (200 if is_open else 403)
            await grant(api, given)
            answer = await api(method, path, headers=headers, **query)
            assert answer.status == (200 if allowed else 403), answer.raw

    run(main())


def test_a_refusal_is_a_status_in_the_words_of_upstream() -> None:
    async def main() -> None:
        async with guarded() as (api, headers):
            answer = await api.get("/apis/apps/v1/namespaces/default/deployments/web/scale", headers=headers)
            assert answer.data == {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Failure",
                "message": f'deployments.apps "web" is forbidden: User "{ROBOT}" cannot get resource '
                '"deployments/scale" in API group "apps" in the namespace "default"',
                "reason": "Forbidden",
                "details": {"name": "web", "group": "apps", "kind": "deployments"},
                "code": 403,
            }
            assert (await api.get("/api/v1/nodes", headers=headers)).message == (
                f'nodes is forbidden: User "{ROBOT}" cannot list resource "nodes" in API group "" at the cluster scope'
            )
            assert (await api.get("/metrics", headers=headers)).message == (
                f'forbidden: User "{ROBOT}" cannot get path "/metrics"'
            )
            # A resource that there is not is refused as well: who may not look does not learn that.
            assert (await api.get("/api/v1/frogs", headers=headers)).status == 403

    run(main())


def test_a_role_of_a_namespace_holds_there_only_and_until_it_is_gone() -> None:
    async def main() -> None:
        async with guarded() as (api, headers):
            await grant(api, rule("list"), rule("get", "namespaces"), namespace="default")
            assert (await api.get(PODS, headers=headers)).status == 200
            assert (await api.get("/api/v1/pods", headers=headers)).status == 403
            assert (await api.get("/api/v1/namespaces/kube-system/pods", headers=headers)).status == 403
            assert (await api.get("/api/v1/namespaces/default", headers=headers)).status == 200
            assert (await api.get("/api/v1/namespaces/kube-system", headers=headers)).status == 403
            assert (await api.delete(f"{RBAC}/namespaces/default/roles")).status == 200
            gone = await api.get(PODS, headers=headers)
            assert (gone.status, 'RBAC: role.rbac.authorization.k8s.io "role-' in gone.message) == (403, True)
            assert (await api.delete(f"{RBAC}/namespaces/default/rolebindings")).status == 200
            assert "RBAC" not in (await api.get(PODS, headers=headers)).message

    run(main())


def test_who_creates_by_patch_or_put_needs_the_permission_to_create() -> None:
    async def main() -> None:
        async with guarded() as (api, headers):
            service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"clusterIP": "None"}}
            path = "/api/v1/namespaces/default/services/s"
            await grant(api, rule("patch update", "services"))
            for answer in (
                await api.apply(path, service, headers=headers),
                await api.put(path, service, headers=headers),
            ):
                assert (answer.status, 'cannot create resource "services"' in answer.message) == (403, True)
            await grant(api, rule("create", "services"))
            assert (await api.apply(path, service, headers=headers)).status == 201

    run(main())


def test_an_aggregated_role_has_the_rules_of_those_it_selects() -> None:
    async def main() -> None:
        async with guarded() as (api, headers):
            part = {"metadata": {"name": "part", "labels": {"to": "middle"}}, "rules": [rule("list")]}
            middle = {"metadata": {"name": "middle", "labels": {"to": "all"}}, **_aggregating(to="middle")}
            for role in (part, middle):
                assert (await api.post(f"{RBAC}/clusterroles", role)).status == 201
            await grant(api, **_aggregating(to="all"))
            assert (await api.get(PODS, headers=headers)).status == 200
            await api.patch(f"{RBAC}/clusterroles/part", {"metadata": {"labels": {"to": "nobody"}}})
            assert (await api.get(PODS, headers=headers)).status == 403

    run(main())


def _aggregating(**labels: str) -> dict[str, Any]:
    return {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": labels}]}}


# -- the status of claims ----------------------------------------------------------------------------------

ALLOCATION = {
    "devices": {"results": [{"request": "r", "driver": "gpu.example.com", "pool": "p", "device": "d"}]},
    "nodeSelector": {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
    },
}
DEVICES = [{"driver": "gpu.example.com", "pool": "p", "device": "d", "data": {"ready": True}}]
WRITE_STATUS = rule("get patch update", "resourceclaims/status resourceclaims", "resource.k8s.io")


def on(name: str, verbs: str, **more: Any) -> dict[str, Any]:
    return rule(verbs, f"resourceclaims/{name}", "resource.k8s.io", **more)


async def with_claim(api: Api) -> None:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    assert (await api.post(CLAIMS, {"metadata": {"name": "c"}, "spec": spec})).status == 201


async def write(api: Api, headers: dict[str, str], how: str, **status: Any) -> Answer:
    """Write the status of the claim in one of the ways there are."""
    path = f"{CLAIMS}/c/status"
    if how == "put":
        claim = (await api.get(f"{CLAIMS}/c")).data
        return await api.put(path, {**claim, "status": {**claim.get("status", {}), **status}}, headers=headers)
    if how == "apply":
        head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}}
        return await api.apply(path, {**head, "status": status}, headers=headers)
    types = {"merge": MERGE, "strategic": "application/strategic-merge-patch+json"}
    if how == "json":
        change: Any = [{"op": "add", "path": "/status", "value": status}]
        return await api.patch(path, change, headers=headers, type="application/json-patch+json")
    return await api.patch(path, {"status": status}, headers=headers, type=types[how])


@pytest.mark.parametrize("how", ["put", "merge", "strategic", "json", "apply"])
def test_the_allocation_of_a_claim_needs_the_permission_to_bind_it(how: str) -> None:
    verb = "update" if how == "put" else "patch"

    async def main() -> None:
        async with guarded() as (api, headers):
            await with_claim(api)
            await grant(api, WRITE_STATUS)
            # Upstream asks for it in all namespaces, whatever the claim's is.
            await grant(api, on("binding", verb), namespace="default")
            refused = await write(api, headers, how, allocation=ALLOCATION)
            assert (refused.status, refused.reason) == (422, "Invalid")
            assert refused.message == (
                'ResourceClaim.resource.k8s.io "c" is invalid: status: Forbidden: changing status.allocation or '
                f'status.reservedFor requires resource="resourceclaims/binding", verb="{verb}" permission: '
                f'resourceclaims.resource.k8s.io is forbidden: User "{ROBOT}" cannot {verb} resource '
                '"resourceclaims/binding" in API group "resource.k8s.io" at the cluster scope'
            )
            assert "allocation" not in (await api.get(f"{CLAIMS}/c")).data.get("status", {})
            await grant(api, on("binding", verb))
            assert (await write(api, headers, how, allocation=ALLOCATION)).status == 200
            # What changes neither allocation nor reservation needs nothing more.
            await api.delete(f"{RBAC}/clusterrolebindings", labelSelector="!kubernetes.io/bootstrapping")
            await grant(api, WRITE_STATUS)
            assert (await write(api, headers, how, allocation=ALLOCATION)).status == 200

    run(main())


def test_the_status_of_devices_needs_the_permission_for_their_driver() -> None:
    async def main() -> None:
        async with guarded() as (api, headers):
            await with_claim(api)
            await grant(api, WRITE_STATUS)
            assert (await write(api, {}, "merge", allocation=ALLOCATION)).status == 200
            refused = await write(api, headers, "merge", devices=DEVICES)
            assert refused.message.startswith(
                'ResourceClaim.resource.k8s.io "c" is invalid: status.devices: Forbidden: changing status.devices '
                'requires resource="resourceclaims/driver", verb="[arbitrary-node:patch]" permission: '
                'resourceclaims.resource.k8s.io "gpu.example.com" is forbidden:'
            )
            await grant(api, on("driver", "arbitrary-node:patch", resourceNames=["other.example.com"]))
            assert (await write(api, headers, "merge", devices=DEVICES)).status == 422
            await grant(api, on("driver", "associated-node:patch", resourceNames=["gpu.example.com"]))
            assert (await write(api, headers, "merge", devices=DEVICES)).status == 422
            node = "Impersonate-Extra-authentication.kubernetes.io%2Fnode-name"
            elsewhere, there = ({**as_user(ROBOT), node: name} for name in ("n2", "n1"))
            assert (await write(api, elsewhere, "merge", devices=DEVICES)).status == 422
            assert (await write(api, there, "merge", devices=DEVICES)).status == 200
            # A deallocation takes the status of the devices with it, and is the scheduler's to make.
            await grant(api, on("binding", "patch"))
            freed = await write(api, headers, "merge", allocation=None, devices=None)
            assert (freed.status, freed.data.get("status", {})) == (200, {})

    run(main())


# -- reviews -----------------------------------------------------------------------------------------------


def test_reviews_answer_by_the_roles() -> None:
    async def main() -> None:
        async with guarded() as (api, headers):
            await grant(api, rule("list"), namespace="default")
            asked = {"verb": "list", "resource": "pods", "namespace": "default"}

            async def status(plural: str, spec: Any, **options: Any) -> dict[str, Any]:
                answer = await api.post(f"{REVIEWS}/{plural}", {"spec": spec}, **options)
                assert answer.status == 201, answer.message
                found: dict[str, Any] = answer.data["status"]
                return found

            mine = await status("selfsubjectaccessreviews", {"resourceAttributes": asked}, headers=headers)
            assert mine["allowed"]
            assert mine["reason"].startswith('RBAC: allowed by RoleBinding "role-')
            assert mine["reason"].endswith('to ServiceAccount "robot/default"')
            elsewhere = {**asked, "namespace": "kube-system"}
            about = {"user": ROBOT, "resourceAttributes": elsewhere}
            assert await status("subjectaccessreviews", about) == {"allowed": False}
            admin = {"user": "ann", "groups": ["system:masters"], "resourceAttributes": elsewhere}
            assert await status("subjectaccessreviews", admin) == {"allowed": True}
            page = {
                "user": "ann",
                "groups": ["system:monitoring"],
                "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
            }
            assert (await status("subjectaccessreviews", page))["allowed"]
            local = await api.post(
                "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews",
                {"spec": {"user": ROBOT, "resourceAttributes": asked}},
            )
            assert local.data["status"]["allowed"] is True
            rules = await status("selfsubjectrulesreviews", {"namespace": "default"}, headers=headers)
            assert {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]} in rules["resourceRules"]
            assert any("/openapi" in one["nonResourceURLs"] for one in rules["nonResourceRules"])
            refused = await api.post(f"{REVIEWS}/subjectaccessreviews", {"spec": about}, headers=headers)
            assert refused.status == 403
            assert (await api.post(f"{REVIEWS}/subjectaccessreviews", {"spec": {"user": "u"}})).status == 422
            wrong = await api.post(f"{REVIEWS}/subjectaccessreviews", {"spec": {"user": ["u"]}})
            assert (wrong.status, "$.user" in wrong.message) == (400, True)

    run(main())


# -- hostile objects ---------------------------------------------------------------------------------------


def test_a_decision_looks_at_a_bounded_part_of_large_roles_and_says_so() -> None:
    async def main() -> None:
        async with guarded() as (api, headers):
            for part in range(5):  # what one body may hold is not enough
                await grant(api, *[rule("list", f"r{part}-{number}") for number in range(MOST_PARTS // 16)])
            await grant(api, rule("list"))
            answer = await api.get(PODS, headers=headers)
            assert (answer.status, f"more than {MOST_PARTS} parts" in answer.message) == (403, True)
            rules, problem = api.server.access.rules(User(ROBOT), "")
            assert (len(rules) < MOST_PARTS // 4, f"more than {MOST_PARTS} parts" in problem) == (True, True)

    run(main())


def test_roles_that_aggregate_one_another_end() -> None:
    async def main() -> None:
        async with guarded() as (api, headers):
            for number in range(40):
                metadata = {"name": f"ring-{number}", "labels": {"ring": "x"}}
                assert (
                    await api.post(f"{RBAC}/clusterroles", {"metadata": metadata, **_aggregating(ring="x")})
                ).status == 201
            await grant(api, rule("list"), **_aggregating(ring="x"))
            assert (await api.get(PODS, headers=headers)).status == 200
            assert (await api.get("/api/v1/nodes", headers=headers)).status == 403

    run(main())


def test_decisions_follow_every_change_even_after_the_history_is_gone() -> None:
    store = a_store(history=2)
    authorizer, user = RoleAuthorizer(store), User("ann")
    wanted = Attributes("list", "", "pods", "", "default")
    roles, bindings = (_kind(name) for name in ("clusterroles", "clusterrolebindings"))
    assert not authorizer.decide(user, wanted).allowed
    store.create(roles, "", {"metadata": {"name": "r"}, "rules": [rule("list")]})
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}]
    store.create(bindings, "", {"metadata": {"name": "b"}, "roleRef": ref, "subjects": subjects})
    assert authorizer.decide(user, wanted).allowed
    store.delete(bindings, "", "b")
    for table in (store.table(roles), store.table(bindings)):
        table.compact()
    assert not authorizer.decide(user, wanted).allowed


def _kind(plural: str) -> Any:
    from kubesched.api.kinds import kind_by_plural

    return kind_by_plural("rbac.authorization.k8s.io", plural)


def test_the_words_of_a_rule_are_texts() -> None:
    async def main() -> None:
        async with served() as api:
            for field in ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs"):
                role = {"metadata": {"name": "r"}, "rules": [{**rule("get"), field: [5]}]}
                answer = await api.post(f"{RBAC}/clusterroles", role)
                assert (answer.status, f"rules[0].{field}[0]" in answer.message) == (400, True), answer.raw

    run(main())


def test_the_server_token_is_the_administrators_and_accounts_have_less() -> None:
    async def main() -> None:
        async with served(authorization_mode="RBAC", token="secret") as api:
            admin = {"Authorization": "Bearer secret"}
            assert (await api.post("/api/v1/nodes", a_node(), headers=admin)).status == 201
            assert (await api.get("/api/v1/nodes")).status == 401
            assert (await api.get("/readyz")).status == 200
            await api.post(ACCOUNTS, {"metadata": {"name": "robot"}}, headers=admin)
            made = await api.post(f"{ACCOUNTS}/robot/token", {"spec": {}}, headers=admin)
            robot = {"Authorization": f"Bearer {made.data['status']['token']}"}
            assert made.data["status"]["token"] != "secret"
            assert (await api.get("/api/v1/nodes", headers=robot)).status == 403

    run(main())
