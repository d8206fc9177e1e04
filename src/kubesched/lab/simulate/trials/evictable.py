"""Pods that keep their node: by an annotation, for want of a controller, or by a disruption budget.

Callers: :mod:`..planning`, and the scale-down of :mod:`..scaling`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kubesched.api.decode import DecodeError, from_builtins
from kubesched.api.kinds import BUDGETS
from kubesched.api.selectors import SelectorError, compile_label_selector
from kubesched.api.types import LabelSelector, Pod

from ..embedded import Embedded

__all__ = ["budget_of", "ends_with_node", "forbidden", "held_by_budget", "keeps", "movable", "uncontrolled"]

_MIRROR: Final = "kubernetes.io/config.mirror"
#: Annotations that forbid evictions, and their values.
_FORBIDDEN: Final = (
    ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
    ("karpenter.sh/do-not-disrupt", "true"),
    ("karpenter.sh/do-not-evict", "true"),
)


def ends_with_node(pod: Pod) -> bool:
    """Return True for a pod that goes with its node: of a DaemonSet, of the node itself, or finished."""
    if pod.status.phase in ("Succeeded", "Failed") or _MIRROR in pod.metadata.annotations:
        return True
    return any(owner.controller and owner.kind in ("DaemonSet", "Node") for owner in pod.metadata.owner_references)


def keeps(embedded: Embedded, pod: Pod) -> str:
    """Return why a pod keeps its node; empty if it can be evicted now."""
    return forbidden(pod) or uncontrolled(pod) or held_by_budget(embedded, pod)


def forbidden(pod: Pod) -> str:
    """Return the annotation that forbids to evict a pod; empty for none."""
    for name, value in _FORBIDDEN:
        if pod.metadata.annotations.get(name) == value:
            return f"pod {pod.key} must not be evicted: annotation {name}={value}"
    return ""


def uncontrolled(pod: Pod) -> str:
    """Return that nothing would make a pod again; empty if it has a controller."""
    if any(owner.controller for owner in pod.metadata.owner_references):
        return ""
    return f"pod {pod.key} has no controller: nothing would make it again"


def held_by_budget(embedded: Embedded, pod: Pod) -> str:
    """Return the budget that allows no eviction of a pod now; empty for none."""
    budget = budget_of(embedded, pod)
    if budget is None:
        return ""
    status = budget.get("status") or {}
    if not status.get("disruptionsAllowed"):
        healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
        return (
            f"budget {budget['metadata']['name']} allows no eviction of {pod.key}: {healthy} healthy, {desired} needed"
        )
    return ""


def budget_of(embedded: Embedded, pod: Pod) -> Mapping[str, Any] | None:
    """Return the first disruption budget that selects a pod."""
    for item in embedded.store.table(BUDGETS).items(pod.namespace):
        data = item.data()
        selector = (data.get("spec") or {}).get("selector")
        try:
            compiled = compile_label_selector(None if selector is None else from_builtins(selector, LabelSelector))
        except (DecodeError, SelectorError):
            continue  # an invalid selector protects nothing
        if compiled.matches(pod.metadata.labels):
            return data
    return None


def movable(pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods that have to move when their node goes, in the order of a drain."""
    return sorted((pod for pod in pods if not ends_with_node(pod)), key=lambda pod: pod.key)
