"""Node lifecycle: unresponsive nodes become NotReady; taints follow conditions and ``spec.unschedulable``.

A node with a Lease in ``kube-node-lease`` must renew it. ``node_grace_seconds`` after the last renewal its Ready
condition becomes Unknown and its pods stop being ready. A node without a Lease is not watched over. A timer finds the
node the moment its grace ends; there is no periodic monitor. Missed heartbeats count from the start of this controller:
the time while the cluster was switched off does not count. Taints: upstream ``node_lifecycle_controller.go``. Next:
:mod:`.taint_eviction` deletes the pods that do not tolerate them. Evictions are not rate limited by zone.
"""

from __future__ import annotations

from typing import Any, Final

from kubesched.api.kinds import LEASES, NODES
from kubesched.api.types import Node
from kubesched.api.wire import Item
from kubesched.base.times import parse_time
from kubesched.client.event_writer import NORMAL, WARNING

from .base import Controller
from .context import BY_NODE, Context, differ
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
_NO_EXECUTE: Final = (NOT_READY, UNREACHABLE)
#: Key and effect of every taint that is set and removed here.
_OURS: Final = frozenset(
    {(key, "NoSchedule") for key in (*_NO_SCHEDULE.values(), UNSCHEDULABLE)}
    | {(key, "NoExecute") for key in _NO_EXECUTE}
)
_SILENT: Final = "Kubelet stopped posting node status."
#: A node is late after this many seconds without renewal (a kubelet renews every 10 s), or after this part of the
#: grace if that is shorter.
_LATE_SECONDS: Final = 12.0
_LATE_PART: Final = 0.3


class NodeLifecycle(Controller):
    """Controller of the Ready conditions and taints of nodes."""

    name = "nodelifecycle"
    component = "node-controller"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._nodes = context.watch(NODES, self._node_changed)
        self._leases = context.watch(LEASES, self._lease_changed)
        self._watched: set[str] = set()
        self._since: float | None = None

    def _node_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if new is not None and differ(old, new, lambda node: (node.typed.spec, node.typed.status.conditions)):
            self.queue.add(new.name)

    def _lease_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        """Enqueue the node when its lease appears or is deleted. Renewals are read when the grace would end."""
        if item.namespace == LEASE_NAMESPACE and (item.name not in self._watched or new is None):
            self.queue.add(item.name)

    async def reconcile(self, key: str) -> None:
        item = self._nodes.get(key)
        self._watched.discard(key)
        if item is None:
            return
        ready = _ready(item)
        if self._is_silent(item) and ready != "Unknown":
            item = await self._mark_silent(item)
            if ready == "True":
                await self.record(item, NORMAL, "NodeNotReady", f"Node {item.name} status is now: NodeNotReady")
        item = await self._taint(item)
        if _ready(item) not in ("", "True"):
            await self._mark_pods(item)

    def _is_silent(self, item: Item) -> bool:
        """True if the node's grace is over. Otherwise the node is checked again at the end of its grace."""
        lease = self._leases.get(f"{LEASE_NAMESPACE}/{item.name}")
        renewed = (lease.data().get("spec") or {}).get("renewTime") if lease is not None else None
        if not renewed:
            return False
        grace, now = self.context.settings.node_grace_seconds, self.context.now()
        self._since = now if self._since is None else self._since
        silence = now - max(parse_time(renewed), self._since)
        if silence >= grace:
            return True
        self._watched.add(item.name)
        # A node that is late gets a loud timer, because something will happen. A node in time gets a quiet timer.
        late = min(_LATE_SECONDS, grace * _LATE_PART)
        if silence <= late:
            self.queue.add_after(item.name, late - silence + 0.001, quiet=True)
        else:
            self.queue.add_after(item.name, grace - silence)
        return False

    async def _mark_silent(self, item: Item) -> Item:
        node: Node = item.typed
        types = dict.fromkeys(["Ready", *(one.type for one in node.status.conditions)])
        types.pop("NetworkUnavailable", None)
        patch = [self.context.condition(type_, "Unknown", "NodeStatusUnknown", _SILENT) for type_ in types]
        return await self.context.patch_status(item, {"conditions": patch}, unless=()) or item

    async def _taint(self, item: Item) -> Item:
        """Set the taints that conditions and ``spec.unschedulable`` ask for; remove our other taints."""
        node: Node = item.typed
        conditions = [(one.type, one.status) for one in node.status.conditions]
        wanted = {(_NO_SCHEDULE[one], "NoSchedule") for one in conditions if one in _NO_SCHEDULE}
        if node.spec.unschedulable:
            wanted.add((UNSCHEDULABLE, "NoSchedule"))
        if not wanted and not node.spec.taints:
            return item
        wanted |= {(key, "NoExecute") for key, _ in wanted if key in _NO_EXECUTE}
        given = (item.data().get("spec") or {}).get("taints") or ()
        taints = {(one.get("key"), one.get("effect")): one for one in given}
        if not _ready(item):
            wanted |= {(NOT_READY, str(effect)) for key, effect in taints if key == NOT_READY}
        kept = [taint for one, taint in taints.items() if one in wanted or one not in _OURS]
        added: list[dict[str, Any]] = [
            {"key": key, "effect": effect, "timeAdded": self.context.now_text()}
            for key, effect in sorted(wanted - taints.keys())
        ]
        if not added and len(kept) == len(taints):
            return item
        version = {"resourceVersion": str(item.resource_version)}
        return await self.context.patch(item, {"metadata": version, "spec": {"taints": [*kept, *added] or None}})

    async def _mark_pods(self, item: Item) -> None:
        """Mark the pods of a node that is not ready as not ready."""
        condition = self.context.condition("Ready", "False", "NodeNotReady")
        for pod in self.context.pods.indexed(BY_NODE, item.name):
            if is_finished(pod.typed) or not is_ready(pod.typed):
                continue
            if await self.context.patch_status(pod, {"conditions": [condition]}):
                await self.record(pod, WARNING, "NodeNotReady", "Node is not ready")


def _ready(item: Item) -> str:
    """Return the status of a node's Ready condition; empty when it has none."""
    node: Node = item.typed
    return next((one.status for one in node.status.conditions if one.type == "Ready"), "")
