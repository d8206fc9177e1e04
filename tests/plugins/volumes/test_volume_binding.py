"""VolumeBinding: which pods and nodes it rejects, which volumes it chooses, and what it reserves."""

from __future__ import annotations

from typing import Any

import pytest
from binding_kit import (
    SELECTED,
    Binding,
    capacity,
    claim,
    driver,
    newer,
    on,
    storage_class,
    volume,
)
from limits_kit import EPHEMERAL, JSON, SKIP, a_csi_node, claims, with_volumes

from builders import a_node
from kubesched.scheduler.config import ConfigError, FeatureGates
from kubesched.scheduler.config.args import NodeAffinityArgs, UtilizationShapePoint, VolumeBindingArgs
from kubesched.scheduler.core.search import Decision
from kubesched.scheduler.framework.asking import ABSENT
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.status import Code
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.plugins.volumes.volume_binding import VolumeBinding
from kubesched.scheduler.plugins.volumes.volume_state import VolumeState

ZONE = "topology.kubernetes.io/zone"
NODES = [a_node(zone, zone=zone) for zone in "abc"]
WRONG_NODE = "node(s) didn't match PersistentVolume's node affinity"
NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"
GONE = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
LOCAL = storage_class()
FAST = storage_class("fast", "csi")
ONE = with_volumes("p", *claims("c"))
TWO = with_volumes("p", *claims("c", "d"))
OWNED: JSON = {"ownerReferences": [{"kind": "Pod", "name": "p", "uid": "p", "controller": True}]}


def rejected(*reasons: str) -> tuple[int, tuple[str, ...]]:
    return int(Code.UNSCHEDULABLE_AND_UNRESOLVABLE), reasons


def owned(one: JSON) -> JSON:
    return {**one, "metadata": {**one["metadata"], **OWNED}}


def deleting(one: JSON) -> JSON:
    return {**one, "metadata": {**one["metadata"], "deletionTimestamp": "2030-01-01T00:00:00Z"}}


# -- PreFilter ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sources", "objects", "expected"),
    [
        ([], [], SKIP),
        ([{"csi": {"driver": "d"}}, {"configMap": {"name": "x"}}], [], SKIP),
        (claims("c"), [], rejected('persistentvolumeclaim "c" not found')),
        (
            [EPHEMERAL],
            [],
            rejected('waiting for ephemeral volume controller to create the persistentvolumeclaim "p-v0"'),
        ),
        ([EPHEMERAL], [claim("p-v0")], rejected("PVC ns/p-v0 was not created for pod ns/p (pod is not owner)")),
        (
            claims("c"),
            [claim("c", volume="gone", phase="Lost")],
            rejected('persistentvolumeclaim "c" bound to non-existent persistentvolume "gone"'),
        ),
        (claims("c"), [deleting(claim("c"))], rejected('persistentvolumeclaim "c" is being deleted')),
        # Immediate: no class, one that is not there, one that says so, and a volume named in advance.
        (claims("c"), [claim("c", storage=None)], rejected("pod has unbound immediate PersistentVolumeClaims")),
        (claims("c"), [claim("c", storage="none")], rejected("pod has unbound immediate PersistentVolumeClaims")),
        (
            claims("c"),
            [storage_class(mode="Immediate"), claim("c")],
            rejected("pod has unbound immediate PersistentVolumeClaims"),
        ),
        (
            claims("c"),
            [LOCAL, volume("v"), claim("c", volume="v", done=False)],
            rejected("pod has unbound immediate PersistentVolumeClaims"),
        ),
        # The first claim that is wrong decides, before claims are sorted.
        (
            claims("c", "d"),
            [claim("c", storage=None)],
            rejected('persistentvolumeclaim "d" not found'),
        ),
        (
            claims("c"),
            [storage_class(mode=None), claim("c")],
            (int(Code.ERROR), ('VolumeBindingMode not set for StorageClass "local"',)),
        ),
    ],
)
def test_pods_that_no_node_can_help(sources: list[JSON], objects: list[JSON], expected: Any) -> None:
    assert Binding(NODES, objects).verdicts(with_volumes("p", *sources)) == expected


def test_the_old_annotation_names_the_class_even_an_empty_one() -> None:
    unclassed = claim("c")
    unclassed["metadata"]["annotations"] = {"volume.beta.kubernetes.io/storage-class": ""}
    cluster = Binding(NODES, [LOCAL, unclassed])
    assert cluster.verdicts(ONE) == rejected("pod has unbound immediate PersistentVolumeClaims")
    renamed = claim("c", storage=None)
    renamed["metadata"]["annotations"] = {"volume.beta.kubernetes.io/storage-class": "local"}
    cluster.put(renamed)
    assert cluster.verdicts(ONE) == dict.fromkeys("abc", rejected(NO_VOLUME))


