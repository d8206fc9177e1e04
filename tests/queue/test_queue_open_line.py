"""Pods that are tried together, while others have their turn in the middle of that."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from queue_kit import POD_DELETE, Bench, a_pod

from kubesched.api.types import Pod


class Known:
    """Attempts would not fail as before, so that every pod is tried by itself."""

    def still_fails(self, record: Any, known: Any) -> bool:
        return False

    def failed(self, scheduler_name: str, times: int, seconds: float) -> None:
        raise AssertionError("every pod is tried by itself")


class Series:
    def repeat(self, times: int, time: float, seen: float) -> None:
        raise AssertionError("no attempt is left out")

    def hold(self) -> None:
        """Nothing expires here."""

    def release(self) -> None:
        """Nothing expires here."""


def in_the_middle() -> tuple[Bench, list[Pod]]:
    """Four pods in a line, of which the first has been tried."""
    bench, pods = Bench(), [a_pod(f"p{number}") for number in range(4)]
    queue = bench.queue
    queue.lines.foresight = Known()
    for pod in pods:
        queue.add(pod)
        record = bench.pop()
        record.unschedulable_count = 30  # the longest backoff
        bench.fail(record, "Fit")
        queue.lines.join(record, "alike", None, Series())
    bench.clock.advance(1000)
    bench.event(POD_DELETE, a_pod("gone", node="n1"), None)
    assert len(queue.lines) == 4
    queue.done(bench.pop().uid)
    assert queue.lines.is_open
    return bench, pods


@pytest.mark.parametrize("read", ["where", "lists", "pops"])
def test_pods_that_are_still_to_be_tried_are_active(read: str) -> None:
    async def main() -> None:
        bench, pods = in_the_middle()
        views = bench.queue.views
        assert not views.is_at_rest
        if read == "where":
            assert [bench.place(pod) for pod in pods] == ["", "Active", "Active", "Active"]
            assert bench.gauges()["active"] == 3
        elif read == "lists":
            assert views.pods_in_active() == pods[1:]
            assert views.check() == []
        assert [bench.pop().pod_info.pod for _ in range(3)] == pods[1:]
        assert bench.queue.pop_nowait() is None
        assert not bench.queue.lines.is_open

    asyncio.run(main())
