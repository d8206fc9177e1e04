"""The order of the active queue, from a QueueSort plugin.

A plugin gives a sort key, or only a comparison, from which a key is made here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from kubesched.framework.queued import QueuedPodInfo

__all__ = ["Less", "Order", "order_of"]

#: A smaller value is popped first.
Order = Callable[[QueuedPodInfo], Any]
Less = Callable[[QueuedPodInfo, QueuedPodInfo], bool]


def order_of(sort_key: Order | None, less: Less | None) -> Order:
    """The sort key, or one made of ``less``.

    Raises:
        ValueError: when neither is given.
    """
    if sort_key is not None:
        return sort_key
    if less is None:
        raise ValueError("the queue needs a sort_key or a less function")
    return lambda record: _LessOrder(less, record)


class _LessOrder:
    """A key that compares by ``less``, over a copy of the record that later updates do not change."""

    __slots__ = ("_less", "_record")

    def __init__(self, less: Less, record: QueuedPodInfo) -> None:
        self._less = less
        self._record = copy.copy(record)

    def __lt__(self, other: _LessOrder) -> bool:
        return self._less(self._record, other._record)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _LessOrder):
            return NotImplemented
        return not (self._less(self._record, other._record) or self._less(other._record, self._record))

    __hash__ = None  # type: ignore[assignment]
