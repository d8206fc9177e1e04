"""Pods that are tried together, while others have their turn in the middle of that."""

from __future__ import annotations

import asyncio

import pytest
from queue_kit import in_the_middle


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
