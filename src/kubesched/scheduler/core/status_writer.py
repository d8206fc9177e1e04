"""Pod status patches, written alongside the scheduling cycle: one at a time per pod, the newest wins.

A failing pod gets a condition; it must not hold up the next cycle. A patch that waits behind another one of
the same pod absorbs later ones, so a pod that fails fast causes few writes.
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
    """UID to the patch waiting and the task writing."""

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
        """Write a condition and a nomination (None: leave it) as soon as earlier patches of the pod are done."""
        uid = pod.uid
        if uid not in self._tasks and self._port.is_written(
            pod, condition=condition, nominated_node_name=nominated_node_name
        ):
            return  # so it is most of the time for a pod that is tried again
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
        """Publish the chosen node before work on it begins, after what is still to be written; a failure is only logged."""
        self.write(pod, None, node_name)
        await self.settle(pod.uid)

    def is_settled(self, uid: str) -> bool:
        """Whether nothing is to be written about a pod."""
        return uid not in self._tasks

    async def settle(self, uid: str) -> None:
        """Wait until nothing is to be written about a pod."""
        while (task := self._tasks.get(uid)) is not None:
            await asyncio.wait([task])

    async def finish(self) -> None:
        """Wait until nothing is being written."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def _run(self, uid: str) -> None:
        try:
            written: Item | None = None
            while (patch := self._waiting.pop(uid, None)) is not None:
                if written is not None:
                    patch.pod = (
                        written.typed
                    )  # the informer's may be the one before, which would hide what is to be undone
                written = await self._send(patch)
        finally:
            self._tasks.pop(uid, None)

    async def _send(self, patch: _Patch) -> Item | None:
        """The pod as written; None when it was not."""
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
        """Whether another pod has its name."""
        live = self._live_pod(pod.namespace, pod.name)
        return live is not None and live.uid != pod.uid

    @staticmethod
    def _log_failure(pod: Pod, error: Exception) -> None:
        if isinstance(error, ApiError | OSError):
            level = logging.DEBUG if isinstance(error, ApiError) and error.code == 404 else logging.ERROR
            _log.log(level, "cannot patch the status of pod %s: %s", pod.key, error)
        else:
            _log.error("patching the status of pod %s failed unexpectedly", pod.key, exc_info=error)
