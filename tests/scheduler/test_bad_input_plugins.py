"""Plugins that raise or return invalid values, at every extension point: the pod reports it, others are not affected."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from harness import World, a_config, a_pod, play, world
from recording import Answers, holder

from kubesched.lab.simulate.run.virtual_time import run_virtual
from kubesched.scheduler.config import ConfigError
from kubesched.scheduler.framework.events import ActionType, ClusterEvent, ClusterEventWithHint, EventResource
from kubesched.scheduler.framework.interface import Plugin
from kubesched.scheduler.framework.registry import PluginError
from kubesched.scheduler.framework.status import Status

BOOM = RuntimeError("boom")


#: A profile with one PostFilter plugin.
ONLY_HELPER = {
    "schedulerName": "default-scheduler",
    "plugins": {"postFilter": {"enabled": [{"name": "Helper"}], "disabled": [{"name": "*"}]}},
}


@dataclass
class Case:
    """Answer of plugin Bad to pod ``bad``, and the message of the pod's condition then (empty: it is bound all the same)."""

    point: str
    answer: Any
    message: str
    others: list[str] = field(default_factory=list)


def nonsense(point: str, expected: str = "None or a Status", answer: Any = 5) -> str:
    return f"returned {answer!r} from {point}; expected {expected}"


CASES = [
    Case("pre_filter", BOOM, 'running PreFilter plugin "Bad": boom'),
    Case(
        "pre_filter",
        5,
        'running PreFilter plugin "Bad": ' + nonsense("pre_filter", "None, a Status or a frozenset of node names"),
    ),
    Case("pre_filter", Status.from_error("oh"), 'running PreFilter plugin "Bad": oh'),
    Case("filter", BOOM, 'running "Bad" filter plugin: boom'),
    Case("filter", 5, 'running "Bad" filter plugin: filter returned 5; expected None or a Status'),
    Case("filter", Status.skip(), 'running "Bad" filter plugin: unexpected status Skip'),
    Case("pre_score", BOOM, 'running PreScore plugin "Bad": boom', ["score"]),
    Case("pre_score", 5, 'running PreScore plugin "Bad": ' + nonsense("pre_score"), ["score"]),
    Case("pre_score", Status.unschedulable("no"), 'running PreScore plugin "Bad": no', ["score"]),
    Case("score", BOOM, 'running Score plugins: plugin "Bad" failed with: boom'),
    Case("score", "x", "running Score plugins: plugin \"Bad\" failed with: score returned 'x'; expected an int"),
    Case("score", True, 'running Score plugins: plugin "Bad" failed with: score returned True; expected an int'),
    Case("score", Status.from_error("oh"), 'running Score plugins: plugin "Bad" failed with: oh'),
    Case(
        "score",
        101,
        'applying score defaultWeights on Score plugins: plugin "Bad" returns an invalid score 101, '
        "it should in the range of [0, 100] after normalizing",
    ),
    Case(
        "score",
        1 << 70,
        f'running Score plugins: plugin "Bad" failed with: score returned {1 << 70}, which is beyond 64 bits',
    ),
    Case("normalize_score", BOOM, 'running Normalize on Score plugins: plugin "Bad" failed with: boom', ["score"]),
    Case(
        "normalize_score",
        5,
        'running Normalize on Score plugins: plugin "Bad" failed with: normalize_score returned 5; expected int64[2]',
        ["score"],
    ),
    Case("reserve", BOOM, 'running Reserve plugin "Bad": boom'),
    Case("reserve", 5, 'running Reserve plugin "Bad": ' + nonsense("reserve")),
    Case("permit", BOOM, 'running Permit plugin "Bad": boom'),
    Case("permit", 5, 'running Permit plugin "Bad": ' + nonsense("permit")),
    Case(
        "permit",
        (Status.wait(), "soon"),
        "running Permit plugin \"Bad\": returned a waiting time of 'soon' from permit; expected seconds",
    ),
    Case(
        "permit",
        (Status.wait(), float("nan")),
        'running Permit plugin "Bad": returned a waiting time of nan from permit; expected seconds',
    ),
    Case(
        "permit",
        (Status.wait(), -5),
        "0/2 nodes are available: 1 rejected due to timeout after waiting 0s at plugin Bad.",
    ),
    Case("permit", (1, 2, 3), 'running Permit plugin "Bad": ' + nonsense("permit", answer=(1, 2, 3))),
    Case("pre_bind_pre_flight", BOOM, 'running PreBindPreFlight "Bad": boom', ["pre_bind"]),
    Case(
        "pre_bind_pre_flight",
        5,
        'running PreBindPreFlight "Bad": ' + nonsense("pre_bind_pre_flight", "None, a Status or a pair"),
        ["pre_bind"],
    ),
    Case(
        "pre_bind_pre_flight",
        (1, 2, 3),
        'running PreBindPreFlight "Bad": ' + nonsense("pre_bind_pre_flight", "None, a Status or a pair", (1, 2, 3)),
        ["pre_bind"],
    ),
    Case("pre_bind", BOOM, 'running PreBind plugin "Bad": boom'),
    Case("pre_bind", 5, 'running PreBind plugin "Bad": ' + nonsense("pre_bind")),
    Case("pre_bind", asyncio.CancelledError(), 'running PreBind plugin "Bad": what it waited for was cancelled'),
    Case("bind", BOOM, 'running Bind plugin "Bad": boom'),
    Case("bind", 5, 'running Bind plugin "Bad": ' + nonsense("bind")),
    Case("bind", asyncio.CancelledError(), 'running Bind plugin "Bad": what it waited for was cancelled'),
    Case("post_bind", BOOM, ""),
    Case("post_bind", 5, ""),
    Case("unreserve", BOOM, "", ["reserve"]),
]


