"""Device pools of a hollow node as data: the text of an annotation in, specs of ResourceSlices out. Pure.

``docs/controllers.md``, "Hollow devices", describes the annotation ``kubesched.io/devices``. Attributes are integers,
booleans and texts, or written as in a ResourceSlice (``{version: 1.2.3}``). Every other member that a device has in a
ResourceSlice (``taints``, ``bindingConditions``, ``allowMultipleAllocations`` and so on) may be given too. A pool is
named like its node. Callers: :mod:`.device_driver`, and commands that check a text beforehand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kubesched.api.kinds import RESOURCE_SLICES
from kubesched.api.quantity import QuantityError, parse_quantity
from kubesched.api.wire import ApiError
from kubesched.api.yamltext import TextError, read_single

from ..kubelets import Entry
from ..schema import check_type, encode_clean
from .context import Data

__all__ = ["DEVICES", "DevicePool", "DevicesError", "parse_devices"]

#: Annotation of a Node that describes the devices of its hollow drivers.
DEVICES: Final = "kubesched.io/devices"

#: Members of a description that kubesched defines. All others are members of a device in a ResourceSlice.
_OWN: Final = ("name", "count", "attributes", "capacity", "perDevice", "counters", "partitions", "consumes")
_GROUP: Final = "an object with a name"
#: Most devices of one driver on a node: each takes memory, and time whenever its node is reconciled.
_MOST_OF_DRIVER: Final = 4_096
#: Most scalars, lists and mappings in a description.
_MOST_NODES: Final = 20_000
_MOST_DEVICES: Final = 128
_MOST_SPECIAL_DEVICES: Final = 64
_MOST_COUNTER_SETS: Final = 8


class DevicesError(ValueError):
    """Description that cannot be used. The message names the place and a correct form."""


@dataclass(frozen=True, slots=True)
class DevicePool:
    """Devices of one driver on a node.

    ``binding_seconds`` and ``binding_failure`` are for binding conditions. A slice holds ``slice_size`` devices.
    """

    driver: str
    devices: tuple[Data, ...]
    counter_sets: tuple[Data, ...] = ()
    binding_seconds: float = 0.0
    binding_failure: float = 0.0
    slice_size: int = _MOST_DEVICES

    def specs(self, node: str, generation: int) -> dict[str, Data]:
        """Return the specs of the pool's slices by name: slices of counters, then slices of devices.

        Counters keep their names when the number of devices changes. Devices keep theirs when the number of counters
        changes.
        """
        parts: dict[str, Data] = {}
        for field, what, items, size in (
            ("sharedCounters", "counters", self.counter_sets, _MOST_COUNTER_SETS),
            ("devices", "devices", self.devices, self.slice_size),
        ):
            for start in range(0, len(items), size):
                parts[f"{node}-{self.driver}-{what}-{start // size}"] = {field: list(items[start : start + size])}
        pool = {"name": node, "generation": generation, "resourceSliceCount": len(parts)}
        common = {"driver": self.driver, "pool": pool, "nodeName": node}
        return {name: {**common, **part} for name, part in parts.items()}


def parse_devices(text: str, source: str = f"annotation {DEVICES}") -> list[DevicePool]:
    """Return the pools that a text describes; ``source`` is its name in messages.

    Raises:
        DevicesError: naming the place and a correct form.
    """
    try:
        data = read_single(text, "list of drivers", most_nodes=_MOST_NODES)
    except TextError as error:
        raise DevicesError(error.in_file(source)) from None
    if not isinstance(data, list):
        raise DevicesError(f"{source}: expected a list of drivers, each with `driver` and `devices`")
    wanted = "an object with `driver` and `devices`"
    pools = [_pool(Entry(item, f"{source}: [{index}]", DevicesError, wanted)) for index, item in enumerate(data)]
    drivers: set[str] = set()
    for pool in pools:
        if pool.driver in drivers:
            raise DevicesError(f"{source}: driver {pool.driver!r} is given twice; put its devices into one entry")
        drivers.add(pool.driver)
    return pools


def _pool(entry: Entry) -> DevicePool:
    entry.only("driver", "devices", "binding")
    driver = entry.named("driver", "name the driver, such as gpu.example.com")
    if "devices" not in entry.data:
        raise entry.refusal("devices", "must be a list, got None")
    devices: list[Data] = []
    sets: list[Data] = []
    for group in entry.entries("devices", _GROUP):
        _expand(group, devices, sets)
    names = [device["name"] for device in devices]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise entry.refusal("", f"device {twice!r} exists twice; rename one of the groups")
    binding = entry.entry("binding")
    binding.only("seconds", "failure")
    special = any(device.get("taints") or device.get("consumesCounters") for device in devices)
    return DevicePool(
        driver,
        tuple(devices),
        tuple(sets),
        binding.number("seconds"),
        binding.number("failure", most=1.0),
        _MOST_SPECIAL_DEVICES if special else _MOST_DEVICES,
    )


def _expand(group: Entry, devices: list[Data], sets: list[Data]) -> None:
    """Add the devices of one group, and the counters their partitions share."""
    name = _name(group)
    counters, partitions = group.entry("counters"), group.entries("partitions", _GROUP)
    if bool(partitions) != bool(counters.data):
        raise group.refusal("", "counters and partitions belong together; give both, or none")
    extra = group.items("perDevice", " of attributes") or [{}]
    if not all(isinstance(item, dict) for item in extra):
        raise group.refusal("perDevice", f"must be a list of attributes, got {extra!r}")
    for number in range(_count(group, devices)):
        full = f"{name}-{number}"
        device = _device(full, group, extra[number % len(extra)])
        if counters.data:
            amounts = _amounts(counters)
            sets.append({"name": full, "counters": amounts})
            device["consumesCounters"] = [{"counterSet": full, "counters": amounts}]
        devices.append(device)
        for partition in partitions:
            part, consumed = _name(partition), partition.entry("consumes")
            if not consumed.data or consumed.data.keys() - counters.data.keys():
                known = ", ".join(counters.data)
                raise consumed.refusal("", f"must name some of the counters {known}, got {consumed.data!r}")
            taken = [{"counterSet": full, "counters": _amounts(consumed)}]
            for one in range(_count(partition, devices)):
                given = {**extra[number % len(extra)], **group.entry("attributes").data}
                devices.append({**_device(f"{full}-{part}-{one}", partition, given), "consumesCounters": taken})


def _count(entry: Entry, devices: list[Data]) -> int:
    """Return the number of devices of an entry. Refused if the driver would get more than ``_MOST_OF_DRIVER``."""
    count = entry.count("count", 1)
    if count > _MOST_OF_DRIVER - len(devices):
        raise entry.refusal("count", f"makes more than {_MOST_OF_DRIVER} devices of one driver on a node")
    return count


def _name(entry: Entry) -> str:
    return entry.named("name", "give the devices a name, such as gpu")


def _device(name: str, group: Entry, more: Mapping[str, Any]) -> Data:
    """Return one device of a group of equal devices. Attributes of the group overrule attributes in ``more``."""
    own = group.entry("attributes")
    capacity = group.entry("capacity")
    device: Data = {"name": name, **{key: value for key, value in group.data.items() if key not in _OWN}}
    attributes = {key: _attribute(own, key, value) for key, value in {**more, **own.data}.items()}
    if attributes:
        device["attributes"] = attributes
    if capacity.data:
        device["capacity"] = _amounts(capacity, formed=True)
    try:
        check_type("Device", encode_clean(device), RESOURCE_SLICES, "device")
    except ApiError as error:
        raise group.refusal("", error.message) from None
    return device


def _attribute(owner: Entry, key: str, value: Any) -> Data:
    if isinstance(value, dict):
        return value
    for kind, name in ((bool, "bool"), (int, "int"), (str, "string")):
        if isinstance(value, kind):
            return {name: value}
    wanted = "an integer, true, false, a text or an object such as {version: 1.2.3}"
    raise owner.refusal(key, f"must be {wanted}, got {value!r}")


def _amounts(entry: Entry, *, formed: bool = False) -> Data:
    """Return amounts in the form of a ResourceSlice. ``formed``: the given amounts may have that form already."""
    found: Data = {}
    for key, value in entry.data.items():
        if formed and isinstance(value, dict):
            found[key] = value
            continue
        try:
            parse_quantity(value)
        except QuantityError as error:
            raise entry.refusal(key, str(error)) from None
        found[key] = {"value": str(value)}
    return found
