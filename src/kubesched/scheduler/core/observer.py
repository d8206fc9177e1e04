"""Observer of attempts: reports, records and logs see each pod being tried, without a part in the decision.

Callers: :mod:`.cycle`, :mod:`.binding` and :mod:`.failure`. Observers are passed to
:class:`~kubesched.scheduler.scheduler.Scheduler`.
"""

from __future__ import annotations

from ..framework.preemption import Preemption
from ..framework.queued import QueuedPodInfo
from ..framework.status import Status
from ..nodes.nominating import NominatingInfo
from .attempt import Attempt
from .diagnosis import Rejection
from .search import Decision

__all__ = ["AttemptObserver"]


class AttemptObserver:
    """Observer that does nothing; override what is needed. A method must be quick, change nothing and raise nothing."""

    def attempted(self, queued: QueuedPodInfo) -> None:
        """Take a pod that was popped. Its attempt may end at once, for example because the pod is being deleted."""

    def decided(self, attempt: Attempt, outcome: Decision | Rejection) -> None:
        """Take the answer of the search. Cache, layers and nominations are as they were when it decided."""

    def preempted(self, preemption: Preemption) -> None:
        """Take a successful preemption, within its attempt and before the attempt ends."""

    def ended(self, attempt: Attempt, failure: Status | Rejection | None, nominating: NominatingInfo | None) -> None:
        """Take the end of an attempt: None if the pod is bound, else the reason.

        ``nominating`` is the change of the pod's nomination; None leaves it as it is. A failure may be reported twice
        if the handling of it fails.
        """
