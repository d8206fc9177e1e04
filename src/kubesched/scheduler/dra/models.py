"""Models of devices: all data that decides when devices are chosen, without the device's name and node.

Devices of one model get equal answers, so a selector is evaluated once per model. Quantities are parsed here, once,
into nano-units.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec

from kubesched.api.cel.values import DefaultMap, EvaluationError, Semver, parse_semver
from kubesched.api.quantity import Quantity, parse_quantity
from kubesched.api.resource import CapacityRequestPolicy, Device, DeviceAttribute, DeviceTaint
from kubesched.base.kept import remembered

from .features import Features

__all__ = ["MOST_REMEMBERED", "NO_SCALAR", "Capacity", "Consumption", "DeviceModel", "DeviceModels", "attribute_of"]

#: Most entries of a table of computed values; a table that would grow larger is emptied.
MOST_REMEMBERED: Final = 1 << 17
#: Taint effects that keep a device from being allocated.
_BLOCKING: Final = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Capacity:
    value: int
    text: str | int | float
    policy: CapacityRequestPolicy | None


#: Counter set, and the amount (nano-units) that a device uses of each of its counters.
Consumption = tuple[str, tuple[tuple[str, int], ...]]


class DeviceModel:
    """Model of all devices of one driver that differ in name and node only.

    ``id`` counts models from 0. ``device`` is one of the devices, without its name. ``shared`` is set if a device may
    be allocated several times.
    """

    def __init__(self, number: int, frame: int, driver: str, device: Device, features: Features) -> None:
        self.id = number
        #: Number that is equal for models which differ in the values of attributes only.
        self.frame = frame
        self.driver = driver
        self.device = device
        self.shared = bool(device.allow_multiple_allocations) and features.consumable_capacity
        self.has_binding_conditions = bool(device.binding_conditions)
        self.taints: tuple[DeviceTaint, ...] = (
            tuple(taint for taint in device.taints if taint.effect in _BLOCKING) if features.device_taints else ()
        )
        self.capacity: dict[str, Capacity] = {
            name: Capacity(parse_quantity(entry.value).nanos, entry.value, entry.request_policy)
            for name, entry in device.capacity.items()
        }
        self.consumes: tuple[Consumption, ...] = tuple(
            (
                item.counter_set,
                tuple((name, parse_quantity(counter.value).nanos) for name, counter in item.counters.items()),
            )
            for item in device.consumes_counters
        )
        self._lists = features.list_type_attributes

    @cached_property
    def variables(self) -> dict[str, Any]:
        """Return the device as the variables of a selector.

        Raises:
            EvaluationError: when an attribute has no usable value, whether or not the selector reads it.
        """
        if self.problem:
            raise EvaluationError(self.problem)
        attributes: DefaultMap = DefaultMap()
        for name, attribute in self.device.attributes.items():
            domain, key = self._split(name)
            attributes.setdefault(domain, {})[key] = self._value(attribute)
        capacity: DefaultMap = DefaultMap()
        for name, entry in self.capacity.items():
            domain, key = self._split(name)
            capacity.setdefault(domain, {})[key] = Quantity(entry.value)
        fields = {
            "driver": self.driver,
            "allowMultipleAllocations": bool(self.device.allow_multiple_allocations),
            "attributes": attributes,
            "capacity": capacity,
        }
        return {"device": fields, **{f"device.{name}": value for name, value in fields.items()}}

    @cached_property
    def problem(self) -> str:
        """Reason why the device cannot be given to a selector as its variables; "" if it can."""
        for name, attribute in self.device.attributes.items():
            try:
                self._value(attribute)
            except EvaluationError as error:
                return f"attribute {name}: {error}"
        return ""

    def projection(self, names: tuple[tuple[str, str], ...]) -> Hashable:
        """Key that distinguishes the model for readers of these attributes only, given as (domain, ID) pairs."""
        attributes, driver = self.device.attributes, self.driver
        values = [
            (attributes.get(f"{domain}/{key}"), attributes.get(key) if domain == driver else None)
            for domain, key in names
        ]
        return self.frame, self.problem, tuple(values)

    def _split(self, name: str) -> tuple[str, str]:
        domain, slash, key = name.partition("/")
        return (domain, key) if slash else (self.driver, name)

    def _value(self, attribute: DeviceAttribute) -> Any:
        if attribute.int_value is not None:
            return attribute.int_value
        if attribute.bool_value is not None:
            return attribute.bool_value
        if attribute.string_value is not None:
            return attribute.string_value
        if attribute.version_value is not None:
            return _version(attribute.version_value)
        if self._lists:
            for values in (attribute.int_values, attribute.bool_values, attribute.string_values):
                if values is not None:
                    return list(values)
            if attribute.version_values is not None:
                return [_version(text) for text in attribute.version_values]
        raise EvaluationError("unsupported attribute value")


@remembered(1 << 20)
def _version(text: str) -> Semver:
    try:
        return parse_semver(text)
    except EvaluationError as error:
        raise EvaluationError(f"parse semantic version: {error}") from None


#: Stands for the type and value of an attribute without a single value, such as a list.
NO_SCALAR: Final[tuple[str, Any]] = ("", None)


def attribute_of(model: DeviceModel, name: str) -> tuple[str, Any] | None:
    """Type and value of a fully qualified attribute; None when the device lacks it, :data:`NO_SCALAR` for a list.

    An attribute of the driver's own domain may be written without it.
    """
    attributes = model.device.attributes
    attribute = attributes.get(name)
    if attribute is None:
        domain, _, key = name.partition("/")
        if domain != model.driver or not key:
            return None
        attribute = attributes.get(key)
        if attribute is None:
            return None
    if attribute.string_value is not None:
        return "string", attribute.string_value
    if attribute.int_value is not None:
        return "int", attribute.int_value
    if attribute.bool_value is not None:
        return "bool", attribute.bool_value
    if attribute.version_value is not None:
        return "version", attribute.version_value
    return NO_SCALAR


class DeviceModels:
    """Models of the existing devices, by content. Model numbers are never used again."""

    def __init__(self, features: Features) -> None:
        self._features = features
        self._known: WeakValueDictionary[tuple[int, bytes], DeviceModel] = WeakValueDictionary()
        self._frames: dict[tuple[str, bytes], int] = {}
        self._model_numbers = count()
        self._frame_numbers = count()

    def of(self, driver: str, device: Device) -> DeviceModel:
        encode = msgspec.json.encode
        bare = msgspec.structs.replace(
            device, name="", node_name=None, node_selector=None, all_nodes=None, attributes={}
        )
        frame = self._frame(driver, encode(bare))
        key = (frame, encode(device.attributes))
        model = self._known.get(key)
        if model is None:
            whole = msgspec.structs.replace(bare, attributes=device.attributes)
            model = DeviceModel(next(self._model_numbers), frame, driver, whole, self._features)
            self._known[key] = model
        return model

    def _frame(self, driver: str, content: bytes) -> int:
        frame = self._frames.get((driver, content))
        if frame is None:
            if len(self._frames) >= MOST_REMEMBERED:
                self._frames.clear()
            frame = self._frames[driver, content] = next(self._frame_numbers)
        return frame
