"""Explanation of a pod that has a node: the choice as it would be made now, and what would have turned it.

The pod is taken off its node in a what-if, and all nodes are filtered and scored. Nothing remembered is used, and
nothing of the cluster is changed.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import numpy as np

from kubesched.api.types import Pod
from kubesched.scheduler.core.diagnosis import Rejection
from kubesched.scheduler.core.search import Search
from kubesched.scheduler.extenders.interface import is_involved
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.framework.runtime import Framework
from kubesched.scheduler.nodes import PodInfo
from kubesched.scheduler.nodes.nodeinfo import NodeInfo
from kubesched.scheduler.plugins.demands.words import counted
from kubesched.scheduler.scheduler import Scheduler

from .at_node import obstacles_at, remedies_at
from .obstacles import changed
from .reasons_of import obstacle_report, reasons_of
from .report import Alternative, NodeScore, ObstacleReport, Placed, RemedyReport, Turn
from .scores import ScoreTable, score_table

__all__ = ["Choice", "explain_placed", "pending_at", "taken_off"]

#: Most pods that are taken off a node to see whether it wins then.
_MOST_EVICTIONS: Final = 12
#: Greatest weight of a plugin (rules/configuration).
_MOST_WEIGHT: Final = 2**31 - 1
_CHANGED: Final = "the pod or the cluster changed after the decision, or something besides the scores chose the node"


class Choice:
    """Choice among all nodes for a pod that is on none. Make it within :func:`taken_off`.

    Attributes:
        pod: the pod, without node and nomination.
        node: the node that it has in fact; None if that left the cluster, or the pod is pending.
        fitting: scores of the nodes that fit; None if none fits.
        reasons: reasons against the other nodes.
    """

    def __init__(self, framework: Framework, search: Search, pod: PodInfo, node: NodeInfo | None) -> None:
        """Evaluate all nodes.

        Raises:
            PluginFailedError: when a plugin fails for the pod.
        """
        self._framework = framework
        self._search = search
        self.pod = pod
        self.node = node
        found = score_table(framework, search, pod)
        self.fitting: ScoreTable | None = None if isinstance(found, Rejection) else found
        nodes = len(search.table) - (0 if isinstance(found, Rejection) else len(found.rows))
        statuses = found.diagnosis.statuses if isinstance(found, Rejection) else found.statuses
        self.reasons = reasons_of(statuses, nodes)
        self._own = self.fitting.place(node.row) if self.fitting is not None and node is not None else None

    @property
    def rank(self) -> int | None:
        """Place of the pod's node among those that fit, from 1; None if it does not fit."""
        if self.fitting is None or self._own is None:
            return None
        return 1 + int((self.fitting.totals > self.fitting.totals[self._own]).sum())

    @property
    def tied(self) -> int:
        """Number of nodes with the greatest total."""
        return 0 if self.fitting is None else int((self.fitting.totals == self.fitting.totals.max()).sum())

    def best(self, most: int) -> list[NodeScore]:
        """Return the nodes with the greatest totals, by name among equals, and the pod's own node at the end."""
        table = self.fitting
        if table is None:
            return []
        names = [self._name(row) for row in table.rows.tolist()]
        places = heapq.nsmallest(most, range(len(names)), key=lambda place: (-int(table.totals[place]), names[place]))
        if self._own is not None and self._own not in places:
            places.append(self._own)
        return [table.node(place, names[place]) for place in places]

    def decided(self) -> str:
        """Return in one sentence why the pod's node is, or is not, the choice that would be made now."""
        table, node, own = self.fitting, self.node, self._own
        if node is None:
            return "its node is not in the cluster any more"
        if table is None or own is None:
            return f"{node.name} would be rejected now: {_CHANGED}"
        totals = table.totals
        if len(totals) == 1:
            return f"{node.name} is the only node that fits"
        best, total = int(totals.max()), int(totals[own])
        if total < best:
            name = self._name(int(table.rows[int(totals.argmax())]))
            return f"{node.name} has a total of {total}, but {name} would win now with {best}: {_CHANGED}"
        if self.tied > 1:
            return f"{counted(self.tied, 'node')} have the greatest total, {best}; one of them is chosen at random"
        other = int(np.where(np.arange(len(totals)) == own, -1, totals).argmax())
        parts = ", ".join(f"{plugin} {points:+d}" for plugin, points in _differences(table, own, other).items())
        ahead = best - int(totals[other])
        return f"{node.name} has the greatest total, {best}: {ahead} more than {self._name(int(table.rows[other]))} ({parts})"

    def against(self, name: str) -> Alternative | None:
        """Compare the pod's node with another one; None if there is no such node.

        Raises:
            PluginFailedError: when a plugin fails for the pod.
        """
        row, table = self._search.table.row_of(name), self.fitting
        if row is None:
            return None
        other = None if table is None else table.place(row)
        if table is None or other is None:
            return self._rejected(name, row)
        own = self._own
        turns = [] if _wins(table, other) else [*_weights(table, other), *self._evictions(name, row)]
        return Alternative(
            node=name,
            fits=True,
            total=int(table.totals[other]),
            lost_by=int(table.totals[own] - table.totals[other]) if own is not None else None,
            differences=_differences(table, own, other) if own is not None else {},
            turns=turns,
        )

    def _rejected(self, name: str, row: int) -> Alternative:
        obstacles = obstacles_at(self._framework, self._search, self.pod, row)
        remedies = remedies_at(self._search, obstacles)
        return Alternative(
            node=name,
            fits=False,
            obstacles=[obstacle_report(one, name) for one in obstacles.found],
            remedies=[RemedyReport(changes=list(one.texts), nodes=1, examples=[name]) for one in remedies],
        )

    def problems(self) -> list[ObstacleReport]:
        """Return the obstacles at the pod's own node, if it would be rejected now."""
        if self.node is None or self._own is not None:
            return []
        name = self.node.name
        found = obstacles_at(self._framework, self._search, self.pod, self.node.row).found
        return [obstacle_report(one, name) for one in found]

    def _evictions(self, name: str, row: int) -> Iterator[Turn]:
        """Yield pods of a node without which the node would win alone; none of them is needless.

        Pods are taken off one after the other, the least important first, until the node wins or a bound is reached.
        """
        node = self._search.table.info(row)
        leaving = sorted(node.pods.values(), key=lambda other: (other.priority, other.pod.key))[:_MOST_EVICTIONS]
        gone: list[PodInfo] = []
        with self._search.snapshot.what_if(node) as trial:
            for other in leaving:
                trial.remove(other)
                gone.append(other)
                if self._would_win(row):
                    break
            else:
                return
            for other in tuple(gone[:-1]):
                trial.add(other)
                if self._would_win(row):
                    gone.remove(other)
                else:
                    trial.remove(other)
        pods = [pod.pod.key for pod in gone]
        yield Turn(kind="evictions", text=f"it wins without {', '.join(pods)} on {name}", pods=pods)

    def _would_win(self, row: int) -> bool:
        table = score_table(self._framework, self._search, self.pod)
        place = None if isinstance(table, Rejection) else table.place(row)
        return not isinstance(table, Rejection) and place is not None and _wins(table, place)

    def _name(self, row: int) -> str:
        return self._search.table.info(row).name


