"""Helpers for the tests of the HTTP face: a served store, a small client, and builders."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import aiohttp
import msgspec

from kubesched.cluster.http import HttpServer
from kubesched.cluster.store import Store

START = 1_750_000_000.0
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


class FakeClock:
    """A clock that moves on demand."""

    def __init__(self, now: float = START) -> None:
        self.time = now

    def now(self) -> float:
        return self.time


class Answer:
    """A response, read to its end."""

    def __init__(self, status: int, headers: Any, raw: bytes) -> None:
        self.status = status
        self.headers = headers
        self.raw = raw

    @property
    def data(self) -> Any:
        return msgspec.json.decode(self.raw)

    @property
    def reason(self) -> str:
        return str(self.data.get("reason"))

    @property
    def message(self) -> str:
        return str(self.data.get("message"))

    @property
    def warnings(self) -> list[str]:
        return list(self.headers.getall("Warning", []))


class Api:
    """Requests to one server."""

    def __init__(self, server: HttpServer, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.store = server.store
        self.session = session

    async def __call__(self, method: str, path: str, body: Any = None, **options: Any) -> Answer:
        """``accept``, ``type`` and ``headers`` are headers, ``raw`` is a body as it is; the rest is the query."""
        headers = dict(options.pop("headers", {}))
        if "accept" in options:
            headers["Accept"] = options.pop("accept")
        content_type = options.pop("type", None)
        raw = options.pop("raw", None)
        if body is not None:
            raw = msgspec.json.encode(body)
            content_type = content_type or "application/json"
        if content_type:
            headers["Content-Type"] = content_type
        query = {key: str(value) for key, value in options.items()}
        if raw is not None and len(raw) > 2**20:
            raw = io.BytesIO(raw)
        url = self.server.url + path
        async with self.session.request(method, url, data=raw, headers=headers, params=query or None) as response:
            return Answer(response.status, response.headers.copy(), await response.read())

    async def get(self, path: str, **options: Any) -> Answer:
        return await self("GET", path, **options)

    async def post(self, path: str, body: Any, **options: Any) -> Answer:
        return await self("POST", path, body, **options)

    async def put(self, path: str, body: Any, **options: Any) -> Answer:
        return await self("PUT", path, body, **options)

    async def patch(self, path: str, body: Any, **options: Any) -> Answer:
        return await self("PATCH", path, body, **{"type": MERGE, **options})

    async def delete(self, path: str, **options: Any) -> Answer:
        return await self("DELETE", path, **options)

    async def apply(self, path: str, body: Any, manager: str = "me", **options: Any) -> Answer:
        return await self("PATCH", path, body, type=APPLY, fieldManager=manager, **options)

    @asynccontextmanager
    async def watch(self, path: str, accept: str = "application/json", **query: Any) -> AsyncIterator[Events]:
        texts = {"watch": "true", **{key: str(value) for key, value in query.items()}}
        async with self.session.get(self.server.url + path, params=texts, headers={"Accept": accept}) as response:
            yield Events(response)


class Events:
    """The lines of a watch."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def next(self) -> dict[str, Any]:
        line = await self.response.content.readline()
        assert line, "the watch ended"
        event: dict[str, Any] = msgspec.json.decode(line)
        return event

    async def take(self, count: int) -> list[tuple[str, str]]:
        """Return the next ``count`` events, as type and name."""
        events = [await self.next() for _ in range(count)]
        return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]

    async def rest(self) -> list[dict[str, Any]]:
        """Everything up to the end of the stream."""
        raw = await self.response.read()
        return [msgspec.json.decode(line) for line in raw.splitlines()]


def a_store(**options: Any) -> Store:
    return Store(FakeClock(), random=Random(7), **options)


@asynccontextmanager
async def served(store: Store | None = None, **options: Any) -> AsyncIterator[Api]:
    """A server on a free port, and a client for it."""
    async with (
        HttpServer(store or a_store(), **options) as server,
        aiohttp.ClientSession(headers={"User-Agent": "tests/1"}) as session,
    ):
        yield Api(server, session)


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run one test; what waits for ever ends after two minutes, as a slow machine is no reason to fail."""

    async def bounded() -> None:
        async with asyncio.timeout(120):
            await main

    asyncio.run(bounded())


def a_pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name}
    for field in ("labels", "annotations", "finalizers"):
        if field in spec:
            metadata[field] = spec.pop(field)
    containers = [{"name": "main", "image": "pause"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": containers, **spec},
    }


def a_node(name: str = "n1", **extra: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
        **extra,
    }


def a_deployment(name: str = "web", replicas: int = 1) -> dict[str, Any]:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "c", "image": "nginx", "ports": [{"containerPort": 80}]}]},
            },
        },
    }


def a_definition(**version: Any) -> dict[str, Any]:
    """A CustomResourceDefinition of widgets.example.com in v1 and v1beta1."""
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {"size": {"type": "integer", "description": "How big."}, "count": {"type": "integer"}},
            },
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wg"]},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version},
                {"name": "v1beta1", "served": True, "storage": False, "schema": {"openAPIV3Schema": schema}},
            ],
        },
    }
