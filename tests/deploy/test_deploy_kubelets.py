"""Hollow kubelets on a foreign API server: the shipped role is enough for them, and each permission of it is used."""

from __future__ import annotations

import argparse
import asyncio
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from rbac_kit import KUSTOMIZE, Guarded, Permission, create, documents, permissions

from kubesched.api.kinds import CORE_EVENTS, LEASES, NODES, PODS
from kubesched.api.wire import ApiError
from kubesched.base.times import RealClock, timestamp
from kubesched.cli import kubelets_command
from kubesched.cli.errors import CliError
from kubesched.client.http import HttpTransport
from kubesched.cluster.kubelets import RUN_BY, HollowKubelets, default_stages, make_nodes
from kubesched.cluster.store import Store

USER = ("kube-system", "kubesched-kubelets")
SHIPPED = documents(KUSTOMIZE / "components" / "kubelets" / "rbac.yaml")


def pod(name: str, node: str, **annotations: str) -> dict[str, Any]:
    spec = {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}
    return {"metadata": {"name": name, "annotations": annotations}, "spec": spec}


async def until(seen: Any, *, what: str) -> None:
    async with asyncio.timeout(60):
        while not seen():  # noqa: ASYNC110 - the test as a whole has a time limit
            await asyncio.sleep(0.02)
    assert seen(), what


def phase(store: Store, name: str) -> str:
    with suppress(ApiError):
        found: str = store.get(PODS, "default", name).typed.status.phase
        return found
    return "gone"


def test_the_role_suffices_and_nodes_of_others_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubesched.cluster.kubelets.heartbeats._RETRY_SECONDS", 0.1)

    async def main() -> None:
        store = Store(RealClock(), random=Random(1))
        create(store, SHIPPED)
        foreign = store.create(NODES, "", {"metadata": {"name": "theirs"}})
        async with Guarded(store, "system:serviceaccount:kube-system:kubesched-kubelets") as server:
            token = server.access.accounts.issue(*USER, (), 3600)
            async with HttpTransport(server.url, token=token) as transport:
                await scenario(store, transport)
            recorder = server.recorder
            assert recorder.refused == set()
            used = {
                (one.group, f"{one.resource}{'/' if one.subresource else ''}{one.subresource}", one.verb)
                for one in recorder.allowed
            }
            granted = permissions(SHIPPED, USER)
            # Repetitions of events are patches; one text is recorded once.
            assert {(one.group, one.resource, one.verb) for one in granted} - used == {("", "events", "patch")}
            assert Permission("coordination.k8s.io", "leases", "patch", "", "kube-node-lease") in granted
        assert store.get(NODES, "", "theirs").resource_version == foreign.resource_version
        assert phase(store, "there") == "Pending"
        assert [item.name for item in store.list(NODES).items] == ["theirs"]
        assert store.list(LEASES, "kube-node-lease").items == []

    asyncio.run(main())


async def scenario(store: Store, transport: HttpTransport) -> None:
    """Two nodes are made, run pods, fail to be ready once, and are deleted."""
    clock = RealClock()
    nodes = list(make_nodes(2, prefix="ext-", now=timestamp(clock.now())))
    assert await kubelets_command._register(transport, nodes, "ext") == (2, 0)
    assert await kubelets_command._register(transport, nodes, "ext") == (0, 2)
    stages = default_stages(0.0, 0.0)
    kubelets = HollowKubelets(transport, clock, stages=stages, heartbeat_seconds=1.0, name="ext")
    running = asyncio.get_running_loop().create_task(kubelets.run())
    for one in (
        pod("here", "ext-00000"),
        pod("there", "theirs"),
        pod("odd", "ext-00001", **{"kubesched.io/exit": "x"}),
    ):
        store.create(PODS, "default", one)
    await until(lambda: phase(store, "here") == "Running", what="the pod runs")
    store.delete(PODS, "default", "here")
    await until(lambda: phase(store, "here") == "gone", what="the pod is gone")
    silent = [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]
    store.patch(NODES, "", "ext-00000", {"status": {"conditions": silent}}, subresource="status")
    await until(lambda: ready(store, "ext-00000") == "True", what="the node is ready again")
    before = renewed(store)
    await until(lambda: renewed(store) > before, what="Leases are renewed")
    store.create(PODS, "default", pod("annotated", "ext-00001", **{"kubesched.io/duration": "soon"}))
    await until(lambda: store.list(CORE_EVENTS, "default").items, what="an annotation that cannot be read is an event")
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await kubelets_command._remove(transport, argparse.Namespace(name="ext", quiet=True))


def ready(store: Store, name: str) -> str:
    conditions = store.get(NODES, "", name).data()["status"]["conditions"]
    return next((one["status"] for one in conditions if one["type"] == "Ready"), "")


def renewed(store: Store) -> list[str]:
    return [item.data()["spec"]["renewTime"] for item in store.list(LEASES, "kube-node-lease").items]


def test_a_node_of_somebody_else_stops_the_start_before_anything_is_written() -> None:
    async def main() -> None:
        store = Store(RealClock(), random=Random(1))
        store.create(NODES, "", {"metadata": {"name": "ext-00001", "labels": {RUN_BY: "other"}}})
        async with Guarded(store, "nobody") as server, HttpTransport(server.url) as transport:
            with pytest.raises(CliError, match=r"node ext-00001 exists without the label .*; choose another --name"):
                await kubelets_command._register(transport, list(make_nodes(2, prefix="ext-")), "ext")
            with pytest.raises(CliError, match="give --nodes N"):
                await kubelets_command._register(transport, [], "ext")
            create(store, SHIPPED[:1])
            token = server.access.accounts.issue(*USER, (), 3600)
            async with HttpTransport(server.url, token=token) as refused:
                with pytest.raises(CliError, match=r"refuses: nodes is forbidden.*components/kubelets/rbac\.yaml"):
                    await kubelets_command._register(refused, list(make_nodes(1, prefix="x-")), "x")
        assert [item.name for item in store.list(NODES).items] == ["ext-00001"]

    asyncio.run(main())
