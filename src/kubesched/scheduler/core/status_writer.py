"""Writer of pod status patches, beside the scheduling cycle: one patch at a time per pod, the newest wins.

A failed attempt writes a condition, and the next cycle does not wait for it. A patch that waits for an earlier patch of
the same pod absorbs later ones, so a pod that fails often causes few writes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from kubesched.api.types import Pod, PodCondition
from kubesched.api.wire import ApiError, Item
from kubesched.base.at_once import begin
from kubesched.base.tasks import Supervisor

from .port import Port

__all__ = ["StatusWriter"]

_log = logging.getLogger("kubesched.scheduler")


@dataclass(slots=True)
class _Patch:
    pod: Pod
    condition: PodCondition | None
    nominated_node_name: str | None


class StatusWriter:
    """Writer of pod status patches: by UID, the patch that waits and the task that writes."""

    def __init__(self, port: Port, live_pod: Callable[[str, str], Pod | None], supervisor: Supervisor) -> None:
        self._port = port
        self._supervisor = supervisor
        self._live_pod = live_pod
        self._waiting: dict[str, _Patch] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def busy(self) -> bool:
        return bool(self._tasks)

    def write(self, pod: Pod, condition: PodCondition | None, nominated_node_name: str | None) -> None:
        """Write a condition and a nomination once earlier patches of the pod are written. A nomination of None stays as
        it is.
        """
        uid = pod.uid
        if uid not in self._tasks and self._port.is_written(
            pod, condition=condition, nominated_node_name=nominated_node_name
        ):
            return  # the usual case for a pod that is tried again
        waiting = self._waiting.get(uid)
        if waiting is not None:
            if condition is None:
                condition = waiting.condition
            if nominated_node_name is None:
                nominated_node_name = waiting.nominated_node_name
        self._waiting[uid] = _Patch(pod, condition, nominated_node_name)
        if uid not in self._tasks:
            rest = begin(self._run(uid), self._port.at_once)
            if rest is not None:
                self._tasks[uid] = self._supervisor.spawn(rest, f"status {pod.key}", lasting=False)

    async def nominate(self, pod: Pod, node_name: str) -> None:
        """Write the chosen node to the pod's status, and wait until it and earlier patches are written.

        A failure is only logged.
        """
        self.write(pod, None, node_name)
        await self.settle(pod.uid)

    def is_settled(self, uid: str) -> bool:
        """Return True if no patch of a pod waits or is being written."""
        return uid not in self._tasks

    async def settle(self, uid: str) -> None:
        """Wait until no patch of a pod waits or is being written."""
        while (task := self._tasks.get(uid)) is not None:
            await asyncio.wait([task])

    async def finish(self) -> None:
        """Wait until all patches are written."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def _run(self, uid: str) -> None:
        try:
            written: Item | None = None
            while (patch := self._waiting.pop(uid, None)) is not None:
                if written is not None:
                    patch.pod = (
                        written.typed
                    )  # the informer may still show the pod as it was before, and the patch would lack a field to undo
                written = await self._send(patch)
        finally:
            self._tasks.pop(uid, None)

    async def _send(self, patch: _Patch) -> Item | None:
        """Write one patch. Return the pod as written; None when nothing was written, also after an error (logged)."""
        pod = patch.pod
        if self._is_gone(pod):
            return None
        try:
            return await self._port.patch_pod_status(
                pod, condition=patch.condition, nominated_node_name=patch.nominated_node_name
            )
        except Exception as error:
            self._log_failure(pod, error)
            return None

    def _is_gone(self, pod: Pod) -> bool:
        """Return True if another pod has this pod's name by now."""
        live = self._live_pod(pod.namespace, pod.name)
        return live is not None and live.uid != pod.uid

    @staticmethod
    def _log_failure(pod: Pod, error: Exception) -> None:
        if isinstance(error, ApiError | OSError):
            level = logging.DEBUG if isinstance(error, ApiError) and error.code == 404 else logging.ERROR
            _log.log(level, "cannot patch the status of pod %s: %s", pod.key, error)
        else:
            _log.error("patching the status of pod %s failed unexpectedly", pod.key, exc_info=error)
