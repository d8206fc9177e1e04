"""Nodes of a live scheduler as columns, and what changed since the last look.

The columns come from the scheduler's node table, the changes from its journal. A state is taken at once, as copies and
references of objects that never change; the documents are made from it in steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, Literal

import numpy as np

from kubesched.api.requests import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from kubesched.api.types import Node
from kubesched.base.change_log import Follower
from kubesched.base.turns import Steps
from kubesched.scheduler.nodes.columns import IntArray
from kubesched.scheduler.nodes.node_table import NodeTable

from .devices import DeviceCounts
from .schema import LabelColumn, NodeChange, NodeColumns, ResourceColumn, TextColumn

__all__ = ["MOST_LABELS", "MOST_RESOURCES", "Delta", "NodeMap", "status_of", "taint_texts", "unit_of"]

#: Most labels and most resources that have a column: the ones that the most nodes have.
MOST_LABELS: Final = 64
MOST_RESOURCES: Final = 64
#: A label with more values than this is left out if it hardly groups: if fewer nodes than the second number share a value.
_MANY_VALUES: Final = 1000
_LEAST_SHARED: Final = 4
#: Most nodes that one change tells about, apart from their pods.
_MOST_CHANGES: Final = 2000
#: Nodes that are read in one step.
_BATCH: Final = 500

_FIRST: Final = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)


def unit_of(resource: str) -> Literal["millicores", "bytes", "units"]:
    """Return the unit of a resource's amounts in documents."""
    if resource == CPU:
        return "millicores"
    is_bytes = resource in (MEMORY, EPHEMERAL_STORAGE) or resource.startswith("hugepages-")
    return "bytes" if is_bytes else "units"


def device_column(driver: str) -> str:
    """Return the name of the column of a driver's devices; no resource has it, because it has a blank."""
    return f"devices of {driver}"


def status_of(node: Node) -> str:
    """Return ``Ready``, ``NotReady`` or ``Cordoned``. A node that reports no condition counts as ready."""
    ready = next((one.status for one in node.status.conditions if one.type == "Ready"), "True")
    if ready != "True":
        return "NotReady"
    return "Cordoned" if node.spec.unschedulable else "Ready"


def taint_texts(node: Node) -> list[str]:
    """Return the taints of a node as kubectl writes them: ``key=value:effect``."""
    return [
        f"{one.key}={one.value}:{one.effect}" if one.value else f"{one.key}:{one.effect}" for one in node.spec.taints
    ]


@dataclass(frozen=True, slots=True)
class Delta:
    """Changes of nodes, as in :class:`~kubesched.dashboard.schema.Change`."""

    rows: list[int]
    requested: dict[str, list[int]]
    nodes: list[NodeChange]

    def __bool__(self) -> bool:
        return bool(self.rows or self.nodes)


@dataclass(frozen=True, slots=True)
class _Taken:
    """Table at one time: nodes by row, None for a free row; amounts by resource and row; and drivers of devices."""

    nodes: list[Node | None]
    resources: dict[str, int]
    allocatable: IntArray
    requested: IntArray
    drivers: list[str]


