"""Checker of the cache: recounts everything and compares.

There are two comparisons: columns and indexes with the NodeInfo objects, and the cache with the API server (upstream's
cache comparer). Tests run both after every scenario. SIGUSR2 runs them in a live scheduler, in steps: each row is
compared by itself, and the sums over rows are compared when all rows have been counted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kubesched.api.declared_features import feature_mask
from kubesched.api.requests import PODS, Resources
from kubesched.api.types import Node, Pod
from kubesched.base.change_log import Follower
from kubesched.base.times import cached_time
from kubesched.base.turns import Steps, finish

from ..nodes.check_terms import RowTerms, check_terms
from ..nodes.columns import ABSENT
from ..nodes.disks import DiskUse
from ..nodes.node_table import CPU_ROW, EPHEMERAL_ROW, MEMORY_ROW, PODS_ROW, NodeTable, _int64
from ..nodes.nodeinfo import NodeInfo, PortTable
from ..nodes.placed_pods import Kind
from ..nodes.podinfo import PodInfo
from .cache import Cache

__all__ = ["check_cache", "check_table", "checking", "compare_with_server", "comparing_with_server"]

#: Rows that are counted in one step.
_ROWS_PER_STEP: Final = 16
#: Listed pods that are read in one step.
_PODS_PER_STEP: Final = 4096
#: Most times that changed rows are counted again in steps. Afterwards they are counted in one step.
_MOST_ROUNDS: Final = 8


def check_cache(cache: Cache) -> list[str]:
    """Compare as :func:`check_table` does, and also the map and columns of pods with the rows. Return the problems."""
    return finish(checking(cache))


def check_table(table: NodeTable) -> list[str]:
    """Recount each row from its pods and its node, and compare objects, columns and indexes. Return the problems."""
    return finish(_checking_table(table, _Recount(table)))


def checking(cache: Cache) -> Steps[list[str]]:
    """Do the work of :func:`check_cache` in steps, between which the cache may change."""
    recount = _Recount(cache.table, cache)
    problems = yield from _checking_table(cache.table, recount)
    if cache.table.trials:
        problems.append(f"what-if questions about the rows {sorted(cache.table.trials)} were not closed")
    if cache.groups is not None:
        problems += cache.groups.check()
    return problems


class _Row:
    """Row as it was last counted: its shares of sums and indexes, and its own problems."""

    __slots__ = ("disks", "images", "pods", "ports", "problems", "terms")

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.terms = RowTerms(())
        self.ports = self.disks = self.images = self.pods = 0


class _Recount:
    """Recount of all rows, one by one; a row that changes meanwhile is counted again.

    With ``cache``, its map of pods and the columns of pods are compared, too. No what-if change may be active then,
    because the map and these columns do not show it.
    """

    def __init__(self, table: NodeTable, cache: Cache | None = None) -> None:
        self.rows: dict[int, _Row] = {}
        self.cache = cache
        self._table = table

    def steps(self) -> Steps[None]:
        """Count all rows. At the end the counts are true, until the caller's next step."""
        table, rounds = self._table, 0
        journal = Follower.from_now(table.journal)
        rows: list[int] = list(range(len(table.infos)))
        while True:
            for number, row in enumerate(rows, 1):
                self.rows[row] = self._count(row)
                if number % _ROWS_PER_STEP == 0:
                    yield
            changed, rounds = journal.read(), rounds + 1
            rows = list(range(len(table.infos))) if changed is None else sorted({entry // 2 for entry in changed})
            if len(rows) < _ROWS_PER_STEP or rounds > _MOST_ROUNDS:
                break
            yield
        for row in rows:
            self.rows[row] = self._count(row)

    def _count(self, row: int) -> _Row:
        table, found = self._table, _Row()
        info = table.infos[row]
        if info is None:
            if table.alive[row] or table.requested[:, row].any() or table.allocatable[:, row].any():
                found.problems.append(f"row {row} is free but its columns are not empty")
            return found
        problems = found.problems = _check_row(table, row, info)
        found.terms = RowTerms(info.pods.values())
        ports = {(protocol, port) for _, protocol, port in info.used_ports}
        disks = {disk for disk, _ in info.disk_counts}
        images = {name for image in info.node.status.images for name in image.names} if info.node is not None else set()
        states = table.images.states
        if any(row not in table.port_rows.get(port, ()) for port in ports):
            problems.append(f"node {info.name}: the host port index differs")
        if any(row not in table.disk_rows.get(disk, ()) for disk in disks):
            problems.append(f"node {info.name}: the disk index differs")
        if any(name not in states or row not in states[name].rows for name in images):
            problems.append(f"node {info.name}: the image table differs")
        found.ports, found.disks, found.images, found.pods = len(ports), len(disks), len(images), len(info.pods)
        if self.cache is not None:
            problems += _check_placed(table, info)
            for uid, pod in info.pods.items():
                cached = self.cache.pods.get(uid)
                if cached is None:
                    problems.append(f"pod {pod.key} is accounted on node {info.name} but not cached")
                elif cached is not pod or pod.spec.node_name != info.name:
                    where = cached.spec.node_name
                    problems.append(f"pod {pod.key} is cached for node {where!r} but accounted on {info.name!r}")
        return found


def _checking_table(table: NodeTable, recount: _Recount) -> Steps[list[str]]:
    yield from recount.steps()
    rows = list(recount.rows.values())
    problems = [problem for row in rows for problem in row.problems]
    if sum(row.ports for row in rows) != sum(map(len, table.port_rows.values())):
        problems.append("the host port index differs from the rows")
    if sum(row.disks for row in rows) != sum(map(len, table.disk_rows.values())):
        problems.append("the disk index differs from the rows")
    if sum(row.images for row in rows) != sum(len(state.rows) for state in table.images.states.values()):
        problems.append("the image table differs from the node objects")
    pvcs: Counter[str] = Counter()
    for info in table.all_infos():
        if info.pvc_counts:
            pvcs.update(info.pvc_counts)
    if dict(pvcs) != table.pvc_counts:
        problems.append("the claim counts differ from the rows")
    named = {info.name: info.row for info in table.all_infos()}
    alive = sorted(info.name for info in table.all_infos() if info.node is not None)
    if sorted(table.tree.order()) != alive or len(table.tree) != len(alive):
        problems.append("the node tree does not list exactly the nodes that have an object")
    if sorted(table.info(row).name for row in table.order().tolist()) != alive:
        problems.append("the node order does not list exactly the nodes that have an object")
    if any(table.get(name) is not table.infos[row] for name, row in named.items()):
        problems.append("the name index differs from the rows")
    terms = {number: row.terms for number, row in recount.rows.items() if row.pods}
    if recount.cache is not None:
        problems += _check_pods(table, recount.cache, terms)
    return problems + (yield from check_terms(table, terms))


def _check_pods(table: NodeTable, cache: Cache, rows: Mapping[int, RowTerms]) -> list[str]:
    """Find pods that are cached or have columns but are on no row, and compare the kinds of pods."""
    problems: list[str] = []
    kinds: Counter[Kind] = Counter()
    pods = 0
    for row in rows.values():
        for (namespace, labels, _), count in row.classes.items():
            kinds[namespace, labels] += count
            pods += count
    if kinds != table.placed.kinds.counts():
        problems.append("the kinds of pods differ from the rows")
    if pods != len(cache.pods) or pods != len(table.placed):
        on_rows = {uid for info in table.all_infos() for uid in info.pods}
        problems += [
            f"pod {pod.key} is cached for node {pod.spec.node_name!r} but accounted on ''"
            for uid, pod in cache.pods.items()
            if uid not in on_rows
        ]
        problems += [f"pod {uid} has columns, but no node" for uid in table.placed.uids() if uid not in on_rows]
    return problems + [f"pod {uid} is assumed but not cached" for uid in cache.assumed if uid not in cache.pods]


def _check_placed(table: NodeTable, info: NodeInfo) -> list[str]:
    """Compare the columns of pods with a row. The order in which the row's pods were added is compared, too."""
    problems: list[str] = []
    numbers: list[int] = []
    for uid, pod in info.pods.items():
        entry, start = table.placed.entry(info.row, uid) or ([], 0.0)
        amounts = pod.requests
        started = cached_time(pod.status.start_time) if pod.status.start_time else None
        fields = [info.row, pod.priority]
        fields += [_int64(each) for each in (amounts.milli_cpu, amounts.memory, amounts.ephemeral_storage)]
        number = table.placed.kinds.get((pod.namespace, frozenset(pod.labels.items())))
        fields.append(-1 if number is None else number)
        if entry[:2] + entry[3:] != fields or start != (math.inf if started is None else started):
            problems.append(f"pod {pod.key}: its columns say {entry} and start {start}, the pod {fields} and {started}")
        numbers += entry[2:3]
    if numbers != sorted(numbers):
        problems.append(f"node {info.name}: its pods are not in the order of their columns")
    return problems


def _check_row(table: NodeTable, row: int, info: NodeInfo) -> list[str]:
    problems: list[str] = []

    def expect(what: str, got: object, want: object) -> None:
        if got != want:
            problems.append(f"node {info.name}: {what} is {got}, recounted {want}")

    total = Resources()
    nonzero = [0, 0]
    claims: Counter[str] = Counter()
    disks: Counter[DiskUse] = Counter()
    for pod in info.pods.values():
        fresh = PodInfo(pod.pod)
        total.milli_cpu += fresh.requests.milli_cpu
        total.memory += fresh.requests.memory
        total.ephemeral_storage += fresh.requests.ephemeral_storage
        for name, amount in fresh.requests.scalars.items():
            total.scalars[name] = total.scalars.get(name, 0) + amount
        nonzero[0] += fresh.nonzero_cpu
        nonzero[1] += fresh.nonzero_memory
        claims.update(fresh.pvcs)
        disks.update(fresh.disks)
    expect("row", info.row, row)
    expect("requested cpu", info.requested.milli_cpu, total.milli_cpu)
    expect("requested memory", info.requested.memory, total.memory)
    expect("requested ephemeral-storage", info.requested.ephemeral_storage, total.ephemeral_storage)
    expect("non-zero requests", [info.nonzero_cpu, info.nonzero_memory], nonzero)
    expect("claim counts", info.pvc_counts, dict(claims))
    expect("disk counts", info.disk_counts, dict(disks))
    scalars = {name: amount for name, amount in info.requested.scalars.items() if amount}
    expect("requested scalars", scalars, {name: amount for name, amount in total.scalars.items() if amount})
    held = PortTable()
    for pod in info.pods.values():
        held.add(pod.ports)
    # A port that two pods share becomes free when one of them leaves, as upstream (rules/node-plugins §11 quirk 6).
    if not set(info.used_ports) <= set(held):
        problems.append(f"node {info.name}: host ports {sorted(info.used_ports)} are not all held by its pods")
    expect("column requested cpu", int(table.requested[CPU_ROW, row]), _int64(total.milli_cpu))
    expect("column requested memory", int(table.requested[MEMORY_ROW, row]), _int64(total.memory))
    expect("column ephemeral-storage", int(table.requested[EPHEMERAL_ROW, row]), _int64(total.ephemeral_storage))
    expect("column pods", int(table.requested[PODS_ROW, row]), len(info.pods))
    expect("column non-zero", table.nonzero[:, row].tolist(), [_int64(amount) for amount in nonzero])
    for name, index in table.resource_index.items():
        if index > PODS_ROW:
            expect(f"column {name}", int(table.requested[index, row]), _int64(total.scalars.get(name, 0)))
    expect("column alive", bool(table.alive[row]), info.node is not None)
    if info.node is not None:
        problems += _check_node_columns(table, row, info, info.node)
    return problems


def _check_node_columns(table: NodeTable, row: int, info: NodeInfo, node: Node) -> list[str]:
    problems: list[str] = []
    amounts = Resources.from_list(node.status.allocatable)
    if amounts != info.allocatable:
        problems.append(f"node {info.name}: allocatable is {info.allocatable}, the node says {amounts}")
    for name, index in table.resource_index.items():
        want = amounts.allowed_pods if name == PODS else amounts.get(name)
        if int(table.allocatable[index, row]) != want:
            problems.append(
                f"node {info.name}: column allocatable {name} is {table.allocatable[index, row]}, the node says {want}"
            )
    if bool(table.unschedulable[row]) != node.spec.unschedulable:
        problems.append(f"node {info.name}: column unschedulable differs")
    if table.taints.sets[int(table.taints.codes[row])] != node.spec.taints:
        problems.append(f"node {info.name}: column taints differs")
    if int(table.features[row]) != feature_mask(node.status.declared_features):
        problems.append(f"node {info.name}: column features differs")
    for key, column in table.labels.items():
        code = int(column.codes[row])
        value = None if code == ABSENT else column.values[code]
        if value != node.metadata.labels.get(key):
            problems.append(
                f"node {info.name}: column of label {key} says {value!r}, the node {node.metadata.labels.get(key)!r}"
            )
    return problems


def compare_with_server(
    cache: Cache, nodes: Iterable[Node], pods: Iterable[Pod], queued: Iterable[Pod] = ()
) -> list[str]:
    """Return the differences between the cache (and queue) and the API server's lists, as upstream's debugger does.

    Pods in flight and unscheduled pods of other schedulers are reported as missed. Call it while nothing changes.
    """
    return finish(comparing_with_server(cache, list(nodes), list(pods), list(queued)))


def comparing_with_server(
    cache: Cache, nodes: Sequence[Node], pods: Sequence[Pod], queued: Sequence[Pod]
) -> Steps[list[str]]:
    """Do the work of :func:`compare_with_server` in steps, for the moment of the first step.

    The caller must not change the lists meanwhile.
    """
    problems: list[str] = []
    cached_nodes = {info.name for info in cache.table.all_infos()}
    cached_pods: set[str] = set().union(*(info.pods for info in cache.table.all_infos()))
    server_nodes, server_pods = {node.name for node in nodes}, set[str]()
    for uids, listed in ((cached_pods, queued), (server_pods, pods)):
        for start in range(0, len(listed), _PODS_PER_STEP):
            yield
            uids.update([pod.metadata.uid for pod in listed[start : start + _PODS_PER_STEP]])
    if server_nodes != cached_nodes:
        missed, redundant = sorted(server_nodes - cached_nodes), sorted(cached_nodes - server_nodes)
        problems.append(f"Cache mismatch: missedNodes={missed} redundantNodes={redundant}")
    if server_pods != cached_pods:
        missed, redundant = sorted(server_pods - cached_pods), sorted(cached_pods - server_pods)
        problems.append(f"Cache mismatch: missedPods={missed} redundantPods={redundant}")
    return problems
