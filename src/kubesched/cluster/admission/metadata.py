"""Metadata of an object being created or changed: fields that the server decides, and fields that the client may set.

Caller: ``store``. Nothing here reads spec or status.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from kubesched.api.equality import json_key
from kubesched.api.kinds import KINDS, NODES, PODS, Kind
from kubesched.api.wire import ApiError

from ..schema import Stored, drop_nulls, encode, root_type
from .validation import Causes

__all__ = ["SERVER_FIELDS", "STATUS_KINDS", "changed_metadata", "check_preconditions", "new_metadata"]

_TYPES: Final = {
    kind.group_resource: type_ for kind in KINDS if (type_ := root_type(kind.group, kind.kind)) is not None
}
#: Kinds whose status is written through the status subresource only: every kind that has a status.
STATUS_KINDS: Final = frozenset(name for name, type_ in _TYPES.items() if "status" in type_.fields)
#: Kinds whose ``metadata.generation`` counts changes of the spec.
_GENERATION_KINDS: Final = frozenset(name for name, type_ in _TYPES.items() if type_.has_generation)
#: Kinds besides custom ones of which an update must name a version. Rule: upstream ``AllowUnconditionalUpdate``.
_VERSIONED: Final = (
    {"apiservices.apiregistration.k8s.io", "customresourcedefinitions.apiextensions.k8s.io"}
    | {"leasecandidates.coordination.k8s.io", "leases.coordination.k8s.io"}
    | {"poddisruptionbudgets.policy", "runtimeclasses.node.k8s.io", "volumeattachments.storage.k8s.io"}
    | {f"{name}.storage.k8s.io" for name in ("csidrivers", "csinodes", "csistoragecapacities")}
    | {kind.group_resource for kind in KINDS if kind.group == "admissionregistration.k8s.io"}
)
#: Fields that keep their values when a client changes an object.
_KEPT: Final = (
    "generateName",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
#: Fields that only the server writes, and the identity.
SERVER_FIELDS: Final = frozenset({"name", "namespace", "selfLink", *_KEPT})


def new_metadata(
    kind: Kind, namespace: str, given: Mapping[str, Any], name: str, uid: str, created: str
) -> dict[str, Any]:
    """Return the metadata to store with a new object. Fields that the server decides overrule the client's fields. The
    result is a private copy.

    Raises:
        ApiError: 400, when the body names another namespace than the request.
    """
    metadata: dict[str, Any] = {"name": name}
    if given.get("generateName"):
        metadata["generateName"] = given["generateName"]
    if kind.namespaced:
        metadata["namespace"] = namespace
    metadata["uid"] = uid
    metadata["resourceVersion"] = ""
    if kind.custom or kind.group_resource in _GENERATION_KINDS:
        metadata["generation"] = 1
    metadata["creationTimestamp"] = created
    for key, value in given.items():
        if key not in SERVER_FIELDS and value:
            # The stored labels must not be shared with the caller, which may continue to use its own dict.
            metadata[key] = dict(value) if isinstance(value, dict) else value
    return metadata


def check_preconditions(kind: Kind, stored: Stored, uid: str, resource_version: str = "") -> None:
    """Refuse a request meant for another object of this name (by UID), or for another version. "" matches any.

    Raises:
        ApiError: 409.
    """
    if uid and uid != stored.uid:
        what, wanted, found = "UID", uid, stored.uid
    elif resource_version and resource_version != str(stored.resource_version):
        what, wanted, found = "ResourceVersion", resource_version, str(stored.resource_version)
    else:
        return
    why = f"Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
    raise ApiError.conflict(kind, stored.name, why)


def changed_metadata(
    kind: Kind, old: Stored, old_metadata: dict[str, Any], given: dict[str, Any], subresource: str
) -> dict[str, Any]:
    """Return the metadata after an update: the client's labels, annotations, owners and finalizers; other fields stay.

    Raises:
        ApiError: 409 for a stale version or another UID, 400 for another name, 422 for new finalizers on an
            object that is being deleted, and where an update must name a version.
    """
    version = given.get("resourceVersion")
    if version in (None, "", "0"):  # unconditional
        if kind.custom or kind.group_resource in _VERSIONED:
            why = "Invalid value: 0x0: must be specified for an update"
            cause = ("metadata.resourceVersion", "FieldValueInvalid", why)
            # Upstream shows the resource in place of the kind.
            raise ApiError.invalid(replace(kind, kind=kind.plural), old.name, [cause])
    elif version != str(old.resource_version):
        why = "the object has been modified; please apply your changes to the latest version and try again"
        raise ApiError.conflict(kind, old.name, why)
    check_preconditions(kind, old, given.get("uid") or "")
    if given.get("name", old.name) != old.name:
        text = f"the name of the object ({given['name']}) does not match the name on the URL ({old.name})"
        raise ApiError.bad_request(text)
    if given.get("namespace", old.namespace) not in (old.namespace, ""):
        raise ApiError.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    copied = ("name", "namespace", *_KEPT)
    metadata: dict[str, Any] = {key: old_metadata[key] for key in copied if key in old_metadata}
    metadata.update((key, value) for key, value in given.items() if key not in SERVER_FIELDS and value)
    if subresource:
        for key in ("ownerReferences", "finalizers", *(() if kind in (PODS, NODES) else ("labels",))):
            metadata.pop(key, None)
            if key in old_metadata:
                metadata[key] = old_metadata[key]
    if "deletionTimestamp" in old_metadata:
        known = set(map(json_key, old_metadata.get("finalizers") or []))
        if not isinstance(metadata.get("finalizers") or [], list):
            raise ApiError.bad_request(f"metadata.finalizers: must be a list, got {metadata['finalizers']!r}")
        fresh = [item for item in metadata.get("finalizers") or [] if json_key(item) not in known]
        if fresh:
            causes = Causes()
            shown = f"[]string{{{', '.join(encode(drop_nulls(one)).decode() for one in fresh)}}}"
            why = f"no new finalizers can be added if the object is being deleted, found new finalizers {shown}"
            causes.forbidden("metadata.finalizers", why)
            causes.raise_if_any(kind, old.name)
    return metadata
