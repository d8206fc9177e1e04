"""Events of controllers and kubelets (core/v1): one event with a count, awaited, created again when it is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest
from client_fake_server import FakeServer, make_item

from kubesched.api.kinds import PODS
from kubesched.api.wire import ApiError
from kubesched.client.event_counting import Counts
from kubesched.client.event_writer import NORMAL, EventWriter
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual

EPOCH = 1_700_000_000.0
NAME = f"p.{int(EPOCH * 1e9):x}"
GONE = ApiError(404, "NotFound", "gone")
TAKEN = ApiError(409, "AlreadyExists", "taken")


def play(script: Callable[[FakeServer, EventWriter], Coroutine[Any, Any, None]], **options: Any) -> list[str]:
    """Run a script; what was reported."""
    reported: list[str] = []

    async def main() -> None:
        server = FakeServer()
        clock = VirtualClock(asyncio.get_running_loop())
        writer = EventWriter(server, clock, Counts(), rng=Random(1), report=reported.append, **options)
        await script(server, writer)

    run_virtual(main(), start=EPOCH)
    return reported


async def say(writer: EventWriter, message: str = "Created", *, version: int = 7, name: str = "p") -> None:
    await writer.record(make_item(PODS, "ns", name, version), "kubelet", NORMAL, "Made", message, host="n1")


def counts(server: FakeServer) -> list[tuple[str, int]]:
    """Of each request: what it was, and the count it sent."""
    return [(call[0], call[2 if call[0] == "create" else 3]["count"]) for call in server.calls]


def test_the_object_and_its_repetition() -> None:
    async def script(server: FakeServer, writer: EventWriter) -> None:
        await say(writer)
        await asyncio.sleep(2)
        await say(writer, version=8)
        created = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": NAME, "namespace": "ns"},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": "ns",
                "name": "p",
                "uid": "uid-p",
                "resourceVersion": "7",
            },
            "reason": "Made",
            "message": "Created",
            "type": "Normal",
            "source": {"component": "kubelet", "host": "n1"},
            "firstTimestamp": "2023-11-14T22:13:20Z",
            "lastTimestamp": "2023-11-14T22:13:20Z",
            "eventTime": "2023-11-14T22:13:20.000000Z",
            "count": 1,
            "reportingComponent": "kubelet",
            "reportingInstance": "n1",
        }
        changes = {"count": 2, "message": "Created", "lastTimestamp": "2023-11-14T22:13:22Z"}
        assert server.calls == [("create", "ns", created), ("patch", "ns", NAME, changes, "")]

    assert play(script) == []


def test_an_event_that_was_lost_is_created_with_its_count_and_the_newest_version_of_its_object() -> None:
    async def script(server: FakeServer, writer: EventWriter) -> None:
        await say(writer)
        server.failures.append(GONE)
        await say(writer, version=8)
        await say(writer)
        assert counts(server) == [("create", 1), ("patch", 2), ("create", 2), ("patch", 3)]
        assert server.calls[2][2]["metadata"]["name"] == NAME
        assert server.calls[2][2]["involvedObject"]["resourceVersion"] == "8"

    assert play(script) == []


def test_a_name_that_another_component_took_is_replaced() -> None:
    async def script(server: FakeServer, writer: EventWriter) -> None:
        server.failures.append(TAKEN)
        await say(writer)
        names = [call[2]["metadata"]["name"] for call in server.calls]
        assert names == [NAME, f"p.{int(EPOCH * 1e9) + 1:x}"]

    assert play(script) == []


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (ConnectionRefusedError("down"), ["event Made about Pod ns/p given up: down"]),
        (ApiError(422, "Invalid", "odd"), ["event Made about Pod ns/p given up: odd"]),
        (ApiError(403, "Forbidden", "being terminated"), []),
        (ApiError(404, "NotFound", "no namespace"), []),
    ],
    ids=repr,
)
def test_what_is_refused_is_reported_and_sent_whole_by_the_next_repetition(
    error: Exception, reported: list[str]
) -> None:
    async def script(server: FakeServer, writer: EventWriter) -> None:
        server.failures.append(error)
        await say(writer)
        await say(writer)
        assert counts(server) == [("create", 1), ("create", 2)]

    assert play(script) == reported


def test_a_repetition_while_the_event_is_created_changes_the_same_event() -> None:
    async def script(server: FakeServer, writer: EventWriter) -> None:
        create = server.create

        async def slow(*args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(1)
            return await create(*args, **kwargs)

        server.create = slow  # type: ignore[method-assign]
        await asyncio.gather(say(writer), say(writer), say(writer))
        assert counts(server) == [("create", 1), ("patch", 3)]

    assert play(script) == []


def test_one_object_has_25_writes_and_then_one_every_five_minutes() -> None:
    async def script(server: FakeServer, writer: EventWriter) -> None:
        for _ in range(30):
            await say(writer)
        assert len(server.calls) == 25
        await say(writer, name="other")
        assert len(server.calls) == 26
        await asyncio.sleep(301)
        for _ in range(3):
            await say(writer)
        assert counts(server)[26:] == [("patch", 31)]

    assert play(script) == []


def test_different_messages_are_combined_until_there_were_none_for_ten_minutes() -> None:
    async def script(server: FakeServer, writer: EventWriter) -> None:
        for number in range(11):
            await say(writer, f"message {number}")
        await say(writer, "message 3")
        await asyncio.sleep(601)
        await say(writer, "message 11")
        combined = "(combined from similar events): message "
        assert [call[2]["message"] for call in server.calls[8:10]] == ["message 8", f"{combined}9"]
        assert server.calls[10][3]["message"] == f"{combined}10"
        assert counts(server)[11] == ("patch", 2)
        assert server.calls[12][2]["message"] == "message 11"

    assert play(script) == []


def test_an_object_without_events_is_forgotten_once_its_limits_are_back_at_their_beginning() -> None:
    async def script(server: FakeServer, writer: EventWriter) -> None:
        for number in range(30):
            await say(writer, f"message {number}")
        assert len(server.calls) == 25
        limits = writer._counting
        assert isinstance(limits, Counts)
        await asyncio.sleep(7_400)
        await say(writer, name="other")
        assert len(limits._subjects) == 2, "its tokens are not all back"
        await asyncio.sleep(200)
        await say(writer, name="another")
        assert {uid for _, uid in limits._subjects} == {"uid-other", "uid-another"}
        before = len(server.calls)
        for number in range(30):
            await say(writer, f"new message {number}")
        assert len(server.calls) == before + 25

    assert play(script) == []


def test_an_event_pushed_out_of_the_cache_is_not_sent_again() -> None:
    async def script(server: FakeServer, writer: EventWriter) -> None:
        for name in ("p", "p", "q", "p", "r", "q"):
            await say(writer, name=name)
        assert len(writer) == 2
        assert counts(server) == [
            *[("create", 1), ("patch", 2), ("create", 1), ("patch", 3)],
            *[("create", 1), ("create", 1)],
        ]

    assert play(script, cache_size=2) == []
