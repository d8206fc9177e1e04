"""Plugins that have something to do for a pod at the points after the choice of a node.

When a pod has no question to a plugin whose class of questions says ``throughout``, the plugin is left out at these
points, too: its Reserve and PreBind would return at once. A plugin whose class says ``for_groups`` is left out at Permit
for pods that belong to no group. Made by
:class:`~kubesched.scheduler.framework.runtime.Framework`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Concerned", "Concerns"]


@dataclass(frozen=True, slots=True, eq=False)
class Concerned:
    """Plugins to call for a pod, in order, by point, after the choice of a node.

    Attributes:
        reserve: Reserve plugins with a method ``reserve``.
        unreserve: Reserve plugins with a method ``unreserve``, in reverse order.
        permit_alone: Permit plugins for a pod that belongs to no group.
        pre_bind_pre_flight: PreBind plugins with a method ``pre_bind_pre_flight``.
    """

    reserve: tuple[Any, ...]
    unreserve: tuple[Any, ...]
    permit: tuple[Any, ...]
    permit_alone: tuple[Any, ...]
    pre_bind: tuple[Any, ...]
    pre_bind_pre_flight: tuple[Any, ...]
    bind: tuple[Any, ...]
    post_bind: tuple[Any, ...]


class Concerns:
    """Finder of the plugins of one profile that have something to do for a pod."""

    def __init__(self, points: Mapping[str, Sequence[Any]], throughout: frozenset[str]) -> None:
        """``points``: point key to plugins, in order. ``throughout``: names of the plugins that may be left out."""
        self._points = points
        self._throughout = throughout
        self._known: dict[frozenset[str], Concerned] = {}

    def without(self, absent: frozenset[str]) -> Concerned:
        """Return the plugins for a pod that has no question to the ``absent`` plugins."""
        found = self._known.get(absent)
        if found is None:
            found = self._known[absent] = self._without(absent & self._throughout)
        return found

    def _without(self, left_out: frozenset[str]) -> Concerned:
        def at(point: str, method: str = "") -> tuple[Any, ...]:
            plugins = (plugin for plugin in self._points[point] if plugin.name not in left_out)
            return tuple(plugin for plugin in plugins if not method or hasattr(plugin, method))

        return Concerned(
            reserve=at("reserve", "reserve"),
            unreserve=at("reserve", "unreserve")[::-1],
            permit=at("permit"),
            permit_alone=tuple(plugin for plugin in at("permit") if not getattr(plugin, "for_groups", False)),
            pre_bind=at("preBind"),
            pre_bind_pre_flight=at("preBind", "pre_bind_pre_flight"),
            bind=at("bind"),
            post_bind=at("postBind"),
        )
