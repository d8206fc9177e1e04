"""Explanation of a pod group: how many of its members fit in each placement, what stops the next one, and what helps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from kubesched.api.groups import group_key
from kubesched.api.types import Pod
from kubesched.base.turns import Steps
from kubesched.scheduler.core.group_trials import Outcome
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.scheduler import Scheduler

from ..report import GroupState, PlacementReport, PodGroupReport
from .changes import Helping, Helps
from .nearest import Nearest, nearest_of
from .subject import Subject, subject_of
from .trials import Effort, GroupTrying, fitting
from .words import hints_of, summary_of

__all__ = ["GroupExplainer"]

#: Most trials of single members for one group, and for all groups of a document.
MOST_OF_GROUP: Final = 1 << 15
MOST_OF_DOCUMENT: Final = 1 << 17
#: Most placements in a report.
_MOST_SHOWN: Final = 16


class GroupExplainer:
    """Explanations of the pod groups of one scheduler. Nothing is changed."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._trying: GroupTrying | None = None

    def knows(self, key: str) -> bool:
        """Return True if there is a PodGroup ``namespace/name``, or a pod that names it."""
        groups = self._scheduler.groups
        if groups is None:
            return False
        return groups.get(key) is not None or key in self._scheduler.informers.objects("podgroups")

    def of(self, pods: Iterable[Pod]) -> list[str]:
        """Return the keys of the groups of pods, sorted: none without the gate GenericWorkload."""
        return sorted({key for pod in pods if (key := group_key(pod)) and self.knows(key)})

    def explaining(self, keys: Iterable[str]) -> Steps[list[PodGroupReport]]:
        """Explain groups, in steps between which the cluster may change."""
        found = []
        left = MOST_OF_DOCUMENT
        for key in keys:
            effort = Effort(min(MOST_OF_GROUP, left))
            before = effort.left
            found.append((yield from self._explain(key, effort)))
            if self._trying is not None:
                self._trying.forget()
            left -= before - effort.left
        return found

    def _explain(self, key: str, effort: Effort) -> Steps[PodGroupReport]:
        subject = subject_of(self._scheduler, key)
        report = _begun(subject)
        if subject.group is None or not subject.queued or subject.problem:
            return _ended(report, subject, _state(subject, []), None, Helps())
        self._trying = trying = self._trying or GroupTrying(self._scheduler)
        placements = trying.placements(trying.group(key, subject.queued))
        if isinstance(placements, Status):
            rejected: GroupState = "Unschedulable" if placements.is_rejected else "SchedulerError"
            return _ended(replace(report, message=placements.message()), subject, rejected, None, Helps())
        tried: list[PlacementReport] = []
        remarks: list[str] = []
        for placement in placements:
            group = trying.group(key, subject.queued)
            if not effort.takes(len(group.attempts)):
                remarks.append(f"only {len(tried):,} of {len(placements):,} placements were tried")
                break
            rows = trying.rows(group, placement.name)
            with trying.tried(group, rows) as outcome:
                if outcome.status is not None and not outcome.status.is_rejected:
                    failed = replace(report, message=outcome.status.message())
                    return _ended(failed, subject, "SchedulerError", None, Helps())
                nodes = len(trying.table.order()) if rows is None else len(rows)
                tried.append(_placement(subject, placement.name, nodes, outcome))
            yield
        tried.sort(key=lambda one: (not one.fits, one.lacking, -one.fit, one.name))
        report = replace(
            report,
            placements=tried[:_MOST_SHOWN],
            placements_tried=len(tried),
            fit=tried[0].fit if tried else 0,
            lacking=tried[0].lacking if tried else subject.needed,
        )
        if self._scheduler.extenders:
            remarks.append("extenders were not asked")
        state, nearest, helps = _state(subject, tried), None, Helps()
        if tried and state not in ("Waiting", "Scheduled"):
            nearest = self._nearest(trying, subject, tried[0].name, effort)
            yield
            helping = Helping(self._scheduler, trying, subject, effort)
            helps = yield from helping.found(tried, nearest)
        if subject_of(self._scheduler, key).uids != subject.uids:
            remarks.append("the group changed while it was explained")
        return _ended(replace(report, remarks=[*remarks, *helps.remarks]), subject, state, nearest, helps)

    def _nearest(self, trying: GroupTrying, subject: Subject, name: str, effort: Effort) -> Nearest:
        """Find what stands in the way of the next member, when all that fit are on their nodes."""
        group = trying.group(subject.key, subject.queued)
        rows = trying.rows(group, name)
        if not effort.takes(len(group.attempts)):
            return Nearest(name)
        with trying.tried(group, rows) as outcome:
            left = next((member for member in outcome.members if not member.fits), None)
            return (
                Nearest(name)
                if left is None
                else nearest_of(trying.table, group, name, rows, left.attempt.queued.pod_info)
            )


def _begun(subject: Subject) -> PodGroupReport:
    return PodGroupReport(
        group=subject.key,
        state="Missing",
        summary="",
        policy="" if subject.group is None else "gang" if subject.is_gang else "basic",
        min_count=subject.group.min_count if subject.group is not None else 0,
        topology=subject.topology,
        members=subject.members,
        scheduled=len(subject.scheduled),
        queued=len(subject.queued),
        gated=len(subject.gated),
        deleting=len(subject.deleting),
        message=subject.problem or subject.condition,
        lacking=subject.needed,
        pods=sorted(pod.key for pod in subject.unplaced),
    )


def _placement(subject: Subject, name: str, nodes: int, outcome: Outcome) -> PlacementReport:
    fit = fitting(outcome)
    lacking = max(0, subject.needed - fit)
    fits = outcome.status is None and not lacking
    return PlacementReport(name=name, nodes=nodes, fit=fit, lacking=lacking, fits=fits)


def _state(subject: Subject, tried: Sequence[PlacementReport]) -> GroupState:
    """Return the state of a group whose placements, the nearest first, were tried with these results."""
    if subject.group is None:
        return "Missing"
    if subject.problem:
        return "SchedulerError"
    if not subject.unplaced and (not subject.needed or not subject.is_gang):
        return "Scheduled"
    if subject.is_gang and subject.members < subject.group.min_count:
        return "Incomplete"
    if len(subject.queued) < subject.needed:
        return "SchedulingGated"
    return "Waiting" if tried and tried[0].fits else "Unschedulable"


def _ended(
    report: PodGroupReport, subject: Subject, state: GroupState, nearest: Nearest | None, helps: Helps
) -> PodGroupReport:
    """Return the report with its state, what stands in the way, what helps, and the words for all of it."""
    nearest = nearest if nearest is not None else Nearest("")
    report = replace(
        report,
        state=state,
        next=nearest.next,
        obstacles=nearest.obstacles,
        remedies=helps.remedies,
        evictions=helps.evictions,
        new_nodes=helps.new_nodes,
    )
    return replace(report, hints=hints_of(report), summary=summary_of(report, nearest.lacks))
