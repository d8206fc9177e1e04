"""Exact Kubernetes quantities.

A quantity such as ``100m``, ``1.5Gi`` or ``2e3`` is kept as a whole number of nano-units, the finest step that
Kubernetes stores. Conversions to integers round up (away from zero), as upstream does, so that a pod never looks
smaller than it is.

Used by every package that reads resource lists. The two ``*_value`` functions at the end remember their results,
because the same few strings occur in every pod of a cluster.
"""

from __future__ import annotations

import re
from typing import Final

from kubesched.base.kept import remembered

__all__ = [
    "INT64_MAX",
    "Quantity",
    "QuantityError",
    "QuantityText",
    "binary_text",
    "canonical_quantity",
    "format_bytes",
    "format_milli",
    "int_value",
    "milli_value",
    "parse_quantity",
]

#: Forms of a quantity in a manifest: a string or a bare number.
QuantityText = str | int | float

INT64_MAX: Final = (1 << 63) - 1
_NANO: Final = 10**9
#: Most digits that are read as they are. An exponent has at most three digits, so further digits cannot matter. Python
#: itself reads at most 4300.
_MANY_DIGITS: Final = 2000
_MAX_NANOS: Final = INT64_MAX * _NANO

_PATTERN: Final = re.compile(
    r"^(?P<sign>[+-]?)(?P<whole>\d*)(?:\.(?P<frac>\d*))?(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?\d{1,3}|)\Z",
    re.ASCII,
)
_BINARY: Final = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


class QuantityError(ValueError):
    """The text is not a quantity. The message names the field, the value and what would be right."""

    def __init__(self, value: object, path: str = "") -> None:
        self.value = value
        self.path = path
        where = f"{path}: " if path else ""
        super().__init__(
            f"{where}{value!r} is not a quantity; write a number with an optional suffix, "
            "such as 100m, 0.5, 2, 500Mi, 1.5Gi, 20k or 1e3"
        )


