"""Which plugins concern a pod: those that have nothing to do for it are left out once, not at every extension point.

A plugin says so by ``concerns`` (see :class:`~kubesched.framework.interface.Contract`). Pods that the same plugins
concern share a :class:`Concerned`. Made by :class:`~kubesched.framework.runtime.Framework`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .podinfo import PodInfo
from .status import Status

__all__ = ["NOT_CONCERNED", "Concerned", "Concerns", "PreEnqueueMethod"]

_log = logging.getLogger("kubesched.framework")

PreEnqueueMethod = Callable[[PodInfo], Status | None]


class _NotConcerned:
    """The signature of a pod that does not concern a plugin; equal to no signature that a plugin gives."""

    def __repr__(self) -> str:
        return "NOT_CONCERNED"


NOT_CONCERNED: Final = _NotConcerned()


@dataclass(frozen=True, slots=True, eq=False)
class Concerned:
    """The plugins that concern a pod, in order, at the points that call them for each pod.

    Attributes:
        owner: who found them: another profile has other plugins.
        absent: names of the profile's plugins that the pod does not concern.
        pre_enqueue: name to method.
        reserve: those with the method ``reserve``.
        unreserve: those with the method ``unreserve``, in reverse order.
        pre_bind_pre_flight: those of ``pre_bind`` with the method of that name.
    """

    owner: Concerns
    absent: frozenset[str]
    pre_enqueue: Mapping[str, PreEnqueueMethod]
    reserve: tuple[Any, ...]
    unreserve: tuple[Any, ...]
    permit: tuple[Any, ...]
    pre_bind: tuple[Any, ...]
    pre_bind_pre_flight: tuple[Any, ...]
    bind: tuple[Any, ...]
    post_bind: tuple[Any, ...]


class Concerns:
    """Finds the plugins of one profile that concern a pod."""

    def __init__(
        self,
        plugins: Iterable[Any],
        points: Mapping[str, Sequence[Any]],
        pre_enqueue: Mapping[str, PreEnqueueMethod],
    ) -> None:
        """``points``: point key to plugins in order; ``pre_enqueue``: plugin name to what the queue calls."""
        prepared = {plugin.name for plugin in points["preFilter"]}
        #: One that the profile has without its PreFilter is called for every pod: it may fail for the lack of its state.
        self._asked = [
            (plugin.name, plugin.concerns)
            for plugin in plugins
            if hasattr(plugin, "concerns") and (plugin.name in prepared or not hasattr(plugin, "pre_filter"))
        ]
        self._points = points
        self._pre_enqueue = pre_enqueue
        self._known: dict[frozenset[str], Concerned] = {}

    def of(self, pod: PodInfo) -> Concerned:
        """The plugins that concern the pod; kept in the pod.

        One that fails to answer is called at its points.
        """
        found: Concerned | None = pod.concerned
        if found is None or found.owner is not self:
            absent = frozenset([name for name, concerns in self._asked if not _concerns(name, concerns, pod)])
            found = pod.concerned = self._of(absent)
        return found

    def _of(self, absent: frozenset[str]) -> Concerned:
        found = self._known.get(absent)
        if found is None:
            found = self._known[absent] = self._without(absent)
        return found

    def _without(self, absent: frozenset[str]) -> Concerned:
        def at(point: str, method: str = "") -> tuple[Any, ...]:
            plugins = (plugin for plugin in self._points[point] if plugin.name not in absent)
            return tuple(plugin for plugin in plugins if not method or hasattr(plugin, method))

        return Concerned(
            owner=self,
            absent=absent,
            pre_enqueue={plugin.name: self._pre_enqueue[plugin.name] for plugin in at("preEnqueue")},
            reserve=at("reserve", "reserve"),
            unreserve=at("reserve", "unreserve")[::-1],
            permit=at("permit"),
            pre_bind=at("preBind"),
            pre_bind_pre_flight=at("preBind", "pre_bind_pre_flight"),
            bind=at("bind"),
            post_bind=at("postBind"),
        )


def _concerns(name: str, concerns: Callable[[PodInfo], bool], pod: PodInfo) -> bool:
    try:
        return bool(concerns(pod))
    except KeyboardInterrupt:
        raise
    except BaseException:
        _log.exception("plugin %s failed in concerns", name)
        return True
