"""The layers of one profile: one memory budget, the least recently used go first.

Used by :mod:`.search`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

from .layers import Layer

__all__ = ["LayerCache"]

#: Memory for the layers of one profile (bytes).
_BUDGET: Final = 112 << 20
#: What a layer takes besides its arrays, and what a key takes that was met once (bytes, roughly).
_LAYER_BYTES: Final = 6 << 10
_KEY_BYTES: Final = 2 << 10
#: So many are kept whatever they take.
_LEAST: Final = 8


class LayerCache:
    """Keys to layers, or to nothing for keys that were met once.

    A layer is used together with its base, which is noted as used after it: so a base is dropped after the layers that
    stand on it.
    """

    def __init__(self) -> None:
        #: Key to a layer and what was last charged for it.
        self._kept: OrderedDict[Hashable, tuple[Layer | None, int]] = OrderedDict()
        self._charged = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Hashable) -> Layer | None:
        """The layer of a key, if there is one."""
        layer, charged = self._kept.get(key, (None, 0))
        if layer is not None:
            if charged == _LAYER_BYTES + layer.nbytes:
                self._kept.move_to_end(key)
            else:
                self.put(key, layer)  # it grew
        return layer

    def meet(self, key: Hashable) -> bool:
        """Note a key; True when it was met before. Pods like no other do not pay for a layer that way."""
        if key in self._kept:
            return True
        self.put(key, None)
        return False

    def put(self, key: Hashable, layer: Layer | None) -> None:
        """Keep a layer, and drop others beyond the budget."""
        self.drop(key)
        charge = _KEY_BYTES if layer is None else _LAYER_BYTES + layer.nbytes
        self._kept[key] = (layer, charge)
        self._charged += charge
        while self._charged > _BUDGET and len(self._kept) > _LEAST:
            self._charged -= self._kept.popitem(last=False)[1][1]

    def drop(self, key: Hashable) -> None:
        """Forget a layer, such as one that must not be used any more."""
        self._charged -= self._kept.pop(key, (None, 0))[1]
