"""View of one node: the pools that it sees, in the order in which they are tried."""

from __future__ import annotations

from kubesched.api.types import Node

from .inventory import Inventory
from .pools import Pool

__all__ = ["NodeView"]


class NodeView:
    """Pools that a node sees. A new view is made when the node's slices or labels change.

    ``own`` are the node's own pools, each with its place among all pools. The other pools are the pools of ``common``.
    """

    __slots__ = ("common", "is_odd", "node", "own", "pools")

    def __init__(self, node: Node, inventory: Inventory) -> None:
        self.node = node
        own, self.common = inventory.pools_of(node)
        common = self.common
        if common is not None and not own:
            self.pools = common.pools
            self.own: tuple[tuple[int, Pool], ...] = ()
        else:
            self.pools = tuple(sorted((*own, *(common.pools if common is not None else ())), key=Pool.order))
            mine = set(own)
            self.own = tuple((place, pool) for place, pool in enumerate(self.pools) if pool in mine)
        #: True if some result on this node may be an error.
        self.is_odd = any(pool.has_odd_selectors for pool in own) or (common is not None and common.has_odd_selectors)
