"""Term index: the number of pods that a rule between pods matches, per row and per domain, kept up to date.

It has three parts. The node table updates all of them when a pod is added or removed, also in a what-if:

* **Pod classes.** Pods that no rule can distinguish (same namespace and labels, both or neither being deleted) share a
  class, which has a count per row. Rules are matched against classes, not against pods.
* **Counted rules** (:class:`PodSet`). A rule is registered when a plugin first needs it: it is matched against the
  classes that are possible. From then on each class knows the rules that count it. Unused rules are dropped.
* **Carried rules**: the affinity and anti-affinity terms of pods on nodes. Each distinct term exists once, with the
  number of its carriers per row. An incoming pod is matched against the terms that are possible.

The index also keeps the labels of namespaces. The plugin that registers a counted rule resolves its namespaceSelector
to names. A carried rule's namespaceSelector is evaluated when an incoming pod is matched.

Picture and figures: ``docs/term-index.md``. Callers: :mod:`.node_table` and :mod:`..cache.cache` (writes), the
topology plugins (reads), :mod:`.check_terms` (recounts).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from kubesched.api.selectors import Selector
from kubesched.api.types import Labels

from .columns import IntArray
from .domain_counts import Counter, DomainCounts, NodeRows
from .placed_pods import Kind
from .podinfo import AffinityTerm, AffinityTerms, PodInfo
from .term_lookup import TermLookup, narrowest

__all__ = ["CarriedTerm", "PodClass", "PodSet", "Role", "TermIndex"]

#: Memory budget for counted rules, in bytes.
_BUDGET: Final = 48 << 20
#: Memory of a counted rule besides its arrays, in bytes.
_RULE_BYTES: Final = 3 << 10
#: Number of counted rules that are always kept, regardless of their memory.
_LEAST_SETS: Final = 64
#: Pods added or removed until a counted rule that was not used meanwhile is dropped.
_AGE: Final = 1 << 16
#: Pods added or removed between two searches for unused rules.
_SWEEP_EVERY: Final = 1 << 13

_ClassKey = tuple[str, frozenset[tuple[str, str]], bool]


class PodSet:
    """Set of pods that a rule counts: the pods that all ``terms`` match. Immutable, hashed once.

    A term is (namespaces, selector); None means all namespaces. ``terminating`` is True if pods that are being deleted
    count.
    """

    __slots__ = ("_hash", "terminating", "terms")

    def __init__(self, terms: tuple[tuple[frozenset[str] | None, Selector], ...], *, terminating: bool) -> None:
        self.terms = terms
        self.terminating = terminating
        self._hash = hash((terms, terminating))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, PodSet):
            return NotImplemented
        return self.terminating == other.terminating and self.terms == other.terms

    def matches(self, namespace: str, labels: Labels, terminating: bool) -> bool:
        """Return True if a pod with these properties is counted."""
        if terminating and not self.terminating:
            return False
        for namespaces, selector in self.terms:
            if (namespaces is not None and namespace not in namespaces) or not selector.matches(labels):
                return False
        return True


class Role(enum.IntEnum):
    """Role of a term for the pod that carries it."""

    #: Required anti-affinity: keeps pods that it matches out of its domain.
    ANTI = 0
    #: Required affinity: counts in scoring with the configured weight.
    HARD = 1
    #: Preferred affinity; or preferred anti-affinity, with a negative weight.
    SOFT = 2


class PodClass:
    """Class of pods that no rule can distinguish.

    ``kind`` is the namespace and labels; ``by_row`` is row to number of pods.
    """

    __slots__ = ("by_row", "counters", "kind", "labels", "namespace", "terminating")

    def __init__(self, kind: Kind, labels: Labels, terminating: bool) -> None:
        self.kind = kind
        self.namespace = kind[0]
        self.labels = labels
        self.terminating = terminating
        self.by_row: dict[int, int] = {}
        #: Counted rules that match these pods.
        self.counters: list[SetCounter] = []


class SetCounter(Counter):
    """Counter of a counted rule, with the classes that the rule counts."""

    __slots__ = ("classes", "pod_set")

    def __init__(self, pod_set: PodSet) -> None:
        super().__init__()
        self.pod_set = pod_set
        self.classes: set[PodClass] = set()


class CarriedTerm(Counter):
    """Counter of a carried term: the number of carriers per row. A pod that lists the term twice counts twice."""

    __slots__ = ("bundles", "role", "term", "weight")

    def __init__(self, role: Role, term: AffinityTerm, weight: int) -> None:
        super().__init__()
        self.role = role
        self.term = term
        self.weight = weight
        #: Term lists that contain the term; they are dropped together with it.
        self.bundles: set[AffinityTerms] = set()


class TermIndex:
    """Term index of one node table: counts of pods by rule."""

    def __init__(self, nodes: NodeRows) -> None:
        self._nodes = nodes
        self._classes: dict[_ClassKey, PodClass] = {}
        #: Classes by namespace and label pair; the pair None has every class of the namespace.
        self._shelves: dict[str, dict[tuple[str, str] | None, dict[PodClass, None]]] = {}
        self._sets: dict[PodSet, SetCounter] = {}
        self._set_lookup: TermLookup[SetCounter] = TermLookup()
        self._carried: dict[tuple[Role, AffinityTerm, int], CarriedTerm] = {}
        self._bundles: dict[AffinityTerms, tuple[CarriedTerm, ...]] = {}
        self._anti: TermLookup[CarriedTerm] = TermLookup()
        self._scoring: TermLookup[CarriedTerm] = TermLookup()
        #: The first is True if a pod on a node carries required anti-affinity, the second if one carries a term that
        #: counts in scoring.
        self.has_anti = self.has_scoring = False
        #: Counters that have domains, and therefore arrays.
        self._awake: dict[Counter, None] = {}
        self._tick = 0
        #: Grows when a carried rule is added or removed, which may change :meth:`anti_terms` and :meth:`scoring_terms`.
        self.carried_version = 0
        self.namespaces: dict[str, Labels] = {}
        #: Grows when a namespace is added, removed or changes its labels.
        self.namespace_version = 0

    # -- pods ------------------------------------------------------------------------------------------

    def add(self, row: int, pod: PodInfo) -> PodClass:
        """Count a pod that was added to a row. Return its class."""
        meta = pod.pod.metadata
        key = (meta.namespace, frozenset(meta.labels.items()), meta.deletion_timestamp is not None)
        group = self._classes.get(key)
        if group is None:
            group = self._new_class(key, meta.labels)
        group.by_row[row] = group.by_row.get(row, 0) + 1
        for counter in group.counters:
            counter.bump(row, 1)
        if pod.has_affinity:
            for carried in self._carried_by(pod.affinity_terms):
                carried.bump(row, 1)
        self._advance()
        return group

    def remove(self, row: int, pod: PodInfo) -> None:
        """Discount a pod that was removed from a row. ``pod`` counts like the pod that was added."""
        meta = pod.pod.metadata
        key = (meta.namespace, frozenset(meta.labels.items()), meta.deletion_timestamp is not None)
        group = self._classes[key]
        count = group.by_row[row] - 1
        if count:
            group.by_row[row] = count
        else:
            del group.by_row[row]
        for counter in group.counters:
            counter.bump(row, -1)
        if not group.by_row:
            self._drop_class(key, group)
        if pod.has_affinity:
            for carried in self._carried_by(pod.affinity_terms):
                carried.bump(row, -1)
                if not carried.total:
                    self._drop_carried(carried)
        self._advance()

    def _new_class(self, key: _ClassKey, labels: Labels) -> PodClass:
        namespace, pairs, terminating = key
        group = self._classes[key] = PodClass((namespace, pairs), labels, terminating)
        shelves = self._shelves.setdefault(namespace, {})
        shelves.setdefault(None, {})[group] = None
        for pair in pairs:
            shelves.setdefault(pair, {})[group] = None
        for counter in self._set_lookup.candidates(namespace, labels):
            if counter.pod_set.matches(namespace, labels, terminating):
                group.counters.append(counter)
                counter.classes.add(group)
        return group

    def _drop_class(self, key: _ClassKey, group: PodClass) -> None:
        namespace, pairs, _ = key
        del self._classes[key]
        shelves = self._shelves[namespace]
        for pair in (None, *pairs):
            shelf = shelves[pair]
            del shelf[group]
            if not shelf:
                del shelves[pair]
        if not shelves:
            del self._shelves[namespace]
        for counter in group.counters:
            counter.classes.discard(group)

    # -- counted rules ---------------------------------------------------------------------------------

    def counter(self, pod_set: PodSet) -> Counter:
        """Return the counter of a rule; register a new rule. Keep the counter, and :meth:`touch` it at each use."""
        counter = self._sets.get(pod_set)
        if counter is None:
            self._drop_unused()
            counter = self._sets[pod_set] = SetCounter(pod_set)
            namespaces, selector = pod_set.terms[0]
            self._set_lookup.add(counter, namespaces, selector)
            for group in self._possible(namespaces, selector):
                if pod_set.matches(group.namespace, group.labels, group.terminating):
                    group.counters.append(counter)
                    counter.classes.add(group)
                    by_row = counter.by_row
                    for row, count in group.by_row.items():
                        by_row[row] = by_row.get(row, 0) + count
                        counter.total += count
        counter.used = self._tick
        return counter

    def touch(self, counter: Counter) -> bool:
        """Note that a counter is used; False if it was dropped, and the rule must be registered again."""
        counter.used = self._tick
        return counter.live

    def domains(self, counter: Counter, key: str) -> DomainCounts:
        """Return a counter's sums by value of a topology key, over all nodes, up to date."""
        counter.used = self._tick
        domains = counter.domains.get(key)
        if domains is None:
            if len(self._awake) >= self._most():
                for other in sorted(self._awake, key=lambda item: item.used)[: 1 + len(self._awake) // 4]:
                    other.rest()
                    del self._awake[other]
            self._awake[counter] = None
            domains = counter.domains[key] = DomainCounts(self._nodes, counter, key)
        domains.sync()
        return domains

    def _possible(self, namespaces: frozenset[str] | None, selector: Selector) -> Iterator[PodClass]:
        """Yield all classes that a rule may match, and perhaps some that it does not match."""
        if selector.matches_nothing:
            return
        names: Iterable[str] = self._shelves if namespaces is None else namespaces
        pairs: tuple[tuple[str, str] | None, ...] = narrowest(selector) or (None,)
        for name in names:
            shelves = self._shelves.get(name)
            if shelves is not None:
                for pair in pairs:
                    yield from shelves.get(pair, ())

    def matching(self, namespace: str, selector: Selector) -> Iterator[PodClass]:
        """Return the classes of a namespace's pods that the selector matches."""
        return (group for group in self._possible(frozenset((namespace,)), selector) if selector.matches(group.labels))

    def count(self, namespaces: frozenset[str] | None, selector: Selector) -> IntArray:
        """Count the pods that a rule matches by row, int64[capacity], and keep nothing; ``namespaces`` None: all."""
        counts = np.zeros(self._nodes.capacity, np.int64)
        for group in self._possible(namespaces, selector):
            if selector.matches(group.labels):
                rows = np.fromiter(group.by_row, np.intp, len(group.by_row))
                counts[rows] += np.fromiter(group.by_row.values(), np.int64, len(rows))
        return counts

    def _most(self) -> int:
        """Return the limit of counted rules. It is also the limit of counters with arrays. An array takes 4 to 16 bytes
        a row.
        """
        return max(_LEAST_SETS, _BUDGET // (_RULE_BYTES + 12 * self._nodes.capacity))

    def _drop_unused(self) -> None:
        if len(self._sets) >= self._most():
            oldest = sorted(self._sets.values(), key=lambda counter: counter.used)
            for counter in oldest[: 1 + len(oldest) // 4]:
                self._drop_set(counter)

    def _advance(self) -> None:
        """Note that a pod was added or removed, and drop unused rules from time to time."""
        self._tick += 1
        if not self._tick % _SWEEP_EVERY:
            self._sweep()

    def _sweep(self) -> None:
        """Drop the counted rules that are no longer used, and the arrays of unused carried rules."""
        long_ago = self._tick - _AGE
        for counter in [item for item in self._sets.values() if item.used < long_ago]:
            self._drop_set(counter)
        for other in [item for item in self._awake if item.used < long_ago]:
            other.rest()
            del self._awake[other]

    def _drop_set(self, counter: SetCounter) -> None:
        del self._sets[counter.pod_set]
        self._set_lookup.remove(counter)
        for group in counter.classes:
            group.counters.remove(counter)
        counter.live = False
        counter.rest()
        self._awake.pop(counter, None)

    # -- carried rules ---------------------------------------------------------------------------------

    def anti_terms(self, namespace: str, labels: Labels) -> list[CarriedTerm]:
        """Return the required anti-affinity terms, of pods on nodes, that match a pod with these properties."""
        return self._matching(self._anti, namespace, labels)

    def scoring_terms(self, namespace: str, labels: Labels) -> list[CarriedTerm]:
        """Return the required affinity terms and preferred terms, of pods on nodes, that match such a pod."""
        return self._matching(self._scoring, namespace, labels)

    def _matching(self, lookup: TermLookup[CarriedTerm], namespace: str, labels: Labels) -> list[CarriedTerm]:
        candidates = lookup.candidates(namespace, labels)
        if not candidates:
            return candidates
        of_namespace = self.namespaces.get(namespace, {})
        found = []
        for carried in candidates:
            term = carried.term
            known = namespace in term.namespaces or term.namespace_selector.matches(of_namespace)
            if known and term.selector.matches(labels):
                found.append(carried)
        return found

    def _carried_by(self, terms: AffinityTerms) -> tuple[CarriedTerm, ...]:
        bundle = self._bundles.get(terms)
        if bundle is None:
            parts = [(Role.ANTI, term, 0) for term in terms.required_anti]
            parts += [(Role.HARD, term, 0) for term in terms.required]
            parts += [(Role.SOFT, item.term, item.weight) for item in terms.preferred]
            parts += [(Role.SOFT, item.term, -item.weight) for item in terms.preferred_anti]
            bundle = tuple([self._carry(*part) for part in parts])
            if bundle:
                self._bundles[terms] = bundle
            for carried in bundle:
                carried.bundles.add(terms)
        return bundle

    def _carry(self, role: Role, term: AffinityTerm, weight: int) -> CarriedTerm:
        key = (role, term, weight)
        carried = self._carried.get(key)
        if carried is None:
            carried = self._carried[key] = CarriedTerm(role, term, weight)
            anywhere = not term.namespace_selector.matches_nothing
            lookup = self._anti if role is Role.ANTI else self._scoring
            lookup.add(carried, None if anywhere else term.namespaces, term.selector)
            self._carried_changed()
        return carried

    def _drop_carried(self, carried: CarriedTerm) -> None:
        del self._carried[carried.role, carried.term, carried.weight]
        (self._anti if carried.role is Role.ANTI else self._scoring).remove(carried)
        carried.live = False
        carried.rest()  # unlinks counter and sums, which refer to each other: both are freed at once
        self._carried_changed()
        self._awake.pop(carried, None)
        for terms in carried.bundles:
            # The other terms of the list stay; the next pod with this list finds them again.
            for other in self._bundles.pop(terms, ()):
                if other is not carried:
                    other.bundles.discard(terms)

    def _carried_changed(self) -> None:
        self.carried_version += 1
        self.has_anti, self.has_scoring = len(self._anti) > 0, len(self._scoring) > 0

    # -- namespaces ------------------------------------------------------------------------------------

    def set_namespace(self, name: str, labels: Labels) -> None:
        """Add a namespace, or replace its labels."""
        if self.namespaces.get(name) != labels:
            self.namespaces[name] = labels
            self.namespace_version += 1

    def remove_namespace(self, name: str) -> None:
        """Remove a namespace. Nothing happens if it is unknown."""
        if self.namespaces.pop(name, None) is not None:
            self.namespace_version += 1

    def resolve(self, term: AffinityTerm) -> frozenset[str] | None:
        """Return the namespaces that an incoming pod's term names or selects; None for all namespaces."""
        selector = term.namespace_selector
        if selector.matches_nothing:
            return term.namespaces
        if selector.is_empty:
            return None
        found = {name for name, labels in self.namespaces.items() if selector.matches(labels)}
        return term.namespaces | found

    # -- for the checker -------------------------------------------------------------------------------

    def classes(self) -> dict[_ClassKey, PodClass]:
        return self._classes

    def sets(self) -> dict[PodSet, SetCounter]:
        return self._sets

    def carried(self) -> dict[tuple[Role, AffinityTerm, int], CarriedTerm]:
        return self._carried
