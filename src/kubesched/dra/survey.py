"""What a node has of the devices that claims ask for: for explanations, and for scores by devices of a class.

Nothing here decides where a pod runs; devices are counted one by one, without regard to what else is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .pools import DeviceEntry
from .selectors import Selector, SelectorError
from .view import NodeUse, NodeView
from .wanted import Want, Wanted

__all__ = ["Survey", "devices_of_class", "survey"]


@dataclass(frozen=True, slots=True)
class Survey:
    """What a node has for one request or subrequest.

    Attributes:
        claim: place of the claim in the plan.
        request: its name, as in results.
        class_name: its class.
        count: how many devices it asks for; 0 for all there are.
        matching: devices that its class and selectors select.
        free: of these, devices that can be allocated now.
        others: devices of the class that can be allocated, and that its selectors, capacity or tolerations leave out.
        other_capacity: the capacity of the first of these, as written, by name.
    """

    claim: int
    request: str
    class_name: str
    count: int
    matching: int
    free: int
    others: int
    other_capacity: dict[str, str]


def survey(wanted: Wanted, view: NodeView, use: NodeUse) -> list[Survey]:
    """One result per request and subrequest, in order."""
    return [_survey(want, wanted, view, use) for want in wanted.wants]


def _survey(want: Want, wanted: Wanted, view: NodeView, use: NodeUse) -> Survey:
    matching = free = 0
    others: list[DeviceEntry] = []
    for position, entry in enumerate(view.devices):
        is_free = _is_free(position, entry, view, use)
        service = wanted.service(entry.profile)
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
    return all(selector.result(entry.profile) is True for selector in selectors)


def _is_free(position: int, entry: DeviceEntry, view: NodeView, use: NodeUse) -> bool:
    """Whether a device is not in use as a whole, and its pool has what it uses of shared counters."""
    if position in use.exclusive:
        return False
    if position in use.shared:
        return True  # its counters are charged already
    available = use.available[view.pool_of[position]]
    return available is None or all(
        amount <= available.get(name, {}).get(counter, 0)
        for name, counters in entry.profile.consumes
        for counter, amount in counters
    )


def devices_of_class(selectors: Sequence[Selector], view: NodeView, use: NodeUse) -> tuple[int, int] | None:
    """How many devices all selectors select, and how many of these are in use; None when a selector fails."""
    matching = in_use = 0
    for position, entry in enumerate(view.devices):
        for selector in selectors:
            result = selector.result(entry.profile)
            if isinstance(result, SelectorError):
                return None
            if not result:
                break
        else:
            matching += 1
            in_use += position in use.exclusive or position in use.shared
    return matching, in_use
