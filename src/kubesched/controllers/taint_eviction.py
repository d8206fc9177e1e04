"""Taint eviction: pods leave nodes with NoExecute taints, at once or when their ``tolerationSeconds`` are over.

Rules: upstream ``taint_eviction.go``. Pods go by ordinary deletion, so disruption budgets are not asked, and on a node
that is unresponsive they stay Terminating until it recovers or is removed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from kubesched.api.kinds import NODES, PODS
from kubesched.api.resource import DeviceTaint, DeviceToleration
from kubesched.api.taints import NO_EXECUTE, tolerates
from kubesched.api.times import parse_time
from kubesched.api.types import Pod, Taint, Toleration
from kubesched.api.wire import Item
from kubesched.client.event_writer import NORMAL

from .base import ObjectController
from .context import BY_NODE, Context, differ

__all__ = ["Evictor", "TaintEviction", "toleration_seconds"]


def toleration_seconds(
    tolerations: Iterable[Toleration | DeviceToleration], taints: Iterable[Taint | DeviceTaint]
) -> float | None:
    """How long a pod may stay, or a device be used, under NoExecute taints: 0 not at all, None without limit."""
    limits: list[float] = []
    for taint in taints:
        matching = [item.toleration_seconds for item in tolerations if tolerates(item, taint)]
        if not matching:
            return 0.0
        limits += [max(0.0, float(seconds)) for seconds in matching if seconds is not None]
    return min(limits, default=None)


class Evictor(ObjectController):
    """Deletes pods when the time is over that they may stay."""

    kind = PODS
    #: What an eviction is called: the reason of its event, and reason and message of the pod's condition.
    event: ClassVar[str]
    reason: ClassVar[str]
    message: ClassVar[str]

    def left(self, pod: Pod) -> float | None:
        """Seconds until a pod has to go; None when it may stay."""
        raise AssertionError("every evictor says what it does")

    async def reconcile_object(self, item: Item) -> None:
        context = self.context
        left = self.left(item.typed) if not context.is_going(item) else None
        if left is None:
            return
        if left > 0:
            self.queue.add_after(item.key, left)
            return
        await self.record(item, NORMAL, self.event, f"Marking for deletion Pod {item.key}")
        condition = context.condition("DisruptionTarget", "True", self.reason, self.message)
        changed = await context.patch_status(item, {"conditions": [condition]})
        if changed is not None:
            await context.delete(changed)


class TaintEviction(Evictor):
    """Deletes pods that may not stay where they are."""

    name = "taint-eviction"
    event, reason = "TaintManagerEviction", "DeletionByTaintManager"
    message = "Taint manager: deleting due to NoExecute taint"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._tainted: dict[str, list[Taint]] = {}
        self.watch(NODES, self._node_changed)

    def _node_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        given: list[Taint] = new.typed.spec.taints if new is not None else []
        taints = [taint for taint in given if taint.effect == NO_EXECUTE]
        before = self._tainted.pop(item.name, [])
        if taints:
            self._tainted[item.name] = taints
        if taints == before:
            return
        for pod in self.context.pods.indexed(BY_NODE, item.name):
            self.queue.add(pod.key)

    def enqueue(self, item: Item, old: Item | None, new: Item | None) -> None:
        is_tainted = new is not None and new.typed.spec.node_name in self._tainted
        if is_tainted and differ(old, new, lambda pod: (pod.typed.spec.node_name, pod.typed.spec.tolerations)):
            self.queue.add(item.key)

    def left(self, pod: Pod) -> float | None:
        taints = self._tainted.get(pod.spec.node_name, [])
        left = toleration_seconds(pod.spec.tolerations, taints)
        dates = [parse_time(taint.time_added) for taint in taints if taint.time_added]
        # A taint without a date, or a pod that came later, counts from now: look again after the whole time.
        return max(dates) + left - self.context.now() if dates and left is not None else left
