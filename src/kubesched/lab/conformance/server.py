"""API port of a replayed scenario: writes of plugins are undone, or kept when the record says that they took effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kubesched.api.decode import from_builtins, to_builtins
from kubesched.api.kinds import Kind
from kubesched.api.types import Pod, PodCondition
from kubesched.cluster.schema import apply_merge_patch

from .objects import LocalObjects

__all__ = ["LocalServer", "version_of", "with_version"]


class LocalServer:
    """API port of one scenario."""

    at_once: Final = True

    def __init__(self, objects: LocalObjects) -> None:
        self._objects = objects
        #: By (plural, key): the object before the first unsettled write, and after the last unsettled write.
        self._written: dict[tuple[str, str], tuple[Any, Any]] = {}
        #: Keys (``namespace/name``) of deleted pods, and of pods whose nomination ended. They are kept until they are
        #: read.
        self.deleted: list[str] = []
        self.denominated: list[str] = []

    async def patch_pod_status(self, pod: Pod, *, condition: PodCondition) -> None:
        pass

    async def delete_pod(self, pod: Pod) -> bool:
        self.deleted.append(pod.key)
        return True

    def clear_nomination(self, pod: Pod, node_name: str) -> None:
        """End a pod's nomination to the node, as the scheduler does for a preemptor."""
        self.denominated.append(pod.key)

    async def get_object(self, kind: Kind, namespace: str, name: str) -> Any:
        """Return an object as it was written last."""
        place = (kind.plural, f"{namespace}/{name}" if namespace else name)
        stored = self._objects.informed(kind.plural)[place[1]]
        return self._written.get(place, (stored, stored))[1]

    async def patch_object(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: Mapping[str, Any],
        *,
        subresource: str = "",
        merge: bool = True,
    ) -> Any:
        place = (kind.plural, f"{namespace}/{name}" if namespace else name)
        stored = self._objects.informed(kind.plural)[place[1]]
        before, now = self._written.get(place, (stored, stored))
        data = apply_merge_patch(to_builtins(now), patch)
        after = with_version(from_builtins(data, type(now)), version_of(now) + 1)
        self._written[place] = before, after
        return after

    def settle(self, *, keep: bool) -> None:
        """Deliver unsettled writes as an informer would, or undo them.

        To undo a write, the former object is delivered as a newer version.
        """
        for (plural, key), (before, after) in self._written.items():
            shown = after if keep else before
            self._objects.put(plural, key, with_version(shown, version_of(after) + 1))
        self._written.clear()
        self.deleted, self.denominated = [], []


def version_of(obj: Any) -> int:
    return int(obj.metadata.resource_version or 0)


def with_version(obj: Any, version: int) -> Any:
    metadata = msgspec.structs.replace(obj.metadata, resource_version=str(version))
    return msgspec.structs.replace(obj, metadata=metadata)
