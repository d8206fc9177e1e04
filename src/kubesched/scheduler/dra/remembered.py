"""Memory of the allocator for claims of one content: results of searches by state, and a verdict per row.

The state of a node decides the result of the search. It consists of the services that the devices of its pools offer to
the claims, and of the devices in use. The pools that nodes have in common count as one pool, whose state is a single
number, the stamp. When the stamp changes, the rows are grouped by the rest of their state, and one row of each group is
evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from itertools import count
from typing import Any, Final

import numpy as np

from kubesched.base.change_log import Follower

from .allocated import AllocatedDevices
from .device_search import Solution
from .interface import Verdict
from .inventory import CommonPools
from .models import MOST_REMEMBERED
from .places import Places, PlacesWithOwn
from .pools import Pool
from .supply import Supply
from .view import NodeView
from .wanted import Problem, Wanted

__all__ = ["NO_KIND", "Outcome", "Remembered", "Rows", "Scores", "Verdicts"]

Rows = np.ndarray[Any, np.dtype[np.intp]]
Verdicts = np.ndarray[Any, np.dtype[np.uint8]]
Scores = np.ndarray[Any, np.dtype[np.int64]]

#: Result of a search: a solution, an error, or the reason why there is no solution.
Outcome = Solution | Problem | Verdict

#: Kind of a row that belongs to no kind (yet).
NO_KIND: Final = -1


class Remembered:
    """Tables for claims of one content. Numbers in them are never used again.

    ``number`` belongs to this content with the present classes. No other content ever gets it. ``changes`` reads the
    rows that the caller has to name in :meth:`rows_changed`.
    """

    def __init__(self, wanted: Wanted, allocated: AllocatedDevices, number: int, changes: Follower[int]) -> None:
        self.number = number
        self.wanted = wanted
        self._allocated = allocated
        self.outcomes: dict[Hashable, Outcome] = {}
        #: Verdict and score by state. It has only outcomes that are no error and cannot become an error when results
        #: are built.
        self.answers: dict[Hashable, tuple[Verdict, int]] = {}
        self._states: dict[Hashable, int] = {}
        self._supplies: dict[Pool, Supply] = {}
        self._kinds: dict[Hashable, int] = {}
        self._common: dict[CommonPools, bool] = {}
        self._places: dict[CommonPools, Places] = {}
        self._numbers = count()
        #: Verdict and score by row; ``_fresh`` marks rows where both are current, ``_kind`` has the kind of each row.
        self.verdicts: Verdicts = np.zeros(0, np.uint8)
        self.scores: Scores = np.zeros(0, np.int64)
        self._fresh: np.ndarray[Any, np.dtype[np.bool_]] = np.zeros(0, np.bool_)
        self._kind: Scores = np.zeros(0, np.int64)
        self.changes: Final = changes

    # -- states ------------------------------------------------------------------------------------------------

    def kind_of(self, view: NodeView) -> int:
        """Return a number for the state of a node, without the use of common pools."""
        content = (view.common, tuple([(place, self.supply(pool).number) for place, pool in view.own]))
        return self._number(self._kinds, (content, view.node.name) if view.is_odd else content)

    def state_of(self, view: NodeView, kind: int | None = None) -> Hashable:
        """State of a node. Nodes with equal states have the same search result, apart from names. ``kind`` is given if
        known.
        """
        common = view.common
        if kind is None:
            kind = self.kind_of(view)
        return kind, common.changed.position if common is not None and self.matters(common) else 0

    def supply(self, pool: Pool) -> Supply:
        """Return a pool in its current state."""
        in_use = pool.in_use(self._allocated)
        supply = self._supplies.get(pool)
        if supply is None or supply.in_use is not in_use:
            if supply is None:
                self._forget()
            supply = self._supplies[pool] = Supply(pool, in_use, self.wanted, supply)
            supply.number = self._number(self._states, supply.content)
        return supply

    def places(self, view: NodeView) -> Places | PlacesWithOwn | None:
        """Return the places to look at among the pools of a node; None without common pools."""
        common = view.common
        if common is None:
            return None
        found = self._places.get(common)
        if found is None:
            found = self._places[common] = Places(common, self.wanted)
        found.settle()
        return PlacesWithOwn(found, [place for place, _ in view.own]) if view.own else found

    def matters(self, common: CommonPools) -> bool:
        """True if any device of common pools serves a want."""
        known = self._common.get(common)
        if known is None:
            service = self.wanted.service
            entries = (entry for pool in common.pools for entry in pool.devices)
            known = self._common[common] = any(any(service(entry.model).selects) for entry in entries)
        return known

    def _number(self, table: dict[Hashable, int], content: Hashable) -> int:
        number = table.get(content)
        if number is None:
            self._forget()
            number = table[content] = next(self._numbers)
        return number

    def _forget(self) -> None:
        """Empty the tables that have become large."""
        for table in (
            self.outcomes,
            self.answers,
            self._states,
            self._supplies,
            self._kinds,
            self._common,
            self._places,
        ):
            if len(table) > MOST_REMEMBERED:
                table.clear()

    # -- rows --------------------------------------------------------------------------------------------------

    def resize(self, size: int) -> None:
        """Grow to at least ``size`` rows."""
        more = max(size, 2 * len(self._fresh)) - len(self._fresh)
        if len(self._fresh) < size:
            self._fresh = np.concatenate((self._fresh, np.zeros(more, np.bool_)))
            self._kind = np.concatenate((self._kind, np.full(more, NO_KIND, np.int64)))
            self.verdicts = np.concatenate((self.verdicts, np.zeros(more, np.uint8)))
            self.scores = np.concatenate((self.scores, np.zeros(more, np.int64)))

    def rows_changed(self, rows: Iterable[int] | None) -> None:
        """Note that these rows see other devices now. None stands for all rows."""
        changed = slice(None) if rows is None else list(rows)
        self._fresh[changed] = False
        self._kind[changed] = NO_KIND

    def common_pools_changed(self) -> None:
        """Note that the use of some common pool changed."""
        self._fresh[:] = False

    def verdict_of(self, row: int, evaluate: Callable[[int], tuple[Verdict, int, int]]) -> int:
        """Return the verdict of one row; for ``evaluate`` see :meth:`bring_up_to_date`."""
        if not self._fresh[row]:
            self.verdicts[row], self.scores[row], self._kind[row] = evaluate(row)
            self._fresh[row] = True
        return int(self.verdicts[row])

    def bring_up_to_date(
        self,
        rows: Rows,
        evaluate: Callable[[int], tuple[Verdict, int, int]],
    ) -> None:
        """Evaluate the rows whose verdicts are out of date. Of rows with one known kind, only one row is evaluated.

        ``evaluate`` returns the verdict, the score and the kind of a row, :data:`NO_KIND` for an unknown kind.
        """
        stale = rows[~self._fresh[rows]]
        if not len(stale):
            return
        kinds = self._kind[stale]
        for row in stale[kinds == NO_KIND].tolist():
            self.verdict_of(row, evaluate)
        known = stale[kinds != NO_KIND]
        if not len(known):
            return
        _, first, member = np.unique(self._kind[known], return_index=True, return_inverse=True)
        models = known[first]
        for row in models.tolist():
            self.verdicts[row], self.scores[row], _ = evaluate(row)
        self.verdicts[known] = self.verdicts[models][member]
        self.scores[known] = self.scores[models][member]
        self._fresh[known] = True
