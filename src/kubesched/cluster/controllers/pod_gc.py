"""Collection of pods that nothing else removes: on deleted nodes, finished beyond a threshold, or unscheduled and going.

Rules: upstream ``gc_controller.go``, driven by events and timers instead of a period.
"""

from __future__ import annotations

from typing import Final

from ...api.kinds import NODES, PODS
from ...api.wire import Item
from .base import Controller
from .context import BY_NODE, Context
from .pods import is_finished

__all__ = ["PodGarbage"]

_FINISHED_KEY: Final = "finished"
_NODE: Final = "node:"


class PodGarbage(Controller):
    """Keys are ``node:<name>`` and ``finished``."""

    name = "podgc"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._nodes = self.watch(NODES, self._node_changed)
        self._missing: dict[str, float] = {}
        self._finished: dict[str, None] = {}
        self.watch(PODS, self._pod_changed)

    def _node_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if new is None:
            self.queue.add(_NODE + item.name)
        else:
            self._missing.pop(item.name, None)

    def _pod_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if new is None:
            self._finished.pop(item.key, None)
            return
        pod = new.typed
        node = pod.spec.node_name
        if node and self._nodes.get(node) is None and (old is None or not old.typed.spec.node_name):
            self.queue.add(_NODE + node)
        if is_finished(pod):
            self._finished[new.key] = None
            limit = self.context.settings.terminated_pods
            if limit and len(self._finished) > limit:
                self.queue.add(_FINISHED_KEY)
        else:
            self._finished.pop(new.key, None)

    async def reconcile(self, key: str) -> None:
        if key == _FINISHED_KEY:
            await self._thin_out()
        else:
            await self._orphans(key.removeprefix(_NODE))

    async def _orphans(self, node: str) -> None:
        """Force away the pods of a node that has been gone for a while."""
        pods = self.context.pods.indexed(BY_NODE, node)
        if self._nodes.get(node) is not None or not pods:
            self._missing.pop(node, None)
            return
        now = self.context.now()
        left = self._missing.setdefault(node, now) + self.context.settings.missing_node_seconds - now
        if left > 0:
            self.queue.add_after(_NODE + node, left)
            return
        if await self.context.get(NODES, "", node) is not None:
            return
        for pod in pods:
            if not is_finished(pod.typed):
                await self._fail(pod)
            await self.context.delete(pod, grace_period_seconds=0)
        self._missing.pop(node, None)

    async def _fail(self, pod: Item) -> None:
        """A pod that is collected ends as Failed, so that its owner counts it."""
        why = self.context.condition("DisruptionTarget", "True", "DeletionByPodGC", "PodGC: node no longer exists")
        await self.context.patch_status(pod, {"phase": "Failed", "conditions": [why]})

    async def _thin_out(self) -> None:
        """Delete the oldest finished pods beyond the threshold."""
        excess = len(self._finished) - self.context.settings.terminated_pods
        found = [pod for key in self._finished if (pod := self.context.pods.get(key)) is not None]
        found.sort(key=lambda pod: (pod.typed.metadata.creation_timestamp or "", pod.key))
        for pod in found[: max(0, excess)]:
            self._finished.pop(pod.key, None)
            await self.context.delete(pod, grace_period_seconds=0)
