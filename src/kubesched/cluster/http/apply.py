"""Server-side apply, and the owners of fields.

    applied fields ──▶ conflicts with other owners? 409, or take ownership with force
                   ──▶ laid over the live object ──▶ what this manager owned and no longer applies is removed ──▶ stored

Ownership is kept in ``metadata.managedFields`` from the first apply on, as upstream does for objects that were never
applied: what was there before belongs to ``before-first-apply``. Caller: :mod:`.writing`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from ...api.equality import same_json
from ...api.wire import ApiError, Item
from ..admission import SERVER_FIELDS
from ..store import Store
from .calls import Call
from .catalog import Resource
from .fieldsets import MISSING, Path, Shape, decode_fields, encode_fields, leaves, merge, remove, show, value_at

__all__ = ["apply_object", "is_tracked", "patch_object", "tracked_update"]

BEFORE: Final = "before-first-apply"
#: Metadata without owners: identity, and what the server writes.
_UNOWNED: Final = SERVER_FIELDS | {"managedFields"}


@dataclass(slots=True)
class _Owner:
    """One entry of managedFields."""

    manager: str
    operation: str
    subresource: str
    api_version: str
    time: str
    fields: set[Path]

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.manager, self.operation, self.subresource)

    def to_data(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": self.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": encode_fields(self.fields),
        }
        if self.subresource:
            data["subresource"] = self.subresource
        return data


def is_tracked(item: Item) -> bool:
    """Whether an object's fields have owners."""
    return b'"managedFields"' in item.raw


def _owners(metadata: Mapping[str, Any]) -> list[_Owner]:
    """The entries of managedFields that can be read."""
    entries = metadata.get("managedFields")
    return [
        _Owner(
            str(entry["manager"]),
            "Apply" if entry.get("operation") == "Apply" else "Update",
            str(entry.get("subresource") or ""),
            str(entry.get("apiVersion") or ""),
            str(entry.get("time") or ""),
            decode_fields(entry.get("fieldsV1")),
        )
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict) and entry.get("manager") is not None
    ]


def _owned_part(data: Mapping[str, Any], *, drop: tuple[str, ...] = ()) -> dict[str, Any]:
    """The part of an object whose fields can be owned."""
    part = {key: value for key, value in data.items() if key not in ("apiVersion", "kind", "metadata", *drop)}
    metadata = {key: value for key, value in (data.get("metadata") or {}).items() if key not in _UNOWNED}
    if metadata:
        part["metadata"] = metadata
    return part


def apply_object(
    store: Store, call: Call, applied: Any, *, manager: str, force: bool, dry_run: bool = False
) -> tuple[Item, bool]:
    """Apply a configuration; the object as it is then, and whether it was created.

    Raises:
        ApiError: 400 for a body that is no configuration of this object, 404 for a subresource of nothing, 409 for
            conflicts with other managers unless ``force``.
    """
    resource, target = call.resource, call.target
    namespace, name, subresource = target.namespace, target.name, target.subresource
    config = resource.inward(_checked_config(call, applied))
    shape = Shape(resource)
    kind = resource.kind
    has_status = kind.group_resource in store.status_kinds
    drop = ("status",) if has_status and not subresource else ()
    part = _owned_part(config, drop=drop)
    if subresource:
        part = {key: value for key, value in part.items() if key in (subresource, "metadata")}
    wanted = leaves(part, shape)
    try:
        live_item = store.get(kind, namespace, name)
    except ApiError as error:
        if error.code != 404 or subresource:
            raise
        owner = _Owner(manager, "Apply", "", resource.api_version, store.now(), wanted)
        body = {**config, **merge({}, part, shape)}
        body["metadata"] = {**config["metadata"], "managedFields": [owner.to_data()]}
        body["apiVersion"] = kind.api_version
        return store.create(kind, namespace, body, dry_run=dry_run), True
    live = live_item.data()
    version = config["metadata"].get("resourceVersion")
    if version and version != str(live_item.resource_version):
        why = "the object has been modified; please apply your changes to the latest version and try again"
        raise ApiError.conflict(kind, name, why)
    owners = _owners(live["metadata"])
    if not owners:
        everything = leaves(_owned_part(live), shape)
        owners = [_Owner(BEFORE, "Update", "", resource.api_version, store.now(), everything)]
    before = next((one for one in owners if one.key == (manager, "Apply", subresource)), None)
    others = [one for one in owners if one is not before]
    merged = merge(live, part, shape)
    _settle_conflicts(others, wanted, live, merged, force=force)
    if before is not None:
        merged = _without(merged, before.fields - wanted, others)
    mine = _Owner(manager, "Apply", subresource, resource.api_version, store.now(), wanted)
    if before is not None and before.fields == wanted:
        mine.time = before.time
    kept = [one for one in others if one.fields]
    merged["metadata"] = {**merged["metadata"], "managedFields": [one.to_data() for one in (mine, *kept)]}
    merged["apiVersion"] = kind.api_version
    item = store.update(kind, namespace, name, merged, subresource=subresource, dry_run=dry_run)
    return item, False


