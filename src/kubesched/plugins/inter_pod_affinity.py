"""InterPodAffinity: pods that want to be near other pods, or away from them, required and preferred.

PreFilter (with AddPod and RemovePod), Filter, PreScore, Score, NormalizeScore (spec "Topology plugins" part A).
Everything that is counted over pods comes from the term index (``cache.term_index``); a cycle costs a few
vector operations over the nodes asked about, whatever the number of pods. The plugin does not sign: its
answers about a node depend on other nodes. A pod that no rule concerns is told so by a few lookups (Skip).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from kubesched.api.types import Labels
from kubesched.cache.columns import ABSENT, LabelColumn
from kubesched.cache.domain_counts import Counter, DomainCounts
from kubesched.cache.term_index import PodSet, Role, TermIndex
from kubesched.config.args import InterPodAffinityArgs
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import ClusterEventWithHint
from kubesched.framework.interface import Handle, IntArray, Plugin, RowArray, VerdictArray
from kubesched.framework.nodeinfo import NodeInfo
from kubesched.framework.podinfo import AffinityTerm, AffinityTerms, PodInfo
from kubesched.framework.status import Status

from . import inter_pod_affinity_hints, names

if TYPE_CHECKING:
    from kubesched.cache import NodeList, NodeTable

__all__ = ["InterPodAffinity"]

_AFFINITY: Final = 1
_ANTI_AFFINITY: Final = 2
_EXISTING: Final = 3
_SCORE_KEY: Final = f"PreScore{names.INTER_POD_AFFINITY}"
#: How many pods' compiled rules are kept.
_MOST_RULES: Final = 4096

#: Topology key to the label's column and int64[codes + 1]: a number per domain, the last one for "no such label".
_PerDomain = dict[str, tuple[LabelColumn, IntArray]]


class _Rule:
    """One of an incoming pod's terms: which pods it counts, in which topology."""

    __slots__ = ("_counter", "key", "pod_set", "weight")

    def __init__(self, key: str, pod_set: PodSet, weight: int = 0) -> None:
        self.key = key
        self.pod_set = pod_set
        self.weight = weight
        self._counter: Counter | None = None

    def domains(self, index: TermIndex) -> DomainCounts:
        """How many pods it counts per domain, now."""
        counter = self._counter
        if counter is None or not index.touch(counter):
            counter = self._counter = index.counter(self.pod_set)
        return index.domains(counter, self.key)


class _Rules:
    """The terms of pods that say the same, with namespaces resolved as of ``namespace_version``."""

    def __init__(self, terms: AffinityTerms, index: TermIndex) -> None:
        self.namespace_version = index.namespace_version

        def means(listed: Iterable[AffinityTerm]) -> PodSet:
            return PodSet(tuple([(index.resolve(term), term.selector) for term in listed]), terminating=True)

        #: All required affinity terms have to mean a pod for it to count, so there is one set for all of them.
        self.affinity_set = means(terms.required) if terms.required else None
        self.affinity: tuple[_Rule, ...] = ()
        if self.affinity_set is not None:
            keys = dict.fromkeys(term.topology_key for term in terms.required)
            self.affinity = tuple([_Rule(key, self.affinity_set) for key in keys])
        self.anti = tuple([_Rule(term.topology_key, means((term,))) for term in terms.required_anti])
        soft = [(item.weight, item.term) for item in terms.preferred]
        soft += [(-item.weight, item.term) for item in terms.preferred_anti]
        self.preferred = tuple([_Rule(term.topology_key, means((term,)), weight) for weight, term in soft])


class _FilterState:
    """What Filter needs; the arrays are shared with the index and never changed, AddPod and RemovePod go to ``added``."""

    __slots__ = ("added", "affinity", "affinity_total", "anti", "existing", "meets_itself", "rules")

    def __init__(self, rules: _Rules | None) -> None:
        self.rules = rules
        self.affinity: _PerDomain = {}
        self.anti: _PerDomain = {}
        self.existing: _PerDomain = {}
        #: Pods on a node with at least one of the affinity keys that meet all required affinity terms.
        self.affinity_total = 0
        self.meets_itself = False
        #: (what is counted, topology key, value) to change.
        self.added: dict[tuple[int, str, str], int] = {}

    def clone(self) -> _FilterState:
        twin = _FilterState(self.rules)
        twin.affinity, twin.anti, twin.existing = self.affinity, self.anti, self.existing
        twin.affinity_total, twin.meets_itself = self.affinity_total, self.meets_itself
        twin.added = dict(self.added)
        return twin

    def shift(self, what: int, key: str, value: str, delta: int) -> None:
        place = (what, key, value)
        self.added[place] = self.added.get(place, 0) + delta
        if what == _AFFINITY:
            self.affinity_total += delta

    def first_of_its_kind(self) -> bool:
        """No pod anywhere meets the required affinity, and the pod itself does: it may go anywhere with the keys."""
        return self.affinity_total == 0 and self.meets_itself


