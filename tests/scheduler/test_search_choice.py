"""Tasks of the search besides remembering: choosing, sampling, nominated pods, restrictions, plain plugins."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import a_node, a_pod, a_taint, field_term, info, node_affinity
from kubesched.scheduler.cache.check import check_cache
from kubesched.scheduler.core.diagnosis import Rejection
from kubesched.scheduler.core.full_scan import nodes_to_find
from kubesched.scheduler.core.layers import Layer
from kubesched.scheduler.core.search import Path
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.status import Code, Status
from kubesched.scheduler.nodes.podinfo import PodInfo
from search_kit import SIGNING, House, make_asking, make_plugin, reasons


def many(count: int) -> list[Any]:
    return [a_node(f"n{index}") for index in range(count)]


# -- the choice --------------------------------------------------------------------------------------------


def test_without_nodes_there_is_nothing_to_search() -> None:
    house = House()
    for fresh in (False, True):
        rejection = house.failure(a_pod(), fresh=fresh)
        assert rejection.message() == "no nodes available to schedule pods"
        assert not rejection.diagnosis.unschedulable_plugins


def test_one_feasible_node_is_chosen_without_scoring() -> None:
    def score(self: Any, state: Any, pod: Any, node: Any) -> int:
        raise AssertionError("scored")

    house = House(
        [a_node("n1"), a_node("n2", unschedulable=True)], plugins=[*SIGNING, make_plugin("Loud", score=score)]
    )
    decision = house.find(a_pod())
    assert (decision.node.name, decision.evaluated, decision.feasible) == ("n1", 2, 1)


def script(house: House) -> list[str]:
    """A run of decisions, each changing what the next one sees."""
    names = []
    for number in range(60):
        pod = a_pod(f"p{number}", cpu="100m" if number % 3 else "300m")
        names.append(house.find(pod).node.name)
        house.cache.assume_pod(PodInfo(pod.on_node(names[-1])))
    return names


def test_the_same_seed_makes_the_same_choices() -> None:
    first, again, other = (script(House(many(40), seed=seed)) for seed in (7, 7, 8))
    assert first == again
    assert first != other
    assert max(Counter(first).values()) <= 3


@pytest.mark.parametrize("rows", [5, 200])
@pytest.mark.parametrize("extra", [[], [make_plugin("Unsigned", filter=lambda self, state, pod, node: None)]])
def test_ties_are_broken_uniformly(rows: int, extra: list[Any]) -> None:
    """Also across the blocks in which a ranking keeps its maxima, and in a full scan."""
    best = {1, 3, rows - 1, rows // 2}
    nodes = [a_node(f"n{index}", cpu="8" if index in best else "4") for index in range(rows)]
    house = House(nodes, plugins=[*SIGNING, *extra], seed=3)
    draws = 400 * len(best)
    pod = info(cpu="1", memory="1Gi")
    counts = Counter(house.find(pod.pod).node.name for _ in range(draws))
    assert set(counts) == {f"n{index}" for index in best}
    expected = draws / len(best)
    chi_square = sum((count - expected) ** 2 / expected for count in counts.values())
    assert chi_square < 16.3  # beyond this once in a thousand for three degrees of freedom


# -- sampling ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "percentage", "want"),
    [
        (10, 0, 10), (99, 5, 99), (100, 0, 100), (200, 0, 100), (1000, 0, 420), (5000, 0, 500), (6000, 0, 300),
        (1000, 40, 400), (6000, 40, 2400), (1000, 5, 100), (100, 100, 100), (6000, 100, 6000), (100_000, 0, 5000),
    ],
)  # fmt: skip
def test_how_many_nodes_to_find(nodes: int, percentage: int, want: int) -> None:
    assert nodes_to_find(nodes, percentage) == want


def sampled(names: list[str], bad: set[str], start: int, want: int) -> tuple[list[str], list[str], int]:
    """rules/cycle §5.8 in plain words: (feasible, rejected, next start)."""
    feasible: list[str] = []
    rejected: list[str] = []
    for step in range(len(names)):
        name = names[(start + step) % len(names)]
        if name in bad:
            rejected.append(name)
        elif len(feasible) == want:
            break
        else:
            feasible.append(name)
    return feasible, rejected, (start + len(feasible) + len(rejected)) % len(names)


@given(
    count=st.sampled_from([120, 150, 333]),
    percentage=st.sampled_from([5, 40, 70, 100]),
    salt=st.integers(0, 1000),
    odds=st.sampled_from([0.0, 0.2, 0.7, 0.97]),
    attempts=st.integers(1, 6),
)
def test_a_sampled_search_goes_round(count: int, percentage: int, salt: int, odds: float, attempts: int) -> None:
    rng = random.Random(salt)
    bad = {f"n{index}" for index in range(count) if rng.random() < odds}
    house = House(
        [a_node(f"n{index}", unschedulable=f"n{index}" in bad) for index in range(count)], percentage=percentage
    )
    names = house.cache.snapshot().nodes().names()
    start = 0
    for number in range(attempts):
        feasible, rejected, start = sampled(names, bad, start, nodes_to_find(count, percentage))
        pod = a_pod(f"p{number}")
        if feasible:
            decision = house.find(pod)
            assert decision.node.name in feasible
            assert decision.feasible == len(feasible)
            assert decision.evaluated == len(feasible) + len(rejected)
        else:
            rejection = house.failure(pod)
            assert reasons(rejection.diagnosis.statuses).keys() == set(rejected)
        assert house.rotation.start == start


def test_a_sampled_search_records_rejections_up_to_the_success_too_many() -> None:
    nodes = [a_node(f"n{index:03}", unschedulable=index in (5, 100, 101, 103, 105)) for index in range(200)]
    house = House(nodes, percentage=1)
    evaluation = house.evaluate(a_pod())
    # n102 is the hundredth success; n104 is one too many and ends the search, so n105 is never evaluated.
    assert reasons(evaluation.statuses).keys() == {"n005", "n100", "n101", "n103"}
    assert len(evaluation.feasible) == 100
    assert house.rotation.start == 104
    assert house.names(evaluation.feasible)[-1] == "n102"


def test_rejections_behind_the_last_wanted_success_are_recorded_too() -> None:
    """The search only ends at a success too many, whatever was asked at a time before."""
    closed = {*range(28), 128, 129}  # the hundredth success is the last of 128
    house = House([a_node(f"n{index:03}", unschedulable=index in closed) for index in range(200)], percentage=1)
    evaluation = house.evaluate(a_pod())
    assert reasons(evaluation.statuses).keys() == {f"n{index:03}" for index in closed}
    assert (len(evaluation.feasible), house.rotation.start) == (100, 130)


@pytest.mark.parametrize("percentage", [0, 100])
def test_the_first_filter_in_order_owns_a_rejection_though_a_later_one_is_remembered(percentage: int) -> None:
    def reject(self: Any, state: Any, pod: Any, node: Any) -> Status | None:
        return None if node.name == "n2" else Status.unschedulable("first")

    nodes = [a_node("n0", unschedulable=True), a_node("n1"), a_node("n2", unschedulable=True)]
    orders: list[tuple[list[str | type], str]] = [
        ([make_plugin("First", filter=reject), *SIGNING], "First"),
        ([*SIGNING, make_plugin("Last", filter=reject)], "NodeUnschedulable"),
    ]
    for plugins, owner in orders:
        house = House(nodes, plugins=plugins, percentage=percentage)
        for _ in range(2):
            found = reasons(house.failure(a_pod()).diagnosis.statuses)
            assert {name: plugin for name, (_, _, plugin) in found.items()} == {
                "n0": owner,
                "n1": "First" if owner == "First" else "Last",
                "n2": "NodeUnschedulable",
            }


def test_an_unsigned_plain_filter_is_sampled_and_a_signed_one_is_remembered() -> None:
    calls: list[str] = []

    def watch(self: Any, state: Any, pod: Any, node: Any) -> Status | None:
        calls.append(node.name)
        return Status.unschedulable("no") if node.name == "n7" else None

    unsigned = House(many(400), plugins=[*SIGNING, make_plugin("Plain", filter=watch)])
    decision = unsigned.find(a_pod())
    want = nodes_to_find(400, 0)
    assert decision.feasible == want
    assert want < len(calls) <= want + 33
    assert unsigned.rotation.start == decision.evaluated

    calls.clear()
    signed = House(
        many(400), plugins=[*SIGNING, make_plugin("Plain", filter=watch, sign=lambda self, pod: pod.labels.get("a"))]
    )
    labels = {"a": "1"}
    assert signed.find(a_pod("p1", labels=labels)).feasible == 399
    assert len(calls) == 400
    signed.find(a_pod("p2", labels=labels))
    assert len(calls) == 400
    signed.add(a_pod("x", on="n3"))
    signed.cache.set_node(a_node("n4", cpu="1"))
    signed.find(a_pod("p3", labels=labels))
    assert sorted(calls[400:]) == ["n3", "n4"]
    signed.find(a_pod("p4", labels={"a": "2"}))
    assert len(calls) == 802


def test_pods_that_a_plain_plugin_does_not_sign_are_sampled_although_it_signs_others() -> None:
    calls: list[str] = []

    def watch(self: Any, state: Any, pod: Any, node: Any) -> Status | None:
        calls.append(node.name)
        return None

    def sign(self: Any, pod: PodInfo) -> Any:
        return pod.labels.get("a")

    house = House(many(400), plugins=[*SIGNING, make_plugin("Plain", filter=watch, sign=sign)])
    want = nodes_to_find(400, 0)
    assert house.find(a_pod("unsigned")).feasible == want
    assert want < len(calls) <= want + 33
    calls.clear()
    assert house.find(a_pod("signed", labels={"a": "1"})).feasible == len(calls) == 400
    assert house.evaluate(a_pod("signed", labels={"a": "1"})).feasible.shape == (400,)


def test_reasons_that_never_repeat_are_not_all_kept() -> None:
    attempts = itertools.count()

    def refuse(self: Any, state: Any, pod: Any, node: Any) -> Status | None:
        return Status.unschedulable(f"node {node.name} was refused at attempt {next(attempts)}")

    house = House(many(20), plugins=[*SIGNING, make_plugin("Wordy", filter=refuse, sign=lambda self, pod: ())])
    layers = house.search._layers
    for number in range(1500):
        message = house.failure(a_pod(f"p{number}")).message()
        assert message.count("was refused at attempt") == 20
        house.cache.set_node(a_node("n3", labels={"version": str(number)}))
    (layer,) = [layer for layer in layers._kept.values() if isinstance(layer, Layer)]
    entry = house.framework.filters[-1]
    assert 20 <= entry.distinct_statuses(layer.state) <= 2 * 20 + 1024 + 20
    assert len(layer._statuses) <= 2 * 20 + 1024 + 20


def test_a_pod_one_plugin_cannot_sign_still_uses_what_the_others_remember() -> None:
    def sign(self: Any, pod: PodInfo) -> Any:
        return pod.labels.get("a")

    def choosy(self: Any, state: Any, pod: Any, node: Any) -> Status | None:
        return None if node.name == pod.labels.get("at", node.name) else Status.unschedulable("elsewhere")

    house = House(many(20), plugins=[*SIGNING, make_plugin("Choosy", filter=choosy, sign=sign)])
    assert house.find(a_pod("p", labels={"at": "n3"})).node.name == "n3"
    assert house.find(a_pod("q", labels={"at": "n5"})).node.name == "n5"
    assert house.find(a_pod("r", labels={"a": "1"})).feasible == 20
    rejection = house.failure(a_pod("s", labels={"at": "gone"}))
    assert rejection.message() == "0/20 nodes are available: 20 elsewhere."
    assert rejection.diagnosis.unschedulable_plugins == {"Choosy"}


# -- plain scores and columns ------------------------------------------------------------------------------


def test_unsigned_scores_are_added_to_those_of_the_signature_layer() -> None:
    def score(self: Any, state: Any, pod: Any, node: Any) -> int:
        return 100 if node.name == pod.labels["best"] else 0

    # The layer's scores differ by at most a few points between these nodes.
    house = House(many(30), plugins=[*SIGNING, make_plugin("Favourite", score=score)])
    for name in ("n3", "n29", "n3"):
        assert house.find(a_pod(name, cpu="1", labels={"best": name})).node.name == name
    evaluation = house.evaluate(a_pod(cpu="1", labels={"best": "n4"}))
    assert evaluation.scores is not None
    assert evaluation.scores["Favourite"].tolist().count(100) == 1


@pytest.mark.parametrize("changes", [1, 9, 40])
def test_a_plain_plugin_is_given_the_current_pod_however_many_nodes_changed(changes: int) -> None:
    seen: dict[str, set[str]] = {"filter": set(), "score": set()}

    def filter_(self: Any, state: Any, pod: PodInfo, node: Any) -> None:
        seen["filter"].add(pod.name)

    def score(self: Any, state: Any, pod: PodInfo, node: Any) -> int:
        seen["score"].add(pod.name)
        return 0

    plain = make_plugin("Plain", filter=filter_, score=score, sign=lambda self, pod: ())
    house = House(many(40), plugins=[*SIGNING, plain])
    for attempt in range(3):
        seen.update(filter=set(), score=set())
        house.find(a_pod(f"p{attempt}"))
        assert seen == {"filter": {f"p{attempt}"}, "score": {f"p{attempt}"}}
        house.add(*(a_pod(f"x{attempt}-{index}", on=f"n{index}") for index in range(changes)))


def test_own_normalisation_sees_the_scores_of_all_feasible_nodes_in_order() -> None:
    seen: list[tuple[list[str], list[int]]] = []

    def score(self: Any, state: Any, pod: Any, node: Any) -> int:
        return int(node.name[1:]) * 1000

    def normalize(self: Any, state: Any, pod: Any, nodes: Any, scores: Any) -> Any:
        seen.append((nodes.names(), scores.tolist()))
        return scores * 100 // scores.max()

    house = House(
        [*many(4), a_node("n4", unschedulable=True)],
        plugins=["NodeUnschedulable", make_plugin("Ranked", score=score, normalize_score=normalize)],
    )
    assert house.find(a_pod()).node.name == "n3"
    assert seen == [(["n0", "n1", "n2", "n3"], [0, 1000, 2000, 3000])]


@pytest.mark.parametrize(
    ("make", "more"),
    [(make_plugin, {}), (make_plugin, {"sign": lambda self, pod: ()}), (make_asking, {}), (make_asking, {"key": ()})],
)
def test_pre_filter_is_given_all_nodes_and_pre_score_the_feasible_ones(make: Any, more: dict[str, Any]) -> None:
    seen: list[list[str]] = []

    def note(*args: Any) -> None:
        seen.append(args[-1].names())

    house = House(
        [*many(3), a_node("n3", unschedulable=True)],
        plugins=[*SIGNING, make("Noting", pre_filter=note, pre_score=note, **more)],
    )
    house.find(a_pod("p"))
    house.evaluate(a_pod("q"))
    assert seen == [["n0", "n1", "n2", "n3"], ["n0", "n1", "n2"]] * 2


# -- nominated pods ----------------------------------------------------------------------------------------


def nominate(house: House, node: str, *pods: Any) -> None:
    house.nominated.pods[node] = [PodInfo(pod) for pod in pods]


@pytest.mark.parametrize(
    ("name", "nominee", "fits"),
    [
        ("a nominee of higher priority uses its resources", a_pod("nominee", cpu="3", priority=10), False),
        ("so does one of the same priority", a_pod("nominee", cpu="3", priority=5), False),
        ("one of lower priority does not count", a_pod("nominee", cpu="3", priority=4), True),
        ("the pod itself does not count", a_pod("p", cpu="3", priority=10), True),
        ("a small one leaves enough", a_pod("nominee", cpu="1", priority=10), True),
    ],
)
@pytest.mark.parametrize("warm", [False, True])
def test_nominated_pods_use_resources(name: str, nominee: Any, fits: bool, warm: bool) -> None:
    house = House([a_node("n1", cpu="4"), a_node("n2", cpu="1")])
    pod = a_pod("p", cpu="2", priority=5)
    if warm:
        assert house.find(pod).node.name == "n1"
    nominate(house, "n1", nominee)
    if fits:
        assert house.find(pod).node.name == "n1", name
    else:
        assert reasons(house.failure(pod).diagnosis.statuses) == {
            "n1": (2, ("Insufficient cpu",), "NodeResourcesFit"),
            "n2": (3, ("Insufficient cpu",), "NodeResourcesFit"),
        }
    assert check_cache(house.cache) == []
    house.nominated.pods.clear()
    assert house.find(pod).node.name == "n1"


def test_a_node_must_pass_without_its_nominees_too() -> None:
    seen: list[int] = []

    def needs_company(self: Any, state: Any, pod: Any, node: Any) -> Status | None:
        seen.append(len(node.pods))
        return None if node.pods else Status.unschedulable("alone")

    house = House([a_node("n1")], plugins=["NodeUnschedulable", make_plugin("Company", filter=needs_company)])
    nominate(house, "n1", a_pod("nominee", priority=9))
    rejection = house.failure(a_pod())
    assert reasons(rejection.diagnosis.statuses) == {"n1": (2, ("alone",), "Company")}
    assert seen[-2:] == [1, 0]


def test_plugins_receive_nominated_pods_on_a_copy_of_their_state() -> None:
    calls: list[str] = []

    class Count:
        def __init__(self, number: int) -> None:
            self.number = number

        def clone(self) -> Count:
            return Count(self.number)

    def pre_filter(self: Any, state: CycleState, pod: Any, nodes: Any) -> None:
        state.write("count", Count(0))

    def add_pod(self: Any, state: CycleState, pod: Any, added: PodInfo, node: Any) -> None:
        calls.append(f"{added.name} on {node.name}")
        state.read("count").number += 1

    def few(self: Any, state: CycleState, pod: Any, node: Any) -> Status | None:
        return Status.unschedulable("crowd") if state.read("count").number > 1 else None

    counter = make_plugin("Counter", pre_filter=pre_filter, add_pod=add_pod, remove_pod=lambda *args: None, filter=few)
    house = House([a_node("n1"), a_node("n2")], plugins=["NodeUnschedulable", counter])
    nominate(house, "n1", a_pod("a", priority=1), a_pod("b", priority=1))
    decision = house.find(a_pod())
    assert decision.node.name == "n2"
    assert calls == ["a on n1", "b on n1"]
    assert decision.state.read("count").number == 0


def test_the_node_a_pod_is_nominated_to_is_tried_first_and_alone() -> None:
    house = House(many(5))
    decision = house.find(a_pod(nominated="n3"))
    assert (decision.node.name, decision.evaluated, decision.feasible) == ("n3", 1, 1)
    assert house.rotation.start == 0


def test_a_nomination_that_no_longer_fits_is_kept_among_the_reasons() -> None:
    house = House([a_node("n0", unschedulable=True), a_node("n1", cpu="1")])
    rejection = house.failure(a_pod(cpu="2", nominated="n0"))
    assert rejection.message() == "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable."
    assert house.find(a_pod(cpu="1", nominated="n0")).node.name == "n1"
    assert house.find(a_pod(cpu="1", nominated="gone")).node.name == "n1"


# -- PreFilter ---------------------------------------------------------------------------------------------


def test_a_plugin_that_rejected_the_nominated_node_is_named_for_the_nodes_pre_filter_left_out() -> None:
    house = House([a_node("n0", unschedulable=True), a_node("n1", cpu="1"), a_node("n2", cpu="1")])
    wanted = node_affinity(required=[field_term("n1")])
    rejection = house.failure(a_pod(cpu="2", nominated="n0", affinity=wanted))
    assert rejection.message() == (
        "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) didn't satisfy plugin(s) [NodeAffinity NodeUnschedulable], "
        "1 node(s) were unschedulable."
    )


def test_only_the_nodes_pre_filter_allows_are_evaluated() -> None:
    house = House([a_node(f"n{index}", cpu="1") for index in range(4)])
    pod = a_pod(affinity=node_affinity(required=[field_term("n1"), field_term("n2"), field_term("gone")]))
    decision = house.find(pod)
    assert decision.node.name in {"n1", "n2"}
    assert (decision.evaluated, decision.feasible) == (2, 2)
    large = a_pod(cpu="2", affinity=pod.spec.affinity.node_affinity if pod.spec.affinity else None)
    rejection = house.failure(large)
    assert rejection.message() == (
        "0/4 nodes are available: 2 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    )
    assert rejection.diagnosis.statuses.absent.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert rejection.diagnosis.unschedulable_plugins == {"NodeAffinity", "NodeResourcesFit"}


def test_names_of_nodes_that_are_not_there_leave_nothing() -> None:
    rejection = House(many(3)).failure(a_pod(affinity=node_affinity(required=[field_term("gone")])))
    assert rejection.message() == "0/3 nodes are available: 3 node(s) didn't satisfy plugin(s) [NodeAffinity]."


def test_pods_that_are_allowed_some_nodes_only_cost_no_layer_until_they_are_allowed_all() -> None:
    allowed: list[frozenset[str] | None] = [frozenset({"n1"})]
    called: list[str] = []

    def pre_filter(self: Any, state: CycleState, pod: Any, nodes: Any) -> frozenset[str] | None:
        called.append(pod.name)
        return allowed[0]

    plugin = make_plugin("Picky", sign=_nothing, pre_filter=pre_filter, filter=_passes)
    house = House(many(3), plugins=(*SIGNING, plugin))
    paths: list[Path] = []
    house.search.observer = paths.append

    def decide(name: str, **more: Any) -> str:
        called.clear()
        return house.find(a_pod(name, cpu="100m", **more)).node.name

    assert (decide("a"), called) == ("n1", ["a", "a"])  # a layer was tried
    assert (decide("b"), called) == ("n1", ["b"])
    assert (decide("other", memory="1Mi"), called) == ("n1", ["other", "other"])
    allowed[0] = None
    decide("c")
    decide("d")
    assert paths == [*[Path.FULL_SCAN] * 4, Path.SIGNATURE]


def _nothing(self: Any, pod: PodInfo) -> tuple[()]:
    return ()


def _passes(self: Any, state: CycleState, pod: PodInfo, node: Any) -> None:
    return None


def restricting(name: str, *nodes: str) -> type:
    return make_plugin(name, pre_filter=lambda self, state, pod, all_nodes: frozenset(nodes))


RESTRICTIONS: list[tuple[str, list[type], str, set[str]]] = [
    ("one plugin allows nothing", [restricting("B")], "node(s) didn't satisfy plugin B", {"B"}),
    (
        "two exclude each other",
        [restricting("B", "n1"), restricting("A", "n2")],
        "node(s) didn't satisfy plugin(s) [A B] simultaneously",
        {"A", "B"},
    ),
    (
        "a plugin turned the pod down",
        [make_plugin("No", pre_filter=lambda self, state, pod, nodes: Status.unresolvable("never"))],
        "never",
        {"No"},
    ),
    (
        "the others still run after Unschedulable, and the last such answer counts",
        [
            make_plugin("One", pre_filter=lambda self, state, pod, nodes: Status.unschedulable("one")),
            make_plugin("Two", pre_filter=lambda self, state, pod, nodes: Status.unschedulable("two")),
        ],
        "two",
        {"Two"},
    ),
]


@pytest.mark.parametrize(("name", "plugins", "message", "blamed"), RESTRICTIONS)
def test_pre_filter_rejects_the_pod(name: str, plugins: list[type], message: str, blamed: set[str]) -> None:
    house = House(many(3), plugins=[*SIGNING, *plugins])
    for _ in range(2):  # the second time with a layer, if there were one
        rejection = house.failure(a_pod())
        assert rejection.message() == f"0/3 nodes are available: {message}.", name
        assert rejection.diagnosis.unschedulable_plugins == blamed
        assert len(rejection.diagnosis.statuses) == 0


def test_a_filter_whose_pre_filter_skips_is_left_out() -> None:
    def reject(self: Any, state: Any, pod: Any, node: Any) -> Status:
        return Status.unschedulable("never")

    skipping = make_plugin("Skips", pre_filter=lambda self, state, pod, nodes: Status.skip(), filter=reject)
    decision = House(many(2), plugins=[*SIGNING, skipping]).find(a_pod())
    assert "Skips" in decision.state.skip_filter


# -- the text of a failure ---------------------------------------------------------------------------------


def test_reasons_are_counted_and_sorted_as_text() -> None:
    nodes = [a_node(f"a{index}", cpu="1") for index in range(10)] + [
        a_node(f"b{index}", pods=0, cpu="1") for index in range(2)
    ]
    nodes += [a_node("c", taints=[a_taint("k:NoSchedule")])]
    rejection = House(nodes).failure(a_pod(cpu="2"))
    assert rejection.message() == (
        "0/13 nodes are available: 1 node(s) had untolerated taint(s), 12 Insufficient cpu, 2 Too many pods."
    )
    assert (
        rejection.with_post_filter("preemption: nothing helps").message()
        == f"{rejection.message()} preemption: nothing helps"
    )
    assert rejection.diagnosis.post_filter_message == ""


def test_a_rejection_of_the_chosen_node_counts_one_node() -> None:
    rejection = Rejection.on_chosen_node("n1", Status.unschedulable("busy").with_plugin("P"), CycleState())
    assert rejection.message() == "0/1 nodes are available: 1 busy."
    assert rejection.diagnosis.unschedulable_plugins == {"P"}
    assert Rejection.on_chosen_node("n1", Status.unschedulable(), CycleState()).message() == "0/1 nodes are available:"


def test_a_pending_rejection_blames_its_plugin_twice() -> None:
    def pending(self: Any, state: Any, pod: Any, node: Any) -> Status:
        return Status.pending("wait for it")

    rejection = House(many(2), plugins=[make_plugin("Later", filter=pending)]).failure(a_pod())
    assert rejection.diagnosis.unschedulable_plugins == rejection.diagnosis.pending_plugins == {"Later"}


def test_statuses_can_be_asked_by_name_and_by_code() -> None:
    house = House([a_node("n1", cpu="1"), a_node("n2", cpu="3"), a_node("n3", unschedulable=True)])
    house.add(a_pod("x", on="n2", cpu="2"))
    statuses = house.failure(a_pod(cpu="2")).diagnosis.statuses
    assert statuses.get("n2").code is Code.UNSCHEDULABLE
    assert statuses.get("nobody").code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert [node.name for node in statuses.nodes_for_code(Code.UNSCHEDULABLE)] == ["n2"]
    assert [node.name for node in statuses.nodes_for_code(Code.UNSCHEDULABLE_AND_UNRESOLVABLE)] == ["n1", "n3"]
    assert len(statuses) == 3
    assert statuses.get("n1").message() == "Insufficient cpu"
    assert sorted(reasons(statuses)) == ["n1", "n2", "n3"]
