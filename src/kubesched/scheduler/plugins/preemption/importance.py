"""Importance of pods: higher priority first, then longer running (rules/preemption §4.4)."""

from __future__ import annotations

from collections.abc import Sequence

from kubesched.base.times import cached_time

from ...nodes.podinfo import PodInfo

__all__ = ["earliest_start", "importance", "is_terminating_by_preemption", "start_of"]


def start_of(pod: PodInfo, now: float) -> float:
    """Start of a pod in seconds since the epoch; ``now`` if it has not started."""
    text = pod.pod.status.start_time
    started = cached_time(text) if text else None
    return now if started is None else started


def importance(pod: PodInfo, now: float) -> tuple[int, float]:
    """Sort key of pods, the most important first."""
    return -(pod.pod.spec.priority or 0), start_of(pod, now)


def earliest_start(pods: Sequence[PodInfo], now: float) -> float:
    """Earliest start among the pods of the highest priority. There must be at least one pod."""
    highest = max(pod.priority for pod in pods)
    return min(start_of(pod, now) for pod in pods if pod.priority == highest)


def is_terminating_by_preemption(pod: PodInfo) -> bool:
    """True if the pod is being deleted because a scheduler preempted it."""
    if pod.metadata.deletion_timestamp is None:
        return False
    condition = next((each for each in pod.status.conditions if each.type == "DisruptionTarget"), None)
    return condition is not None and condition.status == "True" and condition.reason == "PreemptionByScheduler"
