"""Pods that are not scheduled: what they say, where they wait, and when they are tried again."""

from __future__ import annotations

from typing import Any

import pytest
from harness import PODS, World, a_config, a_node, a_pod, play
from recording import Answers, holder

from kubesched.api.decode import from_builtins
from kubesched.api.types import Pod
from kubesched.api.wire import NotLeaderError
from kubesched.scheduler.framework.interface import PostFilterResult
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes.nominating import NominatingInfo

TAINT = [{"key": "k", "effect": "NoSchedule"}]


def fitting(name: str, **more: Any) -> dict[str, Any]:
    return a_pod(name, "3", **more)


MESSAGES: list[tuple[str, list[dict[str, Any]], dict[str, Any], str]] = [
    ("no node at all", [], {}, "no nodes available to schedule pods"),
    ("one reason", [a_node("n1", "1"), a_node("n2", "1")], {}, "0/2 nodes are available: 2 Insufficient cpu."),
    (
        "several reasons, as sorted strings",
        [
            *(a_node(f"a{number}", "1") for number in range(10)),
            *(a_node(f"b{number}", taints=TAINT) for number in range(2)),
            a_node("c", unschedulable=True),
        ],
        {},
        "0/13 nodes are available: 1 node(s) were unschedulable, 10 Insufficient cpu, 2 node(s) had untolerated taint(s).",
    ),
    (
        "one node with several reasons",
        [a_node("n1", "1", amounts={"pods": "0"})],
        {},
        "0/1 nodes are available: 1 Insufficient cpu, 1 Too many pods.",
    ),
    (
        "node affinity restricts to a node that is not there",
        [a_node("n1")],
        {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["elsewhere"]}]}
                        ]
                    }
                }
            }
        },
        "0/1 nodes are available: 1 node(s) didn't satisfy plugin(s) [NodeAffinity].",
    ),
]


@pytest.mark.parametrize(("name", "nodes", "spec", "message"), MESSAGES, ids=[case[0] for case in MESSAGES])
def test_the_text_of_a_failure(name: str, nodes: list[dict[str, Any]], spec: dict[str, Any], message: str) -> None:
    async def scenario(world: World) -> None:
        world.create(*nodes)
        await world.step()
        world.create(fitting("p", **spec))
        await world.sleep(0.5)
        condition = world.condition("p")
        assert (condition.status, condition.reason) == ("False", "Unschedulable")
        assert condition.message == message
        assert world.notes("p") == [message]
        assert world.where("p") == ("Unschedulable" if nodes else "Backoff")
        world.create(a_node("elsewhere"))
        await world.settle()
        assert world.node_of("p") == "elsewhere"

    play(scenario)


def test_the_fields_of_events_and_conditions() -> None:
    async def scenario(world: World) -> None:
        world.nodes(1, "1")
        world.create(a_pod("p", "2"))
        await world.settle()
        (failed,) = world.events("p")
        pod = world.pod("p")
        assert {name: failed[name] for name in ("type", "reason", "action", "note")} == {
            "type": "Warning",
            "reason": "FailedScheduling",
            "action": "Scheduling",
            "note": "0/1 nodes are available: 1 Insufficient cpu.",
        }
        assert failed["reportingController"] == "default-scheduler"
        assert failed["reportingInstance"] == "default-scheduler-localhost"
        assert failed["regarding"]["uid"] == pod.uid
        condition = world.condition("p")
        assert (condition.observed_generation, condition.last_probe_time) == (1, None)
        since = condition.last_transition_time
        await world.sleep(20)
        world.resize_node("n1", "1500m")
        world.scheduler.queue.activate({pod.key: pod})
        await world.settle()
        assert world.condition("p").last_transition_time == since
        world.resize_node("n1", "2")
        await world.settle()
        (bound,) = world.events("p", "Scheduled")
        assert (bound["type"], bound["action"]) == ("Normal", "Binding")
        assert bound["note"] == "Successfully assigned default/p to n1"

    play(scenario)


