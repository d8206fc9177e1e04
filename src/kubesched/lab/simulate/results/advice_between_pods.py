"""Hints about rules between pods that keep a pod pending: spread constraints, affinity and anti-affinity.

Pods are counted directly from the nodes; changes are tried by the search. Caller: :mod:`.advice`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from kubesched.api.selectors import required_node_affinity
from kubesched.api.taints import first_untolerated
from kubesched.api.types import LabelSelector, PodSpec, TopologySpreadConstraint
from kubesched.scheduler.nodes.nodeinfo import NodeInfo
from kubesched.scheduler.nodes.podinfo import AffinityTerm, PodInfo
from kubesched.scheduler.plugins.topology_constraints import HARD, SOFT, Constraint, compile_constraints

__all__ = ["Fits", "between_pods"]

#: Function that returns the number of nodes that fit for another spec of the pod.
Fits = Callable[[PodSpec], int]

#: Most domains, and most names of pods, in one hint.
_MOST_DOMAINS: Final = 8
_MOST_PODS: Final = 3
#: Most values of maxSkew that are tried.
_MOST_SKEWS: Final = 5

Hint = tuple[int, str]


def between_pods(
    nodes: Sequence[NodeInfo],
    pod: PodInfo,
    namespaces: Mapping[str, dict[str, str]],
    rejected_by: Collection[str],
    fits: Fits,
) -> Iterator[Hint]:
    """Yield hints, each with the number of nodes that would fit, for the plugins that rejected nodes.

    ``namespaces`` are the labels of namespaces, by name.
    """
    if "PodTopologySpread" in rejected_by:
        yield from _spreading(nodes, pod, fits)
    if "InterPodAffinity" in rejected_by:
        yield from _affinity(nodes, pod, namespaces, fits)
        yield from _anti_affinity(nodes, pod, namespaces, fits)
        yield from _others(nodes, pod, namespaces)


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _more(shown: Sequence[str], count: int) -> str:
    text = ", ".join(shown)
    return text if count <= len(shown) else f"{text} and {count - len(shown):,} more"


# -- spreading ---------------------------------------------------------------------------------------------


def _spreading(nodes: Sequence[NodeInfo], pod: PodInfo, fits: Fits) -> Iterator[Hint]:
    listed = pod.spec.topology_spread_constraints
    hard = [(place, item) for place, item in enumerate(listed) if item.when_unsatisfiable == HARD]
    keys = {item.topology_key for _, item in hard}
    helped = False
    for place, item in hard:
        (constraint,) = compile_constraints([item], HARD, pod.labels)
        counts = _spread_counts(nodes, pod, constraint, keys)
        text = _spread_text(item, constraint, counts)
        change, found = _spread_change(pod, place, item, constraint, counts, fits)
        helped |= bool(found)
        yield found, f"{text}; {change}: {_nodes(found)} would fit" if found else text
    if len(hard) > 1 and not helped:
        soft = tuple(msgspec.structs.replace(item, when_unsatisfiable=SOFT) for item in listed)
        found = fits(msgspec.structs.replace(pod.spec, topology_spread_constraints=soft))
        if found:
            yield found, f"set whenUnsatisfiable: {SOFT} in all spread constraints: {_nodes(found)} would fit"


def _spread_counts(nodes: Sequence[NodeInfo], pod: PodInfo, constraint: Constraint, keys: set[str]) -> dict[str, int]:
    """Return the pods that a constraint counts, by domain, among the nodes that it includes."""
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
    what = f"pods with {_selector(item.label_selector)} by {constraint.key}"
    if not counts:
        return f"{what}: no node that the constraint includes has the label {constraint.key}"
    ordered = sorted(counts.items(), key=lambda one: (one[1], one[0]))
    shown = _more([f"{domain} {count}" for domain, count in ordered[:_MOST_DOMAINS]], len(ordered))
    missing = constraint.min_domains - len(counts)
    if missing > 0:
        domains = "1 more domain is" if missing == 1 else f"{missing} more domains are"
        return (
            f"{what}: {shown}; {domains} missing for minDomains {constraint.min_domains}: until then a domain may have "
            f"at most {constraint.max_skew}"
        )
    return f"{what}: {shown}; a domain may have at most {constraint.max_skew} more than the least"


def _spread_change(
    pod: PodInfo,
    place: int,
    item: TopologySpreadConstraint,
    constraint: Constraint,
    counts: Mapping[str, int],
    fits: Fits,
) -> tuple[str, int]:
    """Return the smallest change of one constraint that helps, and the number of nodes that would fit then."""

    def changed(**change: object) -> int:
        listed = list(pod.spec.topology_spread_constraints)
        listed[place] = msgspec.structs.replace(item, **change)
        return fits(msgspec.structs.replace(pod.spec, topology_spread_constraints=tuple(listed)))

    if len(counts) < constraint.min_domains:
        found = changed(min_domains=None)
        if found:
            return "leave out minDomains", found
    least = 0 if len(counts) < constraint.min_domains else min(counts.values(), default=0)
    own = int(constraint.selector.matches(pod.labels))
    skews = sorted({count + own - least for count in counts.values()} - set(range(constraint.max_skew + 1)))
    for skew in [one for one in skews if one > 0][:_MOST_SKEWS]:
        found = changed(max_skew=skew)
        if found:
            return f"set maxSkew to {skew} instead of {constraint.max_skew}", found
    return f"set whenUnsatisfiable: {SOFT}", changed(when_unsatisfiable=SOFT)


def _selector(selector: LabelSelector | None) -> str:
    """Return a label selector as a person writes it."""
    if selector is None:
        return "no label at all"
    parts = [f"{key}={value}" for key, value in sorted(selector.match_labels.items())]
    for one in selector.match_expressions:
        values = f" ({', '.join(one.values)})" if one.values else ""
        parts.append(f"{one.key} {one.operator}{values}")
    return " and ".join(parts) or "any labels"


# -- affinity ----------------------------------------------------------------------------------------------


def _matching(
    nodes: Iterable[NodeInfo], term: AffinityTerm, namespaces: Mapping[str, dict[str, str]]
) -> dict[str, list[str]]:
    """Return the pods that a term matches, by domain; sorted."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        domain = node.labels.get(term.topology_key)
        if domain is None:
            continue
        for other in node.pods.values():
            if term.matches(other.pod, namespaces.get(other.namespace, {})):
                found.setdefault(domain, []).append(other.pod.key)
    return {domain: sorted(found[domain]) for domain in sorted(found)}