def test_arguments_of_another_type_are_refused() -> None:
    text = 'initializing plugin "VolumeBinding": want args to be of type VolumeBindingArgs, got NodeAffinityArgs'
    with pytest.raises(ConfigError) as refused:
        Binding(NODES, args=NodeAffinityArgs())
    assert text in str(refused.value)


def test_only_pods_with_claims_concern_the_plugin() -> None:
    binding = Binding(NODES).binding
    inline = with_volumes("p", {"csi": {"driver": "d"}}, {"emptyDir": {}}, {"gcePersistentDisk": {"pdName": "d"}})
    assert binding.key(PodInfo(inline)) == ABSENT
    assert binding.key(PodInfo(with_volumes("p"))) == ABSENT
    assert binding.key(PodInfo(ONE)) != ABSENT
    assert binding.key(PodInfo(with_volumes("p", EPHEMERAL))) != ABSENT


# -- bound claims ------------------------------------------------------------------------------------------


def bound(name: str = "c", to: str = "v") -> JSON:
    return claim(name, volume=to)


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([bound(), volume("v", claim="c")], dict.fromkeys("abc")),
        ([bound(), volume("v", affinity=on(ZONE, "a", "b"))], {"a": None, "b": None, "c": rejected(WRONG_NODE)}),
        ([bound()], dict.fromkeys("abc", rejected(GONE))),
        (
            [bound(), volume("v", affinity={"required": {"nodeSelectorTerms": []}})],
            dict.fromkeys("abc", rejected(WRONG_NODE)),
        ),
        ([bound(), volume("v", affinity={})], dict.fromkeys("abc")),
        # A term that cannot be read is left out; if no other one matches, the node does not.
        (
            [bound(), volume("v", affinity=on(ZONE, operator="Near"))],
            dict.fromkeys("abc", rejected(WRONG_NODE)),
        ),
        # Fields are evaluated for a node without a name: they always match.
        (
            [
                bound(),
                volume(
                    "v",
                    affinity={
                        "required": {
                            "nodeSelectorTerms": [
                                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["z"]}]}
                            ]
                        }
                    },
                ),
            ],
            dict.fromkeys("abc"),
        ),
    ],
)
def test_bound_claims_need_a_node_that_reaches_their_volume(objects: list[JSON], expected: Any) -> None:
    assert Binding(NODES, objects).verdicts(ONE) == expected


def test_the_first_bound_claim_that_does_not_fit_decides() -> None:
    objects = [bound("c", "v"), bound("d", "gone"), volume("v", affinity=on(ZONE, "a"))]
    assert Binding(NODES, objects).verdicts(TWO) == {
        "a": rejected(GONE),
        "b": rejected(WRONG_NODE),
        "c": rejected(WRONG_NODE),
    }


def test_reasons_of_bound_and_of_unbound_claims_come_together_in_order() -> None:
    objects = [LOCAL, bound("c", "v"), volume("v", affinity=on(ZONE, "a"), claim="c"), claim("d")]
    found = Binding(NODES, objects).verdicts(TWO)
    assert found == {
        "a": rejected(NO_VOLUME),
        "b": rejected(WRONG_NODE, NO_VOLUME),
        "c": rejected(WRONG_NODE, NO_VOLUME),
    }
    objects = [FAST, driver(), claim("c", volume="gone"), claim("d", storage="fast")]
    assert Binding(NODES[:1], objects).verdicts(TWO) == {"a": rejected(NO_SPACE, GONE)}


def migrated(name: str, plugins: str) -> JSON:
    return a_csi_node(name, {"storage.alpha.kubernetes.io/migrated-plugins": plugins})


