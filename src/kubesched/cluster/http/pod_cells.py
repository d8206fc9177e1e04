"""The cells of a pod's table row: how ready it is, and the one word that says how it fares.

Caller: :mod:`.columns`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .cells import Data, age_of, as_dict, as_items, human_duration, moment

__all__ = ["pod"]


def pod(data: Data, now: float) -> list[Any]:
    """Name, Ready, Status, Restarts, Age, IP, Node, Nominated Node, Readiness Gates."""
    metadata, spec, status = as_dict(data.get("metadata")), as_dict(data.get("spec")), as_dict(data.get("status"))
    sidecars = {
        item.get("name") for item in as_items(spec.get("initContainers")) if item.get("restartPolicy") == "Always"
    }
    containers = as_items(status.get("containerStatuses"))
    helpers = [item for item in as_items(status.get("initContainerStatuses")) if item.get("name") in sidecars]
    total = len(as_items(spec.get("containers"))) + len(sidecars)
    ready = sum(1 for item in (*containers, *helpers) if item.get("ready") and "running" in as_dict(item.get("state")))
    if not containers and _condition(status, "Ready") == "True":
        ready = total  # hollow pods report the condition only
    return [
        metadata.get("name"),
        f"{ready}/{total}",
        _word(metadata, spec, status, sidecars),
        _restarts((*as_items(status.get("initContainerStatuses")), *containers), now),
        age_of(metadata.get("creationTimestamp"), now),
        status.get("podIP") or "<none>",
        spec.get("nodeName") or "<none>",
        status.get("nominatedNodeName") or "<none>",
        _gates(spec, status),
    ]


def _condition(status: Data, name: str) -> str:
    for item in as_items(status.get("conditions")):
        if item.get("type") == name:
            return str(item.get("status"))
    return ""


def _restarts(statuses: Sequence[Data], now: float) -> str:
    counts = [item.get("restartCount") for item in statuses]
    total = sum(count for count in counts if isinstance(count, int))
    ends = [
        then
        for item in statuses
        if (then := moment(as_dict(as_dict(item.get("lastState")).get("terminated")).get("finishedAt"))) is not None
    ]
    return f"{total} ({human_duration(now - max(ends))} ago)" if total and ends else str(total)


def _word(metadata: Data, spec: Data, status: Data, sidecars: set[Any]) -> str:
    """The phase, or what is more specific: a reason, a waiting container, a deletion under way."""
    word = str(status.get("reason") or status.get("phase") or "Unknown")
    for item in as_items(status.get("conditions")):
        if item.get("type") == "PodScheduled" and item.get("reason") == "SchedulingGated":
            word = "SchedulingGated"
    initializing = _initializing(spec, status, sidecars)
    if initializing:
        word = initializing
    else:
        running = False
        for item in reversed(as_items(status.get("containerStatuses"))):
            state = as_dict(item.get("state"))
            word_of_state = _state_word(state)
            if word_of_state:
                word = word_of_state
            elif item.get("ready") and "running" in state:
                running = True
        if word == "Completed" and running:
            word = "Running" if _condition(status, "Ready") == "True" else "NotReady"
    if metadata.get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in ("Succeeded", "Failed"):
            return "Terminating"
    return word


def _state_word(state: Data) -> str:
    waiting, terminated = as_dict(state.get("waiting")), as_dict(state.get("terminated"))
    if waiting.get("reason"):
        return str(waiting["reason"])
    if terminated:
        if terminated.get("reason"):
            return str(terminated["reason"])
        if terminated.get("signal"):
            return f"Signal:{terminated['signal']}"
        return f"ExitCode:{terminated.get('exitCode', 0)}"
    return ""


def _initializing(spec: Data, status: Data, sidecars: set[Any]) -> str:
    total = len(as_items(spec.get("initContainers")))
    for index, item in enumerate(as_items(status.get("initContainerStatuses"))):
        state = as_dict(item.get("state"))
        terminated = state.get("terminated")
        if isinstance(terminated, dict) and not terminated.get("exitCode"):
            continue
        if item.get("name") in sidecars and item.get("started"):
            continue
        word_of_state = _state_word(state)
        if word_of_state and word_of_state != "PodInitializing":
            return f"Init:{word_of_state}"
        return f"Init:{index}/{total}"
    return ""


def _gates(spec: Data, status: Data) -> str:
    gates = as_items(spec.get("readinessGates"))
    if not gates:
        return "<none>"
    passed = sum(1 for gate in gates if _condition(status, str(gate.get("conditionType"))) == "True")
    return f"{passed}/{len(gates)}"
