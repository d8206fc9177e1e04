"""Objects as the API server showed them, overlaid with what the scheduler has decided and not seen confirmed yet.

An assumption holds while the API server shows the version it was made from; a newer one, which may be the confirmation,
ends it. Source: spec "Volume plugins" section 2.2 (upstream ``util/assumecache``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from kubesched.api.kinds import Kind
from kubesched.api.storage import PersistentVolume, PersistentVolumeClaim
from kubesched.api.tombstone import final_state

__all__ = ["AssumeCache", "AssumeError"]

T = TypeVar("T", PersistentVolume, PersistentVolumeClaim)


class AssumeError(Exception):
    """An object cannot be assumed: it is gone, or another version of it is known."""


class AssumeCache(Generic[T]):
    """The objects of one kind by key. It is the handler of their informer.

    ``on_change(old, new)`` is called with what :meth:`get` gave before and gives now, None for an absent object;
    ``on_event(key)`` after every event of the informer.
    """

    def __init__(
        self, kind: Kind, on_change: Callable[[T | None, T | None], None], on_event: Callable[[str], None]
    ) -> None:
        self._kind = kind
        self._objects: dict[str, T] = {}
        self._assumed: dict[str, T] = {}
        self._on_change: Callable[[T | None, T | None], None] = on_change
        self._on_event = on_event
        #: What is assumed and was written to the API server, so that the informer is going to show another version.
        self._written: set[str] = set()

    # -- reading ---------------------------------------------------------------------------------------

    def get(self, key: str) -> T | None:
        """The object with what is assumed of it."""
        return self._assumed.get(key) or self._objects.get(key)

    def get_api(self, key: str) -> T | None:
        """The object as the API server showed it."""
        return self._objects.get(key)

    def keys(self) -> set[str]:
        """The keys of all objects."""
        return set(self._objects)

    def values(self) -> Iterator[T]:
        """All objects, with what is assumed of them."""
        return (self._assumed.get(key, obj) for key, obj in self._objects.items())

    def assumed(self, *, written: bool = True) -> dict[str, T]:
        """What is assumed now, by key; without ``written`` only what has not been written to the API server."""
        return {key: obj for key, obj in self._assumed.items() if written or key not in self._written}

    def __len__(self) -> int:
        return len(self._objects)

    # -- assuming --------------------------------------------------------------------------------------

    def assume(self, obj: T) -> None:
        """Let readers see ``obj`` in the place of the version that it was made from.

        Raises:
            AssumeError: when that version is not the current one.
        """
        key = obj.key
        current = self._objects.get(key)
        if current is None:
            raise AssumeError(f'{self._kind.plural} "{obj.metadata.name}" not found')
        stored, version = current.metadata.resource_version, obj.metadata.resource_version
        if stored != version:
            raise AssumeError(f'"{key}" is out of sync (stored: {stored}, assume: {version})')
        before = self.get(key)
        self._assumed[key] = obj
        self._written.discard(key)
        self._on_change(before, obj)

    def written(self, obj: T) -> None:
        """What was assumed of an object has been written: the next version that the informer shows ends the assumption."""
        self._written.add(obj.key)

    def restore(self, obj: T) -> None:
        """End the assumption of an object, if it is still the one of that version."""
        key = obj.key
        assumed = self._assumed.get(key)
        if assumed is not None and assumed.metadata.resource_version == obj.metadata.resource_version:
            self._forget(key)
            self._on_change(assumed, self._objects.get(key))

    def _forget(self, key: str) -> None:
        self._assumed.pop(key, None)
        self._written.discard(key)

    # -- the informer's side ---------------------------------------------------------------------------

    def on_add(self, obj: T, is_initial: bool) -> None:
        self._set(obj)

    def on_update(self, old: T, new: T) -> None:
        self._set(new)

    def on_delete(self, obj: Any) -> None:
        key = final_state(obj).key
        before = self.get(key)
        self._objects.pop(key, None)
        self._forget(key)
        if before is not None:
            self._on_change(before, None)
        self._on_event(key)

    def _set(self, obj: T) -> None:
        key = obj.key
        before = self.get(key)
        self._objects[key] = obj
        assumed = self._assumed.get(key)
        if assumed is None or assumed.metadata.resource_version != obj.metadata.resource_version:
            self._forget(key)
            self._on_change(before, obj)
        self._on_event(key)