def test_a_volume_counts_as_a_csi_volume_where_its_plugin_is_migrated() -> None:
    disk = volume("v", affinity=on(ZONE, "a"), awsElasticBlockStore={"volumeID": "vol-1"})
    nodes = [
        a_node("old", labels={ZONE: "a"}),
        a_node("new", labels={ZONE: "a"}),
        a_node("csi", labels={"topology.ebs.csi.aws.com/zone": "a"}),
        a_node("other", labels={ZONE: "a"}),
    ]
    everything = "kubernetes.io/gce-pd,kubernetes.io/aws-ebs"
    objects = [bound(), disk, migrated("new", everything), migrated("csi", everything)]
    cluster = Binding(nodes, [*objects, migrated("other", "kubernetes.io/aws-ebsx")])
    expected: dict[str, Any] = {"old": None, "new": rejected(WRONG_NODE), "csi": None, "other": None}
    assert cluster.verdicts(ONE) == expected
    # A change of a CSINode is seen at once, also by what is remembered.
    assert cluster.decide(ONE) == (3, "")
    cluster.put(migrated("other", "kubernetes.io/aws-ebs"))
    assert cluster.decide(ONE) == (2, "")
    cluster.objects.remove("csinodes", "csi")
    assert cluster.decide(ONE) == (1, "")
    assert cluster.verdicts(ONE)["csi"] == rejected(WRONG_NODE)


def test_a_volume_that_cannot_be_translated_is_an_error_where_its_plugin_is_migrated() -> None:
    disk = volume("v", awsElasticBlockStore={"volumeID": "aws:///nothing"})
    cluster = Binding(NODES, [bound(), disk])
    assert cluster.verdicts(ONE) == dict.fromkeys("abc")
    cluster.put(migrated("b", "kubernetes.io/aws-ebs"))
    found = cluster.verdicts(ONE)
    assert found.startswith('running "VolumeBinding" filter plugin: could not translate pv: ')
    errors = cluster.metrics.volume_scheduling_stage_error_total.labels("predicate")
    assert errors.value >= 2


# -- static binding ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "objects", "expected"),
    [
        ({}, [volume("v")], {"c": "v"}),
        ({}, [volume("small", "1Gi"), volume("large", "9Gi")], {"c": "small"}),
        ({"size": "2Gi"}, [volume("small", "1Gi"), volume("large", "9Gi"), volume("enough", "2Gi")], {"c": "enough"}),
        ({"size": "2Gi"}, [volume("v", "2147483647")], None),
        ({}, [volume("v", phase="Bound")], None),
        ({}, [volume("v", phase="Released")], None),
        ({}, [volume("v", deleting=True)], None),
        ({}, [volume("v", storage="other")], None),
        ({}, [volume("v", affinity=on(ZONE, "b"))], None),
        ({}, [volume("v", affinity=on(ZONE, "b")), volume("w", "9Gi", affinity=on(ZONE, "a"))], {"c": "w"}),
        ({}, [volume("v", modes=["ReadOnlyMany"])], None),
        ({"modes": []}, [volume("v", modes=["ReadOnlyMany"])], {"c": "v"}),
        ({}, [volume("v", modes=["ReadOnlyMany", "ReadWriteOnce"])], {"c": "v"}),
        ({"modes": ["ReadWriteOnce", "ReadWriteMany"]}, [volume("v")], None),
        ({"volumeMode": "Block"}, [volume("v")], None),
        ({"volumeMode": "Block"}, [volume("v", volumeMode="Block")], {"c": "v"}),
        ({"volumeMode": "Filesystem"}, [volume("v")], {"c": "v"}),
        ({"volumeAttributesClassName": "gold"}, [volume("v")], None),
        ({"volumeAttributesClassName": ""}, [volume("v")], {"c": "v"}),
        (
            {"volumeAttributesClassName": "gold"},
            [volume("v", volumeAttributesClassName="gold"), volume("w", "512Mi")],
            {"c": "v"},
        ),
        ({"selector": {"matchLabels": {"k": "v"}}}, [volume("v"), volume("w", "9Gi", labels={"k": "v"})], {"c": "w"}),
        ({"selector": {"matchLabels": {"k": "v"}}}, [volume("v", labels={"k": "other"})], None),
        # A volume that names the claim is taken whatever else there is, or the claim fits nowhere.
        ({}, [volume("v", claim="c", size="9Gi"), volume("w")], {"c": "v"}),
        ({}, [volume("v", claim="c", uid="", phase="Pending", modes=[], labels={})], {"c": "v"}),
        ({"selector": {"matchLabels": {"k": "v"}}}, [volume("v", claim="c")], {"c": "v"}),
        ({}, [volume("v", claim="c", affinity=on(ZONE, "b")), volume("w")], None),
        # It has to suit the claim by size, mode and attributes all the same, or it does not count.
        ({"size": "2Gi"}, [volume("v", claim="c"), volume("w", "2Gi")], {"c": "w"}),
        ({}, [volume("v", claim="c", volumeMode="Block"), volume("w")], {"c": "w"}),
        ({}, [volume("v", claim="c", deleting=True), volume("w")], {"c": "w"}),
        # One that names another claim, or an earlier claim of that name, is not free.
        ({}, [volume("v", claim="other")], None),
        ({}, [volume("v", claim="c", uid="earlier")], None),
        ({}, [volume("v", claim="c", namespace="other")], None),
    ],
)
def test_the_volume_that_a_claim_is_to_be_bound_to(wanted: JSON, objects: list[JSON], expected: Any) -> None:
    cluster = Binding([a_node("a", zone="a")], [LOCAL, claim("c", **wanted), *objects])
    if expected is None:
        assert cluster.verdicts(ONE) == {"a": rejected(NO_VOLUME)}
    else:
        assert cluster.verdicts(ONE) == {"a": None}
        assert cluster.chosen(ONE, "a") == (expected, [])


