"""The binding cycle: who is asked when, and what is undone in which order (rules/cycle §9)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from harness import World, a_pod, play, server_error
from recording import Answers, a_recorder, holder

from kubesched.cluster.store.faults import connection_lost
from kubesched.scheduler.core import binding
from kubesched.scheduler.framework.status import Status

TO_PERMIT = ["A.pre_filter", "A.filter", "A.filter", "A.pre_score", "A.score", "A.score", "A.reserve", "A.permit"]


def test_the_points_of_a_successful_attempt_in_order() -> None:
    diary = Answers()

    async def scenario(world: World) -> None:
        world.nodes(2)
        world.create(a_pod("p"))
        await world.settle()
        assert diary.diary == [*TO_PERMIT, "A.pre_bind_pre_flight", "A.pre_bind", "A.post_bind"]
        assert world.node_of("p")

    play(scenario, plugins=[a_recorder(diary)])


@dataclass
class Case:
    """A step that fails, and what is undone. A, B and C extend all points, in this order."""

    name: str
    answers: dict[str, Any]
    reason: str
    message: str
    reserved: list[str] = field(default_factory=lambda: ["A", "B", "C"])
    #: Where the pod waits afterwards.
    where: str = "Backoff"
    result: str = "error"


NOT_HERE = Status.unschedulable("not here")
ON_ONE = "0/1 nodes are available: 1 not here."

CASES = [
    Case(
        "Reserve rejects: Unreserve runs for all, in reverse, also for those that never reserved",
        {"B.reserve": NOT_HERE},
        "Unschedulable",
        ON_ONE,
        reserved=["A", "B"],
        where="Unschedulable",
        result="unschedulable",
    ),
    Case(
        "Reserve rejects for good",
        {"A.reserve": Status.unresolvable("not here")},
        "Unschedulable",
        ON_ONE,
        reserved=["A"],
        where="Unschedulable",
        result="unschedulable",
    ),
    Case(
        "Reserve rejects and something is pending",
        {"A.reserve": Status.pending("not here")},
        "Unschedulable",
        ON_ONE,
        reserved=["A"],
        where="Unschedulable",
        result="unschedulable",
    ),
    Case(
        "Reserve fails",
        {"B.reserve": Status.from_error("boom")},
        "SchedulerError",
        'running Reserve plugin "B": boom',
        reserved=["A", "B"],
    ),
    Case(
        "Permit rejects", {"B.permit": NOT_HERE}, "Unschedulable", ON_ONE, where="Unschedulable", result="unschedulable"
    ),
    Case("Permit fails", {"B.permit": Status.from_error("boom")}, "SchedulerError", 'running Permit plugin "B": boom'),
    Case(
        "PreFlight fails",
        {"B.pre_bind_pre_flight": Status.from_error("boom")},
        "SchedulerError",
        'running PreBindPreFlight "B": boom',
    ),
    Case(
        "PreFlight rejects, which it may not",
        {"B.pre_bind_pre_flight": NOT_HERE},
        "SchedulerError",
        'PreBindPreFlight B returned "Unschedulable", which is unsupported. '
        "It is supposed to return Success, Skip, or Error status",
    ),
    Case(
        "PreBind rejects: reason Unschedulable, but no plugin is recorded and backoff decides",
        {"B.pre_bind": NOT_HERE},
        "Unschedulable",
        "not here",
        result="unschedulable",
    ),
    Case(
        "PreBind fails", {"B.pre_bind": Status.from_error("boom")}, "SchedulerError", 'running PreBind plugin "B": boom'
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_failure_of_a_step_undoes_the_others(case: Case) -> None:
    diary = Answers(**case.answers)

    async def scenario(world: World) -> None:
        world.nodes(1)
        await world.step()
        world.create(a_pod("p"))
        await world.sleep(0.1)
        reserves = [line for line in diary.diary if line.endswith("reserve")]
        assert reserves == [
            *(f"{name}.reserve" for name in case.reserved),
            "C.unreserve",
            "B.unreserve",
            "A.unreserve",
        ]
        assert not [line for line in diary.diary if line.endswith("post_bind")]
        condition = world.condition("p")
        assert (condition.reason, condition.message) == (case.reason, case.message)
        assert world.notes("p") == [case.message]
        assert world.where("p") == case.where
        assert world.metric("schedule_attempts_total", case.result, "default-scheduler") == 1
        assert not world.scheduler.cache.assumed
        world.check_always()
        diary.answers.update(dict.fromkeys(case.answers))
        world.patch("p", {"metadata": {"labels": {"try": "again"}}})
        await world.settle()
        assert world.node_of("p") == "n1"
        assert world.pod("p").status.nominated_node_name == ""

    names = ("A", "B", "C")
    play(scenario, plugins=[a_recorder(diary, name) for name in names])


BIND_FAILURES = [
    ("a server error", server_error(), 'running Bind plugin "DefaultBinder": injected 500'),
    ("a conflict", server_error(409, "Conflict"), 'running Bind plugin "DefaultBinder": injected 409'),
    (
        "a lost connection",
        connection_lost,
        'running Bind plugin "DefaultBinder": connection reset by peer (injected fault)',
    ),
]


@pytest.mark.parametrize(
    ("name", "error", "text"), BIND_FAILURES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_failing_bind_is_undone_and_tried_again(name: str, error: Any, text: str) -> None:
    diary = Answers()

    async def scenario(world: World) -> None:
        world.nodes(1)
        world.faults.fail("bind", error=error, times=1)
        world.create(a_pod("p"))
        await world.settle()
        assert world.node_of("p") == "n1"
        assert [line for line in diary.diary if line in ("A.reserve", "A.unreserve", "A.post_bind")] == [
            "A.reserve",
            "A.unreserve",
            "A.reserve",
            "A.post_bind",
        ]
        assert world.notes("p") == [text]
        assert len(world.events("p", "Scheduled")) == 1
        # The binding overwrote what the failure had written.
        assert world.condition("p").status == "True"

    play(scenario, plugins=[a_recorder(diary)])


def test_the_room_of_a_failed_binding_wakes_a_pod_that_waits_for_it() -> None:
    async def scenario(world: World) -> None:
        world.nodes(1, "1")
        world.faults.delay("bind", 3, name="first")
        refused = world.faults.fail("bind", name="first", error=server_error(403, "Forbidden"))
        world.create(a_pod("first", "800m"), a_pod("second", "800m"))
        await world.sleep(2)
        assert world.where("second") == "Unschedulable"
        await world.until(lambda: world.node_of("second"), "binding", 2)
        world.faults.remove(refused)

    play(scenario)


def test_the_room_of_a_pod_that_somebody_else_has_bound_elsewhere_wakes_a_pod_that_waits_for_it() -> None:
    """The watch shows the pod on its node before the refusal of its binding arrives."""

    async def scenario(world: World) -> None:
        world.nodes(2, "1")
        world.faults.delay("bind", 3, name="first")
        world.create(a_pod("first", "800m"), a_pod("neighbour", "100m"), a_pod("second", "950m"))
        await world.sleep(2)
        assert world.where("second") == "Unschedulable"
        world.store.bind("default", "first", world.pod("first").uid, world.node_of("neighbour"))
        await world.until(lambda: world.node_of("second"), "binding", 2)
        assert world.node_of("second") != world.node_of("neighbour")

    play(scenario, expect_errors=["cannot forget pod"])


def test_a_bind_plugin_that_skips_leaves_it_to_the_next() -> None:
    diary = Answers(bind=Status.skip())

    async def scenario(world: World) -> None:
        world.nodes(1)
        world.create(a_pod("p"))
        await world.settle()
        assert world.node_of("p") == "n1"

    play(scenario, plugins=[holder(diary, "Mine", "bind")])


def test_without_a_bind_plugin_that_takes_the_pod_the_attempt_fails() -> None:
    from harness import a_config

    diary = Answers(bind=Status.skip())
    profile = {
        "schedulerName": "default-scheduler",
        "plugins": {"bind": {"enabled": [{"name": "Mine"}], "disabled": [{"name": "*"}]}},
    }

    async def scenario(world: World) -> None:
        world.nodes(1)
        world.create(a_pod("p"))
        await world.sleep(0.5)
        assert world.condition("p").reason == "SchedulerError"
        assert world.where("p") == "Backoff"
        diary.answers["bind"] = None  # reports success without binding: the API server's state counts
        await world.sleep(5)
        assert world.node_of("p") == ""
        world.store.bind("default", "p", world.pod("p").uid, "n1")
        await world.settle()

    play(scenario, plugins=[holder(diary, "Mine", "bind")], config=a_config(profiles=[profile]))


def test_pre_bind_groups_run_one_after_another_and_their_members_side_by_side() -> None:
    from recording import PARALLEL

    async def slow(*_: Any) -> None:
        await asyncio.sleep(1)

    diary = Answers(pre_bind=slow, **{"B.pre_bind_pre_flight": PARALLEL, "C.pre_bind_pre_flight": PARALLEL})

    async def scenario(world: World) -> None:
        world.nodes(1)
        world.create(a_pod("p"))
        await world.settle()
        times = {
            line: time
            for line, time in zip(diary.diary, diary.times, strict=True)
            if line.endswith(("pre_bind", "post_bind"))
        }
        begin = times["A.pre_bind"]
        assert {line: round(time - begin, 3) for line, time in times.items()} == {
            "A.pre_bind": 0,
            "B.pre_bind": 1,
            "C.pre_bind": 1,
            "D.pre_bind": 2,
            "A.post_bind": 3,
        }

    plugins = [a_recorder(diary, "A"), *(holder(diary, name, "pre_bind", "pre_bind_pre_flight") for name in "BC")]
    play(scenario, plugins=[*plugins, holder(diary, "D", "pre_bind")])


def test_a_slow_pre_bind_holds_up_no_other_pod() -> None:
    async def slow(state: Any, pod: Any, node_name: str) -> None:
        if pod.name == "slow":
            await asyncio.sleep(30)

    async def scenario(world: World) -> None:
        world.nodes(1)
        world.create(a_pod("slow"))
        await world.step()
        world.create(*(a_pod(f"p{number}") for number in range(20)))
        await world.sleep(1)
        assert len(world.binds) == 20
        assert world.pod("slow").status.nominated_node_name == "n1"
        assert world.metric("goroutines", "binding") == 1
        await world.settle()
        assert world.node_of("slow") == "n1"
        assert world.binds[-1][0] == 30
        assert world.metric("goroutines", "binding") == 0

    play(scenario, plugins=[holder(Answers(pre_bind=slow), "Slow", "pre_bind")])


PUBLISHED = [
    ("PreBind has work", {}, True),
    ("PreBind has nothing to do", {"pre_bind_pre_flight": Status.skip()}, False),
    ("PreBind has nothing to do, but Permit waits", {"pre_bind_pre_flight": Status.skip(), "permit": "wait"}, True),
]


@pytest.mark.parametrize(
    ("name", "answers", "published"), PUBLISHED, ids=lambda value: value if isinstance(value, str) else ""
)
def test_the_chosen_node_is_published_before_work_on_it_begins(
    name: str, answers: dict[str, Any], published: bool
) -> None:
    if answers.get("permit") == "wait":
        answers = {**answers, "permit": (Status.wait(), 1.0)}
    diary = Answers(**answers)
    seen: list[str] = []

    async def scenario(world: World) -> None:
        diary.answers["pre_bind"] = lambda *_: seen.append(world.pod("p").status.nominated_node_name)
        world.nodes(1)
        await world.step()
        world.create(a_pod("p"))
        await world.step()
        patches = world.embedded.port.requests.get(("PATCH", "200"), 0)
        assert patches == (1 if published else 0)
        if "permit" in answers:
            assert world.pod("p").status.nominated_node_name == "n1"
            for waiting in world.scheduler.waiting_pods:
                waiting.allow("A")
        await world.settle()
        assert seen == (["n1"] if "pre_bind_pre_flight" not in answers else [])
        assert world.pod("p").status.nominated_node_name == ""  # the API server clears it on binding

    play(scenario, plugins=[holder(diary, "A", "permit", "pre_bind", "pre_bind_pre_flight")])


def test_binding_failure_requeues_pods_that_need_the_resources_and_a_rejection_not_the_pod_itself() -> None:
    """rules/cycle §9.1: freed capacity is reported as a deleted pod."""
    diary = Answers()

    async def fail_big(state: Any, pod: Any, node_name: str) -> Status | None:
        await asyncio.sleep(5)
        return NOT_HERE if pod.name == "big" else None

    diary.answers["pre_bind"] = fail_big

    async def scenario(world: World) -> None:
        world.nodes(1, "1")
        world.create(a_pod("big", "1"))
        await world.sleep(1)
        world.create(a_pod("small", "500m"))
        await world.sleep(1)
        assert world.where("small") == "Unschedulable"
        await world.sleep(5)
        # At 5 s the big pod failed; "small" was activated at once (nothing else is active).
        assert world.scheduler.cache.assumed == {world.pod("small").uid}
        diary.answers["pre_bind"] = None
        await world.settle()
        assert world.node_of("small") == "n1"

    play(scenario, plugins=[holder(diary, "Late", "pre_bind")])


def test_pods_to_activate_are_woken_after_the_cycle_and_after_the_binding() -> None:
    """rules/framework §5: the holder is read out when the scheduling cycle and when the binding cycle succeeded."""
    from kubesched.scheduler.framework.cycle_state import PODS_TO_ACTIVATE

    diary = Answers()

    def wake(name: str) -> Any:
        def write(state: Any, pod: Any, node_name: str) -> None:
            if pod.name.startswith("waker"):
                sleeper = world_of[0].pod(name)
                state.read(PODS_TO_ACTIVATE).pods[sleeper.key] = sleeper

        return write

    world_of: list[World] = []
    attempts: dict[str, int] = {}

    def count(state: Any, pod: Any, nodes: Any) -> Status | None:
        attempts[pod.name] = attempts.get(pod.name, 0) + 1
        return Status.unschedulable("asleep") if pod.name.startswith("sleeper") else None

    diary.answers.update(pre_filter=count, reserve=wake("sleeper1"), post_bind=wake("sleeper2"), events_to_register=[])

    async def scenario(world: World) -> None:
        world_of.append(world)
        world.nodes(1)
        world.create(a_pod("sleeper1"), a_pod("sleeper2"))
        await world.settle()
        assert attempts == {"sleeper1": 1, "sleeper2": 1}
        world.create(a_pod("waker"))
        await world.settle()
        assert attempts == {"sleeper1": 2, "sleeper2": 2, "waker": 1}
        assert world.where("sleeper1") == world.where("sleeper2") == "Unschedulable"
        assert world.condition("sleeper1").message == "0/1 nodes are available: asleep."

    methods = ("pre_filter", "reserve", "post_bind", "events_to_register")
    play(scenario, plugins=[holder(diary, "Alarm", *methods)])


def test_a_pod_called_off_in_pre_bind_is_undone_and_tried_again() -> None:
    diary = Answers(pre_bind=lambda *_: asyncio.sleep(30))

    async def scenario(world: World) -> None:
        world.nodes(1)
        world.create(a_pod("p"))
        await world.sleep(1)
        entry = world.scheduler.pods_in_pre_bind.get(world.pod("p").uid)
        assert entry is not None
        assert entry.cancel("preempted by another pod")
        diary.answers.clear()
        await world.sleep(0.1)
        assert world.notes("p") == ["preempted by another pod"]
        assert world.condition("p").reason == "SchedulerError"
        assert world.where("p") == "Backoff"
        assert world.scheduler.pods_in_pre_bind.get(world.pod("p").uid) is None
        await world.settle()
        assert world.node_of("p") == "n1"
        assert diary.diary.count("A.unreserve") == 1

    play(scenario, plugins=[holder(diary, "A", "reserve", "unreserve", "pre_bind")])


def test_decisions_wait_for_answers_so_that_a_late_pod_of_high_priority_goes_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(binding, "MOST_UNANSWERED", 8)
    most = 8 + 32  # a turn of the event loop is not broken off

    async def scenario(world: World) -> None:
        world.nodes(1, cpu="100")
        world.faults.delay("bind", 1.0)
        names = [f"p{number:03}" for number in range(100)]
        world.create(*(a_pod(name, "10m") for name in names))
        await world.sleep(0.5)
        assert 8 <= len(world.scheduler.cache.assumed) <= most
        world.create(a_pod("urgent", "10m", priority=1000))
        await world.settle()
        bound = [key.removeprefix("default/") for _, key, _, _ in world.binds]
        assert bound.index("urgent") <= most
        bound.remove("urgent")
        assert bound == names

    play(scenario, believe_priority=True)


def test_bindings_without_an_answer_that_stop_all_decisions_are_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(binding, "MOST_UNANSWERED", 2)

    async def scenario(world: World) -> None:
        world.nodes(1, cpu="100")
        world.faults.delay("bind", 130.0)
        world.create(*(a_pod(f"p{number}", "10m") for number in range(3)))
        await world.sleep(5)
        world.create(a_pod("late", "10m"))
        await world.settle(600)
        assert world.node_of("late")

    play(scenario)
    texts = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [text.partition(" bindings")[0] for text in texts] == [
        f"no pod has been decided for {seconds} s: 3" for seconds in (60, 120)
    ]
    assert "an answer of the API server, a Bind plugin or an extender, and none comes" in texts[0]


def test_pods_in_pre_bind_hold_back_no_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod in PreBind, or on Permit, may wait for one that is still queued."""
    monkeypatch.setattr(binding, "MOST_UNANSWERED", 1)
    here: list[str] = []

    async def scenario(world: World) -> None:
        all_here = asyncio.Event()

        async def pre_bind(_: Any, pod: Any, node_name: str) -> None:
            here.append(pod.name)
            if len(here) == 50:
                all_here.set()
            await all_here.wait()

        diary.answers["pre_bind"] = pre_bind
        world.nodes(1, cpu="100")
        world.create(*(a_pod(f"p{number:03}", "10m") for number in range(50)))
        await world.settle()
        assert len(world.binds) == 50

    diary = Answers()
    play(scenario, plugins=[holder(diary, "Meeting", "pre_bind")])
