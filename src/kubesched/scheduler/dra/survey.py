"""Survey of a node's devices for claims: for explanations, and for scores by devices of a class.

Nothing here decides where a pod runs. Devices are counted one by one, without regard to other requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .pools import DeviceEntry, InUse, Pool
from .selectors import Selector, SelectorError
from .supply import Supply
from .wanted import Want, Wanted

__all__ = ["Survey", "devices_of_class", "survey"]


@dataclass(frozen=True, slots=True)
class Survey:
    """Devices of a node for one request or subrequest.

    Attributes:
        claim: place of the claim in the demand.
        request: name of the request, as in results.
        class_name: its class.
        count: number of devices that it asks for; 0 if it asks for all.
        matching: devices that its class and selectors select.
        free: matching devices that can be allocated now.
        others: free devices of the class that the request's selectors, capacity or tolerations leave out.
        other_capacity: capacity of the first of the ``others``, as written, by name.
    """

    claim: int
    request: str
    class_name: str
    count: int
    matching: int
    free: int
    others: int
    other_capacity: dict[str, str]


def survey(wanted: Wanted, supplies: Sequence[Supply]) -> list[Survey]:
    """Return one result per request and subrequest, in order. ``supplies`` are the pools of the node."""
    return [_survey(want, supplies) for want in wanted.wants]


def _survey(want: Want, supplies: Sequence[Supply]) -> Survey:
    matching = free = 0
    others: list[DeviceEntry] = []
    for supply in supplies:
        for place, entry in enumerate(supply.pool.devices):
            is_free = _is_free(place, entry, supply.in_use)
            service = supply.services[place]
            if service.selects[want.index] is True:
                matching += 1
                if service.consumption[want.index] is not None and service.tolerated[want.index]:
                    free += is_free
                    continue
            if is_free and _selects(want.class_selectors, entry):
                others.append(entry)
    capacity = {name: str(each.value) for name, each in others[0].device.capacity.items()} if others else {}
    count = 0 if want.takes_all else want.count
    return Survey(want.claim, want.name, want.class_name, count, matching, free, len(others), capacity)


def _selects(selectors: Sequence[Selector], entry: DeviceEntry) -> bool:
    return all(selector.result(entry.model) is True for selector in selectors)


def _is_free(place: int, entry: DeviceEntry, in_use: InUse) -> bool:
    """True if a device is not allocated as a whole and enough is left of the counters that it uses."""
    if place in in_use.exclusive:
        return False
    if place in in_use.shared or in_use.available is None:
        return True  # there are no counters, or they are charged already
    return all(
        amount <= in_use.available.get(name, {}).get(counter, 0)
        for name, counters in entry.model.consumes
        for counter, amount in counters
    )


def devices_of_class(selectors: Sequence[Selector], pools: Sequence[tuple[Pool, InUse]]) -> tuple[int, int] | None:
    """Count the devices that all selectors select, and those in use among them; None when a selector fails."""
    matching = taken = 0
    for pool, in_use in pools:
        for place, entry in enumerate(pool.devices):
            for selector in selectors:
                result = selector.result(entry.model)
                if isinstance(result, SelectorError):
                    return None
                if not result:
                    break
            else:
                matching += 1
                taken += place in in_use.exclusive or place in in_use.shared
    return matching, taken