def test_a_label_selector_that_cannot_be_read_is_an_error() -> None:
    bad = {"matchExpressions": [{"key": "k", "operator": "Near", "values": ["v"]}]}
    found = Binding(NODES, [LOCAL, claim("c", selector=bad), volume("v")]).verdicts(ONE)
    assert found == 'running "VolumeBinding" filter plugin: "Near" is not a valid label selector operator'


def test_small_claims_choose_first_so_that_large_ones_find_what_they_need() -> None:
    objects = [LOCAL, claim("c", "10Gi"), claim("d", "1Gi"), volume("ten", "10Gi"), volume("one", "2Gi")]
    cluster = Binding([a_node("a")], objects)
    assert cluster.chosen(TWO, "a") == ({"d": "one", "c": "ten"}, [])


def test_two_claims_of_a_pod_are_not_given_the_same_volume() -> None:
    objects = [
        LOCAL,
        claim("c"),
        claim("d"),
        volume("v", affinity=on(ZONE, "a", "b")),
        volume("w", affinity=on(ZONE, "b")),
    ]
    cluster = Binding(NODES, objects)
    assert cluster.verdicts(TWO) == {"a": rejected(NO_VOLUME), "b": None, "c": rejected(NO_VOLUME)}
    static, _ = cluster.chosen(TWO, "b")
    assert sorted(static.values()) == ["v", "w"]


def test_a_volume_of_a_size_that_cannot_be_read_counts_as_empty() -> None:
    cluster = Binding([a_node("a")], [LOCAL, claim("c", "1"), volume("v", "many"), claim("d", "lots")])
    assert cluster.verdicts(ONE) == {"a": rejected(NO_VOLUME)}
    assert cluster.chosen(with_volumes("p", *claims("d")), "a") == ({"d": "v"}, [])


# -- provisioning ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (FAST, dict.fromkeys("abc")),
        (storage_class("fast", ""), dict.fromkeys("abc", rejected(NO_VOLUME))),
        (storage_class("fast"), dict.fromkeys("abc", rejected(NO_VOLUME))),
        (
            storage_class("fast", "csi", topologies=[{ZONE: "a"}, {ZONE: "b"}]),
            {"a": None, "b": None, "c": rejected(NO_VOLUME)},
        ),
        (
            storage_class("fast", "csi", topologies=[{ZONE: "ab", "disk": ["ssd"]}, {}]),
            {"a": None, "b": rejected(NO_VOLUME), "c": rejected(NO_VOLUME)},
        ),
        (storage_class("fast", "csi", topologies=[{}]), dict.fromkeys("abc", rejected(NO_VOLUME))),
        (storage_class("fast", "csi", topologies=[{ZONE: "xyz"}]), dict.fromkeys("abc", rejected(NO_VOLUME))),
    ],
)
def test_where_a_volume_can_be_made(row: JSON, expected: Any) -> None:
    nodes = [a_node(zone, labels={ZONE: zone, **({"disk": "ssd"} if zone != "b" else {})}) for zone in "abc"]
    assert Binding(nodes, [row, claim("c", storage="fast")]).verdicts(ONE) == expected


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([], {"a": rejected(NO_SPACE), "b": rejected(NO_SPACE)}),
        ([capacity("s", free="2Gi", labels={ZONE: "a"})], {"a": None, "b": rejected(NO_SPACE)}),
        ([capacity("s", free="2Gi", labels={})], {"a": None, "b": None}),
        ([capacity("s", free="2Gi", labels=None)], {"a": rejected(NO_SPACE), "b": rejected(NO_SPACE)}),
        ([capacity("s", labels={})], {"a": rejected(NO_SPACE), "b": rejected(NO_SPACE)}),
        ([capacity("s", free="0", labels={})], {"a": rejected(NO_SPACE), "b": rejected(NO_SPACE)}),
        ([capacity("s", free="1Gi", labels={})], {"a": rejected(NO_SPACE), "b": rejected(NO_SPACE)}),
        ([capacity("s", free="9Gi", largest="1Gi", labels={})], {"a": rejected(NO_SPACE), "b": rejected(NO_SPACE)}),
        ([capacity("s", free="1Gi", largest="9Gi", labels={})], {"a": None, "b": None}),
        ([capacity("s", "other", "9Gi", labels={})], {"a": rejected(NO_SPACE), "b": rejected(NO_SPACE)}),
        ([capacity("s", free="much", labels={})], {"a": rejected(NO_SPACE), "b": rejected(NO_SPACE)}),
    ],
)
def test_where_there_is_space_for_a_volume(objects: list[JSON], expected: Any) -> None:
    cluster = Binding(NODES[:2], [FAST, driver(), claim("c", "2Gi", storage="fast"), *objects])
    assert cluster.verdicts(ONE) == expected
    # A driver that does not publish capacity, or is not there, has enough of it.
    cluster.put(driver(capacity=None))
    assert cluster.verdicts(ONE) == {"a": None, "b": None}
    cluster.objects.remove("csidrivers", "csi")
    assert cluster.verdicts(ONE) == {"a": None, "b": None}
    cluster.put(driver())
    assert cluster.verdicts(ONE) == expected
    cluster.put(claim("c", storage="fast", resources={}))  # it does not say how much
    assert cluster.verdicts(ONE) == {"a": None, "b": None}


