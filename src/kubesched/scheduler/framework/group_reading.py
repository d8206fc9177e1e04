"""Group reader: a plugin that finds pod groups in labels, annotations and objects of other projects.

The scheduler shows the pods of the plugin's profile with the ``schedulingGroup`` that the reader finds, and looks up
groups through it. So everything about pod groups works for them. Caller: :mod:`kubesched.scheduler.read_groups`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from kubesched.api.groups import PodGroup
from kubesched.api.kinds import Kind
from kubesched.api.types import Pod

__all__ = ["GroupReader"]


@runtime_checkable
class GroupReader(Protocol):
    """Plugin that reads groups. Its methods are pure, and must not raise."""

    @property
    def group_kinds(self) -> Sequence[Kind]:
        """Return the kinds of objects that are groups; the first one with a group's name counts."""
        ...

    def group_name(self, pod: Pod) -> str:
        """Return the name of the group of a pod without ``schedulingGroup``; an empty text if it has none."""
        ...

    def group_of(self, obj: Any) -> PodGroup:
        """Return an object of :attr:`group_kinds` as a group."""
        ...

    def implied_group(self, pod: Pod) -> PodGroup | None:
        """Return the group that a member describes by itself; None if its group has to be an object."""
        ...
