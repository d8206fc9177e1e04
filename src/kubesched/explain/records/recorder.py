"""Recorder of decisions: watches every attempt, keeps the newest in a ring, and writes all to a file if there is one.

While the scheduler decides, only an entry of small values is made (:mod:`.entry`). Texts and JSON are made when a record
is read, or in the turns of :meth:`Recorder.run`.

    Recorder() ──▶ Scheduler(observers=[recorder]) ──▶ recorder.attach(scheduler) ──▶ scheduler.start()
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kubesched.scheduler.core.attempt import Attempt
from kubesched.scheduler.core.diagnosis import Rejection
from kubesched.scheduler.core.full_scan import Evaluation
from kubesched.scheduler.core.observer import AttemptObserver
from kubesched.scheduler.core.search import Decision
from kubesched.scheduler.framework.preemption import Preemption
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes.nominating import NominatingInfo

from .entry import Entry
from .preempted import FirstOfSecond, preempted
from .ranked import ranked
from .ring import Ring

if TYPE_CHECKING:
    from kubesched.scheduler.scheduler import Scheduler

    from .file import DecisionFile

__all__ = ["Recorder"]

_log = logging.getLogger("kubesched.decisions")

#: Nodes that are recorded with their scores.
_TOP: Final = 3


class Recorder(AttemptObserver):
    """Recorder of the attempts of one scheduler.

    A defect here ends the recording, with an error in the log, and never an attempt.
    """

    def __init__(self, *, kept: int = 10_000, file: DecisionFile | None = None, top: int = _TOP) -> None:
        """``kept`` is the size of the ring; ``top`` the number of nodes with scores."""
        self.ring = Ring(kept)
        self.file = file
        self._now: Callable[[], float] = lambda: 0.0
        self._top = top
        self._seq = 0
        #: Attempts under way, by the pod's UID.
        self._open: dict[str, Entry] = {}
        self._first = FirstOfSecond()
        self._broken = False

    def attach(self, scheduler: Scheduler) -> None:
        """Begin to record, by the scheduler's clock; into a file also the objects that it reads.

        Call it before the scheduler starts.
        """
        self._now = scheduler.clock.now
        if self.file is not None:
            self.file.attach(scheduler)

    async def run(self) -> None:
        """Write the file from time to time, until cancelled. Nothing to do without a file."""
        if self.file is not None:
            await self.file.run()

    def close(self) -> None:
        """Write the rest of the file."""
        if self.file is not None:
            self.file.close()

    # -- attempts --------------------------------------------------------------------------------------

    def decided(self, attempt: Attempt, outcome: Decision | Rejection) -> None:
        if self._broken:
            return
        try:
            self._decided(attempt, outcome)
        except Exception:
            self._break()

    def _decided(self, attempt: Attempt, outcome: Decision | Rejection) -> None:
        entry = self._begin(attempt)
        search = attempt.profile.search
        table = search.table
        nodes = entry.nodes = len(table)
        entry.path = search.path
        if isinstance(outcome, Decision):
            node, _, evaluated, entry.feasible, basis = outcome
            entry.node, entry.evaluated = node.name, evaluated
            entry.plugins, entry.top, entry.scores, entry.ties = ranked(outcome, table, self._top)
            if isinstance(basis, Evaluation):
                entry.counts = basis.statuses.counts(0)
                if evaluated < nodes:
                    entry.start = search.scan.started
        else:
            entry.evaluated = outcome.all_nodes
            entry.counts = outcome.diagnosis.statuses.counts(outcome.all_nodes)
        if self.file is not None:
            self.file.decided(entry)

    def _begin(self, attempt: Attempt) -> Entry:
        queued = attempt.queued
        meta = queued.pod_info.pod.metadata
        self._seq += 1
        profile = attempt.profile.framework.profile_name
        entry = Entry(self._seq, meta, self._now(), attempt.start, queued.timestamp, queued.attempts, profile)
        self._open[meta.uid] = entry
        return entry

    def preempted(self, preemption: Preemption) -> None:
        entry = self._open.get(preemption.pod.uid)
        if self._broken or entry is None:
            return
        try:
            entry.victims = preempted(preemption, brief=not self._first.take(entry.at))
        except Exception:
            self._break()

    def ended(self, attempt: Attempt, failure: Status | Rejection | None, nominating: NominatingInfo | None) -> None:
        if self._broken:
            return
        try:
            self._ended(attempt, failure, nominating)
        except Exception:
            self._break()

    def _ended(self, attempt: Attempt, failure: Status | Rejection | None, nominating: NominatingInfo | None) -> None:
        entry = self._open.pop(attempt.queued.uid, None)
        if entry is None:
            if failure is None or attempt.node_name:
                return  # the failure was handled before, and its handling failed
            entry = self._begin(attempt)  # the search itself failed
            del self._open[entry.meta.uid]
        entry.ended = self._now()
        if failure is None:
            entry.outcome = "bound"
        else:
            entry.message = failure.message()
            rejected = isinstance(failure, Rejection) or failure.is_rejected
            if not entry.node:
                entry.outcome = "unschedulable" if rejected else "error"
            else:
                entry.outcome, entry.stage = "rejected" if rejected else "error", attempt.stage
            if entry.node or not rejected:
                entry.counts = _of_node(failure)
            pod = attempt.queued.pod_info.pod
            entry.nominated = (
                nominating.nominated_node_name
                if nominating is not None and nominating.mode
                else pod.status.nominated_node_name
            )
        self.ring.add(entry)
        if self.file is not None:
            self.file.ended(entry)

    def _break(self) -> None:
        self._broken = True
        self._open.clear()
        _log.exception("decisions are no longer recorded, because of a defect")
        if self.file is not None:
            self.file.close()


def _of_node(failure: Status | Rejection) -> list[tuple[Status, int]]:
    if isinstance(failure, Rejection):
        return failure.diagnosis.statuses.counts(failure.all_nodes)
    return [(failure, 1)]
