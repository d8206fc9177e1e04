"""Base of the controllers: the work queue, the watch cache, the manager, and bad connections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest
from controllers_world import DEPLOYMENTS, REPLICA_SETS, workload

from builders import create_nodes
from kubesched.api.kinds import PODS
from kubesched.api.wire import Item
from kubesched.cluster.controllers import ALL, ControllerManager
from kubesched.cluster.controllers.work_queue import STUCK_AFTER, WorkQueue
from kubesched.cluster.kubelets import HollowKubelets, Problems, WatchCache
from kubesched.cluster.store import Faults, InProcessClient, Store
from kubesched.cluster.store.faults import connection_lost, server_error
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual


def in_loop(main: Callable[[], Awaitable[None]]) -> None:
    async def wrapped() -> None:
        await main()

    run_virtual(wrapped())


def now() -> float:
    return asyncio.get_running_loop().time()


# -- work queue --------------------------------------------------------------------------------------------


def test_keys_come_once_in_order_and_again_when_added_while_reconciled() -> None:
    async def main() -> None:
        queue = WorkQueue()
        for key in ("a", "b", "a", "c", "b"):
            queue.add(key)
        assert await queue.get() == "a"
        queue.add("a")
        assert len(queue) == 3
        queue.done()
        assert [await queue.get(), await queue.get(), await queue.get()] == ["b", "c", "a"]

    in_loop(main)


def test_the_earliest_date_counts_and_failures_double() -> None:
    async def main() -> None:
        queue = WorkQueue()
        queue.add_after("a", 5)
        queue.add_after("a", 2)
        queue.add_after("a", 9)
        assert queue.next_timer() == 2
        assert (await queue.get(), now()) == ("a", 2)
        queue.done()
        assert queue.next_timer() is None
        delays = [queue.failed("b") for _ in range(4)]
        assert delays == [0.005, 0.01, 0.02, 0.04]
        queue.succeeded("b")
        assert queue.failed("b") == 0.005
        queue.close()

    in_loop(main)


def test_quiet_timers_fire_without_being_waited_for() -> None:
    async def main() -> None:
        queue = WorkQueue()
        queue.add_after("a", 3, quiet=True)
        assert queue.next_timer() is None
        assert (await queue.get(), now()) == ("a", 3)
        queue.done()
        for _ in range(STUCK_AFTER + 1):
            queue.failed("s")
            assert await queue.get() == "s"
            queue.done()
        queue.failed("s")
        assert queue.stuck == ["s"]
        assert queue.next_timer() is None, "what goes on failing keeps nothing going"
        queue.close()

    in_loop(main)


# -- watch cache -------------------------------------------------------------------------------------------


def a_pod(name: str, **labels: str) -> dict[str, object]:
    return {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def test_own_writes_show_at_once_and_never_come_back_from_the_dead() -> None:
    async def main() -> None:
        store = Store(VirtualClock(asyncio.get_running_loop()), random=Random(1))
        client = InProcessClient(store)
        problems = Problems("test", "test", "")
        cache = WatchCache(client, PODS, problems, Random(1))
        seen: list[tuple[str, str]] = []

        def handler(item: Item, old: Item | None, new: Item | None) -> None:
            what = "add" if old is None else "delete" if new is None else "update"
            seen.append((what, item.name))

        cache.add_handler(handler)
        cache.add_index("app", lambda item: [item.typed.metadata.labels.get("app", "")])
        task = asyncio.create_task(cache.run())
        await cache.synced.wait()
        first = await client.create(PODS, "default", a_pod("p", app="x"))
        cache.note(first)
        assert [item.name for item in cache.indexed("app", "x")] == ["p"]
        patch = {"metadata": {"labels": {"app": "y"}}}
        second = await client.patch(PODS, "default", "p", patch)
        cache.note(second)
        cache.note(first)  # a late answer
        assert cache.indexed("app", "x") == []
        await asyncio.sleep(1)
        assert seen == [("add", "p"), ("update", "p")]
        await client.delete(PODS, "default", "p")
        await asyncio.sleep(1)
        cache.note(second)  # an answer that took longer than the pod lived
        assert (len(cache), cache.indexed("app", "y")) == (0, [])
        assert seen[2:] == [("delete", "p")]
        assert problems == []
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    in_loop(main)


def test_a_deletion_missed_while_disconnected_is_found_by_the_next_list() -> None:
    async def main() -> None:
        store = Store(VirtualClock(asyncio.get_running_loop()), random=Random(1))
        faults = Faults(Random(1))
        problems = Problems("test", "test", "")
        cache = WatchCache(InProcessClient(store, faults=faults), PODS, problems, Random(1))
        task = asyncio.create_task(cache.run())
        for name in ("a", "b"):
            store.create(PODS, "default", a_pod(name))
        await asyncio.sleep(1)
        faults.disturb("lose", times=1)
        store.delete(PODS, "default", "a")
        await asyncio.sleep(1)
        assert len(cache) == 2
        faults.fail("list", error=connection_lost, times=1)
        faults.expire_watches()
        await asyncio.sleep(5)
        assert [item.name for item in cache.values()] == ["b"]
        assert any("connection reset" in text for text in problems)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    in_loop(main)


# -- manager -----------------------------------------------------------------------------------------------


def test_an_unknown_controller_is_refused_with_those_there_are() -> None:
    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        store = Store(clock, random=Random(1))
        with pytest.raises(ValueError, match="no controller 'deploy'; there are deployment, replicaset"):
            ControllerManager(InProcessClient(store), clock, Random(1), ["deploy"])
        assert len({controller.name for controller in ALL}) == len(ALL)

    in_loop(main)


@pytest.mark.parametrize("seed", range(4))
def test_a_bad_connection_delays_the_controllers_and_nothing_else(seed: int) -> None:
    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        store = Store(clock, random=Random(seed))
        create_nodes(store, 3)
        faults = Faults(Random(seed))
        for verb in ("create", "update", "patch", "delete"):
            faults.fail(verb, error=server_error, fraction=0.1)
            faults.fail(verb, error=connection_lost, when="after", fraction=0.1)
        faults.disturb("stale", fraction=0.1)
        faults.disturb("duplicate", fraction=0.1)
        manager = ControllerManager(InProcessClient(store, faults=faults), clock, Random(seed))
        kubelets = HollowKubelets(InProcessClient(store), clock)
        tasks = [asyncio.create_task(manager.run()), asyncio.create_task(kubelets.run())]
        random = Random(seed)
        store.create(DEPLOYMENTS, "default", workload("web", 10))
        for step in range(12):
            template = workload("web")["spec"]["template"]
            template["spec"]["containers"][0]["image"] = f"app:{random.randrange(3)}"
            patch = {"spec": {"replicas": random.randrange(1, 15), "template": template}}
            store.patch(DEPLOYMENTS, "default", "web", patch, patch_type="application/merge-patch+json")
            for _ in range(int(random.choice((1, 10, 100)))):
                bind_all(store)
                await asyncio.sleep(0.3)
            if step % 4 == 0:
                faults.drop_watches()
            elif step % 4 == 2:
                faults.expire_watches()
        faults.clear()
        for _ in range(400):
            bind_all(store)
            await asyncio.sleep(1)
        data = store.get(DEPLOYMENTS, "default", "web").data()
        pods = [item.typed for item in store.list(PODS).items]
        assert len(pods) == data["spec"]["replicas"] == data["status"]["availableReplicas"]
        image = data["spec"]["template"]["spec"]["containers"][0]["image"]
        assert {pod.spec.containers[0].image for pod in pods} == {image}
        assert not [text for text in manager.problems if "defect" in text]
        assert manager.problems
        assert not any(len(one.queue) for one in manager.controllers.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    in_loop(main)


def bind_all(store: Store) -> None:
    """A scheduler for those who do not care."""
    for item in store.list(PODS, field_selector="spec.nodeName=").items:
        if item.typed.metadata.deletion_timestamp is None:
            store.bind(item.namespace, item.name, item.uid, "hollow-00001")


def test_a_watch_that_lags_makes_no_pod_twice_and_counts_what_was_done() -> None:
    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        store = Store(clock, random=Random(1))
        faults = Faults(Random(1))
        manager = ControllerManager(InProcessClient(store, faults=faults), clock, Random(1), ["replicaset"])
        task = asyncio.create_task(manager.run())
        store.create(REPLICA_SETS, "default", workload("web", 0))
        await asyncio.sleep(1)
        for replicas in (6, 2):
            faults.stall(30, kind=PODS)
            for change in range(5):
                patch = {"metadata": {"annotations": {"n": str(change)}}, "spec": {"replicas": replicas}}
                store.patch(REPLICA_SETS, "default", "web", patch, patch_type="application/merge-patch+json")
                await asyncio.sleep(1)
                assert len(store.list(PODS).items) == replicas
                assert store.get(REPLICA_SETS, "default", "web").data()["status"]["replicas"] == replicas
            await asyncio.sleep(60)
        manager.stop()
        await task

    in_loop(main)
