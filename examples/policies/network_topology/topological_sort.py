"""Topological sort: of one application group, workloads come before those they depend on, or after them.

Source: scheduler-plugins, KEP 260 "Network-Aware Scheduling", TopologicalSort.
"""

from kubesched.scheduler.framework import Plugin

from .groups import AppGroups, of_pod


class TopologicalSort(Plugin):
    """Higher priority first; then the group that has waited longest, in its order. Arguments: ``appGroups``, and
    ``topologySortingAlgorithm``: ``KahnSort`` (the default, as upstream) or ``ReverseKahn``, with which the places of what a
    workload depends on are known when it is scheduled.

    A group is in the queue since its first pod was, so that groups do not mix and every two pods have one order.
    """

    name = "TopologicalSort"

    def __init__(self, args, handle):
        super().__init__(args or {}, handle)
        self.groups = AppGroups(self.args.get("appGroups"), self.args.get("topologySortingAlgorithm", "KahnSort"))
        self.since = {}  # (namespace, group): when its first pod was queued
        self.pods = {}  # (namespace, group): UIDs of its pods that are there
        handle.watch("pods", self)

    def less(self, first, second):
        return self.sort_key(first) < self.sort_key(second)

    def sort_key(self, queued):
        pod = queued.pod_info
        key = of_pod(pod)
        if key is None:
            return (-pod.priority, queued.timestamp, "", "", 0, queued.timestamp)
        namespace, group, workload = key
        since = self.since.setdefault((namespace, group), queued.timestamp)
        return (-pod.priority, since, namespace, group, self.groups.order.get((group, workload), 0), queued.timestamp)

    # -- a group whose pods are all gone is forgotten ------------------------------------------------------

    def on_add(self, pod, is_initial):
        key = of_pod(pod)
        if key is not None:
            self.pods.setdefault(key[:2], set()).add(pod.metadata.uid)

    def on_update(self, old, new):
        self.on_add(new, False)

    def on_delete(self, pod):
        pod = getattr(pod, "obj", pod)
        key = of_pod(pod) if pod is not None else None
        pods = self.pods.get(key[:2]) if key is not None else None
        if pods is not None:
            pods.discard(pod.metadata.uid)
            if not pods:
                del self.pods[key[:2]]
                self.since.pop(key[:2], None)
