"""Members of pod groups, by what has become of them: waiting for a node, assumed on one, or bound.

The cache holds one :class:`PodGroupStates` while the gate GenericWorkload is on. Handlers and the cache keep it
current; the group cycle and the plugins for groups read it. A trial assumes its members here, too, so what a plugin
reads during a trial is the trial's state.

Source: rules/groups §7 (upstream ``podgroupstate``).
"""

from __future__ import annotations

from collections.abc import Iterator

from kubesched.api.groups import group_key
from kubesched.api.types import Pod

__all__ = ["PodGroupState", "PodGroupStates", "group_key"]


class PodGroupState:
    """Members of one pod group, by UID, in the order in which they came.

    Attributes:
        all: every member that is known, as the API server last showed it.
        unscheduled: members without a node, in fact or in a trial.
        assumed: the scheduler's copies, with their node, of members that are assumed on one.
        assigned: members that the API server shows on a node.
    """

    __slots__ = ("all", "assigned", "assumed", "unscheduled")

    def __init__(self) -> None:
        self.all: dict[str, Pod] = {}
        self.unscheduled: dict[str, Pod] = {}
        self.assumed: dict[str, Pod] = {}
        self.assigned: dict[str, Pod] = {}

    @property
    def scheduled(self) -> int:
        """Number of members that have a node: assumed ones and assigned ones."""
        return len(self.assumed) + len(self.assigned)

    def scheduled_pods(self) -> Iterator[Pod]:
        """Yield the members that have a node: assigned ones first."""
        yield from self.assigned.values()
        yield from self.assumed.values()

    def _put(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        self.all[uid] = pod
        if pod.spec.node_name:
            self.unscheduled.pop(uid, None)
            self.assumed.pop(uid, None)
            self.assigned[uid] = pod
        elif uid not in self.assumed:
            self.unscheduled[uid] = pod


class PodGroupStates:
    """States of all pod groups with a known member, by ``namespace/name``.

    Methods ignore pods that belong to no group.
    """

    __slots__ = ("_states",)

    def __init__(self) -> None:
        self._states: dict[str, PodGroupState] = {}

    def get(self, key: str) -> PodGroupState | None:
        """Return a group's state; None if no member is known."""
        return self._states.get(key)

    def of(self, pod: Pod) -> PodGroupState | None:
        """Return the state of a pod's group, or None."""
        return self._states.get(group_key(pod))

    def put(self, pod: Pod) -> None:
        """Take in a member as the API server shows it. A node there is final; a member assumed on one stays assumed."""
        key = group_key(pod)
        if key:
            state = self._states.get(key)
            if state is None:
                state = self._states[key] = PodGroupState()
            state._put(pod)

    def remove(self, pod: Pod) -> None:
        """Drop a member that was deleted; nothing happens if it is unknown. A group without members is dropped."""
        key = group_key(pod)
        state = self._states.get(key)
        if state is None:
            return
        uid = pod.metadata.uid
        for pods in (state.all, state.unscheduled, state.assumed, state.assigned):
            pods.pop(uid, None)
        if not state.all:
            del self._states[key]

    def assume(self, pod: Pod) -> None:
        """Count a member as assumed on its ``spec.nodeName``; nothing happens if it is unknown or has a node already."""
        state, uid = self.of(pod), pod.metadata.uid
        if state is not None and state.unscheduled.pop(uid, None) is not None:
            state.assumed[uid] = pod

    def forget(self, pod: Pod) -> None:
        """Undo :meth:`assume`; nothing happens if the member is not assumed."""
        state, uid = self.of(pod), pod.metadata.uid
        if state is not None and state.assumed.pop(uid, None) is not None:
            state.unscheduled[uid] = state.all[uid]

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[str]:
        return iter(self._states)

    def check(self) -> list[str]:
        """Return the inconsistencies as texts."""
        problems = []
        for key, state in self._states.items():
            parts = [*state.unscheduled, *state.assumed, *state.assigned]
            if sorted(parts) != sorted(state.all):
                problems.append(f"pod group {key}: the members do not have exactly one state each")
            problems += [
                f"pod group {key}: {pod.key} is elsewhere" for pod in state.all.values() if group_key(pod) != key
            ]
        return problems
