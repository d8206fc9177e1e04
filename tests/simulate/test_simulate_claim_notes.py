"""Notes of the report about pods that use claims: the state of each claim, and the storage there is."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from kubesched.api.kinds import CLAIMS, CSI_STORAGE_CAPACITIES, PODS, STORAGE_CLASSES, VOLUMES
from kubesched.cluster.store import Store
from kubesched.explain.claim_notes import claim_notes
from kubesched.lab.simulate.embedded import StoredObjects
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual

Data = dict[str, Any]
DONE = {"pv.kubernetes.io/bind-completed": "yes"}
ZONE_B = {
    "required": {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-b"]}]}
        ]
    }
}


def claim(size: str = "50Gi", annotations: Data | None = None, **spec: Any) -> Data:
    metadata: Data = {"name": "data"}
    if annotations:
        metadata["annotations"] = annotations
    requests = {"resources": {"requests": {"storage": size}}}
    return {"metadata": metadata, "spec": {"accessModes": ["ReadWriteOnce"], **requests, **spec}}


def storage_class(name: str, mode: str = "WaitForFirstConsumer") -> Data:
    return {"metadata": {"name": name}, "provisioner": "p.example", "volumeBindingMode": mode}


def volume(**spec: Any) -> Data:
    given = {"capacity": {"storage": "50Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/d"}, **spec}
    return {"metadata": {"name": "v"}, "spec": given}


def capacity(zone: str, amount: str) -> Data:
    labels = {"topology.kubernetes.io/zone": zone}
    metadata = {"name": f"c-{zone}"}
    return {
        "metadata": metadata,
        "storageClassName": "fast",
        "nodeTopology": {"matchLabels": labels},
        "capacity": amount,
    }


def notes(objects: list[tuple[Any, Data]], **source: Any) -> list[str]:
    async def main() -> list[str]:
        store = Store(VirtualClock(asyncio.get_running_loop()), random=Random(1))
        for kind, data in objects:
            store.create(kind, "default" if kind.namespaced else "", data)
        mount = {"name": "vol", **(source or {"persistentVolumeClaim": {"claimName": "data"}})}
        spec = {"containers": [{"name": "c", "image": "i"}], "volumes": [mount]}
        pod = store.create(PODS, "default", {"metadata": {"name": "p"}, "spec": spec})
        return claim_notes(StoredObjects(store), pod.typed)

    return run_virtual(main())


@pytest.mark.parametrize(
    ("objects", "want"),
    [
        ([], ["claim data does not exist"]),
        ([(CLAIMS, claim())], ["claim data names no class: it waits for a volume made by hand"]),
        (
            [(STORAGE_CLASSES, storage_class("slow")), (CLAIMS, claim(storageClassName="fast"))],
            [
                "claim data names the class fast, which does not exist (there is slow): it waits for a volume made by hand"
            ],
        ),
        (
            [(STORAGE_CLASSES, storage_class("fast", "Immediate")), (CLAIMS, claim(storageClassName="fast"))],
            ["claim data waits for a volume of class fast, 50Gi asked"],
        ),
        (
            [
                (STORAGE_CLASSES, storage_class("fast")),
                (CSI_STORAGE_CAPACITIES, capacity("zone-b", "20Gi")),
                (CSI_STORAGE_CAPACITIES, capacity("zone-a", "0")),
                (CLAIMS, claim(storageClassName="fast")),
            ],
            [
                "claim data waits for a node that a volume of class fast can reach, 50Gi asked",
                "zone-a has 0 free of class fast, 50Gi asked",
                "zone-b has 20Gi free of class fast, 50Gi asked",
            ],
        ),
        (
            [
                (STORAGE_CLASSES, storage_class("fast")),
                (CLAIMS, claim("1Gi", {"volume.kubernetes.io/selected-node": "n1"}, storageClassName="fast")),
            ],
            ["claim data waits for a volume of class fast for node n1, 1Gi asked"],
        ),
        ([(CLAIMS, claim(volumeName="v"))], ["claim data waits for volume v, which does not exist"]),
        (
            [(CLAIMS, claim(volumeName="v", annotations=DONE))],
            ["claim data is lost: its volume v does not exist any more"],
        ),
        ([(CLAIMS, claim(volumeName="v")), (VOLUMES, volume())], ["claim data waits for volume v"]),
        ([(CLAIMS, claim(volumeName="v", annotations=DONE)), (VOLUMES, volume())], []),
        (
            [(CLAIMS, claim(volumeName="v", annotations=DONE)), (VOLUMES, volume(nodeAffinity=ZONE_B))],
            ["claim data is bound to volume v, which only nodes with topology.kubernetes.io/zone=zone-b reach"],
        ),
    ],
)
def test_each_state_of_a_claim_has_its_sentence(objects: list[tuple[Any, Data]], want: list[str]) -> None:
    assert notes(objects) == want


def test_a_claim_of_the_pods_own_is_still_to_be_made() -> None:
    template = {"spec": claim()["spec"]}
    [text] = notes([], ephemeral={"volumeClaimTemplate": template})
    assert text.startswith("claim p-vol does not exist; it is made")