def _ceil_div(value: int, divisor: int) -> int:
    """Divide, rounding away from zero."""
    if value >= 0:
        return -(-value // divisor)
    return value // divisor


class Quantity:
    """Exact amount in nano-units: immutable, ordered, hashable.

    Rounding is always up: ``Quantity.parse("1500u").milli() == 2``.
    """

    __slots__ = ("nanos",)

    nanos: int

    def __init__(self, nanos: int) -> None:
        object.__setattr__(self, "nanos", max(-_MAX_NANOS, min(_MAX_NANOS, nanos)))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Quantity is immutable: cannot set {name}")

    @classmethod
    def parse(cls, text: QuantityText, path: str = "") -> Quantity:
        """Read a quantity.

        As upstream, an amount beyond int64 is capped to it, and a fraction of a nano is rounded up.

        Raises:
            QuantityError: if ``text`` is not a quantity.
        """
        if isinstance(text, bool):
            raise QuantityError(text, path)
        if isinstance(text, int):
            return cls(text * _NANO)
        if isinstance(text, float):
            text = repr(text)
        if not isinstance(text, str):
            raise QuantityError(text, path)
        match = _PATTERN.match(text)
        if match is None:
            raise QuantityError(text, path)
        whole, frac = match["whole"], match["frac"] or ""
        if not whole and not frac:
            raise QuantityError(text, path)
        if len(whole) + len(frac) > _MANY_DIGITS:
            whole, frac = whole.lstrip("0"), _rounded_up(frac)
            if len(whole) > _MANY_DIGITS:  # beyond int64 even with the smallest exponent
                return cls(-_MAX_NANOS if match["sign"] == "-" else _MAX_NANOS)
        digits = int(whole + frac or "0") * _NANO
        scale = -len(frac)
        suffix = match["suffix"]
        if suffix in _BINARY:
            digits *= _BINARY[suffix]
        elif suffix in _DECIMAL:
            scale += _DECIMAL[suffix]
        else:
            scale += int(suffix[1:])
        nanos = digits * 10**scale if scale >= 0 else _ceil_div(digits, 10**-scale)
        return cls(-nanos if match["sign"] == "-" else nanos)

    def milli(self) -> int:
        """Return thousandths, rounded up: the unit of CPU."""
        return max(-INT64_MAX, min(INT64_MAX, _ceil_div(self.nanos, 10**6)))

    def value(self) -> int:
        """Return whole units, rounded up: the unit of all resources except CPU."""
        return _ceil_div(self.nanos, _NANO)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.nanos == other.nanos

    def __lt__(self, other: Quantity) -> bool:
        return self.nanos < other.nanos

    def __le__(self, other: Quantity) -> bool:
        return self.nanos <= other.nanos

    def __add__(self, other: Quantity) -> Quantity:
        return Quantity(self.nanos + other.nanos)

    def __sub__(self, other: Quantity) -> Quantity:
        return Quantity(self.nanos - other.nanos)

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def __str__(self) -> str:
        """Return the canonical decimal notation: the largest suffix that leaves no fraction."""
        nanos = abs(self.nanos)
        if nanos == 0:
            return "0"
        exponent = -9
        while exponent < 18 and nanos % 1000 == 0:
            nanos //= 1000
            exponent += 3
        suffix = next(name for name, power in _DECIMAL.items() if power == exponent)
        return f"{'-' if self.nanos < 0 else ''}{nanos}{suffix}"


def _rounded_up(frac: str) -> str:
    """Shorten a fraction to _MANY_DIGITS. The rest is less than a nano even with the largest exponent."""
    kept, rest = frac[:_MANY_DIGITS], frac[_MANY_DIGITS:]
    return f"{kept}1" if rest.strip("0") else kept


@remembered(8 << 20)
def _parse_text(text: str) -> Quantity:
    return Quantity.parse(text)


def parse_quantity(text: QuantityText, path: str = "") -> Quantity:
    """Parse a quantity like :meth:`Quantity.parse`, remembering strings seen before."""
    if isinstance(text, str):
        try:
            return _parse_text(text)
        except QuantityError:
            raise QuantityError(text, path) from None
    return Quantity.parse(text, path)


@remembered(8 << 20)
def _milli(text: str) -> int:
    return Quantity.parse(text).milli()


@remembered(8 << 20)
def _value(text: str) -> int:
    return Quantity.parse(text).value()


def milli_value(text: QuantityText) -> int:
    """Return thousandths of a quantity, rounded up (CPU)."""
    return _milli(text) if isinstance(text, str) else Quantity.parse(text).milli()


def int_value(text: QuantityText) -> int:
    """Return whole units of a quantity, rounded up (memory, storage, counts)."""
    return _value(text) if isinstance(text, str) else Quantity.parse(text).value()


def binary_text(whole: int) -> str:
    """Write whole units with the largest binary suffix that leaves no fraction: ``1572864`` is ``1536Ki``."""
    for suffix, factor in reversed(_BINARY.items()):
        if whole and whole % factor == 0:
            return f"{whole // factor}{suffix}"
    return str(whole)


def canonical_quantity(text: QuantityText, *, like: QuantityText | None = None) -> str:
    """Write a quantity as upstream does if it was read from ``text``, or computed from a quantity written as ``like``.

    A binary suffix stays binary from 1024 on; everything else becomes decimal.
    """
    quantity = parse_quantity(text)
    notation = text if like is None else like
    whole = quantity.value()
    if isinstance(notation, str) and notation.endswith("i") and abs(whole) >= 1024:
        return binary_text(whole)
    return str(quantity)


def format_milli(milli: int) -> str:
    """Write thousandths for people: ``1500`` is ``1500m``, ``2000`` is ``2``."""
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def format_bytes(count: int) -> str:
    """Write bytes for people, with at most one decimal: ``1610612736`` is ``1.5Gi``."""
    amount = float(count)
    for suffix in ("", "Ki", "Mi", "Gi", "Ti", "Pi"):
        if abs(amount) < 1024 or suffix == "Pi":
            return f"{amount:.0f}{suffix}" if amount == int(amount) else f"{amount:.1f}{suffix}"
        amount /= 1024
    raise AssertionError("unreachable")
