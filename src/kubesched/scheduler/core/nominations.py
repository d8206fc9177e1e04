"""Filter for nodes with nominated pods, remembered by row for pods that are alike.

A node with nominated pods of equal or higher priority is filtered as if these pods ran there too (rules/framework
§4.8). For pods of one signature and priority, the verdict changes only with the node and its nominations. The node
table's journal names the changed nodes, and the nominator names the changed nominations. So verdicts can be kept by
row. A layer on top of the signature layer chooses among the rows that pass. A full scan reads why the other rows are
rejected.

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

#: Owner of a row that is rejected because of its nominated pods.
NOMINATED: Final = 254


class NominationFilter:
    """Filter for nodes with nominated pods. It keeps their verdicts by row.

    A layer uses it like the entry of a Filter plugin.

    Attributes:
        table: the nodes by row.
        view: the nominated pods that count.
        codes: uint64[capacity]; 0 where nominated pods do not stand in the way, else a verdict: the number of a status,
            from 1.
    """

    name = ""
    index = 0
    reads_pods = True
    is_plain = False

    def __init__(self, framework: Framework, snapshot: Snapshot, view: NominatedPods, base: Layer) -> None:
        """``base`` is the signature layer; plugins that it does not evaluate have nothing to do for the pod."""
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
        """Filter the changed rows again. Return the rows whose verdict may have changed; None if all may have.

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
        self._journal.restart()  # if a plugin fails below, the next call starts anew
        for row in rows:
            self.codes[row] = self._code(pod, row)
        self._journal.skip()
        return None if everything else np.fromiter(rows, np.intp, len(rows))

    def catch_up(self, pod: PodInfo) -> None:
        """Refresh if anything changed, for callers that need not know the rows."""
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
        """Return why a row is rejected, with or without its nominated pods; None if it passes or has no node.

        The earliest filter in the profile's order counts, as in a full scan.
        """
        owner, code = self._base.owner.item(row), self.codes.item(row)
        if code and owner != NO_NODE:
            status = self.status(code)
            if owner == PASSES or owner >= self._owner_number(status):
                return status
        return self._base.why(row)

    def _owner_number(self, status: Status) -> int:
        """Return 1 + the index of the filter that a status names."""
        return next(entry.index + 1 for entry in self._framework.filters if entry.name == status.plugin)

    def status(self, verdict: int) -> Status:
        """Return the status of a code, which must not be 0."""
        return self._statuses[verdict - 1]

    def places(self, codes: VerdictArray) -> npt.NDArray[np.int64]:
        """Return the owner number (1 + index) of the filter behind each code, int64[len(codes)]; 0 for no obstacle."""
        known = [0, *map(self._owner_number, self._statuses)]
        return np.array(known, np.int64)[codes.astype(np.intp)]

    # -- as a filter of a layer --------------------------------------------------------------------------

    def one(self, state: CycleState, pod: PodInfo, nodes: NodeTable, node: NodeInfo) -> int:
        return int(self.codes[node.row])

    def many(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> VerdictArray:
        self.catch_up(pod)  # a layer that is being built has not called refresh
        return self.codes[rows]


class NominationShare(Share):
    """Share of a nomination layer: it contains only the nomination filter."""

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
