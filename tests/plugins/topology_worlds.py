"""Small clusters for examples of the topology plugins: short ways to write nodes, pods and rules, and to evaluate them."""

from __future__ import annotations

from typing import Any

import numpy as np
from topology_twins import HOST, ZONE

from builders import a_stopwatch
from kubesched.api.decode import from_builtins
from kubesched.api.types import Pod
from kubesched.lab.conformance.world import World, complete
from kubesched.scheduler.core.diagnosis import Rejection
from kubesched.scheduler.core.full_scan import Evaluation
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.entries import ScoreEntry
from kubesched.scheduler.framework.status import Code
from kubesched.scheduler.nodes import NodeList
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.plugins import in_tree_registry

JSON = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def node(name: str, **of: str) -> JSON:
    labels = {{"zone": ZONE, "host": HOST}.get(key, key): value for key, value in of.items()}
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": {"pods": "50"}}}


def pod(name: str, labels: JSON | None = None, on: str = "", **spec: Any) -> JSON:
    body: JSON = {"containers": [{"name": "c", "image": "i"}], **spec}
    if on:
        body["nodeName"] = on
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": body}


def term(key: str, **labels: str) -> JSON:
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels}}


def affinity(*terms: JSON) -> JSON:
    return {"podAffinity": {REQUIRED: list(terms)}}


def anti(*terms: JSON) -> JSON:
    return {"podAntiAffinity": {REQUIRED: list(terms)}}


def info(obj: JSON) -> PodInfo:
    return PodInfo(from_builtins(complete(obj, "Pod"), Pod))


def world(nodes: list[JSON], pods: list[JSON], objects: list[JSON] | None = None, config: JSON | None = None) -> World:
    scenario = {"config": config, "objects": objects or [], "nodes": nodes, "pods": pods, "pending": []}
    return World(scenario, in_tree_registry())


def rejections(of: World, incoming: JSON) -> dict[str, str]:
    """Node name to reason."""
    found = of.searches["default-scheduler"].evaluate(CycleState(), info(incoming))
    statuses = found.diagnosis.statuses if isinstance(found, Rejection) else found.statuses
    return {name: "; ".join(status.reasons()) for status, names in statuses.groups() for name in names}


def scores(of: World, incoming: JSON, plugin: str) -> dict[str, int] | None:
    """Node name to normalised score (weight 2 taken out); None when skipped."""
    evaluation = of.searches["default-scheduler"].evaluate(CycleState(), info(incoming))
    assert isinstance(evaluation, Evaluation)
    assert evaluation.scores is not None
    if plugin not in evaluation.scores:
        return None
    names = [of.cache.table.info(row).name for row in evaluation.feasible.tolist()]
    return dict(zip(names, (evaluation.scores[plugin] // 2).tolist(), strict=True))


FOUR = [
    node("n1", zone="a", host="n1"),
    node("n2", zone="a", host="n2"),
    node("n3", zone="b", host="n3"),
    node("n4", host="n4"),
]
WEB = {"app": "web"}
NEAR, AWAY, EXISTING = (
    "node(s) didn't match pod affinity rules",
    "node(s) didn't match pod anti-affinity rules",
    "node(s) didn't satisfy existing pods anti-affinity rules",
)


def pre_filtered(of: World, plugin: str, incoming: JSON) -> CycleState | None:
    """A plugin's state of a pod after PreFilter; None when it skips."""
    state, table = CycleState(), of.cache.table
    found: Any = of.frameworks["default-scheduler"].answering[plugin]
    answer = found.pre_filter(state, info(incoming), NodeList(table, table.order()))
    assert answer is None or answer.code is Code.SKIP
    return state if answer is None else None


def verdicts(of: World, plugin: str, incoming: JSON, state: CycleState | None = None) -> dict[str, str] | None:
    """One plugin's Filter results for the nodes it rejects, independent of other plugins; None when it skips."""
    state = pre_filtered(of, plugin, incoming) if state is None else state
    if state is None:
        return None
    found, table, pod_info = of.frameworks["default-scheduler"].answering[plugin], of.cache.table, info(incoming)
    codes = found.question(state, pod_info, "filter").verdicts(table.order()).tolist()
    said = {
        table.info(row).name: found.question(state, pod_info, "filter").why(code)
        for row, code in zip(table.order().tolist(), codes, strict=True)
        if code
    }
    return {name: f"{status.code.name}: {'; '.join(status.reasons())}" for name, status in said.items()}


def scores_of(of: World, plugin: str, incoming: JSON, feasible: list[str]) -> dict[str, int] | None:
    """One plugin's normalised scores of some nodes; None when it skips."""
    state, table, pod_info = CycleState(), of.cache.table, info(incoming)
    found: Any = of.frameworks["default-scheduler"].answering[plugin]
    rows = np.array([table.row_of(name) for name in feasible], np.int32)
    answer = found.pre_score(state, pod_info, NodeList(table, rows))
    if answer is not None:
        assert answer.code is Code.SKIP
        return None
    raw = found.question(state, pod_info, "score").scores(rows)
    final = ScoreEntry(found, 1, a_stopwatch()).final_of_all(state, pod_info, NodeList(table, rows), raw)
    return dict(zip(feasible, final.tolist(), strict=True))
