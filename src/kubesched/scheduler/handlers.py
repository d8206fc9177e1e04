"""Handlers of watch events: they bring objects into cache and queue.

The cache is updated before the queue, so that a pod that an event moves already sees the event's effect. Only when a
node is removed, the queue comes first. An object that cannot be read (a malformed quantity) is logged and left out;
nothing else is disturbed.

Source: rules/cache-and-events §13, §14, §15.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from kubesched.api.kinds import NAMESPACES, NODES
from kubesched.api.quantity import QuantityError
from kubesched.api.tombstone import DeletedFinalStateUnknown, final_state
from kubesched.api.types import Namespace, Node, Pod
from kubesched.base.times import Clock

from .cache import Cache, CacheError
from .core.group_conditions import GroupConditions
from .core.handle import Backends
from .core.port import Recorder
from .core.profiles import Profile
from .framework.enqueue import watched_actions
from .framework.events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    ASSIGNED_POD_UPDATE,
    NODE_ADD,
    NODE_DELETE,
    UNSCHEDULED_POD_ADD,
    UNSCHEDULED_POD_DELETE,
    UNSCHEDULED_POD_UPDATE,
    ActionType,
    ClusterEvent,
    node_events,
    pod_events,
)
from .framework.metrics import SchedulerMetrics
from .framework.recorded_events import FAILED_SCHEDULING
from .framework.waiting import PodsInPreBind, WaitingPods
from .informers import Informers, kind_of_event, kinds_informed
from .nodes.pod_groups import PodGroupStates
from .nodes.podinfo import PodInfo
from .queue import SchedulingQueue
from .queue.queueing_hints import Registrations

__all__ = ["NamespaceHandler", "NodeHandler", "PodHandler", "ResourceHandler", "watch"]

_log = logging.getLogger("kubesched.scheduler")


class _Handler:
    """Base of handlers: moves pods in the queue because of events, and times the handling of events."""

    def __init__(self, queue: SchedulingQueue, clock: Clock, metrics: SchedulerMetrics) -> None:
        self._queue = queue
        self._clock = clock
        self._durations = metrics.event_handling_duration_seconds

    def _observe(self, event: ClusterEvent, start: float) -> None:
        self._durations.observe(self._clock.now() - start, event.label)

    def _move(self, event: ClusterEvent, old: Any, new: Any) -> None:
        self._queue.move_all_to_active_or_backoff_queue(event, old, new)


class PodHandler(_Handler):
    """Handler of pods: pods with a node go to the cache, own pods without a node to the queue.

    A pod is our own if its schedulerName is in ``recorders``. An object whose handling failed is delivered again. An
    earlier call may have done part of the work then, so a pod that is known already is updated instead of added.
    """

    def __init__(
        self,
        cache: Cache,
        queue: SchedulingQueue,
        waiting: WaitingPods,
        pre_binding: PodsInPreBind,
        recorders: Mapping[str, Recorder],
        clock: Clock,
        metrics: SchedulerMetrics,
        conditions: GroupConditions,
    ) -> None:
        super().__init__(queue, clock, metrics)
        self._cache = cache
        self._conditions = conditions
        self._waiting = waiting
        self._pre_binding = pre_binding
        self._recorders = recorders
        self._groups = cache.groups

    def _ours(self, pod: Pod) -> bool:
        return pod.spec.scheduler_name in self._recorders

    # -- dispatch (rules/cache-and-events §14.1) -------------------------------------------------------

    def on_add(self, obj: Pod, is_initial: bool) -> None:
        if obj.spec.node_name:
            self._place(obj)
            if not is_initial and self._ours(obj) and self._is_queued(obj):
                self._delete_from_queue(obj, bound_to=obj.spec.node_name)
        elif self._ours(obj):
            self._add_unscheduled(obj)

    def on_update(self, old: Pod, new: Pod) -> None:
        if old.uid != new.uid or old.spec.scheduling_group != new.spec.scheduling_group:
            # Another pod has the name: the deletion of the old pod was never seen. Or a label that is read as the group
            # has changed.
            self.on_delete(DeletedFinalStateUnknown(old.key, old))
            self.on_add(new, False)
        elif old.spec.node_name:
            self._update_assigned(old, new)
        elif new.spec.node_name:
            self._place(new)
            if self._ours(old):
                self._delete_from_queue(old, bound_to=new.spec.node_name)
        elif self._ours(old):
            self._update_unscheduled(old, new)

    def on_delete(self, obj: Pod | DeletedFinalStateUnknown) -> None:
        self.on_delete_all((obj,))

    def on_delete_all(self, objs: Sequence[Pod | DeletedFinalStateUnknown]) -> None:
        """Handle deletions that came together, for example of the victims of a preemption."""
        assigned: list[Pod] = []
        for obj in objs:
            pod: Pod = final_state(obj)
            stale = isinstance(obj, DeletedFinalStateUnknown)
            if pod.spec.node_name or stale:
                assigned.append(pod)
                if not stale and pod.uid in self._cache.pods and not self._cache.is_assumed(pod.uid):
                    continue  # its binding was seen
            # A deleted pod whose last state is bound may still be queued here, if its binding was never seen.
            if self._ours(pod) and (stale or not pod.spec.node_name or self._is_queued(pod)):
                self._delete_assigned(assigned)
                assigned = []
                self._delete_from_queue(pod)
        self._delete_assigned(assigned)

    def _is_queued(self, pod: Pod) -> bool:
        return self._queue.views.where(pod) not in ("", "InFlight")

    # -- pods on nodes (rules/cache-and-events §14.2) --------------------------------------------------

    def _place(self, pod: Pod) -> None:
        """Handle a pod that is on a node now. In the last state that the watch showed, it was not."""
        known = self._cache.get_pod(pod.uid)
        if known is None or self._cache.is_assumed(pod.uid):
            self._add_assigned(pod, known)
        else:
            self._update_assigned(known.pod, pod)

    def _add_assigned(self, pod: Pod, assumed: PodInfo | None) -> None:
        start = self._clock.now()
        try:
            self._cache.add_pod(PodInfo.derive(pod, assumed))
        except (CacheError, QuantityError) as error:
            _log.error("cannot add pod %s to the cache: %s", pod.key, error)
        self._move(ASSIGNED_POD_ADD, None, pod)
        if self._groups is not None and pod.spec.scheduling_group is not None:
            self._conditions.bound(pod)
        self._observe(ASSIGNED_POD_ADD, start)

    def _update_assigned(self, old: Pod, new: Pod) -> None:
        known = self._cache.get_pod(old.uid)
        if known is None:
            # The pod could not be read when it was added; perhaps it can be read now.
            self._add_assigned(new, self._cache.get_pod(new.uid))
            return
        start = self._clock.now()
        # Compare with the cache's version, because ``old`` may be a version that could not be read. Exception: if the
        # cache has the new version already (an earlier call failed after updating it), compare with ``old``.
        if known.pod.metadata.resource_version != new.metadata.resource_version:
            old = known.pod
        try:
            self._cache.update_pod(known.pod, PodInfo.derive(new, known))
            events = pod_events(old, new)
        except (CacheError, QuantityError) as error:
            _log.error("cannot update pod %s in the cache: %s", new.key, error)
            events = [ASSIGNED_POD_UPDATE]
        for event in events:
            self._move(event, old, new)
            self._observe(event, start)
        self._observe(ASSIGNED_POD_UPDATE, start)

    def _delete_assigned(self, pods: Sequence[Pod]) -> None:
        """Remove all pods from the cache, and then notify the queue of each."""
        if not pods:
            return
        start = self._clock.now()
        for pod in pods:
            self._waiting.reject(pod.uid)
            try:
                self._cache.remove_pod(pod)
            except CacheError as error:
                if pod.spec.node_name:
                    _log.error("cannot remove pod %s from the cache: %s", pod.key, error)
        self._queue.move_after_deletions(pods)
        each = (self._clock.now() - start) / len(pods)
        self._durations.labels(ASSIGNED_POD_DELETE.label).observe_many(each, len(pods))

    # -- pods without a node (rules/cache-and-events §14.3) --------------------------------------------

    def _add_unscheduled(self, pod: Pod) -> None:
        start = self._clock.now()
        in_group = self._groups is not None and pod.spec.scheduling_group is not None
        if in_group and self._groups is not None:
            self._groups.put(pod)
        if self._cache.is_assumed(pod.uid):
            return
        try:
            self._queue.add_or_update(pod)
        except QuantityError as error:
            self._unreadable(pod, error)
        if in_group:
            self._move(UNSCHEDULED_POD_ADD, None, pod)  # the rest of its group may have waited for it
            self._note_held_back(pod)
        self._observe(UNSCHEDULED_POD_ADD, start)

    def _update_unscheduled(self, old: Pod, new: Pod) -> None:
        if old.metadata.resource_version == new.metadata.resource_version:
            return
        start = self._clock.now()
        if self._groups is not None:
            self._groups.put(new)
        assumed = self._cache.get_pod(new.uid) if self._cache.is_assumed(new.uid) else None
        if assumed is not None:
            if new.metadata.deletion_timestamp is not None and old.metadata.deletion_timestamp is None:
                self._assumed_pod_deleted(new)
        else:
            try:
                self._queue.update(old, new)
            except QuantityError as error:
                self._unreadable(new, error)
            if self._groups is not None and new.spec.scheduling_group is not None:
                self._note_held_back(new)
        nominated, assumed_on = old.status.nominated_node_name, assumed.spec.node_name if assumed is not None else ""
        if nominated not in ("", new.status.nominated_node_name, assumed_on):
            self._queue.offer_room(old, nominated)
        self._observe(UNSCHEDULED_POD_UPDATE, start)

    def _note_held_back(self, pod: Pod) -> None:
        record = self._queue.views.get_pod(pod.name, pod.namespace)
        if record is not None and record.gating_plugin:
            self._conditions.held_back(pod, record.gating_plugin)

    def _delete_from_queue(self, pod: Pod, bound_to: str = "") -> None:
        """Delete a pod from the queue; ``bound_to`` is its node, empty if the pod is gone."""
        start = self._clock.now()
        nominated = self._queue.nominator.node_of(pod.uid) or pod.status.nominated_node_name
        self._queue.delete(pod)
        if not bound_to and self._groups is not None and pod.spec.scheduling_group is not None:
            self._leaves_group(self._groups, pod)
        if not bound_to and self._cache.is_assumed(pod.uid):
            self._assumed_pod_deleted(pod)
        elif nominated not in ("", bound_to):
            self._queue.offer_room(pod, nominated)
        self._observe(UNSCHEDULED_POD_DELETE, start)

    def _leaves_group(self, groups: PodGroupStates, pod: Pod) -> None:
        """Remove a deleted member from its group. It may have waited for events in the name of the others."""
        groups.remove(pod)
        state = groups.of(pod)
        left = next(iter(state.unscheduled.values()), None) if state is not None else None
        if left is not None:
            self._queue.activate({left.key: left})

    def _unreadable(self, pod: Pod, error: QuantityError) -> None:
        """Report a pod that cannot be read to its owner, with an event. The queue stays as it was."""
        _log.error("cannot queue pod %s: %s", pod.key, error)
        note = f"the pod cannot be scheduled as it is: {error}"
        self._recorders[pod.spec.scheduler_name].record(pod, *FAILED_SCHEDULING, note)

    def _assumed_pod_deleted(self, pod: Pod) -> None:
        """Handle a pod that was deleted between its decision and its binding (rules/cache-and-events §14.4)."""
        assumed = self._cache.get_pod(pod.uid)
        if assumed is None:
            return
        # If the pod waits on Permit, its binding cycle cleans up. Otherwise the running binding will fail by itself,
        # and finds nothing to forget.
        if not self._waiting.reject(pod.uid):
            try:
                self._cache.forget_pod(assumed.pod)
            except CacheError as error:
                _log.error("cannot forget pod %s: %s", pod.key, error)
        self._pre_binding.removed(pod.uid)
        self._move(ASSIGNED_POD_DELETE, assumed.pod, None)


class NodeHandler(_Handler):
    """Handler of nodes: nodes go to the cache, and their changes may help pods (rules/cache-and-events §13)."""

    def __init__(self, cache: Cache, queue: SchedulingQueue, clock: Clock, metrics: SchedulerMetrics) -> None:
        super().__init__(queue, clock, metrics)
        self._cache = cache

    def on_add(self, obj: Node, is_initial: bool) -> None:
        start = self._clock.now()
        if self._set(obj):
            self._move(NODE_ADD, None, obj)
        self._observe(NODE_ADD, start)

    def on_update(self, old: Node, new: Node) -> None:
        # Compare with the cache's version, not with ``old``: if ``old`` could not be read, the cache has an earlier
        # version or none.
        info = self._cache.table.get(new.name)
        known = info.node if info is not None else None
        if known is None:
            self.on_add(new, False)
            return
        if known.metadata.resource_version == new.metadata.resource_version:
            known = old  # an earlier call for this version updated the cache and failed after that
        start = self._clock.now()
        if not self._set(new):
            return
        for event in node_events(known, new):
            self._move(event, known, new)
            self._observe(event, start)

    def on_delete(self, obj: Node | DeletedFinalStateUnknown) -> None:
        start = self._clock.now()
        node: Node = final_state(obj)
        self._move(NODE_DELETE, node, None)
        try:
            self._cache.remove_node(node.name)
        except CacheError as error:
            _log.error("cannot remove node: %s", error)
        self._observe(NODE_DELETE, start)

    def _set(self, node: Node) -> bool:
        try:
            self._cache.set_node(node)
        except QuantityError as error:
            _log.error("cannot ingest node %s: status.allocatable: %s", node.name, error)
            return False
        return True


class NamespaceHandler:
    """Handler of namespaces: they go to the cache, because rules between pods match their labels. They move no pod."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def on_add(self, obj: Namespace, is_initial: bool) -> None:
        self._cache.set_namespace(obj)

    def on_update(self, old: Namespace, new: Namespace) -> None:
        self._cache.set_namespace(new)

    def on_delete(self, obj: Namespace | DeletedFinalStateUnknown) -> None:
        namespace: Namespace = final_state(obj)
        self._cache.remove_namespace(namespace.metadata.name)


