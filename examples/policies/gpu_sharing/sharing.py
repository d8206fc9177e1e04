"""Common parts of the policies: does a pod fit (Filter), and which GPUs of the node does it use (Reserve)."""

import numpy as np

from kubesched.scheduler.framework import (
    ActionType,
    ClusterEvent,
    ClusterEventWithHint,
    EventResource,
    Plugin,
    Question,
    Status,
)

from .ledger import Ledger
from .request import WHOLE, gpu_indexes, gpu_request

CPU = 0  # the column of milli-CPU in the node table


class FreeGpus(Question):
    """Question of which nodes have enough of each GPU free. A policy that scores derives its own from it, and adds ``scores``."""

    def __init__(self, policy, pod, nodes):
        self.policy = policy
        self.nodes = nodes
        self.request = gpu_request(pod)
        self.cpu = pod.fit_requests.milli_cpu
        self.key = self.request, self.cpu

    def verdicts(self, rows):
        if not self.request.count:
            return np.zeros(len(rows), np.uint64)
        fitting = (self.policy.ledger.free(self.nodes, rows) >= self.request.milli).sum(axis=1)
        return (fitting < self.request.count).astype(np.uint64)

    def why(self, verdict):
        milli, count = self.request
        return Status.unschedulable(f"node(s) didn't have {count} GPU(s) with {milli}/1000 free")

    def left(self, rows):
        """(int64[len(rows)], int64[len(rows), GPUs]): free milli-CPU, and free thousandths of each GPU."""
        nodes = self.nodes
        return nodes.allocatable[CPU, rows] - nodes.requested[CPU, rows], self.policy.ledger.free(nodes, rows)


class GpuSharing(Plugin):
    """Base of all policies. A policy that scores has a question of its own; ``choose`` says which GPUs a pod uses."""

    asks = FreeGpus

    def __init__(self, args, handle):
        super().__init__(args, handle)
        self.ledger = handle.shared("gpu-sharing", Ledger)
        handle.watch("pods", self)

    def ask(self, pod, nodes):
        return self.asks(self, pod, nodes)

    def events_to_register(self):
        changes = (
            ClusterEvent(EventResource.ASSIGNED_POD, ActionType.DELETE),
            ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_ALLOCATABLE),
        )
        return [ClusterEventWithHint(change) for change in changes]

    # -- Reserve ---------------------------------------------------------------------------------------

    def choose(self, free, request, cpu_left):
        """The numbers of the GPUs to use. ``free`` is int64[GPUs]; ``cpu_left`` is what the pod leaves of the CPU.

        Here: the fullest GPU that a fraction fits on, and the first free ones for whole GPUs.
        """
        fitting = np.flatnonzero(free >= request.milli)
        if request.milli == WHOLE:
            return fitting[: request.count].tolist()
        return fitting[np.argsort(free[fitting], kind="stable")][: request.count].tolist()

    def reserve(self, state, pod, node_name):
        request = gpu_request(pod)
        if not request.count:
            return None
        nodes = self.handle.snapshot.table
        node = self.handle.snapshot.get(node_name)
        free = self.ledger.free(nodes, np.array([node.row]))[0]
        if np.count_nonzero(free >= request.milli) < request.count:
            return Status.unschedulable("the GPUs are in use by now")
        cpu_left = node.allocatable.milli_cpu - node.requested.milli_cpu  # the pod is assumed on the node already
        self.ledger.hold(nodes, pod.uid, node_name, request.milli, self.choose(free, request, cpu_left))
        return None

    def unreserve(self, state, pod, node_name):
        self.ledger.release(self.handle.snapshot.table, pod.uid)

    # -- pods that others placed, and pods that end ------------------------------------------------------

    def on_add(self, pod, is_initial):
        """A pod that runs already uses the GPUs that its annotation names."""
        devices = gpu_indexes(pod) if pod.spec.node_name else []
        if devices and pod.uid not in self.ledger.held:
            nodes = self.handle.snapshot.table
            self.ledger.hold(nodes, pod.uid, pod.spec.node_name, gpu_request(pod).milli, devices)
            self.handle.node_changed(pod.spec.node_name)

    def on_update(self, old, new):
        if new.status.phase in ("Succeeded", "Failed"):
            self.on_delete(new)
        else:
            self.on_add(new, False)

    def on_delete(self, pod):
        pod = getattr(pod, "obj", pod)
        node_name = self.ledger.release(self.handle.snapshot.table, pod.metadata.uid) if pod is not None else None
        if node_name:
            self.handle.node_changed(node_name)
