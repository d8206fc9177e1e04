"""VolumeRestrictions: disks that conflict on a node, claims for one pod only, and what preemption would do about them."""

from __future__ import annotations

from typing import Any

import pytest
from limits_kit import EPHEMERAL, JSON, SKIP, Cluster, a_claim, claims, with_volumes

from builders import a_node
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.nodes.podinfo import PodInfo

DISK = (2, ("node(s) had no available disk",))
IN_USE = (
    2,
    (
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
    ),
)
ONE_POD = ("ReadWriteOncePod",)


def gce(name: str, read_only: bool = False) -> JSON:
    return {"gcePersistentDisk": {"pdName": name, "readOnly": read_only}}


def aws(name: str, read_only: bool = False) -> JSON:
    return {"awsElasticBlockStore": {"volumeID": name, "readOnly": read_only}}


def iscsi(iqn: str, read_only: bool = False, portal: str = "a", lun: int = 0) -> JSON:
    return {"iscsi": {"iqn": iqn, "targetPortal": portal, "lun": lun, "readOnly": read_only}}


def rbd(*monitors: str, pool: str = "p", image: str = "i", read_only: bool = False) -> JSON:
    return {"rbd": {"monitors": list(monitors), "pool": pool, "image": image, "readOnly": read_only}}


@pytest.mark.parametrize(
    ("mine", "other", "conflict"),
    [
        (gce("a"), gce("a"), True),
        (gce("a"), gce("b"), False),
        (gce("a", True), gce("a", True), False),
        (gce("a", True), gce("a"), True),
        (gce("a"), gce("a", True), True),
        (aws("a"), aws("a"), True),
        (aws("a", True), aws("a", True), True),
        (aws("a"), aws("b"), False),
        (aws("a"), gce("a"), False),
        (iscsi("a"), iscsi("a", portal="b", lun=3), True),
        (iscsi("a"), iscsi("b"), False),
        (iscsi("a", True), iscsi("a", True), False),
        (iscsi("a", True), iscsi("a"), True),
        (rbd("m1", "m2"), rbd("m2", "m3"), True),
        (rbd("m1"), rbd("m2"), False),
        (rbd("m1"), rbd("m1", pool="q"), False),
        (rbd("m1"), rbd("m1", image="j"), False),
        (rbd("m1", read_only=True), rbd("m1", read_only=True), False),
        (rbd("m1", read_only=True), rbd("m1"), True),
        # Missing identifiers are equal ones.
        ({"gcePersistentDisk": {}}, {"gcePersistentDisk": {}}, True),
    ],
)
def test_a_disk_in_use_on_a_node(mine: JSON, other: JSON, conflict: bool) -> None:
    cluster = Cluster([a_node("n1"), a_node("n2")], [with_volumes("old", other, on="n1", namespace="elsewhere")])
    found = cluster.outcomes("VolumeRestrictions", with_volumes("p", mine))
    assert found == {"n1": DISK if conflict else None, "n2": None}


def test_a_disk_is_free_again_once_every_pod_that_held_it_has_left() -> None:
    first, second = (with_volumes(name, gce("a", True), on="n1") for name in ("one", "two"))
    cluster = Cluster([a_node("n1")], [first, second])
    pod = with_volumes("p", gce("a"))
    assert cluster.outcomes("VolumeRestrictions", pod) == {"n1": DISK}
    cluster.cache.remove_pod(first)
    assert cluster.outcomes("VolumeRestrictions", pod) == {"n1": DISK}
    cluster.cache.remove_pod(second)
    assert cluster.outcomes("VolumeRestrictions", pod) == {"n1": None}
    cluster.check()


