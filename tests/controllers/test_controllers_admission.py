"""ResourceQuota and LimitRange: what is refused, in which words, and what is filled in."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from controllers_world import (
    CLAIMS,
    JOBS,
    LIMITS,
    QUOTAS,
    REPLICA_SETS,
    Data,
    World,
    condition,
    job,
    kind,
    play,
    workload,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from kubesched.api.kinds import NAMESPACES, PODS, Kind
from kubesched.api.wire import ApiError
from kubesched.cluster.admission import show_amount
from kubesched.cluster.store import Store


class FixedClock:
    def now(self) -> float:
        return 1_750_000_000.0


def a_store() -> Store:
    return Store(FixedClock(), random=Random(1))


def quota(store: Store, name: str = "q", namespace: str = "default", **spec: Any) -> None:
    store.create(QUOTAS, namespace, {"metadata": {"name": name}, "spec": spec})


def used(store: Store, name: str = "q") -> dict[str, str]:
    found: dict[str, str] = store.get(QUOTAS, "default", name).data()["status"]["used"]
    return found


def a_pod(name: str, requests: Data | None = None, limits: Data | None = None, **spec: Any) -> Data:
    resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value}
    container: Data = {"name": "c", "image": "i", "resources": resources}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def refusal(store: Store, kind_: Any, obj: Data) -> str:
    with pytest.raises(ApiError) as caught:
        store.create(kind_, "default", obj)
    assert (caught.value.code, caught.value.reason) == (403, "Forbidden")
    return caught.value.message


# -- quota -------------------------------------------------------------------------------------------------


def test_a_quota_counts_pods_and_refuses_one_too_many_in_upstreams_words() -> None:
    store = a_store()
    quota(store, "compute", hard={"pods": "3", "requests.cpu": "1", "memory": "2Gi"})
    for index in range(2):
        store.create(PODS, "default", a_pod(f"p{index}", {"cpu": "400m", "memory": "512Mi"}))
    assert used(store, "compute") == {"pods": "2", "requests.cpu": "800m", "memory": "1Gi"}
    assert refusal(store, PODS, a_pod("p2", {"cpu": "400m", "memory": "1Gi"})) == (
        'pods "p2" is forbidden: exceeded quota: compute, requested: requests.cpu=400m, used: requests.cpu=800m, '
        "limited: requests.cpu=1"
    )
    assert refusal(store, PODS, a_pod("p2", {"cpu": "1", "memory": "3Gi"})) == (
        'pods "p2" is forbidden: exceeded quota: compute, requested: memory=3Gi,requests.cpu=1, '
        "used: memory=1Gi,requests.cpu=800m, limited: memory=2Gi,requests.cpu=1"
    )
    assert refusal(store, PODS, a_pod("p2", {"cpu": "1m"})) == (
        'pods "p2" is forbidden: failed quota: compute: must specify memory for: c'
    )
    store.create(PODS, "default", a_pod("p2", {"cpu": "1m", "memory": "1Mi"}))
    assert "exceeded quota: compute, requested: pods=1, used: pods=3, limited: pods=3" in refusal(
        store, PODS, a_pod("p3", {"cpu": "1m", "memory": "1Mi"})
    )


def test_what_ends_or_goes_is_given_back() -> None:
    store = a_store()
    quota(store, hard={"pods": "2", "count/pods": "3", "requests.cpu": "2"})
    for index in range(2):
        store.create(PODS, "default", a_pod(f"p{index}", {"cpu": "1"}))
    store.patch(PODS, "default", "p0", {"status": {"phase": "Succeeded"}}, subresource="status")
    assert used(store) == {"pods": "1", "count/pods": "2", "requests.cpu": "1"}
    store.create(PODS, "default", a_pod("p2", {"cpu": "1"}))
    store.delete(PODS, "default", "p1")
    assert used(store) == {"pods": "1", "count/pods": "2", "requests.cpu": "1"}
    store.delete(PODS, "default", "p0")
    assert used(store) == {"pods": "1", "count/pods": "1", "requests.cpu": "1"}


def test_a_quota_made_or_changed_later_counts_what_is_there() -> None:
    store = a_store()
    for index in range(3):
        store.create(PODS, "default", a_pod(f"p{index}", {"cpu": "1", "nvidia.com/gpu": "2"}, {"nvidia.com/gpu": "2"}))
    quota(store, hard={"requests.nvidia.com/gpu": "4"})
    assert used(store) == {"requests.nvidia.com/gpu": "6"}
    assert "exceeded quota" in refusal(store, PODS, a_pod("p3", {"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "1"}))
    store.create(PODS, "default", a_pod("p3", {"cpu": "50"}))
    change = {"spec": {"hard": {"requests.nvidia.com/gpu": "8", "pods": "9"}}}
    store.patch(QUOTAS, "default", "q", change, patch_type="application/merge-patch+json")
    assert used(store) == {"requests.nvidia.com/gpu": "6", "pods": "4"}
    store.delete(QUOTAS, "default", "q")
    for index in range(4, 20):
        store.create(PODS, "default", a_pod(f"p{index}"))


def test_other_namespaces_and_dry_runs_cost_nothing() -> None:
    store = a_store()
    quota(store, hard={"pods": "1"})
    store.create(PODS, "kube-system", a_pod("p"))
    store.create(PODS, "default", a_pod("p"), dry_run=True)
    assert used(store) == {"pods": "0"}
    store.create(PODS, "default", a_pod("p"))
    with pytest.raises(ApiError):
        store.create(PODS, "default", a_pod("p2"), dry_run=True)


@pytest.mark.parametrize(
    ("case", "spec", "counted"),
    [
        ("pods that ask for nothing", {"scopes": ["BestEffort"]}, ["plain"]),
        ("pods that ask for something", {"scopes": ["NotBestEffort"]}, ["asking", "urgent"]),
        (
            "pods of a priority class",
            {
                "scopeSelector": {
                    "matchExpressions": [
                        {"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"]}
                    ]
                }
            },
            ["urgent"],
        ),
        ("pods without a deadline", {"scopes": ["NotTerminating"]}, ["asking", "plain", "urgent"]),
    ],
)
def test_scopes_choose_the_pods(case: str, spec: Data, counted: list[str]) -> None:
    store = a_store()
    quota(store, hard={"pods": "10"}, **spec)
    pods = {
        "plain": a_pod("plain"),
        "asking": a_pod("asking", {"cpu": "1"}),
        "urgent": a_pod("urgent", {"cpu": "1"}, priorityClassName="system-node-critical"),
    }
    found = []
    for name in sorted(pods):
        before = used(store)["pods"]
        store.create(PODS, "default", pods[name])
        if used(store)["pods"] != before:
            found.append(name)
    assert found == counted, case


def test_claims_and_counts_of_other_kinds() -> None:
    store = a_store()
    hard = {"persistentvolumeclaims": "2", "requests.storage": "10Gi", "count/replicasets.apps": "1", "services": "1"}
    quota(store, hard={**hard, "fast.storageclass.storage.k8s.io/requests.storage": "4Gi"})
    claim = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "3Gi"}}}}
    store.create(CLAIMS, "default", {"metadata": {"name": "a"}, **claim})
    fast = {"spec": {**claim["spec"], "storageClassName": "fast"}}
    store.create(CLAIMS, "default", {"metadata": {"name": "b"}, **fast})
    assert used(store)["requests.storage"] == "6Gi"
    assert used(store)["fast.storageclass.storage.k8s.io/requests.storage"] == "3Gi"
    assert "persistentvolumeclaims=1, used: persistentvolumeclaims=2" in refusal(
        store,
        CLAIMS,
        {
            "metadata": {"name": "c"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}},
        },
    )
    store.create(REPLICA_SETS, "default", workload("one"))
    assert "count/replicasets.apps=1" in refusal(store, REPLICA_SETS, workload("two"))
    service = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
    store.create(kind("services"), "default", service)
    assert used(store)["services"] == "1"


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("cdf"), st.integers(0, 7), st.integers(1, 9)), max_size=40))
def test_use_is_what_the_pods_that_are_there_ask_for(steps: list[tuple[str, int, int]]) -> None:
    store = a_store()
    quota(store, hard={"pods": "5", "requests.cpu": "20"})
    for step, index, cpu in steps:
        name = f"p{index}"
        try:
            if step == "c":
                store.create(PODS, "default", a_pod(name, {"cpu": str(cpu)}))
            elif step == "d":
                store.delete(PODS, "default", name)
            else:
                store.patch(PODS, "default", name, {"status": {"phase": "Failed"}}, subresource="status")
        except ApiError as error:
            if error.code not in (403, 404, 409):
                raise
        live = [item.typed for item in store.list(PODS).items if item.typed.status.phase == "Pending"]
        total = sum(int(pod.spec.containers[0].resources.requests["cpu"]) for pod in live)
        assert used(store) == {"pods": str(len(live)), "requests.cpu": str(total)}
        assert (len(live) <= 5, total <= 20) == (True, True)


def test_a_replica_set_that_meets_a_quota_reports_it_and_continues_when_the_quota_allows() -> None:
    async def scenario(world: World) -> None:
        quota(world.store, hard={"pods": "2"})
        world.create(REPLICA_SETS, workload("web", 4))
        await world.settle()
        assert len(world.pods()) == 2
        data = world.get(REPLICA_SETS, "web")
        assert condition(data, "ReplicaFailure") == ("True", "FailedCreate")
        assert world.controllers.controllers["replicaset"].queue.stuck == ["default/web"]
        world.patch(QUOTAS, "q", {"spec": {"hard": {"pods": "9"}}})
        world.patch(REPLICA_SETS, "web", {"spec": {"replicas": 5}})
        await world.settle()
        assert len(world.pods()) == 5
        assert condition(world.get(REPLICA_SETS, "web"), "ReplicaFailure") == ("", "")

    play(scenario)


@pytest.mark.parametrize(
    ("kind_", "obj", "name"),
    [
        pytest.param(REPLICA_SETS, workload("many", 1200), "replicaset", id="replica set"),
        pytest.param(JOBS, job("many", "2h", parallelism=1200, completions=1200), "job", id="job"),
    ],
)
def test_more_pods_than_a_burst_that_are_refused_are_tried_again_later_not_at_once(
    kind_: Kind, obj: Data, name: str
) -> None:
    async def scenario(world: World) -> None:
        quota(world.store, hard={"pods": "2"})
        world.create(kind_, obj)
        await asyncio.sleep(60)
        assert len(world.pods()) == 2
        controller = world.controllers.controllers[name]
        assert controller.queue.stuck == ["default/many"]
        assert controller.reconciles < 100
        world.store.delete(kind_, "default", "many")

    play(scenario)


def test_a_namespace_with_a_large_workload_goes() -> None:
    async def scenario(world: World) -> None:
        world.create(NAMESPACES, {"metadata": {"name": "big"}}, "")
        world.create(REPLICA_SETS, {**workload("many", 1200), "metadata": {"name": "many"}}, "big")
        await world.settle()
        assert len(world.pods("big")) == 1200
        world.store.delete(NAMESPACES, "", "big")
        await asyncio.sleep(60)
        assert world.pods("big") == []
        assert not world.exists(NAMESPACES, "big")

    play(scenario, nodes=30)


@pytest.mark.parametrize(
    ("name", "nanos", "want"),
    [("cpu", 1_500_000_000, "1500m"), ("memory", 3 * 2**30 * 10**9, "3Gi"), ("requests.storage", 5 * 10**15, "5M")],
)
def test_amounts_are_shown_as_people_write_them(name: str, nanos: int, want: str) -> None:
    assert show_amount(name, nanos) == want


# -- limit ranges ------------------------------------------------------------------------------------------


def limit_range(store: Store, *limits: Data) -> None:
    store.create(LIMITS, "default", {"metadata": {"name": "l"}, "spec": {"limits": list(limits)}})


@pytest.mark.parametrize(
    ("case", "rule", "pod", "want"),
    [
        (
            "a default limit is the default request too",
            {"default": {"cpu": "500m"}},
            a_pod("p"),
            {"limits": {"cpu": "500m"}, "requests": {"cpu": "500m"}},
        ),
        (
            "a default request of its own",
            {"default": {"cpu": "500m"}, "defaultRequest": {"cpu": "100m", "memory": "1Gi"}},
            a_pod("p"),
            {"limits": {"cpu": "500m"}, "requests": {"cpu": "100m", "memory": "1Gi"}},
        ),
        (
            "what is given stays, and a limit given is the request",
            {"default": {"cpu": "500m"}, "defaultRequest": {"cpu": "100m"}},
            a_pod("p", limits={"cpu": "2"}),
            {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}},
        ),
        (
            "the largest is the default when there is none",
            {"max": {"cpu": "4"}},
            a_pod("p"),
            {"limits": {"cpu": "4"}, "requests": {"cpu": "4"}},
        ),
    ],
)
def test_limit_ranges_fill_in(case: str, rule: Data, pod: Data, want: Data) -> None:
    store = a_store()
    limit_range(store, {"type": "Container", **rule})
    for name in ("p", "p2"):  # the second comes from the memo
        data = store.create(PODS, "default", {**pod, "metadata": {"name": name}}).data()
        assert data["spec"]["containers"][0]["resources"] == want, case


@pytest.mark.parametrize(
    ("rule", "pod", "want"),
    [
        (
            {"type": "Container", "max": {"cpu": "1"}},
            a_pod("p", {"cpu": "1"}, {"cpu": "2"}),
            "maximum cpu usage per Container is 1, but limit is 2",
        ),
        (
            {"type": "Container", "min": {"memory": "1Gi"}},
            a_pod("p", {"memory": "512Mi"}),
            "minimum memory usage per Container is 1Gi, but request is 512Mi",
        ),
        (
            {"type": "Pod", "max": {"cpu": "1"}},
            a_pod("p", {"cpu": "100m"}),
            "maximum cpu usage per Pod is 1.  No limit is specified",
        ),
        (
            {"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}},
            a_pod("p", {"cpu": "1"}, {"cpu": "3"}),
            "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
        ),
        (
            {"type": "Container", "max": {"cpu": "1", "memory": "1Gi"}},
            a_pod("p", {}, {"cpu": "2", "memory": "2Gi"}),
            "[maximum cpu usage per Container is 1, but limit is 2, maximum memory usage per Container is 1Gi, but limit is 2Gi]",
        ),
    ],
)
def test_limit_ranges_refuse(rule: Data, pod: Data, want: str) -> None:
    store = a_store()
    limit_range(store, rule)
    assert refusal(store, PODS, pod) == f'pods "p" is forbidden: {want}'
    store.delete(LIMITS, "default", "l")
    store.create(PODS, "default", pod)


def test_limit_ranges_bound_claims() -> None:
    store = a_store()
    limit_range(store, {"type": "PersistentVolumeClaim", "max": {"storage": "5Gi"}, "min": {"storage": "1Gi"}})
    claim: Data = {"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    for size, want in (
        ("9Gi", "maximum storage usage per PersistentVolumeClaim is 5Gi, but request is 9Gi"),
        ("1Mi", "minimum"),
    ):
        claim["spec"]["resources"] = {"requests": {"storage": size}}
        assert want in refusal(store, CLAIMS, claim)
    claim["spec"]["resources"] = {"requests": {"storage": "2Gi"}}
    store.create(CLAIMS, "default", claim)


def test_pods_of_one_template_may_differ_between_namespaces() -> None:
    store = a_store()
    limit_range(store, {"type": "Container", "default": {"cpu": "1"}})
    first = store.create(PODS, "default", a_pod("p")).typed
    second = store.create(PODS, "kube-system", a_pod("p")).typed
    assert (first.spec.containers[0].resources.requests, second.spec.containers[0].resources.requests) == (
        {"cpu": "1"},
        {},
    )
