"""Types of flag values, read and refused as Go's flag library does.

Each is a :class:`ValueType`: its name in the help, a reader and a writer. Source: rules/configuration §7.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from kubesched.scheduler.config.durations import Duration, DurationError

__all__ = [
    "BOOL",
    "DURATION",
    "FLOAT32",
    "INT",
    "INT32",
    "INT32_LIST",
    "IP",
    "LABEL_MAP",
    "QUANTITY",
    "STRING",
    "STRINGS",
    "UINT",
    "ValueType",
    "quote",
]


def quote(text: str) -> str:
    """Quote a text as Go's %q does."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@dataclass(frozen=True, slots=True)
class ValueType:
    """Type of flag values: its name, and functions that read and write a value.

    ``read`` receives the text and the value so far, and raises ValueError with Go's text. With ``repeats``, a repeated
    flag adds to the value instead of replacing it. ``bare`` is the value, as text, of a flag without ``=value``.
    """

    name: str
    read: Callable[[str, Any], Any]
    write: Callable[[Any], str]
    repeats: bool = False
    bare: str = ""


_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_DIGITS: Final = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]*|[1-9][0-9]*)")
_FLOAT: Final = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[iI]nf(?:inity)?|[nN]a[nN])")


def _read_bool(text: str, _: Any) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError(f"strconv.ParseBool: parsing {quote(text)}: invalid syntax")


def _whole(function: str, low: int, high: int) -> Callable[[str, Any], int]:
    def read(text: str, _: Any) -> int:
        signed = low < 0
        if not _DIGITS.fullmatch(text) or (not signed and text[0] in "+-"):
            raise ValueError(f"strconv.{function}: parsing {quote(text)}: invalid syntax")
        digits = text.lstrip("+-")
        octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()
        try:
            value = int(digits, 8) if octal else int(digits, 0)
        except ValueError:  # more digits than Python converts
            value = high + 1
        value = -value if text[0] == "-" else value
        if not low <= value <= high:
            raise ValueError(f"strconv.{function}: parsing {quote(text)}: value out of range")
        return value

    return read


def _read_float32(text: str, _: Any) -> float:
    if not _FLOAT.fullmatch(text):
        raise ValueError(f"strconv.ParseFloat: parsing {quote(text)}: invalid syntax")
    value = float(text)
    if abs(value) > 3.4028234663852886e38 and abs(value) != float("inf"):
        raise ValueError(f"strconv.ParseFloat: parsing {quote(text)}: value out of range")
    return value


def _read_duration(text: str, _: Any) -> Duration:
    try:
        return Duration.parse(text)
    except DurationError as error:
        raise ValueError(str(error)) from None


def _read_ip(text: str, _: Any) -> str:
    try:
        return str(ipaddress.ip_address(text.strip()))
    except ValueError:
        raise ValueError(f"invalid string being converted to IP address: {text}") from None


def _read_strings(text: str, before: tuple[str, ...]) -> tuple[str, ...]:
    return (*before, *(text.split(",") if text else ()))


def _read_numbers(text: str, before: tuple[int, ...]) -> tuple[int, ...]:
    read = _whole("Atoi", -(2**31), 2**31 - 1)
    return (*before, *(read(part, None) for part in text.split(",") if text))


_QUANTITY: Final = re.compile(r"\+?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+|[KMGTPE]i|[numkMGTPE])?")


def _read_quantity(text: str, _: Any) -> str:
    if not _QUANTITY.fullmatch(text):
        raise ValueError(r"quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
    return text


_LABELS: Final = re.compile(r"(?P<key>[^,=]+,[^,=]+)=(?:'(?P<quoted>[^']*)'|(?P<plain>[^,]*))(?:,|$)")


def _read_label_map(text: str, before: dict[str, str]) -> dict[str, str]:
    """Read ``metric,label='v1,v2'`` pairs, comma separated."""
    found, position = dict(before), 0
    while position < len(text):
        match = _LABELS.match(text, position)
        if match is None:
            raise ValueError(f"{text[position:]} must be formatted as <metric>,<label>='<value>,<value>'")
        found[match["key"]] = match["quoted"] if match["quoted"] is not None else match["plain"]
        position = match.end()
    return found


def _write_number(value: float) -> str:
    return f"{value:g}"


def _bracketed(values: tuple[Any, ...]) -> str:
    return f"[{','.join(map(str, values))}]"


BOOL: Final = ValueType("", _read_bool, lambda value: "true" if value else "false", bare="true")
STRING: Final = ValueType("string", lambda text, _: text, str)
INT: Final = ValueType("int", _whole("ParseInt", -(2**63), 2**63 - 1), str)
INT32: Final = ValueType("int32", _whole("ParseInt", -(2**31), 2**31 - 1), str)
UINT: Final = ValueType("uint", _whole("ParseUint", 0, 2**32 - 1), str)
FLOAT32: Final = ValueType("float32", _read_float32, _write_number)
DURATION: Final = ValueType("duration", _read_duration, str)
IP: Final = ValueType("ip", _read_ip, str)
STRINGS: Final = ValueType("strings", _read_strings, _bracketed, repeats=True)
INT32_LIST: Final = ValueType("int32Slice", _read_numbers, _bracketed, repeats=True)
QUANTITY: Final = ValueType("quantity", _read_quantity, str)
LABEL_MAP: Final = ValueType(
    "stringToString",
    _read_label_map,
    lambda value: "[" + ",".join(f"{key}='{text}'" for key, text in value.items()) + "]",
    repeats=True,
)
