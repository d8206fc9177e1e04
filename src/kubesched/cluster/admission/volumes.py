"""Checks of volumes: those of pods and PersistentVolumes have exactly one source; and what containers mount exists.

Callers: :mod:`.pod_validation`, :mod:`.kind_validation`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from ...api.decode import from_builtins
from ...api.kinds import VOLUMES
from ...api.types import NodeSelector
from ..schema import types
from .validation import Causes, check_node_selector, check_quantities

__all__ = ["check_mounts", "check_volume", "volume_sources"]

Data = dict[str, Any]
#: Fields that hold the source of a volume are those of these types.
_SUFFIX: Final = "VolumeSource"


@cache
def volume_sources(type_: str) -> tuple[str, ...]:
    """The fields of a type that are sources of volumes."""
    return tuple(name for name, field in types()[type_].fields.items() if field.type.endswith(_SUFFIX))


def _given(owner: Mapping[str, Any], type_: str) -> list[str]:
    return [name for name in volume_sources(type_) if owner.get(name) is not None]


def _check_single(given: Sequence[str], path: str, causes: Causes) -> None:
    for name in given[1:]:
        causes.forbidden(f"{path}.{name}", "may not specify more than 1 volume type")


def check_mounts(spec: Data, causes: Causes, claimed: Iterable[str] = ()) -> None:
    """The volumes of a pod spec, and those that its containers mount; ``claimed`` are volumes that a set will add."""
    names = set(claimed)
    for index, volume in enumerate(spec.get("volumes") or ()):
        names.add(volume.get("name"))
        _check_single(_given(volume, "Volume"), f"spec.volumes[{index}]", causes)
    for path, container in _containers(spec):
        places: set[str] = set()
        for index, mount in enumerate(container.get("volumeMounts") or ()):
            where, name, place = f"{path}.volumeMounts[{index}]", mount.get("name"), mount.get("mountPath")
            if name and name not in names:
                causes.not_found(f"{where}.name", name)
            if place and place in places:
                causes.invalid(f"{where}.mountPath", place, "must be unique")
            places.add(place)
        for index, device in enumerate(container.get("volumeDevices") or ()):
            if device.get("name") and device["name"] not in names:
                causes.not_found(f"{path}.volumeDevices[{index}].name", device["name"])


def _containers(spec: Data) -> Iterator[tuple[str, Data]]:
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            yield f"spec.{field}[{index}]", container


def check_volume(data: Data, causes: Causes) -> None:
    """A PersistentVolume."""
    spec = data["spec"]
    capacity = spec.get("capacity") or {}
    for name, amount in check_quantities(VOLUMES, capacity, "spec.capacity", causes).items():
        if amount.nanos == 0:
            causes.invalid(f"spec.capacity[{name}]", str(capacity[name]), "must be greater than zero")
    modes = spec.get("accessModes") or ()
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        causes.forbidden("spec.accessModes", "may not use ReadWriteOncePod with other access modes")
    given = _given(spec, "PersistentVolumeSpec")
    if not given:
        causes.required("spec", "must specify a volume type")
    _check_single(given, "spec", causes)
    affinity = spec.get("nodeAffinity") or {}
    if affinity.get("required"):
        check_node_selector(from_builtins(affinity["required"], NodeSelector), "spec.nodeAffinity.required", causes)
    elif "local" in given and not affinity:
        causes.required("spec.nodeAffinity", "Local volume requires node affinity")
