"""Pods that are created by the same request, one after the other.

A controller asks for each of its pods in the same words and leaves the name to the server. What admission makes of them
is the same, too, until something changes that admission reads. Such a pod differs from the one before in its name, UID
and version only, and is made from it. Caller: ``store``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..schema import Stored, StoredPod, encode
from .records import Records

__all__ = ["Replicas"]

#: So many requests are remembered; all are forgotten when there are more.
_MOST: Final = 1 << 10

#: A namespace, and the text of an object.
Request = tuple[str, bytes]


class Replicas:
    """The requests of this second, which is the time of creation, each with a pod that was created by it."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._created: dict[Request, StoredPod] = {}
        self._created_at = ""

    @staticmethod
    def request(namespace: str, metadata: Mapping[str, Any], obj: Mapping[str, Any]) -> Request | None:
        """What a pod is remembered by; None for one that brings its name, or that JSON cannot say."""
        if metadata.get("name"):
            return None
        try:
            return namespace, encode(obj)
        except (TypeError, ValueError):
            return None

    def like(self, request: Request) -> StoredPod | None:
        """A pod that was created by this request in this second, if there was one."""
        now = self._records.now()
        if now != self._created_at:
            self._created_at = now
            self._created.clear()
        return self._created.get(request)

    def add(self, request: Request, item: Stored) -> None:
        """A pod was created by a request for which there was none like it."""
        if isinstance(item, StoredPod) and item.can_be_copied:
            if len(self._created) >= _MOST:
                self._created.clear()
            self._created[request] = item

    def forget(self, item: Stored | None, old: Stored | None) -> None:
        """Something changed that decides what a new pod is like."""
        self._created.clear()
