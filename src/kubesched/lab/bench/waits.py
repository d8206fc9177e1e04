"""Waits of operations for their pods."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from kubesched.api.kinds import PODS
from kubesched.cluster.store import Store
from kubesched.scheduler.scheduler import Scheduler

__all__ = ["Labels", "Wait", "was_tried", "why_unbound"]

Labels = Mapping[str, str]


class Wait:
    """Wait of an operation for its pods, with their labels. The binding hook removes the pods one by one."""

    def __init__(self, keys: dict[str, Labels]) -> None:
        self.keys = keys
        #: Set when the last pod is removed.
        self.done = asyncio.Event()

    def remove(self, key: str) -> None:
        if self.keys.pop(key, None) is not None and not self.keys:
            self.done.set()


def was_tried(store: Store, key: str) -> bool:
    """Return True if the scheduler has tried a pod, or if the pod is gone."""
    item = store.table(PODS).objects.get(tuple(key.split("/", 1)))  # type: ignore[arg-type]  # two parts
    return item is None or b'"PodScheduled"' in item.raw


def why_unbound(scheduler: Scheduler, key: str) -> str:
    """Return the reason why a pod has no node."""
    pod = scheduler.informers.live_pod(*key.split("/", 1))
    conditions = pod.status.conditions if pod is not None else ()
    return next((item.message for item in conditions if item.type == "PodScheduled"), "it was not tried yet")
