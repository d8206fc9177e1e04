"""JSON Patch (RFC 6902) and JSON Merge Patch (RFC 7386) on plain data.

Caller: ``store.patch``; strategic merge lives in :mod:`.strategic`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ...api.equality import same_json
from ...api.wire import ApiError

__all__ = ["apply_json_patch", "apply_merge_patch"]

#: What all copies of a JSON patch may hold together (bytes), as much as a request; and how deep its result may nest,
#: as deep as a request.
_MOST_COPIED: Final = 3 << 20
_MOST_LEVELS: Final = 200


def apply_merge_patch(target: Any, patch: Any) -> Any:
    """Merge ``patch`` into ``target``: null deletes a member, objects merge, anything else replaces.

    The result may share parts with both arguments, and ``target`` may be changed.
    """
    if not isinstance(patch, dict):
        return patch
    if not isinstance(target, dict):
        target = {}
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = apply_merge_patch(target.get(key), value)
    return target


def apply_json_patch(document: Any, operations: Any) -> Any:
    """Apply a list of RFC 6902 operations to ``document``, which is changed.

    Raises:
        ApiError: 400 for a malformed patch, 413 when it copies too much, 422 when an operation cannot be applied, a
            test fails, or the result is nested too deep.
    """
    copied = 0
    if not isinstance(operations, Sequence) or isinstance(operations, str | bytes):
        raise ApiError.bad_request("a JSON patch is a list of operations")
    for index, operation in enumerate(operations):
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            raise ApiError.bad_request(f"JSON patch operation {index} needs a string path")
        try:
            if operation.get("op") == "copy":
                # Copies of copies double: a small patch could make an object of any size.
                copied += len(msgspec.json.encode(_get(document, _pointer(_from(operation)))))
                if copied > _MOST_COPIED:
                    raise ApiError(
                        413,
                        "RequestEntityTooLarge",
                        f"JSON patch operation {index} (copy {operation['path']}): "
                        f"all copies together exceed {_MOST_COPIED} bytes",
                    )
            document = _apply(document, operation)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            text = f"JSON patch operation {index} ({operation.get('op')} {operation['path']}): {error}"
            raise ApiError(
                422, "Invalid", f"the server rejected our request due to an error in our request: {text}"
            ) from None
    if _is_too_deep(document):
        raise ApiError(422, "Invalid", f"the patch leaves an object nested more than {_MOST_LEVELS} levels deep")
    return document


def _is_too_deep(document: Any) -> bool:
    level = [document]
    for _ in range(_MOST_LEVELS):
        level = [
            child
            for value in level
            for child in (value.values() if isinstance(value, dict) else value)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def _apply(document: Any, operation: dict[str, Any]) -> Any:
    op, path = operation.get("op"), _pointer(operation["path"])
    match op:
        case "add":
            return _add(document, path, _value(operation))
        case "remove":
            return _remove(document, path)
        case "replace":
            _get(document, path)
            if not path:
                return _value(operation)
            return _set(document, path, _value(operation))
        case "move":
            source = _pointer(_from(operation))
            if path[: len(source)] == source and len(path) > len(source):
                raise ValueError("cannot move a value into itself")
            value = _get(document, source)
            return _add(_remove(document, source), path, value)
        case "copy":
            return _add(document, path, _copied(_get(document, _pointer(_from(operation)))))
        case "test":
            found = _get(document, path)
            if not same_json(found, _value(operation)):
                raise ValueError(f"testing value failed: found {found!r}")
            return document
    raise ValueError(f"unknown op {op!r}; use add, remove, replace, move, copy or test")


def _value(operation: dict[str, Any]) -> Any:
    if "value" not in operation:
        raise ValueError("value is missing")
    return _copied(operation["value"])


def _from(operation: dict[str, Any]) -> str:
    source = operation.get("from")
    if not isinstance(source, str):
        raise ValueError("from is missing")
    return source


def _copied(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value)) if isinstance(value, dict | list) else value


def _pointer(path: str) -> list[str]:
    if not path:
        return []
    if not path.startswith("/"):
        raise ValueError("a path starts with /")
    return [part.replace("~1", "/").replace("~0", "~") for part in path[1:].split("/")]


def _index(container: list[Any], part: str, *, end: bool) -> int:
    if part == "-" and end:
        return len(container)
    if not part.isascii() or not part.isdigit() or (len(part) > 1 and part[0] == "0"):
        raise ValueError(f"{part!r} is not an index")
    index = int(part)
    if index > len(container) - (0 if end else 1):
        raise IndexError(f"index {index} is out of bounds")
    return index


def _get(document: Any, path: list[str]) -> Any:
    for part in path:
        if isinstance(document, list):
            document = document[_index(document, part, end=False)]
        elif isinstance(document, dict):
            if part not in document:
                raise KeyError(f"there is no member {part!r}")
            document = document[part]
        else:
            raise TypeError(f"{part!r} is below a value that is neither object nor list")
    return document


def _set(document: Any, path: list[str], value: Any) -> Any:
    parent = _get(document, path[:-1])
    if isinstance(parent, list):
        parent[_index(parent, path[-1], end=False)] = value
    else:
        parent[path[-1]] = value
    return document


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent = _get(document, path[:-1])
    if isinstance(parent, list):
        parent.insert(_index(parent, path[-1], end=True), value)
    elif isinstance(parent, dict):
        parent[path[-1]] = value
    else:
        raise TypeError("the parent is neither object nor list")
    return document


def _remove(document: Any, path: list[str]) -> Any:
    if not path:
        raise ValueError("the whole document cannot be removed")
    _get(document, path)
    parent = _get(document, path[:-1])
    if isinstance(parent, list):
        del parent[_index(parent, path[-1], end=False)]
    else:
        del parent[path[-1]]
    return document
