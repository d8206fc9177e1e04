"""Values of CEL as Python objects, and the errors of an evaluation.

A bool, int, float, str, bytes, list, dict or None represents itself. Types without a Python counterpart are here.
:func:`kind_of` names a value's type as upstream does in messages.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from functools import total_ordering
from typing import Any, Final
from urllib.parse import SplitResult

from ..quantity import Quantity

__all__ = [
    "INT_MAX",
    "INT_MIN",
    "NO_VALUE",
    "OWN_KINDS",
    "UINT_MAX",
    "BoolKey",
    "DefaultMap",
    "Duration",
    "EvaluationError",
    "NamedFormat",
    "Optional",
    "Semver",
    "Timestamp",
    "TypeValue",
    "UInt",
    "kind_of",
    "parse_semver",
    "quoted",
    "size_of",
]

INT_MIN: Final = -(1 << 63)
INT_MAX: Final = (1 << 63) - 1
UINT_MAX: Final = (1 << 64) - 1


#: Most characters of an error's text. It quotes values, and ends up in logs and conditions. Longer texts are cut.
_LONGEST_TEXT: Final = 1024


class EvaluationError(Exception):
    """The evaluation ended with an error. The text is upstream's. Logic operators may absorb this error."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*(_cut(arg) for arg in args))


def _cut(value: Any) -> Any:
    return f"{value[:_LONGEST_TEXT]}…" if type(value) is str and len(value) > _LONGEST_TEXT else value


class UInt(int):
    """Unsigned integer of 64 bits."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """Moment: nanoseconds since 1970 in UTC."""

    nanos: int


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    nanos: int


@dataclass(frozen=True, slots=True)
class TypeValue:
    """Result of ``type(x)``."""

    name: str


@dataclass(frozen=True, slots=True)
class Optional:
    """Value that may be absent. ``Optional(None, False)`` is absent; null may be present."""

    value: Any
    present: bool = True


NO_VALUE: Final = Optional(None, False)


@dataclass(frozen=True, slots=True)
class NamedFormat:
    """Format of the ``format`` library, by its name."""

    name: str


@dataclass(frozen=True, slots=True)
class BoolKey:
    """Bool as a map key. Python would take True for 1."""

    value: bool


class DefaultMap(dict[Any, Any]):
    """Map that reads a missing key as an empty map, although ``in`` does not find the key (``device.attributes``)."""

    def __missing__(self, key: Any) -> dict[Any, Any]:
        return {}


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Semver:
    """Version of SemVer 2.0.0. Build metadata is kept but never compared."""

    major: int
    minor: int
    patch: int
    pre: tuple[int | str, ...] = ()
    build: str = ""

    def _order(self) -> tuple[Any, ...]:
        # A version without a pre-release is greater; numbers are less than words; a longer list is greater.
        pre = tuple((0, part, "") if isinstance(part, int) else (1, 0, part) for part in self.pre)
        return (self.major, self.minor, self.patch, not self.pre, pre)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self._order() == other._order()

    def __lt__(self, other: Semver) -> bool:
        return self._order() < other._order()

    def __hash__(self) -> int:
        return hash(self._order())


_IDENTIFIER: Final = re.compile(r"[0-9A-Za-z-]+\Z", re.ASCII)
_DIGITS: Final = re.compile(r"[0-9]+\Z", re.ASCII)
_UINT64: Final = 1 << 64


def _number(text: str, what: str) -> int:
    if not _DIGITS.match(text):
        raise EvaluationError(f'Invalid character(s) found in {what} number "{text}"')
    if len(text) > 1 and text[0] == "0":
        raise EvaluationError(f'{what.capitalize()} number must not contain leading zeroes "{text}"')
    if len(text) > 20 or int(text) >= _UINT64:
        raise EvaluationError(f'strconv.ParseUint: parsing "{text}": value out of range')
    return int(text)


def parse_semver(text: str, *, normalize: bool = False) -> Semver:
    """Read a version. ``normalize`` accepts a leading ``v``, missing parts and leading zeros.

    Raises:
        EvaluationError: with the text of upstream's library.
    """
    if normalize:
        text = _normalized(text)
    if not text:
        raise EvaluationError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise EvaluationError("No Major.Minor.Patch elements found")
    major, minor = _number(parts[0], "major"), _number(parts[1], "minor")
    rest, plus, build = parts[2].partition("+")
    patch_text, dash, pre_text = rest.partition("-")
    patch = _number(patch_text, "patch")
    pre: list[int | str] = []
    for part in pre_text.split(".") if dash else ():
        if not part:
            raise EvaluationError("Prerelease is empty")
        if _DIGITS.match(part):
            if len(part) > 1 and part[0] == "0":
                raise EvaluationError(f'Numeric PreRelease version must not contain leading zeroes "{part}"')
            pre.append(int(part) if len(part) <= 20 else part)
        elif _IDENTIFIER.match(part):
            pre.append(part)
        else:
            raise EvaluationError(f'Invalid character(s) found in prerelease "{part}"')
    for part in build.split(".") if plus else ():
        if not part:
            raise EvaluationError("Build meta data is empty")
        if not _IDENTIFIER.match(part):
            raise EvaluationError(f'Invalid character(s) found in build meta data "{part}"')
    return Semver(major, minor, patch, tuple(pre), build)


def _normalized(text: str) -> str:
    text = text.removeprefix("v")
    parts = text.split(".", 2)
    while len(parts) < 3:
        if any(mark in parts[-1] for mark in "+-"):
            break  # a short version has neither pre-release nor build
        parts.append("0")
    for index, part in enumerate(parts):
        head = re.match(r"0+(?=[0-9])", part)
        if head:
            parts[index] = part[head.end() :]
    return ".".join(parts)


_KINDS: Final[dict[type, str]] = {
    bool: "bool",
    int: "int",
    UInt: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    list: "list",
    dict: "map",
    type(None): "null_type",
    Timestamp: "google.protobuf.Timestamp",
    Duration: "google.protobuf.Duration",
    TypeValue: "type",
    Optional: "optional_type",
    Quantity: "kubernetes.Quantity",
    Semver: "kubernetes.Semver",
    NamedFormat: "kubernetes.NamedFormat",
    SplitResult: "kubernetes.URL",
    ipaddress.IPv4Address: "net.IP",
    ipaddress.IPv6Address: "net.IP",
    ipaddress.IPv4Interface: "net.CIDR",
    ipaddress.IPv6Interface: "net.CIDR",
}


#: Names of the types that Kubernetes adds to CEL.
OWN_KINDS: Final = frozenset(kind for kind in _KINDS.values() if kind.startswith(("kubernetes.", "net.")))


def kind_of(value: Any) -> str:
    """Return the name of a value's type."""
    kind = _KINDS.get(type(value))
    if kind is not None:
        return kind
    if isinstance(value, dict):
        return "map"
    return type(value).__name__


def quoted(value: Any) -> str:
    """Return a value for an error's text: a text or a number as it is, for any other value the name of its type."""
    return str(value) if type(value) in (str, bytes, int, UInt, float, bool) else f"a value of type {kind_of(value)}"


def size_of(value: Any) -> int:
    """Return the size of a value for the cost of an operation; 1 if it has no size."""
    return len(value) if type(value) in (str, bytes, list) or isinstance(value, dict) else 1
