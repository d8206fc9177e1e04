"""PodDisruptionBudget status: how many of the pods it selects may be disrupted now.

Written with the version it was computed from, so that an eviction charged meanwhile is never overwritten. Rules:
upstream ``disruption.go``. Next: the eviction subresource and preemption read ``status.disruptionsAllowed``.
"""

from __future__ import annotations

from typing import Any

from ...api.decode import DecodeError, from_builtins
from ...api.kinds import BUDGETS, DEPLOYMENTS, PODS, REPLICA_SETS, REPLICATION_CONTROLLERS, STATEFUL_SETS, Kind
from ...api.selectors import Selector, SelectorError, compile_label_selector
from ...api.times import parse_time
from ...api.types import LabelSelector
from ...api.wire import Item
from .base import ObjectController
from .context import BY_NAMESPACE, Context, Data, controller_of, owner_key
from .pods import conditions_with, is_finished, is_ready, resolve_count

__all__ = ["Budgets"]

_SCALABLE = {kind.kind: kind for kind in (REPLICA_SETS, REPLICATION_CONTROLLERS, STATEFUL_SETS, DEPLOYMENTS)}


class Budgets(ObjectController):
    """Keeps the status of every budget."""

    name = "disruption"
    kind = BUDGETS

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.cache.add_index(BY_NAMESPACE, lambda item: (item.namespace,))
        self._selectors: dict[str, tuple[int, Selector | None]] = {}
        self.watch(PODS, self._pod_changed)
        for kind in _SCALABLE.values():
            self.watch(kind, self._scale_changed)

    def enqueue(self, item: Item, old: Item | None, new: Item | None) -> None:
        if new is None:
            self._selectors.pop(item.key, None)
        super().enqueue(item, old, new)

    def _selector(self, item: Item) -> Selector | None:
        """The budget's selector; None when it cannot be read, which selects nothing."""
        known = self._selectors.get(item.key)
        if known is not None and known[0] == item.resource_version:
            return known[1]
        given = (item.data().get("spec") or {}).get("selector")
        selector: Selector | None = None
        if given is not None:
            try:
                selector = compile_label_selector(from_builtins(given, LabelSelector))
            except (DecodeError, SelectorError) as error:
                self.context.note_problem(f"{self.name} {item.key}: {error}")
        self._selectors[item.key] = (item.resource_version, selector)
        return selector

    def _pod_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        """At once when health is lost, a little later when it is gained: the safe direction is the slow one."""
        budgets = self.cache.indexed(BY_NAMESPACE, item.namespace)
        if not budgets:
            return
        was, now = _healthy(old), _healthy(new)
        same_labels = old is None or new is None or old.typed.metadata.labels == new.typed.metadata.labels
        same_life = old is not None and new is not None and is_finished(old.typed) == is_finished(new.typed)
        if was == now and same_labels and same_life:
            return
        for budget in budgets:
            selector = self._selector(budget)
            if selector is None or not any(
                selector.matches(one.typed.metadata.labels) for one in (old, new) if one is not None
            ):
                continue
            if was and not now:
                self.queue.add(budget.key)
            else:
                self.queue.add_after(budget.key, self.context.settings.batch_seconds)

    def _scale_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if old is not None and new is not None and _replicas(old) == _replicas(new):
            return
        for budget in self.cache.indexed(BY_NAMESPACE, item.namespace):
            self.queue.add(budget.key)

    async def reconcile_object(self, item: Item, data: Data) -> None:
        selector = self._selector(item)
        pods = [
            pod
            for pod in self.context.pods.indexed(BY_NAMESPACE, item.namespace)
            if selector is not None and not is_finished(pod.typed) and selector.matches(pod.typed.metadata.labels)
        ]
        status = data.get("status") or {}
        disrupted, again = self._still_disrupted(status.get("disruptedPods") or {}, pods)
        healthy = sum(_healthy(pod) and pod.name not in disrupted for pod in pods)
        expected, desired = self._expected(data.get("spec") or {}, pods)
        allowed = max(0, healthy - desired) if expected > 0 else 0
        # Conditions of this kind always carry a message, though it be empty: clients with models insist on it.
        reason = "SufficientPods" if allowed else "InsufficientPods"
        condition = self.context.condition("DisruptionAllowed", str(allowed > 0), reason, "")
        new_status: Data = {
            "observedGeneration": data["metadata"].get("generation", 0),
            "disruptedPods": disrupted or None,
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "conditions": conditions_with(status.get("conditions"), condition),
        }
        if again is not None:
            self.queue.add_after(item.key, again)
        await self.context.write_status(item, data, new_status)

    def _still_disrupted(self, noted: dict[str, Any], pods: list[Item]) -> tuple[dict[str, Any], float | None]:
        """Evictions that have been granted and are not visible yet; when to check them again."""
        there = {pod.name: pod for pod in pods}
        kept: dict[str, Any] = {}
        again: float | None = None
        for name, when in noted.items():
            pod = there.get(name)
            if pod is None or pod.typed.metadata.deletion_timestamp is not None:
                continue
            left = parse_time(when) + self.context.settings.disruption_seconds - self.context.now()
            if left > 0:
                kept[name] = when
                again = left if again is None else min(again, left)
        return kept, again

    def _expected(self, spec: Data, pods: list[Item]) -> tuple[int, int]:
        """How many pods there should be, and how many of them healthy."""
        minimum, maximum = spec.get("minAvailable"), spec.get("maxUnavailable")
        if maximum is not None:
            expected = self._scale(pods)
            return expected, max(0, expected - resolve_count(maximum, expected, up=True))
        if isinstance(minimum, str):
            expected = self._scale(pods)
            return expected, resolve_count(minimum, expected, up=True)
        return len(pods), int(minimum) if minimum is not None else 0

    def _scale(self, pods: list[Item]) -> int:
        """The sum of the replica counts of the pods' controllers."""
        scales: dict[str, int] = {}
        for pod in pods:
            reference = controller_of(pod)
            kind = _SCALABLE.get(reference.kind) if reference is not None else None
            if reference is None or kind is None:
                continue
            if reference.uid not in scales:
                scales.update(self._owner_scale(kind, f"{pod.namespace}/{reference.name}", reference.uid))
        return sum(scales.values())

    def _owner_scale(self, kind: Kind, key: str, uid: str) -> dict[str, int]:
        """The scale that counts for a pod of this controller: a deployment's for its sets."""
        owner = self.context.cache(kind).get(key)
        if owner is None or owner.uid != uid:
            return {uid: 0}
        above = self.context.cache(DEPLOYMENTS).get(owner_key(owner, DEPLOYMENTS)) if kind == REPLICA_SETS else None
        if above is not None:
            return {above.uid: _replicas(above), uid: 0}
        return {uid: _replicas(owner)}


def _healthy(item: Item | None) -> bool:
    return item is not None and item.typed.metadata.deletion_timestamp is None and is_ready(item.typed)


def _replicas(item: Item) -> int:
    return int((item.data().get("spec") or {}).get("replicas", 1))
