"""Create, update, patch, delete and the pod's subresources over HTTP.

Body in, checks, one verb of the store, answer out. Nothing waits between reading the store and writing to it.
Caller: :mod:`.dispatch`, with the body already read.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiohttp import web

from ...api.turns import in_turns
from ...api.wire import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, ApiError, Item
from ..schema import apply_json_patch, apply_merge_patch, apply_strategic_patch
from ..store import Store
from .answers import success
from .apply import apply_object, is_tracked, tracked_update
from .bodies import Body, decode_body, media_type, unsupported
from .calls import Call
from .fieldcheck import check_fields
from .reading import answer_object, read_page, shape_list
from .scaling import scale_of, write_scale
from .tables import BATCH

__all__ = ["create", "delete", "delete_collection", "patch", "update"]

APPLY_PATCH: Final = "application/apply-patch+yaml"
_MAX_OPERATIONS: Final = 10_000
#: Kinds that a PUT creates when they are not there. Rule: upstream ``AllowCreateOnUpdate``.
_CREATED_BY_PUT: Final = frozenset(
    {
        "clusterrolebindings.rbac.authorization.k8s.io",
        "clusterroles.rbac.authorization.k8s.io",
        "endpoints",
        "events",
        "leases.coordination.k8s.io",
        "limitranges",
        "podtemplates",
        "priorityclasses.scheduling.k8s.io",
        "rolebindings.rbac.authorization.k8s.io",
        "roles.rbac.authorization.k8s.io",
        "services",
    }
)


def _decoded(call: Call, raw: bytes, options: str, *, check: bool = True) -> Any:
    """The object in a body; unknown fields are warned of or refused."""
    validation = call.query.field_validation(options)
    body = decode_body(raw, call.request.headers.get("Content-Type", ""))
    if check:
        call.warnings += check_fields(call.resource, body.data, body.duplicates, validation)
    return call.resource.inward(body.data)


# -- create ----------------------------------------------------------------------------------------------


def create(store: Store, call: Call, raw: bytes) -> web.Response:
    """POST on a collection."""
    options = "CreateOptions"
    dry_run = call.query.dry_run(options)
    call.query.field_manager(options)
    data = _decoded(call, raw, options)
    resource = call.resource
    if resource.defined is not None and resource.defined.has_status and isinstance(data, dict) and "status" in data:
        data = {key: value for key, value in data.items() if key != "status"}
    item = store.create(resource.kind, call.target.namespace, data, dry_run=dry_run)
    return answer_object(store, call, item, 201)


def bind(store: Store, call: Call, raw: bytes, name: str = "") -> web.Response:
    """POST of a Binding, on the pod's subresource or on ``bindings``."""
    dry_run = call.query.dry_run("CreateOptions")
    data = decode_body(raw, call.request.headers.get("Content-Type", "")).data
    _expect(data, "Binding", ("v1",))
    target, metadata = _member(data, "target"), _member(data, "metadata")
    named = _text(metadata, "name")
    if name and named != name:
        raise ApiError.bad_request("name in URL does not match name in Binding object")
    _expect_namespace(metadata, call.target.namespace)
    if target.get("kind") not in (None, "", "Node"):
        shown = str(target.get("kind"))
        message = f'Unsupported value: "{shown}": supported values: "Node", "<empty>"'
        raise ApiError.invalid(call.resource.kind, name, [("target.kind", "FieldValueNotSupported", message)])
    annotations = metadata.get("annotations")
    if annotations is not None and not (
        isinstance(annotations, dict) and all(isinstance(value, str) for value in annotations.values())
    ):
        raise ApiError.bad_request("metadata.annotations: must be an object of strings")
    store.bind(
        call.target.namespace,
        named,
        _text(metadata, "uid"),
        _text(target, "name"),
        annotations=annotations,
        dry_run=dry_run,
    )
    return call.answer(success(), 201)


