"""Reasons of pending pods: every pod without a node is evaluated once more, and equal results are grouped.

The verdicts come from the scheduler's own search over its present cache, so its next attempt would give the same.
:mod:`.pending` finds what would help.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import islice
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kubesched.api.types import Pod
from kubesched.base.turns import Steps
from kubesched.scheduler.core.diagnosis import Rejection
from kubesched.scheduler.core.search import Search
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.framework.runtime import Framework
from kubesched.scheduler.framework.status import Code
from kubesched.scheduler.nodes import PodInfo
from kubesched.scheduler.plugins.demands.words import counted, listed
from kubesched.scheduler.scheduler import Scheduler

from .claim_notes import claim_notes
from .foreign import remark
from .objects import Objects
from .obstacles import names_at
from .pending import explain_pod
from .placed import pending_at
from .reasons import advice, filled, find
from .reasons_of import EXAMPLES, obstacle_report, reasons_of
from .report import (
    EvictionReport,
    NewNodeReport,
    Pending,
    PendingReason,
    QueueState,
    RemedyReport,
)
from .workloads import Workloads

__all__ = ["explaining_pending"]

#: Most sentences about claims and devices that a group of pods waits for.
WAITS: Final = 12


def explaining_pending(
    scheduler: Scheduler,
    objects: Objects,
    pods: Iterable[Pod],
    on_progress: Callable[[int], None] = lambda done: None,
    *,
    against: Collection[str] = (),
    queue_state: Callable[[Pod], QueueState | None] = lambda pod: None,
) -> Steps[list[Pending]]:
    """Explain pods without a node, in groups by workload and reason. Return the largest group first.

    Equal pods are explained once; the work pauses after each explanation. ``against`` are names of nodes: each group
    also says what keeps its pods off these nodes. ``queue_state`` returns the place of a pod in a live scheduler's queue.
    """
    workloads = Workloads(objects)
    findings: dict[bytes, Pending] = {}
    groups: dict[tuple[str | bytes, ...], tuple[Pending, str, list[Pod]]] = {}
    waits: dict[tuple[str | bytes, ...], dict[str, None]] = {}
    for done, pod in enumerate(pods, 1):
        workload = workloads.of(pod)
        text = msgspec.json.encode((pod.namespace, workload, pod.metadata.labels, pod.spec, _nomination(pod)))
        finding = findings.get(text)
        if finding is None:
            finding = findings[text] = _look(scheduler, pod, against)
            yield
        # Pods without a controller are one group if they are equal, by their text.
        is_owned = any(owner.controller for owner in pod.metadata.owner_references)
        key = (pod.namespace, workload if is_owned else text, pod.spec.scheduler_name, finding.reason, finding.message)
        groups.setdefault(key, (finding, workload, []))[2].append(pod)
        if pod.spec.volumes or pod.spec.resource_claims:
            waits.setdefault(key, {}).update(dict.fromkeys(claim_notes(objects, pod)))
        on_progress(done)
    groups_found = [
        replace(
            finding,
            workload=workload,
            count=len(alike),
            pods=sorted(pod.key for pod in alike),
            waits_for=list(waits.get(key, ()))[:WAITS],
            queue=queue_state(min(alike, key=lambda pod: pod.key)),
        )
        for key, (finding, workload, alike) in groups.items()
    ]
    return sorted(groups_found, key=lambda group: (-group.count, group.pods[0]))


def _nomination(pod: Pod) -> tuple[str, bool]:
    return pod.status.nominated_node_name, pod.metadata.deletion_timestamp is not None


def _look(scheduler: Scheduler, pod: Pod, against: Collection[str]) -> Pending:
    """Return why this pod has no node at present, as a report without pods and workload."""

    def found(reason: PendingReason, message: str, **more: Any) -> Pending:
        name = pod.spec.scheduler_name
        return Pending(reason=reason, message=message, workload="", count=0, pods=[], scheduler_name=name, **more)

    if pod.metadata.deletion_timestamp is not None:
        return found("Deleting", "the pod is being deleted")
    framework = scheduler.frameworks.get(pod.spec.scheduler_name)
    if framework is None:
        known = ", ".join(scheduler.frameworks)
        text = f'no profile is named "{pod.spec.scheduler_name}" (there is {known}); another scheduler would take it'
        return found("UnknownScheduler", text)
    # The scheduler's version of the pod lacks fields that feature gates turn off.
    info = PodInfo(scheduler.informers.live_pod(pod.namespace, pod.name) or pod)
    search = scheduler.profiles[pod.spec.scheduler_name].search
    for plugin in framework.pre_enqueue_plugins.values():
        status = plugin(info)
        if status is not None and status.code is Code.ERROR:
            return found("SchedulerError", status.message())
        if status is not None:
            gates = [gate.name for gate in pod.spec.scheduling_gates]
            advised = {"hints": _advised([(status.plugin, status.message())])}
            held = _without_gates(framework, search, info, gates) if gates else advised
            return found("SchedulingGated", status.message(), gates=gates, **held)
    try:
        evaluation = search.evaluate(CycleState(), info)
    except PluginFailedError as error:
        return found("SchedulerError", str(error))
    if isinstance(evaluation, Rejection):
        text = evaluation.message()
        if not evaluation.all_nodes:
            return found("NoNodes", text, hints=["add nodes: Node manifests, or hollow ones with --nodes"])
        try:
            compared = pending_at(framework, search, info, against)
            return found("Unschedulable", text, **_tried(framework, search, info, evaluation), alternatives=compared)
        except PluginFailedError as error:
            reasons = reasons_of(evaluation.diagnosis.statuses, evaluation.all_nodes)
            return found("Unschedulable", text, reasons=reasons, remarks=[remark(error, "nothing was tried")])
    compared = pending_at(framework, search, info, against)
    last = next((item for item in pod.status.conditions if item.type == "PodScheduled" and item.message), None)
    fits = len(evaluation.feasible)
    text = last.message if last is not None else "its turn has not come yet"
    chosen = ""
    if evaluation.totals is not None and (evaluation.totals == evaluation.totals.max()).sum() == 1:
        row = int(evaluation.feasible[int(evaluation.totals.argmax())])
        chosen = f"; {search.table.info(row).name} would be chosen"
    return found("Waiting", f"{text} (nodes that fit now: {fits}{chosen})", alternatives=compared)


def _tried(framework: Framework, search: Search, pod: PodInfo, rejection: Rejection) -> dict[str, Any]:
    """Return reasons, obstacles, remedies and evictions as fields of a report, and what helps in words.

    Where nothing that was tried helps, the words are the advice about each reason.
    """
    reasons = reasons_of(rejection.diagnosis.statuses, rejection.all_nodes)
    found, table = explain_pod(framework, search, pod), search.table
    rows = found.obstacles.rows
    obstacles = [
        obstacle_report(one, *names_at(table, rows[one.stands], EXAMPLES), nodes=int(one.stands.sum()))
        for one in found.obstacles.found
    ]
    remedies = [
        RemedyReport(changes=list(one.texts), nodes=len(one.rows), examples=names_at(table, one.rows, EXAMPLES))
        for one in found.remedies
    ]
    hints = [f"{' AND '.join(one.changes)}: {counted(one.nodes, 'node')} would fit" for one in remedies]
    evictions = None
    if found.evictions is not None:
        evictions = EvictionReport(
            node=found.evictions.node,
            pods=list(found.evictions.pods),
            of=found.evictions.of,
            nodes=list(found.evictions.nodes),
            frees=list(found.evictions.frees),
        )
        hints.append(_eviction_hint(evictions))
    new_nodes = [
        NewNodeReport(like=one.like, nodes=one.count, allocatable=dict(one.node.status.allocatable))
        for one in found.new_nodes
    ]
    hints += [
        f"one more node like {one.like} ({counted(one.nodes, 'such node')} now): it would fit there"
        for one in new_nodes
    ]
    if not hints:
        advised = _advised((one.plugin, one.text) for one in reasons)
        hints = [*advised, "no change that was tried, no eviction, and no more nodes like these"]
    return {
        "reasons": reasons,
        "obstacles": obstacles,
        "remedies": remedies,
        "evictions": evictions,
        "new_nodes": new_nodes,
        "hints": hints,
        "remarks": found.obstacles.remarks,
    }


def _advised(reasons: Iterable[tuple[str, str]]) -> list[str]:
    """Return what a person can do about reasons, as (plugin, text): the first advice about each of the first few."""
    found: dict[str, None] = {}
    for plugin, text in islice(reasons, EXAMPLES):
        row, known = advice(plugin, text), find(text)
        if row is not None and known is not None and row.todo:
            found[f"{text}: {filled(row.todo[0], known.parts)}"] = None
    return list(found)


def _eviction_hint(evictions: EvictionReport) -> str:
    pods, node = evictions.pods, evictions.node
    there = [pod for pod, at in zip(pods, evictions.nodes, strict=True) if at == node]
    shown = listed(pods[:EXAMPLES], len(pods))
    frees = f", which frees {listed(evictions.frees[:EXAMPLES], len(evictions.frees))}" if evictions.frees else ""
    if len(there) == len(pods):
        return f"remove {shown} from {node} ({len(pods):,} of its {evictions.of:,} pods){frees}: it would fit there"
    others = sorted({at for at in evictions.nodes if at != node})
    where = listed([node, *others][:EXAMPLES] if there else others[:EXAMPLES], len(others) + bool(there))
    return f"remove {shown} from {where}{frees}: it would fit {node}"


def _without_gates(framework: Framework, search: Search, pod: PodInfo, gates: list[str]) -> dict[str, Any]:
    """Return whether a gated pod would fit without its gates, and what else stands in the way, as fields of a report.

    Filters do not read gates, so the pod is evaluated as it is.
    """
    remove = f"remove the gate{'s' if len(gates) > 1 else ''} {listed(gates[:EXAMPLES], len(gates))} from the pod"
    try:
        evaluation = search.evaluate(CycleState(), pod)
    except PluginFailedError as error:
        return {"hints": [f"{remove}; then a plugin fails: {error}"]}
    if not isinstance(evaluation, Rejection):
        nodes = len(evaluation.feasible)
        examples = names_at(search.table, evaluation.feasible, EXAMPLES)
        remedy = RemedyReport(changes=[remove], nodes=nodes, examples=examples)
        return {"remedies": [remedy], "hints": [f"{remove}: {counted(nodes, 'node')} would fit"]}
    if not evaluation.all_nodes:
        return {"hints": [f"{remove}; then add nodes: there are none"]}
    try:
        tried = _tried(framework, search, pod, evaluation)
    except PluginFailedError as error:
        return {"hints": [f"{remove}; then a plugin fails: {error}"]}
    remedies = [replace(one, changes=[remove, *one.changes]) for one in tried["remedies"]]
    return {**tried, "remedies": remedies, "hints": [f"{remove}; then {hint}" for hint in tried["hints"]]}
