"""Pods that wait on Permit, and pods in PreBind, by UID (rules/framework §6).

All profiles share them. The first verdict on a waiting pod is final.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from ..nodes.podinfo import PodInfo
from .status import Code, Status

__all__ = ["PodInPreBind", "PodsInPreBind", "WaitingPod", "WaitingPods", "go_duration"]


def go_duration(seconds: float) -> str:
    """Format a duration as Go does: ``5m0s``, ``1h0m0s``, ``1.5s``, ``100ms``."""
    if seconds < 0:
        return f"-{go_duration(-seconds)}"
    if seconds < 1:
        micros = round(seconds * 1e6)
        if micros == 0:
            return "0s"
        return f"{micros / 1000:g}ms" if micros >= 1000 else f"{micros}µs"
    minutes, rest = divmod(seconds, 60)
    text = f"{rest:.9f}".rstrip("0").rstrip(".") + "s"
    if minutes:
        hours, minutes = divmod(int(minutes), 60)
        text = (f"{hours}h" if hours else "") + f"{minutes}m{text}"
    return text


class WaitingPod:
    """Pod that Permit plugins hold, each with its own timer."""

    def __init__(self, pod: PodInfo, timeouts: Mapping[str, float]) -> None:
        """Start the timers. Call it in a running event loop. ``timeouts`` are seconds, by plugin."""
        loop = asyncio.get_running_loop()
        self.pod = pod
        self._verdict: asyncio.Future[Status] = loop.create_future()
        self._timers = {
            plugin: loop.call_later(
                seconds,
                self.reject,
                plugin,
                f"rejected due to timeout after waiting {go_duration(seconds)} at plugin {plugin}",
            )
            for plugin, seconds in timeouts.items()
        }

    @property
    def pending_plugins(self) -> list[str]:
        """Names of the plugins that still have to allow the pod."""
        return list(self._timers)

    def allow(self, plugin: str) -> None:
        """Allow the pod in the name of one plugin. The pod goes on when all plugins have allowed it."""
        timer = self._timers.pop(plugin, None)
        if timer is not None:
            timer.cancel()
        if not self._timers and not self._verdict.done():
            self._verdict.set_result(Status(Code.SUCCESS))

    def reject(self, plugin: str, message: str) -> bool:
        """Reject the pod; False if there was a verdict already."""
        return self._decide(Status(Code.UNSCHEDULABLE, message, plugin=plugin))

    def preempt(self, plugin: str, message: str) -> bool:
        """Fail the pod because it was preempted; False if there was a verdict already."""
        return self._decide(Status(Code.ERROR, message, plugin=plugin))

    def _decide(self, status: Status) -> bool:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._verdict.done():
            return False
        self._verdict.set_result(status)
        return True

    async def wait(self) -> Status:
        """Wait for the verdict and return it."""
        return await self._verdict


class WaitingPods:
    """Pods that wait on Permit, by UID."""

    def __init__(self) -> None:
        self._pods: dict[str, WaitingPod] = {}

    def add(self, waiting: WaitingPod) -> None:
        self._pods[waiting.pod.uid] = waiting

    def get(self, uid: str) -> WaitingPod | None:
        return self._pods.get(uid)

    def remove(self, uid: str) -> None:
        self._pods.pop(uid, None)

    def reject(self, uid: str) -> bool:
        """Reject a waiting pod because it was removed; False if it does not wait."""
        waiting = self._pods.get(uid)
        return waiting is not None and waiting.reject("", "removed")

    def __iter__(self) -> Iterator[WaitingPod]:
        return iter(list(self._pods.values()))

    def __len__(self) -> int:
        return len(self._pods)


class PodInPreBind:
    """Pod whose PreBind work is running; a preemptor can still cancel it."""

    def __init__(self, work: asyncio.Future[Status | None]) -> None:
        self._work = work
        self._finished = False
        self._writes = 0
        self._ending: list[asyncio.Future[Any]] = []
        self._has_ended = False
        #: Reason for which the pod was cancelled; empty if it was not.
        self.cause = ""
        self._wake: list[Callable[[], None]] = []

    def wake_on_end(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when the pod is deleted and when the scheduler stops; for plugins that wait."""
        self._wake.append(callback)

    def wake(self) -> None:
        """Wake the plugins that wait, because the pod was deleted or the scheduler stops."""
        for callback in self._wake:
            callback()

    def cancel(self, message: str) -> bool:
        """Cancel the pod, after a write under way; False if PreBind is over already."""
        if self._finished:
            return False
        self.cause = self.cause or message
        if self._work not in self._ending:
            self.end([self._work])
        return True

    def end(self, work: Iterable[asyncio.Future[Any]]) -> None:
        """Cancel work of the pod as soon as no write is under way."""
        self._ending.extend(work)
        self._end_now()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Block that :meth:`cancel` and :meth:`end` do not interrupt; they have their effect after it.

        It is for a write that the API server may carry out although nobody awaits its answer any more.

        Raises:
            CancelledError: when the work was cancelled; the cancellation itself would arrive within the write.
        """
        if self._has_ended:
            raise asyncio.CancelledError
        self._writes += 1
        try:
            yield
        finally:
            self._writes -= 1
            self._end_now()

    def _end_now(self) -> None:
        while self._ending and not self._writes:
            self._has_ended = True
            self._ending.pop().cancel()

    def mark_prebound(self) -> bool:
        """Note that PreBind is over; False if the pod was cancelled."""
        if self.cause:
            return False
        self._finished = True
        return True

    async def result(self) -> Status | None:
        """Wait for the work and return its status; if it was cancelled, an error with the cause."""
        try:
            return await self._work
        except asyncio.CancelledError:
            if not self.cause:
                raise
            return Status.from_error(self.cause)


class PodsInPreBind:
    """Pods in PreBind, by UID."""

    def __init__(self) -> None:
        self._pods: dict[str, PodInPreBind] = {}
        #: True when the scheduler stops. A plugin that waits should give up then; its failure is not reported.
        self.stopping = False

    def add(self, uid: str, entry: PodInPreBind) -> None:
        self._pods[uid] = entry

    def get(self, uid: str) -> PodInPreBind | None:
        return self._pods.get(uid)

    def remove(self, uid: str) -> None:
        self._pods.pop(uid, None)

    def writing(self, uid: str) -> AbstractContextManager[None]:
        """Block in which nobody interrupts the pod; see :meth:`PodInPreBind.writing`."""
        entry = self._pods.get(uid)
        return nullcontext() if entry is None else entry.writing()

    def end(self, uid: str, work: Iterable[asyncio.Future[Any]]) -> None:
        """Cancel work of a pod as soon as no write is under way."""
        entry = self._pods.get(uid)
        if entry is not None:
            entry.end(work)
            return
        for one in work:
            one.cancel()

    def removed(self, uid: str) -> None:
        """Wake the plugins that wait for a pod, because it was deleted. Do nothing if the pod is not in PreBind."""
        entry = self._pods.get(uid)
        if entry is not None:
            entry.wake()

    def stop(self) -> None:
        """Wake all plugins that wait, because the scheduler stops."""
        self.stopping = True
        for entry in list(self._pods.values()):
            entry.wake()
