"""Sets of field paths: which leaves an object has, how they are written as ``fieldsV1``, and what sits at a path.

A path is a tuple of ``f:name`` (member), ``k:{...}`` (list item by key) and ``v:...`` (member of a set), as in
fieldsV1. Which lists are maps or sets in disguise is asked of a :class:`Shape`. Caller: :mod:`.apply`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from ...api.equality import contains_json, same_json
from ...api.wire import ApiError
from ..schema import is_atomic, list_keys
from .catalog import Resource

__all__ = [
    "MISSING",
    "FieldSet",
    "Path",
    "Shape",
    "decode_fields",
    "encode_fields",
    "leaves",
    "merge",
    "remove",
    "show",
    "value_at",
]

Path = tuple[str, ...]
FieldSet = frozenset[Path]
Names = tuple[str, ...]

MISSING: Final = object()
_DEEPEST: Final = 100
_KEY_DEFAULTS: Final = {"protocol": "TCP"}


class Shape:
    """Which lists of a resource merge, and by what keys: the built-in table, or a definition's own schema."""

    def __init__(self, resource: Resource) -> None:
        self._schema: Any = resource.defined.schema if resource.defined is not None else None
        self._is_custom = resource.defined is not None

    def keys(self, names: Names) -> tuple[str, ...] | None:
        """The key fields of the list at a path of names; () for a set of scalars, None for an atomic list."""
        if self._is_custom and names[:1] != ("metadata",):
            schema = self._at(names)
            kind = schema.get("x-kubernetes-list-type")
            if kind == "set":
                return ()
            return tuple(schema.get("x-kubernetes-list-map-keys") or ()) or None if kind == "map" else None
        return list_keys(names)

    def is_atomic(self, names: Names) -> bool:
        """Whether an object is owned as a whole."""
        if self._is_custom and names[:1] != ("metadata",):
            return bool(self._at(names).get("x-kubernetes-map-type") == "atomic")
        return is_atomic(names[-1])

    def _at(self, names: Names) -> Mapping[str, Any]:
        schema = self._schema
        for name in names:
            if not isinstance(schema, dict):
                return {}
            if isinstance(schema.get("items"), dict):
                schema = schema["items"]
            properties = schema.get("properties")
            schema = (
                properties[name]
                if isinstance(properties, dict) and name in properties
                else schema.get("additionalProperties")
            )
        return schema if isinstance(schema, dict) else {}


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _element(item: Any, keys: tuple[str, ...], names: Names) -> str:
    """The path element of a list item."""
    if not isinstance(item, dict):
        raise ApiError.bad_request(f".{'.'.join(names)}: items must be objects with {', '.join(keys)}")
    found = {}
    for key in sorted(keys):
        value = item.get(key, _KEY_DEFAULTS.get(key))
        if value is None:
            text = (
                f".{'.'.join(names)}: element: associative list with keys has an element that omits key field {key!r}"
            )
            raise ApiError.bad_request(f"failed to create typed patch object: {text}")
        found[key] = value
    return "k:" + _json(found)


def leaves(data: Any, shape: Shape, names: Names = (), prefix: Path = ()) -> set[Path]:
    """The paths of all leaves, and of all items of keyed lists."""
    return set(_walk(data, shape, names, prefix))


def _walk(value: Any, shape: Shape, names: Names, path: Path) -> Iterator[Path]:
    if isinstance(value, dict) and value and not (names and shape.is_atomic(names)):
        for key, item in value.items():
            yield from _walk(item, shape, (*names, key), (*path, f"f:{key}"))
    elif isinstance(value, list) and (keys := shape.keys(names)) is not None:
        for item in value:
            here = (*path, _element(item, keys, names) if keys else f"v:{_json(item)}")
            yield here
            for key, inner in item.items() if keys else ():
                yield from _walk(inner, shape, (*names, key), (*here, f"f:{key}"))
    elif path and value is not None:
        yield path


