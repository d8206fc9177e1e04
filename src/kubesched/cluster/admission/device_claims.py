"""Checks of ResourceClaims, their templates, and the claims of pods; and which changes a claim's status allows.

Facts: the API's field descriptions and the limits in spec "DynamicResources" section 1. Caller: :mod:`.devices`, and
admission for pods.
"""

from __future__ import annotations

from typing import Any, Final

from ...api.equality import same_json
from ...api.selectors import is_label_value, is_qualified_name
from .device_members import (
    Data,
    check_duplicate,
    check_selectors,
    entries,
    limit,
    member,
)
from .validation import LABEL_VALUE_TEXT, QUALIFIED_TEXT, Causes

__all__ = ["check_claim", "check_claim_update", "check_pod_claims", "check_template"]

_MOST_CONSUMERS: Final = 256


def _check_device_request(request: Data, path: str, causes: Causes) -> None:
    """The members that ``exactly`` and an entry of ``firstAvailable`` share."""
    check_selectors(request, path, causes)
    mode, count = request.get("allocationMode"), request.get("count")
    if mode == "All":
        if count:
            causes.invalid(f"{path}.count", count, "must not be specified when allocationMode is 'All'")
    elif mode == "ExactCount" and (count or 0) <= 0:
        causes.invalid(f"{path}.count", count, "must be greater than zero")
    for where, toleration in entries(request, "tolerations", f"{path}.tolerations"):
        _check_toleration(toleration, where, causes)


def _check_toleration(toleration: Data, path: str, causes: Causes) -> None:
    key, operator, value = (toleration.get(name) or "" for name in ("key", "operator", "value"))
    if key and not is_qualified_name(key):
        causes.invalid(f"{path}.key", key, QUALIFIED_TEXT)
    if operator == "Exists":
        if value:
            causes.invalid(f"{path}.value", value, "must be empty for operator `Exists`")
    elif operator == "Equal":
        if not key:
            causes.required(f"{path}.key", 'must be specified when operator is "Equal"')
        if not is_label_value(value):
            causes.invalid(f"{path}.value", value, LABEL_VALUE_TEXT)


def _check_claim_spec(spec: Data, path: str, causes: Causes) -> None:
    devices, where = member(spec, "devices"), f"{path}.devices"
    names: set[str] = set()
    known: set[str] = set()
    for at, request in entries(devices, "requests", f"{where}.requests"):
        check_duplicate(request.get("name"), f"{at}.name", causes, names)
        known.add(str(request.get("name")))
        exactly, first = request.get("exactly"), request.get("firstAvailable")
        if exactly is not None and first:
            causes.invalid(at, request, "exactly one of `exactly` or `firstAvailable` is allowed")
        elif exactly is not None:
            _check_device_request(member(request, "exactly"), f"{at}.exactly", causes)
        elif first:
            subs: set[str] = set()
            for place, sub in entries(request, "firstAvailable", f"{at}.firstAvailable"):
                check_duplicate(sub.get("name"), f"{place}.name", causes, subs)
                known.add(f"{request.get('name')}/{sub.get('name')}")
                _check_device_request(sub, place, causes)
        else:
            causes.required(at, "exactly one of `exactly` or `firstAvailable` is required")
    for at, constraint in entries(devices, "constraints", f"{where}.constraints"):
        _check_references(constraint, at, known, causes)
        given = [name for name in ("matchAttribute", "distinctAttribute") if constraint.get(name) is not None]
        if not given:
            causes.required(at, "exactly one of `matchAttribute`, or `distinctAttribute` is required")
        elif len(given) > 1:
            causes.invalid(at, constraint, "exactly one of `matchAttribute`, or `distinctAttribute` is allowed")
        elif "/" not in constraint[given[0]]:
            causes.invalid(f"{at}.{given[0]}", constraint[given[0]], "must include a domain")
    for at, config in entries(devices, "config", f"{where}.config"):
        _check_references(config, at, known, causes)


def _check_references(owner: Data, path: str, known: set[str], causes: Causes) -> None:
    for index, name in enumerate(owner.get("requests") or ()):
        if name not in known:
            text = (
                "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
            )
            causes.invalid(f"{path}.requests[{index}]", name, text)


def check_claim(data: Data, causes: Causes) -> None:
    _check_claim_spec(member(data, "spec"), "spec", causes)


def check_template(data: Data, causes: Causes) -> None:
    _check_claim_spec(member(member(data, "spec"), "spec"), "spec.spec", causes)


def check_claim_update(old: Data, new: Data, causes: Causes) -> None:
    """An allocation is written once, and removed as a whole; only an allocated claim is reserved.

    Device status of devices that are allocated no more is dropped, in place.
    """
    before, after = member(old, "status"), member(new, "status")
    was, now = before.get("allocation"), after.get("allocation")
    if was is not None and now is not None and not same_json(was, now):
        causes.invalid("status.allocation", now, "field is immutable")
    limit(after, "reservedFor", "status.reservedFor", _MOST_CONSUMERS, causes)
    users = after.get("reservedFor") or []
    uids = [user.get("uid") for user in users]
    for index, uid in enumerate(uids):
        if uid in uids[:index]:
            causes.duplicate(f"status.reservedFor[{index}].uid", uid)
    if users and now is None:
        causes.forbidden("status.reservedFor", "may not be specified when `allocated` is not set")
    elif new["metadata"].get("deletionTimestamp"):
        known = {user.get("uid") for user in before.get("reservedFor") or ()}
        if set(uids) - known:
            text = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
            causes.forbidden("status.reservedFor", text)
    reported = after.get("devices")
    if reported:
        results = member(member(after, "allocation"), "devices").get("results") or []
        held = {_device_key(result) for result in results}
        kept = [device for device in reported if _device_key(device) in held]
        if was is None or now is not None:
            for index, device in enumerate(reported):
                if _device_key(device) not in held:
                    text = "must be an allocated device in the claim"
                    causes.invalid(f"status.devices[{index}]", _device_key(device), text)
        elif kept:
            after["devices"] = kept
        else:
            after.pop("devices")


def _device_key(data: Data) -> tuple[Any, ...]:
    return tuple(data.get(field) for field in ("driver", "pool", "device", "shareID"))


def check_pod_claims(spec: Data, causes: Causes) -> None:
    """The claims of a pod spec: each names a claim or a template, and containers refer to those there are."""
    names = set()
    for path, claim in entries(spec, "resourceClaims", "spec.resourceClaims"):
        names.add(claim.get("name"))
        given = [field for field in ("resourceClaimName", "resourceClaimTemplateName") if claim.get(field)]
        if not given:
            text = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            causes.invalid(path, claim, text)
        elif len(given) > 1:
            text = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            causes.invalid(path, claim, text)
    for field in ("initContainers", "containers"):
        for path, container in entries(spec, field, f"spec.{field}"):
            resources = container.get("resources")
            if resources:
                for where, reference in entries(resources, "claims", f"{path}.resources.claims"):
                    if reference.get("name") not in names:
                        text = "must be one of the names in pod.spec.resourceClaims"
                        causes.append(
                            (f"{where}.name", "FieldValueNotFound", f"Not found: {_shown(reference)}: {text}")
                        )


def _shown(reference: Data) -> str:
    return f'"{reference.get("name") or ""}"'
