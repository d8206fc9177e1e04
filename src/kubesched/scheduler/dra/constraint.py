"""Constraint of a claim during a search (rules/devices §8.8)."""

from __future__ import annotations

from kubesched.api.resource import DeviceConstraint

from .models import NO_SCALAR
from .wanted import Service, Want

__all__ = ["Constraint"]


class Constraint:
    """Constraint of a claim, with the values of the devices chosen so far."""

    def __init__(self, spec: DeviceConstraint) -> None:
        self._requests = frozenset(spec.requests)
        self._match = spec.match_attribute
        self.name = spec.match_attribute or spec.distinct_attribute or ""
        self._value: tuple[str, object] | None = None
        self._count = 0
        #: Latest value by request (upstream remembers one per request).
        self._values: dict[str, tuple[str, object]] = {}

    def _concerns(self, want: Want) -> bool:
        return not self._requests or want.request in self._requests or want.name in self._requests

    @property
    def is_distinct(self) -> bool:
        return self._match is None

    def value_for(self, want: Want) -> tuple[str, object] | None:
        """Value that a device for a want must have; None when it may have any."""
        return self._value if self._match is not None and self._count and self._concerns(want) else None

    def add(self, want: Want, service: Service) -> bool:
        """Add a device if the constraint allows it. True if it was added.

        A list attribute passes for the first device. It equals no value of a later device.
        """
        if not self._concerns(want):
            return True
        value = service.attributes[self.name]
        if value is None:
            return False
        if self._match is not None:
            if self._count == 0:
                self._value = value
            elif self._value != value or value == NO_SCALAR:
                return False
            self._count += 1
            return True
        if value in self._values.values() or (self._values and value == NO_SCALAR):
            return False
        self._values[want.request] = value
        return True

    def remove(self, want: Want) -> None:
        if not self._concerns(want):
            return
        if self._match is not None:
            self._count -= 1
        else:
            self._values.pop(want.request, None)
