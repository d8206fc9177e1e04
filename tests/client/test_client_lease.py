"""Leader election: who leads, when a lease is lost, and that nothing is written after that."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from kubesched.api.kinds import CORE_EVENTS, LEASES, PODS
from kubesched.api.wire import ApiError, Item, NotLeaderError
from kubesched.client.lease import LeaderElector, LeaseConfig, LeaseError
from kubesched.client.metered import MeteredTransport
from kubesched.cluster.store import InProcessClient, Store
from kubesched.lab.simulate.run.virtual_time import run_virtual

NAMESPACE = "kube-system"
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


class LoopClock:
    """Wall clock of one machine: the loop's time plus that machine's skew."""

    def __init__(self, skew: float = 0.0) -> None:
        self._skew = skew

    def now(self) -> float:
        return 1_700_000_000.0 + self._skew + asyncio.get_running_loop().time()


class World:
    """An API server, and candidates for one lease."""

    def __init__(self) -> None:
        self.store = Store(LoopClock(), random=Random(0))
        self.transport = InProcessClient(self.store)

    def elector(self, identity: str, *, skew: float = 0.0, transport: Any = None, **timings: Any) -> LeaderElector:
        return LeaderElector(
            transport or self.transport,
            LeaseConfig(identity=identity, **timings),
            clock=LoopClock(skew),
            rng=Random(identity),
        )

    def spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.store.get(LEASES, NAMESPACE, "kube-scheduler").data()["spec"]
        return spec


class Cut:
    """A transport whose requests fail while ``broken`` is set: what a partition looks like."""

    def __init__(self, inner: InProcessClient) -> None:
        self._inner = inner
        self.broken = False
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        async def call(*args: Any, **options: Any) -> Any:
            self.calls += 1
            if self.broken:
                raise ConnectionResetError("cut")
            return await method(*args, **options)

        return call


def run(work: Coroutine[Any, Any, None]) -> None:
    run_virtual(work)


async def lead(elector: LeaderElector) -> None:
    await elector.acquire()
    await elector.hold()


@pytest.mark.parametrize(
    ("timings", "text"),
    [
        ({"lease_duration": 10.0}, "leaseDuration must be greater than renewDeadline"),
        ({"renew_deadline": 2.4}, "renewDeadline must be greater than retryPeriod*JitterFactor"),
        ({"retry_period": 0.0}, "retryPeriod must be greater than zero"),
    ],
)
def test_timings_that_cannot_work_are_refused(timings: dict[str, Any], text: str) -> None:
    with pytest.raises(LeaseError) as refused:
        LeaseConfig("a", **timings).check()
    assert str(refused.value) == text


def test_the_first_candidate_creates_the_lease_and_says_so_in_an_event() -> None:
    async def work() -> None:
        world = World()
        elector = world.elector("a")
        await elector.acquire()
        spec = world.spec()
        assert elector.leading
        assert elector.may_write
        assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("a", 15, 0)
        assert spec["acquireTime"] == spec["renewTime"]
        events = [item.data() for item in world.store.list(CORE_EVENTS, NAMESPACE).items]
        assert [event["message"] for event in events] == ["a became leader"]

    run(work())


def test_nothing_may_be_written_from_when_another_holder_is_seen() -> None:
    """Its lease may be shorter than ours: waiting for the renew deadline would let a third process lead alongside."""

    async def script() -> None:
        world = World()
        elector = world.elector("a")
        await elector.acquire()
        task = asyncio.create_task(elector.hold())
        await asyncio.sleep(1)
        assert elector.may_write
        lease = world.store.get(LEASES, NAMESPACE, "kube-scheduler").data()
        lease["spec"] |= {"holderIdentity": "b", "leaseDurationSeconds": 5}
        world.store.update(LEASES, NAMESPACE, "kube-scheduler", lease)
        await asyncio.sleep(3)
        assert elector.leading
        assert not elector.may_write
        task.cancel()
        await asyncio.wait((task,))

    run(script())


def test_renewals_keep_the_lease_and_its_acquire_time() -> None:
    async def work() -> None:
        world = World()
        elector = world.elector("a")
        leading = asyncio.create_task(lead(elector))
        await asyncio.sleep(100)
        spec = world.spec()
        assert elector.leading
        assert spec["renewTime"] > spec["acquireTime"]
        assert spec["leaseTransitions"] == 0
        assert elector.slow_paths == 0
        leading.cancel()
        await asyncio.gather(leading, return_exceptions=True)

    run(work())


def test_a_cancelled_leader_releases_and_a_successor_leads_within_five_seconds() -> None:
    async def work() -> None:
        world = World()
        first, second = world.elector("a"), world.elector("b")
        holding = asyncio.create_task(lead(first))
        await asyncio.sleep(5)
        waiting = asyncio.create_task(lead(second))
        await asyncio.sleep(30)
        assert (first.leading, second.leading) == (True, False)
        holding.cancel()
        await asyncio.gather(holding, return_exceptions=True)
        assert not first.leading
        assert (world.spec()["holderIdentity"], world.spec()["leaseDurationSeconds"]) == ("", 1)
        await asyncio.sleep(4.4)
        assert second.leading
        assert world.spec()["leaseTransitions"] == 1
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    run(work())


@pytest.mark.parametrize("skew", [-3600.0, 0.0, 3600.0])
def test_a_partitioned_leader_stops_before_another_leads_whatever_the_clocks_say(skew: float) -> None:
    async def work() -> None:
        world = World()
        cut = Cut(world.transport)
        first, second = world.elector("a", transport=cut), world.elector("b", skew=skew)
        holding = asyncio.create_task(lead(first))
        await asyncio.sleep(5)
        waiting = asyncio.create_task(lead(second))
        await asyncio.sleep(10)
        cut.broken = True
        both = 0
        for _ in range(4000):
            await asyncio.sleep(0.01)
            both += first.may_write and second.may_write
        assert both == 0
        assert holding.done()  # lost: the process ends
        assert second.leading
        waiting.cancel()
        await asyncio.gather(waiting, holding, return_exceptions=True)

    run(work())


def test_a_leader_that_was_stopped_for_a_minute_may_not_write_when_it_wakes() -> None:
    async def work() -> None:
        world = World()
        elector = world.elector("a")
        await elector.acquire()  # and nothing renews: the process is stopped
        writer = MeteredTransport(world.transport, may_write=lambda: elector.may_write)
        await writer.create(PODS, "default", POD)
        await asyncio.sleep(60)
        assert elector.leading  # it has not noticed
        with pytest.raises(NotLeaderError):
            await writer.bind("default", "p", "", "n")
        assert await writer.get(PODS, "default", "p")  # reads pass

    run(work())


def test_further_cancellations_still_wait_for_the_release() -> None:
    async def work() -> None:
        world = World()
        slow = SlowReads(world.transport)
        elector = world.elector("a", transport=slow)
        holding = asyncio.create_task(lead(elector))
        await asyncio.sleep(5)
        slow.seconds = 2.0
        for _ in range(3):
            holding.cancel()
            await asyncio.sleep(0.5)
        assert not holding.done()
        await asyncio.gather(holding, return_exceptions=True)
        assert holding.cancelled()
        assert world.spec()["holderIdentity"] == ""

    run(work())


class SlowReads:
    """A transport whose reads take ``seconds``."""

    def __init__(self, inner: InProcessClient) -> None:
        self._inner = inner
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def get(self, *args: Any) -> Item:
        await asyncio.sleep(self.seconds)
        return await self._inner.get(*args)


def test_another_writer_that_takes_the_lease_ends_the_term_after_the_deadline() -> None:
    async def work() -> None:
        world = World()
        elector = world.elector("a")
        holding = asyncio.create_task(lead(elector))
        await asyncio.sleep(10)
        lease = world.store.get(LEASES, NAMESPACE, "kube-scheduler").data()
        lease["spec"] |= {"holderIdentity": "thief", "leaseDurationSeconds": 3600}
        world.store.update(LEASES, NAMESPACE, "kube-scheduler", lease)
        await asyncio.sleep(15)
        assert holding.done()
        assert not elector.leading
        assert world.spec()["holderIdentity"] == "thief"  # not released: it is another's

    run(work())


def test_expiry_is_judged_by_the_holders_duration_and_the_local_clock() -> None:
    async def work() -> None:
        world = World()
        lease = {
            "metadata": {"name": "kube-scheduler"},
            "spec": {"holderIdentity": "gone", "leaseDurationSeconds": 40, "renewTime": "2001-01-01T00:00:00.000000Z"},
        }
        world.store.create(LEASES, NAMESPACE, lease)
        elector = world.elector("a")
        waiting = asyncio.create_task(lead(elector))
        await asyncio.sleep(39)
        assert not elector.leading  # renewTime is long ago, but this process saw the record 39 s ago
        await asyncio.sleep(6)
        assert elector.leading
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    run(work())


def test_a_lease_with_a_wrong_type_is_an_error_until_it_is_mended(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        world = World()
        spec = {"holderIdentity": "", "leaseDurationSeconds": 15}
        world.store.create(LEASES, NAMESPACE, {"metadata": {"name": "kube-scheduler"}, "spec": spec})
        real, wrong = world.transport.get, [True]

        async def get(*args: Any) -> Item:
            item = await real(*args)
            raw = (
                item.raw.replace(b'"leaseDurationSeconds":15', b'"leaseDurationSeconds":"soon"') if wrong else item.raw
            )
            return Item(item.kind, raw, item.namespace, item.name, item.uid, item.resource_version)

        world.transport.get = get  # type: ignore[method-assign, assignment]
        elector = world.elector("a")
        waiting = asyncio.create_task(lead(elector))
        await asyncio.sleep(30)
        assert not elector.leading
        wrong.clear()
        await asyncio.sleep(10)
        assert elector.leading
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    run(work())
    assert "the lease cannot be read: spec.leaseDurationSeconds is 'soon'" in caplog.text


def test_a_coordinated_candidate_leads_only_when_the_controller_says_so() -> None:
    async def work() -> None:
        world = World()
        elector = world.elector("a", coordinated=True)
        term = asyncio.create_task(lead(elector))
        await asyncio.sleep(30)
        with pytest.raises(ApiError):
            world.spec()  # never created by the candidate
        lease: dict[str, Any] = {
            "metadata": {"name": "kube-scheduler"},
            "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15, "strategy": "OldestEmulationVersion"},
        }
        world.store.create(LEASES, NAMESPACE, lease)
        await asyncio.sleep(60)
        assert elector.leading
        assert world.spec()["strategy"] == "OldestEmulationVersion"
        lease = world.store.get(LEASES, NAMESPACE, "kube-scheduler").data()
        lease["spec"]["preferredHolder"] = "b"
        world.store.update(LEASES, NAMESPACE, "kube-scheduler", lease)
        await asyncio.sleep(15)
        assert term.done()
        assert not elector.leading

    run(work())


class Slow:
    """A transport whose writes arrive, but answer only after a minute."""

    def __init__(self, inner: InProcessClient) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def update(self, *args: Any, **options: Any) -> Item:
        item: Item = await self._inner.update(*args, **options)
        await asyncio.sleep(60)
        return item


def test_answers_that_never_come_count_as_failed_attempts() -> None:
    async def work() -> None:
        world = World()
        elector = world.elector("a", transport=Slow(world.transport))
        holding = asyncio.create_task(lead(elector))
        await asyncio.sleep(20)
        assert holding.done()
        assert not elector.leading

    run(work())
