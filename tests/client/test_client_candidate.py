"""The lease candidate: announced, renewed, and quick to answer a ping."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from kubesched.api.kinds import LEASE_CANDIDATES
from kubesched.base.times import micro_time, parse_time
from kubesched.client.candidate import LeaseCandidate
from kubesched.client.lease import LeaseConfig
from kubesched.cluster.store import Faults, InProcessClient, Store
from kubesched.cluster.store.faults import connection_lost
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual

NAMESPACE, NAME = "kube-system", "host_3f0c"


class World:
    def __init__(self) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.store = Store(self.clock, random=Random(0))
        self.faults = Faults(Random(1))
        self.candidate = LeaseCandidate(
            InProcessClient(self.store, faults=self.faults),
            LeaseConfig(NAME, coordinated=True),
            clock=self.clock,
            rng=Random(2),
            binary_version="1.36.0",
            emulation_version="1.36.0",
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.candidate.run())
        try:
            await asyncio.sleep(1)
            yield
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def spec(self) -> dict[str, Any]:
        found: dict[str, Any] = self.store.get(LEASE_CANDIDATES, NAMESPACE, NAME).data()["spec"]
        return found

    def ping(self, ahead: float = 0.0) -> float:
        """Write a ping as the election controller does, by a clock that is ``ahead`` seconds ahead."""
        data = self.store.get(LEASE_CANDIDATES, NAMESPACE, NAME).data()
        moment = self.clock.now() + ahead
        data["spec"]["pingTime"] = micro_time(moment)
        self.store.update(LEASE_CANDIDATES, NAMESPACE, NAME, data)
        return moment


def test_a_candidate_is_created_and_renewed_every_five_minutes() -> None:
    async def main() -> None:
        world = World()
        async with world.running():
            spec = world.spec()
            first = spec.pop("renewTime")
            assert spec == {
                "leaseName": "kube-scheduler",
                "binaryVersion": "1.36.0",
                "emulationVersion": "1.36.0",
                "strategy": "OldestEmulationVersion",
            }
            assert world.candidate.informer.has_synced
            await asyncio.sleep(298)
            assert world.candidate.renewals == 1
            await asyncio.sleep(2)
            assert world.candidate.renewals == 2
            assert parse_time(world.spec()["renewTime"]) - parse_time(first) == 300.0

    run_virtual(main())


def test_a_ping_is_answered_at_once_and_only_once_whatever_the_controllers_clock_says() -> None:
    async def main() -> None:
        for ahead in (0.0, 3600.0):
            world = World()
            async with world.running():
                pinged = world.ping(ahead)
                await asyncio.sleep(0.1)
                assert parse_time(world.spec()["renewTime"]) >= round(pinged, 6)
                await asyncio.sleep(60)
                assert world.candidate.renewals == 2

    run_virtual(main())


def test_a_candidate_that_is_deleted_is_created_again() -> None:
    async def main() -> None:
        world = World()
        async with world.running():
            world.store.delete(LEASE_CANDIDATES, NAMESPACE, NAME)
            await asyncio.sleep(0.1)
            assert world.spec()["leaseName"] == "kube-scheduler"

    run_virtual(main())


def test_writes_that_fail_are_tried_again() -> None:
    async def main() -> None:
        world = World()
        rule = world.faults.fail("create", kind=LEASE_CANDIDATES, error=connection_lost, times=3)
        slow = world.faults.delay("get", 90.0, kind=LEASE_CANDIDATES, times=1)
        async with world.running():
            await asyncio.sleep(60)
            assert (rule.hits, slow.hits, world.candidate.renewals) == (3, 1, 1)
            assert world.spec()["strategy"] == "OldestEmulationVersion"

    run_virtual(main())


def test_a_restarted_process_of_the_same_name_renews_what_it_finds() -> None:
    async def main() -> None:
        world = World()
        async with world.running():
            await asyncio.sleep(10)
        uid = world.store.get(LEASE_CANDIDATES, NAMESPACE, NAME).uid
        before = world.spec()["renewTime"]
        again = LeaseCandidate(
            InProcessClient(world.store),
            LeaseConfig(NAME, coordinated=True),
            clock=world.clock,
            rng=Random(3),
            binary_version="1.36.0",
            emulation_version="1.36.0",
        )
        world.candidate = again
        async with world.running():
            assert world.spec()["renewTime"] > before
            assert world.store.get(LEASE_CANDIDATES, NAMESPACE, NAME).uid == uid

    run_virtual(main())
