"""Leader election on a Lease: it decides which of several schedulers may write.

:class:`LeaderElector` acquires the lease, renews it, and releases it when it is cancelled. The scheduler's own
requests go through a :class:`~kubesched.client.metered.MeteredTransport` that checks ``may_write`` before each
write, so that nothing is written after the lease is lost.

Expiry is judged by the loop's clock, from the moment at which this process saw the record change: the clocks of
other machines do not matter. Called by the assembly of ``kubesched run``.

Source: rules/serving §7 and §8.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from kubesched.api.kinds import CORE_EVENTS, LEASES
from kubesched.api.wire import ApiError, Item, Transport
from kubesched.base.tasks import child
from kubesched.base.times import Clock, micro_time, timestamp

from .connection_log import log_of, reason_of

__all__ = ["LeaderElector", "LeaseConfig", "LeaseError"]

logger = logging.getLogger("kubesched.client.lease")


_JITTER: Final = 1.2


class LeaseError(ValueError):
    """The timings cannot work. The text is upstream's."""


@dataclass(frozen=True, slots=True)
class LeaseConfig:
    """Name of the lease, identity of this candidate, and the timings in seconds.

    ``coordinated``: the API server's election controller selects the leader (gate CoordinatedLeaderElection). Then this
    process never creates nor takes the lease.
    """

    identity: str
    namespace: str = "kube-system"
    name: str = "kube-scheduler"
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    coordinated: bool = False

    def check(self) -> None:
        """Check the timings.

        Raises:
            LeaseError: if they cannot work.
        """
        if self.lease_duration <= self.renew_deadline:
            raise LeaseError("leaseDuration must be greater than renewDeadline")
        if self.renew_deadline <= self.retry_period * _JITTER:
            raise LeaseError("renewDeadline must be greater than retryPeriod*JitterFactor")
        if self.lease_duration < 1:
            raise LeaseError("leaseDuration must be greater than zero")
        if self.retry_period <= 0:
            raise LeaseError("retryPeriod must be greater than zero")

    @property
    def request_timeout(self) -> float:
        """Most seconds that one request of the elector may take."""
        return max(1.0, self.renew_deadline / 2)


@dataclass(slots=True)
class _Observed:
    """The lease as this process last saw it, and the loop time at which its content changed."""

    item: Item
    spec: dict[str, Any]
    time: float

    @property
    def holder(self) -> str:
        return self.spec.get("holderIdentity") or ""


