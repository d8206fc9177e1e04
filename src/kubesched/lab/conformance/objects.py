"""Objects that plugins look up, without an API server: the content of an informer of each kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubesched.scheduler.framework.interface import ObjectHandler

__all__ = ["LocalObjects"]


class LocalObjects:
    """Objects by plural and key. Handlers receive present objects and every change, as from an informer."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[str, Any]] = {}
        self._handlers: dict[str, list[ObjectHandler]] = {}

    def informed(self, plural: str) -> Mapping[str, Any]:
        """Return the objects of a kind by ``namespace/name``."""
        return self._objects.setdefault(plural, {})

    def informed_in(self, plural: str, namespace: str) -> list[Any]:
        """Return the objects of a kind in a namespace."""
        prefix = f"{namespace}/"
        return [obj for key, obj in self.informed(plural).items() if key.startswith(prefix)]

    def watch(self, plural: str, handler: ObjectHandler, relays: bool = False) -> None:
        """Deliver objects and changes to a handler. ``relays`` has no effect: relayed events have no receiver here."""
        self._handlers.setdefault(plural, []).append(handler)
        for obj in list(self.informed(plural).values()):
            handler.on_add(obj, True)

    def put(self, plural: str, key: str, obj: Any) -> None:
        """Add an object, or replace its earlier version."""
        objects = self._objects.setdefault(plural, {})
        old = objects.get(key)
        objects[key] = obj
        for handler in self._handlers.get(plural, ()):
            if old is None:
                handler.on_add(obj, False)
            else:
                handler.on_update(old, obj)

    def remove(self, plural: str, key: str) -> None:
        """Remove an object. Does nothing when it is not there."""
        obj = self._objects.get(plural, {}).pop(key, None)
        if obj is not None:
            for handler in self._handlers.get(plural, ()):
                handler.on_delete(obj)
