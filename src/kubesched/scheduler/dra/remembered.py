"""What is remembered for claims of one content: results of searches by state, and a verdict per row.

The state of a node decides the result of the search: how the devices of its pools serve the claims, and which are in use.
Pools that nodes have in common count as one, whose state is a stamp. When it changes, the rows are grouped by the rest of
their state, and one row of each group is evaluated.
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

#: The result of a search: a solution, an error, or why there is no solution.
Outcome = Solution | Problem | Verdict

#: For a row that belongs to no kind (yet).
NO_KIND: Final = -1


class Remembered:
    """The tables for claims of one content. Numbers in them are never used again.

    ``number`` is that of the content and the classes as they are: no other has it, and none gets it again.
    ``changes`` reads which rows the caller has to name in :meth:`rows_changed`.
    """

    def __init__(self, wanted: Wanted, allocated: AllocatedDevices, number: int, changes: Follower[int]) -> None:
        self.number = number
        self.wanted = wanted
        self._allocated = allocated
        self.outcomes: dict[Hashable, Outcome] = {}
        #: The verdict and the score for each outcome that is no error and cannot become one when results are built.
        self.answers: dict[Hashable, tuple[Verdict, int]] = {}
        self._states: dict[Hashable, int] = {}
        self._supplies: dict[Pool, Supply] = {}
        self._kinds: dict[Hashable, int] = {}
        self._common: dict[CommonPools, bool] = {}
        self._places: dict[CommonPools, Places] = {}
        self._numbers = count()
        #: By row: the verdict and the score; whether they are right; which kind of row it is.
        self.verdicts: Verdicts = np.zeros(0, np.uint8)
        self.scores: Scores = np.zeros(0, np.int64)
        self._fresh: np.ndarray[Any, np.dtype[np.bool_]] = np.zeros(0, np.bool_)
        self._kind: Scores = np.zeros(0, np.int64)
        self.changes: Final = changes

    # -- states ------------------------------------------------------------------------------------------------

    def kind_of(self, view: NodeView) -> int:
        """A number for the state of a node apart from what is in use of common pools."""
        content = (view.common, tuple([(place, self.supply(pool).number) for place, pool in view.own]))
        return self._number(self._kinds, (content, view.node.name) if view.is_odd else content)

    def state_of(self, view: NodeView, kind: int | None = None) -> Hashable:
        """The state of a node: equal for nodes on which the search has the same result, up to names. ``kind`` if known."""
        common = view.common
        if kind is None:
            kind = self.kind_of(view)
        return kind, common.changed.position if common is not None and self.matters(common) else 0

    def supply(self, pool: Pool) -> Supply:
        """A pool in its current state."""
        in_use = pool.in_use(self._allocated)
        supply = self._supplies.get(pool)
        if supply is None or supply.in_use is not in_use:
            if supply is None:
                self._forget()
            supply = self._supplies[pool] = Supply(pool, in_use, self.wanted, supply)
            supply.number = self._number(self._states, supply.content)
        return supply

    def places(self, view: NodeView) -> Places | PlacesWithOwn | None:
        """Where to look among the pools of a node; None without common ones."""
        common = view.common
        if common is None:
            return None
        found = self._places.get(common)
        if found is None:
            found = self._places[common] = Places(common, self.wanted)
        found.settle()
        return PlacesWithOwn(found, [place for place, _ in view.own]) if view.own else found

    def matters(self, common: CommonPools) -> bool:
        """Whether any device of common pools serves a want."""
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
        """Begin again with tables that have become large."""
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
        """Have at least so many rows."""
        more = max(size, 2 * len(self._fresh)) - len(self._fresh)
        if len(self._fresh) < size:
            self._fresh = np.concatenate((self._fresh, np.zeros(more, np.bool_)))
            self._kind = np.concatenate((self._kind, np.full(more, NO_KIND, np.int64)))
            self.verdicts = np.concatenate((self.verdicts, np.zeros(more, np.uint8)))
            self.scores = np.concatenate((self.scores, np.zeros(more, np.int64)))

    def rows_changed(self, rows: Iterable[int] | None) -> None:
        """These rows see something else now; None: all of them."""
        changed = slice(None) if rows is None else list(rows)
        self._fresh[changed] = False
        self._kind[changed] = NO_KIND

    def common_pools_changed(self) -> None:
        """What is in use of some common pool changed."""
        self._fresh[:] = False

    def verdict_of(self, row: int, evaluate: Callable[[int], tuple[Verdict, int, int]]) -> int:
        """The verdict of one row; ``evaluate`` as for :meth:`bring_up_to_date`."""
        if not self._fresh[row]:
            self.verdicts[row], self.scores[row], self._kind[row] = evaluate(row)
            self._fresh[row] = True
        return int(self.verdicts[row])

    def bring_up_to_date(
        self,
        rows: Rows,
        evaluate: Callable[[int], tuple[Verdict, int, int]],
    ) -> None:
        """Evaluate the rows whose verdicts are not right, one of each kind where the kind is known.

        ``evaluate`` gives the verdict, the score and the kind of a row, :data:`NO_KIND` when that cannot be said.
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
