"""A running ``kubesched run``: nothing but the always-allowed paths is served without authentication, at any verbosity
no token is logged."""

from __future__ import annotations

import asyncio
import signal
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
from planes import Embedded, free_port
from scenario_world import CALM, World, world
from yarl import URL

OPEN = ("/healthz", "/livez", "/readyz")
CLOSED = (
    "/healthz/leaderElection",
    "/livez/ping",
    "/readyz/shutdown",
    "/metrics",
    "/metrics/resources",
    "/metrics/slis",
    "/configz",
    "/flagz",
    "/statusz",
    "/debug/pprof/",
    "/debug/pprof/profile",
    "/debug/pprof/heap",
    "/debug/pprof/trace",
    "/debug/flags/v",
    "/",
    "/api",
    "/no-such-path",
    "//metrics",
    "/healthz/../metrics",
    "/%6detrics",
)
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS")


@pytest.fixture
def in_world(tmp_path: Path) -> Callable[[Callable[[World], Awaitable[None]]], None]:
    """Runs a test in a world of its own."""

    def play(work: Callable[[World], Awaitable[None]]) -> None:
        plane = Embedded(tmp_path)

        async def main() -> None:
            async with world(plane, tmp_path) as found:
                await work(found)

        try:
            plane.start()
            asyncio.run(main())
        finally:
            plane.close()

    return play


def test_no_door_is_open_but_those_that_are_meant_to_be(
    in_world: Callable[[Callable[[World], Awaitable[None]]], None], tmp_path: Path
) -> None:
    async def work(found: World) -> None:
        port = free_port()
        flags = ["--secure-port", str(port), "--bind-address", "127.0.0.1", "-v", "10"]
        flags += ["--authentication-kubeconfig", str(found.plane.kubeconfig)]
        flags += ["--authorization-kubeconfig", str(found.plane.kubeconfig)]
        scheduler = await found.scheduler("only", CALM, *flags)
        await found.leader()
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        url = f"https://127.0.0.1:{port}"
        statuses: dict[tuple[str, str], int] = {}
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
            for path in OPEN:
                async with session.get(url + path) as answer:
                    assert answer.status == 200, path
            for path in CLOSED:
                for method in METHODS:
                    target = URL(url + path, encoded=True)
                    async with session.request(method, target, allow_redirects=False) as answer:
                        statuses[method, path] = answer.status
                        text = await answer.text()
                        assert method == "HEAD" or "forbidden" in text, (method, path, text)
            wrong = {"Authorization": "Bearer wr0ng-bearer-token"}
            for path in (*OPEN, *CLOSED):
                async with session.get(url + path, headers=wrong) as answer:
                    statuses["wrong token", path] = answer.status
                    assert "wr0ng-bearer-token" not in await answer.text()
            right = {"Authorization": "Bearer scenario-token"}
            async with session.get(url + "/metrics", headers=right) as answer:
                assert answer.status == 200
            async with session.get(url + "/configz", headers=right) as answer:
                config = (await answer.json())["componentconfig"]
                assert config["kind"] == "KubeSchedulerConfiguration"  # right below, not wrapped a second time
        unexpected = {
            key: status for key, status in statuses.items() if status != (401 if key[0] == "wrong token" else 403)
        }
        assert not unexpected
        scheduler.signal(signal.SIGUSR2)  # a dump of everything it holds
        assert await scheduler.terminate() == 0
        for secret in ("scenario-token", "wr0ng-bearer-token"):
            assert secret not in scheduler.log

    in_world(work)
