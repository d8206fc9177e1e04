"""Scores by prioritised lists: a subrequest that comes earlier in its list scores higher.

Source: rules/devices §5.5.
"""

from __future__ import annotations

from typing import Final

from kubesched.api.resource import AllocationResult, ResourceClaim

__all__ = ["has_preferences", "preference"]

#: Score of the first subrequest; no request has more subrequests than this.
_BEST: Final = 8


def has_preferences(claim: ResourceClaim) -> bool:
    """True if some request of the claim is a prioritised list."""
    return any(request.first_available for request in claim.spec.devices.requests)


def preference(claim: ResourceClaim, allocation: AllocationResult) -> int:
    """Raw score of an allocation of the claim."""
    chosen = {result.request for result in allocation.devices.results}
    return sum(
        _BEST - index
        for request in claim.spec.devices.requests
        for index, sub in enumerate(request.first_available)
        if f"{request.name}/{sub.name}" in chosen
    )
