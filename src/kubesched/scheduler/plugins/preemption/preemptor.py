"""Preemptor: the pod or the pod group for which others are evicted, as evictions and their events name it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...nodes.podinfo import PodInfo

__all__ = ["Preemptor"]


@dataclass(frozen=True, slots=True)
class Preemptor:
    """Preemptor.

    Attributes:
        kind: ``pod`` or ``podgroup``, as messages have it.
        uid: UID of the object.
        obj: the object.
        priority: pods of lower priority may be evicted.
        scheduler_name: name of the scheduler that evicts.
        pods: the pods that are tried again when the evictions have failed, or are over.
        nodes: names of the nodes where room is made.
    """

    kind: str
    uid: str
    obj: Any
    priority: int
    scheduler_name: str
    pods: Sequence[PodInfo]
    nodes: Sequence[str]

    @classmethod
    def of_pod(cls, pod: PodInfo, node_name: str) -> Preemptor:
        return cls("pod", pod.uid, pod.pod, pod.priority, pod.spec.scheduler_name, (pod,), (node_name,))

    @property
    def key(self) -> str:
        metadata = self.obj.metadata
        return f"{metadata.namespace}/{metadata.name}"

    @property
    def place(self) -> str:
        """Name of the place where room is made, as events have it."""
        return self.nodes[0] if self.kind == "pod" else "cluster"
