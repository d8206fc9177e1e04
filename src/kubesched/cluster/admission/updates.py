"""Updates of spec and data: changes that are allowed or not depending on the object's state before.

Members that never change, and conditions between an object and its state before, are in ``rules.txt`` of the schema.
Rules and texts of pods: upstream ``pkg/apis/core/validation``. Caller: ``store`` for update and patch, after it has
decided which sections come from whom.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

import msgspec

from kubesched.api.equality import json_key, same_json
from kubesched.api.kinds import NODES, PODS
from kubesched.api.quantity import parse_quantity
from kubesched.api.wire import ApiError

from ..schema import Document, Stored, drop_nulls, open_section, root_type, types, unknown_members
from .admission import Admission, default_pod_spec
from .checks import check_changes, check_object, check_pod_spec
from .kinds import check_kind, fill_kind_defaults
from .pod_groups import check_parallelism, check_status
from .validation import Causes, repeated, volume_sources

__all__ = ["checked_spec_change"]

Data = dict[str, Any]

_POD_TEXT: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_ADDITIONS_TEXT: Final = "only additions are allowed (no mutations or deletions)"
_REQUIRED_TERMS: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_CONTAINERS: Final = ("containers", "initContainers")
_RESIZED: Final = ("resources", "resizePolicy")
_CLAIM_TEXT: Final = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)
_MOST_CONSUMERS: Final = 256
#: Kinds whose status has counts, which other clients than controllers may write.
_COUNTED: Final = frozenset(
    [
        *("replicationcontrollers", "jobs.batch", "poddisruptionbudgets.policy"),
        *(f"{name}.apps" for name in ("deployments", "replicasets", "statefulsets", "daemonsets")),
    ]
)
#: Fields that may change in the template of a suspended Job that has not begun.
_DIRECTIVES: Final = ("nodeSelector", "affinity", "tolerations", "schedulingGates")


def checked_spec_change(
    admission: Admission,
    old: Stored,
    before: Document,
    after: Document,
    changed: Sequence[str],
    causes: Causes,
    *,
    resize: bool,
) -> None:
    """Default and check the changed sections of ``after``, in place.

    Raises:
        ApiError: 400 for wrong types, 403 by policy. Invalid values go into ``causes``.
    """
    if old.kind == PODS:
        if "spec" in changed:
            _pod_spec_change(admission, before, after, causes, resize=resize)
        return
    for section in list(after):
        open_section(after, section)
    for section in changed:
        if after.get(section):
            # Copied, because a patch shares its values with the caller. Nulls in custom resources are data.
            after[section] = deepcopy(after[section]) if old.kind.custom else drop_nulls(after[section])
    data = old.data()
    type_ = None if old.kind.custom else root_type(old.kind.group, old.kind.kind)
    if type_ is not None:
        admission.drop_gated(type_.name, after, data)
    if old.kind == NODES or old.kind.custom or any(section != "status" for section in changed):
        fill_kind_defaults(old.kind, after, admission)
        check_kind(old.kind, after, causes, admission, data)
    if type_ is not None:
        check_changes(type_.name, data, after, causes, admission.features_off)
    if "status" in changed and old.kind.group_resource in _COUNTED and type_ is not None:
        check_object(type_.fields["status"].type, after.get("status") or {}, "status", causes)
    if check := _CHANGES.get(old.kind.group_resource):
        check(data, after, causes)
    if policy := _POLICIES.get(old.kind.group_resource):
        policy(data, after, causes, admission)


def _without(data: Data | None, names: Iterable[str]) -> Data:
    """Return an object without some of its members."""
    return {name: value for name, value in (data or {}).items() if name not in names}


# -- pods --------------------------------------------------------------------------------------------------


def _pod_spec_change(admission: Admission, before: Document, after: Document, causes: Causes, *, resize: bool) -> None:
    old_spec: Data = msgspec.json.decode(before["spec"])
    new_spec = open_section(after, "spec")
    if not isinstance(new_spec, dict):
        raise ApiError.bad_request(f"spec: must be an object, got {new_spec!r}")
    new_spec = drop_nulls(new_spec)
    for spec in (old_spec, new_spec):
        for owner, name, _ in unknown_members(types()["PodSpec"], spec):
            del owner[name]
    admission.drop_gated("PodSpec", new_spec, old_spec)
    default_pod_spec(old_spec)  # saved specs may lack defaults
    if resize:
        new_spec = _resized(old_spec, new_spec)
    default_pod_spec(new_spec)
    # A manifest that is applied again lacks the fields that admission wrote into the pod when it was created.
    for field in ("priority", "preemptionPolicy", "priorityClassName", "serviceAccountName", "serviceAccount"):
        if field not in new_spec and field in old_spec:
            new_spec[field] = old_spec[field]
    after["spec"] = new_spec
    if resize:
        if _bare(old_spec, _RESIZED) != _bare(new_spec, _RESIZED):
            causes.forbidden("spec", "only cpu and memory resources are mutable")
    else:
        admission.default_tolerations(new_spec)
        _check_pod_change(_bare(old_spec, ("image",)), _bare(new_spec, ("image",)), causes)
    check_pod_spec(new_spec, causes)


def _resized(old_spec: Data, new_spec: Data) -> Data:
    """Return the old spec with the new resources of its containers. A resize drops every other change.

    If containers or their order differ, return the new spec as given; validation then refuses it.
    """
    result = dict(old_spec)
    for field in _CONTAINERS:
        old, new = old_spec.get(field) or [], new_spec.get(field) or []
        if [item.get("name") for item in old] != [item.get("name") for item in new]:
            return new_spec
        if old:
            result[field] = [
                {**before, **{key: after[key] for key in _RESIZED if key in after}}
                for before, after in zip(old, new, strict=True)
            ]
    return result


def _bare(spec: Data, names: Iterable[str]) -> Data:
    """Return a copy of a pod spec whose containers lack some members."""
    return {**spec, **{field: [_without(item, names) for item in spec.get(field) or ()] for field in _CONTAINERS}}


def _check_pod_change(left: Data, right: Data, causes: Causes) -> None:
    """Check that two specs differ only where an update may change a pod.

    Changes that are allowed are taken out first.
    """
    _check_deadline(left.pop("activeDeadlineSeconds", None), right.pop("activeDeadlineSeconds", None), causes)
    old_grace, new_grace = (side.pop("terminationGracePeriodSeconds", None) for side in (left, right))
    if new_grace != old_grace and not (old_grace is not None and old_grace < 0 and new_grace == 1):
        causes.forbidden("spec", _POD_TEXT)
        return
    old_tolerations, new_tolerations = (
        [_without(item, ("tolerationSeconds",)) for item in side.pop("tolerations", None) or []]
        for side in (left, right)
    )
    if not set(map(json_key, old_tolerations)) <= set(map(json_key, new_tolerations)):
        causes.forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")
    gates = set(map(json_key, left.pop("schedulingGates", None) or []))
    for gate in right.pop("schedulingGates", None) or []:
        if json_key(gate) not in gates:
            why = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            causes.forbidden("spec.schedulingGates", why)
    if gates:
        _check_gated(left, right, causes)
    if left != right:
        causes.forbidden("spec", _POD_TEXT)


def _check_deadline(old: Any, new: Any, causes: Causes) -> None:
    path = "spec.activeDeadlineSeconds"
    if new is None:
        if old is not None:
            causes.invalid(path, None, "must not update from a positive integer to nil value")
    elif new < 0:
        causes.invalid(path, new, "must be greater than or equal to 0")
    elif old is not None and new > old:
        causes.invalid(path, new, f"must be less than or equal to previous value {old}")


def _check_gated(left: Data, right: Data, causes: Causes) -> None:
    """Check changes of a gated pod's node selector and required node affinity, which may only get narrower.

    A valid narrowing is taken out of both sides.
    """
    old_selector, new_selector = (side.pop("nodeSelector", None) or {} for side in (left, right))
    if any(new_selector.get(key) != value for key, value in old_selector.items()):
        causes.invalid("spec.nodeSelector", new_selector, _ADDITIONS_TEXT)
    affinities = [dict(side.pop("affinity", None) or {}) for side in (left, right)]
    old_terms, new_terms = (
        ((affinity.pop("nodeAffinity", None) or {}).get(_REQUIRED_TERMS) or {}).get("nodeSelectorTerms")
        for affinity in affinities
    )
    path = f"spec.affinity.nodeAffinity.{_REQUIRED_TERMS}.nodeSelectorTerms"
    if old_terms is not None and len(new_terms or ()) != len(old_terms):
        causes.invalid(path, new_terms, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")
    else:
        for index, (old, new) in enumerate(zip(old_terms or (), new_terms or (), strict=False)):
            for field in ("matchExpressions", "matchFields"):
                before, after = old.get(field) or [], new.get(field) or []
                if after[: len(before)] != before:
                    causes.invalid(f"{path}[{index}].{field}", after, _ADDITIONS_TEXT)
    if any(affinities):
        left["affinity"], right["affinity"] = affinities


# -- other kinds -------------------------------------------------------------------------------------------


def _job(old: Data, new: Data, causes: Causes) -> None:
    before, after = old["spec"], new["spec"]
    templates = [before["template"], after["template"]]
    if before.get("suspend") and not (old.get("status") or {}).get("startTime"):
        templates = [{"spec": _without(one.get("spec"), _DIRECTIVES)} for one in templates]
    if not same_json(*templates):
        causes.invalid("spec.template", after["template"], "field is immutable")


def _claim(old: Data, new: Data, causes: Causes) -> None:
    """Check an update of a claim: it is bound once, gets a class once, and grows only while it is bound."""
    before, after = old["spec"], new["spec"]
    free = {"volumeAttributesClassName"}
    free |= {name for name in ("volumeName", "storageClassName") if not before.get(name)}
    if (old.get("status") or {}).get("phase") == "Bound":
        free.add("resources")
        asked = (after.get("resources") or {}).get("requests")
        least, most = (_storage(one) for one in (old["status"].get("capacity"), asked))
        if least is not None and most is not None and most < least:
            causes.forbidden("spec.resources.requests.storage", "field can not be less than status.capacity")
    if not same_json(_without(before, free), _without(after, free)):
        causes.forbidden("spec", _CLAIM_TEXT)


def _volume(old: Data, new: Data, causes: Causes) -> None:
    """Check that the source of a volume does not change, except for the secrets of a CSI driver."""
    for name in volume_sources("PersistentVolumeSpec"):
        before, after = (data["spec"].get(name) for data in (old, new))
        if name == "csi" and before and after:
            before, after = (
                _without(one, [name for name in one if name.endswith("SecretRef")]) for one in (before, after)
            )
        if not same_json(before, after):
            what = "spec.persistentvolumesource"
            causes.forbidden(what, f"{what} is immutable after creation")
            return


def _storage(amounts: Data | None) -> int | None:
    text = (amounts or {}).get("storage")
    return None if text is None else parse_quantity(text).nanos


def _resource_claim(old: Data, new: Data, causes: Causes) -> None:
    """Check an update of a ResourceClaim: an allocation is written once and removed as a whole.

    Only an allocated claim can be reserved.

    The status of devices that are no longer allocated is dropped, in place.
    """
    before, after = old.get("status") or {}, new.get("status") or {}
    was, now = before.get("allocation"), after.get("allocation")
    if was is not None and now is not None and not same_json(was, now):
        causes.invalid("status.allocation", now, "field is immutable")
    users = after.get("reservedFor") or []
    if len(users) > _MOST_CONSUMERS:
        causes.too_many("status.reservedFor", len(users), _MOST_CONSUMERS)
    uids = [user.get("uid") for user in users]
    for index, (uid,) in repeated(users, ("uid",)):
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


#: Checks of updates by kind. Each gets the object before and after.
_CHANGES: Final[Mapping[str, Callable[[Data, Data, Causes], None]]] = {
    "jobs.batch": _job,
    "persistentvolumeclaims": _claim,
    "persistentvolumes": _volume,
    "resourceclaims.resource.k8s.io": _resource_claim,
}

#: Checks of updates that read settings or other objects, by kind.
_POLICIES: Final[Mapping[str, Callable[[Data, Data, Causes, Admission], None]]] = {
    "jobs.batch": check_parallelism,
    "podgroups.scheduling.k8s.io": check_status,
}
