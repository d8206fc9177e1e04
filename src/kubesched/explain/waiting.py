"""State of a pod in a live scheduler: its place in the queue, and the events for which it waits."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final, Literal, cast

from kubesched.api.types import Pod
from kubesched.scheduler.framework.enqueue import registrations
from kubesched.scheduler.framework.events import ActionType, ClusterEvent, ClusterEventWithHint, EventResource
from kubesched.scheduler.framework.queued import QueuedPodInfo
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.scheduler import Scheduler

from .report import QueueState, Wake

__all__ = ["queue_state", "wake_texts"]

_log = logging.getLogger("kubesched.explain")

_QUEUED: Final = ("Active", "Backoff", "Unschedulable", "Gated")
_PODS: Final = {
    EventResource.POD: "a pod",
    EventResource.ASSIGNED_POD: "a pod on a node",
    EventResource.UNSCHEDULABLE_POD: "a pending pod",
}
_NODE_CHANGES: Final = {
    ActionType.UPDATE_NODE_ALLOCATABLE: "the allocatable amounts of a node change",
    ActionType.UPDATE_NODE_LABEL: "the labels of a node change",
    ActionType.UPDATE_NODE_TAINT: "the taints of a node change, or it is uncordoned",
    ActionType.UPDATE_NODE_CONDITION: "the conditions of a node change",
    ActionType.UPDATE_NODE_ANNOTATION: "the annotations of a node change",
    ActionType.UPDATE_NODE_DECLARED_FEATURE: "the declared features of a node change",
}
_POD_CHANGES: Final = {
    ActionType.UPDATE_POD_LABEL: "the labels of {pod} change",
    ActionType.UPDATE_POD_SCALE_DOWN: "{pod} asks for less",
    ActionType.UPDATE_POD_TOLERATION: "the tolerations of the pod change",
    ActionType.UPDATE_POD_SCHEDULING_GATES_ELIMINATED: "the scheduling gates of the pod are removed",
    ActionType.UPDATE_POD_GENERATED_RESOURCE_CLAIM: "a resource claim of the pod is made",
}


def queue_state(scheduler: Scheduler, pod: Pod) -> QueueState | None:
    """Return where a live scheduler has a pod; None when it does not have the pod."""
    waiting = scheduler.waiting_pods.get(pod.uid)
    if waiting is not None:
        return QueueState(place="WaitingOnPermit", held_by=waiting.pending_plugins)
    if pod.uid in scheduler.bindings.uids():
        return QueueState(place="Binding")
    views = scheduler.queue.views
    place = views.where(pod)
    record = views.get_pod(pod.name, pod.namespace)
    if place == "InFlight":
        return QueueState(place="InFlight")
    if record is None or place not in _QUEUED:
        return None
    return _queued(scheduler, record, cast("Literal['Active', 'Backoff', 'Unschedulable', 'Gated']", place))


def _queued(
    scheduler: Scheduler, record: QueuedPodInfo, place: Literal["Active", "Backoff", "Unschedulable", "Gated"]
) -> QueueState:
    now, views = scheduler.clock.now(), scheduler.queue.views
    since = record.initial_attempt_timestamp
    ends = record.backoff_expiration
    waits = place in ("Unschedulable", "Gated")
    return QueueState(
        place=place,
        attempts=record.attempts,
        waited=max(0.0, now - (since if since is not None else record.timestamp)),
        ahead=views.ahead_of(record) if place == "Active" else None,
        backoff=max(0.0, ends - now) if place == "Backoff" and ends is not None else None,
        retry=max(0.0, views.retry_at(record) - now) if place == "Unschedulable" else None,
        rejected_by=sorted(record.unschedulable_plugins | record.pending_plugins),
        held_by=[record.gating_plugin] if record.gating_plugin else [],
        wakes=list(_wakes(scheduler, record)) if waits else [],
        nominated_node=record.pod_info.status.nominated_node_name,
    )


def _wakes(scheduler: Scheduler, record: QueuedPodInfo) -> Iterator[Wake]:
    """Yield the events that may wake a waiting pod: those that its rejectors registered, if their hints can let them pass.

    A gated pod waits for the events of the plugin that gates it.
    """
    pod = record.pod_info
    names = {record.gating_plugin} if record.gating_plugin else record.unschedulable_plugins | record.pending_plugins
    plugins = {each.name: each for each in scheduler.event_plugins(pod.spec.scheduler_name) if each.name in names}
    for name in sorted(plugins):
        by_resource: dict[str, ActionType] = {}
        for item in registrations(plugins[name]):
            resource = item.event.resource
            by_resource[resource] = by_resource.get(resource, ActionType.NONE) | _may_wake(item, pod)
        for resource, actions in by_resource.items():
            for one, text in wake_texts(ClusterEvent(resource, actions)):
                yield Wake(plugin=name, event=one.label, text=text)


def _may_wake(item: ClusterEventWithHint, pod: PodInfo) -> ActionType:
    try:
        return item.event.action & item.may_wake(pod) if item.may_wake is not None else item.event.action
    except Exception as error:  # a plugin's; the hint would count as Queue
        _log.debug("%s: cannot say what may wake pod %s: %s", item.event.label, pod.key, error)
        return item.event.action


def wake_texts(event: ClusterEvent) -> Iterator[tuple[ClusterEvent, str]]:
    """Yield each single action of a registered event, with a text for people."""
    resource = event.resource
    changes = _NODE_CHANGES if resource == EventResource.NODE else _POD_CHANGES if resource in _PODS else {}
    if event.action & ActionType.UPDATE == ActionType.UPDATE:
        changes = {}  # whatever changes
    thing = _PODS.get(EventResource(resource)) if resource in _PODS else None
    if thing is None:
        kind = resource.rsplit("/", 1)[-1]
        thing = f"a{'n' if kind[:1] in 'AEIO' else ''} {'node' if kind == 'Node' else kind}"
    texts = {ActionType.ADD: f"{thing} is added", ActionType.DELETE: f"{thing} is deleted", **changes}
    left = event.action
    for action, text in texts.items():
        if event.action & action:
            left &= ~action
            yield ClusterEvent(resource, action), text.format(pod=thing)
    # Other bits of Update concern other kinds of objects.
    if left & ActionType.UPDATE == ActionType.UPDATE or (left and not changes):
        yield ClusterEvent(resource, ActionType.UPDATE), f"{thing} changes"
