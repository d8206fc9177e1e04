"""Truth of explanations of placed pods: every score and every change that turns the choice is evaluated afresh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st
from msgspec.structs import replace
from plain_clusters import APPS, DISKS, clusters, rule

from builders import a_node, a_pod, a_taint, node_affinity, requirement, term
from kubesched.api.decode import from_builtins
from kubesched.api.types import Node, Pod
from kubesched.explain.placed import Choice, taken_off
from kubesched.explain.report import Alternative
from kubesched.scheduler.core.diagnosis import Rejection
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.nodes import PodInfo
from search_kit import SIGNING, WEIGHTS, House

PLUGINS = (*SIGNING, "PodTopologySpread", "InterPodAffinity")
ALL_WEIGHTS = {**WEIGHTS, "PodTopologySpread": 2, "InterPodAffinity": 2}

Cluster = tuple[list[Node], list[Pod], Pod]


@st.composite
def settled(draw: st.DrawFn) -> Cluster:
    """Nodes with soft taints, pods on them, and one pod with preferences that is on one of the nodes."""
    listed, there, pod = draw(clusters())
    soft = a_taint("soft=true:PreferNoSchedule")
    listed = [replace(node, spec=replace(node.spec, taints=(soft,) if draw(st.booleans()) else ())) for node in listed]
    if draw(st.integers(0, 3)):
        pod = draw(wishing())
    return listed, there, replace(pod, spec=replace(pod.spec, node_name=draw(st.sampled_from(listed)).metadata.name))


@st.composite
def wishing(draw: st.DrawFn) -> Pod:
    """A pod that fits most nodes and prefers some."""
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    affinity: dict[str, Any] = {}
    if draw(st.booleans()):
        wanted = {"matchExpressions": [{"key": "disk", "operator": "In", "values": [draw(st.sampled_from(DISKS))]}]}
        affinity["nodeAffinity"] = {preferred: [{"weight": draw(st.integers(1, 100)), "preference": wanted}]}
    if draw(st.booleans()):
        kind = draw(st.sampled_from(("podAffinity", "podAntiAffinity")))
        affinity[kind] = {preferred: [{"weight": draw(st.integers(1, 100)), "podAffinityTerm": rule(draw)}]}
    spread = {**rule(draw), "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
    requests = {"cpu": draw(st.sampled_from(["100m", "500m"])), "memory": draw(st.sampled_from(["1Gi", "8Gi"]))}
    data = {
        "metadata": {
            "name": "new",
            "namespace": "default",
            "uid": "new",
            "labels": {"app": draw(st.sampled_from(APPS))},
        },
        "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}],
            "affinity": affinity,
            "topologySpreadConstraints": [spread] if draw(st.booleans()) else [],
        },
    }
    return from_builtins(data, Pod)


def house_of(listed: Sequence[Node], there: Sequence[Pod], weights: Mapping[str, int] = ALL_WEIGHTS) -> House:
    off = [name for name, weight in weights.items() if weight == 0]
    without = [(name, point) for name in off for point in ("score", "preScore")]
    house = House(listed, plugins=PLUGINS, weights=weights, without=without)
    house.add(*there)
    return house


def totals(
    listed: Sequence[Node], there: Sequence[Pod], pod: Pod, weights: Mapping[str, int] = ALL_WEIGHTS
) -> dict[str, int]:
    """Totals of the nodes that fit a pod that is on none, in a fresh cluster."""
    house = house_of(listed, there, weights)
    bare = PodInfo(replace(pod, spec=replace(pod.spec, node_name="")))
    found = house.search.evaluate(CycleState(), bare)
    if isinstance(found, Rejection):
        return {}
    assert found.totals is not None
    return dict(zip(house.names(found.feasible), found.totals.tolist(), strict=True))


def winners(scores: Mapping[str, int]) -> set[str]:
    return {name for name, total in scores.items() if total == max(scores.values())}


def compared(cluster: Cluster) -> tuple[Choice, list[Alternative], list[str]]:
    """The choice for the pod of interest, and the comparison with each other node."""
    listed, there, pod = cluster
    house = house_of(listed, [*there, pod])
    search = house.search
    before = {row: house.cache.table.info(row).requested for row in house.cache.table.order().tolist()}
    with taken_off(search, PodInfo(pod)) as (bare, node):
        choice = Choice(house.framework, search, bare, node)
        names = [one.metadata.name for one in listed if one.metadata.name != pod.spec.node_name]
        found = [choice.against(name) for name in names]
        best = choice.best(3)
        problems = choice.problems()
    assert {row: house.cache.table.info(row).requested for row in before} == before, "the cluster changed"
    assert bool(problems) == (choice.rank is None)
    return choice, [one for one in found if one is not None], [one.node for one in best]


@given(settled())
def test_scores_and_places_are_those_of_a_cluster_without_the_pod(cluster: Cluster) -> None:
    listed, there, pod = cluster
    choice, others, best = compared(cluster)
    scores = totals(listed, there, pod)
    assert {one.node for one in choice.best(99)} == set(scores)
    for one in choice.best(99):
        assert one.total == scores[one.node] == sum(each.normalized * each.weight for each in one.scores)
    own = scores.get(pod.spec.node_name)
    assert choice.rank == (None if own is None else 1 + sum(total > own for total in scores.values()))
    assert choice.tied == len(winners(scores)) if scores else choice.tied == 0
    if scores:
        assert best[0] in winners(scores)
    for other in others:
        assert other.fits == (other.node in scores)
        if other.fits and own is not None:
            assert other.lost_by == own - scores[other.node] == sum(other.differences.values())
        if not other.fits:
            assert other.obstacles
    assert choice.decided()


@given(settled())
def test_a_weight_that_turns_the_choice_does_and_none_between_does(cluster: Cluster) -> None:
    listed, there, pod = cluster
    for other in compared(cluster)[1]:
        for turn in other.turns:
            if turn.kind != "weight":
                continue
            assert turn.weight is not None
            event("a weight turns it")
            usual = ALL_WEIGHTS.get(turn.plugin, 1)
            assert winners(totals(listed, there, pod, {**ALL_WEIGHTS, turn.plugin: turn.weight})) == {other.node}
            between = range(min(usual, turn.weight) + 1, max(usual, turn.weight))
            for weight in [*between[:3], *between[-3:]]:
                assert winners(totals(listed, there, pod, {**ALL_WEIGHTS, turn.plugin: weight})) != {other.node}


@given(settled())
def test_no_weight_is_missed_that_turns_the_choice(cluster: Cluster) -> None:
    listed, there, pod = cluster
    for other in compared(cluster)[1]:
        if not other.fits or winners(totals(listed, there, pod)) == {other.node}:
            continue
        named = {turn.plugin for turn in other.turns if turn.kind == "weight"}
        for plugin in PLUGINS:
            tried = [weight for weight in (0, 1, 5, 40) if weight != ALL_WEIGHTS.get(plugin, 1)]
            if any(
                winners(totals(listed, there, pod, {**ALL_WEIGHTS, plugin: weight})) == {other.node} for weight in tried
            ):
                assert plugin in named


@given(settled())
def test_evictions_that_turn_the_choice_do_and_none_is_needless(cluster: Cluster) -> None:
    listed, there, pod = cluster
    for other in compared(cluster)[1]:
        for turn in other.turns:
            if turn.kind != "evictions":
                continue
            event(f"{len(turn.pods)} evictions turn it")
            left = [one for one in there if one.key not in turn.pods]
            assert len(left) == len(there) - len(turn.pods)
            assert winners(totals(listed, left, pod)) == {other.node}
            for needed in turn.pods:
                back = [one for one in there if one.key not in turn.pods or one.key == needed]
                assert winners(totals(listed, back, pod)) != {other.node}


@given(settled())
def test_changes_that_open_another_node_open_it(cluster: Cluster) -> None:
    choice, others, _ = compared(cluster)
    if choice.rank is None:
        assert "rejected now" in choice.decided()
    for other in others:
        for remedy in other.remedies:
            event("a change opens it")
            assert (remedy.nodes, remedy.examples) == (1, [other.node])
            assert remedy.changes


def explained(pod: Pod, *nodes: Node, there: Sequence[Pod] = (), **how: Any) -> Choice:
    house = house_of(nodes, [*there, pod], **how)
    with taken_off(house.search, PodInfo(pod)) as (bare, node):
        return Choice(house.framework, house.search, bare, node)


def test_the_sentence_says_what_decided() -> None:
    prefers = node_affinity(preferred=[(10, term(requirement("disk", "In", "ssd")))])
    ssd, hdd = a_node("ssd", labels={"disk": "ssd"}), a_node("hdd", labels={"disk": "hdd"})
    sentence = explained(a_pod("p", affinity=prefers, on="ssd"), ssd, hdd).decided()
    assert sentence.startswith("ssd has the greatest total")
    assert "NodeAffinity +200" in sentence
    assert "would win now" in explained(a_pod("p", affinity=prefers, on="hdd"), ssd, hdd).decided()
    assert explained(a_pod("p", on="ssd"), ssd, hdd).decided().startswith("2 nodes have the greatest total")
    needs = node_affinity(required=[term(requirement("disk", "In", "ssd"))])
    assert explained(a_pod("p", affinity=needs, on="ssd"), ssd, hdd).decided() == "ssd is the only node that fits"
    assert "rejected now" in explained(a_pod("p", affinity=needs, on="hdd"), ssd, hdd).decided()
    gone = explained(a_pod("p", affinity=needs, on="ssd"), hdd)
    assert gone.decided() == "its node is not in the cluster any more"
