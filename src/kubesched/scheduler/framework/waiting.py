"""Pods that wait on Permit, and pods in PreBind (rules/framework §6).

Shared by all profiles, keyed by pod UID. The first verdict on a waiting pod is final.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping

from ..nodes.podinfo import PodInfo
from .status import Code, Status

__all__ = ["PodInPreBind", "PodsInPreBind", "WaitingPod", "WaitingPods", "go_duration"]


def go_duration(seconds: float) -> str:
    """A duration as Go prints it: ``5m0s``, ``1h0m0s``, ``1.5s``, ``100ms``."""
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
    """One pod held by Permit plugins, each with its own timer."""

    def __init__(self, pod: PodInfo, timeouts: Mapping[str, float]) -> None:
        """Start the timers; must be called in a running event loop. ``timeouts`` are seconds per plugin."""
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
        """The plugins that still have to allow the pod."""
        return list(self._timers)

    def allow(self, plugin: str) -> None:
        """One plugin allows the pod; when all have, it continues."""
        timer = self._timers.pop(plugin, None)
        if timer is not None:
            timer.cancel()
        if not self._timers and not self._verdict.done():
            self._verdict.set_result(Status(Code.SUCCESS))

    def reject(self, plugin: str, message: str) -> bool:
        """Reject the pod; False when a verdict was there already."""
        return self._decide(Status(Code.UNSCHEDULABLE, message, plugin=plugin))

    def preempt(self, plugin: str, message: str) -> bool:
        """Fail the pod because it was preempted while waiting."""
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
        """Block until there is a verdict."""
        return await self._verdict


class WaitingPods:
    """UID to waiting pod."""

    def __init__(self) -> None:
        self._pods: dict[str, WaitingPod] = {}

    def add(self, waiting: WaitingPod) -> None:
        self._pods[waiting.pod.uid] = waiting

    def get(self, uid: str) -> WaitingPod | None:
        return self._pods.get(uid)

    def remove(self, uid: str) -> None:
        self._pods.pop(uid, None)

    def reject(self, uid: str) -> bool:
        """Reject a waiting pod because it was removed; False when it is not waiting."""
        waiting = self._pods.get(uid)
        return waiting is not None and waiting.reject("", "removed")

    def __iter__(self) -> Iterator[WaitingPod]:
        return iter(list(self._pods.values()))

    def __len__(self) -> int:
        return len(self._pods)


class PodInPreBind:
    """A pod whose PreBind work is running, so that a preemptor can still cancel it."""

    def __init__(self, work: asyncio.Future[Status | None]) -> None:
        self._work = work
        self._finished = False
        #: Why the pod was cancelled; empty when it was not.
        self.cause = ""
        #: The scheduler stops: a plugin that waits for something should give up. Its failure is not reported.
        self.stopping = False
        self._wake: list[Callable[[], None]] = []

    def wake_on_end(self, callback: Callable[[], None]) -> None:
        """For plugins that wait: call ``callback`` when the pod is deleted, and when the scheduler stops."""
        self._wake.append(callback)

    def removed(self) -> None:
        """The pod was deleted."""
        for callback in self._wake:
            callback()

    def stop(self) -> None:
        """The scheduler stops."""
        self.stopping = True
        self.removed()

    def cancel(self, message: str) -> bool:
        """Cancel the pod; False when PreBind is over already."""
        if self._finished:
            return False
        self.cause = self.cause or message
        self._work.cancel()
        return True

    def mark_prebound(self) -> bool:
        """PreBind is over; False when the pod was cancelled."""
        if self.cause:
            return False
        self._finished = True
        return True

    async def result(self) -> Status | None:
        """The status of the work; a failure with the cause when it was cancelled."""
        try:
            return await self._work
        except asyncio.CancelledError:
            if not self.cause:
                raise
            return Status.from_error(self.cause)


class PodsInPreBind:
    """UID to pod in PreBind."""

    def __init__(self) -> None:
        self._pods: dict[str, PodInPreBind] = {}
        self._stopping = False

    def add(self, uid: str, entry: PodInPreBind) -> None:
        self._pods[uid] = entry
        if self._stopping:
            entry.stop()

    def get(self, uid: str) -> PodInPreBind | None:
        return self._pods.get(uid)

    def remove(self, uid: str) -> None:
        self._pods.pop(uid, None)

    def removed(self, uid: str) -> None:
        """A pod was deleted; nothing happens when it is not in PreBind."""
        entry = self._pods.get(uid)
        if entry is not None:
            entry.removed()

    def stop(self) -> None:
        """The scheduler stops: nothing more is waited for."""
        self._stopping = True
        for entry in list(self._pods.values()):
            entry.stop()