@pytest.mark.parametrize(
    ("pod", "objects", "pods", "expected"),
    [
        pytest.param(with_volumes("p"), [], [], SKIP, id="no volume"),
        pytest.param(with_volumes("p", {"emptyDir": {}}, {"secret": {}}), [], [], SKIP, id="nothing to restrict"),
        pytest.param(with_volumes("p", rbd()), [], [], SKIP, id="an image without monitors is no disk"),
        pytest.param(with_volumes("p", EPHEMERAL), [], [], SKIP, id="an ephemeral volume is not looked up"),
        pytest.param(
            with_volumes("p", *claims("c")), [], [], (3, ('persistentvolumeclaim "c" not found',)), id="claim missing"
        ),
        pytest.param(
            with_volumes("p", gce("a"), *claims("c")), [], [], (3, ('persistentvolumeclaim "c" not found',)),
            id="claim missing, with a disk",
        ),
        pytest.param(with_volumes("p", *claims("c")), [a_claim("c", modes=ONE_POD)], [], SKIP, id="not in use"),
        pytest.param(
            with_volumes("p", *claims("c")), [a_claim("c", modes=("ReadWriteOnce",))],
            [with_volumes("old", *claims("c"), on="n1")], SKIP, id="another access mode",
        ),
        pytest.param(
            with_volumes("p", *claims("c")), [a_claim("c", modes=("ReadOnlyMany", "ReadWriteOncePod"))],
            [with_volumes("old", *claims("c"), on="n1")], {"n1": IN_USE, "n2": IN_USE}, id="in use",
        ),
        pytest.param(
            with_volumes("p", *claims("c")), [a_claim("c", modes=ONE_POD)],
            [with_volumes("old", *claims("c"), on="n1", namespace="other")], SKIP, id="in use in another namespace",
        ),
        pytest.param(
            with_volumes("p", *claims("p-v0")), [a_claim("p-v0", modes=ONE_POD)],
            [with_volumes("p", EPHEMERAL, on="n1")], SKIP, id="the claim of an ephemeral volume is not counted",
        ),
        pytest.param(
            with_volumes("p", gce("a"), *claims("c")), [a_claim("c", modes=ONE_POD)],
            [with_volumes("old", gce("a"), *claims("c"), on="n1")], {"n1": DISK, "n2": IN_USE}, id="the disk is first",
        ),
    ],
)  # fmt: skip
def test_claims_that_one_pod_may_use(pod: Any, objects: list[JSON], pods: list[Any], expected: Any) -> None:
    assert Cluster([a_node("n1"), a_node("n2")], pods, objects).outcomes("VolumeRestrictions", pod) == expected


def counted(cluster: Cluster, pod: PodInfo) -> tuple[Any, CycleState]:
    plugin, state = cluster.plugin("VolumeRestrictions"), CycleState()
    plugin.pre_filter(state, pod, cluster.cache.snapshot().nodes())
    return plugin, state


def test_removing_the_pods_that_use_the_claims_makes_every_node_fit() -> None:
    objects = [a_claim(name, modes=ONE_POD) for name in ("c1", "c2")]
    users = [with_volumes("one", *claims("c1"), on="n1"), with_volumes("two", *claims("c2", "c3"), on="n2")]
    cluster = Cluster([a_node("n1"), a_node("n2")], users, objects)
    pod, node = PodInfo(with_volumes("p", *claims("c1", "c2"))), cluster.cache.snapshot().get("n1")
    plugin, state = counted(cluster, pod)
    trial = state.clone()
    plugin.remove_pod(trial, pod, PodInfo(users[0]), node)
    assert plugin.question(trial, pod, "filter").verdict(node) == 2
    plugin.remove_pod(trial, pod, PodInfo(users[1]), node)
    assert plugin.question(trial, pod, "filter").verdict(node) == 0
    plugin.add_pod(trial, pod, PodInfo(users[1]), node)
    assert plugin.question(trial, pod, "filter").verdict(node) == 2
    assert plugin.question(state, pod, "filter").verdict(node) == 2, "a clone changes nothing"


def test_the_other_pods_namespace_is_not_compared() -> None:
    cluster = Cluster([a_node("n1")], [with_volumes("one", *claims("c"), on="n1")], [a_claim("c", modes=ONE_POD)])
    pod, node = PodInfo(with_volumes("p", *claims("c"))), cluster.cache.snapshot().get("n1")
    plugin, state = counted(cluster, pod)
    plugin.remove_pod(state, pod, PodInfo(with_volumes("x", *claims("c"), namespace="other")), node)
    assert plugin.question(state, pod, "filter").verdict(node) == 0


def test_a_profile_with_the_filter_alone_fails_the_attempt() -> None:
    cluster = Cluster([a_node("n1")], without_pre_filter=True, plugins=("VolumeRestrictions",))
    text = 'running "VolumeRestrictions" filter plugin: cannot read "PreFilterVolumeRestrictions" from cycleState'
    assert cluster.decide(with_volumes("p", *claims("c"))) == (-1, text)


def test_pods_with_free_claims_share_what_is_remembered_and_see_when_one_is_taken() -> None:
    objects = [a_claim(f"c{number}", modes=ONE_POD) for number in range(4)]
    cluster = Cluster([a_node("n1"), a_node("n2")], (), objects, plugins=("VolumeRestrictions",))
    pods = [with_volumes(f"p{number}", *claims(f"c{number}")) for number in range(4)]
    signatures = {cluster.search.ask(PodInfo(pod)).signature for pod in pods}
    assert len(signatures) == 1
    assert cluster.decide(pods[0]) == (2, "")
    cluster.cache.add_pod(PodInfo(with_volumes("p0", *claims("c0"), on="n1")))
    assert cluster.decide(pods[0])[0] == 0
    assert cluster.decide(pods[1]) == (2, "")
