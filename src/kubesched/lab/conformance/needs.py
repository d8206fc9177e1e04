"""Plugins that a pod needs: the rule by which a record is "not compared: plugin X is not built".

A plugin that has nothing to do for a pod answers Skip, or zero, and can be missing without any effect on the pod's
records. For each plugin that may be missing, a rule here selects the pods for which it has something to do. The rules
are wide: they may name a plugin that would not have changed anything, but they never miss a plugin that would have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kubesched.api.types import Container
from kubesched.scheduler.config import IN_TREE
from kubesched.scheduler.nodes.podinfo import PodInfo

from .world import World

__all__ = ["missing_plugin", "missing_plugins", "not_built"]

#: Kinds of volumes that refer to a claim (rules/volumes §1, §5), and further kinds that volume plugins read.
_CLAIMS: Final = {"persistentVolumeClaim", "ephemeral"}
_EXCLUSIVE: Final = _CLAIMS | {"gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd"}
_LIMITED: Final = _CLAIMS | {
    "gcePersistentDisk", "awsElasticBlockStore", "azureDisk", "azureFile", "cinder", "vsphereVolume", "portworxVolume",
}  # fmt: skip
_DEVICE_CLASS: Final = "deviceclass.resource.kubernetes.io/"


def _volumes(sources: set[str]) -> Callable[[World, PodInfo], bool]:
    return lambda world, pod: bool(sources & world.volume_sources(pod))


def _needs_devices(world: World, pod: PodInfo) -> bool:
    if pod.spec.resource_claims:
        return True
    backed = world.device_resources
    return any(name in backed or name.startswith(_DEVICE_CLASS) for name in _requested(pod))


def _requested(pod: PodInfo) -> Iterable[str]:
    containers: tuple[Container, ...] = (*pod.spec.containers, *pod.spec.init_containers)
    for container in containers:
        yield from container.resources.requests
        yield from container.resources.limits


#: For each plugin, the test for pods that it has something to do for before PostFilter.
_NEEDS: Final[Mapping[str, Callable[[World, PodInfo], bool]]] = {
    "VolumeRestrictions": _volumes(_EXCLUSIVE),
    "NodeVolumeLimits": _volumes(_LIMITED),
    "VolumeBinding": _volumes(_CLAIMS),
    "VolumeZone": _volumes(_CLAIMS),
    "DynamicResources": _needs_devices,
    "DefaultPreemption": lambda world, pod: False,
}


def not_built(plugin: str) -> str:
    """Return the reason that reports show."""
    return f"plugin {plugin} is not built"


def missing_plugins(world: World, pod: PodInfo, point: str) -> list[str]:
    """Return upstream's plugins at a point of the pod's profile that the registry lacks, in order."""
    names = world.points[pod.spec.scheduler_name][point]
    return [name for name in names if name in IN_TREE and name not in world.registry]


def missing_plugin(world: World, pod: PodInfo) -> str | None:
    """Return the first plugin (in order of the points) that the pod needs and the registry lacks.

    A missing plugin without a rule here is needed by every pod.
    """
    for point in ("preEnqueue", "preFilter", "filter", "preScore", "score"):
        for name in missing_plugins(world, pod, point):
            if name not in _NEEDS or _NEEDS[name](world, pod):
                return name
    return None
