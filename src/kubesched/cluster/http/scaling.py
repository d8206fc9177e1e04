"""The scale subresource: replica counts of workloads and of custom resources that declare one.

Caller: :mod:`.writing` and :mod:`.dispatch`.
"""

from __future__ import annotations

from typing import Any

from ...api.wire import MERGE_PATCH, ApiError, Item
from ..schema import encode
from ..store import Store
from .apply import is_tracked, tracked_update
from .catalog import Resource
from .cells import selector_text
from .jsonpath import dotted, find

__all__ = ["read_scale", "scale_of", "write_scale"]


def scale_of(resource: Resource, item: Item) -> dict[str, Any]:
    """The Scale of an object, as plain data."""
    data = item.data()
    metadata = data["metadata"]
    scale = resource.defined.scale if resource.defined is not None else None
    spec_path = scale.spec_replicas if scale else ".spec.replicas"
    status_path = scale.status_replicas if scale else ".status.replicas"
    status: dict[str, Any] = {"replicas": find(data, status_path) or 0}
    if scale is None:
        selector = (data.get("spec") or {}).get("selector")
        if selector:
            status["selector"] = selector_text(selector)
    elif scale.label_selector:
        status["selector"] = str(find(data, scale.label_selector) or "")
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "spec": {"replicas": find(data, spec_path) or 0},
        "status": status,
    }


def read_scale(store: Store, resource: Resource, namespace: str, name: str) -> bytes:
    """The bytes of a Scale."""
    return encode(scale_of(resource, store.get(resource.kind, namespace, name)))


def write_scale(
    store: Store, resource: Resource, namespace: str, name: str, wanted: Any, *, manager: str, dry_run: bool
) -> bytes:
    """Set the replica count that a Scale names; its resource version, if any, must be current.

    ``manager`` owns the count from then on, when the object's fields have owners.

    Raises:
        ApiError: 400 for a body without a replica count, 409 for a stale version, 422 for a negative count.
    """
    spec = wanted.get("spec") if isinstance(wanted, dict) else None
    replicas = (spec or {}).get("replicas", 0) if isinstance(spec, dict | None) else None
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise ApiError.bad_request(f"spec.replicas: must be an integer, got {replicas!r}")
    if replicas < 0:
        message = f"Invalid value: {replicas}: must be greater than or equal to 0"
        raise ApiError.invalid(resource.kind, name, [("spec.replicas", "FieldValueInvalid", message)])
    given = wanted.get("metadata")
    version = given.get("resourceVersion") if isinstance(given, dict) else None
    scale = resource.defined.scale if resource.defined is not None else None
    patch: Any = replicas
    for part in reversed(dotted(scale.spec_replicas if scale else ".spec.replicas")):
        patch = {part: patch}
    if version:
        patch["metadata"] = {"resourceVersion": version}
    kind, old = resource.kind, store.get(resource.kind, namespace, name)
    if not is_tracked(old):
        item = store.patch(kind, namespace, name, patch, patch_type=MERGE_PATCH, dry_run=dry_run)
        return encode(scale_of(resource, item))
    trial = store.patch(kind, namespace, name, patch, patch_type=MERGE_PATCH, dry_run=True)
    if trial.raw == old.raw:
        return encode(scale_of(resource, old))
    data = tracked_update(store, resource, old, trial, manager=manager, subresource="scale", given=patch)
    return encode(scale_of(resource, store.update(kind, namespace, name, data, dry_run=dry_run)))
