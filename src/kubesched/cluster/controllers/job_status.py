"""Counting a job's pods: which are active, which have ended and not been counted, and which indexes are done.

Pure: built from one version of the job and its pods. Caller: :mod:`.jobs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from ...api.selectors import parse_int64
from ...api.types import Pod
from ...api.wire import Item
from .context import Data

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
    ordered = sorted(indexes)
    parts: list[str] = []
    start = 0
    for position in range(1, len(ordered) + 1):
        if position == len(ordered) or ordered[position] != ordered[position - 1] + 1:
            first, last = ordered[start], ordered[position - 1]
            parts.append(str(first) if first == last else f"{first}-{last}")
            start = position
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
    """One evaluation of a job. ``succeeded`` and ``failed`` are what the totals will be once all is counted."""

    def __init__(self, data: Data, pods: list[Item], is_going: Callable[[Item], bool]) -> None:
        status = data.get("status") or {}
        known = status.get("uncountedTerminatedPods") or {}
        #: UIDs noted as being counted, by outcome.
        self.uncounted: dict[str, list[str]] = {
            name: list(known.get(name) or ()) for name in ("succeeded", "failed") if known.get(name)
        }
        noted = {uid for uids in self.uncounted.values() for uid in uids}
        self.indexed = (data.get("spec") or {}).get("completionMode") == "Indexed"
        self.active: list[Item] = []
        self.going: list[Item] = []
        self.fresh: dict[str, list[str]] = {}
        self.to_release: list[Item] = []
        self.newly_failed = False
        self.busy_indexes: set[int] = set()
        self.fresh_indexes: set[int] = set()
        done = completed_indexes(data)
        for item in pods:
            pod: Pod = item.typed
            phase = pod.status.phase
            tracked = TRACKING in pod.metadata.finalizers
            if phase not in ("Succeeded", "Failed"):
                # A pod that never reached a node has nothing to stop: it is gone once its finalizer is.
                if is_going(item) and not pod.spec.node_name and tracked:
                    self._end(item, "failed", noted)
                    continue
                (self.going if is_going(item) else self.active).append(item)
                index = index_of(pod)
                if index is not None:
                    self.busy_indexes.add(index)
                continue
            if not tracked:
                continue
            index = index_of(pod)
            if phase == "Succeeded":
                if self.indexed and (index is None or index in done or index in self.fresh_indexes):
                    self.to_release.append(item)  # this index was done already
                    continue
                if index is not None:
                    self.fresh_indexes.add(index)
                self._end(item, "succeeded", noted)
            else:
                self._end(item, "failed", noted)
        pending = {
            name: len({*self.uncounted.get(name, ()), *self.fresh.get(name, ())}) for name in ("succeeded", "failed")
        }
        self.failed = int(status.get("failed") or 0) + pending["failed"]
        if self.indexed:
            self.fresh_indexes |= done
            self.succeeded = len(self.fresh_indexes)
        else:
            self.succeeded = int(status.get("succeeded") or 0) + pending["succeeded"]

    def _end(self, item: Item, outcome: str, noted: set[str]) -> None:
        self.to_release.append(item)
        if item.uid not in noted:
            self.fresh.setdefault(outcome, []).append(item.uid)
            self.newly_failed = self.newly_failed or outcome == "failed"

    def uncounted_status(self) -> dict[str, list[str]]:
        """What the status says while pods are being counted."""
        return {
            name: list(dict.fromkeys([*self.uncounted.get(name, ()), *self.fresh.get(name, ())]))
            for name in ("succeeded", "failed")
            if name in self.uncounted or name in self.fresh
        }

    def totals(self) -> dict[str, Any]:
        """The totals once all is counted."""
        result: dict[str, Any] = {"succeeded": self.succeeded or None, "failed": self.failed or None}
        if self.indexed:
            result["completedIndexes"] = format_indexes(self.fresh_indexes) or None
        return result
