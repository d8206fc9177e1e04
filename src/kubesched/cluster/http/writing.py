"""Create, update, patch and delete over HTTP.

Body in, checks, one verb of the store, answer out. Nothing waits between reading the store and writing to it.
Caller: :mod:`.dispatch`, with the body already read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from aiohttp import web

from kubesched.api.documents import Document
from kubesched.api.kinds import Kind
from kubesched.api.wire import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, ApiError, Item, tolerate
from kubesched.base.turns import in_turns

from ..admission import unknown_fields
from ..schema import (
    apply_json_patch,
    apply_merge_patch,
    apply_strategic_patch,
    check_form,
    encode,
    encode_clean,
    root_type,
    unknown_members,
)
from .answers import BATCH, success
from .apply import apply_object, is_tracked, patch_object, tracked_update
from .bodies import media_type, unsupported
from .calls import Call, invalid_options
from .catalog import Resource, Scale
from .cells import selector_text
from .jsonpath import find
from .posted import delete_options, expect
from .reading import answer_list, answer_object, read_page

__all__ = ["answer_scale", "create", "delete", "delete_collection", "patch", "update"]

APPLY_PATCH: Final = "application/apply-patch+yaml"
_MAX_OPERATIONS: Final = 10_000
_MOST_WARNINGS: Final = 50
#: Kinds that a PUT creates when they do not exist. Rule: upstream ``AllowCreateOnUpdate``.
_CREATED_BY_PUT: Final = (
    {"endpoints", "events", "limitranges", "podtemplates", "services", "runtimeclasses.node.k8s.io"}
    | {"leasecandidates.coordination.k8s.io", "leases.coordination.k8s.io", "priorityclasses.scheduling.k8s.io"}
    | {f"{name}.rbac.authorization.k8s.io" for name in ("clusterrolebindings", "clusterroles", "rolebindings", "roles")}
)


def _checked(call: Call, body: Document, *, patch: bool = False) -> Any:
    """Return the data of a body, without unknown fields. These, and repeated keys, give a warning or are refused.

    Raises:
        ApiError: 400 under ``fieldValidation=Strict``, listing all of them.
    """
    data, validation = body.data, call.options.validation
    unknown = _unknown(call, data, patch=patch)
    found = _problems(body, unknown, is_custom=call.resource.defined is not None) if validation != "Ignore" else []
    for owner, name, _ in unknown:
        del owner[name]
    kind, version = call.resource.kind.kind, call.resource.version
    if found and validation == "Strict":
        lines = [text for text in found if text.startswith("line ")]
        head = ["\n  ".join(["yaml: unmarshal errors:", *lines])] if lines else []
        problem = f"strict decoding error: {', '.join([*head, *found[len(lines) :]])}"
        raise ApiError.bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {problem}')
    call.warnings += found
    return data


def _unknown(call: Call, data: Any, *, patch: bool = False) -> Sequence[tuple[dict[str, Any], str, object]]:
    """Return the members that the kind does not have: the object they are in, their name and place."""
    resource = call.resource
    if not isinstance(data, dict):
        return ()
    if resource.defined is not None:
        return list(unknown_fields(resource.defined.schema, data)) if resource.defined.schema else ()
    return unknown_members(root_type(resource.kind.group, resource.kind.kind, resource.version), data, patch=patch)


def _problems(body: Document, unknown: Sequence[tuple[Any, str, object]], *, is_custom: bool) -> list[str]:
    """Return the texts about repeated and unknown members, in upstream's order: for JSON that of the document.

    A member of a built-in kind that is unknown and repeated is unknown only. YAML has its repetitions first.
    """
    texts = {str(place): f'unknown field "{place}"' for _, _, place in unknown[:_MOST_WARNINGS]}
    if body.number:
        lines = [f'line {twice.line}: key "{twice.key}" already set in map' for twice in body.duplicates]
        return [*lines, *(texts[place] for place in (texts if is_custom else sorted(texts)))][:_MOST_WARNINGS]
    twice = {one.path: f'duplicate field "{one.path}"' for one in body.duplicates}
    if not twice or is_custom:
        return [*twice.values(), *texts.values()][:_MOST_WARNINGS]
    texts = {**twice, **texts}
    return [texts[place] for place in _places(body.data) if place in texts][:_MOST_WARNINGS]


def _places(data: Any, place: str = "") -> Iterator[str]:
    """Yield the dotted paths of all members, in the order of the document."""
    dot = place and f"{place}."
    for name, value in data.items() if isinstance(data, dict) else ():
        yield f"{dot}{name}"
        yield from _places(value, f"{dot}{name}")
    for index, value in enumerate(data) if isinstance(data, list) else ():
        yield from _places(value, f"{place}[{index}]")


# -- create and update -----------------------------------------------------------------------------------


def create(call: Call, raw: bytes) -> web.Response:
    """Answer a POST on a collection."""
    _ = call.options  # wrong options are refused before the body is decoded
    resource, data = call.resource, call.resource.inward(_checked(call, call.body(raw)))
    if resource.defined is not None and resource.subresource("status") and isinstance(data, dict) and "status" in data:
        data = {key: value for key, value in data.items() if key != "status"}
    return answer_object(call, call.create(data), 201)


def update(call: Call, raw: bytes) -> web.Response:
    """Answer a PUT of an object, its status, its resize or its scale."""
    target = call.target
    _ = call.options
    if target.subresource == "scale":
        body = call.body(raw)
        expect(body.data, "Scale", ("autoscaling/v1",))
        call.check_named(body.data)
        return _write(call, _checked(_in_body(call), body))
    data = call.resource.inward(_checked(call, call.body(raw)))
    call.check_named(data)
    try:
        old = call.get()
    except ApiError as error:
        if error.code != 404 or target.subresource or call.resource.kind.group_resource not in _CREATED_BY_PUT:
            raise
        call.check_name(data["metadata"]["name"] if isinstance(data, dict) else "")
        return answer_object(call, call.create(data), 201)
    if is_tracked(old):
        data = tracked_update(call, old, call.update(data, dry_run=True), given=data)
    return answer_object(call, call.update(data))


# -- patch -----------------------------------------------------------------------------------------------


def patch(call: Call, raw: bytes) -> web.Response:
    """Answer a PATCH in one of four types."""
    resource = call.resource
    patch_type = media_type(call.content_type)
    accepted = (JSON_PATCH, MERGE_PATCH, APPLY_PATCH, *((STRATEGIC_PATCH,) if resource.defined is None else ()))
    if patch_type not in accepted:
        raise unsupported(*accepted)
    if patch_type == APPLY_PATCH:
        return _apply(call, raw)
    if "force" in call.query:
        raise invalid_options("PatchOptions", "force", "Forbidden: may not be specified for non-apply patch")
    _ = call.options
    body = call.body(raw)
    if patch_type == JSON_PATCH:
        if isinstance(body.data, list) and len(body.data) > _MAX_OPERATIONS:
            text = f"The allowed maximum operations in a JSON patch is {_MAX_OPERATIONS}, got {len(body.data)}"
            raise ApiError(413, "RequestEntityTooLarge", text)
    elif not isinstance(body.data, dict):
        raise ApiError.bad_request("a merge patch of an object is an object")
    else:
        _checked(_in_body(call), body, patch=patch_type == STRATEGIC_PATCH)
    if call.target.subresource == "scale":
        return _patch_scale(call, body.data, patch_type)
    change = resource.inward(body.data)
    if isinstance(change, dict) and isinstance(change.get("metadata"), dict):
        call.check_name(change["metadata"].get("name"))
    old = call.get()
    if isinstance(change, list) and not is_tracked(old) and any(map(_is_about_owners, change)):
        # After an apply, even a dry run, kubectl migrates ownership. After a dry run there may be no managedFields yet.
        change = [{"op": "add", "path": "/metadata/managedFields", "value": []}, *change]
    if patch_type == JSON_PATCH and resource.version == resource.kind.version:
        result = _checked(call, replace(body, data=apply_json_patch(old.data(), change)))
        change = [{"op": "replace", "path": "", "value": result}]
    return answer_object(call, patch_object(call, old, change, patch_type))


def _is_about_owners(operation: Any) -> bool:
    return isinstance(operation, dict) and str(operation.get("path", "")).startswith("/metadata/managedFields")


def _apply(call: Call, raw: bytes) -> web.Response:
    if not call.options.manager:
        raise invalid_options("PatchOptions", "fieldManager", "Required value: is required for apply patch")
    force = call.query.flag("force")
    if call.target.subresource not in ("", "status"):
        raise unsupported(JSON_PATCH, MERGE_PATCH)
    body = call.body(raw)
    if unknown := _unknown(call, body.data):
        places = "\n  ".join(f".{place}: field not declared in schema" for _, _, place in unknown[:_MOST_WARNINGS])
        kind, target = call.resource.kind, call.target
        what = f"{target.namespace}/{target.name}; {kind.group}/{call.resource.version}, Kind={kind.kind}"
        many = "errors:\n  " if len(unknown) > 1 else ""
        raise ApiError(500, "", f"failed to create typed patch object ({what}): {many}{places}")
    item, created = apply_object(call, _checked(call, body), force=force)
    return answer_object(call, item, 201 if created else 200)


# -- delete ----------------------------------------------------------------------------------------------


def delete(call: Call, raw: bytes) -> web.Response:
    """Answer a DELETE of one object: with a Status if the object is gone, with its last state if it lingers or is a
    pod.
    """
    options, target, kind = delete_options(call, raw), call.target, call.resource.kind
    item = call.store.delete(kind, target.namespace, target.name, **options)
    lingers = (item.namespace, item.name) in call.store.table(kind).objects and not options["dry_run"]
    if lingers or kind.group_resource in ("pods", "persistentvolumeclaims", "persistentvolumes"):
        return answer_object(call, item)
    details = {"name": item.name, "group": kind.group, "kind": kind.plural, "uid": item.uid}
    return call.answer(success({key: value for key, value in details.items() if value}))


async def delete_collection(call: Call, raw: bytes) -> web.StreamResponse:
    """Answer a DELETE of the objects that selectors choose. Other requests have their turn between batches."""
    call.query.check_list(watch=False)
    options = delete_options(call, raw)
    page = await in_turns(read_page(call))
    for number, item in enumerate(page.items, 1):
        if number % BATCH == 0:
            await asyncio.sleep(0)
        with tolerate(404):
            call.store.delete(call.resource.kind, item.namespace, item.name, **options)
    return await answer_list(call, page)


# -- scale: the replica counts of workloads, and of custom resources that declare one -------------------------


#: Scale as a resource of its own, for answers.
_SCALES: Final = Resource(Kind("autoscaling", "v1", "Scale", "scales"), "v1")
_WORKLOAD: Final = Scale()


def _in_body(call: Call) -> Call:
    """Return the call as one on the kind of its body, which is a Scale for that subresource."""
    return replace(call, resource=_SCALES) if call.target.subresource == "scale" else call


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
    """Answer with the Scale of an object, in the form asked for."""
    raw = encode(_scale_of(call, item))
    scale = Item(_SCALES.kind, raw, item.namespace, item.name, item.uid, item.resource_version)
    return answer_object(replace(call, resource=_SCALES), scale)


def _patch_scale(call: Call, change: Any, patch_type: str) -> web.Response:
    """Answer a PATCH of a Scale."""
    apply: Any = {JSON_PATCH: apply_json_patch, MERGE_PATCH: apply_merge_patch}.get(patch_type, apply_strategic_patch)
    scale = apply(_scale_of(call, call.get()), change)
    if not isinstance(scale, dict):
        raise ApiError.bad_request("the patch leaves no Scale")
    return _write(call, scale)


def _write(call: Call, wanted: dict[str, Any]) -> web.Response:
    """Set the replica count that a Scale names; its resource version, if any, must be current.

    The writer owns the count from then on, when the object's fields have owners. 400 for a body without a replica
    count, 409 for a stale version, 422 for a negative count.
    """
    check_form(_SCALES.kind, encode_clean(wanted))
    replicas = (wanted.get("spec") or {}).get("replicas") or 0
    if replicas < 0:
        message = f"Invalid value: {replicas}: must be greater than or equal to 0"
        causes = [("spec.replicas", "FieldValueInvalid", message)]
        raise ApiError.invalid(_SCALES.kind, call.target.name, causes)
    given = wanted.get("metadata") or {}
    call.check_name(given.get("name"))
    call.check_namespace(given.get("namespace"))
    change: Any = replicas
    for name in filter(None, reversed(_paths(call).spec_replicas.split("."))):
        change = {name: change}
    if version := given.get("resourceVersion"):
        change["metadata"] = {"resourceVersion": version}
    return answer_scale(call, patch_object(call, call.get(), change, MERGE_PATCH))
