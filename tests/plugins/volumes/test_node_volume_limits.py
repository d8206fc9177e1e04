"""NodeVolumeLimits: what counts, what is a limit, and what pods with volumes in use may share."""

from __future__ import annotations

from typing import Any

import pytest
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

from builders import a_node, a_stopwatch
from kubesched.api.decode import DecodeError, from_builtins
from kubesched.api.storage import CSINode
from kubesched.scheduler.config import DEFAULT_GATES, FeatureGates
from kubesched.scheduler.core.search import Path
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.entries import FilterEntry
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.plugins.volumes.attached_volumes import AttachedVolumes

FULL = (2, ("node(s) exceed max volume count",))
EBS_VOLUME = {"awsElasticBlockStore": {"volumeID": "vol-1"}}
SCALING = FeatureGates.of({"VolumeLimitScaling": True})


def csi(*names: str, driver: str = "d") -> list[JSON]:
    """Claims with CSI volumes of the same name."""
    return [obj for name in names for obj in (a_claim(name, name), a_csi_volume(name, driver))]


def using(name: str, *names: str, on: str = "n") -> Any:
    return with_volumes(name, *claims(*names), on=on)


@pytest.mark.parametrize(
    ("pod", "pods", "objects", "expected"),
    [
        pytest.param(with_volumes("p", {"emptyDir": {}}), [], [], SKIP, id="nothing counts"),
        pytest.param(with_volumes("p", {"csi": {"driver": "d"}}), [], [a_csi_node("n", d=0)], SKIP, id="inline csi"),
        pytest.param(using("p", "a", on=""), [], csi("a"), None, id="no CSINode"),
        pytest.param(using("p", "a", on=""), [], [*csi("a"), a_csi_node("n")], None, id="no driver"),
        pytest.param(using("p", "a", on=""), [], [*csi("a"), a_csi_node("n", d=None)], None, id="no limit"),
        pytest.param(using("p", "a", on=""), [], [*csi("a"), a_csi_node("n", e=0)], None, id="of another driver"),
        pytest.param(using("p", "a", on=""), [], [*csi("a"), a_csi_node("n", d=0)], FULL, id="zero is a limit"),
        pytest.param(using("p", "a", on=""), [], [*csi("a"), a_csi_node("n", d=-7)], FULL, id="a negative limit"),
        pytest.param(using("p", "a", on=""), [], [*csi("a"), a_csi_node("n", d=2**31 - 1)], None, id="a huge limit"),
        pytest.param(using("p", "a", on=""), [], [*csi("a"), a_csi_node("n", d=1)], None, id="up to the limit"),
        pytest.param(using("p", "a", "b", on=""), [], [*csi("a", "b"), a_csi_node("n", d=1)], FULL, id="two new"),
        pytest.param(
            using("p", "a", "a", on=""), [], [*csi("a"), a_csi_node("n", d=1)], None, id="twice in a pod counts once"
        ),
        pytest.param(
            using("p", "b", on=""), [using("old", "a")], [*csi("a", "b"), a_csi_node("n", d=1)], FULL, id="one is there"
        ),
        pytest.param(
            using("p", "a", on=""), [using("old", "a")], [*csi("a"), a_csi_node("n", d=1)], None, id="shared counts once"
        ),
        pytest.param(
            using("p", "a", on=""), [using("old", "a")], [*csi("a"), a_csi_node("n", d=0)], None,
            id="nothing new is never too much",
        ),
        pytest.param(
            using("p", "b", on=""), [using("one", "a"), using("two", "a")], [*csi("a", "b"), a_csi_node("n", d=2)], None,
            id="shared by two pods counts once",
        ),
        pytest.param(
            using("p", "b", on=""), [using("old", "a")],
            [*csi("a", driver="e"), *csi("b"), a_csi_node("n", d=1, e=1)], None, id="each driver for itself",
        ),
        pytest.param(
            using("p", "a", on=""), [], [a_claim("a", class_name="x"), a_class("x"), a_csi_node("n", d=0)], FULL,
            id="a claim without a volume, by its class",
        ),
        pytest.param(
            using("p", "a", on=""), [using("old", "a")],
            [a_claim("a", class_name="x"), a_class("x"), a_csi_node("n", d=1)], None, id="the same claim counts once",
        ),
        pytest.param(
            using("p", "a", on=""), [], [a_claim("a", "gone", class_name="x"), a_class("x"), a_csi_node("n", d=0)], FULL,
            id="a claim whose volume is gone, by its class",
        ),
        pytest.param(
            using("p", "a", on=""), [], [a_claim("a", class_name="x"), a_csi_node("n", d=0)], None, id="class missing"
        ),
        pytest.param(using("p", "a", on=""), [], [a_claim("a"), a_csi_node("n", d=0)], None, id="no class"),
        pytest.param(
            using("p", "a", on=""), [],
            [a_claim("a", class_name="x"), a_class("x", "kubernetes.io/aws-ebs"), a_csi_node("n", ebs=0)], FULL,
            id="an in-tree class counts for the driver",
        ),
        pytest.param(
            using("p", "a", on=""), [],
            [a_claim("a", class_name="x"), a_class("x", "kubernetes.io/azure-file"),
             a_csi_node("n", files=0)], None,
            id="azure files never count",
        ),
        pytest.param(
            using("p", "a", on=""), [], [a_claim("a", "v"), a_volume("v", nfs={"server": "s"}), a_csi_node("n", d=0)],
            None, id="a volume that no driver attaches",
        ),
        pytest.param(with_volumes("p", EBS_VOLUME), [], [a_csi_node("n", ebs=0)], FULL, id="inline in-tree"),
        pytest.param(with_volumes("p", EBS_VOLUME), [], [], None, id="inline in-tree without CSINode"),
        pytest.param(
            with_volumes("p", EBS_VOLUME), [using("old", "a")],
            [a_claim("a", "v"), a_csi_volume("v", "ebs.csi.aws.com", "vol-1"), a_csi_node("n", ebs=1)], None,
            id="in-tree and CSI form of a volume are one",
        ),
        pytest.param(
            using("p", "a", on=""), [],
            [a_claim("a", "v"), a_volume("v", **EBS_VOLUME), a_csi_node("n", {"irrelevant": ""}, ebs=0)], FULL,
            id="in-tree volume of a claim; the annotation is not consulted",
        ),
        pytest.param(
            using("p", "a", on=""), [],
            [a_claim("a", "v"), a_volume("v", awsElasticBlockStore={"volumeID": "aws://z/disk"}), a_csi_node("n", ebs=0)],
            None, id="a volume without a CSI form does not count",
        ),
        pytest.param(
            using("p", "a", on=""), [], [a_csi_node("n", d=1)],
            (3, ('looking up PVC ns/a: persistentvolumeclaim "a" not found',)), id="claim missing",
        ),
        pytest.param(
            using("p", "b", on=""), [using("old", "a")], [*csi("b"), a_csi_node("n", d=1)], None,
            id="the claim of a pod that is there is missing",
        ),
        pytest.param(
            with_volumes("p", EPHEMERAL), [], [a_csi_node("n", d=1)],
            (3, ('looking up PVC ns/p-v0: persistentvolumeclaim "p-v0" not found',)), id="ephemeral claim missing",
        ),
        pytest.param(
            with_volumes("p", EPHEMERAL), [],
            [a_claim("p-v0", class_name="x", owner="p"), a_class("x"), a_csi_node("n", d=0)], FULL, id="ephemeral",
        ),
    ],
)  # fmt: skip
def test_counts_and_limits(pod: Any, pods: list[Any], objects: list[JSON], expected: Any) -> None:
    found = Cluster([a_node("n")], pods, objects).outcomes("NodeVolumeLimits", pod)
    assert found == (SKIP if expected == SKIP else {"n": expected})


