"""PodDisruptionBudgets that stop every drain, contradict each other, or protect nothing.

The numbers are those of the eviction API: a budget allows ``healthy - desired`` evictions. So a budget that allows none
while all its pods are healthy never allows one of a healthy pod.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kubesched.api.decode import DecodeError, from_builtins
from kubesched.api.kinds import BUDGETS
from kubesched.api.selectors import Selector, SelectorError, compile_label_selector
from kubesched.api.structs import Int32, Int64, Struct
from kubesched.api.types import LabelSelector, ObjectMeta, Pod
from kubesched.scheduler.plugins.demands.words import counted

from .view import View

__all__ = ["audit_budgets"]

_PERCENT: Final = re.compile(r"(\d{1,9})%")
#: Most comparisons of a selector with labels; a hostile dump may have very many budgets in one namespace.
_MOST_COMPARISONS: Final = 2_000_000


class _Spec(Struct, frozen=True):
    selector: LabelSelector | None = None
    min_available: Int32 | str | None = None
    max_unavailable: Int32 | str | None = None


class _Status(Struct, frozen=True):
    observed_generation: Int64 = 0
    disruptions_allowed: Int32 = 0
    current_healthy: Int32 = 0
    desired_healthy: Int32 = 0
    expected_pods: Int32 = 0


class _Object(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


@dataclass(slots=True, eq=False)
class _Budget:
    """One budget, and the pods that it selects."""

    key: str
    given: _Object
    selector: Selector
    pods: list[Pod]


def audit_budgets(view: View) -> None:
    """Add budgets that block, overlap or select nothing."""
    budgets = list(_readable(view))
    overlapping = _select(view, budgets)
    for budget in budgets:
        if budget.pods:
            _judge(view, budget)
        else:
            text = f"{budget.key} selects no pod"
            view.findings.add("budget-selects-nothing", text, "PodDisruptionBudget", [budget.key])
    for keys, pods in overlapping.items():
        text = f"{counted(len(pods), 'pod')} selected by {len(keys)} budgets, {' and '.join(keys[:3])}"
        if len(keys) > 3:
            text += f" and {len(keys) - 3} more"
        view.findings.add(
            "budgets-overlap",
            f"{text}: the API refuses to evict them",
            "Pod",
            [pod.key for pod in pods],
            namespace=pods[0].namespace,
        )


def _readable(view: View) -> Iterator[_Budget]:
    for obj in view.objects.all(BUDGETS):
        metadata: Mapping[str, Any] = obj.get("metadata") or {}
        key = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
        try:
            given = from_builtins(obj, _Object)
            selector = given.spec.selector
            # Without a selector a budget selects no pod; with an empty one it selects all of its namespace.
            yield _Budget(key, given, compile_label_selector(selector), [])
        except (DecodeError, SelectorError) as error:
            view.findings.cannot_check(f"PodDisruptionBudget {key}: {error}")


def _select(view: View, budgets: list[_Budget]) -> dict[tuple[str, ...], list[Pod]]:
    """Fill in the pods of each budget. Return the pods that several select, by the budgets' names."""
    kinds: dict[str, dict[frozenset[tuple[str, str]], list[Pod]]] = {}
    for pod in view.pods:
        if pod.metadata.deletion_timestamp is None:
            alike = frozenset(pod.metadata.labels.items())
            kinds.setdefault(pod.namespace, {}).setdefault(alike, []).append(pod)
    several: dict[tuple[str, ...], list[Pod]] = {}
    by_namespace: dict[str, list[_Budget]] = {}
    for budget in budgets:
        by_namespace.setdefault(budget.given.metadata.namespace, []).append(budget)
    comparisons = 0
    for namespace, here in by_namespace.items():
        groups = kinds.get(namespace, {})
        comparisons += len(here) * len(groups)
        if comparisons > _MOST_COMPARISONS:
            text = f"budgets of namespace {namespace}: {len(here):,} budgets for {len(groups):,} kinds of pods"
            view.findings.cannot_check(text)
            comparisons -= len(here) * len(groups)
            budgets[:] = [budget for budget in budgets if budget.given.metadata.namespace != namespace]
            continue
        for pods in groups.values():
            selecting = [budget for budget in here if budget.selector.matches(pods[0].metadata.labels)]
            for budget in selecting:
                budget.pods += pods
            if len(selecting) > 1:
                several.setdefault(tuple(sorted(budget.key for budget in selecting)), []).extend(pods)
    return several


def _judge(view: View, budget: _Budget) -> None:
    spec, status = budget.given.spec, budget.given.status
    total = max(len(budget.pods), status.expected_pods)
    desired = _desired(spec, total)
    pods = counted(len(budget.pods), "pod")
    if desired is None:
        view.findings.cannot_check(f"PodDisruptionBudget {budget.key}: minAvailable or maxUnavailable is no number")
    elif desired >= total:
        text = f"{budget.key} allows no eviction of its {pods} even when all are healthy: {_said(spec)}"
        view.findings.add("budget-blocks-evictions", text, "PodDisruptionBudget", [budget.key])
    elif (
        status.observed_generation >= budget.given.metadata.generation
        and status.expected_pods > 0
        and status.disruptions_allowed <= 0
    ):
        text = (
            f"{budget.key} allows no eviction at present: {status.current_healthy} of {counted(total, 'pod')} healthy, "
            f"{status.desired_healthy} must be"
        )
        details = [said] if (said := _said(spec)) else []
        view.findings.add("budget-spent", text, "PodDisruptionBudget", [budget.key], details=details)


def _said(spec: _Spec) -> str:
    if spec.max_unavailable is not None:
        return f"maxUnavailable is {spec.max_unavailable}"
    return f"minAvailable is {spec.min_available}" if spec.min_available is not None else ""


def _desired(spec: _Spec, total: int) -> int | None:
    """Return the number of pods that must be healthy; None if it cannot be read."""
    if spec.max_unavailable is not None:
        unavailable = _resolved(spec.max_unavailable, total)
        return None if unavailable is None else max(0, total - unavailable)
    return 0 if spec.min_available is None else _resolved(spec.min_available, total)


def _resolved(value: int | str, total: int) -> int | None:
    """Return a number, or a percentage of ``total`` rounded up."""
    if isinstance(value, int):
        return value
    percent = _PERCENT.fullmatch(value)
    return -(-int(percent[1]) * total // 100) if percent else None
