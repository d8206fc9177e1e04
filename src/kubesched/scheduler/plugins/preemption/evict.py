"""Eviction of a preemption's victims (rules/preemption §7 to §9).

A victim that is only in this scheduler's memory (waiting on Permit, or in PreBind) is cancelled. Any other is marked
with a condition and deleted. In asynchronous mode the preemptor is nominated at once, and PreEnqueue holds it back
until its last victim is being deleted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from kubesched.api.types import PodCondition
from kubesched.api.wire import ApiError
from kubesched.base.at_once import begin
from kubesched.base.tasks import child

from ...framework.interface import Handle
from ...framework.recorded_events import PREEMPTED
from ...nodes.podinfo import PodInfo
from .preemptor import Preemptor

__all__ = ["Evictions"]

_log = logging.getLogger("kubesched.scheduler.plugins")

#: Seconds between a failed eviction and the next attempt of its preemptor.
_RETRY_SECONDS: Final = 1.0


@dataclass(slots=True)
class _Preemption:
    """Asynchronous preemption. ``last`` is evicted after ``others``; ``begun`` is a time of the clock."""

    preemptor: Preemptor
    others: Sequence[PodInfo]
    last: PodInfo
    begun: float = 0.0


class Evictions:
    """Evictions by one profile's plugin."""

    def __init__(self, plugin: str, handle: Handle) -> None:
        self._plugin = plugin
        self._handle = handle
        #: UIDs of preemptors whose victims are being evicted.
        self._preempting: set[str] = set()
        #: Last victim by its preemptor's UID. Entries exist while the last victim is being evicted.
        self._last_victim: dict[str, PodInfo] = {}
        #: Preemptions that have not begun to evict.
        self._due: list[_Preemption] = []

    def is_evicting(self, uid: str) -> bool:
        """True if evictions for the pod are under way."""
        return uid in self._preempting

    def is_running(self, uid: str) -> bool:
        """True if the pod must wait because its victims are still being evicted."""
        if uid not in self._preempting:
            return False
        victim = self._last_victim.get(uid)
        if victim is None:
            return True
        live = self._handle.live_pod(victim.pod)
        return live is not None and live.metadata.deletion_timestamp is None

    # -- both modes ------------------------------------------------------------------------------------

    def start(self, preemptor: Preemptor, victims: Sequence[PodInfo]) -> None:
        """Evict alongside the scheduling cycle. Victims that are being deleted already are left alone."""
        left = [victim for victim in victims if victim.metadata.deletion_timestamp is None]
        if not left:
            return
        self._preempting.add(preemptor.uid)
        self._handle.framework.metrics.preemption_victims.observe(len(victims))
        self._due.append(_Preemption(preemptor, left[:-1], left[-1]))
        if len(self._due) == 1:
            self._handle.spawn(self._begin_due(), f"preemptions of {self._handle.profile_name}")

    async def evict(self, preemptor: Preemptor, victims: Sequence[PodInfo]) -> None:
        """Evict the victims, and return when that is done.

        Raises:
            ApiError, OSError: the first failure; evictions that had not ended are cancelled then.
        """
        self._handle.framework.metrics.preemption_victims.observe(len(victims))
        try:
            await self._evict_each(preemptor, victims)
        except Exception:
            # Upstream may try the pod again only after minutes.
            self._preempting.add(preemptor.uid)
            self._handle.spawn(self._try_again(preemptor), f"preempt again for {preemptor.key}")
            raise
        self._clear_lower_nominations(preemptor)

    def _activate(self, preemptor: Preemptor) -> None:
        self._handle.activate({pod.key: pod.pod for pod in preemptor.pods})

    async def _begin_due(self) -> None:
        """Begin the preemptions of one turn of the event loop. A preemption that has to wait goes on in a task of its
        own.
        """
        due, self._due = self._due, []
        for preemption in due:
            rest = begin(self._preempt(preemption), self._handle.client.at_once)
            if rest is not None:
                self._handle.spawn(rest, f"preempt for {preemption.preemptor.key}")

    async def _preempt(self, preemption: _Preemption) -> None:
        """Evict the victims of one preemption; the last one is evicted when all others are gone."""
        preemptor, last = preemption.preemptor, preemption.last
        preemption.begun = self._handle.clock.now()
        running = self._handle.framework.metrics.goroutines.labels("preemption")
        running.inc()
        try:
            self._clear_lower_nominations(preemptor)
            await self._evict_each(preemptor, preemption.others)
            self._last_victim[preemptor.uid] = last
            await self._evict(preemptor, last)
        except Exception as error:
            await self._failed(preemption, error)
        except BaseException:
            self._forget(preemptor)
            raise
        else:
            self._ended(preemption)
        finally:
            running.dec()

    async def _failed(self, preemption: _Preemption, error: Exception) -> None:
        """Report a failure, and have the preemptor tried again after a pause."""
        place = preemption.preemptor.place, preemption.preemptor.key
        if isinstance(error, ApiError | OSError):
            _log.error("preemption on node %s for pod %s: %s", *place, error)
        else:
            _log.error("preemption on node %s for pod %s failed unexpectedly", *place, exc_info=error)
        self._measure(preemption, "error")
        await self._try_again(preemption.preemptor)

    async def _try_again(self, preemptor: Preemptor) -> None:
        """Have a preemptor whose evictions failed tried again after a pause.

        PreEnqueue holds the preemptor during the pause. Without it a server that refuses evictions would be asked again
        and again, as fast as it answers: pods in backoff are popped early when no other pod waits.
        """
        try:
            await asyncio.sleep(_RETRY_SECONDS)
        finally:
            self._forget(preemptor)
        self._activate(preemptor)

    def _ended(self, preemption: _Preemption) -> None:
        self._forget(preemption.preemptor)
        self._measure(preemption, "success")
        if not self._counts(preemption.last):
            # No event will queue the pod, because the last victim left while it was held.
            self._activate(preemption.preemptor)

    def _counts(self, victim: PodInfo) -> bool:
        """Return True while a victim holds its room; the end of that will be an event.

        The victim of a binding that has failed meanwhile holds none, even if the API server has just deleted it.
        """
        table = self._handle.snapshot.table
        row = table.row_of(victim.spec.node_name)
        return row is not None and victim.uid in table.info(row).pods

    def _measure(self, preemption: _Preemption, result: str) -> None:
        metrics, duration = self._handle.framework.metrics, self._handle.clock.now() - preemption.begun
        metrics.preemption_goroutines_duration_seconds.observe(duration, result)
        metrics.preemption_goroutines_execution_total.inc(result)

    def _forget(self, preemptor: Preemptor) -> None:
        self._preempting.discard(preemptor.uid)
        self._last_victim.pop(preemptor.uid, None)

    async def _evict_each(self, preemptor: Preemptor, victims: Sequence[PodInfo]) -> None:
        """Evict victims at the same time. The first failure cancels the others and is raised."""
        tasks: list[asyncio.Task[None]] = []
        try:
            for victim in victims:
                rest = begin(self._evict(preemptor, victim), self._handle.client.at_once)
                if rest is not None:
                    tasks.append(child(rest, f"evict {victim.key}"))
            done = (await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION))[0] if tasks else ()
        finally:
            if left := [task for task in tasks if not task.done()]:
                for task in left:
                    task.cancel()
                await asyncio.wait(left)
        errors = [task.exception() for task in tasks if task in done]
        for error in errors:
            if error is not None:
                raise error

    # -- one victim ------------------------------------------------------------------------------------

    async def _evict(self, preemptor: Preemptor, victim: PodInfo) -> None:
        """Evict one pod.

        Raises:
            ApiError: when the server refuses.
            OSError: when the server cannot be reached.
        """
        if victim.metadata.deletion_timestamp is not None:
            return
        if self._cancel(victim):
            self._record(preemptor, victim, " (in kube-scheduler memory).")
        elif await self._delete(preemptor, victim):
            self._record(preemptor, victim)

    def _record(self, preemptor: Preemptor, victim: PodInfo, more: str = "") -> None:
        note = f"Preempted by {preemptor.kind} {preemptor.uid} on node {preemptor.place}{more}"
        self._handle.recorder.record(victim.pod, *PREEMPTED, note, preemptor.obj)

    def _cancel(self, victim: PodInfo) -> bool:
        """End the binding of a victim that is not bound yet. False when it is too late for that."""
        waiting = self._handle.waiting_pods.get(victim.uid)
        if waiting is not None:
            return waiting.preempt(self._plugin, "preempted")
        entry = self._handle.pods_in_pre_bind.get(victim.uid)
        return entry is not None and entry.cancel(f"preempted by {self._plugin}")

    async def _delete(self, preemptor: Preemptor, victim: PodInfo) -> bool:
        """Mark and delete a pod. False when it is gone already."""
        client = self._handle.client
        try:
            await client.patch_pod_status(victim.pod, condition=_condition(preemptor.scheduler_name, preemptor.kind))
        except ApiError as error:
            if error.code == 404:
                return False
            raise
        deleted: bool = await client.delete_pod(victim.pod)
        return deleted

    def _clear_lower_nominations(self, preemptor: Preemptor) -> None:
        """Clear the nominations to its nodes of pods of lower priority: they must look elsewhere."""
        own = {pod.uid for pod in preemptor.pods}
        for node_name in preemptor.nodes:
            for other in self._handle.nominations.nominated_pods_for_node(node_name):
                if other.priority < preemptor.priority and other.uid not in own:
                    self._handle.clear_nomination(other.pod, node_name)


@lru_cache(maxsize=64)
def _condition(scheduler: str, kind: str) -> PodCondition:
    """Condition that marks a victim. Each call returns the same object, because the encoded patch is cached by its
    identity.
    """
    message = f"{scheduler}: preempting to accommodate a higher priority {kind}"
    return PodCondition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler", message=message)
