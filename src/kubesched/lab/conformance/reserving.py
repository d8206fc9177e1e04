"""Reserve for a pod that a sequence places; also PreBind, where only PreBind can fail.

In vectors with pods one after the other, the resources of a placed pod stay reserved. Volumes stay reserved although
their claims stay unbound, so that no later pod gets the same volumes. Devices are given back at once: the record names
the pod's devices, and they are stored in its claims (:mod:`.devices`).
"""

from __future__ import annotations

import asyncio
from typing import Any

from kubesched.base.at_once import completed
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes.podinfo import PodInfo

from .devices import ListsDevices
from .volumes import PlansVolumes
from .world import World

__all__ = ["reserved"]


def reserved(world: World, pod: PodInfo, node_name: str) -> Status | None:
    """Reserve the resources of a placed pod. Returns None, or the failed status with the plugin's name."""
    framework = world.frameworks[pod.spec.scheduler_name]
    absent = world.searches[pod.spec.scheduler_name].ask(pod).plan.absent
    if not framework.concerned(absent).reserve and not pod.has_device_requests:
        return None
    return asyncio.run(_reserved(world, pod, node_name))


async def _reserved(world: World, pod: PodInfo, node_name: str) -> Status | None:
    framework, state = world.frameworks[pod.spec.scheduler_name], CycleState()
    world.searches[pod.spec.scheduler_name].evaluate(state, pod)
    concerned = framework.concerned(state.absent)
    status = framework.reserve(state, pod, node_name)
    for plugin in framework.plugins.values():
        if status is None and isinstance(plugin, ListsDevices) and plugin not in concerned.reserve:
            status = _bound(plugin, state, pod, node_name)
    for plugin in concerned.unreserve:
        if status is not None or not isinstance(plugin, PlansVolumes):
            plugin.unreserve(state, pod, node_name)
    world.server.settle(keep=False)
    return status


def _bound(plugin: Any, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
    """Return the answer of PreBind about devices that were not reserved, as the profile lacks the plugin at Reserve.

    The recording called PreBind even if the profile lacks the plugin there, too.
    """
    status: Status | None = completed(plugin.pre_bind(state, pod, node_name))
    return None if status is None else status.with_plugin(plugin.name)
