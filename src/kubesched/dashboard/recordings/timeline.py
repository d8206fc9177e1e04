"""Time line of a recording: nodes and pods at any moment, by numpy from the times of their lives.

Amounts on nodes change when a pod comes to a node or leaves it. These events are sorted by time; the sums after every
so many events are kept as checkpoints, so a seek adds up a bounded number of events.

    NodeTimes, PodTimes ──▶ Timeline ──requested(at), states(at)──▶ columns
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kubesched.api.requests import CPU, EPHEMERAL_STORAGE, MEMORY
from kubesched.api.requests import PODS as POD_COUNT
from kubesched.lab.simulate.results.result import NodeTimes, PodTimes

__all__ = ["MOST_NODES", "MOST_PODS", "RecordingError", "Timeline"]

Times: TypeAlias = NDArray[np.float64]
Whole: TypeAlias = NDArray[np.int64]
Rows: TypeAlias = NDArray[np.int32]

#: Most nodes, pods and resources of a recording that can be shown.
MOST_NODES: Final = 200_000
MOST_PODS: Final = 2_000_000
_MOST_RESOURCES: Final = 32
#: Largest sum of amounts that the columns hold, with room for sums of them.
_MOST_AMOUNT: Final = 1 << 62
#: Events between two checkpoints, at least, and most cells of all checkpoints together (8 bytes each).
_STEP: Final = 1 << 14
_CELLS: Final = 1 << 25
#: Most labels that are columns, and most values of each; a label with more is no group on a map.
_MOST_LABELS: Final = 32
_MOST_VALUES: Final = 1_024
#: Latest time, in seconds: some ten thousand years.
_LATEST: Final = 1e12


class RecordingError(ValueError):
    """Recording that cannot be shown. The text says what is wrong, by the field."""


@dataclass(frozen=True, slots=True)
class _Events:
    """Pods that come to nodes and leave them, by time: row, shape of the requests, and 1 or -1."""

    times: Times
    rows: Rows
    shapes: Rows
    signs: NDArray[np.int8]


class Timeline:
    """Nodes and pods over time. Each name of a node has a row of its own, from the first moment to the last.

    Attributes:
        start, end: first and last moment.
        names: names of nodes by row.
        rows: rows by name.
        resources: names of resources, in the order of the matrices.
        nodes: states of nodes by ``since``.
        pods: pods; their positions are the indexes of the columns.
        created, queued, bound, started, arrived, left, removed: times by pod; infinite for what did not happen.
            A pod is on its node from ``arrived`` to ``left``.
        node_of: row of the pod's node; -1 for none, or a node that is not known.
    """

    def __init__(self, nodes: Iterable[NodeTimes], pods: Sequence[PodTimes], start: float, end: float) -> None:
        """Sort everything by time.

        Raises:
            RecordingError: for times and amounts that cannot be, and for more than can be shown.
        """
        self.start, self.end = _checked(start, "start"), _checked(end, "end")
        if end < start:
            raise RecordingError(f"end: {end:g} is before the start, {start:g}")
        self.nodes = sorted(nodes, key=lambda one: (one.since, one.name))
        self.pods = pods
        self.names = sorted({one.name for one in self.nodes})
        self.rows = {name: row for row, name in enumerate(self.names)}
        _check_counts(len(self.names), len(pods))
        self.resources = _resources(self.nodes, pods)
        self._read_nodes()
        self._read_pods()
        self._events = self._sorted_events()
        self._checkpoints, self._every = self._summed()

    # -- reading -----------------------------------------------------------------------------------------

    def _read_nodes(self) -> None:
        states = self.nodes
        for one in states:
            _checked(one.since, f"node {one.name}: since")
            if one.until is not None and _checked(one.until, f"node {one.name}: until") < one.since:
                raise RecordingError(f"node {one.name}: until {one.until:g} is before since {one.since:g}")
        self._since = np.array([one.since for one in states], np.float64)
        self._until = np.array([math.inf if one.until is None else one.until for one in states], np.float64)
        self._row_of = np.array([self.rows[one.name] for one in states], np.int32)
        self._allocatable, self._sizes = _shapes(
            (one.allocatable for one in states), self.resources, "nodes: allocatable"
        )
        self.taints, self._taints = _texts(", ".join(one.taints) for one in states)
        self.statuses, self._statuses = _texts(_status(one.status) for one in states)
        self.labels = {key: _texts(one.labels.get(key) for one in states) for key in _label_keys(states)}
        self._counts = np.array(["NotReady" not in one.status for one in states], np.bool_)

    def _read_pods(self) -> None:
        pods = self.pods
        self.created = _column(pods, "created")
        self.queued = _column(pods, "queued")
        self.bound = _column(pods, "bound")
        self.started = _column(pods, "started")
        self.removed = _column(pods, "removed")
        self.finished = _column(pods, "finished")
        self.node_of = np.array([self.rows.get(one.node, -1) for one in pods], np.int32)
        has_node = np.array([bool(one.node) for one in pods], np.bool_)
        came_with = has_node & np.isinf(self.bound)
        self.arrived = np.where(came_with, self.created, self.bound)
        self.left = np.minimum(self.finished, self.removed)
        self._asked, self._shapes_of = _shapes((one.requests for one in pods), self.resources, "pods: requests", pods=1)
        #: Pods that were bound, and pods that came, by time.
        self._bound_order = np.argsort(self.bound, kind="stable")
        self._bound_times = self.bound[self._bound_order]
        self._created_times = np.sort(self.created)
        stays = self.arrived < self.left
        self._arrived_times, self._left_times = np.sort(self.arrived[stays]), np.sort(self.left[stays])

    def _sorted_events(self) -> _Events:
        on = np.flatnonzero((self.node_of >= 0) & (self.arrived < self.left))
        gone = on[np.isfinite(self.left[on])]
        times = np.concatenate((self.arrived[on], self.left[gone]))
        pods = np.concatenate((on, gone))
        signs = np.concatenate((np.ones(len(on), np.int8), -np.ones(len(gone), np.int8)))
        order = np.argsort(times, kind="stable")
        pods = pods[order]
        return _Events(times[order], self.node_of[pods], self._shapes_of[pods], signs[order])

    def _summed(self) -> tuple[list[Whole], int]:
        count, cells = len(self._events.times), max(1, len(self.names) * len(self.resources))
        most = max(1, _CELLS // cells)
        every = max(_STEP, -(-count // most))
        matrix = np.zeros((len(self.resources), len(self.names)), np.int64)
        found = [matrix.copy()]
        for first in range(0, count - every, every):
            self._add(matrix, first, first + every)
            found.append(matrix.copy())
        return found, every

    def _add(self, matrix: Whole, first: int, last: int) -> None:
        """Add the events ``first`` to ``last`` (exclusive) to the sums."""
        events = self._events
        rows, signs = events.rows[first:last], events.signs[first:last].astype(np.int64)
        shapes = events.shapes[first:last]
        for index in range(len(self.resources)):
            np.add.at(matrix[index], rows, self._asked[shapes, index] * signs)

    # -- moments -----------------------------------------------------------------------------------------

    def requested(self, at: float) -> Whole:
        """Return int64[resources, rows]: the sums of requests of the pods that are on each node."""
        last = self._events_until(at)
        index = min(last // self._every, len(self._checkpoints) - 1)
        matrix = self._checkpoints[index].copy()
        self._add(matrix, index * self._every, last)
        return matrix

    def _events_until(self, at: float) -> int:
        return int(np.searchsorted(self._events.times, at, "right"))

    def advance(self, matrix: Whole, before: float, at: float) -> Rows:
        """Lead the sums at ``before`` to the later moment ``at``. Return the rows whose pods changed."""
        first, last = self._events_until(before), self._events_until(at)
        self._add(matrix, first, last)
        return np.unique(self._events.rows[first:last])

    def states(self, at: float) -> Rows:
        """Return int32[rows]: position of each node's state in :attr:`nodes`; -1 while there is no such node."""
        found = np.full(len(self.names), -1, np.int32)
        last = int(np.searchsorted(self._since, at, "right"))
        found[self._row_of[:last]] = np.arange(last, dtype=np.int32)  # of equal rows, the last one stays
        found[(found >= 0) & (self._until[found] <= at)] = -1
        return found

    def changed_nodes(self, before: float, at: float) -> Rows:
        """Return the rows of nodes that came, went or changed after ``before`` and up to ``at``."""
        hit = ((self._since > before) & (self._since <= at)) | ((self._until > before) & (self._until <= at))
        return np.unique(self._row_of[hit])

    def allocatable(self, states: Rows) -> Whole:
        """Return int64[resources, rows] for the states of nodes; 0 for free rows."""
        found = self._allocatable[self._sizes[states]].T.copy() if self.nodes else _nothing(self.resources, states)
        found[:, states < 0] = 0
        return found

    def counting(self, states: Rows) -> NDArray[np.bool_]:
        """Return bool[rows]: True for nodes that are there and ready, which count in sums."""
        if not self.nodes:
            return np.zeros(len(states), np.bool_)
        return (states >= 0) & self._counts[states]

    def indexes(self, of: Rows, states: Rows) -> list[int]:
        """Return, by row, the entry of a column about states; -1 for free rows."""
        if not self.nodes:
            return []
        found: list[int] = np.where(states >= 0, of[states], -1).tolist()
        return found

    @property
    def taint_index(self) -> Rows:
        return self._taints

    @property
    def status_index(self) -> Rows:
        return self._statuses

    def on_nodes(self, at: float) -> NDArray[np.bool_]:
        """Return bool[pods]: True for pods that are on a node and have not finished."""
        return (self.arrived <= at) & (at < self.left)

    def count_on_nodes(self, at: float) -> int:
        """Return the number of pods that are on a node and have not finished."""
        arrived, left = (np.searchsorted(one, at, "right") for one in (self._arrived_times, self._left_times))
        return int(arrived - left)

    def waiting(self, at: float) -> NDArray[np.bool_]:
        """Return bool[pods]: True for pods that are there, and have no node and no end yet."""
        return (self.created <= at) & (at < self.left) & (at < self.arrived)

    def present(self, at: float) -> NDArray[np.bool_]:
        """Return bool[pods]: True for pods that exist, finished ones included."""
        return (self.created <= at) & (at < self.removed)

    def bound_between(self, before: float, at: float) -> NDArray[np.intp]:
        """Return the pods that were bound after ``before`` and up to ``at``, in this order."""
        first, last = np.searchsorted(self._bound_times, (before, at), "right")
        return self._bound_order[first:last]

    def created_between(self, before: float, at: float) -> int:
        """Return the number of pods that came after ``before`` and up to ``at``."""
        first, last = np.searchsorted(self._created_times, (before, at), "right")
        return int(last - first)

    def moments(self, before: float, at: float) -> Times:
        """Return the times after ``before`` and up to ``at`` at which anything changes, ascending."""
        columns = (self._events.times, self._since, self._until, self.created, self.queued, self.left)
        found = np.concatenate([one[(one > before) & (one <= at)] for one in columns])
        return np.unique(found)

    def events_between(self, before: float, at: float) -> int:
        """Return the number of times that a pod comes to a node or leaves it after ``before`` and up to ``at``."""
        return self._events_until(at) - self._events_until(before)


