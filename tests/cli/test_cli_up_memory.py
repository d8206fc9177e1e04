"""The memory of a cluster whose pods come and go for a long time stays what it is. Slow: for ``make sweep``."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cli_cluster import Running, cluster

PODS = 2_000
ROUNDS = 10


def resident(running: Running) -> int:
    """Kilobytes."""
    text = Path(f"/proc/{running.process.pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1])


@pytest.mark.skipif(
    os.environ.get("HYPOTHESIS_PROFILE") != "sweep" or sys.platform != "linux",
    reason="slow, and Linux only: make sweep",
)
def test_pods_that_are_created_and_deleted_again_and_again_leave_memory_flat(tmp_path: Path) -> None:
    sizes: list[int] = []

    async def main(running: Running) -> None:
        url, gate = f"{running.url}/api/v1/namespaces/default/pods", asyncio.Semaphore(16)

        async def create(name: str) -> None:
            container = {"name": "c", "image": "app:1", "resources": {"requests": {"cpu": "10m"}}}
            body: Any = {"metadata": {"name": name}, "spec": {"containers": [container]}}
            async with gate, session.post(url, json=body) as answer:
                assert answer.status == 201

        async def until_none(selector: str) -> None:
            while True:
                async with session.get(url, params={"limit": "1", "fieldSelector": selector}) as answer:
                    if not (await answer.json())["items"]:
                        return
                await asyncio.sleep(0.2)

        async with aiohttp.ClientSession() as session:
            for turn in range(ROUNDS):
                await asyncio.gather(*(create(f"p{turn}-{number}") for number in range(PODS)))
                await until_none("status.phase!=Running")
                async with session.delete(url) as answer:
                    assert answer.status == 200
                await until_none("metadata.name!=x")
                sizes.append(resident(running))

    with cluster(tmp_path, "--nodes", "100") as running:
        asyncio.run(main(running))
        assert running.stop() == (0, "")
    assert sizes[-1] < 1.1 * sizes[0], sizes
