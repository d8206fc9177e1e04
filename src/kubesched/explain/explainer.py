"""Explainer: answers to every "why" about the pods of one scheduler.

It reads the scheduler's cache and queue, and evaluates with its own plugins; nothing is changed. The scheduler may be
live, part of a simulation, or stand over a cluster that was only read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

import msgspec

from kubesched.api.groups import group_key
from kubesched.api.types import Pod
from kubesched.base.turns import Steps, finish
from kubesched.scheduler.scheduler import Scheduler

from .groups import explaining_pending
from .objects import Objects
from .placed import explain_placed
from .pod_groups import GroupExplainer
from .preemptions import PreemptionMemory
from .quotas import finding_not_created
from .records.ring import Ring
from .report import Explanation, NotCreated, Pending, Placed, PreemptionReport
from .waiting import queue_state
from .workloads import Workloads

__all__ = ["BEST", "Explainer"]

#: Number of nodes in the table of a placed pod.
BEST: Final = 5


class Explainer:
    """Explanations of the pods of one scheduler."""

    def __init__(
        self,
        scheduler: Scheduler,
        objects: Objects,
        *,
        preemptions: PreemptionMemory | None = None,
        decisions: Ring | None = None,
        live: bool = False,
    ) -> None:
        """``preemptions`` and ``decisions`` are those that the scheduler made. ``live``: its queue is in use."""
        self._scheduler = scheduler
        self._objects = objects
        self._preemptions = preemptions
        self._decisions = decisions
        self._live = live
        self.groups = GroupExplainer(scheduler)

    def explain(
        self,
        pods: Iterable[Pod],
        against: Collection[str] = (),
        on_progress: Callable[[int], None] = lambda done: None,
        **how: Any,
    ) -> Explanation:
        """Explain pods, those without a node in groups. ``against`` are nodes to compare with.

        ``how``: see :meth:`explaining`.
        """
        return finish(self.explaining(pods, against, on_progress, **how))

    def explaining(
        self,
        pods: Iterable[Pod],
        against: Collection[str] = (),
        on_progress: Callable[[int], None] = lambda done: None,
        *,
        groups: Iterable[str] = (),
        as_groups: bool = False,
    ) -> Steps[Explanation]:
        """Do the work of :meth:`explain` in steps, between which the cluster may change.

        The pod groups of the pods are explained, too, and the further ``groups``, as ``namespace/name``. ``as_groups``:
        their members are not explained one by one.
        """
        chosen = list(pods)
        keys = {pod.key for pod in chosen}
        waiting = [pod for pod in chosen if not pod.spec.node_name and pod.status.phase not in ("Succeeded", "Failed")]
        in_question = sorted({*groups, *self.groups.of(waiting if as_groups else chosen)})
        pod_groups = yield from self.groups.explaining(in_question)
        if as_groups:
            whole = set(in_question)
            waiting = [pod for pod in waiting if group_key(pod) not in whole]
        pending = yield from self._pending(waiting, on_progress, against)
        placed = []
        for pod in chosen:
            if pod.spec.node_name:
                placed.append(self.placed(pod, against))
                yield
        evicted = [one for one in self._preemptions or () if not keys.isdisjoint(one.victims)]
        return Explanation(pod_groups=pod_groups, pending=pending, placed=placed, evicted=evicted)

    def pending(self, pods: Iterable[Pod], on_progress: Callable[[int], None] = lambda done: None) -> list[Pending]:
        """Explain pods without a node; see :func:`.groups.explaining_pending`."""
        return finish(self._pending(pods, on_progress, ()))

    def _pending(
        self, pods: Iterable[Pod], on_progress: Callable[[int], None], against: Collection[str]
    ) -> Steps[list[Pending]]:
        state = (lambda pod: queue_state(self._scheduler, pod)) if self._live else lambda pod: None
        return explaining_pending(self._scheduler, self._objects, pods, on_progress, against=against, queue_state=state)

    def not_created(
        self, pods: Iterable[Pod], namespace: str | None = None, names: Collection[str] = ()
    ) -> list[NotCreated]:
        """Explain workloads that lack pods because of quotas, all or those with these names, ``namespace/name``.

        ``pods`` are all pods. See :func:`.quotas.finding_not_created`.
        """
        return finish(self.finding_not_created(pods, namespace, names))

    def finding_not_created(
        self, pods: Iterable[Pod], namespace: str | None = None, names: Collection[str] = ()
    ) -> Steps[list[NotCreated]]:
        """Do the work of :meth:`not_created` in steps."""
        return finding_not_created(self._scheduler, self._objects, pods, namespace, names)

    def evictions_of(self, key: str) -> list[PreemptionReport]:
        """Return the preemptions that evicted a pod, ``namespace/name``, the newest last."""
        return [one for one in self._preemptions or () if key in one.victims]

    def placed(self, pod: Pod, against: Collection[str] = (), best: int = BEST) -> Placed:
        """Explain why a pod is on its node; see :func:`.placed.explain_placed`."""
        found = explain_placed(self._scheduler, pod, Workloads(self._objects).of(pod), against, best)
        decision = self._decisions.last(pod.uid) if self._decisions is not None else None
        return found if decision is None else msgspec.structs.replace(found, decision=decision)
