"""Differences that ``docs/differences.md`` declares, undone for one reading of a vector.

A-Q1: upstream keeps an incoming pod's ``namespaceSelector`` active after resolving it, and then matches it against an
empty set of labels. A selector that matches an object without labels (``NotIn``, ``DoesNotExist``) then makes the term
match pods in every namespace. Here the term matches the namespaces that the selector selects. The reading replaces such
a selector by the empty one, which selects every namespace.
"""

from __future__ import annotations

from typing import Final

import msgspec

from kubesched.api.types import LabelSelector, PodAffinity, PodAffinityTerm
from kubesched.scheduler.nodes.podinfo import PodInfo

from .pods import Change

__all__ = ["declared_variants"]

_A_Q1: Final = "A-Q1: upstream applies the term to every namespace"
_WITHOUT_LABELS: Final = frozenset({"NotIn", "DoesNotExist"})


def declared_variants(pods: list[PodInfo]) -> list[tuple[Change, str]]:
    """Return the readings that change any of these pods, each with the difference it declares."""
    return [(_in_every_namespace, _A_Q1)] if any(_in_every_namespace(pod) is not pod for pod in pods) else []


def _in_every_namespace(pod: PodInfo) -> PodInfo:
    """Return the pod with such selectors replaced; the pod itself when it has none."""
    affinity = pod.spec.affinity
    if affinity is None:
        return pod
    changed = msgspec.structs.replace(
        affinity,
        pod_affinity=_rules(affinity.pod_affinity),
        pod_anti_affinity=_rules(affinity.pod_anti_affinity),
    )
    if changed == affinity:
        return pod
    spec = msgspec.structs.replace(pod.spec, affinity=changed)
    return PodInfo(msgspec.structs.replace(pod.pod, spec=spec))


def _rules(rules: PodAffinity | None) -> PodAffinity | None:
    if rules is None:
        return None
    preferred = [
        msgspec.structs.replace(weighted, pod_affinity_term=_term(weighted.pod_affinity_term))
        for weighted in rules.preferred_during_scheduling_ignored_during_execution
    ]
    return msgspec.structs.replace(
        rules,
        required_during_scheduling_ignored_during_execution=tuple(
            _term(term) for term in rules.required_during_scheduling_ignored_during_execution
        ),
        preferred_during_scheduling_ignored_during_execution=tuple(preferred),
    )


def _term(term: PodAffinityTerm) -> PodAffinityTerm:
    selector = term.namespace_selector
    if selector is None or not _matches_no_labels(selector):
        return term
    return msgspec.structs.replace(term, namespace_selector=LabelSelector())


def _matches_no_labels(selector: LabelSelector) -> bool:
    operators = {requirement.operator for requirement in selector.match_expressions}
    return not selector.match_labels and bool(operators) and operators <= _WITHOUT_LABELS
