"""Device pools of a hollow node as data: the text of an annotation in, specs of ResourceSlices out. Pure.

    kubesched.io/devices: |
      - driver: gpu.example.com
        binding: {seconds: 2, failure: 0.1}  # of devices with binding conditions: how long, and how often it fails
        devices:
        - name: gpu                          # gpu-0 to gpu-7
          count: 8
          attributes: {model: A100, driverVersion: {version: 1.2.3}}
          capacity: {memory: 80Gi}
          perDevice: [{numa: 0}, {numa: 1}]  # further attributes, dealt in turn
          counters: {slices: 7}              # what its partitions share; the whole device takes all of it
          partitions:
          - name: 1g                         # gpu-0-1g-0 to gpu-0-1g-6
            count: 7
            attributes: {profile: 1g.10gb}
            capacity: {memory: 10Gi}
            consumes: {slices: 1}

Attributes are integers, booleans and texts, or written as in a ResourceSlice (``{version: 1.2.3}``). Every other member
that a device has in a ResourceSlice (``taints``, ``bindingConditions``, ``allowMultipleAllocations`` and so on) may be
given too. A pool is named like its node. Callers: :mod:`.device_driver`, and commands that check a text beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ...api.kinds import RESOURCE_SLICES
from ...api.quantity import QuantityError, parse_quantity
from ...api.wire import ApiError
from ...api.yamltext import TextError, read_single
from ..schema import check_type, encode_clean

__all__ = ["DEVICES", "DevicePool", "DevicesError", "parse_devices"]

#: The annotation of a Node that describes the devices of its hollow drivers.
DEVICES: Final = "kubesched.io/devices"

Data = dict[str, Any]

#: Members that are ours; all others are those of a device in a ResourceSlice.
_OWN: Final = ("name", "count", "attributes", "capacity", "perDevice", "counters", "partitions", "consumes")
_MOST_DEVICES: Final = 128
_MOST_SPECIAL_DEVICES: Final = 64
_MOST_COUNTER_SETS: Final = 8


class DevicesError(ValueError):
    """A description that cannot be used; the message names the place and what would be right."""


@dataclass(frozen=True, slots=True)
class DevicePool:
    """The devices of one driver on a node.

    ``binding_seconds`` and ``binding_failure`` are for binding conditions. A slice holds ``slice_size`` devices.
    """

    driver: str
    devices: tuple[Data, ...]
    counter_sets: tuple[Data, ...] = ()
    binding_seconds: float = 0.0
    binding_failure: float = 0.0
    slice_size: int = _MOST_DEVICES

    def specs(self, node: str, generation: int) -> list[Data]:
        """The specs of the pool's slices: first those of counters, then those of devices."""
        parts = [{"sharedCounters": part} for part in _chunks(self.counter_sets, _MOST_COUNTER_SETS)]
        parts += [{"devices": part} for part in _chunks(self.devices, self.slice_size)]
        pool = {"name": node, "generation": generation, "resourceSliceCount": len(parts)}
        return [{"driver": self.driver, "pool": pool, "nodeName": node, **part} for part in parts]


def _chunks(items: tuple[Data, ...], size: int) -> Iterator[list[Data]]:
    for start in range(0, len(items), size):
        yield list(items[start : start + size])


def parse_devices(text: str, source: str = f"annotation {DEVICES}") -> list[DevicePool]:
    """The pools that a text describes; ``source`` is its name in messages.

    Raises:
        DevicesError: naming the place and what would be right.
    """
    try:
        data = read_single(text, "list of drivers")
    except TextError as error:
        raise DevicesError(error.in_file(source)) from None
    if not isinstance(data, list):
        raise DevicesError(f"{source}: expected a list of drivers, each with `driver` and `devices`")
    pools = [_pool(item, f"{source}: [{index}]") for index, item in enumerate(data)]
    drivers = [pool.driver for pool in pools]
    for driver in drivers:
        if drivers.count(driver) > 1:
            raise DevicesError(f"{source}: driver {driver!r} is given twice; put its devices into one entry")
    return pools


def _pool(data: Any, where: str) -> DevicePool:
    if not isinstance(data, dict):
        raise DevicesError(f"{where}: must be an object with `driver` and `devices`, got {data!r}")
    for key in data:
        if key not in ("driver", "devices", "binding"):
            raise DevicesError(f"{where}: {key!r} is not known here; there are driver, devices, binding")
    driver = data.get("driver")
    if not isinstance(driver, str) or not driver:
        raise DevicesError(f"{where}.driver: is missing; name the driver, such as gpu.example.com")
    listed = data.get("devices")
    if not isinstance(listed, list):
        raise DevicesError(f"{where}.devices: must be a list, got {listed!r}")
    devices: list[Data] = []
    sets: list[Data] = []
    for index, entry in enumerate(listed):
        _expand(entry, f"{where}.devices[{index}]", devices, sets)
    names = [device["name"] for device in devices]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DevicesError(f"{where}: device {twice!r} exists twice; rename one of the groups")
    binding = _object(data, "binding", where)
    for key in binding:
        if key not in ("seconds", "failure"):
            raise DevicesError(f"{where}.binding: {key!r} is not known here; there are seconds, failure")
    special = any(device.get("taints") or device.get("consumesCounters") for device in devices)
    return DevicePool(
        driver,
        tuple(devices),
        tuple(sets),
        _number(binding, "seconds", f"{where}.binding"),
        _number(binding, "failure", f"{where}.binding", most=1.0),
        _MOST_SPECIAL_DEVICES if special else _MOST_DEVICES,
    )


