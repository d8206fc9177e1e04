"""Interaction layers remember what rules between pods make of each node; never wrongly, and at no needless cost.

A random cluster changes; whenever a pod of some kind is evaluated, the layer's verdicts and totals must be
those of a search and plugins that remember nothing. And after a pod was placed, only rows of the domains that
it changed may be evaluated again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from kubesched.api.decode import from_builtins
from kubesched.api.types import Namespace, Node, Pod
from kubesched.lab.conformance.world import World
from kubesched.scheduler.cache.check import check_cache
from kubesched.scheduler.core.diagnosis import Rejection
from kubesched.scheduler.core.full_scan import Rotation
from kubesched.scheduler.core.layers import Layer
from kubesched.scheduler.core.profiles import build_frameworks
from kubesched.scheduler.core.ranking import INFEASIBLE
from kubesched.scheduler.core.search import Decision, Search
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.framework.interface import NOT_SCORED, Plugin
from kubesched.scheduler.framework.question import Question
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.plugins import in_tree_registry

JSON = dict[str, Any]
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
REGION = "topology.kubernetes.io/region"


def spread(key: str, app: str, *, hard: bool = False, skew: int = 1, **more: Any) -> JSON:
    return {
        "topologyKey": key,
        "maxSkew": skew,
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": app}},
        **more,
    }


def near(key: str, app: str, **more: Any) -> JSON:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}


def required(*terms: JSON) -> JSON:
    return {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}


def preferred(*terms: tuple[int, JSON]) -> JSON:
    return {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": weight, "podAffinityTerm": term} for weight, term in terms
        ]
    }


_likes_ssd = {
    "preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 3, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}},
        {"weight": 2, "preference": {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r1"]}]}},
    ]
}

#: Kinds that a StatefulSet of this name owns; all of them select app=owned.
OWNERS = {"owned-blue": "blue", "owned-green": "green"}

#: Name to (app, spec): one relation each. The Service of the world selects app=web.
KINDS: dict[str, tuple[str, JSON]] = {
    "plain": ("other", {}),
    "default": ("web", {}),
    "owned-blue": ("owned", {}),
    "owned-green": ("owned", {}),
    "hard-zone": ("db", {"topologySpreadConstraints": [spread(ZONE, "db", hard=True)]}),
    "hard-host": ("db", {"topologySpreadConstraints": [spread(HOST, "db", hard=True, minDomains=3)]}),
    "soft-both": ("job", {"topologySpreadConstraints": [spread(ZONE, "job"), spread(HOST, "job", skew=2)]}),
    "soft-host": ("cron", {"topologySpreadConstraints": [spread(HOST, "cron")]}),
    "soft-rack": ("job", {"topologySpreadConstraints": [spread("rack", "job", nodeTaintsPolicy="Honor")]}),
    "hard-and-soft": (
        "web",
        {"topologySpreadConstraints": [spread(ZONE, "web", hard=True, skew=2), spread("rack", "web")]},
    ),
    "near-zone": ("db", {"affinity": {"podAffinity": required(near(ZONE, "db"))}}),
    "away-host": ("web", {"affinity": {"podAntiAffinity": required(near(HOST, "web"))}}),
    "alone": ("alone", {"affinity": {"podAntiAffinity": required(near(HOST, "alone"))}}),
    "away-zone": ("job", {"affinity": {"podAntiAffinity": required(near(ZONE, "db", namespaces=["dev"]))}}),
    "likes-zone": (
        "web",
        {
            "affinity": {
                "podAffinity": preferred((5, near(ZONE, "db")), (2, near(HOST, "web", namespaceSelector={}))),
                "podAntiAffinity": preferred((3, near("rack", "job"))),
            }
        },
    ),
    "likes-host": ("pack", {"affinity": {"podAffinity": preferred((3, near(HOST, "pack")))}}),
    "likes-region": (
        "pack",
        {"affinity": {"podAffinity": preferred((3, near(REGION, "pack")), (1, near(ZONE, "pack")))}},
    ),
    "near-region": ("pack", {"affinity": {"podAffinity": required(near(REGION, "pack"))}}),
    "avoids-rack": ("scatter", {"affinity": {"podAntiAffinity": preferred((1, near("rack", "scatter")))}}),
    "likes-ssd": (
        "db",
        {"affinity": {"nodeAffinity": _likes_ssd, "podAntiAffinity": required(near("rack", "job"))}},
    ),
    "ssd-and-soft": (
        "job",
        {
            "affinity": {"nodeAffinity": _likes_ssd},
            "topologySpreadConstraints": [spread(ZONE, "job"), spread(HOST, "job")],
        },
    ),
}
KIND_NAMES = tuple(KINDS)


def a_pod(kind: str, name: str, node: str = "", *, namespace: str = "default") -> PodInfo:
    app, spec = KINDS[kind]
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "300m"}}}]
    meta: JSON = {"name": name, "uid": name, "namespace": namespace, "labels": {"app": app}}
    if kind in OWNERS:
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": OWNERS[kind], "uid": "u", "controller": True}
        meta["ownerReferences"] = [owner]
    obj = {"metadata": meta, "spec": {**spec, "containers": containers, "nodeName": node}}
    return PodInfo(from_builtins(obj, Pod))


def a_node(name: str, labels: JSON, cpu: str = "2", taints: tuple[JSON, ...] = ()) -> Node:
    """A node with its hostname, the region "here" and these labels; "-" leaves a label out."""
    room = {"cpu": cpu, "memory": "8Gi", "pods": "20"}
    obj = {
        "metadata": {
            "name": name,
            "labels": {key: value for key, value in {HOST: name, REGION: "here", **labels}.items() if value != "-"},
        },
        "spec": {"taints": list(taints)},
        "status": {"capacity": room, "allocatable": room},
    }
    return from_builtins(obj, Node)


def new_world(registry: Any = None, config: JSON | None = None) -> World:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"app": "web"}},
    }
    scenario = {"config": config, "objects": [service], "nodes": [], "pods": [], "pending": []}
    return World(scenario, registry if registry is not None else in_tree_registry())


def fresh_search(world: World) -> Search:
    """Return a search for the world's profile; it and its plugins remember nothing."""
    framework = world.frameworks["default-scheduler"]
    backends = framework.plugins["InterPodAffinity"].handle._backends
    twin = build_frameworks(world.config, world.registry, backends, framework.metrics)["default-scheduler"]
    return Search(twin, world.cache.snapshot(), world.nominations, backends.random, Rotation())