class OddError(BaseException):
    """As libraries have them that mean to end more than a call."""


#: What is no Exception, and a plugin's failure all the same. A cancellation is one if nobody cancelled the task.
ODD = (GeneratorExit("boom"), SystemExit("boom"), asyncio.CancelledError("boom"), OddError("boom"))
CASES += [replace(case, answer=odd) for case in CASES if case.answer is BOOM for odd in ODD]


def name_of(case: Case) -> str:
    raised = isinstance(case.answer, BaseException)
    return f"{case.point} {f'raises {type(case.answer).__name__}' if raised else f'answers {case.answer!r}'}"


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_bad_plugin_fails_its_pod_and_no_other(case: Case) -> None:
    """``bad`` meets the bad answer, pods made before, with and after it do not."""
    asynchronous = isinstance(case.answer, asyncio.CancelledError) and not case.answer.args
    good: dict[str, Any] = {"score": 0, "bind": Status.skip()}

    def answer(*args: Any) -> Any:
        pod = args[0] if case.point == "pre_enqueue" else args[1]
        if pod.name != "bad":
            return args[2] if case.point == "normalize_score" else good.get(case.point)
        if asynchronous:
            return _cancelled()
        if isinstance(case.answer, BaseException):
            raise case.answer
        return case.answer

    diary = Answers(**{other: good.get(other) for other in case.others}, **{case.point: answer})

    async def scenario(world: World) -> None:
        world.nodes(2)
        world.create(a_pod("early"))
        await world.step()
        world.create(a_pod("one"), a_pod("bad"), a_pod("two"))
        await world.sleep(0.2)
        world.create(a_pod("late"))
        await world.sleep(0.2)
        assert len(world.binds) == (4 if case.message else 5)
        world.check_always()
        assert not world.scheduler.cache.assumed
        if case.message:
            message = world.condition("bad").message
            assert message == case.message.replace(
                "0/2 nodes are available: 1 rejected", "0/1 nodes are available: 1 rejected"
            )
            assert world.notes("bad")[0] == message
            diary.answers[case.point] = good.get(case.point) if case.point != "normalize_score" else lambda *a: a[2]
            world.patch("bad", {"metadata": {"labels": {"try": "again"}}})
        await world.settle()
        assert world.node_of("bad")

    config_plugins = {"bind": {"enabled": [{"name": "Bad"}, {"name": "DefaultBinder"}], "disabled": [{"name": "*"}]}}
    config = None
    if case.point == "bind":
        config = a_config(profiles=[{"schedulerName": "default-scheduler", "plugins": config_plugins}])
    methods = (*case.others, case.point)
    errors = ["?plugin Bad failed", "?PreEnqueue plugin Bad"]
    play(scenario, plugins=[holder(diary, "Bad", *methods)], config=config, expect_errors=errors)


@pytest.mark.parametrize("point", ["pre_bind", "bind"])
@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_what_a_coroutine_of_a_plugin_raises_is_its_failure(point: str, odd: BaseException) -> None:
    async def raising() -> None:
        raise odd

    diary = Answers(**{point: lambda *args: raising() if args[1].name == "bad" else None})

    async def scenario(world: World) -> None:
        world.nodes(1)
        world.create(a_pod("bad"))
        await world.sleep(0.2)
        assert f'plugin "Bad": {"what it waited for was" if isinstance(odd, asyncio.CancelledError) else "boom"}' in (
            world.condition("bad").message
        )
        diary.answers[point] = Status.skip() if point == "bind" else None
        world.patch("bad", {"metadata": {"labels": {"try": "again"}}})
        await world.settle()
        assert world.node_of("bad")

    plugins = {"bind": {"enabled": [{"name": "Bad"}, {"name": "DefaultBinder"}], "disabled": [{"name": "*"}]}}
    config = (
        a_config(profiles=[{"schedulerName": "default-scheduler", "plugins": plugins}]) if point == "bind" else None
    )
    play(scenario, plugins=[holder(diary, "Bad", point)], config=config, expect_errors=["?plugin Bad failed"])


