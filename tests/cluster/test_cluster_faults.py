"""Faults do exactly what their rules say, and the same seed does it again."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from cluster_world import a_pod, a_store, in_virtual_time

from kubesched.api.kinds import NODES, PODS
from kubesched.api.wire import ApiError, WatchEvent
from kubesched.cluster.store import Faults, InProcessClient
from kubesched.cluster.store.faults import WatchTrouble, connection_lost
from kubesched.lab.simulate.run.virtual_time import VirtualClock


def a_client(seed: int = 5) -> tuple[InProcessClient, Faults]:
    faults = Faults(Random(seed))
    return InProcessClient(a_store(), faults=faults), faults


async def outcome(call: Any) -> str:
    try:
        await call
    except ApiError as error:
        return str(error.code)
    except OSError as error:
        return type(error).__name__
    return "ok"


def test_only_the_nth_call_of_a_verb_fails() -> None:
    async def main() -> None:
        client, faults = a_client()
        rule = faults.fail("create", kind=PODS, nth=2)
        results = [await outcome(client.create(PODS, "default", a_pod(name))) for name in "abc"]
        assert results == ["ok", "500", "ok"]
        assert (rule.calls, rule.hits) == (3, 1)
        assert [item.name for item in client.store.list(PODS).items] == ["a", "c"]

    asyncio.run(main())


def test_a_lost_answer_leaves_the_write_applied() -> None:
    async def main() -> None:
        client, faults = a_client()
        item = await client.create(PODS, "default", a_pod("p"))
        rule = faults.fail("bind", error=connection_lost, when="after", times=1)
        assert await outcome(client.bind("default", "p", item.uid, "n1")) == "ConnectionResetError"
        assert client.store.get(PODS, "default", "p").data()["spec"]["nodeName"] == "n1"
        assert await outcome(client.bind("default", "p", item.uid, "n1")) == "409"
        faults.remove(rule)
        assert rule.hits == 1

    asyncio.run(main())


def test_a_fraction_of_calls_fails_and_the_seed_says_which() -> None:
    async def results(seed: int) -> list[str]:
        client, faults = a_client(seed)
        faults.fail("*", fraction=0.4)
        return [await outcome(client.get(NODES, "", "none")) for _ in range(40)]

    first, again, other = (asyncio.run(results(seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert set(first) == {"404", "500"}


def test_rules_can_name_one_object_and_another_error() -> None:
    async def main() -> None:
        client, faults = a_client()
        faults.fail("evict", name="q", error=lambda: ApiError(429, "TooManyRequests", "slow down"))
        for name in ("p", "q"):
            await client.create(PODS, "default", a_pod(name))
        assert [await outcome(client.evict("default", name)) for name in ("p", "q")] == ["ok", "429"]
        faults.clear()
        assert await outcome(client.evict("default", "q")) == "ok"

    asyncio.run(main())


def test_calls_can_be_slow_on_either_side() -> None:
    async def main(clock: VirtualClock) -> None:
        client, faults = a_client()
        faults.delay("create", 3.0, when="before", nth=1)
        faults.delay("create", 5.0, when="after", nth=1)
        task = asyncio.create_task(client.create(PODS, "default", a_pod("p")))
        await asyncio.sleep(2.9)
        assert client.store.list(PODS).items == []
        await asyncio.sleep(0.2)
        assert len(client.store.list(PODS).items) == 1
        assert not task.done()
        await task
        assert asyncio.get_running_loop().time() == pytest.approx(8.0)

    in_virtual_time(main)


TROUBLES: list[tuple[WatchTrouble, list[tuple[str, str]]]] = [
    ("lose", [("ADDED", "a1"), ("ADDED", "b1")]),
    ("duplicate", [("ADDED", "a1"), ("ADDED", "b1"), ("MODIFIED", "a2"), ("MODIFIED", "a2")]),
    ("stale", [("ADDED", "a1"), ("ADDED", "b1"), ("MODIFIED", "a2"), ("MODIFIED", "a1")]),
]


@pytest.mark.parametrize(("trouble", "want"), TROUBLES)
def test_watch_events_can_be_spoiled(trouble: WatchTrouble, want: list[tuple[str, str]]) -> None:
    async def main() -> None:
        client, faults = a_client()
        got: list[WatchEvent] = []

        async def read() -> None:
            async for batch in client.watch(PODS, resource_version=str(client.store.resource_version)):
                got.extend(batch)

        task = asyncio.create_task(read())
        await asyncio.sleep(0)
        for name in "ab":
            client.store.create(PODS, "default", a_pod(name, labels={"v": "1"}))
        await asyncio.sleep(0.01)
        faults.disturb(trouble, kind=PODS, times=1)
        client.store.patch(PODS, "default", "a", {"metadata": {"labels": {"v": "2"}}})
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert [(event.type, event.item.name + event.item.typed.metadata.labels["v"]) for event in got] == want

    asyncio.run(main())


def test_events_of_one_batch_can_be_reordered() -> None:
    async def main() -> None:
        client, faults = a_client()
        faults.disturb("reorder", times=2)  # the first event has none to swap with
        stream = client.watch(PODS, resource_version=str(client.store.resource_version), timeout_seconds=1)
        for name in "abc":
            client.store.create(PODS, "default", a_pod(name))
        async for batch in stream:
            assert [event.item.name for event in batch] == ["b", "a", "c"]
            break
        await stream.aclose()  # type: ignore[attr-defined]  # an async generator behind the port

    asyncio.run(main())


def test_watches_can_be_dropped_expired_and_stalled() -> None:
    async def main(clock: VirtualClock) -> None:
        client, faults = a_client()
        ends: list[tuple[str, float]] = []
        batches: list[float] = []
        loop = asyncio.get_running_loop()

        async def read(kind: Any) -> None:
            try:
                async for _ in client.watch(kind, resource_version=str(client.store.resource_version)):
                    batches.append(loop.time())  # noqa: PERF401 - read while the stream continues
                ends.append(("closed", loop.time()))
            except ApiError as error:
                ends.append((error.reason, loop.time()))

        tasks = [asyncio.create_task(read(kind)) for kind in (PODS, NODES)]
        await asyncio.sleep(1)
        faults.stall(40, kind=PODS)
        client.store.create(PODS, "default", a_pod("p"))
        await asyncio.sleep(1)
        assert batches == []
        await asyncio.sleep(40)
        assert batches == [pytest.approx(41)]
        assert (faults.drop_watches(PODS), faults.expire_watches()) == (1, 2)
        await asyncio.gather(*tasks)
        assert sorted(end for end, _ in ends) == ["Expired", "closed"]
        assert (faults.drop_watches(), client.store.table(PODS).watches) == (0, [])

    in_virtual_time(main)
