"""Pod groups of all origins: PodGroup objects, objects of other projects, and groups that pods describe.

    pod ──reader──▶ pod with schedulingGroup ──▶ handlers, cache, queue
    object of another kind ──reader──▶ PodGroup ──▶ ReadGroups, which plugins ask instead of the informer of podgroups

Callers: :class:`.informers.Informers` and :class:`.scheduler.Scheduler`, if a profile has a plugin that is a
:class:`~.framework.group_reading.GroupReader`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from kubesched.api.groups import PodGroup, group_key
from kubesched.api.types import Pod, PodSchedulingGroup, PodSpec

from .core.port import Informer, InformerHandler
from .framework.gated_fields import PodView
from .framework.group_reading import GroupReader
from .nodes.pod_groups import PodGroupStates

__all__ = ["GroupSources", "ReadGroups", "grouped_view"]

#: Most specs with a group that are remembered; at this number all are forgotten.
_MOST_SPECS: Final = 1 << 10


def grouped_view(readers: Mapping[str, GroupReader], before: PodView | None) -> PodView:
    """Return the function that shows a pod with the group that the reader of its profile finds.

    ``readers`` are by scheduler name; pods of other schedulers stay as they are. ``before`` is applied first. Members
    of one group that share a spec share it afterwards, too, so that what depends on the spec is found once.
    """
    #: Spec and the same with a group, by the spec's identity, which nothing else can have while the spec is kept.
    known: dict[tuple[int, str], tuple[PodSpec, PodSpec]] = {}

    def grouped(spec: PodSpec, name: str) -> PodSpec:
        key = (id(spec), name)
        if (found := known.get(key)) is not None:
            return found[1]
        made = msgspec.structs.replace(spec, scheduling_group=PodSchedulingGroup(pod_group_name=name))
        if not spec.node_name:  # specs with a node are not shared
            if len(known) >= _MOST_SPECS:
                known.clear()
            known[key] = spec, made
        return made

    def seen(pod: Pod) -> Pod:
        if before is not None:
            pod = before(pod)
        reader = readers.get(pod.spec.scheduler_name)
        if reader is None or pod.spec.scheduling_group is not None:
            return pod
        name = reader.group_name(pod)
        if not name:
            return pod
        return msgspec.structs.replace(pod, spec=grouped(pod.spec, name))

    return seen


class GroupSources:
    """Source of the changes of groups: the informers of all their kinds."""

    def __init__(self, informers: Sequence[Informer]) -> None:
        self._informers = informers

    def add_handler(self, handler: InformerHandler) -> None:
        for informer in self._informers:
            informer.add_handler(handler)


class ReadGroups(Mapping[str, PodGroup]):
    """Groups by ``namespace/name``. A PodGroup object comes before objects of other kinds, and these before pods.

    Groups that were read have no UID. Their priority is that of a member, as other kinds name a class of which the
    scheduler does not know the value. Their members are evicted one by one.
    """

    def __init__(
        self,
        native: Mapping[str, PodGroup],
        others: Sequence[Mapping[str, PodGroup]],
        states: PodGroupStates,
        readers: Mapping[str, GroupReader],
    ) -> None:
        """``others`` are the groups of other kinds; ``readers`` are by scheduler name."""
        self._native = native
        self._others = others
        self._states = states
        self._readers = readers

    def __getitem__(self, key: str) -> PodGroup:
        group: PodGroup | None = self.get(key)
        if group is None:
            raise KeyError(key)
        return group

    def get(self, key: str, default: Any = None) -> Any:
        group = self._native.get(key)
        return group if group is not None else self._read(key) or default

    def of(self, pod: Pod) -> PodGroup | None:
        """Return the group of a pod as the scheduler sees it, also of one that is not known to the cache any more."""
        group: PodGroup | None = self.get(group_key(pod))
        return group if group is not None else self._implied(pod)

    def _implied(self, pod: Pod) -> PodGroup | None:
        reader = self._readers.get(pod.spec.scheduler_name)
        return reader.implied_group(pod) if reader is not None and group_key(pod) else None

    def _read(self, key: str) -> PodGroup | None:
        state = self._states.get(key)
        member = next(iter(state.all.values()), None) if state is not None else None
        group = next((group for each in self._others if (group := each.get(key)) is not None), None)
        if member is None:
            return group
        if group is None:
            group = self._implied(member)
        if group is None or not (member.priority or group.spec.disruption_mode):
            return group
        spec = msgspec.structs.replace(group.spec, priority=member.priority, disruption_mode=None)
        return msgspec.structs.replace(group, spec=spec)

    def _keys(self) -> dict[str, None]:
        known = [*self._native, *(key for each in self._others for key in each)]
        implied = (key for key in self._states if self.get(key) is not None)
        return dict.fromkeys((*known, *implied))

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys())

    def __len__(self) -> int:
        return len(self._keys())
