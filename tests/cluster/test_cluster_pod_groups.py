"""Pod groups in dumps of a real cluster, in saved clusters, and as typed objects."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kubesched.api.decode import from_builtins
from kubesched.api.groups import PodGroup, group_key
from kubesched.api.kinds import POD_GROUPS, PODS, WORKLOADS
from kubesched.api.resource import ClaimConsumer, ResourceClaimStatus
from kubesched.api.types import Pod, PodResourceClaim
from kubesched.base.times import FixedClock
from kubesched.cluster.files import import_dump, read, save
from kubesched.cluster.store import Store

JSON = dict[str, Any]

WORKLOAD: JSON = {
    "apiVersion": "scheduling.k8s.io/v1alpha2",
    "kind": "Workload",
    "metadata": {"name": "w", "namespace": "ml", "uid": "w-1"},
    "spec": {"podGroupTemplates": [{"name": "t", "schedulingPolicy": {"gang": {"minCount": 2}}}]},
}
GROUP: JSON = {
    "apiVersion": "scheduling.k8s.io/v1alpha2",
    "kind": "PodGroup",
    "metadata": {
        "name": "g",
        "namespace": "ml",
        "uid": "g-1",
        "finalizers": ["scheduling.k8s.io/podgroup-protection"],
    },
    "spec": {
        "podGroupTemplateRef": {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}},
        "schedulingPolicy": {"gang": {"minCount": 2}},
        "schedulingConstraints": {"topology": [{"key": "rack"}]},
        "resourceClaims": [{"name": "net", "resourceClaimTemplateName": "net"}],
        "disruptionMode": "PodGroup",
        "priorityClassName": "gone",
        "priority": 7,
    },
    "status": {
        "conditions": [
            {
                "type": "PodGroupScheduled",
                "status": "True",
                "reason": "Scheduled",
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ],
        "resourceClaimStatuses": [{"name": "net", "resourceClaimName": "g-net-1"}],
    },
}
MEMBER: JSON = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a", "namespace": "ml", "uid": "a-1"},
    "spec": {
        "containers": [{"name": "c", "image": "i"}],
        "schedulingGroup": {"podGroupName": "g"},
        "resourceClaims": [{"name": "net", "resourceClaimTemplateName": "net"}],
    },
    "status": {"phase": "Pending"},
}


def a_store() -> Store:
    return Store(FixedClock(), random=Random(1))


def test_a_dump_and_a_saved_cluster_keep_groups_whole(tmp_path: Path) -> None:
    # Members and groups come before what they name: the order of a dump is by kind.
    dump = {"apiVersion": "v1", "kind": "List", "items": [MEMBER, GROUP, WORKLOAD]}
    (tmp_path / "dump.json").write_text(json.dumps(dump))
    store = a_store()
    assert import_dump([tmp_path / "dump.json"]).store_in(store) == []
    save(store, tmp_path / "saved.jsonl")
    again = a_store()
    read(tmp_path / "saved.jsonl").load_into(again)
    for one in (store, again):
        group = one.get(POD_GROUPS, "ml", "g").data()
        assert (group["spec"], group["status"]) == (GROUP["spec"], GROUP["status"])
        assert group["metadata"]["uid"] == "g-1"
        assert one.get(WORKLOADS, "ml", "w").data()["spec"] == WORKLOAD["spec"]
        pod = one.get(PODS, "ml", "a").typed
        assert group_key(pod) == "ml/g"


def test_a_group_as_the_scheduler_reads_it() -> None:
    group = from_builtins({**GROUP, "spec": {**GROUP["spec"], "podGroupTemplateRef": None}}, PodGroup)
    assert (group.min_count, group.priority) == (2, 7)
    assert group.spec.scheduling_constraints is not None
    assert [one.key for one in group.spec.scheduling_constraints.topology] == ["rack"]
    assert [(one.type, one.status) for one in group.status.conditions] == [("PodGroupScheduled", "True")]
    basic = from_builtins({"spec": {"schedulingPolicy": {"basic": {}}, "schedulingConstraints": {}}}, PodGroup)
    assert basic.spec.scheduling_policy.basic is not None
    assert (basic.min_count, basic.priority) == (0, 0)
    assert basic.spec.scheduling_constraints is not None
    assert basic.spec.scheduling_constraints.topology == ()


@pytest.mark.parametrize(
    ("entry", "shared"),
    [
        ({"name": "net", "resource_claim_template_name": "net"}, True),
        ({"name": "net", "resource_claim_template_name": "other"}, False),
        ({"name": "net", "resource_claim_name": "net"}, False),
        ({"name": "disk", "resource_claim_template_name": "net"}, False),
    ],
)
def test_a_claim_is_the_groups_if_name_and_references_are_equal(entry: JSON, shared: bool) -> None:
    assert from_builtins(GROUP, PodGroup).shares(PodResourceClaim(**entry)) is shared


def test_a_claim_is_reserved_for_a_pod_by_uid_and_for_its_group_by_name() -> None:
    pod = from_builtins(MEMBER, Pod)
    for consumer, expected in (
        (ClaimConsumer(resource="pods", name="a", uid="a-1"), True),
        (ClaimConsumer(resource="pods", name="a", uid="a-2"), False),
        (ClaimConsumer(api_group="scheduling.k8s.io", resource="podgroups", name="g", uid="g-1"), True),
        (ClaimConsumer(api_group="scheduling.k8s.io", resource="podgroups", name="h", uid="g-1"), False),
        (ClaimConsumer(resource="podgroups", name="g", uid="g-1"), False),
    ):
        assert ResourceClaimStatus(reserved_for=(consumer,)).is_reserved_for(pod) is expected
