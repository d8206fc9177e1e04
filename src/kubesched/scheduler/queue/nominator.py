"""Nominator: the nodes that pods are expected on before they are bound there.

The queue adds the nominations of pods that enter it, and the failure handler adds PostFilter's. The cycle deletes a
pod's nomination when the pod is assumed. Filtering reads nominations through
:mod:`kubesched.scheduler.nodes.nominated_rows`.

Source: rules/queue §12.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from kubesched.api.types import ObjectMeta, Pod
from kubesched.base.change_log import ChangeLog

from ..nodes.nominating import NominatingInfo, NominatingMode
from ..nodes.podinfo import PodInfo

__all__ = ["Nominator", "PodRef"]


#: Entries that the log of changed nodes keeps, at least.
_KEPT_CHANGES: Final = 1 << 14


class PodRef(NamedTuple):
    """Reference of a nomination to its pod."""

    name: str
    namespace: str
    uid: str

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Nominator:
    """Nominator: nominations in memory, at most one per pod UID.

    ``pod_lister`` returns the live pod of a (namespace, name), or None when it is gone; without a lister, pods are not
    looked up. ``find`` returns the queued pod of a ``namespace/name``, ``find_in_flight`` the pod in flight of a UID.
    """

    __slots__ = ("_by_node", "_find", "_find_in_flight", "_lister", "_node_of", "changed")

    def __init__(
        self,
        pod_lister: Callable[[str, str], Pod | None] | None = None,
        find: Callable[[str], PodInfo | None] | None = None,
        find_in_flight: Callable[[str], PodInfo | None] | None = None,
    ) -> None:
        self._lister = pod_lister
        self._find = find
        self._find_in_flight = find_in_flight
        self._node_of: dict[str, str] = {}
        self._by_node: dict[str, dict[str, PodRef]] = {}
        #: Log of the nodes whose nominations changed.
        self.changed: ChangeLog[str] = ChangeLog(_KEPT_CHANGES)

    def add(self, pod: Pod, info: NominatingInfo | None = None) -> None:
        """Nominate a pod to the node that ``info`` names; without ``info``, to the pod's ``status.nominatedNodeName``.

        An earlier nomination of the pod is removed in any case. A pod that is gone or bound gets no new nomination.
        """
        uid = pod.uid
        if uid in self._node_of:
            self._drop(uid)
        if info is not None and info.mode is NominatingMode.OVERRIDE:
            node = info.nominated_node_name
        else:
            node = pod.status.nominated_node_name
        if not node:
            return  # upstream keeps an overriding empty name under node "", without effect (rules/queue §17 quirk 8)
        if self._lister is not None:
            live = self._lister(pod.namespace, pod.name)
            if live is None or live.spec.node_name:
                return
        self._node_of[uid] = node
        self._by_node.setdefault(node, {})[uid] = PodRef(pod.name, pod.namespace, uid)
        self.changed.append(node)

    def update(self, old: Pod, new: Pod) -> None:
        """Update the nomination of a pod that changed.

        A nomination that is only in memory survives changes of other fields.
        """
        info = None
        if not old.status.nominated_node_name and not new.status.nominated_node_name:
            node = self._node_of.get(old.uid)
            if node is not None:
                info = NominatingInfo.override(node)
        self.delete(old)
        self.add(new, info)

    def delete(self, pod: Pod) -> None:
        """Forget a pod's nomination, if it has one."""
        if pod.uid in self._node_of:
            self._drop(pod.uid)

    def nominated_pods_for_node(self, node_name: str) -> list[PodInfo]:
        """Return the pods nominated to a node, oldest nomination first.

        These are the queue's own PodInfo objects: do not change them. Pods in flight count, too, because a pod may wait
        for an extender while others are scheduled. A pod that is neither queued nor in flight is returned as a stub
        with only a name, a namespace and a UID.
        """
        refs = self._by_node.get(node_name)
        if not refs:
            return []
        return [self._resolve(ref) for ref in refs.values()]

    def nominated_keys(self, node_name: str) -> list[str]:
        """Return ``namespace/name`` of the pods nominated to a node."""
        return [ref.key for ref in self._by_node.get(node_name, {}).values()]

    def nominated_nodes(self) -> AbstractSet[str]:
        """Return the names of the nodes with nominations, as a live view."""
        return self._by_node.keys()

    def node_of(self, uid: str) -> str | None:
        """Return the name of the node that a pod is nominated to; None without a nomination."""
        return self._node_of.get(uid)

    def _resolve(self, ref: PodRef) -> PodInfo:
        found = self._find(ref.key) if self._find is not None else None
        if found is None and self._find_in_flight is not None:
            found = self._find_in_flight(ref.uid)
        if found is not None:
            return found
        return PodInfo(Pod(metadata=ObjectMeta(name=ref.name, namespace=ref.namespace, uid=ref.uid)))

    def _drop(self, uid: str) -> None:
        node = self._node_of.pop(uid)
        refs = self._by_node[node]
        del refs[uid]
        if not refs:
            del self._by_node[node]
        self.changed.append(node)

    def check(self) -> list[str]:
        """Compare both maps. Return their differences as texts."""
        listed = {uid: node for node, refs in self._by_node.items() for uid in refs}
        problems = [] if listed == self._node_of else [f"nominator: {self._node_of} by pod, {listed} by node"]
        problems += [f"nominator: empty list for node {node!r}" for node, refs in self._by_node.items() if not refs]
        return problems