def layer_of(world: World, pod: PodInfo) -> Layer | None:
    search = world.searches["default-scheduler"]
    asked = search.ask(pod)
    return search._layers.get((asked.signature, asked.linked))


def look(world: World, pod: PodInfo) -> Decision | None:
    """Find a node; the interaction layer, if it was used, must hold what a fresh search finds."""
    search = world.searches["default-scheduler"]
    evaluation, decision = fresh_search(world).evaluate(CycleState(), pod), search.find(pod)
    if isinstance(evaluation, Rejection):
        assert isinstance(decision, Rejection)
        assert decision.message() == evaluation.message()
        return None
    assert isinstance(decision, Decision)
    assert decision.feasible == len(evaluation.feasible)
    assert evaluation.totals is not None
    best = evaluation.feasible[evaluation.totals == evaluation.totals.max()].tolist()
    assert decision.node.row in best
    layer = layer_of(world, pod)
    if layer is not None and layer.base is not None and not layer._journal.is_behind:
        assert layer.feasible_rows().tolist() == sorted(evaluation.feasible.tolist())
        assert layer.feasible == len(evaluation.feasible)
        if layer.is_scored and layer.base.holds(layer):
            totals = layer.ranking.total.tolist()
            want = dict(zip(evaluation.feasible.tolist(), evaluation.totals.tolist(), strict=True))
            assert {row: total for row, total in enumerate(totals) if total != INFEASIBLE} == want
    return decision


