"""Fleet: the nodes of groups over a run, from order to end, with their hours and their cost.

Times are virtual seconds since the start. A node costs from its order to its end. Caller: :mod:`.autoscaler`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from kubesched.api.kinds import NODES
from kubesched.api.types import Node
from kubesched.cluster.files import Manifest
from kubesched.cluster.schema import Stored

from ...node_groups import NodeGroup
from ..results.result import GroupUse, Series

__all__ = ["Fleet", "Machine"]


@dataclass(slots=True, eq=False)
class Machine:
    """Node of a group: ordered, ready, and gone; ``math.inf`` for what has not happened."""

    name: str
    group: int
    ordered: float
    ready: float
    #: Object to be stored when it is ready, and the same as the scheduler would see it; None once it is there.
    coming: tuple[Manifest, Node] | None = None
    gone: float = math.inf
    interrupted: bool = False


@dataclass(slots=True)
class Fleet:
    """Machines of all groups. ``clock`` returns the time.

    Attributes:
        machines: all that were ever there, in the order of their orders.
        alive: those that are ordered and not gone, by name.
        counts: their number by group.
        numbers: the number in the name of each group's next node.
    """

    groups: Sequence[NodeGroup]
    clock: Callable[[], float]
    machines: list[Machine] = field(default_factory=list)
    alive: dict[str, Machine] = field(default_factory=dict)
    counts: list[int] = field(init=False)
    numbers: list[int] = field(init=False)
    peaks: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.counts, self.numbers, self.peaks = ([0] * len(self.groups) for _ in range(3))

    def add(self, machine: Machine) -> None:
        """Note a machine that was ordered, or a node that is there."""
        self.machines.append(machine)
        self.alive[machine.name] = machine
        self.counts[machine.group] += 1
        self.peaks[machine.group] = max(self.peaks[machine.group], self.counts[machine.group])

    def changed(self, item: Stored | None, old: Stored | None) -> Machine | None:
        """Note a change in the store. Returns the machine that is ready now, or gone."""
        stored = item if item is not None else old
        if stored is None or stored.kind is not NODES:
            return None
        machine = self.alive.get(stored.name)
        if item is None:
            if machine is not None:
                machine.gone = self.clock()
                del self.alive[machine.name]
                self.counts[machine.group] -= 1
            return machine
        if machine is not None:
            if machine.coming is None:
                return None
            machine.coming, machine.ready = None, self.clock()
            return machine
        labels = item.typed.labels
        group = next((index for index, one in enumerate(self.groups) if one.has(labels)), None)
        if group is None:
            return None
        machine = Machine(stored.name, group, self.clock(), self.clock())
        self.add(machine)
        prefix, _, number = stored.name.rpartition("-")
        if prefix == self.groups[group].name and number.isdecimal():
            self.numbers[group] = max(self.numbers[group], int(number) + 1)
        return machine

    def coming(self) -> list[Machine]:
        """Return the machines that are ordered and not ready, the first to be ready first."""
        return sorted((one for one in self.alive.values() if one.coming is not None), key=lambda one: one.ready)

    def room(self, group: int, amounts: Sequence[dict[str, int]], limits: Sequence[dict[str, int]]) -> int:
        """Return how many more nodes a group may have: by its maximum, and by the limits of its pool."""
        one = self.groups[group]
        room = one.maximum - self.counts[group]
        for resource, most in limits[group].items():
            each = amounts[group].get(resource, 0)
            used = sum(
                self.counts[other] * amounts[other].get(resource, 0)
                for other, its in enumerate(self.groups)
                if other == group or (one.pool and its.pool == one.pool)
            )
            if each:
                room = min(room, (most - used) // each)
        return max(0, room)

    # -- figures ---------------------------------------------------------------------------------------

    def uses(self, end: float) -> list[GroupUse]:
        """Return the figures of each group; ``end`` is the end of the run."""
        found = []
        for index, group in enumerate(self.groups):
            own = [one for one in self.machines if one.group == index]
            hours = sum(max(0.0, min(one.gone, end) - one.ordered) for one in own) / 3600
            found.append(
                GroupUse(
                    name=group.name,
                    price=group.price,
                    minimum=group.minimum,
                    maximum=group.maximum,
                    nodes=self.counts[index],
                    peak=self.peaks[index],
                    added=sum(one.ordered > 0 for one in own),
                    removed=sum(one.gone < math.inf and not one.interrupted for one in own),
                    interrupted=sum(one.interrupted for one in own),
                    node_hours=round(hours, 6),
                    cost=round(hours * group.price, 6),
                )
            )
        return found

    def over(self, series: Series) -> tuple[dict[str, list[int]], list[float]]:
        """Return, at the moments of a series, the number of nodes by group, and the cost so far."""
        times = np.array(series.times, np.float64)
        nodes: dict[str, list[int]] = {}
        cost = np.zeros(len(times))
        for index, group in enumerate(self.groups):
            own = [one for one in self.machines if one.group == index]
            begun, ended = _sorted(one.ordered for one in own), _sorted(one.gone for one in own)
            up, down = np.searchsorted(begun, times, "right"), np.searchsorted(ended, times, "right")
            nodes[group.name] = (up - down).tolist()
            finite = ended[np.isfinite(ended)]
            seconds = up * times - _sums(begun)[up] - (down * times - _sums(finite)[down])
            cost += seconds / 3600 * group.price
        return nodes, [round(one, 6) for one in cost.tolist()]


def _sorted(times: Iterable[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.sort(np.array(list(times), np.float64))


def _sums(times: np.ndarray[tuple[int], np.dtype[np.float64]]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.concatenate(([0.0], np.cumsum(times)))
