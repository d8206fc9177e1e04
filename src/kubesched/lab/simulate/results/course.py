"""Course of a run over time: requested resources, length of the queue, fragmentation of the free resources.

Requests are summed up at every moment at which something happened, from the rows of the node table that changed, so
means and peaks are exact. The moments of the series are thinned out evenly. Caller: :mod:`..run.simulation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kubesched.api.requests import CPU, EPHEMERAL_STORAGE, MEMORY
from kubesched.api.requests import PODS as POD_COUNT
from kubesched.base.change_log import Follower
from kubesched.explain.fragmentation import Shapes
from kubesched.scheduler.framework.metrics import Gauge
from kubesched.scheduler.nodes.node_table import NODE_CHANGED, NodeTable

from .node_status import is_failed
from .result import ResourceShare, Series

__all__ = ["MOST_MOMENTS", "Course"]

#: Most moments of a series.
MOST_MOMENTS: Final = 1_000
_PLACES: Final = ("active", "backoff", "unschedulable", "gated")


class Course:
    """Course of one run. Call :meth:`observe` at each moment after everything has happened.

    ``pending`` is the scheduler's gauge of queued pods by place.
    """

    def __init__(self, table: NodeTable, pending: Gauge, shapes: Shapes, most: int = MOST_MOMENTS) -> None:
        self._table = table
        self._pending = [pending.labels(place) for place in _PLACES]
        self._shapes = shapes
        self._most = most
        #: Rows of nodes that have failed; they count nothing.
        self._failed: set[int] = set()
        self._journal = Follower(table.journal)
        #: Last sums: requested by resource and row; allocatable and requested by resource.
        self._known: NDArray[np.int64] = np.zeros((0, 0), np.int64)
        self._allocatable: list[int] = []
        self._requested: NDArray[np.int64] = np.zeros(0, np.int64)
        self._peak: dict[str, int] = {}
        self._last: float | None = None
        #: By resource: the integral of utilisation over time, and its maximum.
        self._shares: dict[str, float] = {}
        self._peak_shares: dict[str, float] = {}
        self._moments: list[dict[str, Any]] = []
        self._next = 0.0
        self._width = 0.0

    def follow(self, table: NodeTable) -> None:
        """Go on with another table, of a scheduler that has taken the place of the last."""
        self._table = table
        self._journal = Follower(table.journal)
        self._known = np.zeros((0, 0), np.int64)

    @property
    def peak(self) -> dict[str, int]:
        """Most that was ever requested at once, by resource."""
        return self._peak

    def observe(self, now: float, on_nodes: int) -> None:
        """Record the moment ``now``, after everything in it has happened.

        ``on_nodes`` is the number of pods on nodes.
        """
        if self._last is not None and now > self._last:
            self._add_time(now - self._last)
        self._last = now
        self._update()
        if now >= self._next or not self._moments:
            self._keep(now, on_nodes)
        elif self._moments[-1]["time"] == now:
            self._moments[-1] = self._moment(now, on_nodes)

    def _keep(self, now: float, on_nodes: int) -> None:
        moment = self._moment(now, on_nodes)
        if self._moments and self._moments[-1]["time"] == now:
            self._moments[-1] = moment
            return
        self._moments.append(moment)
        if len(self._moments) > self._most:
            self._width = max(2.0 * self._width, 2.0 * (now - self._moments[0]["time"]) / self._most)
            kept: list[dict[str, Any]] = []
            for one in self._moments:
                if not kept or one["time"] >= kept[-1]["time"] + self._width:
                    kept.append(one)
            self._moments = kept
        self._next = self._moments[-1]["time"] + self._width

    def _update(self) -> None:
        """Sum up the rows that changed."""
        table, entries = self._table, self._journal.read()
        if entries is not None and not entries:
            return
        self._note_failures(entries)
        if (
            entries is None
            or self._known.shape != table.requested.shape
            or len(entries) > table.capacity // 4
            or any(entry & 1 == NODE_CHANGED for entry in entries)
        ):
            counts = self._counting()
            self._known = table.requested * counts
            self._requested = self._known.sum(axis=1)
            self._allocatable = (table.allocatable * counts).sum(axis=1).tolist()
        else:
            # Only pods changed, no nodes. A row without a node, or of a failed one, counts nothing.
            counts = self._counting()
            rows = sorted({entry >> 1 for entry in entries if counts[entry >> 1]})
            known, requested = self._known, self._requested
            for row in rows:
                fresh = table.requested[:, row]
                requested += fresh
                requested -= known[:, row]
                known[:, row] = fresh
        allocatable, requested = self._allocatable, self._requested.tolist()
        for name, index in table.resource_index.items():
            amount = requested[index]
            if amount > self._peak.get(name, 0):
                self._peak[name] = amount
            if allocatable[index]:
                self._peak_shares[name] = max(self._peak_shares.get(name, 0.0), amount / allocatable[index])

    def _note_failures(self, entries: Sequence[int] | None) -> None:
        """Find out which nodes have failed, among those that changed; among all if ``entries`` is None."""
        table = self._table
        rows = table.order().tolist() if entries is None else [one >> 1 for one in entries if one & 1 == NODE_CHANGED]
        if entries is None:
            self._failed.clear()
        for row in rows:
            node = table.info(row).node if table.alive[row] else None
            (self._failed.add if node is not None and is_failed(node) else self._failed.discard)(row)

    def _counting(self) -> NDArray[np.bool_]:
        """Return bool[capacity]: True for rows of nodes that count."""
        if not self._failed:
            return self._table.alive
        counts = self._table.alive.copy()
        counts[list(self._failed)] = False
        return counts

    def _add_time(self, seconds: float) -> None:
        allocatable, requested = self._allocatable, self._requested.tolist()
        for name, index in self._table.resource_index.items():
            if index < len(allocatable) and allocatable[index]:
                self._shares[name] = self._shares.get(name, 0.0) + seconds * requested[index] / allocatable[index]

    def _moment(self, now: float, on_nodes: int) -> dict[str, Any]:
        allocatable, requested = self._allocatable, self._requested.tolist()
        names = self._table.resource_index
        return {
            "time": now,
            "queue": [int(one.value) for one in self._pending],
            "on_nodes": on_nodes,
            "allocatable": {name: allocatable[index] for name, index in names.items()},
            "requested": {name: requested[index] for name, index in names.items()},
            "fragmentation": self._shapes.fragmentation(self._table),
        }

    def finish(self, now: float, on_nodes: int) -> tuple[Series, list[ResourceShare]]:
        """End the run. Returns its series, and the shares of each resource that the cluster has."""
        self._next = now
        self.observe(now, on_nodes)
        moments = self._moments
        names = self._names()
        places = {place: [one["queue"][index] for one in moments] for index, place in enumerate(_PLACES)}

        def columns(what: str, empty: Any) -> dict[str, list[Any]]:
            return {name: [one[what].get(name, empty) for one in moments] for name in names}

        series = Series(
            times=[one["time"] for one in moments],
            on_nodes=[one["on_nodes"] for one in moments],
            allocatable=columns("allocatable", 0),
            requested=columns("requested", 0),
            fragmentation=columns("fragmentation", 0.0),
            active=places["active"],
            backoff=places["backoff"],
            unschedulable=places["unschedulable"],
            gated=places["gated"],
        )
        spans = np.diff(np.array([*series.times, now], np.float64))
        total = float(spans.sum())
        shares = []
        for name in names:
            fragments = np.array(series.fragmentation[name], np.float64)
            mean = float(spans @ fragments) / total if total else float(fragments[-1])
            used = self._shares.get(name, 0.0) / total if total else self._peak_shares.get(name, 0.0)
            shares.append(
                ResourceShare(
                    name=name,
                    utilisation=round(used, 6),
                    peak_utilisation=round(self._peak_shares.get(name, 0.0), 6),
                    fragmentation=round(mean, 6),
                )
            )
        return series, shares

    def _names(self) -> list[str]:
        """Return names of resources: cpu, memory, storage that is used, pods, then the others by name."""
        there = {name for one in self._moments for name, amount in one["allocatable"].items() if amount}
        used = {name for name, amount in self._peak.items() if amount}
        first = [CPU, MEMORY, *([EPHEMERAL_STORAGE] if EPHEMERAL_STORAGE in used else []), POD_COUNT]
        return [*first, *sorted((there | used) - {CPU, MEMORY, EPHEMERAL_STORAGE, POD_COUNT})]
