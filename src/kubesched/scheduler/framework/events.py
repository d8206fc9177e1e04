"""Cluster events, which may make a pending pod schedulable, and queueing hints, which judge them.

Source: rules/queue §9, §10, rules/cache-and-events §13, §14 (upstream ``framework.ClusterEvent``, ``ActionType``,
``QueueingHintFn``).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from kubesched.api.quantity import QuantityError, parse_quantity
from kubesched.api.requests import has_actual_resources, pod_request_amounts

if TYPE_CHECKING:
    from kubesched.api.types import Node, Pod

    from ..nodes.podinfo import PodInfo

__all__ = [
    "ACTION_NAMES",
    "ASSIGNED_POD_ADD",
    "ASSIGNED_POD_DELETE",
    "ASSIGNED_POD_UPDATE",
    "FORCE_ACTIVATE",
    "NODE_ADD",
    "NODE_DELETE",
    "UNSCHEDULABLE_TIMEOUT",
    "UNSCHEDULED_POD_ADD",
    "UNSCHEDULED_POD_DELETE",
    "UNSCHEDULED_POD_UPDATE",
    "ActionType",
    "ClusterEvent",
    "ClusterEventWithHint",
    "EventResource",
    "HintFn",
    "KeyedHint",
    "QueueingHint",
    "node_events",
    "pod_events",
]


class ActionType(enum.IntFlag):
    """Kind of change of an object; a registration may combine several."""

    NONE = 0
    ADD = 1
    DELETE = 2
    UPDATE_NODE_ALLOCATABLE = 4
    UPDATE_NODE_LABEL = 8
    UPDATE_NODE_TAINT = 16
    UPDATE_NODE_CONDITION = 32
    UPDATE_NODE_ANNOTATION = 64
    UPDATE_NODE_DECLARED_FEATURE = 128
    UPDATE_POD_LABEL = 256
    UPDATE_POD_SCALE_DOWN = 512
    UPDATE_POD_TOLERATION = 1024
    UPDATE_POD_SCHEDULING_GATES_ELIMINATED = 2048
    UPDATE_POD_GENERATED_RESOURCE_CLAIM = 4096
    UPDATE = 8188
    ALL = 8191


#: Upstream's names of single actions, of Update and of All; other combinations have no name.
ACTION_NAMES: Final[dict[int, str]] = {
    ActionType.ADD: "Add",
    ActionType.DELETE: "Delete",
    ActionType.UPDATE_NODE_ALLOCATABLE: "UpdateNodeAllocatable",
    ActionType.UPDATE_NODE_LABEL: "UpdateNodeLabel",
    ActionType.UPDATE_NODE_TAINT: "UpdateNodeTaint",
    ActionType.UPDATE_NODE_CONDITION: "UpdateNodeCondition",
    ActionType.UPDATE_NODE_ANNOTATION: "UpdateNodeAnnotation",
    ActionType.UPDATE_NODE_DECLARED_FEATURE: "UpdateNodeDeclaredFeature",
    ActionType.UPDATE_POD_LABEL: "UpdatePodLabel",
    ActionType.UPDATE_POD_SCALE_DOWN: "UpdatePodScaleDown",
    ActionType.UPDATE_POD_TOLERATION: "UpdatePodToleration",
    ActionType.UPDATE_POD_SCHEDULING_GATES_ELIMINATED: "UpdatePodSchedulingGatesEliminated",
    ActionType.UPDATE_POD_GENERATED_RESOURCE_CLAIM: "UpdatePodGeneratedResourceClaim",
    ActionType.UPDATE: "Update",
    ActionType.ALL: "All",
}


class EventResource(enum.StrEnum):
    """Kind of object that an event is about.

    Plugins register for ``POD``; an event about a pod has ``ASSIGNED_POD`` or ``UNSCHEDULABLE_POD``. Other kinds can be
    named by a plain string ``<plural>.<version>.<group>``.
    """

    POD = "Pod"
    ASSIGNED_POD = "AssignedPod"
    UNSCHEDULABLE_POD = "UnschedulablePod"
    NODE = "Node"
    PERSISTENT_VOLUME = "PersistentVolume"
    PERSISTENT_VOLUME_CLAIM = "PersistentVolumeClaim"
    CSI_NODE = "storage.k8s.io/CSINode"
    CSI_DRIVER = "storage.k8s.io/CSIDriver"
    VOLUME_ATTACHMENT = "storage.k8s.io/VolumeAttachment"
    CSI_STORAGE_CAPACITY = "storage.k8s.io/CSIStorageCapacity"
    STORAGE_CLASS = "storage.k8s.io/StorageClass"
    RESOURCE_CLAIM = "resource.k8s.io/ResourceClaim"
    RESOURCE_SLICE = "resource.k8s.io/ResourceSlice"
    DEVICE_CLASS = "resource.k8s.io/DeviceClass"
    POD_GROUP = "scheduling.k8s.io/PodGroup"
    WILDCARD = "*"


_POD_RESOURCES: Final = (EventResource.ASSIGNED_POD, EventResource.UNSCHEDULABLE_POD)


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """Cluster event: a resource and an action. Either it happened, or a plugin registers for it."""

    resource: str
    action: ActionType
    custom_label: str = ""
    #: Name in metrics and logs, for example ``NodeUpdateNodeLabel``.
    label: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        label = self.custom_label or f"{self.resource}{ACTION_NAMES.get(int(self.action), '')}"
        object.__setattr__(self, "label", label)

    @property
    def is_wildcard(self) -> bool:
        return self.resource == EventResource.WILDCARD and self.action == ActionType.ALL

    def matches(self, incoming: ClusterEvent) -> bool:
        """Return True if this registration matches ``incoming`` (rules/queue §9.3)."""
        if self.is_wildcard:
            return True
        resource_matches = (
            self.resource in (EventResource.WILDCARD, incoming.resource)
            or (self.resource == EventResource.POD and incoming.resource in _POD_RESOURCES)
        )  # fmt: skip
        return resource_matches and bool(self.action & incoming.action) and int(incoming.action) <= int(self.action)

    def describe(self) -> str:
        """Return a text such as ``Pod/Delete|UpdatePodScaleDown``: every single action, sorted."""
        names = (name for bit, name in ACTION_NAMES.items() if bit.bit_count() == 1 and bit & self.action)
        return f"{self.resource}/{'|'.join(sorted(names))}"


ASSIGNED_POD_ADD: Final = ClusterEvent(EventResource.ASSIGNED_POD, ActionType.ADD)
ASSIGNED_POD_UPDATE: Final = ClusterEvent(EventResource.ASSIGNED_POD, ActionType.UPDATE)
ASSIGNED_POD_DELETE: Final = ClusterEvent(EventResource.ASSIGNED_POD, ActionType.DELETE)
UNSCHEDULED_POD_ADD: Final = ClusterEvent(EventResource.UNSCHEDULABLE_POD, ActionType.ADD)
UNSCHEDULED_POD_UPDATE: Final = ClusterEvent(EventResource.UNSCHEDULABLE_POD, ActionType.UPDATE)
UNSCHEDULED_POD_DELETE: Final = ClusterEvent(EventResource.UNSCHEDULABLE_POD, ActionType.DELETE)
NODE_ADD: Final = ClusterEvent(EventResource.NODE, ActionType.ADD)
NODE_DELETE: Final = ClusterEvent(EventResource.NODE, ActionType.DELETE)
UNSCHEDULABLE_TIMEOUT: Final = ClusterEvent(EventResource.WILDCARD, ActionType.ALL, "UnschedulableTimeout")
FORCE_ACTIVATE: Final = ClusterEvent(EventResource.WILDCARD, ActionType.ALL, "ForceActivate")


class QueueingHint(enum.Enum):
    """Answer of a hint function: QUEUE if the event is worth another attempt, else SKIP."""

    SKIP = "QueueSkip"
    QUEUE = "Queue"


#: Hint function ``(pod, old, new) -> hint``. ``old`` is None for additions, ``new`` for deletions. If it raises, that
#: counts as QUEUE.
HintFn = Callable[["PodInfo", Any, Any], QueueingHint]


@dataclass(frozen=True, slots=True)
class ClusterEventWithHint:
    """Registration of a plugin: an event, and the hint function that judges it (None: always worth another attempt).

    ``may_wake`` returns the actions of the event at which the hint may answer QUEUE for a pod that the plugin rejected;
    None stands for all actions. Explanations ask it, the queue does not.
    """

    event: ClusterEvent
    hint: HintFn | None = None
    may_wake: Callable[[PodInfo], ActionType] | None = None


@dataclass(frozen=True, slots=True)
class KeyedHint:
    """Hint function for events about objects that pods name or select. It is not called for other pods.

    Attributes:
        hint: the hint function. It must answer Skip for a pod that has none of the event's keys.
        of_pod: returns the keys of the objects that a waiting pod names or selects. Called when the pod begins to wait
            and when it changes.
        of_event: returns the keys of the objects that an event is about; None when the event may help any pod.
    """

    hint: HintFn
    of_pod: Callable[[PodInfo], Iterable[str]]
    of_event: Callable[[Any, Any], Collection[str] | None]

    def __call__(self, pod: PodInfo, old: Any, new: Any, /) -> QueueingHint:
        return self.hint(pod, old, new)


def _scaled_down(old: Pod, new: Pod) -> bool:
    if old.spec.containers == new.spec.containers and old.spec.init_containers == new.spec.init_containers:
        fixed = old.spec.overhead == new.spec.overhead and old.spec.resources == new.spec.resources
        if fixed and not (has_actual_resources(old) or has_actual_resources(new)):
            return False
    after = pod_request_amounts(new)
    return any(
        name not in after or after[name].milli() < amount.milli() for name, amount in pod_request_amounts(old).items()
    )


def pod_events(old: Pod, new: Pod) -> list[ClusterEvent]:
    """Return the events for the difference between two versions of a pod, in upstream's order (rules/queue §9.4).

    The list is never empty: without a specific difference it is the generic Update.
    """
    resource = EventResource.ASSIGNED_POD if new.spec.node_name else EventResource.UNSCHEDULABLE_POD
    actions: list[ActionType] = []
    if old.metadata.labels != new.metadata.labels:
        actions.append(ActionType.UPDATE_POD_LABEL)
    if old.spec is not new.spec or old.status is not new.status:
        if _scaled_down(old, new):
            actions.append(ActionType.UPDATE_POD_SCALE_DOWN)
        if old.spec.scheduling_gates and not new.spec.scheduling_gates:
            actions.append(ActionType.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
        if len(old.spec.tolerations) != len(new.spec.tolerations):
            actions.append(ActionType.UPDATE_POD_TOLERATION)
        if (
            old.status.resource_claim_statuses != new.status.resource_claim_statuses
            or old.status.extended_resource_claim_status != new.status.extended_resource_claim_status
        ):
            actions.append(ActionType.UPDATE_POD_GENERATED_RESOURCE_CLAIM)
    return [_event(resource, action) for action in actions or (ActionType.UPDATE,)]


_event = cache(ClusterEvent)


def node_events(old: Node, new: Node) -> list[ClusterEvent]:
    """Return the events for the difference between two versions of a node, in upstream's order (rules/queue §9.5).

    The list is empty if nothing changed that scheduling reacts to (heartbeats, images, cordoning).
    """
    actions: list[ActionType] = []
    if old.spec.unschedulable and not new.spec.unschedulable:
        actions.append(ActionType.UPDATE_NODE_TAINT)
    if not _same_quantities(old.status.allocatable, new.status.allocatable):
        actions.append(ActionType.UPDATE_NODE_ALLOCATABLE)
    if old.metadata.labels != new.metadata.labels:
        actions.append(ActionType.UPDATE_NODE_LABEL)
    if old.spec.taints != new.spec.taints:
        actions.append(ActionType.UPDATE_NODE_TAINT)
    if _conditions(old) != _conditions(new):
        actions.append(ActionType.UPDATE_NODE_CONDITION)
    if old.metadata.annotations != new.metadata.annotations:
        actions.append(ActionType.UPDATE_NODE_ANNOTATION)
    if old.status.declared_features != new.status.declared_features:
        actions.append(ActionType.UPDATE_NODE_DECLARED_FEATURE)
    return [ClusterEvent(EventResource.NODE, action) for action in actions]


def _same_quantities(old: dict[str, str | int | float], new: dict[str, str | int | float]) -> bool:
    if old == new:
        return True
    try:
        return old.keys() == new.keys() and all(parse_quantity(old[name]) == parse_quantity(new[name]) for name in old)
    except QuantityError:
        return False  # an unreadable quantity came or went: that is a difference


def _conditions(node: Node) -> dict[str, str]:
    return {condition.type: condition.status for condition in node.status.conditions}
