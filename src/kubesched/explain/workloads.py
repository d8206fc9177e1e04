"""Workloads that pods belong to, by the names that people use."""

from __future__ import annotations

from typing import Final

from kubesched.api.kinds import kind_of
from kubesched.api.types import Pod

from .objects import Objects

__all__ = ["WORKLOAD", "Workloads"]

#: Annotation of a pod without a controller: the ``Kind/name`` to count it under, such as the trace that it is from.
WORKLOAD: Final = "kubesched.io/workload"

_VERSIONS: Final = {"ReplicaSet": "apps/v1", "Job": "batch/v1"}
_TEMPLATE_HASH: Final = "pod-template-hash"


class Workloads:
    """Workload of a pod, as a person would name it: ``Deployment/web`` rather than its ReplicaSet."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._known: dict[tuple[str, str, str], str] = {}

    def of(self, pod: Pod) -> str:
        """Return the ``Kind/name`` of a pod's workload, or what its annotation says; empty for a bare pod."""
        for owner in pod.metadata.owner_references:
            if owner.controller:
                key = (pod.namespace, owner.kind, owner.name)
                if key not in self._known:
                    self._known[key] = self._above(pod, *key)
                return self._known[key]
        return pod.metadata.annotations.get(WORKLOAD, "")

    def _above(self, pod: Pod, namespace: str, kind: str, name: str) -> str:
        table = kind_of(_VERSIONS[kind], kind) if kind in _VERSIONS else None
        if table is not None:
            above = self._objects.controller(table, namespace, name)
            if above is not None:
                return "/".join(above)
            ending = f"-{pod.metadata.labels.get(_TEMPLATE_HASH, '')}"
            # Only the ReplicaSets of a Deployment carry this label, and their names end with it.
            if kind == "ReplicaSet" and len(ending) > 1 and name.endswith(ending) and not self._objects.knows(table):
                return f"Deployment/{name.removesuffix(ending)}"
        return f"{kind}/{name}"