def explain_placed(
    scheduler: Scheduler, pod: Pod, workload: str = "", against: Collection[str] = (), best: int = 5
) -> Placed:
    """Explain why a pod is on its node: the best nodes, what decided, and what would have turned it.

    ``against`` are names of nodes to compare with; by default the best other node.
    """
    name = pod.spec.scheduler_name

    def placed(decided: str, **more: Any) -> Placed:
        rest: dict[str, Any] = {"feasible": 0, "tied": 0, "rank": None, "best": [], **more}
        return Placed(
            pod=pod.key,
            workload=workload,
            node=pod.spec.node_name,
            profile=name,
            phase=pod.status.phase,
            nodes=len(scheduler.cache.table),
            decided=decided,
            **rest,
        )

    profile = scheduler.profiles.get(name)
    if profile is None:
        known = ", ".join(scheduler.profiles)
        return placed(f'another scheduler chose the node: no profile is named "{name}" (there is {known})')
    try:
        with taken_off(profile.search, PodInfo(pod)) as (bare, node):
            choice = Choice(profile.framework, profile.search, bare, node)
            nodes = choice.best(best)
            others = against or [one.node for one in nodes[:2] if one.node != pod.spec.node_name][:1]
            compared = [choice.against(other) for other in dict.fromkeys(others) if other != pod.spec.node_name]
            return placed(
                choice.decided(),
                feasible=0 if choice.fitting is None else len(choice.fitting.rows),
                tied=choice.tied,
                rank=choice.rank,
                best=nodes,
                reasons=choice.reasons,
                alternatives=[one for one in compared if one is not None],
                problems=choice.problems(),
                remarks=list(_remarks(scheduler, bare)),
            )
    except PluginFailedError as error:
        return placed(f"the choice cannot be evaluated: {error}")


