"""Findings of audits, one rule after the other: what is found, and what is not."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from audit_kit import HOSTNAME, REQUIRED, Object, audited, names, node, of_rule, pod, rejections
from msgspec.structs import replace

from kubesched.explain.audit import LEVELS
from kubesched.explain.audit.rules import PLUGINS, RULES
from kubesched.scheduler.config import FeatureGates, default_config
from kubesched.scheduler.config.types import Extender, ExtenderManagedResource
from kubesched.scheduler.framework import Plugin, Status
from kubesched.scheduler.loading import enable_plugins
from kubesched.scheduler.plugins import in_tree_registry

WEB = {"app": "web"}
SPREAD = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": WEB},
}
APART = {"podAntiAffinity": {REQUIRED: [{"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": WEB}}]}}
BY_DB = {"podAffinity": {REQUIRED: [{"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}}}]}}


def healthy() -> dict[str, Object]:
    """Three nodes in two zones, and pods with rules of every kind, by name; nothing is wrong."""
    listed = [
        node("n1", zone="a", disk="ssd"),
        node("n2", zone="a", disk="hdd"),
        node("n3", zone="b", disk="ssd"),
        pod("web-1", "n1", labels=WEB, owner="web", topologySpreadConstraints=[SPREAD], affinity=APART),
        pod("web-2", "n3", labels=WEB, owner="web", topologySpreadConstraints=[SPREAD], affinity=APART),
        pod("fast", "n1", nodeSelector={"disk": "ssd"}),
        pod("db", "n2", labels={"app": "db"}),
        pod("near", "n2", affinity=BY_DB),
        pod("port", "n2", cpu="100m"),
    ]
    listed[-1]["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    return {one["metadata"]["name"]: one for one in listed}


def labels(**more: str) -> Callable[[Object], None]:
    return lambda one: one["metadata"]["labels"].update(more)


def spec(**more: Any) -> Callable[[Object], None]:
    return lambda one: one["spec"].update(more)


def allocatable(**more: str) -> Callable[[Object], None]:
    return lambda one: one["status"]["allocatable"].update(more)


def ports(one: Object) -> None:
    one["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]


MUTATIONS: list[tuple[str, str, Callable[[Object], None], set[tuple[str, str]]]] = [
    ("nothing", "n1", labels(), set()),
    ("a label that nobody asks for", "n1", labels(colour="red"), set()),
    ("another disk", "n1", labels(disk="hdd"), {("fast", "NodeAffinity")}),
    ("a taint", "n2", spec(taints=[{"key": "x", "effect": "NoSchedule"}]), {(name, "TaintToleration") for name in ("db", "near", "port")}),
    ("a taint that only asks", "n2", spec(taints=[{"key": "x", "effect": "PreferNoSchedule"}]), set()),
    ("a cordon", "n3", spec(unschedulable=True), {("web-2", "NodeUnschedulable")}),
    ("less cpu", "n1", allocatable(cpu="1500m"), {("web-1", "NodeResourcesFit"), ("fast", "NodeResourcesFit")}),
    ("fewer pods", "n2", allocatable(pods="2"), {(name, "NodeResourcesFit") for name in ("db", "near", "port")}),
    ("the other zone", "n2", labels(zone="b"), set()),
    ("a pod of the same port", "near", ports, {("near", "NodePorts"), ("port", "NodePorts")}),
    ("a neighbour with the label", "fast", labels(app="web"), {("web-1", "InterPodAffinity"), ("fast", "InterPodAffinity")}),
    ("the neighbour gone to another zone", "db", spec(nodeName="n3"), {("near", "InterPodAffinity")}),
    ("a move into one zone", "web-2", spec(nodeName="n2"), {("web-1", "PodTopologySpread"), ("web-2", "PodTopologySpread")}),
]  # fmt: skip


@pytest.mark.parametrize(("what", "name", "change", "expected"), MUTATIONS, ids=[case[0] for case in MUTATIONS])
def test_a_change_makes_exactly_the_findings_that_it_should(
    what: str, name: str, change: Callable[[Object], None], expected: set[tuple[str, str]]
) -> None:
    cluster = deepcopy(healthy())
    change(cluster[name])
    audit = audited(cluster.values())
    assert {(one.removeprefix("default/"), plugin) for one, plugin, _ in rejections(audit)} == expected
    others = {"pod-rejected-by-its-node", "node-overcommitted"}
    assert {one.rule for one in audit.findings} <= others
    assert bool(of_rule(audit, "node-overcommitted")) == (what in ("less cpu", "fewer pods"))


def test_equal_pods_are_one_finding_with_the_numbers_of_the_first() -> None:
    cluster = deepcopy(healthy())
    labels(zone="a")(cluster["n3"])
    cluster["n4"] = node("n4", zone="b")
    (found,) = of_rule(audited(cluster.values()), "pod-rejected-by-its-node")
    assert (found.workload, found.plugin, found.count, found.node_count) == (
        "ReplicaSet/web",
        "PodTopologySpread",
        2,
        2,
    )
    assert found.objects == ["default/web-1", "default/web-2"]
    assert found.source == "rules/topology §B.6"
    assert found.details[0].startswith("default/web-1: pods with app=web by zone: ")
    assert "2 pods of ReplicaSet/web in default, on 2 nodes, would not be placed there again" in found.message


def test_lists_of_names_and_findings_are_cut_unless_the_audit_is_wide() -> None:
    tainted = node("n", cpu="1000", taints=["x:NoSchedule"])
    tainted["status"]["allocatable"]["pods"] = "1000"
    cluster = [tainted, *(pod(f"p{number:03}", "n", owner=f"w{number}") for number in range(120))]
    cluster += [pod(f"q{number}", "n", owner="many") for number in range(9)]
    audit = audited(cluster, is_wide=False)
    assert len(audit.findings) == 100
    assert (audit.findings[0].count, len(audit.findings[0].objects)) == (9, 5)
    assert audit.totals.warning == 121
    (omitted,) = audit.omitted
    assert (omitted.rule, omitted.findings, omitted.objects) == ("pod-rejected-by-its-node", 21, 21)
    wide = audited(cluster)
    assert (len(wide.findings), len(wide.findings[0].objects), wide.omitted) == (121, 9, [])


def test_pods_that_no_scheduler_placed_or_that_leave_are_not_judged() -> None:
    cluster = [
        node("n", taints=["x:NoSchedule"]),
        pod("static", "n", metadata={"annotations": {"kubernetes.io/config.mirror": "1"}}),
        pod("leaving", "n", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        pod("done", "n", status={"phase": "Succeeded"}),
        pod("strange", "n", schedulerName="other"),
    ]
    audit = audited(cluster)
    assert not rejections(audit)
    assert audit.unchecked == ['1 pod of schedulerName "other": no profile has this name']


def test_pending_pods_of_a_scheduler_without_a_profile_are_found() -> None:
    waiting = [
        pod(name, "", schedulerName=scheduler)
        for name, scheduler in (("a", "other"), ("b", "other"), ("c", "default-scheduler"))
    ]
    for cluster in ([node("n"), *waiting], waiting):
        [found] = [one for one in audited(cluster).findings if one.rule == "pod-unknown-scheduler"]
        assert found.objects == ["default/a", "default/b"]
        assert found.message.startswith('2 pods for the scheduler "other", and no profile has this name')


class Fails(Plugin):
    """Fails for the pods of one name, after a plugin that rejects them."""

    name = "Fails"

    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        if pod.name == "bad":
            raise ValueError("no such table")
        return None


class Slow(Plugin):
    """Passes every node, and signs no pod."""

    name = "Slow"

    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        return None


def with_plugin(plugin: type[Plugin]) -> dict[str, Any]:
    registry = in_tree_registry()
    registry.register(plugin)
    return {"registry": registry, "config": enable_plugins(default_config(), [plugin.name])}


def test_a_plugin_that_fails_is_named_and_the_others_are_asked() -> None:
    cluster = [node("n", taints=["x:NoSchedule"]), pod("bad", "n"), pod("good", "n")]
    audit = audited(cluster, **with_plugin(Fails))
    (failed,) = of_rule(audit, "plugin-failed")
    assert (failed.plugin, failed.objects, failed.level) == ("Fails", ["default/bad"], "error")
    assert "no such table" in failed.message
    assert {name for name, _, _ in rejections(audit)} == {"default/bad", "default/good"}


def test_pods_bound_to_nodes_that_do_not_exist_are_found() -> None:
    audit = audited([node("n"), pod("p", "gone"), pod("q", "gone"), pod("r", "n")])
    (found,) = of_rule(audit, "node-missing")
    assert (found.objects, found.nodes) == (["default/p", "default/q"], ["gone"])


def test_resources_that_devices_stand_for_are_not_overcommitted() -> None:
    """A node that does not list a resource has it by its devices, if a class of devices says so."""
    asking = pod("p", "n")
    asking["spec"]["containers"][0]["resources"] = {
        "requests": {"example.com/gpu": "1"},
        "limits": {"example.com/gpu": "1"},
    }
    assert names(audited([node("n"), asking]), "node-overcommitted") == {"n"}
    by_class = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu"},
        "spec": {"extendedResourceName": "example.com/gpu"},
    }
    assert not of_rule(audited([node("n"), asking, by_class]), "node-overcommitted")


@pytest.mark.parametrize(
    ("given", "is_found"),
    [
        (pod("p", cpu="5"), True),
        (pod("p", cpu="4"), False),
        (pod("p", nodeSelector={"disk": "tape"}), True),
        (pod("p", affinity=BY_DB), False),
        (pod("p", schedulerName="other", cpu="99"), False),
        (pod("p", schedulingGates=[{"name": "g"}], cpu="99"), True),
    ],
    ids=["too large", "the node is full", "no such label", "no neighbour yet", "another scheduler", "gated"],
)
def test_pods_that_no_empty_node_takes_can_never_be_scheduled(given: Object, is_found: bool) -> None:
    audit = audited([node("n"), pod("full", "n", cpu="4"), given])
    assert names(audit, "pod-never-schedulable") == ({"p"} if is_found else set())


def test_members_of_a_pod_group_that_no_node_takes_are_one_finding_about_their_group() -> None:
    spec = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    version = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup"}
    gang = {**version, "metadata": {"name": "g", "namespace": "default"}, "spec": spec}
    members = [
        pod(f"g-{number}", cpu=cpu, labels={"index": str(number)}, schedulingGroup={"podGroupName": "g"})
        for number, cpu in enumerate(("9", "9", "1"))
    ]
    objects = [node("n"), pod("full", "n", cpu="4"), gang, *members, pod("single", cpu="9")]
    gates = FeatureGates.of(dict.fromkeys(("GenericWorkload", "GangScheduling"), True))
    group, single = sorted(of_rule(audited(objects, gates=gates), "pod-never-schedulable"), key=lambda one: -one.count)
    assert group.message == (
        "2 members of pod group default/g: none of 1 node would take one even without any other pod"
    )
    assert group.objects == ["default/g-0", "default/g-1"]
    assert group.details[0].startswith("gang of 3 waits: 0 fit")
    assert single.objects == ["default/single"]
    assert len(of_rule(audited(objects), "pod-never-schedulable")) == 3  # without the gates nothing is about groups


def test_a_nomination_is_stale_if_the_node_rejects_the_pod_without_those_that_leave() -> None:
    def nominated(name: str, on: str) -> Object:
        return pod(name, cpu="3", status={"phase": "Pending", "nominatedNodeName": on})

    leaving = {"deletionTimestamp": "2026-01-01T00:00:00Z", "creationTimestamp": "2026-01-01T00:00:00Z"}
    cluster = [
        node("soon"),
        pod("victim", "soon", cpu="3", metadata=leaving),
        node("full"),
        pod("stays", "full", cpu="3"),
        nominated("good", "soon"),
        nominated("bad", "full"),
        nominated("lost", "gone"),
    ]
    found = of_rule(audited(cluster), "nomination-stale")
    assert {(one.objects[0], one.plugin, one.reason) for one in found} == {
        ("default/bad", "NodeResourcesFit", "Insufficient cpu"),
        ("default/lost", "", "there is no such node"),
    }


def test_pods_that_should_be_gone_hold_resources() -> None:
    def leaving(name: str, due: str, **more: Any) -> Object:
        return pod(name, "n", metadata={"creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": due, **more})

    cluster = [
        node("n"),
        leaving("old", "2026-01-01T10:00:00Z", finalizers=["example.com/keep"]),
        leaving("new", "2026-01-01T11:55:00Z"),
        pod("now", "n", metadata={"creationTimestamp": "2026-01-01T12:00:00Z"}),
    ]
    audit = audited(cluster)
    assert audit.as_of == "2026-01-01T12:00:00Z"
    (found,) = of_rule(audit, "pod-stuck-terminating")
    assert found.objects == ["default/old"]
    assert "for up to 2 h, and holding 1 cpu and 0 memory; finalizers: example.com/keep" in found.message
    assert names(audited(cluster, older_than=60), "pod-stuck-terminating") == {"old", "new"}


def at(hour: int, **more: Any) -> Object:
    return {"creationTimestamp": f"2026-01-01T{hour:02}:00:00Z", **more}


def since(hour: int) -> Object:
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": f"2026-01-01T{hour:02}:00:00Z"}
    return {"phase": "Running", "conditions": [condition]}


def test_a_priority_starves_if_equal_pods_of_a_higher_one_were_placed_since() -> None:
    cluster = [
        node("n"),
        pod("low", metadata=at(8), priority=1),
        pod("later", metadata=at(11), priority=1),
        pod("larger", cpu="2", metadata=at(8), priority=1),
        pod("before", "n", metadata=at(7), priority=9, status=since(7)),
        pod("after", "n", metadata=at(9), priority=9, status=since(10)),
        pod("equal", "n", metadata=at(9), priority=1, status=since(10)),
        pod("now", "n", cpu="100m", metadata=at(12), priority=9, status=since(12)),
    ]
    (found,) = of_rule(audited(cluster), "priority-starves")
    assert found.objects == ["default/low"]
    assert "with priority 1, pending for up to 240 min; since then 1 pod of higher priority" in found.message
    assert not of_rule(audited(cluster, older_than=5 * 3600), "priority-starves")


def test_pods_that_never_preempt_and_classes_that_changed_are_named() -> None:
    changed = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "c"}, "value": 7}
    cluster = [
        node("n"),
        changed,
        pod("waits", priority=5, preemptionPolicy="Never"),
        pod("runs", "n", priority=3, priorityClassName="c"),
        pod("same", "n", priority=7, priorityClassName="c"),
    ]
    audit = audited(cluster)
    (waits,) = of_rule(audit, "priority-never-preempts")
    assert (waits.objects, waits.message.endswith("pods of lower priority on nodes: 1")) == (["default/waits"], True)
    (differs,) = of_rule(audit, "priority-differs")
    assert (differs.objects, "1 pod of class c with priority 3" in differs.message) == (["default/runs"], True)


def test_volumes_and_claims_that_no_node_reaches_are_found() -> None:
    def volume(name: str, zone: str, claim: str = "c") -> Object:
        terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "csi": {"driver": "d", "volumeHandle": name},
                "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
                **({"claimRef": {"namespace": "default", "name": claim}} if claim else {}),
            },
        }

    audit = audited([node("n", zone="a"), volume("here", "a"), volume("gone", "z"), volume("free", "z", claim="")])
    assert names(audit, "volume-unreachable") == {"gone"}


def test_settings_that_cost_time_are_named() -> None:
    config = replace(
        default_config(),
        percentage_of_nodes_to_score=50,
        extenders=(
            Extender(url_prefix="http://all", filter_verb="f"),
            Extender(url_prefix="http://some", managed_resources=(ExtenderManagedResource(name="example.com/x"),)),
        ),
    )
    audit = audited([node("n")], config=config)
    assert names(audit, "nodes-sampled") == {"default-scheduler"}
    every, some = of_rule(audit, "extender-called")
    assert every.message == "extender http://all is called over HTTP for every pod"
    assert some.message.endswith("for pods that ask for example.com/x")
    assert "nodes that extender http://all rejects: it is not called" in audit.unchecked


def test_pods_that_a_plugin_cannot_sign_need_full_scans() -> None:
    cluster = [node("n"), pod("runs", "n"), pod("waits")]
    assert not of_rule(audited(cluster), "pods-scanned-in-full")
    (found,) = of_rule(audited(cluster, **with_plugin(Slow)), "pods-scanned-in-full")
    assert (found.plugin, found.objects, found.reason) == (
        "Slow",
        ["default/runs", "default/waits"],
        "Slow cannot sign them",
    )


def test_many_signatures_in_one_workload_and_selectors_of_namespaces_are_named() -> None:
    cluster = [node("n", cpu="100")]
    cluster += [pod(f"p{number}", "n", cpu=f"{number + 1}m", owner="w") for number in range(7)]
    cluster += [pod(f"q{number}", "n", owner="equal") for number in range(7)]
    (found,) = of_rule(audited(cluster, signatures=6), "signatures-many")
    assert (found.workload, found.count) == ("ReplicaSet/w", 7)
    assert "with 7 distinct signatures" in found.message
    assert not of_rule(audited(cluster, signatures=7), "signatures-many")
    term = {"topologyKey": "zone", "namespaceSelector": {}, "labelSelector": {"matchLabels": WEB}}
    wide = pod("wide", "n", affinity={"podAntiAffinity": {REQUIRED: [term]}})
    narrow = pod("narrow", "n", affinity=APART)
    assert names(audited([node("n"), wide, narrow]), "namespace-selectors") == {"wide"}


def test_an_empty_cluster_has_no_findings() -> None:
    audit = audited([node("n")])
    assert (audit.findings, audit.unchecked, audit.totals.nodes) == ([], [], 1)
    without_nodes = audited([pod("p"), pod("q", "n")])
    assert (without_nodes.findings, without_nodes.unchecked) == ([], ["nodes: there is none in the cluster as read"])


def test_each_default_filter_has_a_source_and_an_advice() -> None:
    registry = in_tree_registry()
    filters = {name for name, points in registry.capabilities().items() if "filter" in points}
    assert filters <= set(PLUGINS)
    assert all(rule.source and rule.advice for rule in RULES.values())


def test_a_dump_without_claims_says_nothing_about_volumes() -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    claims = [{"name": "d", "resourceClaimName": "d"}]
    cluster = [
        node("n"),
        pod("p", "n", volumes=volumes),
        pod("q", "n", resourceClaims=claims),
        pod("w", volumes=volumes),
    ]
    audit = audited(cluster)
    assert {one.rule for one in audit.findings} == {"pods-scanned-in-full"}
    assert (
        "VolumeBinding for 1 pod: there is no PersistentVolumeClaim and PersistentVolume in the cluster as read"
        in audit.unchecked
    )
    assert "DynamicResources for 1 pod: there is no ResourceClaim in the cluster as read" in audit.unchecked


def test_a_volume_whose_node_lost_the_label_is_a_rejection() -> None:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
    volume: Object = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "v"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "d", "volumeHandle": "v"},
            "claimRef": {"namespace": "default", "name": "c", "uid": "c"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        },
        "status": {"phase": "Bound"},
    }
    claim: Object = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "c",
            "namespace": "default",
            "uid": "c",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        },
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeName": "v"},
        "status": {"phase": "Bound"},
    }
    running = pod("p", "n", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])
    good = audited([node("n", zone="a"), volume, claim, running])
    assert not rejections(good)
    assert not of_rule(good, "volume-unreachable")
    (scanned,) = of_rule(good, "pods-scanned-in-full")
    assert scanned.advice == "nothing: pods with volumes or device claims are looked at one by one"
    waiting = pod("w", volumes=running["spec"]["volumes"])
    bad = audited([node("n", zone="b"), volume, claim, running, waiting])
    assert not of_rule(bad, "pod-never-schedulable")
    assert {(name, plugin) for name, plugin, _ in rejections(bad)} == {("default/p", "VolumeBinding")}
    assert names(bad, "volume-unreachable") == {"v"}


def test_notes_are_cut_unless_the_audit_is_wide() -> None:
    cluster = [node("n"), *(pod(f"p{number}", "n", schedulerName=f"s{number}") for number in range(60))]
    assert audited(cluster, is_wide=False).unchecked[-1] == "10 more"
    assert len(audited(cluster).unchecked) == 60


def test_the_page_names_each_rule_with_its_level() -> None:
    page = (Path(__file__).parents[2] / "docs" / "audit.md").read_text()
    rows = [line.split("|")[1:3] for line in page.splitlines() if line.startswith("| `")]
    levels = {name.strip(" `"): level.strip() for name, level in rows if level.strip() in LEVELS}
    assert levels == {name: rule.level for name, rule in RULES.items()}
    assert list(levels) == list(RULES)