class LeaderElector:
    """One candidate for the lease.

    Attributes:
        leading: True if this process holds the lease, as far as it knows.
        slow_paths: number of renewals that needed a read first (``leader_election_slowpath_total``).
    """

    def __init__(
        self,
        transport: Transport,
        config: LeaseConfig,
        *,
        clock: Clock,
        rng: Random,
        on_new_leader: Callable[[str], None] = lambda identity: None,
        component: str = "default-scheduler",
    ) -> None:
        """``transport`` must not be fenced by this elector. ``component`` is the source of the elector's events.

        Raises:
            LeaseError: if the timings cannot work.
        """
        config.check()
        self._transport = transport
        self._config = config
        self._clock = clock
        self._rng = rng
        self._on_new_leader = on_new_leader
        self._component = component
        self._connection = log_of(transport)
        self._observed: _Observed | None = None
        self._reported = ""
        self._renewed = -math.inf
        self.leading = False
        self.slow_paths = 0

    @property
    def may_write(self) -> bool:
        """True if this process leads and its last renewal is so recent that no other process can lead.

        False as soon as the lease duration has passed since the last renewal *began*, even if the process was stopped
        in between and has not noticed. Also false once another holder was seen, whose lease may be shorter.
        """
        if self._observed is None or self._observed.holder != self._config.identity:
            return False
        now = asyncio.get_running_loop().time()
        return self.leading and now < self._renewed + self._config.lease_duration

    @property
    def renewal_age(self) -> float:
        """Seconds since the last renewal began; infinite before the first."""
        return asyncio.get_running_loop().time() - self._renewed

    # -- the loops -------------------------------------------------------------------------------------

    async def acquire(self) -> None:
        """Return once this process leads.

        There is no limit to the attempts; each failed attempt is followed by a random wait.
        """
        period = self._config.retry_period
        logger.info("attempting to acquire leader lease %s/%s...", self._config.namespace, self._config.name)
        while True:
            if await self._attempt(self._config.request_timeout):
                break
            await asyncio.sleep(period + self._rng.random() * _JITTER * period)
        self.leading = True
        logger.info("successfully acquired lease %s/%s", self._config.namespace, self._config.name)
        await self._record("became leader")

    async def hold(self) -> None:
        """Renew the lease; return when it is lost. On return, and on cancellation, ``leading`` is False.

        In both cases the lease is released if this process still holds it.
        """
        try:
            while True:
                if not await self._renew():
                    break
                await asyncio.sleep(self._config.retry_period)
            logger.error("failed to renew lease %s/%s: timed out", self._config.namespace, self._config.name)
        finally:
            self.leading = False
            await _finish(child(self._release(), "lease-release"))

    async def _renew(self) -> bool:
        """Try until the renew deadline. Return True as soon as an attempt succeeds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._config.renew_deadline
        while (left := deadline - loop.time()) > 0:
            if await self._attempt(min(left, self._config.request_timeout)):
                return True
            await asyncio.sleep(max(0.0, min(self._config.retry_period, deadline - loop.time())))
        return False

    # -- one attempt (rules/serving §7.2) --------------------------------------------------------------

    async def _attempt(self, seconds: float) -> bool:
        started = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(seconds):
                won = await (self._follow() if self._config.coordinated else self._take_or_renew())
        except (ApiError, OSError, TimeoutError) as error:
            if not self._connection.failed(error):
                logger.error("error retrieving or updating lease %s: %s", self._name, reason_of(error))
            return False
        finally:
            self._report_holder()
        if won:
            self._renewed = started
        return won

    async def _take_or_renew(self) -> bool:
        observed = self._observed
        if self.leading and observed is not None and observed.holder == self._config.identity:
            if asyncio.get_running_loop().time() < observed.time + self._config.lease_duration:
                try:
                    await self._put(observed.item, {**observed.spec, "renewTime": self._now()})
                except (ApiError, OSError) as error:
                    if not self._connection.failed(error):
                        logger.error("failed to update lease optimistically: %s, falling back to slow path", error)
                else:
                    return True
            self.slow_paths += 1
        try:
            item = await self._get()
        except ApiError as error:
            if error.code != 404:
                raise
            return await self._create()
        observed = self._observe(item)
        if observed.holder not in ("", self._config.identity):
            duration = observed.spec.get("leaseDurationSeconds") or 0
            if observed.time + duration > asyncio.get_running_loop().time():
                return False
        await self._put(item, self._taken(observed))
        return True

    async def _follow(self) -> bool:
        """Coordinated election: lead if the controller has selected this process (rules/serving §8)."""
        try:
            observed = self._observe(await self._get())
        except ApiError as error:
            if error.code != 404:
                raise
            return False
        duration = observed.spec.get("leaseDurationSeconds") or 0
        expired = observed.time + duration <= asyncio.get_running_loop().time()
        if observed.holder != self._config.identity or expired:
            return False
        if self.leading and observed.spec.get("preferredHolder"):
            logger.info("lease %s has a preferred holder: this term ends", self._name)
            return False
        spec = {**observed.spec, "renewTime": self._now(), "leaseDurationSeconds": self._seconds}
        spec.pop("preferredHolder", None)
        await self._put(observed.item, spec)
        return True

    def _taken(self, observed: _Observed) -> dict[str, Any]:
        """Return the record of the lease that names this process as its holder."""
        spec, now = observed.spec, self._now()
        is_holder = observed.holder == self._config.identity
        transitions = int(spec.get("leaseTransitions") or 0)
        return {
            **{key: spec[key] for key in ("strategy", "preferredHolder") if spec.get(key)},
            "holderIdentity": self._config.identity,
            "leaseDurationSeconds": self._seconds,
            "acquireTime": spec.get("acquireTime") if is_holder and spec.get("acquireTime") else now,
            "renewTime": now,
            "leaseTransitions": transitions if is_holder else transitions + 1,
        }

    async def _create(self) -> bool:
        now = self._now()
        spec = {
            "holderIdentity": self._config.identity,
            "leaseDurationSeconds": self._seconds,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": 0,
        }
        lease = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._config.name, "namespace": self._config.namespace},
            "spec": spec,
        }
        self._observe(await self._transport.create(LEASES, self._config.namespace, lease))
        return True

    async def _release(self) -> None:
        """Give the lease up if this process still holds it, so that a successor need not wait (rules/serving §7.4)."""
        observed = self._observed
        if observed is None or observed.holder != self._config.identity:
            return
        try:
            async with asyncio.timeout(self._config.request_timeout):
                observed = self._observe(await self._get())
                if observed.holder == self._config.identity:
                    now = self._now()
                    released = {"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": now, "renewTime": now}
                    await self._put(observed.item, {**observed.spec, **released})
        except (ApiError, OSError, TimeoutError) as error:
            logger.error("failed to release lease %s: %s", self._name, reason_of(error))
        await self._record("stopped leading")

    # -- the object ------------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return f"{self._config.namespace}/{self._config.name}"

    @property
    def _seconds(self) -> int:
        return int(self._config.lease_duration)

    def _now(self) -> str:
        return micro_time(self._clock.now())

    async def _get(self) -> Item:
        return await self._transport.get(LEASES, self._config.namespace, self._config.name)

    async def _put(self, item: Item, spec: Mapping[str, Any]) -> None:
        lease = {**item.data(), "spec": dict(spec)}
        self._observe(await self._transport.update(LEASES, self._config.namespace, self._config.name, lease))

    def _observe(self, item: Item) -> _Observed:
        """Remember the lease. The time since it was seen to change starts again if the content differs.

        Raises:
            ApiError: 500, if a field has a wrong type. Then nobody can say who leads.
        """
        spec = item.data().get("spec") or {}
        for name, type_ in {"holderIdentity": str, "leaseDurationSeconds": int, "leaseTransitions": int}.items():
            if not isinstance(spec.get(name), type_ | None):
                text = f"the lease cannot be read: spec.{name} is {str(spec[name])[:40]!r}"
                raise ApiError(500, "InternalError", text)
        observed = self._observed
        if observed is None or spec != observed.spec:
            observed = self._observed = _Observed(item, spec, asyncio.get_running_loop().time())
        else:
            observed.item = item
        return observed

    def _report_holder(self) -> None:
        holder = self._observed.holder if self._observed is not None else ""
        if holder != self._reported:
            self._reported = holder
            if holder:
                logger.info("new leader elected: %s", holder)
            self._on_new_leader(holder)

    async def _record(self, what: str) -> None:
        """Record a legacy Event on the lease. A failure is only logged: losing the event harms nothing."""
        now = timestamp(self._clock.now())
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{self._config.name}.{int(self._clock.now() * 1e9):x}"},
            "involvedObject": {
                "apiVersion": LEASES.api_version,
                "kind": LEASES.kind,
                "namespace": self._config.namespace,
                "name": self._config.name,
            },
            "reason": "LeaderElection",
            "message": f"{self._config.identity} {what}",
            "source": {"component": self._component},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "type": "Normal",
        }
        try:
            async with asyncio.timeout(self._config.request_timeout):
                await self._transport.create(CORE_EVENTS, self._config.namespace, event)
        except (ApiError, OSError, TimeoutError) as error:
            logger.warning("cannot record %r on lease %s: %s", what, self._name, reason_of(error))


async def _finish(task: asyncio.Task[None]) -> None:
    """Wait until a task ends, even if cancelled meanwhile: the caller closes its connections after that."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    task.result()
