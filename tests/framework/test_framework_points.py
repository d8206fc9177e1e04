"""Handling of plugins' answers at each extension point of the scheduling and the binding cycle."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from framework_kit import make_plugin, nodes, profile, say, shown

from builders import info
from kubesched.scheduler.config.errors import ConfigError
from kubesched.scheduler.core.diagnosis import NodeStatuses
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.framework.interface import PostFilterResult, PreBindPreFlight
from kubesched.scheduler.framework.status import Code, Status
from kubesched.scheduler.nodes.nominating import NominatingInfo

BOOM = ValueError("boom")
NO, NEVER, LATER = Status.unschedulable("no"), Status.unresolvable("never"), Status.pending("later")
BROKEN, SKIP, WAIT, OK = Status.from_error("broken"), Status.skip(), Status.wait("hold on"), Status(Code.SUCCESS)
SUCCESS = ("Success", "", "")


def profile_of(method: str, *answers: Any) -> Any:
    """Plugins P1, P2, … whose ``method`` gives these answers."""
    return profile(*(make_plugin(f"P{number}", **{method: say(answer)}) for number, answer in enumerate(answers, 1)))


# -- PreFilter ---------------------------------------------------------------------------------------------

PRE_FILTER: list[tuple[str, list[Any], set[str] | None, tuple[str, str, str], list[str], set[str]]] = [
    # name, answers, nodes, status, restricting, skipped
    ("no plugin rejects", [None, OK], None, SUCCESS, [], set()),
    ("sets are intersected", [{"a", "b"}, None, frozenset("bc")], {"b"}, SUCCESS, ["P1", "P3"], set()),
    ("one leaves nothing", [set()], set(), ("UnschedulableAndUnresolvable", "node(s) didn't satisfy plugin P1", ""), ["P1"], set()),
    ("two leave nothing", [{"a"}, {"b"}], set(), ("UnschedulableAndUnresolvable", "node(s) didn't satisfy plugin(s) [P1 P2] simultaneously", ""), ["P1", "P2"], set()),
    ("nothing left wins over Unschedulable", [NO, {"a"}, {"b"}], set(), ("UnschedulableAndUnresolvable", "node(s) didn't satisfy plugin(s) [P2 P3] simultaneously", ""), ["P2", "P3"], set()),
    ("Skip is remembered", [SKIP, {"a"}, SKIP], {"a"}, SUCCESS, ["P2"], {"P1", "P3"}),
    ("Unschedulable lets the others run", [NO, SKIP], None, ("Unschedulable", "no", "P1"), [], {"P2"}),
    ("the last Unschedulable counts", [NO, Status.unschedulable("nor here")], None, ("Unschedulable", "nor here", "P2"), [], set()),
    ("Unresolvable stops", [SKIP, {"a"}, NEVER, SKIP], None, ("UnschedulableAndUnresolvable", "never", "P3"), [], {"P1"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "answers", "allowed", "status", "restricting", "skipped"), PRE_FILTER)
def test_pre_filter(
    name: str, answers: list[Any], allowed: Any, status: Any, restricting: list[str], skipped: set[str]
) -> None:
    state = CycleState()
    outcome = profile_of("pre_filter", *answers).pre_filter(state, info(), nodes())
    assert outcome.nodes == allowed, name
    assert shown(outcome.status) == status
    assert outcome.restricting == restricting
    assert state.skip_filter == skipped


@pytest.mark.parametrize(
    ("answer", "text"),
    [(BOOM, "boom"), (BROKEN, "broken"), (LATER, "later"), (WAIT, "unexpected status Wait"), (1, "returned 1 from pre_filter")],
)  # fmt: skip
def test_pre_filter_fails(answer: Any, text: str) -> None:
    state = CycleState()
    with pytest.raises(PluginFailedError) as caught:
        profile_of("pre_filter", SKIP, answer, SKIP).pre_filter(state, info(), nodes())
    assert caught.value.plugin == "P2"
    assert str(caught.value).startswith(f'running PreFilter plugin "P2": {text}')
    assert state.skip_filter == {"P1"}


def test_pre_filter_of_some_plugins_only() -> None:
    framework = profile_of("pre_filter", {"a"}, {"b"})
    assert framework.pre_filter(CycleState(), info(), nodes(), {"P2"}).nodes == {"b"}


def test_the_extensions_of_skipped_plugins_are_not_called() -> None:
    informed: list[str] = []

    def plugin(name: str, **members: Any) -> type:
        return make_plugin(
            name,
            add_pod=lambda *args: informed.append(f"+{name}"),
            remove_pod=lambda *args: informed.append(f"-{name}"),
            **members,
        )

    framework = profile(
        plugin("A", pre_filter=say(None)), plugin("B", pre_filter=say(SKIP)), make_plugin("C", pre_filter=say(None))
    )
    state = CycleState()
    framework.pre_filter(state, info(), nodes())
    framework.add_pod(state, info(), info(name="o"), nodes()[0])
    framework.remove_pod(state, info(), info(name="o"), nodes()[0])
    assert informed == ["+A", "-A"]


# -- PostFilter --------------------------------------------------------------------------------------------


def result(node: str) -> PostFilterResult:
    return PostFilterResult(NominatingInfo.override(node))


NOOP = PostFilterResult(NominatingInfo())

POST_FILTER: list[tuple[str, list[Any], PostFilterResult | None, tuple[str, str, str]]] = [
    ("success ends the search for help", [(None, NO), (result("n1"), None), (None, BOOM)], result("n1"), SUCCESS),
    ("so does Unresolvable", [(result("n1"), NEVER), (result("n2"), None)], result("n1"), ("UnschedulableAndUnresolvable", "never", "P1")),
    ("reasons add up under the first name", [(None, NO), (None, LATER)], None, ("Unschedulable", "no, later", "P1")),
    ("the last nomination is remembered", [(result("n1"), NO), (result("n2"), NO), (NOOP, NO)], result("n2"), ("Unschedulable", "no, no, no", "P1")),
    ("an error drops what was remembered", [(result("n1"), NO), (None, BROKEN)], None, ("Error", "broken", "P2")),
    ("Skip is illegal here", [(None, Status(Code.SKIP, "what"))], None, ("Error", "what", "P1")),
    ("raising is an error", [(None, NO), BOOM], None, ("Error", "boom", "P2")),
    ("a bare status is none of its answers", [NO], None, ("Error", 'plugin "P1" returned <Unschedulable: no> from post_filter; expected a pair of result and status', "P1")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "answers", "want", "status"), POST_FILTER)
def test_post_filter(name: str, answers: list[Any], want: Any, status: Any) -> None:
    found, got = profile_of("post_filter", *answers).post_filter(CycleState(), info(), NodeStatuses())
    assert found == want, name
    assert shown(got) == status


def test_all_post_filters_can_be_skipped() -> None:
    state = CycleState()
    state.skip_all_post_filter = True
    answer = profile_of("post_filter", BOOM).post_filter(state, info(), NodeStatuses())
    assert answer == (None, Status.unschedulable("All PostFilter plugins are skipped"))


# -- points that ask one plugin after the other ------------------------------------------------------------

Runner = Callable[[Any, CycleState], Status | None]
RUN: dict[str, Runner] = {
    "pre_score": lambda framework, state: framework.pre_score(state, info(), nodes()),
    "reserve": lambda framework, state: framework.reserve(state, info(), "n1"),
    "permit": lambda framework, state: framework.permit(state, info(), "n1")[0],
    "pre_bind": lambda framework, state: asyncio.run(framework.binding.pre_bind(state, info(), "n1")),
    "bind": lambda framework, state: framework.binding.bind(state, info(), "n1"),
}
LABELS = {"pre_score": "PreScore", "reserve": "Reserve", "permit": "Permit", "pre_bind": "PreBind", "bind": "Bind"}
REJECTS = ("reserve", "permit", "pre_bind", "bind")


@pytest.mark.parametrize("method", RUN)
@pytest.mark.parametrize("rejection", [NO, NEVER, LATER], ids=lambda status: status.code.label)
def test_a_rejection_is_passed_on_where_the_point_allows_it(method: str, rejection: Status) -> None:
    answers = (rejection, BOOM) if method == "bind" else (None, rejection, BOOM)
    name = f"P{len(answers) - 1}"
    got = RUN[method](profile_of(method, *answers), CycleState())
    if method in REJECTS:
        assert got == rejection.with_plugin(name)
    else:
        assert shown(got) == ("Error", f'running PreScore plugin "{name}": {rejection.message()}', name)


ODD: list[tuple[Any, str, tuple[str, ...]]] = [
    # answer, text, points where it is an answer all the same
    (BOOM, "boom", ()),
    (BROKEN, "broken", ()),
    (True, "returned True from {}; expected None or a Status", ()),
    (WAIT, "unexpected status Wait", ("permit",)),
    (SKIP, "unexpected status Skip", ("pre_score", "bind")),
]


@pytest.mark.parametrize(
    ("method", "answer", "text"),
    [(method, answer, text) for answer, text, where in ODD for method in RUN if method not in where],
)
def test_any_other_answer_is_an_error_that_names_the_plugin(method: str, answer: Any, text: str) -> None:
    got = RUN[method](profile_of(method, answer, BOOM), CycleState())
    assert shown(got) == ("Error", f'running {LABELS[method]} plugin "P1": {text.format(method)}', "P1")


@pytest.mark.parametrize("method", RUN)
def test_without_plugins_all_is_well_but_binding(method: str) -> None:
    got = RUN[method](profile(), CycleState())
    assert shown(got) == (("Skip", "", "") if method == "bind" else SUCCESS)


def test_pre_score_skips_are_remembered() -> None:
    state = CycleState()
    assert profile_of("pre_score", SKIP, None, SKIP).pre_score(state, info(), nodes()) is None
    assert state.skip_score == {"P1", "P3"}


def test_unreserve_undoes_in_reverse_also_what_never_ran() -> None:
    log: list[str] = []

    def plugin(name: str, answer: Any, undo: Any = None) -> type:
        def reserve(*args: Any) -> Any:
            log.append(f"reserve {name}")
            return answer

        def unreserve(*args: Any) -> None:
            log.append(f"unreserve {name}")
            if undo is not None:
                raise undo

        return make_plugin(name, reserve=reserve, unreserve=unreserve)

    framework = profile(
        plugin("A", None),
        plugin("B", NO, undo=BOOM),
        plugin("C", None),
        make_plugin("D", unreserve=lambda *args: log.append("unreserve D")),
    )
    assert framework.reserve(CycleState(), info(), "n1") == NO.with_plugin("B")
    framework.unreserve(CycleState(), info(), "n1")
    assert log == ["reserve A", "reserve B", "unreserve D", "unreserve C", "unreserve B", "unreserve A"]


def test_a_plugin_with_one_method_of_reserve_is_called_for_that_one(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[str] = []
    framework = profile(
        make_plugin("Taking", reserve=lambda *args: calls.append("reserve")),
        make_plugin("Giving", unreserve=lambda *args: calls.append("unreserve")),
    )
    state = CycleState()
    assert framework.reserve(state, info(), "n1") is None
    framework.unreserve(state, info(), "n1")
    assert calls == ["reserve", "unreserve"]
    assert not caplog.records


# -- Permit ------------------------------------------------------------------------------------------------

ASKED = "one or more plugins asked to wait and no plugin rejected pod"
PERMIT: list[tuple[str, list[Any], tuple[str, str, str], dict[str, float]]] = [
    ("all allow", [None, (OK, 3.0), (None, 9)], SUCCESS, {}),
    ("one waits", [None, (WAIT, 5)], ("Wait", f"hold on, {ASKED}", "P2"), {"P2": 5.0}),
    ("the last to wait is named", [(WAIT, 5), (Status.wait(), 7.5), None], ("Wait", ASKED, "P2"), {"P1": 5.0, "P2": 7.5}),
    ("no pod waits longer than 15 minutes", [(WAIT, 901.0), (WAIT, 900.0)], ("Wait", f"hold on, {ASKED}", "P2"), {"P1": 900.0, "P2": 900.0}),
    ("infinity is 15 minutes", [(WAIT, float("inf"))], ("Wait", f"hold on, {ASKED}", "P1"), {"P1": 900.0}),
    ("a rejection discards the waiting", [(WAIT, 5), NO], ("Unschedulable", "no", "P2"), {}),
    ("so does an error", [(WAIT, 5), BOOM], ("Error", 'running Permit plugin "P2": boom', "P2"), {}),
    ("a rejection may come with a time", [(NEVER, 5)], ("UnschedulableAndUnresolvable", "never", "P1"), {}),
    ("Wait without a time waits for nothing", [WAIT], ("Wait", f"hold on, {ASKED}", "P1"), {"P1": 0.0}),
    ("a time that is none", [(WAIT, "soon")], ("Error", "running Permit plugin \"P1\": returned a waiting time of 'soon' from permit; expected seconds", "P1"), {}),
    ("a time that is not a number", [(WAIT, float("nan"))], ("Error", 'running Permit plugin "P1": returned a waiting time of nan from permit; expected seconds', "P1"), {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "answers", "status", "timeouts"), PERMIT)
def test_permit(name: str, answers: list[Any], status: Any, timeouts: dict[str, float]) -> None:
    got, waiting = profile_of("permit", *answers).permit(CycleState(), info(), "n1")
    assert shown(got) == status, name
    assert waiting == timeouts


# -- PreBind -----------------------------------------------------------------------------------------------

PARALLEL, ALONE = PreBindPreFlight(allow_parallel=True), PreBindPreFlight()


def test_pre_bind_groups() -> None:
    """The example of the specification: s, P, s(x), P, P(x), P, s, s."""
    answers = [None, (PARALLEL, None), SKIP, (PARALLEL, None), (PARALLEL, SKIP), (PARALLEL, OK), (ALONE, None), None]
    running: set[str] = set()
    groups: list[list[str]] = []

    def plugin(number: int, answer: Any) -> type:
        async def pre_bind(self: Any, *args: Any) -> None:
            running.add(self.name)
            await asyncio.sleep(0)
            if not groups or self.name not in groups[-1]:
                groups.append(sorted(running))
            await asyncio.sleep(0)
            running.discard(self.name)

        return make_plugin(f"P{number}", pre_bind_pre_flight=say(answer), pre_bind=pre_bind)

    framework = profile(*(plugin(number, answer) for number, answer in enumerate(answers, 1)))
    state = CycleState()
    assert framework.binding.pre_bind_pre_flight(state, info(), "n1") is None
    assert state.skip_pre_bind == {"P3", "P5"}
    assert state.parallel_pre_bind == {"P2", "P4", "P5", "P6"}
    assert asyncio.run(framework.binding.pre_bind(state, info(), "n1")) is None
    assert groups == [["P1"], ["P2"], ["P4", "P6"], ["P7"], ["P8"]]


PRE_FLIGHT: list[tuple[str, list[Any], tuple[str, str, str], set[str]]] = [
    ("one has work", [SKIP, None], SUCCESS, {"P1"}),
    ("none has work", [SKIP, (ALONE, SKIP)], ("Skip", "", ""), {"P1", "P2"}),
    ("an error", [SKIP, BOOM], ("Error", 'running PreBindPreFlight "P2": boom', "P2"), set()),
    ("an error status", [BROKEN], ("Error", 'running PreBindPreFlight "P1": broken', "P1"), set()),
    ("a rejection is unsupported", [NO], ("Error", 'PreBindPreFlight P1 returned "Unschedulable", which is unsupported. It is supposed to return Success, Skip, or Error status', "P1"), set()),
    ("nonsense", [7], ("Error", 'running PreBindPreFlight "P1": returned 7 from pre_bind_pre_flight; expected None, a Status or a pair', "P1"), set()),
]  # fmt: skip


@pytest.mark.parametrize(("name", "answers", "status", "skipped"), PRE_FLIGHT)
def test_pre_bind_pre_flight(name: str, answers: list[Any], status: Any, skipped: set[str]) -> None:
    plugins = (
        make_plugin(f"P{number}", pre_bind_pre_flight=say(answer), pre_bind=say(None))
        for number, answer in enumerate(answers, 1)
    )
    state = CycleState()
    assert shown(profile(*plugins).binding.pre_bind_pre_flight(state, info(), "n1")) == status, name
    assert state.skip_pre_bind == skipped


def test_a_pre_bind_without_pre_flight_always_has_work_and_without_any_there_is_none() -> None:
    assert profile_of("pre_bind", None).binding.pre_bind_pre_flight(CycleState(), info(), "n1") is None
    assert profile().binding.pre_bind_pre_flight(CycleState(), info(), "n1") == SKIP


def test_the_first_failure_of_a_group_cancels_the_others() -> None:
    log: list[str] = []

    async def slow(self: Any, *args: Any) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            log.append(f"{self.name} cancelled")

    async def quick(self: Any, *args: Any) -> Status:
        await asyncio.sleep(0)
        return NO

    flight = say((PARALLEL, None))
    framework = profile(
        make_plugin("Slow", pre_bind=slow, pre_bind_pre_flight=flight),
        make_plugin("Quick", pre_bind=quick, pre_bind_pre_flight=flight),
        make_plugin("After", pre_bind=say(BOOM)),
    )
    state = CycleState()
    framework.binding.pre_bind_pre_flight(state, info(), "n1")
    assert asyncio.run(framework.binding.pre_bind(state, info(), "n1")) == NO.with_plugin("Quick")
    assert log == ["Slow cancelled"]


# -- Bind and PostBind -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answers", "want"),
    [
        ([SKIP, None, BOOM], SUCCESS),
        ([SKIP, OK, BOOM], SUCCESS),
        ([SKIP, SKIP], ("Skip", "", "")),
        ([SKIP, NO, None], ("Unschedulable", "no", "P2")),
        ([BOOM, None], ("Error", 'running Bind plugin "P1": boom', "P1")),
    ],
)
def test_bind_goes_on_until_one_does_not_skip(answers: list[Any], want: Any) -> None:
    assert shown(profile_of("bind", *answers).binding.bind(CycleState(), info(), "n1")) == want


def test_bind_and_pre_bind_may_be_coroutines() -> None:
    async def reject(self: Any, *args: Any) -> Status:
        await asyncio.sleep(0)
        return NO

    async def fail(self: Any, *args: Any) -> Status:
        await asyncio.sleep(0)
        raise BOOM

    async def skip(self: Any, *args: Any) -> Status:
        await asyncio.sleep(0)
        return SKIP

    async def run() -> list[Any]:
        framework = profile(
            make_plugin("A", bind=say(SKIP)), make_plugin("C", bind=skip), make_plugin("B", bind=fail, pre_bind=reject)
        )
        state = CycleState()
        answer = framework.binding.bind(state, info(), "n")
        assert isinstance(answer, Awaitable)
        return [
            shown(await framework.binding.pre_bind(state, info(), "n")),
            shown(await answer),
        ]

    assert asyncio.run(run()) == [("Unschedulable", "no", "B"), ("Error", 'running Bind plugin "B": boom', "B")]


@pytest.mark.parametrize(
    ("last", "want"), [(None, SUCCESS), (NO, ("Unschedulable", "no", "B")), (SKIP, ("Skip", "", ""))]
)
def test_a_plugin_that_answers_at_once_binds_after_one_that_was_awaited(last: Any, want: Any) -> None:
    async def skip(self: Any, *args: Any) -> Status:
        await asyncio.sleep(0)
        return SKIP

    async def run() -> Any:
        framework = profile(make_plugin("A", bind=skip), make_plugin("B", bind=say(last)))
        answer = framework.binding.bind(CycleState(), info(), "n")
        assert isinstance(answer, Awaitable)
        durations = framework.metrics.framework_extension_point_duration_seconds.children
        found = shown(await answer)
        assert list(durations) == [("Bind", want[0], "default-scheduler")]
        return found

    assert asyncio.run(run()) == want


def test_post_bind_informs_all_whatever_one_of_them_does() -> None:
    log: list[str] = []
    framework = profile(
        make_plugin("A", post_bind=say(BOOM)),
        make_plugin("B", post_bind=lambda self, state, pod, node: log.append(node)),
    )
    framework.binding.post_bind(CycleState(), info(), "n1")
    assert log == ["n1"]


# -- the profile -------------------------------------------------------------------------------------------


def test_a_plugin_is_built_once_and_gets_its_arguments() -> None:
    built: list[Any] = []

    class Twice:
        name = "Twice"

        def __init__(self, args: Any, handle: Any) -> None:
            built.append(args)
            self.handle = handle

        filter = say(None)
        score = say(1)

    framework = profile(Twice, args={"Twice": {"a": 1}})
    assert built == [{"a": 1}]
    assert framework.plugins["Twice"].handle.profile_name == "default-scheduler"
    assert framework.filters[0].plugin is framework.scores[0].plugin


def test_a_plugin_that_cannot_be_built_is_a_configuration_error() -> None:
    class Broken:
        name = "Broken"

        def __init__(self, args: Any, handle: Any) -> None:
            raise ValueError("no such GPU")

        filter = say(None)

    with pytest.raises(ConfigError, match='initializing plugin "Broken": no such GPU'):
        profile(Broken)


def test_a_plugin_that_takes_no_arguments_is_named_with_what_would_be_right() -> None:
    class Bare:
        name = "Bare"
        filter = say(None)

    with pytest.raises(ConfigError) as caught:
        profile(Bare)
    text = str(caught.value)
    assert text.startswith('initializing plugin "Bare": TypeError: Bare() takes no arguments')
    assert text.endswith("; derive the class from kubesched.scheduler.framework.Plugin")


def test_closing_closes_what_can_be_closed_and_collects_errors() -> None:
    log: list[str] = []
    framework = profile(
        make_plugin("A", filter=say(None), close=say(BOOM)),
        make_plugin("B", filter=say(None)),
        make_plugin("C", filter=say(None), close=lambda self: log.append("C")),
    )
    assert framework.close() == ["A failed to close: boom"]
    assert log == ["C"]


def test_the_queue_gets_its_plugins() -> None:
    framework = profile(
        make_plugin("Sort", less=lambda self, first, second: first < second),
        make_plugin("Gate", pre_enqueue=say(NO)),
    )
    assert framework.queue_sort.name == "Sort"
    one: Any = 1
    assert framework.less(one, 2)  # type: ignore[arg-type]
    assert {name: shown(method(info()))[:2] for name, method in framework.pre_enqueue_plugins.items()} == {
        "Gate": ("Unschedulable", "no")
    }
