"""Record of one attempt to place a pod, in the form of the golden files.

:func:`evaluated` is the full evaluation with all its records. :func:`found` is the decision of ``Search.find``, on any
of its paths.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from contextlib import nullcontext
from typing import Any

import msgspec

from kubesched.scheduler.core.diagnosis import Rejection
from kubesched.scheduler.core.full_scan import Evaluation
from kubesched.scheduler.core.search import Decision
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.framework.outcomes import PreFilterOutcome
from kubesched.scheduler.framework.status import Code, Status
from kubesched.scheduler.nodes.podinfo import PodInfo

from .devices import allocations_of
from .volumes import volumes_of
from .world import World

__all__ = ["evaluated", "found", "nominated", "pre_enqueue", "rejection_of", "status_of"]

JSON = dict[str, Any]


def nominated(pod: PodInfo, node: str) -> PodInfo:
    """Return the pod with this ``status.nominatedNodeName``."""
    status = msgspec.structs.replace(pod.status, nominated_node_name=node)
    return pod.with_pod(msgspec.structs.replace(pod.pod, status=status))


def status_of(status: Status) -> JSON:
    """Return a status without its plugin."""
    return {"code": status.code.label, "reasons": status.reasons()}


def pre_enqueue(world: World, pod: PodInfo) -> JSON | None:
    """Return the record of the plugin that keeps the pod out of the queue, or None."""
    for name, plugin in world.frameworks[pod.spec.scheduler_name].pre_enqueue_plugins.items():
        status = plugin(pod)
        if status is not None:
            return {"plugin": name, **status_of(status)}
    return None


# -- the full evaluation -------------------------------------------------------------------------------------


def evaluated(world: World, pod: PodInfo) -> JSON:
    """Evaluate one pod against every node. Nothing is changed.

    For a scheduled pod the member ``allocations`` is added to the golden format: the devices it would get, by node.
    """
    gate = pre_enqueue(world, pod)
    if gate is not None:
        return {"preEnqueue": gate, "feasible": [], "best": [], "outcome": "gated"}
    record: JSON = {}
    if len(world.snapshot.nodes()):
        record["preFilter"] = _pre_filter(world, pod)
    state = CycleState()
    try:
        evaluation = world.searches[pod.spec.scheduler_name].evaluate(state, pod)
    except PluginFailedError as error:
        return {**record, **_node_by_node(world, pod), "best": [], "outcome": "error", "message": str(error)}
    if isinstance(evaluation, Rejection):
        return {**record, **_rejected(evaluation)}
    record.update(_scheduled(world, pod, evaluation, _score_skipped(world, pod, state)))
    planned = volumes_of(world, pod, state, evaluation.feasible)
    return {**record, "allocations": allocations_of(world, pod, state, evaluation.feasible), "volumes": planned}


def rejection_of(world: World, pod: PodInfo) -> Rejection:
    """Return the rejection of a pod that :func:`evaluated` found unschedulable, for PostFilter."""
    evaluation = world.searches[pod.spec.scheduler_name].evaluate(CycleState(), pod)
    if not isinstance(evaluation, Rejection):
        raise TypeError(f"pod {pod.key} is not rejected")
    return evaluation


def _pre_filter(world: World, pod: PodInfo) -> JSON:
    state = CycleState()
    try:
        outcome = world.frameworks[pod.spec.scheduler_name].pre_filter(state, pod, world.snapshot.nodes())
    except PluginFailedError as error:
        return {
            "code": Code.ERROR.label,
            "plugin": error.plugin,
            "reasons": [str(error)],
            "nodes": None,
            "skipped": _at(world, pod, "preFilter", state.skip_filter),
        }
    return {**_outcome(outcome), "skipped": _at(world, pod, "preFilter", state.skip_filter)}


def _at(world: World, pod: PodInfo, point: str, names: Container[str]) -> list[str]:
    """Return the names that are plugins of a point, sorted."""
    return sorted(name for name, _ in world.frameworks[pod.spec.scheduler_name].points[point] if name in names)


def _score_skipped(world: World, pod: PodInfo, state: CycleState) -> list[str]:
    """Return the plugins that skip scoring.

    A plugin that the pod does not concern was not asked in the attempt, so it is asked here.
    """
    framework = world.frameworks[pod.spec.scheduler_name]
    named = _at(world, pod, "preScore", state.skip_score)
    return [
        name
        for name in named
        if name not in state.absent or _skips_score(world, pod, framework.answering[name].at("preScore"))
    ]


def _skips_score(world: World, pod: PodInfo, plugin: Any) -> bool:
    state, nodes = CycleState(), world.snapshot.nodes()
    if plugin.name in world.points[pod.spec.scheduler_name]["preFilter"]:
        plugin.pre_filter(state, pod, nodes)
    status: Status | None = plugin.pre_score(state, pod, nodes)
    return status is not None and status.code is Code.SKIP


def _outcome(outcome: PreFilterOutcome) -> JSON:
    nodes = None if outcome.nodes is None else sorted(outcome.nodes)
    if outcome.status is None:
        return {"code": Code.SUCCESS.label, "nodes": nodes}
    return {**status_of(outcome.status), "plugin": outcome.status.plugin, "nodes": nodes}


def _rejected(rejection: Rejection) -> JSON:
    message = rejection.message()
    if not rejection.all_nodes:
        return {"feasible": [], "best": [], "outcome": "error", "message": message}
    diagnosis = rejection.diagnosis
    record: JSON = {
        "feasible": [],
        "best": [],
        "outcome": "unschedulable",
        "message": message,
        "unschedulablePlugins": sorted(diagnosis.unschedulable_plugins),
        "pendingPlugins": sorted(diagnosis.pending_plugins),
    }
    if not diagnosis.pre_filter_message:
        record["filters"] = _filters(diagnosis.statuses.groups())
    return record


def _filters(groups: Iterable[tuple[Status, list[str]]]) -> JSON:
    return {name: _rejection(status) for status, names in groups for name in names}


def _rejection(status: Status) -> JSON:
    return {"plugin": status.plugin, "code": status.code.label, "reasons": sorted(status.reasons())}


def _scheduled(world: World, pod: PodInfo, evaluation: Evaluation, skipped: list[str]) -> JSON:
    names = [world.cache.table.info(row).name for row in evaluation.feasible.tolist()]
    record: JSON = {"feasible": sorted(names), "best": sorted(names), "outcome": "scheduled"}
    nominated = pod.status.nominated_node_name
    if nominated and names == [nominated]:
        # The nominated node was feasible, so no other was tried. The record lists the others, too.
        record["nominatedNodeUsed"] = nominated
        record["filters"] = _node_by_node(world, pod)["filters"]
    else:
        record["filters"] = _filters(evaluation.statuses.groups())
    if evaluation.totals is None or evaluation.scores is None:
        return record
    totals = dict(zip(names, evaluation.totals.tolist(), strict=True))
    greatest = max(totals.values())
    scores = {plugin: dict(zip(names, each.tolist(), strict=True)) for plugin, each in evaluation.scores.items()}
    return {
        **record,
        "scoreSkipped": skipped,
        "scores": scores,
        "totals": totals,
        "best": sorted(name for name, total in totals.items() if total == greatest),
    }


def _node_by_node(world: World, pod: PodInfo) -> JSON:
    """Return ``feasible`` and ``filters`` from an evaluation of each node by itself.

    If the filters of any node fail, nothing is feasible.
    """
    framework, table = world.frameworks[pod.spec.scheduler_name], world.cache.table
    feasible: list[str] = []
    filters: JSON = {}
    state = CycleState()
    failed = False
    try:
        outcome = framework.pre_filter(state, pod, world.snapshot.nodes())
    except PluginFailedError:
        return {"feasible": [], "filters": {}}
    for row in table.order().tolist():
        node = table.info(row)
        if outcome.nodes is not None and node.name not in outcome.nodes:
            continue
        try:
            status = world.filter_with_nominated(state, pod, node)
        except PluginFailedError as error:
            filters[node.name] = {"plugin": error.plugin, "code": Code.ERROR.label, "reasons": [str(error)]}
            failed = True
            continue
        if status is None:
            feasible.append(node.name)
        else:
            filters[node.name] = _rejection(status)
    return {"feasible": [] if failed else sorted(feasible), "filters": filters}


# -- the decision --------------------------------------------------------------------------------------------


def found(world: World, pod: PodInfo) -> JSON:
    """Return the decision of the search: the node, or the reason why there is none."""
    try:
        with world.coverage.finding() if world.coverage is not None else nullcontext():
            answer = world.searches[pod.spec.scheduler_name].find(pod)
    except PluginFailedError as error:
        return {"outcome": "error", "message": str(error)}
    if isinstance(answer, Decision):
        return {"outcome": "scheduled", "node": answer.node.name}
    return _rejected(answer)
