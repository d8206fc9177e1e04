"""Truth of explanations: in random clusters every remedy and eviction is carried out in a fresh cluster, node by node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st
from msgspec.structs import replace

from builders import a_node, a_taint
from kubesched.api.decode import from_builtins
from kubesched.api.types import Node, Pod
from kubesched.explain.obstacles import with_changes
from kubesched.explain.pending import PendingExplanation, explain_pod
from kubesched.scheduler.framework.demand import Change
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes import PodInfo
from search_kit import SIGNING, House, brute_force

PLUGINS = (*SIGNING, "PodTopologySpread", "InterPodAffinity")
ZONES, DISKS, APPS = ("a", "b"), ("ssd", "hdd"), ("web", "db")


@st.composite
def nodes(draw: st.DrawFn) -> list[Node]:
    """One to five nodes in zones, some tainted or cordoned."""
    found = []
    for number in range(draw(st.integers(1, 5))):
        labels = {"kubernetes.io/hostname": f"n{number}"}
        if draw(st.booleans()):
            labels["zone"] = draw(st.sampled_from(ZONES))
        if draw(st.booleans()):
            labels["disk"] = draw(st.sampled_from(DISKS))
        taints = draw(st.lists(st.sampled_from(["spot=true:NoSchedule", "gpu=x:NoSchedule"]), max_size=2, unique=True))
        cpu = draw(st.sampled_from(["1", "2", "4"]))
        found.append(a_node(f"n{number}", cpu=cpu, labels=labels, taints=map(a_taint, taints)))
    return found


def rule(draw: st.DrawFn) -> dict[str, Any]:
    key = draw(st.sampled_from(("zone", "kubernetes.io/hostname")))
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": draw(st.sampled_from(APPS))}}}


@st.composite
def pods(draw: st.DrawFn, name: str, node: str = "", *, is_demanding: bool = False) -> Pod:
    """A pod with a label; one that is demanding has a selector, host ports, spread constraints and affinity terms, too."""
    requests = {"cpu": draw(st.sampled_from(["500m", "1", "3", "9"]))}
    ports = [{"containerPort": 80, "hostPort": 80}] if draw(st.integers(0, 3)) == 0 else []
    spec: dict[str, Any] = {
        "nodeName": node,
        "containers": [{"name": "c", "image": "i", "resources": {"requests": requests}, "ports": ports}],
        "tolerations": [{"operator": "Exists"}] if node else [],
    }
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity: dict[str, Any] = {}
    if draw(st.integers(0, 2)) == 0:
        affinity["podAntiAffinity"] = {required: [rule(draw)]}
    if is_demanding:
        if draw(st.booleans()):
            spec["nodeSelector"] = {"disk": draw(st.sampled_from(DISKS))}
        if draw(st.integers(0, 2)) == 0:
            affinity["podAffinity"] = {required: [rule(draw) for _ in range(draw(st.integers(1, 2)))]}
        if draw(st.booleans()):
            spread = {**rule(draw), "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
            spec["topologySpreadConstraints"] = [spread]
    spec["affinity"] = affinity
    data = {
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": draw(st.sampled_from(APPS))}},
        "spec": spec,
    }
    return from_builtins(data, Pod)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Node], list[Pod], Pod]:
    """Nodes, the pods on them, and a pending pod."""
    listed = draw(nodes())
    there = [
        draw(pods(f"p{number}", draw(st.sampled_from(listed)).metadata.name))
        for number in range(draw(st.integers(0, 5)))
    ]
    return listed, there, draw(pods("new", is_demanding=True))


def fitting(listed: Sequence[Node], there: Sequence[Pod], pod: Pod) -> set[str]:
    """Names of the nodes that fit, asked of a fresh cluster node by node."""
    house = House(listed, plugins=PLUGINS)
    house.add(*there)
    found = brute_force(house, pod)
    return set() if isinstance(found, Status) else {name for name, status in found.items() if status is None}


def explained(listed: Sequence[Node], there: Sequence[Pod], pod: Pod) -> tuple[House, PendingExplanation]:
    house = House(listed, plugins=PLUGINS)
    house.add(*there)
    return house, explain_pod(house.framework, house.search, PodInfo(pod))


def drops(house: House, pod: Pod) -> Iterator[Change]:
    """Every change that drops a demand of the pod, whether it stands in the way or not."""
    for entry in house.framework.filters:
        if hasattr(entry.plugin, "demands"):
            for demand in entry.plugin.demands(PodInfo(pod), house.cache.table):
                if demand.without is not None:
                    yield demand.without


@given(clusters())
def test_obstacles_are_where_the_filters_reject(cluster: tuple[list[Node], list[Pod], Pod]) -> None:
    listed, there, pod = cluster
    house, found = explained(listed, there, pod)
    names = house.names(found.obstacles.rows)
    stands = {name for one in found.obstacles.found for name, here in zip(names, one.stands, strict=True) if here}
    assert stands == set(names) - fitting(listed, there, pod)
    assert all(one.text and one.stands.any() for one in found.obstacles.found)


@given(clusters())
def test_remedies_hold_and_no_smaller_set_of_changes_does(cluster: tuple[list[Node], list[Pod], Pod]) -> None:
    listed, there, pod = cluster
    if fitting(listed, there, pod):
        return
    house, found = explained(listed, there, pod)
    for remedy in found.remedies:
        assert set(house.names(remedy.rows)) == fitting(listed, there, with_changes(pod, remedy.changes))
    every = list(drops(house, pod))
    if not found.remedies:
        assert not fitting(listed, there, with_changes(pod, every))
        return
    fewest = min(len(remedy.changes) for remedy in found.remedies)
    event(f"{fewest} changes")
    for fewer in combinations(every, fewest - 1):
        assert not fitting(listed, there, with_changes(pod, fewer))


@given(clusters())
def test_amounts_are_the_least_that_help(cluster: tuple[list[Node], list[Pod], Pod]) -> None:
    listed, there, pod = cluster
    if fitting(listed, there, pod):
        return
    _, found = explained(listed, there, pod)
    asked = PodInfo(pod).fit_requests.milli_cpu
    for remedy in found.remedies:
        left = PodInfo(with_changes(pod, remedy.changes)).fit_requests.milli_cpu
        if 0 < left < asked:
            event("less cpu")
            spec = with_changes(pod, remedy.changes).spec
            (container,) = spec.containers
            more = replace(container.resources, requests={**container.resources.requests, "cpu": f"{left + 1}m"})
            spec = replace(spec, containers=(replace(container, resources=more),))
            assert not fitting(listed, there, replace(pod, spec=spec))


@given(clusters())
def test_evictions_make_room_and_none_is_needless(cluster: tuple[list[Node], list[Pod], Pod]) -> None:
    listed, there, pod = cluster
    if fitting(listed, there, pod):
        return
    _, found = explained(listed, there, pod)
    if found.evictions is None:
        return
    node, gone = found.evictions.node, set(found.evictions.pods)
    event(f"{len(gone)} evictions")
    left = [one for one in there if one.key not in gone]
    assert node in fitting(listed, left, pod)
    assert all(one.spec.node_name == node for one in there if one.key in gone)
    for back in there:
        if back.key in gone:
            assert node not in fitting(listed, [*left, back], pod)
