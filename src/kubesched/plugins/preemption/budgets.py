"""Disruption budgets: which victims would violate one (spec "Preemption" section 4.3)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from kubesched.api.decode import DecodeError, from_builtins
from kubesched.api.selectors import Selector, SelectorError, compile_label_selector
from kubesched.api.types import LabelSelector
from kubesched.cache import NodeTable
from kubesched.framework.podinfo import PodInfo

__all__ = ["Budget", "BudgetReader", "Budgets"]

_log = logging.getLogger("kubesched.plugins")

#: So many kinds of pods are remembered with the budgets that select them; all are forgotten when there are more.
_MOST_KINDS: Final = 1 << 14


class _Status(msgspec.Struct, rename="camel"):
    disruptions_allowed: int = 0
    disrupted_pods: dict[str, Any] = {}


class Budget:
    """One PodDisruptionBudget as preemption reads it.

    Attributes:
        namespace: of the pods it can cover.
        selector: of these pods; None (null, empty or invalid) matches no pod here.
        allowed: ``status.disruptionsAllowed``; 0 when the status cannot be read, which is logged.
        disrupted: names of pods whose eviction the budget has counted already.
    """

    __slots__ = ("allowed", "disrupted", "namespace", "selector")

    def __init__(self, obj: Mapping[str, Any]) -> None:
        self.namespace: str = obj["metadata"].get("namespace", "")
        self.selector = _selector(obj)
        try:
            status = from_builtins(obj.get("status") or {}, _Status)
        except DecodeError as problem:
            name = obj["metadata"].get("name", "")
            _log.error("PodDisruptionBudget %s/%s allows no disruption: status: %s", self.namespace, name, problem)
            status = _Status()
        self.allowed = status.disruptions_allowed
        self.disrupted = frozenset(status.disrupted_pods)


def _selector(obj: Mapping[str, Any]) -> Selector | None:
    spec = obj.get("spec")
    given = spec.get("selector") if isinstance(spec, Mapping) else None
    if given is None:
        return None
    try:
        selector = compile_label_selector(from_builtins(given, LabelSelector))
    except (DecodeError, SelectorError):
        return None
    return selector if selector.requirements else None


class Budgets:
    """All budgets at one time. Which of them select a pod is found once for pods with the same namespace and labels."""

    def __init__(self, budgets: Sequence[Budget] = ()) -> None:
        self._budgets = [budget for budget in budgets if budget.selector is not None]
        #: The places and selectors of the budgets of a namespace.
        self._selectors: dict[str, list[tuple[int, Selector]]] = {}
        for place, budget in enumerate(self._budgets):
            if budget.selector is not None:
                self._selectors.setdefault(budget.namespace, []).append((place, budget.selector))
        self._selecting: dict[tuple[str, frozenset[tuple[str, str]]], tuple[int, ...]] = {}

    def __len__(self) -> int:
        """How many of them can cover a pod at all."""
        return len(self._budgets)

    def selecting(self, pod: PodInfo) -> Sequence[int]:
        """The places of the budgets that cover the pod, unless its eviction is counted already."""
        meta = pod.pod.metadata
        labels = meta.labels
        if not labels or meta.namespace not in self._selectors:
            return ()
        key = (meta.namespace, frozenset(labels.items()))
        found = self._selecting.get(key)
        if found is None:
            if len(self._selecting) >= _MOST_KINDS:
                self._selecting.clear()
            selectors = self._selectors[meta.namespace]
            found = self._selecting[key] = tuple([place for place, selector in selectors if selector.matches(labels)])
        return found

    def rows(self, table: NodeTable) -> npt.NDArray[np.bool_]:
        """bool[capacity]: whether a budget selects a pod on the row."""
        return _rows_of(self._budgets, table)

    def changed_rows(self, before: Budgets, table: NodeTable) -> npt.NDArray[np.bool_]:
        """bool[capacity]: whether a budget that is not in both selects a pod on the row."""
        return _rows_of(set(self._budgets).symmetric_difference(before._budgets), table)

    def split(self, pods: Iterable[PodInfo]) -> tuple[list[PodInfo], list[PodInfo]]:
        """(pods whose eviction violates a budget, the others), both in the given order.

        Each pod uses up one disruption of every budget that covers it; it violates those that have none left.
        """
        left: dict[int, int] = {}
        violating: list[PodInfo] = []
        others: list[PodInfo] = []
        for pod in pods:
            violates = False
            for place in self.selecting(pod):
                budget = self._budgets[place]
                if pod.name not in budget.disrupted:
                    left[place] = left.get(place, budget.allowed) - 1
                    violates |= left[place] < 0
            (violating if violates else others).append(pod)
        return violating, others


def _rows_of(budgets: Iterable[Budget], table: NodeTable) -> npt.NDArray[np.bool_]:
    marked = np.zeros(table.capacity, np.bool_)
    for budget in budgets:
        if budget.selector is not None:
            table.terms.mark_rows(marked, budget.namespace, budget.selector)
    return marked


class BudgetReader:
    """Reads budgets, and each version of one once."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[Any, Budget]] = {}
        self._budgets = Budgets()

    def read(self, objects: Mapping[str, Any]) -> Budgets:
        """The budgets, which are by ``namespace/name``; the same object as the last time unless one has changed."""
        known = self._read
        if len(known) == len(objects) and all(
            before is not None and before[0] is obj
            for obj, before in ((obj, known.get(key)) for key, obj in objects.items())
        ):
            return self._budgets
        self._read = {}
        for key, obj in objects.items():
            before = known.get(key)
            self._read[key] = before if before is not None and before[0] is obj else (obj, Budget(obj))
        self._budgets = Budgets([budget for _, budget in self._read.values()])
        return self._budgets
