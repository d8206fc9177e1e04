"""EBSLimits, GCEPDLimits, AzureDiskLimits, CinderLimits: how many in-tree disks a node may have (rules/volumes §6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from limits_kit import EPHEMERAL, JSON, Cluster, a_claim, a_class, a_csi_node, a_volume, claims, with_volumes

from builders import a_node
from kubesched.api.types import Node
from kubesched.scheduler.framework.registry import Registry
from kubesched.scheduler.loading import load_configuration
from kubesched.scheduler.plugins import in_tree_registry

FULL = (2, ("node(s) exceed max volume count",))
MIGRATED = {"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs,kubernetes.io/cinder"}
NAMES = ("EBSLimits", "GCEPDLimits", "AzureDiskLimits", "CinderLimits")


def ebs(*ids: str) -> list[JSON]:
    return [{"awsElasticBlockStore": {"volumeID": each}} for each in ids]


SOURCES: dict[str, Any] = {
    "EBSLimits": (lambda name: {"awsElasticBlockStore": {"volumeID": name}}, "aws-ebs", 39),
    "GCEPDLimits": (lambda name: {"gcePersistentDisk": {"pdName": name}}, "gce-pd", 16),
    "AzureDiskLimits": (lambda name: {"azureDisk": {"diskName": name, "diskURI": "u"}}, "azure-disk", 16),
    "CinderLimits": (lambda name: {"cinder": {"volumeID": name}}, "cinder", 256),
}


def node(limit: int | None = None, kind: str = "aws-ebs", **labels: str) -> Node:
    amounts = {} if limit is None else {f"attachable-volumes-{kind}": str(limit)}
    return a_node("n", allocatable=amounts, labels={key.replace("_", "/"): value for key, value in labels.items()})


def outcome(name: str, on: Node, sources: list[JSON], there: list[JSON] = [], objects: list[JSON] = []) -> Any:  # noqa: B006 - not changed
    """Return the plugin's answer to a pod with these volumes, with another pod on the node."""
    pods = [with_volumes("old", *there, on="n")] if there else []
    found = Cluster([on], pods, objects, plugins=(name,)).outcomes(name, with_volumes("p", *sources))
    assert isinstance(found, dict), found
    return found["n"]


@pytest.mark.parametrize("name", NAMES)
def test_disks_up_to_the_default_limit_of_the_cloud(name: str) -> None:
    source, _, limit = SOURCES[name]
    there = [source(f"d{number}") for number in range(limit - 1)]
    assert outcome(name, node(), [source("new")], there) is None
    assert outcome(name, node(), [source("new"), source("newer")], there) == FULL
    assert outcome(name, node(), [source("new"), source("d0")], there) is None, "a disk in use counts once"


@pytest.mark.parametrize("name", NAMES)
def test_disks_of_other_clouds_and_volumes_of_drivers_do_not_count(name: str) -> None:
    _, kind, _ = SOURCES[name]
    others = [source("d") for other, (source, _, _) in SOURCES.items() if other != name]
    assert outcome(name, node(0, kind), [{"csi": {"driver": "d"}}, {"emptyDir": {}}, *others]) is None


@pytest.mark.parametrize("name", NAMES)
def test_what_the_node_says_is_its_limit(name: str) -> None:
    source, kind, _ = SOURCES[name]
    assert outcome(name, node(1, kind), [source("a")]) is None
    assert outcome(name, node(1, kind), [source("a"), source("b")]) == FULL
    assert outcome(name, node(0, kind), [source("a")]) == FULL


@pytest.mark.parametrize(
    ("labels", "limit"),
    [
        ({"node.kubernetes.io_instance-type": "m5.large"}, 25),
        ({"beta.kubernetes.io_instance-type": "c5d.xlarge"}, 25),
        ({"node.kubernetes.io_instance-type": "t3.nano"}, 25),
        ({"node.kubernetes.io_instance-type": "z1d.large"}, 25),
        ({"node.kubernetes.io_instance-type": "m4.large"}, 39),
        ({}, 39),
    ],
)
def test_ebs_limits_of_nitro_instances(labels: dict[str, str], limit: int) -> None:
    there = ebs(*(f"d{number}" for number in range(limit - 1)))
    on = node(None, "aws-ebs", **labels)
    assert outcome("EBSLimits", on, ebs("a"), there) is None
    assert outcome("EBSLimits", on, ebs("a", "b"), there) == FULL