# -- checks and columns ------------------------------------------------------------------------------------


def _checked(time: float, where: str) -> float:
    if not -_LATEST <= time <= _LATEST:  # NaN, too
        raise RecordingError(f"{where}: {time!r} is no time; expected seconds")
    return float(time)


def _check_counts(nodes: int, pods: int) -> None:
    if nodes > MOST_NODES:
        raise RecordingError(f"has {nodes:,} nodes; at most {MOST_NODES:,} can be shown")
    if pods > MOST_PODS:
        raise RecordingError(f"has {pods:,} pods; at most {MOST_PODS:,} can be shown")


def _column(pods: Sequence[PodTimes], name: str) -> Times:
    values = [getattr(one, name) for one in pods]
    found = np.array([math.inf if one is None else one for one in values], np.float64)
    if len(found) and not (np.abs(found[np.isfinite(found)]) <= _LATEST).all():
        index = int(np.flatnonzero(np.isfinite(found) & (np.abs(found) > _LATEST))[0])
        _checked(values[index], f"pod {pods[index].namespace}/{pods[index].name}: {name}")
    return found


def _resources(nodes: Iterable[NodeTimes], pods: Iterable[PodTimes]) -> list[str]:
    """Return names of resources: cpu, memory, storage that is asked for, pods, then the most frequent others by name."""
    found: Counter[str] = Counter(name for one in nodes for name, amount in one.allocatable.items() if amount)
    asked: Counter[str] = Counter(name for one in pods for name in one.requests)
    storage = [EPHEMERAL_STORAGE] if asked[EPHEMERAL_STORAGE] or found[EPHEMERAL_STORAGE] else []
    first = [CPU, MEMORY, *storage, POD_COUNT]
    found.update(asked)
    for name in (CPU, MEMORY, EPHEMERAL_STORAGE, POD_COUNT):
        found.pop(name, None)
    frequent = sorted(found, key=lambda name: (-found[name], name))[: _MOST_RESOURCES - len(first)]
    return [*first, *sorted(frequent)]


