"""Explainer: answers to every "why" about the pods of one scheduler.

It reads the scheduler's cache and queue, and evaluates with its own plugins; nothing is changed. The scheduler may be
live, part of a simulation, or stand over a cluster that was only read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

from kubesched.api.types import Pod
from kubesched.scheduler.scheduler import Scheduler

from .groups import explain_pending
from .objects import Objects
from .placed import explain_placed
from .preemptions import PreemptionMemory
from .report import Explanation, Pending, Placed, PreemptionReport, QueueState
from .waiting import queue_state
from .workloads import Workloads

__all__ = ["BEST", "Explainer"]

#: Number of nodes in the table of a placed pod.
BEST: Final = 5


class Explainer:
    """Explanations of the pods of one scheduler."""

    def __init__(
        self, scheduler: Scheduler, objects: Objects, *, preemptions: PreemptionMemory | None = None, live: bool = False
    ) -> None:
        """``preemptions`` are those that the scheduler made. ``live``: the scheduler's queue is in use."""
        self._scheduler = scheduler
        self._objects = objects
        self._preemptions = preemptions
        self._live = live

    def explain(
        self,
        pods: Iterable[Pod],
        against: Collection[str] = (),
        on_progress: Callable[[int], None] = lambda done: None,
    ) -> Explanation:
        """Explain pods, those without a node in groups. ``against`` are nodes to compare with."""
        chosen = list(pods)
        keys = {pod.key for pod in chosen}
        return Explanation(
            pending=self.pending([pod for pod in chosen if _is_pending(pod)], on_progress, against),
            placed=[self.placed(pod, against) for pod in chosen if pod.spec.node_name],
            evicted=[one for one in self._preemptions or () if not keys.isdisjoint(one.victims)],
        )

    def pending(
        self,
        pods: Iterable[Pod],
        on_progress: Callable[[int], None] = lambda done: None,
        against: Collection[str] = (),
    ) -> list[Pending]:
        """Explain pods without a node; see :func:`.groups.explain_pending`."""
        state = self.queue_state if self._live else lambda pod: None
        return explain_pending(self._scheduler, self._objects, pods, on_progress, against=against, queue_state=state)

    def placed(self, pod: Pod, against: Collection[str] = (), best: int = BEST) -> Placed:
        """Explain why a pod is on its node; see :func:`.placed.explain_placed`."""
        return explain_placed(self._scheduler, pod, Workloads(self._objects).of(pod), against, best)

    def queue_state(self, pod: Pod) -> QueueState | None:
        """Return where the live scheduler has the pod; None when it does not have it."""
        return queue_state(self._scheduler, pod)

    def evicted(self, key: str) -> list[PreemptionReport]:
        """Return the preemptions that evicted a pod, ``namespace/name``, the newest last."""
        return [one for one in self._preemptions or () if key in one.victims]


def _is_pending(pod: Pod) -> bool:
    return not pod.spec.node_name and pod.status.phase not in ("Succeeded", "Failed")
