"""Pods without the fields that feature gates turn off.

Upstream asks the gate each time it reads such a field. Here the field is removed from the pod before anything reads it.
The effect is the same, and costs nothing while the gates are on. Callers: the scheduler's pod informer, and all other
code that brings pods to plugins.

Source: rules/cache-and-events §1 (pod-level resources), rules/topology §B.2 (label keys).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from kubesched.api.types import Pod

from ..config import FeatureGates

__all__ = ["POD_FIELD_GATES", "PodView", "pod_view"]

#: Function that returns a pod without a gate's fields: the pod itself if it has none of them.
PodView = Callable[[Pod], Pod]


def _without_pod_level(pod: Pod) -> Pod:
    """Remove ``spec.resources``: only the containers' requests count."""
    if pod.spec.resources is None:
        return pod
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, resources=None))


def _without_pod_level_status(pod: Pod) -> Pod:
    """Remove ``status.resources`` and ``status.allocatedResources``: only the spec's pod-level resources count."""
    if pod.status.resources is None and not pod.status.allocated_resources:
        return pod
    status = msgspec.structs.replace(pod.status, resources=None, allocated_resources={})
    return msgspec.structs.replace(pod, status=status)


def _without_label_keys(pod: Pod) -> Pod:
    """Remove ``matchLabelKeys`` from topology spread constraints: their selectors count as they are written."""
    constraints = pod.spec.topology_spread_constraints
    if not any(each.match_label_keys for each in constraints):
        return pod
    plain = tuple(msgspec.structs.replace(each, match_label_keys=()) for each in constraints)
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, topology_spread_constraints=plain))


#: Feature gate to the function that removes its fields.
POD_FIELD_GATES: Final[dict[str, PodView]] = {
    "PodLevelResources": _without_pod_level,
    "InPlacePodLevelResourcesVerticalScaling": _without_pod_level_status,
    "MatchLabelKeysInPodTopologySpread": _without_label_keys,
}


def pod_view(gates: FeatureGates) -> PodView | None:
    """Return the function that removes the fields of all gates that are off; None if all these gates are on."""
    views = [view for gate, view in POD_FIELD_GATES.items() if not gates.enabled(gate)]
    if not views:
        return None

    def seen(pod: Pod) -> Pod:
        for view in views:
            pod = view(pod)
        return pod

    return seen
