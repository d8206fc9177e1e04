"""Demands on the pods of nodes and of their neighbours: spread constraints, affinity and anti-affinity.

Counts are those of the plugins: of compiled constraints, and of the term index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from kubesched.api.selectors import Selector
from kubesched.api.types import Pod, PodAffinityTerm, PodSpec, TopologySpreadConstraint

from ...framework.demand import Change, Demand
from ...nodes import NodeInfo, NodeTable, PodInfo
from ...nodes.columns import ABSENT, IntArray, LabelColumn
from ...nodes.podinfo import AffinityTerm
from ...nodes.term_index import CarriedTerm
from ..compiled_constraints import CompiledConstraints
from ..topology_constraints import HARD, SOFT
from .words import MOST_APART, always, as_label_selector, compiled_text, listed, selector_text

__all__ = ["near_and_far", "spreading"]

#: Most domains, and most names of pods, in one text.
_MOST_DOMAINS: Final = 8
_MOST_PODS: Final = 3
#: Number of greater values of maxSkew that are tried.
_MOST_SKEWS: Final = 5
#: Distinct terms of other pods that are told apart, and pods that hold one domain.
_MOST_TERMS: Final = 8
_MOST_HOLDERS: Final = 256
#: Rows of a domain that are searched for names of pods.
_MOST_SEARCHED: Final = 16
#: Pods that are looked at for the holders of all domains of a term.
_MOST_LOOKED_AT: Final = 8192


# -- spreading ---------------------------------------------------------------------------------------------


def spreading(pod: PodInfo, compiled: CompiledConstraints | None) -> Iterator[Demand]:
    """Each hard spread constraint; weaker are fewer domains, a greater skew, and to prefer instead of to require.

    A pod without constraints has the profile's defaults. Such a pod may be given its own.
    """
    if compiled is None:
        return
    own = pod.spec.topology_spread_constraints
    hard = [(place, item) for place, item in enumerate(own) if item.when_unsatisfiable == HARD]
    if len(hard) > MOST_APART:
        drop = Change.of_spec(
            "drop all topologySpreadConstraints", lambda spec: replace(spec, topology_spread_constraints=())
        )
        yield Demand(always(f"{len(hard):,} required topologySpreadConstraints"), drop)
        return
    for number, constraint in enumerate(compiled.constraints):
        counts = _spread_counts(compiled, number)
        text = _spread_text(compiled, number, counts)
        if not own:
            soft = Change.of_spec(
                f"give the pod its own constraints, with whenUnsatisfiable: {SOFT} for {constraint.key}",
                partial(_with_own, compiled, number),
            )
            yield Demand(always(f"by default {text}"), soft)
            continue
        place, item = hard[number]
        soft = Change.of_spec(
            f"set whenUnsatisfiable: {SOFT} for {item.topology_key}", partial(_with, place, when_unsatisfiable=SOFT)
        )
        yield Demand(always(text), soft, tuple(_weaker(compiled, number, place, counts)))


def _with_own(compiled: CompiledConstraints, soft: int, spec: PodSpec) -> PodSpec:
    """The spec with the default constraints as the pod's own, one of them not required."""
    if not spec.topology_spread_constraints:
        made = tuple(
            TopologySpreadConstraint(
                topology_key=constraint.key,
                max_skew=constraint.max_skew,
                when_unsatisfiable=HARD,
                label_selector=as_label_selector(constraint.selector),
                min_domains=constraint.min_domains if constraint.min_domains > 1 else None,
                node_affinity_policy=None if constraint.honors_affinity else "Ignore",
                node_taints_policy="Honor" if constraint.honors_taints else None,
            )
            for constraint in compiled.constraints
        )
        spec = replace(spec, topology_spread_constraints=made)
    return _with(soft, spec, when_unsatisfiable=SOFT)


def _with(place: int, spec: PodSpec, **change: Any) -> PodSpec:
    constraints = list(spec.topology_spread_constraints)
    constraints[place] = replace(constraints[place], **change)
    return replace(spec, topology_spread_constraints=tuple(constraints))


def _weaker(compiled: CompiledConstraints, number: int, place: int, counts: Mapping[str, int]) -> Iterator[Change]:
    constraint = compiled.constraints[number]
    is_short = len(counts) < constraint.min_domains
    if is_short:
        words = f"leave out minDomains for {constraint.key}"
        yield Change.of_spec(words, partial(_with, place, min_domains=None))
    least = 0 if is_short else min(counts.values(), default=0)
    own = compiled.own[number]
    skews = sorted({count + own - least for count in counts.values()} - set(range(constraint.max_skew + 1)))
    for skew in [one for one in skews if one > 0][:_MOST_SKEWS]:
        words = f"set maxSkew to {skew} instead of {constraint.max_skew} for {constraint.key}"
        yield Change.of_spec(words, partial(_with, place, max_skew=skew))


