"""Site: a cluster that stands still, on which nodes are put up for a trial, with the pods of its DaemonSets.

Caller: :mod:`.buying`, which tries choices of nodes for the pods that have none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import numpy as np

from kubesched.api.selectors import required_node_affinity
from kubesched.api.taints import first_untolerated
from kubesched.api.types import Node, Pod
from kubesched.scheduler.config import FeatureGates

from ...node_groups import NodeGroup
from ..embedded import Embedded
from ..results.pod_times import amounts
from ..trials.new_nodes import NewNodes, demands_of
from ..trials.trial import Trial, TriedPod
from .bounds import Floats, Problem

__all__ = ["Site"]

#: Most comparisons of kinds of pods with existing nodes, for the bound.
_MOST_COMPARISONS: Final = 2_000_000
#: Nodes about which is computed in the time of a placement.
_NODES_PER_PLACEMENT: Final = 100


class Site(NewNodes):
    """Cluster with pods that need nodes, and groups of nodes that can be had.

    Attributes:
        demands: the pods without a node, equal ones together.
        order: (number of the demand, name) of each pod, in the order in which the scheduler takes them.
        by_run: only runs of the whole cluster say what fits.
        work: number of placements that were tried so far.
    """

    def __init__(
        self,
        embedded: Embedded,
        gates: FeatureGates,
        groups: Sequence[NodeGroup],
        pods: Sequence[Pod],
        *,
        by_run: bool = False,
    ) -> None:
        """Prepare the trial of pods. ``by_run``: only runs of the whole cluster will say what fits.

        Raises:
            NeedsRunError: when more than the scheduling cycle decides about a pod, unless ``by_run``.
        """
        super().__init__(embedded, Trial(embedded, gates), groups)
        self.by_run = by_run
        #: Work of a run, in placements.
        self.run_work = 10 * len(embedded.pods()) + len(embedded.nodes())
        self.demands, kinds = demands_of(pods)
        self.order: list[tuple[int, str]] = [(kind, pod.name) for kind, pod in zip(kinds, pods, strict=True)]
        self._tried = [TriedPod(self.trial, one.pod, lenient=by_run) for one in self.demands]
        self.requests = [one.info.fit_requests for one in self._tried]
        self._held: dict[int, list[int]] = {}

    @contextmanager
    def standing(self, counts: Sequence[int]) -> Iterator[None]:
        """Context in which the cluster has so many more nodes of each group, with the pods of DaemonSets."""
        with self.trial.same_ties(), super().standing(counts):
            # When nodes come or go, what is known about a kind of pod is computed again for all nodes.
            self.work += len(self.demands) * len(self.embedded.scheduler.cache.table) // _NODES_PER_PLACEMENT
            yield

    # -- pods ------------------------------------------------------------------------------------------

    def place(self, order: Sequence[tuple[int, str]], most: int | None = None) -> list[tuple[int, str]]:
        """Place pods in their order; return those without a node. Pods that others were needed for are tried again.

        Of equal pods, those after one without a node are not tried until another pod has changed the cluster.
        ``most`` ends the placing after so many pods without a node.

        Raises:
            NeedsRunError, PluginFailedError: see :class:`.trial.Trial`.
        self._held: dict[int, list[int]] = {}
        """
        left = list(order)
        while True:
            waiting: list[tuple[int, str]] = []
            rejected: set[int] = set()
            for index, name in left:
                if index not in rejected:
                    self.work += 1
                    if self.trial.place(self._tried[index], name) is not None:
                        continue
                    rejected.add(index)
                waiting.append((index, name))
                if most is not None and len(waiting) > most:
                    return waiting
            if not waiting or len(waiting) == len(left):
                return waiting
            left = waiting

    def fits(self, counts: Sequence[int], order: Sequence[tuple[int, str]]) -> bool:
        """Return True if all these pods find a node with so many more nodes of each group."""
        with self.standing(counts):
            return not self.place(order, 0 if not self._depend else None)

    def left(self, counts: Sequence[int], order: Sequence[tuple[int, str]]) -> int:
        """Return how many of these pods find no node with so many more nodes of each group."""
        with self.standing(counts):
            return len(self.place(order))

    @property
    def _depend(self) -> bool:
        """True if pods may have to be tried again because they need others."""
        return any(one.info.has_affinity or one.pod.spec.topology_spread_constraints for one in self._tried)

    # -- bounds ----------------------------------------------------------------------------------------

    def may_hold(self, index: int, node: Node) -> bool:
        """Return False if the taints or labels of a node keep a kind of pod off, whatever else is there."""
        plugins = self._tried[index].placing.framework.plugins
        spec = self.demands[index].pod.spec
        if "NodeAffinity" in plugins and not required_node_affinity(spec).matches(node.labels, node.name):
            return False
        hard = tuple(taint for taint in node.spec.taints if taint.effect != "PreferNoSchedule")
        return "TaintToleration" not in plugins or first_untolerated(hard, spec.tolerations) is None

    def problem(self, most: Sequence[int], wanted: Sequence[int]) -> Problem:
        """Return conditions on the numbers of nodes that every choice meets which holds the pods.

        ``wanted`` is the number of pods of each demand. There is a row for each kind of pod: the most of them that a
        node holds. And for each set of groups that kinds of pods are restricted to, a row for each resource.
        """
        capacity = [{**amounts(one), "pods": one.allowed_pods} for one in map(self.capacity, range(len(self.groups)))]
        rows: list[tuple[list[float], float]] = []
        by_set: dict[frozenset[int], dict[str, float]] = {}
        for index, requests in enumerate(self.requests):
            if "NodeResourcesFit" not in self._tried[index].placing.framework.plugins:
                continue  # amounts do not bound these pods
            asked = {**amounts(requests), "pods": 1}
            here = self._room_now(index, asked)
            need = max(0, wanted[index] - here)
            held = [float(one) if most[group] else 0.0 for group, one in enumerate(self.held(index))]
            rows.append((held, float(need)))
            able = [group for group, one in enumerate(held) if one]
            if not here:
                sums = by_set.setdefault(frozenset(able), {})
                for name, amount in asked.items():
                    sums[name] = sums.get(name, 0.0) + float(amount * need)
        for one in by_set:
            inside: dict[str, float] = {}
            for other, sums in by_set.items():
                if other <= one:
                    for name, need_of in sums.items():
                        inside[name] = inside.get(name, 0.0) + need_of
            for name, need_of in inside.items():
                held = [float(capacity[g].get(name, 0)) if g in one else 0.0 for g in range(len(self.groups))]
                rows.append((held, need_of))
        return Problem(
            np.array([group.price for group in self.groups]),
            np.array([row for row, _ in rows]).reshape(len(rows), len(self.groups)),
            np.array([need for _, need in rows]),
            np.array(most, dtype=float),
        )

    def held(self, index: int) -> list[int]:
        """Return how many pods of a kind an empty node of each group holds at most, by amounts, taints and labels."""
        if index in self._held:
            return self._held[index]
        asked = {**amounts(self.requests[index]), "pods": 1}
        found = self._held[index] = []
        for group in range(len(self.groups)):
            one = self.capacity(group)
            there = {**amounts(one), "pods": one.allowed_pods}
            able = self.may_hold(index, self.node(group, 0))
            found.append(min(there.get(name, 0) // amount for name, amount in asked.items()) if able else 0)
        return found

    def _room_now(self, index: int, asked: dict[str, int]) -> int:
        """Return a number of pods of a kind that existing nodes have room for at most, by amounts, taints and labels."""
        table = self.embedded.scheduler.cache.table
        rows = table.order()
        room: Floats = np.full(len(rows), np.inf)
        for name, amount in asked.items():
            if name == "pods":
                free = np.array([table.info(row).allocatable.allowed_pods - len(table.info(row).pods) for row in rows])
            else:
                column = table.column(name)
                if column is None:
                    return 0
                free = table.allocatable[column, rows] - table.requested[column, rows]
            room = np.minimum(room, free // amount)
        able = np.flatnonzero(room >= 1)
        if len(able) * len(self.demands) < _MOST_COMPARISONS:
            able = np.array([one for one in able if self._may_be_on(index, int(rows[one]))], dtype=np.intp)
        return int(room[able].sum()) if len(able) else 0

    def _may_be_on(self, index: int, row: int) -> bool:
        node = self.embedded.scheduler.cache.table.info(row).node
        return node is not None and self.may_hold(index, node)
