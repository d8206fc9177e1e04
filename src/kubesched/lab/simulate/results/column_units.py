"""Amounts of one resource in one unit, so that a column of numbers can be compared. Callers: the reports."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kubesched.api.requests import CPU, EPHEMERAL_STORAGE, MEMORY

__all__ = ["Unit", "unit_of"]

_BYTES: Final = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))
#: Most decimal places.
_PLACES: Final = 2
#: Largest amount whose decimal places are shown.
_MOST_PRECISE: Final = 1000


class Unit:
    """Unit of a column: its name, and its size in millicores, bytes or units."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size

    def text(self, amount: int | float) -> str:
        """Return an amount, such as ``1.5`` cores or ``0.25Gi``. An amount that is not 0 never looks like 0."""
        value = amount / self.size
        if value == int(value) or abs(value) >= _MOST_PRECISE:
            return f"{value:.0f}{self.name}"
        text = f"{value:.{_PLACES}f}".rstrip("0").rstrip(".")
        return f"{text}{self.name}" if text not in ("0", "-0") else f"<0.01{self.name}"


def unit_of(resource: str, amounts: Iterable[int]) -> Unit:
    """Return the unit for some amounts of a resource: cores; of bytes the largest unit that the greatest has once."""
    if resource == CPU:
        return Unit("", 1000)
    if resource in (MEMORY, EPHEMERAL_STORAGE):
        most = max(amounts, default=0)
        return next((Unit(name, size) for name, size in _BYTES if most >= size), Unit("", 1))
    return Unit("", 1)
