"""Strategic merge patch: a merge patch that also merges lists by key.

Directives: ``$patch`` (delete, replace, merge), ``$deleteFromPrimitiveList/x``, ``$setElementOrder/x`` and
``$retainKeys``. ``merging.txt`` says which lists merge, and by what key; every other list is replaced.

Callers: ``store.patch`` (default patch type), HTTP, and server-side apply for the keys.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cache
from typing import Any, Final

from kubesched.api.equality import json_key
from kubesched.api.wire import ApiError

from .schema import Type, table_lines, types

__all__ = ["apply_strategic_patch", "is_atomic", "list_keys", "patch_markers"]

_DELETE: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"
_STRATEGY: Final = "x-kubernetes-patch-strategy"
#: Objects whose members exclude each other: a patch names all members that stay.
_RETAINED: Final = frozenset({("spec", "strategy")})

_CONTAINERS: Final = (dict, list)

#: Marks of merging.txt and their values; other entries are the keys of a list's items.
_MARKS: Final[dict[str, tuple[str, ...] | None]] = {"*": (), "-": None}


@cache
def _merging() -> tuple[dict[tuple[str, ...], tuple[str, ...] | None], frozenset[str]]:
    """Return the content of ``merging.txt``: the keys of lists by their names, and the names of atomic objects."""
    rows = [line.split() for line in table_lines("merging.txt")]
    lists = {tuple(name.split(".")): _MARKS.get(keys[0], tuple(keys)) for name, *keys in rows if keys != ["="]}
    return lists, frozenset(name for name, *keys in rows if keys == ["="])


def list_keys(path: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the keys of the list at a path; () for a merging list of scalars, None for an atomic list."""
    lists = _merging()[0]
    return lists[path[-2:]] if path[-2:] in lists else lists.get(path[-1:])


def is_atomic(name: str) -> bool:
    """True if objects of this name are owned as a whole."""
    return name in _merging()[1]


def merge_key(path: tuple[str, ...]) -> str | None:
    """Return the merge key of the list at a path, "" for a merging list of scalars, None for an atomic list."""
    keys = list_keys(path)
    return keys[0] if keys else None if keys is None else ""


@cache
def _owners() -> dict[str, tuple[str, ...]]:
    """Return the names of the fields that hold a type, by type."""
    found: dict[str, set[str]] = {}
    for type_ in types().values():
        for name, field_ in type_.fields.items():
            found.setdefault(field_.type, set()).add(name)
    return {name: tuple(sorted(owners)) for name, owners in found.items()}


def patch_markers(type_: Type, name: str) -> dict[str, str]:
    """Return the OpenAPI extensions for a field by which kubectl computes a patch; empty for plain replacement.

    They describe the behaviour of this module, so that such patches apply as kubectl meant them.
    """
    paths = [(owner, name) for owner in _owners().get(type_.name, ())]
    if any(path in _RETAINED for path in paths):
        return {_STRATEGY: "retainKeys"}
    if type_.fields[name].shape != "list":
        return {}
    key = next((key for path in paths if (key := merge_key(path)) is not None), None)
    if key is None:
        return {}
    if not key:
        return {_STRATEGY: "merge"}
    return {_STRATEGY: "merge,retainKeys" if name == "volumes" else "merge", "x-kubernetes-patch-merge-key": key}


def apply_strategic_patch(target: dict[str, Any], patch: Any, path: tuple[str, ...] = ()) -> dict[str, Any]:
    """Merge ``patch`` into ``target``, which is changed and returned. ``path`` is where both sit in the object.

    Raises:
        ApiError: 400 for a patch that is no object or holds a malformed directive.
    """
    if not isinstance(patch, dict):
        raise ApiError.bad_request("a strategic merge patch is an object")
    return _merge_object(target, patch, path)