async def _cancelled() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


POST_FILTER = [
    ("raises", BOOM, "0/1 nodes are available: 1 Insufficient cpu. boom"),
    (
        "answers nonsense",
        5,
        "0/1 nodes are available: 1 Insufficient cpu. "
        'plugin "Bad" returned 5 from post_filter; expected a pair of result and status',
    ),
    (
        "answers a pair of nonsense",
        ("x", None),
        "0/1 nodes are available: 1 Insufficient cpu. "
        "plugin \"Bad\" returned ('x', None) from post_filter; expected a pair of result and status",
    ),
    ("answers with an error", (None, Status.from_error("oh")), "0/1 nodes are available: 1 Insufficient cpu. oh"),
    ("cannot help", (None, Status.unschedulable("no way")), "0/1 nodes are available: 1 Insufficient cpu. no way"),
    ("helps", (None, None), "0/1 nodes are available: 1 Insufficient cpu."),
]


@pytest.mark.parametrize(("name", "answer", "message"), POST_FILTER, ids=[case[0] for case in POST_FILTER])
def test_a_failing_post_filter_never_makes_the_attempt_an_error(name: str, answer: Any, message: str) -> None:
    diary = Answers(post_filter=answer)

    async def scenario(world: World) -> None:
        world.nodes(1, "1")
        world.create(a_pod("big", "2"), a_pod("small"))
        await world.settle()
        assert (world.condition("big").reason, world.condition("big").message) == ("Unschedulable", message)
        assert world.node_of("small") == "n1"

    play(scenario, plugins=[holder(diary, "Bad", "post_filter")], expect_errors=["?plugin Bad failed"])


@pytest.mark.parametrize("answer", [BOOM, *ODD, 5, Status.from_error("oh"), Status.unschedulable("no")], ids=repr)
def test_a_bad_pre_enqueue_holds_its_pod_back(answer: Any) -> None:
    def gate(pod: Any) -> Any:
        if pod.name != "bad" or pod.labels:
            return None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    diary = Answers(pre_enqueue=gate)

    async def scenario(world: World) -> None:
        world.nodes(1)
        world.create(a_pod("bad"), a_pod("good"))
        await world.settle()
        assert world.node_of("good") == "n1"
        assert world.where("bad") == "Gated"
        world.patch("bad", {"metadata": {"labels": {"try": "again"}}})
        await world.settle()
        assert world.node_of("bad") == "n1"

    errors = ["?plugin Bad failed", "?PreEnqueue plugin Bad"]
    play(scenario, plugins=[holder(diary, "Bad", "pre_enqueue")], expect_errors=errors)


@pytest.mark.parametrize("answer", [BOOM, *ODD, 5, [1]], ids=repr)
def test_a_plugin_that_cannot_list_its_events_is_refused_at_start(answer: Any) -> None:
    diary = Answers(events_to_register=answer)

    async def main() -> None:
        async with world(plugins=[holder(diary, "Bad", "filter", "events_to_register")]):
            raise AssertionError("it started")

    with pytest.raises(PluginError, match='plugin "Bad"'):
        run_virtual(main())


def test_a_plugin_that_cannot_be_built_is_refused_at_start() -> None:
    bad = holder(Answers(), "Bad", "filter")

    def fail(self: Any, args: Any, handle: Any) -> None:
        raise ValueError("no such model")

    bad.__init__ = fail  # type: ignore[misc]  # a class made for this test

    async def main() -> None:
        async with world(plugins=[bad]):
            raise AssertionError("it started")

    with pytest.raises(ConfigError, match='initializing plugin "Bad": no such model'):
        run_virtual(main())


def test_a_plugin_that_looks_up_an_unknown_kind_is_refused_at_start() -> None:
    bad = holder(Answers(), "Bad", "filter")
    bad.informs = ("services", "gizmos")  # type: ignore[attr-defined]  # a class made for this test

    async def main() -> None:
        async with world(plugins=[bad]):
            raise AssertionError("it started")

    with pytest.raises(PluginError, match=r"plugin Bad: informs: 'gizmos' is no kind of object; known are .*services"):
        run_virtual(main())


