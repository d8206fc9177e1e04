"""The fast dry run and nominations kept by row, against the plain procedures that remember nothing.

A random cluster changes step by step: pods come and go, nodes too, pods are nominated, budgets change. At every step
preemptors of several kinds are tried: what the plugin finds at once must be what the specification's procedure finds
node by node, and what a search remembers of nominations must be what a fresh one finds.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import a_node, a_pod, a_taint
from kubesched.api.types import (
    Affinity,
    LabelSelector,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodStatus,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from kubesched.base.times import timestamp
from kubesched.scheduler.core.diagnosis import Rejection
from kubesched.scheduler.core.search import Decision
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.preemption import Candidate, Victims
from kubesched.scheduler.framework.status import Code
from kubesched.scheduler.nodes.nominating import NominatingInfo
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.plugins.default_preemption import DefaultPreemption
from kubesched.scheduler.plugins.preemption import alike
from kubesched.scheduler.plugins.preemption.candidates import find_candidates
from kubesched.scheduler.plugins.preemption.choose import choose
from kubesched.scheduler.plugins.preemption.outcomes import FastFound, FastTrials
from kubesched.scheduler.queue.nominator import Nominator
from search_kit import House, best_names, reasons

NOW = 1_800_000_000.0
PLUGINS = (
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "PodTopologySpread",
    "InterPodAffinity",
    "DefaultPreemption",
    "NodeResourcesBalancedAllocation",
)
ZERO = "example.com/gpu"

cpus = st.sampled_from(("500m", "1", "1500m", "2", "3", "4"))
priorities = st.sampled_from((-5, 0, 5, 5, 10))
starts = st.sampled_from((None, NOW - 50, NOW - 50, NOW - 7, NOW + 9))


@st.composite
def steps(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    what = draw(
        st.sampled_from(("add", "add", "add", "add", "remove", "nominate", "nominate", "forget", "node", "drop"))
    )
    return what, {
        "node": draw(st.integers(0, 6)),
        "cpu": draw(cpus),
        "gpu": draw(st.sampled_from((0, 0, 0, 1))),
        "priority": draw(priorities),
        "start": draw(starts),
        "app": draw(st.sampled_from(("web", "db", ""))),
        "pick": draw(st.integers(0, 50)),
    }


class Town:
    """A cluster with a real nominator, and its preemption plugin."""

    def __init__(self) -> None:
        self.house = House(plugins=PLUGINS, now=NOW)
        self.waiting: dict[str, PodInfo] = {}
        self.house.nominated = Nominator(None, self.waiting.get)
        self.house.search = self.house.fresh_search()
        self.plugin: DefaultPreemption = self.house.framework.plugins["DefaultPreemption"]
        self.wanted = 3
        self.plugin._percentage = 0
        self.count = 0
        for number in range(5):
            self.node(number)

    def node(self, number: int) -> None:
        taints = [a_taint("dedicated=x:NoSchedule")] if number == 4 else []
        self.house.cache.set_node(
            a_node(f"n{number}", zone=f"z{number % 2}", cpu="4", pods=4, allocatable={ZERO: "1"}, taints=taints)
        )

    def pod(self, wanted: dict[str, Any], **more: Any) -> Pod:
        self.count += 1
        start = timestamp(wanted["start"]) if wanted["start"] is not None else None
        asked = {"cpu": wanted["cpu"], **({ZERO: "1"} if wanted["gpu"] else {})}
        labels = {"app": wanted["app"], **wanted.get("labels", {})} if wanted["app"] else {}
        return a_pod(
            f"p{self.count}",
            requests=asked,
            priority=wanted["priority"],
            labels=labels,
            status=PodStatus(start_time=start),
            **more,
        )

    def do(self, what: str, wanted: dict[str, Any]) -> None:
        house, names = self.house, [info.name for info in self.house.cache.snapshot().nodes()]
        name = names[wanted["node"] % len(names)]
        if what == "add":
            house.add(self.pod(wanted, on=name))
        elif what == "remove" and house.cache.pods:
            victims = sorted(house.cache.pods)
            house.cache.remove_pod(house.cache.pods[victims[wanted["pick"] % len(victims)]].pod)
        elif what == "nominate":
            found = PodInfo(self.pod(wanted))
            self.waiting[found.key] = found
            house.nominated.add(found.pod, NominatingInfo.override(name))
        elif what == "forget" and self.waiting:
            key = sorted(self.waiting)[wanted["pick"] % len(self.waiting)]
            house.nominated.delete(self.waiting.pop(key).pod)
        elif what == "node":
            self.node(wanted["node"])
        elif what == "drop" and len(names) > 2:
            house.cache.remove_node(name)

    def budgets(self, allowed: int | None) -> None:
        """Budgets for the pods named web (None: no budget at all), and one that matches nothing."""
        if allowed is None:
            for name in ("web", "none"):
                self.house.objects.remove("poddisruptionbudgets", f"ns/{name}")
            return
        web = {
            "metadata": {"name": "web", "namespace": "ns"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}},
            "status": {"disruptionsAllowed": allowed},
        }
        none = {"metadata": {"name": "none", "namespace": "ns"}, "spec": {"selector": {}}, "status": {}}
        self.house.objects.put("poddisruptionbudgets", "ns/web", web)
        self.house.objects.put("poddisruptionbudgets", "ns/none", none)

    def check(self, pod: PodInfo) -> bool:
        """Compare for one preemptor; whether the fast way applied."""
        outcome = self.house.search.find(pod)
        fresh = self.house.fresh_search().evaluate(CycleState(), pod)
        if isinstance(outcome, Decision):
            assert not isinstance(fresh, Rejection)
            assert outcome.node.name in best_names(self.house, fresh)
            assert outcome.feasible == len(fresh.feasible)
            return False
        assert isinstance(fresh, Rejection)
        assert outcome.message() == fresh.message()
        assert reasons(outcome.diagnosis.statuses) == reasons(fresh.diagnosis.statuses)
        nodes = outcome.diagnosis.statuses.nodes_for_code(Code.UNSCHEDULABLE)
        self.plugin.handle.random.seed(self.count)
        self.plugin._start = None
        self.plugin._absolute = self.wanted
        rejecting = outcome.diagnosis.statuses.rejecting(Code.UNSCHEDULABLE)
        found = self.plugin._find(outcome.state, pod, nodes, rejecting)
        if not nodes:
            return False
        offset = int(random.Random(self.count).random() * len(nodes))
        listed = list(nodes)
        plain = self.plugin._dry_run(fresh.state, pod)
        twin = find_candidates(plain, listed[offset:] + listed[:offset], self.wanted)
        assert not twin.errors
        assert [seen(each) for each in found.candidates()] == [seen(each) for each in twin.candidates()]
        if twin:
            assert seen(found.best(NOW)) == seen(choose(twin.candidates(), NOW)[0])
        else:
            assert found.histogram() == twin.histogram()
        known = found.rejected()
        assert {name: known[name] for name in twin.statuses} == twin.statuses
        for candidate in found.candidates():
            self.check_victims(pod, candidate.victims)
        return isinstance(found, FastFound)

    def check_victims(self, pod: PodInfo, victims: Victims) -> None:
        assert victims.pods
        assert all(victim.priority < pod.priority for victim in victims.pods)
        ranks = [self.plugin.importance(victim, NOW) for victim in victims.pods]
        assert ranks == sorted(ranks)


def seen(candidate: Candidate) -> tuple[str, list[str], int]:
    return candidate.node_name, [pod.key for pod in candidate.victims.pods], candidate.victims.pdb_violations


@settings(max_examples=60, deadline=None)
@given(
    st.lists(steps(), min_size=12, max_size=30),
    st.lists(
        st.tuples(cpus, st.sampled_from((0, 5, 6, 20)), st.sampled_from((None, None, 0, 1))), min_size=1, max_size=4
    ),
)
def test_the_fast_dry_run_and_remembered_nominations_find_what_the_plain_procedures_find(
    changes: list[tuple[str, dict[str, Any]]], kinds: list[tuple[str, int, int | None]]
) -> None:
    town = Town()
    for number, (what, wanted) in enumerate(changes):
        town.do(what, wanted)
        cpu, priority, allowed = kinds[number % len(kinds)]
        town.budgets(allowed)
        town.check(PodInfo(a_pod(f"preemptor{number}", cpu=cpu, priority=priority)))
        # A pod that is nominated itself, tried again.
        for nominee in list(town.waiting.values())[:1]:
            town.check(nominee)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(steps(), min_size=12, max_size=30),
    st.lists(st.tuples(cpus, st.sampled_from((5, 6, 20))), min_size=1, max_size=2),
    st.integers(1, 5),
    st.sampled_from((1, 1, 24)),
)
def test_the_victims_of_many_nodes_at_once_are_those_of_the_plain_procedure(
    changes: list[tuple[str, dict[str, Any]]], kinds: list[tuple[str, int]], wanted: int, many: int
) -> None:
    """As above, where a few nodes are many: what only large clusters do. Budgets change, for preemptors that are alike."""
    town = Town()
    town.wanted = wanted
    with mock.patch.object(alike, "_MANY", many):
        for number, (what, how) in enumerate(changes):
            town.do(what, how)
            for cpu, priority in kinds:
                for allowed in ((None, 0, 1, 2)[how["pick"] % 4], (0, None)[number % 2]):
                    town.budgets(allowed)
                    town.check(PodInfo(a_pod(f"preemptor{number}", cpu=cpu, priority=priority)))


def random_budget(rng: random.Random, pods: Sequence[Pod]) -> dict[str, Any]:
    """Of one app, of any app, or of pods without the label ``none``; perhaps some evictions are counted already."""
    selector: dict[str, Any] = rng.choice(
        (
            {"matchLabels": {"app": rng.choice(("web", "db"))}},
            {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
            {"matchExpressions": [{"key": "none", "operator": "DoesNotExist"}]},
        )
    )
    status: dict[str, Any] = {"disruptionsAllowed": rng.choice((-1, 0, 0, 1, 1, 2, 3))}
    if rng.random() < 0.4:
        status["disruptedPods"] = {pod.name: "2026-01-01T00:00:00Z" for pod in rng.sample(pods, min(4, len(pods)))}
    return {"metadata": {"namespace": "ns"}, "spec": {"selector": selector}, "status": status}


@pytest.mark.parametrize("seed", range(25))
def test_the_victims_of_many_nodes_at_once_are_those_of_the_plain_procedure_on_full_nodes(seed: int) -> None:
    """Nodes with many pods that several budgets cover, of which some allow a part of the evictions."""
    rng, town, fast = random.Random(seed), Town(), 0
    for number in range(4):
        town.house.cache.set_node(a_node(f"n{number}", cpu="4", pods=20))
    town.house.cache.remove_node("n4")
    town.wanted = rng.choice((1, 2, 3))
    ages = rng.choice(((NOW - 50, NOW - 7.0, NOW - 7), (NOW - 50, NOW - 7.5, None), (NOW - 50, NOW - 7, None)))
    levels = rng.choice(((0,), (-5, 0, 5), (-(2**31), 0, 5)))
    with mock.patch.object(alike, "_MANY", 1):
        for step in range(12):
            for number in range(4):
                room = 4000 - town.house.cache.snapshot().table.info(number).requested.milli_cpu
                while room > 0:
                    asked = min(room, rng.choice((300, 500, 900)))
                    room -= asked
                    what: dict[str, Any] = {
                        "cpu": f"{asked}m",
                        "gpu": 0,
                        "priority": rng.choice(levels),
                        "start": rng.choice(ages),
                    }
                    what |= {"app": rng.choice(("web", "web", "db", "")), "labels": {"revision": str(step // 3)}}
                    town.house.add(town.pod(what, on=f"n{number}"))
            pods = [info.pod for info in town.house.cache.pods.values()]
            if rng.random() < 0.5 or not step:
                for place in range(3):
                    town.house.objects.put("poddisruptionbudgets", f"ns/{place}", random_budget(rng, pods))
            for _ in range(2):
                preemptor = a_pod(
                    "preemptor", cpu=f"{rng.choice((400, 1000, 2500, 3200))}m", priority=rng.choice((5, 10))
                )
                fast += town.check(PodInfo(preemptor))
            for pod in rng.sample(pods, 4):
                town.house.cache.remove_pod(pod)
    assert fast > 5


ZONE = "topology.kubernetes.io/zone"


def with_terms(pod: Pod, kind: str, app: str) -> Pod:
    """The pod, with a rule about pods of an app: required or preferred, near or apart, or spreading."""
    selector = LabelSelector(match_labels={"app": app})
    near = (PodAffinityTerm(label_selector=selector, topology_key=ZONE),)
    apart = (PodAffinityTerm(label_selector=selector, topology_key="kubernetes.io/hostname"),)
    affinity = {
        "near": Affinity(pod_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=near)),
        "apart": Affinity(pod_anti_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=apart)),
        "prefers": Affinity(
            pod_affinity=PodAffinity(
                preferred_during_scheduling_ignored_during_execution=(
                    WeightedPodAffinityTerm(weight=5, pod_affinity_term=near[0]),
                )
            )
        ),
    }.get(kind)
    spread = TopologySpreadConstraint(
        max_skew=1, topology_key=ZONE, when_unsatisfiable="DoNotSchedule", label_selector=selector
    )
    constraints = (spread,) if kind == "spread" else ()
    spec = msgspec.structs.replace(pod.spec, affinity=affinity, topology_spread_constraints=constraints)
    return msgspec.structs.replace(pod, spec=spec)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(steps(), min_size=10, max_size=25),
    st.lists(
        st.tuples(
            st.sampled_from(("near", "apart", "prefers", "spread")),
            st.sampled_from(("web", "db", "other")),
            cpus,
            st.sampled_from((0, 5, 20)),
        ),
        min_size=1,
        max_size=3,
    ),
    st.booleans(),
)
def test_pods_with_rules_about_others_find_the_same_nodes_while_pods_are_nominated(
    changes: list[tuple[str, dict[str, Any]]], kinds: list[tuple[str, str, str, int]], anti: bool
) -> None:
    town = Town()
    for number, (what, wanted) in enumerate(changes):
        town.do(what, wanted)
        if anti and what == "nominate":  # a rule of the nominated pod about others
            apart = PodInfo(with_terms(town.pod(wanted), "apart", "web"))
            town.waiting[apart.key] = apart
            town.house.nominated.add(apart.pod, NominatingInfo.override(f"n{wanted['node'] % 2}"))
        kind, app, cpu, priority = kinds[number % len(kinds)]
        for round_ in range(2):
            pod = a_pod(f"asks{number}-{round_}", cpu=cpu, priority=priority, labels={"app": app})
            town.check(PodInfo(with_terms(pod, kind, "web" if round_ else app)))


def test_the_fast_way_is_taken_where_it_applies() -> None:
    town = Town()
    wanted = {"cpu": "2", "gpu": 0, "priority": 0, "start": NOW - 5, "app": "web"}
    for number in range(10):
        town.do("add", {**wanted, "node": number % 5})
    assert town.check(PodInfo(a_pod("fast", cpu="3", priority=10)))
    state = CycleState()
    ported = PodInfo(a_pod("ported", cpu="3", priority=10, containers=()))
    town.house.framework.pre_filter(state, ported, town.house.cache.snapshot().nodes())
    assert FastTrials(town.plugin.handle).of(state, ported, frozenset()) is not None
    state.skip_filter -= {"PodTopologySpread"}
    assert FastTrials(town.plugin.handle).of(state, ported, frozenset()) is None


def test_nominations_that_change_while_those_of_a_priority_are_not_kept_are_seen() -> None:
    with mock.patch("kubesched.scheduler.nodes.nominated_rows._MOST", 1):
        town = Town()
        wanted = {"cpu": "2", "gpu": 0, "priority": 0, "start": NOW - 5, "app": "web"}
        for number in range(10):
            town.do("add", {**wanted, "node": number % 5})
        nomination = {**wanted, "cpu": "4", "priority": 10, "pick": 0}
        town.do("nominate", {**nomination, "node": 0})
        assert town.check(PodInfo(a_pod("first", cpu="3", priority=10)))
        assert town.check(PodInfo(a_pod("other", cpu="3", priority=20)))
        town.do("forget", {**nomination, "node": 0})
        town.do("nominate", {**nomination, "node": 1})
        assert town.check(PodInfo(a_pod("second", cpu="3", priority=10)))


def test_no_candidates_are_looked_for_where_a_percentage_of_few_nodes_is_none() -> None:
    """As upstream: 10 % of 4 nodes are none, and an absolute number of 0 adds none."""
    town = Town()
    town.wanted = 0
    wanted = {"cpu": "2", "gpu": 0, "priority": 0, "start": NOW - 5, "app": "web"}
    for number in range(10):
        town.do("add", {**wanted, "node": number % 5})
    town.budgets(0)
    assert not town.check(PodInfo(a_pod("preemptor", cpu="3", priority=10)))
