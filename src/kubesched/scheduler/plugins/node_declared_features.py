"""NodeDeclaredFeatures: a pod that needs a feature runs where the node declares it (PreFilter, Filter).

Source: rules/node-plugins §7.10.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from kubesched.api.declared_features import feature_mask
from kubesched.api.types import Node, Pod

from ..framework.events import ActionType, ClusterEvent, ClusterEventWithHint, EventResource, QueueingHint
from ..framework.interface import Handle, Plugin
from ..framework.question import Question, Reads, RowArray, VerdictArray
from ..framework.status import Status
from ..nodes.nodeinfo import NodeInfo
from ..nodes.podinfo import PodInfo

if TYPE_CHECKING:
    from ..nodes import NodeList, NodeTable

__all__ = ["NodeDeclaredFeatures", "required_features"]

_RESTART_ALL: Final = feature_mask(("RestartAllContainersOnContainerExits",))
_USER_NAMESPACES: Final = feature_mask(("UserNamespacesHostNetworkSupport",))


def required_features(pod: Pod) -> int:
    """Bit set of the features that a pod needs to be scheduled."""
    spec, needed = pod.spec, 0
    for container in (*spec.containers, *spec.init_containers) if spec.init_containers else spec.containers:
        if container.restart_policy_rules and any(
            rule.action == "RestartAllContainers" for rule in container.restart_policy_rules
        ):
            needed |= _RESTART_ALL
    if spec.host_network and spec.host_users is False:
        needed |= _USER_NAMESPACES
    return needed


class _NeededFeatures(Question):
    """Question about the feature bits that a pod needs, against the int64[row] column of declared features."""

    by_spec = True
    reads = Reads.NODE

    def __init__(self, needed: int, nodes: NodeTable) -> None:
        self.key = self._needed = needed
        self._nodes = nodes

    def pre_filter(self, nodes: NodeList) -> Status | None:
        return None if self._needed else Status.skip()

    def verdicts(self, rows: RowArray) -> VerdictArray:
        verdicts: VerdictArray = ((self._nodes.features[rows] & self._needed) != self._needed).astype(np.uint64)
        return verdicts

    def verdict(self, node: NodeInfo) -> int:
        declared = feature_mask(node.node.status.declared_features) if node.node is not None else 0
        return int(node.node is None or declared & self._needed != self._needed)

    def why(self, verdict: int) -> Status:
        return Status.unresolvable(NodeDeclaredFeatures.REASON)


class NodeDeclaredFeatures(Plugin):
    """Check of features that nodes declare. Its question is :class:`_NeededFeatures`."""

    name = "NodeDeclaredFeatures"
    asks = _NeededFeatures
    REASON: Final = "node(s) didn't match Pod's required features"

    def __init__(self, args: object, handle: Handle) -> None:
        super().__init__(args, handle)
        #: A profile may name the plugin although its gate is off. The plugin does nothing then.
        self._is_on = handle.gate("NodeDeclaredFeatures")

    def ask(self, pod: PodInfo, nodes: NodeTable) -> Question | None:
        return _NeededFeatures(required_features(pod.pod) if self._is_on else 0, nodes)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        if not self._is_on:
            return []
        node = ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_DECLARED_FEATURE)
        pod = ClusterEvent(EventResource.POD, ActionType.UPDATE)
        return [ClusterEventWithHint(node, self._after_node), ClusterEventWithHint(pod, self._after_pod)]

    def _after_node(self, pod: PodInfo, old: Node | None, new: Node) -> QueueingHint:
        changed = old is None or old.status.declared_features != new.status.declared_features
        return QueueingHint.QUEUE if changed else QueueingHint.SKIP

    def _after_pod(self, pod: PodInfo, old: Pod, new: Pod) -> QueueingHint:
        changed = new.uid == pod.uid and required_features(old) != required_features(new)
        return QueueingHint.QUEUE if changed else QueueingHint.SKIP
