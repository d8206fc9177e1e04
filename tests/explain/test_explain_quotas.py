"""Explanations of pods that quotas keep from being made: what stands in the way, and the raise that helps, carried out."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import event, given, settings
from hypothesis import strategies as st

from kubesched import Simulation
from kubesched.api.kinds import kind_of
from kubesched.explain.live import LivePages
from kubesched.explain.report import Explanation, NotCreated
from kubesched.lab.simulate.embedded import Embedded
from kubesched.lab.simulate.inputs.given import cluster_of
from kubesched.lab.simulate.results.html_view import html_of
from kubesched.lab.simulate.results.report import render_table
from kubesched.lab.simulate.run.standing import explain_standing
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual
from kubesched.scheduler.config import default_config
from kubesched.scheduler.plugins import in_tree_registry

Object = dict[str, Any]


def node(cpu: str = "8") -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1"},
        "status": {"allocatable": {"cpu": cpu, "memory": "64Gi", "pods": "40"}},
    }


def quota(name: str = "small", **spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def workload(kind: str = "Deployment", count: int = 5, **resources: Any) -> Object:
    template: Object = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "i", "resources": resources}]},
    }
    spec: Object = {"replicas": count, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    if kind == "Job":
        template["spec"]["restartPolicy"] = "Never"
        spec = {"parallelism": count, "completions": count, "template": template}
    if kind == "StatefulSet":
        spec |= {"serviceName": "web", "podManagementPolicy": "Parallel"}
    group = "batch/v1" if kind == "Job" else "apps/v1"
    return {"apiVersion": group, "kind": kind, "metadata": {"name": "web", "namespace": "default"}, "spec": spec}


def explained(*objects: Object) -> tuple[list[NotCreated], int]:
    """Return the workloads that lack pods at the end of a simulation, and the number of pods."""
    with Simulation(deepcopy(list(objects))) as simulation:
        simulation.run()
        document = simulation.explain()
        return document.not_created, len(simulation.pods)


def raised(objects: list[Object], found: list[NotCreated]) -> list[Object]:
    """The objects with all limits raised as proposed."""
    changed = deepcopy(objects)
    needed = {(one.quota, one.resource): one.needed for each in found for one in each.limits}
    for one in changed:
        if one["kind"] == "ResourceQuota":
            for name in one["spec"]["hard"]:
                one["spec"]["hard"][name] = needed.get((one["metadata"]["name"], name), one["spec"]["hard"][name])
    return changed


def test_the_quota_its_numbers_and_the_raise_are_said() -> None:
    (found,), count = explained(
        node(), quota(hard={"requests.cpu": "3", "pods": "10"}), workload(requests={"cpu": "1"})
    )
    assert count == 3
    assert (found.workload, found.wanted, found.existing, found.fits) == ("Deployment/web", 5, 3, 1)
    (limit,) = found.limits
    assert (limit.quota, limit.resource, limit.asked, limit.used, limit.limit, limit.needed) == (
        "small", "requests.cpu", "1", "3", "3", "5"
    )  # fmt: skip
    assert found.hints == [
        "raise requests.cpu of quota small to 5 (now 3): the 2 missing pods can be made; the next one fits 1 node"
    ]


def test_containers_that_do_not_ask_for_what_a_quota_limits_are_named() -> None:
    (found,), count = explained(node(), quota(hard={"requests.cpu": "3"}), workload(count=1))
    assert count == 0
    assert found.unasked == ["small: requests.cpu for: main"]
    assert found.hints[0].startswith(
        "make the containers ask for what quota small demands: requests.cpu for: main: the missing pod can be made"
    )


def test_the_defaults_of_a_limit_range_count() -> None:
    limits = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "defaults", "namespace": "default"},
        "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "2"}}]},
    }
    (found,), _ = explained(node(), limits, quota(hard={"requests.cpu": "1"}), workload(count=2))
    assert not found.unasked
    assert [(one.asked, one.used, one.needed) for one in found.limits] == [("2", "0", "4")]


def test_a_pod_that_would_wait_for_a_node_is_said_to() -> None:
    (found,), _ = explained(node(cpu="1"), quota(hard={"requests.cpu": "1"}), workload(count=1, requests={"cpu": "2"}))
    assert found.fits == 0
    assert "the next one waits: 0/1 nodes are available" in found.hints[0]


def test_a_dump_is_explained_with_its_quotas_and_its_pods_are_not_refused(tmp_path: Path) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}
    replica_set = workload("ReplicaSet", requests={"cpu": "1"})
    replica_set["metadata"]["uid"] = "rs"
    made = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"web-{number}",
                "namespace": "default",
                "uid": f"web-{number}",
                "ownerReferences": [owner],
            },
            "spec": {"nodeName": "n1", **replica_set["spec"]["template"]["spec"]},
            "status": {"phase": "Running"},
        }
        for number in range(3)
    ]
    path = tmp_path / "dump.json"
    items = [quota(hard={"pods": "2"}), node(), replica_set, *made]
    path.write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items}))
    found = explain_standing(cluster_of(str(path), deleting=True), registry=in_tree_registry(), config=default_config())
    (lacking,) = found.document.not_created
    assert (lacking.wanted, lacking.existing, found.document.pending, found.warnings) == (5, 3, [], [])
    assert [(one.resource, one.used, one.limit, one.needed) for one in lacking.limits] == [("pods", "3", "2", "5")]
    again = explain_standing(
        cluster_of(str(path), deleting=True),
        ["default/web"],
        namespace="other",
        registry=in_tree_registry(),
        config=default_config(),
    )
    assert (len(again.document.not_created), again.document.absent) == (1, [])


def test_the_result_of_a_simulation_and_its_tables_name_them() -> None:
    with Simulation([node(), quota(hard={"pods": "2"}), workload(requests={"cpu": "1"})]) as simulation:
        result = simulation.run()
    (one,) = result.not_created
    assert (one.workload, one.wanted, one.existing) == ("Deployment/web", 5, 2)
    lines = [line.text for line in render_table(result)]
    at = lines.index("Not created")
    assert lines[at + 1 : at + 3] == [
        "Deployment/web in default: 2 of 5 pods",
        "    quota small: pods 2 of 2 used, a pod asks for 1",
    ]
    assert "raise pods of quota small to 5 (now 2)" in html_of(result)


def test_a_live_scheduler_over_a_store_names_them() -> None:
    async def run() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        embedded = Embedded(default_config(), in_tree_registry(), clock=clock, believe_priority=True)
        async with embedded.running():
            watched, stored = LivePages(embedded.scheduler), LivePages(embedded.scheduler, objects=embedded.objects)
            for one in (node(), quota(hard={"pods": "0"}), workload("ReplicaSet", requests={"cpu": "1"})):
                kind = kind_of(one["apiVersion"], one["kind"])
                assert kind is not None
                embedded.store.create(kind, one["metadata"].get("namespace", ""), one)
            await asyncio.sleep(1)
            for path in ("/explain/pending", "/explain/pods/default/web"):
                answer = await stored.answer(path, {}, "application/json")
                (found,) = msgspec.json.decode(answer.body, type=Explanation).not_created
                assert (found.workload, found.wanted, found.existing) == ("ReplicaSet/web", 5, 0)
            other = await stored.answer("/explain/pending", {"namespace": ["other"]}, "application/json")
            assert not msgspec.json.decode(other.body, type=Explanation).not_created
            assert (await stored.answer("/explain/pods/default/none", {}, "")).status == 404
            text = (await stored.answer("/explain/pods/default/web", {}, "text/plain")).body.decode()
            assert "raise pods of quota small to 5 (now 0)" in text
            assert (await watched.answer("/explain/pods/default/web", {}, "")).status == 404

    run_virtual(run())


def test_without_missing_pods_or_quotas_nothing_is_said() -> None:
    assert explained(node(), quota(hard={"pods": "5"}), workload(requests={"cpu": "1"})) == ([], 5)
    assert explained(node(), workload(requests={"cpu": "1"})) == ([], 5)


@st.composite
def clusters(draw: st.DrawFn) -> list[Object]:
    resources = ["requests.cpu", "cpu", "limits.memory", "pods", "count/pods"]
    quotas = [
        quota(
            f"q{number}",
            hard=draw(st.dictionaries(st.sampled_from(resources), st.sampled_from(["1", "2", "3"]), min_size=1)),
            scopes=draw(st.sampled_from([[], [], ["NotBestEffort"], ["NotTerminating"]])),
        )
        for number in range(draw(st.integers(1, 2)))
    ]
    amounts = {"requests": {"cpu": draw(st.sampled_from(["500m", "1"]))}, "limits": {"memory": "1"}}
    kind = draw(st.sampled_from(["Deployment", "ReplicaSet", "StatefulSet", "Job"]))
    return [node(), *quotas, workload(kind, draw(st.integers(1, 5)), **amounts)]


@settings(max_examples=settings().max_examples // 6)
@given(clusters())
def test_with_the_proposed_raise_all_pods_are_made_and_with_less_they_are_not(objects: list[Object]) -> None:
    found, count = explained(*objects)
    spec = objects[-1]["spec"]
    wanted = spec.get("replicas", spec.get("completions"))
    event(f"{len(found[0].limits) if found else 0} limits")
    assert bool(found) == (count < wanted)
    if found:
        assert explained(*raised(objects, found)) == ([], wanted)
        for limit in found[0].limits[:1]:
            less = [
                NotCreated(namespace="default", workload="", wanted=0, existing=0, limits=[one for one in found[0].limits if one is not limit])
            ]  # fmt: skip
            assert explained(*raised(objects, less))[1] < wanted


def test_a_deadline_of_pods_decides_which_scope_counts() -> None:
    ending, lasting = (
        quota(name, hard={"pods": "2"}, scopes=[scope])
        for name, scope in (("ending", "Terminating"), ("lasting", "NotTerminating"))
    )
    job = workload("Job")
    job["spec"]["template"]["spec"]["activeDeadlineSeconds"] = 3600
    (found,), count = explained(node(), ending, lasting, job)
    assert (count, [one.quota for one in found.limits]) == (2, ["ending"])
    (found,), count = explained(node(), ending, lasting, workload("Job"))
    assert (count, [one.quota for one in found.limits]) == (2, ["lasting"])
