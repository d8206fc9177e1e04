"""Node groups: their files, the flags of cluster-autoscaler, and Karpenter's manifests."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubesched.cluster.files import ManifestError
from kubesched.lab.node_groups import Catalogue, groups_of_flags, members, read_catalogue, read_node_groups, with_models
from kubesched.lab.node_groups.file import parse_node_groups

GENERAL = """\
apiVersion: kubesched.io/v1alpha1
kind: NodeGroup
metadata: {name: general}
spec:
  resources: {cpu: 4, memory: 16Gi}
  zones: [a, b]
  labels: {team: web}
  taints: ["dedicated=web:NoSchedule"]
  min: 1
  max: 20
  price: 0.192
  readyAfter: 90s
  spotFailureRate: 0.05
"""
CATALOGUE = """\
name,price,spotPrice,cpu,memory,zones,labels,readyAfter,spotFailureRate
m5.large,0.096,0.035,2,8Gi,eu-1a eu-1b,,60,0.05
m5.xlarge,0.192,,4,16Gi,eu-1a,,60,
c6.xlarge,0.17,,4,8Gi,eu-1b,gen=new,,
ng-web,0.25,,,,,,,
"""
POOL = """\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  weight: 10
  limits: {cpu: 100}
  template:
    metadata: {labels: {team: web}}
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: small}
      taints: [{key: spot, value: "yes", effect: NoSchedule}]
      requirements:
      - {key: karpenter.k8s.aws/instance-category, operator: In, values: [m]}
      - {key: topology.kubernetes.io/zone, operator: In, values: [eu-1b]}
      - {key: karpenter.k8s.aws/instance-cpu, operator: Lt, values: ["8"]}
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: small}
spec:
  kubelet: {maxPods: 29, kubeReserved: {cpu: 100m, memory: 512Mi}}
  blockDeviceMappings: [{ebs: {volumeSize: 50Gi}}]
