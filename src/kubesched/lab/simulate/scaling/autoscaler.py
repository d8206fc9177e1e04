"""Autoscaler in virtual time: nodes are ordered for pending pods, become ready, go when they are not needed, or are lost.

    pods without a place ──:mod:`.scale_up`──▶ order ──time to become ready──▶ Node in the store
    little requested ──:mod:`.scale_down`──▶ cordon, evict, delete

It looks at the cluster at multiples of its scan interval, as far as there is something to find. Every change is a write to
the store. Caller: :class:`..run.session.Session`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from kubesched.api.kinds import NODES
from kubesched.api.types import Pod
from kubesched.api.wire import MERGE_PATCH, ApiError
from kubesched.cluster.schema import Stored
from kubesched.scheduler.config import FeatureGates
from kubesched.scheduler.core.attempt import Attempt
from kubesched.scheduler.core.diagnosis import Rejection
from kubesched.scheduler.core.observer import AttemptObserver
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes.nominating import NominatingInfo
from kubesched.scheduler.plugins.demands.words import counted

from ...node_groups import NodeGroup
from ..embedded import Embedded
from ..results.pod_times import distribution
from ..results.result import EventReport, Scaling, Series
from .drains import Drain
from .fleet import Fleet, Machine
from .scale_down import Underused, stays
from .scale_up import ScaleUp, limits_of, scale_up
from .settings import AutoscalerSettings

__all__ = ["Autoscaler", "Groups"]

#: Most empty nodes that go at once, as with cluster-autoscaler.
_EMPTY_AT_ONCE: Final = 10
#: Seconds in which all pods of a node must be gone; otherwise it stays.
_EVICTION_SECONDS: Final = 600.0
#: Nodes that could not go that are looked at in one moment.
_MOST_LOOKS: Final = 30


@dataclass(frozen=True, slots=True)
class Groups:
    """Node groups of a run, with templates, and the settings of the autoscaler.

    ``horizon`` is the time until which the run is to last, for equal costs; None for as long as something moves.
    """

    groups: Sequence[NodeGroup]
    settings: AutoscalerSettings
    horizon: float | None = None


class Autoscaler(AttemptObserver):
    """Autoscaler of one run. Times are virtual seconds since the start. ``seed`` decides ties and interruptions."""

    def __init__(self, given: Groups, seed: int, gates: FeatureGates, clock: Callable[[], float]) -> None:
        self.fleet = Fleet(given.groups, clock)
        self.settings = given.settings
        self._horizon = given.horizon
        self._gates = gates
        self._limits = limits_of(given.groups)
        self._seed, self._random = seed, random.Random(f"autoscaler {seed}")
        self._underused = Underused(self.fleet, self.settings)
        #: Pods whose last attempt failed, by UID; nodes that are meant for them; those that no group helps.
        self._failed: dict[str, Pod] = {}
        self._places: dict[str, str] = {}
        self._hopeless: set[str] = set()
        self._is_new = False
        #: UIDs of all pods for which nodes were ordered.
        self._waited: set[str] = set()
        self._last_order = -math.inf
        #: Last scans for pods and for nodes.
        self._scans = [-math.inf, -math.inf]
        self._lost_at: dict[str, float] = {}
        self._drain: tuple[Machine, Drain] | None = None
        self._events: list[tuple[EventReport, list[Drain]]] = []

    def follow(self, embedded: Embedded) -> None:
        """Begin to follow a cluster, before anything is stored there; or its new scheduler."""
        if not self.fleet.machines and not self._events:
            embedded.store.follow(self._stored, lambda kind: kind is NODES)
        self._underused.follow(embedded.scheduler.cache.table)

    # -- notes -----------------------------------------------------------------------------------------

    def ended(self, attempt: Attempt, failure: Status | Rejection | None, nominating: NominatingInfo | None) -> None:
        pod = attempt.queued.pod_info.pod
        if failure is None:
            self._failed.pop(pod.uid, None)
            self._places.pop(pod.uid, None)
            self._hopeless.discard(pod.uid)
            return
        self._failed[pod.uid] = pod
        if pod.uid not in self._places and pod.uid not in self._hopeless:
            self._is_new = True

    def _stored(self, item: Stored | None, old: Stored | None) -> None:
        machine = self.fleet.changed(item, old)
        if machine is None:
            return
        self._changed()
        name = machine.name
        if item is None:
            self._lost_at.pop(name, None)
            self._underused.forget(name, machine.group)
            return
        for uid in [uid for uid, node in self._places.items() if node == name]:
            del self._places[uid]
        rate = self.fleet.groups[machine.group].spot_failure_rate
        if rate:
            after = random.Random(f"{self._seed} {name}").expovariate(rate / 3600)
            self._lost_at[name] = round(self.fleet.clock() + after, 3)

    def _changed(self) -> None:
        """Note that the numbers of nodes are others: pods that no group helped are tried again."""
        self._hopeless.clear()
        self._is_new = self._is_new or any(uid not in self._places for uid in self._failed)

    # -- time ------------------------------------------------------------------------------------------

    def next(self, *, at_rest: bool) -> float | None:
        """Return the time of the next deed; None when there is none. ``at_rest`` is True if nothing else moves."""
        now = self.fleet.clock()
        times = [one.ready for one in self.fleet.alive.values() if one.coming is not None]
        times += self._lost_at.values()
        if self._is_new:
            times.append(self._scan_after(now))
        if self._drain is not None:
            times.append(self._drain[1].next_try)
        elif self.settings.scale_down_enabled:
            least = max(
                self._underused.next(at_rest=at_rest), self._last_order + self.settings.scale_down_delay_after_add
            )
            times.append(self._scan_after(max(least, now)) if least < math.inf else math.inf)
        if self._horizon is not None and now < self._horizon:
            times.append(self._horizon)
        first = min(times, default=math.inf)
        return first if first < math.inf else None

    def _scan_after(self, when: float) -> float:
        """Return the first scan after a moment."""
        interval = self.settings.scan_interval
        return (math.floor(round(when / interval, 6)) + 1) * interval

    def _is_scan(self, now: float, which: int) -> bool:
        """True if ``now`` is a moment to look for pods (0) or for nodes (1), for the first time."""
        scans = now / self.settings.scan_interval
        if now <= self._scans[which] or not now or abs(scans - round(scans)) > 1e-6:
            return False
        self._scans[which] = now
        return True

    def carry_out(self, embedded: Embedded, now: float, *, at_rest: bool) -> bool:
        """Do everything that is due at ``now``. True if anything may have changed."""
        self._underused.update(now)
        did = False
        for machine in self.fleet.coming():
            if machine.ready <= now and machine.coming is not None:
                embedded.store.create(NODES, "", machine.coming[0].data)
                did = True
        for name in [name for name, at in self._lost_at.items() if at <= now]:
            self._interrupt(embedded, name, now)
            did = True
        did |= self._keep_minimum(embedded, now)
        if self._is_new and self._is_scan(now, 0):
            did |= self._scale_up(embedded, now)
        if self._drain is not None:
            did |= self._go_on_draining(embedded, now, at_rest=at_rest)
        elif (
            self.settings.scale_down_enabled
            and now > self._last_order + self.settings.scale_down_delay_after_add
            and self._is_scan(now, 1)
        ):
            did |= self._scale_down(embedded, now, at_rest=at_rest)
        return did

    # -- up --------------------------------------------------------------------------------------------

    def _scale_up(self, embedded: Embedded, now: float) -> bool:
        self._is_new = False
        pods = []
        for uid, pod in list(self._failed.items()):
            queued = embedded.scheduler.queue.views.get_pod(pod.name, pod.namespace)
            if queued is None or queued.uid != uid:
                self._forget_pod(uid)
            elif not queued.pod_info.pod.status.nominated_node_name and self._is_worth_it(pod):
                pods.append(queued.pod_info.pod)
        if all(pod.uid in self._places or pod.uid in self._hopeless for pod in pods):
            return False
        answer = scale_up(
            embedded, self._gates, self.fleet, self._limits, pods, self._places, self.settings.expander, self._random
        )
        self._places |= answer.places
        self._waited |= answer.places.keys()
        self._hopeless |= answer.hopeless
        if answer.count:
            self._order(embedded, answer.group, answer.count, now, self._why(answer))
            self._is_new = any(pod.uid not in self._places for pod in pods)
        return bool(answer.count)

    def _is_worth_it(self, pod: Pod) -> bool:
        return pod.priority >= self.settings.expendable_pods_priority_cutoff

    def _forget_pod(self, uid: str) -> None:
        self._failed.pop(uid, None)
        self._places.pop(uid, None)
        self._hopeless.discard(uid)

    def _why(self, answer: ScaleUp) -> str:
        pods = f"for {counted(answer.ordered_for, 'pod')}"
        if len(answer.options) < 2:
            return pods
        group = self.fleet.groups[answer.group].name
        return f"{pods}; {','.join(self.settings.expander)} chose {group} of {', '.join(answer.options)}"

    def _order(self, embedded: Embedded, group: int, count: int, now: float, why: str) -> None:
        fleet = self.fleet
        its = fleet.groups[group]
        taken = {node.name for node in embedded.nodes()}
        names = []
        for manifest in its.nodes(count, start=fleet.numbers[group], taken=taken):
            node = embedded.store.create(NODES, "", manifest.data, dry_run=True).typed
            fleet.add(Machine(manifest.name, group, now, round(now + its.ready_after, 3), coming=(manifest, node)))
            fleet.numbers[group] = int(manifest.name.rpartition("-")[2]) + 1
            names.append(manifest.name)
        self._last_order = now
        self._changed()
        self._events.append((EventReport(at=now, action="scaleUp", targets=names, why=why), []))

    def _keep_minimum(self, embedded: Embedded, now: float) -> bool:
        did = False
        for index, group in enumerate(self.fleet.groups):
            lacking = group.minimum - self.fleet.counts[index]
            if lacking > 0:
                self._order(embedded, index, lacking, now, f"the minimum of {group.name} is {group.minimum}")
                did = True
        return did

    # -- down ------------------------------------------------------------------------------------------

    def _scale_down(self, embedded: Embedded, now: float, *, at_rest: bool) -> bool:
        gone: list[str] = []
        looks = 0
        for name, group in list(self._underused.candidates(now)):
            its = self.fleet.groups[group]
            if self.fleet.counts[group] <= its.minimum:
                continue
            looks += 1
            if looks > _MOST_LOOKS or len(gone) >= _EMPTY_AT_ONCE:
                break
            why, pods = stays(embedded, self._gates, self.settings, name)
            if why:
                self._underused.later(name, group, now, at_rest=at_rest)
            elif not pods:
                embedded.store.delete(NODES, "", name)
                gone.append(name)
            elif not gone:
                self._begin_drain(embedded, name, now)
                break
        if gone:
            self._events.append((EventReport(at=now, action="scaleDown", targets=gone, why="empty"), []))
        return bool(gone) or self._drain is not None

    def _begin_drain(self, embedded: Embedded, name: str, now: float) -> None:
        embedded.store.patch(NODES, "", name, {"spec": {"unschedulable": True}}, patch_type=MERGE_PATCH)
        drain = Drain(name, now, force=True, timeout=_EVICTION_SECONDS)
        self._drain = self.fleet.alive[name], drain
        share = self.settings.scale_down_utilization_threshold
        why = f"less than {share:.0%} requested, and its pods fit elsewhere"
        self._events.append((EventReport(at=now, action="scaleDown", targets=[name], why=why), [drain]))

    def _go_on_draining(self, embedded: Embedded, now: float, *, at_rest: bool) -> bool:
        assert self._drain is not None
        machine, drain = self._drain
        if machine.name not in self.fleet.alive:
            drain.end()
            self._drain = None
            return False
        if drain.next_try > now:
            return False
        did = drain.step(embedded, now, at_rest=at_rest)
        if drain.is_active:
            return did
        self._drain = None
        if drain.report().finished is not None:
            embedded.store.delete(NODES, "", machine.name)
        else:
            embedded.store.patch(NODES, "", machine.name, {"spec": {"unschedulable": None}}, patch_type=MERGE_PATCH)
            self._underused.later(machine.name, machine.group, now, at_rest=at_rest)
        return True

    def _interrupt(self, embedded: Embedded, name: str, now: float) -> None:
        self._lost_at.pop(name, None)
        machine = self.fleet.alive.get(name)
        if machine is None:
            return
        machine.interrupted = True
        try:
            embedded.store.delete(NODES, "", name)
        except ApiError as error:
            if error.code != 404:
                raise
        self._events.append((EventReport(at=now, action="interrupt", targets=[name], why="spot"), []))

    # -- looking ---------------------------------------------------------------------------------------

    def reports(self) -> list[EventReport]:
        """Return what was done, in the order of time."""
        found = []
        for event, drains in self._events:
            one = [drain.report() for drain in drains]
            found.append(msgspec.structs.replace(event, drains=one) if one else event)
        return found

    def scaling(self, end: float, waits: Sequence[float]) -> Scaling:
        """Return the figures of the groups. ``waits`` are those of the pods of :attr:`waited`, in seconds."""
        uses = self.fleet.uses(end)
        return Scaling(
            expander=list(self.settings.expander),
            cost=round(sum(one.cost for one in uses), 6),
            node_hours=round(sum(one.node_hours for one in uses), 6),
            groups=uses,
            wait=distribution(waits),
        )

    @property
    def waited(self) -> set[str]:
        """UIDs of the pods for which nodes were ordered."""
        return self._waited

    def over(self, series: Series) -> tuple[dict[str, list[int]], list[float]]:
        """Return nodes by group, and cost, at the moments of a series."""
        return self.fleet.over(series)
