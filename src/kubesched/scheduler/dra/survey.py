"""Survey of a node's devices for claims: for explanations, and for scores by devices of a class.

Nothing here decides where a pod runs. Devices are counted one by one, without regard to other requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from kubesched.api.resource import DeviceTaint

from .allocated import DeviceID
from .pools import DeviceEntry, InUse, Pool
from .selectors import Selector, SelectorError
from .supply import Supply
from .wanted import Want, Wanted

__all__ = ["Survey", "devices_of_class", "survey"]

#: Most distinct taints, and distinct values of an attribute, that a survey keeps.
_MOST: Final = 16


@dataclass(slots=True)
class Survey:
    """Devices of a node for one request or subrequest.

    Attributes:
        claim: place of the claim in the demand.
        request: name of the request, as in results.
        class_name: its class.
        count: number of devices that it asks for; 0 for all there are.
        matching: devices that its class and selectors select. Each is in one of the next five.
        free: those that can be allocated now.
        used: those that other claims have.
        short: those whose capacity does not suffice, or is in use.
        tainted: those with a taint that the request does not tolerate.
        uncounted: those for which a shared counter of their pool has not enough left.
        holders: the ``used`` devices.
        taints: the taints of the ``tainted`` devices.
        values: free devices by attribute that constraints name, and its value.
        left: the most that one matching device has left of each capacity, in nano-units.
        of_class: devices of the class that its selectors leave out.
        others: the free ones of them.
        other_capacity: capacity of the first of the ``others``, as written, by name.
    """

    claim: int
    request: str
    class_name: str
    count: int
    matching: int = 0
    free: int = 0
    used: int = 0
    short: int = 0
    tainted: int = 0
    uncounted: int = 0
    holders: list[DeviceID] = field(default_factory=list)
    taints: dict[DeviceTaint, None] = field(default_factory=dict)
    values: dict[str, dict[object, set[DeviceID]]] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    of_class: int = 0
    others: int = 0
    other_capacity: dict[str, str] = field(default_factory=dict)

    @property
    def is_enough(self) -> bool:
        """True if the request alone can be served here."""
        return self.free > 0 and (self.free >= self.count if self.count else self.free == self.matching)


def survey(wanted: Wanted, supplies: Sequence[Supply]) -> list[Survey]:
    """Return one result per request and subrequest, in order. ``supplies`` are the pools of the node."""
    return [_survey(wanted, want, supplies) for want in wanted.wants]


def _survey(wanted: Wanted, want: Want, supplies: Sequence[Supply]) -> Survey:
    result = Survey(want.claim, want.name, want.class_name, 0 if want.takes_all else want.count)
    for supply in supplies:
        for place, entry in enumerate(supply.pool.devices):
            if supply.services[place].selects[want.index] is True:
                _count(result, wanted, want, supply, place)
            elif _selects(want.class_selectors, entry):
                result.of_class += 1
                if not _is_free(place, entry, supply.in_use):
                    continue
                if not result.others:
                    result.other_capacity = {name: str(each.value) for name, each in entry.device.capacity.items()}
                result.others += 1
    return result


def _count(result: Survey, wanted: Wanted, want: Want, supply: Supply, place: int) -> None:
    """Count a device that the request selects."""
    service, entry, pool = supply.services[place], supply.pool.devices[place], supply.pool.id
    device = DeviceID(pool.driver, pool.pool, entry.name)
    result.matching += 1
    if supply.is_in_use(want, place):
        result.used += 1
        result.holders.append(device)
        return
    taken = supply.in_use.consumed.get(place, {})
    for name, capacity in service.model.capacity.items():
        result.left[name] = max(result.left.get(name, 0), capacity.value - taken.get(name, 0))
    if not supply.has_capacity(want, place, {}):
        result.short += 1
        if taken:
            result.holders.append(device)
    elif not service.tolerated[want.index]:
        result.tainted += 1
        result.taints.update(dict.fromkeys(service.model.taints[:_MOST]))
    elif not want.admin and not _is_free(place, entry, supply.in_use):
        result.uncounted += 1
    else:
        result.free += 1
        for name in wanted.attributes:
            value = service.attributes[name]
            by_value = result.values.setdefault(name, {})
            if value is not None and (value[1] in by_value or len(by_value) < _MOST):
                by_value.setdefault(value[1], set()).add(device)


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
