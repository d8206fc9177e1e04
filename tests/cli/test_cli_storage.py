"""Storage manifests in ``simulate`` and ``up``: what works, what waits and why, and what cannot be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_cluster import cluster
from cli_kit import EXAMPLES, Ran, run

Data = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
DONE = {"pv.kubernetes.io/bind-completed": "yes"}


def node(name: str, zone: str, **annotations: str) -> Data:
    labels = {"kubernetes.io/hostname": name, ZONE: zone}
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"allocatable": amounts}}


def pod(name: str, *claims: str) -> Data:
    volumes = [{"name": f"v{at}", "persistentVolumeClaim": {"claimName": claim}} for at, claim in enumerate(claims)]
    spec = {"containers": [{"name": "c", "image": "i"}], "volumes": volumes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def claim(name: str, size: str = "5Gi", annotations: Data | None = None, **spec: Any) -> Data:
    given = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}
    metadata: Data = {"name": name, "annotations": annotations or {}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": given}


def volume(name: str, *terms: list[Data], **spec: Any) -> Data:
    given: Data = {"capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteOnce"], **spec}
    given.setdefault("csi", {"driver": "d.example", "volumeHandle": name})
    if terms:
        affinity = [{"matchExpressions": expressions} for expressions in terms]
        given["nodeAffinity"] = {"required": {"nodeSelectorTerms": affinity}}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": given}


def bound_pair(*terms: list[Data]) -> tuple[Data, Data]:
    """A claim and its volume."""
    reference = {"namespace": "default", "name": "data"}
    return claim("data", annotations=DONE, volumeName="v", storageClassName=""), volume("v", *terms, claimRef=reference)


def csi_node(count: Any) -> Data:
    drivers = [{"name": "d.example", "nodeID": "n1", "allocatable": {"count": count}}]
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": "n1"},
        "spec": {"drivers": drivers},
    }


def storage_class(name: str, mode: str = "WaitForFirstConsumer", provisioner: str = "d.example") -> Data:
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
    return {**kind, "provisioner": provisioner, "volumeBindingMode": mode}


def in_zone(*values: str, operator: str = "In") -> Data:
    return {"key": ZONE, "operator": operator, "values": list(values)}


def simulate(capsys: pytest.CaptureFixture[str], tmp_path: Path, *objects: Data) -> Ran:
    path = tmp_path / "objects.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return run(capsys, "simulate", "-f", path, "-o", "json")


TWO = (node("n1", "a"), node("n2", "b"))


def test_the_example_places_what_fits_and_explains_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "simulate", "-f", EXAMPLES / "stateful", EXAMPLES / "nodes", "-o", "json")
    assert ran.code == 0
    result = json.loads(ran.out)
    assert (result["totals"]["placed"], result["totals"]["pending"]) == (5, 1)
    members = {item["node"][-1] for item in result["placements"] if item["name"].startswith("db-")}
    assert members == {"a", "b", "c"}
    [waiting] = result["pending"]
    assert "node(s) did not have enough free storage" in waiting["message"]
    assert waiting["waitsFor"][1:] == [
        f"{zone} has 5Gi free of class fast, 60Gi asked" for zone in ("zone-a", "zone-b", "zone-c")
    ]
    text = run(capsys, "simulate", "-f", EXAMPLES / "stateful", EXAMPLES / "nodes").out
    assert "  zone-b has 5Gi free of class fast, 60Gi asked" in text.splitlines()


def test_claim_templates_just_work_without_any_class(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    template = {"metadata": {"name": "data"}, "spec": claim("x")["spec"]}
    spec = {
        "replicas": 3,
        "selector": {"matchLabels": {"app": "db"}},
        "template": {"metadata": {"labels": {"app": "db"}}, "spec": pod("x")["spec"]},
        "volumeClaimTemplates": [template],
    }
    sts = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": spec}
    ran = simulate(capsys, tmp_path, *TWO, sts)
    assert (ran.code, ran.err, json.loads(ran.out)["totals"]["placed"]) == (0, "", 3)


def test_limits_of_nodes_are_reached(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    driver = {"name": "d.example", "annotations": {"kubesched.io/volumes-per-node": "2"}}
    objects = [
        *(node("n1", "a"), node("n2", "b", **{"kubesched.io/volumes-per-node": "d.example=1"})),
        {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": driver, "spec": {}},
        storage_class("fast"),
    ]
    for number in range(4):
        objects += [claim(f"c{number}", storageClassName="fast"), pod(f"p{number}", f"c{number}")]
    ran = simulate(capsys, tmp_path, *objects)
    result = json.loads(ran.out)
    assert sorted(item["node"] for item in result["placements"]) == ["n1", "n1", "n2"]
    assert result["pending"][0]["message"] == "0/2 nodes are available: 2 node(s) exceed max volume count."


@pytest.mark.parametrize(
    ("objects", "message", "waits"),
    [
        ((), 'persistentvolumeclaim "data" not found', "claim data does not exist"),
        (
            (claim("data", storageClassName="gone"), storage_class("other")),
            "pod has unbound immediate PersistentVolumeClaims",
            "names the class gone, which does not exist (there is other)",
        ),
        (
            (claim("data", volumeName="gone", storageClassName="", annotations=DONE),),
            'persistentvolumeclaim "data" bound to non-existent persistentvolume "gone"',
            "claim data is lost: its volume gone does not exist any more",
        ),
        (
            (claim("data", volumeName="gone", storageClassName=""),),
            "pod has unbound immediate PersistentVolumeClaims",
            "claim data waits for volume gone, which does not exist",
        ),
        (
            bound_pair([in_zone("a"), in_zone("b")]),
            "2 node(s) didn't match PersistentVolume's node affinity",
            "which only nodes with topology.kubernetes.io/zone=a and topology.kubernetes.io/zone=b reach",
        ),
        (
            (claim("data", storageClassName="none"), storage_class("none", provisioner="kubernetes.io/no-provisioner")),
            "2 node(s) didn't find available persistent volumes to bind",
            "claim data waits for a node that a volume of class none can reach, 5Gi asked",
        ),
    ],
)
def test_claims_that_cannot_be_bound_say_why(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, objects: tuple[Data, ...], message: str, waits: str
) -> None:
    ran = simulate(capsys, tmp_path, *TWO, *objects, pod("p", "data"))
    assert ran.code == 0, ran.err
    assert "Traceback" not in ran.err
    [pending] = json.loads(ran.out)["pending"]
    assert message in pending["message"]
    assert waits in pending["waitsFor"][0]


@pytest.mark.parametrize(
    ("count", "placed", "message"),
    [
        (0, 0, "exceed max volume count"),
        (1, 1, ""),
        ((1 << 31) - 1, 1, ""),
        (-5, None, "spec.drivers[0].allocatable.count: Invalid value: -5: must be greater than or equal to 0"),
        (1 << 31, None, "spec.drivers[0].allocatable.count: expected `int` <= 2147483647"),
        ("many", None, "spec.drivers[0].allocatable.count: expected `int | null`, got `str`"),
    ],
)
def test_limits_zero_and_absurd(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, count: Any, placed: int | None, message: str
) -> None:
    ran = simulate(capsys, tmp_path, node("n1", "a"), csi_node(count), *bound_pair(), pod("p", "data"))
    if placed is None:
        assert (ran.code, ran.out) == (1, "")
        assert message in ran.err
        assert "Traceback" not in ran.err
        return
    result = json.loads(ran.out)
    assert result["totals"]["placed"] == placed
    assert message in (result["pending"][0]["message"] if result["pending"] else "")


def volume_of_size(size: str) -> Data:
    spec = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "fast"}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": spec}


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        (
            (claim("data", size="much"),),
            "cannot be handled as a PersistentVolumeClaim: spec.resources.requests.storage",
        ),
        ((claim("data", size="0"),), 'spec.resources[storage]: Invalid value: "0": must be greater than zero'),
        ((volume_of_size("much"),), "cannot be handled as a PersistentVolume: spec.capacity.storage"),
        ((volume_of_size("-1Gi"),), 'spec.capacity[storage]: Invalid value: "-1Gi"'),
        ((volume_of_size("0"),), 'spec.capacity[storage]: Invalid value: "0": must be greater than zero'),
        ((storage_class("fast", mode="Sometimes"),), 'volumeBindingMode: Unsupported value: "Sometimes"'),
        ((csi_node(-1),), "must be greater than or equal to 0"),
    ],
)
def test_up_refuses_storage_that_cannot_be_used(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, objects: tuple[Data, ...], message: str
) -> None:
    path = tmp_path / "objects.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    ran = run(capsys, "up", "--port", "0", "-f", path, "--kubeconfig-out", tmp_path / "k")
    assert (ran.code, ran.out) == (1, "")
    assert "objects.yaml" in ran.err
    assert message in ran.err
    assert "Traceback" not in ran.err


def test_up_runs_claims_that_name_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "objects.yaml"
    broken = (claim("lost", volumeName="gone", storageClassName=""), pod("waits", "lost"), pod("lacks", "nothing"))
    path.write_text(yaml.safe_dump_all([*broken, claim("data"), pod("runs", "data")]))
    with cluster(tmp_path, "--nodes", "2", "--zones", "2", "-f", str(path), "--speed", "20") as running:
        running.wait_bound("runs")
        classes = running.request("/apis/storage.k8s.io/v1/storageclasses")["items"]
        assert [item["metadata"]["name"] for item in classes] == ["standard"]
        bound = running.request("/api/v1/namespaces/default/persistentvolumeclaims/data")
        assert bound["status"]["phase"] == "Bound"
        conditions = running.pod("lacks")["status"]["conditions"]
        assert 'persistentvolumeclaim "nothing" not found' in conditions[0]["message"]
        assert "nodeName" not in running.pod("waits")["spec"]
        assert running.stop() == (0, "")


def test_stage_rules_make_provisioning_fail(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rules = tmp_path / "stages.yaml"
    broken = {"rate": 1, "reason": "ResourceExhausted"}
    selector = {"nodeLabels": {ZONE: "a"}}
    stage = {"name": "broken", "kind": "PersistentVolumeClaim", "selector": selector, "failure": broken}
    rules.write_text(yaml.safe_dump({"stages": [stage]}))
    path = tmp_path / "objects.yaml"
    path.write_text(yaml.safe_dump_all([*TWO, claim("data"), pod("p", "data")]))
    results = []
    for seed in range(3):
        ran = run(capsys, "simulate", "-f", path, "--stages", rules, "--seed", seed, "-o", "json", "-q")
        results.append(json.loads(ran.out)["placements"][0])
    assert {item["node"] for item in results} == {"n2"}, "elsewhere in the end"
    assert run(capsys, "simulate", "-f", path, "--stages", tmp_path / "none.yaml").code == 1
