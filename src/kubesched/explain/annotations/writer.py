"""Writer of annotations and events of pods, at a limited rate for each pod and in total.

Annotations need the permission to patch pods, which the scheduler does not need otherwise.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from msgspec.structs import replace

from kubesched.api.kinds import PODS
from kubesched.api.types import Pod
from kubesched.api.wire import ApiError
from kubesched.base.times import Clock
from kubesched.client.event_counting import Entry, Key, Reference, Series
from kubesched.client.event_writer import NORMAL, EventWriter
from kubesched.client.events import limit_note
from kubesched.client.port import ApiPort

__all__ = ["EVENT_REASON", "PodWriter"]

_log = logging.getLogger("kubesched.explain")

#: Reason and action of the events.
EVENT_REASON: Final = "WhyPending"
_ACTION: Final = "Explaining"
#: Least seconds between two writes to one pod, and between any two writes.
_POD_SECONDS: Final = 30.0
_SECONDS: Final = 0.1
#: Most pods that wait to be written, and most pods whose last write is remembered.
_MOST: Final = 10_000
#: Least seconds between two log lines about events that could not be written.
_QUIET_SECONDS: Final = 600.0


class _Texts(Series):
    """Series of events with equal texts, whatever the object's version. Each repetition is sent: they are rare here."""

    closes = False
    renames = True

    def identify(self, event: Key, note: str, time: float) -> tuple[Key, str]:
        return replace(event, regarding=replace(event.regarding, resource_version=""), text=note), note

    def is_due(self, entry: Entry, time: float) -> bool:
        return True

    def record(self, entry: Entry) -> None:
        """Return None: a record could not be renamed if its name is taken."""


@dataclass(slots=True)
class _Wish:
    """Annotations to be written on a pod, None to remove one, and the text of an event about it; empty for none."""

    pod: Pod
    annotations: dict[str, str | None]
    event: str


class PodWriter:
    """Writer of annotations and events. Of several wishes for a pod the newest counts, key by key.

    An event has the reason ``WhyPending``. A text that was written before continues the series of its event, so that a
    pod has one event for each distinct text.
    """

    def __init__(self, port: ApiPort, clock: Clock) -> None:
        self._port = port
        self._clock = clock
        self._events = EventWriter(
            port.event_transport, clock, _Texts(), rng=Random(0), report=self._given_up, cache_size=_MOST
        )
        self._wishes: dict[str, _Wish] = {}
        #: (time from which it may be written, UID), the earliest first.
        self._due: list[tuple[float, str]] = []
        self._written: dict[str, float] = {}
        self._some = asyncio.Event()
        self._dropped = 0
        self._failures: set[int] = set()
        self._given_up_at = -_QUIET_SECONDS

    def wish(self, pod: Pod, annotations: Mapping[str, str | None], event: str = "") -> bool:
        """Have annotations written, None to remove one, and an event with this text, unless it is empty.

        A wish beyond the limit is dropped, and that is logged. Return False then.
        """
        uid = pod.uid
        known = self._wishes.get(uid)
        if known is not None:
            known.annotations.update(annotations)
            known.event = event or known.event
            return True
        if len(self._wishes) >= _MOST:
            if not self._dropped:
                _log.warning("annotations and events of pods are dropped, because %d pods wait for theirs", _MOST)
            self._dropped += 1
            return False
        self._wishes[uid] = _Wish(pod, dict(annotations), event)
        now = self._clock.now()
        heapq.heappush(self._due, (max(now, self._written.get(uid, -_POD_SECONDS) + _POD_SECONDS), uid))
        self._some.set()
        return True

    async def run(self) -> None:
        """Write what is wished, until cancelled."""
        while True:
            while not self._due:
                self._dropped = 0
                self._some.clear()
                await self._some.wait()
            wait = self._due[0][0] - self._clock.now()
            if wait > 0:
                self._some.clear()
                try:
                    async with asyncio.timeout(wait):
                        await self._some.wait()  # a pod that may be written earlier
                except TimeoutError:
                    pass
                continue
            _, uid = heapq.heappop(self._due)
            await self._write(self._wishes.pop(uid))
            await asyncio.sleep(_SECONDS)

    async def _write(self, wish: _Wish) -> None:
        pod = wish.pod
        self._written.pop(pod.uid, None)
        self._written[pod.uid] = self._clock.now()
        if len(self._written) > _MOST:
            del self._written[next(iter(self._written))]
        if wish.annotations:
            await self._annotate(pod, wish.annotations)
        if wish.event:
            await self._record(pod, wish.event)

    async def _annotate(self, pod: Pod, annotations: Mapping[str, str | None]) -> None:
        # With the UID a pod that took the place of this one is refused.
        patch = {"metadata": {"uid": pod.uid, "annotations": dict(annotations)}}
        try:
            await self._port.patch_object(PODS, pod.namespace, pod.name, patch)
        except ApiError as error:
            if error.code not in (404, 409) and error.code not in self._failures:
                self._failures.add(error.code)
                _log.warning("annotations of pod %s are not written: %s", pod.key, error)

    async def _record(self, pod: Pod, text: str) -> None:
        recorder = self._port.recorder(pod.spec.scheduler_name)
        names = recorder.reporting_controller, recorder.reporting_instance
        now = self._clock.now()
        await self._events.take(
            Key(NORMAL, _ACTION, EVENT_REASON, *names, Reference.to(pod)), limit_note(text), now, now
        )

    def _given_up(self, text: str) -> None:
        """Log that an event was not written; after that, be quiet for some time."""
        now = self._clock.now()
        if now - self._given_up_at >= _QUIET_SECONDS:
            self._given_up_at = now
            _log.warning("%s", text)
