"""Explanations of volumes: changes of claims and classes, each carried out in a fresh cluster."""

from __future__ import annotations

from typing import Any

import pytest
from explain_kit import a_house, explained, helps

from builders import a_node, a_pod
from kubesched.api.decode import from_builtins
from kubesched.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from kubesched.api.types import Pod
from kubesched.scheduler.framework.status import Status
from search_kit import brute_force

ZONE = "topology.kubernetes.io/zone"
Object = dict[str, Any]


def a_pvc(name: str = "data", **spec: Any) -> Object:
    bound = {"pv.kubernetes.io/bind-completed": "yes"} if "volumeName" in spec else {}
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1", "annotations": bound},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec},
        "status": {"phase": "Bound" if bound else "Pending"},
    }


def a_pv(zone: str) -> Object:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    return {
        "metadata": {"name": "pv", "resourceVersion": "1", "labels": {ZONE: zone}},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "late",
            "csi": {"driver": "disk.example.com", "volumeHandle": "v"},
            "claimRef": {"namespace": "ns", "name": "data", "uid": "data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    }


def a_storage_class(name: str, mode: str = "WaitForFirstConsumer", zones: list[str] | None = None) -> Object:
    topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": zones}]}] if zones else []
    return {
        "metadata": {"name": name},
        "provisioner": "disk.example.com",
        "volumeBindingMode": mode,
        "allowedTopologies": topologies,
    }


def a_user(name: str = "p", on: str = "") -> Pod:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    body = {
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"nodeName": on, "volumes": [volume], "containers": [{"name": "c", "image": "i"}]},
    }
    return from_builtins(body, Pod)


def typed(pvc: Object, classes: list[Object], volumes: list[Object]) -> list[Any]:
    found = [from_builtins(one, StorageClass) for one in classes]
    return [
        *found,
        *(from_builtins(one, PersistentVolume) for one in volumes),
        from_builtins(pvc, PersistentVolumeClaim),
    ]


LATE, SOON, IN_A = a_storage_class("late"), a_storage_class("soon", "Immediate"), a_storage_class("late", zones=["a"])
ONE_POD: Object = {"accessModes": ["ReadWriteOncePod"], "storageClassName": "late"}
CASES = [
    pytest.param(
        [SOON, LATE], [], a_pvc(storageClassName="soon"), a_pvc(storageClassName="late"), [LATE], [], [],
        "make the claim data anew with the class late, which waits for a pod (WaitForFirstConsumer)",
        id="a class that binds at once",
    ),
    pytest.param(
        [LATE], [], a_pvc(storageClassName="gone"), a_pvc(storageClassName="late"), [LATE], [], [],
        "make the claim data anew with the class late, which waits for a pod (WaitForFirstConsumer)",
        id="a class that does not exist",
    ),
    pytest.param(
        [IN_A], [], a_pvc(storageClassName="late"), a_pvc(storageClassName="late"), [LATE], [], [],
        "make the class late anew without allowedTopologies",
        id="topologies of a class",
    ),
    pytest.param(
        [LATE], [a_pv("a")], a_pvc(storageClassName="late", volumeName="pv"), a_pvc(storageClassName="late"), [LATE], [], [],
        "make the claim data anew with a new volume (pv keeps the data)",
        id="a volume in another zone",
    ),
    pytest.param(
        [LATE], [], a_pvc(**ONE_POD), a_pvc(storageClassName="late"), [LATE], [], [a_user("holder", "n1")],
        "make the claim data anew with ReadWriteOnce instead of ReadWriteOncePod",
        id="a claim for one pod",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("classes", "volumes", "pvc", "after", "classes_after", "volumes_after", "pods", "words"), CASES
)
def test_a_change_of_a_claim_or_class_is_proposed_and_helps(
    classes: list[Object],
    volumes: list[Object],
    pvc: Object,
    after: Object,
    classes_after: list[Object],
    volumes_after: list[Object],
    pods: list[Pod],
    words: str,
) -> None:
    nodes = [a_node("n1", labels={ZONE: "b"}), a_node("n2", labels={ZONE: "b"})]
    house = a_house(nodes, [a_pod("other", on="n1"), *pods], typed(pvc, classes, volumes))
    found = explained(house, a_user())
    assert ((words,), 2) in helps(found)
    changed = a_house(nodes, pods, typed(after, classes_after, volumes_after))
    verdicts = brute_force(changed, a_user())
    assert not isinstance(verdicts, Status)
    assert verdicts == {"n1": None, "n2": None}
    # The trial has left no trace.
    assert helps(explained(house, a_user())) == helps(found)
