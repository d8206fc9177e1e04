"""The state of cache and queue, compared with the API server's, and written into the log.

For operators: ``kill -USR2`` (``SIGINT`` on Windows). The command line installs the signal;
tests and tools call the methods.

Source: spec "Scheduler cache and event handlers" section 18 (upstream ``CacheDebugger``).
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Mapping
from typing import Any, Final

from kubesched.api.requests import Resources
from kubesched.api.types import Pod
from kubesched.cache import Cache
from kubesched.cache.check import check_cache, compare_with_server
from kubesched.framework.nodeinfo import NodeInfo
from kubesched.queue import Nominator, QueueViews

from .port import Informer

__all__ = ["CacheDebugger"]

_log = logging.getLogger("kubesched.scheduler")

#: None where the platform has neither.
_SIGNAL: Final = getattr(signal, "SIGUSR2", getattr(signal, "SIGINT", None))


class CacheDebugger:
    """Comparer and dumper of cache and queue. Checks everything: run on demand, not in every cycle."""

    def __init__(
        self,
        cache: Cache,
        queue: QueueViews,
        nominator: Nominator,
        nodes: Informer,
        pods: Informer,
        parts: Mapping[str, Any],
    ) -> None:
        """``parts`` are what plugins share, by name; those that have the method ``problems`` check themselves."""
        self._cache = cache
        self._queue = queue
        self._nominator = nominator
        self._nodes = nodes
        self._pods = pods
        self._parts = parts

    def install(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Compare and dump on each signal; False where the loop cannot listen for signals."""
        if _SIGNAL is None:
            return False
        try:
            loop.add_signal_handler(_SIGNAL, self.run)
        except (NotImplementedError, RuntimeError, ValueError):
            return False
        return True

    def run(self) -> None:
        """Compare, then dump."""
        self.compare()
        self.dump()

    def compare(self) -> list[str]:
        """Log and return every difference between cache and informers, and every flaw within cache, queue and plugins.

        Pods in flight and unscheduled pods of other schedulers show up as missed.
        """
        queued, _ = self._queue.pending_pods()
        problems = compare_with_server(self._cache, self._nodes.values(), self._pods.values(), queued)
        problems += check_cache(self._cache) + self._queue.check() + self.part_problems()
        for problem in problems:
            _log.warning("%s", problem)
        _log.info("cache comparer finished: %d problems", len(problems))
        return problems

    def part_problems(self) -> list[str]:
        """Every flaw of what plugins share, as far as it checks itself."""
        found: list[str] = []
        for part in self._parts.values():
            if hasattr(part, "problems"):
                found += part.problems()
        return found

    def dump(self) -> None:
        """Log every node of the cache with its pods, and every queued pod."""
        infos = sorted(self._cache.table.all_infos(), key=lambda info: info.name)
        _log.info("Dump of cached NodeInfo\n%s", "\n".join(self._node_lines(info) for info in infos))
        queued, summary = self._queue.pending_pods()
        lines = "\n".join(_pod_line(pod) for pod in queued)
        _log.info("Dump of scheduling queue: %s\n%s", summary, lines)

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


def _amounts(amounts: Resources) -> str:
    """Milli-CPU, bytes and counts by resource name."""
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
