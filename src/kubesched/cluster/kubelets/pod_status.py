"""The status a hollow kubelet writes for a pod: one function per thing that happens. Pure; caller: :mod:`.hollow`."""

from __future__ import annotations

from typing import Any

from ...api.types import Pod, PodCondition

__all__ = ["finished_status", "ready_condition", "ready_status", "running_status"]


def ready_condition(pod: Pod) -> PodCondition | None:
    """The pod's Ready condition, if it has one."""
    for condition in pod.status.conditions:
        if condition.type == "Ready":
            return condition
    return None


def running_status(pod: Pod, now: str, pod_ip: str, host_ip: str) -> dict[str, Any]:
    """A pod that has begun to run and is ready."""
    ip = host_ip if pod.spec.host_network and host_ip else pod_ip
    status: dict[str, Any] = {
        "phase": "Running",
        "startTime": now,
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "conditions": [
            {"type": type_, "status": "True", "lastTransitionTime": now}
            for type_ in ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
        ],
        "containerStatuses": [
            {
                "name": container.name,
                "image": container.image,
                "imageID": "",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": now}},
            }
            for container in pod.spec.containers
        ],
    }
    if host_ip:
        status["hostIP"] = host_ip
        status["hostIPs"] = [{"ip": host_ip}]
    return status


def finished_status(pod: Pod, now: str, *, phase: str, reason: str, exit_code: int) -> dict[str, Any]:
    """A pod that has run to its end, or has been stopped."""
    started = pod.status.start_time or now
    return {
        "phase": phase,
        "conditions": [
            {"type": type_, "status": "False", "reason": "PodCompleted", "lastTransitionTime": now}
            for type_ in ("ContainersReady", "Ready")
        ],
        "containerStatuses": [
            {
                "name": container.name,
                "image": container.image,
                "imageID": "",
                "ready": False,
                "started": False,
                "restartCount": 0,
                "state": {
                    "terminated": {"exitCode": exit_code, "reason": reason, "startedAt": started, "finishedAt": now}
                },
            }
            for container in pod.spec.containers
        ],
    }


def ready_status(now: str, *, ready: bool) -> dict[str, Any]:
    """Only the readiness of a pod that keeps running."""
    conditions: list[dict[str, Any]] = []
    for type_ in ("ContainersReady", "Ready"):
        condition = {"type": type_, "status": "True" if ready else "False", "lastTransitionTime": now}
        if not ready:
            condition["reason"] = "ContainersNotReady"
        else:
            condition["reason"] = ""
        conditions.append(condition)
    return {"conditions": conditions}
