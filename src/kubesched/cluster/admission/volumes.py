"""Checks of volumes: those of pods and PersistentVolumes have exactly one source; and what containers mount exists.

Callers: :mod:`.checks`, and :mod:`.pod_checks` for mounts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final

from ..schema import types
from .validation import Causes, check_quantities, check_single

__all__ = ["check_access_modes", "check_mounts", "check_source", "check_volume", "containers_of", "volume_sources"]

Data = dict[str, Any]
#: Fields that hold the source of a volume are those of these types.
_SUFFIX: Final = "VolumeSource"


@cache
def volume_sources(type_: str) -> tuple[str, ...]:
    """The fields of a type that are sources of volumes."""
    return tuple(name for name, field in types()[type_].fields.items() if field.type.endswith(_SUFFIX))


def check_source(owner: Data, type_: str, path: str, causes: Causes) -> None:
    """A volume of a pod or a PersistentVolume has exactly one source."""
    check_single(owner, volume_sources(type_), path, causes, "volume")


def check_mounts(spec: Data, path: str, causes: Causes, claimed: Iterable[str] = ()) -> None:
    """What the containers of a pod spec mount; ``claimed`` are volumes that the pods of a set get alongside their own."""
    names = {*claimed, *(volume.get("name") for volume in spec.get("volumes") or ())}
    for where, container in containers_of(spec, path):
        places: set[str] = set()
        for field in ("volumeMounts", "volumeDevices"):
            for index, mount in enumerate(container.get(field) or ()):
                name, place = mount.get("name"), mount.get("mountPath")
                if name and name not in names:
                    causes.not_found(f"{where}.{field}[{index}].name", name)
                if place and place in places:
                    causes.invalid(f"{where}.{field}[{index}].mountPath", place, "must be unique")
                places.add(place or "")


def containers_of(spec: Data, path: str) -> Iterator[tuple[str, Data]]:
    """The containers of a pod spec, first those that initialise it, with their paths."""
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            yield f"{path}.{field}[{index}]", container


def check_access_modes(spec: Data, path: str, causes: Causes) -> None:
    """The access modes of a volume or a claim."""
    modes = spec.get("accessModes") or ()
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        causes.forbidden(f"{path}.accessModes", "may not use ReadWriteOncePod with other access modes")


def check_volume(spec: Data, path: str, causes: Causes) -> None:
    """The spec of a PersistentVolume."""
    capacity = spec.get("capacity") or {}
    for name, amount in check_quantities(capacity, f"{path}.capacity", causes).items():
        if amount.nanos == 0:
            causes.invalid(f"{path}.capacity[{name}]", str(capacity[name]), "must be greater than zero")
    check_access_modes(spec, path, causes)
    check_source(spec, "PersistentVolumeSpec", path, causes)
    if spec.get("local") is not None and not spec.get("nodeAffinity"):
        causes.required(f"{path}.nodeAffinity", "Local volume requires node affinity")
