"""Queueing hints of InterPodAffinity: which events make a rejected pod worth another attempt (rules/topology §A.9).

Called by :class:`~kubesched.scheduler.plugins.inter_pod_affinity.InterPodAffinity` to register its events.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from kubesched.api.types import Node, Pod

from ..framework.events import ActionType, ClusterEvent, ClusterEventWithHint, EventResource, KeyedHint, QueueingHint
from ..nodes.podinfo import AffinityTerm, PodInfo, affinity_terms
from ..nodes.term_index import TermIndex
from .label_keys import ANY, demanded_by_all, keys_of_pods, own_key

__all__ = ["events"]


def events(index: Callable[[], TermIndex]) -> Sequence[ClusterEventWithHint]:
    """Make the registrations. ``index`` returns the term index, which knows the labels of namespaces."""
    pod = ClusterEvent(EventResource.POD, ActionType.ADD | ActionType.UPDATE_POD_LABEL | ActionType.DELETE)
    node = ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL)

    def after_pod(waiting: PodInfo, old: Pod | None, new: Pod | None) -> QueueingHint:
        helps = _pod_helps(waiting, old, new, index().namespaces)
        return QueueingHint.QUEUE if helps else QueueingHint.SKIP

    return [
        ClusterEventWithHint(pod, KeyedHint(after_pod, _keys, _keys_of_event), _pods_that_help),
        ClusterEventWithHint(node, _after_node, _nodes_that_help),
    ]


def _keys(waiting: PodInfo) -> list[str]:
    """Keys of the other pods whose events may help.

    Such a pod matches all required affinity terms, or all required anti-affinity terms.
    """
    terms = waiting.affinity_terms
    if terms.errors:
        return [ANY]
    required = demanded_by_all(term.selector for term in terms.required)
    return [own_key(waiting.uid), *required, *demanded_by_all(term.selector for term in terms.required_anti)]


def _keys_of_event(old: Pod | None, new: Pod | None) -> Collection[str] | None:
    if new is None and (old is None or affinity_terms(old).required_anti):
        return None  # the event may also help pods that the deleted pod kept away
    return keys_of_pods(old, new)


def _pod_helps(waiting: PodInfo, old: Pod | None, new: Pod | None, namespaces: dict[str, dict[str, str]]) -> bool:
    if old is not None and new is not None and new.uid == waiting.uid:
        return True
    for pod in (new, old):
        if pod is not None and not pod.spec.node_name and not pod.status.nominated_node_name:
            return False
    terms = waiting.affinity_terms
    if terms.errors:
        return True

    def all_match(listed: Sequence[AffinityTerm], pod: Pod) -> bool:
        labels = namespaces.get(pod.namespace, {})
        return bool(listed) and all(term.matches(pod, labels) for term in listed)

    if new is not None and old is not None:
        if not all_match(terms.required, old) and all_match(terms.required, new):
            return True
        # All terms have to match, although one matching term makes Filter reject (rules/topology §A.11 quirk A-Q3,
        # kept).
        return all_match(terms.required_anti, old) and not all_match(terms.required_anti, new)
    if new is not None:
        return all_match(terms.required, new)
    if old is None:
        return True
    return all_match(terms.required_anti, old) or all_match(affinity_terms(old).required_anti, waiting.pod)


def _pods_that_help(waiting: PodInfo) -> ActionType:
    """Return the changes of pods that may help: new ones only against the pod's own affinity."""
    terms = waiting.affinity_terms
    return ActionType.ALL if terms.required or terms.errors else ActionType.ALL & ~ActionType.ADD


def _nodes_that_help(waiting: PodInfo) -> ActionType:
    terms = waiting.affinity_terms
    return ActionType.ALL if terms.required or terms.required_anti else ActionType.NONE


def _after_node(waiting: PodInfo, old: Node | None, new: Node) -> QueueingHint:
    after = new.metadata.labels
    terms = waiting.affinity_terms
    for term in terms.required:
        value = after.get(term.topology_key)
        if value is not None and (old is None or old.metadata.labels.get(term.topology_key) != value):
            return QueueingHint.QUEUE
    for term in terms.required_anti:
        if old is None:
            return QueueingHint.QUEUE
        before = old.metadata.labels.get(term.topology_key)
        if before is not None and before != after.get(term.topology_key):
            return QueueingHint.QUEUE
    return QueueingHint.SKIP
