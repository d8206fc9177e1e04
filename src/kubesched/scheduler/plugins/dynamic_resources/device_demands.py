"""Demands for devices, for explanations: each request and constraint of a claim, with numbers and weaker forms.

A weaker form changes the claim, not the pod; it is tried within a what-if of the claim.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from kubesched.api.quantity import format_bytes
from kubesched.api.resource import (
    ALLOCATION_MODE_ALL,
    DeviceClaim,
    DeviceConstraint,
    DeviceRequest,
    DeviceSubRequest,
    DeviceTaint,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
)

from ...dra.survey import Survey
from ...framework.demand import Amounts, Change, Demand
from ...framework.question import IntArray, RowArray
from ...nodes import NodeTable, PodInfo
from ..demands import storage
from ..demands.resources import ask_less
from ..demands.words import always, counted, listed
from .device_surveys import PLENTY, DeviceQuestion, Surveys
from .manager import DeviceManager, NodeAllocator

__all__ = ["device_demands"]

#: Claims, values, taints and nodes that one text or data lists.
_MOST_LISTED: Final = 3
_MOST_NODES: Final = 20
#: Weaker forms of each kind that are proposed for one request.
_MOST_WEAKER: Final = 4
#: Subrequests that are looked at; Kubernetes allows no more.
_MOST_SUBREQUESTS: Final = 8
#: Longest part of a selector's expression in a text.
_MOST_CHARACTERS: Final = 80
_NANOS: Final = 10**9
_QUANTITY: Final = re.compile(r"""quantity\(\s*["']([^"']+)["']\s*\)""")

_Exact = ExactDeviceRequest | DeviceSubRequest


def device_demands(
    question: DeviceQuestion, allocator: NodeAllocator, manager: DeviceManager, pod: PodInfo, nodes: NodeTable
) -> Iterator[Demand]:
    """The demands of a pod's claims. A claim that cannot be looked at, or has devices, is one demand."""
    attempt = question.attempt
    if not attempt.claims:
        yield from storage.claims(pod, question.problem)
        return
    found = Surveys(question, allocator, manager, nodes)
    for each in attempt.claims:
        if each.is_special:
            yield from _resources(found, pod, attempt.resources)
        elif each.is_allocated:
            yield _allocated(found, pod, each.claim)
        else:
            devices = each.claim.spec.devices
            for constraint in devices.constraints:
                yield _constraint(found, each.claim, constraint)
            for request in devices.requests:
                yield _request(found, each.claim, request)


def _requested(name: str) -> Callable[[str], bool]:
    """A test for the results of a request, or of one of its subrequests."""
    return lambda request: request == name or request.partition("/")[0] == name


# -- requests ----------------------------------------------------------------------------------------------


def _request(found: Surveys, claim: ResourceClaim, request: DeviceRequest) -> Demand:
    where = f"request {request.name} of claim {claim.metadata.name}"
    each = [
        _weaker(found, claim, name, exact, f"request {name} of claim {claim.metadata.name}")
        for name, exact in _parts(request)
    ]
    # The smallest changes of every subrequest come before the greater ones of the first.
    weaker = tuple(change for some in zip_longest(*each) for change in some if change is not None)
    return Demand(
        partial(_request_text, found, claim, request),
        _of_claim(found, claim, f"do without {where}", partial(_without_request, request.name)),
        weaker,
        data=partial(_request_data, found, claim, request),
        holders=partial(found.holders.at, claim.key, request.name),
    )


def _parts(request: DeviceRequest) -> list[tuple[str, _Exact]]:
    """The request, or its subrequests, by the names that results have."""
    if request.exactly is not None:
        return [(request.name, request.exactly)]
    return [(f"{request.name}/{sub.name}", sub) for sub in request.first_available[:_MOST_SUBREQUESTS]]


def _request_text(found: Surveys, claim: ResourceClaim, request: DeviceRequest, rows: RowArray) -> str:
    what = f"claim {claim.metadata.name}, request {request.name}"
    texts = []
    for name, exact in _parts(request):
        best = _best([(node, one) for node, mine in found.of(rows, claim.key, name.__eq__) for one in mine])
        asked = f"asks for {_number(exact)} of class {exact.device_class_name}{_selected(exact)}"
        part = f"{name.partition('/')[2]} " if request.exactly is None else ""
        texts.append(f"{part}{asked}; {_nearest(found, *best, exact)}" if best is not None else part + asked)
    return f"{what}: {'; or '.join(texts)}"


def _best(found: Sequence[tuple[str, Survey]]) -> tuple[str, Survey] | None:
    """The node that comes nearest, with its survey."""
    return min(
        found, key=lambda one: (-one[1].free, -one[1].matching, -one[1].others, one[0]), default=None
    )  # fmt: skip


