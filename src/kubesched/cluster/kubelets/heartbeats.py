"""Heartbeats of hollow nodes: Leases in ``kube-node-lease``, renewed in batches; failures and recoveries on command.

With ``seconds``, every node renews its Lease once in that time; the nodes are divided into one group per second.
Without ``seconds``, heartbeats are *quiet*. Then only a failed node has a Lease. It is dated from the failure and is
deleted when the node recovers. Node lifecycle sees the same silence with a thousandth of the writes, and a simulation
can come to rest.

Caller: :mod:`.hollow`; missed heartbeats are noticed by :mod:`..controllers.node_lifecycle`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle
from typing import Any, Final

from kubesched.api.kinds import LEASES, NODES
from kubesched.api.wire import MERGE_PATCH, ApiError, Transport, tolerate
from kubesched.base.times import Clock, micro_time, timestamp

from .nodes import kubelet_conditions

__all__ = ["Heartbeats"]

NAMESPACE: Final = "kube-node-lease"
_LEASE_SECONDS: Final = 40
#: Seconds after its last heartbeat at which node lifecycle counts a node as late (with some margin).
_EVIDENT_SECONDS: Final = 12.5
_RETRY_SECONDS: Final = 1.0
_WRITES_PER_TURN: Final = 100


class Heartbeats:
    """Heartbeats of all nodes of a set of kubelets, sent by one task. Their Leases have the ``labels``."""

    def __init__(
        self,
        client: Transport,
        clock: Clock,
        seconds: float | None,
        note: Callable[[str], None],
        labels: Mapping[str, str],
    ) -> None:
        self._labels = labels
        self._client = client
        self._clock = clock
        self._seconds = seconds
        self._note = note
        self._slots: list[dict[str, None]] = [{} for _ in range(max(1, int(seconds)) if seconds else 1)]
        self._to_fill, self._to_renew = cycle(self._slots), cycle(self._slots)
        self._leased: set[str] = set()
        self._orders: dict[tuple[str, str], None] = {}
        self._wake = asyncio.Event()
        self._busy = False
        #: Times at which the silence of failed nodes shows, by node.
        self._evident: dict[str, float] = {}
        #: Nodes that have failed.
        self.failed: set[str] = set()

    def node_changed(self, name: str, conditions: Sequence[Mapping[str, Any]], *, fresh: bool) -> None:
        """Adopt a node that is fresh or has changed conditions. Quiet heartbeats leave a fresh node as it is.

        The kubelet reports conditions and timestamps that a fresh node lacks, and Ready for a node that is marked
        NotReady.
        """
        if fresh:
            next(self._to_fill)[name] = None
            if not self._seconds:
                return
            self._order("renew", name)
            reported = {one.get("type") for one in conditions if one.get("lastHeartbeatTime")}
            if "Ready" not in reported or len(reported) < len(conditions):
                self._order("register", name)
        # In a restored cluster a node may have been marked NotReady before its kubelet ran.
        silent = any(one.get("type") == "Ready" and one.get("status") == "Unknown" for one in conditions)
        if silent and name not in self.failed:
            self._order("ready", name)

    def node_removed(self, name: str) -> None:
        for slot in self._slots:
            slot.pop(name, None)
        self.failed.discard(name)
        self._evident.pop(name, None)
        if name in self._leased:
            self._order("delete", name)

    def fail(self, name: str) -> None:
        """Make a node stop responding, from now on."""
        self.failed.add(name)
        self._evident[name] = asyncio.get_running_loop().time() + _EVIDENT_SECONDS
        self._orders.pop(("ready", name), None)
        self._orders.pop(("delete", name), None)
        if not self._seconds or name not in self._leased:
            self._order("renew", name)

    def recover(self, name: str) -> None:
        """Make a failed node respond again: it reports Ready and renews its Lease."""
        self.failed.discard(name)
        self._evident.pop(name, None)
        self._order("renew" if self._seconds else "delete", name)
        self._order("ready", name)

    def next_timer(self) -> float | None:
        """Return the time at which the silence of a failed node shows, or now if writes are waiting; None otherwise.

        Ordinary heartbeats change nothing and do not count.
        """
        now = asyncio.get_running_loop().time()
        if self._orders or self._busy:
            return now
        self._evident = {name: due for name, due in self._evident.items() if due > now}
        return min(self._evident.values(), default=None)

    def _order(self, what: str, name: str) -> None:
        self._orders[what, name] = None
        self._wake.set()

    async def run(self) -> None:
        """Send until cancelled."""
        loop = asyncio.get_running_loop()
        if not self._seconds:
            await self._forget_leases()
        step = self._seconds / len(self._slots) if self._seconds else 0.0
        due = loop.time() + step
        while True:
            self._wake.clear()
            await self._carry_out()
            if not step:
                if not self._orders:
                    await self._wake.wait()
                continue
            if loop.time() >= due:
                await self._renew_slot()
                due = max(due + step, loop.time())
            handle = loop.call_at(due, self._wake.set)
            await self._wake.wait()
            handle.cancel()

    async def _forget_leases(self) -> None:
        """Delete Leases of an earlier run, which would make healthy nodes NotReady."""
        while True:
            try:
                page = await self._client.list(LEASES, NAMESPACE)
            except (ApiError, OSError) as error:
                self._note(f"listing leases: {error}")
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            for item in page.items:
                if item.name not in self.failed:
                    self._order("delete", item.name)
            return

    async def _carry_out(self) -> None:
        orders, self._orders = self._orders, {}
        self._busy = bool(orders)
        if not await self._send(orders, self._orders):
            await asyncio.sleep(_RETRY_SECONDS)
        self._busy = False

    async def _renew_slot(self) -> None:
        slot = list(next(self._to_renew))
        # A refused renewal is tried again in the next turn of this slot.
        await self._send((("renew", name) for name in slot if name not in self.failed), {})

    async def _send(self, orders: Iterable[tuple[str, str]], again: dict[tuple[str, str], None]) -> bool:
        """Carry out orders. Returns False if some were refused; these are noted and added to ``again``."""
        succeeded = True
        for number, (what, name) in enumerate(orders, 1):
            try:
                await self._do(what, name)
            except (ApiError, OSError) as error:
                if what == "renew" or getattr(error, "code", 0) != 404:  # 404: the object is gone
                    self._note(f"node {name}: {what}: {error}")
                    again.setdefault((what, name))
                    succeeded = False
            if number % _WRITES_PER_TURN == 0:
                await asyncio.sleep(0)
        return succeeded

    async def _do(self, what: str, name: str) -> None:
        if what == "renew":
            await self._renew(name)
        elif what == "delete":
            self._leased.discard(name)
            await self._client.delete(LEASES, NAMESPACE, name)
        elif name not in self.failed:
            await self._report(name, every=what == "register")

    async def _renew(self, name: str) -> None:
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": _LEASE_SECONDS,
            "renewTime": micro_time(self._clock.now()),
        }
        body: dict[str, Any] = {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}
        if self._labels:
            body["metadata"]["labels"] = dict(self._labels)
        if name not in self._leased:
            with tolerate("AlreadyExists"):
                await self._client.create(LEASES, NAMESPACE, body)
                self._leased.add(name)
                return
        try:
            # A real server refuses an update of a Lease without its version.
            await self._client.patch(LEASES, NAMESPACE, name, {"spec": spec}, patch_type=MERGE_PATCH)
        except ApiError as error:
            if error.code == 404:
                self._leased.discard(name)
            raise
        self._leased.add(name)

    async def _report(self, name: str, *, every: bool) -> None:
        """Write conditions of a node, with timestamps.

        ``every`` writes all conditions. Without it, Ready and all conditions that are Unknown are written.
        """
        status = (await self._client.get(NODES, "", name)).data().get("status") or {}
        now, given = timestamp(self._clock.now()), status.get("conditions") or ()
        if every:
            conditions = kubelet_conditions(now, given)
        else:
            types = {"Ready", *(one.get("type") for one in given if one.get("status") == "Unknown")}
            conditions = [one for one in kubelet_conditions(now) if one["type"] in types]
        await self._client.patch(NODES, "", name, {"status": {"conditions": conditions}}, subresource="status")
