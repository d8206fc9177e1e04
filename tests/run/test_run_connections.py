"""Connections of a run: transports of one kubeconfig have one access and one log."""

from __future__ import annotations

import asyncio
import random
import socket
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from kubesched.api.kinds import NODES, PODS
from kubesched.base.times import RealClock
from kubesched.cli.run.connections import Connections
from kubesched.client.access import load_access
from kubesched.client.informer import Informer
from kubesched.scheduler.config import KubeSchedulerConfiguration
from kubesched.scheduler.config.features import FeatureGates
from kubesched.scheduler.server.process_metrics import ProcessMetrics, RequestMetrics


def _kubeconfig(path: Path, url: str) -> str:
    path.write_text(
        f"clusters: [{{name: c, cluster: {{server: {url}}}}}]\nusers: [{{name: u, user: {{token: t}}}}]\n"
        "contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n"
    )
    return str(path)


@pytest.mark.parametrize("other", [False, True], ids=["one kubeconfig", "two kubeconfigs"])
def test_an_outage_is_logged_once_for_each_kubeconfig(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, other: bool
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    own = _kubeconfig(tmp_path / "own", url)
    reviews = _kubeconfig(tmp_path / "reviews", url) if other else own

    async def main() -> None:
        async with AsyncExitStack() as stack:
            requests = RequestMetrics(ProcessMetrics(FeatureGates(), {}), "")
            rng = random.Random(1)
            connections = Connections(await load_access(own), own, requests, RealClock(), rng, stack)
            port = connections.port(KubeSchedulerConfiguration(), watch_list=False)
            reviewer = await connections.reviewer(reviews)
            assert reviewer is not None
            errors: list[asyncio.Queue[Exception]] = [asyncio.Queue() for _ in range(3)]
            informers = [
                port.informer(PODS, on_error=errors[0].put_nowait),
                port.informer(NODES, on_error=errors[1].put_nowait),
                Informer(reviewer, NODES, rng=rng, on_error=errors[2].put_nowait),
            ]
            tasks = [asyncio.create_task(informer.run()) for informer in informers]
            await asyncio.gather(*(queue.get() for queue in errors))
            for informer in informers:
                informer.stop()
            await asyncio.gather(*tasks)

    asyncio.run(main())
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(said) == (2 if other else 1)
    assert {line.partition(": cannot")[0] for line in said} == {f"API server {url}: nothing accepts connections"}
