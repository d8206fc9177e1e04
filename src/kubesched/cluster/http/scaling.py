"""The scale subresource: replica counts of workloads and of custom resources that declare one.

Callers: :mod:`.writing` and :mod:`.dispatch`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from aiohttp import web

from ...api.kinds import Kind
from ...api.wire import JSON_PATCH, MERGE_PATCH, ApiError, Item
from ..schema import apply_json_patch, apply_merge_patch, apply_strategic_patch, encode
from .apply import patch_object
from .calls import Call
from .catalog import Resource, Scale
from .cells import selector_text
from .jsonpath import find
from .posted import expect
from .reading import answer_object

__all__ = ["answer_scale", "patch_scale", "update_scale"]

#: Scales as a resource of their own, for answers.
_SCALES: Final = Resource(Kind("autoscaling", "v1", "Scale", "scales"), "v1")
_WORKLOAD: Final = Scale()


def _paths(call: Call) -> Scale:
    defined = call.resource.defined
    return (defined.scale if defined is not None else None) or _WORKLOAD


def _scale_of(call: Call, item: Item) -> dict[str, Any]:
    data, paths = item.data(), _paths(call)
    metadata = data["metadata"]
    status: dict[str, Any] = {"replicas": find(data, paths.status_replicas) or 0}
    if paths.label_selector:
        status["selector"] = str(find(data, paths.label_selector) or "")
    elif paths is _WORKLOAD and find(data, ".spec.selector"):
        status["selector"] = selector_text(data["spec"]["selector"])
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": _SCALES.kind.kind,
        "apiVersion": _SCALES.api_version,
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "spec": {"replicas": find(data, paths.spec_replicas) or 0},
        "status": status,
    }


def answer_scale(call: Call, item: Item) -> web.Response:
    """The Scale of an object, in the form asked for."""
    raw = encode(_scale_of(call, item))
    scale = Item(_SCALES.kind, raw, item.namespace, item.name, item.uid, item.resource_version)
    return answer_object(replace(call, resource=_SCALES), scale)


def update_scale(call: Call, raw: bytes) -> web.Response:
    """PUT of a Scale."""
    data = call.body(raw).data
    expect(data, "Scale", ("autoscaling/v1",))
    return _write(call, data)


def patch_scale(call: Call, change: Any, patch_type: str) -> web.Response:
    """PATCH of a Scale."""
    scale: Any = _scale_of(call, call.get())
    version = scale["metadata"].pop("resourceVersion", None)
    apply: Any = {JSON_PATCH: apply_json_patch, MERGE_PATCH: apply_merge_patch}.get(patch_type, apply_strategic_patch)
    scale = apply(scale, change)
    if not isinstance(scale, dict):
        raise ApiError.bad_request("the patch leaves no Scale")
    if version and isinstance(scale.get("metadata"), dict):
        scale["metadata"].setdefault("resourceVersion", version)
    return _write(call, scale)


def _write(call: Call, wanted: dict[str, Any]) -> web.Response:
    """Set the replica count that a Scale names; its resource version, if any, must be current.

    The writer owns the count from then on, when the object's fields have owners. 400 for a body without a replica
    count, 409 for a stale version, 422 for a negative count.
    """
    spec = wanted.get("spec")
    replicas = (spec or {}).get("replicas", 0) if isinstance(spec, dict | None) else None
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise ApiError.bad_request(f"spec.replicas: must be an integer, got {replicas!r}")
    if replicas < 0:
        message = f"Invalid value: {replicas}: must be greater than or equal to 0"
        causes = [("spec.replicas", "FieldValueInvalid", message)]
        raise ApiError.invalid(call.resource.kind, call.target.name, causes)
    change: Any = replicas
    for name in filter(None, reversed(_paths(call).spec_replicas.split("."))):
        change = {name: change}
    given = wanted.get("metadata")
    version = given.get("resourceVersion") if isinstance(given, dict) else None
    if version:
        change["metadata"] = {"resourceVersion": version}
    return answer_scale(call, patch_object(call, call.get(), change, MERGE_PATCH))
