"""Get and list: pages, selectors, versions, forms of the answer."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import yaml
from http_world import (
    JSON_PATCH,
    MERGE,
    PARTIAL,
    PARTIAL_LIST,
    PODS,
    TABLE,
    Api,
    a_deployment,
    a_node,
    a_pod,
    run,
    served,
)

from kubesched.api.kinds import NODES
from kubesched.cluster.http.answers import Answer
from kubesched.cluster.http.cells import human_duration
from kubesched.cluster.http.tables import layouts


async def _five(api: Api) -> None:
    for index in range(5):
        await api.post(PODS, a_pod(f"p{index}", labels={"parity": "even" if index % 2 == 0 else "odd"}))


LISTS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("everything", {}, ["p0", "p1", "p2", "p3", "p4"]),
    ("by label", {"labelSelector": "parity=odd"}, ["p1", "p3"]),
    ("by label set", {"labelSelector": "parity in (odd),parity!=even"}, ["p1", "p3"]),
    ("by field", {"fieldSelector": "metadata.name=p2"}, ["p2"]),
    ("by field not equal", {"fieldSelector": "metadata.name!=p2,spec.nodeName="}, ["p0", "p1", "p3", "p4"]),
    ("a limit", {"limit": 2}, ["p0", "p1"]),
    ("a limit is ignored for version 0", {"limit": 2, "resourceVersion": 0}, ["p0", "p1", "p2", "p3", "p4"]),
]


@pytest.mark.parametrize(("query", "want"), [case[1:] for case in LISTS], ids=[case[0] for case in LISTS])
def test_lists(query: dict[str, Any], want: list[str]) -> None:
    async def main() -> None:
        async with served() as api:
            await _five(api)
            answer = await api.get(PODS, **query)
            assert [item["metadata"]["name"] for item in answer.data["items"]] == want
            assert answer.data["kind"] == "PodList"

    run(main())


def test_an_idle_connection_does_not_hold_its_last_answer() -> None:
    async def main() -> None:
        async with served() as api:
            await _five(api)
            assert len((await api.get(PODS)).data["items"]) == 5
            answers = [one for one in gc.get_objects() if isinstance(one, Answer)]
            assert answers
            assert [one.body for one in answers] == [None] * len(answers)

    run(main())


def test_pages_show_one_moment_and_say_how_much_is_left() -> None:
    async def main() -> None:
        async with served() as api:
            await _five(api)
            first = (await api.get(PODS, limit=2)).data
            assert first["metadata"]["remainingItemCount"] == 3
            await api.delete(f"{PODS}/p3")
            await api.post(PODS, a_pod("p9"))
            names, token = ["p0", "p1"], first["metadata"]["continue"]
            while token:
                page = (await api("GET", PODS, limit=2, **{"continue": token})).data
                names += [item["metadata"]["name"] for item in page["items"]]
                assert page["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
                token = page["metadata"].get("continue")
            assert names == ["p0", "p1", "p2", "p3", "p4"]

    run(main())


def test_an_old_token_and_an_old_exact_version_are_gone() -> None:
    async def main() -> None:
        async with served() as api:
            await _five(api)
            page = (await api.get(PODS, limit=2)).data["metadata"]
            exact = {"resourceVersion": page["resourceVersion"], "resourceVersionMatch": "Exact"}
            assert (await api.get(PODS, **exact)).status == 200
            await api.post(PODS, a_pod("late"))
            api.store.compact()
            for query in ({"limit": 2, "continue": page["continue"]}, exact):
                answer = await api("GET", PODS, **query)
                assert (answer.status, answer.reason) == (410, "Expired")

    run(main())


def test_an_expired_list_may_go_on_in_the_present_with_the_token_of_the_refusal() -> None:
    async def main() -> None:
        async with served() as api:
            await _five(api)
            token = (await api.get(PODS, limit=2)).data["metadata"]["continue"]
            await api.delete(f"{PODS}/p2")
            await api.post(PODS, a_pod("p9"))
            api.store.compact()
            refusal = await api("GET", PODS, limit=2, **{"continue": token})
            assert refusal.status == 410
            assert "use the continue token in this response" in refusal.message
            names: list[str] = []
            token = refusal.data["metadata"]["continue"]
            while token:
                page = (await api("GET", PODS, limit=2, **{"continue": token})).data
                names += [item["metadata"]["name"] for item in page["items"]]
                assert page["metadata"]["resourceVersion"] == str(api.store.resource_version)
                token = page["metadata"].get("continue")
            assert names == ["p3", "p4", "p9"]

    run(main())


def test_five_thousand_nodes_in_pages_are_those_of_the_first_moment() -> None:
    async def main() -> None:
        async with served() as api:
            for index in range(5000):
                api.store.create(NODES, "", a_node(f"n{index:04}"))
            names: list[str] = []
            versions: set[str] = set()
            left: list[int] = []
            token = ""
            while True:
                query = {"continue": token} if token else {}
                page = (await api("GET", "/api/v1/nodes", limit=500, **query)).data
                names += [item["metadata"]["name"] for item in page["items"]]
                versions.add(page["metadata"]["resourceVersion"])
                left.append(page["metadata"].get("remainingItemCount", 0))
                # What is still to come changes, goes and arrives between the pages.
                at = len(names) + 100
                if at < 5000:
                    api.store.delete(NODES, "", f"n{at:04}")
                    api.store.create(NODES, "", a_node(f"n{at + 1:04}x"))
                    api.store.patch(NODES, "", f"n{at + 2:04}", {"metadata": {"labels": {"late": "yes"}}})
                token = page["metadata"].get("continue", "")
                if not token:
                    break
                assert not any("late" in item["metadata"]["labels"] for item in page["items"])
            assert names == [f"n{index:04}" for index in range(5000)]
            assert len(versions) == 1
            assert left == list(range(4500, -1, -500))

    run(main())


NOT_SELECTABLE = [
    ("pods", "/api/v1/pods", "field label not supported: spec.frog"),
    ("nodes", "/api/v1/nodes", "field label not supported: spec.frog"),
    ("jobs", "/apis/batch/v1/jobs", 'field label "spec.frog" not supported for batchv1.Job'),
    ("config maps", "/api/v1/configmaps", '"spec.frog" is not a known field selector: only "metadata.name", "metadata.namespace"'),
    ("leases", "/apis/coordination.k8s.io/v1/leases", '"spec.frog" is not a known field selector: only "metadata.name", "metadata.namespace"'),
]  # fmt: skip


@pytest.mark.parametrize(("path", "text"), [case[1:] for case in NOT_SELECTABLE], ids=[c[0] for c in NOT_SELECTABLE])
def test_fields_that_cannot_be_selected_are_refused_in_upstreams_words(path: str, text: str) -> None:
    async def main() -> None:
        async with served() as api:
            for query in ({}, {"watch": "true"}):
                answer = await api.get(path, fieldSelector="spec.frog=1", **query)
                assert (answer.status, answer.message) == (400, text)

    run(main())


WRONG: list[tuple[str, dict[str, Any], int]] = [
    ("a selector that cannot be read", {"labelSelector": "a in ("}, 400),
    ("a field that cannot be selected", {"fieldSelector": "spec.frog=1"}, 400),
    ("a limit that is no number", {"limit": "many"}, 400),
    ("a version that is no number", {"resourceVersion": "frog"}, 400),
    ("a version beyond 64 bits", {"resourceVersion": 1 << 64}, 400),
    ("the greatest version there can be", {"resourceVersion": (1 << 64) - 1}, 504),
    ("a match without a version", {"resourceVersionMatch": "Exact"}, 422),
    ("an unknown match", {"resourceVersionMatch": "Frog", "resourceVersion": 1}, 422),
    ("exactly version 0", {"resourceVersionMatch": "Exact", "resourceVersion": 0}, 422),
    ("initial events of a list", {"sendInitialEvents": "true"}, 422),
    ("a token that is none", {"continue": "frog"}, 400),
    ("a version in the future", {"resourceVersion": 10**9}, 504),
]


@pytest.mark.parametrize(("query", "code"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_wrong_list_options(query: dict[str, Any], code: int) -> None:
    async def main() -> None:
        async with served() as api:
            assert (await api.get(PODS, **query)).status == code

    run(main())


ACCEPTS = [
    ("", 200, "application/json"),
    ("*/*", 200, "application/json"),
    ("application/vnd.kubernetes.protobuf, */*", 200, "application/json"),
    ("application/vnd.kubernetes.protobuf,application/json", 200, "application/json"),
    ("application/yaml", 200, "application/yaml"),
    ("application/json;q=0.1, application/yaml", 200, "application/yaml"),
    ("application/vnd.kubernetes.protobuf", 406, "application/json"),
    ("text/html", 406, "application/json"),
    ("application/json;as=Frog;v=v1;g=meta.k8s.io", 406, "application/json"),
]


@pytest.mark.parametrize(("accept", "status", "content_type"), ACCEPTS)
def test_accept(accept: str, status: int, content_type: str) -> None:
    async def main() -> None:
        async with served() as api:
            await _five(api)
            answer = await api.get(f"{PODS}/p1", accept=accept)
            assert (answer.status, answer.headers["Content-Type"]) == (status, content_type)
            if content_type == "application/yaml":
                assert yaml.safe_load(answer.raw)["metadata"]["name"] == "p1"

    run(main())


PRETTY = [
    ({}, "curl/8.0", True),
    ({}, "tests", False),
    ({"pretty": "true"}, "tests", True),
    ({"pretty": "0"}, "curl/8", False),
]


@pytest.mark.parametrize(("query", "agent", "pretty"), PRETTY)
def test_pretty_printing_is_for_people(query: dict[str, str], agent: str, pretty: bool) -> None:
    async def main() -> None:
        async with served() as api:
            for path in ("/api/v1/nodes", "/api/v1/frogs"):
                answer = await api.get(path, headers={"User-Agent": agent}, **query)
                assert (b'\n  "kind"' in answer.raw) is pretty

    run(main())


def test_bare_metadata() -> None:
    async def main() -> None:
        async with served() as api:
            await _five(api)
            one = (await api.get(f"{PODS}/p1", accept=PARTIAL)).data
            assert (one["kind"], one["metadata"]["name"], "spec" in one) == ("PartialObjectMetadata", "p1", False)
            many = (await api.get(PODS, accept=PARTIAL_LIST)).data
            assert many["kind"] == "PartialObjectMetadataList"
            assert {item["kind"] for item in many["items"]} == {"PartialObjectMetadata"}

    run(main())


def _cells(answer: Any) -> dict[str, Any]:
    table = answer.data
    assert table["kind"] == "Table"
    return {
        column["name"]: cell for column, cell in zip(table["columnDefinitions"], table["rows"][0]["cells"], strict=True)
    }


def test_the_table_of_a_pod() -> None:
    async def main() -> None:
        async with served() as api:
            await api.post(PODS, a_pod(schedulingGates=[{"name": "g"}]))
            assert _cells(await api.get(PODS, accept=TABLE)) == {
                "Name": "p",
                "Ready": "0/1",
                "Status": "SchedulingGated",
                "Restarts": "0",
                "Age": "0s",
                "IP": "<none>",
                "Node": "<none>",
                "Nominated Node": "<none>",
                "Readiness Gates": "<none>",
            }

    run(main())


STATUSES: list[tuple[str, dict[str, Any], str, str]] = [
    ("running", {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}, "1/1", "Running"),
    ("a container waits", {"phase": "Pending", "containerStatuses": [{"name": "main", "ready": False, "restartCount": 2, "state": {"waiting": {"reason": "ErrImagePull"}}}]}, "0/1", "ErrImagePull"),
    ("a container has ended", {"phase": "Failed", "containerStatuses": [{"name": "main", "ready": False, "restartCount": 0, "state": {"terminated": {"exitCode": 3}}}]}, "0/1", "ExitCode:3"),
    ("evicted", {"phase": "Failed", "reason": "Evicted"}, "0/1", "Evicted"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "ready", "word"), [case[1:] for case in STATUSES], ids=[c[0] for c in STATUSES])
def test_the_word_for_a_pod(status: dict[str, Any], ready: str, word: str) -> None:
    async def main() -> None:
        async with served() as api:
            await api.post(PODS, a_pod())
            await api.patch(f"{PODS}/p/status", {"status": status})
            cells = _cells(await api.get(f"{PODS}/p", accept=TABLE))
            assert (cells["Ready"], cells["Status"]) == (ready, word)

    run(main())


def test_the_table_of_a_node_and_what_each_row_includes() -> None:
    async def main() -> None:
        async with served() as api:
            await api.post("/api/v1/nodes", a_node(spec={"unschedulable": True}))
            cells = _cells(await api.get("/api/v1/nodes", accept=TABLE))
            assert (cells["Status"], cells["Roles"], cells["Internal-IP"]) == (
                "Ready,SchedulingDisabled",
                "<none>",
                "<none>",
            )
            kinds = {}
            for include in ("Metadata", "Object", "None"):
                row = (await api.get("/api/v1/nodes", accept=TABLE, includeObject=include)).data["rows"][0]
                kinds[include] = (row["object"] or {}).get("kind")
            assert kinds == {"Metadata": "PartialObjectMetadata", "Object": "Node", "None": None}
            assert (await api.get("/api/v1/nodes", accept=TABLE, includeObject="Frog")).status == 400

    run(main())


TITLES = [
    ("deployments.apps", "Name Ready Up-to-date Available Age Containers Images Selector"),
    ("replicasets.apps", "Name Desired Current Ready Age Containers Images Selector"),
    ("jobs.batch", "Name Status Completions Duration Age Containers Images Selector"),
    ("priorityclasses.scheduling.k8s.io", "Name Value Global-Default Age PreemptionPolicy"),
    ("leases.coordination.k8s.io", "Name Holder Age"),
]


@pytest.mark.parametrize(("resource", "titles"), TITLES)
def test_columns_have_upstreams_names_and_order(resource: str, titles: str) -> None:
    assert " ".join(column.title for column in layouts()[resource].columns) == titles


@pytest.mark.parametrize("resource", sorted(layouts()))
def test_every_layout_survives_an_empty_object_and_one_of_nonsense(resource: str) -> None:
    layout = layouts()[resource]
    nonsense = {"metadata": {"name": "x"}, "spec": 3, "status": [], "data": "x", "subsets": 1, "subjects": None}
    for data in ({"metadata": {"name": "x"}}, nonsense):
        assert len(layout.cells(data, 0.0)) == len(layout.columns)


DURATIONS = [
    (0, "0s"), (119, "119s"), (120, "2m"), (150, "2m30s"), (599, "9m59s"), (600, "10m"), (10799, "179m"),
    (10800, "3h"), (12000, "3h20m"), (28800, "8h"), (172799, "47h"), (172800, "2d"), (180000, "2d2h"),
    (691200, "8d"), (63072000, "2y"), (64000000, "2y10d"), (252288000, "8y"), (-5, "<invalid>"),
]  # fmt: skip


@pytest.mark.parametrize(("seconds", "text"), DURATIONS)
def test_ages(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


def test_the_scale_of_a_deployment() -> None:
    async def main() -> None:
        async with served() as api:
            path = "/apis/apps/v1/namespaces/default/deployments"
            await api.post(path, a_deployment(replicas=3))
            scale = (await api.get(f"{path}/web/scale")).data
            assert (scale["kind"], scale["spec"], scale["status"]["selector"]) == ("Scale", {"replicas": 3}, "app=web")
            table = (await api.get(f"{path}/web/scale", accept=TABLE)).data
            assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Desired", "Available", "Age"]
            assert (table["kind"], table["rows"][0]["cells"][:3]) == ("Table", ["web", 3, 0])
            assert table["rows"][0]["object"]["metadata"]["name"] == "web"
            patched = await api.patch(f"{path}/web/scale", {"spec": {"replicas": 4}}, type=MERGE, accept=TABLE)
            assert patched.data["rows"][0]["cells"][:3] == ["web", 4, 0]
            assert (await api.put(f"{path}/web/scale", [])).status == 400
            scale = (await api.get(f"{path}/web/scale")).data
            scale["spec"]["replicas"] = 5
            assert (await api.put(f"{path}/web/scale", scale)).data["spec"] == {"replicas": 5}
            assert (await api.put(f"{path}/web/scale", scale)).status == 409
            assert (await api.patch(f"{path}/web/scale", {"spec": {"replicas": 2}})).status == 200
            assert (await api.get(f"{path}/web")).data["spec"]["replicas"] == 2
            assert (await api.patch(f"{path}/web/scale", {"spec": {"replicas": -1}})).status == 422
            version = (await api.get(f"{path}/web/scale")).data["metadata"]["resourceVersion"]
            for known, status in ((version, 200), (version, 422)):
                test = {"op": "test", "path": "/metadata/resourceVersion", "value": known}
                wanted = {"op": "replace", "path": "/spec/replicas", "value": 6}
                assert (await api.patch(f"{path}/web/scale", [test, wanted], type=JSON_PATCH)).status == status
            assert (await api.patch(f"{path}/web/scale", {"metadata": {"resourceVersion": version}})).status == 409

    run(main())


def test_fields_that_are_not_there_read_as_upstream_reads_them() -> None:
    async def main() -> None:
        async with served() as api:
            services = "/api/v1/namespaces/default/services"
            for name, type_ in (("a", "ClusterIP"), ("b", "NodePort")):
                await api.post(services, {"metadata": {"name": name}, "spec": {"type": type_, "ports": [{"port": 80}]}})
            template = {"metadata": {"labels": {"a": "b"}}, "spec": a_pod()["spec"]}
            replica_set = {"spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}}
            await api.post("/apis/apps/v1/namespaces/default/replicasets", {"metadata": {"name": "r"}, **replica_set})
            job = {
                "metadata": {"name": "j"},
                "spec": {"template": {"spec": {**a_pod()["spec"], "restartPolicy": "Never"}}},
            }
            await api.post("/apis/batch/v1/namespaces/default/jobs", job)

            async def names(path: str, selector: str) -> list[str]:
                answer = await api.get(path, fieldSelector=selector)
                assert answer.status == 200, answer.message
                return [item["metadata"]["name"] for item in answer.data["items"]]

            assert await names(services, "spec.type=NodePort") == ["b"]
            assert await names(services, "spec.clusterIP!=None,spec.type!=NodePort") == ["a"]
            assert await names("/apis/apps/v1/replicasets", "status.replicas=0") == ["r"]
            assert await names("/apis/batch/v1/jobs", "status.successful=0") == ["j"]
            done = {"status": {"succeeded": 2}}
            await api.patch("/apis/batch/v1/namespaces/default/jobs/j/status", done)
            assert await names("/apis/batch/v1/jobs", "status.successful=2") == ["j"]

    run(main())


def test_an_autoscaler_shows_its_metrics_with_their_targets() -> None:
    path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
    metrics = [
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}},
        {
            "type": "External",
            "external": {"metric": {"name": "q"}, "target": {"type": "AverageValue", "averageValue": "30"}},
        },
        {"type": "Pods", "pods": {"metric": {"name": "q"}, "target": {"type": "AverageValue", "averageValue": "1k"}}},
    ]
    spec = {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d"}, "metrics": metrics}
    current = [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 5}}}]

    async def main() -> None:
        async with served() as api:
            assert (await api.post(path, {"metadata": {"name": "h"}, "spec": spec})).status == 201
            change = {"status": {"currentReplicas": 2, "desiredReplicas": 2, "currentMetrics": current}}
            assert (await api.patch(f"{path}/h/status", change)).status == 200
            [row] = (await api.get(path, accept=TABLE)).data["rows"]
            targets = "cpu: 5%/80%, <unknown>/30 (avg) + 1 more..."
            assert row["cells"][:6] == ["h", "Deployment/d", targets, "1", 3, 2]

    run(main())


def test_a_refusal_names_no_empty_group_and_a_selector_does_not_end_with_a_comma() -> None:
    """Both were compared with the library of the API server of Kubernetes 1.36."""

    async def main() -> None:
        async with served() as api:
            missing = await api.get(f"{PODS}/none")
            assert missing.data["details"] == {"name": "none", "kind": "pods"}
            assert (await api.get(f"{PODS}?labelSelector=a%3Db%2C")).status == 400

    run(main())
