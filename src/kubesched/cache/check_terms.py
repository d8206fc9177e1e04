"""Recount the term index from the pods on the rows, and compare.

Called by :mod:`.check`, hence after every test scenario and on demand in a running scheduler.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Mapping

import numpy as np

from .columns import ABSENT
from .domain_counts import Counter, DomainCounts
from .node_table import NodeTable
from .term_index import Role

__all__ = ["check_terms"]


def check_terms(table: NodeTable) -> list[str]:
    """Everything the index says that the rows do not."""
    index, problems = table.terms, list[str]()
    classes: dict[object, Tally[int]] = {}
    carried: dict[object, Tally[int]] = {}
    for row, pod in ((info.row, pod) for info in table.all_infos() for pod in info.pods.values()):
        meta = pod.metadata
        key = (meta.namespace, frozenset(meta.labels.items()), meta.deletion_timestamp is not None)
        classes.setdefault(key, Tally())[row] += 1
        terms = pod.affinity_terms
        listed = [(Role.ANTI, term, 0) for term in terms.required_anti]
        listed += [(Role.HARD, term, 0) for term in terms.required]
        listed += [(Role.SOFT, item.term, item.weight) for item in terms.preferred]
        listed += [(Role.SOFT, item.term, -item.weight) for item in terms.preferred_anti]
        for part in listed:
            carried.setdefault(part, Tally())[row] += 1

    def compare(what: str, got: Mapping[int, int], want: Mapping[int, int]) -> None:
        if dict(got) != dict(want):
            problems.append(f"term index: {what} is {dict(got)}, recounted {dict(want)}")

    if index.classes().keys() != classes.keys():
        problems.append("term index: the pod classes are not those of the pods on the rows")
    if index.carried().keys() != carried.keys():
        problems.append("term index: the carried terms are not those of the pods on the rows")
    for group_key, group in index.classes().items():
        compare(f"pod class {group.namespace} {group.labels}", group.by_row, classes.get(group_key, {}))
    for carried_key, term in index.carried().items():
        compare(f"carried term {term.term}", term.by_row, carried.get(carried_key, {}))
        problems += _check_counter(table, term)
    for pod_set, counter in index.sets().items():
        # By class, not by pod: the classes were compared above.
        want: Tally[int] = Tally()
        for group in index.classes().values():
            if pod_set.means(group.namespace, group.labels, group.terminating):
                want.update(group.by_row)
        compare(f"counted rule {pod_set.terms}", counter.by_row, want)
        problems += _check_counter(table, counter)
    return problems


def _check_counter(table: NodeTable, counter: Counter) -> list[str]:
    problems = []
    if counter.total != sum(counter.by_row.values()) or not counter.live:
        problems.append(f"term index: a counter's total is {counter.total}, its rows are {counter.by_row}")
    dense = counter.dense(table.capacity)
    if {int(row): int(dense[row]) for row in np.flatnonzero(dense)} != counter.by_row:
        problems.append(f"term index: a counter's array differs from its rows {counter.by_row}")
    for domains in counter.domains.values():
        problems += _check_domains(table, domains, counter)
    return problems


def _check_domains(table: NodeTable, domains: DomainCounts, counter: Counter) -> list[str]:
    domains.sync()
    want: Tally[str] = Tally()
    seen = set()
    for info in table.all_infos():
        value = info.labels.get(domains.key)
        if value is not None:
            seen.add(value)
            want[value] += counter.by_row.get(info.row, 0)
    column = domains.column
    got = {column.values[code]: int(domains.counts[code]) for code in np.flatnonzero(domains.present).tolist()}
    if got.keys() != seen or any(got[value] != want[value] for value in seen):
        return [f"term index: domains of {domains.key} are {got}, recounted {dict(want)}"]
    if domains.total != sum(got.values()) or int(domains.counts[ABSENT]) or domains.places != len(seen):
        return [f"term index: the totals of {domains.key} are wrong"]
    return []
