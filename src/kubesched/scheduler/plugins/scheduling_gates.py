"""SchedulingGates: keep a pod out of the queue while it has scheduling gates (PreEnqueue)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..framework.events import ActionType, ClusterEvent, ClusterEventWithHint, EventResource, QueueingHint
from ..framework.interface import Plugin
from ..framework.status import Status
from ..nodes.podinfo import PodInfo

__all__ = ["SchedulingGates"]


class SchedulingGates(Plugin):
    """Gate before the queue: a gated pod waits until its last gate is removed."""

    name = "SchedulingGates"

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        gates = pod.spec.scheduling_gates
        if not gates:
            return None
        return Status.unresolvable(f"waiting for scheduling gates: [{' '.join(gate.name for gate in gates)}]")

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        event = ClusterEvent(EventResource.POD, ActionType.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
        return [ClusterEventWithHint(event, self._after_pod_update)]

    def _after_pod_update(self, pod: PodInfo, old: Any, new: Any) -> QueueingHint:
        return QueueingHint.QUEUE if new is not None and new.uid == pod.uid else QueueingHint.SKIP
