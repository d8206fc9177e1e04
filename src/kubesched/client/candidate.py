"""The LeaseCandidate of this process, for coordinated leader election.

The API server's election controller chooses among the candidates of a lease and writes its choice into the lease,
which :class:`~kubesched.client.lease.LeaderElector` follows. This module announces the process and answers the
controller's pings; a candidate that does not answer is not chosen.

Source: rules/serving §8. Caller: the assembly of ``kubesched run``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from random import Random
from typing import Any, Final

from kubesched.api.kinds import LEASE_CANDIDATES
from kubesched.api.wire import ApiError, Transport
from kubesched.base.tasks import Supervisor
from kubesched.base.times import Clock, micro_time, parse_time

from .backoff import Backoff
from .connection_log import log_of, reason_of
from .informer import Informer
from .lease import LeaseConfig

__all__ = ["LeaseCandidate"]

logger = logging.getLogger("kubesched.client.lease")

#: Seconds between two renewals without a ping.
RENEW_SECONDS: Final = 300.0
STRATEGY: Final = "OldestEmulationVersion"


class LeaseCandidate:
    """Writer of the candidate of ``lease.identity``: creates the object and keeps it renewed.

    ``transport`` must not be fenced by the elector: a candidate writes before it leads. ``binary_version`` and
    ``emulation_version`` are semantic versions without a leading ``v``.

    Attributes:
            informer: informer of this one object; ``/readyz`` reports whether it has synced.
            renewals: number of writes of ``renewTime``, creation included.
    """

    def __init__(
        self,
        transport: Transport,
        lease: LeaseConfig,
        *,
        clock: Clock,
        rng: Random,
        binary_version: str,
        emulation_version: str,
    ) -> None:
        self._connection = log_of(transport)
        self._transport = transport
        self._lease = lease
        self._clock = clock
        self._rng = rng
        self._versions = {"binaryVersion": binary_version, "emulationVersion": emulation_version}
        self._pinged = asyncio.Event()
        self.renewals = 0
        self.informer = Informer(
            transport,
            LEASE_CANDIDATES,
            rng=Random(rng.getrandbits(64)),
            namespace=lease.namespace,
            field_selector=f"metadata.name={lease.identity}",
        )
        self.informer.add_handler(self)

    async def run(self) -> None:
        """Announce this process and renew the announcement until cancelled. Failed writes are tried again."""
        async with Supervisor("lease candidate") as tasks:
            tasks.spawn(self.informer.run(), "informer-leasecandidates")
            await self.informer.wait_synced()
            while True:
                self._pinged.clear()
                await self._renew()
                try:
                    async with asyncio.timeout(RENEW_SECONDS):
                        await self._pinged.wait()
                except TimeoutError:
                    continue

    async def _renew(self) -> None:
        backoff = Backoff(self._rng)
        while True:
            try:
                async with asyncio.timeout(self._lease.request_timeout):
                    await self._write()
            except (ApiError, OSError, ValueError) as error:  # a timeout is an OSError, a wrong time a ValueError
                if not self._connection.failed(error):
                    logger.error("cannot renew lease candidate %s: %s", self._name, reason_of(error))
            else:
                self.renewals += 1
                return
            await asyncio.sleep(backoff.next_delay(asyncio.get_running_loop().time()))

    async def _write(self) -> None:
        """Create the object, or set its ``renewTime`` if it exists."""
        namespace, name = self._lease.namespace, self._lease.identity
        try:
            found = (await self._transport.get(LEASE_CANDIDATES, namespace, name)).data()
        except ApiError as error:
            if error.code != 404:
                raise
            spec = {
                "leaseName": self._lease.name,
                **self._versions,
                "strategy": STRATEGY,
                "renewTime": micro_time(self._clock.now()),
            }
            candidate = {
                "apiVersion": LEASE_CANDIDATES.api_version,
                "kind": LEASE_CANDIDATES.kind,
                "metadata": {"name": name, "namespace": namespace},
                "spec": spec,
            }
            await self._transport.create(LEASE_CANDIDATES, namespace, candidate)
            return
        spec = found.get("spec") or {}
        # The time must not lie before the ping that this write answers, even if the two clocks differ.
        moment = max(self._clock.now(), _moment(spec, "pingTime"))
        found["spec"] = {**spec, "renewTime": micro_time(moment)}
        await self._transport.update(LEASE_CANDIDATES, namespace, name, found)

    @property
    def _name(self) -> str:
        return f"{self._lease.namespace}/{self._lease.identity}"

    # -- the informer's handler ------------------------------------------------------------------------

    def on_add(self, obj: Any, is_initial: bool) -> None:
        self._look(obj)

    def on_update(self, old: Any, new: Any) -> None:
        self._look(new)

    def on_delete(self, obj: Any) -> None:
        """Create the candidate again at once: another client removed it."""
        self._pinged.set()

    def _look(self, candidate: Mapping[str, Any]) -> None:
        spec = candidate.get("spec") or {}
        if _moment(spec, "pingTime") > _moment(spec, "renewTime"):
            self._pinged.set()


def _moment(spec: Mapping[str, Any], field: str) -> float:
    """Return a time in a spec as seconds since the epoch; 0 if it is missing."""
    text = spec.get(field)
    return parse_time(text) if text else 0.0