@pytest.mark.parametrize("letter", ["x", "é", "\U0001f40d"])
def test_a_long_message_is_cut_in_the_event_and_whole_in_the_condition(letter: str) -> None:
    reason = letter * 2000
    diary = Answers(pre_filter=Status.unschedulable(reason), events_to_register=[])

    async def scenario(world: World) -> None:
        world.nodes(1)
        world.create(a_pod("p"))
        await world.settle()
        full = f"0/1 nodes are available: {reason}."
        assert world.condition("p").message == full
        (note,) = world.notes("p")
        assert note.endswith(" ...")
        assert len(note.encode()) + 3 >= 1020
        assert len(note.encode()) <= 1024
        assert full.startswith(note.removesuffix(" ..."))

    play(scenario, plugins=[holder(diary, "Wordy", "pre_filter", "events_to_register")])


def test_backoff_grows_one_two_four_eight_ten() -> None:
    """An error is tried again when its backoff is over: at the next whole second after 1, 2, 4, 8, 10, 10 s."""
    diary = Answers(reserve=Status.from_error("boom"))

    async def scenario(world: World) -> None:
        world.nodes(1)
        world.create(a_pod("p"))
        await world.sleep(60.5)
        gaps = [round(after - before, 3) for before, after in zip(diary.times, diary.times[1:], strict=False)]
        assert gaps == [2, 3, 5, 9, 11, 11, 11]
        assert world.metric("schedule_attempts_total", "error", "default-scheduler") == 8
        diary.answers.clear()
        await world.settle()
        assert world.metric("pod_scheduling_attempts") == 1

    play(scenario, plugins=[holder(diary, "Bad", "reserve")])


def test_gated_pods_wait_and_pods_of_others_are_untouched() -> None:
    async def scenario(world: World) -> None:
        world.nodes(1)
        world.create(
            a_pod("gated", schedulingGates=[{"name": "example.com/a"}, {"name": "example.com/b"}]),
            a_pod("foreign", scheduler="other-scheduler"),
        )
        await world.sleep(400)
        assert world.where("gated") == "Gated"
        assert not world.tries
        assert not world.events()
        assert not world.pod("foreign").status.conditions
        assert world.metric("pending_pods", "gated") == 1
        merge = "application/merge-patch+json"
        one = {"spec": {"schedulingGates": [{"name": "example.com/b"}]}}
        world.store.patch(PODS, "default", "gated", one, patch_type=merge)
        await world.settle()
        assert world.where("gated") == "Gated"
        world.store.patch(PODS, "default", "gated", {"spec": {"schedulingGates": None}}, patch_type=merge)
        took = await world.until(lambda: world.node_of("gated"), "the pod")
        assert took < 1
        await world.settle()

    play(scenario)


def test_a_deleted_pod_is_skipped_with_a_word() -> None:
    async def scenario(world: World) -> None:
        world.nodes(1, "50m")
        world.create(a_pod("p", finalizers=["example.com/hold"]))
        await world.settle()
        world.delete("p", grace_period_seconds=0)
        await world.step()
        assert world.pod("p").metadata.deletion_timestamp is not None
        world.resize_node("n1", "4")
        await world.sleep(15)
        assert world.notes("p")[-1] == "skip schedule deleting pod: default/p"
        assert world.node_of("p") == ""
        assert world.where("p") == ""
        world.patch("p", {"metadata": {"finalizers": None}})
        await world.settle()

    play(scenario)


def test_a_pod_of_a_scheduler_without_a_profile_is_not_kept_in_flight() -> None:
    async def scenario(world: World) -> None:
        world.nodes(1)
        queue = world.scheduler.queue
        queue.add(from_builtins(a_pod("stray", scheduler="another"), Pod))
        world.create(a_pod("p"))
        await world.settle()
        assert world.node_of("p") == "n1"
        assert queue.views.in_flight_pods() == []
        assert queue.views.is_at_rest

    play(scenario)


