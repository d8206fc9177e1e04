"""Statuses that a hollow kubelet writes for a pod: one function per event. Pure; caller: :mod:`.hollow`."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from kubesched.api.types import Pod, PodCondition
from kubesched.api.wire import Item

__all__ = ["finished_status", "pod_ip", "ready_condition", "ready_status", "running_status"]

_READY: Final = ("ContainersReady", "Ready")


class _PodStatus(msgspec.Struct):
    podIP: str | None = None  # noqa: N815 - the wire's name


class _PodView(msgspec.Struct):
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


_pod_view: Final = msgspec.json.Decoder(_PodView).decode


def pod_ip(pod: Item) -> str:
    """Return the address of a pod; empty when it has none yet."""
    return _pod_view(pod.raw).status.podIP or ""


def ready_condition(pod: Pod) -> PodCondition | None:
    """Return the pod's Ready condition, if it has one."""
    for condition in pod.status.conditions:
        if condition.type == "Ready":
            return condition
    return None


def _condition(type_: str, now: str, *, true: bool, reason: str | None = None) -> dict[str, Any]:
    more = {} if reason is None else {"reason": reason}
    return {"type": type_, "status": str(true), "lastTransitionTime": now, **more}


def _containers(pod: Pod, state: dict[str, Any], *, runs: bool) -> list[dict[str, Any]]:
    more = {"imageID": "", "ready": runs, "started": runs, "restartCount": 0, "state": state}
    return [{"name": container.name, "image": container.image, **more} for container in pod.spec.containers]


def running_status(pod: Pod, now: str, pod_ip: str, host_ip: str) -> dict[str, Any]:
    """Return the status of a pod that has begun to run and is ready."""
    ip = host_ip if pod.spec.host_network and host_ip else pod_ip
    types = ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
    status: dict[str, Any] = {
        "phase": "Running",
        "startTime": now,
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "conditions": [_condition(type_, now, true=True) for type_ in types],
        "containerStatuses": _containers(pod, {"running": {"startedAt": now}}, runs=True),
    }
    if host_ip:
        status["hostIP"] = host_ip
        status["hostIPs"] = [{"ip": host_ip}]
    return status


def finished_status(pod: Pod, now: str, *, phase: str, reason: str, exit_code: int) -> dict[str, Any]:
    """Return the status of a pod that has run to its end, or has been stopped."""
    ended = {"exitCode": exit_code, "reason": reason, "startedAt": pod.status.start_time or now, "finishedAt": now}
    return {
        "phase": phase,
        "conditions": [_condition(type_, now, true=False, reason="PodCompleted") for type_ in _READY],
        "containerStatuses": _containers(pod, {"terminated": ended}, runs=False),
    }


def ready_status(now: str, *, ready: bool) -> dict[str, Any]:
    """Return a status with only the readiness of a pod that keeps running."""
    reason = "" if ready else "ContainersNotReady"
    return {"conditions": [_condition(type_, now, true=ready, reason=reason) for type_ in _READY]}
