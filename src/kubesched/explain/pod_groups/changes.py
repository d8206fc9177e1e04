"""Changes that let a pod group fit: of its members, of the group, evictions, and more nodes. Each is tried by the group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from kubesched.api.types import Pod, PodSpec
from kubesched.base.at_once import completed
from kubesched.base.turns import Steps
from kubesched.scheduler.framework.demand import Change
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes import NodeInfo, PodInfo
from kubesched.scheduler.nodes.columns import RowArray
from kubesched.scheduler.plugins.preemption.budgets import BudgetReader, Budgets
from kubesched.scheduler.plugins.preemption.groups import Unit, select_victims, units
from kubesched.scheduler.scheduler import Scheduler

from ..foreign import remark
from ..new_nodes import belongings, copy_of
from ..obstacles import Obstacle, with_changes
from ..report import GroupEvictionReport, GroupNewNodeReport, GroupRemedyReport, PlacementReport
from .nearest import Nearest
from .subject import Subject
from .trials import Effort, GroupTrying, fitting

__all__ = ["Helping", "Helps"]

#: Most placements in which a change is tried, the nearest first; sets of changes of members; kinds of new nodes.
_MOST_PLACEMENTS: Final = 4
_MOST_REMEDIES: Final = 4
_MOST_KINDS: Final = 2
#: Most new nodes of a kind that are tried together.
_MOST_NODES: Final = 32
#: Most steps in which an amount is halved until the group fits.
_MOST_HALVINGS: Final = 10
#: Amount from which steps are powers of two, as amounts of memory are, and not of ten.
_LARGE: Final = 1 << 20
#: Most trials of single members for one round of evictions in a placement: while they last, nothing else runs.
_MOST_FOR_EVICTIONS: Final = 1 << 10
#: Trials of single members after which evictions are looked for in no further placement.
_MOST_FOR_ALL_EVICTIONS: Final = 1 << 13
#: Parts of the pods that may go that are tried one by one, however large the group is.
_LEAST_UNITS: Final = 8
#: Priority that is greater than that of any pod.
_ABOVE_ALL: Final = 1 << 31


@dataclass(slots=True)
class Helps:
    """Proposals after which a group fits, and sentences about what was not tried."""

    remedies: list[GroupRemedyReport] = field(default_factory=list)
    evictions: GroupEvictionReport | None = None
    new_nodes: list[GroupNewNodeReport] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


class Helping:
    """Search for changes that help one group."""

    def __init__(self, scheduler: Scheduler, trying: GroupTrying, subject: Subject, effort: Effort) -> None:
        self._scheduler = scheduler
        self._trying = trying
        self._subject = subject
        self._effort = effort
        self._helps = Helps()

    def found(self, tried: Sequence[PlacementReport], nearest: Nearest) -> Steps[Helps]:
        """Return what helps. ``tried`` are the placements, the nearest first; ``nearest`` is the first of them."""
        self._helps.remarks.extend(nearest.remarks)
        try:
            yield from self._find(tried, nearest)
        except PluginFailedError as error:
            self._helps.remarks.append(remark(error, "not everything was tried"))
        return self._helps

    def _find(self, tried: Sequence[PlacementReport], nearest: Nearest) -> Steps[None]:
        subject, helps = self._subject, self._helps
        names = [one.name for one in tried[:_MOST_PLACEMENTS]]
        if subject.gated:
            self._try_pods("remove the scheduling gates", [*subject.queued, *subject.gated], names)
            yield
        less = []
        for obstacle in nearest.found:
            resource = self._try_amount(nearest.name, obstacle)
            less += [f" {resource}"] if resource else []
            yield
        for remedy in nearest.remedies[:_MOST_REMEDIES]:
            is_amount = len(remedy.changes) == 1 and remedy.texts[0].startswith("ask for")
            if not remedy.dropped and not (is_amount and remedy.texts[0].endswith(tuple(less))):
                self._try_changes(remedy.changes, names)
                yield
        if subject.topology:
            self._try_everywhere()
            yield
        first = tried[0]
        least = len(subject.scheduled) + first.fit
        if subject.is_gang and first.fit and first.lacking:
            change = f"make the group again with minCount {least:,}"
            helps.remedies.append(GroupRemedyReport(changes=[change], placement=first.name, fit=first.fit))
        if len(subject.queued) >= subject.needed:
            before = self._effort.left
            for name in names:
                if before - self._effort.left <= _MOST_FOR_ALL_EVICTIONS:
                    yield from self._try_evictions(name)
            if helps.evictions is not None and subject.topology:
                helps.remarks.append("the scheduler itself evicts no pods for a group with a topology constraint")
            for like in nearest.kinds[:_MOST_KINDS]:
                self._try_nodes(nearest.name, like)
                yield
        if not self._effort.left:
            helps.remarks.append("not every change was tried: there are too many members, placements or pods to evict")

    # -- trials ----------------------------------------------------------------------------------------

    def _fits(self, pods: Sequence[Pod], name: str | None) -> int:
        """Return how many of these members fit in a placement (None: on all nodes) if the group fits there, else 0."""
        if not self._takes(len(pods)):
            return 0
        group = self._trying.group(self._subject.key, pods)
        rows = None if name is None else self._trying.rows(group, name)
        return self._fits_on(pods, rows)

    def _fits_on(self, pods: Sequence[Pod], rows: RowArray | None) -> int:
        group = self._trying.group(self._subject.key, pods)
        with self._trying.tried(group, rows) as outcome:
            found = fitting(outcome)
            return found if outcome.status is None and found >= self._subject.needed else 0

    def _takes(self, members: int) -> bool:
        if self._effort.takes(members):
            return True
        self._effort.left = 0
        return False

    # -- changes of members and of the group -----------------------------------------------------------

    def _try_pods(self, change: str, pods: Sequence[Pod], names: Sequence[str]) -> None:
        for name in names:
            if fit := self._fits(pods, name):
                self._helps.remedies.append(GroupRemedyReport(changes=[change], placement=name, fit=fit))
                return

    def _try_changes(self, changes: Sequence[Change], names: Sequence[str]) -> bool:
        """Make changes to all members, and try the group in these placements until one holds it."""
        with _changed(changes, self._subject.queued) as pods:
            for name in names:
                if fit := self._fits(pods, name):
                    texts = [f"let each member {one.text}" for one in changes]
                    self._helps.remedies.append(GroupRemedyReport(changes=texts, placement=name, fit=fit))
                    return True
        return False

    def _try_amount(self, name: str, obstacle: Obstacle) -> str:
        """Find how much less of a resource each member may ask for so that the group fits. Return the resource if so."""
        amounts = obstacle.demand.amounts if obstacle.demand is not None else None
        if amounts is None:
            return ""
        grain = _grain(amounts.asked)
        low, high = 0, amounts.asked // grain
        best: tuple[int, Change] | None = None
        while high - low > 1:
            middle = (low + high) // 2
            change = amounts.less(middle * grain)
            with _changed([change], self._subject.queued) as pods:
                fit = self._fits(pods, name)
            if fit:
                high, best = middle, (fit, change)
            else:
                low = middle
        if best is None:
            return ""
        fit, change = best
        texts = [f"let each member {change.text}"]
        self._helps.remedies.append(GroupRemedyReport(changes=texts, placement=name, fit=fit))
        return obstacle.text.partition(":")[0]

    def _try_everywhere(self) -> None:
        if fit := self._fits(self._subject.queued, None):
            change = f"make the group again without the topology constraint {self._subject.topology}"
            self._helps.remedies.append(GroupRemedyReport(changes=[change], placement="", fit=fit))

    # -- evictions -------------------------------------------------------------------------------------

    def _try_evictions(self, name: str) -> Steps[None]:
        """Look for pods without which the group fits in a placement; the fewest of all placements are kept."""
        subject, trying = self._subject, self._trying
        assert subject.group is not None
        group = trying.group(subject.key, subject.queued)
        rows = trying.rows(group, name)
        nodes = set(trying.table.order().tolist() if rows is None else rows.tolist())
        groups = self._scheduler.informers.objects("podgroups")
        every = [unit for unit in units(trying.table, groups, subject.key) if _is_on(unit, nodes, trying)]
        pods = [attempt.queued.pod_info for attempt in group.attempts]
        own = subject.group.spec.priority
        priority = own if own is not None else max(pod.priority for pod in pods)
        for lower, limit, given in ((True, priority, pods), (False, _ABOVE_ALL, [])):
            victims = yield from self._victims(every, given, limit, name)
            if victims is None:
                continue
            best = self._helps.evictions
            if best is None or (lower, -len(victims)) > (best.lower_priority, -len(best.pods)):
                ordered = sorted((one.pod.key, one.spec.node_name) for one in victims)
                self._helps.evictions = GroupEvictionReport(
                    placement=name,
                    pods=[key for key, _ in ordered],
                    nodes=[node for _, node in ordered],
                    lower_priority=lower,
                )
            return

    def _victims(
        self, every: Sequence[Unit], pods: Sequence[PodInfo], priority: int, name: str
    ) -> Steps[list[PodInfo] | None]:
        """Return the pods that have to go, of these units; None if it does not help that all of lower priority go.

        Where there are many, those of several nodes come back together at first, and then those of the nodes that stay
        closed, in smaller parts.
        """
        able = [unit for unit in every if unit.priority < priority and all(map(self._is_there, unit.pods))]
        most = max(_LEAST_UNITS, _MOST_FOR_EVICTIONS // max(1, len(self._subject.queued)))
        while True:
            parts = able if len(able) <= most else _parts(able, most)
            victims = self._select(parts, pods, priority, name)
            yield
            if victims is None or parts is able:
                return victims
            gone = {pod.uid for pod in victims}
            left = [unit for unit in able if any(pod.uid in gone for pod in unit.pods)]
            if len(left) == len(able) or len(self._subject.queued) * (most + 1) > self._effort.left:
                text = "fewer evictions may do: pods of a node, or of several, were tried together"
                self._helps.remarks = list(dict.fromkeys([*self._helps.remarks, text]))
                return victims
            able = [unit for unit in left if all(map(self._is_there, unit.pods))]

    def _is_there(self, pod: PodInfo) -> bool:
        node = self._trying.table.get(pod.spec.node_name)
        return node is not None and pod.uid in node.pods

    def _select(self, able: Sequence[Unit], pods: Sequence[PodInfo], priority: int, name: str) -> list[PodInfo] | None:
        members = self._subject.queued
        if not able or not self._takes(len(members) * (len(able) + 1)):
            return None
        rows = self._trying.rows(self._trying.group(self._subject.key, members), name)

        async def simulate() -> Status | None:
            return None if self._fits_on(members, rows) else Status.unschedulable()

        budgets = self._budgets()
        now = self._scheduler.clock.now()
        status, victims = completed(select_victims(self._trying.table, able, pods, priority, budgets, now, simulate))
        return victims if status is None and victims else None

    def _budgets(self) -> Budgets:
        return BudgetReader().read(self._scheduler.informers.objects("poddisruptionbudgets"))

    # -- nodes -----------------------------------------------------------------------------------------

    def _try_nodes(self, name: str, like: NodeInfo) -> None:
        """Find how many more nodes like one of a placement let the group fit there: 1, 2, 4 …, and then the fewest."""
        if self._trying.table.get(like.name) is not like or like.node is None:
            return
        enough, short = 1, 0
        while not self._fits_with(name, like, enough):
            enough, short = enough * 2, enough
            if enough > _MOST_NODES or not self._effort.left:
                return
        while enough - short > 1:
            middle = (enough + short) // 2
            if self._fits_with(name, like, middle):
                enough = middle
            else:
                short = middle
        allocatable = dict(like.node.status.allocatable)
        report = GroupNewNodeReport(like=like.name, count=enough, placement=name, allocatable=allocatable)
        self._helps.new_nodes.append(report)

    def _fits_with(self, name: str, like: NodeInfo, count: int) -> bool:
        table = self._trying.table
        group = self._trying.group(self._subject.key, self._subject.queued)
        framework, snapshot = group.profile.framework, group.profile.search.snapshot
        with ExitStack() as stack:
            for _ in range(count):
                copy = copy_of(table, like)
                stack.enter_context(snapshot.with_node(copy))
                for belonging in belongings(framework, copy.name, like):
                    stack.enter_context(belonging)
            return bool(self._fits(self._subject.queued, name))


def _grain(amount: int) -> int:
    """Return the step in which an amount is lowered: a round one, at most 1,024 of which are the amount."""
    base, grain = 2 if amount >= _LARGE else 10, 1
    while amount // grain >> _MOST_HALVINGS:
        grain *= base
    return grain


@contextmanager
def _changed(changes: Sequence[Change], pods: Sequence[Pod]) -> Iterator[list[Pod]]:
    """Members with changes, within a block in which plugins see the other objects that the changes are about changed.

    Members that shared their spec do so afterwards, too.
    """
    specs: dict[int, PodSpec] = {}
    with ExitStack() as stack:
        for change in changes:
            stack.enter_context(change.around())
        found = []
        for pod in pods:
            made = with_changes(pod, changes)
            found.append(replace(made, spec=specs.setdefault(id(pod.spec), made.spec)))
        yield found


def _is_on(unit: Unit, rows: set[int], trying: GroupTrying) -> bool:
    return any(trying.table.row_of(pod.spec.node_name) in rows for pod in unit.pods)


def _parts(able: Sequence[Unit], count: int) -> list[Unit]:
    """Return units put together, those of neighbouring nodes, to at most so many."""
    ordered = sorted(able, key=lambda unit: unit.pods[0].spec.node_name)
    size = -(-len(ordered) // count)
    return [
        Unit(max(unit.priority for unit in part), [pod for unit in part for pod in unit.pods])
        for part in (ordered[at : at + size] for at in range(0, len(ordered), size))
    ]
