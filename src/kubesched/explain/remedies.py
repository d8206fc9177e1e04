"""Remedies of a pending pod: the smallest sets of changes after which it fits, each evaluated by the scheduler's search.

A node becomes feasible when all its obstacles are gone. So the sets of obstacles that nodes have are the candidates, and
a set opens every node whose obstacles are among it. The smallest sets are tried with the smallest changes that do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Final

import numpy as np

from kubesched.scheduler.framework.demand import Change
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.nodes.columns import NO_ROWS, BoolArray, RowArray

from .foreign import MOST_WEAKER
from .obstacles import MOST_DEMANDS, Obstacle, Obstacles, affordable, rows_without

__all__ = ["Remedy", "remedies_for"]

#: Rows that fit after changes; the scheduler's search.
Fits = Callable[[Sequence[Change]], RowArray]

#: Most sets of obstacles that are tried.
_MOST_SETS: Final = 12
#: Most sets of one size that are tried because dropping one demand may change what another one counts.
_MOST_COMBINATIONS: Final = 64
#: Most evaluations for one pod; after them nothing more is found.
_MOST_EVALUATIONS: Final = 256


@dataclass(frozen=True, slots=True)
class Remedy:
    """Changes that together let the pod run.

    Attributes:
        changes: the changes; all of them are needed.
        rows: the nodes that fit afterwards, by row.
        dropped: number of resources that are no longer asked for at all.
    """

    changes: tuple[Change, ...]
    rows: RowArray
    dropped: int = 0

    @property
    def texts(self) -> tuple[str, ...]:
        """The changes in words."""
        return tuple(change.text for change in self.changes)


def remedies_for(obstacles: Obstacles, fits: Fits) -> list[Remedy]:
    """The smallest sets of changes that help, best first; empty when no change of the pod helps.

    Larger sets follow only while every smaller one asks for none of some resource. Each remedy was evaluated by ``fits``.
    """
    evaluations, most_evaluations = 0, affordable(obstacles.pod, _MOST_EVALUATIONS)

    def evaluated(changes: Sequence[Change]) -> RowArray:
        nonlocal evaluations
        evaluations += 1
        return fits(changes) if evaluations <= most_evaluations else NO_ROWS

    weak = [obstacle for obstacle in obstacles.found if obstacle.demand is not None]
    open_, closed = weak[:MOST_DEMANDS], [one for one in obstacles.found if one.demand is None] + weak[MOST_DEMANDS:]
    found: dict[tuple[str, ...], Remedy] = {}

    def attempt(needed: Sequence[Obstacle]) -> bool:
        try:
            remedy = _tried(needed, evaluated)
        except PluginFailedError as error:
            obstacles.note(error, "not all changes were tried")
            return False
        if remedy is not None:
            found.setdefault(remedy.texts, remedy)
        return remedy is not None

    for needed in _sets(open_, rows_without(closed, len(obstacles.rows))):
        least = min((len(changes) for changes in found), default=len(needed))
        if len(needed) > least and not all(one.dropped for one in found.values()):
            break
        attempt(needed)
    # Dropping one demand may change what another one counts: smaller sets may do, or none of the above.
    if not found:
        _least([*open_, *obstacles.silent], attempt)
    fewest = min(map(len, found), default=0)
    if fewest == 1:
        for silent in obstacles.silent[:_MOST_COMBINATIONS]:
            attempt([silent])
    for size in range(1, fewest):
        for fewer in islice(combinations(open_, size), _MOST_COMBINATIONS):
            attempt(fewer)
        if any(len(changes) == size for changes in found):
            break
    most = min((len(one.changes) for one in found.values() if not one.dropped), default=fewest)
    kept = [one for one in found.values() if len(one.changes) <= most]
    return sorted(kept, key=lambda one: (one.dropped, len(one.changes), -len(one.rows), one.texts))


def _sets(found: Sequence[Obstacle], reachable: BoolArray) -> Iterator[list[Obstacle]]:
    """Obstacles that together keep the pod off some node that has no others, fewest first."""
    masks = np.zeros(len(reachable), np.uint64)
    for place, obstacle in enumerate(found):
        masks[obstacle.stands] |= np.uint64(1 << place)
    sets = [int(mask) for mask in np.unique(masks[reachable]) if mask]
    opened = {mask: int((reachable & ((masks & ~np.uint64(mask)) == 0)).sum()) for mask in sets}
    for mask in sorted(sets, key=lambda mask: (mask.bit_count(), -opened[mask], mask))[:_MOST_SETS]:
        yield [obstacle for place, obstacle in enumerate(found) if mask >> place & 1]


def _least(found: Sequence[Obstacle], attempt: Callable[[Sequence[Obstacle]], bool]) -> None:
    """Try all obstacles together, then without each one that is not needed."""
    needed = list(found)
    if not needed or not attempt(needed):
        return
    for obstacle in found:
        fewer = [one for one in needed if one is not obstacle]
        if fewer and attempt(fewer):
            needed = fewer


def _tried(needed: Sequence[Obstacle], fits: Fits) -> Remedy | None:
    """The smallest changes that lift these obstacles, evaluated; None when even dropping all demands does not help."""
    demands = [obstacle.demand for obstacle in needed if obstacle.demand is not None]
    chosen = [demand.without for demand in demands if demand.without is not None]
    rows = fits(chosen)
    if not len(rows):
        return None
    amounts = {place: demand.amounts for place, demand in enumerate(demands) if demand.amounts is not None}
    dropped = 0
    if amounts:
        # So much less of each that the node that lacks least has enough.
        lacking = np.array([each.lacking(rows) for each in amounts.values()], np.float64)
        scale = np.maximum(lacking.max(axis=1, keepdims=True), 1)
        least = lacking[:, int((lacking / scale).sum(axis=0).argmin())].tolist()
        for (place, each), less in zip(amounts.items(), least, strict=True):
            chosen[place] = each.less(int(less))
            dropped += less >= each.asked
        rows = fits(chosen)
    for place, demand in enumerate(demands):
        # Plugins that look at one volume propose the same change of it, which is made once.
        known = {one.text for one in chosen[:place]}
        for weaker in sorted(demand.weaker[:MOST_WEAKER], key=lambda one: one.text not in known):
            tried = [*chosen[:place], weaker, *chosen[place + 1 :]]
            fitting = fits(tried)
            if len(fitting):
                chosen, rows = tried, fitting
                break
    return Remedy(tuple(chosen), rows, dropped) if len(rows) else None
