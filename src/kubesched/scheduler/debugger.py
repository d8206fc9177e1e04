"""Debugger of cache and queue: compares them with the API server, and writes them into the log.

Operators use ``kill -USR2`` (``SIGINT`` on Windows). The command line installs the signal handler; tests and tools call
the methods.

Source: rules/cache-and-events §18 (upstream ``CacheDebugger``).
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from kubesched.api.requests import Resources
from kubesched.api.types import Pod
from kubesched.base.tasks import Supervisor
from kubesched.base.turns import Steps, finish, in_turns

from .cache import Cache
from .cache.check import checking, comparing_with_server
from .informers import Informers
from .nodes.nodeinfo import NodeInfo
from .queue import Nominator, QueueViews

__all__ = ["CacheDebugger"]

_log = logging.getLogger("kubesched.scheduler")

T = TypeVar("T")

#: Most nodes or queued pods in one log message.
_PER_MESSAGE: Final = 256
#: Signal that asks for a comparison and a dump; None if the platform has neither signal.
_SIGNAL: Final = getattr(signal, "SIGUSR2", getattr(signal, "SIGINT", None))


class CacheDebugger:
    """Debugger of cache and queue. It checks everything, so run it on demand only."""

    def __init__(
        self,
        cache: Cache,
        queue: QueueViews,
        nominator: Nominator,
        informers: Informers,
        parts: Mapping[str, Any],
        tasks: Supervisor,
    ) -> None:
        """``parts`` are the objects that plugins share, by name; a part with a method ``problems`` checks itself.

        ``tasks`` runs the work that a signal asks for.
        """
        self._tasks = tasks
        self._under_way = False
        self._cache = cache
        self._queue = queue
        self._nominator = nominator
        self._nodes, self._pods = informers["nodes"], informers.pods
        self._parts = parts

    def install(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Compare and dump at each signal, in turns with other tasks. False if the loop cannot receive signals."""
        if _SIGNAL is None:
            return False
        try:
            loop.add_signal_handler(_SIGNAL, self._begin)
        except (NotImplementedError, RuntimeError, ValueError):
            return False
        return True

    def _begin(self) -> None:
        if self._under_way:
            _log.warning("cache comparer: the last request is still under way")
            return
        self._under_way = True
        self._tasks.spawn(self._in_turns(), "cache-debugger", lasting=False)

    async def _in_turns(self) -> None:
        try:
            await in_turns(self.comparing())
            await in_turns(self.dumping())
        finally:
            self._under_way = False

    def run(self) -> None:
        """Compare, and then dump."""
        self.compare()
        self.dump()

    def compare(self) -> list[str]:
        """Log and return the differences between cache and informers, and inconsistencies of cache, queue and plugins.

        Pods in flight and unscheduled pods of other schedulers are reported as missed.
        """
        return finish(self.comparing())

    def comparing(self) -> Steps[list[str]]:
        """Do the work of :meth:`compare` in steps, between which the cluster may change."""
        problems = yield from comparing_with_server(
            self._cache, self._nodes.values(), self._pods.values(), self._queue.all_pods()
        )
        yield
        problems += yield from checking(self._cache)
        yield
        problems += yield from self._queue.checking()
        for part in self._parts.values():
            yield
            problems += _problems_of(part)
        for problem in problems:
            _log.warning("%s", problem)
        _log.info("cache comparer finished: %d problems", len(problems))
        return problems

    def part_problems(self) -> list[str]:
        """Return the inconsistencies of those shared objects of plugins that check themselves."""
        return [problem for part in self._parts.values() for problem in _problems_of(part)]

    def dump(self) -> None:
        """Log every node of the cache with its pods, and every queued pod."""
        finish(self.dumping())

    def dumping(self) -> Steps[None]:
        """Do the work of :meth:`dump` in steps. A long list becomes several messages."""
        infos = sorted(self._cache.table.all_infos(), key=lambda info: info.name)
        for nodes in _parts(infos):
            _log.info("Dump of cached NodeInfo\n%s", "\n".join(self._node_lines(info) for info in nodes))
            yield
        queued, summary = self._queue.pending_pods()
        for pods in _parts(queued):
            _log.info("Dump of scheduling queue: %s\n%s", summary, "\n".join(map(_pod_line, pods)))
            yield

    def _node_lines(self, info: NodeInfo) -> str:
        pods = [_pod_line(entry.pod) for entry in info.pods.values()]
        lines = [
            f"Node name: {info.name}",
            f"Deleted: {str(info.node is None).lower()}",
            f"Requested Resources: {_amounts(info.requested)}",
            f"Allocatable Resources: {_amounts(info.allocatable)}",
            f"Scheduled Pods(number: {len(pods)}):",
            *pods,
        ]
        nominated = self._nominator.nominated_pods_for_node(info.name)
        if nominated:
            lines.append(f"Nominated Pods(number: {len(nominated)}):")
            lines += [_pod_line(entry.pod) for entry in nominated]
        return "\n".join(lines)


def _problems_of(part: Any) -> list[str]:
    return list(part.problems()) if hasattr(part, "problems") else []


def _parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield the items in lists of the size of one message; without items, one empty list."""
    for start in range(0, max(len(items), 1), _PER_MESSAGE):
        yield items[start : start + _PER_MESSAGE]


def _amounts(amounts: Resources) -> str:
    """Format amounts (milli-CPU, bytes, counts) with their resource names."""
    known = {
        "cpu": f"{amounts.milli_cpu}m",
        "memory": amounts.memory,
        "ephemeral-storage": amounts.ephemeral_storage,
        "pods": amounts.allowed_pods,
        **amounts.scalars,
    }
    return ", ".join(f"{name}: {amount}" for name, amount in known.items())


def _pod_line(pod: Pod) -> str:
    return (
        f"name: {pod.name}, namespace: {pod.namespace}, uid: {pod.uid}, "
        f"phase: {pod.status.phase}, nominated node: {pod.status.nominated_node_name}"
    )
