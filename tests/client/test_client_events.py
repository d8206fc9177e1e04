"""Recording events: what is sent, what is saved up, and what is given up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from itertools import pairwise
from random import Random
from typing import Any

import msgspec
import pytest
from client_fake_server import FakeServer
from hypothesis import given
from hypothesis import strategies as st

from kubesched.api.types import Node, ObjectMeta, ObjectReference, Pod
from kubesched.api.wire import ApiError
from kubesched.client.events import EventBroadcaster, EventRecorder, limit_note
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual

EPOCH = 1_700_000_000.0
POD = Pod(metadata=ObjectMeta(name="p", namespace="ns", uid="u1", resource_version="7"))
Script = Callable[[FakeServer, EventBroadcaster, EventRecorder], Coroutine[Any, Any, None]]


def play(script: Script, **options: Any) -> FakeServer:
    server = FakeServer()

    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        broadcaster = EventBroadcaster(server, clock, rng=Random(1), **options)
        task = asyncio.create_task(broadcaster.run())
        await asyncio.sleep(0)
        await script(server, broadcaster, EventRecorder(broadcaster, "default-scheduler", "default-scheduler-host"))
        broadcaster.stop()
        await task

    run_virtual(main(), start=EPOCH)
    return server


def fail(recorder: EventRecorder, note: str = "too little cpu", pod: Pod = POD) -> None:
    recorder.record(pod, "Warning", "FailedScheduling", "Scheduling", note)


def kinds(server: FakeServer) -> list[str]:
    return [call[0] for call in server.calls]


def named(name: str) -> Pod:
    return Pod(metadata=ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}"))


def test_an_event_says_who_what_and_when() -> None:
    victim = Pod(metadata=ObjectMeta(name="victim", namespace="other", uid="u2", resource_version="3"))

    async def script(server: FakeServer, broadcaster: EventBroadcaster, recorder: EventRecorder) -> None:
        recorder.record(victim, "Normal", "Preempted", "Preempting", "Preempted by pod u1 on node n1", related=POD)
        await broadcaster.drain()

    assert play(script).calls == [
        (
            "create",
            "other",
            {
                "apiVersion": "events.k8s.io/v1",
                "kind": "Event",
                "metadata": {"name": f"victim.{int(EPOCH * 1e9):x}", "namespace": "other"},
                "eventTime": "2023-11-14T22:13:20.000000Z",
                "reportingController": "default-scheduler",
                "reportingInstance": "default-scheduler-host",
                "action": "Preempting",
                "reason": "Preempted",
                "type": "Normal",
                "note": "Preempted by pod u1 on node n1",
                "regarding": {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "namespace": "other",
                    "name": "victim",
                    "uid": "u2",
                    "resourceVersion": "3",
                },
                "related": {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "namespace": "ns",
                    "name": "p",
                    "uid": "u1",
                    "resourceVersion": "7",
                },
            },
        )
    ]


def test_cluster_scoped_objects_have_their_events_in_default() -> None:
    lease = ObjectReference(api_version="coordination.k8s.io/v1", kind="Lease", namespace="kube-system", name="l")

    async def script(server: FakeServer, broadcaster: EventBroadcaster, recorder: EventRecorder) -> None:
        recorder.record(Node(metadata=ObjectMeta(name="n1", uid="u")), "Normal", "R", "A", "x")
        recorder.record(lease, "Normal", "R", "A", "x")
        await broadcaster.drain()

    calls = play(script).calls
    assert [(namespace, event["regarding"]["kind"]) for _, namespace, event in calls] == [
        ("default", "Node"),
        ("kube-system", "Lease"),
    ]


def test_names_are_unique_within_an_instant_and_always_valid() -> None:
    async def script(server: FakeServer, broadcaster: EventBroadcaster, recorder: EventRecorder) -> None:
        for name in ["p", "p", "x" * 250, "Weird_Name"]:
            recorder.record(named(name), "Normal", f"R{len(server.calls)}", "A", "x")
            await broadcaster.drain()

    names = [event["metadata"]["name"] for _, _, event in play(script).calls]
    assert names[0] == f"p.{int(EPOCH * 1e9):x}"
    assert names[1] == f"p.{int(EPOCH * 1e9) + 1:x}"
    assert [len(name) for name in names[2:]] == [36, 36]
    assert len(set(names)) == 4


def test_three_failures_with_one_text_are_a_post_a_patch_and_silence() -> None:
    async def script(server: FakeServer, broadcaster: EventBroadcaster, recorder: EventRecorder) -> None:
        for second in range(5):
            fail(recorder, note=f"text {second} does not matter")
            await asyncio.sleep(1)
        statistics = broadcaster.statistics()
        assert (statistics.recorded, statistics.posted, statistics.patched, statistics.absorbed) == (5, 1, 1, 3)

    server = play(script)
    assert kinds(server) == ["create", "patch"]
    name = server.calls[0][2]["metadata"]["name"]
    series = {"series": {"count": 2, "lastObservedTime": "2023-11-14T22:13:21.000000Z"}}
    assert server.calls[1] == ("patch", "ns", name, series, "")


def test_another_version_of_the_pod_starts_again() -> None:
    newer = msgspec.structs.replace(POD, metadata=msgspec.structs.replace(POD.metadata, resource_version="8"))

    async def script(server: FakeServer, broadcaster: EventBroadcaster, recorder: EventRecorder) -> None:
        for pod in (POD, newer, newer):
            fail(recorder, pod=pod)
            await asyncio.sleep(1)

    assert kinds(play(script)) == ["create", "create", "patch"]


def test_the_final_count_of_a_rested_series_is_sent_and_the_series_dropped() -> None:
    async def script(server: FakeServer, broadcaster: EventBroadcaster, recorder: EventRecorder) -> None:
        recorder.record(named("single"), "Normal", "R", "A", "x")
        for _ in range(4):
            fail(recorder)
        await asyncio.sleep(359)
        assert kinds(server) == ["create", "create", "patch"]
        assert broadcaster.statistics().remembered == 2
        await asyncio.sleep(2)
        assert kinds(server)[3:] == ["patch"]
        assert server.calls[-1][3]["series"]["count"] == 4
        assert broadcaster.statistics().remembered == 0
        assert asyncio.get_running_loop().next_timer() is None  # type: ignore[attr-defined]
        fail(recorder)
        await broadcaster.drain()
        assert kinds(server)[4:] == ["create"]

    play(script)


def test_series_that_end_at_one_time_are_closed_in_the_order_they_were_recorded() -> None:
    async def script(server: FakeServer, broadcaster: EventBroadcaster, recorder: EventRecorder) -> None:
        for name in ("a", "b", "c", "a", "c", "b", "a"):
            fail(recorder, pod=named(name))
        await broadcaster.drain()
        del server.calls[:]
        await asyncio.sleep(400)
        assert [call[2].split(".")[0] for call in server.calls] == ["c", "b", "a"]

    play(script)


def test_a_running_series_is_refreshed_every_half_hour() -> None:
    async def script(server: FakeServer, broadcaster: EventBroadcaster, recorder: EventRecorder) -> None:
        for _ in range(76):
            fail(recorder)
            await asyncio.sleep(49)

    server = play(script)
    assert kinds(server) == ["create", "patch", "patch", "patch"]
    assert [call[3]["series"]["count"] for call in server.calls[1:]] == [2, 37, 74]


def test_a_full_queue_drops_and_counts() -> None:
    async def script(server: FakeServer, broadcaster: EventBroadcaster, recorder: EventRecorder) -> None:
        for number in range(1100):
            fail(recorder, pod=named(f"p{number}"))
        await broadcaster.drain()
        statistics = broadcaster.statistics()
        assert (statistics.recorded, statistics.posted, statistics.dropped, statistics.queued) == (1100, 1000, 100, 0)

    server = play(script)
    assert [event["regarding"]["name"] for _, _, event in server.calls] == [f"p{number}" for number in range(1000)]


def test_an_outage_is_waited_out_while_later_events_go_ahead() -> None:
    async def script(server: FakeServer, broadcaster: EventBroadcaster, recorder: EventRecorder) -> None:
        server.failures += [ConnectionRefusedError("x")] * 3
        fail(recorder, pod=named("first"))
        await broadcaster.drain()
        fail(recorder, pod=named("second"))
        await asyncio.sleep(9)
        assert len(server.calls) == 2
        fail(recorder, pod=named("third"))
        await asyncio.sleep(60)
        statistics = broadcaster.statistics()
        assert (statistics.retries, statistics.posted, statistics.failed) == (3, 3, 0)

    server = play(script)
    assert [event["regarding"]["name"] for _, _, event in server.calls] == [
        *("first", "second", "third"),
        *("first", "second", "third"),
    ]


def test_after_twelve_tries_an_event_is_given_up() -> None:
    times: list[float] = []

    class Down(FakeServer):
        async def create(self, *args: Any, **kwargs: Any) -> Any:
            times.append(asyncio.get_running_loop().time())
            raise ConnectionRefusedError("down")

    async def main() -> None:
        broadcaster = EventBroadcaster(Down(), VirtualClock(asyncio.get_running_loop()), rng=Random(1))
        task = asyncio.create_task(broadcaster.run())
        fail(EventRecorder(broadcaster, "s", "s-h"))
        await asyncio.sleep(1000)
        assert broadcaster.statistics().failed == 1
        broadcaster.stop()
        await task

    run_virtual(main())
    assert len(times) == 12
    assert all(10 <= later - earlier <= 12.5 for earlier, later in pairwise(times))


def test_an_outage_does_not_fill_the_memory() -> None:
    async def script(server: FakeServer, broadcaster: EventBroadcaster, recorder: EventRecorder) -> None:
        server.failures += [ConnectionRefusedError("x")] * 30
        for number in range(30):
            fail(recorder, pod=named(f"p{number}"))
            await broadcaster.drain()
        assert broadcaster.statistics().waiting_for_retry == 10
        assert broadcaster.statistics().failed == 20

    play(script, queue_size=10)


@pytest.mark.parametrize(
    "error",
    [ApiError(403, "Forbidden", "being terminated"), ApiError(409, "AlreadyExists", "there"), TypeError("unbuildable")],
    ids=repr,
)
def test_what_the_server_refuses_is_given_up_at_once(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    async def script(server: FakeServer, broadcaster: EventBroadcaster, recorder: EventRecorder) -> None:
        server.failures.append(error)
        fail(recorder)
        recorder.record(named("next"), "Normal", "R", "A", "x")
        await asyncio.sleep(100)
        statistics = broadcaster.statistics()
        assert (statistics.failed, statistics.retries, statistics.posted) == (1, 0, 1)

    with caplog.at_level(logging.WARNING, "kubesched.client"):
        play(script)
    assert str(error) in caplog.text


def test_an_event_whose_answer_was_lost_is_there_and_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    async def script(server: FakeServer, broadcaster: EventBroadcaster, recorder: EventRecorder) -> None:
        server.failures += [ConnectionResetError("reset"), ApiError(409, "AlreadyExists", "there")]
        fail(recorder)
        await asyncio.sleep(100)
        statistics = broadcaster.statistics()
        assert (statistics.failed, statistics.posted) == (0, 1)
        fail(recorder)
        await broadcaster.drain()

    server = play(script)
    assert kinds(server) == ["create", "create", "patch"]
    assert not caplog.records


def test_a_series_the_server_has_lost_is_created_whole() -> None:
    gone = ApiError(404, "NotFound", "gone")
    there = ApiError(409, "AlreadyExists", "there")

    async def script(server: FakeServer, broadcaster: EventBroadcaster, recorder: EventRecorder) -> None:
        fail(recorder)
        await broadcaster.drain()
        server.failures += [gone, there]
        fail(recorder)
        await asyncio.sleep(20)
        assert broadcaster.statistics().failed == 0

    server = play(script)
    assert kinds(server) == ["create", "patch", "create", "patch"]
    first, _, again, _ = server.calls
    assert again[2] == {**first[2], "series": {"count": 2, "lastObservedTime": "2023-11-14T22:13:20.000000Z"}}


def test_memory_of_past_events_is_bounded_and_a_series_pushed_out_is_sent() -> None:
    async def script(server: FakeServer, broadcaster: EventBroadcaster, recorder: EventRecorder) -> None:
        for _ in range(3):
            fail(recorder)
        for number in range(3):
            fail(recorder, pod=named(f"p{number}"))
        await broadcaster.drain()
        assert broadcaster.statistics().remembered == 2

    server = play(script, cache_size=2)
    assert kinds(server) == ["create", "patch", "create", "create", "patch", "create"]
    assert server.calls[4][3]["series"]["count"] == 3


def test_recording_never_waits_and_stop_releases_all_waiters() -> None:
    async def script(server: FakeServer, broadcaster: EventBroadcaster, recorder: EventRecorder) -> None:
        hang = asyncio.Event()

        async def create(*args: Any, **kwargs: Any) -> Any:
            await hang.wait()

        server.create = create  # type: ignore[method-assign]
        fail(recorder)
        recorder.record(named("next"), "Normal", "R", "A", "x")
        drained = asyncio.create_task(broadcaster.drain())
        await asyncio.sleep(1)
        assert not drained.done()
        broadcaster.stop()
        await drained
        fail(recorder)
        assert broadcaster.statistics().dropped == 2

    play(script, senders=1)


def test_a_slow_server_is_sent_many_events_at_a_time_and_no_more() -> None:
    """Upstream sends each event in a goroutine of its own: its queue does not fill while requests are under way."""
    under_way: list[int] = []

    async def script(server: FakeServer, broadcaster: EventBroadcaster, recorder: EventRecorder) -> None:
        busy = 0

        async def create(*args: Any, **kwargs: Any) -> None:
            nonlocal busy
            busy += 1
            under_way.append(busy)
            await asyncio.sleep(1)
            busy -= 1

        server.create = create  # type: ignore[assignment,method-assign]
        for number in range(10):
            recorder.record(named(f"p{number}"), "Normal", "Scheduled", "Binding", "x")
        before = asyncio.get_running_loop().time()
        await broadcaster.drain()
        assert asyncio.get_running_loop().time() - before == pytest.approx(3)
        recorder.record(named("later"), "Normal", "Scheduled", "Binding", "x")
        await broadcaster.drain()
        assert broadcaster.statistics().posted == 11

    play(script, senders=4)
    assert max(under_way) == 4


def test_the_count_of_a_series_is_sent_after_its_event() -> None:
    async def script(server: FakeServer, broadcaster: EventBroadcaster, recorder: EventRecorder) -> None:
        create = server.create

        async def slow(*args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(1)
            return await create(*args, **kwargs)

        server.create = slow  # type: ignore[method-assign]
        for _ in range(4):
            fail(recorder)
        await broadcaster.drain()

    server = play(script)
    assert kinds(server) == ["create", "patch"]
    assert server.calls[1][3]["series"]["count"] == 4


def test_drain_without_a_run_is_an_error_unless_there_is_nothing() -> None:
    async def main() -> None:
        broadcaster = EventBroadcaster(FakeServer(), VirtualClock(asyncio.get_running_loop()), rng=Random(1))
        await broadcaster.drain()
        fail(EventRecorder(broadcaster, "s", "s-h"))
        with pytest.raises(RuntimeError, match="run"):
            await broadcaster.drain()
        broadcaster.stop()
        await broadcaster.drain()
        assert broadcaster.statistics().dropped == 1

    run_virtual(main())


NOTES = [
    ("a" * 1024, "a" * 1024),
    ("a" * 1025, "a" * 1020 + " ..."),
    ("é" * 512, "é" * 512),
    ("é" * 513, "é" * 510 + " ..."),
    ("a" + "é" * 512, "a" + "é" * 509 + " ..."),
    ("100 % full %s", "100 % full %s"),
]


@pytest.mark.parametrize(("note", "limited"), NOTES)
def test_notes_are_limited(note: str, limited: str) -> None:
    assert limit_note(note) == limited


@given(st.text(max_size=1200))
def test_a_limited_note_fits_and_begins_like_the_note(note: str) -> None:
    limited = limit_note(note)
    assert len(limited.encode()) <= 1024
    assert note.startswith(limited.removesuffix(" ...")) or limited == note
