"""Pods that others of this second are made from, because the same was asked for.

A controller asks for each of its pods in the same words and leaves the name to the server. What admission makes of them
is the same, too, until something changes that admission reads. Such a pod differs from the one before in its name, UID
and version only; and pods of one template that are bound, in their node. Callers: ``store`` and ``pod_actions``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

from ..schema import Stored, StoredPod, encode

__all__ = ["Replicas", "request_of"]

K = TypeVar("K")

#: So many requests are remembered; all are forgotten when there are more.
_MOST: Final = 1 << 10


class Replicas(Generic[K]):
    """The requests of this second, which is the time that is written into pods, each with a pod that it led to."""

    def __init__(self, now: Callable[[], str]) -> None:
        self._now = now
        self._second = ""
        self._pods: dict[K, StoredPod] = {}

    def like(self, request: K) -> StoredPod | None:
        """A pod that this request led to in this second, if there was one."""
        now = self._now()
        if now != self._second:
            self._second = now
            self._pods.clear()
        return self._pods.get(request)

    def add(self, request: K, item: Stored) -> None:
        """A request for which there was none like it led to this pod."""
        if isinstance(item, StoredPod) and item.can_be_copied:
            if len(self._pods) >= _MOST:
                self._pods.clear()
            self._pods[request] = item

    def forget(self, item: Stored | None, old: Stored | None) -> None:
        """Something changed that decides what a pod is like."""
        self._pods.clear()


def request_of(namespace: str, metadata: Mapping[str, Any], obj: Mapping[str, Any]) -> tuple[str, bytes] | None:
    """What a new pod is remembered by; None for one that brings its name, or that JSON cannot say."""
    if metadata.get("name"):
        return None
    try:
        return namespace, encode(obj)
    except (TypeError, ValueError):
        return None