def _shapes(
    amounts: Iterable[Mapping[str, int]], names: Sequence[str], where: str, pods: int | None = None
) -> tuple[Whole, Rows]:
    """Return int64[shapes, resources] of the different amounts, and the shape of each. ``pods`` is that amount, if given."""
    known: dict[tuple[tuple[str, int], ...], int] = {}
    index = np.fromiter((known.setdefault(tuple(one.items()), len(known)) for one in amounts), np.int32)
    counts = np.bincount(index, minlength=len(known)).tolist()
    shapes = [
        [pods if name == POD_COUNT and pods else found.get(name, 0) for name in names] for found in map(dict, known)
    ]
    for position, name in enumerate(names):
        column = [shape[position] for shape in shapes]
        if min(column, default=0) < 0:
            raise RecordingError(f"{where}: {name}: {min(column)} is negative")
        if sum(amount * count for amount, count in zip(column, counts, strict=True)) > _MOST_AMOUNT:
            raise RecordingError(f"{where}: {name}: the amounts add up to more than {_MOST_AMOUNT:,}")
    return np.array(shapes, np.int64).reshape(len(known), len(names)), index


def _texts(texts: Iterable[str | None]) -> tuple[list[str], Rows]:
    """Return the different texts, and the position of each; -1 for none and for empty ones."""
    known: dict[str, int] = {}
    index = np.fromiter((known.setdefault(one, len(known)) if one else -1 for one in texts), np.int32)
    return [*known], index


def _label_keys(nodes: Iterable[NodeTimes]) -> list[str]:
    values: dict[str, set[str]] = {}
    used: Counter[str] = Counter()
    for one in nodes:
        for key, value in one.labels.items():
            used[key] += 1
            seen = values.setdefault(key, set())
            if len(seen) <= _MOST_VALUES:
                seen.add(value)
    few = [key for key, seen in values.items() if len(seen) <= _MOST_VALUES]
    return sorted(sorted(few, key=lambda key: (-used[key], key))[:_MOST_LABELS])


def _status(text: str) -> str:
    """Return the status of the dashboard for one of ``kubectl get nodes``."""
    if "NotReady" in text:
        return "NotReady"
    return "Cordoned" if "SchedulingDisabled" in text else "Ready"


def _nothing(resources: Sequence[str], states: Rows) -> Whole:
    return np.zeros((len(resources), len(states)), np.int64)
