"""One attempt to place a pod, written down the way the golden files write it."""

from __future__ import annotations

from typing import Any

from kubesched.framework.cycle_state import CycleState
from kubesched.framework.entries import PluginFailedError
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.status import Status
from kubesched.scheduler.diagnosis import Rejection
from kubesched.scheduler.full_scan import Evaluation

from .world import World

__all__ = ["attempt", "pre_enqueue"]

JSON = dict[str, Any]


def pre_enqueue(world: World, pod: PodInfo) -> JSON | None:
    """The plugin that keeps the pod out of the queue, or None."""
    for name, plugin in world.frameworks[pod.spec.scheduler_name].pre_enqueue_plugins().items():
        status = plugin(pod)
        if status is not None:
            return {"plugin": name, **_status(status)}
    return None


def attempt(world: World, pod: PodInfo) -> JSON:
    """Evaluate one pod against every node; nothing is changed."""
    record: JSON = {"pod": pod.key}
    gate = pre_enqueue(world, pod)
    if gate is not None:
        return {**record, "preEnqueue": gate, "outcome": "gated"}
    state = CycleState()
    try:
        evaluation = world.searches[pod.spec.scheduler_name].evaluate(state, pod)
    except PluginFailedError as error:
        return {**record, **_error(str(error))}
    if isinstance(evaluation, Rejection):
        found = _unschedulable(evaluation) if evaluation.all_nodes else _error(evaluation.message())
        return {**record, **found}
    return {**record, **_scheduled(world, evaluation, state)}


def _status(status: Status) -> JSON:
    return {"code": status.code.label, "reasons": status.reasons()}


def _error(message: str) -> JSON:
    return {"feasible": [], "best": [], "outcome": "error", "message": message}


def _unschedulable(rejection: Rejection) -> JSON:
    diagnosis = rejection.diagnosis
    record: JSON = {
        "feasible": [],
        "best": [],
        "outcome": "unschedulable",
        "message": rejection.message(),
        "unschedulablePlugins": sorted(diagnosis.unschedulable_plugins),
        "pendingPlugins": sorted(diagnosis.pending_plugins),
        "skipped": sorted(rejection.state.skip_filter),
    }
    if diagnosis.pre_filter_message:
        status = diagnosis.statuses.absent
        record["preFilter"] = {"plugin": status.plugin, **_status(status)}
        return record
    record["filters"] = _filters(diagnosis.statuses.groups())
    return record


def _filters(groups: Any) -> JSON:
    return {
        name: {"plugin": status.plugin, "code": status.code.label, "reasons": sorted(status.reasons())}
        for status, names in groups
        for name in names
    }


def _scheduled(world: World, evaluation: Evaluation, state: CycleState) -> JSON:
    names = [world.cache.table.info(row).name for row in evaluation.feasible.tolist()]
    record: JSON = {
        "filters": _filters(evaluation.statuses.groups()),
        "feasible": sorted(names),
        "skipped": sorted(state.skip_filter),
        "best": sorted(names),
        "outcome": "scheduled",
    }
    if evaluation.totals is None or evaluation.scores is None:
        return record
    totals = dict(zip(names, evaluation.totals.tolist(), strict=True))
    greatest = max(totals.values())
    scores = {plugin: dict(zip(names, each.tolist(), strict=True)) for plugin, each in evaluation.scores.items()}
    return {
        **record,
        "scoreSkipped": sorted(state.skip_score),
        "scores": scores,
        "totals": totals,
        "best": sorted(name for name, total in totals.items() if total == greatest),
    }