_labels = st.fixed_dictionaries(
    {},
    optional={
        ZONE: st.sampled_from(["a", "b", "c", "a", "b", "c", ""]),
        "rack": st.sampled_from(["r1", "r2", "", "r3"]),
        "disk": st.just("ssd"),
        HOST: st.just("-"),
        REGION: st.sampled_from(["here", "here", "there", "-"]),
    },
)
_taints = st.sampled_from([(), (), (), ({"key": "k", "value": "v", "effect": "NoSchedule"},)])
_nodes = st.builds(
    lambda labels, cpu, taints: (labels, cpu, taints), _labels, st.sampled_from(["1", "2", "8"]), _taints
)
_kinds = st.sampled_from(KIND_NAMES)


class LayerMachine(RuleBasedStateMachine):
    """A changing cluster, evaluated through layers."""

    keep = 1 << 16
    #: Constants of the term index and the search that decide when something is dropped.
    limits: ClassVar[Mapping[str, int]] = {}

    def __init__(self) -> None:
        super().__init__()
        self._patches = [
            patch("kubesched.scheduler.nodes.node_table._KEPT_CHANGES", self.keep),
            patch("kubesched.scheduler.nodes.domain_counts._KEEP", min(self.keep, 1024)),
            *(patch(f"kubesched.scheduler.{name}", value) for name, value in self.limits.items()),
        ]
        for item in self._patches:
            item.start()
        self.world = new_world()
        self.count = 0
        self.placed: dict[str, PodInfo] = {}

    def teardown(self) -> None:
        try:
            for kind in KIND_NAMES:
                self.look_at(kind)
            assert check_cache(self.world.cache) == []
        finally:
            for item in self._patches:
                item.stop()

    def look_at(self, kind: str, name: str = "looker") -> Decision | None:
        return look(self.world, a_pod(kind, name))

    @initialize(count=st.sampled_from([2, 5, 9, 24]), variants=st.lists(_nodes, min_size=2, max_size=6))
    def some_nodes(self, count: int, variants: list[Any]) -> None:
        for index in range(count):
            self.world.cache.set_node(a_node(f"n{index}", *variants[index % len(variants)]))
        for kind in (*KIND_NAMES, *KIND_NAMES):
            self.look_at(kind)

    @rule(kind=_kinds, times=st.integers(1, 4))
    def schedule(self, kind: str, times: int) -> None:
        for _ in range(times):
            self.count += 1
            name = f"p{self.count}"
            decision = self.look_at(kind, name)
            if decision is None:
                return
            pod = a_pod(kind, name, decision.node.name)
            self.world.cache.assume_pod(pod)
            self.placed[name] = pod

    @precondition(lambda self: self.placed)
    @rule(data=st.data(), count=st.sampled_from([1, 1, 8]), forget=st.booleans())
    def remove_pods(self, data: st.DataObject, count: int, forget: bool) -> None:
        cache = self.world.cache
        for name in sorted(data.draw(st.sets(st.sampled_from(sorted(self.placed)), max_size=count))):
            pod = self.placed.pop(name)
            if forget and pod.uid in cache.assumed:
                cache.forget_pod(pod.pod)
            else:
                if pod.uid in cache.assumed:
                    cache.add_pod(pod)
                cache.remove_pod(pod.pod)

    @rule(kind=_kinds, number=st.integers(0, 23), dev=st.booleans(), count=st.sampled_from([1, 1, 12]))
    def add_pods(self, kind: str, number: int, dev: bool, count: int) -> None:
        for _ in range(count):
            self.count += 1
            pod = a_pod(kind, f"p{self.count}", f"n{number}", namespace="dev" if dev else "default")
            self.world.cache.add_pod(pod)
            self.placed[pod.uid] = pod

    @rule(number=st.integers(0, 25), node=_nodes)
    def set_node(self, number: int, node: Any) -> None:
        self.world.cache.set_node(a_node(f"n{number}", *node))

    @rule(number=st.integers(0, 25))
    def remove_node(self, number: int) -> None:
        if self.world.cache.table.row_of(f"n{number}") is not None:
            self.world.cache.remove_node(f"n{number}")

    @rule(env=st.sampled_from(["test", "live"]))
    def set_namespace(self, env: str) -> None:
        self.world.cache.set_namespace(from_builtins({"metadata": {"name": "dev", "labels": {"env": env}}}, Namespace))

    @rule(there=st.booleans())
    def set_service(self, there: bool) -> None:
        if there:
            service = {"metadata": {"name": "db"}, "spec": {"selector": {"app": "db"}}}
            self.world.objects.put("services", "default/db", service)
        else:
            self.world.objects.remove("services", "default/db")

    @rule(name=st.sampled_from(["blue", "green"]), there=st.booleans())
    def set_owner(self, name: str, there: bool) -> None:
        if there:
            owner = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": "owned"}}}}
            self.world.objects.put("statefulsets", f"default/{name}", owner)
        else:
            self.world.objects.remove("statefulsets", f"default/{name}")

    @rule(kinds=st.lists(_kinds, max_size=4))
    def look_around(self, kinds: list[str]) -> None:
        for kind in kinds:
            self.look_at(kind)