def _merge_object(target: dict[str, Any], patch: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    if "$patch" in patch:
        directive = patch["$patch"]
        if directive == "replace":
            return {key: _clean(value) for key, value in patch.items() if key != "$patch" and value is not None}
        if directive == "delete":
            return {}
        if directive not in (None, "merge"):
            raise ApiError.bad_request(
                f"{_at(path)}unrecognized $patch directive {directive!r}; use merge, replace or delete"
            )
    if "$retainKeys" in patch:
        _retain(target, patch["$retainKeys"], path)
    orders: dict[str, list[Any]] = {}
    before: dict[str, list[Any]] = {}
    for key, value in patch.items():
        if key[:1] == "$":
            if key.startswith(_ORDER):
                orders[key[len(_ORDER) :]] = _directive_list(key, value, path)
            elif key.startswith(_DELETE):
                _delete_scalars(target, key[len(_DELETE) :], _directive_list(key, value, path))
            elif key not in ("$patch", "$retainKeys"):
                raise ApiError.bad_request(f"{_at(path)}unknown directive {key}")
        elif isinstance(value, str):  # the most frequent type
            target[key] = value
        elif value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            current = target.get(key)
            merged = _merge_object(current if isinstance(current, dict) else {}, value, (*path, key))
            if "$patch" in value and value["$patch"] == "delete":
                target.pop(key, None)
            else:
                target[key] = merged
        elif isinstance(value, list):
            found = target.get(key)
            before[key] = [*found] if isinstance(found, list) else []
            target[key] = _merge_list(before[key], value, (*path, key))
        else:
            target[key] = value
    for key, order in orders.items():
        if isinstance(target.get(key), list) and (by := merge_key((*path, key))) is not None:
            target[key] = _ordered(target[key], order, before.get(key, target[key]), by)
    return target


def _retain(target: dict[str, Any], retain: Any, path: tuple[str, ...]) -> None:
    if retain is None:
        return
    if not isinstance(retain, list):
        raise ApiError.bad_request(f"{_at(path)}$retainKeys must be a list of names")
    kept = {name for name in retain if isinstance(name, str)}
    for key in [key for key in target if key not in kept]:
        del target[key]


def _directive_list(key: str, value: Any, path: tuple[str, ...]) -> list[Any]:
    if not isinstance(value, list):
        raise ApiError.bad_request(f"{_at(path)}{key} must be a list")
    return value


def _delete_scalars(target: dict[str, Any], key: str, values: list[Any]) -> None:
    current = target.get(key)
    if isinstance(current, list):
        gone = {json_key(value) for value in values}
        target[key] = [item for item in current if json_key(item) not in gone]


def _merge_list(found: list[Any], patch: list[Any], path: tuple[str, ...]) -> list[Any]:
    key = merge_key(path)
    if key is None:
        return [_clean(item) for item in patch]
    if key == "":
        known = {json_key(item) for item in found}
        return _ordered(found + [item for item in patch if json_key(item) not in known], patch, found, key)
    current = [*found]
    for item in patch:
        if isinstance(item, dict) and "$patch" in item and item["$patch"] == "replace" and key not in item:
            current = []
    places = _places(current, key)
    #: By merge key: the index before which items are deleted.
    deleted: dict[Hashable, int] = {}
    for item in patch:
        if not isinstance(item, dict):
            raise ApiError.bad_request(f"{_at(path)}items must be objects with {key}")
        if key not in item:
            if item.get("$patch") == "replace":
                continue  # it emptied the list above
            raise ApiError.bad_request(f"{_at(path)}map: {item} does not contain declared merge key: {key}")
        value = json_key(item[key])
        index = places.get(value, -1)
        if "$patch" in item and item["$patch"] == "delete":
            if index >= 0:
                del places[value]
                deleted[value] = len(current)
        elif index >= 0:
            current[index] = _merge_object(current[index], item, path)
        else:
            places[value] = len(current)
            current.append(_merge_object({}, item, path))
    if deleted:
        current = [item for index, item in enumerate(current) if index >= deleted.get(_key_of(item, key), 0)]
    return _ordered(current, patch, found, key)


def _key_of(item: Any, key: str) -> Hashable:
    """Return the identity of an item: its member ``key``, or the whole item if it is no object."""
    return json_key(item.get(key) if key and isinstance(item, dict) else item)


def _places(items: list[Any], key: str) -> dict[Hashable, int]:
    """Return the index of the first item with each merge key."""
    places: dict[Hashable, int] = {}
    for index, item in enumerate(items):
        if isinstance(item, dict):
            places.setdefault(json_key(item.get(key)), index)
    return places


def _ordered(items: list[Any], order: Sequence[Any], before: Sequence[Any], key: str) -> list[Any]:
    """Return the items of a merged list in upstream's order.

    The items that ``order`` names follow each other as it says, the others as they stood ``before`` the patch. Of two
    from both, the one that stood first ``before`` comes first. An item that is new goes ahead of the others that are
    left.
    """
    rank = {_key_of(entry, key): position for position, entry in enumerate(order)}
    stood = {_key_of(entry, key): position for position, entry in enumerate(before)}
    named = sorted([item for item in items if _key_of(item, key) in rank], key=lambda item: rank[_key_of(item, key)])
    others = [item for item in items if _key_of(item, key) not in rank]
    result, taken = [], 0
    for item in named:
        place = stood.get(_key_of(item, key), -1)
        while taken < len(others) and stood.get(_key_of(others[taken], key), len(stood)) < place:
            result.append(others[taken])
            taken += 1
        result.append(item)
    return result + others[taken:]


def _clean(value: Any) -> Any:
    """Return a copy of a patch's value, without directives and nulls."""
    if isinstance(value, dict):
        return {
            key: _clean(item) if isinstance(item, _CONTAINERS) else item
            for key, item in value.items()
            if item is not None and key[:1] != "$"
        }
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return value


def _at(path: tuple[str, ...]) -> str:
    return f"{'.'.join(path)}: " if path else ""