def _accumulate(sums: _PerDomain, domains: DomainCounts, weight: int = 1) -> None:
    """Add a rule's counts to what is known of its topology key."""
    known = sums.get(domains.key)
    counts = domains.counts if weight == 1 else domains.counts * weight
    sums[domains.key] = (domains.column, counts if known is None else known[1] + counts)


class InterPodAffinity(Plugin):
    """Pod affinity and anti-affinity over the term index."""

    name = names.INTER_POD_AFFINITY
    REASON_AFFINITY: Final = "node(s) didn't match pod affinity rules"
    REASON_ANTI_AFFINITY: Final = "node(s) didn't match pod anti-affinity rules"
    REASON_EXISTING: Final = "node(s) didn't satisfy existing pods anti-affinity rules"

    def __init__(self, args: InterPodAffinityArgs | None, handle: Handle) -> None:
        super().__init__(args, handle)
        args = args if args is not None else InterPodAffinityArgs()
        self._hard_weight = args.hard_pod_affinity_weight
        self._ignore_existing = args.ignore_preferred_terms_of_existing_pods
        self._rules: dict[AffinityTerms, _Rules] = {}
        self._terms: TermIndex | None = None

    def _index(self) -> TermIndex:
        index = self._terms
        if index is None:
            index = self._terms = self.handle.snapshot.table.terms
        return index

    def _rules_of(self, terms: AffinityTerms, index: TermIndex) -> _Rules:
        rules = self._rules.get(terms)
        if rules is None or rules.namespace_version != index.namespace_version:
            if len(self._rules) >= _MOST_RULES:
                self._rules.clear()
            rules = self._rules[terms] = _Rules(terms, index)
        return rules

    def skips(self, pod: PodInfo) -> bool:
        if pod.has_affinity:
            return False
        index = self._index()
        if index.has_anti and index.anti_terms(pod.namespace, pod.labels):
            return False
        if self._ignore_existing or not index.has_scoring:
            return True
        return not index.scoring_terms(pod.namespace, pod.labels)

    # -- filter ----------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeList) -> frozenset[str] | Status | None:
        terms, index = pod.affinity_terms, self._index()
        if terms.errors:
            text = terms.errors[0] if len(terms.errors) == 1 else f"[{', '.join(terms.errors)}]"
            return Status.unresolvable(f"parsing pod: {text}")
        existing: _PerDomain = {}
        if index.has_anti:
            for carried in index.anti_terms(pod.namespace, pod.labels):
                domains = index.domains(carried, carried.term.topology_key)
                if domains.total:
                    _accumulate(existing, domains)
        if not terms.required and not terms.required_anti:
            if not existing:
                return Status.skip()
            kept = _FilterState(None)
        else:
            rules = self._rules_of(terms, index)
            kept = _FilterState(rules)
            for rule in rules.affinity:
                domains = rule.domains(index)
                kept.affinity[rule.key] = (domains.column, domains.counts)
                kept.affinity_total += domains.total
            if rules.affinity_set is not None and kept.affinity_total == 0:
                kept.meets_itself = rules.affinity_set.means(pod.namespace, pod.labels, False)
            for rule in rules.anti:
                _accumulate(kept.anti, rule.domains(index))
        kept.existing = existing
        state.write(self.name, kept)
        return None

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None:
        self._shift(state.read(self.name), pod, added, node.labels, 1)
        return None

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None:
        self._shift(state.read(self.name), pod, removed, node.labels, -1)
        return None

    def _shift(self, kept: _FilterState, pod: PodInfo, other: PodInfo, labels: Labels, delta: int) -> None:
        """What if ``other`` came to (1) or left (-1) a node with these labels?"""
        if other.affinity_terms.required_anti:
            of_namespace = self._index().namespaces.get(pod.namespace, {})
            for term in other.affinity_terms.required_anti:
                value = labels.get(term.topology_key)
                if value is not None and term.matches(pod.pod, of_namespace):
                    kept.shift(_EXISTING, term.topology_key, value, delta)
        rules = kept.rules
        if rules is None:
            return
        if rules.affinity_set is not None and rules.affinity_set.means(other.namespace, other.labels, False):
            if not kept.meets_itself:
                kept.meets_itself = rules.affinity_set.means(pod.namespace, pod.labels, False)
            for rule in rules.affinity:
                value = labels.get(rule.key)
                if value is not None:
                    kept.shift(_AFFINITY, rule.key, value, delta)
        for rule in rules.anti:
            value = labels.get(rule.key)
            if value is not None and rule.pod_set.means(other.namespace, other.labels, False):
                kept.shift(_ANTI_AFFINITY, rule.key, value, delta)

    def filter_rows(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> VerdictArray:
        kept: _FilterState = state.read(self.name)
        if kept.added:
            return np.array([self._verdict(kept, nodes.info(row)) for row in rows.tolist()], np.uint64)
        verdicts = np.zeros(len(rows), np.uint8)
        for column, counts in kept.existing.values():
            verdicts[(counts > 0)[column.at(rows)]] = _EXISTING
        for column, counts in kept.anti.values():
            verdicts[(counts > 0)[column.at(rows)]] = _ANTI_AFFINITY
        if kept.affinity:
            first = kept.first_of_its_kind()
            for column, counts in kept.affinity.values():
                lacking = counts <= 0
                if first:
                    lacking[:] = False
                lacking[-1] = True  # no such label
                verdicts[lacking[column.at(rows)]] = _AFFINITY
        return verdicts.astype(np.uint64)

    def filter_row(self, state: CycleState, pod: PodInfo, nodes: NodeTable, node: NodeInfo) -> int:
        return self._verdict(state.read(self.name), node)

    @staticmethod
    def _verdict(kept: _FilterState, node: NodeInfo) -> int:
        """One node, in plain Python, with what was added and removed."""
        row, labels, added = node.row, node.labels, kept.added

        def count(what: int, key: str, column: LabelColumn, counts: IntArray) -> int:
            return int(counts[column.codes[row]]) + added.get((what, key, labels[key]), 0)

        if kept.rules is not None and kept.affinity:
            if any(key not in labels for key in kept.affinity):
                return _AFFINITY
            lacking = any(count(_AFFINITY, key, *known) <= 0 for key, known in kept.affinity.items())
            if lacking and not kept.first_of_its_kind():
                return _AFFINITY
        for key, known in kept.anti.items():
            if key in labels and count(_ANTI_AFFINITY, key, *known) > 0:
                return _ANTI_AFFINITY
        for key, (column, counts) in kept.existing.items():
            if key in labels and count(_EXISTING, key, column, counts) > 0:
                return _EXISTING
        for (what, key, value), delta in added.items():
            if what == _EXISTING and delta > 0 and key not in kept.existing and labels.get(key) == value:
                return _EXISTING
        return 0

    def verdict_status(self, state: CycleState, pod: PodInfo, verdict: int) -> Status:
        if verdict == _AFFINITY:
            return Status.unresolvable(self.REASON_AFFINITY)
        return Status.unschedulable(self.REASON_ANTI_AFFINITY if verdict == _ANTI_AFFINITY else self.REASON_EXISTING)

    # -- score -----------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeList) -> Status | None:
        terms, index = pod.affinity_terms, self._index()
        own = bool(terms.preferred or terms.preferred_anti)
        if not own and (self._ignore_existing or not index.has_scoring):
            return Status.skip()
        if terms.errors:
            return Status.from_error(f"parsing pod: {terms.errors[0]}")
        sums: _PerDomain = {}
        if index.has_scoring:
            for carried in index.scoring_terms(pod.namespace, pod.labels):
                weight = self._hard_weight if carried.role is Role.HARD else carried.weight
                if carried.role is Role.HARD and weight <= 0:
                    continue
                domains = index.domains(carried, carried.term.topology_key)
                if domains.total:
                    _accumulate(sums, domains, weight)
        if own:
            for rule in self._rules_of(terms, index).preferred:
                domains = rule.domains(index)
                if domains.total:
                    _accumulate(sums, domains, rule.weight)
        if not sums:
            return Status.skip()
        state.write(_SCORE_KEY, sums)
        return None

    def score_rows(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> IntArray:
        sums: _PerDomain = state.read(_SCORE_KEY)
        scores: IntArray | None = None
        for column, counts in sums.values():
            part: IntArray = counts[column.at(rows)]
            scores = part if scores is None else scores + part
        return scores if scores is not None else np.zeros(len(rows), np.int64)

    def score_row(self, state: CycleState, pod: PodInfo, nodes: NodeTable, node: NodeInfo) -> int:
        sums: _PerDomain = state.read(_SCORE_KEY)
        return sum(
            int(counts[column.codes[node.row]]) for column, counts in sums.values() if column.codes[node.row] != ABSENT
        )

    def normalize_score(self, state: CycleState, pod: PodInfo, nodes: NodeList, scores: IntArray) -> IntArray | Status:
        low, high = int(scores.min()), int(scores.max())
        if low == high:
            return np.zeros(len(scores), np.int64)
        # Divide first, multiply second, cut off last: with integers some results would differ by one.
        scaled = (scores - low).astype(np.float64)
        scaled /= float(high - low)
        scaled *= 100.0
        return scaled.astype(np.int64)

    # -- queue -----------------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return inter_pod_affinity_hints.events(self._index)
