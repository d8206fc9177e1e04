"""Holder: a plugin that keeps waiting pods from being tried again for deletions and changed nodes that cannot help them.

A preemptor waits for its own victims, and a pod that lacks resources for room. A hint function sees only the waiting pod
and the deleted pod or the node, so each of them would be tried again, in vain, after every deletion. That work grows with
the square of their number. A plugin that knows better implements :class:`Holder`. The queue then keeps such pods apart, by
key, and evaluates each key once per deletion, or change of a node.
"""

from __future__ import annotations

from collections.abc import Hashable
from collections.abc import Set as AbstractSet
from typing import Protocol, runtime_checkable

from ..nodes.podinfo import PodInfo

__all__ = ["Holder"]


@runtime_checkable
class Holder(Protocol):
    """Plugin that knows the nodes on which a deletion or a change cannot help a waiting pod."""

    def hold_key(self, pod: PodInfo, rejectors: AbstractSet[str]) -> Hashable | None:
        """Return a key: pods with equal keys may be helped by the same deletions and changed nodes. None when any may help.

        ``rejectors`` are the names of the plugins that rejected the pod.
        """
        ...

    def may_help(self, key: Hashable, node_name: str) -> bool:
        """Return True if the deletion of a pod on a node, or a change of the node, may help pods with this key that are not
        nominated to it.
        """
        ...

    def may_help_nominated(self, pod: PodInfo, key: Hashable, node_name: str) -> bool:
        """Return True if the deletion of a pod on a node, or a change of the node, may help ``pod``, which is nominated to it
        and has ``key``.
        """
        ...
