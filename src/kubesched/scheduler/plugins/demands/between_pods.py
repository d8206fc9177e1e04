"""Demands on the pods of nodes and of their neighbours: spread constraints, affinity and anti-affinity.

The pods on the nodes are counted one by one, without the term index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from kubesched.api.selectors import required_node_affinity
from kubesched.api.taints import first_untolerated
from kubesched.api.types import PodAffinityTerm, PodSpec, TopologySpreadConstraint

from ...framework.demand import Change, Demand
from ...nodes import NodeInfo, NodeTable, PodInfo
from ...nodes.podinfo import AffinityTerm
from ..topology_constraints import HARD, SOFT, Constraint, compile_constraints
from .words import always, listed, selector_text

__all__ = ["near_and_far", "spreading"]

#: Most domains, and most names of pods, in one text.
_MOST_DOMAINS: Final = 8
_MOST_PODS: Final = 3
#: Number of greater values of maxSkew that are tried.
_MOST_SKEWS: Final = 5


# -- spreading ---------------------------------------------------------------------------------------------


def spreading(pod: PodInfo, nodes: NodeTable) -> Iterator[Demand]:
    """Demand of each hard spread constraint. Weaker forms have fewer domains, a greater skew, or prefer instead of
    require.
    """
    constraints = pod.spec.topology_spread_constraints
    keys = {item.topology_key for item in constraints if item.when_unsatisfiable == HARD}
    for place, item in enumerate(constraints):
        if item.when_unsatisfiable != HARD:
            continue
        (constraint,) = compile_constraints([item], HARD, pod.labels)
        counts = _spread_counts(nodes.all_infos(), pod, constraint, keys)
        soft = Change(
            f"set whenUnsatisfiable: {SOFT} for {item.topology_key}", partial(_with, place, when_unsatisfiable=SOFT)
        )
        yield Demand(
            always(_spread_text(item, constraint, counts)), soft, tuple(_weaker(pod, place, item, constraint, counts))
        )


def _with(place: int, spec: PodSpec, **change: Any) -> PodSpec:
    constraints = list(spec.topology_spread_constraints)
    constraints[place] = replace(constraints[place], **change)
    return replace(spec, topology_spread_constraints=tuple(constraints))


def _weaker(
    pod: PodInfo, place: int, item: TopologySpreadConstraint, constraint: Constraint, counts: Mapping[str, int]
) -> Iterator[Change]:
    is_short = len(counts) < constraint.min_domains
    if is_short:
        yield Change(f"leave out minDomains for {item.topology_key}", partial(_with, place, min_domains=None))
    least = 0 if is_short else min(counts.values(), default=0)
    own = int(constraint.selector.matches(pod.labels))
    skews = sorted({count + own - least for count in counts.values()} - set(range(constraint.max_skew + 1)))
    for skew in [one for one in skews if one > 0][:_MOST_SKEWS]:
        text = f"set maxSkew to {skew} instead of {constraint.max_skew} for {item.topology_key}"
        yield Change(text, partial(_with, place, max_skew=skew))


def _spread_counts(nodes: Iterable[NodeInfo], pod: PodInfo, constraint: Constraint, keys: set[str]) -> dict[str, int]:
    """Pods that a constraint counts, by domain, among the nodes that it includes."""
    affinity, selector = required_node_affinity(pod.spec), constraint.selector
    counts: dict[str, int] = {}
    for node in nodes:
        if not keys <= node.labels.keys():
            continue
        if constraint.honors_affinity and not affinity.matches(node.labels, node.name):
            continue
        if constraint.honors_taints and first_untolerated(node.taints, pod.spec.tolerations) is not None:
            continue
        there = sum(
            not selector.is_empty
            and other.namespace == pod.namespace
            and other.metadata.deletion_timestamp is None
            and selector.matches(other.labels)
            for other in node.pods.values()
        )
        domain = node.labels[constraint.key]
        counts[domain] = counts.get(domain, 0) + there
    return counts


def _spread_text(item: TopologySpreadConstraint, constraint: Constraint, counts: Mapping[str, int]) -> str:
    what = f"pods with {selector_text(item.label_selector)} by {constraint.key}"
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
    """Demands of each required term of affinity and anti-affinity, and of the anti-affinity of other pods to this pod.

    No change of this pod can lift the anti-affinity of other pods.
    """
    infos, terms = list(nodes.all_infos()), pod.affinity_terms
    for raw, key, there in _terms(pod, "pod_affinity", terms.required, nodes):
        to = f"affinity to pods with {selector_text(raw.label_selector)}"
        yield Demand(always(to + _near_text(key, there)), _drop(to, "pod_affinity", raw))
    for raw, key, there in _terms(pod, "pod_anti_affinity", terms.required_anti, nodes):
        to = f"anti-affinity to pods with {selector_text(raw.label_selector)}"
        if there:
            yield Demand(always(to + _far_text(infos, key, there)), _drop(to, "pod_anti_affinity", raw))
    yield from _others(infos, pod, nodes.terms.namespaces)


def _terms(
    pod: PodInfo, field: str, compiled: Sequence[AffinityTerm], nodes: NodeTable
) -> Iterator[tuple[PodAffinityTerm, str, dict[str, list[str]]]]:
    """The required terms of ``pod_affinity`` or ``pod_anti_affinity``: term, topology key, matching pods by domain."""
    rules = getattr(pod.spec.affinity, field, None)
    for raw, term in zip(rules.required if rules is not None else (), compiled, strict=False):
        yield raw, term.topology_key, _matching(nodes.all_infos(), term, nodes.terms.namespaces)


def _drop(to: str, field: str, raw: PodAffinityTerm) -> Change:
    return Change(f"drop the {to} by {raw.topology_key}", partial(_without, field, raw))


def _without(field: str, dropped: PodAffinityTerm, spec: PodSpec) -> PodSpec:
    """The spec without one required term of ``pod_affinity`` or ``pod_anti_affinity``."""
    affinity = spec.affinity
    assert affinity is not None
    rules = getattr(affinity, field)
    terms = tuple(term for term in rules.required if term is not dropped)
    changed = replace(rules, required_during_scheduling_ignored_during_execution=terms)
    return replace(spec, affinity=replace(affinity, **{field: changed}))


def _near_text(key: str, there: Mapping[str, Sequence[str]]) -> str:
    if not there:
        return f": there is none on a node with the label {key}"
    shown = [f"{domain} {len(keys)}" for domain, keys in there.items()][:_MOST_DOMAINS]
    return f", which are in these domains of {key}: {listed(shown, len(there))}"


def _far_text(nodes: Iterable[NodeInfo], key: str, there: Mapping[str, Sequence[str]]) -> str:
    text = f", which are in {key} {_who(there)}"
    free = len({node.labels[key] for node in nodes if key in node.labels}) - len(there)
    if free == 0:
        return f"{text}; every domain has one: 1 more domain is missing for each such pod"
    return f"{text}; {'1 domain has' if free == 1 else f'{free} domains have'} none"


def _who(there: Mapping[str, Sequence[str]]) -> str:
    """The domains with their pods, each list cut."""
    first = list(there.items())[:_MOST_DOMAINS]
    return listed([f"{domain} ({listed(keys[:_MOST_PODS], len(keys))})" for domain, keys in first], len(there))


def _matching(
    nodes: Iterable[NodeInfo], term: AffinityTerm, namespaces: Mapping[str, dict[str, str]]
) -> dict[str, list[str]]:
    """The pods that a term matches, by domain; sorted."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        domain = node.labels.get(term.topology_key)
        if domain is None:
            continue
        for other in node.pods.values():
            if term.matches(other.pod, namespaces.get(other.namespace, {})):
                found.setdefault(domain, []).append(other.pod.key)
    return {domain: sorted(found[domain]) for domain in sorted(found)}


def _others(nodes: Iterable[NodeInfo], pod: PodInfo, namespaces: Mapping[str, dict[str, str]]) -> Iterator[Demand]:
    """Pods whose own anti-affinity keeps this pod away."""
    labels = namespaces.get(pod.namespace, {})
    found: dict[str, list[str]] = {}
    for node in nodes:
        for other in node.pods.values():
            for term in other.affinity_terms.required_anti:
                domain = node.labels.get(term.topology_key)
                if domain is not None and term.matches(pod.pod, labels):
                    found.setdefault(f"{term.topology_key} {domain}", []).append(other.pod.key)
    if found:
        who = _who({domain: sorted(found[domain]) for domain in sorted(found)})
        yield Demand(always(f"other pods have an anti-affinity to this pod, in {who}"), None)
