"""Choices of nodes, and the bounds that they keep. Callers: :mod:`.buying`, which searches among them, and :mod:`.plan`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kubesched.api.quantity import parse_quantity

__all__ = ["Choice", "Rules", "shared_limits"]

#: Number of new nodes of each group.
Choice = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """Bounds of a choice: least and most nodes by group, and limits that groups have in common.

    ``shared``: for each pool and resource, the amount of a node of each group, and the amount that is left.
    """

    least: Choice
    most: Choice
    shared: tuple[tuple[tuple[int, ...], int], ...] = ()

    def allow(self, choice: Sequence[int]) -> bool:
        within = all(low <= one <= high for low, one, high in zip(self.least, choice, self.most, strict=True))
        return within and all(
            sum(amount * one for amount, one in zip(amounts, choice, strict=True)) <= left
            for amounts, left in self.shared
        )


def shared_limits(
    pools: Sequence[str],
    limits: Sequence[dict[str, str]],
    amounts: Sequence[dict[str, int]],
    used: dict[str, dict[str, int]],
) -> tuple[tuple[tuple[int, ...], int], ...]:
    """Return the rows of :class:`Rules` for groups' pools: ``used`` are the amounts of existing nodes by pool."""
    rows = []
    for pool in dict.fromkeys(filter(None, pools)):
        inside = [index for index, one in enumerate(pools) if one == pool]
        for name, text in limits[inside[0]].items():
            quantity = parse_quantity(text)
            most = quantity.milli() if name == "cpu" else quantity.value()
            each = tuple(amounts[index].get(name, 0) if index in inside else 0 for index in range(len(pools)))
            rows.append((each, most - used.get(pool, {}).get(name, 0)))
    return tuple(rows)
