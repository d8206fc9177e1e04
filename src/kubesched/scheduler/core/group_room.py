"""Room for a pod group, before its members are collected: can there be enough of it for the quorum?

Every change of the cluster that may help a member wakes each group that waits for it. For most of these groups the
change is too small. So when a member is popped that was rejected before, the rows of the node table are asked first
how many members they hold at most. They are asked through the signature layer, which evaluates the changed rows alone.
If that is too little, the member goes back at once. The others are not touched.

The answer is a bound, never an estimate: a group that would fit is always tried.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from kubesched.api.groups import PodGroup
from kubesched.api.requests import has_actual_resources
from kubesched.api.types import Pod

from ..framework.failures import PluginFailedError
from ..framework.queued import QueuedPodInfo
from ..framework.runtime import Framework
from ..nodes.pod_groups import PodGroupStates
from ..nodes.podinfo import PodInfo
from ..nodes.templates import PodTemplates
from .profiles import Profile
from .search import Room

__all__ = ["QUORUM", "GroupRoom", "least_of"]

#: Plugin by which a gang waits for its quorum.
QUORUM: Final = "GangScheduling"
#: Most kinds of members, by spec, that are counted; groups with more kinds are tried.
_KINDS: Final = 4


def least_of(group: PodGroup, framework: Framework) -> int:
    """Return the number of members that must have a node together."""
    gang = group.spec.scheduling_policy.gang
    return gang.min_count if gang is not None and QUORUM in dict(framework.points["permit"]) else 1


class GroupRoom:
    """Bound on the members of a group that find room."""

    def __init__(
        self, states: PodGroupStates, objects: Mapping[str, PodGroup], profiles: Mapping[str, Profile]
    ) -> None:
        """``objects`` are the PodGroup objects by ``namespace/name``; ``profiles`` are by scheduler name."""
        self._states = states
        self._objects = objects
        self._profiles = profiles
        self._templates = PodTemplates()

    def shortage(self, key: str, queued: QueuedPodInfo) -> str:
        """Return why a popped member's group cannot fit as things are; "" if it must be tried.

        It must be tried, too, when it was not tried for long, when the member or the group has not been told yet, and if
        PostFilter might make room for it.
        """
        profile = self._profiles.get(queued.pod_info.spec.scheduler_name)
        was_told = queued.has_rejectors and queued.unschedulable_count > 0  # PreEnqueue rejects without a word
        if profile is None or not was_told or queued.was_flushed_from_unschedulable:
            return ""
        least = self._least(key, profile.framework)
        counts = self._kinds(key, queued)
        if not least or not counts:
            return ""
        try:
            fits = self._most(key, counts, profile)
        except PluginFailedError:
            return ""  # the trial reports it
        return f"there is room for {fits} members at most, and {least} have to be placed" if fits < least else ""

    def in_part(self) -> Iterator[Pod]:
        """Yield one member without a node of each gang whose other members have nodes, but are no quorum."""
        for key in list(self._states):
            state, group = self._states.get(key), self._objects.get(key)
            if state is None or group is None or not state.scheduled or not state.unscheduled:
                continue
            pod = next(iter(state.unscheduled.values()))
            profile = self._profiles.get(pod.spec.scheduler_name)
            if profile is not None and state.scheduled < least_of(group, profile.framework):
                yield pod

    def _least(self, key: str, framework: Framework) -> int:
        """Return the number of members that have to be placed now for the group to fit; 0 if that is not known, or the group is new."""
        group, state = self._objects.get(key), self._states.get(key)
        if group is None or state is None:
            return 0
        if group.metadata.uid and not group.status.conditions:  # a group that was only read is never told anything
            return 0
        return max(1, least_of(group, framework) - state.scheduled)

    def _kinds(self, key: str, queued: QueuedPodInfo) -> list[tuple[PodInfo, int]]:
        """Return each kind of members without a node, with their number; none if there are too many kinds."""
        counts: dict[int, int] = {}
        first: dict[int, Pod] = {}
        state = self._states.get(key)
        for pod in state.unscheduled.values() if state is not None else ():
            kind = id(pod.spec)
            counts[kind] = counts.get(kind, 0) + 1
            first.setdefault(kind, pod)
            if len(counts) > _KINDS or has_actual_resources(pod):
                return []
        own = id(queued.pod_info.pod.spec)
        return [
            (queued.pod_info if kind == own else self._templates.info(first[kind]), count)
            for kind, count in counts.items()
        ]

    @staticmethod
    def _most(key: str, counts: list[tuple[PodInfo, int]], profile: Profile) -> int:
        """Return how many of these members are placed at most; in one domain, if the group is confined."""
        wanted: dict[Hashable, int] = {}
        rooms: dict[Hashable, Room] = {}
        for pod, count in counts:
            room = None if _may_make_room(profile.framework, pod) else profile.search.room(pod, alone=len(counts) == 1)
            if room is None:
                return sum(count for _, count in counts)
            rooms[room.signature] = room
            wanted[room.signature] = wanted.get(room.signature, 0) + count
        label = _confined_by(key, profile.framework)
        column = profile.search.table.labels.column(label) if label else None
        fits: Any = 0
        for signature, (_, rows, most) in rooms.items():
            count = wanted[signature]
            held = np.minimum(most, count)
            if column is None:
                fits += min(count, int(held.sum()))
            else:  # by domain: the first number is that of rows without the label
                sums = np.bincount(column.codes[rows] + 1, held, minlength=len(column.values) + 1)
                fits = fits + np.minimum(sums[1:], count)
        return int(np.max(fits, initial=0))


def _confined_by(key: str, framework: Framework) -> str:
    """Return the label whose values are the placements of a group; "" if it may go anywhere, or a plugin decides."""
    for name, _ in framework.points["placementGenerate"]:
        plugin: Any = framework.plugins[name]
        if hasattr(plugin, "confined_by"):
            return str(plugin.confined_by(key))
    return ""


def _may_make_room(framework: Framework, pod: PodInfo) -> bool:
    """Return True if a plugin might make room for a pod or its group at PostFilter."""
    post_filters = dict(framework.points["postFilter"])
    plugins: list[Any] = [
        plugin
        for name, plugin in framework.plugins.items()
        if name in post_filters or hasattr(plugin, "post_filter_group")
    ]
    return any(not hasattr(plugin, "may_make_room") or plugin.may_make_room(pod) for plugin in plugins)
