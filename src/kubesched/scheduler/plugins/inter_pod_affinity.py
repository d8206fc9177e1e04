"""InterPodAffinity: pods that want to be near other pods, or away from them, required and preferred.

PreFilter (with AddPod and RemovePod), Filter, PreScore, Score, NormalizeScore (rules/topology §A.1 to §A.11).
All counts over pods are read from the term index (``nodes.term_index``), summed per domain of a topology
(:mod:`.affinity_rules`). Answers about a node depend on other nodes. For pods that are alike the answers are kept, and
computed again in the domains that changed. A pod that no rule concerns costs a few lookups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Final

import numpy as np

from kubesched.api.types import Labels

from ..config.args import InterPodAffinityArgs
from ..framework.demand import Demand
from ..framework.events import ClusterEventWithHint
from ..framework.interface import Handle, Plugin
from ..framework.question import IntArray, Question, RowArray, VerdictArray
from ..framework.status import Status
from ..nodes.columns import ABSENT, NO_ROWS, IntpArray, LabelColumn, joined
from ..nodes.nodeinfo import NodeInfo
from ..nodes.podinfo import AffinityTerms, PodInfo
from ..nodes.term_index import CarriedTerm, Role, TermIndex
from . import inter_pod_affinity_hints
from .affinity_rules import DomainSums, Rules
from .demands import between_pods

if TYPE_CHECKING:
    from ..nodes import NodeList, NodeTable

__all__ = ["InterPodAffinity"]

_AFFINITY: Final = 1
_ANTI_AFFINITY: Final = 2
_EXISTING: Final = 3
#: Most distinct sets of terms whose compiled rules are kept.
_MOST_RULES: Final = 4096


class _Neighbours(Question):
    """Question about a pod's rules for pods on nodes, and their rules for the pod.

    Arrays are shared with the index and never changed. Pods of a what-if, which come or leave, are counted in
    ``_added``.
    """

    is_local = False

    def __init__(self, plugin: InterPodAffinity, pod: PodInfo, nodes: NodeTable) -> None:
        self._plugin = plugin
        self._pod = pod
        self._nodes = nodes
        self._index = index = nodes.terms
        terms = pod.affinity_terms
        self.key = None if terms.errors else (pod.namespace, frozenset(pod.labels.items()), terms)
        #: Versions of the index in which the terms of pods on nodes were looked up, for Filter and for Score.
        self._filter_versions = self._score_versions = _versions(index)
        self._rules: Rules | None = None
        #: Anti-affinity terms of pods on nodes that match the pod.
        self._anti_terms: list[CarriedTerm] = []
        self._affinity, self._anti, self._existing = DomainSums(), DomainSums(), DomainSums()
        #: Number of pods that meet all required affinity terms, on nodes with at least one of the terms' topology keys.
        self._affinity_total = 0
        self._meets_itself = False
        #: Changes of counts by (kind of term, topology key, value).
        self._added: dict[tuple[int, str, str], int] = {}
        #: Terms of pods on nodes that match the pod and count for scores.
        self._scoring_terms: list[CarriedTerm] = []
        self._sums = DomainSums()
        self._counts_any = False
        #: Growth common to every node's sum. Scores leave it out, since normalisation would remove it.
        self._shared = 0

    # -- filter ----------------------------------------------------------------------------------------

    def pre_filter(self, nodes: NodeList) -> Status | None:
        pod, index, terms = self._pod, self._index, self._pod.affinity_terms
        if terms.errors:
            text = terms.errors[0] if len(terms.errors) == 1 else f"[{', '.join(terms.errors)}]"
            return Status.unresolvable(f"parsing pod: {text}")
        rules = self._plugin.rules_of(terms, index) if terms.required or terms.required_anti else None
        self._rules, self._filter_versions = rules, _versions(index)
        self._affinity, self._anti, self._existing = DomainSums(), DomainSums(), DomainSums()
        self._anti_terms = _anti_terms(pod, index)
        for carried in self._anti_terms:
            self._existing.add(index, carried, carried.term.topology_key)
        if rules is None:
            return None if self._existing.total else Status.skip()
        for rule in rules.affinity:
            self._affinity.add(index, rule.counter(index), rule.key)
        self._affinity_total = self._affinity.total
        if rules.affinity_set is not None and self._affinity_total == 0:
            self._meets_itself = rules.affinity_set.matches(pod.namespace, pod.labels, False)
        for rule in rules.anti:
            self._anti.add(index, rule.counter(index), rule.key)
        return None

    def changed(self) -> RowArray | None:
        index, versions = self._index, _versions(self._index)
        if self._filter_versions != versions:
            if self._filter_versions[1] != versions[1] or _anti_terms(self._pod, index) != self._anti_terms:
                return None
            self._filter_versions = versions
        if not (self._affinity.by_key or self._anti.by_key or self._existing.by_key):
            return NO_ROWS
        unmatched, unopposed = self._affinity_total == 0, self._existing.total == 0
        touched: list[IntpArray] = []
        for sums in (self._affinity, self._anti, self._existing):
            moved = sums.catch_up(index)
            if moved is None:
                return None
            for topology in moved:
                flipped = [code for code, before, now in topology.domains if (before > 0) != (now > 0)]
                touched += [topology.column.rows_of(code) for code in flipped]
        self._affinity_total = self._affinity.total
        if (self._affinity_total == 0) != unmatched or (self._existing.total == 0) != unopposed:
            return None  # the first pod of a series, or the pod whose PreFilter changed from Skip to Filter or back
        return joined(touched)

    def assuming(self, node: NodeInfo, added: Sequence[PodInfo], removed: Sequence[PodInfo]) -> Question:
        twin = copy(self)
        twin._added = dict(self._added)
        for pods, delta in ((added, 1), (removed, -1)):
            for pod in pods:
                twin._shift(pod, node.labels, delta)
        return twin

    def _shift(self, other: PodInfo, labels: Labels, delta: int) -> None:
        """Count ``other`` as added to (1) or removed from (-1) a node with these labels."""
        pod = self._pod
        if other.affinity_terms.required_anti:
            of_namespace = self._index.namespaces.get(pod.namespace, {})
            for term in other.affinity_terms.required_anti:
                value = labels.get(term.topology_key)
                if value is not None and term.matches(pod.pod, of_namespace):
                    self._add(_EXISTING, term.topology_key, value, delta)
        rules = self._rules
        if rules is None:
            return
        if rules.affinity_set is not None and rules.affinity_set.matches(other.namespace, other.labels, False):
            if not self._meets_itself:
                self._meets_itself = rules.affinity_set.matches(pod.namespace, pod.labels, False)
            for rule in rules.affinity:
                value = labels.get(rule.key)
                if value is not None:
                    self._add(_AFFINITY, rule.key, value, delta)
                    self._affinity_total += delta
        for rule in rules.anti:
            value = labels.get(rule.key)
            if value is not None and rule.pod_set.matches(other.namespace, other.labels, False):
                self._add(_ANTI_AFFINITY, rule.key, value, delta)

    def _add(self, what: int, key: str, value: str, delta: int) -> None:
        place = (what, key, value)
        self._added[place] = self._added.get(place, 0) + delta

    def _is_first_of_its_kind(self) -> bool:
        """True if no pod but the pod itself meets its required affinity. It may then go to any node with the keys."""
        return self._affinity_total == 0 and self._meets_itself

    def verdicts(self, rows: RowArray) -> VerdictArray:
        if self._added:
            info = self._nodes.info
            return np.array([self.verdict(info(row)) for row in rows.tolist()], np.uint64)
        verdicts = np.zeros(len(rows), np.uint8)
        for column, counts in self._existing.by_key.values():
            verdicts[(counts > 0)[column.at(rows)]] = _EXISTING
        for column, counts in self._anti.by_key.values():
            verdicts[(counts > 0)[column.at(rows)]] = _ANTI_AFFINITY
        if self._affinity.by_key:
            first = self._is_first_of_its_kind()
            for column, counts in self._affinity.by_key.values():
                lacking = counts <= 0
                if first:
                    lacking[:] = False
                lacking[-1] = True  # no such label
                verdicts[lacking[column.at(rows)]] = _AFFINITY
        return verdicts.astype(np.uint64)

    def verdict(self, node: NodeInfo) -> int:
        """Judge one node, in plain Python, with the pods that were added and removed."""
        row, labels, added = node.row, node.labels, self._added
        affinity, existing = self._affinity.by_key, self._existing.by_key

        def count(what: int, key: str, column: LabelColumn, counts: IntArray) -> int:
            return int(counts[column.codes[row]]) + added.get((what, key, labels[key]), 0)

        if affinity:
            if any(key not in labels for key in affinity):
                return _AFFINITY
            lacking = any(count(_AFFINITY, key, *known) <= 0 for key, known in affinity.items())
            if lacking and not self._is_first_of_its_kind():
                return _AFFINITY
        for key, known in self._anti.by_key.items():
            if key in labels and count(_ANTI_AFFINITY, key, *known) > 0:
                return _ANTI_AFFINITY
        for key, (column, counts) in existing.items():
            if key in labels and count(_EXISTING, key, column, counts) > 0:
                return _EXISTING
        for (what, key, value), delta in added.items():
            if what == _EXISTING and delta > 0 and key not in existing and labels.get(key) == value:
                return _EXISTING
        return 0

    def why(self, verdict: int) -> Status:
        if verdict == _AFFINITY:
            return Status.unresolvable(InterPodAffinity.REASON_AFFINITY)
        is_anti = verdict == _ANTI_AFFINITY
        return Status.unschedulable(
            InterPodAffinity.REASON_ANTI_AFFINITY if is_anti else InterPodAffinity.REASON_EXISTING
        )

    # -- score -----------------------------------------------------------------------------------------

    def pre_score(self, nodes: NodeList) -> Status | None:
        pod, index, plugin = self._pod, self._index, self._plugin
        terms, self._score_versions = pod.affinity_terms, _versions(index)
        own = bool(terms.preferred or terms.preferred_anti)
        self._sums, self._scoring_terms, self._counts_any, self._shared = DomainSums(), [], False, 0
        if not own and (plugin.ignores_existing or not index.has_scoring):
            return Status.skip()
        if terms.errors:
            return Status.from_error(f"parsing pod: {terms.errors[0]}")
        self._scoring_terms = self._carried(own)
        for carried in self._scoring_terms:
            weight = plugin.hard_weight if carried.role is Role.HARD else carried.weight
            self._sums.add(index, carried, carried.term.topology_key, weight)
        if own:
            for rule in plugin.rules_of(terms, index).preferred:
                self._sums.add(index, rule.counter(index), rule.key, rule.weight)
        self._counts_any = self._sums.total > 0
        return None if self._counts_any else Status.skip()

    def _carried(self, own: bool) -> list[CarriedTerm]:
        """Return the terms of pods on nodes that match the pod and count for scores. ``own``: the pod itself has
        preferences.
        """
        pod, index, plugin = self._pod, self._index, self._plugin
        if not index.has_scoring or (plugin.ignores_existing and not own):
            return []
        found = index.scoring_terms(pod.namespace, pod.labels)
        return found if plugin.hard_weight > 0 else [carried for carried in found if carried.role is not Role.HARD]

    def rescored(self, *, same: bool) -> RowArray | None:
        terms, versions = self._pod.affinity_terms, _versions(self._index)
        if self._score_versions != versions:
            own = bool(terms.preferred or terms.preferred_anti)
            if self._score_versions[1] != versions[1] or self._carried(own) != self._scoring_terms:
                return None
            self._score_versions = versions
        if not self._sums.by_key:
            return NO_ROWS
        moved = self._sums.catch_up(self._index)
        if moved is None or (self._sums.total > 0) != self._counts_any:
            return None
        touched: list[IntpArray] = []
        nodes = len(self._nodes)
        for column, domains in moved:
            for code, before, now in domains:
                rows = column.rows_of(code)
                if len(rows) == nodes:  # all nodes are in one domain, such as one region
                    self._shared += now - before
                else:
                    touched.append(rows)
        return joined(touched)

    def scores(self, rows: RowArray) -> IntArray:
        scores: IntArray | None = None
        for column, counts in self._sums.by_key.values():
            part: IntArray = counts.take(column.at(rows), mode="wrap")  # the code -1 reads the end
            scores = part if scores is None else scores + part
        return scores - self._shared if scores is not None else np.zeros(len(rows), np.int64)

    def score(self, node: NodeInfo) -> int:
        total = -self._shared
        for column, counts in self._sums.by_key.values():
            code = column.codes[node.row]
            if code != ABSENT:
                total += int(counts[code])
        return total

    @staticmethod
    def normalized(scores: IntArray, low: int, high: int) -> IntArray:
        if low == high:
            return np.zeros(len(scores), np.int64)
        # Divide first, multiply second, cut off last: with integers some results would differ by one.
        scaled = (scores - low).astype(np.float64)
        scaled /= float(high - low)
        scaled *= 100.0
        return scaled.astype(np.int64)


def _versions(index: TermIndex) -> tuple[int, int]:
    """Versions that grow when the set of terms of pods on nodes that match a pod may change."""
    return index.carried_version, index.namespace_version


def _anti_terms(pod: PodInfo, index: TermIndex) -> list[CarriedTerm]:
    return index.anti_terms(pod.namespace, pod.labels) if index.has_anti else []


class InterPodAffinity(Plugin):
    """Pod affinity and anti-affinity over the term index. Its question is :class:`_Neighbours`."""

    name = "InterPodAffinity"
    asks = _Neighbours
    REASON_AFFINITY: Final = "node(s) didn't match pod affinity rules"
    REASON_ANTI_AFFINITY: Final = "node(s) didn't match pod anti-affinity rules"
    REASON_EXISTING: Final = "node(s) didn't satisfy existing pods anti-affinity rules"

    def __init__(self, args: InterPodAffinityArgs | None, handle: Handle) -> None:
        super().__init__(args, handle)
        args = args if args is not None else InterPodAffinityArgs()
        self.hard_weight = args.hard_pod_affinity_weight
        self.ignores_existing = args.ignore_preferred_terms_of_existing_pods
        self._rules: dict[AffinityTerms, Rules] = {}

    def _index(self) -> TermIndex:
        return self.handle.snapshot.table.terms

    def rules_of(self, terms: AffinityTerms, index: TermIndex) -> Rules:
        """Return the compiled rules of pods with these terms."""
        rules = self._rules.get(terms)
        if rules is None or rules.namespace_version != index.namespace_version:
            if len(self._rules) >= _MOST_RULES:
                self._rules.clear()
            rules = self._rules[terms] = Rules(terms, index)
        return rules

    def ask(self, pod: PodInfo, nodes: NodeTable) -> Question | None:
        index = nodes.terms
        if not (pod.has_affinity or _anti_terms(pod, index)):
            if self.ignores_existing or not index.has_scoring:
                return None
            if not index.scoring_terms(pod.namespace, pod.labels):
                return None
        return _Neighbours(self, pod, nodes)

    # -- queue -----------------------------------------------------------------------------------------

    def demands(self, pod: PodInfo, nodes: NodeTable) -> Iterable[Demand]:
        return between_pods.near_and_far(pod, nodes)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return inter_pod_affinity_hints.events(self._index)
