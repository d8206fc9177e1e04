"""A plugin that raises, or answers nonsense, fails the attempt with an error that names it, and does no more harm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from builders import a_node, a_pod
from kubesched.scheduler.cache.check import check_cache
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.framework.interface import Normalize
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes.podinfo import PodInfo
from search_kit import SIGNING, House, make_asking, make_plugin, rows_like


def raising(*args: Any) -> Any:
    raise ValueError("boom")


def raising_without_message(*args: Any) -> Any:
    raise ValueError


def leaving(*args: Any, **more: Any) -> Any:
    raise SystemExit(3)


def writing(self: Any, rows: Any) -> Any:
    rows[:] = 0
    return np.zeros(len(rows), np.int64)


def halving(scores: Any, low: int, high: int) -> Any:
    scores //= 2
    return scores


def answer(value: Any) -> Callable[..., Any]:
    return lambda *args, **more: value


def why(self: Any, verdict: int) -> Status:
    return Status.unschedulable(f"verdict {verdict}")


FILTER = 'running "Bad" filter plugin: '
SCORE = 'running Score plugins: plugin "Bad" failed with: '
NORMALIZE = 'running Normalize on Score plugins: plugin "Bad" failed with: '
RANGE = 'applying score defaultWeights on Score plugins: plugin "Bad" returns an invalid score '
PRE_FILTER = 'running PreFilter plugin "Bad": '
PRE_SCORE = 'running PreScore plugin "Bad": '
fine = rows_like(0)

Row = tuple[str, dict[str, Any], str]
FAULTS: list[Row] = [
    # filter
    ("filter raises", {"filter": raising}, f"{FILTER}boom"),
    ("filter raises without a message", {"filter": raising_without_message}, f"{FILTER}ValueError"),
    ("filter answers True", {"filter": answer(True)}, f"{FILTER}filter returned True; expected None or a Status"),
    ("filter answers Error", {"filter": answer(Status.from_error("broken"))}, f"{FILTER}broken"),
    ("filter answers Skip", {"filter": answer(Status.skip())}, f"{FILTER}unexpected status Skip"),
    ("filter answers Wait", {"filter": answer(Status.wait())}, f"{FILTER}unexpected status Wait"),
    # verdicts
    ("verdicts raises", {"verdicts": raising, "why": why}, f"{FILTER}boom"),
    ("verdicts answers None", {"verdicts": answer(None), "why": why}, f"{FILTER}verdicts returned None; expected uint64[3]"),
    ("verdicts answers a list", {"verdicts": answer([0, 0, 0]), "why": why}, f"{FILTER}verdicts returned [0, 0, 0]; expected uint64[3]"),
    ("verdicts answers too few", {"verdicts": answer(np.zeros(2, np.uint64)), "why": why}, f"{FILTER}verdicts returned uint64[2]; expected uint64[3]"),
    ("verdicts answers a table", {"verdicts": answer(np.zeros((3, 1), np.uint64)), "why": why}, f"{FILTER}verdicts returned uint64[3, 1]; expected uint64[3]"),
    ("verdicts answers floats", {"verdicts": rows_like(0, np.float64), "why": why}, f"{FILTER}verdicts returned float64[3]; expected uint64[3]"),
    # why
    ("why raises", {"verdicts": rows_like(1), "why": raising}, f"{FILTER}boom"),
    ("why leaves", {"verdicts": rows_like(1), "why": leaving}, f"{FILTER}3"),
    ("why answers None", {"verdicts": rows_like(1), "why": answer(None)}, f"{FILTER}why returned None; expected a Status"),
    ("why answers Error", {"verdicts": rows_like(1), "why": answer(Status.from_error("broken"))}, f"{FILTER}broken"),
    ("why answers Skip", {"verdicts": rows_like(1), "why": answer(Status.skip())}, f"{FILTER}unexpected status Skip"),
    # arguments are not for writing
    ("verdicts writes to the rows", {"verdicts": writing, "why": why}, f"{FILTER}assignment destination is read-only"),
    ("scores writes to the rows", {"scores": writing}, f"{SCORE}assignment destination is read-only"),
    ("normalized writes to the scores", {"scores": fine, "normalized": halving}, f"{NORMALIZE}output array is read-only"),
    # score
    ("score raises", {"score": raising}, f"{SCORE}boom"),
    ("score answers None", {"score": answer(None)}, f"{SCORE}score returned None; expected an int"),
    ("score answers a float", {"score": answer(1.5)}, f"{SCORE}score returned 1.5; expected an int"),
    ("score answers True", {"score": answer(True)}, f"{SCORE}score returned True; expected an int"),
    ("score answers a rejection", {"score": answer(Status.unschedulable("no"))}, f"{SCORE}no"),
    ("score is beyond int64", {"score": answer(1 << 63)}, f"{SCORE}score returned 9223372036854775808, which is beyond 64 bits"),
    ("score is above 100", {"score": answer(101)}, f"{RANGE}101, it should in the range of [0, 100] after normalizing"),
    ("score is negative", {"score": answer(-1)}, f"{RANGE}-1, it should in the range of [0, 100] after normalizing"),
    # scores
    ("scores raises", {"scores": raising}, f"{SCORE}boom"),
    ("scores answers None", {"scores": answer(None)}, f"{SCORE}scores returned None; expected int64[3]"),
    ("scores answers too many", {"scores": answer(np.zeros(4, np.int64))}, f"{SCORE}scores returned int64[4]; expected int64[3]"),
    ("scores answers floats", {"scores": rows_like(1, np.float32)}, f"{SCORE}scores returned float32[3]; expected int64[3]"),
    ("scores is above 100", {"scores": rows_like(400)}, f"{RANGE}400, it should in the range of [0, 100] after normalizing"),
    ("scores is negative, though scaled", {"scores": rows_like(-5), "normalize": Normalize.FORWARD}, RANGE),
    # normalize_score
    ("normalize_score raises", {"scores": fine, "normalize_score": raising}, f"{NORMALIZE}boom"),
    ("normalize_score answers None", {"scores": fine, "normalize_score": answer(None)}, f"{NORMALIZE}normalize_score returned None; expected int64[3]"),
    ("normalize_score answers too few", {"scores": fine, "normalize_score": answer(np.zeros(1, np.int64))}, f"{NORMALIZE}normalize_score returned int64[1]; expected int64[3]"),
    ("normalize_score answers floats", {"scores": fine, "normalize_score": answer(np.zeros(3))}, f"{NORMALIZE}normalize_score returned float64[3]; expected int64[3]"),
    ("normalize_score answers a rejection", {"scores": fine, "normalize_score": answer(Status.unschedulable("no"))}, f"{NORMALIZE}no"),
    ("normalize_score leaves the range", {"scores": fine, "normalize_score": answer(np.array([0, 100, 101]))}, f"{RANGE}101, "),
    # normalized
    ("normalized raises", {"scores": fine, "normalized": raising}, f"{NORMALIZE}boom"),
    ("normalized answers None", {"scores": fine, "normalized": answer(None)}, f"{NORMALIZE}normalized returned None; expected int64["),
    ("normalized answers floats", {"scores": fine, "normalized": lambda raw, low, high: raw / 2}, f"{NORMALIZE}normalized returned float64["),
    ("normalized leaves the range", {"scores": fine, "normalized": lambda raw, low, high: raw + 101}, f"{RANGE}101, it should in the range of [0, 100] after normalizing"),
    ("scores answers more than 64 bits have", {"scores": rows_like(1 << 63, np.uint64), "normalized": halving}, f"{SCORE}scores returned {1 << 63}, which is beyond int64"),
    # pre_filter
    ("pre_filter raises", {"pre_filter": raising}, f"{PRE_FILTER}boom"),
    ("pre_filter answers True", {"pre_filter": answer(True)}, f"{PRE_FILTER}returned True from pre_filter; expected None, a Status or a frozenset of node names"),
    ("pre_filter answers Pending", {"pre_filter": answer(Status.pending("later"))}, f"{PRE_FILTER}later"),
    ("pre_filter answers Wait", {"pre_filter": answer(Status.wait())}, f"{PRE_FILTER}unexpected status Wait"),
    ("pre_filter answers Error", {"pre_filter": answer(Status.from_error("broken"))}, f"{PRE_FILTER}broken"),
    # pre_score
    ("pre_score raises", {"pre_score": raising}, f"{PRE_SCORE}boom"),
    ("pre_score rejects", {"pre_score": answer(Status.unschedulable("no"))}, f"{PRE_SCORE}no"),
    ("pre_score answers a number", {"pre_score": answer(3)}, f"{PRE_SCORE}returned 3 from pre_score; expected None or a Status"),
    # sign
    ("sign raises", {"filter": answer(None), "sign": raising}, 'signing pod with plugin "Bad": boom'),
    ("sign answers a list", {"filter": answer(None), "sign": answer([1])}, """signing pod with plugin "Bad": sign returned [1], which has no hash (unhashable type: 'list'); expected texts, numbers, or tuples of them"""),
    # ask
    ("ask raises", {"scores": fine, "ask": raising}, 'asking plugin "Bad": boom'),
    ("ask answers a number", {"scores": fine, "ask": answer(5)}, 'asking plugin "Bad": ask returned 5; expected a Question or None'),
]  # fmt: skip


def house(members: dict[str, Any], *, signed: bool = False) -> House:
    return House([a_node(f"n{index}") for index in range(3)], plugins=[*SIGNING, bad_plugin(members, signed=signed)])


def bad_plugin(members: dict[str, Any], *, signed: bool) -> type:
    """A plugin that asks questions if they answer for rows, else a plain one."""
    if members.keys() & {"verdicts", "scores"}:
        return make_asking("Bad", **({"key": ()} if signed else {}), **members)
    return make_plugin("Bad", **({"sign": answer(())} if signed else {}) | members)


@pytest.mark.parametrize("signed", [False, True], ids=["unsigned", "signed"])
@pytest.mark.parametrize("row", FAULTS, ids=lambda row: row[0])
def test_fault(row: Row, signed: bool) -> None:
    _, members, text = row
    there = house(members, signed=signed)
    for _ in range(2):
        with pytest.raises(PluginFailedError) as caught:
            there.find(a_pod(cpu="1"))
        assert caught.value.plugin == "Bad"
        assert str(caught.value).startswith(text), str(caught.value)
        assert len(str(caught.value)) == len(text) or text.endswith((" ", "["))
    assert check_cache(there.cache) == []


class Moody:
    """Methods that work until they are set to fail."""

    def __init__(self) -> None:
        self.mood: Any = None

    def verdict(self, *args: Any) -> int:
        if isinstance(self.mood, Exception):
            raise self.mood
        return 0

    def score(self, *args: Any) -> int:
        if isinstance(self.mood, Exception):
            raise self.mood
        return 1 if self.mood is None else int(self.mood)


@pytest.mark.parametrize("changes", [1, 20])
@pytest.mark.parametrize(
    ("method", "mood", "text"),
    [
        ("verdict", ValueError("boom"), f"{FILTER}boom"),
        ("score", ValueError("boom"), f"{SCORE}boom"),
        ("score", 101, f"{RANGE}101, it should in the range of [0, 100] after normalizing"),
        ("score", -1, f"{RANGE}-1, it should in the range of [0, 100] after normalizing"),
    ],
)
def test_a_fault_while_a_layer_is_refreshed_spoils_only_that_layer(
    changes: int, method: str, mood: Any, text: str
) -> None:
    moody = Moody()

    members: dict[str, Any]
    if method == "verdict":
        members = {
            "verdicts": lambda self, rows: np.array([moody.verdict() for _ in rows], np.uint64),
            "verdict": moody.verdict,
            "why": why,
        }
    else:
        members = {
            "scores": lambda self, rows: np.array([moody.score() for _ in rows], np.int64),
            "score": moody.score,
        }
    bad = bad_plugin(members, signed=True)
    there = House([a_node(f"n{index}") for index in range(30)], plugins=[*SIGNING, bad])
    pod = a_pod(cpu="1")
    assert there.find(pod).feasible == 30
    for index in range(changes):
        there.add(a_pod(f"x{index}", cpu="4", on=f"n{index}"))
    # The rows that changed are full; this one is not, and has to be scored again.
    there.add(a_pod("y", cpu="1", on="n29"))
    moody.mood = mood
    with pytest.raises(PluginFailedError) as caught:
        there.find(pod)
    assert (caught.value.plugin, str(caught.value)) == ("Bad", text)
    moody.mood = None
    assert there.find(pod).feasible == 30 - changes
    assert there.find(pod).node.name not in {f"n{index}" for index in range(changes)}


@pytest.mark.parametrize(
    ("method", "value", "text"),
    [
        ("verdict", "full", f"{FILTER}verdict returned 'full'; expected an int"),
        ("verdict", 1.0, f"{FILTER}verdict returned 1.0; expected an int"),
        ("verdict", None, f"{FILTER}verdict returned None; expected an int"),
        ("verdict", -1, f"{FILTER}verdict returned -1, which is beyond uint64"),
        ("verdict", 1 << 64, f"{FILTER}verdict returned {1 << 64}, which is beyond uint64"),
        ("score", "7", f"{SCORE}score returned '7'; expected an int"),
        ("score", 0.5, f"{SCORE}score returned 0.5; expected an int"),
        ("score", np.array([1, 2]), f"{SCORE}score returned array([1, 2]); expected an int"),
        ("score", 1 << 63, f"{RANGE}{1 << 63}, it should in the range of [0, 100] after normalizing"),
    ],
)
def test_an_answer_for_one_row_is_checked_as_one_for_many(method: str, value: Any, text: str) -> None:
    for_many = {"verdicts": fine, "why": why} if method == "verdict" else {"scores": fine}
    there = house({method: answer(value), **for_many}, signed=True)
    there.find(a_pod())
    there.add(a_pod("x", on="n1"))
    with pytest.raises(PluginFailedError) as caught:
        there.find(a_pod())
    assert (caught.value.plugin, str(caught.value)) == ("Bad", text)


@pytest.mark.parametrize("value", [np.int64(3), np.uint8(3), True])
def test_integers_of_numpy_and_truth_values_are_answers_for_one_row(value: Any) -> None:
    there = house({"verdicts": fine, "verdict": answer(value), "why": why}, signed=True)
    there.find(a_pod())
    there.add(a_pod("x", on="n1"))
    assert there.find(a_pod()).feasible == 2


@pytest.mark.parametrize("value", [np.full(3, -1), np.full(3, -1, np.int8)])
def test_a_negative_verdict_is_refused(value: Any) -> None:
    bad = house({"verdicts": answer(value), "why": why})
    with pytest.raises(PluginFailedError, match="verdicts returned -1, which is beyond uint64"):
        bad.find(a_pod())


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_a_score_out_of_range_is_refused_in_every_type_of_integer(dtype: Any) -> None:
    assert house({"scores": rows_like(100, dtype)}).find(a_pod()).feasible == 3
    for score in (101, -1) if np.issubdtype(dtype, np.signedinteger) else (101,):
        with pytest.raises(PluginFailedError, match=f"returns an invalid score {score}, "):
            house({"scores": rows_like(score, dtype)}).find(a_pod())


def test_a_failing_score_is_not_noticed_while_one_node_fits() -> None:
    there = House(
        [a_node("n1"), a_node("n2", unschedulable=True)], plugins=[*SIGNING, make_plugin("Bad", score=raising)]
    )
    assert there.find(a_pod()).node.name == "n1"
    evaluation = there.evaluate(a_pod())
    assert evaluation.scores is None


def test_pre_score_runs_for_a_plugin_that_does_not_score() -> None:
    seen: list[list[str]] = []
    noting = make_plugin("Noting", pre_score=lambda self, state, pod, nodes: seen.append(nodes.names()))
    for extra in ([], [make_asking("Unsigned", verdicts=rows_like(0), why=why)]):
        seen.clear()
        there = House([a_node(f"n{index}") for index in range(3)], plugins=[*SIGNING, noting, *extra])
        for name in "ab":
            there.find(a_pod(name))
        assert seen == [["n0", "n1", "n2"]] * 2


def adding(method: Any) -> dict[str, Any]:
    return {"add_pod": method, "remove_pod": answer(None)}


WHAT_IFS: list[Row] = [
    ("raises", adding(raising), "boom"),
    ("answers a rejection", adding(answer(Status.unschedulable("no"))), "no"),
    ("answers Skip", adding(answer(Status.skip())), "unexpected status Skip"),
    ("answers True", adding(answer(True)), "returned True from add_pod; expected None or a Status"),
    (
        "of a question",
        {"verdicts": fine, "why": why, "assuming": answer(5)},
        "assuming returned 5; expected a Question",
    ),
]


@pytest.mark.parametrize("row", WHAT_IFS, ids=lambda row: row[0])
def test_a_what_if_that_fails_leaves_no_trace(row: Row) -> None:
    _, members, text = row
    bad = bad_plugin({"pre_filter": answer(None), **members}, signed=False)
    there = House([a_node("n1")], plugins=[*SIGNING, bad])
    there.nominated.pods["n1"] = [PodInfo(a_pod("nominee", cpu="1", priority=5))]
    with pytest.raises(PluginFailedError) as caught:
        there.find(a_pod())
    assert (caught.value.plugin, str(caught.value)) == ("Bad", f'running AddPod on PreFilter plugin "Bad": {text}')
    assert check_cache(there.cache) == []
    assert len(there.cache.table.info(0).pods) == 0


# -- plugins that a profile has at the later of two points only --------------------------------------------


PORTS = 'running "NodePorts" filter plugin: '
SPREAD_FILTER = 'running "PodTopologySpread" filter plugin: '
SPREAD_SCORE = 'running Score plugins: plugin "PodTopologySpread" failed with: '


@pytest.mark.parametrize(
    ("plugin", "point", "text"),
    [
        ("NodePorts", "preFilter", PORTS),
        ("PodTopologySpread", "preFilter", SPREAD_FILTER),
        ("PodTopologySpread", "preScore", SPREAD_SCORE),
        # The pod has neither volumes nor claims, so these have nothing to do where they are at PreFilter.
        ("VolumeRestrictions", "preFilter", 'running "VolumeRestrictions" filter plugin: cannot read '),
        ("VolumeBinding", "preFilter", 'running "VolumeBinding" filter plugin: '),
        ("DynamicResources", "preFilter", 'running "DynamicResources" filter plugin: '),
        ("DynamicResources", "preFilter filter", 'running Score plugins: plugin "DynamicResources" failed with: '),
    ],
)
def test_a_plugin_without_the_state_it_needs_fails_every_attempt(plugin: str, point: str, text: str) -> None:
    nodes = [a_node(f"n{index}") for index in range(3)]
    more = [] if plugin in SIGNING else [plugin]
    there = House(nodes, plugins=[*SIGNING, *more], without=[(plugin, each) for each in point.split()])
    for _ in range(3):  # what is remembered must not hide it
        with pytest.raises(PluginFailedError) as caught:
            there.find(a_pod(cpu="1"))
        assert caught.value.plugin == plugin
        assert str(caught.value).startswith(text)


def test_a_failure_on_a_node_that_an_earlier_filter_rejects_does_not_count() -> None:
    """The filter that rejects does not sign, so what is remembered of the nodes comes from the failing one alone."""
    nowhere = make_plugin("Nowhere", filter=answer(Status.unschedulable("nowhere")))
    there = House([a_node("n0"), a_node("n1")], plugins=[nowhere, *SIGNING], without=[("NodePorts", "preFilter")])
    for _ in range(3):
        assert there.failure(a_pod(cpu="1")).message() == "0/2 nodes are available: 2 nowhere."


@pytest.mark.parametrize("percentage", [0, 50])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("rows", [False, True])
def test_a_failure_on_a_node_that_is_full_with_its_nominated_pods_does_not_count(
    rows: bool, signed: bool, percentage: int
) -> None:
    """The nominated pods keep an earlier filter from passing the node; the failing one would see it without them."""

    def failing(self: Any, state: Any, pod: Any, node: Any) -> None:
        if node.name == "n1":
            raise ValueError("boom")

    def failing_rows(self: Any, rows: Any) -> Any:
        if any(self.nodes.info(row).name == "n1" for row in rows.tolist()):
            raise ValueError("boom")
        return np.zeros(len(rows), np.uint64)

    bad = bad_plugin({"verdicts": failing_rows, "why": why} if rows else {"filter": failing}, signed=signed)
    there = House([a_node("n0"), a_node("n1", cpu="4")], plugins=[*SIGNING, bad], percentage=percentage)
    with pytest.raises(PluginFailedError, match='running "Bad" filter plugin: boom'):
        there.find(a_pod("p", cpu="1", priority=5))
    there.nominated.pods["n1"] = [PodInfo(a_pod("nominee", cpu="4", priority=9))]
    for _ in range(3):
        assert there.find(a_pod("p", cpu="1", priority=5)).node.name == "n0"
    assert check_cache(there.cache) == []


def test_a_failure_before_a_pre_filter_that_rejects_the_pod_does_not_count() -> None:
    """Remembered facts about the nodes are found out before a plugin that does not sign is asked."""
    nothing = make_plugin("Nothing", pre_filter=answer(Status.unresolvable("no such thing")))
    there = House([a_node("n0")], plugins=[*SIGNING, nothing], without=[("NodePorts", "preFilter")])
    for _ in range(3):
        assert there.failure(a_pod(cpu="1")).message() == "0/1 nodes are available: no such thing."


def test_a_plugin_without_its_pre_filter_is_not_told_of_nominated_pods() -> None:
    without = [("InterPodAffinity", "preFilter")]
    there = House([a_node("n0"), a_node("n1")], plugins=[*SIGNING, "InterPodAffinity"], without=without)
    there.nominated.pods["n1"] = [PodInfo(a_pod("nominee", cpu="4", priority=9))]
    for _ in range(3):
        with pytest.raises(PluginFailedError, match='running "InterPodAffinity" filter plugin: '):
            there.find(a_pod("p", cpu="1"))


def remembering(**members: Any) -> House:
    """A profile whose plugin Bad takes part in interaction layers; the second attempt makes one, the third refreshes it."""
    fits: dict[str, Any] = {
        "key": (),
        "is_local": False,
        "verdicts": fine,
        "why": why,
        "scores": fine,
        "changed": answer(np.zeros(0, np.intp)),
        "rescored": answer(np.zeros(0, np.intp)),
    }
    return house({**fits, **members})


NAMED: list[tuple[Any, str]] = [
    ([1], "returned [1]; expected an array of row numbers or None"),
    (5, "returned 5; expected an array of row numbers or None"),
    (np.array([1.0]), "returned float64[1]; expected an array of row numbers or None"),
    (np.array([[1]]), "returned int64[1, 1]; expected an array of row numbers or None"),
    (np.array([True, False, True]), "returned bool[3]; expected an array of row numbers or None"),
    (np.array([0, 3]), "returned row 3; there are 3 rows"),
    (np.array([2, -1], np.int8), "returned row -1; there are 3 rows"),
    (np.full(20, 1 << 63, np.uint64), f"returned row {1 << 63}; there are 3 rows"),
]


@pytest.mark.parametrize(("method", "point"), [("changed", "PreFilter"), ("rescored", "PreScore")])
@pytest.mark.parametrize(("value", "text"), NAMED, ids=[repr(value) for value, _ in NAMED])
def test_rows_that_a_plugin_names_are_checked(method: str, point: str, value: Any, text: str) -> None:
    there = remembering(**{method: answer(value)})
    there.find(a_pod())
    there.find(a_pod())
    with pytest.raises(PluginFailedError) as caught:
        there.find(a_pod())
    assert (caught.value.plugin, str(caught.value)) == ("Bad", f'running {point} plugin "Bad": {method} {text}')
    assert there.find(a_pod()).feasible == 3  # the layer was dropped


@pytest.mark.parametrize(
    ("name", "member", "before"),
    [("ask", leaving, 0), ("key", property(leaving), 0), ("changed", leaving, 2), ("rescored", leaving, 2)],
)
def test_a_plugin_that_wants_to_end_the_process_fails_only_the_attempt(name: str, member: Any, before: int) -> None:
    there = remembering(**{name: member})
    for _ in range(before):
        there.find(a_pod())
    with pytest.raises(PluginFailedError, match='plugin "Bad": 3'):
        there.find(a_pod())
