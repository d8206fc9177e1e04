"""Order of the active queue, from a QueueSort plugin.

A plugin has a sort key, or only a comparison; this module makes a key of the comparison. A plugin cannot break the
queue: if it raises, the two pods are ordered by priority and waiting time, and the failure is logged.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from typing import Any

from ..framework.queued import QueuedPodInfo, by_priority

__all__ = ["Order", "order_of"]

_log = logging.getLogger("kubesched.scheduler.queue")

#: Function from a queued pod to its sort key; the pod with the smallest key is popped first.
Order = Callable[[QueuedPodInfo], Any]


def order_of(plugin: Any) -> Order:
    """Return the order of a QueueSort plugin: its ``sort_key`` if it has one, else an order made of its ``less``."""
    # The default order needs no guard: a guard would fall back to that same order.
    return by_priority if getattr(plugin, "sort_key", None) is by_priority else _Guard(plugin).order


class _Guard:
    """Guard around the calls of one QueueSort plugin: if a call fails, the default order counts."""

    def __init__(self, plugin: Any) -> None:
        self._plugin = plugin
        self._has_key = hasattr(plugin, "sort_key")
        self._failures = 0

    def order(self, record: QueuedPodInfo) -> _Place:
        """Return the record's place in the order. Later updates of the record do not change it."""
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
        """Return True if the first of two records, or of two keys, comes first; None when the plugin fails."""
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
    """Place of a pod in a plugin's order."""

    __slots__ = ("_default", "_guard", "_is_usable", "_value")

    def __init__(self, guard: _Guard, value: Any, default: tuple[int, float], *, usable: bool) -> None:
        """``value`` is the plugin's key, or a copy of the record. ``default`` is the place if the plugin fails.

        ``usable`` is False if the plugin failed to make the key.
        """
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
