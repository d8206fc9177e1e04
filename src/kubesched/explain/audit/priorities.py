"""Priorities that starve, as far as one moment shows it.

A moment shows the age of pods that wait, and which pods were placed since they began to. It does not show whether a node
would have had room for them then. So only pods with an equal signature are compared: what one of them fits, the other
fits too.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from kubesched.api.kinds import PRIORITY_CLASSES
from kubesched.api.types import Pod
from kubesched.scheduler.core.plan import Asked
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.nodes import PodInfo
from kubesched.scheduler.plugins.demands.words import counted

from .view import View, distinct, moment

__all__ = ["audit_priorities"]


class _Rival(NamedTuple):
    """Pod on a node, and the moment at which it got it."""

    priority: int
    since: float
    key: str


def audit_priorities(view: View, placed: Iterable[tuple[PodInfo, Asked]]) -> None:
    """Add priorities that starve, pods that never preempt, and pods whose priority is not that of their class.

    ``placed`` are the pods on nodes with their questions.
    """
    _starving(view, placed)
    _never_preempting(view)
    _differing(view)


def _starving(view: View, placed: Iterable[tuple[PodInfo, Asked]]) -> None:
    rivals: dict[Hashable, list[_Rival]] = {}
    for pod, asked in placed:
        since = _placed_at(pod.pod)
        if since is not None:
            key = (pod.spec.scheduler_name, asked.signature, asked.linked)
            rivals.setdefault(key, []).append(_Rival(pod.priority, since, pod.key))
    for workload, pods in distinct(view, view.pending):
        equal = rivals.get(_signature(view, pods[0]), ())
        above = [rival for rival in equal if rival.priority > pods[0].priority]
        latest = max((rival.since for rival in above), default=0.0)
        waiting = [
            (created, pod.key)
            for pod in pods
            if (created := moment(pod.metadata.creation_timestamp)) is not None
            and created < min(latest, view.now - view.limits.older_than)
        ]
        if not waiting:
            continue
        oldest, namespace = min(waiting)[0], pods[0].namespace
        passed = sum(rival.since > oldest for rival in above)
        who = f"of {workload} " if workload else ""
        text = (
            f"{counted(len(waiting), 'pod')} {who}in {namespace} with priority {pods[0].priority:,}, pending for up to "
            f"{int((view.now - oldest) // 60):,} min; since then {counted(passed, 'pod')} of higher priority with the "
            "same demands got a node"
        )
        view.findings.add(
            "priority-starves", text, "Pod", [key for _, key in waiting], namespace=namespace, workload=workload
        )


def _signature(view: View, pod: Pod) -> Hashable:
    """Return the key by which a pending pod is compared; None if it has no whole signature, or waits for a gate."""
    profile = view.profile(pod)
    if profile is None or pod.spec.scheduling_gates:
        return None
    try:
        asked = profile[1].ask(view.seen(pod))
    except PluginFailedError:
        return None
    return None if asked.plan.keyless else (pod.spec.scheduler_name, asked.signature, asked.linked)


def _placed_at(pod: Pod) -> float | None:
    """Return when a pod got its node; None if its status does not tell."""
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "True":
            return moment(condition.last_transition_time)
    return moment(pod.status.start_time)


def _never_preempting(view: View) -> None:
    groups: dict[int, list[str]] = {}
    for pod in view.pending:
        if pod.spec.preemption_policy == "Never" and not pod.spec.scheduling_gates and view.profile(pod) is not None:
            groups.setdefault(pod.priority, []).append(pod.key)
    for priority, keys in groups.items():
        lower = len(view.table.placed.below(priority))
        if lower:
            text = (
                f"{counted(len(keys), 'pending pod')} of priority {priority:,} with preemptionPolicy Never; pods of lower "
                f"priority on nodes: {lower:,}"
            )
            view.findings.add("priority-never-preempts", text, "Pod", keys)


def _differing(view: View) -> None:
    values = {
        one["metadata"]["name"]: value
        for one in view.objects.all(PRIORITY_CLASSES)
        if isinstance(value := one.get("value", 0), int)
    }
    groups: dict[tuple[str, int, int], list[str]] = {}
    for pod in view.pods:
        value = values.get(pod.spec.priority_class_name)
        if value is not None and pod.spec.priority is not None and pod.spec.priority != value:
            groups.setdefault((pod.spec.priority_class_name, value, pod.spec.priority), []).append(pod.key)
    for (name, value, priority), keys in groups.items():
        text = f"{counted(len(keys), 'pod')} of class {name} with priority {priority:,}; the class says {value:,} now"
        view.findings.add("priority-differs", text, "Pod", keys)
