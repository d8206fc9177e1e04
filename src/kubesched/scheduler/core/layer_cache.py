"""The layers of one profile: one memory budget, the least recently used go first.

Used by :mod:`.search`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sized
from typing import Final

from .layers import Layer

__all__ = ["LayerCache"]

#: Memory for the layers of one profile (bytes), at least and per node, which is enough for a thousand layers of 13 bytes a
#: row; and what is left when some had to go.
_BUDGET: Final = 112 << 20
_PER_NODE: Final = 14 << 10
_LEFT: Final = 7 / 8
#: What a layer takes besides its arrays, and what a key takes that was met once (bytes, roughly).
_LAYER_BYTES: Final = 6 << 10
_KEY_BYTES: Final = 2 << 10
#: So many are kept whatever they take.
_LEAST: Final = 8
#: Layers grow with the cluster, and a new one has no arrays yet: they are measured again whenever half as many as there
#: are were put in, but at least so many.
_MEASURE: Final = 64


def _size(item: Layer | int) -> int:
    return _KEY_BYTES if isinstance(item, int) else item.nbytes + _LAYER_BYTES


class LayerCache:
    """Keys to layers; or to when the key was met once: pods like no other do not pay for a layer that way."""

    def __init__(self, nodes: Sized) -> None:
        self._nodes = nodes
        self._kept: dict[Hashable, Layer | int] = {}
        self._bytes = 0
        #: What a layer took, on average, when they were measured; and how many items were put in since.
        self._layer_bytes = _LAYER_BYTES
        self._puts = 0
        self._uses = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Hashable) -> Layer | None:
        """The layer of a key, if there is one; noted as used, its base after it, so that the base is dropped later."""
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
        """Whether a key was met and has no layer."""
        return isinstance(self._kept.get(key), int)

    def mark(self, key: Hashable, *, unusable: bool) -> None:
        """Note for a key without a layer that none is to be made, or that one may be again."""
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
