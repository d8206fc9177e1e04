"""Victims of a pod group: units of pods whose eviction makes room for the group as a whole.

A unit is a single pod, or a whole group whose disruption mode says so. All units of lower priority are taken off their
nodes and the group is tried. If it fits, the units come back one by one, the most important first; a unit without which
alone the group fits is a victim. Units that are being deleted already leave in any case.

Source: rules/groups §15.3 to §15.6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kubesched.api.groups import MODE_POD_GROUP, PodGroup
from kubesched.api.tombstone import DeletedFinalStateUnknown

from ...framework.status import Status
from ...nodes import NodeTable
from ...nodes.pod_groups import group_key
from ...nodes.podinfo import PodInfo
from ...nodes.removal import Removal
from .budgets import Budgets
from .importance import start_of

__all__ = ["Unit", "WholeGroups", "select_victims", "units"]

#: Function that tries the group as things are. It returns None if the group fits.
Simulate = Callable[[], Awaitable[Status | None]]

_NEVER: Final = "not eligible due to preemptionPolicy=Never."
_NOBODY: Final = "No preemption victims found for incoming preemptor"


@dataclass(slots=True, eq=False)
class Unit:
    """Pods that are evicted together."""

    priority: int
    pods: list[PodInfo] = field(default_factory=list)

    @property
    def is_leaving(self) -> bool:
        """True if all pods are being deleted already."""
        return all(pod.metadata.deletion_timestamp is not None for pod in self.pods)

    def rank(self, now: float) -> tuple[float, ...]:
        """Return the sort key; the most important unit has the smallest."""
        first = self.pods[0]
        in_group = first.spec.scheduling_group is not None
        return -self.priority, not in_group, -len(self.pods) if in_group else 0, start_of(first, now)


class WholeGroups:
    """Priorities of the PodGroup objects whose members are evicted together; a handler of their changes."""

    def __init__(self) -> None:
        self._priority: dict[str, int] = {}
        self._number: Counter[int] = Counter()

    def has_below(self, priority: int) -> bool:
        """Return True if any of the groups has a lower priority."""
        return any(one < priority for one in self._number)

    def on_add(self, obj: PodGroup, is_initial: bool) -> None:
        self._put(obj)

    def on_update(self, old: PodGroup, new: PodGroup) -> None:
        self._put(new)

    def on_delete(self, obj: Any) -> None:
        self._drop(obj.key if isinstance(obj, DeletedFinalStateUnknown) else _key(obj))

    def _put(self, group: PodGroup) -> None:
        self._drop(_key(group))
        if group.spec.disruption_mode == MODE_POD_GROUP:
            self._priority[_key(group)] = group.priority
            self._number[group.priority] += 1

    def _drop(self, key: str) -> None:
        priority = self._priority.pop(key, None)
        if priority is not None:
            self._number[priority] -= 1
            if not self._number[priority]:
                del self._number[priority]


def _key(group: PodGroup) -> str:
    return f"{group.metadata.namespace}/{group.metadata.name}"


def units(table: NodeTable, groups: Mapping[str, PodGroup], own: str) -> list[Unit]:
    """Return the units of all pods on nodes, but those of the group ``own``.

    ``groups`` are the PodGroup objects by ``namespace/name``.
    """
    found: list[Unit] = []
    together: dict[str, Unit] = {}
    for row in table.order().tolist():
        for pod in table.info(row).pods.values():
            key = group_key(pod.pod) if pod.spec.scheduling_group is not None else ""
            if key and key == own:
                continue
            group = groups.get(key) if key else None
            if group is None or group.spec.disruption_mode != MODE_POD_GROUP:
                found.append(Unit(pod.priority, [pod]))
                continue
            unit = together.get(key)
            if unit is None:
                unit = together[key] = Unit(group.spec.priority or 0)
                found.append(unit)
            unit.pods.append(pod)
    return found


async def select_victims(
    table: NodeTable,
    found: Iterable[Unit],
    pods: Sequence[PodInfo],
    priority: int,
    budgets: Budgets,
    now: float,
    simulate: Simulate,
) -> tuple[Status | None, list[PodInfo]]:
    """Return why no evictions help (None if they do), and the victims, the most important first.

    ``found`` are all units; ``pods`` are the group's members that need a node, ``priority`` is the group's.
    """
    if any(pod.spec.preemption_policy == "Never" for pod in pods):
        return Status.unschedulable(_NEVER), []
    potential = [unit for unit in found if unit.priority < priority]
    if not potential:
        return Status.unresolvable(_NOBODY), []
    removal = Removal(table)
    try:
        for unit in potential:
            for pod in unit.pods:
                removal.take(pod)
        status = await simulate()
        if status is not None:
            return status, []
        potential.sort(key=lambda unit: unit.rank(now))
        victims = [unit for unit in potential if unit.is_leaving]
        staying = [unit for unit in potential if not unit.is_leaving]
        for unit in _by_budget(staying, budgets):
            for pod in unit.pods:
                removal.put(pod)
            if await simulate() is not None:
                for pod in unit.pods:
                    removal.take(pod)
                victims.append(unit)
    finally:
        removal.undo()
    victims.sort(key=lambda unit: unit.rank(now))
    return None, [pod for unit in victims for pod in unit.pods]


def _by_budget(ordered: Sequence[Unit], budgets: Budgets) -> list[Unit]:
    """Return the units whose eviction violates a budget, and then the others; each in the given order."""
    violating: list[Unit] = []
    others: list[Unit] = []
    used = budgets.counting()
    for unit in ordered:
        (violating if any(used.violates(pod) for pod in unit.pods) else others).append(unit)
    return violating + others
