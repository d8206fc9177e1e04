"""No device is given twice, and none is lost, whatever order attempts, failures and late events come in."""

from __future__ import annotations

import asyncio
from typing import Any

from dra_kit import claim, pod
from hypothesis import given, settings
from hypothesis import strategies as st
from plugin_kit import CLAIMS, House

from kubesched.api.wire import ApiError
from kubesched.lab.simulate.run.virtual_time import run_virtual
from kubesched.scheduler.core.search import Decision
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.nodes.podinfo import PodInfo

_PODS = 6
#: (what happens, a number that chooses to whom or which).
_steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["decide", "decide", "bind", "bind", "fail", "lose", "give back", "show", "show old", "free", "delete"]
        ),
        st.integers(0, 40),
    ),
    max_size=40,
)


class _Days:
    """Claims of one or two devices, some of them shared by two pods, on two nodes with three devices each."""

    def __init__(self) -> None:
        self.house = House(nodes=2, devices=3)
        self.server = self.house.server
        for number in range(_PODS):
            self.server.put(claim(f"c{number}", count=1 + number % 2))
        self.server.late = True
        self.attempts: list[tuple[CycleState, PodInfo, str]] = []
        self.asking = [pod(f"p{number}", f"c{number}") for number in range(_PODS)]
        self.asking += [pod(f"q{number}", f"c{number}") for number in (0, 1)]

    async def step(self, what: str, which: int) -> None:
        if what == "decide":
            self._decide(which)
        elif what in ("bind", "fail", "lose", "give back") and self.attempts:
            attempt = self.attempts.pop(which % len(self.attempts))
            if what == "give back":
                self.house.framework.unreserve(*attempt)
            else:
                if what == "fail":
                    self.server.failures.append(("patch", ApiError(500, "InternalError", "no")))
                if what == "lose":
                    self.server.lost.append(ConnectionResetError("the answer is lost"))
                await self.house.bind(attempt)
                self.server.failures.clear()
                self.server.lost.clear()
        elif what in ("show", "show old") and self.server.history:
            late = self.server.history[-1 - which % min(3, len(self.server.history))]
            self._show(late if what == "show" else self.server.history[which % len(self.server.history)])
        elif what == "free":
            self._free(which)
        elif what == "delete":
            self._delete(which)
        await self.house.settle()
        self._check()

    def _decide(self, which: int) -> None:
        asking = self.asking[which % len(self.asking)]
        if any(attempt[1].uid == asking.uid for attempt in self.attempts):
            return
        info = PodInfo(asking)
        found = self.house.search.find(info)
        if isinstance(found, Decision):
            assert self.house.framework.reserve(found.state, info, found.node.name) is None
            self.attempts.append((found.state, info, found.node.name))

    def _show(self, late: Any) -> None:
        """Deliver a version, unless the claim is gone in the server; older ones and repeated ones, too."""
        if late.key in self.server.claims:
            self.server.show(late)

    def _free(self, which: int) -> None:
        """The claim controller takes back what no pod has reserved. The claim is known by now."""
        key = f"default/c{which % _PODS}"
        stored = self.server.claims.get(key)
        if stored is None or stored.status.reserved_for or stored.status.allocation is None:
            return
        self.server.show(self.server.put(claim(stored.metadata.name, count=1 + (which % _PODS) % 2)))

    def _delete(self, which: int) -> None:
        key = f"default/c{which % _PODS}"
        stored = self.server.claims.get(key)
        if stored is not None and not stored.status.reserved_for:
            self.server.delete(key)
            self.house.objects.remove(CLAIMS, key)

    def _check(self) -> None:
        owners: dict[str, str] = {}
        for key, stored in self.server.claims.items():
            for device in self.house.devices(stored.metadata.name):
                assert owners.setdefault(device, key) == key, f"{device} is given to {owners[device]} and {key}"
        in_use = set(self.house.in_use())
        known = {each.key for each in self.house.manager.claims.values()}
        held = {device for device, key in owners.items() if key in known}
        assert held <= in_use

    async def end(self) -> None:
        """Everything is given back or written, and shown: what counts is what the server has."""
        for attempt in self.attempts:
            self.house.framework.unreserve(*attempt)
        await self.house.settle()
        for stored in self.server.claims.values():
            self.server.show(stored)
        self._check()
        assert len(self.house.manager.in_flight) == 0
        names = [stored.metadata.name for stored in self.server.claims.values()]
        assert self.house.in_use() == sorted(device for name in names for device in self.house.devices(name))
        assert list(self.house.manager.claims.assumed()) == []


@settings(max_examples=150, deadline=None)
@given(_steps)
def test_no_device_is_given_twice_and_none_is_lost(steps: list[tuple[str, int]]) -> None:
    async def main() -> None:
        days = _Days()
        for what, which in steps:
            await days.step(what, which)
            await asyncio.sleep(0)
        await days.end()

    run_virtual(main())