def _number(exact: _Exact) -> str:
    if exact.allocation_mode == ALLOCATION_MODE_ALL:
        return "all devices"
    admin = " with admin access" if isinstance(exact, ExactDeviceRequest) and exact.admin_access else ""
    return counted(exact.count, "device") + admin


def _selected(exact: _Exact) -> str:
    """The amounts that a request asks of each device, or else its selectors."""
    expressions = [selector.cel.expression for selector in exact.selectors if selector.cel is not None]
    amounts = [text for expression in expressions for text in _QUANTITY.findall(expression)]
    if exact.capacity is not None:
        amounts += [f"{amount} {name}" for name, amount in exact.capacity.requests.items()]
    if amounts:
        return f" with {' and '.join(map(str, amounts))}"
    return f" that {' and '.join(map(_cut, expressions[:_MOST_LISTED]))}" if expressions else ""


def _cut(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _MOST_CHARACTERS else f"{plain[: _MOST_CHARACTERS - 1]}…"


def _nearest(found: Surveys, node: str, best: Survey, exact: _Exact) -> str:
    """The numbers of the node that comes nearest."""
    if not best.matching:
        if not best.of_class:
            return "none of these nodes has a device of the class"
        if not best.others:
            return f"none matches, and the {best.of_class} of the class on {node} are in use"
        has = f" with {' and '.join(best.other_capacity.values())}" if best.other_capacity else ""
        return f"none matches, but {node} has {best.others} of the class{has}"
    parts = []
    if best.used:
        parts.append(f"{best.used} used by {_users(found, best)}")
    if best.tainted:
        parts.append(
            f"{best.tainted} with taint {listed(list(map(_taint, best.taints))[:_MOST_LISTED], len(best.taints))}"
        )
    if best.short:
        wanted = exact.capacity.requests if exact.capacity is not None else {}
        left = " and ".join(f"{_amount(best.left.get(name, 0))} {name}" for name in wanted)
        by = f", used by {_users(found, best)}" if best.holders and not best.used else ""
        parts.append(f"{best.short} with less capacity" + (f" (at most {left} left{by})" if left else ""))
    if best.uncounted:
        parts.append(f"{best.uncounted} without enough left of the pool's shared counters")
    of = f"{node} has {best.matching} that match, {best.free} free"
    return f"{of}, {', '.join(parts)}" if parts else of


def _users(found: Surveys, best: Survey) -> str:
    holders = found.manager.holders_of(best.holders)
    shown = [
        f"claim {key} of {listed(users[:_MOST_LISTED], len(users))}" if users else f"claim {key}"
        for key, users in sorted(holders.items())[:_MOST_LISTED]
    ]
    return listed(shown, len(holders)) or "other claims"


def _taint(taint: DeviceTaint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def _amount(nanos: int) -> str:
    return format_bytes(nanos // _NANOS)


def _request_data(found: Surveys, claim: ResourceClaim, request: DeviceRequest, rows: RowArray) -> Mapping[str, Any]:
    by_node = [(node, one) for node, mine in found.of(rows, claim.key, _requested(request.name)) for one in mine]
    by_node.sort(key=lambda one: (-one[1].free, -one[1].matching, -one[1].others, one[0]))
    exact = request.exactly
    return {
        "claim": claim.key,
        "request": request.name,
        "deviceClass": exact.device_class_name if exact is not None else "",
        "count": exact.count if exact is not None else 0,
        "firstAvailable": [
            {"request": name, "deviceClass": sub.device_class_name, "count": sub.count}
            for name, sub in _parts(request)
            if exact is None
        ],
        "nodes": [
            {
                "node": node, "request": one.request, "matching": one.matching, "free": one.free, "used": one.used,
                "tainted": one.tainted, "lessCapacity": one.short, "lackingCounters": one.uncounted,
                "othersOfClass": one.others,
            }
            for node, one in by_node[:_MOST_NODES]
        ],
    }  # fmt: skip


# -- weaker requests ---------------------------------------------------------------------------------------


def _weaker(found: Surveys, claim: ResourceClaim, name: str, exact: _Exact, where: str) -> Iterator[Change]:
    """Smaller changes of a request: tolerate taints, fewer devices, less capacity, a selector less."""
    surveys = found.everywhere(claim.key, name.__eq__)
    taints = list(dict.fromkeys(taint for one in surveys for taint in one.taints))[:_MOST_WEAKER]
    for chosen in [[taint] for taint in taints] + ([taints] if len(taints) > 1 else []):
        more = tuple(DeviceToleration(taint.key, "Equal", taint.value, taint.effect) for taint in chosen)
        words = f"tolerate the device taint{'s' if len(chosen) > 1 else ''} {', '.join(map(_taint, chosen))} in {where}"
        yield _changed(found, claim, name, words, tolerations=(*exact.tolerations, *more))
    if exact.allocation_mode == ALLOCATION_MODE_ALL:
        words = f"ask for 1 device instead of all in {where}"
        yield _changed(found, claim, name, words, allocation_mode="ExactCount", count=1)
    yield from _fewer(found, claim, name, exact, where, surveys)
    if exact.capacity is not None:
        for key, amount in list(exact.capacity.requests.items())[:_MOST_WEAKER]:
            rest = {other: text for other, text in exact.capacity.requests.items() if other != key}
            most = max((one.left.get(key, 0) for one in surveys), default=0) // _NANOS
            if most > 0:
                less = replace(exact.capacity, requests={**rest, key: str(most)})
                words = f"ask for {_amount(most * _NANOS)} {key} instead of {amount} in {where}"
                yield _changed(found, claim, name, words, capacity=less)
            yield _changed(
                found, claim, name, f"ask for no {key} in {where}", capacity=replace(exact.capacity, requests=rest)
            )
    for number, selector in enumerate(exact.selectors[:_MOST_WEAKER]):
        expression = _cut(selector.cel.expression) if selector.cel is not None else ""
        left = (*exact.selectors[:number], *exact.selectors[number + 1 :])
        yield _changed(found, claim, name, f"drop the selector {expression} of {where}", selectors=left)


def _fewer(
    found: Surveys, claim: ResourceClaim, name: str, exact: _Exact, where: str, surveys: list[Survey]
) -> Iterator[Change]:
    """Fewer devices: as many as are free on the node that has most, or have one value of a constraint's attribute."""
    sizes = [one.free for one in surveys]
    sizes += [len(devices) for one in surveys for by in one.values.values() for devices in by.values()]
    sizes += [len(by) for one in surveys for by in one.values.values()]
    counts = {min(size, exact.count - 1) for size in sizes} if exact.count > 1 else set()
    for count in sorted(counts - {0}, reverse=True)[:_MOST_WEAKER]:
        words = f"ask for {counted(count, 'device')} instead of {exact.count} in {where}"
        yield _changed(found, claim, name, words, count=count)


def _changed(found: Surveys, claim: ResourceClaim, name: str, words: str, **members: Any) -> Change:
    """A change of one request of a claim, or of one subrequest."""
    request, _, part = name.partition("/")

    def changed(one: DeviceRequest) -> DeviceRequest:
        if one.name != request:
            return one
        if one.exactly is not None:
            return replace(one, exactly=replace(one.exactly, **members))
        subs = tuple(replace(sub, **members) if sub.name == part else sub for sub in one.first_available)
        return replace(one, first_available=subs)

    return _of_claim(
        found, claim, words, lambda devices: replace(devices, requests=tuple(map(changed, devices.requests)))
    )


def _without_request(name: str, devices: DeviceClaim) -> DeviceClaim:
    return replace(devices, requests=tuple(one for one in devices.requests if one.name != name))


def _of_claim(found: Surveys, claim: ResourceClaim, words: str, of: Callable[[DeviceClaim], DeviceClaim]) -> Change:
    def change(now: ResourceClaim) -> ResourceClaim:
        return replace(now, spec=replace(now.spec, devices=of(now.spec.devices)))

    return Change(words, around=partial(found.manager.claims.what_if, claim.key, change))


# -- constraints -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Values:
    """Free devices of a node by the value of an attribute, for the requests of a constraint."""

    node: str
    devices: dict[str, int]

    def most(self, *, match: bool) -> int:
        """The most devices that a constraint allows: those with one value, or one of each value."""
        return max(self.devices.values(), default=0) if match else len(self.devices)


def _constraint(found: Surveys, claim: ResourceClaim, constraint: DeviceConstraint) -> Demand:
    is_match = constraint.match_attribute is not None
    word, name = ("matchAttribute", constraint.match_attribute) if is_match else (
        "distinctAttribute", constraint.distinct_attribute
    )  # fmt: skip
    words = f"drop the constraint {word} {name} of claim {claim.metadata.name}"
    return Demand(
        partial(_constraint_text, found, claim, constraint),
        _of_claim(found, claim, words, partial(_without_constraint, constraint)),
        data=partial(_constraint_data, found, claim, constraint),
    )


def _without_constraint(constraint: DeviceConstraint, devices: DeviceClaim) -> DeviceClaim:
    left = list(devices.constraints)
    if constraint in left:
        left.remove(constraint)
    return replace(devices, constraints=tuple(left))


def _by_value(
    found: Surveys, claim: ResourceClaim, constraint: DeviceConstraint, rows: RowArray
) -> tuple[int, list[_Values]]:
    """The devices that the constraint's requests need together, and the free devices by value, best node first."""
    attribute = constraint.match_attribute or constraint.distinct_attribute or ""

    def concerns(request: str) -> bool:
        names = constraint.requests
        return not names or request in names or request.partition("/")[0] in names

    needed = sum(
        max((one.exactly.count,) if one.exactly is not None else [sub.count for sub in one.first_available])
        for one in claim.spec.devices.requests
        if concerns(one.name)
    )
    nodes: list[_Values] = []
    for node, surveys in found.of(rows, claim.key, concerns):
        devices: dict[object, set[Any]] = {}
        for one in surveys:
            for value, some in one.values.get(attribute, {}).items():
                devices.setdefault(value, set()).update(some)
        nodes.append(_Values(node, {_value(value): len(some) for value, some in devices.items()}))
    is_match = constraint.match_attribute is not None
    return needed, sorted(nodes, key=lambda one: (-one.most(match=is_match), -sum(one.devices.values()), one.node))


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _constraint_text(found: Surveys, claim: ResourceClaim, constraint: DeviceConstraint, rows: RowArray) -> str:
    needed, nodes = _by_value(found, claim, constraint, rows)
    attribute = constraint.match_attribute or constraint.distinct_attribute or ""
    is_match = constraint.match_attribute is not None
    how = "one value" if is_match else "different values"
    text = f"claim {claim.metadata.name}: needs {counted(needed, 'device')} with {how} of {attribute}"
    if not nodes or not nodes[0].devices:
        return f"{text}; none of these nodes has a free device with the attribute"
    best, short = nodes[0], attribute.rpartition("/")[2]
    ordered = sorted(best.devices.items(), key=lambda one: (-one[1], one[0]))
    values = listed([f"{short} {value}: {count}" for value, count in ordered[: 2 * _MOST_LISTED]], len(ordered))
    if not is_match:
        return f"{text}; best node {best.node} has {counted(len(best.devices), 'value')} ({values})"
    lacking = max(0, needed - ordered[0][1])
    return f"{text}; best node {best.node} has {ordered[0][1]} with {short} {ordered[0][0]}, {lacking} too few ({values} free)"


def _constraint_data(
    found: Surveys, claim: ResourceClaim, constraint: DeviceConstraint, rows: RowArray
) -> Mapping[str, Any]:
    needed, nodes = _by_value(found, claim, constraint, rows)
    return {
        "claim": claim.key,
        "matchAttribute": constraint.match_attribute or "",
        "distinctAttribute": constraint.distinct_attribute or "",
        "needed": needed,
        "nodes": [{"node": one.node, "free": one.devices} for one in nodes[:_MOST_NODES]],
    }


# -- claims with devices, and extended resources -----------------------------------------------------------


def _allocated(found: Surveys, pod: PodInfo, claim: ResourceClaim) -> Demand:
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    held = sorted({f"{one.device} of pool {one.pool}" for one in results})
    users = sorted(one.name for one in claim.status.reserved_for)
    by = f", used by {listed(users[:_MOST_LISTED], len(users))}" if users else ""
    text = (
        f"claim {claim.metadata.name} has devices already, {listed(held[:_MOST_LISTED], len(held))}{by}: "
        "it can be used only where these devices are"
    )
    recorded = {one.name: one.resource_claim_name for one in pod.status.resource_claim_statuses}
    name = next(
        one.name
        for one in pod.spec.resource_claims
        if claim.metadata.name in (one.resource_claim_name, recorded.get(one.name))
    )
    return Demand(always(text), storage.without_claim(name), holders=partial(found.holders.users, claim))


def _resources(found: Surveys, pod: PodInfo, classes: Mapping[str, str | None]) -> Iterator[Demand]:
    """Each extended resource that devices serve."""
    for resource, class_name in classes.items():
        asked = pod.fit_requests.get(resource)
        less = partial(ask_less, pod, resource)
        text = partial(_resource_text, found, resource, class_name or "", asked)
        lacking = partial(_resource_lacking, found, class_name or "", asked)
        yield Demand(text, less(asked), amounts=Amounts(asked, lacking, less))


def _resource_lacking(found: Surveys, class_name: str, asked: int, rows: RowArray) -> IntArray:
    free, _ = found.of_class(class_name, rows)
    lacking: IntArray = np.clip(asked - free, 0, asked)
    return lacking


def _resource_text(found: Surveys, resource: str, class_name: str, asked: int, rows: RowArray) -> str:
    text = f"{resource}: asks for {counted(asked, 'device')} of class {class_name}"
    free, matching = found.of_class(class_name, rows)
    here = np.flatnonzero((matching > 0) & (matching < PLENTY))
    if not len(here):
        return f"{text}, and none of these nodes has any"
    place = int(here[free[here].argmax()])
    return f"{text}; {found.name(int(rows[place]))} has {matching[place]} that match, {free[place]} free"
