"""Explanation why devices do not fit, in plain words: the request, the number of devices, the node that comes nearest.

Reports show it; see :class:`~kubesched.scheduler.framework.interface.Explanation`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from kubesched.api.resource import DeviceSubRequest, ExactDeviceRequest, ResourceClaim

from ...dra.allocator import ClaimDemand
from ...dra.failures import AllocationTimeoutError
from ...dra.survey import Survey
from ...framework.interface import Explanation
from ...nodes.nodeinfo import NodeInfo
from .manager import NodeAllocator

__all__ = ["explain_demand"]

#: Most nodes that are listed in the data; nodes that come nearest are first.
_EXAMPLES: Final = 20
_QUANTITY: Final = re.compile(r"""quantity\(\s*["']([^"']+)["']\s*\)""")


def explain_demand(demand: ClaimDemand, allocator: NodeAllocator, nodes: Sequence[NodeInfo]) -> list[Explanation]:
    """Explain each request that no node can serve, or else that no node can serve all requests together."""
    try:
        surveys = [(node.name, allocator.survey(demand, node)) for node in nodes]
    except AllocationTimeoutError as error:
        return [Explanation(str(error), {})]
    if not surveys:
        return []
    asked = dict(_asked(demand.claims))
    found: list[Explanation] = []
    served = 0
    for index, first in enumerate(surveys[0][1]):
        by_node = [(name, each[index]) for name, each in surveys]
        if any(_is_enough(each) for _, each in by_node):
            served += 1
        else:
            claim = demand.claims[first.claim]
            found.append(_explain(claim, first, by_node, asked.get((first.claim, first.request), "")))
    if served and not found:
        text = "every request fits some node, but no node has the devices for all of them together"
        found.append(Explanation(text, {"requests": [each.request for each in surveys[0][1]]}))
    return found


def _is_enough(each: Survey) -> bool:
    return each.free > 0 and (each.free == each.matching if not each.count else each.free >= each.count)


def _explain(claim: ResourceClaim, first: Survey, by_node: list[tuple[str, Survey]], amounts: str) -> Explanation:
    what = f"of class {first.class_name}{amounts}"
    number = f"{first.count} free device{'' if first.count == 1 else 's'}" if first.count else "all devices free"
    ranked = sorted(by_node, key=lambda item: (-item[1].free, -item[1].matching, -item[1].others, item[0]))
    name, nearest = ranked[0]
    text = f"no node has {number} {what}"
    if nearest.free:
        text += f"; {name} has {nearest.free}"
    elif nearest.matching:
        text += f"; {name} has {nearest.matching}, none of them free"
    else:
        others = max(by_node, key=lambda item: (item[1].others, [-ord(char) for char in item[0]]))
        if others[1].others:
            text += f"; {others[0]} has {others[1].others}{_with(others[1].other_capacity.values())}"
    data = {
        "claim": claim.key,
        "request": first.request,
        "deviceClass": first.class_name,
        "count": first.count,
        "nodes": [
            {"node": node, "matching": each.matching, "free": each.free, "othersOfClass": each.others}
            for node, each in ranked[:_EXAMPLES]
        ],
    }
    return Explanation(text, data)


def _asked(claims: Sequence[ResourceClaim]) -> Iterator[tuple[tuple[int, str], str]]:
    """Yield the amounts that requests ask of devices, as words, by (place of the claim, request)."""
    for place, claim in enumerate(claims):
        for request in claim.spec.devices.requests:
            if request.exactly is not None:
                yield (place, request.name), _amounts(request.exactly)
            for sub in request.first_available:
                yield (place, f"{request.name}/{sub.name}"), _amounts(sub)


def _amounts(spec: ExactDeviceRequest | DeviceSubRequest) -> str:
    expressions = [selector.cel.expression for selector in spec.selectors if selector.cel is not None]
    found = [text for expression in expressions for text in _QUANTITY.findall(expression)]
    if spec.capacity is not None:
        found += map(str, spec.capacity.requests.values())
    if not found and expressions:
        return " that its selectors select"
    return _with(found)


def _with(amounts: Any) -> str:
    listed = list(amounts)
    return f" with {' and '.join(listed)}" if listed else ""
