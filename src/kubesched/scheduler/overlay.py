"""Beside a lane: what plugins say whose answers depend on other nodes, kept up to date domain by domain.

PodTopologySpread and InterPodAffinity cannot sign: a pod that lands in a zone changes what they say of every
node of the zone. But they can name the rows it changes (``catch_up_filter``, ``catch_up_scores`` in
:class:`~kubesched.framework.interface.Contract`). An **overlay** stands for pods that are alike to the signing
plugins (they share a lane) and to the others (they have the same ``relation``). It holds for every row whether
all filters let it pass, the raw scores of the other plugins, and the total of all; the next such pod only asks
about the rows that changed in the lane and the rows of the domains that changed.

The lane is shared by all overlays on it, so a hundred workloads that differ in labels only ask the signing
plugins about a changed row once. Normalisation knows the least and the greatest raw score; when one of them
moves all totals are made anew.

Everything is stored by **slot**, the place of a row among those that were feasible in the lane when the overlay
was built: such a pass over all totals then needs no gather, and takes a few vector operations over adjacent
numbers. A row that becomes feasible later gets a slot at the end.

Called by :mod:`.search`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kubesched.cache import NodeList, NodeTable
from kubesched.cache.columns import BoolArray, IntpArray, RowArray, joined
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.entries import FilterEntry, PluginFailedError, ScoreEntry, failed
from kubesched.framework.interface import NOT_SCORED, IntArray
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.runtime import Framework

from .bounded_scores import BoundedScores
from .lanes import FEW, PASSES, Lane
from .plan import Plan
from .ranking import INFEASIBLE, Ranking

__all__ = ["Overlay"]

#: Slots: few of them, many of them (perhaps repeated), or None for all.
_Slots = list[int] | IntpArray | None
#: The total of a slot that does not pass: less than nothing, whatever is added.
_CLOSED: Final = -(1 << 60)
#: Beyond this part of all slots (one in …) it is quicker to look at all of them.
_WHOLE: Final = 4


class Overlay:
    """All verdicts and totals for one lane and one relation.

    Attributes:
        rows: intp[slots]; the row of each slot.
        passes: bool[slots]; whether every filter lets the row pass, those of the lane included.
        feasible: how many do.
    """

    def __init__(self, table: NodeTable, framework: Framework, plan: Plan, pod: PodInfo) -> None:
        self._table = table
        self._framework = framework
        self._plan = plan
        #: The pod to decide about: always the present one, since objects that an earlier one refers to may be gone.
        self._pod = pod
        self._state = CycleState()
        self._lane: Lane | None = None
        self._epoch = -1
        self._position = 0
        self._filters: tuple[FilterEntry, ...] = ()
        self._tracks: list[BoundedScores] = []
        self._scored = False
        self._ranking = Ranking()
        #: int32[capacity]: row to slot, -1 without one.
        self._slot_of: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        #: int64[slots]: the lane's totals, INFEASIBLE included; and the same with _CLOSED for slots that do not pass.
        self._base: IntArray = np.zeros(0, np.int64)
        self._open: IntArray = self._base
        self.rows: IntpArray = np.zeros(0, np.intp)
        self.passes: BoolArray = np.zeros(0, np.bool_)
        self.feasible = 0

    @staticmethod
    def row_bytes(score_plugins: int) -> int:
        """Memory of one row."""
        return 4 + 8 + 8 + 8 + 8 + 1 + 8 * score_plugins

    def best(self, pod: PodInfo, lane: Lane, rng: random.Random) -> int | None:
        """The row to choose, each of the best with the same chance; None when only a full look can tell.

        ``pod`` must have the overlay's relation, ``lane`` be fresh and scored.

        Raises:
            PluginFailedError: when a plugin fails; the overlay must not be used any more then.
        """
        self._pod = pod
        if not self._refresh(lane) or not self.feasible:
            return None
        if self.feasible == 1:
            return int(self.rows[np.flatnonzero(self.passes)[0]])
        if lane.is_scaled and self.feasible != lane.feasible:
            return None  # the lane's totals are scaled to rows that may not be left
        if not self._scored:
            self._score()
        return int(self.rows[self._ranking.best(rng)])

    # -- keeping up ------------------------------------------------------------------------------------

    def _refresh(self, lane: Lane) -> bool:
        """Catch up with the lane and with other nodes; False when the pod needs a full look."""
        changed = self._changed(lane)
        if changed is None:
            return self._build(lane)
        moved, named = changed
        slots = self._slots(moved, named)
        same = self._refilter(slots)
        if self._scored:
            self._rescore(moved, slots, same)
        return True

    def _changed(self, lane: Lane) -> tuple[_Slots, list[RowArray]] | None:
        """The slots whose own node or pods changed, and the rows that the filters name; None: everything may have."""
        journal = self._table.journal
        if lane is not self._lane or lane.epoch != self._epoch:
            return None
        entries = journal.since(self._position)
        if entries is None or len(entries) > len(self.rows):
            return None
        self._position = journal.position
        slots = self._take_over(lane, {entry >> 1 for entry in entries})
        if slots is None:
            return None
        named: list[RowArray] = []
        for plugin in self._plan.filters_to_catch_up:
            rows = _catch_up(plugin, "PreFilter", plugin.catch_up_filter, self._state, self._pod, self._table)
            if rows is None:
                return None
            if len(rows):
                named.append(rows)
        return slots, named

    def _take_over(self, lane: Lane, changed: set[int]) -> _Slots:
        """Take the lane's totals of rows that changed; their slots. None: too many have none yet."""
        if len(changed) > FEW:
            rows = np.fromiter(changed, np.intp, len(changed))
            new = rows[(self._slot_of[rows] < 0) & (lane.owner[rows] == PASSES)]
            if len(new) > FEW:
                return None
            for row in new.tolist():
                self._append(row)
            rows = rows[self._slot_of[rows] >= 0]
            at = self._slot_of[rows].astype(np.intp)
            self._base[at] = lane.ranking.total[rows]
            return at
        slots = []
        for row in changed:
            slot = int(self._slot_of[row])
            if slot < 0:
                if lane.owner[row] != PASSES:
                    continue
                slot = self._append(row)
            self._base[slot] = lane.ranking.total[row]
            slots.append(slot)
        return slots

    def _append(self, row: int) -> int:
        slot = len(self.rows)
        self._slot_of[row] = slot
        self.rows = np.append(self.rows, row)
        self.rows.flags.writeable = False
        self.passes = np.append(self.passes, False)
        self._base = np.append(self._base, INFEASIBLE)
        self._open = np.append(self._open, _CLOSED)
        for track in self._tracks:
            track.append()
        if self._scored:
            self._ranking.grow(slot + 1)
        return slot

    def _slots(self, slots: _Slots, named: list[RowArray]) -> _Slots:
        """These slots and those of the rows named. Rows without a slot are infeasible and stay out."""
        if not named or slots is None:
            return slots
        count = len(slots) + sum(map(len, named))
        if count > FEW and count * _WHOLE > len(self.rows):
            return None
        found = self._slot_of[joined(named)]
        if count > FEW:
            return np.concatenate((np.array(slots, np.intp), found[found >= 0]))
        return list({*map(int, slots), *(slot for slot in found.tolist() if slot >= 0)})

    # -- filters ---------------------------------------------------------------------------------------

    def _build(self, lane: Lane) -> bool:
        """Ask about every row, from PreFilter on."""
        table, state = self._table, self._state
        self._lane, self._epoch, self._position = lane, lane.epoch, table.journal.position
        self._scored = False
        state.skip_filter = frozenset()
        nodes = NodeList(table, table.order())
        outcome = self._framework.pre_filter(state, self._pod, nodes, self._plan.pre_filters)
        if outcome.status is not None or outcome.nodes is not None:
            self._lane = None
            return False
        self._filters = tuple(entry for entry in self._plan.unsigned_filters if entry.name not in state.skip_filter)
        self._tracks = []
        self.rows = rows = lane.feasible_rows().astype(np.intp, copy=False)
        self._slot_of = np.full(table.capacity, -1, np.int32)
        self._slot_of[rows] = np.arange(len(rows), dtype=np.int32)
        self._base = lane.ranking.total[rows]
        self._open = np.full(len(rows), _CLOSED, np.int64)
        self.passes = np.zeros(len(rows), np.bool_)
        self._refilter_many(np.arange(len(rows)))
        return True

    def _refilter(self, slots: _Slots) -> bool:
        """Ask the filters about these slots; True when the same ones pass as before."""
        if slots is None:
            return self._refilter_many(np.arange(len(self.rows)))
        if isinstance(slots, np.ndarray):
            return self._refilter_many(slots)
        table, state, pod = self._table, self._state, self._pod
        same = True
        for slot in slots:
            now = bool(self._base[slot] != INFEASIBLE)
            if now and self._filters:
                node = table.info(int(self.rows[slot]))
                for entry in self._filters:
                    if entry.one(state, pod, table, node):
                        now = False
                        break
            self._open[slot] = self._base[slot] if now else _CLOSED
            if now != self.passes[slot]:
                self.passes[slot] = now
                self.feasible += 1 if now else -1
                same = False
        return same

    def _refilter_many(self, slots: IntpArray) -> bool:
        before = self.passes[slots]
        now = self._base[slots] != INFEASIBLE
        for entry in self._filters:
            asked = self.rows[slots[now]]
            if not len(asked):
                break
            now[now] = entry.many(self._state, self._pod, self._table, asked) == 0
        self.passes[slots] = now
        self._open[slots] = np.where(now, self._base[slots], _CLOSED)
        self.feasible = int(np.count_nonzero(self.passes))
        return bool((now == before).all())

    def _mask(self) -> BoolArray | None:
        """``passes``, or None when all slots pass."""
        return None if self.feasible == len(self.rows) else self.passes

    def _left(self) -> IntpArray:
        """The feasible rows."""
        return self.rows if self.feasible == len(self.rows) else self.rows[self.passes]

    # -- scores ----------------------------------------------------------------------------------------

    def _score(self) -> None:
        """Score every feasible row, from PreScore on."""
        state, plan, rows = self._state, self._plan, self._left()
        state.skip_score = frozenset()
        status = self._framework.pre_score(state, self._pod, NodeList(self._table, rows), plan.unsigned_names)
        if status is not None:
            raise PluginFailedError.of(status)
        entries = [entry for entry in plan.unsigned_scores if entry.name not in state.skip_score]
        self._tracks = [BoundedScores(entry, self._raw(entry, rows), self._mask()) for entry in entries]
        self._total_all()
        self._scored = True

    def _raw(self, entry: ScoreEntry, rows: IntpArray) -> IntArray:
        """int64[slots]: what a plugin says of the feasible ``rows``."""
        answer = entry.many(self._state, self._pod, self._table, rows)
        if len(rows) == len(self.rows):
            return answer.copy()  # ours from now on
        raw = np.full(len(self.rows), NOT_SCORED, np.int64)
        raw[self.passes] = answer
        return raw

    def _rescore(self, moved: _Slots, slots: _Slots, same: bool) -> None:
        """Catch up with the slots that changed, and with what the score plugins name.

        ``moved``: the slots whose own node or pods changed.
        """
        if self.feasible < 2:
            self._scored = False  # PreScore is for two nodes or more
            return
        named: list[RowArray] = []
        for plugin in self._plan.scores_to_catch_up:
            rows = _catch_up(plugin, "PreScore", plugin.catch_up_scores, self._state, self._pod, self._table, same)
            if rows is None:
                self._score()
                return
            if len(rows):
                named.append(rows)
        slots = self._slots(slots, named)
        if slots is None:
            shifted = self._rescore_all()
            if same and not shifted:
                slots = moved  # the others' scores moved together: normalised they are what they were
        elif isinstance(slots, list):
            shifted = bool(self._tracks) and self._rescore_few(slots)
        else:
            shifted = self._rescore_many(slots)
        if shifted or slots is None:
            self._total_all()
        elif len(slots):
            self._total(slots)

    def _rescore_few(self, slots: list[int]) -> bool:
        """Raw scores of some slots, one by one; True when bounds moved."""
        table, state, pod = self._table, self._state, self._pod
        moved = lost = False
        for slot in slots:
            node = table.info(int(self.rows[slot])) if self.passes[slot] else None
            for track in self._tracks:
                new = track.entry.one(state, pod, table, node) if node is not None else NOT_SCORED
                shifted, unknown = track.put(slot, new, node is not None)
                moved |= shifted
                lost |= unknown
        if lost:
            for track in self._tracks:
                track.measure(self._mask())
        return moved

    def _rescore_many(self, slots: IntpArray) -> bool:
        passes = self.passes[slots]
        asked = slots[passes]
        rows = self.rows[asked]
        moved = False
        for track in self._tracks:
            if len(asked) < len(slots):
                track.raw[slots[~passes]] = NOT_SCORED
            track.raw[asked] = track.entry.many(self._state, self._pod, self._table, rows)
            bounds = (track.low, track.high)
            track.measure(self._mask())
            moved |= bounds != (track.low, track.high)
        return moved

    def _rescore_all(self) -> bool:
        """All raw scores; False when every slot's normalised score is what it was."""
        rows = self._left()
        moved = False
        for track in self._tracks:
            level = track.level
            track.replace(self._raw(track.entry, rows), self._mask())
            moved |= level is None or track.level != level
        return moved

    def _total(self, slots: list[int] | IntpArray) -> None:
        """Totals of these slots anew."""
        if isinstance(slots, list):
            for slot in slots:
                total = int(self._open[slot])
                if total >= 0:
                    total += sum([track.final_one(int(track.raw[slot])) for track in self._tracks])
                self._ranking.put(slot, total)
        else:
            at = self._open[slots]
            for track in self._tracks:
                at += track.final(track.raw[slots])
            self._ranking.put(slots, at)
        self._ranking.settle(slots)

    def _total_all(self) -> None:
        total = self._open.copy()
        for track in self._tracks:
            total += track.final(track.raw)
        self._ranking.replace(total)


def _catch_up(plugin: Any, point: str, method: Callable[..., RowArray | None], *args: Any) -> RowArray | None:
    """What a plugin names. A failure is one of the extension point whose state it brings up to date."""
    try:
        return method(*args)
    except Exception as error:
        raise PluginFailedError(plugin.name, failed(f"running {point} plugin", plugin.name, error)) from error
