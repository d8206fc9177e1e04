"""Network overhead: pods go where traffic with the workloads they depend on costs least.

Source: scheduler-plugins, KEP 260 "Network-Aware Scheduling", NodeNetworkCostFit and NetworkMinCost.
"""

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

from .costs import UNKNOWN, NetworkCosts
from .groups import AppGroups, of_pod
from .where import Places

REASON = "node(s) were too far from the workloads that the pod depends on"


class Traffic(Question):
    """Cost of the traffic between a node and the placed pods that this one depends on."""

    is_local = False  # pods placed elsewhere decide
    stands_alone = frozenset({"filter", "score"})

    def __init__(self, costs, placed, nodes):
        """``placed``: (node name, highest cost accepted) for every pod."""
        placed = [(nodes.row_of(name), limit) for name, limit in placed]
        self.costs = costs
        self.placed = [(row, limit) for row, limit in placed if row is not None]
        self.nodes = nodes

    def pre_filter(self, nodes):
        """There is nothing to prepare."""

    pre_score = pre_filter

    def _costs(self, rows):
        """float64[placed, rows]. NaN: unknown."""
        costs = [self.costs.to_row(self.nodes, rows, row) for row, _ in self.placed]
        return np.array(costs).reshape(len(costs), len(rows))

    def verdicts(self, rows):
        costs, limits = self._costs(rows), np.array([limit for _, limit in self.placed], np.float64)[:, None]
        kept = (costs <= limits).sum(axis=0)
        broken = (costs > limits).sum(axis=0)
        return (broken > kept).astype(np.uint64)

    def why(self, verdict):
        return Status.unschedulable(REASON)

    def scores(self, rows):
        costs = self._costs(rows)
        return np.where(np.isnan(costs), UNKNOWN, costs).sum(axis=0).astype(np.int64)

    @staticmethod
    def normalized(scores, low, high):
        return 100 - (scores - low) * 100 // max(high - low, 1)


class NetworkOverhead(Plugin):
    """Filter: rejects nodes on which more placed pods are too far away than are not. Score: the sum of the costs.

    Arguments: ``appGroups`` (:mod:`.groups`), ``zones`` and ``regions`` (:mod:`.costs`).
    """

    name = "NetworkOverhead"
    asks = Traffic

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

    def ask(self, pod, nodes):
        """None for a pod that depends on nothing that is placed."""
        placed = self.placed(pod)
        return Traffic(self.costs, placed, nodes) if placed else None

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
