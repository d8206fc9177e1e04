"""JSON Patch (RFC 6902, by ``jsonpatch``) and JSON Merge Patch (RFC 7386) on plain data.

Caller: ``store.patch``; strategic merge lives in :mod:`.strategic`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from jsonpatch import JsonPatch, JsonPatchException
from jsonpointer import JsonPointer, JsonPointerException

from kubesched.api.documents import TOO_DEEP, TextError
from kubesched.api.equality import same_json
from kubesched.api.jsontext import parse_json
from kubesched.api.wire import ApiError

__all__ = ["apply_json_patch", "apply_merge_patch"]

#: Most bytes of all copies of a JSON patch (as for a request). The result may nest as deep as a request.
_MOST_COPIED: Final = 3 << 20
_MOST_SHOWN: Final = 300
_OPERATIONS: Final = ("add", "remove", "replace", "move", "copy", "test")


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
    """Apply a list of RFC 6902 operations to ``document``, an object, which is changed.

    Raises:
        ApiError: 400 for a malformed patch, 413 when it copies too much, 422 when an operation cannot be applied, a
            test fails, or the result is no object or nested too deep.
    """
    copied = 0
    if not isinstance(operations, Sequence) or isinstance(operations, str | bytes):
        raise ApiError.bad_request("a JSON patch is a list of operations")
    for index, operation in enumerate(operations):
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            raise ApiError.bad_request(f"JSON patch operation {index} needs a string path")
        what = f"JSON patch operation {index} ({operation.get('op')} {operation['path']})"
        try:
            if operation.get("op") == "copy":
                # Copies of copies double, so a small patch could make an object of any size.
                copied += len(msgspec.json.encode(_at(document, operation.get("from"))))
                if copied > _MOST_COPIED:
                    text = f"{what}: all copies together exceed {_MOST_COPIED} bytes"
                    raise ApiError(413, "RequestEntityTooLarge", text)
            document = _apply(document, operation)
        except (JsonPatchException, JsonPointerException, KeyError, IndexError, TypeError, ValueError) as error:
            why = str(error)[:_MOST_SHOWN]  # the library's message quotes the whole value
            text = f"the server rejected our request due to an error in our request: {what}: {why}"
            raise ApiError(422, "Invalid", text) from None
    if not isinstance(document, dict):
        raise ApiError(422, "Invalid", "the patch leaves no object")
    try:
        parse_json(msgspec.json.encode(document))
    except (TextError, RecursionError):
        raise ApiError(422, "Invalid", f"the patch leaves an object {TOO_DEEP}") from None
    return document


def _apply(document: Any, operation: dict[str, Any]) -> Any:
    """Apply one operation. The result shares nothing with the patch."""
    if operation.get("op") == "test" and "value" in operation:
        found = _at(document, operation["path"])  # not the library's test, which takes true for 1
        if not same_json(found, operation["value"]):
            raise ValueError(f"testing value failed: found {found!r}")
        return document
    if operation.get("op") not in _OPERATIONS:
        raise ValueError(f"unknown op {operation.get('op')!r}; use {', '.join(_OPERATIONS)}")
    copy = msgspec.json.decode(msgspec.json.encode(operation))
    return JsonPatch([copy]).apply(document, in_place=True)


def _at(document: Any, path: Any) -> Any:
    """Return the value at a pointer. The library's own walk would also index texts."""
    if not isinstance(path, str):
        raise TypeError("from must be a string path")
    pointer = JsonPointer(path)
    for part in pointer.parts:
        if not isinstance(document, dict | list):
            raise ValueError(f"{part!r} is below a value that is neither object nor list")
        document = pointer.walk(document, part)
    return document
