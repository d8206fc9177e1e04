"""The patches of a pod's status that a scheduler and a kubelet send have a way of their own, with the same result."""

from __future__ import annotations

from random import Random
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubesched.api.kinds import PODS
from kubesched.api.wire import ApiError
from kubesched.cluster.kubelets.pod_status import finished_status, running_status
from kubesched.cluster.store import Store
from kubesched.cluster.store.pod_actions import PodActions

TYPES = ("PodScheduled", "Ready", "DisruptionTarget")
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


class StillClock:
    def now(self) -> float:
        return 1_700_000_000.0


conditions = st.fixed_dictionaries(
    {"type": st.sampled_from(TYPES)},
    optional={
        "status": st.sampled_from(("True", "False")),
        "reason": st.sampled_from((None, "A", "B")),
        "message": st.sampled_from(("", "m", None)),
        "observedGeneration": st.sampled_from((1, None, "x")),
        "$patch": st.just("delete"),
    },
)
addresses = st.sampled_from(
    ({"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}, {"ip": 5}, {"ip": "10.0.0.1", "zone": None}, {}, 5)
)
containers = st.sampled_from(
    (
        {"name": "c", "image": "i", "imageID": "", "ready": True, "restartCount": 0, "state": {"running": {}}},
        {"name": "c", "image": "i", "imageID": "", "ready": False, "restartCount": 1, "started": None},
        {"name": "c", "image": "$i", "imageID": ":null", "ready": True, "restartCount": 0},
        {"name": "c", "$patch": "delete"},
        {"name": 5},
        None,
    )
)
orders = st.lists(st.sampled_from(TYPES), unique=True).map(lambda names: [{"type": name} for name in names])
statuses = st.fixed_dictionaries(
    {},
    optional={
        "conditions": st.lists(conditions, max_size=3),
        "$setElementOrder/conditions": orders,
        "nominatedNodeName": st.sampled_from(("n1", "n2", None, "", 'n"3', "\0", "\u00fc")),
        "phase": st.sampled_from(("Pending", "Running", None, 5)),
        "startTime": st.sampled_from(("2025-01-01T00:00:00Z", None)),
        "podIP": st.sampled_from(("10.0.0.1", "10.0.0.2")),
        "podIPs": st.lists(addresses, max_size=2),
        "hostIP": st.just("192.168.0.1"),
        "hostIPs": st.lists(addresses, max_size=1),
        "containerStatuses": st.lists(containers, max_size=2),
        "qosClass": st.just("Burstable"),
    },
)
patches = st.fixed_dictionaries(
    {"status": statuses}, optional={"metadata": st.sampled_from(({}, {"uid": "other"}, {"labels": {"a": "b"}}))}
)


def outcome(store: Store, patch: dict[str, Any]) -> Any:
    """Return what a patch leaves and the number of versions by then, or why it was refused."""
    try:
        store.patch(PODS, "default", "p", patch, subresource="status")
    except ApiError as error:
        return error.code, error.message
    item = store.get(PODS, "default", "p")
    return item.data(), item.typed, store.resource_version


def new_store() -> Store:
    store = Store(StillClock(), random=Random(0))
    store.create(PODS, "default", POD)
    _ = store.get(PODS, "default", "p").typed  # as informers read every version
    return store


@settings(max_examples=150, deadline=None)
@given(st.lists(patches, min_size=1, max_size=6))
def test_it_leaves_what_the_general_way_leaves(changes: list[dict[str, Any]]) -> None:
    one, other = new_store(), new_store()
    for patch in changes:
        found = outcome(one, patch)
        with mock.patch.object(PodActions, "patch_status", return_value=None):
            assert found == outcome(other, patch)


def test_it_is_used_for_what_a_kubelet_writes() -> None:
    store = new_store()
    store.bind("default", "p", "", "n1")
    pod = store.get(PODS, "default", "p").typed
    now = "2023-11-14T22:13:21Z"
    with mock.patch("kubesched.cluster.store.bodies.apply_strategic_patch", side_effect=AssertionError):
        for status in (
            running_status(pod, now, "10.0.0.1", "192.168.0.1"),
            finished_status(pod, now, phase="Succeeded", reason="Completed", exit_code=0),
        ):
            patch = {"metadata": {"uid": pod.uid}, "status": status}
            store.patch(PODS, "default", "p", patch, subresource="status")
            found = store.get(PODS, "default", "p").section("status")
            assert found.items() >= {name: value for name, value in status.items() if name != "conditions"}.items()
    assert found["conditions"][-1]["type"] == "PodScheduled"  # the others are new, and go ahead of it
    assert found["podIPs"] == [{"ip": "10.0.0.1"}]


def test_pods_alike_may_be_nominated_to_different_nodes() -> None:
    store, names = new_store(), ("n1", "n2", "\0", 'n"3')
    for number, node in enumerate(names):
        store.create(PODS, "default", {**POD, "metadata": {"name": f"p{number}"}})
        patch = {"status": {"nominatedNodeName": node, "conditions": [{"type": "Ready", "status": "False"}]}}
        assert store.patch(PODS, "default", f"p{number}", patch, subresource="status").typed.status.phase == "Pending"
    found = [store.get(PODS, "default", f"p{number}").data()["status"] for number in range(len(names))]
    assert [status.pop("nominatedNodeName") for status in found] == list(names)
    assert all(status == found[0] for status in found)


def test_a_node_is_nominated_whatever_else_has_that_name() -> None:
    condition = {"type": "Ready", "status": "False", "nominatedNodeName": "\0"}
    store = new_store()
    store.patch(
        PODS, "default", "p", {"status": {"conditions": [condition], "nominatedNodeName": "n1"}}, subresource="status"
    )
    status = store.get(PODS, "default", "p").section("status")
    assert (status["nominatedNodeName"], status["conditions"]) == ("n1", [condition])


def test_it_is_used_for_what_a_scheduler_writes() -> None:
    store = new_store()
    uid = store.get(PODS, "default", "p").uid
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    patch = {"metadata": {"uid": uid}, "status": {"conditions": [condition], "nominatedNodeName": "n1"}}
    with mock.patch("kubesched.cluster.store.bodies.apply_strategic_patch", side_effect=AssertionError):
        store.patch(PODS, "default", "p", patch, subresource="status")
        version = store.resource_version
        store.patch(PODS, "default", "p", patch, subresource="status")
    status = store.get(PODS, "default", "p").section("status")
    assert (status["nominatedNodeName"], status["conditions"]) == ("n1", [condition])
    assert store.resource_version == version  # again it changes nothing


@pytest.mark.parametrize("patch", [[], {"status": 5}, {"status": {"conditions": 5}}, {"status": {"conditions": [5]}}])
def test_hostile_patches_are_refused(patch: Any) -> None:
    with pytest.raises(ApiError) as caught:
        new_store().patch(PODS, "default", "p", patch, subresource="status")
    assert caught.value.code in (400, 422)
