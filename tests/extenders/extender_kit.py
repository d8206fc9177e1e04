"""An HTTP extender to talk to, and a cluster in real time whose scheduler does so."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from kubesched.api.kinds import NODES, PODS
from kubesched.api.types import Pod, PodCondition
from kubesched.base.times import RealClock
from kubesched.lab.simulate.embedded import Embedded
from kubesched.scheduler.config import API_VERSION, KIND, KubeSchedulerConfiguration, load_config_data
from kubesched.scheduler.extenders.http import http_extenders
from kubesched.scheduler.plugins import in_tree_registry

GPU = "example.com/gpu"
#: Seconds after which a test that waits for something has failed.
LIMIT = 20.0

Answer = Any
#: Given the decoded request; the answer is sent as JSON unless it is a response already.
Verb = Callable[[Any], Awaitable[Answer] | Answer]


class Server:
    """An extender on a free port of the loopback. ``verbs`` answer; ``calls`` are what came, in order."""

    def __init__(self, **verbs: Verb) -> None:
        self.verbs = verbs
        self.calls: list[tuple[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.certificates: list[Any] = []
        self.url = ""

    @asynccontextmanager
    async def listening(self, context: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/ext/{verb}", self._handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
            await site.start()
            port = runner.addresses[0][1]
            self.url = f"{'https' if context else 'http'}://127.0.0.1:{port}/ext"
            yield self
        finally:
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        verb = request.match_info["verb"]
        self.calls.append((verb, body))
        self.headers.append(dict(request.headers))
        if request.transport is not None:
            self.certificates.append(request.transport.get_extra_info("peercert"))
        answer = self.verbs[verb](body)
        if asyncio.iscoroutine(answer) or isinstance(answer, asyncio.Future):
            answer = await answer
        if isinstance(answer, web.StreamResponse):
            return answer
        return web.Response(body=json.dumps(answer).encode(), content_type="application/json")


def extenders_config(*extenders: dict[str, Any], **fields: Any) -> KubeSchedulerConfiguration:
    """The default profile, with these extenders. A profile ``plain`` is there, too; ``urlPrefix`` is needed."""
    profiles = [
        {"schedulerName": name, "plugins": {"multiPoint": {"disabled": [{"name": "DefaultPreemption"}]}}}
        for name in ("default-scheduler", "plain")
    ]
    data = {"apiVersion": API_VERSION, "kind": KIND, "profiles": profiles, "extenders": list(extenders), **fields}
    return load_config_data(data)


def a_node(name: str, **more: Any) -> dict[str, Any]:
    amounts = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    return {
        "metadata": {"name": name, "annotations": {"devices": "gpu-0"}, **more},
        "status": {"capacity": {**amounts, GPU: "2"}, "allocatable": {**amounts, GPU: "2"}},
    }


def a_pod(name: str, *, gpu: bool = False, cpu: str = "100m", **spec: Any) -> dict[str, Any]:
    amounts = {"cpu": cpu, **({GPU: "1"} if gpu else {})}
    resources = {"requests": amounts, **({"limits": {GPU: "1"}} if gpu else {})}
    container = {"name": "main", "image": "pause", "env": [{"name": "A", "value": "b"}], "resources": resources}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": [container], **spec}}


class Cluster:
    """Nodes n1 and n2 unless told otherwise, and a running scheduler, in real time."""

    def __init__(self, embedded: Embedded) -> None:
        self.embedded = embedded
        self.store = embedded.store

    def create(self, *pods: dict[str, Any]) -> None:
        for pod in pods:
            self.store.create(PODS, "default", pod)

    def pod(self, name: str) -> Pod:
        pod: Pod = self.store.get(PODS, "default", name).typed
        return pod

    def condition(self, name: str) -> PodCondition:
        found = [item for item in self.pod(name).status.conditions if item.type == "PodScheduled"]
        return found[0] if found else PodCondition()

    async def until(self, condition: Callable[[], Any], what: str) -> None:
        """Wait until something holds."""
        async with asyncio.timeout(LIMIT):
            while not condition():
                assert self.embedded.scheduler.tasks.crash is None, what
                await asyncio.sleep(0.005)

    async def bound(self, name: str) -> str:
        """The node of a pod, when it has one."""
        await self.until(lambda: self.pod(name).spec.node_name, f"{name} is bound")
        return self.pod(name).spec.node_name

    async def failed(self, name: str) -> PodCondition:
        """Wait for a failed attempt of a pod, and return the condition that says why."""
        await self.until(lambda: self.condition(name).message, f"{name} fails")
        return self.condition(name)


@asynccontextmanager
async def cluster(*extenders: dict[str, Any], nodes: int = 2, **fields: Any) -> AsyncIterator[Cluster]:
    config = extenders_config(*extenders, **fields)
    embedded = Embedded(
        config,
        in_tree_registry(),
        clock=RealClock(),
        seed=1,
        kubelets=False,
        extenders=http_extenders(config.extenders),
    )
    for number in range(1, nodes + 1):
        embedded.store.create(NODES, "", a_node(f"n{number}"))
    async with embedded.running():
        await asyncio.sleep(0)
        yield Cluster(embedded)
