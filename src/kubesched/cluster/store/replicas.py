"""Memo of recent pods, from which pods of equal requests are copied.

A controller sends the same request for each of its pods and leaves the name to the server. Admission gives the same
result until an object changes that admission reads. Such a pod differs from the previous one only in name, UID and
version. Bound pods of one template also differ in their node. Callers: ``store`` and ``pod_actions``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

from ..schema import Stored, StoredPod, encode

__all__ = ["Replicas", "request_of"]

K = TypeVar("K")

#: Most requests that are remembered. When there are more, all are forgotten.
_MOST: Final = 1 << 10


class Replicas(Generic[K]):
    """Pods by the request that made them. They are kept for the present second only, because pods contain the time of
    their creation.
    """

    def __init__(self, now: Callable[[], str]) -> None:
        self._now = now
        self._second = ""
        self._pods: dict[K, StoredPod] = {}

    def like(self, request: K) -> StoredPod | None:
        """Return a pod that an equal request made in the present second, if there is one."""
        now = self._now()
        if now != self._second:
            self._second = now
            self._pods.clear()
        return self._pods.get(request)

    def add(self, request: K, item: Stored) -> None:
        """Note a pod that this request made."""
        if isinstance(item, StoredPod) and item.can_be_copied:
            if len(self._pods) >= _MOST:
                self._pods.clear()
            self._pods[request] = item

    def forget(self, item: Stored | None, old: Stored | None) -> None:
        """Forget all pods, because an object changed on which the contents of pods depend."""
        self._pods.clear()


def request_of(namespace: str, metadata: Mapping[str, Any], obj: Mapping[str, Any]) -> tuple[str, bytes] | None:
    """Return the key of a request for a new pod. None if the request names the pod, or if JSON cannot express it."""
    if metadata.get("name"):
        return None
    try:
        return namespace, encode(obj)
    except (TypeError, ValueError):
        return None
