"""Cycle state: data that an attempt carries from one extension point to the next (upstream ``CycleState``)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from .events import ClusterEvent

if TYPE_CHECKING:
    from kubesched.api.types import Pod

    from .group_trial import GroupTrial

__all__ = ["PODS_TO_ACTIVATE", "Change", "CycleState", "PodsToActivate"]

#: Reserved key of the object with the pods that the queue activates when the attempt succeeds.
PODS_TO_ACTIVATE: Final = "kubernetes.io/pods-to-activate"
#: Change that may help other pods: the event, the object before and after it.
Change: TypeAlias = tuple[ClusterEvent, Any, Any]


class PodsToActivate:
    """Pods to activate, by ``namespace/name``; all clones of a cycle state share them."""

    __slots__ = ("pods",)

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}

    def clone(self) -> PodsToActivate:
        return self


class CycleState:
    """Data of one attempt, by key (rules/framework §5).

    A value that AddPod or RemovePod changes needs a method ``clone()``; clones of the state share all other values.

    Attributes:
        skip_filter, skip_score, skip_pre_bind: names of the plugins that answered Skip at the point before.
        parallel_pre_bind: names of the plugins whose PreBind may run in parallel.
        absent: names of the plugins that have nothing to do for the pod.
        given_back: changes by Unreserve that no watch shows. The queue is told of them if the binding failed. Not upstream's.
        group: the trial of the pod's group that the attempt is part of; None for a pod on its own, and again once the
            group's placement is final.
        skip_all_post_filter: True if PostFilter is not to run.
        pre_filter_ended_by: name of the PreFilter plugin that ended the point early; empty if none did.
        record_plugin_metrics: True if the attempt records how long each plugin takes.
    """

    __slots__ = (
        "_values",
        "absent",
        "given_back",
        "group",
        "parallel_pre_bind",
        "pre_filter_ended_by",
        "record_plugin_metrics",
        "skip_all_post_filter",
        "skip_filter",
        "skip_pre_bind",
        "skip_score",
    )

    def __init__(self) -> None:
        self._values: dict[Hashable, Any] = {}
        self.record_plugin_metrics = False
        self.absent: frozenset[str] = frozenset()
        self.given_back: tuple[Change, ...] = ()
        self.group: GroupTrial | None = None
        self.skip_filter: frozenset[str] = frozenset()
        self.skip_score: frozenset[str] = frozenset()
        self.skip_pre_bind: frozenset[str] = frozenset()
        self.parallel_pre_bind: frozenset[str] = frozenset()
        self.skip_all_post_filter = False
        self.pre_filter_ended_by = ""

    def read(self, key: Hashable) -> Any:
        """Return the value of ``key``.

        Raises:
            KeyError: ``not found`` when nothing was written.
        """
        try:
            return self._values[key]
        except KeyError:
            raise KeyError("not found") from None

    def get(self, key: Hashable) -> Any | None:
        """Return the value of ``key``, or None."""
        return self._values.get(key)

    def write(self, key: Hashable, value: Any) -> None:
        self._values[key] = value

    def delete(self, key: Hashable) -> None:
        self._values.pop(key, None)

    def adopt(self, other: CycleState) -> None:
        """Copy all values of another state into this one."""
        self._values.update(other._values)

    def clone(self) -> CycleState:
        """Return a copy in which AddPod and RemovePod can be tried."""
        twin = CycleState.__new__(CycleState)
        twin._values = {key: value.clone() if hasattr(value, "clone") else value for key, value in self._values.items()}
        twin.absent = self.absent
        twin.given_back = ()
        twin.group = self.group
        twin.record_plugin_metrics = self.record_plugin_metrics
        twin.skip_filter, twin.skip_score = self.skip_filter, self.skip_score
        twin.skip_pre_bind, twin.parallel_pre_bind = self.skip_pre_bind, self.parallel_pre_bind
        twin.skip_all_post_filter = self.skip_all_post_filter
        twin.pre_filter_ended_by = self.pre_filter_ended_by
        return twin
