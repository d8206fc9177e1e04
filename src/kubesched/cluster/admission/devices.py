"""Defaults of ``resource.k8s.io`` kinds, and the tables of what is filled in and checked for each.

Checked is what a scheduler, a driver or a user would notice. Caller: :mod:`.kind_validation`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .device_claims import check_claim, check_claim_update, check_template
from .device_members import Data, entries, member
from .device_supply import check_class, check_slice, check_taint_rule
from .validation import Causes

__all__ = ["DEVICE_CHECKS", "DEVICE_DEFAULTS", "DEVICE_UPDATES"]


def _default_request(request: Data) -> None:
    if not request.get("allocationMode"):
        request["allocationMode"] = "ExactCount"
    if request["allocationMode"] == "ExactCount" and not request.get("count"):
        request["count"] = 1
    for toleration in request.get("tolerations") or ():
        if isinstance(toleration, dict) and not toleration.get("operator"):
            toleration["operator"] = "Equal"


def _default_claim_spec(spec: Data, path: str) -> None:
    devices = member(spec, "devices", f"{path}.devices")
    for _, request in entries(devices, "requests", f"{path}.devices.requests"):
        if isinstance(request.get("exactly"), dict):
            _default_request(request["exactly"])
        for _, sub in entries(request, "firstAvailable", "firstAvailable"):
            _default_request(sub)


def _default_claim(data: Data, now: Callable[[], str]) -> None:
    _default_claim_spec(member(data, "spec", "spec"), "spec")


def _default_template(data: Data, now: Callable[[], str]) -> None:
    _default_claim_spec(member(member(data, "spec", "spec"), "spec", "spec.spec"), "spec.spec")


def _date(taint: Data, now: Callable[[], str]) -> None:
    if not taint.get("timeAdded"):
        taint["timeAdded"] = now()


def _default_slice(data: Data, now: Callable[[], str]) -> None:
    for path, device in entries(member(data, "spec", "spec"), "devices", "spec.devices"):
        if device.get("taints"):
            for _, taint in entries(device, "taints", f"{path}.taints"):
                _date(taint, now)


def _default_taint_rule(data: Data, now: Callable[[], str]) -> None:
    taint = member(member(data, "spec", "spec"), "taint", "spec.taint")
    if taint:
        _date(taint, now)


#: Each fills in defaults in place; the second argument gives the time of a taint that has none.
DEVICE_DEFAULTS: Final[dict[str, Callable[[Data, Callable[[], str]], None]]] = {
    "resourceclaims.resource.k8s.io": _default_claim,
    "resourceclaimtemplates.resource.k8s.io": _default_template,
    "resourceslices.resource.k8s.io": _default_slice,
    "devicetaintrules.resource.k8s.io": _default_taint_rule,
}

DEVICE_CHECKS: Final[dict[str, Callable[[Data, Causes], None]]] = {
    "resourceclaims.resource.k8s.io": check_claim,
    "resourceclaimtemplates.resource.k8s.io": check_template,
    "resourceslices.resource.k8s.io": check_slice,
    "deviceclasses.resource.k8s.io": check_class,
    "devicetaintrules.resource.k8s.io": check_taint_rule,
}

#: What a change from one state to the next must not do.
DEVICE_UPDATES: Final[dict[str, Callable[[Data, Data, Causes], None]]] = {
    "resourceclaims.resource.k8s.io": check_claim_update,
}
