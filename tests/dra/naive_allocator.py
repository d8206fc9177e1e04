"""A second allocator, from the words of the spec: it tries every assignment in order and checks each one as a whole.

For small worlds of one node. It knows exact counts, lists, admin access, constraints, taints without tolerations,
counters (everything tried in vain is given back) and shares of capacity.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import Any

from allocator_kit import JSON

__all__ = ["first_solution"]

#: Claim index, name of the request in results, name of the request, the device's position.
Choice = tuple[int, str, JSON, int]


def first_solution(
    devices: Sequence[JSON], counters: JSON, claims: Sequence[JSON], used: Sequence[int]
) -> list[list[str]] | None:
    """``request=device`` per claim, for the first assignment that is right; None when there is none.

    ``devices`` are in the order in which they are tried; ``used`` are positions of devices in use.
    """
    requests = [(number, request) for number, claim in enumerate(claims) for request in claim["requests"]]
    for choice in _assignments(requests, devices):
        if _is_right(choice, devices, counters, claims, set(used)):
            found: list[list[str]] = [[] for _ in claims]
            for number, name, _, position in choice:
                found[number].append(f"{name}={devices[position]['name']}")
            return found
    return None


def _assignments(requests: Sequence[tuple[int, JSON]], devices: Sequence[JSON]) -> Iterator[list[Choice]]:
    """Every way to give devices to requests, in upstream's order: the last request varies fastest."""
    options: list[list[list[Choice]]] = []
    for number, request in requests:
        ways: list[list[Choice]] = []
        for name, body in _forms(request):
            selected = [position for position, device in enumerate(devices) if _selects(body, device)]
            for group in combinations(selected, body["count"]):
                ways.append([(number, name, body, position) for position in group])  # noqa: PERF401 - nested as it is read
        options.append(ways)
    for parts in product(*options):
        yield [choice for part in parts for choice in part]


def _forms(request: JSON) -> list[tuple[str, JSON]]:
    if "exactly" in request:
        return [(request["name"], request["exactly"])]
    return [(f"{request['name']}/{sub['name']}", sub) for sub in request["firstAvailable"]]


def _selects(body: JSON, device: JSON) -> bool:
    """The selectors of the tests compare the attribute "size"; classes select everything."""
    for selector in body.get("selectors", ()):
        wanted = selector["cel"]["expression"].split('"')[-2]
        if device["attributes"]["size"]["string"] != wanted:
            return False
    return not device["taints"]


def _is_right(
    choices: Sequence[Choice], devices: Sequence[JSON], counters: JSON, claims: Sequence[JSON], used: set[int]
) -> bool:
    picked: list[tuple[int, int]] = []
    amounts: dict[int, int] = {}
    for number, _, body, position in choices:
        device = devices[position]
        admin = body.get("adminAccess", False)
        if not admin and position in used:
            return False
        if device.get("allowMultipleAllocations"):
            asked = body.get("capacity", {}).get("requests", {})
            amounts[position] = amounts.get(position, 0) + _consumed(asked, device)
            if amounts[position] > int(device["capacity"]["m"]["value"]):
                return False
            continue
        if any(position == other and (not admin or number == claim) for claim, other in picked):
            return False
        if _consumed(body.get("capacity", {}).get("requests", {}), device) > int(device["capacity"]["m"]["value"]):
            return False
        picked.append((number, position))
    return _counters_suffice(choices, devices, counters, used) and all(
        _holds(constraint, [choice for choice in choices if choice[0] == number], devices)
        for number, claim in enumerate(claims)
        for constraint in claim.get("constraints", ())
    )


def _consumed(asked: JSON, device: JSON) -> int:
    return int(asked.get("m", device["capacity"]["m"]["value"]))


def _counters_suffice(choices: Sequence[Choice], devices: Sequence[JSON], counters: JSON, used: set[int]) -> bool:
    """A share consumes the counters once; a device as a whole every time it is chosen (with admin access too)."""
    left = dict(counters)
    for position in used:
        for name, amount in _uses(devices[position]).items():
            left[name] -= amount
    once: set[int] = set()
    total = dict.fromkeys(counters, 0)
    for _, _, _, position in choices:
        uses = _uses(devices[position])
        if not uses or (devices[position].get("allowMultipleAllocations") and position in once):
            continue
        once.add(position)
        for name, amount in uses.items():
            total[name] += amount
        if any(total[name] > left[name] for name in counters):
            return False
    return True


def _uses(device: JSON) -> dict[str, int]:
    return {
        name: int(counter["value"])
        for item in device.get("consumesCounters", ())
        for name, counter in item["counters"].items()
    }


def _holds(constraint: JSON, choices: Sequence[Choice], devices: Sequence[JSON]) -> bool:
    key = next(iter(value for name, value in constraint.items() if name.endswith("Attribute"))).partition("/")[2]
    named = constraint.get("requests")
    values: list[Any] = []
    for _, name, _, position in choices:
        if named and name not in named and name.partition("/")[0] not in named:
            continue
        attribute = devices[position]["attributes"].get(key)
        if attribute is None:
            return False
        values.append(attribute)
    if "matchAttribute" in constraint:
        return all(value == values[0] for value in values)
    return all(one != other for one, other in combinations(values, 2))
