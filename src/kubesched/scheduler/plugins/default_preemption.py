"""DefaultPreemption: when no node fits, evict pods of lower priority from one (PreEnqueue, PostFilter).

The parts are in :mod:`.preemption`. Source: rules/preemption §1 to §9.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

from kubesched.api.groups import PodGroup
from kubesched.api.kinds import POD_GROUPS

from ..config.args import DefaultPreemptionArgs
from ..extenders.preemption import ask_extenders, interested
from ..framework.cycle_state import CycleState
from ..framework.events import ActionType, ClusterEvent, ClusterEventWithHint, EventResource, QueueingHint
from ..framework.fit_error import fit_error_text
from ..framework.interface import Handle, NodeToStatus, Plugin, PostFilterResult
from ..framework.preemption import Candidate, Preemption, Victims
from ..framework.status import Code, Status
from ..nodes import NodeList
from ..nodes.nodeinfo import NodeInfo
from ..nodes.nominating import NominatingInfo
from ..nodes.pod_groups import group_key
from ..nodes.podinfo import PodInfo
from .preemption.budgets import BudgetReader, Budgets
from .preemption.candidates import Found, candidates_wanted, find_candidates
from .preemption.choose import choose, losers
from .preemption.dry_run import NO_VICTIMS, DryRun
from .preemption.evict import Evictions
from .preemption.groups import Unit, WholeGroups, select_victims, units
from .preemption.hold import VictimsAwaited
from .preemption.importance import importance, is_terminating_by_preemption
from .preemption.outcomes import FastDryRuns, FastFound, FastTrial, FastTrials, TrialOrder
from .preemption.preemptor import Preemptor

__all__ = ["DefaultPreemption"]

#: Answer of PostFilter: a result and a status. A result of None keeps the pod's nomination; a status of None means that
#: room is being made.
Answer = tuple[PostFilterResult | None, Status | None]

_NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
_NEVER: Final = "not eligible due to preemptionPolicy=Never."
_CLEARED: Final = PostFilterResult(NominatingInfo.clear())


class DefaultPreemption(Plugin):
    """Eviction of pods of lower priority.

    Subclasses may replace two kinds of hooks: for the pods that may be victims (pod by pod or node by node), and for
    the order of their importance.
    """

    name = "DefaultPreemption"
    informs = ("poddisruptionbudgets",)

    def __init__(self, args: DefaultPreemptionArgs | None, handle: Handle) -> None:
        super().__init__(args, handle)
        args = args if args is not None else DefaultPreemptionArgs()
        self._percentage = args.min_candidate_nodes_percentage
        self._absolute = args.min_candidate_nodes_absolute
        self._asynchronous = handle.gate("SchedulerAsyncPreemption")
        #: True if groups preempt as a whole, and their members not on their own.
        self._whole_groups = handle.gate("WorkloadAwarePreemption")
        self._evicted_as_a_whole = WholeGroups()
        if self._whole_groups:
            handle.watch(POD_GROUPS.plural, self._evicted_as_a_whole)
        self._budgets = BudgetReader()
        self._evictions = Evictions(self.name, handle)
        self._awaited = VictimsAwaited(self.name, handle, self._evictions.is_evicting)
        #: Made when first needed, because handles may have no snapshot yet while plugins are built.
        self._fast: FastDryRuns | None = None
        self._trials = FastTrials(handle)
        #: Place where the next search begins, as a share (0…1) of the nodes. It is random, and kept until a search has
        #: found victims.
        self._start: float | None = None
        cls = type(self)
        self._has_default_hooks = (
            cls.importance is DefaultPreemption.importance
            and cls.is_eligible_victim is DefaultPreemption.is_eligible_victim
            and cls.potential_victims is DefaultPreemption.potential_victims
        )

    # -- hooks for subclasses --------------------------------------------------------------------------

    def is_eligible_victim(self, preemptor: PodInfo, pod: PodInfo) -> bool:
        """True if ``pod`` may be evicted for ``preemptor``. Called for pods of lower priority only."""
        return True

    def potential_victims(self, preemptor: PodInfo, node: NodeInfo) -> list[PodInfo]:
        """Return the pods of a node that may be evicted for ``preemptor``: eligible ones of lower priority."""
        priority = preemptor.priority
        return [
            pod for pod in node.pods.values() if pod.priority < priority and self.is_eligible_victim(preemptor, pod)
        ]

    def importance(self, pod: PodInfo, now: float) -> tuple[float, ...]:
        """Sort key of victims, the most important first. Important victims are spared if possible."""
        return importance(pod, now)

    def group_units(self, key: str) -> list[Unit]:
        """Return the units of pods that may be evicted for the pod group ``key``, as far as priorities allow it.

        The group's own members are not among them: a group must not make room for some members by evicting others.
        """
        return units(self.handle.snapshot.table, self.handle.informed("podgroups"), key)

    def is_constrained(self, group: PodGroup) -> bool:
        """Return True if a group is confined to one topology domain; then no pods are evicted for its members."""
        constraints = group.spec.scheduling_constraints
        return constraints is not None and bool(constraints.topology)

    # -- queue -----------------------------------------------------------------------------------------

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """Hold a preemptor until the last of its victims is being deleted, and for a pause after a failed eviction."""
        if self._evictions.is_running(pod.uid):
            # Held now, the pod is only woken by deletions. None of them may be left out.
            self._awaited.forget(pod.uid)
            return Status.unresolvable("waiting for the preemption for this pod to be finished")
        if pod.spec.scheduling_group is not None and self._whole_groups:
            group = self.handle.informed("podgroups").get(group_key(pod.pod))
            if group is not None and self._evictions.is_running(_uid(group)):
                return Status.unresolvable("waiting for the preemption for this pod group to be finished")
        return None

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Register the end of a victim, so that PreEnqueue is called again. The hint itself never queues the pod.

        The filter that rejected the pod decides whether it is tried.
        """
        if not self._asynchronous:
            return []
        return [ClusterEventWithHint(ClusterEvent(EventResource.POD, ActionType.DELETE), self._after_pod_delete)]

    def _after_pod_delete(self, pod: PodInfo, old: Any, new: Any) -> QueueingHint:
        return QueueingHint.SKIP

    def hold_key(self, pod: PodInfo, rejectors: AbstractSet[str]) -> Hashable | None:
        """Return the key of a pod that awaits its victims, or room, so that deletions that cannot help do not queue it."""
        return self._awaited.key(pod, rejectors)

    def may_help(self, key: Hashable, node_name: str) -> bool:
        return self._awaited.may_help(key, node_name)

    def may_help_nominated(self, pod: PodInfo, key: Hashable, node_name: str) -> bool:
        return self._awaited.may_help_nominated(pod, key, node_name)

    # -- PostFilter ------------------------------------------------------------------------------------

    def post_filter(self, state: CycleState, pod: PodInfo, statuses: NodeToStatus) -> Answer | Awaitable[Answer]:
        """Make room on one node, and nominate the pod there.

        The answer is awaitable when an extender or the API server has to be waited for.
        """
        self.handle.framework.metrics.preemption_attempts_total.inc()
        live = self.handle.live_pod(pod.pod)
        if live is None:
            return None, Status.from_error(f'preemption: pod "{pod.name}" not found', self.name)
        if live is not pod.pod:
            pod = PodInfo.derive(live, pod)
        if pod.spec.scheduling_group is not None and (why := self._why_not_in_group(pod)):
            return None, _prefixed(Status.unschedulable(why))
        reason = self._why_not_eligible(pod, statuses)
        if reason:
            return None, _prefixed(Status.unschedulable(reason))
        nodes = statuses.nodes_for_code(Code.UNSCHEDULABLE)
        if self._has_default_hooks and not self.handle.snapshot.table.placed.has_below(pod.priority):
            # The usual case in a batch: no pod can be a victim, so there is nothing to try.
            return _CLEARED, self._not_helpful({NO_VICTIMS.message(): len(nodes)} if nodes else {}, len(nodes))
        # With extenders the statuses date from before the first extender's answer; without extenders they are current.
        rejecting = statuses.rejecting(Code.UNSCHEDULABLE) if not self.handle.extenders else frozenset()
        found = self._find(state, pod, nodes, rejecting)
        if not found:
            if found.errors:
                return None, _prefixed(Status.from_error(_joined(found.errors)))
            return _CLEARED, self._not_helpful(found.histogram(), found.tried_in_vain)
        self._start = None
        extenders = interested(self.handle.extenders, pod)
        if extenders or not self._asynchronous:
            return self._slowly(extenders, pod, found, is_plan=state.group is not None)
        now = self.handle.clock.now()
        chosen = found.best(now)
        awaited = found.trial if isinstance(found, FastFound) else None
        preemption = Preemption(
            pod,
            chosen,
            lambda: losers(found.candidates(), chosen, now),
            found.rejected,
            lambda: self._read_budgets().violated_by(chosen.victims.pods),
        )
        nominating = NominatingInfo.override(chosen.node_name)
        if state.group is not None:
            # Losers are asked for when the trial is over and the nodes look otherwise, so list them now.
            lost, rejected, budgets = preemption.others(), preemption.rejected(), preemption.budgets()
            preemption = Preemption(pod, chosen, lambda: lost, lambda: rejected, lambda: budgets)
            return PostFilterResult(nominating, preemption, lambda: self._act(pod, chosen, awaited)), None
        self._act(pod, chosen, awaited)
        return PostFilterResult(nominating, preemption), None

    def may_make_room(self, pod: PodInfo) -> bool:
        """Return False if as things are no pod can be evicted for ``pod``, nor for its group."""
        if not self._has_default_hooks:
            return True
        priority, groups = pod.priority, self.handle.informed("podgroups")
        if self._whole_groups and (group := groups.get(group_key(pod.pod))) is not None:
            priority = group.priority
            if self._evicted_as_a_whole.has_below(priority):
                return True
        return self.handle.snapshot.table.placed.has_below(priority)

    def _act(self, pod: PodInfo, chosen: Candidate, awaited: FastTrial | None) -> None:
        """Begin the evictions of a preemption; the preemptor is queued again when they help."""
        if awaited is not None:
            self._awaited.add(awaited, chosen.node_name)
        self._evictions.start(Preemptor.of_pod(pod, chosen.node_name), chosen.victims.pods)

    def _why_not_in_group(self, pod: PodInfo) -> str:
        """Return why a member of a group may not preempt on its own; empty if it may (rules/groups §14)."""
        if self.handle.gate("TopologyAwareWorkloadScheduling"):
            group = self.handle.informed("podgroups").get(group_key(pod.pod))
            if group is None:
                return "pod group for pod not found"
            if self.is_constrained(group):
                return "not eligible due to placement-based pod group scheduling limitation"
        if self._whole_groups:
            return "not eligible due to workload aware preemption enabled"
        return ""

    def _why_not_eligible(self, pod: PodInfo, statuses: NodeToStatus) -> str:
        """Return why the pod may not preempt, empty if it may (rules/preemption §3.1)."""
        if pod.spec.preemption_policy == "Never":
            return _NEVER
        nominated = pod.status.nominated_node_name
        if not nominated or statuses.get(nominated).code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            return ""
        node = self._node(nominated)
        if node is None:
            return ""
        waits = any(is_terminating_by_preemption(other) for other in self.potential_victims(pod, node))
        return "not eligible due to a terminating pod on the nominated node." if waits else ""

    def _node(self, name: str) -> Any:
        row = self.handle.snapshot.table.row_of(name)
        return None if row is None else self.handle.snapshot.table.info(row)

    def _dry_run(self, state: CycleState, pod: PodInfo) -> DryRun:
        return DryRun(self.handle, state, pod, self._read_budgets(), self.potential_victims, self.importance)

    def _read_budgets(self) -> Budgets:
        """Return the disruption budgets as they are now."""
        return self._budgets.read(self.handle.informed("poddisruptionbudgets"))

    def _find(
        self, state: CycleState, pod: PodInfo, nodes: NodeList, rejecting: AbstractSet[str] = frozenset()
    ) -> Found | FastFound:
        """Find candidates among ``nodes``, beginning at a random one; the ``rejecting`` plugins just rejected them."""
        if not nodes:
            return Found()
        if self._start is None:
            self._start = self.handle.random.random()
        order = TrialOrder(nodes.rows, int(self._start * len(nodes)))
        wanted = candidates_wanted(len(nodes), self._percentage, self._absolute)
        plain = self._dry_run(state, pod)
        trial = self._trials.of(state, pod, rejecting) if self._has_default_hooks else None
        if trial is not None:
            if self._fast is None:
                self._fast = FastDryRuns(self.handle)
            found = self._fast.run(trial, order, wanted, plain)
            if found is not None:
                return found
        return find_candidates(plain, NodeList(self.handle.snapshot.table, order.all()), wanted)

    def _not_helpful(self, reasons: Mapping[str, int], tried: int) -> Status:
        """Status when no node can be helped (rules/preemption §3.3).

        It counts the ``reasons`` of the ``tried`` nodes, and all other nodes as not helpful.
        """
        all_nodes = len(self.handle.snapshot.table)
        if tried < all_nodes:
            reasons = {**reasons, _NOT_HELPFUL: reasons.get(_NOT_HELPFUL, 0) + all_nodes - tried}
        return _prefixed(Status.unschedulable(fit_error_text(all_nodes, reasons)))

    async def _slowly(
        self, extenders: Sequence[Any], pod: PodInfo, found: Found | FastFound, *, is_plan: bool
    ) -> Answer:
        """Finish PostFilter when an extender or the API server has to be waited for. ``is_plan``: evict nobody yet."""
        candidates = found.candidates()
        rejected = found.rejected()
        try:
            if extenders:
                candidates = await ask_extenders(extenders, pod, candidates)
                if self.handle.live_pod(pod.pod) is None:
                    # No pod is evicted for a pod that was deleted while extenders were awaited.
                    return None, Status.from_error(f'preemption: pod "{pod.name}" not found', self.name)
                candidates = self._still_helpful(pod, candidates)
            if not candidates:
                # The pod fits nowhere, although its victims, if any, are gone. An old nomination would only keep other
                # pods out.
                return _CLEARED, _prefixed(Status.unschedulable("no candidate node for preemption"))
            now = self.handle.clock.now()
            chosen, lost = choose(candidates, now)
            if not is_plan:
                await self._act_slowly(pod, chosen)
        except Exception as error:
            return None, _prefixed(Status.from_error(error))
        budgets = self._read_budgets().violated_by(chosen.victims.pods)
        preemption = Preemption(pod, chosen, lambda: lost, lambda: rejected, lambda: budgets)
        act = (lambda: self._act_slowly(pod, chosen)) if is_plan else None
        return PostFilterResult(NominatingInfo.override(chosen.node_name), preemption, act), None

    async def _act_slowly(self, pod: PodInfo, chosen: Candidate) -> None:
        """Evict the victims of a preemption: alongside, or, without asynchronous preemption, before returning."""
        if self._asynchronous:
            self._evictions.start(Preemptor.of_pod(pod, chosen.node_name), chosen.victims.pods)
        else:
            await self._evictions.evict(Preemptor.of_pod(pod, chosen.node_name), chosen.victims.pods)

    def _still_helpful(self, pod: PodInfo, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates that make room for the pod now.

        While extenders were awaited, other pods took nodes and preempted.

        Raises:
            PluginFailedError: when a plugin fails.
        """
        state = CycleState()
        self.handle.framework.pre_filter(state, pod, self.handle.snapshot.nodes())
        dry_run = self._dry_run(state, pod)
        nodes = [(candidate, self._node(candidate.node_name)) for candidate in candidates]
        return [each for each, node in nodes if node is not None and dry_run.helps(node, each.victims)]

    # -- groups ----------------------------------------------------------------------------------------

    async def post_filter_group(
        self, key: str, pods: Sequence[PodInfo], simulate: Callable[[], Awaitable[Mapping[str, str] | Status]]
    ) -> tuple[Mapping[str, str] | Status, Preemption | None]:
        """Make room for a pod group (rules/groups §15).

        ``pods`` are the members that need a node. ``simulate`` tries them as things are, and returns the node of each
        that fits, by UID, or why the group does not fit. Return the nodes once the victims are gone, or why no evictions
        help; and the preemption, for reports.
        """
        group = self.handle.informed("podgroups").get(key)
        if group is None:
            name = key.partition("/")[2]
            text = f'failed to get pod group object: podgroup.scheduling.k8s.io "{name}" not found'
            return Status.from_error(text), None
        if group.spec.scheduling_constraints is not None and group.spec.scheduling_constraints.topology:
            text = "workload aware preemption is not supported for pod groups with scheduling constraints"
            return Status.unschedulable(text), None
        hosts: Mapping[str, str] = {}

        async def fits() -> Status | None:
            nonlocal hosts
            answer = await simulate()
            if isinstance(answer, Status):
                return answer
            hosts = answer
            return None

        table, priority = self.handle.snapshot.table, group.spec.priority or 0
        budgets = self._budgets.read(self.handle.informed("poddisruptionbudgets"))
        found, now = self.group_units(key), self.handle.clock.now()
        status, victims = await select_victims(table, found, pods, priority, budgets, now, fits)
        if status is not None:
            return status, None
        if not victims:
            return hosts, None
        scheduler, nodes = pods[0].spec.scheduler_name, tuple(dict.fromkeys(hosts.values()))
        preemptor = Preemptor("podgroup", _uid(group), group, priority, scheduler, pods, nodes)
        if self._asynchronous:
            self._evictions.start(preemptor, victims)
        else:
            try:
                await self._evictions.evict(preemptor, victims)
            except Exception as error:
                return Status.from_error(error), None
        chosen = Candidate(preemptor.place, Victims(tuple(victims)))
        return hosts, Preemption(pods[0], chosen, lambda: (), dict)

    # -- for conformance and reports -------------------------------------------------------------------

    def list_candidates(
        self, state: CycleState, pod: PodInfo, statuses: NodeToStatus
    ) -> tuple[dict[str, tuple[Sequence[PodInfo], int]], dict[str, Status]]:
        """Return all candidates, without a limit and without evicting. There are none for a pod that is not eligible.

        The first mapping has (victims, budgets violated) by node name where preemption helps. The second has the
        rejection by node name where it does not.
        """
        if self._why_not_eligible(pod, statuses):
            return {}, {}
        dry_run = self._dry_run(state, pod)
        helped: dict[str, tuple[Sequence[PodInfo], int]] = {}
        rejected: dict[str, Status] = {}
        for node in statuses.nodes_for_code(Code.UNSCHEDULABLE):
            outcome = dry_run.node(node)
            if isinstance(outcome, Victims):
                helped[node.name] = outcome.pods, outcome.pdb_violations
            else:
                rejected[node.name] = outcome
        return helped, rejected


def _uid(group: PodGroup) -> str:
    """Return the UID of a group; of one that was only read, which has none, its name."""
    metadata = group.metadata
    return metadata.uid or f"{metadata.namespace}/{metadata.name}"


def _prefixed(status: Status) -> Status:
    """Put ``preemption: `` before a status's text."""
    text = f"preemption: {status.message()}"
    return Status.from_error(text) if status.code is Code.ERROR else Status(status.code, text)


def _joined(errors: Sequence[str]) -> str:
    """Return a single error as it is, several as ``[e1, e2]``."""
    return errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