def merge(live: Any, applied: Any, shape: Shape, names: Names = ()) -> Any:
    """``applied`` laid over ``live``; neither is changed, parts may be shared."""
    if isinstance(applied, dict):
        if not isinstance(live, dict) or (names and shape.is_atomic(names)):
            live = {}
        result = dict(live)
        for key, value in applied.items():
            if value is not None:
                result[key] = merge(live.get(key), value, shape, (*names, key))
        return result
    if isinstance(applied, list) and isinstance(live, list):
        keys = shape.keys(names)
        if keys is None:
            return applied
        if not keys:
            return [*live, *(item for item in applied if not contains_json(live, item))]
        places: dict[str, int] = {}
        result_list = list(live)
        for index, item in enumerate(live):
            try:
                places[_element(item, keys, names)] = index
            except ApiError:
                continue  # a stored item without its key can be neither named nor merged
        for item in applied:
            element = _element(item, keys, names)
            if element in places:
                index = places[element]
                result_list[index] = merge(result_list[index], item, shape, names)
            else:
                result_list.append(merge({}, item, shape, names))
        return result_list
    if isinstance(applied, list):
        keys = shape.keys(names)
        if keys:
            for item in applied:
                _element(item, keys, names)
    return applied


def _find(items: Any, element: str) -> int:
    """The index of the item a ``k:`` or ``v:`` element names, or -1."""
    if not isinstance(items, list):
        return -1
    try:
        wanted = msgspec.json.decode(element[2:])
    except msgspec.DecodeError:
        return -1
    for index, item in enumerate(items):
        if element.startswith("v:"):
            if same_json(item, wanted):
                return index
        elif _has_keys(item, wanted):
            return index
    return -1


def _has_keys(item: Any, wanted: Any) -> bool:
    """Whether an item bears these key fields, defaults counted in."""
    return (
        isinstance(item, dict)
        and isinstance(wanted, dict)
        and all(same_json(item.get(key, _KEY_DEFAULTS.get(key)), value) for key, value in wanted.items())
    )


def value_at(data: Any, path: Path) -> Any:
    """What sits at a path; :data:`MISSING` when nothing does."""
    for element in path:
        if element.startswith("f:"):
            if not isinstance(data, dict) or element[2:] not in data:
                return MISSING
            data = data[element[2:]]
        else:
            index = _find(data, element)
            if index < 0:
                return MISSING
            data = data[index]
    return data


def remove(data: Any, path: Path) -> None:
    """Take a path out, in place, and the containers that its going leaves empty."""
    if not path:
        return
    holder = value_at(data, path[:-1])
    last = path[-1]
    if last.startswith("f:"):
        if isinstance(holder, dict):
            holder.pop(last[2:], None)
    else:
        index = _find(holder, last)
        if index >= 0:
            del holder[index]
    if holder in ({}, []) and len(path) > 2 and path[-2].startswith("f:"):
        remove(data, path[:-1])


def encode_fields(paths: Iterable[Path]) -> dict[str, Any]:
    """Paths as a ``fieldsV1`` tree."""
    tree: dict[str, Any] = {}
    known = set(paths)
    for path in sorted(known):
        node = tree
        for element in path:
            node = node.setdefault(element, {})
        if path[-1].startswith("k:"):
            node["."] = {}
    return tree


def decode_fields(tree: Any) -> set[Path]:
    """The paths of a ``fieldsV1`` tree; what is not one is left out."""
    return set(_paths(tree, ()))


def _paths(node: Any, path: Path) -> Iterator[Path]:
    if len(path) > _DEEPEST:
        return
    if not isinstance(node, dict) or not node:
        if path:
            yield path
        return
    for element, inner in node.items():
        if element == ".":
            yield path
        elif element[:2] in ("f:", "k:", "v:"):
            yield from _paths(inner, (*path, element))


def show(path: Path) -> str:
    """A path as error messages write it: ``.spec.containers[name="x"].image``."""
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
