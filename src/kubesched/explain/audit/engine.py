"""Audit of a cluster: all checks over a scheduler that decides nothing meanwhile. Nothing of the cluster is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kubesched.api.types import Pod
from kubesched.base.times import timestamp
from kubesched.scheduler.config import KubeSchedulerConfiguration
from kubesched.scheduler.scheduler import Scheduler

from ..objects import Objects
from .budgets import audit_budgets
from .never import audit_never, audit_strangers
from .nodes import audit_nodes, audit_terminating
from .placed import audit_nominated, audit_placed
from .priorities import audit_priorities
from .report import Audit, Totals
from .speed import audit_speed
from .view import Findings, Limits, View, is_finished, moment
from .volumes import audit_volumes

__all__ = ["audit_cluster"]


def audit_cluster(
    scheduler: Scheduler,
    objects: Objects,
    pods: Iterable[Pod],
    *,
    config: KubeSchedulerConfiguration | None = None,
    now: float | None = None,
    limits: Limits | None = None,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Audit:
    """Check the cluster as it stands.

    Args:
        scheduler: the scheduler; its caches hold the nodes and the pods on them.
        objects: API objects besides nodes and pods.
        pods: all pods of the cluster.
        config: configuration to check; None for the scheduler's own, which may lack extenders that cannot be called.
        now: moment to which ages refer, in seconds since the epoch; None for the newest moment that a pod's metadata
            or status names, so that a dump is audited as of its making.
        limits: limits of the audit; None for the default.
        on_progress: function that is called with the number of pods whose node was asked.
    """
    limits = limits if limits is not None else Limits()
    unfinished = [pod for pod in pods if not is_finished(pod)]
    findings = Findings(limits)
    at = now if now is not None else _newest(unfinished)
    view = View(
        scheduler, config if config is not None else scheduler.config, objects, unfinished, at, limits, findings
    )
    placed = audit_placed(view, on_progress)
    audit_nominated(view)
    audit_nodes(view)
    audit_terminating(view)
    audit_never(view)
    audit_strangers(view)
    audit_budgets(view)
    audit_priorities(view, placed)
    audit_speed(view, placed)
    audit_volumes(view)
    return _result(view)


def _newest(pods: Iterable[Pod]) -> float:
    moments = [
        found
        for pod in pods
        for text in (
            pod.metadata.creation_timestamp,
            pod.status.start_time,
            *(condition.last_transition_time for condition in pod.status.conditions),
        )
        if (found := moment(text)) is not None
    ]
    return max(moments, default=0.0)


def _result(view: View) -> Audit:
    levels = view.findings.levels()
    found, omitted = view.findings.result()
    return Audit(
        as_of=timestamp(view.now),
        totals=Totals(
            nodes=len(view.table),
            pods=len(view.pods),
            pending=len(view.pending),
            error=levels["error"],
            warning=levels["warning"],
            info=levels["info"],
        ),
        findings=found,
        omitted=omitted,
        unchecked=view.findings.unchecked(),
    )
