"""Affinity terms of a pod, compiled once per distinct pod, and the sums over domains that they use.

Used by :mod:`.inter_pod_affinity`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from kubesched.base.change_log import Follower

from ..nodes.columns import IntArray, LabelColumn
from ..nodes.domain_counts import Counter, DomainCounts
from ..nodes.podinfo import AffinityTerm, AffinityTerms
from ..nodes.term_index import PodSet, TermIndex

__all__ = ["DomainSums", "Moved", "Rule", "Rules"]


class Rule:
    """Term of an incoming pod, with the pods that it counts and their topology."""

    __slots__ = ("_counter", "key", "pod_set", "weight")

    def __init__(self, key: str, pod_set: PodSet, weight: int = 1) -> None:
        self.key = key
        self.pod_set = pod_set
        self.weight = weight
        self._counter: Counter | None = None

    def counter(self, index: TermIndex) -> Counter:
        """Return the index's counter of the term's pods."""
        counter = self._counter
        if counter is None or not index.touch(counter):
            counter = self._counter = index.counter(self.pod_set)
        return counter


class Rules:
    """Compiled terms of pods with equal terms, with namespaces resolved as of ``namespace_version``."""

    def __init__(self, terms: AffinityTerms, index: TermIndex) -> None:
        self.namespace_version = index.namespace_version

        def matched_pods(listed: Iterable[AffinityTerm]) -> PodSet:
            return PodSet(tuple([(index.resolve(term), term.selector) for term in listed]), terminating=True)

        #: Pods that all required affinity terms match. A pod counts only then, so one set serves all terms.
        self.affinity_set = matched_pods(terms.required) if terms.required else None
        self.affinity: tuple[Rule, ...] = ()
        if self.affinity_set is not None:
            keys = dict.fromkeys(term.topology_key for term in terms.required)
            self.affinity = tuple([Rule(key, self.affinity_set) for key in keys])
        self.anti = tuple([Rule(term.topology_key, matched_pods((term,))) for term in terms.required_anti])
        soft = [(item.weight, item.term) for item in terms.preferred]
        soft += [(-item.weight, item.term) for item in terms.preferred_anti]
        self.preferred = tuple([Rule(term.topology_key, matched_pods((term,)), weight) for weight, term in soft])


@dataclass(slots=True)
class _Source:
    counter: Counter
    domains: DomainCounts
    weight: int
    changes: Follower[int]


class Moved(NamedTuple):
    """Domains of a topology whose sums changed, each as (code, sum before, sum now)."""

    column: LabelColumn
    domains: list[tuple[int, int, int]]


class DomainSums:
    """Weighted sums of the counts of some rules, per domain.

    Attributes:
        by_key: label column and int64[codes + 1] by topology key. The array's last element (0) stands for "no such
            label". The arrays are changed in :meth:`catch_up` only.
    """

    __slots__ = ("_sources", "by_key", "total")

    def __init__(self) -> None:
        self._sources: dict[str, list[_Source]] = {}
        #: Number of pods counted, each once per rule and topology.
        self.total = 0
        self.by_key: dict[str, tuple[LabelColumn, IntArray]] = {}

    def add(self, index: TermIndex, counter: Counter, key: str, weight: int = 1) -> None:
        """Count a rule's pods, each ``weight`` times."""
        domains = index.domains(counter, key)
        self._sources.setdefault(key, []).append(_Source(counter, domains, weight, Follower.from_now(domains.log)))
        self.total += domains.total
        counts = domains.copied()
        if weight != 1:
            counts *= weight
        known = self.by_key.get(key)
        self.by_key[key] = (domains.column, counts if known is None else known[1] + counts)

    def catch_up(self, index: TermIndex) -> list[Moved] | None:
        """Read the current counts. Return the domains whose sums changed since the last call; None if they are not
        known.
        """
        found: list[Moved] = []
        if not self._sources:
            return found
        total = 0
        for key, sources in self._sources.items():
            codes: list[int] = []
            for source in sources:
                counter, domains = source.counter, source.domains
                if not counter.live or index.domains(counter, key) is not domains:
                    return None
                changed = source.changes.read()
                if changed is None:
                    return None
                codes += changed
                total += domains.total
            if codes:
                found.append(self._sum_up(key, sources, dict.fromkeys(codes)))
        self.total = total
        return found

    def _sum_up(self, key: str, sources: list[_Source], codes: Iterable[int]) -> Moved:
        """Read the sums of some domains again."""
        column, sums = self.by_key[key]
        changes: list[tuple[int, int, int]] = []
        for code in codes:
            before, now = sums.item(code), 0
            for source in sources:
                now += source.domains.count(code) * source.weight
            if now != before:
                sums[code] = now
                changes.append((code, before, now))
        return Moved(column, changes)