def _spread_counts(compiled: CompiledConstraints, number: int) -> dict[str, int]:
    """Pods that a constraint counts, by domain, among the nodes that it includes."""
    domains = compiled.domains[number]
    values, counts = domains.column.values, domains.counts
    return {values[code]: int(counts[code]) for code in np.flatnonzero(domains.present).tolist()}


def _spread_text(compiled: CompiledConstraints, number: int, counts: Mapping[str, int]) -> str:
    constraint = compiled.constraints[number]
    what = f"pods with {compiled_text(constraint.selector)} by {constraint.key}"
    if not counts:
        return f"{what}: no node that the constraint includes has the label {constraint.key}"
    ordered = sorted(counts.items(), key=lambda one: (one[1], one[0]))
    shown = listed([f"{domain} {count}" for domain, count in ordered[:_MOST_DOMAINS]], len(ordered))
    missing = constraint.min_domains - len(counts)
    if missing > 0:
        domains = "1 more domain is" if missing == 1 else f"{missing} more domains are"
        return (
            f"{what}: {shown}; {domains} missing for minDomains {constraint.min_domains}: until then a domain may have "
            f"at most {constraint.max_skew}"
        )
    return f"{what}: {shown}; a domain may have at most {constraint.max_skew} more than the least"


# -- affinity ----------------------------------------------------------------------------------------------


def near_and_far(pod: PodInfo, nodes: NodeTable) -> Iterator[Demand]:
    """The anti-affinity of other pods to this one; and each required term of its own affinity and anti-affinity."""
    yield from _others(pod, nodes)
    terms = pod.affinity_terms
    if len(terms.required) > MOST_APART:
        yield _all_terms("affinity", "pod_affinity", len(terms.required))
    if len(terms.required_anti) > MOST_APART:
        yield _all_terms("anti-affinity", "pod_anti_affinity", len(terms.required_anti))
    for raw, term in _terms(pod, "pod_affinity", terms.required):
        to = f"affinity to pods with {selector_text(raw.label_selector)}"
        there = _Domains.matching(nodes, term)
        yield Demand(always(to + _near_text(there)), _drop(to, "pod_affinity", raw))
    for raw, term in _terms(pod, "pod_anti_affinity", terms.required_anti):
        to = f"anti-affinity to pods with {selector_text(raw.label_selector)}"
        there = _Domains.matching(nodes, term)
        if there.counts.any():
            text = to + _far_text(nodes, there)
            yield Demand(always(text), _drop(to, "pod_anti_affinity", raw), holders=there.holders)


def _terms(
    pod: PodInfo, field: str, compiled: Sequence[AffinityTerm]
) -> Iterator[tuple[PodAffinityTerm, AffinityTerm]]:
    """The required terms of ``pod_affinity`` or ``pod_anti_affinity``, as written and compiled; none when they are many."""
    rules = getattr(pod.spec.affinity, field, None) if len(compiled) <= MOST_APART else None
    return zip(rules.required if rules is not None else (), compiled, strict=False)


def _all_terms(word: str, field: str, count: int) -> Demand:
    """All required terms of ``pod_affinity`` or ``pod_anti_affinity`` as one demand."""
    text = f"{word} with {count:,} required terms"
    return Demand(always(text), Change.of_spec(f"drop all required terms of the {word}", partial(_without_all, field)))


def _without_all(field: str, spec: PodSpec) -> PodSpec:
    affinity = spec.affinity
    assert affinity is not None
    changed = replace(getattr(affinity, field), required_during_scheduling_ignored_during_execution=())
    return replace(spec, affinity=replace(affinity, **{field: changed}))


def _drop(to: str, field: str, raw: PodAffinityTerm) -> Change:
    return Change.of_spec(f"drop the {to} by {raw.topology_key}", partial(_without, field, raw))


def _without(field: str, dropped: PodAffinityTerm, spec: PodSpec) -> PodSpec:
    """The spec without one required term of ``pod_affinity`` or ``pod_anti_affinity``."""
    affinity = spec.affinity
    assert affinity is not None
    rules = getattr(affinity, field)
    terms = tuple(term for term in rules.required if term is not dropped)
    changed = replace(rules, required_during_scheduling_ignored_during_execution=terms)
    return replace(spec, affinity=replace(affinity, **{field: changed}))