def test_profiles_have_their_own_plugins_and_events() -> None:
    diary = Answers(filter=Status.unschedulable("never"), events_to_register=[])
    profiles: list[dict[str, Any]] = [
        {"schedulerName": "easy"},
        {"schedulerName": "strict", "plugins": {"multiPoint": {"enabled": [{"name": "Never"}]}}},
    ]

    async def scenario(world: World) -> None:
        world.nodes(1)
        world.create(a_pod("a", scheduler="easy"), a_pod("b", scheduler="strict"), a_pod("c"))
        await world.settle()
        assert world.node_of("a") == "n1"
        assert world.condition("b").message == "0/1 nodes are available: 1 never."
        assert not world.pod("c").status.conditions
        assert [event["reportingController"] for event in world.events()] == ["easy", "strict"]
        assert world.metric("schedule_attempts_total", "scheduled", "easy") == 1
        assert world.metric("schedule_attempts_total", "unschedulable", "strict") == 1

    never = holder(diary, "Never", "filter", "events_to_register")
    play(scenario, plugins=[never], config=a_config(profiles=profiles))


def test_higher_priority_goes_first() -> None:
    async def scenario(world: World) -> None:
        for name, value in (("low", 1), ("high", 1000)):
            kind = next(table for table in world.store._tables if table.plural == "priorityclasses")
            world.store.create(kind, "", {"metadata": {"name": name}, "value": value})
        world.create(*(a_pod(f"low{number}", "1", priorityClassName="low") for number in range(3)))
        world.create(*(a_pod(f"high{number}", "1", priorityClassName="high") for number in range(3)))
        world.create(a_node("n1", "3"))
        await world.until(lambda: len(world.binds) == 3, "three pods")
        await world.settle()
        assert sorted(entry[1] for entry in world.binds) == ["default/high0", "default/high1", "default/high2"]

    play(scenario)


def test_an_outside_nomination_is_tried_first_and_respected_by_lower_priority() -> None:
    # A PostFilter that knows nothing leaves the nomination alone; without any, a failure clears it.
    keeper = holder(Answers(post_filter=(None, Status.unschedulable())), "Keeper", "post_filter")

    async def scenario(world: World) -> None:
        kind = next(table for table in world.store._tables if table.plural == "priorityclasses")
        world.store.create(kind, "", {"metadata": {"name": "high"}, "value": 1000})
        merge = "application/merge-patch+json"
        world.nodes(1, "1")
        world.create(a_pod("filler", "1"))
        await world.settle()
        world.create(a_pod("vip", "1", priorityClassName="high"))
        await world.settle()
        world.patch("vip", {"status": {"nominatedNodeName": "n1"}}, "status")
        await world.settle()
        assert world.scheduler.queue.nominator.node_of(world.pod("vip").uid) == "n1"
        # A little capacity becomes free: the lower pod must leave it to the nominated one.
        world.resize_node("n1", "1500m")
        world.create(a_pod("low", "500m"))
        await world.settle()
        assert world.where("low") == "Unschedulable"
        world.create(*(a_node(f"empty{number}", "8") for number in range(5)))
        await world.settle()
        assert world.node_of("vip")
        world.create(a_pod("wisher", "100m", schedulingGates=[{"name": "example.com/g"}]))
        world.patch("wisher", {"status": {"nominatedNodeName": "empty3"}}, "status")
        world.store.patch(PODS, "default", "wisher", {"spec": {"schedulingGates": None}}, patch_type=merge)
        await world.settle()
        assert world.node_of("wisher") == "empty3"

    play(scenario, plugins=[keeper])


def test_a_nomination_by_post_filter_is_published_kept_and_cleared() -> None:
    diary = Answers(post_filter=(PostFilterResult(NominatingInfo.override("n1")), None))

    async def scenario(world: World) -> None:
        world.nodes(1, "1")
        world.create(a_pod("p", "2"))
        await world.settle()
        uid = world.pod("p").uid
        assert world.pod("p").status.nominated_node_name == "n1"
        assert world.scheduler.queue.nominator.node_of(uid) == "n1"
        # No result: left alone. Then a clear answer that nothing helps: cleared.
        diary.answers["post_filter"] = (None, Status.unschedulable("hm"))
        world.scheduler.queue.activate({"default/p": world.pod("p")})
        await world.settle()
        assert world.pod("p").status.nominated_node_name == "n1"
        diary.answers["post_filter"] = (PostFilterResult(NominatingInfo.clear()), Status.unschedulable("no"))
        world.scheduler.queue.activate({"default/p": world.pod("p")})
        await world.settle()
        assert world.pod("p").status.nominated_node_name == ""
        assert world.scheduler.queue.nominator.node_of(uid) is None

    play(scenario, plugins=[holder(diary, "Helper", "post_filter")])