class ResourceHandler(_Handler):
    """Handler of any other kind that a plugin registered for (rules/cache-and-events §15)."""

    def __init__(
        self, resource: str, actions: ActionType, queue: SchedulingQueue, clock: Clock, metrics: SchedulerMetrics
    ) -> None:
        super().__init__(queue, clock, metrics)
        self._actions = actions
        self._add = ClusterEvent(resource, ActionType.ADD)
        self._update = ClusterEvent(resource, ActionType.UPDATE)
        self._delete = ClusterEvent(resource, ActionType.DELETE)

    def on_add(self, obj: Any, is_initial: bool) -> None:
        if self._actions & ActionType.ADD:
            self._handle(self._add, None, obj)

    def on_update(self, old: Any, new: Any) -> None:
        if self._actions & ActionType.UPDATE:
            self._handle(self._update, old, new)

    def on_delete(self, obj: Any) -> None:
        if self._actions & ActionType.DELETE:
            self._handle(self._delete, final_state(obj), None)

    def _handle(self, event: ClusterEvent, old: Any, new: Any) -> None:
        start = self._clock.now()
        self._move(event, old, new)
        self._observe(event, start)


def watch(
    informers: Informers,
    cache: Cache,
    queue: SchedulingQueue,
    profiles: Mapping[str, Profile],
    hints: Registrations,
    backends: Backends,
    metrics: SchedulerMetrics,
    conditions: GroupConditions,
) -> None:
    """Add the handlers of pods, nodes, namespaces, and every other kind that a plugin registered events for."""
    clock, recorders = backends.clock, {name: profile.recorder for name, profile in profiles.items()}
    waiting, pre_binding = backends.waiting_pods, backends.pods_in_pre_bind
    informers.pods.add_handler(PodHandler(cache, queue, waiting, pre_binding, recorders, clock, metrics, conditions))
    informers.of(NODES).add_handler(NodeHandler(cache, queue, clock, metrics))
    informers.of(NAMESPACES).add_handler(NamespaceHandler(cache))
    for resource, actions in watched_actions(event for events in hints.values() for event in events).items():
        kind = kind_of_event(resource)
        if kind is not None and actions != ActionType.NONE:
            informers.source(kind).add_handler(ResourceHandler(resource, actions, queue, clock, metrics))
    plugins = (plugin for profile in profiles.values() for plugin in profile.framework.plugins.values())
    for kind in dict.fromkeys(kind for plugin in plugins for kind in kinds_informed(plugin)):
        informers.index_by_namespace(kind)
