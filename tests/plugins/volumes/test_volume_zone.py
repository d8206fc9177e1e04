"""VolumeZone: which nodes the zone and region labels of volumes allow."""

from __future__ import annotations

from typing import Any

import pytest
from limits_kit import EPHEMERAL, JSON, SKIP, Cluster, a_claim, a_class, a_volume, claims, with_volumes

from builders import a_node
from kubesched.api.types import Node
from kubesched.scheduler.nodes.podinfo import PodInfo

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
OLD_ZONE, OLD_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
OTHER = (3, ("node(s) had no available volume zone",))


def node(**labels: str) -> Node:
    keys = {"zone": ZONE, "region": REGION, "old_zone": OLD_ZONE, "old_region": OLD_REGION}
    return a_node("n", labels={keys[name]: value for name, value in labels.items()})


@pytest.mark.parametrize(
    ("labels", "on", "expected"),
    [
        ({ZONE: "a"}, node(zone="a"), None),
        ({ZONE: "a"}, node(zone="b"), OTHER),
        ({ZONE: "a"}, node(), None),
        ({ZONE: "a"}, node(region="r"), OTHER),
        ({ZONE: "a__b"}, node(zone="b"), None),
        ({ZONE: "a__ b "}, node(zone="b"), None),
        ({ZONE: "a__b"}, node(zone="c"), OTHER),
        # The whole value of the node counts.
        ({ZONE: "a__b"}, node(zone="a__b"), OTHER),
        ({ZONE: "a"}, node(zone="a__b"), OTHER),
        ({ZONE: "a", REGION: "r"}, node(zone="a", region="r"), None),
        ({ZONE: "a", REGION: "r"}, node(zone="a", region="s"), OTHER),
        ({ZONE: "a", REGION: "r"}, node(zone="a"), OTHER),
        # A volume with the beta label may go where the node has the GA one, not the other way round.
        ({OLD_ZONE: "a"}, node(zone="a"), None),
        ({OLD_ZONE: "a"}, node(zone="b"), OTHER),
        ({OLD_ZONE: "a"}, node(old_zone="a", zone="b"), None),
        ({OLD_ZONE: "b"}, node(old_zone="a", zone="b"), OTHER),
        ({ZONE: "a"}, node(old_zone="a"), OTHER),
        ({OLD_REGION: "r"}, node(region="r"), None),
        ({REGION: "r"}, node(old_region="r"), OTHER),
        ({ZONE: ""}, node(zone=""), SKIP),
        ({ZONE: "a____b"}, node(zone="c"), SKIP),
        ({ZONE: "a__ "}, node(zone="c"), SKIP),
        ({ZONE: "a____b", REGION: "r"}, node(zone="c", region="r"), None),
        ({"zone": "a"}, node(zone="c"), SKIP),
    ],
)
def test_labels_of_volumes_and_nodes(labels: dict[str, str], on: Node, expected: Any) -> None:
    cluster = Cluster([on], (), [a_claim("c", "v"), a_volume("v", labels)])
    found = cluster.outcomes("VolumeZone", with_volumes("p", *claims("c")))
    assert found == (SKIP if expected == SKIP else {"n": expected})


def test_every_volume_has_to_be_reached() -> None:
    volumes = [a_volume("v1", {ZONE: "a__b"}), a_volume("v2", {ZONE: "b__c"})]
    nodes = [a_node(zone, zone=zone) for zone in "abc"]
    cluster = Cluster(nodes, (), [a_claim("c1", "v1"), a_claim("c2", "v2"), *volumes])
    found = cluster.outcomes("VolumeZone", with_volumes("p", *claims("c1", "c2")))
    assert found == {"a": OTHER, "b": None, "c": OTHER}


def rejected(text: str) -> tuple[int, tuple[str, ...]]:
    return 3, (text,)


@pytest.mark.parametrize(
    ("sources", "objects", "expected"),
    [
        ((), [], SKIP),
        ((EPHEMERAL,), [], SKIP),
        (claims(""), [], rejected("PersistentVolumeClaim had no name")),
        (claims("c"), [], rejected('persistentvolumeclaim "c" not found')),
        (claims("c"), [a_claim("c", "v")], rejected('persistentvolume "v" not found')),
        (claims("c"), [a_claim("c")], rejected("PersistentVolumeClaim had no pv name and storageClass name")),
        (
            claims("c"), [a_claim("c", class_name="")],
            rejected("PersistentVolumeClaim had no pv name and storageClass name"),
        ),
        (claims("c"), [a_claim("c", class_name="x")], rejected('storageclass.storage.k8s.io "x" not found')),
        (
            claims("c"), [a_claim("c", class_name="x"), a_class("x", mode=None)],
            rejected('VolumeBindingMode not set for StorageClass "x"'),
        ),
        (
            claims("c"), [a_claim("c", class_name="x"), a_class("x", mode="Immediate")],
            rejected("PersistentVolume had no name"),
        ),
        (claims("c"), [a_claim("c", class_name="x"), a_class("x")], SKIP),
        # In order: the first problem counts.
        (claims("c", "d"), [a_claim("c")], rejected("PersistentVolumeClaim had no pv name and storageClass name")),
    ],
)  # fmt: skip
def test_claims_that_cannot_be_followed(sources: list[JSON], objects: list[JSON], expected: Any) -> None:
    cluster = Cluster([a_node("n", zone="a")], (), objects)
    assert cluster.outcomes("VolumeZone", with_volumes("p", *sources)) == expected


def test_a_profile_with_the_filter_alone_finds_the_demands_at_the_filter() -> None:
    objects = [a_claim("c", "v"), a_volume("v", {ZONE: "a"})]
    nodes = [a_node("a", zone="a"), a_node("b", zone="b")]
    cluster = Cluster(nodes, (), objects, plugins=("VolumeZone",), without_pre_filter=True)
    assert cluster.decide(with_volumes("p", *claims("c"))) == (1, "")
    text = '0/2 nodes are available: 2 persistentvolumeclaim "d" not found.'
    assert cluster.decide(with_volumes("q", *claims("d"))) == (0, text)


def test_pods_whose_volumes_are_in_the_same_zones_share_what_is_remembered() -> None:
    volumes = [a_volume(f"v{number}", {ZONE: "a__b" if number % 2 else "b__a"}) for number in range(4)]
    bound = [a_claim(f"c{number}", f"v{number}") for number in range(4)]
    nodes = [a_node(zone, zone=zone) for zone in "abc"]
    cluster = Cluster(nodes, (), [*volumes, *bound], plugins=("VolumeZone",))
    pods = [with_volumes(f"p{number}", *claims(f"c{number}")) for number in range(4)]
    assert len({cluster.search.ask(PodInfo(pod)).signature for pod in pods}) == 1
    assert [cluster.decide(pod) for pod in pods] == [(2, "")] * 4
    # The labels of a volume change: the next attempt sees it; and so it is with those of a node.
    cluster.put(a_volume("v1", {ZONE: "c"}))
    assert [cluster.decide(pod) for pod in pods] == [(2, ""), (1, ""), (2, ""), (2, "")]
    cluster.cache.set_node(a_node("c", zone="a"))
    assert [cluster.decide(pod)[0] for pod in pods] == [3, 0, 3, 3]
