"""What nominated pods mean for pods that are alike: a filter over rows that a layer remembers.

A node with nominated pods of equal or higher priority is filtered as if those ran there too (rules/framework 4.8). For pods of one signature and priority the answer changes only with the node and with its nominations,
which the node table's journal and the nominator name. So it is kept by row; a layer on top of the signature layer
chooses among the rows that are left, and a full scan reads why the others are not.

Used by :mod:`.search`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kubesched.base.change_log import Follower

from ..framework.cycle_state import CycleState
from ..framework.entries import most_statuses
from ..framework.interface import VerdictArray
from ..framework.runtime import Framework
from ..framework.status import Status
from ..nodes import NodeTable, Snapshot
from ..nodes.columns import IntpArray, RowArray
from ..nodes.nodeinfo import NodeInfo
from ..nodes.nominated_rows import NominatedPods
from ..nodes.podinfo import PodInfo
from .layers import NO_NODE, PASSES, Layer
from .plan import Share

__all__ = ["NOMINATED", "NominationFilter", "NominationShare"]

#: Owner of a row where the pod does not fit with its nominated pods.
NOMINATED: Final = 254


class NominationFilter:
    """A Filter entry whose verdicts are kept by row. Nominated pods are added to a node only to find its verdict.

    Attributes:
        codes: uint64[capacity]; 0 where nominated pods are no obstacle, else the place of a status, from 1.
    """

    name = ""
    index = 0
    reads_pods = True
    is_plain = False

    def __init__(self, framework: Framework, snapshot: Snapshot, view: NominatedPods, base: Layer) -> None:
        """``base``: the layer whose plugins have prepared the pod; the others have nothing to do for it."""
        self._framework = framework
        self._snapshot = snapshot
        self.table: NodeTable = snapshot.table
        self.view = view
        self._base = base
        self._skip = frozenset(framework.answering) - base.share.names
        self._statuses: list[Status] = []
        self._places: dict[tuple[Hashable, ...], int] = {}
        self._journal, self._nominated = Follower(self.table.journal), Follower(view.log)
        self.codes: VerdictArray = np.zeros(0, np.uint64)

    def refresh(self, pod: PodInfo) -> IntpArray | None:
        """Catch up; the rows whose verdict may have changed, None when all may have.

        Raises:
            PluginFailedError: when a plugin fails.
        """
        table, view = self.table, self.view
        changed, renominated = self._journal.read(), self._nominated.read()
        everything = changed is None or renominated is None or len(self.codes) != table.capacity
        if everything or len(self._statuses) > most_statuses(len(view.pods)):
            everything = True
            self.codes = np.zeros(table.capacity, np.uint64)
            self._statuses, self._places = [], {}
            rows = set(view.pods)
        else:
            rows = {entry >> 1 for entry in changed or () if entry >> 1 in view.pods}
            rows.update(renominated or ())
        self._journal.restart()  # until it is done
        for row in rows:
            self.codes[row] = self._code(pod, row)
        self._journal.skip()
        return None if everything else np.fromiter(rows, np.intp, len(rows))

    def catch_up(self, pod: PodInfo) -> None:
        """Be up to date; for readers that need not know what changed."""
        if self._journal.is_behind or self._nominated.is_behind:
            self.refresh(pod)

    def _code(self, pod: PodInfo, row: int) -> int:
        others = self.view.pods.get(row)
        if not others or not self.table.alive.item(row):
            return 0
        state = self._base.state.clone()
        state.skip_filter |= self._skip
        status = self._framework.filter_with_pods(state, pod, self._snapshot, self.table.info(row), others)
        return 0 if status is None else self._place(status)

    def _place(self, status: Status) -> int:
        key = (status.code, status.plugin, *status.reasons())
        place = self._places.get(key)
        if place is None:
            self._statuses.append(status)
            place = self._places[key] = len(self._statuses)
        return place

    def why(self, row: int) -> Status | None:
        """Why a row is rejected, nominated pods counted or not; None where it passes or has no node. As the full scan does it."""
        owner, code = self._base.owner.item(row), self.codes.item(row)
        if code and owner != NO_NODE:
            status = self.status(code)
            if owner == PASSES or owner >= self._owner_number(status):
                return status
        return self._base.why(row)

    def _owner_number(self, status: Status) -> int:
        """1 + the index of the filter that a status names."""
        return next((entry.index + 1 for entry in self._framework.filters if entry.name == status.plugin), 0)

    def status(self, verdict: int) -> Status:
        """What a code means."""
        return self._statuses[verdict - 1]

    def places(self, codes: VerdictArray) -> npt.NDArray[np.int64]:
        """The owner number (1 + index) of the filter that each code names, 0 for no obstacle."""
        known = [0, *map(self._owner_number, self._statuses)]
        return np.array(known, np.int64)[codes.astype(np.intp)]

    # -- as a filter of a layer --------------------------------------------------------------------------

    def one(self, state: CycleState, pod: PodInfo, nodes: NodeTable, node: NodeInfo) -> int:
        return int(self.codes[node.row])

    def many(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> VerdictArray:
        self.catch_up(pod)  # while the layer is being built it has not asked for what changed
        return self.codes[rows]


class NominationShare(Share):
    """What the layer on top of a signature layer evaluates: the nomination filter, and nothing else."""

    def __init__(self, nominations: NominationFilter) -> None:
        entry: Any = nominations
        self.filters = (entry,)
        self.scores = ()
        self.pre_filters = self.pre_scores = self.names = frozenset()
        self.follow = ()
        self.nominations = nominations
        self.view = nominations.view

    def changed(self, state: CycleState, pod: PodInfo, size: int) -> list[RowArray] | None:
        rows = self.nominations.refresh(pod)
        return None if rows is None else [rows]

    def rescored(self, state: CycleState, size: int, *, same: bool) -> list[RowArray]:
        return []
