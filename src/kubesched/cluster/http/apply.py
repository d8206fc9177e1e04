"""Server-side apply, and the owners of fields.

    applied fields ──▶ conflicts with other owners? 409, or take ownership with force
                   ──▶ laid over the live object ──▶ what this manager owned and no longer applies is removed ──▶ stored

Ownership is kept in ``metadata.managedFields`` from the first apply on. As upstream, fields that existed before belong
to the manager ``before-first-apply``. Caller: :mod:`.writing`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any, Final

from kubesched.api.equality import same_json
from kubesched.api.wire import ApiError, Item

from ..admission import SERVER_FIELDS
from .calls import Call
from .fieldsets import MISSING, Path, Places, Shape, decode_fields, encode_fields, leaves, merge, remove, show

__all__ = ["apply_object", "is_tracked", "patch_object", "tracked_update"]

BEFORE: Final = "before-first-apply"
#: Metadata without owners: identity, and fields that the server writes.
_UNOWNED: Final = SERVER_FIELDS | {"managedFields"}
#: Members of an entry of managedFields. Entries written by a client may have others, or lack some.
_ENTRY: Final = frozenset({"manager", "operation", "apiVersion", "time", "fieldsType", "fieldsV1", "subresource"})


class _Owner:
    """Entry of managedFields, and its fields."""

    def __init__(self, entry: dict[str, Any], fields: set[Path]) -> None:
        operation = "Apply" if entry.get("operation") == "Apply" else "Update"
        self.entry = {
            **{name: value for name, value in entry.items() if value and name in _ENTRY},
            "operation": operation,
            "fieldsType": "FieldsV1",
        }
        self.fields = fields
        self.key = str(entry.get("manager") or ""), operation, str(entry.get("subresource") or "")

    @classmethod
    def new(cls, call: Call, operation: str, fields: set[Path], manager: str = "", subresource: str = "") -> _Owner:
        """Return a new owner of some fields: the writer of a request, or another manager."""
        entry = {
            "manager": manager or call.manager,
            "operation": operation,
            "apiVersion": call.resource.api_version,
            "time": call.store.now(),
            "fieldsType": "FieldsV1",
            "subresource": subresource,
        }
        return cls(entry, fields)

    def to_data(self) -> dict[str, Any]:
        return {**self.entry, "fieldsV1": encode_fields(self.fields)}


def is_tracked(item: Item) -> bool:
    """True if an object's fields have owners."""
    return b'"managedFields"' in item.raw


def _owners(metadata: Mapping[str, Any]) -> list[_Owner]:
    """Return the entries of managedFields that parse."""
    entries = metadata.get("managedFields")
    return [
        _Owner(entry, set(decode_fields(entry.get("fieldsV1"))))
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict) and entry.get("manager") is not None
    ]