def _remarks(scheduler: Scheduler, pod: PodInfo) -> Iterator[str]:
    if is_involved(scheduler.extenders, pod):
        yield "an extender takes part in the decision; it is not asked again"
    for condition in pod.status.conditions:
        if condition.type == "DisruptionTarget" and condition.status == "True":
            yield f"the pod is being evicted ({condition.reason}): {condition.message}"


def pending_at(framework: Framework, search: Search, pod: PodInfo, nodes: Collection[str]) -> list[Alternative]:
    """Return what keeps a pending pod off each of some nodes, or by what that node loses. Unknown nodes are left out.

    Raises:
        PluginFailedError: when a plugin fails for the pod.
    """
    if not nodes:
        return []
    choice = Choice(framework, search, changed(pod, pod.spec), None)
    return [found for name in dict.fromkeys(nodes) if (found := choice.against(name)) is not None]


@contextmanager
def taken_off(search: Search, pod: PodInfo) -> Iterator[tuple[PodInfo, NodeInfo | None]]:
    """Show the cluster within the block as if the pod were pending. Yield the pod without a node, and its node."""
    row = search.table.row_of(pod.spec.node_name)
    node = search.table.info(row) if row is not None else None
    bare = changed(pod, msgspec.structs.replace(pod.spec, node_name=""))
    on_node = node.pods.get(pod.uid) if node is not None else None
    with search.snapshot.without([(node, on_node)] if node is not None and on_node is not None else []):
        yield bare, node


def _differences(table: ScoreTable, own: int, other: int) -> dict[str, int]:
    """Return weighted scores of one place minus those of another, by plugin, the largest first, without zeros."""
    found = {
        plugin: (int(table.normalized[plugin][own]) - int(table.normalized[plugin][other])) * weight
        for plugin, weight in table.weights.items()
    }
    return dict(sorted(((name, points) for name, points in found.items() if points), key=lambda one: (-one[1], one[0])))


def _wins(table: ScoreTable, place: int) -> bool:
    """Return True if the total at a place is greater than all others."""
    totals = table.totals
    return bool(totals[place] == totals.max()) and int((totals == totals[place]).sum()) == 1


def _weights(table: ScoreTable, place: int) -> Iterator[Turn]:
    """Yield, for each plugin, the weight nearest to its own with which the node at a place would win alone.

    With weight ``w`` instead of ``w0`` node ``i`` has ``totals[i] + (w - w0) * normalized[i]``. Each other node gives a
    bound on ``w``.
    """
    behind = np.delete(table.totals - table.totals[place], place)  # what each other node has more
    for plugin, weight in table.weights.items():
        scores = table.normalized[plugin]
        ahead = np.delete(scores[place] - scores, place)
        if (behind[ahead == 0] >= 0).any():
            continue  # some node is as good whatever the weight
        # change * ahead > behind, in integers
        above = [int(b) // int(a) + 1 for a, b in zip(ahead[ahead > 0], behind[ahead > 0], strict=True)]
        below = [-(int(b) // -int(a)) - 1 for a, b in zip(ahead[ahead < 0], behind[ahead < 0], strict=True)]
        least = max(above, default=-weight)
        most = min(below, default=_MOST_WEIGHT - weight)
        change = max(least, 0) if most >= 0 else most
        if not (least <= change <= most and 0 <= weight + change <= _MOST_WEIGHT):
            continue
        wanted = weight + change
        how = f"the weight of {plugin} is {wanted} instead of {weight}" if wanted else f"{plugin} is off"
        yield Turn(kind="weight", text=f"it wins when {how}", plugin=plugin, weight=wanted)