def test_a_claim_of_nothing_needs_a_space_that_the_driver_publishes() -> None:
    objects = [FAST, driver(), claim("c", "0", storage="fast"), capacity("s", free="0", labels={ZONE: "a"})]
    assert Binding(NODES[:2], objects).verdicts(ONE) == {"a": None, "b": rejected(NO_SPACE)}


def test_a_space_selector_that_cannot_be_read_reaches_no_node() -> None:
    bad = capacity("s", free="9Gi", labels={})
    bad["nodeTopology"] = {"matchExpressions": [{"key": "k", "operator": "Near"}]}
    cluster = Binding(NODES[:1], [FAST, driver(), claim("c", storage="fast"), bad])
    assert cluster.verdicts(ONE) == {"a": rejected(NO_SPACE)}


def test_claims_are_checked_one_by_one_and_not_added_up() -> None:
    objects = [FAST, driver(), claim("c", "2Gi", storage="fast"), claim("d", "2Gi", storage="fast")]
    cluster = Binding(NODES[:1], [*objects, capacity("s", free="2Gi", labels={})])
    assert cluster.verdicts(TWO) == {"a": None}
    assert sorted(cluster.chosen(TWO, "a")[1]) == ["c", "d"]


def test_a_claim_is_bound_and_another_provisioned() -> None:
    objects = [FAST, LOCAL, claim("c"), claim("d", storage="fast"), volume("v", affinity=on(ZONE, "b"))]
    cluster = Binding(NODES, objects)
    assert cluster.verdicts(TWO) == {"a": rejected(NO_VOLUME), "b": None, "c": rejected(NO_VOLUME)}
    assert cluster.chosen(TWO, "b") == ({"c": "v"}, ["d"])


def test_a_selected_node_is_the_only_one_that_fits() -> None:
    objects = [FAST, claim("c", storage="fast", node="b"), volume("v", storage="fast")]
    cluster = Binding(NODES, objects)
    assert cluster.verdicts(ONE) == {"a": rejected(NO_VOLUME), "b": None, "c": rejected(NO_VOLUME)}
    # There the claim is provisioned, whatever volumes are free.
    assert cluster.chosen(ONE, "b") == ({}, ["c"])
    cluster.put(claim("c", storage="fast", node=""))
    assert cluster.verdicts(ONE) == dict.fromkeys("abc", rejected(NO_VOLUME))
    cluster.put(claim("c", storage="fast", node="nowhere"))
    assert cluster.verdicts(ONE) == dict.fromkeys("abc", rejected(NO_VOLUME))
    cluster.put(claim("d", storage="fast", node="a"))
    cluster.put(claim("c", storage="fast", node="b"))
    assert cluster.verdicts(TWO) == dict.fromkeys("abc", rejected(NO_VOLUME))


# -- signatures --------------------------------------------------------------------------------------------


def signature(cluster: Binding, *names: str) -> Any:
    return cluster.binding.key(PodInfo(with_volumes("p", *claims(*names))))


