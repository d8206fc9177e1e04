"""Preemption candidates of a PostFilter plugin, node by node, in the form of the golden files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.interface import NodeToStatus
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes.podinfo import PodInfo

from .world import World

__all__ = ["ListsCandidates", "Question", "listed", "lister"]

JSON = dict[str, Any]
#: Arguments of PostFilter: the state after Filter, the pod, and the status of each rejected node.
Question = tuple[CycleState, PodInfo, NodeToStatus]


@runtime_checkable
class ListsCandidates(Protocol):
    """PostFilter plugin that can report its candidates without doing anything.

    The first value maps node name to (victims, most important first; number of violated disruption budgets), for every
    node where preemption helps, without a limit on their number. The second maps node name to the status of each node
    that was tried in vain.
    """

    def list_candidates(
        self, state: CycleState, pod: PodInfo, statuses: NodeToStatus
    ) -> tuple[Mapping[str, tuple[Sequence[PodInfo], int]], Mapping[str, Status]]: ...


def lister(world: World, pod: PodInfo) -> ListsCandidates | None:
    """Return the first PostFilter plugin of the pod's profile that lists its candidates, if any does."""
    framework = world.frameworks[pod.spec.scheduler_name]
    plugins = (framework.plugins[name] for name, _ in framework.points["postFilter"])
    return next((plugin for plugin in plugins if isinstance(plugin, ListsCandidates)), None)


def listed(plugin: ListsCandidates, question: Question) -> dict[str, JSON]:
    """Return the members ``candidates`` and ``rejected`` of a record."""
    candidates, rejected = plugin.list_candidates(*question)
    return {
        "candidates": {
            node: {"victims": [victim.key for victim in victims], "numPDBViolations": violations}
            for node, (victims, violations) in candidates.items()
        },
        "rejected": {
            node: {
                **({"plugin": status.plugin} if status.plugin else {}),
                "code": status.code.label,
                "reasons": sorted(status.reasons()),
            }
            for node, status in rejected.items()
        },
    }