def _without(pod: PodInfo, field: str, place: int, fits: Fits) -> int:
    """Return the number of nodes that fit without one required term of ``pod_affinity`` or ``pod_anti_affinity``."""
    affinity = pod.spec.affinity
    assert affinity is not None  # it has the term
    rules = getattr(affinity, field)
    terms = tuple(term for number, term in enumerate(rules.required) if number != place)
    key = "required_during_scheduling_ignored_during_execution"
    changed = msgspec.structs.replace(affinity, **{field: msgspec.structs.replace(rules, **{key: terms})})
    return fits(msgspec.structs.replace(pod.spec, affinity=changed))


def _terms(pod: PodInfo, field: str, terms: Sequence[AffinityTerm]) -> Iterator[tuple[int, str, AffinityTerm]]:
    """Yield the required terms of ``pod_affinity`` or ``pod_anti_affinity``.

    Each comes as index, the selected pods in words, and compiled term.
    """
    given = getattr(pod.spec.affinity, field, None)
    for place, (raw, term) in enumerate(zip(given.required if given is not None else (), terms, strict=False)):
        yield place, f"pods with {_selector(raw.label_selector)}", term


def _affinity(
    nodes: Sequence[NodeInfo], pod: PodInfo, namespaces: Mapping[str, dict[str, str]], fits: Fits
) -> Iterator[Hint]:
    for place, what, term in _terms(pod, "pod_affinity", pod.affinity_terms.required):
        there = _matching(nodes, term, namespaces)
        key = term.topology_key
        if there:
            shown = [f"{domain} {len(keys)}" for domain, keys in there.items()][:_MOST_DOMAINS]
            text = f"affinity to {what}, which are in these domains of {key}: {_more(shown, len(there))}"
        else:
            text = f"affinity to {what}: there is none on a node with the label {key}"
        found = _without(pod, "pod_affinity", place, fits)
        yield found, f"{text}; without this term {_nodes(found)} would fit" if found else text


def _anti_affinity(
    nodes: Sequence[NodeInfo], pod: PodInfo, namespaces: Mapping[str, dict[str, str]], fits: Fits
) -> Iterator[Hint]:
    for place, what, term in _terms(pod, "pod_anti_affinity", pod.affinity_terms.required_anti):
        there = _matching(nodes, term, namespaces)
        if not there:
            continue
        key = term.topology_key
        domains = {node.labels[key] for node in nodes if key in node.labels}
        shown = [
            f"{domain} ({_more(keys[:_MOST_PODS], len(keys))})" for domain, keys in list(there.items())[:_MOST_DOMAINS]
        ]
        text = f"anti-affinity to {what}, which are in {key} {_more(shown, len(there))}"
        free = len(domains) - len(there)
        if free == 0:
            text += "; every domain has one: 1 more domain is missing for each such pod"
        else:
            text += f"; {'1 domain has' if free == 1 else f'{free} domains have'} none"
        found = _without(pod, "pod_anti_affinity", place, fits)
        yield found, f"{text}; without this term {_nodes(found)} would fit" if found else text


def _others(nodes: Sequence[NodeInfo], pod: PodInfo, namespaces: Mapping[str, dict[str, str]]) -> Iterator[Hint]:
    """Yield hints about pods whose own anti-affinity keeps this pod away."""
    labels = namespaces.get(pod.namespace, {})
    found: dict[str, list[str]] = {}
    for node in nodes:
        for other in node.pods.values():
            for term in other.affinity_terms.required_anti:
                domain = node.labels.get(term.topology_key)
                if domain is not None and term.matches(pod.pod, labels):
                    found.setdefault(f"{term.topology_key} {domain}", []).append(other.pod.key)
    if found:
        shown = [
            f"{domain} ({_more(sorted(keys)[:_MOST_PODS], len(keys))})"
            for domain, keys in sorted(found.items())[:_MOST_DOMAINS]
        ]
        yield 0, f"other pods have an anti-affinity to this pod, in {_more(shown, len(found))}"
