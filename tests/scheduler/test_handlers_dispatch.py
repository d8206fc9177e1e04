"""Dispatch of events: handlers are called directly, and their calls of cache, queue and waiting pods are recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from harness import World, a_config, a_node, a_pod, world

from kubesched.api.decode import from_builtins
from kubesched.api.tombstone import DeletedFinalStateUnknown
from kubesched.api.types import Namespace, Node, Pod
from kubesched.lab.simulate.run.virtual_time import run_virtual
from kubesched.scheduler.framework.events import ASSIGNED_POD_DELETE
from kubesched.scheduler.handlers import NamespaceHandler, NodeHandler, PodHandler
from kubesched.scheduler.nodes.nominating import nominated_to
from kubesched.scheduler.nodes.podinfo import PodInfo


def pod(name: str = "p", uid: str = "u1", version: str = "1", *, node: str = "", **more: Any) -> Pod:
    data = a_pod(name, **more)
    data["metadata"] |= {"uid": uid, "resourceVersion": version, "namespace": "default"}
    data["spec"].setdefault("schedulerName", "default-scheduler")
    if node:
        data["spec"]["nodeName"] = node
    return from_builtins(data, Pod)


def nominated(to: str, **more: Any) -> Pod:
    return nominated_to(pod(**more), to)


def deleted(of: Pod) -> Pod:
    metadata = msgspec.structs.replace(of.metadata, deletion_timestamp="2025-01-01T00:00:00Z", resource_version="9")
    return msgspec.structs.replace(of, metadata=metadata)


class Diary:
    """Calls of the cache and the queue, in order."""

    def __init__(self, found: World) -> None:
        self.lines: list[str] = []
        cache, queue = found.scheduler.cache, found.scheduler.queue
        for owner, label, methods in (
            (cache, "cache", ("add_pod", "update_pod", "remove_pod", "forget_pod", "set_node", "remove_node")),
            (
                queue,
                "queue",
                ("add_or_update", "update", "delete", "move_all_to_active_or_backoff_queue", "move_after_deletions"),
            ),
        ):
            for method in methods:
                setattr(owner, method, self._noting(label, method, getattr(owner, method)))

    def _noting(self, label: str, method: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            if method == "move_after_deletions":
                self.lines += [ASSIGNED_POD_DELETE.label] * len(args[0])
            elif not method.startswith("move_all"):
                self.lines.append(f"{label}.{method}")
            elif args[0] != ASSIGNED_POD_DELETE:  # which is passed on
                self.lines.append(args[0].label)
            return real(*args)

        return call


def a_pod_handler(of: World) -> PodHandler:
    scheduler = of.scheduler
    recorders = {name: scheduler.port.recorder(name) for name in scheduler.frameworks}
    return PodHandler(
        scheduler.cache,
        scheduler.queue,
        scheduler.waiting_pods,
        scheduler.pods_in_pre_bind,
        recorders,
        scheduler.clock,
        scheduler.metrics,
        scheduler.conditions,
    )


def add(handler: PodHandler, one: Pod) -> None:
    handler.on_add(one, False)


ASSUMED = pod()
CASES: list[tuple[str, Callable[[PodHandler], None], list[str]]] = [
    ("assigned pod added", lambda h: add(h, pod("q", "u2", node="n1")), ["cache.add_pod", "AssignedPodAdd"]),
    (
        "assigned pod of another scheduler added",
        lambda h: add(h, pod("q", "u2", node="n1", scheduler="x")),
        ["cache.add_pod", "AssignedPodAdd"],
    ),
    ("unassigned pod added", lambda h: add(h, pod("q", "u2")), ["queue.add_or_update"]),
    ("unassigned pod of another scheduler added", lambda h: add(h, pod("q", "u2", scheduler="x")), []),
    (
        "pod bound",
        lambda h: h.on_update(pod("q", "u2"), pod("q", "u2", "2", node="n1")),
        ["cache.add_pod", "AssignedPodAdd", "queue.delete"],
    ),
    (
        "pod of another scheduler bound",
        lambda h: h.on_update(pod("q", "u2", scheduler="x"), pod("q", "u2", "2", node="n1", scheduler="x")),
        ["cache.add_pod", "AssignedPodAdd"],
    ),
    ("nothing new", lambda h: h.on_update(pod("q", "u2"), pod("q", "u2")), []),
    ("unassigned pod changed", lambda h: h.on_update(pod("q", "u2"), pod("q", "u2", "2")), ["queue.update"]),
    ("assumed pod changed", lambda h: h.on_update(ASSUMED, pod(version="2", labels={"a": "b"})), []),
    (
        "assumed pod being deleted",
        lambda h: h.on_update(ASSUMED, deleted(ASSUMED)),
        ["cache.forget_pod", "AssignedPodDelete"],
    ),
    (
        "assumed pod deleted",
        lambda h: h.on_delete(ASSUMED),
        ["queue.delete", "cache.forget_pod", "AssignedPodDelete"],
    ),
    (
        "assumed pod bound by us",
        lambda h: h.on_update(ASSUMED, pod(version="2", node="n1")),
        ["cache.add_pod", "AssignedPodAdd", "queue.delete"],
    ),
    (
        "nomination moved to another node",
        lambda h: h.on_update(nominated("n1", name="q", uid="u2"), nominated("n2", name="q", uid="u2", version="2")),
        ["queue.update", "AssignedPodDelete"],
    ),
    (
        "nomination given",
        lambda h: h.on_update(pod("q", "u2"), nominated("n2", name="q", uid="u2", version="2")),
        ["queue.update"],
    ),
    (
        "nominated pod deleted",
        lambda h: h.on_delete(nominated("n1", name="q", uid="u2")),
        ["queue.delete", "AssignedPodDelete"],
    ),
    ("pod of another scheduler deleted", lambda h: h.on_delete(pod("q", "u2", scheduler="x")), []),
    (
        "tombstone of a pod last seen unassigned",
        lambda h: h.on_delete(DeletedFinalStateUnknown("default/q", pod("q", "u2"))),
        ["cache.remove_pod", "AssignedPodDelete", "queue.delete"],
    ),
    (
        "another pod of the name, unassigned",
        lambda h: h.on_update(pod("q", "u2"), pod("q", "u3", "2")),
        ["cache.remove_pod", "AssignedPodDelete", "queue.delete", "queue.add_or_update"],
    ),
    (
        "another pod of the name, of ours where the one before was not",
        lambda h: h.on_update(pod("q", "u2", scheduler="x"), pod("q", "u3", "2")),
        ["cache.remove_pod", "AssignedPodDelete", "queue.add_or_update"],
    ),
    (
        "another pod of the name, bound already",
        lambda h: h.on_update(pod("q", "u2"), pod("q", "u3", "2", node="n1")),
        ["cache.remove_pod", "AssignedPodDelete", "queue.delete", "cache.add_pod", "AssignedPodAdd"],
    ),
]


@pytest.mark.parametrize(("name", "deliver", "want"), CASES, ids=[case[0] for case in CASES])
def test_pod_events(name: str, deliver: Callable[[PodHandler], None], want: list[str]) -> None:
    async def main() -> None:
        async with world(config=a_config(), settled=False, start=False) as found:
            cache = found.scheduler.cache
            cache.set_node(from_builtins({**a_node("n1")}, Node))
            cache.assume_pod(PodInfo(ASSUMED.on_node("n1")))
            diary = Diary(found)
            deliver(a_pod_handler(found))
            assert diary.lines == want
            cache.assumed.clear()

    run_virtual(main())


def test_assigned_pods_changing_and_going() -> None:
    async def main() -> None:
        async with world(config=a_config(), settled=False, start=False) as found:
            handler = a_pod_handler(found)
            found.scheduler.cache.set_node(from_builtins(a_node("n1"), Node))
            one = pod("q", "u2", node="n1")
            handler.on_add(one, True)
            diary = Diary(found)
            smaller = pod("q", "u2", "3", node="n1", labels={"a": "b"}, cpu="50m")
            handler.on_update(one, smaller)
            handler.on_delete(smaller)
            assert diary.lines == [
                "cache.update_pod",
                "AssignedPodUpdatePodLabel",
                "AssignedPodUpdatePodScaleDown",
                "cache.remove_pod",
                "AssignedPodDelete",
            ]
            metric = found.metric
            assert metric("event_handling_duration_seconds", "AssignedPodUpdatePodLabel") == 1
            assert metric("event_handling_duration_seconds", "AssignedPodUpdate") == 1

    run_virtual(main())


def test_deletions_together_leave_the_cache_before_the_queue_is_notified() -> None:
    """One that the cache does not know costs the others nothing, and one that waits in the queue leaves it in its turn."""

    async def main() -> None:
        expected = ["cannot remove pod default/unknown"]
        async with world(config=a_config(), settled=False, start=False, expect_errors=expected) as found:
            handler, scheduler = a_pod_handler(found), found.scheduler
            scheduler.cache.set_node(from_builtins(a_node("n1"), Node))
            placed = [pod(f"p{number}", f"u{number}", node="n1") for number in range(3)]
            for one in placed:
                add(handler, one)
            waiting = pod("waiting", "u8")
            add(handler, waiting)
            diary = Diary(found)
            handler.on_delete_all([placed[0], pod("unknown", "u9", node="n1"), placed[1], waiting, placed[2]])
            first = ["cache.remove_pod"] * 3 + ["AssignedPodDelete"] * 3
            assert diary.lines == [*first, "queue.delete", "cache.remove_pod", "AssignedPodDelete"]
            assert not scheduler.cache.pods
            assert not scheduler.queue.views.is_queued(waiting)
            assert found.metric("event_handling_duration_seconds", "AssignedPodDelete") == 4

    run_virtual(main())


def node(version: str = "1", **more: Any) -> Node:
    data = a_node("n1", **more)
    data["metadata"]["resourceVersion"] = version
    return from_builtins(data, Node)


NODE_CASES: list[tuple[str, dict[str, Any], dict[str, Any], list[str]]] = [
    ("heartbeat", {}, {}, []),
    ("cordoned", {}, {"unschedulable": True}, []),
    ("uncordoned", {"unschedulable": True}, {}, ["NodeUpdateNodeTaint"]),
    ("resized", {}, {"cpu": "8"}, ["NodeUpdateNodeAllocatable"]),
    ("the same amount in other words", {"cpu": "4"}, {"cpu": "4000m"}, []),
    ("labelled and tainted", {}, {"labels": {"a": "b"}, "taints": [{"key": "k", "effect": "NoSchedule"}]},
     ["NodeUpdateNodeLabel", "NodeUpdateNodeTaint"]),
    ("uncordoned and untainted", {"unschedulable": True, "taints": [{"key": "k", "effect": "NoExecute"}]}, {},
     ["NodeUpdateNodeTaint", "NodeUpdateNodeTaint"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "before", "after", "want"), NODE_CASES, ids=[case[0] for case in NODE_CASES])
def test_node_events(name: str, before: dict[str, Any], after: dict[str, Any], want: list[str]) -> None:
    async def main() -> None:
        async with world(config=a_config(), settled=False, start=False) as found:
            handler = NodeHandler(
                found.scheduler.cache, found.scheduler.queue, found.scheduler.clock, found.scheduler.metrics
            )
            diary = Diary(found)
            old, new = node(**before), node("2", **after)
            handler.on_add(old, True)
            handler.on_update(old, new)
            handler.on_delete(new)
            assert diary.lines == [
                "cache.set_node",
                "NodeAdd",
                "cache.set_node",
                *want,
                "NodeDelete",
                "cache.remove_node",
            ]

    run_virtual(main())


@pytest.mark.parametrize("known", [True, False], ids=["the deletion is seen", "the deletion was missed"])
def test_namespaces_that_come_change_and_go(known: bool) -> None:
    def namespace(**labels: str) -> Namespace:
        return from_builtins({"metadata": {"name": "team", "labels": labels}}, Namespace)

    async def main() -> None:
        async with world() as found:
            handler, namespaces = NamespaceHandler(found.scheduler.cache), found.scheduler.cache.table.terms.namespaces
            one, other = namespace(env="dev"), namespace(env="prod")
            handler.on_add(one, False)
            assert namespaces["team"] == {"env": "dev"}
            handler.on_update(one, other)
            assert namespaces["team"] == {"env": "prod"}
            handler.on_delete(other if known else DeletedFinalStateUnknown("team", other))
            assert "team" not in namespaces

    run_virtual(main())