class ForgetfulMachine(LayerMachine):
    """LayerMachine with logs that keep next to nothing, so that layers fall behind them."""

    keep = 6


class CrampedMachine(LayerMachine):
    """LayerMachine with a tiny budget: rules and arrays age out and are pushed out all the time."""

    limits: ClassVar[Mapping[str, int]] = {
        "nodes.term_index._AGE": 12,
        "nodes.term_index._SWEEP_EVERY": 3,
        "nodes.term_index._LEAST_SETS": 3,
        "nodes.term_index._BUDGET": 1,
        "plugins.compiled_constraints._LEAST_KEPT": 3,
        "plugins.compiled_constraints._BUDGET": 1,
        "core.layer_cache._BUDGET": 1,
        "core.layer_cache._PER_NODE": 0,
    }


_machine = settings(max_examples=25, stateful_step_count=25, suppress_health_check=list(HealthCheck))
TestLayers = LayerMachine.TestCase
TestLayers.settings = _machine
TestForgetfulLogs = ForgetfulMachine.TestCase
TestForgetfulLogs.settings = _machine
TestLittleRoom = CrampedMachine.TestCase
TestLittleRoom.settings = _machine


# -- only what changed is evaluated -----------------------------------------------------------------------


@contextmanager
def evaluated_rows(world: World) -> Iterator[list[int]]:
    """The rows that the topology plugins evaluate, in a list that fills up."""
    rows: list[int] = []
    framework = world.frameworks["default-scheduler"]
    with _spied([e for e in (*framework.filters, *framework.scores) if e.name in TOPOLOGY], rows):
        yield rows


TOPOLOGY = ("PodTopologySpread", "InterPodAffinity")


@contextmanager
def _spied(entries: list[Any], rows: list[int]) -> Iterator[None]:
    for entry in entries:
        one, many = entry.one, entry.many

        def spy_one(state: Any, pod: Any, nodes: Any, node: Any, one: Any = one) -> int:
            rows.append(node.row)
            return int(one(state, pod, nodes, node))

        def spy_many(state: Any, pod: Any, nodes: Any, asked: Any, many: Any = many) -> Any:
            rows.extend(asked.tolist())
            return many(state, pod, nodes, asked)

        entry.one, entry.many = spy_one, spy_many
    try:
        yield
    finally:
        for entry in entries:
            del entry.one, entry.many


def world_of_zones(zones: int, each: int) -> World:
    world = new_world()
    for number in range(zones * each):
        world.cache.set_node(a_node(f"n{number}", {ZONE: f"z{number % zones}", "rack": f"r{number}"}, "64"))
    return world


def place(world: World, kind: str, count: int, start: int = 0) -> list[str]:
    """Schedule pods of a kind; the nodes they went to."""
    found = []
    for number in range(start, start + count):
        pod = a_pod(kind, f"{kind}-{number}")
        decision = world.searches["default-scheduler"].find(pod)
        assert isinstance(decision, Decision)
        node = decision.node.name
        world.cache.assume_pod(pod.with_pod(pod.pod.on_node(node)))
        found.append(node)
    return found