def test_post_filter_is_called_only_where_there_are_nodes() -> None:
    diary = Answers(post_filter=(None, Status.unschedulable("no")))

    async def scenario(world: World) -> None:
        world.create(a_pod("p", "2"))
        await world.until(lambda: world.notes("p"), "a failure")
        assert world.notes("p") == ["no nodes available to schedule pods"]
        assert diary.diary == []
        world.nodes(1, "1")
        await world.until(lambda: diary.diary, "a call")
        assert diary.diary == ["Nominates.post_filter"]
        world.delete("p", grace_period_seconds=0)
        await world.settle()

    play(scenario, plugins=[holder(diary, "Nominates", "post_filter")])


def test_a_message_that_changes_each_time_does_not_make_the_pod_spin() -> None:
    """Without events of its own a plugin receives everything, except the condition its rejection leads to."""
    attempts: list[int] = []

    def reject(state: Any, pod: Any, nodes: Any) -> Status:
        attempts.append(1)
        return Status.unschedulable(f"attempt {len(attempts)}")

    diary = Answers(pre_filter=reject)

    async def scenario(world: World) -> None:
        world.nodes(1)
        world.create(a_pod("p"))
        await world.settle()
        assert len(attempts) == 1
        world.patch("p", {"metadata": {"labels": {"a": "b"}}})
        await world.settle()
        assert len(attempts) == 2

    play(scenario, plugins=[holder(diary, "Wordy", "pre_filter")])


def test_pods_that_come_and_go_leave_every_gauge_at_zero() -> None:
    async def scenario(world: World) -> None:
        world.nodes(2, "1")
        world.create(*(a_pod(f"p{number}", "400m") for number in range(10)))
        world.create(a_pod("gated", schedulingGates=[{"name": "example.com/g"}]))
        await world.settle()
        for number in range(10):
            world.delete(f"p{number}", grace_period_seconds=0)
        world.delete("gated")
        await world.settle()
        metrics = world.scheduler.metrics
        assert {child.value for child in metrics.pending_pods.children.values()} == {0}
        assert {child.value for child in metrics.unschedulable_pods.children.values()} <= {0}
        assert {child.value for child in metrics.inflight_events.children.values()} == {0}

    play(scenario)


@pytest.mark.parametrize(
    ("answer", "pending"), [(Status.pending("not yet"), {"Later"}), (Status.unschedulable("not yet"), set())]
)
def test_the_queue_learns_which_plugins_have_a_pod_pending(answer: Status, pending: set[str]) -> None:
    diary = Answers(filter=answer, events_to_register=[])

    async def scenario(world: World) -> None:
        world.create(a_node("n1"), a_pod("p"))
        await world.until(lambda: world.events("p", "FailedScheduling"), "the pod is rejected")
        record = world.scheduler.queue.views.get_pod("p", "default")
        assert record is not None
        assert (record.unschedulable_plugins, record.pending_plugins) == ({"Later"}, pending)

    play(scenario, plugins=[holder(diary, "Later", "filter", "events_to_register")])


def test_a_lost_lease_is_one_line_for_all_pods(caplog: pytest.LogCaptureFixture) -> None:
    """Their failures are no news about the pods, and nothing about them could be written."""
    caplog.set_level("INFO", "kubesched.scheduler")

    async def scenario(found: World) -> None:
        found.nodes(1, "20")
        found.faults.fail("bind", error=NotLeaderError, times=20)
        found.create(*(a_pod(f"p{number}", "1") for number in range(20)))
        await found.sleep(0.5)
        assert [record.getMessage() for record in caplog.records] == [
            "this process does not hold the lease any more; pods that it was binding are left to the next leader"
        ]
        assert found.events(reason="FailedScheduling") == []

    play(scenario)
