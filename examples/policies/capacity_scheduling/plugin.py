"""Capacity scheduling: what a namespace does not use of its guaranteed resources, others may borrow until it needs them.

Source: scheduler-plugins, KEP 9 "Capacity scheduling".
"""

import numpy as np

from kubesched.scheduler.framework import (
    ActionType,
    ClusterEvent,
    ClusterEventWithHint,
    EventResource,
    PodInfo,
    Question,
    Status,
)
from kubesched.scheduler.plugins.default_preemption import DefaultPreemption

from .quotas import Quotas, minus, plus


class BeyondQuota(Question):
    """Asked for a pod that its namespace may not have now: whom would preemption have to evict?"""

    is_local = False  # what namespaces use decides whether it is asked, and the answer is the same on every node
    stands_alone = frozenset({"filter"})

    def __init__(self, plugin, pod, removed):
        """``removed``: what pods that preemption would evict request, by namespace."""
        self.plugin = plugin
        self.pod = pod
        self.removed = removed

    def rejection(self):
        return self.plugin.rejection(self.pod, self.removed)

    def pre_filter(self, nodes):
        return Status.unschedulable(self.rejection())

    def assuming(self, node, added, removed):
        amounts = dict(self.removed)
        for pods, operation in ((added, minus), (removed, plus)):
            for pod in pods:
                quota = self.plugin.quotas.of(pod)
                if quota is not None and pod.uid in quota.pods:
                    amounts[quota.namespace] = operation(amounts.get(quota.namespace, {}), quota.pods[pod.uid])
        return BeyondQuota(self.plugin, self.pod, amounts)

    def verdicts(self, rows):
        """Only called by preemption: PreFilter rejects the pod."""
        return np.full(len(rows), bool(self.rejection()), np.uint64)

    def why(self, verdict):
        return Status.unschedulable(self.rejection())


class CapacityScheduling(DefaultPreemption):
    """Argument: ``quotas`` (:mod:`.quotas`). Takes the place of DefaultPreemption; namespaces without a quota are as there.

    * PreFilter, Filter: a pod is rejected if its namespace would have more than ``max``, or all namespaces together more than the
      sum of ``min``.
    * PostFilter: a pod within its namespace's ``min`` has pods evicted of namespaces that have more than theirs, whatever
      their priority. Beyond ``min``, only pods of its own namespace and of lower priority.
    * Reserve: what namespaces use.
    """

    name = "CapacityScheduling"
    asks = BeyondQuota

    def __init__(self, args, handle):
        super().__init__(None, handle)
        self.quotas = Quotas((args or {}).get("quotas"))
        #: Preemptors whose victims are leaving: UID to (quota, amounts).
        self.promised = {}
        handle.watch("pods", self)

    # -- what namespaces use -------------------------------------------------------------------------------

    def reserve(self, state, pod, node_name):
        quota = self.quotas.of(pod)
        if quota is not None:
            self.promised.pop(pod.uid, None)
            quota.put(pod.uid, self.quotas.amounts(pod))

    def unreserve(self, state, pod, node_name):
        quota = self.quotas.of(pod)
        if quota is not None:
            quota.remove(pod.uid)

    def on_add(self, pod, is_initial):
        quota = self.quotas.of(pod)
        if quota is None:
            return
        if pod.status.phase in ("Succeeded", "Failed"):
            quota.remove(pod.metadata.uid)
        elif pod.spec.node_name:
            quota.put(pod.metadata.uid, self.quotas.amounts(PodInfo(pod)))

    def on_update(self, old, new):
        self.on_add(new, False)

    def on_delete(self, pod):
        pod = getattr(pod, "obj", pod)
        quota = self.quotas.of(pod) if pod is not None else None
        if quota is not None:
            quota.remove(pod.metadata.uid)
            self.promised.pop(pod.metadata.uid, None)

    def _promised_to(self, pod, quota=None):
        """Return the amounts that other preemptors, of one quota or of all, will use as soon as their victims are gone."""
        node_of = self.handle.nominations.node_of
        self.promised = {uid: one for uid, one in self.promised.items() if node_of(uid) is not None}
        total = {}
        for uid, (owner, amounts) in self.promised.items():
            if uid != pod.uid and quota in (None, owner):
                total = plus(total, amounts)
        return total

    # -- PreFilter, Filter ---------------------------------------------------------------------------------

    def rejection(self, pod, removed):
        """Return why the pod's namespace may not have it, if pods with the amounts ``removed`` were gone; empty when it may."""
        quota = self.quotas.of(pod)
        if quota is None:
            return ""
        amounts = self.quotas.amounts(pod)
        used = plus(minus(quota.used, removed.get(quota.namespace, {})), amounts)
        for name, most in quota.max.items():
            if amounts[name] and used[name] > most:
                return f"namespace {quota.namespace} would have more {name} than the max of its quota"
        total = plus(plus(self.quotas.total_used(), self._promised_to(pod)), amounts)
        for gone in removed.values():
            total = minus(total, gone)
        for name, least in self.quotas.min.items():
            if amounts[name] and total[name] > least:
                return f"all namespaces would have more {name} than the min of their quotas together"
        return ""

    def ask(self, pod, nodes):
        return BeyondQuota(self, pod, {}) if self.rejection(pod, {}) else None

    def events_to_register(self):
        gone = ClusterEvent(EventResource.POD, ActionType.DELETE)
        return [*super().events_to_register(), ClusterEventWithHint(gone)]

    # -- PostFilter ----------------------------------------------------------------------------------------

    def potential_victims(self, preemptor, node):
        quota = self.quotas.of(preemptor)
        if quota is None:
            return [pod for pod in super().potential_victims(preemptor, node) if self.quotas.of(pod) is None]
        wanted = plus(plus(quota.used, self._promised_to(preemptor, quota)), self.quotas.amounts(preemptor))
        if quota.is_over_min(wanted):
            return [pod for pod in super().potential_victims(preemptor, node) if self.quotas.of(pod) is quota]
        now = self.handle.clock.now()
        found = []
        for other in self.quotas:
            used = other.used
            pods = [pod for pod in node.pods.values() if self.quotas.of(pod) is other]
            for pod in sorted(pods, key=lambda pod: self.importance(pod, now), reverse=True):
                if other is not quota and other.is_over_min(used):
                    used = minus(used, self.quotas.amounts(pod))
                    found.append(pod)
        return found

    def post_filter(self, state, pod, statuses):
        answer = super().post_filter(state, pod, statuses)
        quota = self.quotas.of(pod)
        if (
            quota is not None
            and isinstance(answer, tuple)
            and answer[0] is not None
            and answer[0].preemption is not None
        ):
            self.promised[pod.uid] = quota, self.quotas.amounts(pod)
        return answer
