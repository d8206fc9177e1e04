"""Same pods, same answers: what the plugins said about pods that are alike, kept up to date row by row.

Pods that no plugin can tell apart share a signature, and so a **lane**: for every row the filter that
rejected it and why, and for every feasible row the raw scores and their weighted total. A lane remembers
its position in the node table's change journal; the next pod of the signature only asks about the rows
that changed since. A handful of rows is done in plain Python, more of them in one vectorised pass.

The best row is found through a :class:`~.ranking.Ranking`.

Why not per plugin: the sum is what is asked for, and rows change in ones and twos, so one loop over the
plugins for a changed row is cheaper than bookkeeping per plugin. What a plugin does not read (see ``Reads``)
it is not asked again about.

Called by :mod:`.search`, which handles everything a lane cannot: nominated pods, restricted or sampled nodes.
Plugins whose answers depend on other nodes come on top, in :mod:`.overlay`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from kubesched.cache import NodeList, NodeTable
from kubesched.cache.columns import RowArray
from kubesched.cache.journal import NODE_CHANGED
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.entries import FilterEntry, PluginFailedError, ScoreEntry, failed
from kubesched.framework.interface import MAX_NODE_SCORE, IntArray, Normalize, Reads
from kubesched.framework.podinfo import PodInfo

from .ranking import INFEASIBLE, Ranking

__all__ = ["FEW", "NO_NODE", "PASSES", "Lane", "normalized", "normalizing_failed", "weighted"]

#: Owner of a row that passes every signed filter, and of a row without a node.
PASSES: Final = 0
NO_NODE: Final = 255

#: Up to this many changed rows plain Python beats NumPy.
FEW: Final = 8


def normalized(how: Normalize | None, raw: IntArray, greatest: int) -> IntArray:
    """Raw scores scaled to 0…100 by the greatest of them (at least 0)."""
    if how is None:
        return raw
    if greatest == 0:
        return np.full_like(raw, MAX_NODE_SCORE) if how is Normalize.REVERSE else raw
    scaled: IntArray = raw * MAX_NODE_SCORE // greatest
    return MAX_NODE_SCORE - scaled if how is Normalize.REVERSE else scaled


def _normalized_one(how: Normalize | None, raw: int, greatest: int) -> int:
    if how is None:
        return raw
    if greatest == 0:
        return MAX_NODE_SCORE if how is Normalize.REVERSE else raw
    scaled = raw * MAX_NODE_SCORE // greatest
    return MAX_NODE_SCORE - scaled if how is Normalize.REVERSE else scaled


def score_out_of_range(entry: ScoreEntry, score: int) -> PluginFailedError:
    """A plugin's normalised score is outside 0…100, which aborts the attempt."""
    text = (
        f'applying score defaultWeights on Score plugins: plugin "{entry.name}" returns an invalid score {score}, '
        "it should in the range of [0, 100] after normalizing"
    )
    return PluginFailedError(entry.name, RuntimeError(text))


def normalizing_failed(entry: ScoreEntry, error: BaseException) -> PluginFailedError:
    """A plugin's own normalisation raised, or answered what it must not."""
    prefix = "running Normalize on Score plugins: plugin {} failed with"
    return PluginFailedError(entry.name, failed(prefix, entry.name, error))


def weighted(entry: ScoreEntry, final: IntArray) -> IntArray:
    """Normalised scores times the plugin's weight.

    Raises:
        PluginFailedError: when one is out of range.
    """
    low, high = int(final.min(initial=0)), int(final.max(initial=0))
    if low < 0 or high > MAX_NODE_SCORE:
        raise score_out_of_range(entry, low if low < 0 else high)
    return final * entry.weight


