"""Layers: the plugins' results for every node for identical pods, kept up to date row by row.

A layer holds for every row of the node table whether its filters let the row pass, the raw scores of the rows that
pass, and their weighted total. It has a base layer or none:

* A **signature layer** has no base. Its plugins signed the pod: pods with equal signatures get equal answers on equal
  nodes, so an answer changes only with the node itself. The rows to evaluate again are those in the change journal.
* An **interaction layer** stands on a signature layer and adds the plugins whose answers depend on other nodes, for
  pods with an equal interaction key. They name the further rows to evaluate again (``refresh_filter`` and
  ``refresh_scores`` in :class:`~kubesched.framework.interface.Contract`), such as those of a zone whose count changed.

Called by :mod:`.search`, and by :mod:`.full_scan` for what cannot be cached. See ``docs/decision-core.md``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from kubesched.cache import NodeList, NodeTable
from kubesched.cache.columns import IntpArray, RowArray
from kubesched.cache.journal import NODE_CHANGED
from kubesched.framework.changed_rows import ChangedRows
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.entries import FilterEntry, PluginFailedError
from kubesched.framework.interface import NOT_SCORED, IntArray
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.runtime import Framework

from .diagnosis import Diagnosis
from .plan import Share
from .ranking import INFEASIBLE, Ranking
from .score_column import ScoreColumn

__all__ = ["NO_NODE", "PASSES", "Layer"]

#: Owner of a row that passes every filter, and of a row without a node or that the base layer rejects.
PASSES: Final = 0
NO_NODE: Final = 255

#: Up to this many rows plain Python beats NumPy.
_FEW: Final = 8
#: Beyond this part of all rows (one in …) it is quicker to evaluate all of them.
_ALL: Final = 4

#: Rows to evaluate again. Few of them, with whether more than the node's pods may have changed; many, which may repeat;
#: or None for all.
_Rows = dict[int, bool] | IntpArray | None


class Layer:
    """Verdicts, raw scores and totals of all rows, for pods that are alike.

    Attributes:
        base: the layer this one stands on, or None.
        share: the plugins that it evaluates.
        state: what the layer's plugins wrote at PreFilter and PreScore.
        filters: those that PreFilter did not skip.
        owner: uint8[size]; PASSES, NO_NODE, or 1 + index of the first of this layer's filters that rejects the row.
        verdict: uint64[size]; that filter's verdict.
        feasible: number of rows that pass.
        ranking: int64[size] totals of this layer and its base; valid once scored.
        changes: how often verdicts changed.
    """

    def __init__(self, framework: Framework, table: NodeTable, share: Share, base: Layer | None) -> None:
        self._framework = framework
        self._table = table
        self.share = share
        self.base = base
        self.state = CycleState()
        self.filters: tuple[FilterEntry, ...] = ()
        self.feasible = 0
        self.changes = 0
        #: With how often verdicts of this layer and of its base had changed.
        self._diagnosis: tuple[Diagnosis, tuple[int, int]] | None = None
        self.ranking = Ranking()
        self.columns: list[ScoreColumn] = []
        self.is_scored = False
        #: When the layer was last used, for the cache.
        self.used = 0
        self._pod: PodInfo
        #: Where the journal was read up to; None before the first reading.
        self._position: int | None = None
        self._images_version = -1
        #: How often all totals were made; and how often those of the base were when this layer read them.
        self._epoch = self._base_epoch = 0
        self._feasible_rows: IntpArray | None = None
        self.owner = np.zeros(0, np.uint8)
        self.verdict = np.zeros(0, np.uint64)

    @property
    def nbytes(self) -> int:
        """Memory of the layer's arrays, once scored."""
        return len(self.owner) * (1 + 8 + 8 + 8 * len(self.share.scores))

    def feasible_rows(self) -> IntpArray:
        """The rows that pass, ascending. Read-only, and the same array until one of them changes."""
        if self.base is not None and self.feasible == self.base.feasible:
            return self.base.feasible_rows()
        if self._feasible_rows is None:
            self._feasible_rows = np.flatnonzero(self.owner == PASSES)
            self._feasible_rows.flags.writeable = False
        return self._feasible_rows

    @property
    def diagnosis(self) -> Diagnosis | None:
        """Why every row is rejected; None unless the search found that out since a verdict last changed."""
        known = self._diagnosis
        return known[0] if known is not None and known[1] == self._verdicts() else None

    @diagnosis.setter
    def diagnosis(self, diagnosis: Diagnosis) -> None:
        self._diagnosis = diagnosis, self._verdicts()

    def _verdicts(self) -> tuple[int, int]:
        return self.changes, self.base.changes if self.base is not None else 0

    # -- choosing --------------------------------------------------------------------------------------

    def best(self, rng: random.Random) -> int | None:
        """The row with the greatest total, each of the best with the same chance; None when it takes a full scan.

        The layer must have been refreshed.

        Raises:
            PluginFailedError: when a plugin fails; the layer must not be used any more then.
        """
        if self.feasible == 0:
            return None
        if self.feasible == 1:
            return int(np.flatnonzero(self.owner == PASSES)[0])
        self.score()
        if self.base is not None and not self.base.holds(self):
            return None
        return self.ranking.best(rng)

    def holds(self, above: Layer) -> bool:
        """Whether this layer's totals stay what they are when only the feasible rows of ``above`` are left."""
        return above.feasible == self.feasible or self._holds(above.feasible_rows)

    def _holds(self, rows: Callable[[], RowArray]) -> bool:
        return all(column.is_flat or column.holds(rows()) for column in self.columns)

    def totals(self, rows: RowArray) -> IntArray:
        """int64[len(rows)]: totals when only ``rows`` (feasible ones) are left to choose from; a copy."""
        total: IntArray
        if len(rows) == self.feasible or self._holds(lambda: rows):
            total = self.ranking.total[rows]
            return total
        total = np.zeros(len(rows), np.int64)
        for column in self.columns:
            raw = column.raw[rows]
            total += column.entry.final_or_zero(raw, *column.entry.bounds(raw))
        return total

    # -- keeping up ------------------------------------------------------------------------------------

    def refresh(self, pod: PodInfo) -> bool:
        """Catch up with what changed; False when the pod's results cannot be cached by row.

        ``pod`` is always the current one: objects that an earlier one refers to may be gone.

        Raises:
            PluginFailedError: when a plugin fails; the layer must not be used any more then.
        """
        self._pod = pod
        changed = self._read_journal()
        if changed is None:
            return self._build()
        named = self._named(self.share.refresh_filter)
        if named is None:
            return self._build()
        rows = self._merged(changed, named)
        same = self._refilter(rows)
        if self.is_scored:
            self._rescore(changed, rows, same)
        return True

    def _build(self) -> bool:
        """Evaluate every row, from PreFilter on."""
        table, state = self._table, self.state
        self._position = table.journal.position
        self.is_scored = False
        state.skip_filter = frozenset()
        nodes = NodeList(table, table.order())
        outcome = self._framework.pre_filter(state, self._pod, nodes, self.share.pre_filters)
        if outcome.status is not None or outcome.nodes is not None:
            self._position = None
            return False
        self.filters = tuple(entry for entry in self.share.filters if entry.name not in state.skip_filter)
        most = len(self.base.owner) if self.base is not None else int(nodes.rows.max(initial=-1)) + 1
        size = max(most, len(self.owner))
        self.owner = np.full(size, NO_NODE, np.uint8)
        self.verdict = np.zeros(size, np.uint64)
        self.columns = []
        self._refilter(None)
        return True

    def _read_journal(self) -> dict[int, bool] | IntpArray | None:
        """The rows whose own node or pods changed; None: every row may have."""
        journal = self._table.journal
        if self._position is None:
            return None
        rows: dict[int, bool] = {}
        if self._position != journal.position:
            entries = journal.since(self._position)
            if entries is None or len(entries) > len(self.owner):
                return None
            self._position = journal.position
            # The last entry of a row does not show whether an earlier one was about its node object.
            for entry in entries:
                row = entry >> 1
                rows[row] = rows.get(row, False) or entry & 1 == NODE_CHANGED
        size = len(self.base.owner) if self.base is not None else max(rows, default=-1) + 1
        if size > len(self.owner):
            self._grow(size)
        return rows if len(rows) <= _FEW else np.fromiter(rows, np.intp, len(rows))

    def _grow(self, size: int) -> None:
        """Extend the arrays to this many rows, infeasible ones."""
        old = len(self.owner)
        if self.base is None:
            size = min(self._table.capacity, max(size, old + old // 8))
        self.owner = np.concatenate((self.owner, np.full(size - old, NO_NODE, np.uint8)))
        self.verdict = np.concatenate((self.verdict, np.zeros(size - old, np.uint64)))
        for column in self.columns:
            column.grow(size)
        if self.is_scored:
            self.ranking.grow(size)

    def _named(self, plugins: Sequence[ChangedRows], *more: bool) -> list[RowArray] | None:
        """The rows that the plugins name because of changes elsewhere; None: every row may have changed."""
        found: list[RowArray] = []
        if self.base is not None:  # only plugins that cannot sign know of changes elsewhere
            for plugin in plugins:
                rows = plugin.named(len(self.owner), self.state, self._pod, self._table, *more)
                if rows is None:
                    return None
                if len(rows):
                    found.append(rows)
        return found

    def _merged(self, rows: _Rows, named: list[RowArray]) -> _Rows:
        """These rows and those that plugins name."""
        if rows is None or not named:
            return rows
        count = len(rows) + sum(map(len, named))
        if isinstance(rows, dict) and count <= _FEW:
            return rows | {row: True for part in named for row in part.tolist()}
        if count * _ALL > len(self.owner):
            return None
        many = rows if isinstance(rows, np.ndarray) else np.fromiter(rows, np.intp, len(rows))
        return np.concatenate((many, *named))

    # -- filters ---------------------------------------------------------------------------------------

    def _refilter(self, rows: _Rows) -> bool:
        """Evaluate the filters of these rows; True when the same ones pass as before."""
        if isinstance(rows, dict):
            # A nomination filter has verdicts of rows that the base rejects, too; they are not here.
            self.changes += self.base is not None and bool(rows)
            same = True
            for row, whole in rows.items():
                owner, verdict = self.owner.item(row), self.verdict.item(row)
                before = owner == PASSES
                now = self._refilter_one(row, whole)
                if owner != self.owner.item(row) or verdict != self.verdict.item(row):
                    self.changes += 1
                if now is not before:
                    self.feasible += 1 if now else -1
                    rows[row] = True
                    same = False
        else:
            self.changes += rows is None or len(rows) > 0
            at = rows if rows is not None else slice(None)
            passed = self.owner[at] == PASSES
            candidates = self._candidates(rows)
            self.owner[at] = NO_NODE
            self._filter_rows(candidates)
            passes = self.owner[at] == PASSES
            same = not np.count_nonzero(passed != passes)
            self.feasible = int(np.count_nonzero(self.owner == PASSES))
        if not same or rows is None:
            self._feasible_rows = None
        return same

    def _candidates(self, rows: IntpArray | None) -> IntpArray:
        """Those of ``rows`` (None: all) that this layer's filters are called for."""
        if self.base is not None:
            return self.base.feasible_rows() if rows is None else rows[self.base.owner[rows] == PASSES]
        alive = self._table.alive
        return np.flatnonzero(alive[: len(self.owner)]) if rows is None else rows[alive[rows]]

    def _filter_rows(self, rows: IntpArray) -> None:
        """Call every filter for these rows; earlier answers are dropped."""
        owner, verdict = self.owner, self.verdict
        owner[rows] = PASSES
        for entry in self.filters:
            if not len(rows):
                break
            answers = entry.many(self.state, self._pod, self._table, rows)
            if np.count_nonzero(answers):
                bad = answers != 0
                rejected = rows[bad]
                owner[rejected] = entry.index + 1
                verdict[rejected] = answers[bad]
                rows = rows[~bad]

    def _refilter_one(self, row: int, whole: bool) -> bool:
        """One row's verdict again; filters that read nothing that changed are not called. True when it passes."""
        table, base = self._table, self.base
        if not table.alive.item(row) if base is None else base.owner.item(row) != PASSES:
            self.owner[row] = NO_NODE
            return False
        before = self.owner.item(row)
        # Filters up to the old owner were called; of those behind it there is no answer.
        called = 0 if whole or before == NO_NODE else (before if before != PASSES else NO_NODE)
        node = table.info(row)
        for entry in self.filters:
            place = entry.index + 1
            if place <= called and not entry.reads_pods:
                if place == called:
                    return False  # its old verdict stands
                continue
            answer = entry.one(self.state, self._pod, table, node)
            if answer:
                self.owner[row] = place
                self.verdict[row] = answer
                return False
        if before != PASSES:
            self.owner[row] = PASSES
        return True

    # -- scores ----------------------------------------------------------------------------------------

    def score(self) -> None:
        """Score all feasible rows (two or more), from PreScore on; nothing when they are scored.

        Raises:
            PluginFailedError: when a plugin fails.
        """
        if self.is_scored:
            return
        if self.base is not None:
            self.base.score()
        state, rows = self.state, self.feasible_rows()
        self._images_version = self._table.images.version
        state.skip_score = frozenset()
        status = self._framework.pre_score(state, self._pod, NodeList(self._table, rows), self.share.pre_scores)
        if status is not None:
            raise PluginFailedError.of(status)
        entries = [entry for entry in self.share.scores if entry.name not in state.skip_score]
        self.columns = [ScoreColumn(entry, len(self.owner)) for entry in entries]
        self._score_all(self.columns)
        self._total(None)
        self.is_scored = True

    def _rescore(self, changed: _Rows, rows: _Rows, same: bool) -> None:
        """Catch up with the scores of ``rows`` and of those that plugins name.

        ``changed``: the rows whose own node or pods changed; ``same``: the feasible rows are those of the last time.
        """
        if self.feasible < 2:
            self.is_scored = False  # PreScore is for two nodes or more
            return
        if self.base is not None:
            self.base.score()
        named = self._named(self.share.refresh_scores, same)
        if named is None:
            self.is_scored = False
            self.score()
            return
        images = self._images_version != self._table.images.version
        if images:
            self._images_version = self._table.images.version
            self._score_all([column for column in self.columns if column.entry.reads_images])
        rows = self._merged(rows, named)
        if rows is None:
            levels = [column.level for column in self.columns]
            self._score_all(self.columns)
            moved = not same or None in levels or levels != [column.level for column in self.columns]
            rows = changed  # the others' raw scores moved together: normalised they are what they were
        else:
            moved = self._rescore_rows(rows)
        if moved or images or (self.base is not None and self.base._epoch != self._base_epoch):
            self._total(None)
        elif rows is not None and len(rows):
            self._total(rows)

    def _score_all(self, columns: list[ScoreColumn]) -> None:
        rows = self.feasible_rows()
        for column in columns:
            column.replace(rows, column.entry.many(self.state, self._pod, self._table, rows))
            column.settle(self.feasible)

    def _rescore_rows(self, rows: dict[int, bool] | IntpArray) -> bool:
        """Raw scores of some rows; True when final scores of other rows changed with them."""
        table, state, pod = self._table, self.state, self._pod
        if isinstance(rows, dict):
            for row, whole in rows.items():
                node = table.info(row) if self.owner.item(row) == PASSES else None  # it may have no node any more
                for column in self.columns:
                    if node is None:
                        column.put(row, NOT_SCORED)
                    elif whole or column.entry.reads_pods:
                        column.put(row, column.entry.one(state, pod, table, node))
        else:
            passing = self.owner[rows] == PASSES
            left, gone = rows[passing], rows[~passing]
            for column in self.columns:
                if len(gone):
                    column.drop(gone)
                if len(left):
                    column.put_many(left, column.entry.many(state, pod, table, left))
        return True in [column.settle(self.feasible) for column in self.columns]  # each has to settle

    # -- totals ----------------------------------------------------------------------------------------

    def _total(self, rows: _Rows) -> None:
        """Totals of these rows again."""
        base = self.base.ranking.total if self.base is not None else None
        if isinstance(rows, dict):
            for row in rows:
                total = INFEASIBLE
                if self.owner.item(row) == PASSES:
                    total = base.item(row) if base is not None else 0
                    for column in self.columns:
                        total += column.final_one(column.raw.item(row))
                self.ranking.put(row, total)
            self.ranking.settle(rows)
            return
        at = rows if rows is not None else slice(None)
        totals = base[at].copy() if base is not None else np.zeros(len(self.owner[at]), np.int64)
        for column in self.columns:
            totals += column.final(column.raw[at])
        np.copyto(totals, INFEASIBLE, where=self.owner[at] != PASSES)
        if rows is not None:
            self.ranking.put(rows, totals)
            self.ranking.settle(rows)
        else:
            self.ranking.replace(totals)
            self._epoch += 1
            self._base_epoch = self.base._epoch if self.base is not None else 0
