"""Random clusters that change step by step: columns, single nodes and layers against the plain twins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import limits_twins as twins
from hypothesis import given, settings
from hypothesis import strategies as st
from limits_kit import (
    EPHEMERAL,
    JSON,
    SKIP,
    Cluster,
    a_claim,
    a_class,
    a_csi_driver,
    a_csi_node,
    a_csi_volume,
    a_volume,
    an_attachment,
    claims,
    with_volumes,
)

from builders import a_node
from kubesched.api.types import Node, Pod
from kubesched.scheduler.config import FeatureGates
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.plugins.volumes.attached_volumes import AttachedVolumes

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
OLD_ZONE, OLD_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
NODES = ("n0", "n1", "n2")
#: Names are few, so that pods meet each other, and objects that are missing are met.
CLAIMS = ("a", "b", "c", "d", "e", "p0-v0")
VOLUMES = ("va", "vb", "vc", "vd", "")
#: A cluster in which most pods can be counted, to begin with.
BASE = [
    *(a_claim(name, f"v{name}") for name in "abcd"),
    *(a_csi_volume(f"v{name}", "d" if name < "d" else "e") for name in "abcd"),
    a_claim("e", class_name="x"),
    a_claim("p0-v0", class_name="x", owner="p0"),
    a_class("x"),
    *(a_csi_node(name, d=2, e=1) for name in NODES),
    an_attachment("t1", "n0", "va"),
    an_attachment("t2", "n2", "vc"),
]
#: Pods that are there to begin with, and those that are evaluated after every step.
FIRST = [with_volumes("p1", *claims("a", "b"), on="n0"), with_volumes("p2", *claims("d", "a"), on="n1")]
ALWAYS = [with_volumes("p0", *sources) for sources in (claims("a"), claims("b", "c"), claims("e", "d"), [EPHEMERAL])]
CLASSES = ("x", "y", None)
DRIVERS = ("d", "e", "ebs.csi.aws.com")

_labels = st.dictionaries(
    st.sampled_from((ZONE, REGION, OLD_ZONE, OLD_REGION)), st.sampled_from(("a", "b", "a__b", "a____b", "")), max_size=3
)
_in_tree = st.sampled_from(
    (
        {"awsElasticBlockStore": {"volumeID": "vol-1"}},
        {"awsElasticBlockStore": {"volumeID": "aws://z/vol-1"}},
        {"awsElasticBlockStore": {"volumeID": "aws://z/other"}},
        {"azureDisk": {"diskURI": "u"}},
        {"azureDisk": {"diskURI": "u", "kind": "Shared"}},
        {"azureFile": {"shareName": "s"}},
    )
)
_disks = st.one_of(
    st.builds(
        lambda name, read_only: {"gcePersistentDisk": {"pdName": name, "readOnly": read_only}},
        st.sampled_from("ab"), st.booleans(),
    ),
    st.builds(
        lambda name, read_only: {"iscsi": {"iqn": name, "readOnly": read_only}}, st.sampled_from("ab"), st.booleans()
    ),
    st.builds(
        lambda monitors, image, read_only: {
            "rbd": {"monitors": monitors, "pool": "p", "image": image, "readOnly": read_only}
        },
        st.lists(st.sampled_from("mno"), min_size=1, max_size=2), st.sampled_from("ab"), st.booleans(),
    ),
)  # fmt: skip
_claim_sources = st.sampled_from(CLAIMS).map(lambda name: claims(name)[0])
_sources = st.lists(
    st.one_of(_claim_sources, _claim_sources, _in_tree, _disks, st.sampled_from((EPHEMERAL, {"emptyDir": {}}))),
    max_size=3,
)


def _pods(on: st.SearchStrategy[str]) -> st.SearchStrategy[Pod]:
    return st.builds(
        lambda number, sources, node, namespace: with_volumes(f"p{number}", *sources, on=node, namespace=namespace),
        st.integers(0, 5), _sources, on, st.sampled_from(("ns", "ns", "ns", "other")),
    )  # fmt: skip


_csi_nodes = st.builds(
    lambda name, limits: a_csi_node(name, **limits),
    st.sampled_from(NODES),
    st.dictionaries(
        st.sampled_from(("d", "e", "ebs", "gce")), st.sampled_from((None, -1, 0, 1, 1, 2, 2**31 - 1)), max_size=3
    ),
)
_volume_objects = st.one_of(
    st.builds(
        a_csi_volume,
        st.sampled_from(VOLUMES[:4]), st.sampled_from(DRIVERS), st.sampled_from(("", "h", "vol-1")),
    ),
    st.builds(
        lambda name, labels, source: a_volume(name, labels, **source), st.sampled_from(VOLUMES[:4]), _labels, _in_tree
    ),
)  # fmt: skip
_claim_objects = st.builds(
    lambda name, volume, class_name, mode, owner: a_claim(
        name, volume, class_name=class_name, modes=(mode,), owner=owner
    ),
    st.sampled_from([name for name in CLAIMS if name]),
    st.sampled_from(VOLUMES),
    st.sampled_from(CLASSES),
    st.sampled_from(("ReadWriteOnce", "ReadWriteOncePod")),
    st.sampled_from(("p0", "p0", "")),
)
_class_objects = st.builds(
    a_class,
    st.sampled_from(("x", "y")),
    st.sampled_from(("d", "e", "", "kubernetes.io/aws-ebs", "kubernetes.io/azure-file")),
    st.sampled_from(("WaitForFirstConsumer", "WaitForFirstConsumer", "Immediate", None)),
)
_attachments = st.builds(
    an_attachment,
    st.sampled_from(("t1", "t2", "t3")),
    st.sampled_from((*NODES, "elsewhere")),
    st.sampled_from((*VOLUMES[:4], "gone", None)),
    st.sampled_from((*DRIVERS, "")),
)
_csi_drivers = st.builds(
    lambda name, required: a_csi_driver(name, preventPodSchedulingIfMissing=required),
    st.sampled_from(DRIVERS),
    st.sampled_from((True, False)),
)
_objects = st.one_of(_claim_objects, _volume_objects, _csi_nodes, _attachments, _class_objects, _csi_drivers)
_nodes = st.builds(lambda name, labels: a_node(name, labels=labels), st.sampled_from(NODES), _labels)

_steps = st.lists(
    st.one_of(
        st.tuples(st.just("pod"), _pods(st.sampled_from(NODES))),
        st.tuples(st.just("pod"), _pods(st.sampled_from(NODES))),
        st.tuples(st.just("no pod"), st.integers(0, 5)),
        st.tuples(st.just("object"), _objects),
        st.tuples(st.just("object"), _objects),
        st.tuples(st.just("no object"), st.integers(0, 50)),
        st.tuples(st.just("node"), _nodes),
        st.tuples(st.just("no node"), st.sampled_from(NODES)),
        st.tuples(st.just("evaluate"), _pods(st.just(""))),
        st.tuples(st.just("evaluate"), _pods(st.just(""))),
    ),
    max_size=15,
)
PLURALS = (
    "persistentvolumeclaims", "persistentvolumes", "storageclasses", "csinodes", "csidrivers", "volumeattachments",
)  # fmt: skip


class _Both:
    """The cluster, and what the twins see of it."""

    def __init__(self, objects: Sequence[JSON], scaling: bool) -> None:
        nodes = [a_node(name) for name in NODES]
        objects = [*BASE, *objects]
        gates = FeatureGates.of({"VolumeLimitScaling": scaling})
        self.cluster = Cluster(nodes, (), objects, gates=gates)
        self.single = {
            name: Cluster(nodes, (), objects, gates=gates, plugins=(name,))
            for name in ("VolumeRestrictions", "NodeVolumeLimits", "VolumeZone")
        }
        self.scaling = scaling
        self.nodes: dict[str, Node] = {node.name: node for node in nodes}
        self.pods: dict[str, Pod] = {}
        for pod in FIRST:
            self.step("pod", pod)

    @property
    def clusters(self) -> list[Cluster]:
        return [self.cluster, *self.single.values()]

    def world(self) -> twins.World:
        objects: dict[str, Mapping[str, Any]] = {
            plural: dict(self.cluster.objects.informed(plural)) for plural in PLURALS
        }
        order = self.cluster.cache.snapshot().nodes().names()
        return twins.World({name: self.nodes[name] for name in order}, list(self.pods.values()), objects)

    def step(self, what: str, given: Any) -> None:
        match what:
            case "pod":
                # Another pod of that name takes its place.
                self.step("no pod", int(given.name[1:]))
                self.pods[given.name] = given
                for cluster in self.clusters:
                    cluster.cache.add_pod(PodInfo(given))
            case "no pod":
                old = self.pods.pop(f"p{given}", None)
                if old is not None:
                    for cluster in self.clusters:
                        cluster.cache.remove_pod(old)
            case "object":
                for cluster in self.clusters:
                    cluster.put(given)
            case "no object":
                known = [(plural, key) for plural in PLURALS for key in self.cluster.objects.informed(plural)]
                if known:
                    for cluster in self.clusters:
                        cluster.objects.remove(*known[given % len(known)])
            case "node":
                self.nodes[given.name] = given
                for cluster in self.clusters:
                    cluster.cache.set_node(given)
            case "no node":
                if self.nodes.pop(given, None) is not None:
                    for cluster in self.clusters:
                        cluster.cache.remove_node(given)
            case "evaluate":
                self.evaluate(given)

    def evaluate(self, pod: Pod) -> None:
        """Every form of every plugin, and the search with what it remembers, against the twins."""
        world = self.world()
        expected: dict[str, Any] = {
            "VolumeRestrictions": twins.restrictions(world, pod),
            "VolumeZone": twins.zones(world, pod),
        }
        try:
            expected["NodeVolumeLimits"] = twins.limits(world, pod, self.scaling)
        except twins.FailedError:
            expected["NodeVolumeLimits"] = "failed"
        for name, outcome in expected.items():
            found = self.cluster.outcomes(name, pod)
            if outcome == "failed":
                assert isinstance(found, str)
                assert found.startswith(f'running "{name}" filter plugin: ')
            else:
                assert found == outcome, name
            if self.nodes:
                feasible, text = self.single[name].decide(pod)
                assert feasible == _feasible(outcome, len(self.nodes)), (name, text)
        for cluster in self.clusters:
            cluster.check()
        for cluster in (self.cluster, self.single["NodeVolumeLimits"]):
            assert list(AttachedVolumes.of(cluster.plugin("NodeVolumeLimits").plugin.handle).problems()) == []


def _feasible(outcome: Any, nodes: int) -> int:
    if outcome == "failed":
        return -1
    if outcome == SKIP:
        return nodes
    return sum(each is None for each in outcome.values()) if isinstance(outcome, dict) else 0


@settings(max_examples=60, deadline=None)
@given(st.lists(_objects, max_size=4), _steps, st.booleans())
def test_columns_and_layers_are_the_twins_in_changing_clusters(
    objects: list[JSON], steps: list[tuple[str, Any]], scaling: bool
) -> None:
    both = _Both(objects, scaling)
    for pod in ALWAYS:
        both.evaluate(pod)
    for what, given_ in steps:
        both.step(what, given_)
        for pod in ALWAYS:
            both.evaluate(pod)


@settings(max_examples=100, deadline=None)
@given(st.lists(_objects, max_size=4), _steps, _pods(st.just("")), _pods(st.sampled_from(NODES)), st.data())
def test_what_if_gives_what_the_twins_say_of_such_a_cluster(
    objects: list[JSON], steps: list[tuple[str, Any]], pod: Pod, guest: Pod, data: st.DataObject
) -> None:
    """NodeVolumeLimits on a node that some pods have left and another has come to; everywhere else as it is."""
    both = _Both(objects, False)
    for what, given_ in steps:
        if what != "evaluate":
            both.step(what, given_)
    both.step("no pod", int(guest.name[1:]))
    snapshot = both.cluster.cache.snapshot()
    world = both.world()
    if guest.spec.node_name not in world.nodes:
        return
    node = snapshot.get(guest.spec.node_name)
    there = world.on(node.name)
    leaving = [each for each in there if data.draw(st.booleans())]
    world.pods = [each for each in world.pods if each not in leaving] + [guest]
    try:
        expected: Any = twins.limits(world, pod, False)
    except twins.FailedError:
        expected = "failed"
    with (
        snapshot.without([(node, both.cluster.cache.pods[each.uid]) for each in leaving]),
        snapshot.with_pods(node, [PodInfo(guest)]),
    ):
        found = both.cluster.outcomes("NodeVolumeLimits", pod)
    if expected == "failed":
        assert isinstance(found, str)
    else:
        assert found == expected
    both.cluster.check()
