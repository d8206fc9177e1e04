"""Dashboard's listener over a source that stands still, and a client of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from yarl import URL

from kubesched.base.pages import Answer
from kubesched.dashboard.listener import Listener
from kubesched.dashboard.schema import (
    NodeColumns,
    NodePage,
    Played,
    PodList,
    PodPage,
    QueueCounts,
    Queues,
    Rates,
    RunInfo,
    Sample,
    Series,
    State,
    TextColumn,
    Verdicts,
)
from kubesched.dashboard.schema_what_if import Applied, Choices, Outcome, WhatIf
from kubesched.dashboard.server import Site
from kubesched.dashboard.source import PodQuery, Refused

__all__ = ["Client", "Still", "serving"]


class Still:
    """Source without nodes. ``asked`` has the arguments of every question."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.open = 0

    @property
    def info(self) -> RunInfo:
        return RunInfo(id=0, name="still", mode="snapshot", start=0.0)

    async def state(self, at: float | None) -> State:
        empty = TextColumn(values=[], index=[])
        nodes = NodeColumns(names=["n" * 9] * 2000, resources=[], labels=[], taints=empty, status=empty)
        sample = Sample(at=0.0, queue=QueueCounts(), on_nodes=0)
        return State(version=1, at=0.0, nodes=nodes, sample=sample, profiles=[])

    async def changes(self, since: int | None) -> AsyncIterator[bytes]:
        self.asked.append(since)
        self.open += 1
        try:
            yield b"event: resync\ndata: {}\n\n"
            await asyncio.Event().wait()
        finally:
            self.open -= 1

    async def played(self, start: float, end: float, most: int) -> Played:
        self.asked.append((start, end, most))
        return Played(changes=[])

    async def series(self) -> Series:
        return Series(samples=[])

    async def queues(self, at: float | None) -> Queues:
        return Queues(at=0.0, places=[], rates=Rates())

    async def pods(self, query: PodQuery, at: float | None) -> PodList:
        self.asked.append(query)
        return PodList(pods=[], total=0)

    async def pod(self, namespace: str, name: str, at: float | None) -> PodPage:
        self.asked.append((namespace, name, at))
        raise Refused(404, f"no pod is named {namespace}/{name}")

    async def node(self, name: str, at: float | None) -> NodePage:
        raise ZeroDivisionError("a defect")

    async def verdicts(self, namespace: str, name: str, at: float | None) -> Verdicts:
        raise Refused(404, "no pod")

    async def explain(self, path: str, query: Mapping[str, Sequence[str]], at: float | None) -> Answer:
        self.asked.append((path, dict(query), at))
        return (
            Answer(404, b"no such pod\n", "text/plain") if "missing" in path else Answer(200, b"{}", "application/json")
        )

    async def choices(self) -> Choices:
        return Choices(kinds=[], applicable=[], workloads=[], profiles=[])

    async def what_if(self, question: WhatIf) -> Outcome:
        self.asked.append(question)
        raise Refused(403, "nothing can be tried here")

    async def apply(self, question: WhatIf) -> Applied:
        self.asked.append(question)
        return Applied(done=["done"], remarks=[])


class Client:
    """Client of a listener. ``links`` are those that the listener has announced, ``remarks`` its warnings."""

    def __init__(
        self, session: aiohttp.ClientSession, listener: Listener, links: list[str], remarks: list[str]
    ) -> None:
        self.session, self.listener, self.links, self.remarks = session, listener, links, remarks
        self.root = listener.url.removesuffix("/ui/")

    async def log_in(self) -> None:
        async with self.session.get(self.links[-1], allow_redirects=False) as answer:
            assert answer.status == 303

    async def get(self, path: str, **how: Any) -> tuple[int, Any, Mapping[str, str]]:
        """Status, body (JSON if it is) and headers of the answer to a GET request below the API's root."""
        return await self.ask("GET", f"/ui/api/v1/{path}", **how)

    async def ask(self, method: str, path: str, **how: Any) -> tuple[int, Any, Mapping[str, str]]:
        async with self.session.request(
            method, URL(self.root + path, encoded=True), allow_redirects=False, **how
        ) as answer:
            is_json = answer.headers.get("Content-Type", "").startswith("application/json")
            return answer.status, await (answer.json() if is_json else answer.text()), answer.headers


@asynccontextmanager
async def serving(source: Any = None, *, logged_in: bool = True) -> AsyncIterator[Client]:
    """A client of a listener, which is stopped at the end."""
    links: list[str] = []
    remarks: list[str] = []
    site = Site([source if source is not None else Still()])
    listener = Listener(site, ("127.0.0.1", 0), announce=links.append, warn=remarks.append)
    await listener.start()
    try:
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
            client = Client(session, listener, links, remarks)
            if logged_in:
                await client.log_in()
            yield client
    finally:
        await listener.stop()
