"""Amounts in the texts of quotas and limit ranges."""

from __future__ import annotations

from typing import Final

from ...api.quantity import Quantity

__all__ = ["show_amount"]

_BINARY: Final = ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki")


def show_amount(name: str, nanos: int) -> str:
    """An amount as upstream writes it: bytes with binary suffixes, everything else in decimal."""
    whole, rest = divmod(nanos, 10**9)
    if whole and not rest and ("memory" in name or "storage" in name or "hugepages" in name):
        for power, suffix in zip(range(6, 0, -1), _BINARY, strict=True):
            if whole % (1 << (10 * power)) == 0:
                return f"{whole >> (10 * power)}{suffix}"
    return str(Quantity(nanos))
