"""Annotation or event of a pending pod: one line that says why it is pending, and what would help.

The members of a pod group have the line of their group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from kubesched.api.types import Pod
from kubesched.base.lines import printable
from kubesched.client.port import ApiPort
from kubesched.scheduler.core.attempt import Attempt
from kubesched.scheduler.core.diagnosis import Rejection
from kubesched.scheduler.core.observer import AttemptObserver
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes.nominating import NominatingInfo
from kubesched.scheduler.scheduler import Scheduler

from ..report import Explanation, Pending, PodGroupReport
from .writer import PodWriter

__all__ = ["WHY_PENDING", "WhyPending", "group_line", "why_line"]

#: Key of the annotation.
WHY_PENDING: Final = "kubesched.io/why-pending"
#: Most characters of its value.
_MOST_CHARACTERS: Final = 1000
#: Seconds between two batches of explanations, most pods of one, and most pods that wait.
_SECONDS: Final = 5.0
_BATCH: Final = 200
_MOST: Final = 10_000
#: Seconds after which an unchanged text is reported once more, because API servers keep events for an hour.
_REPEAT_SECONDS: Final = 1800.0


class _Said(NamedTuple):
    """Line about a pod, and the moment at which it was handed to the writer."""

    line: str
    at: float


class WhyPending(AttemptObserver):
    """Observer that has the reason of each failed attempt explained and written; removed once the pod has a node."""

    def __init__(self, *, annotate: bool = True, event: bool = False) -> None:
        """``annotate`` has an annotation written, ``event`` an event of the pod."""
        self._annotate = annotate
        self._event = event
        self._failed: dict[str, Pod] = {}
        self._said: dict[str, _Said] = {}
        self._some = asyncio.Event()
        self._writer: PodWriter | None = None
        self._now: Callable[[], float] = lambda: 0.0
        self._live: Callable[[str, str], Pod | None] = lambda namespace, name: None

    def ended(self, attempt: Attempt, failure: Status | Rejection | None, nominating: NominatingInfo | None) -> None:
        pod = attempt.queued.pod_info.pod
        if failure is not None:
            if len(self._failed) < _MOST:
                self._failed[pod.uid] = pod
                self._some.set()
            return
        self._failed.pop(pod.uid, None)
        was_said = self._said.pop(pod.uid, None) is not None or WHY_PENDING in (pod.metadata.annotations or {})
        if was_said and self._annotate and self._writer is not None:
            self._writer.wish(pod, {WHY_PENDING: None})

    def attach(self, scheduler: Scheduler, port: ApiPort) -> None:
        """Begin to note failures, to be written through ``port``. Call it before the scheduler starts."""
        self._writer = PodWriter(port, scheduler.clock)
        self._now = scheduler.clock.now
        self._live = scheduler.informers.live_pod

    async def run(self, explain: Callable[[Sequence[Pod]], Awaitable[Explanation]]) -> None:
        """Have failures explained by ``explain`` until cancelled; :meth:`write` runs beside it.

        ``explain`` answers for the members of a pod group by an entry for the group. Call it after :meth:`attach`.
        """
        writer = self._writer
        assert writer is not None
        while True:
            await self._some.wait()
            batch = list(self._failed.items())[:_BATCH]
            for uid, _ in batch:
                del self._failed[uid]
            if not self._failed:
                self._some.clear()
            present = [(self._live(pod.namespace, pod.name), uid) for uid, pod in batch]
            pods = {pod.key: pod for pod, uid in present if pod and pod.uid == uid and not pod.spec.node_name}
            document = await explain(list(pods.values()))
            for group in document.pending:
                line = why_line(group)
                for key in group.pods:
                    self._say(pods[key], line, writer)
            for report in document.pod_groups:
                line = group_line(report)
                for key in report.pods:
                    pod = pods.get(key) or self._live(*key.split("/", 1))
                    if pod is not None and not pod.spec.node_name:
                        self._say(pod, line, writer)
            await asyncio.sleep(_SECONDS)

    async def write(self) -> None:
        """Write annotations and events until cancelled. Call it after :meth:`attach`."""
        assert self._writer is not None
        await self._writer.run()

    def _say(self, pod: Pod, line: str, writer: PodWriter) -> None:
        """Have a line written, unless it was; an event is repeated after half an hour."""
        now, said = self._now(), self._said.get(pod.uid)
        known = said.line if said is not None else (pod.metadata.annotations or {}).get(WHY_PENDING)
        annotations = {WHY_PENDING: line} if self._annotate and known != line else {}
        is_due = said is None or said.line != line or now - said.at >= _REPEAT_SECONDS
        event = line if self._event and is_due else ""
        if not (annotations or event) or not writer.wish(pod, annotations, event):
            return
        self._said.pop(pod.uid, None)
        self._said[pod.uid] = _Said(line, now)
        if len(self._said) > _MOST:
            del self._said[next(iter(self._said))]


def why_line(group: Pending) -> str:
    """Return the reason of a group of pending pods and the first thing that would help, on one line."""
    text = group.message.removesuffix(".")
    if group.hints:
        text += f". What would help: {group.hints[0]}"
    return _cut(text)


def group_line(group: PodGroupReport) -> str:
    """Return the reason why a pod group waits, and what is nearest to help, on one line."""
    return _cut(f"pod group {group.group}: {group.summary}")


def _cut(text: str) -> str:
    text = printable(" ".join(text.split()))
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"
