"""How a single pod moves between the sub-queues.

Source: spec "Scheduling queue" section 6. Base of :class:`~kubesched.queue.scheduling_queue.SchedulingQueue`,
whose operations are made of these moves; every entry into a sub-queue, and its metrics, happens here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final

from kubesched.api.times import Clock
from kubesched.api.types import Pod
from kubesched.framework.events import FORCE_ACTIVATE, UNSCHEDULED_POD_ADD, UNSCHEDULED_POD_UPDATE
from kubesched.framework.metrics import Counter
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.queued import QueuedPodInfo

from .hints import EventPlan, Hints, Strategy
from .pre_enqueue import PreEnqueue
from .views import QueueViews

__all__ = ["POD_ADD", "POD_UPDATE", "PreCheck", "QueueMoves"]

_log = logging.getLogger("kubesched.queue")

POD_ADD: Final = UNSCHEDULED_POD_ADD.label
POD_UPDATE: Final = UNSCHEDULED_POD_UPDATE.label
_FORCE_ACTIVATE: Final = FORCE_ACTIVATE.label

PreCheck = Callable[[Pod], bool]


class QueueMoves(QueueViews):
    """The primitive moves."""

    _clock: Clock
    _signers: Mapping[str, Callable[[PodInfo], Hashable | None]] | None
    _hints: Hints
    _pre_enqueue: PreEnqueue
    _incoming: Counter
    _scheduling_cycle: int
    _waiters: list[asyncio.Future[None]]

    def _new_record(self, pod: Pod) -> QueuedPodInfo:
        info = PodInfo(pod)
        return QueuedPodInfo(info, self._clock.now(), pod_signature=self._sign(info))

    def _sign(self, info: PodInfo) -> Hashable | None:
        if self._signers is None:
            return None
        signer = self._signers.get(info.pod.spec.scheduler_name)
        if signer is None:
            _log.error("No signer for scheduler %r of pod %s", info.pod.spec.scheduler_name, info.key)
            return None
        try:
            return signer(info)
        except Exception:
            _log.exception("Signing pod %s failed; it goes without a signature", info.key)
            return None

    def _refresh(self, record: QueuedPodInfo, info: PodInfo, old: Pod) -> None:
        record.pod_info = info
        self.nominator.update(old, info.pod)
        record.pod_signature = self._sign(info)

    def _enqueue(self, record: QueuedPodInfo, label: str) -> None:
        """Bring in a new record; what was queued under its name, if anything, is dropped."""
        key = record.key
        stale = self._active.get(key) or self._backoff.get(key) or self._unschedulable.get(key)
        entered = self._to_active(key, record, label, from_backoff=False)
        if stale is not None:
            # A new record that is gated does not replace an active or backoff one: then it is the one dropped.
            kept = entered or self._unschedulable.get(key) is record
            self._uncount_rejectors(stale if kept else record)
            self._set_gauges()
        if entered:
            self._wake()

    def _to_active(self, key: str, record: QueuedPodInfo, label: str, *, from_backoff: bool) -> bool:
        """Put a pod in the active queue unless it is gated. PreEnqueue has run before it entered backoff."""
        if not from_backoff:
            self._pre_enqueue.run(record)
            if record.gating_plugin:
                if key not in self._active and key not in self._backoff:
                    self._park(key, record, label)
                return False
        if record.initial_attempt_timestamp is None:
            record.initial_attempt_timestamp = self._clock.now()
        self._unschedulable.remove(key)
        if self._backoff.remove(key) is not None:
            self._backoff_gauge.value = len(self._backoff)
        if self._active.put(key, record):
            self._active_gauge.value = len(self._active)
            self._incoming.inc("active", label)
        if label in (POD_ADD, POD_UPDATE):
            self.nominator.add(record.pod_info.pod)
        return True

    def _to_backoff(self, key: str, record: QueuedPodInfo, label: str) -> bool:
        """Put a pod in a backoff queue unless it is gated."""
        self._pre_enqueue.run(record)
        if record.gating_plugin:
            self._park(key, record, label)
            return False
        self._unschedulable.remove(key)
        if self._backoff.put(key, record):
            self._incoming.inc("backoff", label)
        self._backoff_gauge.value = len(self._backoff)
        return True

    def _park(self, key: str, record: QueuedPodInfo, label: str) -> None:
        if self._unschedulable.put(key, record):
            self._incoming.inc("unschedulable", label)

    def _requeue(self, key: str, record: QueuedPodInfo, strategy: Strategy, label: str) -> bool:
        """Put a pod where the strategy says. True when it can be popped sooner or later without an event."""
        if strategy is Strategy.SKIP:
            self._park(key, record, label)
            return False
        if strategy is Strategy.AFTER_BACKOFF and self._backoff.backing_off(record, self._clock.now()):
            return self._to_backoff(key, record, label)
        return self._to_active(key, record, label, from_backoff=False)

    def _move(
        self,
        pairs: Iterable[tuple[str, QueuedPodInfo]],
        plan: EventPlan,
        old: Any,
        new: Any,
        pre_check: PreCheck | None,
    ) -> None:
        moved = False
        for key, record in pairs:
            if pre_check is not None and not pre_check(record.pod_info.pod):
                continue
            if record.gating_plugin and record.gating_plugin not in plan.plugins:
                continue
            strategy = self._hints.strategy(record, plan, old, new)
            if strategy is Strategy.SKIP:
                continue
            self._unschedulable.remove(key)
            moved |= self._requeue(key, record, strategy, plan.label)
        if moved:
            self._wake()

    def _activate(self, key: str) -> bool:
        record = self._unschedulable.get(key)
        if record is not None:
            return self._to_active(key, record, _FORCE_ACTIVATE, from_backoff=False)
        record = self._backoff.remove(key)
        if record is None:
            return False
        self._backoff_gauge.value = len(self._backoff)
        return self._to_active(key, record, _FORCE_ACTIVATE, from_backoff=True)

    def _mark_in_flight(self, record: QueuedPodInfo) -> bool:
        record.attempts += 1
        if record.unschedulable_plugins or record.pending_plugins:
            self._uncount_rejectors(record)
        if not self._in_flight.add(record.uid, record):
            _log.error(
                "Discarding the popped pod: the same pod is tracked in multiple places in the scheduler: %s", record.key
            )
            return False
        self._scheduling_cycle += 1
        return True

    def _count_rejectors(self, record: QueuedPodInfo, by: int) -> None:
        profile = record.pod_info.pod.spec.scheduler_name
        for plugin in record.unschedulable_plugins | record.pending_plugins:
            self._rejected_by.labels(plugin, profile).value += by

    def _uncount_rejectors(self, record: QueuedPodInfo) -> None:
        self._count_rejectors(record, -1)

    def _set_gauges(self) -> None:
        self._active_gauge.value = len(self._active)
        self._backoff_gauge.value = len(self._backoff)

    def _wake(self) -> None:
        """Let waiters look again. They run after the current operation, so they see all its moves."""
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