def _expand(entry: Any, where: str, devices: list[Data], sets: list[Data]) -> None:
    """Add the devices of one group, and the counters their partitions share."""
    name = _name(entry, where)
    counters, partitions = _object(entry, "counters", where), entry.get("partitions") or []
    if not isinstance(partitions, list):
        raise DevicesError(f"{where}.partitions: must be a list, got {partitions!r}")
    if bool(partitions) != bool(counters):
        raise DevicesError(f"{where}: counters and partitions belong together; give both, or none")
    extra = entry.get("perDevice") or [{}]
    if not isinstance(extra, list) or not all(isinstance(item, dict) for item in extra):
        raise DevicesError(f"{where}.perDevice: must be a list of attributes, got {extra!r}")
    for number in range(_count(entry, where)):
        full = f"{name}-{number}"
        device = _device(full, entry, extra[number % len(extra)], where)
        if counters:
            amounts = _amounts(counters, f"{where}.counters")
            sets.append({"name": full, "counters": amounts})
            device["consumesCounters"] = [{"counterSet": full, "counters": amounts}]
        devices.append(device)
        for index, partition in enumerate(partitions):
            place = f"{where}.partitions[{index}]"
            part = _name(partition, place)
            consumed = _object(partition, "consumes", place)
            if not consumed or consumed.keys() - counters.keys():
                known = ", ".join(counters)
                raise DevicesError(f"{place}.consumes: must name some of the counters {known}, got {consumed!r}")
            taken = [{"counterSet": full, "counters": _amounts(consumed, f"{place}.consumes")}]
            for one in range(_count(partition, place)):
                given = {**extra[number % len(extra)], **_object(entry, "attributes", where)}
                devices.append({**_device(f"{full}-{part}-{one}", partition, given, place), "consumesCounters": taken})


def _device(name: str, entry: Data, more: Mapping[str, Any], where: str) -> Data:
    """One device; what a group says itself goes before ``more``, the attributes it has besides."""
    attributes = {**more, **_object(entry, "attributes", where)}
    capacity = _object(entry, "capacity", where)
    device: Data = {"name": name, **{key: value for key, value in entry.items() if key not in _OWN}}
    if attributes:
        device["attributes"] = {key: _attribute(key, value, where) for key, value in attributes.items()}
    if capacity:
        device["capacity"] = {
            key: value if isinstance(value, dict) else {"value": _amount(value, f"{where}.capacity.{key}")}
            for key, value in capacity.items()
        }
    try:
        check_type("Device", encode_clean(device), RESOURCE_SLICES, "device")
    except ApiError as error:
        raise DevicesError(f"{where}: {error.message}") from None
    return device


def _attribute(key: str, value: Any, where: str) -> Data:
    if isinstance(value, dict):
        return value
    for kind, name in ((bool, "bool"), (int, "int"), (str, "string")):
        if isinstance(value, kind):
            return {name: value}
    raise DevicesError(
        f"{where}.attributes.{key}: must be an integer, true, false, a text or an object such as "
        f"{{version: 1.2.3}}, got {value!r}"
    )


def _amounts(values: Mapping[str, Any], where: str) -> Data:
    return {key: {"value": _amount(value, f"{where}.{key}")} for key, value in values.items()}


def _amount(value: Any, where: str) -> str:
    try:
        parse_quantity(value)
    except QuantityError as error:
        raise DevicesError(f"{where}: {error}") from None
    return str(value)


def _name(entry: Any, where: str) -> str:
    if not isinstance(entry, dict):
        raise DevicesError(f"{where}: must be an object with a name, got {entry!r}")
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise DevicesError(f"{where}.name: is missing; give the devices a name, such as gpu")
    return name


def _object(entry: Data, field: str, where: str) -> Data:
    value = entry.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise DevicesError(f"{where}.{field}: must be an object, got {value!r}")
    return value


def _count(entry: Data, where: str) -> int:
    count = entry.get("count", 1)
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise DevicesError(f"{where}.count: must be an integer that is not negative, got {count!r}")
    return count


def _number(data: Data, name: str, where: str, most: float | None = None) -> float:
    value = data.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or (most and value > most):
        limit = f"between 0 and {most:g}" if most else "a number that is not negative"
        raise DevicesError(f"{where}.{name}: must be {limit}, got {value!r}")
    return float(value)