class _Track:
    """A score plugin within a lane: raw scores per row and, if they are scaled, the greatest among feasible rows."""

    __slots__ = ("at_greatest", "dynamic", "entry", "greatest", "raw")

    def __init__(self, entry: ScoreEntry, capacity: int) -> None:
        self.entry = entry
        self.raw = np.zeros(capacity, np.int64)
        self.dynamic = bool(entry.reads & Reads.PODS)
        self.greatest = 0
        self.at_greatest = 0

    def measure(self, feasible: RowArray) -> bool:
        """Find the greatest raw score anew; True when it changed."""
        if self.entry.normalize is None:
            return False
        before = self.greatest
        raw = self.raw[feasible]
        self.greatest = max(0, int(raw.max())) if len(raw) else 0
        self.at_greatest = int((raw == self.greatest).sum())
        return self.greatest != before

    def check(self, rows: RowArray) -> None:
        """Raise when a final score is out of range (scaled scores cannot be, unless negative)."""
        raw = self.raw[rows]
        if len(raw) == 0:
            return
        low = int(raw.min())
        if low < 0:
            raise score_out_of_range(self.entry, low)
        if self.entry.normalize is None and int(raw.max()) > MAX_NODE_SCORE:
            raise score_out_of_range(self.entry, int(raw.max()))


