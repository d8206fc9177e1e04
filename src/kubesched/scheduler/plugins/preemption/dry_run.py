"""Dry run of preemption: finds the pods that would have to leave one node (rules/preemption §4.2).

The plain procedure goes node by node through the profile's plugins. First all potential victims leave. Then they come
back one by one in order of importance, if the preemptor still fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final

from ...framework.cycle_state import CycleState
from ...framework.failures import PluginFailedError
from ...framework.interface import Handle, ProfileView
from ...framework.preemption import Victims
from ...framework.status import Status
from ...nodes.nodeinfo import NodeInfo
from ...nodes.nominating import nominations_that_count
from ...nodes.podinfo import PodInfo
from ...nodes.snapshot import Snapshot, WhatIf
from .budgets import Budgets

__all__ = ["NO_VICTIMS", "DryRun", "Importance", "PotentialVictims", "victims_of"]

NO_VICTIMS: Final = Status.unresolvable("No preemption victims found for incoming pod")

#: Returns the pods of a node that may be victims, given (preemptor, node).
PotentialVictims = Callable[[PodInfo, NodeInfo], list[PodInfo]]
#: Returns a victim's sort key, the most important first, given (pod, now in seconds).
Importance = Callable[[PodInfo, float], tuple[float, ...]]


class DryRun:
    """Dry runs of preemption for one pod."""

    def __init__(
        self,
        handle: Handle,
        state: CycleState,
        pod: PodInfo,
        budgets: Budgets,
        potential_victims: PotentialVictims,
        importance: Importance,
    ) -> None:
        self._handle = handle
        self._state = state
        self._pod = pod
        self.budgets = budgets
        self._potential_victims = potential_victims
        self._importance = importance
        self._now = handle.clock.now()

    def potential_victims(self, node: NodeInfo) -> list[PodInfo]:
        """Return the node's pods that may be victims, being deleted or not."""
        return self._potential_victims(self._pod, node)

    def node(self, node: NodeInfo) -> Victims | Status:
        """Return the victims, perhaps none. If removing pods does not help, return the reason as a status; it is an
        Error if a plugin fails.
        """
        potential = self.potential_victims(node)
        if not potential:
            return NO_VICTIMS
        try:
            return self._select(node, potential)
        except PluginFailedError as failure:
            return Status.from_error(failure.error, failure.plugin)

    def _select(self, node: NodeInfo, potential: list[PodInfo]) -> Victims | Status:
        handle, pod = self._handle, self._pod
        nominated = nominations_that_count(handle.nominations.nominated_pods_for_node(node.name), pod)

        def groups() -> Sequence[list[PodInfo]]:
            potential.sort(key=self.rank)
            return self.budgets.split(potential)

        found = victims_of(
            handle.framework,
            handle.snapshot,
            self._state,
            pod,
            node,
            nominated,
            [(node, one) for one in potential],
            groups,
        )
        if isinstance(found, Status):
            return found
        violating, others = found
        victims = [*violating, *others]
        if violating and others:
            victims.sort(key=self.rank)
        return Victims(tuple(victims), len(violating))

    def helps(self, node: NodeInfo, victims: Victims) -> bool:
        """True if at least one of these victims is still on the node, and the pod fits when they have left.

        Raises:
            PluginFailedError: when a plugin fails.
        """
        handle, pod, state = self._handle, self._pod, self._state.clone()
        there = [node.pods[victim.uid] for victim in victims.pods if victim.uid in node.pods]
        nominated = nominations_that_count(handle.nominations.nominated_pods_for_node(node.name), pod)
        with handle.snapshot.what_if(node) as trial:
            for victim in there:
                trial.remove(victim)
                handle.framework.remove_pod(state, pod, victim, node)
            status = handle.framework.filter_with_nominated(state, pod, handle.snapshot, node, nominated)
        return bool(there) and status is None

    def rank(self, pod: PodInfo) -> tuple[float, ...]:
        """Sort key of a victim."""
        return self._importance(pod, self._now)


def victims_of(
    framework: ProfileView,
    snapshot: Snapshot,
    state: CycleState,
    pod: PodInfo,
    node: NodeInfo,
    nominated: Sequence[PodInfo],
    potential: Sequence[tuple[NodeInfo, PodInfo]],
    groups: Callable[[], Sequence[Sequence[PodInfo]]],
) -> list[list[PodInfo]] | Status:
    """Find the pods that have to go before a pod fits a node, by group; or the reason why it does not help that all go.

    Args:
        framework, snapshot: the profile, and the cluster.
        state: the attempt's state after PreFilter. It is not changed.
        pod: the pod that is to fit.
        node: the node where it is to fit.
        nominated: the nominated pods that count there.
        potential: the pods that may go, each with its node.
        groups: returns these pods in the order in which they come back; called when it helps that all go.

    Raises:
        PluginFailedError: when a plugin fails.
    """
    state = state.clone()
    home = {one.uid: at for at, one in potential}
    trials: dict[int, WhatIf] = {}
    with ExitStack() as stack:
        for at, one in potential:
            trial = trials.get(at.row)
            if trial is None:
                trial = trials[at.row] = stack.enter_context(snapshot.what_if(at))
            trial.remove(one)
            framework.remove_pod(state, pod, one, at)
        status = framework.filter_with_nominated(state, pod, snapshot, node, nominated)
        if status is not None:
            return status
        found: list[list[PodInfo]] = []
        for group in groups():
            victims: list[PodInfo] = []
            for one in group:
                at = home[one.uid]
                trials[at.row].add(one)
                framework.add_pod(state, pod, one, at)
                if framework.filter_with_nominated(state, pod, snapshot, node, nominated) is None:
                    continue
                trials[at.row].remove(one)
                framework.remove_pod(state, pod, one, at)
                victims.append(one)
            found.append(victims)
    return found
