"""JSON text of documents that may be large: results, tables, lists.

If there is no memory for its text to grow, ``msgspec.json.encode`` ends the process with a segmentation fault. An
encoder that writes into an array raises MemoryError instead. Callers: all that write a whole result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = ["as_text", "large_json"]

_encode_into = msgspec.json.Encoder().encode_into


def large_json(value: Any, *, indent: int | None = None) -> bytes | bytearray:
    """Encode a value as JSON, on one line or with ``indent`` blanks for each level.

    Bytes that are no valid text, as in some file names, are escaped.

    Raises:
        MemoryError: if there is no memory for the text.
    """
    text = bytearray()
    try:
        _encode_into(value, text)
    except UnicodeEncodeError:
        text.clear()
        _encode_into(as_text(msgspec.to_builtins(value)), text)
    return text if indent is None else msgspec.json.format(text, indent=indent)


def as_text(value: Any) -> Any:
    """Return a copy of plain data in which all texts can be encoded."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, Mapping):
        return {as_text(key): as_text(item) for key, item in value.items()}
    return [as_text(item) for item in value] if isinstance(value, list | tuple) else value
