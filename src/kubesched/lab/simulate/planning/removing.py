"""Nodes that can go: a set whose pods all find other nodes, with the drains in their order, verified by a run.

Nodes are tried one after another by the scheduling cycle, the dearest and emptiest first. Then all of them are drained in a
run of the whole cluster, with evictions and budgets; a node whose drain fails stays, and the others are drained again. In a
small cluster all sets are looked at, those that save most first.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from kubesched.api.kinds import NODES
from kubesched.api.types import Pod
from kubesched.base.collector import collector_off
from kubesched.cluster.controllers import Budgets
from kubesched.scheduler.config import DEFAULT_GATES

from ...node_groups import NodeGroup, members
from ..embedded import Embedded
from ..results.result import Stopped
from ..run.simulation import Session, simulate
from ..run.virtual_time import run_virtual
from ..trials.drain_trial import DrainTrial
from ..trials.evictable import keeps, movable
from .buying import EFFORT
from .capacity import QUIET, sizes_of
from .drains import Drained, drained
from .plan_report import KeptNode, Plan, Removal
from .whole_run import settled_start

__all__ = ["removal_of"]

#: Most nodes of which all sets are looked at, and runs for that.
_FEW_NODES: Final = 8
_MOST_RUNS: Final = 300
#: Most runs in which failing nodes are taken out.
_MOST_REPAIRS: Final = 5


def removal_of(
    arguments: Mapping[str, Any],
    groups: Sequence[NodeGroup] = (),
    effort: int = EFFORT,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Plan:
    """Return a plan with the nodes that can go. Groups have the prices, and the least numbers of their nodes.

    ``effort`` is the number of placements after which the search ends with the nodes that it has.
    Must not be called inside a running event loop.

    Raises:
        ManifestError, ConfigError, TaskCrashedError: see :func:`..run.simulation.simulate`.
        PluginFailedError: when a plugin fails.
    """
    found: list[Plan] = []

    async def drive(session: Session) -> Stopped:
        await settled_start(session, running=True)
        search = _Removing(session.embedded, arguments, groups, effort, on_progress)
        count, pods, _ = sizes_of(session.embedded)
        removal = search.found()
        found.append(Plan(removal=removal, runs=search.runs, verified=True, cluster_nodes=count, cluster_pods=pods))
        return "settled"

    with collector_off():
        given = {**arguments, **QUIET, "drive": drive, "more_controllers": (Budgets,)}
        result = run_virtual(simulate(**given))
    return msgspec.structs.replace(found[0], warnings=list(result.warnings), seed=int(arguments.get("seed", 0)))


class _Removing:
    def __init__(
        self,
        embedded: Embedded,
        arguments: Mapping[str, Any],
        groups: Sequence[NodeGroup],
        effort: int,
        on_progress: Callable[[int], None],
    ) -> None:
        self.embedded, self.arguments, self.effort, self.on_progress = embedded, arguments, effort, on_progress
        nodes = [item.data() for item in embedded.store.table(NODES).items()]
        belongs = members(groups, nodes)
        self.group_of = {name: group for group in groups for name in belongs[group.name]}
        #: Number of nodes of each group that may go.
        self.spare = {group.name: max(0, len(belongs[group.name]) - group.minimum) for group in groups}
        self.runs = 0
        self.kept: dict[str, str] = {}
        self.pods: dict[str, list[Pod]] = {}
        there: dict[str, list[Pod]] = {}
        for pod in embedded.pods():
            there.setdefault(pod.spec.node_name, []).append(pod)
        for node in embedded.nodes():
            self.pods[node.name] = movable(there.get(node.name, []))
            why = next(filter(None, (keeps(embedded, pod) for pod in self.pods[node.name])), "")
            if not why and groups and node.name not in self.group_of:
                why = "belongs to none of the node groups"
            if why:
                self.kept[node.name] = why
        self.trial = DrainTrial(embedded, arguments.get("gates", DEFAULT_GATES), self.pods)

    def price(self, name: str) -> float:
        return self.group_of[name].price if name in self.group_of else 0.0

    def found(self) -> Removal:
        candidates = sorted((name for name in self.pods if name not in self.kept), key=self._first)
        exact = len(candidates) <= _FEW_NODES
        with self.trial.begun():
            result = self._of_all_sets(candidates) if exact else self._one_by_one(candidates)
        if result is None:  # too many sets for the runs
            exact, result = False, Drained()
        gone = {drain.node for drain in result.drains}
        for name in candidates:
            if name not in gone and not self._within_groups([*gone, name]):
                self.kept[name] = f"group {self.group_of[name].name} would have fewer nodes than its minimum"
            elif name not in gone:
                self.kept.setdefault(name, "its pods would not all find another node, after those that go")
        bound = self._most_saved(candidates)
        saving = sum(drain.price for drain in result.drains)
        return Removal(
            drains=result.drains,
            saving=saving,
            bound=saving if exact else bound,
            exact=exact,
            kept=[KeptNode(node=name, why=self.kept[name]) for name in sorted(self.kept) if name not in gone],
        )

    def _first(self, name: str) -> tuple[float, int, float, str]:
        """Return the place of a node in the order of drains: the dearest first, then the one with the fewest pods."""
        info = self.embedded.scheduler.cache.table.get(name)
        used = info.requested.milli_cpu / max(1, info.allocatable.milli_cpu) if info is not None else 0.0
        return -self.price(name), len(self.pods[name]), used, name

    def _most_saved(self, candidates: Sequence[str]) -> float:
        left = dict(self.spare)
        total = 0.0
        for name in candidates:
            group = self.group_of.get(name)
            if group is None or left[group.name] > 0:
                total += self.price(name)
                if group is not None:
                    left[group.name] -= 1
        return total

    def _within_groups(self, names: Sequence[str]) -> bool:
        count: dict[str, int] = {}
        for name in names:
            if name in self.group_of:
                group = self.group_of[name].name
                count[group] = count.get(group, 0) + 1
        return all(number <= self.spare[group] for group, number in count.items())

    def _run(self, names: Sequence[str]) -> Drained:
        self.runs += 1
        self.on_progress(self.runs)
        about = {name: (self.group_of[name].name if name in self.group_of else "", self.price(name)) for name in names}
        return drained(self.arguments, names, about)

    # -- all sets --------------------------------------------------------------------------------------

    def _of_all_sets(self, candidates: Sequence[str]) -> Drained | None:
        """Return the drains of the set that saves most; None if the runs do not suffice to tell."""
        for names in self._sets(candidates):
            if not self._within_groups(names):
                continue
            if self.runs >= _MOST_RUNS:
                return None
            if not self.trial.has_room(names):
                continue
            result = self._run(names)
            if not result.failed:
                return result
        return Drained()

    def _sets(self, candidates: Sequence[str]) -> Iterator[tuple[str, ...]]:
        sizes = range(1, len(candidates) + 1)
        sets = [names for size in sizes for names in itertools.combinations(candidates, size)]
        yield from sorted(sets, key=lambda names: (-round(sum(map(self.price, names)), 9), -len(names)))

    # -- one by one ------------------------------------------------------------------------------------

    def _one_by_one(self, candidates: Sequence[str]) -> Drained:
        going: list[str] = []
        for name in candidates:
            if self.trial.work >= self.effort:
                self.kept[name] = "was not tried any more (--effort)"
            elif not self._within_groups([*going, name]):
                self.kept[name] = f"group {self.group_of[name].name} would have fewer nodes than its minimum"
            elif self.trial.drain(name):
                going.append(name)
            else:
                self.kept[name] = self.trial.why
        self.trial.undo()
        # Pods that went to a node which goes later must find their place at once, when all are cordoned.
        failed = self.trial.drain_all(going)
        self.kept |= failed
        going = [name for name in going if name not in failed]
        self.trial.undo()
        for _ in range(_MOST_REPAIRS):
            result = self._run(going)
            if not result.failed:
                return result
            self.kept[result.failed] = result.why
            going.remove(result.failed)
        # Nodes that were drained before the failure stay drained.
        done = [drain.node for drain in result.drains]
        result = self._run(done)
        return result if not result.failed else Drained()
