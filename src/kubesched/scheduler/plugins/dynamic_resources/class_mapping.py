"""Mapping of extended resources to the device classes that serve them.

A class serves the resource ``deviceclass.resource.kubernetes.io/<class>``, and the resource that its
``extendedResourceName`` names. If several classes name one resource, the newest class serves it; among equally old
classes, the first by name.

Source: rules/devices §11.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kubesched.api.resource import EXTENDED_RESOURCE_PREFIX, DeviceClass
from kubesched.api.tombstone import DeletedFinalStateUnknown, final_state
from kubesched.base.times import parse_time

from ...framework.interface import Handle

__all__ = ["ClassMapping", "class_mapping"]


class ClassMapping:
    """Device classes by name, and by the resources they serve; it is a handler of their informer.

    ``changed`` is called when a resource gets, changes or loses the class that serves it.
    """

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self._changed = changed
        self._classes: Final[dict[str, DeviceClass]] = {}
        #: Names of the classes with an explicit resource name, by that name.
        self._named: Final[dict[str, set[str]]] = {}
        #: Name of the class that serves an explicit resource name, by that name, once known.
        self._first: Final[dict[str, str]] = {}

    def find(self, name: str) -> DeviceClass | None:
        """Return the class of a name, or None."""
        return self._classes.get(name)

    def names(self) -> list[str]:
        """Return the names of all classes, sorted."""
        return sorted(self._classes)

    def class_of(self, resource: str) -> str | None:
        """Name of the class that serves a resource, or None."""
        first = self._first.get(resource)
        if first is not None:
            return first
        named = self._named.get(resource)
        if named:
            first = self._first[resource] = min(named, key=self._rank)
            return first
        if resource.startswith(EXTENDED_RESOURCE_PREFIX):
            name = resource[len(EXTENDED_RESOURCE_PREFIX) :]
            return name if name in self._classes else None
        return None

    @property
    def serves_any(self) -> bool:
        """True if there is any device class, because each class serves a resource."""
        return bool(self._classes)

    def _rank(self, name: str) -> tuple[float, str]:
        created = self._classes[name].metadata.creation_timestamp
        return (-parse_time(created) if created else 0.0, name)

    # -- the informer's side ---------------------------------------------------------------------------

    def on_add(self, obj: DeviceClass, is_initial: bool) -> None:
        self._put(obj)

    def on_update(self, old: DeviceClass, new: DeviceClass) -> None:
        self._put(new)

    def on_delete(self, obj: DeviceClass | DeletedFinalStateUnknown) -> None:
        self._drop(final_state(obj).metadata.name)
        self._changed()

    def _put(self, device_class: DeviceClass) -> None:
        name = device_class.metadata.name
        old = self._classes.get(name)
        resource = device_class.spec.extended_resource_name
        if old is not None and old.spec.extended_resource_name == resource:
            self._classes[name] = device_class
            if old.metadata.creation_timestamp != device_class.metadata.creation_timestamp:
                self._first.pop(resource or "", None)
                self._changed()
            return
        self._drop(name)
        self._classes[name] = device_class
        if resource:
            self._named.setdefault(resource, set()).add(name)
            self._first.pop(resource, None)
        self._changed()

    def _drop(self, name: str) -> None:
        old = self._classes.pop(name, None)
        resource = old.spec.extended_resource_name if old is not None else None
        if resource and resource in self._named:
            self._named[resource].discard(name)
            self._first.pop(resource, None)
            if not self._named[resource]:
                del self._named[resource]


def class_mapping(handle: Handle) -> ClassMapping:
    """Return the device classes of the scheduler. All plugins and profiles share them."""

    def make() -> ClassMapping:
        mapping = ClassMapping(handle.ask_again)
        handle.watch("deviceclasses", mapping)
        return mapping

    mapping: ClassMapping = handle.shared("device classes", make)
    return mapping