def test_pods_whose_volumes_decide_alike_have_equal_signatures() -> None:
    affinity = on(ZONE, "a")
    volumes = [volume("v", affinity=affinity), volume("w", affinity=affinity), volume("alone", affinity=on(ZONE, "b"))]
    others = [bound("c", "v"), bound("d", "w"), bound("e", "alone"), bound("f", "gone"), bound("g", "gone, too")]
    cluster = Binding(NODES, [*volumes, *others, LOCAL, FAST])
    assert signature(cluster, "c") == signature(cluster, "d") is not None
    assert signature(cluster, "f") == signature(cluster, "g") != signature(cluster, "c")
    assert signature(cluster, "e") is None
    assert signature(cluster, "missing") is None
    cluster.put(claim("h", storage="fast"))
    cluster.put(claim("i", "9Gi", storage="fast"))
    assert signature(cluster, "h") == signature(cluster, "i") is not None
    cluster.put(volume("free", storage="fast"))
    assert signature(cluster, "h") is None
    cluster.objects.remove("persistentvolumes", "free")
    assert signature(cluster, "h") is not None
    cluster.put(driver())
    assert signature(cluster, "h") != signature(cluster, "i")
    before = signature(cluster, "h")
    cluster.put(capacity("s", free="9Gi", labels={}))
    assert signature(cluster, "h") not in (None, before)
    cluster.put(claim("j", storage="fast", selector={"matchExpressions": [{"key": "k", "operator": "Near"}]}))
    assert signature(cluster, "j") is not None, "there is no volume that the selector would be needed for"
    cluster.put(volume("made", storage="fast"))
    assert signature(cluster, "j") is None


def test_a_claim_of_an_earlier_pod_like_the_current_one_no_longer_counts() -> None:
    cluster = Binding(NODES, [FAST, driver(), claim("c", storage="fast"), claim("d", storage="fast")])
    later = with_volumes("q", *claims("d"))
    assert signature(cluster, "c") == signature(cluster, "d") is not None
    assert cluster.decide(ONE) == cluster.decide(later) == (0, f"0/3 nodes are available: 3 {NO_SPACE}.")
    # A volume for the first pod's claim is there now. The nodes are evaluated again for the other pod.
    cluster.put(volume("v", storage="fast", claim="c"))
    for node in "abc":
        cluster.cache.set_node(a_node(node, zone=node, labels={"changed": "yes"}))
    assert cluster.decide(later) == (0, f"0/3 nodes are available: 3 {NO_SPACE}.")
    assert cluster.decide(ONE) == (3, "")


# -- score -------------------------------------------------------------------------------------------------

SCORING = FeatureGates.parse("StorageCapacityScoring=true")


def points(*pairs: tuple[int, int]) -> VolumeBindingArgs:
    return VolumeBindingArgs(shape=tuple(UtilizationShapePoint(utilization=x, score=y) for x, y in pairs))


def scores(cluster: Binding, pod: Any, names: str = "abc") -> dict[str, int]:
    state, found = cluster.filtered(pod)
    table = cluster.cache.table
    rows = cluster.cache.snapshot().nodes().rows
    values = cluster.binding.question(state, found, "score").scores(rows).tolist()
    return dict(zip([table.info(int(row)).name for row in rows], values, strict=True))


def test_volumes_score_by_how_much_of_them_is_used() -> None:
    objects = [LOCAL, claim("c", "50Gi")]
    objects += [volume("v", "200Gi", affinity=on(ZONE, "a")), volume("w", "100Gi", affinity=on(ZONE, "b"))]
    cluster = Binding(NODES, objects, gates=SCORING, args=points((0, 0), (100, 10)))
    assert scores(cluster, ONE) == {"a": 25, "b": 50, "c": 0}
    state, found = cluster.filtered(ONE)
    assert cluster.binding.pre_score(state, found, cluster.cache.snapshot().nodes()) is None
    with pytest.raises(KeyError, match="not found"):
        cluster.binding.pre_score(CycleState(), found, cluster.cache.snapshot().nodes())


def test_space_scores_by_how_much_of_it_will_be_used() -> None:
    spaces = [
        capacity(zone, free=free, labels={ZONE: zone}) for zone, free in (("a", "100Gi"), ("b", "50Gi"), ("c", "10Gi"))
    ]
    objects = [FAST, driver(), claim("c", "10Gi", storage="fast"), *spaces]
    cluster = Binding(NODES, objects, gates=SCORING, args=points((0, 0), (100, 10)))
    assert scores(cluster, ONE) == {"a": 10, "b": 20, "c": 100}
    falling = Binding(NODES, objects, gates=SCORING, args=points((0, 10), (100, 0)))
    assert scores(falling, ONE) == {"a": 90, "b": 80, "c": 0}
    bent = Binding(
        NODES,
        [FAST, driver(), claim("c", "25Gi", storage="fast"), *spaces[:1]],
        gates=SCORING,
        args=points((0, 0), (50, 3), (100, 5)),
    )
    assert scores(bent, ONE)["a"] == 15


