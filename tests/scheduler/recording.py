"""Plugins for tests: they record their calls, and return configured results."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.events import ActionType, ClusterEvent, ClusterEventWithHint, EventResource
from kubesched.scheduler.framework.interface import Plugin, PreBindPreFlight
from kubesched.scheduler.framework.status import Status

__all__ = ["Answers", "a_recorder", "holder"]


class Answers:
    """Answers of a plugin by method name: each a value, or a function of (state, pod, node name). Also its diary."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.diary: list[str] = []
        #: When each line was written, on the event loop's clock.
        self.times: list[float] = []
        self.handle: Any = None

    def ask(self, plugin: str, method: str, *args: Any) -> Any:
        self.diary.append(f"{plugin}.{method}")
        self.times.append(asyncio.get_running_loop().time())
        answer = self.answers.get(f"{plugin}.{method}", self.answers.get(method))
        if isinstance(answer, BaseException):
            raise answer
        return answer(*args) if callable(answer) else answer

    def clear(self) -> None:
        self.diary.clear()
        self.times.clear()


def holder(diary: Answers, name: str, *methods: str) -> type:
    """A plugin class with just these methods, all of them asking ``diary``."""

    def make(method: str) -> Callable[..., Any]:
        if method in ("pre_enqueue", "sign"):

            def of_pod(self: Any, pod: Any) -> Any:
                return diary.ask(name, method, pod)

            return of_pod
        if method == "events_to_register":

            def alone(self: Any) -> Any:
                return diary.ask(name, method)

            return alone
        if method in ("pre_filter", "filter", "pre_score", "score", "post_filter"):

            def in_cycle(self: Any, state: CycleState, pod: Any, other: Any) -> Any:
                return diary.ask(name, method, state, pod, other)

            return in_cycle
        if method == "normalize_score":

            def normalize(self: Any, state: CycleState, pod: Any, nodes: Any, scores: Any) -> Any:
                return diary.ask(name, method, state, pod, scores)

            return normalize

        def on_node(self: Any, state: CycleState, pod: Any, node_name: str) -> Any:
            return diary.ask(name, method, state, pod, node_name)

        return on_node

    def remember(self: Any, args: Any, handle: Any) -> None:
        Plugin.__init__(self, args, handle)
        diary.handle = handle

    members: dict[str, Any] = {method: make(method) for method in methods}
    return type(name, (Plugin,), {"name": name, "__init__": remember, **members})


RECORDED = (
    "pre_filter",
    "filter",
    "post_filter",
    "pre_score",
    "score",
    "reserve",
    "unreserve",
    "permit",
    "pre_bind_pre_flight",
    "pre_bind",
    "post_bind",
)


def a_recorder(diary: Answers, name: str = "A") -> type:
    """A plugin at every point of an attempt but Bind."""
    diary.answers.setdefault("score", 0)
    diary.answers.setdefault("post_filter", (None, Status.unschedulable()))
    return type(name, (holder(diary, name, *RECORDED),), {"events_to_register": _on_labels})


def _on_labels(self: Any) -> list[ClusterEventWithHint]:
    """Without a list of its own a plugin would be woken by the very condition its rejection leads to."""
    return [ClusterEventWithHint(ClusterEvent(EventResource.POD, ActionType.UPDATE_POD_LABEL))]


PARALLEL = (PreBindPreFlight(allow_parallel=True), None)
