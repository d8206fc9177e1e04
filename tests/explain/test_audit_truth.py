"""Truth of audits: in random clusters every finding is found again by an evaluation that shares nothing with the audit."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy

from audit_kit import (
    HOSTNAME,
    PLUGINS,
    Object,
    audited,
    clusters,
    decoded,
    names,
    node,
    of_rule,
    pod,
    rejected_independently,
    rejections,
)
from hypothesis import event, given
from hypothesis import strategies as st
from truth_clusters import FEWER

from kubesched import simulate
from kubesched.api.requests import pod_requests
from kubesched.explain.audit.never import LEFT_OUT
from kubesched.scheduler.framework.status import Status
from search_kit import House, brute_force


@FEWER
@given(clusters())
def test_pods_that_their_node_would_reject_are_exactly_those(cluster: list[Object]) -> None:
    before = deepcopy(cluster)
    audit = audited(cluster)
    event(f"{len(rejections(audit))} rejections")
    assert rejections(audit) == rejected_independently(cluster)
    placed = {f"default/{each['metadata']['name']}": each["spec"].get("nodeName") for each in cluster}
    for one in of_rule(audit, "pod-rejected-by-its-node"):
        assert set(one.nodes) == {placed[name] for name in one.objects}
        assert (one.count, one.node_count) == (len(one.objects), len(one.nodes))
    assert {one.objects[0]: one.amounts[0].requested for one in of_rule(audit, "node-overcommitted")} == over(cluster)
    assert cluster == before


def over(cluster: list[Object]) -> dict[str, int]:
    """Millicores that are requested of nodes that have less."""
    nodes, pods = decoded(cluster)
    used = Counter[str]()
    for one in pods:
        used[one.spec.node_name] += pod_requests(one).milli_cpu
    return {one.name: used[one.name] for one in nodes if used[one.name] > int(one.status.allocatable["cpu"]) * 1000}


@FEWER
@given(clusters(waiting=3))
def test_pods_that_can_never_be_scheduled_fit_no_empty_node(cluster: list[Object]) -> None:
    nodes, pods = decoded(cluster)
    house = House(nodes, plugins=[name for name in PLUGINS if name not in LEFT_OUT])
    never = set()
    for one in pods:
        if not one.spec.node_name:
            verdicts = brute_force(house, one)
            assert not isinstance(verdicts, Status)
            if all(verdicts.values()):
                never.add(one.metadata.name)
    event(f"{len(never)} of them")
    assert names(audited(cluster), "pod-never-schedulable") == never


@st.composite
def workloads(draw: st.DrawFn) -> list[Object]:
    """Nodes, and pods of some workloads, each with rules of its own."""
    listed = [
        node(f"n{number}", cpu=draw(st.sampled_from(["2", "4"])), zone=draw(st.sampled_from("ab")))
        for number in range(draw(st.integers(1, 5)))
    ]
    made = []
    for app in ("web", "db"):
        selector = {
            "labelSelector": {"matchLabels": {"app": app}},
            "topologyKey": draw(st.sampled_from(("zone", HOSTNAME))),
        }
        spec: Object = draw(
            st.sampled_from(
                [
                    {},
                    {"topologySpreadConstraints": [{**selector, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]},
                    {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [selector]}}},
                    {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [selector]}}},
                    {"nodeSelector": {"zone": "a"}},
                ]
            )
        )
        made += [pod(f"{app}-{number}", labels={"app": app}, **spec) for number in range(draw(st.integers(1, 5)))]
    return [*listed, *made]


@FEWER
@given(workloads())
def test_a_cluster_that_the_scheduler_made_has_no_pod_that_its_node_rejects(given_objects: list[Object]) -> None:
    result = simulate([*deepcopy(given_objects)])
    where = {f"{one.namespace}/{one.name}": one.node for one in result.placements}
    objects = deepcopy(given_objects)
    for one in objects:
        if one["kind"] == "Pod" and (on := where.get(f"default/{one['metadata']['name']}")):
            one["spec"]["nodeName"] = on
            one["status"] = {"phase": "Running"}
    audit = audited(objects)
    event(f"{len(where)} placed")
    assert not rejections(audit)
    assert not of_rule(audit, "node-overcommitted")
