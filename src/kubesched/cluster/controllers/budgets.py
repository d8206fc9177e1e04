"""PodDisruptionBudget status: the number of selected pods that may be disrupted now.

Each status is written with the version it was computed from, so that an eviction charged meanwhile is never
overwritten. Rules: upstream ``disruption.go``. Next: the eviction subresource and preemption read
``status.disruptionsAllowed``.
"""

from __future__ import annotations

from typing import Any

from kubesched.api.decode import DecodeError, from_builtins
from kubesched.api.kinds import BUDGETS, DEPLOYMENTS, PODS, REPLICA_SETS, REPLICATION_CONTROLLERS, STATEFUL_SETS, Kind
from kubesched.api.selectors import Selector, SelectorError, compile_label_selector
from kubesched.api.types import LabelSelector
from kubesched.api.wire import Item
from kubesched.base.times import parse_time

from .base import ObjectController
from .context import BY_NAMESPACE, Context, Data, controller_of, data_of, differ, owner_key, spec_of, status_of
from .pods import is_finished, is_ready, resolve_count

__all__ = ["Budgets"]

_SCALABLE = {kind.kind: kind for kind in (REPLICA_SETS, REPLICATION_CONTROLLERS, STATEFUL_SETS, DEPLOYMENTS)}


class Budgets(ObjectController):
    """Controller that keeps the status of every budget."""

    name = "disruption"
    kind = BUDGETS

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.cache.add_index(BY_NAMESPACE, lambda item: (item.namespace,))
        #: Selectors by key of the budget. A selector that does not parse is left out, and so selects nothing.
        self._selectors: dict[str, Selector] = {}
        context.watch(PODS, self._pod_changed)
        for kind in _SCALABLE.values():
            context.watch(kind, self._scale_changed)

    def enqueue(self, item: Item, old: Item | None, new: Item | None) -> None:
        super().enqueue(item, old, new)
        self._selectors.pop(item.key, None)
        selector = spec_of(item).get("selector")
        if new is not None and selector is not None:
            try:
                self._selectors[item.key] = compile_label_selector(from_builtins(selector, LabelSelector))
            except (DecodeError, SelectorError) as error:
                self.context.problems.note(f"{self.name} {item.key}: {error}")

    def _pod_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        """Enqueue the pod's budgets: at once when it loses health, a little later when it gains health.

        Noticing a gain late is safe; noticing a loss late is not.
        """
        budgets = self.cache.indexed(BY_NAMESPACE, item.namespace)
        if not budgets or not differ(old, new, _seen):
            return
        seen = [one.typed.metadata.labels for one in (old, new) if one is not None]
        delay = 0.0 if _healthy(old) and not _healthy(new) else self.context.settings.batch_seconds
        for budget in budgets:
            selector = self._selectors.get(budget.key)
            if selector is not None and any(map(selector.matches, seen)):
                self.queue.add_after(budget.key, delay)

    def _scale_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if differ(old, new, _replicas):
            for budget in self.cache.indexed(BY_NAMESPACE, item.namespace):
                self.queue.add(budget.key)

    async def reconcile_object(self, item: Item) -> None:
        selector = self._selectors.get(item.key)
        pods = [
            pod
            for pod in self.context.pods.indexed(BY_NAMESPACE, item.namespace)
            if selector is not None and not is_finished(pod.typed) and selector.matches(pod.typed.metadata.labels)
        ]
        status = status_of(item)
        disrupted, again = self._still_disrupted(status.get("disruptedPods") or {}, pods)
        healthy = sum(_healthy(pod) and pod.name not in disrupted for pod in pods)
        expected, desired = self._expected(spec_of(item), pods)
        allowed = max(0, healthy - desired) if expected > 0 else 0
        # Conditions of this kind always carry a message, possibly empty: clients with typed models require it.
        condition = ("DisruptionAllowed", str(allowed > 0), "SufficientPods" if allowed else "InsufficientPods", "")
        new_status: Data = {
            "observedGeneration": data_of(item)["metadata"].get("generation", 0),
            "disruptedPods": disrupted or None,
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "conditions": self.context.with_condition(status.get("conditions"), *condition),
        }
        if again is not None:
            self.queue.add_after(item.key, again)
        await self.context.write_status(item, new_status)

    def _still_disrupted(self, noted: dict[str, Any], pods: list[Item]) -> tuple[dict[str, Any], float | None]:
        """Return the granted evictions that are not visible yet, and the seconds until the next check (or None)."""
        now, limit = self.context.now(), self.context.settings.disruption_seconds
        staying = {pod.name for pod in pods if pod.typed.metadata.deletion_timestamp is None}
        left = {name: parse_time(when) + limit - now for name, when in noted.items() if name in staying}
        kept = {name: noted[name] for name, seconds in left.items() if seconds > 0}
        return kept, min((left[name] for name in kept), default=None)

    def _expected(self, spec: Data, pods: list[Item]) -> tuple[int, int]:
        """Return the number of expected pods, and of pods that must be healthy."""
        minimum, maximum = spec.get("minAvailable"), spec.get("maxUnavailable")
        if maximum is None and not isinstance(minimum, str):
            return len(pods), int(minimum or 0)
        expected = self._scale(pods)
        if maximum is None:
            return expected, resolve_count(minimum, expected, up=True)
        return expected, max(0, expected - resolve_count(maximum, expected, up=True))

    def _scale(self, pods: list[Item]) -> int:
        """Return the sum of the replica counts of the pods' controllers."""
        scales: dict[str, int] = {}
        for pod in pods:
            reference = controller_of(pod)
            kind = _SCALABLE.get(reference.kind) if reference is not None else None
            if reference is not None and kind is not None and reference.uid not in scales:
                scales.update(self._owner_scale(kind, f"{pod.namespace}/{reference.name}", reference.uid))
        return sum(scales.values())

    def _owner_scale(self, kind: Kind, key: str, uid: str) -> dict[str, int]:
        """Return the scale of a pod's controller, by UID. For a set of a Deployment the Deployment's scale counts."""
        owner = self.context.cache(kind).get(key)
        if owner is None or owner.uid != uid:
            return {uid: 0}
        above = self.context.cache(DEPLOYMENTS).get(owner_key(owner, DEPLOYMENTS)) if kind == REPLICA_SETS else None
        return {uid: _replicas(owner)} if above is None else {above.uid: _replicas(above), uid: 0}


def _healthy(item: Item | None) -> bool:
    return item is not None and item.typed.metadata.deletion_timestamp is None and is_ready(item.typed)


def _seen(item: Item) -> tuple[Any, ...]:
    """Fields of a pod that budgets depend on."""
    return _healthy(item), is_finished(item.typed), item.typed.metadata.labels


def _replicas(item: Item) -> int:
    return int(spec_of(item).get("replicas", 1))