class _Domains:
    """Pods in domains of a topology key, by row.

    Attributes:
        key: the topology key.
        column: its column.
        counts: int64[codes], the pods of each domain.
    """

    def __init__(self, nodes: NodeTable, key: str, by_row: IntArray, counts: Callable[[PodInfo], bool]) -> None:
        """``by_row``: int64[capacity], the pods that ``counts`` is true for."""
        self._nodes = nodes
        self._counts = counts
        self.key = key
        self.column: LabelColumn = nodes.labels.column(key)
        self._by_row = by_row
        self._held: dict[int, list[tuple[NodeInfo, PodInfo]]] = {}
        self._left = _MOST_LOOKED_AT
        rows = np.flatnonzero(by_row)
        self._rows = rows[self.column.codes[rows] != ABSENT]
        here = self.column.codes[self._rows]
        self.counts: IntArray = np.bincount(here, by_row[self._rows], len(self.column.values)).astype(np.int64)

    @classmethod
    def matching(cls, nodes: NodeTable, term: AffinityTerm) -> _Domains:
        """Pods that a term of the pod matches."""
        index = nodes.terms
        by_row = index.count(index.resolve(term), term.selector)
        return cls(
            nodes,
            term.topology_key,
            by_row,
            lambda other: term.matches(other.pod, index.namespaces.get(other.namespace, {})),
        )

    @classmethod
    def carrying(cls, nodes: NodeTable, carried: CarriedTerm) -> _Domains:
        """Pods that carry a term."""
        term, by_row = carried.term, np.zeros(nodes.capacity, np.int64)
        by_row[list(carried.by_row)] = list(carried.by_row.values())
        return cls(nodes, term.topology_key, by_row, lambda other: term in other.affinity_terms.required_anti)

    def names(self) -> list[str]:
        """The domains with pods, sorted."""
        return sorted(self.column.values[code] for code in np.flatnonzero(self.counts).tolist())

    def _pods(self, code: int, most_rows: int) -> Iterator[tuple[NodeInfo, PodInfo]]:
        """The pods of a domain."""
        for row in self._rows[self.column.codes[self._rows] == code][:most_rows].tolist():
            node = self._nodes.info(row)
            there = ((node, other) for other in node.pods.values() if self._counts(other))
            yield from islice(there, int(self._by_row[row]))

    def holders(self, row: int) -> list[tuple[NodeInfo, PodInfo]]:
        """The pods in the domain of a row; none when they are too many to be evicted, or to be looked for."""
        code = int(self.column.codes[row])
        if code == ABSENT or self.counts[code] > _MOST_HOLDERS:
            return []
        if code not in self._held:
            rows = self._rows[self.column.codes[self._rows] == code].tolist()
            self._left -= sum(len(self._nodes.info(one).pods) for one in rows)
            self._held[code] = list(self._pods(code, len(rows))) if self._left >= 0 else []
        return self._held[code]

    def who(self) -> str:
        """The domains with their pods, each list cut."""
        shown, found = self.names(), []
        for domain in shown[:_MOST_DOMAINS]:
            code = self.column.code_of[domain]
            keys = sorted(other.pod.key for _, other in self._pods(code, _MOST_SEARCHED))[:_MOST_PODS]
            found.append(f"{domain} ({listed(keys, int(self.counts[code]))})")
        return listed(found, len(shown))


def _near_text(there: _Domains) -> str:
    names = there.names()
    if not names:
        return f": there is none on a node with the label {there.key}"
    shown = [f"{domain} {there.counts[there.column.code_of[domain]]}" for domain in names[:_MOST_DOMAINS]]
    return f", which are in these domains of {there.key}: {listed(shown, len(names))}"


def _far_text(nodes: NodeTable, there: _Domains) -> str:
    text = f", which are in {there.key} {there.who()}"
    codes = there.column.codes[nodes.order()]
    free = len(np.unique(codes[codes != ABSENT])) - int((there.counts > 0).sum())
    if free == 0:
        return f"{text}; every domain has one: 1 more domain is missing for each such pod"
    return f"{text}; {'1 domain has' if free == 1 else f'{free} domains have'} none"


def _others(pod: PodInfo, nodes: NodeTable) -> Iterator[Demand]:
    """Each distinct anti-affinity term of other pods that matches this pod, the most frequent first."""
    index = nodes.terms
    carried = index.anti_terms(pod.namespace, pod.labels) if index.has_anti else []
    for one in sorted(carried, key=lambda each: (-each.total, str(each.term)))[:_MOST_TERMS]:
        there = _Domains.carrying(nodes, one)
        if there.counts.any():
            words = compiled_text(one.term.selector)
            text = f"other pods have an anti-affinity to pods with {words}, in {one.term.topology_key} {there.who()}"
            changes = list(_other_labels(pod, one.term.selector))
            without = changes[0] if changes else None
            yield Demand(always(text), without, weaker=changes[1:], holders=there.holders)


def _other_labels(pod: PodInfo, selector: Selector) -> Iterator[Change]:
    """Removals of one label after which a selector does not match the pod any more."""
    for key in sorted({requirement.key for requirement in selector.requirements} & pod.labels.keys()):
        if not selector.matches({name: value for name, value in pod.labels.items() if name != key}):
            yield Change(f"drop the label {key}={pod.labels[key]} of the pod", partial(_without_label, key))


def _without_label(key: str, pod: Pod) -> Pod:
    left = {name: value for name, value in pod.metadata.labels.items() if name != key}
    return replace(pod, metadata=replace(pod.metadata, labels=left))