@pytest.mark.parametrize(
    ("value", "limit"), [("1", 1), ("2", 2), ("0", 39), ("-3", 39), ("many", 39), ("", 39), ("1.5", 39)]
)
def test_the_limit_that_an_administrator_sets(value: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBE_MAX_PD_VOLS", value)
    disks = ebs(*(f"d{number}" for number in range(limit)))
    assert outcome("EBSLimits", node(), disks) is None
    assert outcome("EBSLimits", node(), [*disks, *ebs("one-more")]) == FULL
    assert outcome("EBSLimits", node(limit + 1), [*disks, *ebs("one-more")]) is None, "the node comes first"


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([a_claim("c", "v"), a_volume("v", awsElasticBlockStore={"volumeID": "x"})], FULL),
        ([a_claim("c", "v"), a_volume("v", csi={"driver": "ebs.csi.aws.com", "volumeHandle": "x"})], None),
        ([a_claim("c", "v", class_name="s"), a_class("s", "kubernetes.io/aws-ebs")], FULL),
        ([a_claim("c", class_name="s"), a_class("s", "kubernetes.io/aws-ebs")], FULL),
        ([a_claim("c", class_name="s"), a_class("s", "ebs.csi.aws.com")], None),
        ([a_claim("c", class_name="s")], None),
        ([a_claim("c")], None),
        ([], (3, ('looking up PVC ns/c: persistentvolumeclaim "c" not found',))),
    ],
)
def test_claims(objects: list[JSON], expected: Any) -> None:
    assert outcome("EBSLimits", node(0), claims("c"), [], objects) == expected


def test_claims_of_pods_that_are_there_count_when_they_can_be_followed() -> None:
    objects = [a_claim("c", class_name="s"), a_class("s", "kubernetes.io/aws-ebs")]
    assert outcome("EBSLimits", node(1), ebs("a"), claims("c"), objects) == FULL
    assert outcome("EBSLimits", node(1), ebs("a"), claims("gone"), objects) is None
    assert outcome("EBSLimits", node(1), ebs("a"), [EPHEMERAL], objects) is None


def test_nothing_is_counted_where_the_disks_are_migrated() -> None:
    assert outcome("EBSLimits", node(0), ebs("a"), [], [a_csi_node("n", MIGRATED)]) is None
    assert outcome("EBSLimits", node(0), ebs("a"), [], [a_csi_node("n")]) == FULL
    gce = SOURCES["GCEPDLimits"][0]
    assert outcome("GCEPDLimits", node(0, "gce-pd"), [gce("a")], [], [a_csi_node("n", MIGRATED)]) == FULL


def test_a_volume_without_a_claims_name_fails_the_attempt() -> None:
    cluster = Cluster([node()], plugins=("EBSLimits",))
    text = 'running "EBSLimits" filter plugin: PersistentVolumeClaim had no name'
    assert cluster.decide(with_volumes("p", *claims(""))) == (-1, text)


def test_a_file_that_names_the_limits_runs_them(tmp_path: Path) -> None:
    path = tmp_path / "old.yaml"
    path.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1beta2\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- plugins:\n    filter:\n      enabled: [{name: EBSLimits}, {name: CinderLimits}]\n"
    )
    registry: Registry = in_tree_registry()
    config, remarks = load_configuration(str(path), registry, [])
    assert {"EBSLimits", "CinderLimits"} <= set(registry)
    assert "GCEPDLimits" not in registry
    assert {"EBSLimits", "CinderLimits", "NodeVolumeLimits"} <= config.profiles[0].plugins.enabled_names()
    assert any("CinderLimits, EBSLimits" in remark for remark in remarks)
