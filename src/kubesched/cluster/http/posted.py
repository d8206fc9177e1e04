"""Bodies that are not stored: bindings, evictions and the options of a deletion, and what they do to pods.

Callers: :mod:`.dispatch`, :mod:`.writing`.
"""

from __future__ import annotations

from typing import Any, TypedDict, TypeVar

import msgspec
from aiohttp import web

from ...api.wire import ApiError
from ..store import Store
from .answers import success
from .calls import Call
from .queries import invalid_options

__all__ = ["bind", "delete_options", "evict", "expect"]

_T = TypeVar("_T")


class _Preconditions(msgspec.Struct, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(msgspec.Struct, rename="camel"):
    """The options of a deletion. What the body leaves out is None."""

    grace_period_seconds: int | None = None
    orphan_dependents: bool | None = None
    propagation_policy: str | None = None
    preconditions: _Preconditions | None = None
    dry_run: list[str] | None = None


class _Metadata(msgspec.Struct):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    annotations: dict[str, str] | None = None


class _Reference(msgspec.Struct):
    kind: str | None = None
    name: str | None = None


class Binding(msgspec.Struct):
    metadata: _Metadata | None = None
    target: _Reference | None = None


class Eviction(msgspec.Struct, rename="camel"):
    metadata: _Metadata | None = None
    delete_options: DeleteOptions | None = None


class Deletion(TypedDict):
    """The options as the store takes them."""

    uid: str
    resource_version: str
    grace_period_seconds: int | None
    propagation_policy: str
    dry_run: bool


def expect(data: Any, kind: str, versions: tuple[str, ...] = ()) -> None:
    """A body must be an object of this kind, where it says what it is; ``versions`` are those it may have, if not any.

    Raises:
        ApiError: 400.
    """
    if not isinstance(data, dict):
        raise ApiError.bad_request(f"a {kind} is an object, got {type(data).__name__}")
    given, version = data.get("kind"), data.get("apiVersion")
    if given not in (None, "", kind) or (versions and version not in (None, "", *versions)):
        raise ApiError.bad_request(f"{version} {given} cannot be handled as a {kind}")


def _decoded(call: Call, raw: bytes, type_: type[_T], versions: tuple[str, ...] = ()) -> _T:
    kind = type_.__name__
    data = call.body(raw).data if raw.strip() else None
    data = {} if data is None else data
    expect(data, kind, versions)
    try:
        return msgspec.convert(data, type_)
    except msgspec.ValidationError as error:
        raise ApiError.bad_request(f"the body cannot be handled as a {kind}: {error}") from None


def _metadata(call: Call, metadata: _Metadata | None, kind: str, name: str, allowed: tuple[str, ...]) -> _Metadata:
    """The metadata of a body, which must not contradict the path."""
    metadata = metadata or _Metadata()
    if name and (metadata.name or "") not in allowed:
        raise ApiError.bad_request(f"name in URL does not match name in {kind} object")
    call.check_namespace(metadata.namespace)
    return metadata


def bind(store: Store, call: Call, raw: bytes, name: str = "") -> web.Response:
    """POST of a Binding, on the pod's subresource or on ``bindings``."""
    dry_run = call.query.dry_run("CreateOptions")
    body = _decoded(call, raw, Binding, ("v1",))
    metadata = _metadata(call, body.metadata, "Binding", name, (name,))
    target = body.target or _Reference()
    if target.kind not in (None, "", "Node"):
        message = f'Unsupported value: "{target.kind}": supported values: "Node", "<empty>"'
        raise ApiError.invalid(call.resource.kind, name, [("target.kind", "FieldValueNotSupported", message)])
    store.bind(
        call.target.namespace,
        metadata.name or "",
        metadata.uid or "",
        target.name or "",
        annotations=metadata.annotations,
        dry_run=dry_run,
    )
    return call.answer(success(), 201)


def evict(store: Store, call: Call, raw: bytes) -> web.Response:
    """POST of an Eviction."""
    dry_run = call.query.dry_run("CreateOptions")
    body = _decoded(call, raw, Eviction, ("policy/v1", "policy/v1beta1"))
    target = call.target
    _metadata(call, body.metadata, "Eviction", target.name, ("", target.name))
    options = body.delete_options or DeleteOptions()
    uid = options.preconditions.uid if options.preconditions else None
    if uid and store.get(call.resource.kind, target.namespace, target.name).uid != uid:
        raise ApiError.conflict(call.resource.kind, target.name, f"Precondition failed: UID in precondition: {uid}")
    dry_run = dry_run or options.dry_run == ["All"]
    store.evict(target.namespace, target.name, grace_period_seconds=options.grace_period_seconds, dry_run=dry_run)
    return call.answer(success(), 201)


def delete_options(call: Call, raw: bytes) -> Deletion:
    """The options of a deletion: from the body if there is one, else from the query."""
    query, name = call.query, DeleteOptions.__name__
    given = _decoded(call, raw, DeleteOptions)
    grace, orphan = given.grace_period_seconds, given.orphan_dependents
    if grace is None:
        grace = query.number("gracePeriodSeconds")
    if orphan is None and query.has("orphanDependents"):
        orphan = query.flag("orphanDependents")
    policy = given.propagation_policy or query.text("propagationPolicy")
    if policy and orphan is not None:
        text = f'Invalid value: "{policy}": orphanDependents and deletionPropagation cannot be both set'
        raise invalid_options(name, "propagationPolicy", text)
    if policy not in ("", "Background", "Foreground", "Orphan"):
        text = f'Unsupported value: "{policy}": supported values: "Background", "Foreground", "Orphan"'
        raise invalid_options(name, "propagationPolicy", text)
    if given.dry_run not in (None, [], ["All"]):
        raise ApiError.bad_request(f'dryRun: Unsupported value: {given.dry_run!r}: supported values: "All"')
    preconditions = given.preconditions or _Preconditions()
    return {
        "uid": preconditions.uid or "",
        "resource_version": preconditions.resource_version or "",
        "grace_period_seconds": grace,
        "propagation_policy": policy or ("Orphan" if orphan else ""),
        "dry_run": query.dry_run(name) or given.dry_run == ["All"],
    }