def evict(store: Store, call: Call, raw: bytes) -> web.Response:
    """POST of an Eviction."""
    dry_run = call.query.dry_run("CreateOptions")
    data = decode_body(raw, call.request.headers.get("Content-Type", "")).data if raw.strip() else {}
    _expect(data, "Eviction", ("policy/v1", "policy/v1beta1"))
    metadata = _member(data, "metadata")
    if _text(metadata, "name") not in ("", call.target.name):
        raise ApiError.bad_request("name in URL does not match name in Eviction object")
    _expect_namespace(metadata, call.target.namespace)
    options = _member(data, "deleteOptions")
    grace = options.get("gracePeriodSeconds")
    if grace is not None and (not isinstance(grace, int) or isinstance(grace, bool)):
        raise ApiError.bad_request(f"deleteOptions.gracePeriodSeconds: must be an integer, got {grace!r}")
    dry_run = dry_run or options.get("dryRun") == ["All"]
    target = call.target
    uid = _text(_member(options, "preconditions"), "uid")
    if uid and store.get(call.resource.kind, target.namespace, target.name).uid != uid:
        raise ApiError.conflict(call.resource.kind, target.name, f"Precondition failed: UID in precondition: {uid}")
    store.evict(target.namespace, target.name, grace_period_seconds=grace, dry_run=dry_run)
    return call.answer(success(), 201)


def _expect(data: Any, kind: str, versions: tuple[str, ...]) -> None:
    """The body must be an object of this kind, where it says what it is."""
    if not isinstance(data, dict):
        raise ApiError.bad_request(f"a {kind} is an object, got {type(data).__name__}")
    if data.get("kind") not in (None, "", kind) or data.get("apiVersion") not in (None, "", *versions):
        raise ApiError.bad_request(f"{data.get('apiVersion')} {data.get('kind')} cannot be handled as a {kind}")


def _expect_namespace(metadata: dict[str, Any], namespace: str) -> None:
    if _text(metadata, "namespace") not in ("", namespace):
        raise ApiError.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def _member(data: Any, name: str) -> dict[str, Any]:
    value = data.get(name) if isinstance(data, dict) else None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ApiError.bad_request(f"{name}: must be an object, got {value!r}")
    return value


def _text(data: dict[str, Any], name: str) -> str:
    value = data.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ApiError.bad_request(f"{name}: must be a string, got {value!r}")
    return value


# -- update and patch ------------------------------------------------------------------------------------


def update(store: Store, call: Call, raw: bytes) -> web.Response:
    """PUT of an object, its status, its resize or its scale."""
    options = "UpdateOptions"
    dry_run, manager = call.query.dry_run(options), call.manager(options)
    target, resource = call.target, call.resource
    if target.subresource == "scale":
        data = _decoded(call, raw, options, check=False)
        _expect(data, "Scale", ("autoscaling/v1",))
        raw = write_scale(store, resource, target.namespace, target.name, data, manager=manager, dry_run=dry_run)
        return call.answer(raw)
    data = _decoded(call, raw, options)
    if isinstance(data, dict):
        named = (data.get("metadata") or {}) if isinstance(data.get("metadata"), dict | None) else {}
        if not named.get("name"):
            data = {**data, "metadata": {**named, "name": target.name}}
    try:
        old = store.get(resource.kind, target.namespace, target.name)
    except ApiError as error:
        if error.code != 404 or target.subresource or resource.kind.group_resource not in _CREATED_BY_PUT:
            raise
        name = data["metadata"]["name"] if isinstance(data, dict) else target.name
        if name != target.name:
            text = f"the name of the object ({name}) does not match the name on the URL ({target.name})"
            raise ApiError.bad_request(text) from None
        return answer_object(store, call, store.create(resource.kind, target.namespace, data, dry_run=dry_run), 201)

    def write(obj: Any, dry_run: bool) -> Item:
        return store.update(
            resource.kind, target.namespace, target.name, obj, subresource=target.subresource, dry_run=dry_run
        )

    if is_tracked(old):
        trial = write(data, dry_run=True)
        data = tracked_update(store, resource, old, trial, manager=manager, subresource=target.subresource, given=data)
    return answer_object(store, call, write(data, dry_run))