class NodeMap:
    """Columns of the nodes in a scheduler's table. Follows the table's journal."""

    def __init__(self, table: NodeTable, devices: DeviceCounts) -> None:
        self._table = table
        self._devices = devices
        self._journal = Follower(table.journal)
        #: Resources that have a column, with their indexes in the table.
        self._resources: dict[str, int] = {}
        #: Labels without a column and with one, as of the last state.
        self._hidden: frozenset[str] = frozenset()
        self._shown: set[str] = set()
        self._nodes: list[Node | None] = []
        self._requested: IntArray = np.zeros((0, 0), np.int64)

    # -- increments ----------------------------------------------------------------------------------------

    def changes(self) -> Delta | None:
        """Return what changed since the last call; None if it cannot be told, so that the state is needed."""
        entries = self._journal.read()
        resized, used = self._devices.take_changed()
        if entries is None or self._requested.shape[1] > self._table.capacity:
            self._take()
            return None
        if not (entries or resized or used):
            return Delta([], {}, [])
        row_of = self._table.row_of
        other, busy = ({row for name in names if (row := row_of(name)) is not None} for names in (resized, used))
        rows = {entry >> 1 for entry in entries} | other | busy
        # A row that was given to another node has an entry, too.
        changed = [row for row in sorted(rows) if self._has_new_node(row) or row in other]
        if len(changed) > _MOST_CHANGES:  # the state is smaller, and is made in steps
            self._take()
            return None
        self._add_resources(changed)
        nodes = [self._node_change(row) for row in changed]
        rows.difference_update(changed)
        return Delta(*self._amounts(sorted(rows), busy.difference(changed)), nodes)

    def _has_new_node(self, row: int) -> bool:
        """Return True if what a page knows of a row's node changed, except the pods. Remember the node."""
        info = self._table.infos[row]
        node = info.node if info is not None else None
        if row >= len(self._nodes):
            self._nodes.extend([None] * (row + 1 - len(self._nodes)))
        old, self._nodes[row] = self._nodes[row], node
        if old is None or node is None:
            return old is not node
        return old is not node and (old.name != node.name or _shown(old) != _shown(node))

    def _node_change(self, row: int) -> NodeChange:
        node = self._nodes[row]
        if node is None:
            self._remember(row)
            return NodeChange(row=row, name="")
        self._remember(row)
        allocatable, requested = self._table.allocatable, self._table.requested
        devices = [(device_column(driver), counts) for driver, counts in self._devices.of(node.name).items()]
        return NodeChange(
            row=row,
            name=node.name,
            allocatable={
                **{name: int(allocatable[index, row]) for name, index in self._resources.items()},
                **{name: count for name, (count, _) in devices},
            },
            requested={
                **{name: int(requested[index, row]) for name, index in self._resources.items()},
                **{name: used for name, (_, used) in devices},
            },
            labels=self._labels_of(node),
            taints=", ".join(taint_texts(node)),
            status=status_of(node),
        )

    def _add_resources(self, rows: Iterable[int]) -> None:
        """Give a column to resources that nodes newly have."""
        index, allocatable = self._table.resource_index, self._table.allocatable
        if len(index) == len(self._resources) or len(self._resources) >= MOST_RESOURCES:
            return
        new = [name for name in index if name not in self._resources]
        having = [name for name in new if any(allocatable[index[name], row] for row in rows)]
        for name in having[: MOST_RESOURCES - len(self._resources)]:
            self._resources[name] = index[name]

    def _amounts(self, rows: Sequence[int], busy: Collection[int]) -> tuple[list[int], dict[str, list[int]]]:
        """Return the rows whose amounts changed, and their amounts by resource, of resources with a change.

        The use of the devices of the ``busy`` rows changed.
        """
        rows = [row for row in rows if row < len(self._nodes) and self._nodes[row] is not None]
        if not rows or not self._resources:
            return [], {}
        self._grow()
        at, lines = np.array(rows, np.intp), np.array(list(self._resources.values()), np.intp)
        now, before = self._table.requested[np.ix_(lines, at)], self._requested[np.ix_(lines, at)]
        differs = now != before
        touched = differs.any(axis=0) | np.isin(at, list(busy))
        at, now, differs = at[touched], now[:, touched], differs[:, touched]
        self._requested[np.ix_(lines, at)] = now
        changed = differs.any(axis=1)
        names = [name for name, is_changed in zip(self._resources, changed.tolist(), strict=True) if is_changed]
        amounts: dict[str, list[int]] = dict(zip(names, now[changed].tolist(), strict=True))
        if busy:
            there = [self._devices.of(self._table.info(row).name) for row in at.tolist()]
            for driver in sorted({driver for counts in there for driver in counts}):
                amounts[device_column(driver)] = [counts.get(driver, (0, 0))[1] for counts in there]
        return at.tolist(), amounts

    def _remember(self, row: int) -> None:
        self._grow()
        self._requested[:, row] = self._table.requested[:, row]

    def _grow(self) -> None:
        shape = self._table.requested.shape
        if self._requested.shape != shape:
            grown = np.zeros(shape, np.int64)
            lines, columns = self._requested.shape
            grown[:lines, :columns] = self._requested
            self._requested = grown

    # -- the state -----------------------------------------------------------------------------------------

    def _take(self) -> None:
        """Remember the table as it is."""
        table = self._table
        self._nodes = [info.node if info is not None else None for info in table.infos]
        while self._nodes and self._nodes[-1] is None:
            self._nodes.pop()
        alive = np.flatnonzero(table.alive)
        counts = np.count_nonzero(table.allocatable[:, alive], axis=1).tolist()
        having = {name: counts[index] for name, index in table.resource_index.items() if counts[index]}
        ordered = sorted(having, key=lambda name: (name not in _FIRST, -having[name], name))[:MOST_RESOURCES]
        self._resources = {name: table.resource_index[name] for name in ordered}
        self._requested = table.requested.copy()

    def columns(self) -> Steps[NodeColumns]:
        """Return the nodes as they are now as columns, which are made in steps. Call :meth:`changes` just before."""
        self._take()
        width = len(self._nodes)
        alive = self._table.alive[:width]
        taken = _Taken(
            list(self._nodes),
            dict(self._resources),
            np.where(alive, self._table.allocatable[:, :width], 0),
            np.where(alive, self._requested[:, :width], 0),
            self._devices.drivers(),
        )
        return self._columns(taken)

    def _columns(self, taken: _Taken) -> Steps[NodeColumns]:
        nodes = taken.nodes
        resources = []
        for name, index in taken.resources.items():
            amounts = taken.allocatable[index].tolist(), taken.requested[index].tolist()
            resources.append(
                ResourceColumn(name=name, unit=unit_of(name), allocatable=amounts[0], requested=amounts[1])
            )
            yield
        resources += yield from self._device_columns(taken)
        names: list[str] = []
        taints: list[str | None] = []
        statuses: list[str | None] = []
        for start in range(0, len(nodes), _BATCH):
            part = nodes[start : start + _BATCH]
            names += [node.name if node is not None else "" for node in part]
            taints += [", ".join(taint_texts(node)) if node is not None and node.spec.taints else None for node in part]
            statuses += [status_of(node) if node is not None else None for node in part]
            yield
        labels = yield from self._label_columns(nodes)
        return NodeColumns(
            names=names,
            resources=resources,
            labels=labels,
            taints=_text_column(taints),
            status=_text_column(statuses),
        )

    def _device_columns(self, taken: _Taken) -> Steps[list[ResourceColumn]]:
        """Return a column for each driver. Devices are counted later than the rest, so a change may tell the same again."""
        columns: dict[str, tuple[list[int], list[int]]] = {driver: ([], []) for driver in taken.drivers}
        for place, node in enumerate(taken.nodes if columns else ()):
            counts = self._devices.of(node.name) if node is not None else {}
            for driver, (devices, used) in columns.items():
                count, busy = counts.get(driver, (0, 0))
                devices.append(count)
                used.append(busy)
            if place % _BATCH == _BATCH - 1:
                yield
        return [
            ResourceColumn(name=device_column(driver), unit="units", devices=True, allocatable=devices, requested=used)
            for driver, (devices, used) in columns.items()
        ]

    def _label_columns(self, nodes: Sequence[Node | None]) -> Steps[list[LabelColumn]]:
        """Return the columns of the labels that group nodes. Remember which are left out."""
        labels = [node.metadata.labels if node is not None else {} for node in nodes]
        yield
        having: Counter[str] = Counter()
        for start in range(0, len(labels), _BATCH):
            having.update(chain.from_iterable(labels[start : start + _BATCH]))
            yield
        chosen = sorted(having, key=lambda key: (-having[key], key))[:MOST_LABELS]
        columns: dict[str, TextColumn] = {}
        for key in chosen:
            column = _text_column([one.get(key) for one in labels])
            values = len(column.values)
            if values <= _MANY_VALUES or having[key] >= _LEAST_SHARED * values:
                columns[key] = column
            yield
        self._shown = set(columns)
        self._hidden = frozenset(having.keys() - columns.keys())
        return [
            LabelColumn(key=key, values=column.values, index=column.index) for key, column in sorted(columns.items())
        ]

    def _labels_of(self, node: Node) -> dict[str, str]:
        """Return the labels of a node that have a column. A new label gets one while there are few."""
        found = {}
        for key, value in node.metadata.labels.items():
            if key not in self._shown:
                if key in self._hidden or len(self._shown) >= MOST_LABELS:
                    continue
                self._shown.add(key)
            found[key] = value
        return found


def _text_column(texts: Iterable[str | None]) -> TextColumn:
    """Return the column of the texts of all rows."""
    places: dict[str, int] = {}
    index = [-1 if text is None else places.setdefault(text, len(places)) for text in texts]
    return TextColumn(values=list(places), index=index)


def _shown(node: Node) -> tuple[object, ...]:
    """Return everything about a node that pages show."""
    return node.metadata.labels, node.spec.taints, status_of(node), node.status.allocatable
