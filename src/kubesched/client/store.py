"""Store of an informer: the decoded objects by key, and indexes over them.

Pure bookkeeping, without I/O or handlers: :class:`Informer` decides.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from kubesched.api.wire import version_number

__all__ = ["IndexFunction", "Store", "version_of"]

logger = logging.getLogger("kubesched.client")

IndexFunction = Callable[[Any], Iterable[str]]

#: Deleted keys are cached in two generations. Each has at most this many keys; the older one is dropped as a whole.
FORGOTTEN_GENERATION = 4096


def version_of(obj: Any) -> int:
    """Return the resource version of a decoded object; 0 if it is missing or not a number."""
    if isinstance(obj, dict):
        text = (obj.get("metadata") or {}).get("resourceVersion")
    else:
        text = obj.metadata.resource_version
    return version_number(text)


class Store:
    """Objects by ``namespace/name``, with indexes. The bytes of the objects are not kept."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self._floor = 0
        self._forgotten: dict[str, int] = {}
        self._forgotten_before: dict[str, int] = {}
        self._functions: dict[str, IndexFunction] = {}
        self._indexes: dict[str, dict[str, dict[str, Any]]] = {}

    def is_stale(self, key: str, version: int) -> bool:
        """True if ``version`` of ``key``, or a newer version, is known already.

        If the key is not in the store: True if ``version`` is not newer than the last list or than the key's deletion.
        """
        known = self.objects.get(key)
        if known is not None:
            return version <= version_of(known)
        if version <= self._floor:
            return True
        return version <= self._forgotten.get(key, 0) or version <= self._forgotten_before.get(key, 0)

    def put(self, key: str, obj: Any) -> None:
        if self._functions:
            old = self.objects.get(key)
            if old is not None:
                self._unindex(key, old)
            self._index(key, obj)
        self.objects[key] = obj

    def pop(self, key: str) -> Any:
        """Remove and return the object of ``key``; None if there is none."""
        obj = self.objects.pop(key, None)
        if obj is not None and self._functions:
            self._unindex(key, obj)
        return obj

    def forget(self, key: str, version: int) -> None:
        """Remember that ``key`` was gone at ``version``, so that a late delivery does not restore it."""
        if len(self._forgotten) >= FORGOTTEN_GENERATION:
            self._forgotten_before = self._forgotten
            self._forgotten = {}
        self._forgotten[key] = version

    def replace(self, objects: dict[str, Any], floor: int) -> None:
        """Replace everything by a complete list as of version ``floor``."""
        self.objects = objects
        self._floor = floor
        self._forgotten = {}
        self._forgotten_before = {}
        for name in self._functions:
            self._indexes[name] = {}
        if self._functions:
            for key, obj in objects.items():
                self._index(key, obj)

    # -- indexes -------------------------------------------------------------------------------------------

    def add_index(self, name: str, function: IndexFunction) -> None:
        """Add an index: ``function(obj)`` returns the values under which an object is found.

        Raises:
            ValueError: if the name is taken.
        """
        if name in self._functions:
            raise ValueError(f"index {name!r} exists already")
        self._functions[name] = function
        index = self._indexes[name] = {}
        for key, obj in self.objects.items():
            for value in self._values(name, function, key, obj):
                index.setdefault(value, {})[key] = obj

    def by_index(self, name: str, value: str) -> list[Any]:
        """Return the objects with ``value`` in index ``name``, oldest entry first.

        Raises:
            KeyError: if there is no such index.
        """
        return list(self._indexes[name].get(value, {}).values())

    def _index(self, key: str, obj: Any) -> None:
        for name, function in self._functions.items():
            index = self._indexes[name]
            for value in self._values(name, function, key, obj):
                index.setdefault(value, {})[key] = obj

    def _unindex(self, key: str, obj: Any) -> None:
        for name, function in self._functions.items():
            index = self._indexes[name]
            for value in self._values(name, function, key, obj):
                group = index.get(value)
                if group is not None:
                    group.pop(key, None)
                    if not group:
                        del index[value]

    @staticmethod
    def _values(name: str, function: IndexFunction, key: str, obj: Any) -> Iterable[str]:
        try:
            return dict.fromkeys(function(obj))
        except Exception:
            logger.exception("index %s failed for %s; the object is left out of it", name, key)
            return ()
