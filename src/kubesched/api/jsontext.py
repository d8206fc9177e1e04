"""JSON text to plain data, with duplicate keys. Called by :mod:`.yamltext` and for request bodies."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from .documents import MAX_DEPTH, TOO_DEEP, Document, Duplicate, TextError

__all__ = ["parse_json"]

_POSITION: Final = re.compile(r"\(byte (\d+)\)")
_SPACED_KEY: Final = re.compile(rb'"\s+:')


def parse_json(raw: bytes) -> Document:
    """A JSON text. Positions of duplicate keys are not known.

    Raises:
        TextError: with the position, for what is not JSON; also for text nested too deep.
    """
    try:
        data = msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise _not_json(raw, error) from None
    except UnicodeDecodeError:
        raise TextError("the text is not UTF-8", document=0, format="JSON") from None
    except RecursionError:
        raise TextError(TOO_DEEP, document=0) from None
    members = _count_members(data)
    # Every key is followed by a colon. When there are no more of those than members, no key came twice; texts may hold
    # such a pair of letters too, so only then is a second look needed.
    if raw.count(b'":') == members and _SPACED_KEY.search(raw) is None:
        return Document(data, number=0)
    return Document(data, _json_duplicates(raw), number=0)


def _not_json(raw: bytes, error: msgspec.DecodeError) -> TextError:
    if not raw.strip():
        return TextError("the text is empty", document=0, format="JSON")
    text = str(error)
    found = _POSITION.search(text)
    if found is not None or "truncated" in text:
        before = raw[: int(found[1])] if found is not None else raw.rstrip()
        line, column = before.count(b"\n") + 1, len(before) - (before.rfind(b"\n") + 1) + 1
        text += f", line {line}, column {column}"
    return TextError(text, document=0, format="JSON")


def _count_members(data: Any, depth: int = 0) -> int:
    """How many members all objects in ``data`` have together.

    Raises:
        TextError: when it is nested too deep.
    """
    if isinstance(data, dict):
        count, values = len(data), list(data.values())
    elif isinstance(data, list):
        count, values = 0, data
    else:
        return 0
    if depth >= MAX_DEPTH:
        raise TextError(TOO_DEEP, document=0)
    for value in values:
        if isinstance(value, dict | list):
            count += _count_members(value, depth + 1)
    return count


class _Twice(dict[str, Any]):
    """An object in which keys came twice."""

    keys_twice: Sequence[str] = ()


def _json_duplicates(raw: bytes) -> list[Duplicate]:
    any_twice = False

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal any_twice
        result = dict(items)
        if len(result) == len(items):
            return result
        any_twice = True
        twice = _Twice(result)
        twice.keys_twice = [key for key, count in Counter(key for key, _ in items).items() if count > 1]
        return twice

    found: list[Duplicate] = []
    try:
        data = json.JSONDecoder(object_pairs_hook=pairs).decode(raw.decode("utf-8"))
    except (ValueError, RecursionError):
        return []  # what one parser reads and the other does not: nothing can be said about its keys
    if any_twice:
        _collect(data, "", found)
    return found


def _collect(data: Any, path: str, found: list[Duplicate]) -> None:
    if isinstance(data, dict):
        if isinstance(data, _Twice):
            found += [Duplicate(0, key, f"{path}{key}") for key in data.keys_twice]
        for key, value in data.items():
            _collect(value, f"{path}{key}.", found)
    elif isinstance(data, list):
        for index, item in enumerate(data):
            _collect(item, f"{path[:-1]}[{index}].", found)
