"""The topology plugins against their plain twins, while the cluster changes under them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from topology_kit import (
    HARD,
    NAMESPACES,
    SOFT,
    Cluster,
    affinity_scores,
    affinity_verdicts,
    labels,
    namespace,
    nodes,
    objects,
    pods,
    spread_scores,
    spread_verdicts,
)

from kubesched.api.decode import from_builtins
from kubesched.api.types import Namespace, Node, Pod
from kubesched.cache import NodeList
from kubesched.cache.check import check_cache
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.status import Code
from kubesched.plugins import in_tree_registry
from kubesched.scheduler.diagnosis import FitError
from kubesched.scheduler.profiles import build_frameworks
from kubesched.scheduler.search import Decision, Evaluation, Rotation, Search
from kubesched.simulate.conformance.world import World

NODE_NAMES = ("n1", "n2", "n3", "n4", "n5")


def pod_info(obj: dict[str, Any]) -> PodInfo:
    return PodInfo(from_builtins(obj, Pod))


def new_world(data: st.DataObject) -> World:
    """A cluster of up to five nodes with pods on them."""
    scenario = {
        "config": None,
        "objects": data.draw(objects()),
        "nodes": [data.draw(nodes(name)) for name in NODE_NAMES],
        "pods": [],
        "pending": [],
    }
    world = World(scenario, in_tree_registry())
    for number in range(data.draw(st.integers(0, 8))):
        world.cache.add_pod(pod_info(data.draw(pods(f"e{number}", data.draw(st.sampled_from(NODE_NAMES))))))
    return world


def disturb(world: World, data: st.DataObject, number: int) -> None:
    """Something happens to a pod, a node or a namespace."""
    cache = world.cache
    there = sorted(cache.pods.keys() - cache.assumed)
    match data.draw(
        st.sampled_from(["add", "add", "remove", "relabel", "terminate", "node", "node", "gone", "namespace"])
    ):
        case "add":
            cache.add_pod(pod_info(data.draw(pods(f"x{number}", data.draw(st.sampled_from(NODE_NAMES))))))
        case "remove" if there:
            cache.remove_pod(cache.pods[data.draw(st.sampled_from(there))].pod)
        case "relabel" | "terminate" as what if there:
            old = cache.pods[data.draw(st.sampled_from(there))].pod
            change: dict[str, Any] = {"labels": data.draw(labels)}
            if what == "terminate":
                change = {"deletion_timestamp": "2026-01-01T00:00:00Z"}
            new = Pod(metadata=_replaced(old.metadata, **change), spec=old.spec, status=old.status)
            cache.update_pod(old, PodInfo.derive(new, cache.pods[old.uid]))
        case "node":
            cache.set_node(from_builtins(data.draw(nodes(data.draw(st.sampled_from(NODE_NAMES)))), Node))
        case "gone" if len(cache.table) > 1:
            names = [node.name for node in cache.table.all_infos() if node.node is not None]
            cache.remove_node(data.draw(st.sampled_from(sorted(names))))
        case "namespace":
            name = data.draw(st.sampled_from(NAMESPACES))
            if data.draw(st.booleans()):
                obj = namespace(name, data.draw(st.sampled_from(["test", "live", ""])))
                cache.set_namespace(from_builtins(obj, Namespace))
            else:
                cache.remove_namespace(name)
        case _:
            pass


def _replaced(struct: Any, **changes: Any) -> Any:
    return type(struct)(**{**{name: getattr(struct, name) for name in struct.__struct_fields__}, **changes})


def cluster_of(world: World) -> Cluster:
    infos = [world.cache.table.info(row) for row in world.cache.table.order().tolist()]
    return Cluster(infos, dict(world.cache.table.terms.namespaces))


def verdicts_of(world: World, plugin: Any, pod: PodInfo, state: CycleState) -> dict[str, int]:
    """What the column form says of each node; all pass after Skip. Its single-node form must agree."""
    table = world.cache.table
    rows = table.order()
    answer = plugin.pre_filter(state, pod, NodeList(table, rows))
    infos = [table.info(row) for row in rows.tolist()]
    if answer is not None:
        assert answer.code is Code.SKIP
        return {info.name: 0 for info in infos}
    columns = plugin.filter_rows(state, pod, table, rows).tolist()
    assert columns == [plugin.filter_row(state, pod, table, info) for info in infos]
    return {info.name: int(verdict) for info, verdict in zip(infos, columns, strict=True)}


def scores_of(world: World, plugin: Any, pod: PodInfo, feasible: list[str]) -> dict[str, int] | None:
    table, state = world.cache.table, CycleState()
    rows = np.array([table.row_of(name) for name in feasible], np.int32)
    answer = plugin.pre_score(state, pod, NodeList(table, rows))
    if answer is not None:
        assert answer.code is Code.SKIP
        return None
    raw = plugin.score_rows(state, pod, table, rows)
    final = plugin.normalize_score(state, pod, NodeList(table, rows), raw)
    return dict(zip(feasible, final.tolist(), strict=True))


@pytest.mark.parametrize("plugin_name", ["InterPodAffinity", "PodTopologySpread"])
@given(data=st.data())
def test_columns_equal_the_plain_twin_while_the_cluster_changes(plugin_name: str, data: st.DataObject) -> None:
    world = new_world(data)
    plugin = world.frameworks["default-scheduler"].plugins[plugin_name]
    incoming = [pod_info(data.draw(pods(f"i{number}"))) for number in range(2)]
    for number in range(data.draw(st.integers(1, 5))):
        for pod in incoming:
            cluster = cluster_of(world)
            if plugin_name == "InterPodAffinity":
                want = affinity_verdicts(cluster, pod)
            else:
                rules = plugin._plans.constraints(pod, HARD)
                want = spread_verdicts(cluster, pod, rules)
            assert verdicts_of(world, plugin, pod, CycleState()) == want
            feasible = data.draw(st.lists(st.sampled_from(sorted(want)), min_size=1, unique=True))
            if plugin_name == "InterPodAffinity":
                assert scores_of(world, plugin, pod, feasible) == affinity_scores(cluster, pod, feasible)
            else:
                rules = plugin._plans.constraints(pod, SOFT)
                explicit = bool(pod.spec.topology_spread_constraints)
                scores = spread_scores(cluster, pod, rules, feasible, requires_all=explicit) if rules else None
                assert scores_of(world, plugin, pod, feasible) == scores
            if plugin.skips(pod):
                assert not any(want.values())
                assert scores_of(world, plugin, pod, feasible) is None
        disturb(world, data, number)
        assert check_cache(world.cache) == []


@pytest.mark.parametrize("plugin_name", ["InterPodAffinity", "PodTopologySpread"])
@given(data=st.data())
def test_adding_and_removing_pods_equals_looking_at_the_changed_cluster(plugin_name: str, data: st.DataObject) -> None:
    world = new_world(data)
    table, snapshot = world.cache.table, world.cache.snapshot()
    plugin = world.frameworks["default-scheduler"].plugins[plugin_name]
    pod = pod_info(data.draw(pods("incoming")))
    node = table.info(int(data.draw(st.sampled_from(table.order().tolist()))))
    state = CycleState()
    if plugin.pre_filter(state, pod, snapshot.nodes()) is not None:
        return  # skipped: AddPod and RemovePod are not called then
    before = plugin.filter_rows(state, pod, table, table.order()).tolist()
    trial = state.clone()
    there = [other for other in node.pods.values() if other.metadata.deletion_timestamp is None]
    removes: bool = bool(there) and data.draw(st.booleans())
    if removes:
        victim = data.draw(st.sampled_from(there))
        plugin.remove_pod(trial, pod, victim, node)
        with snapshot.without([(node, victim)]):
            fresh = verdicts_of(world, plugin, pod, CycleState())
    else:
        extra = pod_info({**data.draw(pods("extra")), "apiVersion": "v1"})
        plugin.add_pod(trial, pod, extra, node)
        with snapshot.with_pods(node, [extra]):
            fresh = verdicts_of(world, plugin, pod, CycleState())
    columns = plugin.filter_rows(trial, pod, table, table.order()).tolist()
    names = [table.info(row).name for row in table.order().tolist()]
    if not (plugin_name == "PodTopologySpread" and _counts_everything(pod)):
        assert dict(zip(names, columns, strict=True)) == fresh
    assert columns == [plugin.filter_row(trial, pod, table, table.info(row)) for row in table.order().tolist()]
    assert plugin.filter_rows(state, pod, table, table.order()).tolist() == before, "the what-if left a trace"
    assert check_cache(world.cache) == []


def _counts_everything(pod: PodInfo) -> bool:
    """A constraint with an empty selector: counted in AddPod and RemovePod only (upstream quirk B-Q3, kept)."""
    return any(
        item.label_selector is not None
        and not item.label_selector.match_labels
        and not item.label_selector.match_expressions
        for item in pod.spec.topology_spread_constraints
    )


@given(data=st.data())
def test_the_lane_path_decides_like_a_fresh_look_at_every_node(data: st.DataObject) -> None:
    world = new_world(data)
    search = world.searches["default-scheduler"]
    kinds = [data.draw(pods(f"kind{number}")) for number in range(2)]
    for number in range(data.draw(st.integers(2, 7))):
        obj = data.draw(st.sampled_from(kinds))
        name = f"w{number}"
        pod = pod_info({**obj, "metadata": {**obj["metadata"], "name": name, "uid": name}})
        decision, problem = _attempt(search, pod)
        evaluation, want = _look(_fresh_search(world), pod)
        assert problem == want
        if decision is not None and evaluation is not None:
            assert decision.feasible == len(evaluation.feasible)
            assert evaluation.totals is not None
            best = evaluation.feasible[evaluation.totals == evaluation.totals.max()].tolist()
            assert decision.node.row in best
            world.cache.assume_pod(pod.with_pod(pod.pod.on_node(decision.node.name)))
        if data.draw(st.integers(0, 2)) == 0:
            disturb(world, data, number)
    assert check_cache(world.cache) == []


def _attempt(search: Search, pod: PodInfo) -> tuple[Decision | None, str]:
    try:
        return search.find(pod), ""
    except FitError as error:
        return None, str(error)


def _look(search: Search, pod: PodInfo) -> tuple[Evaluation | None, str]:
    try:
        return search.evaluate(CycleState(), pod), ""
    except FitError as error:
        return None, str(error)


def _fresh_search(world: World) -> Search:
    """The same profile with plugins that remember nothing."""
    backends = world.frameworks["default-scheduler"].plugins["InterPodAffinity"].handle._backends
    metrics = world.frameworks["default-scheduler"].metrics
    framework = build_frameworks(world.config, world.registry, backends, metrics)["default-scheduler"]
    return Search(framework, world.cache.snapshot(), world.nominations, backends.random, Rotation())
