"""Scale-up: how many nodes of each group would give pending pods a place, by the scheduler's own cycle.

    pending pods ──nodes that are there or coming──▶ the rest ──for each group: new nodes──▶ options ──expander──▶ order

Each pod is placed by PreFilter, Filter, Score and the choice, over the cluster with the nodes put up; a node is added when a
pod has no place and the new node gives it one. Caller: :mod:`.autoscaler`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from kubesched.api.requests import CPU, MEMORY, Resources
from kubesched.api.types import Pod
from kubesched.scheduler.config import FeatureGates
from kubesched.scheduler.nodes.podinfo import PodInfo

from ...node_groups import NodeGroup
from ..embedded import Embedded
from ..results.pod_times import amounts
from ..trials.new_nodes import NewNodes, demands_of
from ..trials.trial import RefusedPodError, Trial, TriedPod
from .expanders import Option, chosen
from .fleet import Fleet

__all__ = ["ScaleUp", "limits_of", "scale_up"]


@dataclass(slots=True)
class ScaleUp:
    """Answer: the number of new nodes of a group, and where pods will find their place.

    Attributes:
        group, count: what to order; ``count`` is 0 if nothing helps.
        options: names of the groups that would have helped.
        places: node, by the UID of each pod for which there is a place on a node that is coming or to be ordered.
        ordered_for: number of pods for which the order is.
        hopeless: UIDs of pods that no group helps.
    """

    group: int = 0
    count: int = 0
    options: list[str] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)
    ordered_for: int = 0
    hopeless: set[str] = field(default_factory=set)


def scale_up(
    embedded: Embedded,
    gates: FeatureGates,
    fleet: Fleet,
    limits: Sequence[dict[str, int]],
    pods: Sequence[Pod],
    places: dict[str, str],
    expanders: Sequence[str],
    rng: random.Random,
) -> ScaleUp:
    """Return what to order for pods that are pending.

    ``places`` are nodes on their way, by the UID of the pods that they are meant for. ``limits`` are the most of each
    resource of each group's pool.

    Raises:
        PluginFailedError: when a plugin fails.
    """
    trial = Trial(embedded, gates)
    search = _Search(embedded, trial, fleet, pods)
    answer = ScaleUp()
    with trial.begun():
        coming = fleet.coming()
        for machine in coming:
            assert machine.coming is not None
            search.new.put(machine.coming[1])
        try:
            rest = search.without_places(places, {one.name for one in coming}, answer)
            found = [search.option(index, rest, limits) for index in range(len(fleet.groups))] if rest else []
        finally:
            trial.take_back()
            search.new.remove(one.name for one in coming)
    options = [one for one in found if one is not None]
    if not options:
        answer.hopeless.update(search.pods[index].uid for index in rest)
        return answer
    best = chosen([option for option, _ in options], expanders, rng)
    answer.group = next(index for index, group in enumerate(fleet.groups) if group is best.group)
    answer.count, answer.ordered_for = best.count, best.pods
    answer.options = [option.group.name for option, _ in options]
    answer.places |= next(its for option, its in options if option is best)
    return answer


class _Search:
    """Pending pods, tried with new nodes of each group. Pods are named by their place in the order of trial."""

    def __init__(self, embedded: Embedded, trial: Trial, fleet: Fleet, pods: Sequence[Pod]) -> None:
        self.embedded, self.trial, self.fleet = embedded, trial, fleet
        self.new = NewNodes(embedded, trial, fleet.groups, first=fleet.numbers)
        self.pods = sorted(pods, key=lambda pod: -(pod.spec.priority or 0))
        demands, self._kinds = demands_of(self.pods)
        self._tried: list[TriedPod | None] = []
        for demand in demands:
            try:
                self._tried.append(TriedPod(trial, demand.pod, lenient=True))
            except RefusedPodError:
                self._tried.append(None)

    def _pod(self, index: int, tried: TriedPod) -> PodInfo:
        """Return the pod itself if it has claims, which are found by its name; otherwise a copy, which is faster."""
        pod = self.pods[index]
        if not tried.uses_claims:
            return tried.copy(pod.name)
        return PodInfo(self.trial.view(pod) if self.trial.view is not None else pod)

    def without_places(self, places: dict[str, str], coming: set[str], answer: ScaleUp) -> list[int]:
        """Place pods on nodes that are there or coming. Return those without a place; note places on coming ones."""
        left: list[int] = []
        for index, pod in enumerate(self.pods):
            tried = self._tried[self._kinds[index]]
            if tried is None:
                continue
            node = places.get(pod.uid, "")
            if node in coming:
                self.trial.put(tried, self._pod(index, tried), node)
                answer.places[pod.uid] = node
            else:
                left.append(index)
        rejected: set[int] = set()
        rest: list[int] = []
        for index in left:
            kind = self._kinds[index]
            tried = self._tried[kind]
            assert tried is not None
            found = None if kind in rejected else self.trial.fit(tried, self._pod(index, tried))
            if found is None:
                rejected.add(kind)
                rest.append(index)
            elif found in coming:
                answer.places[self.pods[index].uid] = found
        return rest

    def option(
        self, group: int, rest: Sequence[int], limits: Sequence[dict[str, int]]
    ) -> tuple[Option, dict[str, str]] | None:
        """Return what so many new nodes of a group as are useful would do for pods, and the places; None for nothing."""
        each = [amounts(self.new.capacity(index)) for index in range(len(self.fleet.groups))]
        room = self.fleet.room(group, each, limits)
        before, names = len(self.trial), list[str]()
        places: dict[str, str] = {}
        asked = [0, 0]
        rejected: set[int] = set()
        for index in rest:
            kind = self._kinds[index]
            tried = self._tried[kind]
            if tried is None or kind in rejected:
                continue
            pod = self._pod(index, tried)
            node = self.trial.fit(tried, pod)
            if node is None and len(names) < room:
                node = self._on_one_more(group, tried, pod, names)
            if node is None:
                rejected.add(kind)
                continue
            rejected = {one for one in rejected if not self._depends(one)}
            if node in names:
                places[self.pods[index].uid] = node
                asked[0] += pod.fit_requests.milli_cpu
                asked[1] += pod.fit_requests.memory
        self.trial.take_back(before)
        self.new.remove(names)
        if not places:
            return None
        there = (len(names) * each[group].get(CPU, 0), len(names) * each[group].get(MEMORY, 0))
        return Option(self.fleet.groups[group], len(names), len(places), (asked[0], asked[1]), there), places

    def _on_one_more(self, group: int, tried: TriedPod, pod: PodInfo, names: list[str]) -> str | None:
        """Put up one more node, and return it if the pod has its place there; otherwise the node is taken down."""
        before = len(self.trial)
        counts, start = ([0] * len(self.fleet.groups) for _ in range(2))
        counts[group], start[group] = 1, len(names)
        (name,) = self.new.add(counts, start)
        node = self.trial.fit(tried, pod)
        if node is not None:
            names.append(name)
            return node
        self.trial.take_back(before)
        self.new.remove([name])
        return None

    def _depends(self, kind: int) -> bool:
        """True if pods of a kind may find a place because others have."""
        tried = self._tried[kind]
        return tried is not None and bool(tried.info.has_affinity or tried.pod.spec.topology_spread_constraints)


def limits_of(groups: Sequence[NodeGroup]) -> list[dict[str, int]]:
    """Return the most of each resource that the pool of each group may have."""
    return [{name: Resources.from_list(group.limits).get(name) for name in group.limits} for group in groups]
