"""Node lifecycle: unresponsive nodes become NotReady, and taints follow from conditions and from ``spec.unschedulable``.

A node with a Lease in ``kube-node-lease`` must renew it; ``node_grace_seconds`` after the last renewal its Ready
condition becomes Unknown and its pods stop being ready. A node without a Lease is not watched over. A node is found
the moment its grace ends, not at the next round of a monitor. Missed heartbeats count from the start of this controller:
the time while the cluster was switched off does not count. Taints: upstream ``node_lifecycle_controller.go``.
Next: :mod:`.taint_eviction` deletes the pods that do not tolerate them. Evictions are not rate limited by zone.
"""

from __future__ import annotations

from typing import Any, Final

from ...api.kinds import LEASES, NODES
from ...api.times import parse_time
from ...api.types import Node
from ...api.wire import Item
from ...client.event_writer import NORMAL, WARNING
from .base import Controller
from .context import BY_NODE, Context
from .pods import is_finished, is_ready

__all__ = ["LEASE_NAMESPACE", "NOT_READY", "UNREACHABLE", "UNSCHEDULABLE", "NodeLifecycle"]

LEASE_NAMESPACE: Final = "kube-node-lease"
NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"

_NO_SCHEDULE: Final = {
    ("Ready", "False"): NOT_READY,
    ("Ready", "Unknown"): UNREACHABLE,
    ("MemoryPressure", "True"): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
}
_OURS: Final = frozenset({*_NO_SCHEDULE.values(), UNSCHEDULABLE})
_SILENT: Final = "Kubelet stopped posting node status."
#: A kubelet renews every 10 s; after this silence, or this part of the grace if that is shorter, it is late.
_LATE_SECONDS: Final = 12.0
_LATE_PART: Final = 0.3


class NodeLifecycle(Controller):
    """Keeps Ready conditions and taints of nodes true."""

    name = "nodelifecycle"
    component = "node-controller"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._nodes = self.watch(NODES, self._node_changed)
        self._leases = self.watch(LEASES, self._lease_changed)
        self._watched: set[str] = set()
        self._since: float | None = None

    def _node_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if new is None:
            return
        if old is not None:
            before, after = old.typed, new.typed
            if (before.spec, before.status.conditions) == (after.spec, after.status.conditions):
                return
        self.queue.add(new.name)

    def _lease_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        """Only the first sign of a lease, or its end, needs a look; a renewal is seen when the grace would end."""
        if item.namespace == LEASE_NAMESPACE and (item.name not in self._watched or new is None):
            self.queue.add(item.name)

    async def reconcile(self, key: str) -> None:
        item = self._nodes.get(key)
        self._watched.discard(key)
        if item is None:
            return
        silent = self._is_silent(item)
        node: Node = item.typed
        ready = next((condition for condition in node.status.conditions if condition.type == "Ready"), None)
        if silent and (ready is None or ready.status != "Unknown"):
            item = await self._mark_silent(item)
            if ready is not None and ready.status == "True":
                text = f"Node {item.name} status is now: NodeNotReady"
                await self.record(item, NORMAL, "NodeNotReady", text)
        item = await self._taint(item)
        node = item.typed
        if any(one.type == "Ready" and one.status != "True" for one in node.status.conditions):
            await self._mark_pods(item)

    def _is_silent(self, item: Item) -> bool:
        """Whether the node's grace is over; if it is not, when to look again."""
        lease = self._leases.get(f"{LEASE_NAMESPACE}/{item.name}")
        if lease is None:
            return False
        renewed = (lease.data().get("spec") or {}).get("renewTime")
        if not renewed:
            return False
        grace = self.context.settings.node_grace_seconds
        now = self.context.now()
        if self._since is None:
            self._since = now
        silence = now - max(parse_time(renewed), self._since)
        if silence >= grace:
            return True
        self._watched.add(item.name)
        # Late already: something is going to happen. In time: merely look again.
        late = min(_LATE_SECONDS, grace * _LATE_PART)
        if silence <= late:
            self.queue.add_after(item.name, late - silence + 0.001, quiet=True)
        else:
            self.queue.add_after(item.name, grace - silence)
        return False

    async def _mark_silent(self, item: Item) -> Item:
        conditions = item.data().get("status", {}).get("conditions") or []
        types = [one.get("type") for one in conditions if one.get("type") != "NetworkUnavailable"]
        patch = [
            self.context.condition(type_, "Unknown", "NodeStatusUnknown", _SILENT)
            for type_ in dict.fromkeys(["Ready", *types])
        ]
        return await self.context.patch_status(item, {"conditions": patch}, unless=()) or item

    # -- taints ----------------------------------------------------------------------------------------

    async def _taint(self, item: Item) -> Item:
        node: Node = item.typed
        wanted = {
            (_NO_SCHEDULE[one.type, one.status], "NoSchedule")
            for one in node.status.conditions
            if (one.type, one.status) in _NO_SCHEDULE
        }
        if node.spec.unschedulable:
            wanted.add((UNSCHEDULABLE, "NoSchedule"))
        if not wanted and not node.spec.taints:
            return item
        wanted |= {(key, "NoExecute") for key, _ in wanted if key in (NOT_READY, UNREACHABLE)}
        taints: list[dict[str, Any]] = (item.data().get("spec") or {}).get("taints") or []
        if all(one.type != "Ready" for one in node.status.conditions):
            wanted |= {(NOT_READY, str(one.get("effect"))) for one in taints if one.get("key") == NOT_READY}
        kept = [taint for taint in taints if (taint.get("key"), taint.get("effect")) in wanted or not _is_ours(taint)]
        there = {(taint.get("key"), taint.get("effect")) for taint in kept}
        added: list[dict[str, Any]] = [
            {"key": key, "effect": effect, "timeAdded": self.context.now_text()}
            for key, effect in sorted(wanted)
            if (key, effect) not in there
        ]
        if not added and len(kept) == len(taints):
            return item
        patch = {
            "metadata": {"resourceVersion": str(item.resource_version)},
            "spec": {"taints": [*kept, *added] or None},
        }
        return await self.context.patch(item, patch)

    async def _mark_pods(self, item: Item) -> None:
        """Pods of a node that is not ready are not ready either."""
        condition = self.context.condition("Ready", "False", "NodeNotReady")
        for pod in self.context.pods.indexed(BY_NODE, item.name):
            if is_finished(pod.typed) or not is_ready(pod.typed):
                continue
            if await self.context.patch_status(pod, {"conditions": [condition]}):
                await self.record(pod, WARNING, "NodeNotReady", "Node is not ready")


def _is_ours(taint: dict[str, Any]) -> bool:
    key, effect = taint.get("key"), taint.get("effect")
    return key in _OURS and (effect == "NoSchedule" or (effect == "NoExecute" and key in (NOT_READY, UNREACHABLE)))
