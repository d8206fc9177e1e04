"""PodGroupMigration: groups of other projects are read as pod groups (PreEnqueue).

Read are pods and PodGroups of the coscheduling plugin of scheduler-plugins and of Volcano, and the plain pod groups of
Kueue. What is not honoured is logged, once for each kind. The plugin is not part of the default profile.

Sources: the documentation of the three projects. Names are on the page "Pod groups".
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Final

from kubesched.api.groups import (
    BasicSchedulingPolicy,
    GangSchedulingPolicy,
    PodGroup,
    PodGroupSchedulingPolicy,
    PodGroupSpec,
)
from kubesched.api.kinds import COSCHEDULING_GROUPS, VOLCANO_GROUPS, Kind
from kubesched.api.other_groups import OtherPodGroup
from kubesched.api.types import ObjectMeta, Pod

from ..framework.interface import Handle, Plugin
from ..framework.status import Status
from ..nodes.podinfo import PodInfo

__all__ = ["PodGroupMigration"]

_log = logging.getLogger("kubesched.scheduler")

#: Labels of pods that name a PodGroup of the coscheduling plugin: today's, and the old one.
_COSCHEDULING: Final = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")
#: Labels of the coscheduling plugin before it had objects: name and number of members.
_LIGHT_NAME: Final = "pod-group.scheduling.sigs.k8s.io/name"
_LIGHT_LEAST: Final = "pod-group.scheduling.sigs.k8s.io/min-available"
#: Annotations of pods that name a PodGroup of Volcano.
_VOLCANO: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
#: Annotation of Volcano: least number of members of the group that is made of all pods of one controller.
_VOLCANO_LEAST: Final = "scheduling.volcano.sh/group-min-member"
#: Label and annotation of Kueue's plain pods: name and number of members.
_KUEUE_NAME: Final = "kueue.x-k8s.io/pod-group-name"
_KUEUE_COUNT: Final = "kueue.x-k8s.io/pod-group-total-count"

_QUEUES: Final = "queues and quotas are not known here"
_TOPOLOGY: Final = "a PodGroup of scheduling.k8s.io has schedulingConstraints for that"
_AMOUNTS: Final = "the requests of the members count"
#: Labels and annotations of pods without an effect here, and the reason.
_IGNORED_ON_PODS: Final = {
    "kueue.x-k8s.io/pod-group-fast-admission": "a group waits for all of its members",
    "kueue.x-k8s.io/podset-preferred-topology": _TOPOLOGY,
    "kueue.x-k8s.io/podset-required-topology": _TOPOLOGY,
    "kueue.x-k8s.io/priority-class": "the priority of the pods counts",
    "kueue.x-k8s.io/queue-name": _QUEUES,
    "scheduling.volcano.sh/group-min-resources": _AMOUNTS,
    "scheduling.volcano.sh/queue-name": _QUEUES,
    "volcano.sh/preemptable": "priorities say who may be evicted",
}
#: Fields of PodGroups of other projects without an effect here, and the reason.
_IGNORED_FIELDS: Final = {
    "min_resources": ("minResources", _AMOUNTS),
    "schedule_timeout_seconds": ("scheduleTimeoutSeconds", "members hold no nodes while they wait for each other"),
    "queue": ("queue", _QUEUES),
    "priority_class_name": ("priorityClassName", "the priority of the members counts"),
    "min_task_member": ("minTaskMember", "only minMember counts"),
    "network_topology": ("networkTopology", _TOPOLOGY),
    "sub_group_policy": ("subGroupPolicy", "only minMember counts"),
}
#: Most members of a group: the greatest value of ``minCount``.
_MOST: Final = (1 << 31) - 1


class PodGroupMigration(Plugin):
    """Reader of the groups of other projects (:class:`~..framework.group_reading.GroupReader`).

    PreEnqueue holds a pod that describes its group wrongly.
    """

    name = "PodGroupMigration"
    group_kinds: Sequence[Kind] = (COSCHEDULING_GROUPS, VOLCANO_GROUPS)

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        #: Texts that were logged, so that each is logged once.
        self._said: set[str] = set()

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        if self.handle.pod_groups is None:
            self._say_once(f"{self.name} has no effect without the feature gate GenericWorkload")
            return None
        found = _described(pod.pod) if pod.spec.scheduling_group is None else None
        if found is None or _number(found[2]):
            return None
        _, field, text = found
        return Status.unresolvable(f"{field}: {text!r}; expected the number of the group's pods, 1 or more")

    # -- GroupReader -------------------------------------------------------------------------------------

    def group_name(self, pod: Pod) -> str:
        labels, annotations = pod.metadata.labels, pod.metadata.annotations
        if not labels and not annotations:
            return ""
        name = _named(pod)
        if not name and (found := _described(pod)) is not None and _number(found[2]):
            name = found[0]
        if name:
            for given in (*labels, *annotations):
                if given in _IGNORED_ON_PODS:
                    self._say("pods", given, _IGNORED_ON_PODS[given])
        return name

    def group_of(self, obj: OtherPodGroup | PodGroup) -> PodGroup:
        if isinstance(obj, PodGroup):
            return obj  # from a record of decisions
        for name, (field, why) in _IGNORED_FIELDS.items():
            if getattr(obj.spec, name) is not None:
                self._say("PodGroups of other projects", field, why)
        return _group(obj.metadata.namespace, obj.metadata.name, obj.spec.min_member)

    def implied_group(self, pod: Pod) -> PodGroup | None:
        found = None if _named(pod) else _described(pod)
        return None if found is None else _group(pod.namespace, found[0], _number(found[2]))

    def _say(self, where: str, what: str, why: str) -> None:
        self._say_once(f"{self.name}: {what} of {where} has no effect: {why}")

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            _log.warning(text)


def _named(pod: Pod) -> str:
    """Return the name of the object that is a pod's group; an empty text if it names none."""
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    names = (*(labels.get(key, "") for key in _COSCHEDULING), *(annotations.get(key, "") for key in _VOLCANO))
    return next(filter(None, names), "")


def _described(pod: Pod) -> tuple[str, str, str] | None:
    """Return name, and label or annotation with the number of members and its text, of a group without an object."""
    return next(_descriptions(pod), None)


def _descriptions(pod: Pod) -> Iterator[tuple[str, str, str]]:
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    if name := labels.get(_LIGHT_NAME, ""):
        yield name, f"metadata.labels[{_LIGHT_LEAST}]", labels.get(_LIGHT_LEAST, "")
    owner = next((one for one in pod.metadata.owner_references if one.controller), None)
    if (least := annotations.get(_VOLCANO_LEAST)) is not None and owner is not None:
        yield f"podgroup-{owner.uid}", f"metadata.annotations[{_VOLCANO_LEAST}]", least
    if name := labels.get(_KUEUE_NAME, ""):
        yield name, f"metadata.annotations[{_KUEUE_COUNT}]", annotations.get(_KUEUE_COUNT, "")


def _number(text: str) -> int:
    """Return a number of members; 0 if the text is none."""
    known = text.isascii() and text.isdecimal() and len(text) <= 10
    number = int(text) if known else 0
    return number if number <= _MOST else 0


def _group(namespace: str, name: str, least: int) -> PodGroup:
    if least < 1:
        policy = PodGroupSchedulingPolicy(basic=BasicSchedulingPolicy())
    else:
        policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=least))
    return PodGroup(metadata=ObjectMeta(namespace=namespace, name=name), spec=PodGroupSpec(scheduling_policy=policy))
