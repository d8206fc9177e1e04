"""Queueing hints of PodTopologySpread: which events make a rejected pod worth another attempt (rules/topology §B.11).

Called by :class:`~kubesched.scheduler.plugins.pod_topology_spread.PodTopologySpread` to register its events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kubesched.api.selectors import SelectorError
from kubesched.api.types import Node, Pod

from ..framework.events import ActionType, ClusterEvent, ClusterEventWithHint, EventResource, KeyedHint, QueueingHint
from ..nodes.podinfo import PodInfo
from .label_keys import ANY, demanded_by_one, keys_of_pods, own_key
from .topology_constraints import Constraint

__all__ = ["events"]

_Constraints = Callable[[PodInfo], tuple[Constraint, ...]]


def events(constraints: _Constraints) -> Sequence[ClusterEventWithHint]:
    """Make the registrations. ``constraints`` returns a pod's hard constraints."""
    pod = ClusterEvent(
        EventResource.POD,
        ActionType.ADD | ActionType.UPDATE_POD_LABEL | ActionType.UPDATE_POD_TOLERATION | ActionType.DELETE,
    )
    node = ClusterEvent(
        EventResource.NODE,
        ActionType.ADD | ActionType.DELETE | ActionType.UPDATE_NODE_LABEL | ActionType.UPDATE_NODE_TAINT,
    )

    def after_pod(waiting: PodInfo, old: Pod | None, new: Pod | None) -> QueueingHint:
        return QueueingHint.QUEUE if _pod_helps(waiting, old, new, constraints) else QueueingHint.SKIP

    def after_node(waiting: PodInfo, old: Node | None, new: Node | None) -> QueueingHint:
        return QueueingHint.QUEUE if _node_helps(old, new, constraints(waiting)) else QueueingHint.SKIP

    def keys(waiting: PodInfo) -> list[str]:
        if not waiting.spec.topology_spread_constraints:
            return [ANY]  # the default selectors are made from Services and owners, which change
        try:
            rules = constraints(waiting)
        except SelectorError:
            return [ANY]
        return [own_key(waiting.uid), *demanded_by_one(rule.selector for rule in rules)]

    def may_wake(waiting: PodInfo) -> ActionType:
        honors = any(rule.honors_taints for rule in constraints(waiting))
        return ActionType.ALL if honors else ActionType.ALL & ~ActionType.UPDATE_POD_TOLERATION

    return [
        ClusterEventWithHint(pod, KeyedHint(after_pod, keys, keys_of_pods), may_wake),
        ClusterEventWithHint(node, after_node),
    ]


def _involved(waiting: PodInfo, pod: Pod) -> bool:
    if pod.uid == waiting.uid:
        return True
    return bool(pod.spec.node_name or pod.status.nominated_node_name) and pod.namespace == waiting.namespace


def _pod_helps(waiting: PodInfo, old: Pod | None, new: Pod | None, constraints: _Constraints) -> bool:
    if any(pod is not None and not _involved(waiting, pod) for pod in (old, new)):
        return False
    rules = constraints(waiting)
    if old is not None and new is not None:
        tolerations_differ = new.uid == waiting.uid and old.spec.tolerations != new.spec.tolerations
        if tolerations_differ and any(rule.honors_taints for rule in rules):
            return True
        before, after = old.metadata.labels, new.metadata.labels
        return before != after and any(rule.selector.matches(before) != rule.selector.matches(after) for rule in rules)
    pod = new if new is not None else old
    return pod is not None and any(rule.selector.matches(pod.metadata.labels) for rule in rules)


def _node_helps(old: Node | None, new: Node | None, rules: tuple[Constraint, ...]) -> bool:
    def takes_part(node: Node) -> bool:
        return all(rule.key in node.metadata.labels for rule in rules)

    if old is None or new is None:
        node = new if new is not None else old
        return node is not None and takes_part(node)
    if takes_part(old) != takes_part(new):
        return True
    before, after = old.metadata.labels, new.metadata.labels
    moved = any(before.get(rule.key) != after.get(rule.key) for rule in rules)
    return takes_part(new) and (moved or old.spec.taints != new.spec.taints)
