"""PodTopologySpread at the edges of its rules (rules/topology part B): defaults, policies, odd selectors, constants."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from topology_kit import configuration
from topology_twins import HOST, ZONE
from topology_worlds import JSON, WEB, info, node, pod, pre_filtered, scores_of, verdicts, world

from kubesched.lab.conformance.world import World
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.nodes import NodeList
from kubesched.scheduler.plugins.compiled_constraints import CompiledConstraints

SPREAD = "PodTopologySpread"
MISSING = (
    "UNSCHEDULABLE_AND_UNRESOLVABLE: node(s) didn't match pod topology spread constraints (missing required label)"
)
SKEWED = "UNSCHEDULABLE: node(s) didn't match pod topology spread constraints"


def hard(key: str = ZONE, skew: int = 1, selector: JSON | None = None, **more: Any) -> JSON:
    """A required constraint on pods of app=web, or of another selector."""
    rule = {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule", **more}
    return {**rule, "labelSelector": {"matchLabels": WEB} if selector is None else selector}


def soft(key: str = ZONE, skew: int = 1, selector: JSON | None = None, **more: Any) -> JSON:
    return {**hard(key, skew, selector, **more), "whenUnsatisfiable": "ScheduleAnyway"}


def spread(*constraints: JSON, labels: JSON | None = None, **spec: Any) -> JSON:
    return pod("incoming", WEB if labels is None else labels, topologySpreadConstraints=list(constraints), **spec)


def running(**counts: int) -> list[JSON]:
    """Pods of app=web per node."""
    return [pod(f"{name}-{number}", WEB, name) for name, count in counts.items() for number in range(count)]


def of(obj: JSON, **meta: Any) -> JSON:
    return {**obj, "metadata": {**obj["metadata"], **meta}}


def tainted(name: str, effect: str, **labels: str) -> JSON:
    taint = {"key": "dedicated", "value": "x", "effect": effect}
    return {**node(name, **labels), "spec": {"taints": [taint], "unschedulable": True}}


# -- filter ------------------------------------------------------------------------------------------------

_SSD: JSON = {"nodeSelector": {"disk": "ssd"}}


@pytest.mark.parametrize(
    ("why", "incoming", "skewed"),
    [
        ("an excluded zone is no domain", spread(hard(), **_SSD), {"a"}),
        ("Honor is the default", spread(hard(nodeAffinityPolicy="Honor"), **_SSD), {"a"}),
        ("an empty zone is the minimum", spread(hard(nodeAffinityPolicy="Ignore"), **_SSD), {"a", "b"}),
        ("two domains are fewer than three", spread(hard(minDomains=3), **_SSD), {"a", "b"}),
        ("two domains are enough for two", spread(hard(minDomains=2), **_SSD), {"a"}),
        ("more skew allowed", spread(hard(skew=2, minDomains=3), **_SSD), {"a"}),
        ("it does not count itself", spread(hard(), labels={}, **_SSD), set()),
        ("every zone is excluded", spread(hard(), nodeSelector={"disk": "tape"}), set()),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_minimum_is_over_the_domains_that_are_included(why: str, incoming: JSON, skewed: set[str]) -> None:
    nodes = [node("a", zone="a", disk="ssd"), node("b", zone="b", disk="ssd"), node("c", zone="c")]
    assert verdicts(world(nodes, running(a=2, b=1)), SPREAD, incoming) == dict.fromkeys(sorted(skewed), SKEWED)


_TOLERATES: JSON = {"tolerations": [{"key": "dedicated", "operator": "Exists"}]}


@pytest.mark.parametrize(
    ("effect", "incoming", "skewed"),
    [
        ("NoSchedule", spread(hard()), True),
        ("NoSchedule", spread(hard(nodeTaintsPolicy="Ignore")), True),
        ("NoSchedule", spread(hard(nodeTaintsPolicy="Honor")), False),
        ("NoExecute", spread(hard(nodeTaintsPolicy="Honor")), False),
        ("PreferNoSchedule", spread(hard(nodeTaintsPolicy="Honor")), True),
        ("NoSchedule", spread(hard(nodeTaintsPolicy="Honor"), **_TOLERATES), True),
    ],
)
def test_an_empty_tainted_zone_is_a_domain_unless_taints_are_honoured(
    effect: str, incoming: JSON, skewed: bool
) -> None:
    nodes = [node("a", zone="a"), tainted("b", effect, zone="b")]
    assert verdicts(world(nodes, running(a=1)), SPREAD, incoming) == ({"a": SKEWED} if skewed else {})


def test_a_node_that_lacks_one_of_the_keys_counts_for_none_of_them() -> None:
    nodes = [node("n1", zone="a", rack="r1"), node("n2", zone="b", rack="r2"), node("n3", zone="b")]
    cluster = world(nodes, running(n1=1, n2=1, n3=5))
    assert verdicts(cluster, SPREAD, spread(hard(), hard("rack"))) == {"n3": MISSING}
    assert verdicts(cluster, SPREAD, spread(hard())) == {"n2": SKEWED, "n3": SKEWED}
    assert verdicts(cluster, SPREAD, spread(hard(), soft("rack"))) == {"n2": SKEWED, "n3": SKEWED}


def test_the_first_constraint_that_fails_says_why() -> None:
    nodes = [
        node("n1", zone="a", rack="r1"),
        node("n2", zone="b", rack="r2"),
        node("n3", zone="a"),
        node("n4", rack="r1"),
    ]
    cluster = world(nodes, running(n1=1))
    assert verdicts(cluster, SPREAD, spread(hard(), hard("rack"))) == {"n1": SKEWED, "n3": SKEWED, "n4": MISSING}
    assert verdicts(cluster, SPREAD, spread(hard("rack"), hard())) == {"n1": SKEWED, "n3": MISSING, "n4": SKEWED}


@pytest.mark.parametrize(
    ("why", "rule", "labels", "skewed"),
    [
        ("an empty selector counts no pod", hard(selector={}), WEB, False),
        ("an empty selector and label keys that the pod has", hard(selector={}, matchLabelKeys=["app"]), WEB, True),
        ("an empty selector and label keys that it lacks", hard(selector={}, matchLabelKeys=["hash"]), WEB, False),
        ("label keys narrow a selector", hard(matchLabelKeys=["tier"]), {**WEB, "tier": "x"}, False),
        ("label keys that it lacks are ignored", hard(matchLabelKeys=["tier"]), WEB, True),
        ("no selector", {**hard(), "labelSelector": None}, WEB, False),
        (
            "no selector, though there are label keys",
            {**hard(matchLabelKeys=["app"]), "labelSelector": None},
            WEB,
            False,
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_which_pods_a_constraint_counts(why: str, rule: JSON, labels: JSON, skewed: bool) -> None:
    cluster = world([node("a", zone="a"), node("b", zone="b")], running(a=3))
    assert verdicts(cluster, SPREAD, spread(rule, labels=labels)) == ({"a": SKEWED} if skewed else {})


def test_pods_being_deleted_and_pods_of_other_namespaces_do_not_count() -> None:
    leaving = of(pod("leaving", WEB, "a"), deletionTimestamp="2026-01-01T00:00:00Z")
    foreign = of(pod("foreign", WEB, "a"), namespace="other")
    assert verdicts(world([node("a", zone="a"), node("b", zone="b")], [leaving, foreign]), SPREAD, spread(hard())) == {}


@pytest.mark.parametrize(
    ("why", "rule", "other", "on", "delta", "skewed"),
    [
        ("a pod comes", hard(), pod("x", WEB), "b", 1, set()),
        ("a pod leaves", hard(), pod("x", WEB), "a", -1, set()),
        ("a pod of another namespace comes", hard(), of(pod("x", WEB), namespace="other"), "b", 1, {"a"}),
        ("a pod of another namespace leaves", hard(), of(pod("x", WEB), namespace="other"), "a", -1, {"a"}),
        ("a pod that is not counted comes", hard(), pod("x", {"app": "db"}), "b", 1, {"a"}),
        ("a pod comes to a node without the label", hard(), pod("x", WEB), "bare", 1, {"a"}),
        (
            "a pod being deleted leaves",
            hard(),
            of(pod("x", WEB), deletionTimestamp="2026-01-01T00:00:00Z"),
            "b",
            -1,
            {"a"},
        ),
        ("an empty selector counts who comes", hard(selector={}), pod("x", {}), "b", 1, {"b"}),
        ("an empty selector counts who leaves", hard(selector={}), pod("x", {}), "b", -1, {"a"}),
        ("no selector counts no pod", {**hard(), "labelSelector": None}, pod("x", WEB), "b", 1, set()),
        ("a pod comes to a node that is not included", hard(nodeTaintsPolicy="Honor"), pod("x", WEB), "b", 1, set()),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value else "",
)
def test_what_a_pod_that_comes_or_leaves_changes(
    why: str, rule: JSON, other: JSON, on: str, delta: int, skewed: set[str]
) -> None:
    second = tainted("b", "NoSchedule", zone="b") if "nodeTaintsPolicy" in rule else node("b", zone="b")
    cluster = world([node("a", zone="a"), second, node("bare")], running(a=1))
    incoming = spread(rule)
    state = pre_filtered(cluster, SPREAD, incoming)
    assert state is not None
    plugin: Any = cluster.frameworks["default-scheduler"].answering[SPREAD]
    where = cluster.cache.table.get(on)
    assert where is not None
    change = plugin.add_pod if delta > 0 else plugin.remove_pod
    assert change(state, info(incoming), info(other), where) is None
    want = {**dict.fromkeys(sorted(skewed), SKEWED), "bare": MISSING}
    assert verdicts(cluster, SPREAD, incoming, state) == want


def test_constraints_of_one_kind_switch_the_defaults_off_for_both() -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"selector": WEB}}
    cluster = world([node("a", zone="a", host="a")], [], [service])
    assert scores_of(cluster, SPREAD, pod("i", WEB), ["a"]) == {"a": 100}
    assert scores_of(cluster, SPREAD, spread(hard()), ["a"]) is None
    assert pre_filtered(cluster, SPREAD, spread(soft())) is None


# -- score -------------------------------------------------------------------------------------------------


def three(**zones: str) -> list[JSON]:
    return [node(name, host=name, **({"zone": zones[name]} if name in zones else {})) for name in ("n1", "n2", "n3")]


@pytest.mark.parametrize(
    ("skew", "want"), [(1, [0, 50, 100]), (3, [25, 62, 100]), (5, [40, 70, 100])], ids=["1", "3", "5"]
)
def test_more_skew_allowed_flattens_the_scores(skew: int, want: list[int]) -> None:
    cluster = world(three(), running(n1=4, n2=2))
    got = scores_of(cluster, SPREAD, spread(soft(HOST, skew)), ["n1", "n2", "n3"])
    assert got == dict(zip(("n1", "n2", "n3"), want, strict=True))


def test_with_no_pods_and_no_skew_every_node_is_best() -> None:
    assert scores_of(world(three(), []), SPREAD, spread(soft(HOST)), ["n1", "n2"]) == {"n1": 100, "n2": 100}


def test_domains_come_from_feasible_nodes_and_counts_from_all() -> None:
    nodes = [*three(n1="a", n2="b"), node("n5", host="n5", zone="b"), node("n6", host="n6", zone="c")]
    cluster = world(nodes, running(n1=2, n5=3, n6=5))
    incoming = spread(soft(ZONE, 1), soft(HOST, 2))
    assert scores_of(cluster, SPREAD, incoming, ["n1", "n2", "n3"]) == {"n1": 71, "n2": 100, "n3": 0}


def test_a_node_that_lacks_a_key_is_not_scored_and_makes_the_host_names_fewer() -> None:
    cluster = world(three(n1="a", n2="a"), running(n1=10, n2=9, n3=1))
    # With two hosts a pod weighs ln 4: 10 and 9 pods are 14 and 12. With three, ln 5: 16 and 14.
    rule = spread(soft(HOST), soft(ZONE, selector={"matchLabels": {"app": "none"}}))
    assert scores_of(cluster, SPREAD, rule, ["n1", "n2", "n3"]) == {"n1": 85, "n2": 100, "n3": 0}
    assert scores_of(cluster, SPREAD, spread(soft(HOST)), ["n1", "n2"]) == {"n1": 85, "n2": 100}
    assert scores_of(cluster, SPREAD, spread(soft(HOST)), ["n1", "n2", "n3"]) == {"n1": 12, "n2": 25, "n3": 100}


def test_inclusion_policies_leave_pods_out_of_zones_but_not_off_hosts() -> None:
    nodes = [tainted("n1", "NoSchedule", zone="a", host="n1"), node("n2", zone="b", host="n2")]
    cluster = world(nodes, running(n1=3))
    both = ["n1", "n2"]
    assert scores_of(cluster, SPREAD, spread(soft(ZONE)), both) == {"n1": 0, "n2": 100}
    assert scores_of(cluster, SPREAD, spread(soft(ZONE, nodeTaintsPolicy="Honor")), both) == {"n1": 100, "n2": 100}
    assert scores_of(cluster, SPREAD, spread(soft(HOST, nodeTaintsPolicy="Honor")), both) == {"n1": 0, "n2": 100}


@pytest.mark.parametrize(
    ("hosts", "pods", "rounded"),
    [
        (3, 1, 2),  # ln 5 = 1.609
        (4, 12, 22),  # 12 ln 6 = 21.5011
        (3, 32, 52),  # 32 ln 5 = 51.5020
        (2, 22, 30),  # 22 ln 4 = 30.4985
        (8, 38, 87),  # 38 ln 10 = 87.4982
    ],
)
def test_totals_are_rounded_to_the_nearest_number_before_they_are_compared(hosts: int, pods: int, rounded: int) -> None:
    names = [f"n{number}" for number in range(hosts)]
    cluster = world([node(name, host=name) for name in names], running(n0=pods))
    state, table = CycleState(), cluster.cache.table
    plugin: Any = cluster.frameworks["default-scheduler"].answering[SPREAD]
    incoming = info(spread(soft(HOST)))
    assert plugin.pre_score(state, incoming, NodeList(table, table.order())) is None
    rows = np.array([table.row_of(name) for name in names], np.int32)
    assert plugin.question(state, incoming, "score").scores(rows).tolist() == [rounded, *[0] * (hosts - 1)]


# -- defaults ----------------------------------------------------------------------------------------------


def lists(*constraints: JSON) -> JSON:
    kept = [{key: value for key, value in item.items() if key != "labelSelector"} for item in constraints]
    return configuration({}, {"defaultingType": "List", "defaultConstraints": kept})


_SERVICE = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"selector": WEB}}


def test_only_nodes_with_every_key_are_scored_by_a_list_but_all_by_the_system_defaults() -> None:
    nodes, there = three(n1="a", n2="b"), running(n1=1)
    system = world(nodes, there, [_SERVICE])
    listed = world(nodes, there, [_SERVICE], lists(soft(HOST, 3), soft(ZONE, 5)))
    everywhere = ["n1", "n2", "n3"]
    assert scores_of(system, SPREAD, pod("i", WEB), everywhere) == {"n1": 22, "n2": 55, "n3": 100}
    assert scores_of(listed, SPREAD, pod("i", WEB), everywhere) == {"n1": 66, "n2": 100, "n3": 0}


def test_an_empty_zone_name_and_no_zone_at_all_are_one_domain_of_the_system_defaults() -> None:
    nodes = [node("n1", zone="", host="n1"), node("n2", host="n2"), node("n3", zone="b", host="n3")]
    cluster = world(nodes, running(n1=1, n2=2, n3=5), [_SERVICE])
    # Two zones, the nameless one with 3 pods: n1 1.609 + 2 + 3 * 1.386 + 4, n2 3.219 + 2, n3 8.047 + 2 + 6.931 + 4.
    got = scores_of(cluster, SPREAD, pod("i", WEB), ["n1", "n2", "n3"])
    assert got == {"n1": 66, "n2": 100, "n3": 23}


def test_label_keys_and_domains_of_a_list() -> None:
    nodes = [node("a", zone="a"), node("b", zone="b")]
    there = [pod("e", WEB, "a")]
    incoming = pod("i", {**WEB, "hash": "1"})
    plain = world(nodes, there, [_SERVICE], lists(hard(matchLabelKeys=["hash"])))
    assert verdicts(plain, SPREAD, incoming) == {"a": SKEWED}, "the selector is the Service's, label keys add nothing"
    strict = world(nodes, running(a=1, b=1), [_SERVICE], lists(hard(minDomains=3)))
    assert verdicts(strict, SPREAD, incoming) == {"a": SKEWED, "b": SKEWED}


def _owner(kind: str, selector: JSON | None, version: str = "apps/v1") -> JSON:
    spec = {} if selector is None else {"selector": selector}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "o"}, "spec": spec}


def _service(selector: JSON | None, name: str = "s") -> JSON:
    return {**_SERVICE, "metadata": {"name": name}, "spec": {} if selector is None else {"selector": selector}}


def _owned(kind: str, version: str = "apps/v1", *, controller: bool = True) -> JSON:
    owner = {"apiVersion": version, "kind": kind, "name": "o", "uid": "u", "controller": controller}
    return of(pod("i", {"app": "web", "tier": "x"}), ownerReferences=[owner])


_X = {"matchLabels": {"tier": "x"}}


@pytest.mark.parametrize(
    ("why", "incoming", "objects", "counted"),
    [
        ("it has no owner", _owned("ReplicaSet"), [], None),
        ("a Service", pod("i", WEB), [_service(WEB)], {"web", "both"}),
        ("two Services", _owned("Job", "batch/v1"), [_service(WEB), _service({"tier": "x"}, "t")], {"both"}),
        ("a Service without a selector", pod("i", WEB), [_service(None)], None),
        ("a Service with an empty selector", pod("i", WEB), [_service({})], None),
        ("a Service whose selector is a list", pod("i", WEB), [{**_SERVICE, "spec": {"selector": ["app"]}}], None),
        (
            "a Service whose selector holds a number",
            pod("i", WEB),
            [{**_SERVICE, "spec": {"selector": {"app": 1}}}],
            None,
        ),
        ("a Service whose spec is a text", pod("i", WEB), [{**_SERVICE, "spec": "web"}], None),
        ("a Service of other pods", pod("i", WEB), [_service({"app": "web", "tier": "x"})], None),
        ("a ReplicaSet", _owned("ReplicaSet"), [_owner("ReplicaSet", _X)], {"x", "both"}),
        ("a StatefulSet", _owned("StatefulSet"), [_owner("StatefulSet", _X)], {"x", "both"}),
        ("a StatefulSet and a Service", _owned("StatefulSet"), [_owner("StatefulSet", _X), _service(WEB)], {"both"}),
        (
            "a ReplicaSet that does not control it",
            _owned("ReplicaSet", controller=False),
            [_owner("ReplicaSet", _X)],
            None,
        ),
        ("a ReplicaSet by another version", _owned("ReplicaSet", "v1"), [_owner("ReplicaSet", _X)], None),
        ("a ReplicaSet without a selector", _owned("ReplicaSet"), [_owner("ReplicaSet", None)], None),
        ("a ReplicaSet with an empty selector", _owned("ReplicaSet"), [_owner("ReplicaSet", {})], None),
        (
            "a ReplicaSet with a selector that cannot be read, and a Service",
            _owned("ReplicaSet"),
            [_owner("ReplicaSet", {"matchExpressions": [{"key": "tier", "operator": "Like"}]}), _service(WEB)],
            {"web", "both"},
        ),
        (
            "a ReplicationController",
            _owned("ReplicationController", "v1"),
            [_owner("ReplicationController", {"tier": "x"}, "v1")],
            {"x", "both"},
        ),
        (
            "a ReplicationController and a Service",
            _owned("ReplicationController", "v1"),
            [_owner("ReplicationController", {"tier": "x"}, "v1"), _service(WEB)],
            {"both"},
        ),
        (
            "a ReplicationController that asks for another value than a Service",
            _owned("ReplicationController", "v1"),
            [_owner("ReplicationController", {"app": "db"}, "v1"), _service(WEB)],
            {"db"},
        ),
        (
            "a ReplicaSet that asks for another value than a Service",
            _owned("ReplicaSet"),
            [_owner("ReplicaSet", {"matchLabels": {"app": "db"}}), _service(WEB)],
            set(),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_which_pods_belong_together(why: str, incoming: JSON, objects: list[JSON], counted: set[str] | None) -> None:
    """One pod of each sort on a node of its own: those that score less than an empty node are counted."""
    sorts = {"web": WEB, "x": {"tier": "x"}, "both": {"app": "web", "tier": "x"}, "db": {"app": "db"}}
    nodes = [node(name, host=name) for name in (*sorts, "empty")]
    cluster: World = world(nodes, [pod(name, labels, name) for name, labels in sorts.items()], objects)
    got = scores_of(cluster, SPREAD, incoming, [*sorts, "empty"])
    assert (None if got is None else {name for name, score in got.items() if score < got["empty"]}) == counted


def test_in_a_small_cluster_compiled_pods_count_by_more_than_their_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubesched.scheduler.plugins.compiled_constraints._LEAST_KEPT", 4)
    monkeypatch.setattr(
        "kubesched.scheduler.plugins.compiled_constraints._BUDGET", 100 << 10
    )  # a pod takes 4 kB with few nodes

    def compiled() -> int:
        gc.collect()
        return sum(type(one) is CompiledConstraints for one in gc.get_objects())

    cluster, before = world([node("n1", zone="a")], []), compiled()
    for number in range(80):
        pre_filtered(cluster, SPREAD, spread(hard(), labels={"number": str(number)}))
    assert 4 < compiled() - before <= 25
