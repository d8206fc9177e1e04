"""Rules that find scenarios whose records depend on data that was not recorded. A rule reads the scenario's pods.

A rule is only applied to a vector that differs in every reading. Such a vector counts as not compared, with the
reason.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from kubesched.scheduler.nodes.podinfo import PodInfo

from .decimals import drifts
from .world import World

__all__ = ["beyond_comparison"]

_DRIFT: Final = "how often Kubernetes has added the overhead to a quantity of a pod depends on how the recording ran"
_TWICE: Final = "Kubernetes allocates devices twice for a pod that names a ResourceClaim twice (declared)"
_EMPTY_CLAIM: Final = (
    "Kubernetes makes an empty claim for an extended resource that the node's device plugin serves (declared)"
)
_HELD_TWICE: Final = "Kubernetes forgets that a device is in use when one of two claims that hold it is deallocated"
_SLICES: Final = "it depends on chance which slice of a pool states the number of slices"
_FREE_AT_ONCE: Final = (
    "preemption counts on the devices of a claim that the same attempt deallocates, unlike in Kubernetes (declared)"
)
_DEALLOCATED: Final = "deallocation of ResourceClaim completed"

JSON = dict[str, Any]


def beyond_comparison(world: World, vector: JSON) -> str:
    """Return the reason why the records of a vector may disagree; empty when no rule knows one."""
    if any(map(_names_a_claim_twice, world.pending)):
        return _TWICE
    listed = (*vector["expected"].get("pods", ()), *vector["expected"].get("steps", ()))
    attempts = [attempt for attempt in listed if isinstance(attempt, dict)]
    if any(map(_makes_an_empty_claim, attempts)):
        return _EMPTY_CLAIM
    if vector["mode"] == "sequential" and _is_any_device_held_twice(world):
        return _HELD_TWICE
    if _do_slices_disagree(world):
        return _SLICES
    if any(map(_deallocates, attempts)):
        return _FREE_AT_ONCE
    return _DRIFT if any(map(drifts, (*world.pending, *world.cache.pods.values()))) else ""


def _names_a_claim_twice(pod: PodInfo) -> bool:
    made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    names = [each.resource_claim_name or made.get(each.name) for each in pod.spec.resource_claims]
    known = [name for name in names if name]
    return len(set(known)) < len(known)


def _is_any_device_held_twice(world: World) -> bool:
    held: Counter[tuple[str, str, str]] = Counter()
    for claim in world.objects.informed("resourceclaims").values():
        allocation = claim.status.allocation
        results = allocation.devices.results if allocation is not None else ()
        held.update(
            (each.driver, each.pool, each.device) for each in results if not each.admin_access and not each.share_id
        )
    return any(count > 1 for count in held.values())


def _do_slices_disagree(world: World) -> bool:
    """True if slices of one pool and generation state different numbers of slices."""
    stated: dict[tuple[str, str, int], int] = {}
    for each in world.objects.informed("resourceslices").values():
        pool = each.spec.pool
        number = stated.setdefault((each.spec.driver, pool.name, pool.generation), pool.resource_slice_count)
        if number != pool.resource_slice_count:
            return True
    return False


def _deallocates(attempt: JSON) -> bool:
    return _DEALLOCATED in attempt.get("preemption", {}).get("status", {}).get("reasons", ())


def _makes_an_empty_claim(attempt: JSON) -> bool:
    claims = (claim for listed in attempt.get("devices", {}).values() for claim in listed)
    return any(claim["claim"] == "<extended-resources>" and not claim["devices"] for claim in claims)
