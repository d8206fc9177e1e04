"""Network overhead: pods go where traffic with the workloads they depend on costs least.

Source: scheduler-plugins, KEP 260 "Network-Aware Scheduling", NodeNetworkCostFit and NetworkMinCost.
"""

import numpy as np

from kubesched.framework import ActionType, ClusterEvent, ClusterEventWithHint, EventResource, Plugin, Status

from .costs import UNKNOWN, NetworkCosts
from .groups import AppGroups, of_pod
from .where import Places

REASON = "node(s) were too far from the workloads that the pod depends on"


class NetworkOverhead(Plugin):
    """Filter: rejects nodes on which more placed pods are too far away than are not. Score: the sum of the costs.

    Arguments: ``appGroups`` (:mod:`.groups`), ``zones`` and ``regions`` (:mod:`.costs`).
    """

    name = "NetworkOverhead"

    def __init__(self, args, handle):
        super().__init__(args or {}, handle)
        self.groups = AppGroups(self.args.get("appGroups"))
        self.costs = NetworkCosts(self.args)
        self.places = handle.shared("network-topology", Places)
        handle.watch("pods", self.places)

    def placed(self, pod):
        """(node name, highest cost accepted) for every placed pod that this one depends on."""
        key = of_pod(pod)
        if key is None:
            return []
        namespace, group, workload = key
        return [
            (node_name, dependency.max_cost)
            for dependency in self.groups.dependencies.get((group, workload), ())
            for node_name in self.places.nodes.get((namespace, group, dependency.workload), {}).values()
        ]

    def skips(self, pod):
        """Nothing to do for a pod that depends on nothing that is placed: what is remembered of nodes then serves."""
        return not self.placed(pod)

    def pre_filter(self, state, pod, nodes):
        return Status.skip() if self.skips(pod) else None

    def pre_score(self, state, pod, nodes):
        return Status.skip() if self.skips(pod) else None

    def _costs(self, pod, nodes, rows):
        """(float64[placed, rows], the limits float64[placed]). NaN: unknown."""
        placed = [(nodes.row_of(name), limit) for name, limit in self.placed(pod)]
        placed = [(row, limit) for row, limit in placed if row is not None]
        costs = [self.costs.to_row(nodes, rows, row) for row, _ in placed]
        return np.array(costs).reshape(len(placed), len(rows)), np.array([limit for _, limit in placed], np.float64)

    def filter_rows(self, state, pod, nodes, rows):
        costs, limits = self._costs(pod, nodes, rows)
        kept = (costs <= limits[:, None]).sum(axis=0)
        broken = (costs > limits[:, None]).sum(axis=0)
        return (broken > kept).astype(np.uint64)

    def verdict_status(self, state, pod, verdict):
        return Status.unschedulable(REASON)

    def score_rows(self, state, pod, nodes, rows):
        costs, _ = self._costs(pod, nodes, rows)
        return np.where(np.isnan(costs), UNKNOWN, costs).sum(axis=0).astype(np.int64)

    def normalize_within(self, scores, low, high):
        return 100 - (scores - low) * 100 // max(high - low, 1)

    def events_to_register(self):
        changes = (
            ClusterEvent(EventResource.POD, ActionType.ADD | ActionType.DELETE),
            ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL),
        )
        return [ClusterEventWithHint(change) for change in changes]

    def reserve(self, state, pod, node_name):
        self.places.put(pod, node_name)

    def unreserve(self, state, pod, node_name):
        self.places.remove(pod)
