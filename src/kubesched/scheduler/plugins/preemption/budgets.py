"""Disruption budgets, and the victims that would violate one (rules/preemption §4.3)."""

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

from ...nodes import NodeTable
from ...nodes.columns import RowArray
from ...nodes.placed_pods import Kind
from ...nodes.podinfo import PodInfo

__all__ = ["Budget", "BudgetReader", "Budgets", "Disruptions"]

_log = logging.getLogger("kubesched.scheduler.plugins")

#: Most kinds of pods that are remembered with the budgets that select them. When there are more, all are forgotten.
_MOST_KINDS: Final = 1 << 14
_NO_KINDS: Final[npt.NDArray[np.intp]] = np.zeros(0, np.intp)


class _Status(msgspec.Struct, rename="camel"):
    disruptions_allowed: int = 0
    disrupted_pods: dict[str, Any] = {}


class Budget:
    """One PodDisruptionBudget as preemption reads it.

    Attributes:
        name: name of the object.
        namespace: namespace of the pods it can cover.
        selector: selector of these pods; None (null, empty or invalid) matches no pod here.
        allowed: ``status.disruptionsAllowed``; 0 when the status cannot be read, which is logged.
        disrupted: names of pods whose eviction the budget has counted already.
    """

    __slots__ = ("_covered", "_spec", "_version", "allowed", "disrupted", "name", "namespace", "selector")

    def __init__(self, obj: Mapping[str, Any], before: Budget | None = None) -> None:
        """``before`` is the version before, if there was one; mostly only the status differs."""
        self.name: str = obj["metadata"].get("name", "")
        self.namespace: str = obj["metadata"].get("namespace", "")
        self._spec = obj.get("spec")
        same = before is not None and before._spec == self._spec and before.namespace == self.namespace
        known = before if same else None
        self.selector: Selector | None = known.selector if known is not None else _selector(self._spec)
        self._version: int = known._version if known is not None else -1
        self._covered: npt.NDArray[np.intp] = known._covered if known is not None else _NO_KINDS
        try:
            status = from_builtins(obj.get("status") or {}, _Status)
        except DecodeError as problem:
            _log.error("PodDisruptionBudget %s/%s allows no disruption: status: %s", self.namespace, self.name, problem)
            status = _Status()
        self.allowed = status.disruptions_allowed
        self.disrupted = frozenset(status.disrupted_pods)

    def covered(self, table: NodeTable) -> npt.NDArray[np.intp]:
        """Kinds of the pods on nodes that the budget covers, numbered as in :class:`..PlacedPods`; intp[n]."""
        kinds = table.placed.kinds
        if self._version != kinds.version and self.selector is not None:
            self._version = kinds.version
            matching = table.terms.matching(self.namespace, self.selector)
            found = {kinds.get(group.kind) for group in matching if group.labels}
            self._covered = np.array([number for number in found if number is not None], np.intp)
        return self._covered


def _selector(spec: Any) -> Selector | None:
    given = spec.get("selector") if isinstance(spec, Mapping) else None
    if given is None:
        return None
    try:
        selector = compile_label_selector(from_builtins(given, LabelSelector))
    except (DecodeError, SelectorError):
        return None
    return selector if selector.requirements else None


