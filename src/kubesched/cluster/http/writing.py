"""Create, update, patch and delete over HTTP.

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
from .apply import apply_object, is_tracked, patch_object, tracked_update
from .bodies import Body, media_type, unsupported
from .calls import Call
from .fieldcheck import check_fields
from .long_answers import BATCH
from .posted import delete_options, expect
from .queries import invalid_options
from .reading import answer_list, answer_object, answer_scale, read_page
from .scaling import scale_of, write_scale

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


def _decoded(call: Call, raw: bytes, options: str) -> Any:
    """The object in a body; unknown fields are warned of or refused."""
    validation = call.query.field_validation(options)
    body = call.body(raw)
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


# -- update and patch ------------------------------------------------------------------------------------


def update(store: Store, call: Call, raw: bytes) -> web.Response:
    """PUT of an object, its status, its resize or its scale."""
    options = "UpdateOptions"
    dry_run, manager = call.query.dry_run(options), call.manager(options)
    target, resource = call.target, call.resource
    if target.subresource == "scale":
        call.query.field_validation(options)
        data = call.body(raw).data
        expect(data, "Scale", ("autoscaling/v1",))
        return answer_scale(store, call, write_scale(store, call, data, manager=manager, dry_run=dry_run))
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
        call.check_name(data["metadata"]["name"] if isinstance(data, dict) else "")
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
    patch_type = media_type(call.request.headers.get("Content-Type", ""))
    accepted = [JSON_PATCH, MERGE_PATCH, APPLY_PATCH]
    if resource.defined is None:
        accepted.append(STRATEGIC_PATCH)
    if patch_type not in accepted:
        raise unsupported(tuple(accepted))
    if patch_type == APPLY_PATCH:
        return _apply(store, call, raw, dry_run=dry_run)
    if query.has("force"):
        raise invalid_options(options, "force", "Forbidden: may not be specified for non-apply patch")
    manager, validation = call.manager(options), query.field_validation(options)
    body = call.body(raw)
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
        call.check_name(change["metadata"].get("name"))
    old = store.get(resource.kind, target.namespace, target.name)
    if isinstance(change, list) and not is_tracked(old) and any(map(_is_about_owners, change)):
        # kubectl moves ownership over after an apply, also after a dry run of one, when nothing is there yet.
        change = [{"op": "add", "path": "/metadata/managedFields", "value": []}, *change]
    place = target.subresource
    item = patch_object(store, call, old, change, patch_type, manager=manager, subresource=place, dry_run=dry_run)
    return answer_object(store, call, item)


def _is_about_owners(operation: Any) -> bool:
    return isinstance(operation, dict) and str(operation.get("path", "")).startswith("/metadata/managedFields")


def _patch_scale(store: Store, call: Call, patch_type: str, body: Body, manager: str, *, dry_run: bool) -> web.Response:
    target, resource = call.target, call.resource
    scale: Any = scale_of(resource, store.get(resource.kind, target.namespace, target.name)).data()
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
    return answer_scale(store, call, write_scale(store, call, scale, manager=manager, dry_run=dry_run))


def _apply(store: Store, call: Call, raw: bytes, *, dry_run: bool) -> web.Response:
    options, query, target, resource = "PatchOptions", call.query, call.target, call.resource
    manager = query.field_manager(options)
    if not manager:
        raise invalid_options(options, "fieldManager", "Required value: is required for apply patch")
    force, validation = query.flag("force"), query.field_validation(options)
    if target.subresource not in ("", "status"):
        raise unsupported((JSON_PATCH, MERGE_PATCH))
    body = call.body(raw, "application/yaml")
    call.warnings += check_fields(resource, body.data, body.duplicates, validation)
    item, created = apply_object(store, call, body.data, manager=manager, force=force, dry_run=dry_run)
    return answer_object(store, call, item, 201 if created else 200)


# -- delete ----------------------------------------------------------------------------------------------


def delete(store: Store, call: Call, raw: bytes) -> web.Response:
    """DELETE of one object: its last state while it lingers (and for pods always), else a Status."""
    options, target, kind = delete_options(call, raw), call.target, call.resource.kind
    item = store.delete(kind, target.namespace, target.name, **options)
    lingers = (item.namespace, item.name) in store.table(kind).objects and not options["dry_run"]
    if lingers or kind.group_resource in ("pods", "persistentvolumeclaims", "persistentvolumes"):
        return answer_object(store, call, item)
    details = {"name": item.name, "group": kind.group, "kind": kind.plural, "uid": item.uid}
    return call.answer(success({key: value for key, value in details.items() if value}))


async def delete_collection(store: Store, call: Call, raw: bytes) -> web.StreamResponse:
    """DELETE of a collection: everything its selectors choose. Others have their turn between batches."""
    call.query.check_list(watch=False)
    options = delete_options(call, raw)
    page = await in_turns(read_page(store, call))
    for number, item in enumerate(page.items, 1):
        if number % BATCH == 0:
            await asyncio.sleep(0)
        try:
            store.delete(call.resource.kind, item.namespace, item.name, **options)
        except ApiError as error:
            if error.code != 404:
                raise
    return await answer_list(store, call, page)
