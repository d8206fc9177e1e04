"""Writer of annotations on pods, at a limited rate for each pod and in total.

It needs the permission to patch pods, which the scheduler does not need otherwise.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Mapping
from typing import Final

from kubesched.api.kinds import PODS
from kubesched.api.types import Pod
from kubesched.api.wire import ApiError
from kubesched.base.times import Clock
from kubesched.scheduler.core.port import Port

__all__ = ["AnnotationWriter"]

_log = logging.getLogger("kubesched.explain")

#: Least seconds between two writes to one pod, and between any two writes.
_POD_SECONDS: Final = 30.0
_SECONDS: Final = 0.1
#: Most pods that wait to be written, and most pods whose last write is remembered.
_MOST: Final = 10_000


class AnnotationWriter:
    """Writer of annotations. Of several wishes for a pod the newest counts, key by key."""

    def __init__(self, port: Port, clock: Clock) -> None:
        self._port = port
        self._clock = clock
        self._wishes: dict[str, tuple[Pod, dict[str, str | None]]] = {}
        #: (time from which it may be written, UID), the earliest first.
        self._due: list[tuple[float, str]] = []
        self._written: dict[str, float] = {}
        self._some = asyncio.Event()
        self._dropped = 0
        self._failures: set[int] = set()

    def wish(self, pod: Pod, annotations: Mapping[str, str | None]) -> None:
        """Have annotations written; None removes one. A wish beyond the limit is dropped, and that is logged."""
        uid = pod.uid
        known = self._wishes.get(uid)
        if known is not None:
            known[1].update(annotations)
            return
        if len(self._wishes) >= _MOST:
            if not self._dropped:
                _log.warning("annotations of pods are dropped, because %d pods wait for theirs", _MOST)
            self._dropped += 1
            return
        self._wishes[uid] = (pod, dict(annotations))
        now = self._clock.now()
        heapq.heappush(self._due, (max(now, self._written.get(uid, -_POD_SECONDS) + _POD_SECONDS), uid))
        self._some.set()

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
            pod, annotations = self._wishes.pop(uid)
            await self._write(pod, annotations)
            await asyncio.sleep(_SECONDS)

    async def _write(self, pod: Pod, annotations: Mapping[str, str | None]) -> None:
        self._written.pop(pod.uid, None)
        self._written[pod.uid] = self._clock.now()
        if len(self._written) > _MOST:
            del self._written[next(iter(self._written))]
        # With the UID a pod that took the place of this one is refused.
        patch = {"metadata": {"uid": pod.uid, "annotations": dict(annotations)}}
        try:
            await self._port.patch_object(PODS, pod.namespace, pod.name, patch)
        except ApiError as error:
            if error.code not in (404, 409) and error.code not in self._failures:
                self._failures.add(error.code)
                _log.warning("annotations of pod %s are not written: %s", pod.key, error)
