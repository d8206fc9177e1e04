"""What an update may change, where that depends on the object's state before it.

Members that never change are in ``rules.txt`` of the schema. Caller: :mod:`.kind_validation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ...api.equality import same_json
from ...api.quantity import parse_quantity
from .validation import Causes, volume_sources

__all__ = ["KIND_UPDATES", "without"]

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
_CSI_SECRETS: Final = (
    "controllerPublishSecretRef",
    "controllerExpandSecretRef",
    "nodeStageSecretRef",
    "nodePublishSecretRef",
    "nodeExpandSecretRef",
)
_MOST_CONSUMERS: Final = 256
#: What may change in the template of a suspended Job that has not begun.
_DIRECTIVES: Final = ("nodeSelector", "affinity", "tolerations", "schedulingGates")


def without(data: Data | None, names: Iterable[str]) -> Data:
    """An object without some of its members."""
    return {name: value for name, value in (data or {}).items() if name not in names}


def _stateful_set(old: Data, new: Data, causes: Causes) -> None:
    if not same_json(without(old["spec"], _SET_FIELDS), without(new["spec"], _SET_FIELDS)):
        causes.forbidden("spec", _SET_TEXT)


def _job(old: Data, new: Data, causes: Causes) -> None:
    before, after = old["spec"], new["spec"]
    templates = [before["template"], after["template"]]
    if before.get("suspend") and not (old.get("status") or {}).get("startTime"):
        templates = [{"spec": without(one.get("spec"), _DIRECTIVES)} for one in templates]
    if not same_json(*templates):
        causes.invalid("spec.template", after["template"], "field is immutable")


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
    if not same_json(without(before, free), without(after, free)):
        causes.forbidden("spec", _CLAIM_TEXT)


def _volume(old: Data, new: Data, causes: Causes) -> None:
    """What a volume is made of does not change; secrets of a CSI driver may."""
    for name in volume_sources("PersistentVolumeSpec"):
        before, after = (data["spec"].get(name) for data in (old, new))
        if name == "csi" and before and after:
            before, after = (without(source, _CSI_SECRETS) for source in (before, after))
        if not same_json(before, after):
            what = "spec.persistentvolumesource"
            causes.forbidden(what, f"{what} is immutable after creation")
            return


def _storage(amounts: Data | None) -> int | None:
    text = (amounts or {}).get("storage")
    return None if text is None else parse_quantity(text).nanos


def _resource_claim(old: Data, new: Data, causes: Causes) -> None:
    """An allocation is written once, and removed as a whole; only an allocated claim is reserved.

    Device status of devices that are allocated no more is dropped, in place.
    """
    before, after = old.get("status") or {}, new.get("status") or {}
    was, now = before.get("allocation"), after.get("allocation")
    if was is not None and now is not None and not same_json(was, now):
        causes.invalid("status.allocation", now, "field is immutable")
    users = after.get("reservedFor") or []
    if len(users) > _MOST_CONSUMERS:
        causes.too_many("status.reservedFor", len(users), _MOST_CONSUMERS)
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
        results = ((now or {}).get("devices") or {}).get("results") or []
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


#: Each gets the object before and after.
KIND_UPDATES: Final[Mapping[str, Callable[[Data, Data, Causes], None]]] = {
    "statefulsets.apps": _stateful_set,
    "jobs.batch": _job,
    "persistentvolumeclaims": _claim,
    "persistentvolumes": _volume,
    "resourceclaims.resource.k8s.io": _resource_claim,
}
