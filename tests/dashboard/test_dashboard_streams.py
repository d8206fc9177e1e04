"""Streams of changes: in order, shared, and bounded for pages that are slow or come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kubesched.dashboard.schema import Change, NodeChange
from kubesched.dashboard.streams import MOST_BYTES, MOST_WAITING, Streams
from kubesched.lab.simulate.run.virtual_time import run_virtual


def change(version: int, size: int = 0) -> Change:
    return Change(version=version, at=0.0, nodes=[NodeChange(row=0, name="x" * size)] if size else [])


def versions(events: list[bytes]) -> list[str]:
    """The id of each change, or the kind of another event."""
    found = []
    for event in events:
        lines = dict(line.split(": ", 1) for line in event.decode().strip().split("\n") if not line.startswith(":"))
        found.append(lines.get("id") or lines.get("event") or "comment")
    return found


async def taken(stream: AsyncIterator[bytes], count: int) -> list[bytes]:
    return [await anext(stream) for _ in range(count)]


def run(check: Any) -> None:
    run_virtual(check())


def test_a_page_gets_each_change_once_and_in_order() -> None:
    async def check() -> None:
        watched: list[bool] = []
        streams = Streams(10, watched.append)
        one, two = streams.events(10), streams.events(10)
        first = asyncio.ensure_future(taken(one, 3))
        second = asyncio.ensure_future(taken(two, 3))
        await asyncio.sleep(0)
        for version in (11, 12, 13):
            streams.publish(change(version))
        events = await first
        assert versions(events) == ["11", "12", "13"]
        assert all(mine is theirs for mine, theirs in zip(events, await second, strict=True))
        assert (streams.pages, watched) == (2, [True])
        await one.aclose()  # type: ignore[attr-defined]
        await two.aclose()  # type: ignore[attr-defined]
        assert (streams.pages, watched) == (0, [True, False])

    run(check)


def test_a_page_that_comes_back_gets_what_it_missed_or_starts_anew() -> None:
    async def check() -> None:
        streams = Streams(0, lambda on: None)
        for version in range(1, MOST_WAITING + 10):
            streams.publish(change(version))
        last = streams.version
        assert versions(await taken(streams.events(last - 2), 2)) == [str(last - 1), str(last)]
        for unknown in (None, 1, last + 1, 2**60):
            assert versions(await taken(streams.events(unknown), 1)) == ["resync"]
        streams.reset()
        assert versions(await taken(streams.events(last), 1)) == ["resync"]

    run(check)


@pytest.mark.parametrize(("count", "size"), [(MOST_WAITING + 1, 0), (3, MOST_BYTES // 2)])
def test_a_page_that_reads_too_slowly_starts_anew(count: int, size: int) -> None:
    async def check() -> None:
        streams = Streams(0, lambda on: None)
        stream = streams.events(0)
        waiting = asyncio.ensure_future(taken(stream, 1))
        await asyncio.sleep(0)
        streams.publish(change(1))
        await waiting
        for version in range(2, 2 + count):
            streams.publish(change(version, size))
        streams.publish(change(2 + count))
        assert versions(await taken(stream, 1)) == ["resync"]
        left = [int(one) for one in versions(await taken(stream, len(next(iter(streams._pages)).events._events)))]
        assert left == list(range(2 + count - len(left) + 1, 2 + count + 1))
        assert sum(len(event) for _, event in streams._kept._events) <= MOST_BYTES

    run(check)


def test_a_quiet_stream_is_kept_open() -> None:
    async def check() -> None:
        loop = asyncio.get_running_loop()
        stream, start = Streams(0, lambda on: None).events(0), loop.time()
        assert versions(await taken(stream, 2)) == ["comment", "comment"]
        assert loop.time() - start == 30.0

    run(check)