def test_what_is_requested_of_a_class_adds_up_and_classes_are_averaged() -> None:
    claimed = [claim("c", "50Gi", storage="fast"), claim("d", "50Gi", storage="fast")]
    objects = [FAST, driver(), *claimed, capacity("s", free="100Gi", labels={})]
    cluster = Binding(NODES[:1], objects, gates=SCORING, args=points((0, 0), (100, 10)))
    assert scores(cluster, TWO) == {"a": 100}
    assert scores(cluster, ONE) == {"a": 50}
    # 50 % of one class and 25 % of another: 37.5, rounded up.
    cluster.put(storage_class("slow", "csi"))
    cluster.put(claim("d", "50Gi", storage="slow"))
    cluster.put(capacity("t", "slow", free="200Gi", labels={}))
    assert scores(cluster, TWO) == {"a": 38}
    # Without known space there is nothing to score.
    cluster.put(driver(capacity=False))
    assert scores(cluster, TWO) == {"a": 0}


def test_without_the_gate_nothing_is_scored() -> None:
    cluster = Binding(NODES, [LOCAL, claim("c"), volume("v")], args=points((0, 0), (100, 10)))
    state, found = cluster.filtered(ONE)
    status = cluster.binding.pre_score(state, found, cluster.cache.snapshot().nodes())
    assert status is not None
    assert status.code is Code.SKIP
    assert scores(cluster, ONE) == dict.fromkeys("abc", 0)


# -- reserve -----------------------------------------------------------------------------------------------


def test_a_reserved_volume_is_given_to_no_other_pod() -> None:
    cluster = Binding(NODES[:1], [LOCAL, claim("c"), claim("d"), volume("v"), volume("w", "9Gi")])
    state, pod = cluster.reserved(ONE, "a")
    found = cluster.state.cache.volumes.find("v")
    assert found is not None
    assert found.spec.claim_ref is not None
    reference = found.spec.claim_ref
    assert (reference.kind, reference.api_version, reference.namespace) == ("PersistentVolumeClaim", "v1", "ns")
    assert (reference.name, reference.uid, reference.resource_version) == ("c", "c", "1")
    assert found.metadata.annotations == {"pv.kubernetes.io/bound-by-controller": "yes"}
    assert cluster.chosen(with_volumes("q", *claims("d")), "a") == ({"d": "w"}, [])
    # Matching the claim again gives the volume that is reserved for it.
    assert cluster.chosen(ONE, "a") == ({"c": "v"}, [])
    cluster.binding.plugin.unreserve(state, pod, "a")
    cluster.binding.plugin.unreserve(state, pod, "a")
    assert cluster.state.cache.volumes.assumed() == {}
    assert cluster.chosen(with_volumes("q", *claims("d")), "a") == ({"d": "v"}, [])
    assert cluster.problems() == []


def test_a_volume_that_names_the_claim_already_is_not_changed() -> None:
    cluster = Binding(NODES[:1], [LOCAL, claim("c"), volume("v", claim="c")])
    state, _ = cluster.reserved(ONE, "a")
    assert cluster.state.cache.volumes.assumed() == {}
    assert state.read("ReserveVolumeBinding").bindings[0][1].name == "v"


def test_a_volume_reserved_by_its_owner_gets_the_uid_but_no_mark() -> None:
    cluster = Binding(NODES[:1], [LOCAL, claim("c"), volume("v", claim="c", uid="")])
    cluster.reserved(ONE, "a")
    found = cluster.state.cache.volumes.find("v")
    assert found is not None
    assert found.spec.claim_ref is not None
    assert (found.spec.claim_ref.uid, found.metadata.annotations) == ("c", {})


def test_a_claim_to_be_provisioned_has_its_node_selected() -> None:
    cluster = Binding(NODES, [FAST, claim("c", storage="fast")])
    state, pod = cluster.reserved(ONE, "b")
    found = cluster.state.cache.claims.find("ns/c")
    assert found is not None
    assert found.metadata.annotations == {SELECTED: "b"}
    assert cluster.verdicts(ONE) == {"a": rejected(NO_VOLUME), "b": None, "c": rejected(NO_VOLUME)}
    cluster.binding.plugin.unreserve(state, pod, "b")
    assert cluster.verdicts(ONE) == dict.fromkeys("abc")