class Lane:
    """All rows' verdicts and scores for one signature.

    Attributes:
        owner: uint8[capacity]; PASSES, NO_NODE, or 1 + index of the first signed filter that rejects the row.
        verdict: uint64[capacity]; that filter's verdict.
        ranking: weighted sums of the signed scores; valid once scored.
        feasible: number of rows that pass.
        epoch: grows when rows that are not in the journal may have changed: all totals are new, or there are more rows.
    """

    def __init__(
        self,
        table: NodeTable,
        pod: PodInfo,
        state: CycleState,
        filters: Sequence[FilterEntry],
    ) -> None:
        """Evaluate ``filters`` (those that signed and were not skipped) for every node.

        ``state`` is kept: it holds what the signed plugins wrote at PreFilter.

        Raises:
            PluginFailedError: when a plugin fails.
        """
        self._table = table
        self._pod = pod
        self.state = state
        self.filters = tuple(filters)
        self._score_entries: tuple[ScoreEntry, ...] = ()
        self._tracks: list[_Track] = []
        self.scored = False
        self.ranking = Ranking()
        self.epoch = 0
        self._order: RowArray | None = None
        self._feasible_rows: RowArray | None = None
        self._build()

    @staticmethod
    def row_bytes(score_plugins: int) -> int:
        """Memory of one row."""
        return 1 + 8 + 8 + 8 * score_plugins

    # -- filters ---------------------------------------------------------------------------------------

    def _build(self) -> None:
        table = self._table
        self._capacity = table.capacity
        self.position = table.journal.position
        self._images_version = table.images.version
        self.owner = np.full(self._capacity, NO_NODE, np.uint8)
        self.verdict = np.zeros(self._capacity, np.uint64)
        rows = table.order()
        self._filter_rows(rows)
        self.feasible = int((self.owner[rows] == PASSES).sum())
        self._feasible_rows = None
        self.scored = False
        self.epoch += 1

    def _filter_rows(self, rows: RowArray) -> None:
        """Ask every filter about these rows, which must have nodes; earlier answers are dropped."""
        owner, verdict = self.owner, self.verdict
        owner[rows] = PASSES
        verdict[rows] = 0
        for entry in self.filters:
            answers = entry.many(self.state, self._pod, self._table, rows)
            if answers.any():
                bad = answers != 0
                rejected = rows[bad]
                owner[rejected] = entry.index + 1
                verdict[rejected] = answers[bad]
                rows = rows[~bad]
                if not len(rows):
                    break

    def feasible_rows(self) -> RowArray:
        """The rows that pass, in list order. Read-only, and the same array until one of them changes."""
        order = self._table.order()
        rows = self._feasible_rows
        if rows is None or self._order is not order:
            self._order = order
            rows = self._feasible_rows = order[self.owner[order] == PASSES]
            rows.flags.writeable = False
        return rows

    # -- keeping up ------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Catch up with the journal.

        Raises:
            PluginFailedError: when a plugin fails; the lane must not be used any more then.
        """
        table = self._table
        journal = table.journal
        if self.position != journal.position:
            changes = journal.since(self.position)
            if changes is None or len(changes) > self._capacity:
                was_scored = self.scored
                self._build()
                if was_scored:
                    self.score(self._score_entries)
                return
            if self._capacity != table.capacity:
                self._grow(table.capacity)
            # The last entry of a row does not tell whether an earlier one was about its node object.
            rows: dict[int, bool] = {}
            for change in changes:
                row = change >> 1
                rows[row] = rows.get(row, False) or change & 1 == NODE_CHANGED
            self.position = journal.position
            if len(rows) <= FEW:
                self._refresh_few(rows)
            else:
                self._refresh_many(np.fromiter(rows, np.int64, len(rows)))
        if self._images_version != table.images.version:
            self._images_version = table.images.version
            if self.scored and any(track.entry.reads & Reads.IMAGES for track in self._tracks):
                self._score_rows(self.feasible_rows(), Reads.IMAGES)
                self._total_all()

    def _grow(self, capacity: int) -> None:
        extra = capacity - self._capacity
        self._capacity = capacity
        self.owner = np.concatenate((self.owner, np.full(extra, NO_NODE, np.uint8)))
        self.verdict = np.concatenate((self.verdict, np.zeros(extra, np.uint64)))
        if self.scored:
            for track in self._tracks:
                track.raw = np.concatenate((track.raw, np.zeros(extra, np.int64)))
            self.ranking.grow(capacity)
        self.epoch += 1

    def _refresh_few(self, rows: dict[int, bool]) -> None:
        moved = False
        touched: list[int] = []
        for row, node_changed in rows.items():
            was_feasible = bool(self.owner[row] == PASSES)
            is_feasible = self._refilter_one(row, node_changed)
            if is_feasible is not was_feasible:
                self.feasible += is_feasible - was_feasible
                self._feasible_rows = None
            if self.scored and (was_feasible or is_feasible):
                moved |= self._rescore_one(row, node_changed, was_feasible, is_feasible)
                touched.append(row)
        if moved:
            self._remeasure_and_total()
        elif touched:
            self.ranking.settle(touched)

    def _refilter_one(self, row: int, node_changed: bool) -> bool:
        """One row's verdict anew; filters that read nothing that changed keep their word. True when it passes."""
        table = self._table
        if not table.alive[row]:
            self.owner[row] = NO_NODE
            return False
        before = int(self.owner[row])
        # Filters up to the old owner have been asked; behind it nobody knows.
        asked = 0 if node_changed or before == NO_NODE else (before if before != PASSES else NO_NODE)
        node = table.info(row)
        for entry in self.filters:
            place = entry.index + 1
            if place <= asked and not entry.reads & Reads.PODS:
                if place == asked:
                    return False  # its old verdict stands
                continue
            answer = entry.one(self.state, self._pod, table, node)
            if answer:
                self.owner[row] = place
                self.verdict[row] = answer
                return False
        self.owner[row] = PASSES
        return True

    def _refresh_many(self, rows: RowArray) -> None:
        was_feasible = self.owner[rows] == PASSES
        alive = self._table.alive[rows]
        self.owner[rows[~alive]] = NO_NODE
        self._filter_rows(rows[alive])
        is_feasible = self.owner[rows] == PASSES
        if (is_feasible != was_feasible).any():
            self.feasible += int(is_feasible.sum()) - int(was_feasible.sum())
            self._feasible_rows = None
        if not self.scored:
            return
        before = [track.raw[rows] for track in self._tracks]
        now = rows[is_feasible]
        self._score_rows(now)
        moved = False
        for track, old in zip(self._tracks, before, strict=True):
            if track.entry.normalize is not None:
                new, greatest = track.raw[now], track.greatest
                track.at_greatest += int((new == greatest).sum()) - int((old[was_feasible] == greatest).sum())
                moved |= bool((new > greatest).any()) or track.at_greatest <= 0 < greatest
        self.ranking.put(rows[~is_feasible], INFEASIBLE)
        if moved:
            self._remeasure_and_total()
            return
        self.ranking.put(now, self._sum(now))
        self.ranking.settle(rows)

    # -- scores ----------------------------------------------------------------------------------------

    def score(self, entries: Sequence[ScoreEntry]) -> None:
        """Score all feasible rows with these plugins (those that signed and were not skipped).

        Raises:
            PluginFailedError: when a plugin fails.
        """
        self._score_entries = tuple(entries)
        self._tracks = [_Track(entry, self._capacity) for entry in self._score_entries]
        feasible = self.feasible_rows()
        self._score_rows(feasible)
        for track in self._tracks:
            track.measure(feasible)
        self.scored = True
        self._total_all()

    def nodes(self) -> NodeList:
        return NodeList(self._table, self.feasible_rows())

    def raw(self, entry: ScoreEntry, rows: RowArray) -> IntArray | None:
        """Raw scores of feasible rows, or None when the lane does not keep this plugin's."""
        for track in self._tracks:
            if track.entry is entry:
                scores: IntArray = track.raw[rows]
                return scores
        return None

    def _score_rows(self, rows: RowArray, reading: Reads = Reads.NOTHING) -> None:
        """Raw scores of feasible rows; only of plugins that read ``reading``, if given."""
        for track in self._tracks:
            if not reading or track.entry.reads & reading:
                track.raw[rows] = track.entry.many(self.state, self._pod, self._table, rows)
                track.check(rows)

    def _rescore_one(self, row: int, node_changed: bool, was_feasible: bool, is_feasible: bool) -> bool:
        """One row's scores anew; True when the greatest raw score of a scaled plugin may have moved."""
        table = self._table
        moved = False
        total = 0
        node = table.info(row) if is_feasible else None
        for track in self._tracks:
            entry, raw = track.entry, track.raw
            old = int(raw[row]) if was_feasible else None
            new = old
            if node is not None and (old is None or node_changed or track.dynamic):
                new = entry.one(self.state, self._pod, table, node)
                if new < 0 or (new > MAX_NODE_SCORE and entry.normalize is None):
                    raise score_out_of_range(entry, new)
                raw[row] = new
            if entry.normalize is not None and not (was_feasible and is_feasible and old == new):
                if old is not None and old == track.greatest:
                    track.at_greatest -= 1
                if is_feasible and new is not None:
                    moved |= new > track.greatest
                    track.at_greatest += new == track.greatest
                moved |= track.at_greatest <= 0 < track.greatest
            if node is not None and new is not None:
                total += entry.weight * _normalized_one(entry.normalize, new, track.greatest)
        self.ranking.put(row, total if is_feasible else INFEASIBLE)
        return moved

    def _sum(self, rows: RowArray) -> IntArray:
        total = np.zeros(len(rows), np.int64)
        for track in self._tracks:
            entry = track.entry
            total += entry.weight * normalized(entry.normalize, track.raw[rows], track.greatest)
        return total

    def totals(self, rows: RowArray) -> IntArray:
        """Weighted sums of the signed scores when only ``rows`` (feasible ones) are left to choose from; a copy.

        Plugins that are scaled to the greatest raw score are scaled anew when that is no longer among them.
        """
        if rows is self._feasible_rows:
            total: IntArray = self.ranking.total[rows]
            return total
        greatest = [
            0 if track.greatest == 0 else max(0, int(track.raw[rows].max()))
            for track in self._tracks
            if track.entry.normalize is not None
        ]
        if greatest == [track.greatest for track in self._tracks if track.entry.normalize is not None]:
            return self.ranking.total[rows]
        total = np.zeros(len(rows), np.int64)
        for track in self._tracks:
            entry, raw = track.entry, track.raw[rows]
            most = 0 if entry.normalize is None else max(0, int(raw.max()))
            total += entry.weight * normalized(entry.normalize, raw, most)
        return total

    @property
    def is_scaled(self) -> bool:
        """Whether some plugin's scores are scaled to their greatest now, so that totals depend on which rows are left."""
        return any(track.greatest > 0 for track in self._tracks)

    def _remeasure_and_total(self) -> None:
        feasible = self.feasible_rows()
        for track in self._tracks:
            track.measure(feasible)
        self._total_all()

    def _total_all(self) -> None:
        rows = self.feasible_rows()
        total = np.full(self._capacity, INFEASIBLE, np.int64)
        total[rows] = self._sum(rows)
        self.ranking.replace(total)
        self.epoch += 1
