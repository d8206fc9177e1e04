"""Pod groups and workloads over HTTP: gates, what may change, priorities, tables, and who may read them.

The recorded answers of a real API server are replayed by the conformance area ``gang``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import aiohttp
import pytest
from http_world import STRATEGIC, TABLE, Api, FakeClock

from kubesched.api.groups import GATES
from kubesched.api.kinds import JOBS, POD_GROUPS, PRIORITY_CLASSES
from kubesched.cluster.http import HttpServer
from kubesched.cluster.store import Store

JSON = dict[str, Any]
GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
WORKLOADS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/workloads"
FORBIDDEN = "Forbidden"


def serve(scenario: Callable[[Api], Awaitable[None]], features: tuple[str, ...] = GATES, **options: Any) -> None:
    async def main() -> None:
        store = Store(FakeClock(), random=Random(1), features=features)
        async with HttpServer(store, port=0, **options) as server, aiohttp.ClientSession() as session:
            await scenario(Api(server, session))

    asyncio.run(main())


def a_group(name: str = "g", **spec: Any) -> JSON:
    return {"metadata": {"name": name}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}, **spec}}


FULL: JSON = {
    "podGroupTemplateRef": {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}},
    "schedulingConstraints": {"topology": [{"key": "rack"}]},
    "resourceClaims": [{"name": "net", "resourceClaimTemplateName": "net"}],
    "disruptionMode": "PodGroup",
}
A_WORKLOAD: JSON = {
    "metadata": {"name": "w"},
    "spec": {"podGroupTemplates": [{"name": "t", "schedulingPolicy": {"basic": {}}}]},
}


async def with_full_group(api: Api) -> JSON:
    assert (await api.post(WORKLOADS, A_WORKLOAD)).status == 201
    answer = await api.post(GROUPS, a_group(**FULL))
    assert answer.status == 201, answer.message
    stored: JSON = answer.data
    return stored


# -- what may change ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("podGroupTemplateRef", None),
        ("schedulingPolicy", {"gang": {"minCount": 3}}),
        ("schedulingConstraints", {"topology": [{"key": "zone"}]}),
        ("schedulingConstraints", None),
        ("resourceClaims", [{"name": "net", "resourceClaimName": "x"}]),
        ("disruptionMode", "Pod"),
        ("priority", 7),
    ],
)
def test_no_field_of_a_group_may_change(field: str, value: Any) -> None:
    async def scenario(api: Api) -> None:
        await with_full_group(api)
        answer = await api.patch(f"{GROUPS}/g", {"spec": {field: value}})
        assert answer.status == 422
        assert answer.message == (
            f'PodGroup.scheduling.k8s.io "g" is invalid: spec.{field}: Invalid value: null: field is immutable'
        )

    serve(scenario)


def test_the_metadata_of_a_group_may_change_and_the_generation_is_not_counted() -> None:
    async def scenario(api: Api) -> None:
        stored = await with_full_group(api)
        assert "generation" not in stored["metadata"]
        answer = await api.patch(f"{GROUPS}/g", {"metadata": {"labels": {"a": "b"}}})
        assert answer.status == 200
        assert answer.data["spec"] == stored["spec"]
        assert "generation" not in answer.data["metadata"]

    serve(scenario)


def test_a_group_outlives_its_workload() -> None:
    async def scenario(api: Api) -> None:
        await with_full_group(api)
        assert (await api.delete(f"{WORKLOADS}/w")).status == 200
        assert (await api.patch(f"{GROUPS}/g", {"metadata": {"labels": {"a": "b"}}})).status == 200

    serve(scenario)


# -- gates -------------------------------------------------------------------------------------------------


def test_without_generic_workload_nothing_is_served_and_pods_have_no_group() -> None:
    async def scenario(api: Api) -> None:
        assert (await api.get(GROUPS)).status == 404
        assert (await api.post(GROUPS, a_group())).status == 404
        versions = (await api.get("/apis/scheduling.k8s.io")).data["versions"]
        assert [one["version"] for one in versions] == ["v1"]
        spec = {"containers": [{"name": "c", "image": "i"}], "schedulingGroup": {"podGroupName": "g"}}
        pod = await api.post("/api/v1/namespaces/default/pods", {"metadata": {"name": "p"}, "spec": spec})
        assert "schedulingGroup" not in pod.data["spec"]
        template = {"metadata": {"labels": {"a": "b"}}, "spec": spec}
        body = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
        deployment = await api.post("/apis/apps/v1/namespaces/default/deployments", body)
        assert "schedulingGroup" not in deployment.data["spec"]["template"]["spec"]

    serve(scenario, ())


def test_fields_that_an_object_has_already_stay_without_their_gates() -> None:
    async def scenario(api: Api) -> None:
        # Stored while the gates were on: a saved cluster that is restored.
        saved = a_group(**{**FULL, "podGroupTemplateRef": None}, priority=5)
        kept = Store(FakeClock(), random=Random(2))
        api.store.load([kept.create(POD_GROUPS, "default", saved, restore=True)], 100)
        before = (await api.get(f"{GROUPS}/g")).data["spec"]
        assert before["disruptionMode"] == "PodGroup"
        answer = await api.patch(f"{GROUPS}/g", {"metadata": {"labels": {"a": "b"}}})
        assert (answer.status, answer.data["spec"]) == (200, before)
        for field, value, why in (
            ("disruptionMode", "Pod", FORBIDDEN),
            ("priority", 6, FORBIDDEN),
            ("schedulingConstraints", {"topology": [{"key": "zone"}]}, FORBIDDEN),
        ):
            answer = await api.patch(f"{GROUPS}/g", {"spec": {field: value}})
            assert answer.message.endswith(f"is invalid: spec.{field}: {why}"), answer.message
        answer = await api.patch(f"{GROUPS}/g", {"spec": {"priorityClassName": "new"}})
        assert (answer.status, answer.data["spec"]) == (200, before)

    serve(scenario, ("GenericWorkload",))


def test_the_disruption_mode_is_shown_and_cannot_change_without_its_gate() -> None:
    async def scenario(api: Api) -> None:
        created = await api.post(GROUPS, a_group(disruptionMode="Nonsense"))
        assert created.data["spec"]["disruptionMode"] == "Pod"
        answer = await api.patch(f"{GROUPS}/g", {"spec": {"disruptionMode": "PodGroup"}})
        assert answer.message.endswith("is invalid: spec.disruptionMode: Forbidden")

    serve(scenario, ("GenericWorkload",))


# -- priority ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("default", "spec", "expected"),
    [
        ("", {}, {"priority": 0}),
        ("usual", {}, {"priority": 7, "priorityClassName": "usual"}),
        ("usual", {"priorityClassName": "high"}, {"priority": 100, "priorityClassName": "high"}),
        ("", {"priorityClassName": "high", "priority": 100}, {"priority": 100, "priorityClassName": "high"}),
        ("", {"priorityClassName": "none"}, "no PriorityClass with name none was found"),
        (
            "",
            {"priorityClassName": "high", "priority": 9999},
            "priority set in the pod group (9999) must match the priority computed (100) based on the priority class "
            "set in the spec",
        ),
    ],
)
def test_the_priority_of_a_group_comes_from_its_class(default: str, spec: JSON, expected: JSON | str) -> None:
    async def scenario(api: Api) -> None:
        api.store.create(PRIORITY_CLASSES, "", {"metadata": {"name": "high"}, "value": 100})
        if default:
            made = {"metadata": {"name": default}, "value": 7, "globalDefault": True}
            api.store.create(PRIORITY_CLASSES, "", made)
        answer = await api.post(GROUPS, a_group(**spec))
        if isinstance(expected, str):
            assert (answer.status, answer.message) == (403, f'podgroups.scheduling.k8s.io "g" is forbidden: {expected}')
        else:
            found = answer.data["spec"]
            assert {name: found[name] for name in ("priority", "priorityClassName") if name in found} == expected

    serve(scenario)


def test_without_the_gate_a_group_has_no_priority() -> None:
    async def scenario(api: Api) -> None:
        answer = await api.post(GROUPS, a_group(priorityClassName="none", priority=3))
        assert not answer.data["spec"].keys() & {"priority", "priorityClassName"}

    serve(scenario, ("GenericWorkload",))


# -- status ------------------------------------------------------------------------------------------------


def a_condition(**changes: Any) -> JSON:
    usual = {"type": "PodGroupScheduled", "status": "True", "reason": "Scheduled", "message": ""}
    return {**usual, "lastTransitionTime": "2026-01-01T00:00:00Z", **changes}


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        ({"conditions": [a_condition(type="")]}, "status.conditions[0].type: Required value"),
        ({"conditions": [a_condition(reason="1st")]}, "status.conditions[0].reason: Invalid value"),
        (
            {"conditions": [a_condition(observedGeneration=-1)]},
            "status.conditions[0].observedGeneration: Invalid value",
        ),
        ({"conditions": [a_condition(), a_condition()]}, "status.conditions[1].type: Duplicate value"),
        (
            {"resourceClaimStatuses": [{"name": "other"}]},
            'status.resourceClaimStatuses[0].name: Invalid value: "other": must match the name of an entry in '
            "`spec.resourceClaims`",
        ),
        (
            {"resourceClaimStatuses": [{"name": f"c{number}"} for number in range(5)]},
            "status.resourceClaimStatuses: Too many: 5: must have at most 4 items",
        ),
    ],
    ids=["no type", "bad reason", "negative generation", "twice", "unknown claim", "too many claims"],
)
def test_a_status_that_is_refused(status: JSON, problem: str) -> None:
    async def scenario(api: Api) -> None:
        await with_full_group(api)
        answer = await api.patch(f"{GROUPS}/g/status", {"status": status})
        assert answer.status == 422
        assert problem in answer.message

    serve(scenario)


def test_the_scheduler_writes_one_condition_and_the_controller_a_claim() -> None:
    async def scenario(api: Api) -> None:
        await with_full_group(api)
        first = {"status": {"conditions": [a_condition(status="False", reason="Unschedulable", message="full")]}}
        assert (await api.patch(f"{GROUPS}/g/status", first, type=STRATEGIC)).status == 200
        changed = {"type": "PodGroupScheduled", "status": "True", "reason": "Scheduled", "message": ""}
        order = {"$setElementOrder/conditions": [{"type": "PodGroupScheduled"}], "conditions": [changed]}
        answer = await api.patch(f"{GROUPS}/g/status", {"status": order}, type=STRATEGIC)
        assert answer.data["status"]["conditions"] == [a_condition()]
        claim = {"status": {"resourceClaimStatuses": [{"name": "net", "resourceClaimName": "g-net-1"}]}}
        answer = await api.patch(f"{GROUPS}/g/status", claim, type=STRATEGIC)
        assert answer.data["status"]["resourceClaimStatuses"] == claim["status"]["resourceClaimStatuses"]
        assert answer.data["status"]["conditions"] == [a_condition()]

    serve(scenario)


# -- Jobs, tables, permissions -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "owned", "features", "refused"),
    [
        ({"gang": {"minCount": 2}}, False, GATES, True),
        ({"gang": {"minCount": 2}}, True, GATES, True),
        ({"basic": {}}, False, GATES, False),
        (None, False, GATES, False),
        ({"gang": {"minCount": 2}}, True, (), False),
    ],
    ids=["named gang", "owned gang", "basic", "missing", "gates off"],
)
def test_the_parallelism_of_a_job_with_a_gang_stays(
    group: JSON | None, owned: bool, features: tuple[str, ...], refused: bool
) -> None:
    async def scenario(api: Api) -> None:
        spec: JSON = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
        if not owned:
            spec["schedulingGroup"] = {"podGroupName": "g"}
        body = {"metadata": {"name": "j"}, "spec": {"parallelism": 2, "template": {"spec": spec}}}
        job = api.store.create(JOBS, "default", body)
        if group is not None:
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": job.uid, "controller": True}
            metadata = {"name": "g", **({"ownerReferences": [owner]} if owned else {})}
            api.store.create(POD_GROUPS, "default", {"metadata": metadata, "spec": {"schedulingPolicy": group}})
        path = "/apis/batch/v1/namespaces/default/jobs/j"
        assert (await api.patch(path, {"spec": {"backoffLimit": 3}})).status == 200
        answer = await api.patch(path, {"spec": {"parallelism": 3}})
        assert answer.status == (403 if refused else 200)
        if refused:
            why = 'cannot change parallelism for a Job referencing gang-scheduled PodGroup "g"'
            assert answer.message == f'jobs.batch "j" is forbidden: {why}'

    serve(scenario, features)


def test_tables_for_kubectl_show_policy_workload_and_state() -> None:
    async def scenario(api: Api) -> None:
        await with_full_group(api)
        table = (await api.get(GROUPS, accept=TABLE)).data
        assert [column["name"] for column in table["columnDefinitions"]] == [
            "Name",
            "Policy",
            "Workload",
            "Status",
            "Age",
        ]
        assert [row["cells"] for row in table["rows"]] == [["g", "Gang", "w", "Pending", "0s"]]
        found = (await api.get("/apis/scheduling.k8s.io/v1alpha2")).data["resources"]
        names = [(one["name"], one["singularName"], one.get("shortNames")) for one in found]
        assert ("podgroups", "podgroup", None) in names
        assert ("workloads", "workload", None) in names
        assert "podgroups/status" in [one["name"] for one in found]
        assert "workloads/status" not in [one["name"] for one in found]

    serve(scenario)


def test_the_schedulers_role_may_read_groups_and_write_their_status() -> None:
    async def scenario(api: Api) -> None:
        assert (await api.post(GROUPS, a_group())).status == 201
        as_scheduler = {"Impersonate-User": "system:kube-scheduler"}
        assert (await api.get(GROUPS, headers=as_scheduler)).status == 200
        status = {"status": {"conditions": [a_condition()]}}
        assert (await api.patch(f"{GROUPS}/g/status", status, headers=as_scheduler)).status == 200
        assert (await api.delete(f"{GROUPS}/g", headers=as_scheduler)).status == 403
        assert (await api.get(WORKLOADS, headers=as_scheduler)).status == 403

    serve(scenario, authorization_mode="RBAC")
