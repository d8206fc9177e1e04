"""The order of the active queue, from a QueueSort plugin.

A plugin gives a sort key, or only a comparison, from which a key is made here. Neither can break the queue: where a
plugin raises, the two pods are ordered by priority and waiting time, and the failure is logged.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from typing import Any

from ..framework.queued import QueuedPodInfo, by_priority

__all__ = ["Order", "order_of"]

_log = logging.getLogger("kubesched.scheduler.queue")

#: A smaller value is popped first.
Order = Callable[[QueuedPodInfo], Any]


def order_of(plugin: Any) -> Order:
    """Sort key by a QueueSort plugin: its ``sort_key`` where it has one, else one made of its ``less``."""
    # The default order is what a guard falls back to, so it needs none.
    return by_priority if getattr(plugin, "sort_key", None) is by_priority else _Guard(plugin).order


class _Guard:
    """Calls of one QueueSort plugin, with the default order where a call fails."""

    def __init__(self, plugin: Any) -> None:
        self._plugin = plugin
        self._has_key = hasattr(plugin, "sort_key")
        self._failures = 0

    def order(self, record: QueuedPodInfo) -> _Place:
        """The record's place, which later updates of the record do not change."""
        if not self._has_key:
            return _Place(self, copy.copy(record), by_priority(record), usable=True)
        key, usable = None, True
        try:
            key = self._plugin.sort_key(record)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            usable = False
            self._failed("sort_key", error)
        return _Place(self, key, by_priority(record), usable=usable)

    def less(self, first: Any, second: Any) -> bool | None:
        """Whether the first of two records, or of two keys, comes first; None when the plugin fails."""
        try:
            return bool(first < second) if self._has_key else bool(self._plugin.less(first, second))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._failed("sort_key" if self._has_key else "less", error)
            return None

    def _failed(self, method: str, error: BaseException) -> None:
        """Log the first failure with its traceback, then the 10th, the 100th and so on."""
        self._failures += 1
        if self._failures == 1:
            what = "QueueSort plugin %s failed in %s; pods that it fails for are ordered by priority and waiting time"
            _log.error(what, self._plugin.name, method, exc_info=error)
        elif str(self._failures).strip("0") == "1":
            _log.error("QueueSort plugin %s has failed %d times", self._plugin.name, self._failures)


class _Place:
    """A pod's place in the order of a plugin."""

    __slots__ = ("_default", "_guard", "_is_usable", "_value")

    def __init__(self, guard: _Guard, value: Any, default: tuple[int, float], *, usable: bool) -> None:
        """``value`` is the plugin's key or a copy of the record; ``default`` the place where the plugin fails."""
        self._guard = guard
        self._value = value
        self._default = default
        self._is_usable = usable

    def __lt__(self, other: _Place) -> bool:
        answer = self._guard.less(self._value, other._value) if self._is_usable and other._is_usable else None
        return self._default < other._default if answer is None else answer

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Place):
            return NotImplemented
        return not (self < other or other < self)

    __hash__ = None  # type: ignore[assignment]
