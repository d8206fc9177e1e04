"""GangScheduling: place a gang only as a whole (PreEnqueue, Permit).

PreEnqueue holds members until ``minCount`` of them exist. Permit makes a member wait until ``minCount`` members have a
node; the group cycle reads that answer as "no quorum yet". Source: rules/groups §13.1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from ..framework.cycle_state import CycleState
from ..framework.events import ActionType, ClusterEvent, ClusterEventWithHint, EventResource, KeyedHint, QueueingHint
from ..framework.interface import Plugin
from ..framework.status import Status
from ..nodes.pod_groups import PodGroupState, group_key
from ..nodes.podinfo import PodInfo

__all__ = ["GangScheduling"]

#: Seconds that Permit holds a member for the rest of its gang.
_WAIT_SECONDS: Final = 5 * 60.0


class GangScheduling(Plugin):
    """Gate before the queue and before binding: a gang gets nodes for ``minCount`` members, or for none."""

    name = "GangScheduling"
    informs = ("podgroups",)
    #: Permit has nothing to do for pods that belong to no group.
    for_groups = True

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        key = group_key(pod.pod)
        if not key:
            return None
        group = self.handle.informed("podgroups").get(key)
        if group is None:
            name = key.partition("/")[2]
            return Status.unresolvable(f'waiting for pods\'s pod group "{name}" to appear in scheduling queue')
        gang = group.spec.scheduling_policy.gang
        if gang is None:
            return None
        members = self._state(key)
        if isinstance(members, Status):
            return members
        if len(members.all) < gang.min_count:
            return Status.unresolvable("waiting for minCount pods from a gang to appear in scheduling queue")
        return None

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | tuple[Status | None, float] | None:
        key = group_key(pod.pod)
        if not key:
            return None
        group = self.handle.informed("podgroups").get(key)
        if group is None:
            name = key.partition("/")[2]
            return Status.from_error(f'failed to get podGroup {key}: podgroup.scheduling.k8s.io "{name}" not found')
        gang = group.spec.scheduling_policy.gang
        if gang is None:
            return None
        members = self._state(key)
        if isinstance(members, Status):
            return members
        if members.scheduled < gang.min_count:
            return Status.wait("waiting for minCount pods from a gang to be scheduled"), _WAIT_SECONDS
        if state.group is None:
            self._allow(members)
        return None

    def _state(self, key: str) -> PodGroupState | Status:
        groups = self.handle.pod_groups
        state = groups.get(key) if groups is not None else None
        return state if state is not None else Status.from_error(f"pod group state not found for pod group {key}")

    def _allow(self, members: PodGroupState) -> None:
        """Let the members go that wait for the quorum."""
        waiting = self.handle.waiting_pods
        if not len(waiting):
            return
        for uid in members.assumed:
            if (pod := waiting.get(uid)) is not None:
                pod.allow(self.name)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return [
            ClusterEventWithHint(
                ClusterEvent(EventResource.POD, ActionType.ADD),
                KeyedHint(_after_pod_add, _group_of, self._completed_by),
            ),
            ClusterEventWithHint(
                ClusterEvent(EventResource.POD_GROUP, ActionType.ADD),
                KeyedHint(_after_group_add, _group_of, _key_of_added),
            ),
        ]

    def _completed_by(self, old: Any, new: Any) -> Collection[str] | None:
        """Return the group of an added pod, if its members may pass PreEnqueue now: until then none is asked again."""
        key = group_key(new) if new is not None else ""
        group = self.handle.informed("podgroups").get(key) if key else None
        if group is None:
            return ()
        gang, members = group.spec.scheduling_policy.gang, self._state(key)
        is_short = gang is not None and not isinstance(members, Status) and len(members.all) < gang.min_count
        return () if is_short else (key,)


def _group_of(pod: PodInfo) -> Iterable[str]:
    key = group_key(pod.pod)
    return (key,) if key else ()


def _key_of_added(old: Any, new: Any) -> Collection[str] | None:
    return () if new is None else (f"{new.metadata.namespace}/{new.metadata.name}",)


def _after_pod_add(pod: PodInfo, old: Any, new: Any) -> QueueingHint:
    key = group_key(pod.pod)
    return QueueingHint.QUEUE if key and new is not None and key == group_key(new) else QueueingHint.SKIP


def _after_group_add(pod: PodInfo, old: Any, new: Any) -> QueueingHint:
    key = group_key(pod.pod)
    is_own = new is not None and key == f"{new.metadata.namespace}/{new.metadata.name}"
    return QueueingHint.QUEUE if key and is_own else QueueingHint.SKIP
