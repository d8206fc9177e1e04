"""A pod that waits for a volume less on its node, a claim or a zone is tried again by the event that lets it fit.

The whole scheduler with its informers and queue, in virtual time. Rejected pods are tried again after five minutes in any
case: what happens sooner is due to the event.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from volume_days import Day, play

from kubesched.api.kinds import CLAIMS, CSI_NODES, PODS, VOLUMES
from kubesched.scheduler.plugins.volumes.attached_volumes import AttachedVolumes
from volume_check import HOSTNAME, ZONE

SOON = 60.0
FULL = "node(s) exceed max volume count"


def bound(day: Day, pod: str) -> str:
    return str(day.get(PODS, pod).spec.node_name)


def a_pod(day: Day, name: str, *claims: str) -> None:
    """A pod for node n0."""
    day.pod(name, *claims, nodeSelector={HOSTNAME: "n0"})


def a_bound_claim(day: Day, name: str, *modes: str, labels: dict[str, str] | None = None) -> None:
    """A claim and the volume that is meant for it; a controller completes the binding."""
    access, size = list(modes) or ["ReadWriteMany"], {"storage": "1Gi"}
    reference = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": name}
    csi = {"driver": "d", "volumeHandle": name}
    volume = {"capacity": size, "accessModes": access, "claimRef": reference, "csi": csi, "storageClassName": ""}
    day.create(VOLUMES, {"metadata": {"name": name, "labels": labels or {}}, "spec": volume})
    claim = {"accessModes": access, "resources": {"requests": size}, "volumeName": name, "storageClassName": ""}
    day.create(CLAIMS, {"metadata": {"name": name}, "spec": claim})


def limit(day: Day, count: int, *, create: bool = True) -> None:
    drivers = [{"name": "d", "nodeID": "n0", "allocatable": {"count": count}}]
    if create:
        day.create(CSI_NODES, {"metadata": {"name": "n0"}, "spec": {"drivers": drivers}})
    else:
        day.merge(CSI_NODES, "n0", {"spec": {"drivers": drivers}})


async def waits(day: Day, pod: str, reason: str) -> None:
    await day.until(lambda: reason in day.reason(pod), f"{pod} is rejected", SOON)
    assert bound(day, pod) == ""


async def comes(day: Day, pod: str) -> None:
    await day.until(lambda: bound(day, pod) == "n0", f"{pod} is bound", SOON)
    assert day.life is not None
    plugin: Any = day.life.scheduler.frameworks["default-scheduler"].plugins["NodeVolumeLimits"]
    assert list(AttachedVolumes.of(plugin.handle).problems()) == []


async def full(day: Day) -> None:
    """A node for one volume, a pod that has it there, and a pod that waits."""
    limit(day, 1)
    for name in ("x", "y"):
        a_bound_claim(day, name)
    a_pod(day, "first", "x")
    await comes(day, "first")
    a_pod(day, "second", "y")
    await waits(day, "second", FULL)


async def a_higher_limit(day: Day) -> None:
    await full(day)
    limit(day, 2, create=False)
    await comes(day, "second")


async def a_pod_that_leaves(day: Day) -> None:
    await full(day)
    day.delete(PODS, "first")
    await comes(day, "second")


async def a_claim_for_one_pod_that_is_free_again(day: Day) -> None:
    a_bound_claim(day, "x", "ReadWriteOncePod")
    a_pod(day, "first", "x")
    await comes(day, "first")
    a_pod(day, "second", "x")
    await waits(day, "second", "ReadWriteOncePod access mode already in-use")
    day.delete(PODS, "first")
    await comes(day, "second")


async def a_volume_that_gets_another_zone(day: Day) -> None:
    a_bound_claim(day, "x", labels={ZONE: "elsewhere"})
    a_pod(day, "first", "x")
    await waits(day, "first", "node(s) had no available volume zone")
    day.merge(VOLUMES, "x", {"metadata": {"labels": {ZONE: "a"}}})
    await comes(day, "first")


async def a_claim_that_comes_late(day: Day) -> None:
    a_pod(day, "first", "x")
    await waits(day, "first", 'persistentvolumeclaim "x" not found')
    a_bound_claim(day, "x")
    await comes(day, "first")


@pytest.mark.parametrize(
    "scenario",
    [
        a_higher_limit,
        a_pod_that_leaves,
        a_claim_for_one_pod_that_is_free_again,
        a_volume_that_gets_another_zone,
        a_claim_that_comes_late,
    ],
    ids=lambda scenario: scenario.__name__,
)
def test_a_waiting_pod_is_tried_again_by(scenario: Callable[[Day], Awaitable[None]]) -> None:
    play(scenario)


def test_the_default_profile_has_every_kind_of_storage_watched() -> None:
    async def scenario(day: Day) -> None:
        assert day.life is not None
        kinds = "persistentvolumes persistentvolumeclaims storageclasses csinodes csidrivers csistoragecapacities"
        assert {*kinds.split(), "volumeattachments"} <= set(day.life.scheduler.informers)

    play(scenario)


def test_bad_storage_objects_leave_pods_a_verdict() -> None:
    """Limits of zero and below, a class that is missing, a claim that names a volume that is not there."""

    async def scenario(day: Day) -> None:
        limit(day, 0)
        a_bound_claim(day, "x")
        a_pod(day, "none", "x")
        await waits(day, "none", FULL)
        day.claim("classless", "missing")
        a_pod(day, "lost", "classless")
        await waits(day, "lost", "pod has unbound immediate PersistentVolumeClaims")
        a_pod(day, "nothing", "gone")
        await waits(day, "nothing", 'persistentvolumeclaim "gone" not found')
        a_pod(day, "plain")
        await comes(day, "plain")

    play(scenario)