def _checked_config(call: Call, applied: Any) -> dict[str, Any]:
    resource = call.resource
    if not isinstance(applied, dict):
        raise ApiError.bad_request("the applied configuration is not an object")
    if applied.get("apiVersion") != resource.api_version or applied.get("kind") != resource.kind.kind:
        text = f"{applied.get('apiVersion')}, Kind={applied.get('kind')}"
        raise ApiError.bad_request(
            f"Incorrect version specified in apply patch. Specified patch version: {text}, "
            f"expected: {resource.api_version}, Kind={resource.kind.kind}"
        )
    metadata = applied.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise ApiError.bad_request(f"metadata: must be an object, got {metadata!r}")
    metadata = dict(metadata or {})
    if metadata.get("managedFields"):
        raise ApiError.bad_request("metadata.managedFields must be nil")
    call.check_name(metadata.get("name"))
    call.check_namespace(metadata.get("namespace"))
    metadata["name"] = call.target.name
    config: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(applied))
    config["metadata"] = metadata
    return config


def _settle_conflicts(others: list[_Owner], wanted: set[Path], live: Any, merged: Any, *, force: bool) -> None:
    """Refuse to change what others own, or take it from them."""
    found: list[tuple[_Owner, Path]] = []
    for owner in others:
        changed = {
            path
            for path in wanted & owner.fields
            if path[-1].startswith("f:") and not same_json(value_at(live, path), value_at(merged, path))
        }
        if force:
            owner.fields = owner.fields - changed
        else:
            found += [(owner, path) for path in sorted(changed)]
    if not found:
        return
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {_name(owner)} using {owner.api_version}",
            "field": show(path),
        }
        for owner, path in found
    ]
    if len(found) == 1:
        text = f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        text = f"Apply failed with {len(found)} conflicts:"
        last = ""
        for cause in causes:
            if cause["message"] != last:
                last = cause["message"]
                text += f" {last.replace('conflict', 'conflicts', 1)}:"
            text += f"\n- {cause['field']}"
    raise ApiError(409, "Conflict", text, {"causes": causes})


def _name(owner: _Owner) -> str:
    name = f'"{owner.manager}"'
    return f'{name} with subresource "{owner.subresource}"' if owner.subresource else name


def _without(data: dict[str, Any], gone: set[Path], others: list[_Owner]) -> dict[str, Any]:
    """A copy without the fields a manager gave up and no other manager owns."""
    held = {path[:length] for owner in others for path in owner.fields for length in range(1, len(path) + 1)}
    paths = sorted((path for path in gone if path not in held), key=len)
    if not paths:
        return data
    copy: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(data))
    for path in paths:
        remove(copy, path)
    return copy


def patch_object(
    store: Store, call: Call, old: Item, change: Any, patch_type: str, *, manager: str, subresource: str, dry_run: bool
) -> Item:
    """Patch an object, or one of its stored subresources, and move ownership to the writer where fields have owners.

    ``subresource`` is how the owner's entry is named.
    """
    target, kind = call.target, call.resource.kind
    place = "" if subresource == "scale" else subresource

    def write(dry_run: bool) -> Item:
        return store.patch(
            kind, target.namespace, target.name, change, patch_type=patch_type, subresource=place, dry_run=dry_run
        )

    if not is_tracked(old):
        return write(dry_run)
    trial = write(dry_run=True)
    if trial.raw == old.raw:
        return old
    data = tracked_update(store, call.resource, old, trial, manager=manager, subresource=subresource, given=change)
    return store.update(kind, target.namespace, target.name, data, subresource=place, dry_run=dry_run)


def tracked_update(
    store: Store, resource: Resource, old: Item, result: Item, *, manager: str, subresource: str, given: Any
) -> dict[str, Any]:
    """The object a write is about to store, with ownership moved to the writer where values changed.

    ``result`` is what the write would store. An explicit ``managedFields: [{}]`` or ``[]`` in ``given`` clears them.
    """
    data, before = result.data(), old.data()
    metadata = given.get("metadata") if isinstance(given, dict) else None
    if isinstance(metadata, dict) and metadata.get("managedFields") in ([], [{}]):
        data["metadata"].pop("managedFields", None)
        return data
    # What the client sent back may be its own edit (a migration); otherwise it is what was stored.
    owners = _owners(data["metadata"]) or _owners(before["metadata"])
    shape = Shape(resource)
    new_part, old_part = _owned_part(data), _owned_part(before)
    present = leaves(new_part, shape)
    changed = {path for path in present if not same_json(value_at(old_part, path), value_at(new_part, path))}
    changed = {path for path in changed if path[-1].startswith("f:") or value_at(old_part, path) is MISSING}
    key = (manager, "Update", subresource)
    mine = next((one for one in owners if one.key == key), None)
    if changed and mine is None:
        mine = _Owner(manager, "Update", subresource, resource.api_version, store.now(), set())
        owners.append(mine)
    for owner in owners:
        owner.fields = (owner.fields & (present | _containers(present))) - (set() if owner is mine else changed)
    if mine is not None and changed:
        mine.fields |= changed
        mine.time = store.now()
    data["metadata"]["managedFields"] = [one.to_data() for one in owners if one.fields]
    return data


def _containers(paths: set[Path]) -> set[Path]:
    """The inner nodes above some leaves: another manager may have owned them when they were empty."""
    return {path[:length] for path in paths for length in range(1, len(path))}
