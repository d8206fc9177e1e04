"""InterPodAffinity at the edges of its rules (rules/topology part A): namespaces, odd selectors, weights, first pods."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from topology_kit import configuration, namespace
from topology_twins import HOST, ZONE
from topology_worlds import (
    AWAY,
    EXISTING,
    FOUR,
    JSON,
    NEAR,
    PREFERRED,
    REQUIRED,
    WEB,
    affinity,
    anti,
    info,
    node,
    pod,
    pre_filtered,
    scores_of,
    term,
    verdicts,
    world,
)

from builders import a_stopwatch
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.entries import ScoreEntry
from kubesched.scheduler.framework.status import Code
from kubesched.scheduler.nodes import NodeList
from kubesched.scheduler.nodes.podinfo import PodInfo

AFFINITY = "InterPodAffinity"
NEAR, AWAY, EXISTING = f"UNSCHEDULABLE_AND_UNRESOLVABLE: {NEAR}", f"UNSCHEDULABLE: {AWAY}", f"UNSCHEDULABLE: {EXISTING}"
TWO = [node("a", zone="a", host="a"), node("b", zone="b", host="b")]


def of(obj: JSON, **meta: Any) -> JSON:
    return {**obj, "metadata": {**obj["metadata"], **meta}}


def preferred(weight: int, rule: JSON, *, away: bool = False) -> JSON:
    return {"podAntiAffinity" if away else "podAffinity": {PREFERRED: [{"weight": weight, "podAffinityTerm": rule}]}}


# -- the first pod of its kind -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("why", "incoming", "existing", "fits"),
    [
        ("no pod is there", pod("i", WEB, affinity=affinity(term(ZONE, app="web"))), [], {"n1", "n2", "n3"}),
        (
            "a node needs every key",
            pod("i", WEB, affinity=affinity(term(ZONE, app="web"), term("rack", app="web"))),
            [],
            {"n1"},
        ),
        ("it does not mean itself", pod("i", {"app": "db"}, affinity=affinity(term(ZONE, app="web"))), [], set()),
        (
            "it means itself by one term of two",
            pod("i", WEB, affinity=affinity(term(ZONE, app="web"), term(ZONE, tier="x"))),
            [],
            set(),
        ),
        (
            "it is not in the namespace it means",
            pod("i", WEB, affinity=affinity({**term(ZONE, app="web"), "namespaces": ["other"]})),
            [],
            set(),
        ),
        (
            "the only other one is on a node without the key",
            pod("i", WEB, affinity=affinity(term(ZONE, app="web"))),
            [pod("e", WEB, "n4")],
            {"n1", "n2", "n3"},
        ),
        (
            "another one is on a node with one of the keys",
            pod("i", WEB, affinity=affinity(term(ZONE, app="web"), term("rack", app="web"))),
            [pod("e", WEB, "n3")],
            set(),
        ),
        (
            "another one is being deleted",
            pod("i", WEB, affinity=affinity(term(ZONE, app="web"))),
            [of(pod("e", WEB, "n3"), deletionTimestamp="2026-01-01T00:00:00Z")],
            {"n3"},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_first_pod_of_its_kind_may_go_anywhere_with_the_keys(
    why: str, incoming: JSON, existing: list[JSON], fits: set[str]
) -> None:
    racked = node("n1", zone="a", host="n1", rack="r1")
    got = verdicts(world([racked, *FOUR[1:]], existing), AFFINITY, incoming)
    assert got == {name: NEAR for name in ("n1", "n2", "n3", "n4") if name not in fits}


def test_when_the_last_pod_of_its_kind_leaves_the_next_is_the_first() -> None:
    existing, incoming = pod("e", WEB, "n3"), pod("i", WEB, affinity=affinity(term(ZONE, app="web")))
    cluster = world(FOUR, [existing])
    state = pre_filtered(cluster, AFFINITY, incoming)
    plugin: Any = cluster.frameworks["default-scheduler"].answering[AFFINITY]
    where = cluster.cache.table.get("n3")
    assert state is not None
    assert where is not None
    assert verdicts(cluster, AFFINITY, incoming, state) == {"n1": NEAR, "n2": NEAR, "n4": NEAR}
    plugin.remove_pod(state, info(incoming), info(existing), where)
    assert verdicts(cluster, AFFINITY, incoming, state) == {"n4": NEAR}
    plugin.add_pod(state, info(incoming), info(existing), where)
    assert verdicts(cluster, AFFINITY, incoming, state) == {"n1": NEAR, "n2": NEAR, "n4": NEAR}


# -- filter ------------------------------------------------------------------------------------------------


def test_affinity_terms_have_to_match_the_same_pod_but_anti_affinity_terms_do_not() -> None:
    rules = (term(ZONE, app="web"), term(ZONE, tier="x"))
    one_each = [pod("e1", WEB, "n1"), pod("e2", {"tier": "x"}, "n1")]
    together = [pod("e3", {**WEB, "tier": "x"}, "n3")]
    near, away = pod("i", affinity=affinity(*rules)), pod("i", affinity=anti(*rules))
    assert verdicts(world(FOUR, one_each), AFFINITY, near) == dict.fromkeys(("n1", "n2", "n3", "n4"), NEAR)
    assert verdicts(world(FOUR, together), AFFINITY, near) == {"n1": NEAR, "n2": NEAR, "n4": NEAR}
    assert verdicts(world(FOUR, one_each), AFFINITY, away) == {"n1": AWAY, "n2": AWAY}


def test_a_node_without_the_key_is_never_too_near() -> None:
    existing = [pod("e1", WEB, "n4"), pod("e2", WEB, "n4", affinity=anti(term(ZONE, app="in")))]
    assert verdicts(world(FOUR, existing), AFFINITY, pod("i", affinity=anti(term(ZONE, app="web")))) == {}
    assert verdicts(world(FOUR, existing), AFFINITY, pod("i", {"app": "in"})) is None


def test_the_first_check_that_fails_says_why() -> None:
    carrier = pod("e", WEB, "n1", affinity=anti(term(HOST, app="web")))
    incoming = pod("i", WEB, affinity={**affinity(term(HOST, app="db")), **anti(term(HOST, app="web"))})
    everything = world(FOUR, [carrier, pod("db", {"app": "db"}, "n1")])
    assert (verdicts(everything, AFFINITY, incoming) or {})["n1"] == AWAY
    assert (verdicts(world(FOUR, [carrier, pod("db", {"app": "db"}, "n2")]), AFFINITY, incoming) or {})["n1"] == NEAR
    assert verdicts(world(FOUR, [carrier]), AFFINITY, pod("i", WEB)) == {"n1": EXISTING}


# -- namespaces and selectors ------------------------------------------------------------------------------

_SPACES = [namespace("default", "live"), namespace("dev", "test"), namespace("prod", "live")]
_TEST = {"matchLabels": {"env": "test"}}
_NOT_LIVE = {"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["live"]}]}


@pytest.mark.parametrize(
    ("why", "rule", "meant"),
    [
        ("nothing is said: its own", {}, {"default"}),
        ("an empty list and nothing selected: its own", {"namespaces": []}, {"default"}),
        ("those listed, not its own", {"namespaces": ["dev"]}, {"dev"}),
        ("an empty namespaceSelector: all", {"namespaceSelector": {}}, {"default", "dev", "prod", "ghost"}),
        ("those selected, not its own", {"namespaceSelector": _TEST}, {"dev"}),
        ("those listed and those selected", {"namespaces": ["prod"], "namespaceSelector": _TEST}, {"dev", "prod"}),
        ("a selector that selects none", {"namespaceSelector": {"matchLabels": {"env": "none"}}}, set()),
        ("no labelSelector", {"namespaceSelector": {}, "labelSelector": None}, set()),
        ("an empty labelSelector", {"namespaceSelector": _TEST, "labelSelector": {}}, {"dev"}),
        # Fixed quirk A-Q1: upstream would match every namespace.
        ("a negative selector", {"namespaceSelector": _NOT_LIVE}, {"dev"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_which_namespaces_an_incoming_term_means(why: str, rule: JSON, meant: set[str]) -> None:
    names = ("default", "dev", "prod", "ghost")
    nodes = [node(name, host=name) for name in names]
    cluster = world(nodes, [of(pod("e", WEB, name), namespace=name) for name in names], _SPACES)
    incoming = pod("i", affinity=anti({**term(HOST, app="web"), **rule}))
    assert verdicts(cluster, AFFINITY, incoming) == dict.fromkeys((name for name in names if name in meant), AWAY)


@pytest.mark.parametrize(
    ("why", "rule", "meant"),
    [
        ("nothing is said: its own", {}, {"dev"}),
        ("those listed, not its own", {"namespaces": ["prod"]}, {"prod"}),
        ("an empty namespaceSelector: all", {"namespaceSelector": {}}, {"default", "dev", "prod", "ghost"}),
        ("those selected", {"namespaceSelector": {"matchLabels": {"env": "live"}}}, {"default", "prod"}),
        ("those listed and those selected", {"namespaces": ["prod"], "namespaceSelector": _TEST}, {"dev", "prod"}),
        ("a negative selector, an unknown namespace has no labels", {"namespaceSelector": _NOT_LIVE}, {"dev", "ghost"}),
        ("no labelSelector", {"namespaceSelector": {}, "labelSelector": None}, set()),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_which_namespaces_the_term_of_a_running_pod_means(why: str, rule: JSON, meant: set[str]) -> None:
    carrier = of(pod("e", {}, "a", affinity=anti({**term(HOST, app="web"), **rule})), namespace="dev")
    cluster = world(TWO, [carrier], _SPACES)
    stopped = set()
    for name in ("default", "dev", "prod", "ghost"):
        said = verdicts(cluster, AFFINITY, of(pod("i", WEB), namespace=name))
        assert said in (None, {"a": EXISTING})
        stopped |= {name} if said else set()
    assert stopped == meant


def test_label_keys_in_terms_are_left_to_the_api_server() -> None:
    keys = {"matchLabelKeys": ["hash"], "mismatchLabelKeys": ["tier"]}
    cluster = world(TWO, [pod("e", {**WEB, "hash": "other", "tier": "x"}, "a")])
    incoming = pod("i", {"hash": "mine", "tier": "x"}, affinity=anti({**term(HOST, app="web"), **keys}))
    assert verdicts(cluster, AFFINITY, incoming) == {"a": AWAY}


_BAD = {"topologyKey": HOST, "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Like"}]}}


def test_a_list_of_a_running_pod_that_cannot_be_read_is_empty_and_its_other_lists_count() -> None:
    both = {**anti(_BAD, term(HOST, app="web")), **affinity(term(HOST, app="web"))}
    cluster = world(TWO, [pod("e", {}, "a", affinity=both)])
    assert verdicts(cluster, AFFINITY, pod("i", WEB)) is None
    assert scores_of(cluster, AFFINITY, pod("i", WEB), ["a", "b"]) == {"a": 100, "b": 0}


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (affinity(_BAD), "parsing pod: requiredAffinityTerms: "),
        (anti(term(HOST, app="web"), _BAD), "parsing pod: requiredAntiAffinityTerms: "),
        (preferred(1, _BAD), "parsing pod: preferredAffinityTerms: "),
        (preferred(1, _BAD, away=True), "parsing pod: preferredAntiAffinityTerms: "),
        ({**affinity(_BAD), **preferred(1, _BAD, away=True)}, "parsing pod: [requiredAffinityTerms: "),
    ],
    ids=["required", "required anti", "preferred", "preferred anti", "two lists"],
)
def test_a_pod_whose_terms_cannot_be_read_fits_nowhere(rules: JSON, message: str) -> None:
    cluster = world(TWO, [])
    plugin: Any = cluster.frameworks["default-scheduler"].answering[AFFINITY]
    table = cluster.cache.table
    status = plugin.pre_filter(CycleState(), info(pod("i", affinity=rules)), NodeList(table, table.order()))
    assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert status.reasons()[0].startswith(message)
    if "[" in message:
        assert ", preferredAntiAffinityTerms: " in status.reasons()[0]
        assert status.reasons()[0].endswith("]")


# -- score -------------------------------------------------------------------------------------------------


def arguments(**args: Any) -> JSON:
    return configuration(args, {})


_NEAR_IN = term(HOST, app="in")


@pytest.mark.parametrize(
    ("why", "config", "on_a", "incoming", "want"),
    [
        ("its required affinity", None, affinity(_NEAR_IN), {}, (100, 0)),
        ("its required affinity, weight 0", arguments(hardPodAffinityWeight=0), affinity(_NEAR_IN), {}, None),
        ("its required anti-affinity", None, anti(term(HOST, app="other")), {}, None),
        ("its preferred affinity", None, preferred(1, _NEAR_IN), {}, (100, 0)),
        ("its preferred affinity, required ones at weight 0", arguments(hardPodAffinityWeight=0), preferred(1, _NEAR_IN), {}, (100, 0)),
        ("its preferred anti-affinity", None, preferred(1, _NEAR_IN, away=True), {}, (0, 100)),
        ("its rule about others", None, preferred(1, term(HOST, app="web")), {}, None),
        (
            "its rule, ignored",
            arguments(ignorePreferredTermsOfExistingPods=True),
            preferred(1, _NEAR_IN),
            {},
            None,
        ),
        (
            "its required rule, ignored too",
            arguments(ignorePreferredTermsOfExistingPods=True),
            affinity(_NEAR_IN),
            {},
            None,
        ),
        (
            "its rule, not ignored for a pod that has one of its own",
            arguments(ignorePreferredTermsOfExistingPods=True),
            preferred(1, _NEAR_IN),
            preferred(1, term(HOST, app="nobody")),
            (100, 0),
        ),
        ("two rules that make up for each other", None, preferred(1, _NEAR_IN), preferred(1, term(HOST, app="e"), away=True), (0, 0)),
        ("a rule that matches no pod", None, {}, preferred(1, term(HOST, app="nobody")), None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_a_running_pod_adds_to_the_score(
    why: str, config: JSON | None, on_a: JSON, incoming: JSON, want: tuple[int, int] | None
) -> None:
    cluster = world(TWO, [pod("e", {"app": "e"}, "a", affinity=on_a)], config=config)
    got = scores_of(cluster, AFFINITY, pod("i", {"app": "in"}, affinity=incoming), ["a", "b"])
    assert got == (None if want is None else {"a": want[0], "b": want[1]})


@pytest.mark.parametrize(("weight", "want"), [(1, 10), (5, 50), (100, 100)])
def test_required_affinity_of_running_pods_has_the_configured_weight(weight: int, want: int) -> None:
    existing = [pod("e", {}, "a", affinity=affinity(_NEAR_IN)), pod("f", {}, "b", affinity=preferred(10, _NEAR_IN))]
    nodes = [*TWO, node("c", host="c")]
    cluster = world(nodes, existing, config=arguments(hardPodAffinityWeight=weight))
    got = scores_of(cluster, AFFINITY, pod("i", {"app": "in"}), ["a", "b", "c"])
    assert got == {"a": want, "b": 100 if weight <= 10 else 10, "c": 0}


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        ([0, 29, 50], [0, 57, 100]),
        ([0, 29, 57, 58, 100], [0, 28, 56, 57, 100]),
        ([-5, 29, 45], [0, 68, 100]),
        ([7, 7, 7], [0, 0, 0]),
        ([-3], [0]),
        ([-(2**40), 0, 2**40], [0, 50, 100]),
    ],
)
def test_scores_are_divided_first_and_multiplied_second(raw: list[int], want: list[int]) -> None:
    cluster = world(TWO, [])
    plugin: Any = cluster.frameworks["default-scheduler"].answering[AFFINITY]
    incoming: PodInfo = info(pod("i"))
    nodes = NodeList(cluster.cache.table, np.arange(len(raw), dtype=np.int32))
    assert (
        ScoreEntry(plugin, 1, a_stopwatch())
        .final_of_all(CycleState(), incoming, nodes, np.array(raw, np.int64))
        .tolist()
        == want
    )


def test_pods_being_deleted_count_in_scores_and_in_rules() -> None:
    leaving = of(pod("e", WEB, "a"), deletionTimestamp="2026-01-01T00:00:00Z")
    cluster = world(TWO, [leaving])
    soft = pod("i", affinity=preferred(1, term(HOST, app="web")))
    assert scores_of(cluster, AFFINITY, soft, ["a", "b"]) == {"a": 100, "b": 0}
    assert verdicts(cluster, AFFINITY, pod("i", affinity=anti(term(HOST, app="web")))) == {"a": AWAY}


def test_a_pod_that_lists_a_term_twice_counts_twice() -> None:
    once, twice = (
        preferred(1, _NEAR_IN),
        {"podAffinity": {PREFERRED: preferred(1, _NEAR_IN)["podAffinity"][PREFERRED] * 2}},
    )
    cluster = world([*TWO, node("c", host="c")], [pod("e", {}, "a", affinity=once), pod("f", {}, "b", affinity=twice)])
    got = scores_of(cluster, AFFINITY, pod("i", {"app": "in"}), ["a", "b", "c"])
    assert got == {"a": 50, "b": 100, "c": 0}
    hard = {"podAffinity": {REQUIRED: [_NEAR_IN, _NEAR_IN]}}
    cluster = world([*TWO, node("c", host="c")], [pod("e", {}, "a", affinity=once), pod("f", {}, "b", affinity=hard)])
    assert scores_of(cluster, AFFINITY, pod("i", {"app": "in"}), ["a", "b", "c"]) == {"a": 50, "b": 100, "c": 0}
