"""The limits of the clouds against a plain twin: straight from the specification, from the objects' plain data.

Random clusters change step by step. Nodes are evaluated one by one, by columns, and with what is remembered of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st
from limits_kit import JSON, Cluster, a_claim, a_class, a_csi_node, a_volume, claims, with_volumes

from builders import a_node
from kubesched.scheduler.nodes.podinfo import PodInfo

U, UU = 2, 3
Outcome = tuple[int, tuple[str, ...]] | None

#: Plugin to (default limit, resource, field, member with the id, in-tree name). Source: rules/volumes §6.
TABLE: dict[str, tuple[int, str, str, str, str]] = {
    "EBSLimits": (39, "aws-ebs", "awsElasticBlockStore", "volumeID", "kubernetes.io/aws-ebs"),
    "GCEPDLimits": (16, "gce-pd", "gcePersistentDisk", "pdName", "kubernetes.io/gce-pd"),
    "AzureDiskLimits": (16, "azure-disk", "azureDisk", "diskName", "kubernetes.io/azure-disk"),
    "CinderLimits": (256, "cinder", "cinder", "volumeID", "kubernetes.io/cinder"),
}
TYPE_LABELS = ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type")


@dataclass
class Facts:
    """Content of a cluster, as plain data."""

    #: Node to (labels, what it says of disks by resource).
    nodes: dict[str, tuple[dict[str, str], dict[str, int]]] = field(default_factory=dict)
    #: (node, volumes) of pods on nodes.
    pods: list[tuple[str, list[JSON]]] = field(default_factory=list)
    objects: dict[tuple[str, str], JSON] = field(default_factory=dict)
    environment: str = ""


class MissingError(Exception):
    """A claim of the pod to place is not there."""


def disks(facts: Facts, plugin: str, volumes: list[JSON], *, is_new: bool) -> set[str]:
    _, _, source, member, in_tree = TABLE[plugin]
    found = set()
    for volume in volumes:
        if source in volume:
            found.add(volume[source][member])
        if "persistentVolumeClaim" not in volume:
            continue
        name = volume["persistentVolumeClaim"]["claimName"]
        claim = facts.objects.get(("PersistentVolumeClaim", name))
        if claim is None:
            if is_new:
                raise MissingError(name)
            continue
        disk = facts.objects.get(("PersistentVolume", claim["spec"].get("volumeName", "")))
        if disk is not None:
            if source in disk["spec"]:
                found.add(disk["spec"][source][member])
            continue
        made_by = facts.objects.get(("StorageClass", claim["spec"].get("storageClassName", "")))
        if made_by is not None and made_by["provisioner"] == in_tree:
            found.add(f"a disk to be made for {name}")
    return found


def limit_of(facts: Facts, plugin: str, node: str) -> int:
    default, resource, *_ = TABLE[plugin]
    labels, amounts = facts.nodes[node]
    if resource in amounts:
        return amounts[resource]
    if re.fullmatch("[0-9]+", facts.environment) and int(facts.environment) > 0:
        return int(facts.environment)
    kind = next((labels[name] for name in TYPE_LABELS if name in labels), "")
    return 25 if plugin == "EBSLimits" and re.search("^[cmr]5.*|t3|z1d", kind) else default


def outcome(facts: Facts, plugin: str, volumes: list[JSON], node: str) -> Outcome:
    in_tree = TABLE[plugin][4]
    try:
        new = disks(facts, plugin, volumes, is_new=True)
    except MissingError as error:
        return UU, (f'looking up PVC ns/{error}: persistentvolumeclaim "{error}" not found',)
    csi = facts.objects.get(("CSINode", node), {"metadata": {}})
    migrated = csi["metadata"].get("annotations", {}).get("storage.alpha.kubernetes.io/migrated-plugins", "")
    if not new or in_tree in migrated.split(","):
        return None
    there: set[str] = set()
    for on, mounted in facts.pods:
        if on == node:
            there |= disks(facts, plugin, mounted, is_new=False)
    full = len(there | new) > limit_of(facts, plugin, node)
    return (U, ("node(s) exceed max volume count",)) if full else None


NODES = ("n0", "n1")
_names = st.sampled_from("abcd")
_source = st.builds(
    lambda plugin, name: {
        TABLE[plugin][2]: {TABLE[plugin][3]: name, **({"diskURI": "u"} if "Azure" in plugin else {})}
    },
    st.sampled_from([*TABLE]),
    _names,
)
_csi = st.builds(lambda name: {"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": name}}, _names)
_volumes = st.lists(st.one_of(_source, _source, _names.map(lambda name: claims(name)[0])), max_size=4)
_nodes = st.tuples(
    st.dictionaries(st.sampled_from(TYPE_LABELS), st.sampled_from(("m5.large", "xt3", "m4.large", "")), max_size=2),
    st.dictionaries(st.sampled_from([row[1] for row in TABLE.values()]), st.integers(0, 3), max_size=4),
)
_provisioners = st.sampled_from([*(row[4] for row in TABLE.values()), "ebs.csi.aws.com"])
_objects = st.one_of(
    st.builds(
        lambda name, volume, kind: a_claim(name, volume, class_name=kind),
        _names,
        st.sampled_from(("va", "vb", "")),
        st.sampled_from(("x", "y", None)),
    ),
    st.builds(lambda name, source: a_volume(name, **source), st.sampled_from(("va", "vb")), st.one_of(_source, _csi)),
    st.builds(a_class, st.sampled_from(("x", "y")), _provisioners),
    st.builds(
        lambda name, migrated: a_csi_node(
            name, {"storage.alpha.kubernetes.io/migrated-plugins": ",".join(migrated)} if migrated else None
        ),
        st.sampled_from(NODES),
        st.lists(_provisioners, max_size=2),
    ),
)
_steps = st.one_of(
    st.tuples(st.just("object"), _objects),
    st.tuples(st.just("node"), st.sampled_from(NODES), _nodes),
    st.tuples(st.just("pod"), st.sampled_from(NODES), _volumes),
    st.tuples(st.just("remove"), st.integers(0, 9)),
)


def put_node(cluster: Cluster, facts: Facts, name: str, labels: dict[str, str], amounts: dict[str, int]) -> None:
    facts.nodes[name] = (labels, amounts)
    allocatable = {f"attachable-volumes-{kind}": str(amount) for kind, amount in amounts.items()}
    cluster.cache.set_node(a_node(name, labels=labels, allocatable=allocatable))


@settings(max_examples=max(15, settings().max_examples // 4))
@given(
    steps=st.lists(_steps, min_size=4, max_size=14),
    asked=st.lists(_volumes, min_size=1, max_size=2),
    environment=st.sampled_from(("", "", "2", "0", "x")),
)
def test_limits_are_those_of_the_plain_twin(steps: list[Any], asked: list[list[JSON]], environment: str) -> None:
    facts = Facts(environment=environment)
    with patch.dict("os.environ", {"KUBE_MAX_PD_VOLS": environment}):
        clusters = {name: Cluster(plugins=(name,)) for name in TABLE}
    pods: list[PodInfo] = []
    for cluster in clusters.values():
        for name in NODES:
            put_node(cluster, facts, name, {}, {})
    for number, (what, *args) in enumerate(steps):
        if what == "node":
            for cluster in clusters.values():
                put_node(cluster, facts, args[0], *args[1])
        elif what == "object":
            facts.objects[args[0]["kind"], args[0]["metadata"]["name"]] = args[0]
            for cluster in clusters.values():
                cluster.put(args[0])
        elif what == "pod":
            facts.pods.append((args[0], args[1]))
            pods.append(PodInfo(with_volumes(f"old{number}", *args[1], on=args[0])))
            for cluster in clusters.values():
                cluster.cache.add_pod(pods[-1])
        elif pods:
            place = args[0] % len(pods)
            gone = pods.pop(place)
            del facts.pods[place]
            for cluster in clusters.values():
                cluster.cache.remove_pod(gone.pod)
        compare(clusters, facts, asked)


def compare(clusters: dict[str, Cluster], facts: Facts, asked: list[list[JSON]]) -> None:
    for name, cluster in clusters.items():
        for volumes in asked:
            pod = with_volumes("p", *volumes)
            expected = {node: outcome(facts, name, volumes, node) for node in NODES}
            assert cluster.outcomes(name, pod) == expected
            assert max(0, cluster.decide(pod)[0]) == sum(found is None for found in expected.values())