class Budgets:
    """All budgets at one time. The budgets of a pod are found once for all pods with its namespace and labels."""

    def __init__(self, budgets: Sequence[Budget] = ()) -> None:
        self._budgets = [budget for budget in budgets if budget.selector is not None]
        #: Places and selectors of a namespace's budgets.
        self._selectors: dict[str, list[tuple[int, Selector]]] = {}
        for place, budget in enumerate(self._budgets):
            if budget.selector is not None:
                self._selectors.setdefault(budget.namespace, []).append((place, budget.selector))
        self._selecting: dict[Kind, tuple[int, ...]] = {}
        most = np.iinfo(np.int64)
        allowed = [min(max(budget.allowed, most.min), most.max) for budget in self._budgets]
        self._allowed = np.array(allowed, np.int64)
        self._version = -1
        self._covering: tuple[RowArray, RowArray] = np.zeros(1, np.intp), np.zeros(0, np.intp)

    def __len__(self) -> int:
        """Number of budgets that can cover a pod at all."""
        return len(self._budgets)

    def at(self, place: int) -> Budget:
        """Return a budget by its place, as :meth:`selecting` names it."""
        return self._budgets[place]

    def selecting(self, pod: PodInfo) -> Sequence[int]:
        """Places of the budgets that cover the pod. They include budgets that have counted its eviction already."""
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

    def violating(self, table: NodeTable, kinds: npt.NDArray[np.int64], nodes: RowArray) -> npt.NDArray[np.bool_]:
        """Mark the pods of many nodes whose eviction violates a budget, bool[n], as :meth:`split` does.

        Rows in :meth:`counted_rows` need :meth:`split` instead.

        Args:
            table: the nodes.
            kinds: the pods' kinds.
            nodes: the pods' nodes, as ascending numbers; the pods of a node are in the order given to ``split``.
        """
        first, covering = self._by_kind(table)
        begin = first[kinds]
        count = first[kinds + 1] - begin
        violating = np.zeros(len(kinds), np.bool_)
        pods = np.flatnonzero(count)
        if not len(pods):
            return violating
        place = begin[pods]
        if count.max() > 1:  # make a pair for each pod and budget that covers it
            count = count[pods]
            turn = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
            pods, place = np.repeat(pods, count), np.repeat(place, count) + turn
        budgets = covering[place]
        # A pod violates a budget if the pods before it on its node use up all that the budget allows.
        group = nodes[pods] * len(self._budgets) + budgets
        order = np.argsort(group, kind="stable")
        ordered = group[order]
        numbers = np.arange(len(order))
        begins = np.ones(len(order), np.bool_)
        begins[1:] = ordered[1:] != ordered[:-1]
        before = numbers - np.maximum.accumulate(np.where(begins, numbers, 0))
        violating[pods[order[before >= self._allowed[budgets[order]]]]] = True
        return violating

    def _by_kind(self, table: NodeTable) -> tuple[RowArray, RowArray]:
        """Offsets of each kind, intp[kinds + 1], into the places of the budgets that cover it, intp[n]."""
        kinds = table.placed.kinds
        if self._version != kinds.version:
            self._version = kinds.version
            covered = [budget.covered(table) for budget in self._budgets]
            numbers = np.concatenate(covered)
            order = np.argsort(numbers, kind="stable")
            places = np.repeat(np.arange(len(covered)), [len(each) for each in covered])
            first = np.searchsorted(numbers[order], np.arange(len(kinds) + 1))
            self._covering = first, places[order]
        return self._covering

    def counted_rows(self, table: NodeTable) -> npt.NDArray[np.bool_]:
        """Mark rows that may have pods whose eviction a budget has counted already, bool[capacity]."""
        return _rows_of([budget for budget in self._budgets if budget.disrupted], table)

    def changed_rows(self, before: Budgets, table: NodeTable) -> npt.NDArray[np.bool_]:
        """Mark rows with a pod that a new, changed or removed budget selects, bool[capacity]."""
        return _rows_of(set(self._budgets).symmetric_difference(before._budgets), table)

    def violated_by(self, pods: Iterable[PodInfo]) -> list[str]:
        """Return the budgets, as ``namespace/name``, that the eviction of all these pods violates."""
        left: dict[int, int] = {}
        for pod in pods:
            for place in self.selecting(pod):
                if pod.name not in self._budgets[place].disrupted:
                    left[place] = left.get(place, self._budgets[place].allowed) - 1
        violated = (self._budgets[place] for place, rest in left.items() if rest < 0)
        return sorted(f"{budget.namespace}/{budget.name}" for budget in violated)

    def split(self, pods: Iterable[PodInfo]) -> tuple[list[PodInfo], list[PodInfo]]:
        """Split pods into those whose eviction violates a budget and the others, both in the given order.

        Each pod uses up one disruption of every budget that covers it. A pod violates a budget that has no disruption
        left.
        """
        violating: list[PodInfo] = []
        others: list[PodInfo] = []
        used = self.counting()
        for pod in pods:
            (violating if used.violates(pod) else others).append(pod)
        return violating, others

    def counting(self) -> Disruptions:
        """Return a new count of disruptions."""
        return Disruptions(self)


class Disruptions:
    """Count of the disruptions that budgets have left."""

    __slots__ = ("_budgets", "_left")

    def __init__(self, budgets: Budgets) -> None:
        self._budgets = budgets
        self._left: dict[int, int] = {}

    def violates(self, pod: PodInfo) -> bool:
        """Use up one disruption of every budget that covers a pod. True if one of them had none left."""
        violates, left = False, self._left
        for place in self._budgets.selecting(pod):
            budget = self._budgets.at(place)
            if pod.name not in budget.disrupted:
                left[place] = left.get(place, budget.allowed) - 1
                violates |= left[place] < 0
        return violates


def _rows_of(budgets: Iterable[Budget], table: NodeTable) -> npt.NDArray[np.bool_]:
    marked = np.zeros(table.capacity, np.bool_)
    covered = [budget.covered(table) for budget in budgets]
    if covered:
        kinds = np.zeros(len(table.placed.kinds), np.bool_)
        kinds[np.concatenate(covered)] = True
        marked[table.placed.rows_of(kinds)] = True
    return marked


class BudgetReader:
    """Reader of budgets that decodes each version of a budget once."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[Any, Budget]] = {}
        self._budgets = Budgets()

    def read(self, objects: Mapping[str, Any]) -> Budgets:
        """Return the budgets in ``objects``, which are PodDisruptionBudgets by ``namespace/name``.

        If none has changed since the last call, the same :class:`Budgets` is returned again.
        """
        known = self._read
        if len(known) == len(objects) and all(
            before is not None and before[0] is obj
            for obj, before in ((obj, known.get(key)) for key, obj in objects.items())
        ):
            return self._budgets
        self._read = {}
        for key, obj in objects.items():
            before = known.get(key)
            if before is None or before[0] is not obj:
                before = obj, Budget(obj, before[1] if before is not None else None)
            self._read[key] = before
        self._budgets = Budgets([budget for _, budget in self._read.values()])
        return self._budgets