def test_nothing_is_reserved_for_bound_claims_and_nothing_written() -> None:
    cluster = Binding(NODES, [bound(), volume("v")])
    state, pod = cluster.reserved(ONE, "a")
    status = cluster.binding.plugin.pre_bind_pre_flight(state, pod, "a")
    assert getattr(status, "code", None) is Code.SKIP
    cluster.binding.plugin.unreserve(state, pod, "a")
    assert cluster.state.reservations == {}


def test_a_claim_that_changed_since_the_decision_is_not_assumed_and_nothing_else_is() -> None:
    cluster = Binding(NODES[:1], [LOCAL, claim("c"), volume("v"), FAST, claim("d", storage="fast")])
    state, found = cluster.filtered(TWO)
    # As if another version came in between reading and assuming.
    original = cluster.state.cache.claims.assume

    def assume(obj: Any) -> None:
        cluster.objects.put("persistentvolumeclaims", obj.key, newer(obj))
        original(obj)

    cluster.state.cache.claims.assume = assume  # type: ignore[method-assign]
    status = cluster.binding.plugin.reserve(state, found.on_node("a"), "a")
    assert status is not None
    assert status.code is Code.ERROR
    assert status.message() == '"ns/d" is out of sync (stored: 2, assume: 1)'
    assert cluster.state.cache.volumes.assumed() == {}
    assert cluster.problems() == []
    assert cluster.metrics.volume_scheduling_stage_error_total.labels("assume").value == 1


def test_a_claim_that_another_pod_takes_to_its_node_meanwhile_is_not_reserved() -> None:
    """Two pods that share a claim are evaluated before either is reserved, as happens while extenders are awaited."""
    cluster = Binding(NODES[:2], [FAST, claim("c", storage="fast")])
    state, first = cluster.filtered(ONE)
    other_state, second = cluster.filtered(with_volumes("q", *claims("c")))
    assert cluster.binding.plugin.reserve(state, first.on_node("a"), "a") is None
    status = cluster.binding.plugin.reserve(other_state, second.on_node("b"), "b")
    assert status is not None
    assert (status.code, status.message()) == (Code.ERROR, NO_VOLUME)
    assert list(cluster.state.reservations) == ["p"]
    assert cluster.problems() == []


def test_pods_without_claims_cost_nothing_however_many_volumes_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def note(owner: type, name: str, real: Any) -> None:
        def noting(*args: Any) -> Any:
            calls.append(name)
            return real(*args)

        monkeypatch.setattr(owner, name, noting)

    for name in ("question", "reserve"):
        note(VolumeBinding, name, getattr(VolumeBinding, name))
    for name in ("pre_filter", "verdicts", "pre_score", "scores"):
        note(VolumeBinding.asks, name, getattr(VolumeBinding.asks, name))
    objects = [one for number in range(50) for one in (volume(f"v{number}"), claim(f"c{number}", volume=f"v{number}"))]
    cluster = Binding(NODES, [*objects, LOCAL])
    plain = PodInfo(with_volumes("p", {"secret": {"secretName": "s"}}, {"configMap": {"name": "m"}}, {"emptyDir": {}}))
    decision = cluster.fresh_search().find(plain)
    assert isinstance(decision, Decision)
    assert cluster.framework.reserve(decision.state, plain, "a") is None
    assert calls == []
    with_claim = PodInfo(with_volumes("q", *claims("c1")))
    decision = cluster.fresh_search().find(with_claim)
    assert isinstance(decision, Decision)
    assert cluster.framework.reserve(decision.state, with_claim, "a") is None
    assert calls == ["question", "pre_filter", "verdicts", "pre_score", "reserve"]


def test_profiles_share_what_is_assumed() -> None:
    cluster = Binding(NODES[:1])
    assert VolumeState.of(cluster.binding.plugin.handle) is cluster.state


def test_the_check_names_what_is_wrong() -> None:
    cluster = Binding(NODES[:1], [LOCAL, claim("c"), volume("v"), volume("w")])
    cluster.reserved(ONE, "a")
    assert cluster.problems() == []
    cluster.state.reservations.clear()
    assert cluster.problems() == ["persistentvolumes v: assumed, but reserved for no pod"]
    cluster.objects.informed("persistentvolumes").pop("w")  # type: ignore[attr-defined]
    assert "persistentvolumes w: in the assume cache, but gone" in cluster.problems()
