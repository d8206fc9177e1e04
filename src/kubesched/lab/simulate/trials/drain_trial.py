"""Drain trial: would the pods of a node find other nodes? By the scheduling cycle, over a cluster that stands still.

Callers: :mod:`..planning.removing`, and the scale-down of :mod:`..scaling`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from kubesched.api.types import Node, Pod
from kubesched.scheduler.config import FeatureGates
from kubesched.scheduler.nodes.podinfo import PodInfo

from ..embedded import Embedded
from .trial import NeedsRunError, RefusedPodError, Trial, TriedPod

__all__ = ["DrainTrial"]


class DrainTrial:
    """Drains by the scheduling cycle over a cluster that stands still.

    Attributes:
        work: number of placements so far.
        failed, why: the last node whose drain failed, and the reason.
    """

    def __init__(self, embedded: Embedded, gates: FeatureGates, pods: Mapping[str, Sequence[Pod]]) -> None:
        self._trial = Trial(embedded, gates)
        self.begun = self._trial.begun
        self._embedded, self._pods = embedded, pods
        self._tried: dict[bytes, TriedPod | None] = {}
        #: Pods that were taken from their nodes, and nodes as they were before, in order.
        self._undone: list[PodInfo | Node] = []
        #: Node to the imaginary pods on it, which move again when it goes.
        self._moved: dict[str, list[tuple[TriedPod, str]]] = {}
        self.work, self.failed, self.why = 0, "", ""

    def has_room(self, names: Sequence[str]) -> bool:
        """Return False if the other nodes lack the amounts for the pods of these."""
        gone, table = set(names), self._embedded.scheduler.cache.table
        for resource in ("cpu", "memory"):
            column = table.column(resource)
            if column is None:
                continue
            room = sum(
                max(0, int(table.allocatable[column, row] - table.requested[column, row]))
                for row in table.order().tolist()
                if table.info(row).name not in gone
            )
            moving = sum(PodInfo(pod).requests.get(resource) for name in names for pod in self._pods[name])
            if moving > room:
                return False
        return True

    def drain_all(self, names: Sequence[str]) -> dict[str, str]:
        """Cordon nodes and drain them in order. Return those that stay, with the reasons; later ones may use them."""
        cache = self._embedded.scheduler.cache
        before = {name: info.node for name in names if (info := cache.table.get(name)) is not None}
        for name in names:
            self._cordon(name)
        failed: dict[str, str] = {}
        for name in names:
            node = before.get(name)
            if not self.drain(name) and node is not None:
                failed[name] = self.why
                cache.set_node(node)
        return failed

    def drain(self, name: str) -> bool:
        """Move the pods of a node to others; False, and everything is as before, when one finds none."""
        cache = self._embedded.scheduler.cache
        before, undone = len(self._trial), len(self._undone)
        self._cordon(name)
        again = self._moved.get(name, [])
        waiting: list[tuple[TriedPod | None, str]] = [(tried, pod) for tried, pod in again]
        for pod in self._pods[name]:
            info = cache.get_pod(pod.uid)
            if info is not None:
                cache.remove_pod(info.pod)
                self._undone.append(info)
            waiting.append((self._tried_pod(pod), pod.name))
        placed: list[tuple[str, TriedPod, str]] = []
        for tried, pod_name in waiting:
            if tried is None:
                continue  # only a run can tell
            self.work += 1
            try:
                # A new name each time: what moves twice is in two places until the trial ends.
                node = self._trial.place(tried, f"{pod_name}-{self.work}")
            except NeedsRunError:
                continue
            if node is None:
                self.failed, self.why = (
                    name,
                    f"{tried.pod.namespace}/{pod_name} would have no other node",
                )
                self._trial.take_back(before)
                self.undo(undone)
                return False
            placed.append((node, tried, pod_name))
        self._moved.pop(name, None)
        for node, tried, pod_name in placed:
            self._moved.setdefault(node, []).append((tried, pod_name))
        return True

    def _cordon(self, name: str) -> None:
        info = self._embedded.scheduler.cache.table.get(name)
        if info is None or info.node is None or info.node.spec.unschedulable:
            return
        self._undone.append(info.node)
        spec = msgspec.structs.replace(info.node.spec, unschedulable=True)
        self._embedded.scheduler.cache.set_node(msgspec.structs.replace(info.node, spec=spec))

    def undo(self, to: int = 0) -> None:
        """Put back what was taken away, the last first; at the start (``to`` 0) the moved pods go, too."""
        cache = self._embedded.scheduler.cache
        if not to:
            self._trial.take_back()
            self._moved.clear()
        while len(self._undone) > to:
            one = self._undone.pop()
            if isinstance(one, PodInfo):
                cache.add_pod(one)
            else:
                cache.set_node(one)

    def _tried_pod(self, pod: Pod) -> TriedPod | None:
        """Return the kind of a pod that is made again; None if only a run can tell where it goes."""
        fresh = _fresh(pod)
        key = msgspec.json.encode((fresh.namespace, fresh.metadata.labels, fresh.spec))
        if key not in self._tried:
            try:
                self._tried[key] = TriedPod(self._trial, fresh)
            except (NeedsRunError, RefusedPodError):
                self._tried[key] = None
        return self._tried[key]


def _fresh(pod: Pod) -> Pod:
    """Return a pod as it was before it had a node."""
    return Pod(metadata=pod.metadata, spec=msgspec.structs.replace(pod.spec, node_name=""))
