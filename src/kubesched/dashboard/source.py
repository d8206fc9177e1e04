"""Port of the dashboard: a cluster or a recording that can be shown.

Implementations: a live scheduler, a recording. The server asks, and turns answers into JSON.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kubesched.base.pages import Answer

from .schema import NodePage, Played, PodList, PodPage, Queues, RunInfo, Series, State, Verdicts
from .schema_what_if import Applied, Choices, Outcome, WhatIf

__all__ = ["PodQuery", "Refused", "Source", "Trials"]


class Refused(Exception):  # noqa: N818 - an answer, not a failure of the program
    """Request that cannot be answered. The text says what would be right; ``status`` is that of HTTP, such as 400, 404 or 503."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class PodQuery:
    """Wanted pods: ``text`` is part of the name, the rest is empty or must be equal. At most ``limit`` are listed."""

    text: str = ""
    namespace: str = ""
    state: str = ""
    node: str = ""
    workload: str = ""
    limit: int = 100


class Trials(Protocol):
    """Proposals for a cluster: what can be proposed, what would happen, and how to carry it out.

    Each method raises :exc:`Refused` for what is not possible.
    """

    async def choices(self) -> Choices: ...

    async def what_if(self, question: WhatIf) -> Outcome: ...

    async def apply(self, question: WhatIf) -> Applied: ...


class Source(Protocol):
    """Cluster or recording. ``at`` is a moment of a recording; None means now, or the end.

    Each method raises :exc:`Refused` for what is not there or not possible.
    """

    @property
    def info(self) -> RunInfo: ...

    async def state(self, at: float | None) -> State: ...

    def changes(self, since: int | None) -> AsyncIterator[bytes]:
        """Yield events for a page, as server-sent events in bytes, which all pages share. ``since`` is the last version that the
        page has."""
        ...

    async def played(self, start: float, end: float, most: int) -> Played: ...

    async def series(self) -> Series: ...

    async def queues(self, at: float | None) -> Queues: ...

    async def pods(self, query: PodQuery, at: float | None) -> PodList: ...

    async def pod(self, namespace: str, name: str, at: float | None) -> PodPage: ...

    async def node(self, name: str, at: float | None) -> NodePage: ...

    async def verdicts(self, namespace: str, name: str, at: float | None) -> Verdicts: ...

    async def explain(self, path: str, query: Mapping[str, Sequence[str]], at: float | None) -> Answer:
        """Answer as :class:`kubesched.explain.live.LivePages` does to paths from ``/explain/`` on."""
        ...

    async def choices(self) -> Choices: ...

    async def what_if(self, question: WhatIf) -> Outcome: ...

    async def apply(self, question: WhatIf) -> Applied: ...
