"""InterPodAffinity: pods that want to be near other pods, or away from them, required and preferred.

PreFilter (with AddPod and RemovePod), Filter, PreScore, Score, NormalizeScore (spec "Topology plugins" part A).
Everything that is counted over pods is read from the term index (``cache.term_index``), summed per domain of a
topology (:mod:`.affinity_rules`). The plugin does not sign: its answers about a node depend on other nodes. For
identical pods they are cached all the same, and computed again in the domains that changed
(``refresh_…``). For a pod that no rule concerns a few lookups suffice (Skip).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from kubesched.api.types import Labels
from kubesched.cache.columns import ABSENT, NO_ROWS, IntpArray, LabelColumn, joined
from kubesched.cache.term_index import CarriedTerm, Role, TermIndex
from kubesched.config.args import InterPodAffinityArgs
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import ClusterEventWithHint
from kubesched.framework.interface import Handle, IntArray, Plugin, RowArray, VerdictArray
from kubesched.framework.nodeinfo import NodeInfo
from kubesched.framework.podinfo import AffinityTerms, PodInfo
from kubesched.framework.status import Status

from . import inter_pod_affinity_hints, names
from .affinity_rules import DomainSums, Moved, Rules

if TYPE_CHECKING:
    from kubesched.cache import NodeList, NodeTable

__all__ = ["InterPodAffinity"]

_AFFINITY: Final = 1
_ANTI_AFFINITY: Final = 2
_EXISTING: Final = 3
_SCORE_KEY: Final = f"PreScore{names.INTER_POD_AFFINITY}"
#: How many pods' compiled rules are kept.
_MOST_RULES: Final = 4096


class _FilterState:
    """What Filter needs; the arrays are shared with the index and never changed, AddPod and RemovePod go to ``added``."""

    __slots__ = ("added", "affinity", "affinity_total", "anti", "carried", "existing", "meets_itself", "rules", "versions")  # fmt: skip

    def __init__(self, rules: Rules | None, versions: tuple[int, int]) -> None:
        self.rules = rules
        self.versions = versions
        #: The anti-affinity terms of pods on nodes that match the pod.
        self.carried: list[CarriedTerm] = []
        self.affinity = DomainSums()
        self.anti = DomainSums()
        self.existing = DomainSums()
        #: Pods on a node with at least one of the affinity keys that meet all required affinity terms.
        self.affinity_total = 0
        self.meets_itself = False
        #: (what is counted, topology key, value) to change.
        self.added: dict[tuple[int, str, str], int] = {}

    def clone(self) -> _FilterState:
        twin = _FilterState(self.rules, self.versions)
        twin.affinity, twin.anti, twin.existing, twin.carried = self.affinity, self.anti, self.existing, self.carried
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

    def catch_up(self, index: TermIndex) -> RowArray | None:
        """Read the current counts; the rows whose verdict changed by it, None when they cannot be known."""
        if not (self.affinity.by_key or self.anti.by_key or self.existing.by_key):
            return NO_ROWS
        unmatched, unopposed = self.affinity_total == 0, self.existing.total == 0
        touched: list[IntpArray] = []
        for sums in (self.affinity, self.anti, self.existing):
            moved = sums.catch_up(index)
            if moved is None:
                return None
            for topology in moved:
                flipped = [code for code, before, now in topology.domains if (before > 0) != (now > 0)]
                touched += [topology.column.rows_of(code) for code in flipped]
        self.affinity_total = self.affinity.total
        if (self.affinity_total == 0) != unmatched or (self.existing.total == 0) != unopposed:
            return None  # the first pod of a series, or from Skip to Filter and back
        return joined(touched)


class _ScoreState:
    """What Score needs."""

    __slots__ = ("carried", "counts_any", "shared", "sums", "versions")

    def __init__(self, index: TermIndex) -> None:
        self.versions = _versions(index)
        #: The terms of pods on nodes that match the pod and count.
        self.carried: list[CarriedTerm] = []
        self.sums = DomainSums()
        #: What the sum of every node has grown by. Scores leave it out: normalised, they are the same.
        self.shared = 0
        #: Whether any pod is counted.
        self.counts_any = False


def _versions(index: TermIndex) -> tuple[int, int]:
    """Grow when other terms of pods on nodes may match a pod."""
    return index.carried_version, index.namespace_version


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
        self._rules: dict[AffinityTerms, Rules] = {}
        self._terms: TermIndex | None = None

    def _index(self) -> TermIndex:
        index = self._terms
        if index is None:
            index = self._terms = self.handle.snapshot.table.terms
        return index

    def _rules_of(self, terms: AffinityTerms, index: TermIndex) -> Rules:
        rules = self._rules.get(terms)
        if rules is None or rules.namespace_version != index.namespace_version:
            if len(self._rules) >= _MOST_RULES:
                self._rules.clear()
            rules = self._rules[terms] = Rules(terms, index)
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
        rules = self._rules_of(terms, index) if terms.required or terms.required_anti else None
        kept = _FilterState(rules, _versions(index))
        state.write(self.name, kept)
        kept.carried = self._anti_terms(pod, index)
        for carried in kept.carried:
            kept.existing.add(index, carried, carried.term.topology_key)
        if rules is None:
            return None if kept.existing.total else Status.skip()
        for rule in rules.affinity:
            kept.affinity.add(index, rule.counter(index), rule.key)
        kept.affinity_total = kept.affinity.total
        if rules.affinity_set is not None and kept.affinity_total == 0:
            kept.meets_itself = rules.affinity_set.matches(pod.namespace, pod.labels, False)
        for rule in rules.anti:
            kept.anti.add(index, rule.counter(index), rule.key)
        return None

    @staticmethod
    def _anti_terms(pod: PodInfo, index: TermIndex) -> list[CarriedTerm]:
        return index.anti_terms(pod.namespace, pod.labels) if index.has_anti else []

    def interaction_key(self, pod: PodInfo) -> Hashable | None:
        terms = pod.affinity_terms
        return None if terms.errors else (pod.namespace, frozenset(pod.labels.items()), terms)

    def refresh_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> RowArray | None:
        kept: _FilterState = state.read(self.name)
        index = self._index()
        versions = _versions(index)
        if kept.versions != versions:
            if kept.versions[1] != versions[1] or self._anti_terms(pod, index) != kept.carried:
                return None
            kept.versions = versions
        return kept.catch_up(index)

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None:
        self._shift(state.read(self.name), pod, added, node.labels, 1)
        return None

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None:
        self._shift(state.read(self.name), pod, removed, node.labels, -1)
        return None

    def unaffected_by(self, state: CycleState, pod: PodInfo, other: PodInfo) -> bool:
        terms = other.affinity_terms.required_anti
        if terms:
            of_namespace = self._index().namespaces.get(pod.namespace, {})
            if any(term.matches(pod.pod, of_namespace) for term in terms):
                return False
        kept: _FilterState = state.read(self.name)
        rules = kept.rules
        if rules is None:
            return True
        sets = [rule.pod_set for rule in rules.anti]
        if rules.affinity_set is not None:
            sets.append(rules.affinity_set)
        return not any(each.matches(other.namespace, other.labels, False) for each in sets)

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
        if rules.affinity_set is not None and rules.affinity_set.matches(other.namespace, other.labels, False):
            if not kept.meets_itself:
                kept.meets_itself = rules.affinity_set.matches(pod.namespace, pod.labels, False)
            for rule in rules.affinity:
                value = labels.get(rule.key)
                if value is not None:
                    kept.shift(_AFFINITY, rule.key, value, delta)
        for rule in rules.anti:
            value = labels.get(rule.key)
            if value is not None and rule.pod_set.matches(other.namespace, other.labels, False):
                kept.shift(_ANTI_AFFINITY, rule.key, value, delta)

    def filter_rows(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> VerdictArray:
        kept: _FilterState = state.read(self.name)
        if kept.added:
            return np.array([self._verdict(kept, nodes.info(row)) for row in rows.tolist()], np.uint64)
        verdicts = np.zeros(len(rows), np.uint8)
        for column, counts in kept.existing.by_key.values():
            verdicts[(counts > 0)[column.at(rows)]] = _EXISTING
        for column, counts in kept.anti.by_key.values():
            verdicts[(counts > 0)[column.at(rows)]] = _ANTI_AFFINITY
        if kept.affinity.by_key:
            first = kept.first_of_its_kind()
            for column, counts in kept.affinity.by_key.values():
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
        affinity, existing = kept.affinity.by_key, kept.existing.by_key

        def count(what: int, key: str, column: LabelColumn, counts: IntArray) -> int:
            return int(counts[column.codes[row]]) + added.get((what, key, labels[key]), 0)

        if affinity:
            if any(key not in labels for key in affinity):
                return _AFFINITY
            lacking = any(count(_AFFINITY, key, *known) <= 0 for key, known in affinity.items())
            if lacking and not kept.first_of_its_kind():
                return _AFFINITY
        for key, known in kept.anti.by_key.items():
            if key in labels and count(_ANTI_AFFINITY, key, *known) > 0:
                return _ANTI_AFFINITY
        for key, (column, counts) in existing.items():
            if key in labels and count(_EXISTING, key, column, counts) > 0:
                return _EXISTING
        for (what, key, value), delta in added.items():
            if what == _EXISTING and delta > 0 and key not in existing and labels.get(key) == value:
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
        kept = _ScoreState(index)
        state.write(_SCORE_KEY, kept)
        if not own and (self._ignore_existing or not index.has_scoring):
            return Status.skip()
        if terms.errors:
            return Status.from_error(f"parsing pod: {terms.errors[0]}")
        kept.carried = self._scoring_terms(pod, index, own)
        for carried in kept.carried:
            weight = self._hard_weight if carried.role is Role.HARD else carried.weight
            kept.sums.add(index, carried, carried.term.topology_key, weight)
        if own:
            for rule in self._rules_of(terms, index).preferred:
                kept.sums.add(index, rule.counter(index), rule.key, rule.weight)
        kept.counts_any = kept.sums.total > 0
        return None if kept.counts_any else Status.skip()

    def _scoring_terms(self, pod: PodInfo, index: TermIndex, own: bool) -> list[CarriedTerm]:
        """The terms of pods on nodes that match the pod and count; ``own``: it has preferences itself."""
        if not index.has_scoring or (self._ignore_existing and not own):
            return []
        found = index.scoring_terms(pod.namespace, pod.labels)
        return found if self._hard_weight > 0 else [carried for carried in found if carried.role is not Role.HARD]

    def _moved(self, state: CycleState, pod: PodInfo) -> list[Moved] | None:
        """Bring what PreScore kept up to date; the sums that changed, None when it has to be called again."""
        kept: _ScoreState = state.read(_SCORE_KEY)
        index, terms = self._index(), pod.affinity_terms
        versions = _versions(index)
        if kept.versions != versions:
            own = bool(terms.preferred or terms.preferred_anti)
            if kept.versions[1] != versions[1] or self._scoring_terms(pod, index, own) != kept.carried:
                return None
            kept.versions = versions
        if not kept.sums.by_key:
            return []
        moved = kept.sums.catch_up(index)
        return moved if (kept.sums.total > 0) == kept.counts_any else None

    def refresh_scores(self, state: CycleState, pod: PodInfo, nodes: NodeTable, same: bool) -> RowArray | None:
        moved = self._moved(state, pod)
        if moved is None:
            return None
        kept: _ScoreState = state.read(_SCORE_KEY)
        touched: list[IntpArray] = []
        for column, domains in moved:
            for code, before, now in domains:
                rows = column.rows_of(code)
                if len(rows) == len(nodes):  # such as the only region
                    kept.shared += now - before
                else:
                    touched.append(rows)
        return joined(touched)

    def score_rows(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> IntArray:
        kept: _ScoreState = state.read(_SCORE_KEY)
        scores: IntArray | None = None
        for column, counts in kept.sums.by_key.values():
            part: IntArray = counts.take(column.at(rows), mode="wrap")  # the code -1 reads the end
            scores = part if scores is None else scores + part
        return scores - kept.shared if scores is not None else np.zeros(len(rows), np.int64)

    def score_row(self, state: CycleState, pod: PodInfo, nodes: NodeTable, node: NodeInfo) -> int:
        kept: _ScoreState = state.read(_SCORE_KEY)
        total = -kept.shared
        for column, counts in kept.sums.by_key.values():
            code = column.codes[node.row]
            if code != ABSENT:
                total += int(counts[code])
        return total

    def normalize_within(self, scores: IntArray, low: int, high: int) -> IntArray:
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
