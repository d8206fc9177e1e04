"""Coscheduling, or gang scheduling: the pods of a group wait on Permit until enough of them have a node.

Source: scheduler-plugins, KEP 2 "Lightweight coscheduling based on back-to-back queue sorting", and KEP 42.
"""

from kubesched.scheduler.framework import (
    ActionType,
    ClusterEvent,
    ClusterEventWithHint,
    EventResource,
    Plugin,
    Question,
    QueueingHint,
    Status,
)

from .groups import Groups, group_of, least_of


class Denied(Question):
    """Asked for a pod that is not tried now: the group has too few pods, or did not fit."""

    is_local = False  # other pods, and time, decide whether it is asked

    def __init__(self, rejection):
        self.rejection = rejection

    def pre_filter(self, nodes):
        return Status.unresolvable(self.rejection)


class Coscheduling(Plugin):
    """Arguments, with upstream's names:

    * ``permitWaitingTimeSeconds`` 60: how long a pod with a node waits for the others of its group.
    * ``podGroupBackoffSeconds`` 60: how long a group that did not fit is not tried again, while nothing changes.

    The extension points, in the order of an attempt:

    * QueueSort: the pods of a group follow one another.
    * PreFilter: a group that has too few pods is rejected, and one that did not fit while nothing has changed.
    * PostFilter: one of the pods fits nowhere: those that wait give up their nodes, unless nearly all of them have one.
    * Permit: the pod waits, or completes its group; then all go on.
    * Reserve: which pods have a node; when one gives it up, those that wait do, too.
    """

    name = "Coscheduling"
    asks = Denied

    def __init__(self, args, handle):
        super().__init__(args or {}, handle)
        self.waiting_time = self._seconds("permitWaitingTimeSeconds", 60)
        self.backoff = self._seconds("podGroupBackoffSeconds", 60)
        self.groups = Groups(self.something_changed)
        handle.watch("pods", self.groups)
        handle.watch("nodes", self)

    def _seconds(self, name, default):
        value = self.args.get(name, default)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or value <= 0:
            raise ValueError(f"{name}: {value!r}; expected a number of seconds above 0")
        return value

    # -- what may help groups that did not fit -------------------------------------------------------------

    def something_changed(self, cause):
        """Groups may fit now; not the one that is the ``cause``."""
        for key, group in self.groups:
            if key != cause:
                group.denied_until = 0.0

    def on_add(self, node, is_initial):
        self.something_changed(None)

    def on_update(self, old, new):
        self.something_changed(None)

    def on_delete(self, node):
        """The end of a node helps no group."""

    def events_to_register(self):
        changes = ClusterEvent(EventResource.POD, ActionType.ADD | ActionType.DELETE)
        nodes = ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE)
        return [ClusterEventWithHint(changes, self._after_pod), ClusterEventWithHint(nodes)]

    def _after_pod(self, pod, old, new):
        """A new pod helps its own group; a pod that is gone helps the others."""
        same = group_of(pod) == group_of(new or old)
        return QueueingHint.QUEUE if same == (new is not None) else QueueingHint.SKIP

    # -- queue ---------------------------------------------------------------------------------------------

    def less(self, first, second):
        return self.sort_key(first) < self.sort_key(second)

    def sort_key(self, queued):
        """Higher priority first; then the group, or pod, that has waited longest. A group has since its first pod has."""
        pod = queued.pod_info
        group = self.groups.of(pod)
        if group is None:
            return (-pod.priority, queued.timestamp, ("", ""), queued.timestamp)
        if group.since is None:
            group.since = queued.timestamp
        return (-pod.priority, group.since, group_of(pod), queued.timestamp)

    # -- scheduling cycle ----------------------------------------------------------------------------------

    def _rejection(self, pod):
        """Return why the pod is not tried; empty when it is."""
        group, least = self.groups.of(pod), least_of(pod)
        if group is None:
            return ""
        present = len(group.members.keys() | {pod.uid})
        if present < least:
            return f"pod group {group_of(pod)[1]} has {present} of at least {least} pods"
        if group.denied_until > self.handle.clock.now():
            return f"pod group {group_of(pod)[1]} did not fit, and nothing has changed since"
        return ""

    def ask(self, pod, nodes):
        rejection = self._rejection(pod)
        return Denied(rejection) if rejection else None

    def post_filter(self, state, pod, statuses):
        group = self.groups.of(pod)
        if group is None or self._rejection(pod):
            return None, Status.unschedulable("there are no pods that wait for this one")
        least = least_of(pod)
        missing = least - len(group.placed)
        if missing <= 0 or 10 * missing <= least:
            return None, Status.unschedulable("the pod group has enough pods with a node, or nearly so")
        group.denied_until = self.handle.clock.now() + self.backoff
        others = (group_of(waiting.pod) for waiting in self.handle.waiting_pods)
        group.in_the_way = frozenset(other for other in others if other not in (None, group_of(pod)))
        self._reject_waiting(pod, f"pod group {group_of(pod)[1]} is rejected: {pod.name} fits no node")
        return None, Status.unschedulable(f"pod group {group_of(pod)[1]} is rejected as a whole")

    def reserve(self, state, pod, node_name):
        group = self.groups.of(pod)
        if group is not None:
            group.placed.add(pod.uid)

    def unreserve(self, state, pod, node_name):
        for _, other in self.groups:
            if group_of(pod) in other.in_the_way:
                other.denied_until = 0.0
        group = self.groups.get(pod)
        if group is not None:
            group.placed.discard(pod.uid)
            if len(group.placed) < least_of(pod):
                self._reject_waiting(pod, f"pod group {group_of(pod)[1]} is rejected: {pod.name} gave up its node")

    def permit(self, state, pod, node_name):
        group = self.groups.of(pod)
        if group is None:
            return None
        if len(group.placed) < least_of(pod):
            # The others may be waiting for something to change: they are tried now.
            others = (other for uid, other in group.members.items() if uid not in group.placed)
            self.handle.activate({other.key: other for other in others})
            return Status.wait(), self.waiting_time
        for waiting in self._waiting(pod):
            waiting.allow(self.name)
        return None

    # -- the other pods of a group -------------------------------------------------------------------------

    def _waiting(self, pod):
        key = group_of(pod)
        return [waiting for waiting in self.handle.waiting_pods if group_of(waiting.pod) == key]

    def _reject_waiting(self, pod, message):
        for waiting in self._waiting(pod):
            waiting.reject(self.name, message)
