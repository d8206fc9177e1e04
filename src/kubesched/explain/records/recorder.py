"""Recorder of decisions: watches every attempt, keeps the newest in a ring, and writes all to a file if there is one.

While the scheduler decides, only an entry is made (:mod:`.entry`). JSON is made when a record is read, or in the turns of
:meth:`Recorder.run`.

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

from .entry import Entry, verdicts_of
from .preempted import FirstOfSecond, preempted
from .ranked import ranked
from .ring import Ring
from .schema import PLUGINS, Ended, Tried, Verdict

if TYPE_CHECKING:
    from kubesched.scheduler.scheduler import Scheduler

    from .file import DecisionFile

__all__ = ["Recorder"]

_log = logging.getLogger("kubesched.decisions")

#: Nodes that are recorded with their scores.
_TOP: Final = 2


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
        self._numbers: dict[tuple[str, ...], int] = {(): 0}
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
            if isinstance(outcome, Decision):
                entry = self._begin(attempt, outcome.evaluated, outcome.feasible, outcome)
            else:
                entry = self._begin(attempt, outcome.all_nodes, 0)
                entry.verdicts = verdicts_of(outcome.diagnosis.statuses.counts(outcome.all_nodes))
            if self.file is not None:
                self.file.decided(entry)
        except Exception:
            self._break()

    def _begin(self, attempt: Attempt, evaluated: int, feasible: int, decision: Decision | None = None) -> Entry:
        """Begin the entry of an attempt."""
        queued, start, now, search = attempt.queued, attempt.start, self._now(), attempt.profile.search
        meta, nodes = queued.pod_info.pod.metadata, len(search.table)
        names, top, ties = ranked(decision, search.table, self._top) if decision is not None else ((), (), 0)
        number = self._numbers.get(names)
        self._seq += 1
        row = Tried(
            attempt.profile.framework.profile_name,
            queued.attempts,
            search.path.value,
            nodes,
            evaluated,
            feasible,
            None,
            number if number is not None else self._number(names),
            self._seq,
            now,
            meta.namespace,
            meta.name,
            meta.uid,
            meta.resource_version,
            int((start - queued.timestamp) * 1e6 + 0.5),
            int((now - start) * 1e6 + 0.5),
            ties,
            top,
        )
        if decision is not None and isinstance(decision.basis, Evaluation):
            row.verdicts = verdicts_of(decision.basis.statuses.counts(0))
            if evaluated < nodes:
                row.start = search.scan.started
        entry = self._open[meta.uid] = Entry(row, names)
        return entry

    def _number(self, names: tuple[str, ...]) -> int:
        """Return a new number for a list of plugins; numbers are used again."""
        if len(self._numbers) > PLUGINS:
            self._numbers = {(): 0}
        number = self._numbers[names] = len(self._numbers)
        return number

    def preempted(self, preemption: Preemption) -> None:
        entry = self._open.get(preemption.pod.uid)
        if self._broken or entry is None:
            return
        try:
            entry.victims = preempted(preemption, brief=not self._first.take(entry.row.at))
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
            entry = self._begin(attempt, 0, 0)  # the search itself failed
            entry.row.path = ""
            del self._open[entry.row.uid]
        row = entry.row
        binding = int((self._now() - row.at) * 1e6 + 0.5)
        if failure is None:
            row.bound = binding
        else:
            rejected, has_node = isinstance(failure, Rejection) or failure.is_rejected, bool(row.top)
            outcome = ("rejected" if has_node else "unschedulable") if rejected else "error"
            stage = attempt.stage if has_node else ""
            verdicts = _of_node(failure) if has_node or not rejected else entry.verdicts
            nominated = (
                nominating.nominated_node_name
                if nominating is not None and nominating.mode
                else attempt.queued.pod_info.pod.status.nominated_node_name
            )
            entry.finish(Ended(row.seq, binding, outcome, stage, failure.message(), verdicts, entry.victims, nominated))
        self.ring.add(entry)
        if self.file is not None:
            self.file.ended(entry)

    def _break(self) -> None:
        self._broken = True
        self._open.clear()
        _log.exception("decisions are no longer recorded, because of a defect")
        if self.file is not None:
            self.file.close()


def _of_node(failure: Status | Rejection) -> list[Verdict]:
    if isinstance(failure, Rejection):
        return verdicts_of(failure.diagnosis.statuses.counts(failure.all_nodes))
    return verdicts_of([(failure, 1)])
