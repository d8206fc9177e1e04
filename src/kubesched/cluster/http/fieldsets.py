"""Sets of field paths: the leaves of an object, their form as ``fieldsV1``, and the value at a path.

A path is a tuple of ``f:name`` (member), ``k:{...}`` (list item by key) and ``v:...`` (member of a set), as in
fieldsV1. A :class:`Shape` says which lists are maps or sets. Caller: :mod:`.apply`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from kubesched.api.equality import json_key
from kubesched.api.wire import ApiError

from ..schema import is_atomic, list_keys
from .catalog import Resource

__all__ = ["MISSING", "Places", "Shape", "decode_fields", "encode_fields", "leaves", "merge", "remove", "show"]

Path = tuple[str, ...]
Names = tuple[str, ...]

MISSING: Final = object()
_DEEPEST: Final = 100
_KEY_DEFAULTS: Final = {"protocol": "TCP"}


class Shape:
    """Lists of a resource that merge, with their keys, by the built-in table or by a definition's own schema."""

    def __init__(self, resource: Resource) -> None:
        self._defined = resource.defined

    def keys(self, names: Names) -> tuple[str, ...] | None:
        """Return the key fields of the list at a path of names; () for a set of scalars, None for an atomic list."""
        schema = self._schema_at(names)
        if schema is None:
            return list_keys(names)
        if schema.get("x-kubernetes-list-type") == "set":
            return ()
        is_map = schema.get("x-kubernetes-list-type") == "map"
        return tuple(schema.get("x-kubernetes-list-map-keys") or ()) or None if is_map else None

    def is_atomic(self, names: Names) -> bool:
        """True if an object is owned as a whole."""
        schema = self._schema_at(names)
        return is_atomic(names[-1]) if schema is None else schema.get("x-kubernetes-map-type") == "atomic"

    def _schema_at(self, names: Names) -> Mapping[str, Any] | None:
        """Return the part of a definition's schema for a path.

        It is empty where the schema says nothing, and None for built-in fields.
        """
        if self._defined is None or names[:1] == ("metadata",):
            return None
        schema: Any = self._defined.schema
        for name in names:
            if not isinstance(schema, dict):
                return {}
            schema = schema["items"] if isinstance(schema.get("items"), dict) else schema
            properties = schema.get("properties")
            known = isinstance(properties, dict) and name in properties
            schema = properties[name] if known else schema.get("additionalProperties")
        return schema if isinstance(schema, dict) else {}


# -- paths and objects -----------------------------------------------------------------------------------


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _element(item: Any, keys: tuple[str, ...]) -> str | None:
    """Return the path element of a list item; None for an item without a key."""
    found = {key: item.get(key, _KEY_DEFAULTS.get(key)) for key in sorted(keys)} if isinstance(item, dict) else {}
    return None if None in found.values() or not found else "k:" + _json(found)


def leaves(value: Any, shape: Shape, names: Names = (), path: Path = ()) -> Iterator[Path]:
    """Yield the paths of all leaves below ``path``, and of all items of keyed lists. A path may come twice.

    Raises:
        ApiError: 400 for an item of a keyed list without its keys.
    """
    if isinstance(value, dict) and value and not (names and shape.is_atomic(names)):
        for key, item in value.items():
            yield from leaves(item, shape, (*names, key), (*path, f"f:{key}"))
    elif isinstance(value, list) and (keys := shape.keys(names)) is not None:
        for item in value:
            element = _element(item, keys) if keys else f"v:{_json(item)}"
            if element is None:
                raise _omitted(item, keys, names)
            yield (*path, element)
            for key, inner in item.items() if keys else ():
                yield from leaves(inner, shape, (*names, key), (*path, element, f"f:{key}"))
    elif path and value is not None:
        yield path


def _omitted(item: Any, keys: tuple[str, ...], names: Names) -> ApiError:
    place = f".{'.'.join(names)}"
    if not isinstance(item, dict):
        return ApiError.bad_request(f"{place}: items must be objects with {', '.join(keys)}")
    key = next(key for key in sorted(keys) if item.get(key, _KEY_DEFAULTS.get(key)) is None)
    text = f"{place}: element: associative list with keys has an element that omits key field {key!r}"
    return ApiError.bad_request(f"failed to create typed patch object: {text}")


