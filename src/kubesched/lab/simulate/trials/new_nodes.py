"""New nodes of groups, put up for a trial on a cluster that stands still, with the pods of its DaemonSets.

Callers: :mod:`..planning.site`, which tries purchases, and :mod:`..scaling.scale_up`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import msgspec

from kubesched.api.decode import from_builtins
from kubesched.api.kinds import DAEMON_SETS, NODES, PODS
from kubesched.api.requests import Resources
from kubesched.api.selectors import required_node_affinity
from kubesched.api.taints import first_untolerated
from kubesched.api.types import Node, Pod
from kubesched.cluster.files import Manifest, expand_workloads

from ...node_groups import NodeGroup
from ..embedded import Embedded
from .trial import Trial, TriedPod, admitted

__all__ = ["Demand", "NewNodes", "daemon_pods", "demands_of", "pending_pods"]

#: Fewest nodes of a group that are made at once.
_AT_ONCE: Final = 8


@dataclass(slots=True)
class Demand:
    """Pods without a node that are equal but for their names."""

    pod: Pod
    names: list[str] = field(default_factory=list)

    @property
    def key(self) -> str:
        return f"{self.pod.namespace}/{self.names[0]}"


def pending_pods(embedded: Embedded) -> tuple[list[Pod], list[Pod]]:
    """Return the pods that need a node, in the order in which the scheduler takes them, and those that cannot have one.

    The latter wait for their scheduling gates, or for another scheduler.
    """
    needing: list[Pod] = []
    others: list[Pod] = []
    # The table is in the order of creation, in which the queue takes pods of equal priority.
    for item in embedded.store.table(PODS).objects.values():
        pod: Pod = item.typed
        if pod.spec.node_name or pod.status.phase in ("Succeeded", "Failed") or pod.metadata.deletion_timestamp:
            continue
        fit = not pod.spec.scheduling_gates and pod.spec.scheduler_name in embedded.scheduler.profiles
        (needing if fit else others).append(pod)
    return sorted(needing, key=lambda pod: -(pod.spec.priority or 0)), others


def daemon_pods(embedded: Embedded, node: Node) -> list[Manifest]:
    """Return the pods that the cluster's DaemonSets would make for a new node."""
    found = []
    for item in embedded.store.table(DAEMON_SETS).items():
        made = expand_workloads([Manifest(DAEMON_SETS, item.data(), "daemon set")], node_names=[node.name]).objects[1:]
        for one in made:
            pod = from_builtins(one.data, Pod)
            affine = required_node_affinity(pod.spec).matches(node.labels, node.name)
            if affine and first_untolerated(node.spec.taints, pod.spec.tolerations) is None:
                found.append(one)
    return found


def demands_of(pods: Iterable[Pod]) -> tuple[list[Demand], list[int]]:
    """Return the kinds of some pods, and the number of the kind of each pod."""
    by_text: dict[bytes, int] = {}
    demands: list[Demand] = []
    kinds: list[int] = []
    for pod in pods:
        text = msgspec.json.encode((pod.namespace, pod.metadata.labels, pod.spec))
        index = by_text.setdefault(text, len(demands))
        if index == len(demands):
            demands.append(Demand(pod))
        demands[index].names.append(pod.name)
        kinds.append(index)
    return demands, kinds


class NewNodes:
    """Nodes that groups would make, and those of them that stand for a trial.

    Attributes:
        groups: the groups; nodes are named by the index of their group and a number from 0 on.
        work: number of placements that were tried so far.
    """

    def __init__(
        self, embedded: Embedded, trial: Trial, groups: Sequence[NodeGroup], *, first: Sequence[int] = ()
    ) -> None:
        """``first`` are the numbers in the names of the groups' first nodes; 0 each when left out."""
        self.embedded, self.trial, self.groups = embedded, trial, groups
        self.work = 0
        self._first = list(first) or [0] * len(groups)
        self._nodes: list[list[Node]] = [[] for _ in groups]
        self._daemons: dict[str, list[tuple[TriedPod, str]]] = {}
        self._taken = {node.name for node in embedded.nodes()}

    def node(self, group: int, number: int) -> Node:
        """Return a new node of a group, as the API server would store it."""
        known = self._nodes[group]
        if number >= len(known):
            items = self.groups[group].nodes(
                max(number + 1, 2 * len(known), _AT_ONCE), start=self._first[group], taken=self._taken
            )
            store = self.embedded.store
            known += [store.create(NODES, "", item.data, dry_run=True).typed for item in items[len(known) :]]
        return known[number]

    def capacity(self, group: int) -> Resources:
        """Return the allocatable amounts of a node of a group."""
        return Resources.from_list(self.node(group, 0).status.allocatable)

    @contextmanager
    def standing(self, counts: Sequence[int]) -> Iterator[None]:
        """Context in which the cluster has so many more nodes of each group, with the pods of DaemonSets."""
        before = len(self.trial)
        names = self.add(counts)
        try:
            yield
        finally:
            self.trial.take_back(before)
            self.remove(names)

    def add(self, counts: Sequence[int], start: Sequence[int] | None = None) -> list[str]:
        """Put nodes up: of each group, those from number ``start`` on. Return their names."""
        cache, names = self.embedded.scheduler.cache, []
        for group, count in enumerate(counts):
            first = start[group] if start is not None else 0
            for number in range(first, first + count):
                node = self.node(group, number)
                cache.set_node(node)
                names.append(node.name)
        for name in names:
            self._place_daemons(name)
        return names

    def put(self, node: Node) -> None:
        """Put up a node that is not one of these, such as one that is on its way."""
        self.embedded.scheduler.cache.set_node(node)
        self._place_daemons(node.name)

    def _place_daemons(self, name: str) -> None:
        for tried, pod in self._daemons_of(name):
            self.work += 1
            self.trial.place(tried, pod)

    def remove(self, names: Iterable[str]) -> None:
        """Take nodes down, from which all pods were taken back; the last first, so that the next get the same rows."""
        for name in reversed(list(names)):
            self.embedded.scheduler.cache.remove_node(name)

    def _daemons_of(self, name: str) -> list[tuple[TriedPod, str]]:
        if name not in self._daemons:
            node = self.embedded.scheduler.cache.table.get(name)
            assert node is not None
            assert node.node is not None
            made = daemon_pods(self.embedded, node.node)
            self._daemons[name] = [(TriedPod(self.trial, admitted(self.trial, one)), one.name) for one in made]
        return self._daemons[name]