@pytest.mark.parametrize("problem", [BOOM, *ODD], ids=repr)
def test_a_hint_that_raises_counts_as_queue(problem: BaseException) -> None:
    def hint(pod: Any, old: Any, new: Any) -> Any:
        raise problem

    events = [ClusterEventWithHint(ClusterEvent(EventResource.NODE, ActionType.UPDATE_NODE_LABEL), hint)]
    diary = Answers(filter=Status.unschedulable("no"), events_to_register=events)

    async def scenario(world: World) -> None:
        world.nodes(1)
        world.create(a_pod("p"))
        await world.settle()
        assert world.where("p") == "Unschedulable"
        diary.answers["filter"] = None
        world.patch_node("n1", {"metadata": {"labels": {"a": "b"}}})
        await world.settle()
        assert world.node_of("p") == "n1"

    errors = ["Queueing hint of Bad failed"]
    play(scenario, plugins=[holder(diary, "Bad", "filter", "events_to_register")], expect_errors=errors)


@pytest.mark.parametrize("answer", [BOOM, *ODD, [1]], ids=repr)
def test_a_bad_signature_fails_its_pod_and_no_other(answer: Any) -> None:
    def sign(pod: Any) -> Any:
        if pod.name != "bad" or pod.labels:
            return ()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    diary = Answers(sign=sign, score=0)

    async def scenario(world: World) -> None:
        world.nodes(2)
        world.create(a_pod("bad"), a_pod("good"))
        await world.sleep(0.5)
        assert world.node_of("good")
        assert world.condition("bad").reason == "SchedulerError"
        world.patch("bad", {"metadata": {"labels": {"try": "again"}}})
        await world.settle()
        assert world.node_of("bad")

    errors = ["?plugin Bad failed", "?failed unexpectedly"]
    play(scenario, plugins=[holder(diary, "Bad", "sign", "score")], expect_errors=errors)


@pytest.mark.parametrize("method", ["less", "sort_key"])
@pytest.mark.parametrize("failing", ["at once", "when pods are popped", "every third time"])
def test_a_queue_order_that_raises_loses_no_pod_and_falls_back_to_priority(method: str, failing: str) -> None:
    calls = itertools.count()
    made_apart = failing == "when pods are popped"

    class Moody(int):
        """A key whose comparison fails once there are several pods."""

        def __lt__(self, other: Any) -> bool:
            raise BOOM

    class Order(holder(Answers(), "Order", "reserve")):  # type: ignore[misc]  # made for this test
        def less(self, first: Any, second: Any) -> bool:
            return bool(self.answer(first) < self.answer(second)) if method == "less" else False

        @staticmethod
        def answer(queued: Any) -> Any:
            number = next(calls)
            if failing == "at once" or (failing == "every third time" and number % 3 == 0):
                raise BOOM
            return Moody(number) if made_apart else number

    if method == "sort_key":
        Order.sort_key = lambda self, queued: self.answer(queued)
    profile = {
        "schedulerName": "default-scheduler",
        "plugins": {"queueSort": {"enabled": [{"name": "Order"}], "disabled": [{"name": "*"}]}},
    }
    names = [f"p{number}" for number in range(8)]

    async def scenario(world: World) -> None:
        world.create(*(a_pod(name) for name in names))
        world.nodes(2)
        await world.settle()
        world.create(
            *(a_pod(f"{name}-later") for name in names), a_pod("urgent", priorityClassName="system-node-critical")
        )
        await world.settle()
        assert all(world.node_of(name) and world.node_of(f"{name}-later") for name in names)
        if failing == "at once":
            later = [key for _, key, _, _ in world.binds[len(names) :]]
            assert later == ["default/urgent", *(f"default/{name}-later" for name in names)]

    play(
        scenario,
        plugins=[Order],
        config=a_config(profiles=[profile]),
        expect_errors=[f"QueueSort plugin Order failed in {method}", "?QueueSort plugin Order has failed"],
    )


def test_a_post_filter_that_is_async_holds_the_next_pod_back_until_it_has_answered() -> None:
    diary: list[str] = []

    class Helper(Plugin):
        name = "Helper"

        async def post_filter(self, state: Any, pod: Any, statuses: Any) -> Any:
            diary.append(f"{pod.name} begins")
            await asyncio.sleep(0.25)
            diary.append(f"{pod.name} ends")
            return None, Status.unschedulable("the helper could not help")

    async def scenario(world: World) -> None:
        world.nodes(1, cpu="1")
        world.create(a_pod("big", cpu="2"), a_pod("bigger", cpu="3"))
        await world.until(lambda: len(world.events(reason="FailedScheduling")) == 2, "both pods are rejected")
        assert diary == ["big begins", "big ends", "bigger begins", "bigger ends"]
        assert world.condition("big").message.endswith("the helper could not help")

    play(scenario, plugins=[Helper], config=a_config(profiles=[ONLY_HELPER]))
