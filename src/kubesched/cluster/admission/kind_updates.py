"""What an update may change, where that depends on the object's state before it.

Members that never change are in the table of :mod:`.kind_validation`, which is the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ...api.equality import same_json
from ...api.quantity import parse_quantity
from .validation import Causes

__all__ = ["KIND_UPDATES"]

Data = dict[str, Any]

_SET_FIELDS: Final = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)
_SET_TEXT: Final = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
    "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)
_CLAIM_TEXT: Final = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)
_FROZEN_TEXT: Final = "field is immutable when `immutable` is set"
#: What may change in the template of a suspended Job that has not begun.
_DIRECTIVES: Final = ("nodeSelector", "affinity", "tolerations", "schedulingGates")


def _without(data: Data | None, names: Iterable[str]) -> Data:
    return {name: value for name, value in (data or {}).items() if name not in names}


def _frozen(old: Data, new: Data, causes: Causes) -> None:
    """ConfigMaps and Secrets that are marked immutable."""
    if old.get("immutable"):
        if not new.get("immutable"):
            causes.forbidden("immutable", _FROZEN_TEXT)
        for field in ("data", "binaryData"):
            if not same_json(old.get(field) or {}, new.get(field) or {}):
                causes.forbidden(field, _FROZEN_TEXT)


def _stateful_set(old: Data, new: Data, causes: Causes) -> None:
    if not same_json(_without(old["spec"], _SET_FIELDS), _without(new["spec"], _SET_FIELDS)):
        causes.forbidden("spec", _SET_TEXT)


def _job(old: Data, new: Data, causes: Causes) -> None:
    before, after = old["spec"], new["spec"]
    templates = [before["template"], after["template"]]
    if before.get("suspend") and not (old.get("status") or {}).get("startTime"):
        templates = [{"spec": _without(one.get("spec"), _DIRECTIVES)} for one in templates]
    if not same_json(*templates):
        causes.invalid("spec.template", after["template"], "field is immutable")
    count, was = after.get("completions"), before.get("completions")
    elastic = after.get("completionMode") == "Indexed" and count is not None and count == after.get("parallelism")
    if count != was and not elastic:
        causes.invalid("spec.completions", count, "field is immutable")


def _claim(old: Data, new: Data, causes: Causes) -> None:
    """A claim is bound once, gets a class once, and grows while it is bound."""
    before, after = old["spec"], new["spec"]
    free = {"volumeAttributesClassName"}
    free |= {name for name in ("volumeName", "storageClassName") if not before.get(name)}
    if (old.get("status") or {}).get("phase") == "Bound":
        free.add("resources")
        least, most = (_storage(one) for one in ((old["status"] or {}).get("capacity"), after["resources"]["requests"]))
        if least is not None and most is not None and most < least:
            causes.forbidden("spec.resources.requests.storage", "field can not be less than status.capacity")
    if not same_json(_without(before, free), _without(after, free)):
        causes.forbidden("spec", _CLAIM_TEXT)


def _storage(amounts: Data | None) -> int | None:
    text = (amounts or {}).get("storage")
    return None if text is None else parse_quantity(text).nanos


#: Each gets the object before and after.
KIND_UPDATES: Final[Mapping[str, Callable[[Data, Data, Causes], None]]] = {
    "configmaps": _frozen,
    "secrets": _frozen,
    "statefulsets.apps": _stateful_set,
    "jobs.batch": _job,
    "persistentvolumeclaims": _claim,
}
