"""Layers: plugins' results for every node, kept for pods that are alike and updated row by row.

A layer holds, for every row of the node table: the filters' verdict, and for rows that pass the raw scores and the
weighted total. There are three kinds:

* A **signature layer** has no base. Its plugins signed the pod: pods with equal signatures get equal answers on equal
  nodes, so an answer changes only with the node itself. The rows to evaluate again are those in the change journal.
* An **interaction layer** stands on a signature layer, its base, and adds the plugins whose answers depend on other
  nodes. It serves pods whose questions to these plugins have equal keys. The questions name further rows to evaluate
  again (``changed`` and ``rescored`` in :class:`~kubesched.scheduler.framework.question.Question`), for example the
  rows of a zone whose count changed.
* A **nomination layer** (:mod:`.nominations`) stands on a signature layer, too, and adds one filter: it rejects the
  nodes whose nominated pods leave no room.

Called by :mod:`.search`; :mod:`.full_scan` reads verdicts and totals from it. See ``docs/decision-core.md``.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from kubesched.base.change_log import Follower

from ..framework.cycle_state import CycleState
from ..framework.entries import FilterEntry, most_statuses
from ..framework.failures import PluginFailedError
from ..framework.interface import IntArray
from ..framework.runtime import Framework
from ..framework.status import Status
from ..nodes import NodeList, NodeTable
from ..nodes.columns import IntpArray, RowArray
from ..nodes.nominated_rows import requested_by
from ..nodes.podinfo import PodInfo
from .changed_rows import Rows, greatest, merged, rows_of
from .known_rejection import KnownRejection
from .plan import Share
from .ranking import INFEASIBLE, Ranking
from .score_columns import ScoreColumns

__all__ = ["NO_NODE", "PASSES", "Layer"]

#: Owner of a row that passes every filter.
PASSES: Final = 0
#: Owner of a row that has no node, or that the base layer rejects.
NO_NODE: Final = 255
#: Most rows whose final scores are kept one by one.
_KEPT_FINALS: Final = 64


class Layer:
    """Verdicts, raw scores and totals of all rows, for pods that are alike.

    Attributes:
        base: the layer this one stands on, or None.
        share: the plugins that the layer evaluates.
        state: the plugins' data from PreFilter and PreScore.
        filters: the share's filters, without those that PreFilter skipped.
        owner: uint8[size]; PASSES, NO_NODE, or 1 + index of the first of this layer's filters that rejects the row.
        verdict: uint8[size], or a wider type if a verdict needs it; the verdict of that filter.
        feasible: number of rows that pass.
        rejection: the reasons why every row is rejected, while they are known.
        ranking: totals by row, the base's included; valid once ``is_scored``.
        columns: raw scores by row, one column for each of the layer's score plugins.
        used: time of the last use, as a counter of the layer cache.
    """

    def __init__(self, framework: Framework, table: NodeTable, share: Share, base: Layer | None) -> None:
        self._framework = framework
        self._table = table
        self.share = share
        self.base = base
        self.state = CycleState()
        self.filters: tuple[FilterEntry, ...] = ()
        self._plain: Sequence[FilterEntry] = ()
        self.feasible = 0
        self.rejection = KnownRejection(table)
        self._statuses: dict[tuple[int, int], Status] = {}
        self.ranking = Ranking(framework.most_total)
        self.columns = ScoreColumns()
        self.is_scored = False
        self.used = 0
        self._pod: PodInfo
        self._journal = Follower(table.journal)
        self._images_version = -1
        #: The first counts how often all totals were computed here. The second is the base's count at the time when
        #: this layer last read its totals.
        self._epoch = self._base_epoch = 0
        self._feasible_rows: IntpArray | None = None
        #: Final scores of rows that were asked for, until their totals are computed again.
        self._finals: dict[int, tuple[int, ...]] = {}
        self.owner = np.zeros(0, np.uint8)
        self.verdict: npt.NDArray[np.unsignedinteger] = np.zeros(0, np.uint8)

    @property
    def nbytes(self) -> int:
        """Memory of the layer's arrays, in bytes."""
        rows = self._feasible_rows.nbytes if self._feasible_rows is not None else 0
        return self.owner.nbytes + self.verdict.nbytes + self.ranking.nbytes + rows + self.columns.nbytes

    def feasible_rows(self) -> IntpArray:
        """Return the rows that pass: intp[feasible], ascending, read-only.

        The array is kept, and returned again, until the set of these rows changes.
        """
        if self.base is not None and self.feasible == self.base.feasible:
            return self.base.feasible_rows()
        if self._feasible_rows is None:
            self._feasible_rows = np.flatnonzero(self.owner == PASSES)
            self._feasible_rows.flags.writeable = False
        return self._feasible_rows

    # -- choosing --------------------------------------------------------------------------------------

    def best(self, rng: random.Random) -> int | None:
        """Choose a row with the greatest total. All rows with that total have the same chance.

        None when no row passes, or when the layer cannot tell; a full scan decides then. The layer must have been
        refreshed.

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
        """Return True if this layer's totals stay valid when only the feasible rows of ``above`` are left."""
        return above.feasible == self.feasible or self.columns.holds(above.feasible_rows)

    def totals(self, rows: RowArray) -> IntArray:
        """Return int64[len(rows)], a copy: the totals that these ``rows`` have if no other node is left to choose from.

        All these rows must be feasible.
        """
        if len(rows) == self.feasible or self.columns.holds(lambda: rows):
            total: IntArray = self.ranking.total[rows].astype(np.int64)
            return total
        return self.columns.totals_of_only(rows)

    def scores_at(self, rows: Sequence[int]) -> tuple[tuple[str, ...], list[tuple[int, ...]]]:
        """Return the score plugins, the base's first, and each row's final scores, weighted, in their order.

        Scores of a row are kept until its total is computed again. The layer must have been scored, and :meth:`holds`
        its totals.
        """
        known, columns = self._finals, self.columns
        names = columns.names if self.base is None else self.base.columns.names + columns.names
        if len(known) > _KEPT_FINALS:
            known.clear()
        for row in rows:
            if row not in known:
                finals = columns.finals(row)
                known[row] = finals if self.base is None else self.base.columns.finals(row) + finals
        return names, [known[row] for row in rows]

    def scores_among(self, rows: RowArray, among: RowArray) -> dict[str, list[int]]:
        """Return the final scores of ``rows``, weighted, by plugin, if only the rows ``among`` are left to choose from.

        A signature layer answers, once it is scored.
        """
        finals = self.columns.final_of(rows, among)
        return {name: scores.tolist() for name, scores in zip(self.columns.names, finals, strict=True)}

    # -- room ------------------------------------------------------------------------------------------

    def room(self, *, alone: bool) -> tuple[IntpArray, IntArray] | None:
        """Return rows, and how many pods like this one each of them holds at most; None if there is no bound.

        Rows that are left out hold none. Filters that compare amounts alone bound the pods of a row. ``alone``: only
        such pods come, so a row that rejects the first of them gets none; otherwise other pods may come too, after which
        a filter might let a row pass. A signature layer answers; it must have been refreshed.
        """
        rows = self.feasible_rows() if alone else self._rows_with_hope()
        table, own = self._table, requested_by([self._pod], self._table)
        most: IntArray | None = None
        for entry in self.filters:
            for at, amount in entry.amounts(self.state, self._pod, table) or ():
                free = table.allocatable[at, rows] - table.requested[at, rows] - amount
                if own[at] > 0:
                    held = np.where(free < 0, 0, free // own[at] + 1)
                    most = held if most is None else np.minimum(most, held)
        return None if most is None else (rows, most)

    def _rows_with_hope(self) -> IntpArray:
        """Return the rows that pass, or are rejected by a filter whose answer depends on the pods there."""
        owners = [PASSES, *(entry.index + 1 for entry in self.filters if entry.reads_pods)]
        return np.flatnonzero(np.isin(self.owner, owners))

    # -- why not ---------------------------------------------------------------------------------------

    def why(self, row: int) -> Status | None:
        """Return why a signature layer's filters reject a row; None if they do not."""
        owner, verdict = self.owner.item(row), self.verdict.item(row)
        if owner in (PASSES, NO_NODE):
            return None
        status = self._statuses.get((owner, verdict))
        if status is None:
            status = self._framework.filters[owner - 1].status(self.state, self._pod, verdict)
            self._statuses[owner, verdict] = status
        return status

    # -- keeping up ------------------------------------------------------------------------------------

    def refresh(self, pod: PodInfo) -> bool:
        """Evaluate the rows that changed since the last call; False when the pod's results cannot be kept by row.

        The layer must not be used any more after False.

        ``pod`` is the pod of the current attempt: objects that an earlier pod refers to may be gone.

        Raises:
            PluginFailedError: when a plugin fails; the layer must not be used any more then.
        """
        self._pod = pod
        rows = changed = self._read_journal()
        if changed is None or self._keeps_too_many_statuses():
            return self._build()
        self.follow(pod)
        if self.base is not None:
            named = self.share.changed(self.state, pod, len(self.owner))
            if named is None:
                return self._build()
            if named:
                rows = merged(changed, named, len(self.owner))
        same = self._refilter(rows)
        if self.is_scored:
            self._rescore(changed, rows, same)
        return True

    def follow(self, pod: PodInfo) -> None:
        """Replace the kept questions that refer to objects of an earlier pod by this pod's own questions.

        Raises:
            PluginFailedError: when a plugin fails.
        """
        for plugin in self.share.follow:
            plugin.follow(self.state, pod)

    def _build(self) -> bool:
        """Evaluate every row, from PreFilter on; False when PreFilter rejects the pod or allows only some nodes."""
        table, state = self._table, CycleState()
        self.state = state
        self._journal.skip()
        self.is_scored = False
        nodes = NodeList(table, table.order())
        outcome = self._framework.pre_filter(state, self._pod, nodes, self.share.pre_filters)
        if outcome.status is not None or outcome.nodes is not None:
            return False
        self.filters = tuple(entry for entry in self.share.filters if entry.name not in state.skip_filter)
        self._plain = [entry for entry in self.filters if entry.is_plain]
        most = len(self.base.owner) if self.base is not None else int(nodes.rows.max(initial=-1)) + 1
        size = max(most, len(self.owner))
        self.owner = np.full(size, NO_NODE, np.uint8)
        self.verdict = np.zeros(size, np.uint8)
        self.columns = ScoreColumns()
        self._statuses.clear()
        self._refilter(None)
        return True

    def _keeps_too_many_statuses(self) -> bool:
        """Return True if a plain plugin keeps many distinct statuses, and most of them no longer belong to any row.

        Statuses pile up when their reasons contain numbers.
        """
        most = most_statuses(len(self.owner))
        return any(entry.distinct_statuses(self.state) > most for entry in self._plain)

    def _read_journal(self) -> Rows:
        """Return the rows whose own node or pods changed; None if every row may have changed."""
        rows = rows_of(self._journal.read(), len(self.owner))
        if rows is not None:
            size = len(self.base.owner) if self.base is not None else greatest(rows) + 1
            if size > len(self.owner):
                self._grow(size)
        return rows

    def _grow(self, size: int) -> None:
        """Extend the arrays to ``size`` rows or more; the new rows are infeasible."""
        old = len(self.owner)
        if self.base is None:
            size = min(self._table.capacity, max(size, old + old // 8))
        self.owner = np.concatenate((self.owner, np.full(size - old, NO_NODE, np.uint8)))
        self.verdict = np.concatenate((self.verdict, np.zeros(size - old, self.verdict.dtype)))
        self.columns.grow(size)
        if self.is_scored:
            self.ranking.grow(size)

    # -- filters ---------------------------------------------------------------------------------------

    def _refilter(self, rows: Rows) -> bool:
        """Call the filters for these rows; True if the same rows pass as before."""
        self.rejection.evaluated(rows)
        if isinstance(rows, dict):
            same = True
            for row, whole in rows.items():
                before = self.owner.item(row) == PASSES
                now = self._refilter_one(row, whole)
                if now is not before:
                    self.feasible += 1 if now else -1
                    rows[row] = True
                    same = False
        else:
            at = rows.rows if rows is not None else slice(None)
            passed = self.owner[at] == PASSES
            if rows is None or rows.whole or self.base is not None:
                candidates = self._candidates(rows.rows if rows is not None else None)
                self.owner[at] = NO_NODE
                self._filter_rows(candidates, self.filters)
            else:  # only pods changed: rows that passed need only the filters that read pods
                others = self._candidates(rows.rows[~passed])
                self._filter_rows(rows.rows[passed], [entry for entry in self.filters if entry.reads_pods])
                self._filter_rows(others, self.filters)
            passes = self.owner[at] == PASSES
            same = not np.count_nonzero(passed != passes)
            self.feasible = int(np.count_nonzero(self.owner == PASSES))
        if not same or rows is None:
            self._feasible_rows = None
        return same

    def _candidates(self, rows: IntpArray | None) -> IntpArray:
        """Return the rows among ``rows`` (None: all) that have a node and pass the base. This layer filters them."""
        if self.base is not None:
            return self.base.feasible_rows() if rows is None else rows[self.base.owner[rows] == PASSES]
        alive = self._table.alive
        return np.flatnonzero(alive[: len(self.owner)]) if rows is None else rows[alive[rows]]

    def _filter_rows(self, rows: IntpArray, filters: Sequence[FilterEntry]) -> None:
        """Call these filters for these rows, and overwrite the rows' owners and verdicts."""
        self.owner[rows] = PASSES
        for entry in filters:
            if not len(rows):
                break
            answers = entry.many(self.state, self._pod, self._table, rows)
            bad = answers != 0
            if np.count_nonzero(bad):
                self._widen(int(np.maximum.reduce(answers)))
                # Writing all rows takes less time than selecting the rejected ones.
                self.owner[rows] = np.multiply(bad, entry.index + 1, dtype=np.uint8)
                self.verdict[rows] = answers
                if entry is not filters[-1]:
                    rows = rows[~bad]

    def _widen(self, verdict: int) -> None:
        """Widen the dtype of ``verdict`` if this verdict does not fit."""
        if verdict >> 8 * self.verdict.itemsize:
            self.verdict = self.verdict.astype(np.min_scalar_type(verdict))

    def _refilter_one(self, row: int, whole: bool) -> bool:
        """Evaluate one row again; True if it passes.

        ``whole``: more than the node's pods may have changed. Otherwise filters that do not read pods are only called
        if they were not called for the row before.
        """
        table, base = self._table, self.base
        if not table.alive.item(row) if base is None else base.owner.item(row) != PASSES:
            self.owner[row] = NO_NODE
            return False
        before = self.owner.item(row)
        # Place of the last filter that has answered for the row: filters behind the old owner were never called.
        called = 0 if whole or before == NO_NODE else (before if before != PASSES else NO_NODE)
        node = table.info(row)
        for entry in self.filters:
            place = entry.index + 1
            if place <= called and not entry.reads_pods:
                if place == called:
                    return False  # the old verdict of the old owner stands
                continue
            answer = entry.one(self.state, self._pod, table, node)
            if answer:
                self._widen(answer)
                self.owner[row] = place
                self.verdict[row] = answer
                return False
        if before != PASSES:
            self.owner[row] = PASSES
        return True

    # -- scores ----------------------------------------------------------------------------------------

    def score(self) -> None:
        """Score all feasible rows (two or more), from PreScore on; do nothing if they are scored already.

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
        self.columns = ScoreColumns(entries, len(self.owner))
        self.columns.replace(state, self._pod, self._table, rows)
        self._total(None)
        self.is_scored = True
        self._feasible_rows = None  # saves memory: thousands of layers may be kept, and few need this array again

    def _rescore(self, changed: Rows, rows: Rows, same: bool) -> None:
        """Score ``rows`` again, and the further rows that plugins name.

        ``changed``: the rows whose own node or pods changed. ``same``: the feasible rows did not change since the last
            scoring.
        """
        if self.feasible < 2:
            self.is_scored = False  # PreScore is for two nodes or more
            return
        base = self.base
        if base is not None:
            base.score()
            named = self.share.rescored(self.state, len(self.owner), same=same)
            if named is None:
                self.is_scored = False
                self.score()
                return
            rows = merged(rows, named, len(self.owner))
        images = self._images_version != self._table.images.version
        if images:
            self._images_version = self._table.images.version
            self.columns.replace(self.state, self._pod, self._table, self.feasible_rows(), of_images=True)
        if not len(self.columns):  # the totals are the base's totals
            moved = rows is None and not same
            rows = changed if rows is None else rows
        elif rows is None:
            moved = self.columns.replace(self.state, self._pod, self._table, self.feasible_rows()) or not same
            rows = changed  # if nothing moved, the final scores of all other rows are as before
        else:
            moved = self.columns.rescore(self.state, self._pod, self._table, rows, self.owner, self.feasible, same)
        if moved or images or (base is not None and base._epoch != self._base_epoch):
            self._total(None)
        elif rows:
            self._total(rows)

    # -- totals ----------------------------------------------------------------------------------------

    def _total(self, rows: Rows) -> None:
        """Compute the totals of these rows again."""
        if self._finals:
            if isinstance(rows, dict):
                for row in rows:
                    self._finals.pop(row, None)
            else:
                self._finals.clear()
        base = self.base.ranking.total if self.base is not None else None
        ranking = self.ranking
        if isinstance(rows, dict):
            for row in rows:
                total = INFEASIBLE
                if self.owner.item(row) == PASSES:
                    total = base.item(row) if base is not None else 0
                    total += self.columns.total(row)
                ranking.put(row, total)
            return
        at = rows.rows if rows is not None else slice(None)
        rejected = self.owner[at] != PASSES
        totals: IntArray = base[at].astype(np.int64) if base is not None else np.zeros(len(rejected), np.int64)
        totals += self.columns.totals(at)
        if self.feasible < len(self.owner):
            np.putmask(totals, rejected, INFEASIBLE)
        if rows is not None:
            ranking.put_many(rows.rows, totals)
        else:
            ranking.replace(totals)
            self._epoch += 1
            self._base_epoch = self.base._epoch if self.base is not None else 0
