"""NodeDeclaredFeatures: a pod that needs a feature runs where the node declares it (PreFilter, Filter).

Spec "Node-level scheduler plugins" section 7.10.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from kubesched.api.declared_features import feature_mask
from kubesched.api.types import Node, Pod
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import ActionType, ClusterEvent, ClusterEventWithHint, EventResource, QueueingHint
from kubesched.framework.interface import Handle, Plugin, Reads, RowArray, VerdictArray
from kubesched.framework.nodeinfo import NodeInfo
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.status import Status

from . import names

if TYPE_CHECKING:
    from kubesched.cache import NodeList, NodeTable

__all__ = ["NodeDeclaredFeatures", "required_features"]

_RESTART_ALL: Final = feature_mask(("RestartAllContainersOnContainerExits",))
_USER_NAMESPACES: Final = feature_mask(("UserNamespacesHostNetworkSupport",))


def required_features(pod: Pod) -> int:
    """Bit set of the features a pod needs to be scheduled."""
    spec, needed = pod.spec, 0
    for container in (*spec.containers, *spec.init_containers) if spec.init_containers else spec.containers:
        if container.restart_policy_rules and any(
            rule.action == "RestartAllContainers" for rule in container.restart_policy_rules
        ):
            needed |= _RESTART_ALL
    if spec.host_network and spec.host_users is False:
        needed |= _USER_NAMESPACES
    return needed


class NodeDeclaredFeatures(Plugin):
    """Reads the int64[row] column of declared feature bits."""

    name = names.NODE_DECLARED_FEATURES
    signs_spec = True
    reads: ClassVar[Reads] = Reads.NODE
    REASON: Final = "node(s) didn't match Pod's required features"

    def __init__(self, args: object, handle: Handle) -> None:
        super().__init__(args, handle)
        #: A profile may name the plugin though its gate is off: then it has nothing to do.
        self._is_on = handle.gate("NodeDeclaredFeatures")

    def sign(self, pod: PodInfo) -> Hashable | None:
        return required_features(pod.pod)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeList) -> Status | None:
        needed = required_features(pod.pod) if self._is_on else 0
        if not needed:
            return Status.skip()
        state.write(self.name, needed)
        return None

    def filter_rows(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> VerdictArray:
        needed: int = state.read(self.name)
        verdicts: VerdictArray = ((nodes.features[rows] & needed) != needed).astype(np.uint64)
        return verdicts

    def filter_row(self, state: CycleState, pod: PodInfo, nodes: NodeTable, node: NodeInfo) -> int:
        needed: int = state.read(self.name)
        return int(node.node is None or feature_mask(node.node.status.declared_features) & needed != needed)

    def verdict_status(self, state: CycleState, pod: PodInfo, verdict: int) -> Status:
        return Status.unresolvable(self.REASON)

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
