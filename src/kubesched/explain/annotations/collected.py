"""Annotations that are collected during a run, and written on the pods at its end.

A simulation writes them only then, because a changed pod may be tried again, and the run would differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubesched.api.kinds import PODS
from kubesched.api.types import Pod
from kubesched.api.wire import MERGE_PATCH, ApiError
from kubesched.cluster.store import Store

__all__ = ["CollectedAnnotations"]

#: Most bytes of all annotations.
_MOST_BYTES: Final = 512 << 20


class CollectedAnnotations:
    """Annotations of pods by UID, the newest of each key. Together they have at most 512 MiB."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Pod, dict[str, str | None], int]] = {}
        self._bytes = 0
        self._left_out: set[str] = set()

    def wish(self, pod: Pod, annotations: Mapping[str, str | None]) -> None:
        """Have annotations written at the end; None removes one."""
        _, before, size = self._kept.get(pod.uid, (pod, {}, 0))
        after = {**before, **annotations}
        self._bytes -= size
        size = sum(len(text.encode()) for text in after.values() if text)
        if self._bytes + size > _MOST_BYTES:
            self._kept.pop(pod.uid, None)
            self._left_out.add(pod.uid)
            return
        self._bytes += size
        self._kept[pod.uid] = (pod, after, size)
        self._left_out.discard(pod.uid)

    def write(self, store: Store) -> list[str]:
        """Write the annotations on the pods that are still there. Return remarks about those that have none."""
        remarks = []
        for pod, texts, _ in self._kept.values():
            # With the UID a pod that took the place of this one is refused.
            patch = {"metadata": {"uid": pod.uid, "annotations": texts}}
            try:
                store.patch(PODS, pod.namespace, pod.name, patch, patch_type=MERGE_PATCH)
            except ApiError as error:
                if error.code not in (404, 409):
                    remarks.append(f"annotations of pod {pod.key} are not written: {error}")
        if self._left_out:
            text = f"{len(self._left_out):,} pods have no annotations: together they would have more than"
            remarks.append(f"{text} {_MOST_BYTES >> 20} MiB")
        return remarks
