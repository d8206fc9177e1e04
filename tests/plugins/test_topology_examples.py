"""The topology plugins by example: worked cases of the rules, events, signatures, and what reaches them from a cluster."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from topology_kit import namespace
from topology_twins import HOST, ZONE
from topology_worlds import (
    AWAY,
    EXISTING,
    FOUR,
    JSON,
    NEAR,
    PREFERRED,
    WEB,
    affinity,
    anti,
    info,
    node,
    pod,
    rejections,
    scores,
    term,
    verdicts,
    world,
)

from builders import create_nodes
from kubesched.api.decode import from_builtins
from kubesched.api.kinds import KINDS, NAMESPACES, PODS
from kubesched.api.types import LabelSelectorRequirement, Namespace, Node
from kubesched.base.times import RealClock
from kubesched.cluster.store import Store
from kubesched.lab.conformance.world import complete
from kubesched.lab.simulate.embedded import Embedded
from kubesched.scheduler.cache.check import check_cache
from kubesched.scheduler.config import default_config
from kubesched.scheduler.framework.enqueue import registrations
from kubesched.scheduler.framework.events import ActionType, ClusterEvent, EventResource, QueueingHint
from kubesched.scheduler.plugins import in_tree_registry
from kubesched.scheduler.plugins.topology_constraints import SOFT


@pytest.mark.parametrize(
    ("incoming", "want"),
    [
        (pod("no rules", WEB), {"n3": EXISTING}),
        (pod("near web", WEB, affinity=affinity(term(ZONE, app="web"))), {"n3": NEAR, "n4": NEAR}),
        (pod("away from web", WEB, affinity=anti(term(HOST, app="web"))), {"n1": AWAY, "n3": EXISTING}),
        (
            pod("near what is not there", WEB, affinity=affinity(term(ZONE, app="web"), term(ZONE, tier="x"))),
            dict.fromkeys(("n1", "n2", "n3", "n4"), NEAR),
        ),
        (pod("first of its kind", {"app": "cache"}, affinity=affinity(term(ZONE, app="cache"))), {"n4": NEAR}),
    ],
    ids=lambda value: value["metadata"]["name"] if "metadata" in value else "",
)
def test_required_rules_between_pods(incoming: JSON, want: dict[str, str]) -> None:
    existing = [pod("x", WEB, "n1"), pod("y", {"app": "db"}, "n3", affinity=anti(term(ZONE, app="web")))]
    assert rejections(world(FOUR, existing), incoming) == want


def test_preferred_rules_between_pods_score_both_ways() -> None:
    existing = [
        pod("p1", WEB, "n1"),
        pod("p2", WEB, "n3"),
        pod("p3", WEB, "n3"),
        pod("p4", {}, "n2", affinity=affinity(term(ZONE, app="in"))),
    ]
    soft = {
        "podAffinity": {PREFERRED: [{"weight": 10, "podAffinityTerm": term(ZONE, app="web")}]},
        "podAntiAffinity": {PREFERRED: [{"weight": 5, "podAffinityTerm": term(HOST, app="web")}]},
    }
    got = scores(world(FOUR, existing), pod("i", {"app": "in"}, affinity=soft), "InterPodAffinity")
    assert got == {"n1": 54, "n2": 100, "n3": 90, "n4": 0}


def test_a_selector_that_excludes_namespaces_does_not_reach_into_them() -> None:
    rule = {
        **term(ZONE, app="web"),
        "namespaceSelector": {"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["live"]}]},
    }
    there = pod("x", WEB, "n1")
    there["metadata"]["namespace"] = "prod"
    cluster = world(FOUR, [there], [namespace("default", ""), namespace("prod", "live")])
    assert rejections(cluster, pod("i", affinity=anti(rule))) == {}
    cluster.cache.set_namespace(from_builtins(namespace("prod", "test"), Namespace))
    assert rejections(cluster, pod("i", affinity=anti(rule))) == {"n1": AWAY, "n2": AWAY}


SERVICE = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"selector": WEB}}
REPLICAS = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "metadata": {"name": "rs"},
    "spec": {"selector": {"matchLabels": WEB}},
}


def owned(name: str, kind: str = "ReplicaSet", owner: str = "rs") -> JSON:
    found = pod(name, WEB)
    version = "v1" if kind == "ReplicationController" else "apps/v1"
    found["metadata"]["ownerReferences"] = [
        {"apiVersion": version, "kind": kind, "name": owner, "uid": "u", "controller": True}
    ]
    return found


@pytest.mark.parametrize(
    ("incoming", "objects", "spread"),
    [
        (pod("of a service", WEB), [SERVICE], True),
        (pod("of another service", {"app": "db"}), [SERVICE], False),
        (pod("of nothing", WEB), [], False),
        (owned("of a replica set"), [REPLICAS], True),
        (owned("of an unknown replica set"), [], False),
        (owned("of a deployment", "Deployment"), [REPLICAS], False),
    ],
    ids=lambda value: value["metadata"]["name"] if isinstance(value, dict) else "",
)
def test_pods_without_constraints_are_spread_with_those_that_belong_to_them(
    incoming: JSON, objects: list[JSON], spread: bool
) -> None:
    existing = [pod(f"e{number}", WEB, "n1") for number in range(3)] + [pod("e3", WEB, "n3")]
    got = scores(world(FOUR, existing, objects), incoming, "PodTopologySpread")
    assert got == ({"n1": 12, "n2": 43, "n3": 56, "n4": 100} if spread else None)


def test_a_service_that_goes_or_changes_is_noticed() -> None:
    existing = [pod("e", WEB, "n1")]
    cluster = world(FOUR, existing, [SERVICE, REPLICAS])
    assert scores(cluster, pod("i", WEB), "PodTopologySpread") is not None
    cluster.objects.put("services", "default/s", {**SERVICE, "spec": {"selector": {"app": "db"}}})
    assert scores(cluster, pod("i", WEB), "PodTopologySpread") is None
    assert scores(cluster, owned("i"), "PodTopologySpread") is not None
    for key in list(cluster.objects.informed("replicasets")):
        cluster.objects.remove("replicasets", key)
    assert scores(cluster, owned("i"), "PodTopologySpread") is None


def spread_args(**args: Any) -> JSON:
    plugin = {"name": "PodTopologySpread", "args": args}
    profile = {"schedulerName": "default-scheduler", "pluginConfig": [plugin]}
    return {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": [profile]}


def test_pods_that_cannot_be_spread_do_not_concern_the_plugin() -> None:
    hard = {
        "topologyKey": ZONE,
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": WEB},
    }
    for config, services, constraints, concerned in (
        (None, [], [], False),
        (None, [SERVICE], [], True),
        (spread_args(defaultingType="List"), [SERVICE], [], False),
        (spread_args(defaultingType="List"), [], [hard], True),
    ):
        cluster = world(FOUR, [], services, config)
        plugin: Any = cluster.frameworks["default-scheduler"].plugins["PodTopologySpread"]
        incoming = info(pod("i", WEB, topologySpreadConstraints=constraints))
        assert (plugin.ask(incoming, cluster.cache.table) is not None) is concerned


def test_default_constraints_of_a_list_can_be_hard() -> None:
    constraint = {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    config = spread_args(defaultingType="List", defaultConstraints=[constraint])
    cluster = world(FOUR, [pod("e", WEB, "n1")], [SERVICE], config)
    skewed = "node(s) didn't match pod topology spread constraints"
    want = {"n1": skewed, "n2": skewed, "n4": f"{skewed} (missing required label)"}
    assert rejections(cluster, pod("i", WEB)) == want


def hint(plugin: str, waiting: JSON, event: ClusterEvent, old: Any, new: Any) -> bool:
    """Return True if the event wakes the pod."""
    registered: Any = registrations(world(FOUR, []).frameworks["default-scheduler"].plugins[plugin])
    answers = [item.hint(info(waiting), old, new) for item in registered if item.event.matches(event) and item.hint]
    return QueueingHint.QUEUE in answers


def test_pods_that_help_wake_a_waiting_pod() -> None:
    added, deleted, relabelled = (
        ClusterEvent(EventResource.ASSIGNED_POD, action)
        for action in (ActionType.ADD, ActionType.DELETE, ActionType.UPDATE_POD_LABEL)
    )
    web, db, placed_nowhere = (
        info(obj).pod for obj in (pod("w", WEB, "n1"), pod("w", {"app": "db"}, "n1"), pod("n", WEB))
    )
    near, away = pod("i", affinity=affinity(term(ZONE, app="web"))), pod("i", affinity=anti(term(ZONE, app="web")))
    carrier = info(pod("c", {}, "n1", affinity=anti(term(ZONE, app="web")))).pod
    for waiting, event, old, new, wakes in (
        (near, added, None, web, True),
        (near, added, None, db, False),
        (near, added, None, placed_nowhere, False),
        (near, relabelled, db, web, True),
        (near, deleted, web, None, False),
        (away, deleted, web, None, True),
        (away, deleted, db, None, False),
        (away, relabelled, web, db, True),
        (pod("i", WEB), deleted, carrier, None, True),
        (pod("i", {"app": "db"}), deleted, carrier, None, False),
    ):
        assert hint("InterPodAffinity", waiting, event, old, new) is wakes


def test_nodes_that_help_wake_a_waiting_pod() -> None:
    label = ClusterEvent(EventResource.NODE, ActionType.UPDATE_NODE_LABEL)
    bare, zoned, other = (
        from_builtins(complete(obj, "Node"), Node) for obj in (node("n"), node("n", zone="a"), node("n", zone="b"))
    )
    hard = {
        "topologyKey": ZONE,
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": WEB},
    }
    near, away = pod("i", affinity=affinity(term(ZONE, app="web"))), pod("i", affinity=anti(term(ZONE, app="web")))
    spread = pod("i", WEB, topologySpreadConstraints=[hard])
    for plugin, waiting, old, new, wakes in (
        ("InterPodAffinity", near, bare, zoned, True),
        ("InterPodAffinity", near, zoned, bare, False),
        ("InterPodAffinity", away, zoned, bare, True),
        ("InterPodAffinity", away, bare, zoned, False),
        ("PodTopologySpread", spread, bare, zoned, True),
        ("PodTopologySpread", spread, zoned, other, True),
        ("PodTopologySpread", spread, zoned, zoned, False),
    ):
        assert hint(plugin, waiting, label, old, new) is wakes


def test_a_running_scheduler_spreads_the_pods_of_a_service_and_receives_namespaces() -> None:
    async def run() -> None:
        cluster = Embedded(default_config(), in_tree_registry(), clock=RealClock(), seed=1, kubelets=False)
        create_nodes(cluster.store, 6, zones=["a", "b", "c"])
        services = next(kind for kind in KINDS if kind.plural == "services")
        await cluster.start()
        manifest = {**namespace("default", "live"), "metadata": {"name": "labelled", "labels": {"env": "live"}}}
        await cluster.client.create(NAMESPACES, "", manifest)
        port = {"protocol": "TCP", "port": 80}
        await cluster.client.create(services, "default", {**SERVICE, "spec": {"selector": WEB, "ports": [port]}})
        for _ in range(10):
            await asyncio.sleep(0)
        for number in range(6):
            await cluster.client.create(PODS, "default", {"apiVersion": "v1", "kind": "Pod", **pod(f"p{number}", WEB)})
        for _ in range(30_000):
            if cluster.scheduler.is_idle and len(cluster.scheduler.cache.pods) == 6:
                break
            await asyncio.sleep(0.001)
        assert sorted(len(item.pods) for item in cluster.scheduler.cache.table.all_infos()) == [1] * 6
        assert cluster.scheduler.cache.table.terms.namespaces["labelled"]["env"] == "live"
        await cluster.client.delete(NAMESPACES, "", "labelled")
        for _ in range(30_000):
            if "labelled" not in cluster.scheduler.cache.table.terms.namespaces:
                break
            await asyncio.sleep(0.001)
        assert cluster.check() == []
        await cluster.stop()

    asyncio.run(run())


def test_the_api_server_writes_label_keys_into_the_selectors_of_new_pods() -> None:
    keys = {"matchLabelKeys": ["app", "nothing"]}
    rule = {**term(ZONE, tier="x"), **keys, "mismatchLabelKeys": ["hash"]}
    spread = {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}, **keys}
    soft = {"podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": {**term(ZONE, tier="y"), **keys}}]}}
    both = {**affinity(rule), **soft}
    store = Store(RealClock(), random=random.Random(0))
    manifest = pod("p", {"app": "web", "hash": "1"}, affinity=both, topologySpreadConstraints=[spread])
    stored = store.create(PODS, "default", {"apiVersion": "v1", "kind": "Pod", **manifest}).typed
    app = LabelSelectorRequirement(key="app", operator="In", values=("web",))
    other = LabelSelectorRequirement(key="hash", operator="NotIn", values=("1",))
    required = stored.spec.affinity.pod_affinity.required[0].label_selector
    assert (required.match_labels, required.match_expressions) == ({"tier": "x"}, (app, other))
    preferred = stored.spec.affinity.pod_anti_affinity.preferred[0].pod_affinity_term.label_selector
    assert preferred.match_expressions == (app,)
    assert stored.spec.topology_spread_constraints[0].label_selector.match_expressions == (app,)


def test_the_check_recounts_the_sums_that_plugins_hold() -> None:
    hard = {
        "topologyKey": ZONE,
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": WEB},
    }
    cluster = world(FOUR, [pod("e", WEB, "n1")])
    incoming = pod("i", WEB, topologySpreadConstraints=[hard], nodeSelector={HOST: "n1"})
    assert verdicts(cluster, "PodTopologySpread", incoming) is not None
    assert check_cache(cluster.cache) == []
    [held] = [domains for domains in cluster.cache.table.readers if domains.total == 1]
    held.counts[held.column.code_of["a"]] = 2
    [problem] = check_cache(cluster.cache)
    assert f"domains of {ZONE} are {{'a': 2}}, recounted {{'a': 1}}" in problem


def test_the_number_of_domains_is_counted_again_when_a_node_changes_its_zone() -> None:
    soft = {
        "topologyKey": ZONE,
        "maxSkew": 1,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": WEB},
    }
    cluster = world(FOUR, [])
    plugin: Any = cluster.frameworks["default-scheduler"].plugins["PodTopologySpread"]
    rows = cluster.cache.table.order().copy()
    rows.flags.writeable = False
    incoming = info(pod("i", WEB, topologySpreadConstraints=[soft]))
    sizes = [plugin._constraints.of(incoming, SOFT).size(0, rows)]
    cluster.cache.set_node(from_builtins(complete(node("n2", zone="c", host="n2"), "Node"), Node))
    sizes.append(plugin._constraints.of(incoming, SOFT).size(0, rows))
    assert sizes == [3, 4], "the zones and the nodes without any"