def merge(live: Any, applied: Any, shape: Shape, names: Names = ()) -> Any:
    """Return ``applied`` (keyed items have their keys) laid over ``live``.

    Neither argument changes; the result may share parts with both.
    """
    if isinstance(applied, dict):
        if not isinstance(live, dict) or (names and shape.is_atomic(names)):
            live = {}
        given = {key: value for key, value in applied.items() if value is not None}
        return live | {key: merge(live.get(key), value, shape, (*names, key)) for key, value in given.items()}
    keys = shape.keys(names) if isinstance(applied, list) and isinstance(live, list) else None
    if keys is None:
        return applied
    if not keys:
        known = set(map(json_key, live))
        return [*live, *(item for item in applied if json_key(item) not in known)]
    merged = list(live)
    places = {_element(item, keys): index for index, item in enumerate(live)}
    for item in applied:
        index = places.get(_element(item, keys))
        if index is None:
            merged.append(merge({}, item, shape, names))
        else:
            merged[index] = merge(merged[index], item, shape, names)
    return merged


class Places:
    """Plain data by path, for many paths. The data must not change meanwhile.

    The items of each list are indexed once.
    """

    def __init__(self, data: Any) -> None:
        self._data = data
        #: Index of the items by their key values, for a list (by id) and the names of its keys.
        self._indexes: dict[tuple[int, tuple[str, ...]], dict[Hashable, int]] = {}

    def at(self, path: Path) -> Any:
        """Return the value at a path, or :data:`MISSING`."""
        data = self._data
        for element in path:
            if element.startswith("f:"):
                data = data.get(element[2:], MISSING) if isinstance(data, dict) else MISSING
            else:
                index = self.find(data, element)
                data = data[index] if index >= 0 else MISSING
        return data

    def find(self, items: Any, element: str) -> int:
        """Return the index of the item that a ``k:`` or ``v:`` element names, or -1."""
        try:
            wanted = msgspec.json.decode(element[2:])
        except msgspec.DecodeError:
            return -1
        is_map = element.startswith("k:")
        if not isinstance(items, list) or (is_map and not isinstance(wanted, dict)):
            return -1
        names = tuple(sorted(wanted)) if is_map else ()
        index = self._indexes.get((id(items), names))
        if index is None:
            index = self._indexes[id(items), names] = {}
            for place, item in enumerate(items):
                if not is_map or isinstance(item, dict):
                    index.setdefault(_identity(item, names) if is_map else json_key(item), place)
        return index.get(_identity(wanted, names) if is_map else json_key(wanted), -1)


def _identity(item: Mapping[str, Any], names: Names) -> Hashable:
    """Return the values of an item's key fields, defaults filled in."""
    return tuple([json_key(item.get(name, _KEY_DEFAULTS.get(name))) for name in names])


def remove(data: Any, paths: Iterable[Path]) -> None:
    """Remove paths, in place.

    Containers that become empty are removed too, except for whole sections and list items.
    """
    tree: dict[str, Any] = {}
    for path in paths:
        node = tree
        for element in path:
            node = node.setdefault(element, {})
        node["."] = {}
    _prune(data, tree, 0)


def _prune(data: Any, tree: Mapping[str, Any], depth: int) -> bool:
    """Remove members of ``data``. Each leaf of the tree is the path of one member. Return True if nothing is left.

    ``depth`` is the depth of ``data`` in the object.
    """
    places, gone = Places(data), set()
    for element, inner in tree.items():
        is_member = element.startswith("f:")
        where = element[2:] if is_member else places.find(data, element)
        if (is_member and not (isinstance(data, dict) and where in data)) or where == -1:
            continue
        if "." in inner or (_prune(data[where], inner, depth + 1) and depth > 0 and is_member):
            gone.add(where)
    if isinstance(data, dict):
        for name in gone:
            del data[name]
    elif gone:
        data[:] = [item for index, item in enumerate(data) if index not in gone]
    return bool(gone) and not data


# -- fieldsV1 --------------------------------------------------------------------------------------------


def encode_fields(paths: Iterable[Path]) -> dict[str, Any]:
    """Return paths as a ``fieldsV1`` tree."""
    tree: dict[str, Any] = {}
    for path in sorted(set(paths)):
        node = tree
        for element in path:
            node = node.setdefault(element, {})
        if path[-1].startswith("k:"):
            node["."] = {}
    return tree


def decode_fields(node: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of a ``fieldsV1`` tree, below ``path``. Malformed parts are left out."""
    if len(path) > _DEEPEST:
        return
    if path and (not isinstance(node, dict) or not node):
        yield path
    for element, inner in node.items() if isinstance(node, dict) else ():
        if element == "." and path:
            yield path
        elif element[:2] in ("f:", "k:", "v:"):
            yield from decode_fields(inner, (*path, element))


def show(path: Path) -> str:
    """Return a path in the form of error messages: ``.spec.containers[name="x"].image``."""
    text = ""
    for element in path:
        kind, rest = element[:2], element[2:]
        if kind == "f:":
            text += f".{rest}"
        elif kind == "k:":
            keys = msgspec.json.decode(rest)
            text += "[" + ",".join(f"{key}={_json(value)}" for key, value in keys.items()) + "]"
        else:
            text += f"[={rest}]"
    return text
