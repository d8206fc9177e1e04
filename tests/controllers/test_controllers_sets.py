"""StatefulSets, DaemonSets and Jobs in a whole cluster."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from controllers_world import (
    CLAIMS,
    DAEMON_SETS,
    JOBS,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    World,
    condition,
    daemon_set,
    job,
    kind,
    play,
    pod_template,
    workload,
)
from hypothesis import given
from hypothesis import strategies as st

from kubesched.api.kinds import CORE_EVENTS, NAMESPACES, NODES, PODS, REPLICA_SETS, Kind
from kubesched.cluster.controllers.indexes import Indexes

# -- stateful sets -----------------------------------------------------------------------------------------


def test_stateful_pods_come_one_after_the_other_each_with_its_claim() -> None:
    async def scenario(world: World) -> None:
        world.create(
            STORAGE_CLASSES,
            {"metadata": {"name": "fast"}, "provisioner": "hollow.example", "volumeBindingMode": "Immediate"},
        )
        claim = {
            "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "fast",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        world.create(STATEFUL_SETS, workload("db", 3, volumeClaimTemplates=[claim], serviceName="db"))
        seen = []
        for _ in range(200):
            running = [pod.name for pod in world.pods() if pod.status.phase == "Running"]
            assert len(world.pods()) <= len(running) + 1, "only one is being started"
            seen.append(len(running))
            await asyncio.sleep(0.1)
        await world.settle()
        assert sorted(set(seen)) == [0, 1, 2, 3]
        assert world.names(PODS) == ["db-0", "db-1", "db-2"]
        assert world.names(CLAIMS) == ["data-db-0", "data-db-1", "data-db-2"]
        pod = world.get(PODS, "db-2")
        assert pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "2"
        assert pod["spec"]["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-2"}}]
        status = world.get(STATEFUL_SETS, "db")["status"]
        assert status["readyReplicas"] == status["currentReplicas"] == status["updatedReplicas"] == 3
        assert status["currentRevision"] == status["updateRevision"]
        world.patch(STATEFUL_SETS, "db", {"spec": {"replicas": 1}})
        await world.settle()
        assert world.names(PODS) == ["db-0"]
        assert len(world.names(CLAIMS)) == 3, "claims outlive their pods"

    play(scenario)


def test_parallel_sets_start_all_at_once() -> None:
    async def scenario(world: World) -> None:
        world.create(STATEFUL_SETS, workload("db", 4, podManagementPolicy="Parallel"))
        await asyncio.sleep(0.5)
        assert len(world.names(PODS)) == 4

    play(scenario)


def test_a_rolling_update_goes_backwards_and_stops_at_the_partition() -> None:
    async def scenario(world: World) -> None:
        world.create(STATEFUL_SETS, workload("db", 4))
        await world.settle()
        first = world.get(STATEFUL_SETS, "db")["status"]["currentRevision"]
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
        template = pod_template("db", image="app:2")
        world.patch(STATEFUL_SETS, "db", {"spec": {"template": template, "updateStrategy": strategy}})
        changed: list[str] = []
        for _ in range(600):
            new = [pod.name for pod in world.pods() if pod.spec.containers[0].image == "app:2"]
            changed += [name for name in new if name not in changed]
            await asyncio.sleep(0.1)
        assert changed == ["db-3", "db-2"]
        world.store.delete(PODS, "default", "db-0")
        await world.settle()
        images = {pod.name: pod.spec.containers[0].image for pod in world.pods()}
        assert images == {"db-0": "app:1", "db-1": "app:1", "db-2": "app:2", "db-3": "app:2"}
        status = world.get(STATEFUL_SETS, "db")["status"]
        assert (status["currentRevision"], status["updatedReplicas"]) == (first, 2)
        world.patch(STATEFUL_SETS, "db", {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}})
        await world.settle()
        status = world.get(STATEFUL_SETS, "db")["status"]
        assert status["currentRevision"] == status["updateRevision"] != first

    play(scenario)


def test_on_delete_leaves_old_pods_until_they_are_deleted() -> None:
    async def scenario(world: World) -> None:
        world.create(STATEFUL_SETS, workload("db", 2, updateStrategy={"type": "OnDelete"}))
        await world.settle()
        world.patch(STATEFUL_SETS, "db", {"spec": {"template": pod_template("db", image="app:2")}})
        await world.settle()
        world.store.delete(PODS, "default", "db-0")
        await world.settle()
        assert [pod.spec.containers[0].image for pod in world.pods()] == ["app:2", "app:1"]

    play(scenario)


# -- daemon sets -------------------------------------------------------------------------------------------


def test_every_node_gets_its_daemon_and_new_nodes_too() -> None:
    async def scenario(world: World) -> None:
        world.create(DAEMON_SETS, daemon_set("agent"))
        await world.settle()
        assert world.nodes_used(app="agent") == ["n0", "n1", "n2", "n3"]
        world.add_nodes(2, start=4)
        await world.settle()
        assert len(world.pods()) == 6
        world.store.delete(NODES, "", "n0")
        await asyncio.sleep(60)
        await world.settle()
        assert world.nodes_used(app="agent") == ["n1", "n2", "n3", "n4", "n5"]
        status = world.get(DAEMON_SETS, "agent")["status"]
        assert (status["desiredNumberScheduled"], status["numberAvailable"], status["updatedNumberScheduled"]) == (
            5,
            5,
            5,
        )

    play(scenario)


@pytest.mark.parametrize(
    ("case", "taint", "tolerations", "new", "old"),
    [
        ("NoSchedule keeps new daemons away and lets old ones stay", "NoSchedule", [], False, True),
        ("NoExecute drives them out", "NoExecute", [], False, False),
        ("a toleration helps", "NoExecute", [{"operator": "Exists"}], True, True),
        ("PreferNoSchedule is no obstacle", "PreferNoSchedule", [], True, True),
    ],
)
def test_taints_decide_where_daemons_run(
    case: str, taint: str, tolerations: list[dict[str, str]], new: bool, old: bool
) -> None:
    async def scenario(world: World) -> None:
        world.patch(NODES, "n0", {"spec": {"taints": [{"key": "x", "effect": taint}]}})
        world.create(DAEMON_SETS, daemon_set("agent", pod_template("agent", tolerations=tolerations)))
        await world.settle()
        world.patch(NODES, "n1", {"spec": {"taints": [{"key": "x", "effect": taint}]}})
        await world.settle()
        used = world.nodes_used(app="agent")
        assert ("n0" in used, "n1" in used) == (new, old), case

    play(scenario, nodes=2)


def test_daemons_follow_the_labels_of_nodes() -> None:
    async def scenario(world: World) -> None:
        template = pod_template("agent", nodeSelector={"disk": "ssd"})
        world.create(DAEMON_SETS, daemon_set("agent", template))
        await world.settle()
        assert world.pods() == []
        world.patch(NODES, "n2", {"metadata": {"labels": {"disk": "ssd"}}})
        await world.settle()
        assert world.nodes_used() == ["n2"]
        world.patch(NODES, "n2", {"metadata": {"labels": {"disk": None}}})
        await world.settle()
        assert world.pods() == []

    play(scenario)


def test_daemons_are_replaced_one_node_at_a_time_and_survive_cordons() -> None:
    async def scenario(world: World) -> None:
        world.create(DAEMON_SETS, daemon_set("agent"))
        await world.settle()
        world.patch(NODES, "n3", {"spec": {"unschedulable": True}})
        world.patch(DAEMON_SETS, "agent", {"spec": {"template": pod_template("agent", image="app:2")}})
        least = 4
        for _ in range(600):
            running = [pod for pod in world.pods() if pod.status.phase == "Running"]
            least = min(least, len(running))
            await asyncio.sleep(0.1)
        assert least == 3
        assert Counter(pod.spec.containers[0].image for pod in world.pods()) == {"app:2": 4}

    play(scenario)


# -- jobs --------------------------------------------------------------------------------------------------


def test_a_job_runs_its_completions_some_at_a_time() -> None:
    async def scenario(world: World) -> None:
        world.create(JOBS, job("sum", parallelism=2, completions=5))
        most = 0
        for _ in range(400):
            most = max(most, sum(pod.status.phase in ("Pending", "Running") for pod in world.pods()))
            await asyncio.sleep(0.1)
        await world.settle()
        data = world.get(JOBS, "sum")
        assert most == 2
        assert condition(data, "Complete") == ("True", "CompletionsReached")
        assert data["status"]["succeeded"] == 5
        assert "active" not in data["status"]
        assert data["status"]["uncountedTerminatedPods"] == {}
        pods = [world.get(PODS, name) for name in world.names(PODS)]
        assert len(pods) == 5
        assert all("finalizers" not in pod["metadata"] for pod in pods)

    play(scenario)


def test_an_indexed_job_finishes_every_index_once() -> None:
    async def scenario(world: World) -> None:
        world.create(JOBS, job("sum", parallelism=3, completions=7, completionMode="Indexed"))
        await world.settle()
        status = world.get(JOBS, "sum")["status"]
        assert (status["succeeded"], status["completedIndexes"]) == (7, "0-6")
        names = sorted(name.rpartition("-")[0] for name in world.names(PODS))
        assert names == [f"sum-{index}" for index in range(7)]

    play(scenario)


def test_a_failing_job_gives_up_at_its_backoff_limit_with_growing_pauses() -> None:
    async def scenario(world: World) -> None:
        world.create(JOBS, job("sum", "1s", "Failed", backoffLimit=2))
        await world.settle()
        data = world.get(JOBS, "sum")
        assert condition(data, "Failed") == ("True", "BackoffLimitExceeded")
        assert data["status"]["failed"] == 3
        loop = asyncio.get_running_loop()
        assert 10 + 20 <= loop.time() <= 45

    play(scenario)


def test_a_deleted_pod_counts_as_failed_and_is_replaced() -> None:
    async def scenario(world: World) -> None:
        world.create(JOBS, job("sum", "60s"))
        await asyncio.sleep(5)
        world.store.delete(PODS, "default", world.pods()[0].name)
        await world.settle()
        status = world.get(JOBS, "sum")["status"]
        assert (status["succeeded"], status["failed"]) == (1, 1)

    play(scenario)


def test_a_suspended_job_stops_and_goes_on_where_it_was() -> None:
    async def scenario(world: World) -> None:
        world.create(JOBS, job("sum", "20s", parallelism=2, completions=4))
        await asyncio.sleep(30)
        world.patch(JOBS, "sum", {"spec": {"suspend": True}})
        await world.settle()
        assert [pod for pod in world.pods() if pod.status.phase in ("Pending", "Running")] == []
        assert condition(world.get(JOBS, "sum"), "Suspended") == ("True", "JobSuspended")
        world.patch(JOBS, "sum", {"spec": {"suspend": False}})
        await world.settle()
        status = world.get(JOBS, "sum")["status"]
        assert (status["succeeded"], status.get("failed", 0)) == (4, 0)

    play(scenario)


@pytest.mark.parametrize("case", ["deadline", "time to live"])
def test_jobs_end_on_time(case: str) -> None:
    async def scenario(world: World) -> None:
        if case == "deadline":
            world.create(JOBS, job("sum", "1h", activeDeadlineSeconds=30))
            await asyncio.sleep(40)
            assert condition(world.get(JOBS, "sum"), "Failed") == ("True", "DeadlineExceeded")
            assert world.pods() == []
        else:
            world.create(JOBS, job("sum", "5s", ttlSecondsAfterFinished=60))
            await asyncio.sleep(30)
            assert world.exists(JOBS, "sum")
            await asyncio.sleep(60)
            assert not world.exists(JOBS, "sum")
            assert world.names(PODS) == []

    play(scenario)


@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan", "namespace"])
def test_the_pods_of_a_deleted_job_are_released(policy: str) -> None:
    """No job is left to count them: their finalizer must not keep them."""

    async def scenario(world: World) -> None:
        world.create(NAMESPACES, {"metadata": {"name": "team"}})
        world.create(JOBS, job("sum", "1h", parallelism=2, completions=2), "team")
        await asyncio.sleep(10)
        assert len(world.names(PODS, "team")) == 2
        if policy == "namespace":
            world.store.delete(NAMESPACES, "", "team")
        else:
            world.store.delete(JOBS, "team", "sum", propagation_policy=policy)
        await asyncio.sleep(60)
        pods = [world.get(PODS, name, "team") for name in world.names(PODS, "team")]
        assert len(pods) == (2 if policy == "Orphan" else 0)
        assert all("finalizers" not in pod["metadata"] for pod in pods)
        assert all(pod["status"]["phase"] == "Running" for pod in pods)
        assert not world.exists(JOBS, "sum", "team")
        assert world.exists(NAMESPACES, "team") is (policy != "namespace")

    play(scenario)


@pytest.mark.parametrize("text", ["", "0", "0-3", "1,3-5,9", "1,2,4"])
def test_index_lists_read_back(text: str) -> None:
    assert str(Indexes.parse(text, 10)) == text


@pytest.mark.parametrize("text", ["1-" + "9" * 18, "1-2,3-" + "9" * 5000, "1,2,\u00b2", "1-2,7-99,-4", "1-2,x,,8"])
def test_index_lists_that_name_no_completion_are_cut(text: str) -> None:
    found = Indexes.parse(text, 3)
    assert found.ranges() == [(1, 2)]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20))), st.sets(st.integers(0, 25)), st.integers(0, 25))
def test_ranges_of_indexes_are_sets_of_indexes(ranges: list[tuple[int, int]], more: set[int], completions: int) -> None:
    plain = {index for first, last in ranges for index in range(first, last + 1)} | more
    found = Indexes(ranges).union(more)
    assert len(found) == len(plain)
    assert {index for index in range(-1, 30) if index in found} == plain
    assert list(found.missing(completions)) == sorted(set(range(completions)) - plain)
    assert Indexes.parse(str(found), 30) == found


def test_two_thousand_million_indexes_are_one_range() -> None:
    found = Indexes.parse("0-1999999998", 2_000_000_000)
    assert len(found) == 1_999_999_999
    assert list(found.missing(2_000_000_000)) == [1_999_999_999]
    assert str(found.union([1_999_999_999])) == "0-1999999999"


def test_an_orphan_of_an_owner_that_never_was_is_collected() -> None:
    async def scenario(world: World) -> None:
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "ghost", "uid": "no-such", "controller": True}
        for name, references in (("orphan", [owner]), ("free", [])):
            pod = pod_template("x")
            pod["metadata"].update(name=name, ownerReferences=references)
            world.create(PODS, pod)
        await world.settle()
        assert world.names(PODS) == ["free"]
        assert kind("pods") == PODS

    play(scenario)


def test_the_deadline_of_a_job_that_is_over_keeps_nothing_waiting() -> None:
    async def scenario(world: World) -> None:
        world.create(JOBS, job("sum", "10s", activeDeadlineSeconds=86_400))
        world.create(JOBS, job("gone", "20h", activeDeadlineSeconds=86_400))
        await asyncio.sleep(5)
        world.store.delete(JOBS, "default", "gone")
        await world.settle(60)
        assert condition(world.get(JOBS, "sum"), "Complete")[0] == "True"

    play(scenario)


def test_a_claim_template_without_a_name_is_reported_and_no_defect() -> None:
    """Upstream stores such a set, too: the claim is what has no valid name."""

    async def scenario(world: World) -> None:
        claim = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
        world.create(STATEFUL_SETS, workload("db", 1, volumeClaimTemplates=[claim]))
        await asyncio.sleep(5)
        assert world.names(PODS) == []
        [problem] = {text.partition(": ")[2] for text in world.controllers.problems}
        assert problem.startswith('PersistentVolumeClaim "-db-0" is invalid: metadata.name: Invalid value: "-db-0"')

    play(scenario)


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        (STATEFUL_SETS, {"podManagementPolicy": "Parallel"}),
        (REPLICA_SETS, {}),
        (JOBS, {"parallelism": 100_000, "completions": 2_000_000_000, "completionMode": "Indexed"}),
        (JOBS, {"parallelism": 2_000_000_000}),
    ],
)
def test_two_thousand_million_pods_are_made_some_at_a_time_and_not_all(
    kind: Kind, spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubesched.cluster.controllers.base.MOST_PODS", 60)

    async def scenario(world: World) -> None:
        made = job("a", "1h", **spec) if kind is JOBS else workload("a", 2_000_000_000, **spec)
        world.create(kind, made)
        await asyncio.sleep(5)
        assert len(world.names(PODS)) == 60
        texts = [item.data()["message"] for item in world.store.list(CORE_EVENTS).items]
        assert sum("00000 pods are wanted, and one workload gets 60 at most here" in text for text in texts) == 1
        world.store.delete(kind, "default", "a")

    play(scenario)


def test_a_job_whose_status_lists_two_thousand_million_indexes_goes_on() -> None:
    async def scenario(world: World) -> None:
        counts: dict[str, Any] = {"parallelism": 2, "completions": 2_000_000_000, "completionMode": "Indexed"}
        world.create(JOBS, job("a", "1h", **counts, suspend=True))
        status = {"completedIndexes": "0-1999999997", "succeeded": 1_999_999_998}
        world.patch(JOBS, "a", {"status": status}, subresource="status")
        world.patch(JOBS, "a", {"spec": {"suspend": False}})
        await asyncio.sleep(5)
        indexes = {pod.metadata.labels["batch.kubernetes.io/job-completion-index"] for pod in world.pods()}
        assert indexes == {"1999999998", "1999999999"}
        assert world.get(JOBS, "a")["status"]["completedIndexes"] == "0-1999999997"

    play(scenario)
