"""Which waiting pods a deleted pod cannot help: what a plugin may add to its hints.

A preemptor waits for its own victims. Hint functions see the pod and the deleted one only, so every deletion would have
every preemptor tried again in vain, which grows with the square of their number. A plugin that knows better implements
:class:`Holder`; the queue then keeps such pods apart, by key, and evaluates each key once per deletion.
"""

from __future__ import annotations

from collections.abc import Hashable
from collections.abc import Set as AbstractSet
from typing import Protocol, runtime_checkable

from ..nodes.podinfo import PodInfo

__all__ = ["Holder"]


@runtime_checkable
class Holder(Protocol):
    """A plugin that holds pods back from deletions on nodes that cannot help them."""

    def hold_key(self, pod: PodInfo, rejectors: AbstractSet[str]) -> Hashable | None:
        """What pods have in common that the same deletions may help; None when any may.

        ``rejectors`` are the plugins that rejected the pod.
        """
        ...

    def may_help(self, key: Hashable, node_name: str) -> bool:
        """Whether the deletion of a pod on this node may help the pods with this key that are not nominated there."""
        ...

    def may_help_nominated(self, pod: PodInfo, key: Hashable, node_name: str) -> bool:
        """Whether it may help a pod that is nominated to the node and has this key now."""
        ...
