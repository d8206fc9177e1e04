"""Counting a job's pods: which are active, which have ended and not been counted, and which indexes are done.

Pure: built from one version of the job and its pods. Caller: :mod:`.jobs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any, Final

from ...api.selectors import parse_int64
from ...api.types import Pod
from ...api.wire import Item
from .context import Data
from .pods import is_finished

__all__ = ["COMPLETION_INDEX", "TRACKING", "Count", "completed_indexes", "format_indexes", "parse_indexes"]

COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
TRACKING: Final = "batch.kubernetes.io/job-tracking"


def parse_indexes(text: str, completions: int) -> set[int]:
    """``1,3-5`` as {1, 3, 4, 5}; parts that cannot be read and indexes from ``completions`` on are left out."""
    result: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        begin, end = parse_int64(first), parse_int64(last or first)
        if begin is not None and end is not None and begin >= 0:
            result.update(range(begin, min(end + 1, completions)))
    return result


def format_indexes(indexes: Iterable[int]) -> str:
    """{1, 3, 4, 5} as ``1,3-5``."""
    parts: list[str] = []
    # The numbers of a run are all as far from their positions.
    for _, run in groupby(enumerate(sorted(indexes)), key=lambda pair: pair[1] - pair[0]):
        numbers = [number for _, number in run]
        parts.append("-".join(map(str, numbers if len(numbers) == 1 else (numbers[0], numbers[-1]))))
    return ",".join(parts)


def completed_indexes(data: Data) -> set[int]:
    """The indexes that a job's status lists as completed."""
    completions = int((data.get("spec") or {}).get("completions") or 0)
    return parse_indexes((data.get("status") or {}).get("completedIndexes") or "", completions)


def index_of(pod: Pod) -> int | None:
    """The completion index of a pod."""
    text = pod.metadata.annotations.get(COMPLETION_INDEX) or pod.metadata.labels.get(COMPLETION_INDEX) or ""
    return parse_int64(text) if text.isdigit() else None


class Count:
    """One evaluation of a job. ``succeeded``, ``failed`` and ``completed`` are what they will be once all is counted."""

    def __init__(self, data: Data, pods: list[Item], is_going: Callable[[Item], bool]) -> None:
        status = data.get("status") or {}
        noted = status.get("uncountedTerminatedPods") or {}
        #: UIDs of pods that are being counted, by outcome.
        self.uncounted = {name: dict.fromkeys(noted.get(name) or ()) for name in ("succeeded", "failed")}
        self.indexed = (data.get("spec") or {}).get("completionMode") == "Indexed"
        self.completed = completed_indexes(data)
        self.active: list[Item] = []
        self.going: list[Item] = []
        self.to_release: list[Item] = []
        self.newly_failed = False
        self.busy_indexes: set[int | None] = set()
        for item in pods:
            pod: Pod = item.typed
            phase, index = pod.status.phase, index_of(pod)
            tracked = TRACKING in pod.metadata.finalizers
            if phase == "Succeeded" and tracked:
                if self.indexed and (index is None or index in self.completed):
                    self.to_release.append(item)  # this index was done already
                    continue
                if index is not None:
                    self.completed.add(index)
                self._end(item, "succeeded")
            elif tracked and (phase == "Failed" or (is_going(item) and not pod.spec.node_name)):
                # A pod that never reached a node has nothing to stop: it is gone once its finalizer is.
                self._end(item, "failed")
            elif not is_finished(pod):
                (self.going if is_going(item) else self.active).append(item)
                self.busy_indexes.add(index)
        self.failed = int(status.get("failed") or 0) + len(self.uncounted["failed"])
        self.succeeded = int(status.get("succeeded") or 0) + len(self.uncounted["succeeded"])
        if self.indexed:
            self.succeeded = len(self.completed)

    def _end(self, item: Item, outcome: str) -> None:
        self.to_release.append(item)
        if not any(item.uid in uids for uids in self.uncounted.values()):
            self.uncounted[outcome][item.uid] = None
            self.newly_failed |= outcome == "failed"

    def uncounted_status(self) -> dict[str, list[str]]:
        """What the status says while pods are being counted."""
        return {name: list(uids) for name, uids in self.uncounted.items() if uids}

    def totals(self) -> dict[str, Any]:
        """The totals once all is counted."""
        result: dict[str, Any] = {"succeeded": self.succeeded or None, "failed": self.failed or None}
        if self.indexed:
            result["completedIndexes"] = format_indexes(self.completed) or None
        return result
