"""The term index: counts kept by steps equal fresh counts, whatever happens in between."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from term_kit import ZONE, a_cache, a_node, a_pod, anti_affinity, app_is, per_zone, pods_of, where

from kubesched.api.decode import from_builtins
from kubesched.api.selectors import EVERYTHING, NOTHING, Selector, compile_label_selector, required_node_affinity
from kubesched.api.types import LabelSelector, LabelSelectorRequirement, Namespace, PodSpec
from kubesched.scheduler.cache.check import check_cache
from kubesched.scheduler.nodes.domain_counts import DomainCounts, RowMask
from kubesched.scheduler.nodes.term_lookup import TermLookup, narrowest

# -- sentences ---------------------------------------------------------------------------------------------


def test_a_rule_registered_late_counts_the_pods_that_are_there() -> None:
    cache = a_cache()
    cache.add_pod(a_pod("p1", "n1", {"app": "web"}))
    cache.add_pod(a_pod("p2", "n3", {"app": "web", "tier": "x"}))
    cache.add_pod(a_pod("p3", "n3", {"app": "db"}))
    cache.add_pod(a_pod("p4", "n3", {"app": "web"}, namespace="other"))
    cache.add_pod(a_pod("p5", "n4", {"app": "web"}))
    assert per_zone(cache, pods_of("web")) == {"a": 1, "b": 1}
    assert per_zone(cache, pods_of("web", None)) == {"a": 1, "b": 2}


def test_counts_follow_pods_that_come_change_their_labels_and_go() -> None:
    cache = a_cache()
    web = pods_of("web")
    assert per_zone(cache, web) == {"a": 0, "b": 0}
    first = a_pod("p1", "n1", {"app": "web"})
    cache.assume_pod(first)
    assert per_zone(cache, web) == {"a": 1, "b": 0}
    cache.forget_pod(first.pod)
    assert per_zone(cache, web) == {"a": 0, "b": 0}
    cache.add_pod(first)
    changed = a_pod("p1", "n1", {"app": "db"})
    cache.update_pod(first.pod, changed)
    assert per_zone(cache, web) == {"a": 0, "b": 0}
    assert per_zone(cache, pods_of("db")) == {"a": 1, "b": 0}
    cache.remove_pod(changed.pod)
    assert per_zone(cache, pods_of("db")) == {"a": 0, "b": 0}
    assert check_cache(cache) == []


def test_pods_being_deleted_count_only_where_the_rule_says_so() -> None:
    cache = a_cache()
    old = a_pod("p1", "n1", {"app": "web"})
    cache.add_pod(old)
    assert per_zone(cache, pods_of("web", terminating=False)) == {"a": 1, "b": 0}
    cache.update_pod(old.pod, a_pod("p1", "n1", {"app": "web"}, terminating=True))
    assert per_zone(cache, pods_of("web", terminating=False)) == {"a": 0, "b": 0}
    assert per_zone(cache, pods_of("web")) == {"a": 1, "b": 0}


def test_a_node_that_changes_its_zone_takes_its_pods_along() -> None:
    cache = a_cache()
    cache.add_pod(a_pod("p1", "n1", {"app": "web"}))
    web = pods_of("web")
    assert per_zone(cache, web) == {"a": 1, "b": 0}
    cache.set_node(a_node("n1", zone="c"))
    assert per_zone(cache, web) == {"a": 0, "b": 0, "c": 1}
    cache.set_node(a_node("n1"))
    assert per_zone(cache, web) == {"a": 0, "b": 0}
    cache.remove_node("n3")
    assert per_zone(cache, web) == {"a": 0}


def test_a_what_if_is_counted_inside_and_gone_outside() -> None:
    cache = a_cache()
    victim = a_pod("p1", "n1", {"app": "web"}, affinity=anti_affinity("web"))
    cache.add_pod(victim)
    web, snapshot, index = pods_of("web"), cache.snapshot(), cache.table.terms
    held = index.domains(index.counter(web), ZONE).counts
    before = held.copy()
    node = snapshot.get("n1")
    with snapshot.without([(node, victim)]):
        assert per_zone(cache, web) == {"a": 0, "b": 0}
        assert not index.has_anti
        with snapshot.with_pods(node, [a_pod("p2", "", {"app": "web"}), a_pod("p3", "", {"app": "web"})]):
            assert per_zone(cache, web) == {"a": 2, "b": 0}
            assert (held == before).all(), "arrays handed out must not change"
    assert per_zone(cache, web) == {"a": 1, "b": 0}
    assert [carried.total for carried in index.anti_terms("default", {"app": "web"})] == [1]
    assert check_cache(cache) == []


def test_carried_terms_are_found_by_the_pods_they_mean() -> None:
    cache = a_cache()
    cache.add_pod(a_pod("p1", "n1", {}, affinity=anti_affinity("web")))
    cache.add_pod(a_pod("p2", "n2", {}, affinity=anti_affinity("web")))
    cache.add_pod(a_pod("p3", "n3", {}, affinity=anti_affinity("db")))
    index = cache.table.terms
    assert [carried.by_row for carried in index.anti_terms("default", {"app": "web"})] == [{0: 1, 1: 1}]
    assert index.anti_terms("default", {"app": "job"}) == []
    assert index.anti_terms("other", {"app": "web"}) == []
    cache.remove_pod(cache.pods["p3"].pod)
    assert index.anti_terms("default", {"app": "db"}) == []
    assert len(index.carried()) == 1


def test_a_namespace_that_changes_its_labels_is_selected_again() -> None:
    cache = a_cache()
    selector = {"matchLabels": {"env": "test"}}
    term = {"topologyKey": ZONE, "labelSelector": {}, "namespaceSelector": selector}
    rule_ = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    carrier = a_pod("p1", "n1", {}, affinity=rule_)
    cache.add_pod(carrier)
    index = cache.table.terms
    compiled = carrier.affinity_terms.required_anti[0]
    assert index.anti_terms("dev", {}) == []
    assert index.resolve(compiled) == frozenset()
    cache.set_namespace(from_builtins({"metadata": {"name": "dev", "labels": {"env": "test"}}}, Namespace))
    assert len(index.anti_terms("dev", {})) == 1
    assert index.resolve(compiled) == frozenset(("dev",))
    cache.remove_namespace("dev")
    assert index.anti_terms("dev", {}) == []
    assert index.resolve(compiled) == frozenset()


def test_a_reader_that_fell_far_behind_sums_up_again() -> None:
    cache = a_cache()
    web = pods_of("web")
    assert per_zone(cache, web) == {"a": 0, "b": 0}
    for number in range(3000):
        cache.add_pod(a_pod(f"p{number}", "n1", {"app": "web"}))
    for number in range(2990):
        cache.remove_pod(cache.pods[f"p{number}"].pod)
    assert per_zone(cache, web) == {"a": 10, "b": 0}


@pytest.mark.parametrize("masked", [False, True])
def test_many_changes_between_two_reads_are_summed_as_one_by_one(masked: bool) -> None:
    cache = a_cache()
    table = cache.table
    for number in range(300):
        cache.set_node(a_node(f"m{number}", zone="ab"[number % 2], **({"rack": "r"} if number % 3 else {})))
    for number in range(50):
        cache.add_pod(a_pod(f"old{number}", f"m{number}", {"app": "web"}))
    mask = RowMask(table, (ZONE, "rack")) if masked else None
    domains = DomainCounts(table, table.terms.counter(pods_of("web")), ZONE, mask)
    domains.sync()
    seen = domains.log.position

    for number in range(100):
        cache.add_pod(a_pod(f"new{number}", "n4" if number < 5 else f"m{number}", {"app": "web"}))
    for number in range(50):
        cache.remove_pod(cache.pods[f"old{number}"].pod)
    domains.sync()

    counted = [number for number in range(5, 100) if number % 3 or not masked]
    found = {value: int(domains.counts[code]) for code, value in enumerate(domains.column.values) if value in "ab"}
    assert found == {"a": sum(not number % 2 for number in counted), "b": sum(number % 2 for number in counted)}
    assert domains.total == len(counted)
    assert domains.log.position == seen + 2, "each domain is named once"


def test_a_table_that_grows_keeps_its_counts() -> None:
    cache = a_cache()
    web = pods_of("web")
    assert per_zone(cache, web) == {"a": 0, "b": 0}
    cache.table.terms.counter(web).dense(cache.table.capacity)
    for number in range(200):
        cache.add_pod(a_pod(f"p{number}", f"m{number}", {"app": "web"}))
    assert per_zone(cache, web) == {"a": 0, "b": 0}, "pods of unknown nodes are in no zone"
    for number in range(200):
        cache.set_node(a_node(f"m{number}", zone="b"))
    assert per_zone(cache, web) == {"a": 0, "b": 200}
    assert check_cache(cache) == []


def test_unused_rules_age_out_and_are_registered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubesched.scheduler.nodes.term_index._AGE", 10)
    monkeypatch.setattr("kubesched.scheduler.nodes.term_index._SWEEP_EVERY", 8)
    cache = a_cache()
    index = cache.table.terms
    stale, used = index.counter(pods_of("web")), index.counter(pods_of("db"))
    index.domains(stale, ZONE)
    for number in range(40):
        cache.add_pod(a_pod(f"p{number}", "n1", {"app": "web"}))
        assert index.touch(used)
    assert not stale.live
    assert index.sets().keys() == {pods_of("db")}
    assert per_zone(cache, pods_of("web")) == {"a": 40, "b": 0}
    assert check_cache(cache) == []


@pytest.mark.parametrize("asked", [False, True], ids=["unused", "used"])
def test_a_rule_ages_while_the_same_pod_comes_and_goes(monkeypatch: pytest.MonkeyPatch, asked: bool) -> None:
    monkeypatch.setattr("kubesched.scheduler.nodes.term_index._AGE", 10)
    monkeypatch.setattr("kubesched.scheduler.nodes.term_index._SWEEP_EVERY", 8)
    cache = a_cache()
    index = cache.table.terms
    cache.add_pod(a_pod("carrier", "n1", {}, affinity=anti_affinity("web")))
    counter = index.counter(pods_of("web"))
    [carried] = index.anti_terms("default", {"app": "web"})
    index.domains(counter, ZONE)
    index.domains(carried, ZONE)
    for _ in range(20):
        pod = a_pod("p", "n1", {"app": "web"})
        cache.add_pod(pod)
        cache.remove_pod(pod.pod)
        if asked:
            assert index.touch(counter)
            index.domains(carried, ZONE)
    assert counter.live is asked
    assert index.sets().keys() == ({pods_of("web")} if asked else set())
    assert carried.live, "what pods carry stays as long as they do"
    assert bool(carried.domains) is asked, "but its arrays do not"
    assert per_zone(cache, pods_of("web")) == {"a": 0, "b": 0}
    assert check_cache(cache) == []


def test_a_rule_is_dropped_between_one_and_two_ages_after_it_was_last_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kubesched.scheduler.nodes.term_index._AGE", 32)
    monkeypatch.setattr("kubesched.scheduler.nodes.term_index._SWEEP_EVERY", 8)
    cache = a_cache()
    counter = cache.table.terms.counter(pods_of("web"))
    steps = 0
    while counter.live and steps < 1000:
        pod = a_pod("p", "n1", {"app": "web"})
        cache.add_pod(pod)
        cache.remove_pod(pod.pod)
        steps += 2
    assert 32 < steps <= 32 + 2 * 8


def test_the_number_of_rules_and_arrays_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubesched.scheduler.nodes.term_index._LEAST_SETS", 8)
    monkeypatch.setattr("kubesched.scheduler.nodes.term_index._BUDGET", 0)
    cache = a_cache()
    for number in range(50):
        name = f"app{number}"
        cache.add_pod(a_pod(name, "n1", {"app": name}, affinity=anti_affinity(name)))
        assert per_zone(cache, pods_of(name)) == {"a": 1, "b": 0}
        for carried in cache.table.terms.anti_terms("default", {"app": name}):
            assert cache.table.terms.domains(carried, ZONE).total == 1
    index = cache.table.terms
    assert len(index.sets()) <= 8
    assert sum(bool(counter.domains) for counter in [*index.sets().values(), *index.carried().values()]) <= 8
    assert check_cache(cache) == []


def test_a_dropped_rule_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubesched.scheduler.nodes.term_index._LEAST_SETS", 8)
    monkeypatch.setattr("kubesched.scheduler.nodes.term_index._BUDGET", 0)
    index = a_cache().table.terms
    rules = [index.counter(pods_of(f"app{number}")) for number in range(8)]
    for each in rules:
        index.domains(each, ZONE)

    index.counter(pods_of("more"))

    dropped = [each for each in rules if not each.live]
    assert dropped
    assert not any(each in index._awake for each in dropped)


def test_in_a_small_cluster_rules_count_by_more_than_their_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubesched.scheduler.nodes.term_index._LEAST_SETS", 8)
    monkeypatch.setattr("kubesched.scheduler.nodes.term_index._BUDGET", 96 << 10)  # a rule on four nodes takes 3 kB
    index = a_cache().table.terms
    for number in range(100):
        index.counter(pods_of(f"app{number}"))
    assert 8 < len(index.sets()) <= 32


def test_a_mask_leaves_out_nodes_until_they_match() -> None:
    cache = a_cache()
    cache.add_pod(a_pod("p1", "n1", {"app": "web"}))
    table = cache.table
    counter = table.terms.counter(pods_of("web"))
    domains = DomainCounts(table, counter, ZONE, RowMask(table, (ZONE, "rack")))
    domains.sync()
    assert (domains.total, domains.places, domains.least()) == (0, 0, 0)
    cache.set_node(a_node("n1", zone="a", rack="r"))
    domains.sync()
    assert (domains.total, domains.places, domains.least()) == (1, 1, 1)
    assert domains.includes(0)
    assert not domains.includes(1)


# -- the lookup --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "namespaces", "labels", "found"),
    [
        (app_is("web"), frozenset(("default",)), {"app": "web"}, True),
        (app_is("web", "db"), frozenset(("default",)), {"app": "db"}, True),
        (app_is("web"), frozenset(("other",)), {"app": "web"}, False),
        (app_is("web"), None, {"app": "web"}, True),
        (app_is("web"), None, {"app": "db"}, False),
        (EVERYTHING, frozenset(("default",)), {}, True),
        (NOTHING, None, {"app": "web"}, False),
        (where("app", "NotIn", "web"), None, {"app": "db"}, True),
        (where("app", "NotIn", "web"), None, {}, True),
        (where("app", "Exists"), frozenset(("default",)), {"app": "db"}, True),
        (app_is("web"), frozenset(f"ns{number}" for number in range(100)), {"app": "web"}, True),
    ],
)
def test_the_lookup_names_rules_that_may_match(
    selector: Selector, namespaces: frozenset[str] | None, labels: dict[str, str], found: bool
) -> None:
    lookup: TermLookup[str] = TermLookup()
    lookup.add("rule", namespaces, selector)
    assert lookup.candidates("default", labels) == (["rule"] if found else [])
    assert "rule" in lookup
    lookup.remove("rule")
    assert lookup.candidates("default", labels) == []
    assert len(lookup) == 0


def test_a_rule_is_filed_under_the_requirement_with_the_fewest_values() -> None:
    selector = compile_label_selector(
        LabelSelector(
            match_expressions=(
                LabelSelectorRequirement(key="zone", operator="NotIn", values=("x",)),
                LabelSelectorRequirement(key="app", operator="In", values=("web", "db", "cache")),
                LabelSelectorRequirement(key="tier", operator="In", values=("front", "back")),
                LabelSelectorRequirement(key="app", operator="Exists"),
            )
        )
    )

    assert narrowest(selector) == (("tier", "back"), ("tier", "front"))


# -- anything may happen -----------------------------------------------------------------------------------

_apps = st.sampled_from(["web", "db"])
_labels = st.fixed_dictionaries({}, optional={"app": _apps, "tier": st.just("x")})
_names = st.sampled_from(["n1", "n2", "n3", "m1"])


class IndexMachine(RuleBasedStateMachine):
    """Pods, nodes and rules come and go; after every step the index equals a recount."""

    @initialize()
    def start(self) -> None:
        self.cache = a_cache()
        self.number = 0
        self.held: list[DomainCounts] = []

    @rule(node=_names, labels=_labels, namespace=st.sampled_from(["default", "dev"]), carries=st.none() | _apps)
    def add(self, node: str, labels: dict[str, str], namespace: str, carries: str | None) -> None:
        self.number += 1
        affinity = {} if carries is None else {"affinity": anti_affinity(carries)}
        self.cache.add_pod(a_pod(f"p{self.number}", node, labels, namespace=namespace, **affinity))

    @precondition(lambda self: self.cache.pods)
    @rule(data=st.data(), labels=_labels, terminating=st.booleans())
    def relabel(self, data: st.DataObject, labels: dict[str, str], terminating: bool) -> None:
        old = self.cache.pods[data.draw(st.sampled_from(sorted(self.cache.pods)))]
        new = a_pod(old.name, old.spec.node_name, labels, namespace=old.namespace, terminating=terminating)
        self.cache.update_pod(old.pod, new)

    @precondition(lambda self: self.cache.pods)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        self.cache.remove_pod(self.cache.pods[data.draw(st.sampled_from(sorted(self.cache.pods)))].pod)

    @rule(name=_names, zone=st.sampled_from(["a", "b", "c", None]))
    def set_node(self, name: str, zone: str | None) -> None:
        self.cache.set_node(a_node(name, **({"zone": zone} if zone else {})))

    @rule(name=_names)
    def remove_node(self, name: str) -> None:
        if self.cache.table.row_of(name) is not None:
            self.cache.remove_node(name)

    @rule(app=_apps, namespace=st.sampled_from(["default", None]), terminating=st.booleans())
    def ask(self, app: str, namespace: str | None, terminating: bool) -> None:
        per_zone(self.cache, pods_of(app, namespace, terminating=terminating))

    @rule(app=_apps)
    def match(self, app: str) -> None:
        index = self.cache.table.terms
        for carried in index.anti_terms("default", {"app": app}):
            index.domains(carried, ZONE)

    @precondition(lambda self: self.cache.pods)
    @rule(data=st.data(), app=_apps)
    def what_if(self, data: st.DataObject, app: str) -> None:
        pod = self.cache.pods[data.draw(st.sampled_from(sorted(self.cache.pods)))]
        node = self.cache.table.get(pod.spec.node_name)
        assert node is not None
        before = per_zone(self.cache, pods_of(app))
        with self.cache.snapshot().without([(node, pod)]):
            per_zone(self.cache, pods_of(app))
        assert per_zone(self.cache, pods_of(app)) == before

    @rule(app=_apps, zone=st.sampled_from(["a", "b"]))
    def hold(self, app: str, zone: str) -> None:
        """A sum over some nodes only, as plugins keep them."""
        table = self.cache.table
        match = required_node_affinity(from_builtins({"containers": [], "nodeSelector": {"zone": zone}}, PodSpec))
        counter = table.terms.counter(pods_of(app))
        self.held.append(DomainCounts(table, counter, ZONE, RowMask(table, (ZONE,), match)))

    @rule()
    def catch_up(self) -> None:
        for domains in self.held:
            domains.sync()
        assert check_cache(self.cache) == []

    @invariant()
    def equals_a_recount(self) -> None:
        if hasattr(self, "cache"):
            assert check_cache(self.cache) == []


TestIndexMachine = IndexMachine.TestCase