@pytest.mark.parametrize(
    ("pod", "pods", "objects", "text"),
    [
        (
            with_volumes("p", EPHEMERAL), [], [a_claim("p-v0", "v", owner="other"), a_csi_node("n", d=1)],
            "PVC ns/p-v0 was not created for pod ns/p (pod is not owner)",
        ),
        (
            with_volumes("p", *claims("")), [], [a_csi_node("n", d=1)], "PersistentVolumeClaim had no name",
        ),
        (
            with_volumes("p", {"azureDisk": {"diskURI": "u", "kind": "Shared"}}), [], [a_csi_node("n", d=1)],
            "converting volume(v0) from inline to csi: azureDisk of kind Shared has no CSI form, only Managed has",
        ),
        (
            using("p", "a", on=""), [with_volumes("old", EPHEMERAL, on="n")],
            [*csi("a"), a_claim("old-v0", "v"), a_csi_node("n", d=1)],
            "PVC ns/old-v0 was not created for pod ns/old (pod is not owner)",
        ),
        (
            using("p", "a", on=""), [with_volumes("old", *claims(""), on="n")],
            [*csi("a"), a_csi_node("n", d=1)], "PersistentVolumeClaim had no name",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_counted_fails_the_attempt(pod: Any, pods: list[Any], objects: list[JSON], text: str) -> None:
    found = Cluster([a_node("n")], pods, objects).outcomes("NodeVolumeLimits", pod)
    assert found == f'running "NodeVolumeLimits" filter plugin: {text}'


def test_pods_that_cannot_be_counted_do_not_matter_where_there_is_no_limit() -> None:
    pods = [with_volumes("old", *claims(""), on="n")]
    cluster = Cluster([a_node("n")], pods, [*csi("a"), a_csi_node("n", d=None)])
    assert cluster.outcomes("NodeVolumeLimits", using("p", "a", on="")) == {"n": None}


@pytest.mark.parametrize(
    ("attachments", "limit", "fits"),
    [
        ([an_attachment("x", "n", "other")], 1, False),
        ([an_attachment("x", "n", "other")], 2, True),
        ([an_attachment("x", "m", "other")], 1, True),
        ([an_attachment("x", "n", "gone")], 1, True),
        ([an_attachment("x", "n", "tree", "ebs.csi.aws.com")], 1, True),
        ([an_attachment("x", "n", None)], 1, True),
        ([an_attachment("x", "n", "other", "")], 1, True),
        ([an_attachment("x", "n", "other", "e")], 1, True),
        # One that pods on the node use counts once; two of the same volume, too.
        ([an_attachment("x", "n", "used")], 2, True),
        ([an_attachment("x", "n", "used"), an_attachment("y", "n", "other"), an_attachment("z", "n", "other")], 3, True),
        ([an_attachment("x", "n", "used"), an_attachment("y", "n", "other")], 2, False),
        # One of the pod's own volume is not known to be its own: it counts twice.
        ([an_attachment("x", "n", "a")], 1, False),
        ([an_attachment("x", "n", "a")], 2, True),
    ],
)  # fmt: skip
def test_volumes_that_are_still_attached(attachments: list[JSON], limit: int, fits: bool) -> None:
    objects = [*csi("a", "other", "used"), a_volume("tree", **EBS_VOLUME), a_csi_node("n", d=limit), *attachments]
    pods = [using("old", "used")] if any("used" in str(each) for each in attachments) else []
    cluster = Cluster([a_node("n")], pods, objects)
    assert cluster.outcomes("NodeVolumeLimits", using("p", "a", on="")) == {"n": None if fits else FULL}


@pytest.mark.parametrize(
    ("driver", "node", "expected"),
    [
        (None, None, None),
        (a_csi_driver("d"), None, None),
        (a_csi_driver("d", preventPodSchedulingIfMissing=False), None, None),
        (a_csi_driver("d", preventPodSchedulingIfMissing=True), a_csi_node("n", d=None), None),
        (a_csi_driver("d", preventPodSchedulingIfMissing=True), a_csi_node("n", d=0), FULL),
        (a_csi_driver("d", preventPodSchedulingIfMissing=True), a_csi_node("n", e=1), "missing"),
        (a_csi_driver("d", preventPodSchedulingIfMissing=True), None, "missing"),
        (a_csi_driver("e", preventPodSchedulingIfMissing=True), None, None),
    ],
)
def test_a_driver_that_has_to_be_there(driver: JSON | None, node: JSON | None, expected: Any) -> None:
    objects = [*csi("a"), *(obj for obj in (driver, node) if obj is not None)]
    missing = (2, ("d CSI driver is not installed on the node",))
    pod = using("p", "a", on="")
    found = Cluster([a_node("n")], (), objects, gates=SCALING).outcomes("NodeVolumeLimits", pod)
    assert found == {"n": missing if expected == "missing" else expected}
    without = Cluster([a_node("n")], (), objects).outcomes("NodeVolumeLimits", pod)
    assert without == {"n": None if expected == "missing" else expected}


# -- what is remembered ------------------------------------------------------------------------------------


def limited(*objects: JSON, limit: int = 2) -> Cluster:
    nodes = [a_node(f"n{number}") for number in range(3)]
    csi_nodes = [a_csi_node(node.name, d=limit) for node in nodes]
    return Cluster(nodes, (), [*objects, *csi_nodes], plugins=("NodeVolumeLimits",))


def test_pods_with_as_many_new_volumes_share_a_layer_until_every_node_is_full() -> None:
    names = [f"c{number}" for number in range(7)]
    cluster = limited(*csi(*names))
    assert len({cluster.search.ask(PodInfo(using("p", name, on=""))).signature for name in names}) == 1
    placed = []
    for name in names[:6]:
        decision = cluster.search.find(PodInfo(using(f"p-{name}", name, on="")))
        node = decision.node.name  # type: ignore[union-attr]
        placed.append(node)
        cluster.cache.add_pod(PodInfo(using(f"p-{name}", name, on=node)))
    assert sorted(placed) == ["n0", "n0", "n1", "n1", "n2", "n2"]
    assert set(cluster.paths) == {Path.SIGNATURE}
    assert cluster.decide(using("p", "c6", on="")) == (0, "0/3 nodes are available: 3 node(s) exceed max volume count.")


def test_a_pod_whose_volume_is_in_use_is_evaluated_for_itself() -> None:
    cluster = limited(*csi("a", "b", "c"), limit=1)
    cluster.cache.add_pod(PodInfo(using("one", "a", on="n0")))
    assert cluster.search.ask(PodInfo(using("p", "a", on=""))).signature == (None,)
    assert cluster.decide(using("p", "a", on="")) == (3, "")
    assert cluster.decide(using("p", "b", on="")) == (2, "")


def test_a_pod_whose_volume_is_in_use_far_from_the_limit_is_like_any_other() -> None:
    cluster = limited(*csi("a", "b", "c"), limit=2)
    cluster.cache.add_pod(PodInfo(using("one", "a", on="n0")))

    def sign(pod: PodInfo) -> tuple[Any, ...]:
        return cluster.search.ask(pod).signature

    assert sign(PodInfo(using("p", "a", on=""))) == sign(PodInfo(using("q", "b", on=""))) != (None,)
    for name in ("a", "b"):
        assert cluster.decide(using("p", name, on="")) == (3, "")
    cluster.cache.add_pod(PodInfo(using("two", "c", on="n0")))
    assert sign(PodInfo(using("p", "a", on=""))) == (None,), "n0 is full, but for the volume that is there"
    assert cluster.decide(using("p", "b", on="")) == (2, "")
    assert cluster.decide(using("p", "a", on="")) == (3, "")


@pytest.mark.parametrize(
    ("objects", "gates", "expected"),
    [
        (csi("a"), DEFAULT_GATES, ()),
        ([*csi("a"), a_csi_node("n", d=None)], DEFAULT_GATES, ()),
        ([*csi("a"), a_csi_node("n", d=9)], DEFAULT_GATES, None),
        ([], DEFAULT_GATES, None),
        ([*csi("a"), a_csi_driver("d", preventPodSchedulingIfMissing=True)], SCALING, None),
    ],
    ids=["no CSINode", "no limit", "a limit", "no claim", "a driver that has to be there"],
)
def test_preemption_need_not_count_volumes_where_nothing_is_limited(
    objects: list[JSON], gates: FeatureGates, expected: Any
) -> None:
    cluster = Cluster([a_node("n")], (), objects, gates=gates)
    entry = FilterEntry(cluster.plugin("NodeVolumeLimits"), 0, a_stopwatch())
    assert entry.amounts(CycleState(), PodInfo(using("p", "a", on="")), cluster.cache.table) == expected


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        (lambda cluster: cluster.put(a_csi_node("n0", d=0)), 1),
        (lambda cluster: cluster.put(a_csi_node("n2", d=2)), 3),
        (lambda cluster: cluster.put(a_csi_node("n2", d=None)), 3),
        (lambda cluster: cluster.objects.remove("csinodes", "n2"), 3),
        (lambda cluster: cluster.put(an_attachment("x", "n1", "b")), 1),
        (lambda cluster: cluster.put(an_attachment("y", "n1", "b")), 2),
        (lambda cluster: cluster.put(a_claim("late", "b")), 2),
        (lambda cluster: cluster.objects.remove("persistentvolumes", "b"), 3),
        (lambda cluster: cluster.put(a_csi_volume("b", handle="a")), 2),
        (lambda cluster: cluster.objects.remove("volumeattachments", "y"), 3),
    ],
)
def test_what_is_remembered_follows_the_objects_that_were_counted(change: Any, fits: int) -> None:
    cluster = limited(*csi("a", "b"), limit=1)
    pod = using("p", "a", on="")
    assert cluster.decide(pod) == (3, "")
    cluster.put(an_attachment("y", "n2", "b"))
    assert cluster.decide(pod) == (2, "")
    change(cluster)
    assert cluster.decide(pod) == (fits, "")


def test_a_claim_that_is_bound_counts_by_its_volume_from_then_on() -> None:
    objects = [a_claim("a", class_name="x"), a_class("x"), a_csi_volume("v"), *csi("b")]
    cluster = limited(*objects, limit=1)
    cluster.cache.add_pod(PodInfo(using("one", "a", on="n0")))
    pod = using("p", "b", on="")
    assert cluster.decide(pod) == (2, "")
    cluster.put(a_claim("a", "v", class_name="x"))
    assert cluster.decide(pod) == (2, "")
    cluster.put(a_csi_volume("v", driver="e"))
    assert cluster.decide(pod) == (3, "")


def test_nominated_pods_count_with_the_volumes_that_they_share() -> None:
    cluster = limited(*csi("a", "b"), limit=1)
    coming = PodInfo(with_volumes("coming", *claims("a"), priority=10))
    cluster.nominated.pods["n0"] = [coming]
    assert cluster.decide(using("p", "b", on="")) == (2, "")
    assert cluster.decide(using("q", "a", on="")) == (3, "")


def test_what_if_counts_the_pods_that_would_be_there() -> None:
    cluster = limited(*csi("a", "b"), an_attachment("x", "n0", "gone"), limit=1)
    old = PodInfo(using("one", "a", on="n0"))
    cluster.cache.add_pod(old)
    snapshot, pod = cluster.cache.snapshot(), using("p", "b", on="")
    node = snapshot.get("n0")

    def outcomes() -> Any:
        return cluster.outcomes("NodeVolumeLimits", pod)

    assert outcomes() == {"n0": FULL, "n1": None, "n2": None}
    with snapshot.without([(node, old)]):
        assert outcomes() == {"n0": None, "n1": None, "n2": None}
        with snapshot.with_pods(node, [PodInfo(using("two", "a", on="n0"))]):
            assert outcomes() == {"n0": FULL, "n1": None, "n2": None}
    assert outcomes() == {"n0": FULL, "n1": None, "n2": None}
    cluster.check()


def test_the_check_finds_a_column_that_is_wrong() -> None:
    cluster = limited(*csi("a"), limit=3)
    cluster.cache.add_pod(PodInfo(using("one", "a", on="n1")))
    attached = AttachedVolumes.of(cluster.plugin("NodeVolumeLimits").plugin.handle)
    assert list(attached.problems()) == []
    row = cluster.cache.snapshot().get("n1").row
    attached.count("d")[row] = 2
    assert list(attached.problems()) == ["node n1: d has (volumes, limit) (2, 3) in the columns, (1, 3) recounted"]


@pytest.mark.parametrize("count", [1 << 40, "3", 1.5])
def test_a_limit_that_is_no_number_of_volumes_is_refused_with_its_path(count: Any) -> None:
    """An informer logs such an object and goes on as if it were not there: the node has no limits."""
    with pytest.raises(DecodeError, match=r"\$\.spec\.drivers\[0\]\.allocatable\.count"):
        from_builtins(a_csi_node("n", d=count), CSINode)
