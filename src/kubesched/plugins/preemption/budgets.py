"""Disruption budgets: which victims would violate one (spec "Preemption" section 4.3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kubesched.api.decode import DecodeError, from_builtins
from kubesched.api.selectors import Selector, SelectorError, compile_label_selector
from kubesched.api.types import LabelSelector
from kubesched.framework.podinfo import PodInfo

__all__ = ["Budget", "BudgetReader", "split_by_budgets"]


class Budget:
    """One PodDisruptionBudget as preemption reads it.

    Attributes:
        allowed: ``status.disruptionsAllowed``.
        disrupted: names of pods whose eviction the budget has counted already.
    """

    __slots__ = ("_namespace", "_selector", "allowed", "disrupted")

    def __init__(self, obj: Mapping[str, Any]) -> None:
        status = obj.get("status") or {}
        self._namespace = obj["metadata"].get("namespace", "")
        self._selector = _selector(obj)
        self.allowed = int(status.get("disruptionsAllowed") or 0)
        self.disrupted = frozenset(status.get("disruptedPods") or ())

    @property
    def matches_nothing(self) -> bool:
        """A null, empty or invalid selector matches no pod here."""
        return self._selector is None

    def covers(self, pod: PodInfo) -> bool:
        """Whether evicting the pod counts against the budget."""
        return (
            pod.namespace == self._namespace
            and self._selector is not None
            and self._selector.matches(pod.labels)
            and pod.name not in self.disrupted
        )


def _selector(obj: Mapping[str, Any]) -> Selector | None:
    given = (obj.get("spec") or {}).get("selector")
    if given is None:
        return None
    try:
        selector = compile_label_selector(from_builtins(given, LabelSelector))
    except (DecodeError, SelectorError):
        return None
    return selector if selector.requirements else None


class BudgetReader:
    """Reads budgets, and each version of one once."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[Any, Budget]] = {}

    def read(self, objects: Mapping[str, Any]) -> list[Budget]:
        """The budgets that can cover a pod at all; ``objects`` are by ``namespace/name``."""
        if not objects:
            self._read.clear()
            return []
        known, self._read = self._read, {}
        for key, obj in objects.items():
            before = known.get(key)
            self._read[key] = before if before is not None and before[0] is obj else (obj, Budget(obj))
        return [budget for _, budget in self._read.values() if not budget.matches_nothing]


def split_by_budgets(pods: Iterable[PodInfo], budgets: Sequence[Budget]) -> tuple[list[PodInfo], list[PodInfo]]:
    """(pods whose eviction violates a budget, the others), both in the given order.

    Each pod uses up one disruption of every budget that covers it; it violates those that have none left.
    """
    if not budgets:
        return [], list(pods)
    left = [budget.allowed for budget in budgets]
    violating: list[PodInfo] = []
    others: list[PodInfo] = []
    for pod in pods:
        violates = False
        if pod.labels:
            for place, budget in enumerate(budgets):
                if budget.covers(pod):
                    left[place] -= 1
                    violates |= left[place] < 0
        (violating if violates else others).append(pod)
    return violating, others
