"""Amounts in the texts of quotas and limit ranges."""

from __future__ import annotations

from ...api.quantity import Quantity, binary_text

__all__ = ["show_amount"]


def show_amount(name: str, nanos: int) -> str:
    """An amount as upstream writes it: bytes with binary suffixes, everything else in decimal."""
    whole, rest = divmod(nanos, 10**9)
    if (
        not rest
        and whole >= 1024
        and whole % 1024 == 0
        and ("memory" in name or "storage" in name or "hugepages" in name)
    ):
        return binary_text(whole)
    return str(Quantity(nanos))
