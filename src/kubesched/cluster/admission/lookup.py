"""What admission reads of the store it works for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ..schema import Stored

__all__ = ["ObjectTable"]


class ObjectTable(Protocol):
    """The objects of one kind. ``end`` is another number after every change."""

    @property
    def objects(self) -> Mapping[tuple[str, str], Stored]:
        """Objects by (namespace, name)."""
        ...

    @property
    def end(self) -> int: ...

    def items(self, namespace: str = "") -> Sequence[Stored]:
        """All objects in key order, or those of one namespace."""
        ...
