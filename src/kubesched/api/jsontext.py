"""Parser of JSON text to plain data, with duplicate keys. Called by :mod:`.yamltext` and for request bodies."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from .documents import MAX_DEPTH, MAX_DUPLICATES, TOO_DEEP, Document, Duplicate, TextError, TooManyValuesError

__all__ = ["check_values", "has_more_containers", "parse_json"]

#: Most characters of a value's path, on average, if the number of values is limited.
_PATH_LENGTH: Final = 1_000
_CONTAINERS: Final = (dict, list)
_POSITION: Final = re.compile(r"\(byte (\d+)\)")
_TEXT: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_SPACED_KEY: Final = re.compile(rb'"\s+:')


def parse_json(raw: bytes, *, most_values: int = sys.maxsize) -> Document:
    """Parse a JSON text. The positions of duplicate keys are not known.

    Raises:
        TextError: if the text is not JSON, with the position, or if it is nested too deep.
        TooManyValuesError: if it has more than ``most_values`` members and items.
    """
    if has_more_containers(raw, most_values + 1):
        raise _too_many(most_values)
    try:
        data = msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise _not_json(raw, error) from None
    except UnicodeDecodeError:
        raise TextError("the text is not UTF-8", document=0, format="JSON") from None
    except RecursionError:
        raise TextError(TOO_DEEP, document=0) from None
    members = _measure(data, most_values)[1]
    # Every key is followed by a colon. If the text has no more quotes followed by colons than members, no key came
    # twice. If it has more, a second look is needed, because strings may contain such a pair of characters, too.
    if raw.count(b'":') == members and _SPACED_KEY.search(raw) is None:
        return Document(data, number=0)
    return Document(data, _json_duplicates(raw), number=0)


def has_more_containers(raw: bytes, most: int) -> bool:
    """True if a JSON text has more than ``most`` objects and lists, which would take much time and memory."""
    if raw.count(b"[") + raw.count(b"{") <= most:
        return False
    bare = _TEXT.sub(b"", raw)
    return bare.count(b"[") + bare.count(b"{") > most


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


def check_values(data: Any, most: int) -> None:
    """Refuse plain data with more than ``most`` members and items, in all its objects and lists together.

    Raises:
        TooManyValuesError: if it has more.
        TextError: if it is nested too deep.
    """
    _measure(data, most)


def _measure(data: Any, most: int) -> tuple[int, int]:
    """Return the number of values in ``data``, and the number of members of its objects. Counts level by level.

    Raises:
        TextError: if ``data`` is nested too deep, has more values than ``most``, or has such long names that the paths
            of ``most`` values would be longer than allowed.
    """
    values = members = depth = letters = 0
    #: Objects and lists of one level, and the lengths of their paths.
    level: list[tuple[Any, int]] = [(data, 0)] if isinstance(data, dict | list) else []
    while level:
        if depth >= MAX_DEPTH:
            raise TextError(TOO_DEEP, document=0)
        depth += 1
        inner: list[tuple[Any, int]] = []
        for one, length in level:
            values += len(one)
            letters += len(one) * length
            if values > most:
                raise _too_many(most)
            if letters > most * _PATH_LENGTH:
                raise TooManyValuesError("the paths of its fields are too long", document=0)
            if type(one) is dict:
                members += len(one)
                inner += [(value, length + len(key)) for key, value in one.items() if type(value) in _CONTAINERS]
            else:
                inner += [(value, length) for value in one if type(value) in _CONTAINERS]
        level = inner
    return values, members


def _too_many(most: int) -> TooManyValuesError:
    return TooManyValuesError(f"more than {most} members and items in its objects and lists", document=0)


class _Twice(dict[str, Any]):
    """Object in which some keys came twice."""

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
        return []  # This parser refuses the text although the other parser read it, so nothing is known about its keys.
    if any_twice:
        _collect(data, "", found)
    return found


def _collect(data: Any, path: str, found: list[Duplicate]) -> None:
    if len(found) >= MAX_DUPLICATES:
        return
    if isinstance(data, dict):
        if isinstance(data, _Twice):
            found += [Duplicate(0, key, f"{path}{key}") for key in data.keys_twice[: MAX_DUPLICATES - len(found)]]
        for key, value in data.items():
            if type(value) is not str:
                _collect(value, f"{path}{key}.", found)
    elif isinstance(data, list):
        for index, item in enumerate(data):
            _collect(item, f"{path[:-1]}[{index}].", found)
