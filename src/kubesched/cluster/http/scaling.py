"""The scale subresource: replica counts of workloads and of custom resources that declare one.

Caller: :mod:`.writing` and :mod:`.dispatch`.
"""

from __future__ import annotations

from typing import Any, Final

from ...api.kinds import Kind
from ...api.wire import MERGE_PATCH, ApiError, Item
from ..schema import encode
from ..store import Store
from .apply import patch_object
from .calls import Call
from .catalog import Resource
from .cells import selector_text
from .crds import Scale
from .jsonpath import dotted, find

__all__ = ["SCALES", "scale_of", "write_scale"]

#: Scales as a resource of their own, for answers.
SCALES: Final = Resource(Kind("autoscaling", "v1", "Scale", "scales"), "v1")
_WORKLOAD: Final = Scale()


def _paths(resource: Resource) -> Scale:
    return (resource.defined.scale if resource.defined is not None else None) or _WORKLOAD


def scale_of(resource: Resource, item: Item) -> Item:
    """The Scale of an object."""
    data, paths = item.data(), _paths(resource)
    metadata = data["metadata"]
    status: dict[str, Any] = {"replicas": find(data, paths.status_replicas) or 0}
    if paths.label_selector:
        status["selector"] = str(find(data, paths.label_selector) or "")
    elif paths is _WORKLOAD and find(data, ".spec.selector"):
        status["selector"] = selector_text(data["spec"]["selector"])
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    scale = {
        "kind": SCALES.kind.kind,
        "apiVersion": SCALES.api_version,
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "spec": {"replicas": find(data, paths.spec_replicas) or 0},
        "status": status,
    }
    return Item(SCALES.kind, encode(scale), item.namespace, item.name, item.uid, item.resource_version)


def write_scale(store: Store, call: Call, wanted: Any, *, manager: str, dry_run: bool) -> Item:
    """Set the replica count that a Scale names; its resource version, if any, must be current.

    ``manager`` owns the count from then on, when the object's fields have owners.

    Raises:
        ApiError: 400 for a body without a replica count, 409 for a stale version, 422 for a negative count.
    """
    resource, target = call.resource, call.target
    spec = wanted.get("spec") if isinstance(wanted, dict) else None
    replicas = (spec or {}).get("replicas", 0) if isinstance(spec, dict | None) else None
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise ApiError.bad_request(f"spec.replicas: must be an integer, got {replicas!r}")
    if replicas < 0:
        message = f"Invalid value: {replicas}: must be greater than or equal to 0"
        raise ApiError.invalid(resource.kind, target.name, [("spec.replicas", "FieldValueInvalid", message)])
    given = wanted.get("metadata")
    version = given.get("resourceVersion") if isinstance(given, dict) else None
    patch: Any = replicas
    for part in reversed(dotted(_paths(resource).spec_replicas)):
        patch = {part: patch}
    if version:
        patch["metadata"] = {"resourceVersion": version}
    old = store.get(resource.kind, target.namespace, target.name)
    item = patch_object(store, call, old, patch, MERGE_PATCH, manager=manager, subresource="scale", dry_run=dry_run)
    return scale_of(resource, item)