"""


def _catalogue(folder: Path) -> Catalogue:
    file = folder / "prices.csv"
    file.write_text(CATALOGUE)
    return read_catalogue(file)


def test_a_group_makes_nodes_with_its_amounts_zones_labels_and_taints() -> None:
    (group,) = parse_node_groups(GENERAL, "groups.yaml")
    assert (group.minimum, group.maximum, group.price, group.ready_after) == (1, 20, 0.192, 90.0)
    first, second = (item.data for item in group.nodes(2))
    assert [first["metadata"]["name"], second["metadata"]["name"]] == ["general-0", "general-1"]
    zones = [one["metadata"]["labels"]["topology.kubernetes.io/zone"] for one in (first, second)]
    assert zones == ["a", "b"]
    assert first["metadata"]["labels"]["team"] == "web"
    assert first["metadata"]["labels"]["kubernetes.io/hostname"] == "general-0"
    assert first["status"]["allocatable"] == {
        "cpu": "4",
        "memory": "16Gi",
        "pods": "110",
        "ephemeral-storage": "100Gi",
    }
    assert first["spec"]["taints"] == [{"key": "dedicated", "value": "web", "effect": "NoSchedule"}]


def test_names_that_are_taken_are_left_out() -> None:
    (group,) = parse_node_groups(GENERAL, "groups.yaml")
    assert [item.name for item in group.nodes(2, taken={"general-0"})] == ["general-1", "general-2"]


def test_made_nodes_belong_to_their_group() -> None:
    groups = parse_node_groups(GENERAL, "groups.yaml")
    nodes = [item.data for item in groups[0].nodes(2)]
    assert members(groups, [*nodes, {"metadata": {"name": "other"}}]) == {"general": ["general-0", "general-1"]}


def test_a_group_like_an_existing_node_is_an_empty_copy_without_taints_of_its_state() -> None:
    text = GENERAL.replace("resources: {cpu: 4, memory: 16Gi}", "like: n1").replace(
        '  taints: ["dedicated=web:NoSchedule"]\n', ""
    )
    model = {
        "metadata": {"name": "n1", "labels": {"kubernetes.io/hostname": "n1", "disk": "ssd"}},
        "spec": {
            "unschedulable": True,
            "taints": [
                {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
                {"key": "gpu", "effect": "NoSchedule"},
            ],
        },
        "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "50"}},
    }
    (group,) = with_models(parse_node_groups(text, "groups.yaml"), [model])
    (node,) = group.nodes(1)
    assert node.data["metadata"]["labels"]["disk"] == "ssd"
    assert node.data["metadata"]["labels"]["kubernetes.io/hostname"] == "general-0"
    assert node.data["spec"] == {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}
    assert node.data["status"]["allocatable"] == {"cpu": "8", "memory": "32Gi", "pods": "50"}


def test_a_model_that_is_missing_is_named() -> None:
    text = GENERAL.replace("resources: {cpu: 4, memory: 16Gi}", "like: n9").replace(
        '  taints: ["dedicated=web:NoSchedule"]\n', ""
    )
    with pytest.raises(ManifestError, match=r"document 1, line 1: node group general: there is no node 'n9'"):
        with_models(parse_node_groups(text, "groups.yaml"), [])


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("max: 20", "max: 0", "spec.max: 0: must not be below min, 1"),
        ("price: 0.192", "price: -1", "spec.price: -1: expected a number of 0 or more"),
        ("price: 0.192", "prise: 1", "spec.prise: there is no such field; did you mean price?"),
        ("cpu: 4", "cpu: four", "spec.resources.cpu: 'four': expected an amount"),
        ("cpu: 4", "gpus: 4", "spec.resources.gpus: is no resource of nodes"),
        ("readyAfter: 90s", "readyAfter: soon", "spec.readyAfter: 'soon': expected seconds, or a duration"),
        ("dedicated=web:NoSchedule", "dedicated=web", "spec.taints[0]: 'dedicated=web': expected key=value:Effect"),
        ("name: general", "name: the general", "metadata.name: 'the general': expected a name"),
        (
            "  resources: {cpu: 4, memory: 16Gi}\n",
            "",
            "spec: None: give one of template, like, resources, instanceType",
        ),
        ("kind: NodeGroup", "kind: NodeGrope", "kind: 'NodeGrope': expected NodeGroup, or NodePool"),
        ("v1alpha1", "v2", "apiVersion: 'kubesched.io/v2': expected kubesched.io/v1alpha1"),
    ],
)
def test_a_bad_field_is_named_with_file_path_value_and_what_is_right(old: str, new: str, expected: str) -> None:
    assert old in GENERAL
    with pytest.raises(ManifestError) as error:
        parse_node_groups(GENERAL.replace(old, new), "groups.yaml")
    assert str(error.value).startswith("groups.yaml: document 1")
    assert expected in str(error.value)


def test_flags_of_cluster_autoscaler_take_size_and_price_from_the_catalogue(tmp_path: Path) -> None:
    large, web = groups_of_flags(["1:10:m5.large", "--nodes=0:5:ng-web"], _catalogue(tmp_path))
    assert (large.minimum, large.maximum, large.price, large.zones) == (1, 10, 0.096, ("eu-1a", "eu-1b"))
    assert large.template["status"]["allocatable"]["memory"] == "8Gi"
    model = {
        "metadata": {"name": "x", "labels": {"eks.amazonaws.com/nodegroup": "ng-web"}},
        "status": {"allocatable": {"cpu": "3"}},
    }
    (found,) = with_models([web], [model])
    assert found.template["status"]["allocatable"] == {"cpu": "3"}


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("m5.large", "'m5.large': expected MIN:MAX:NAME"),
        ("9:1:m5.large", "the first number is the least"),
        ("0:5:m5.huge", "the catalogue has no row m5.huge"),
    ],
)
def test_a_bad_flag_is_named(tmp_path: Path, flag: str, expected: str) -> None:
    with pytest.raises(ManifestError) as error:
        groups_of_flags([flag], _catalogue(tmp_path))
    assert expected in str(error.value)


def test_a_node_pool_becomes_a_group_for_each_machine_that_it_allows(tmp_path: Path) -> None:
    file = tmp_path / "pool.yaml"
    file.write_text(POOL)
    groups = read_node_groups([file], _catalogue(tmp_path))
    assert [(group.name, group.price, group.zones) for group in groups] == [
        ("default-m5.large-on-demand", 0.096, ("eu-1b",)),
        ("default-m5.large-spot", 0.035, ("eu-1b",)),
    ]
    spot = groups[1]
    assert (spot.pool, spot.limits, spot.priority, spot.spot_failure_rate) == ("default", {"cpu": "100"}, 10, 0.05)
    (node,) = spot.nodes(1)
    assert node.data["metadata"]["labels"].items() >= {
        ("karpenter.sh/capacity-type", "spot"),
        ("node.kubernetes.io/instance-type", "m5.large"),
        ("karpenter.k8s.aws/instance-family", "m5"),
        ("team", "web"),
    }
    amounts = node.data["status"]["allocatable"]
    assert (amounts["cpu"], amounts["memory"], amounts["pods"]) == ("1900m", "7680Mi", "29")
    assert amounts["ephemeral-storage"] == "50Gi"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "instance-category",
            "instance-hypervisor",
            "requirements[0].key: 'karpenter.k8s.aws/instance-hypervisor': no row",
        ),
        ("operator: In, values: [m]", "operator: Is, values: [m]", "requirements[0]: {'key'"),
        ("values: [m]", "values: [z]", "no row of the catalogue meets all of spec.template.spec.requirements"),
        (
            "name: small}\n      taints",
            "name: large}\n      taints",
            "nodeClassRef.name: 'large': there is no node class",
        ),
    ],
)
def test_what_a_node_pool_does_not_say_is_named(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert old in POOL
    file = tmp_path / "pool.yaml"
    file.write_text(POOL.replace(old, new))
    with pytest.raises(ManifestError) as error:
        read_node_groups([file], _catalogue(tmp_path))
    assert expected in str(error.value)


def test_a_node_pool_needs_a_catalogue(tmp_path: Path) -> None:
    file = tmp_path / "pool.yaml"
    file.write_text(POOL)
    with pytest.raises(ManifestError, match="NodePool default: needs a catalogue of instances"):
        read_node_groups([file])


def test_a_catalogue_in_yaml_is_read_like_one_in_csv(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("- {name: m5.large, price: 0.096, spotPrice: 0.035, cpu: 2, memory: 8Gi, zones: [eu-1a, eu-1b], "
                    "readyAfter: 60, spotFailureRate: 0.05}\n")  # fmt: skip
    from msgspec.structs import replace

    (offer,) = read_catalogue(file).values()
    assert replace(offer, source="") == replace(_catalogue(tmp_path)["m5.large"], source="")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("0.096", "cheap", "prices.csv:2: price: 'cheap': expected a number"),
        ("8Gi", "8GB", "prices.csv:2: memory: '8GB': expected an amount"),
        ("gen=new", "new", "prices.csv:4: labels: 'new': expected key=value"),
        ("m5.xlarge", "m5.large", "prices.csv:3: name: 'm5.large': was in"),
    ],
)
def test_a_bad_cell_of_a_catalogue_is_named_by_line_and_column(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    file = tmp_path / "prices.csv"
    file.write_text(CATALOGUE.replace(old, new, 1))
    with pytest.raises(ManifestError) as error:
        read_catalogue(file)
    assert expected in str(error.value)
