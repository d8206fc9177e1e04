"""Cache of the cluster: nodes, the pods on them, and pods assumed to be on them.

State machine of a pod (rules/cache-and-events §3)::

                 assume                 add (watch confirms)
    Initial ───────────────▶ Assumed ─────────────────────────▶ Added ─┐ update
       ▲ ▲      forget          │                                 ▲ │ ◀─┘
       │ └──────────────────────┘            add                  │ │
       ├──────────────────────────────────────────────────────────┘ │
       └─────────────────────────────── remove ◀────────────────────┘

There is no expiry: an assumed pod stays assumed until it is added, forgotten or removed.

Callers: event handlers (watch events) and the scheduling cycle (assume, forget).
"""

from __future__ import annotations

import logging

from kubesched.api.types import Namespace, Node, Pod

from ..nodes.node_table import NodeTable
from ..nodes.pod_groups import PodGroupStates
from ..nodes.podinfo import PodInfo
from ..nodes.snapshot import Snapshot

__all__ = ["Cache", "CacheError"]

_log = logging.getLogger("kubesched.scheduler.cache")


class CacheError(Exception):
    """A call does not fit the pod's state; the cache is unchanged."""


class Cache:
    """Cache of nodes by name and pods by UID. The node table holds the nodes and the sums of their pods' requests.

    Attributes:
        groups: members of pod groups by their state; None while the gate GenericWorkload is off.
    """

    def __init__(self, groups: PodGroupStates | None = None) -> None:
        self.table = NodeTable()
        self.groups = groups
        #: UID to the pod as it counts on its node: the assumed copy, or the API object.
        self.pods: dict[str, PodInfo] = {}
        self.assumed: set[str] = set()

    def snapshot(self) -> Snapshot:
        """Return the cluster as a scheduling cycle sees it: a view, valid until other code runs in the event loop."""
        return Snapshot(self.table)

    # -- pods ------------------------------------------------------------------------------------------

    def assume_pod(self, pod: PodInfo) -> None:
        """Count a pod on its ``spec.nodeName`` before the API server knows of the decision.

        Raises:
            CacheError: when the pod is here already, or has no UID.
        """
        uid = self._uid(pod.pod)
        if uid in self.pods:
            raise CacheError(f"pod {uid}({pod.key}) is in the cache, so can't be assumed")
        self._insert(uid, pod)
        self.assumed.add(uid)
        if self.groups is not None and pod.pod.spec.scheduling_group is not None:
            self.groups.assume(pod.pod)

    def forget_pod(self, pod: Pod) -> None:
        """Undo :meth:`assume_pod`; nothing happens when the pod is not here.

        Raises:
            CacheError: when it is here but on another node, or no longer only assumed.
        """
        uid = self._uid(pod)
        known = self.pods.get(uid)
        if known is None:
            return
        if known.spec.node_name != pod.spec.node_name:
            raise CacheError(
                f"pod {uid}({pod.key}) was assumed on {pod.spec.node_name} but assigned to {known.spec.node_name}"
            )
        if uid not in self.assumed:
            raise CacheError(f"pod {uid}({pod.key}) wasn't assumed so cannot be forgotten")
        self._drop(uid)
        if self.groups is not None and pod.spec.scheduling_group is not None:
            self.groups.forget(pod)

    def add_pod(self, pod: PodInfo) -> None:
        """Add a pod that the API server shows on a node: confirm an assumed pod, or adopt a pod that others placed.

        Raises:
            CacheError: when the pod was added before.
        """
        uid = self._uid(pod.pod)
        known = self.pods.get(uid)
        if known is None:
            self._insert(uid, pod)
        elif uid in self.assumed:
            if known.spec.node_name != pod.spec.node_name:
                _log.warning(
                    "pod %s was assumed on node %s but is on %s", pod.key, known.spec.node_name, pod.spec.node_name
                )
            self._replace(uid, known, pod)
            self.assumed.discard(uid)
        else:
            raise CacheError(f"pod {uid}({pod.key}) was already in added state")
        if self.groups is not None and pod.pod.spec.scheduling_group is not None:
            self.groups.put(pod.pod)

    def update_pod(self, old: Pod, new: PodInfo) -> None:
        """Update a pod on a node that changed (``new`` may even be another pod of the same name).

        Raises:
            CacheError: when the old pod is not here, is only assumed, or moved to another node, which the
                API forbids.
        """
        uid = self._uid(old)
        known = self.pods.get(uid)
        if known is None:
            raise CacheError(f"pod {uid}({old.key}) is not added to scheduler cache, so cannot be updated")
        if uid in self.assumed:
            raise CacheError(f"assumed pod {uid}({old.key}) should not be updated")
        if known.spec.node_name != new.spec.node_name:
            raise CacheError(
                f"pod {uid}({old.key}) moved from node {known.spec.node_name} to {new.spec.node_name}, which cannot happen: "
                "the cache no longer knows the cluster"
            )
        self._replace(uid, known, new)
        if self.groups is not None and new.pod.spec.scheduling_group is not None:
            if new.uid != uid:
                self.groups.remove(known.pod)
            self.groups.put(new.pod)

    def remove_pod(self, pod: Pod) -> None:
        """Remove a pod, and subtract the amounts that were added for it. The amounts in the given object do not count.

        Raises:
            CacheError: when the pod is not here.
        """
        uid = self._uid(pod)
        if uid not in self.pods:
            raise CacheError(f"pod {uid}({pod.key}) is not found in scheduler cache, so cannot be removed from it")
        if self.groups is not None:
            self.groups.remove(self.pods[uid].pod)
        self._drop(uid)

    def is_assumed(self, uid: str) -> bool:
        return uid in self.assumed

    def get_pod(self, uid: str) -> PodInfo | None:
        """Return the pod as it counts on its node, or None."""
        return self.pods.get(uid)

    # -- nodes -----------------------------------------------------------------------------------------

    def set_node(self, node: Node) -> None:
        """Add or update a node; pods that were recorded for its name before are kept.

        Raises:
            QuantityError: when an allocatable amount is not a quantity; the node stays as it was.
        """
        self.table.set_node(node)

    def remove_node(self, name: str) -> None:
        """Drop a node.

        Raises:
            CacheError: when it is not here.
        """
        if not self.table.remove_node(name):
            raise CacheError(f"node {name} is not found")

    def node_changed(self, name: str) -> None:
        """Note that data about a node other than the node object changed; see ``node_changed`` of the plugins'
        handle.
        """
        self.table.node_changed(name)

    # -- namespaces ------------------------------------------------------------------------------------

    def set_namespace(self, namespace: Namespace) -> None:
        """Add or update a namespace: namespace selectors match its labels."""
        self.table.terms.set_namespace(namespace.metadata.name, namespace.metadata.labels)

    def remove_namespace(self, name: str) -> None:
        """Forget a namespace; nothing happens when it is not here."""
        self.table.terms.remove_namespace(name)

    # -- inside ----------------------------------------------------------------------------------------

    @staticmethod
    def _uid(pod: Pod) -> str:
        if not pod.metadata.uid:
            raise CacheError("cannot get cache key for pod with empty UID")
        return pod.metadata.uid

    def _insert(self, uid: str, pod: PodInfo) -> None:
        self.table.add_pod(self.table.ensure_row(pod.spec.node_name), pod)
        self.pods[uid] = pod

    def _drop(self, uid: str) -> None:
        pod = self.pods.pop(uid)
        self.assumed.discard(uid)
        node = self.table.get(pod.spec.node_name)
        assert node is not None
        self.table.remove_pod(node.row, uid)

    def _replace(self, uid: str, known: PodInfo, new: PodInfo) -> None:
        node = self.table.get(known.spec.node_name)
        assert node is not None
        if known.counts_like(new):
            self.table.replace_pod(node.row, uid, new)
            self.pods[uid] = new
            return
        self._drop(uid)
        self._insert(new.uid, new)
