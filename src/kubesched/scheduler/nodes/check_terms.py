"""Checker of the term index: recounts it from the pods on the rows, and compares.

Called by :mod:`..cache.check`, after every test scenario and on demand in a running scheduler. It changes nothing.
Sums are updated late, when they are read. The checker brings a copy of such a sum up to date, and compares the copy
with its own count. It leaves out sums that are marked to be computed from scratch.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Mapping
from copy import copy

import numpy as np

from kubesched.base.change_log import Follower
from kubesched.base.turns import Steps

from .columns import ABSENT, LabelColumn
from .domain_counts import Counter, DomainCounts, RowMask
from .node_table import NodeTable
from .podinfo import PodInfo
from .term_index import Role, TermIndex

__all__ = ["RowTerms", "check_terms"]


class RowTerms:
    """Pods of a row as the index counts them: by pod class, and by carried term."""

    __slots__ = ("carried", "classes")

    def __init__(self, pods: Iterable[PodInfo]) -> None:
        self.classes: Tally[tuple[str, frozenset[tuple[str, str]], bool]] = Tally()
        self.carried: Tally[object] = Tally()
        for pod in pods:
            meta = pod.metadata
            self.classes[meta.namespace, frozenset(meta.labels.items()), meta.deletion_timestamp is not None] += 1
            if pod.has_affinity:
                terms = pod.affinity_terms
                listed = [(Role.ANTI, term, 0) for term in terms.required_anti]
                listed += [(Role.HARD, term, 0) for term in terms.required]
                listed += [(Role.SOFT, item.term, item.weight) for item in terms.preferred]
                listed += [(Role.SOFT, item.term, -item.weight) for item in terms.preferred_anti]
                self.carried.update(listed)


def check_terms(table: NodeTable, rows: Mapping[int, RowTerms]) -> Steps[list[str]]:
    """Return every difference between the index and the rows, also in the sums that plugins hold.

    ``rows`` must have been counted since the last change.
    """
    index, problems = table.terms, list[str]()
    classes: dict[object, dict[int, int]] = {}
    carried: dict[object, dict[int, int]] = {}
    for row, found in rows.items():
        for key, count in found.classes.items():
            classes.setdefault(key, {})[row] = count
        for part, count in found.carried.items():
            carried.setdefault(part, {})[row] = count

    def compare(what: str, got: Mapping[int, int], want: Mapping[int, int]) -> None:
        if dict(got) != want:
            problems.append(f"term index: {what} is {dict(got)}, recounted {want}")

    if index.classes().keys() != classes.keys():
        problems.append("term index: the pod classes are not those of the pods on the rows")
    if index.carried().keys() != carried.keys():
        problems.append("term index: the carried terms are not those of the pods on the rows")
    for group_key, group in index.classes().items():
        compare(f"pod class {group.namespace} {group.labels}", group.by_row, classes.get(group_key, {}))
    for carried_key, term in index.carried().items():
        compare(f"carried term {term.term}", term.by_row, carried.get(carried_key, {}))
        problems += _check_counter(term)
    problems += _check_rules(index)
    nodes, journal = _Nodes(table), Follower.from_now(table.journal)
    for domains in list(table.readers):
        yield
        if journal.read() != []:
            nodes = _Nodes(table)
        if domains.counter is None or domains.counter.live:
            problems += nodes.check(domains)
    return problems


def _check_rules(index: TermIndex) -> list[str]:
    """Compare the counted rules with the classes, which were compared with the pods before."""
    problems = []
    for pod_set, counter in index.sets().items():
        want: Tally[int] = Tally()
        for group in index.classes().values():
            counts = pod_set.matches(group.namespace, group.labels, group.terminating)
            if counts:
                want.update(group.by_row)
            if (group in counter.classes, group.counters.count(counter)) != (counts, int(counts)):
                problems.append(f"term index: counted rule {pod_set.terms} and pod class {group.labels} do not agree")
        if counter.by_row != dict(want):
            problems.append(f"term index: counted rule {pod_set.terms} is {counter.by_row}, recounted {dict(want)}")
        problems += _check_counter(counter)
    return problems


def _check_counter(counter: Counter) -> list[str]:
    problems = []
    if counter.total != sum(counter.by_row.values()) or not counter.live:
        problems.append(f"term index: a counter's total is {counter.total}, its rows are {counter.by_row}")
    dense = counter._dense
    if dense is not None and {int(row): int(dense[row]) for row in np.flatnonzero(dense)} != counter.by_row:
        problems.append(f"term index: a counter's array differs from its rows {counter.by_row}")
    return problems


class _Nodes:
    """Labels and masks of the nodes, read once and compared with all sums."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._columns: dict[str, LabelColumn] = dict(table.labels.items())
        #: Topology key to row to value.
        self._values: dict[str, dict[int, str]] = {}
        self._masks: dict[RowMask, frozenset[int]] = {}

    def check(self, domains: DomainCounts) -> list[str]:
        column, counter, mask = domains.column, domains.counter, domains._mask
        steps = [] if domains._steps is None else copy(domains._steps).read()
        if column is not self._columns.get(domains.key) or column.version != domains._version or steps is None:
            return []  # labels changed, or the sums are far behind: the next read adds them up again
        values = self._values_of(domains.key)
        problems: list[str] = []
        rows: frozenset[int] | None = None
        if mask is not None:
            if not self._is_current(mask) or mask.version != domains._mask_version:
                return []
            rows, problems = self._recounted(mask)
        want: Tally[str] = Tally({value: 0 for row, value in values.items() if rows is None or row in rows})
        for row, count in ({} if counter is None else counter.by_row).items():
            if row in values and (rows is None or row in rows):
                want[values[row]] += count
        counts = domains.counts.tolist()
        total = domains.total
        for step in steps:
            row, delta = (step, 1) if step >= 0 else (~step, -1)
            if row in values and (rows is None or row in rows):
                counts[column.code_of[values[row]]] += delta
                total += delta
        got = {column.values[code]: counts[code] for code in np.flatnonzero(domains.present).tolist()}
        if got != dict(want):
            return [*problems, f"term index: domains of {domains.key} are {got}, recounted {dict(want)}"]
        if total != sum(want.values()) or sum(counts) != total or counts[ABSENT] or domains.places != len(want):
            return [*problems, f"term index: the totals of {domains.key} are wrong"]
        return problems

    def _values_of(self, key: str) -> dict[int, str]:
        values = self._values.get(key)
        if values is None:
            values = self._values[key] = {
                info.row: info.labels[key] for info in self._table.all_infos() if key in info.labels
            }
        return values

    def _is_current(self, mask: RowMask) -> bool:
        table = self._table
        return mask._seen == (table.labels_version, table.taints_version if mask._tolerates else 0, table.capacity)

    def _recounted(self, mask: RowMask) -> tuple[frozenset[int], list[str]]:
        """Return the rows that a mask should have, and the problems of the mask.

        Later calls for the same mask return no problems, so that each problem is listed once.
        """
        if mask in self._masks:
            return self._masks[mask], []
        affinity, tolerates = mask._affinity, mask._tolerates
        want = self._masks[mask] = frozenset(
            info.row
            for info in self._table.all_infos()
            if info.node is not None
            and all(key in info.labels for key in mask._keys)
            and (affinity is None or affinity.matches(info.labels, info.name))
            and (tolerates is None or tolerates(info.taints))
        )
        got = np.flatnonzero(mask.rows).tolist()
        if set(got) == want:
            return want, []
        return want, [f"term index: a mask of {mask._keys} has the rows {got}, recounted {sorted(want)}"]