def patch(store: Store, call: Call, raw: bytes) -> web.Response:
    """PATCH in one of four types."""
    options, query, resource = "PatchOptions", call.query, call.resource
    dry_run = query.dry_run(options)
    content_type = call.request.headers.get("Content-Type", "")
    patch_type = media_type(content_type)
    accepted = [JSON_PATCH, MERGE_PATCH, APPLY_PATCH]
    if resource.defined is None:
        accepted.append(STRATEGIC_PATCH)
    if patch_type not in accepted:
        raise unsupported(tuple(accepted))
    if patch_type == APPLY_PATCH:
        return _apply(store, call, raw, dry_run=dry_run)
    if query.has("force"):
        raise _patch_options("force", "FieldValueForbidden", "Forbidden: may not be specified for non-apply patch")
    manager, validation = call.manager(options), query.field_validation(options)
    body = decode_body(raw, content_type)
    if patch_type == JSON_PATCH:
        if isinstance(body.data, list) and len(body.data) > _MAX_OPERATIONS:
            text = f"The allowed maximum operations in a JSON patch is {_MAX_OPERATIONS}, got {len(body.data)}"
            raise ApiError(413, "RequestEntityTooLarge", text)
    else:
        if not isinstance(body.data, dict):
            raise ApiError.bad_request("a merge patch of an object is an object")
        if call.target.subresource != "scale":
            merging = patch_type == STRATEGIC_PATCH
            call.warnings += check_fields(resource, body.data, body.duplicates, validation, patch=merging)
    if call.target.subresource == "scale":
        return _patch_scale(store, call, patch_type, body, manager, dry_run=dry_run)
    return _patch_object(store, call, patch_type, resource.inward(body.data), manager, dry_run=dry_run)


def _patch_object(
    store: Store, call: Call, patch_type: str, change: Any, manager: str, *, dry_run: bool
) -> web.Response:
    target, resource = call.target, call.resource
    if isinstance(change, dict) and isinstance(change.get("metadata"), dict):
        name = change["metadata"].get("name")
        if name not in (None, target.name):
            text = f"the name of the object ({name}) does not match the name on the URL ({target.name})"
            raise ApiError.bad_request(text)

    def write(dry_run: bool) -> Item:
        return store.patch(
            resource.kind,
            target.namespace,
            target.name,
            change,
            patch_type=patch_type,
            subresource=target.subresource,
            dry_run=dry_run,
        )

    old = store.get(resource.kind, target.namespace, target.name)
    if not is_tracked(old):
        if isinstance(change, list) and any(_is_about_owners(operation) for operation in change):
            # kubectl moves ownership over after an apply, also after a dry run of one, when nothing is there yet.
            change = [{"op": "add", "path": "/metadata/managedFields", "value": []}, *change]
        return answer_object(store, call, write(dry_run))
    trial = write(dry_run=True)
    if trial.raw == old.raw:
        return answer_object(store, call, old)
    data = tracked_update(store, resource, old, trial, manager=manager, subresource=target.subresource, given=change)
    item = store.update(
        resource.kind, target.namespace, target.name, data, subresource=target.subresource, dry_run=dry_run
    )
    return answer_object(store, call, item)


def _is_about_owners(operation: Any) -> bool:
    return isinstance(operation, dict) and str(operation.get("path", "")).startswith("/metadata/managedFields")


def _patch_scale(store: Store, call: Call, patch_type: str, body: Body, manager: str, *, dry_run: bool) -> web.Response:
    target, resource = call.target, call.resource
    scale: Any = scale_of(resource, store.get(resource.kind, target.namespace, target.name))
    version = scale["metadata"].pop("resourceVersion", None)
    if patch_type == JSON_PATCH:
        scale = apply_json_patch(scale, body.data)
    elif patch_type == MERGE_PATCH:
        scale = apply_merge_patch(scale, body.data)
    else:
        scale = apply_strategic_patch(scale, body.data)
    if not isinstance(scale, dict):
        raise ApiError.bad_request("the patch leaves no Scale")
    metadata = scale.get("metadata")
    if version and isinstance(metadata, dict):
        metadata.setdefault("resourceVersion", version)
    raw = write_scale(store, resource, target.namespace, target.name, scale, manager=manager, dry_run=dry_run)
    return call.answer(raw)


def _patch_options(field: str, reason: str, message: str) -> ApiError:
    details = {
        "group": "meta.k8s.io",
        "kind": "PatchOptions",
        "causes": [{"reason": reason, "message": message, "field": field}],
    }
    return ApiError(422, "Invalid", f'PatchOptions.meta.k8s.io "" is invalid: {field}: {message}', details)


def _apply(store: Store, call: Call, raw: bytes, *, dry_run: bool) -> web.Response:
    options, query, target, resource = "PatchOptions", call.query, call.target, call.resource
    manager = query.field_manager(options)
    if not manager:
        raise _patch_options("fieldManager", "FieldValueRequired", "Required value: is required for apply patch")
    force, validation = query.flag("force"), query.field_validation(options)
    if target.subresource not in ("", "status"):
        raise unsupported((JSON_PATCH, MERGE_PATCH))
    body = decode_body(raw, "application/yaml")
    call.warnings += check_fields(resource, body.data, body.duplicates, validation)
    item, created = apply_object(
        store,
        resource,
        target.namespace,
        target.name,
        body.data,
        manager=manager,
        force=force,
        subresource=target.subresource,
        dry_run=dry_run,
    )
    return answer_object(store, call, item, 201 if created else 200)


