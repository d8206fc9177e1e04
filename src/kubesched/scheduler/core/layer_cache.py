"""Cache of the layers of one profile: one memory budget for all, the least recently used are dropped first.

Used by :mod:`.search`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sized
from typing import Final

from .layers import Layer

__all__ = ["LayerCache"]

#: Least memory budget for the layers of one profile, in bytes.
_BUDGET: Final = 112 << 20
#: Memory budget for each node of the cluster, in bytes. It is enough for a thousand layers of 13 bytes a row.
_PER_NODE: Final = 14 << 10
#: Once the budget is exceeded, layers are dropped until they take this part of it.
_LEFT: Final = 7 / 8
#: Memory that a layer takes besides its arrays, in bytes, roughly.
_LAYER_BYTES: Final = 6 << 10
#: Memory that a key without a layer takes, in bytes, roughly.
_KEY_BYTES: Final = 2 << 10
#: Number of items that the cache always keeps, regardless of their memory.
_LEAST: Final = 8
#: Fewest additions after which all layers are measured again. With many items, it is half the number of items. Layers
#: have to be measured again because they grow with the cluster, and a new layer has no arrays yet.
_MEASURE: Final = 64


def _size(item: Layer | int) -> int:
    return _KEY_BYTES if isinstance(item, int) else item.nbytes + _LAYER_BYTES


class LayerCache:
    """Cache of layers, by key.

    A key that was met only once may have no layer. Its entry is then the time when it was met, as a number of uses. So
    no layer is made for a pod that is like no other pod.
    """

    def __init__(self, nodes: Sized) -> None:
        self._nodes = nodes
        self._kept: dict[Hashable, Layer | int] = {}
        self._bytes = 0
        #: Average memory of a layer at the last measurement, in bytes.
        self._layer_bytes = _LAYER_BYTES
        #: Number of items added since then.
        self._puts = 0
        self._uses = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Hashable) -> Layer | None:
        """Return the layer of a key, or None.

        Note the use of the layer and its base. The layer is dropped before the base.
        """
        layer = self._kept.get(key)
        if not isinstance(layer, Layer):
            return None
        layer.used = self._uses = self._uses + 2
        if layer.base is not None:
            layer.base.used = self._uses + 1
        return layer

    def meet(self, key: Hashable) -> bool:
        """Note a key; True when it was met before."""
        if key in self._kept:
            return True
        self._kept[key] = self._uses
        self._added(_KEY_BYTES)
        return False

    def is_met(self, key: Hashable) -> bool:
        """Return True if a key was met and has no layer."""
        return isinstance(self._kept.get(key), int)

    def mark(self, key: Hashable, *, unusable: bool) -> None:
        """Mark a key without a layer: if ``unusable``, no layer is to be made for it; otherwise one may be made."""
        if unusable:
            self.meet(key)
        else:
            self.drop(key)

    def put(self, key: Hashable, layer: Layer) -> None:
        """Keep a layer, and drop others beyond the budget."""
        self._kept[key] = layer
        self.get(key)
        self._added(self._layer_bytes)

    def _budget(self) -> int:
        return max(_BUDGET, _PER_NODE * len(self._nodes))

    def _added(self, size: int) -> None:
        self._bytes += size
        self._puts += 1
        if self._bytes > self._budget() or self._puts >= max(_MEASURE, len(self._kept) // 2):
            self._measure()

    def _measure(self) -> None:
        sizes = [_size(item) for item in self._kept.values() if not isinstance(item, int)]
        self._puts, self._bytes = 0, sum(sizes) + _KEY_BYTES * (len(self._kept) - len(sizes))
        self._layer_bytes = sum(sizes) // len(sizes) if sizes else _LAYER_BYTES
        budget = self._budget()
        if self._bytes <= budget:
            return
        used = {key: item if isinstance(item, int) else item.used for key, item in self._kept.items()}
        for key in sorted(used, key=used.__getitem__)[:-_LEAST]:
            if self._bytes <= budget * _LEFT:
                break
            self._bytes -= _size(self._kept.pop(key))

    def drop(self, key: Hashable) -> None:
        """Forget a layer, such as one that must not be used any more."""
        self._kept.pop(key, None)