def _place(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the sort key of an entry of managedFields."""
    names = (str(entry.get(name) or "") for name in ("time", "manager", "apiVersion", "subresource"))
    return (entry.get("operation") != "Apply", *names)


def _owned_part(data: Mapping[str, Any], *, drop: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the part of an object whose fields can have owners."""
    part = {key: value for key, value in data.items() if key not in ("apiVersion", "kind", "metadata", *drop)}
    metadata = {key: value for key, value in (data.get("metadata") or {}).items() if key not in _UNOWNED}
    return {**part, "metadata": metadata} if metadata else part


# -- apply -----------------------------------------------------------------------------------------------


def apply_object(call: Call, applied: Any, *, force: bool) -> tuple[Item, bool]:
    """Apply a configuration. Returns the new object, and True if it was created.

    Raises:
        ApiError: 400 for a body that is no configuration of this object, 404 for a subresource of an object that does
            not exist, 409 for conflicts with other managers unless ``force``.
    """
    resource, subresource, store = call.resource, call.target.subresource, call.store
    kind, shape = resource.kind, Shape(resource)
    config = resource.inward(_checked_config(call, applied))
    has_status = kind.group_resource in store.status_kinds
    part = _owned_part(config, drop=("status",) if has_status and not subresource else ())
    if subresource:
        part = {key: value for key, value in part.items() if key in (subresource, "metadata")}
    mine = _Owner.new(call, "Apply", set(leaves(part, shape)), subresource=subresource)
    try:
        live_item = call.get()
    except ApiError as error:
        if error.code != 404 or subresource:
            raise
        metadata = {**config["metadata"], "managedFields": [mine.to_data()]}
        body = {**config, **merge({}, part, shape), "metadata": metadata, "apiVersion": kind.api_version}
        return call.create(body), True
    live = live_item.data()
    version = config["metadata"].get("resourceVersion")
    if version and version != str(live_item.resource_version):
        why = "the object has been modified; please apply your changes to the latest version and try again"
        raise ApiError.conflict(kind, call.target.name, why)
    owners = _owners(live["metadata"])
    if not owners:
        everything = set(leaves(_owned_part(live), shape))
        owners = [_Owner.new(call, "Update", everything, manager=BEFORE)]
    before = next((one for one in owners if one.key == mine.key), None)
    others = [one for one in owners if one is not before]
    merged = merge(live, part, shape)
    _settle_conflicts(others, mine.fields, live, merged, force=force)
    if before is not None:
        held = {path for owner in others for path in owner.fields | _containers(owner.fields)}
        remove(merged, before.fields - mine.fields - held)
        if before.fields == mine.fields:
            mine.entry["time"] = before.entry.get("time")
    entries = sorted((one.to_data() for one in (mine, *others) if one is mine or one.fields), key=_place)
    merged["metadata"] = {**merged["metadata"], "managedFields": entries}
    merged["apiVersion"] = kind.api_version
    return call.update(merged), False


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
    if not isinstance(metadata, dict | None):
        raise ApiError.bad_request(f"metadata: must be an object, got {metadata!r}")
    metadata = metadata or {}
    if metadata.get("managedFields"):
        raise ApiError.bad_request("metadata.managedFields must be nil")
    call.check_name(metadata.get("name"))
    call.check_namespace(metadata.get("namespace"))
    return {**applied, "metadata": {**metadata, "name": call.target.name}}


def _settle_conflicts(others: list[_Owner], wanted: set[Path], live: Any, merged: Any, *, force: bool) -> None:
    """Refuse to change fields of other owners, or with ``force`` take the fields from them."""
    causes: list[dict[str, str]] = []
    now, then = Places(live), Places(merged)
    for owner in others:
        changed = {
            path
            for path in wanted & owner.fields
            if path[-1].startswith("f:") and not same_json(now.at(path), then.at(path))
        }
        if force:
            owner.fields -= changed
            continue
        manager, _, subresource = owner.key
        place = f' with subresource "{subresource}"' if subresource else ""
        using = f" using {owner.entry.get('apiVersion', '')}" if owner.entry.get("operation") == "Update" else ""
        message = f'conflict with "{manager}"{place}{using}'
        causes += [
            {"reason": "FieldManagerConflict", "message": message, "field": show(path)} for path in sorted(changed)
        ]
    if len(causes) == 1:
        text = f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    elif causes:
        text = f"Apply failed with {len(causes)} conflicts:"
        for message, group in groupby(causes, key=lambda cause: cause["message"]):
            text += f" {message.replace('conflict', 'conflicts', 1)}:"
            text += "".join(f"\n- {cause['field']}" for cause in group)
    else:
        return
    raise ApiError(409, "Conflict", text, {"causes": causes})


def _containers(paths: set[Path]) -> set[Path]:
    """Return the inner nodes above some leaves: another manager may have owned them when they were empty."""
    found: set[Path] = set()
    for path in paths:
        above = path[:-1]
        while above and above not in found:
            found.add(above)
            above = above[:-1]
    return found


# -- other writes ------------------------------------------------------------------------------------------


def patch_object(call: Call, old: Item, change: Any, patch_type: str) -> Item:
    """Patch an object or a subresource of it. If fields have owners, changed fields go to the writer."""
    if not is_tracked(old):
        return call.patch(change, patch_type)
    trial = call.patch(change, patch_type, dry_run=True)
    return old if trial.raw == old.raw else call.update(tracked_update(call, old, trial, given=change))


def tracked_update(call: Call, old: Item, result: Item, *, given: Any) -> dict[str, Any]:
    """Return the object to store, with ownership of changed fields moved to the writer.

    ``result`` is the object to store before ownership is moved. An explicit ``managedFields: [{}]`` or ``[]`` in
    ``given`` clears all owners.
    """
    data, before = result.data(), old.data()
    metadata = given.get("metadata") if isinstance(given, dict) else None
    if isinstance(metadata, dict) and metadata.get("managedFields") in ([], [{}]):
        data["metadata"].pop("managedFields", None)
        return data
    # The client may have edited managedFields (a migration). If it sent none, the stored ones count.
    owners = _owners(data["metadata"]) or _owners(before["metadata"])
    new_part, old_part = _owned_part(data), _owned_part(before)
    present = set(leaves(new_part, Shape(call.resource)))
    now, then = Places(old_part), Places(new_part)
    changed = {path for path in present if not same_json(now.at(path), then.at(path))}
    changed = {path for path in changed if path[-1].startswith("f:") or now.at(path) is MISSING}
    writer = _Owner.new(call, "Update", set(), subresource=call.target.subresource)
    known = present | _containers(present)
    mine = next((one for one in owners if one.key == writer.key), None)
    if mine is None:
        owners.append(mine := writer)
    for owner in owners:
        owner.fields &= known if owner is mine else known - changed
    if changed:
        mine.fields |= changed
        mine.entry["time"] = writer.entry["time"]
    data["metadata"]["managedFields"] = [one.to_data() for one in owners if one.fields]
    return data