@pytest.mark.parametrize("kind", ["hard-host", "alone", "plain"])
def test_for_a_topology_of_single_nodes_only_the_node_that_took_a_pod_is_evaluated(kind: str) -> None:
    world = world_of_zones(3, 40)
    *_, last = place(world, kind, 10)
    with evaluated_rows(world) as rows:
        place(world, kind, 1, start=10)
    assert set(rows) <= {world.cache.table.row_of(last)}


def test_when_a_zone_may_take_no_more_pods_only_its_nodes_are_filtered_again() -> None:
    world = world_of_zones(12, 10)
    placed = place(world, "hard-zone", 12)
    table = world.cache.table

    def zone_of(node: str) -> str:
        return table.info(table.row_of(node) or 0).labels[ZONE]

    for number in range(12, 24):  # with a skew of 1, every pod closes its zone, and every twelfth one opens the others
        with evaluated_rows(world) as rows:
            placed += place(world, "hard-zone", 1, start=number)
        if number > 12:
            closed = zone_of(placed[-2])
            assert {table.info(row).labels[ZONE] for row in rows} == {closed}
    assert len({zone_of(node) for node in placed[12:]}) == 12


def test_a_zone_whose_nodes_are_the_only_ones_and_no_nodes_at_all_are_found() -> None:
    world = new_world()
    for name, zone in (("n0", "a"), ("n1", "b"), ("n2", "b")):
        world.cache.set_node(a_node(name, {ZONE: zone}, "4"))
    place(world, "hard-zone", 4)
    assert layer_of(world, a_pod("hard-zone", "looker")) is not None
    world.cache.remove_node("n2")
    place(world, "hard-zone", 2, start=4)  # now each zone in turn is the only one
    assert look(world, a_pod("hard-zone", "another")) is not None
    world.cache.set_node(a_node("n0", {ZONE: "a"}, "600m"))
    world.cache.set_node(a_node("n1", {ZONE: "b"}, "600m"))
    assert look(world, a_pod("hard-zone", "too-many")) is None
    world.cache.set_node(a_node("n2", {ZONE: "c"}, "4"))
    assert look(world, a_pod("hard-zone", "again")) is not None


def test_nodes_without_the_label_of_a_hard_constraint_are_rejected_until_they_have_it() -> None:
    world = world_of_zones(2, 4)
    for number in range(3):
        world.cache.set_node(a_node(f"bare{number}", {}, "64"))
    assert not any(name.startswith("bare") for name in place(world, "hard-zone", 6))
    world.cache.set_node(a_node("bare0", {ZONE: "new"}, "64"))
    assert place(world, "hard-zone", 1, start=6) == ["bare0"]


@pytest.mark.parametrize("kind", ["likes-host", "avoids-rack"])
def test_for_preferences_about_single_nodes_only_the_node_that_took_a_pod_is_evaluated(kind: str) -> None:
    world = world_of_zones(3, 40)
    *_, last = place(world, kind, 3)
    with evaluated_rows(world) as rows:
        for number in range(3, 33):  # a node takes 20; with each pod another raw score
            pod = a_pod(kind, f"{kind}-{number}")
            rows.clear()
            decision = look(world, pod)
            assert set(rows) <= {world.cache.table.row_of(last)}
            assert decision is not None
            last = decision.node.name
            world.cache.assume_pod(pod.with_pod(pod.pod.on_node(last)))