# -- delete ----------------------------------------------------------------------------------------------


class _DeleteOptions:
    """The options of a delete: from the body if there is one, else from the query."""

    def __init__(self, call: Call, raw: bytes) -> None:
        query = call.query
        data: Any = {}
        if raw.strip():
            data = decode_body(raw, call.request.headers.get("Content-Type", "")).data
            if data is None:
                data = {}
            if not isinstance(data, dict) or data.get("kind") not in (None, "", "DeleteOptions"):
                raise ApiError.bad_request("the body of a delete must be DeleteOptions")
        grace = data["gracePeriodSeconds"] if "gracePeriodSeconds" in data else query.number("gracePeriodSeconds")
        if grace is not None and (not isinstance(grace, int) or isinstance(grace, bool)):
            raise ApiError.bad_request(f"gracePeriodSeconds: must be an integer, got {grace!r}")
        self.grace: int | None = grace
        orphan = data.get("orphanDependents")
        if orphan is None and query.has("orphanDependents"):
            orphan = query.flag("orphanDependents")
        policy = _text(data, "propagationPolicy") or query.text("propagationPolicy")
        if policy and orphan is not None:
            message = "Invalid value: orphanDependents and deletionPropagation cannot be both set"
            causes = [{"reason": "FieldValueInvalid", "message": message, "field": "propagationPolicy"}]
            details = {"group": "meta.k8s.io", "kind": "DeleteOptions", "causes": causes}
            raise ApiError(422, "Invalid", f'DeleteOptions.meta.k8s.io "" is invalid: {message}', details)
        if policy not in ("", "Background", "Foreground", "Orphan"):
            supported = '"Background", "Foreground", "Orphan"'
            message = f'Unsupported value: "{policy}": supported values: {supported}'
            causes = [{"reason": "FieldValueNotSupported", "message": message, "field": "propagationPolicy"}]
            details = {"group": "meta.k8s.io", "kind": "DeleteOptions", "causes": causes}
            text = f'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: {message}'
            raise ApiError(422, "Invalid", text, details)
        self.policy = policy or ("Orphan" if orphan else "")
        preconditions = _member(data, "preconditions")
        self.uid = _text(preconditions, "uid")
        self.version = _text(preconditions, "resourceVersion")
        given = data.get("dryRun")
        if given not in (None, [], ["All"]):
            raise ApiError.bad_request(f'dryRun: Unsupported value: {given!r}: supported values: "All"')
        self.dry_run = query.dry_run("DeleteOptions") or given == ["All"]


def delete(store: Store, call: Call, raw: bytes) -> web.Response:
    """DELETE of one object: its last state while it lingers (and for pods always), else a Status."""
    options, target, kind = _DeleteOptions(call, raw), call.target, call.resource.kind
    item = store.delete(
        kind,
        target.namespace,
        target.name,
        uid=options.uid,
        resource_version=options.version,
        grace_period_seconds=options.grace,
        propagation_policy=options.policy,
        dry_run=options.dry_run,
    )
    lingers = (item.namespace, item.name) in store.table(kind).objects and not options.dry_run
    if lingers or kind.group_resource in ("pods", "persistentvolumeclaims", "persistentvolumes"):
        return answer_object(store, call, item)
    details = {"name": item.name, "group": kind.group, "kind": kind.plural, "uid": item.uid}
    return call.answer(success({key: value for key, value in details.items() if value}))


async def delete_collection(store: Store, call: Call, raw: bytes) -> web.Response:
    """DELETE of a collection: everything its selectors choose. Others have their turn between batches."""
    call.query.check_list(watch=False)
    options = _DeleteOptions(call, raw)
    page = await in_turns(read_page(store, call))
    for number, item in enumerate(page.items, 1):
        if number % BATCH == 0:
            await asyncio.sleep(0)
        try:
            store.delete(
                call.resource.kind,
                item.namespace,
                item.name,
                uid=options.uid,
                resource_version=options.version,
                grace_period_seconds=options.grace,
                propagation_policy=options.policy,
                dry_run=options.dry_run,
            )
        except ApiError as error:
            if error.code != 404:
                raise
    return call.answer(await in_turns(shape_list(store, call, page)))
