"""Durations in Go's notation: ``15s``, ``1m30s``, ``500ms``.

Used by the configuration types and by command-line flags of type duration.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["Duration", "DurationError"]

_NANOSECONDS: Final = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,  # micro sign
    "\u03bcs": 1_000,  # Greek letter mu
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60 * 1_000_000_000,
    "h": 3600 * 1_000_000_000,
}
_MAX: Final = 2**63
_PART: Final = re.compile(r"(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?(?P<unit>[^0-9.]*)")


class DurationError(ValueError):
    """A text is no duration; the message is Go's."""


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@dataclass(frozen=True, order=True, slots=True)
class Duration:
    """Signed span of time in whole nanoseconds, printed in Go's form."""

    nanoseconds: int = 0

    @classmethod
    def of_seconds(cls, seconds: float) -> Duration:
        return cls(round(seconds * 1_000_000_000))

    @classmethod
    def parse(cls, text: str) -> Duration:
        """Read Go's notation: an optional sign, then numbers with units; a bare ``0`` is zero.

        Raises:
            DurationError: with Go's text, such as ``time: missing unit in duration "5"``.
        """
        invalid = DurationError(f"time: invalid duration {_quote(text)}")
        rest = text[1:] if text[:1] in ("+", "-") else text
        if rest == "0":
            return cls(0)
        if not rest or len(text) > 256:  # no sensible duration is longer, and int() is slow on huge digits
            raise invalid
        total = 0
        while rest:
            part = _PART.match(rest)
            if part is None or not (part["whole"] or part["fraction"]):
                raise invalid
            unit = part["unit"]
            if not unit:
                raise DurationError(f"time: missing unit in duration {_quote(text)}")
            if unit not in _NANOSECONDS:
                raise DurationError(f"time: unknown unit {_quote(unit)} in duration {_quote(text)}")
            scale, fraction = _NANOSECONDS[unit], part["fraction"] or ""
            total += int(part["whole"] or "0") * scale + int(fraction or "0") * scale // 10 ** len(fraction)
            if total > _MAX:
                raise invalid
            rest = rest[part.end() :]
        if text.startswith("-"):
            return cls(-total)
        if total == _MAX:
            raise invalid
        return cls(total)

    @property
    def seconds(self) -> float:
        return self.nanoseconds / 1_000_000_000

    def __bool__(self) -> bool:
        return self.nanoseconds != 0

    def __str__(self) -> str:
        if not self.nanoseconds:
            return "0s"
        sign, rest = ("-", -self.nanoseconds) if self.nanoseconds < 0 else ("", self.nanoseconds)
        if rest < 1_000_000_000:
            for unit in ("ms", "\u00b5s", "ns"):
                if rest >= _NANOSECONDS[unit]:
                    return sign + _decimal(rest, _NANOSECONDS[unit]) + unit
        minutes, rest = divmod(rest, _NANOSECONDS["m"])
        hours, minutes = divmod(minutes, 60)
        text = _decimal(rest, _NANOSECONDS["s"]) + "s"
        if hours or minutes:
            text = f"{minutes}m{text}"
        return sign + (f"{hours}h{text}" if hours else text)


def _decimal(amount: int, scale: int) -> str:
    """Print ``amount / scale`` without trailing zeros; ``scale`` is a power of ten."""
    whole, rest = divmod(amount, scale)
    fraction = str(rest).zfill(len(str(scale)) - 1).rstrip("0") if rest else ""
    return f"{whole}.{fraction}" if fraction else str(whole)
