"""Supply of a pool: the devices that the wants of a demand can get from it in its current state."""

from __future__ import annotations

from collections.abc import Hashable

from .pools import InUse, Pool
from .wanted import Problem, Service, Want, Wanted

__all__ = ["Candidate", "Supply"]

#: Device that a want may get, by its place in the pool. If the selection is an error, it has a problem.
Candidate = tuple[int, Problem | None]


class Supply:
    """Pool with the services of its devices, and its use. ``before`` is the supply for an earlier use of the pool."""

    __slots__ = ("_candidates", "_numbers", "_wanted", "in_use", "number", "pool", "services")

    def __init__(self, pool: Pool, in_use: InUse, wanted: Wanted, before: Supply | None = None) -> None:
        self.pool = pool
        self.in_use = in_use
        self._wanted = wanted
        self.services: tuple[Service, ...]
        if before is None:
            self._numbers, self.services = wanted.services(entry.model for entry in pool.devices)
        else:
            self._numbers, self.services = before._numbers, before.services
        self._candidates: dict[int, list[Candidate]] | None = None
        #: Number that the owner sets: equal for supplies of equal content.
        self.number = -1

    @property
    def content(self) -> Hashable:
        """Key that is equal for pools whose devices offer the same services and are in use in the same way."""
        return self.pool.state, self._numbers, self.in_use.key

    def candidates(self, want: Want) -> list[Candidate]:
        """Return the devices that a want may get, before anything is chosen, and the devices with a problem."""
        if self._candidates is None:
            self._candidates = {}
        known = self._candidates.get(want.index)
        if known is None:
            known = self._candidates[want.index] = []
            for place, service in enumerate(self.services):
                selected = service.selects[want.index]
                if selected is False or self.is_in_use(want, place):
                    continue
                if selected is not True:
                    known.append((place, selected))
                elif self.is_free_of_obstacles(want, place):
                    known.append((place, None))
        return known

    def is_in_use(self, want: Want, place: int) -> bool:
        return not want.admin and place in self.in_use.exclusive

    def is_free_of_obstacles(self, want: Want, place: int) -> bool:
        """Check capacity, counters and taints of a device, which do not depend on the search.

        A device with counters passes even if it has taints. The search rejects it later, because the device may keep
            its counters.
        """
        service = self.services[place]
        if not self.has_capacity(want, place, {}):
            return False
        if not service.model.consumes:
            return service.tolerated[want.index]
        return self._wanted.features.partitionable_devices and self._has_counters(place)

    def has_capacity(self, want: Want, place: int, taken: dict[str, int]) -> bool:
        """True if a device has the capacity that a want consumes.

        Capacity that is in use, and the amounts in ``taken``, are no longer free.
        """
        service = self.services[place]
        consumption = service.consumption[want.index]
        if consumption is None:
            return False
        before = self.in_use.consumed.get(place)
        if before is None and not taken:
            return True  # for an unused device, consumption was compared with capacity earlier
        capacity = service.model.capacity
        for name, (amount, _) in consumption.items():
            total = amount + (before.get(name, 0) if before else 0) + taken.get(name, 0)
            if total > capacity[name].value:
                return False
        return True

    def has_share(self, place: int) -> bool:
        """True if shares have taken the device's part of the counters. The capacity that shares consume shows this."""
        return place in self.in_use.consumed

    def _has_counters(self, place: int) -> bool:
        """True if the counters suffice for this device alone."""
        available = self.in_use.available
        model = self.services[place].model
        if available is None or (model.shared and self.has_share(place)):
            return True
        if self.in_use.is_overdrawn:
            return False
        return all(amount <= available[name][counter] for name, uses in model.consumes for counter, amount in uses)