@pytest.mark.parametrize("kind", ["likes-host", "avoids-rack"])
def test_preferences_about_domains_of_few_nodes_are_followed(kind: str) -> None:
    world = new_world()
    for number in range(12):
        rack = f"r{number % 4}"
        world.cache.set_node(a_node(f"n{number}", {"rack": rack, HOST: rack}, "64"))
    there: list[PodInfo] = []
    for number in range(24):
        pod = a_pod(kind, f"{kind}-{number}")
        decision = look(world, pod)
        assert decision is not None
        there.append(pod.with_pod(pod.pod.on_node(decision.node.name)))
        world.cache.assume_pod(there[-1])
        if number % 5 == 4:
            world.cache.forget_pod(there.pop(number // 2).pod)
            assert look(world, a_pod(kind, "looker")) is not None
    assert layer_of(world, a_pod(kind, "looker")) is not None


def test_while_all_nodes_are_in_one_region_none_is_scored_again_but_where_a_pod_came() -> None:
    world = world_of_zones(3, 40)
    *_, last = place(world, "near-region", 4)
    for number in range(4, 10):
        with evaluated_rows(world) as rows:
            (now,) = place(world, "near-region", 1, start=number)
        assert set(rows) <= {world.cache.table.row_of(last)}
        last = now


@pytest.mark.parametrize("late", [1, 12])
def test_nodes_of_the_only_region_that_become_feasible_later_have_the_scores_of_the_others(late: int) -> None:
    world = world_of_zones(1, 100)
    for number in range(late):
        world.cache.set_node(a_node(f"late{number}", {ZONE: "z0", "rack": "late"}, "100m"))
    place(world, "likes-region", 6)
    layer = layer_of(world, a_pod("likes-region", "looker"))
    for number in range(late):
        world.cache.set_node(a_node(f"late{number}", {ZONE: "z0", "rack": "late"}, "64"))
    for number in range(6, 9):
        assert look(world, a_pod("likes-region", f"likes-region-{number}")) is not None
        place(world, "likes-region", 1, start=number)
    assert layer is not None
    assert layer is layer_of(world, a_pod("likes-region", "looker"))
    assert layer.feasible == 100 + late


def test_for_a_topology_of_zones_only_the_zone_that_took_a_pod_is_evaluated() -> None:
    world = world_of_zones(12, 10)
    *_, last = place(world, "soft-both", 6)
    with evaluated_rows(world) as rows:
        place(world, "soft-both", 1, start=6)
    zone = world.cache.table.get(last)
    assert zone is not None
    of_zone = {info.row for info in world.cache.table.all_infos() if info.labels[ZONE] == zone.labels[ZONE]}
    assert set(rows) == of_zone


def test_a_zone_whose_verdict_stays_is_not_evaluated_again() -> None:
    world = world_of_zones(3, 40)
    place(world, "near-zone", 5)
    filters = [e for e in world.frameworks["default-scheduler"].filters if e.name in TOPOLOGY]
    rows: list[int] = []
    with _spied(filters, rows):
        (last,) = place(world, "near-zone", 1, start=5)
        (now,) = place(world, "near-zone", 1, start=6)
    assert len(set(rows)) <= 2
    assert {last, now} >= {world.cache.table.info(row).name for row in rows[-1:]}


def test_pods_of_another_kind_touch_only_the_rows_they_land_on() -> None:
    world = world_of_zones(3, 40)
    place(world, "hard-host", 5)
    *_, last = place(world, "alone", 3)
    others = place(world, "plain", 4)
    with evaluated_rows(world) as rows:
        place(world, "alone", 1, start=3)
    assert set(rows) <= {world.cache.table.row_of(name) for name in (*others, last)}


def test_the_first_pod_of_an_interaction_key_makes_no_layer() -> None:
    world = world_of_zones(3, 4)
    place(world, "hard-zone", 1)
    assert layer_of(world, a_pod("hard-zone", "x")) is None
    place(world, "hard-zone", 2, start=1)
    assert layer_of(world, a_pod("hard-zone", "x")) is not None


def test_a_node_that_becomes_feasible_later_is_found() -> None:
    world = world_of_zones(2, 2)
    full = a_node("late", {ZONE: "z9"}, cpu="100m")
    world.cache.set_node(full)
    place(world, "soft-both", 5)
    layer = layer_of(world, a_pod("soft-both", "x"))
    assert layer is not None
    feasible = layer.feasible
    world.cache.set_node(a_node("late", {ZONE: "z9"}, cpu="64"))
    place(world, "soft-both", 1, start=5)
    world.cache.set_node(a_node("late", {ZONE: "z9"}, cpu="65"))
    assert look(world, a_pod("soft-both", "y")) is not None
    assert layer.feasible == feasible + 1


def test_a_topology_that_shrinks_by_a_label_alone_weighs_less() -> None:
    world = new_world()
    for number in range(4):
        world.cache.set_node(a_node(f"n{number}", {}, "64"))
    for number, node in enumerate(["n0", "n0", "n1"]):
        world.cache.add_pod(a_pod("soft-host", f"there-{number}", node))
    for number in range(3):
        assert look(world, a_pod("soft-host", f"before-{number}")) is not None
    for host in ("-", "n3"):
        world.cache.set_node(a_node("n3", {HOST: host}, "64"))
        assert look(world, a_pod("soft-host", f"after-{host}")) is not None


def test_a_greatest_score_that_leaves_makes_all_totals_again() -> None:
    world = new_world()
    for number in range(6):
        labels = {
            ZONE: f"z{number % 2}",
            **({"rack": "r1"} if number < 2 else {}),
            **({"disk": "ssd"} if not number else {}),
        }
        world.cache.set_node(a_node(f"n{number}", labels, "64"))
    place(world, "ssd-and-soft", 3)
    for labels in ({ZONE: "z0"}, {ZONE: "z0", "disk": "ssd", "rack": "r1"}, {ZONE: "z0", "disk": "ssd"}):
        world.cache.set_node(a_node("n0", labels, "64"))
        assert look(world, a_pod("ssd-and-soft", f"after-{len(labels)}")) is not None


@pytest.mark.parametrize(
    "kind", ["soft-host", "soft-both", "hard-zone", "hard-host", "default", "near-zone", "likes-zone"]
)
def test_a_rule_that_aged_out_meanwhile_is_counted_again(kind: str) -> None:
    world = world_of_zones(2, 20)
    with (
        patch("kubesched.scheduler.nodes.term_index._AGE", 4),
        patch("kubesched.scheduler.nodes.term_index._SWEEP_EVERY", 1),
    ):
        place(world, kind, 4)
        app = KINDS[kind][0]
        for number in range(12):
            world.cache.add_pod(a_pod("alone", f"other-{number}", f"n{number % 6}"))
        for number in range(5):
            pod = a_pod(kind, f"more-{number}", "n1")
            assert pod.labels["app"] == app
            world.cache.add_pod(pod)
        for number in range(3):
            look(world, a_pod(kind, f"after-{number}"))


@pytest.mark.parametrize("kind", ["soft-host", "soft-both", "default", "likes-zone"])
def test_arrays_that_were_given_back_meanwhile_are_made_again(kind: str) -> None:
    world = world_of_zones(2, 20)
    place(world, kind, 4)
    for counter in (*world.cache.table.terms.sets().values(), *world.cache.table.terms.carried().values()):
        counter.rest()
    for number in range(5):
        world.cache.add_pod(a_pod(kind, f"more-{number}", "n1"))
    for number in range(3):
        look(world, a_pod(kind, f"after-{number}"))


def test_the_owner_of_the_current_pod_counts_not_that_of_an_earlier_one() -> None:
    world = world_of_zones(2, 3)
    selector = {"matchLabels": {"app": "owned"}}
    blue, green = ({"metadata": {"name": name}, "spec": {"selector": selector}} for name in ("blue", "green"))
    world.objects.put("statefulsets", "default/blue", blue)
    place(world, "owned-blue", 4)
    world.objects.remove("statefulsets", "default/blue")
    world.objects.put("statefulsets", "default/green", green)
    world.cache.set_node(a_node("late", {ZONE: "z0", "rack": "late"}, "64"))
    for number in range(4):
        decision = look(world, a_pod("owned-green", f"green-{number}"))
        assert decision is not None
        world.cache.assume_pod(a_pod("owned-green", f"green-{number}", decision.node.name))
    assert layer_of(world, a_pod("owned-green", "x")) is layer_of(world, a_pod("owned-green", "y")) is not None


def test_pods_on_nodes_without_the_label_count_where_some_node_has_an_empty_one() -> None:
    world = new_world()
    for number, zone in enumerate(["", "-", "-", "a", "a"]):
        world.cache.set_node(a_node(f"n{number}", {ZONE: zone}, "64"))
    for number in range(7):
        assert look(world, a_pod("default", f"before-{number}")) is not None
        world.cache.add_pod(a_pod("default", f"there-{number}", "n1"))


def test_an_evicted_base_does_not_leave_a_stale_interaction_layer() -> None:
    world = world_of_zones(2, 3)
    place(world, "soft-both", 4)
    search = world.searches["default-scheduler"]
    search._layers.drop((search.ask(a_pod("soft-both", "x")).signature, None))
    world.cache.remove_node("n0")
    assert look(world, a_pod("soft-both", "y")) is not None
    assert look(world, a_pod("soft-both", "z")) is not None


def test_the_number_of_layers_is_bounded() -> None:
    world = world_of_zones(2, 4)
    with (
        patch("kubesched.scheduler.core.layer_cache._BUDGET", 1),
        patch("kubesched.scheduler.core.layer_cache._PER_NODE", 0),
    ):
        for kind in ("default", "hard-zone", "soft-both", "soft-rack", "hard-and-soft", "near-zone", "likes-zone"):
            place(world, kind, 3)
    assert len(world.searches["default-scheduler"]._layers) == 8


# -- plugins of one's own ----------------------------------------------------------------------------------


class Crowds(Question):
    """Question of how many pods each zone has. It knows nothing of the term index."""

    key = "all pods are alike"
    is_local = False

    def __init__(self, plugin: Crowding, nodes: Any) -> None:
        self.plugin, self.nodes = plugin, nodes
        self.counts: dict[str, int] = {}

    def count(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for info in self.nodes.all_infos():
            zone = info.labels.get(ZONE, "")
            found[zone] = found.get(zone, 0) + len(info.pods)
        return found

    def pre_score(self, nodes: Any) -> None:
        self.counts = self.count()

    def rescored(self, *, same: bool) -> Any:
        if self.plugin.broken:
            raise RuntimeError("lost count")
        before, self.counts = self.counts, self.count()
        zones = {zone for zone, count in self.counts.items() if count != before.get(zone)}
        return np.array([info.row for info in self.nodes.all_infos() if info.labels.get(ZONE, "") in zones], np.intp)

    def scores(self, rows: Any) -> Any:
        zones = [self.nodes.info(row).labels.get(ZONE) for row in rows.tolist()]
        return np.array([NOT_SCORED if zone is None else self.counts[zone] for zone in zones], np.int64)

    @staticmethod
    def normalized(scores: Any, low: int, high: int) -> Any:
        return np.full(len(scores), 50) if low == high else (high - scores) * 100 // (high - low)


class Crowding(Plugin):
    """Prefers the zone with the fewest pods."""

    name = "Crowding"
    asks = Crowds
    broken = False

    def ask(self, pod: PodInfo, nodes: Any) -> Question:
        return Crowds(self, nodes)


def crowding_world() -> World:
    registry = in_tree_registry()
    registry.register(Crowding)
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"multiPoint": {"enabled": [{"name": "Crowding", "weight": 5}]}}}],
    }
    world = new_world(registry, config)
    for number in range(12):
        labels = {ZONE: f"z{number % 3}"} if number < 11 else {}
        world.cache.set_node(a_node(f"n{number}", labels, "64"))
    return world


def test_a_plugin_of_ones_own_may_have_its_answers_remembered() -> None:
    world = crowding_world()
    for number in range(12):
        kind = KIND_NAMES[number % 2]
        decision = look(world, a_pod(kind, f"p{number}"))
        assert decision is not None
        world.cache.assume_pod(a_pod(kind, f"p{number}", decision.node.name))
    assert layer_of(world, a_pod("plain", "x")) is not None


def test_a_plugin_that_fails_to_refresh_fails_the_attempt_and_the_layer_is_dropped() -> None:
    world = crowding_world()
    place(world, "plain", 3)
    plugin = world.frameworks["default-scheduler"].plugins["Crowding"]
    plugin.broken = True
    with pytest.raises(PluginFailedError, match='running PreScore plugin "Crowding": lost count'):
        place(world, "plain", 1, start=3)
    assert layer_of(world, a_pod("plain", "x")) is None
    plugin.broken = False
    assert look(world, a_pod("plain", "y")) is not None
    assert look(world, a_pod("plain", "z")) is not None
