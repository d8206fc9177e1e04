"""The memory of a profile's layers: what is kept, what goes first, and what keeping count of it costs."""

from __future__ import annotations

from unittest.mock import patch

from kubesched.scheduler.core.layer_cache import LayerCache
from kubesched.scheduler.core.layers import Layer

MIB = 1 << 20
NODES = range(100)


class Counted(Layer):
    """A layer of so many bytes; counts how often they are counted."""

    counted = 0

    def __init__(self, size: int, base: Layer | None = None) -> None:
        self.size = size
        self.base = base
        self.used = 0

    @property
    def nbytes(self) -> int:
        Counted.counted += 1
        return self.size


def test_putting_a_layer_does_not_measure_all_that_are_kept() -> None:
    cache = LayerCache(NODES)
    Counted.counted = 0
    for number in range(4000):
        cache.put(number, Counted(10_000))
    assert len(cache) == 4000
    assert Counted.counted < 4 * 4000


def test_with_a_full_memory_a_layer_more_costs_only_a_few_measurements() -> None:
    with patch("kubesched.scheduler.core.layer_cache._BUDGET", 10 * MIB):
        cache = LayerCache(NODES)
        for number in range(2000):
            cache.put(number, Counted(10_000))
        Counted.counted = 0
        for number in range(2000, 4000):
            cache.put(number, Counted(10_000))
        assert Counted.counted < 20 * 2000
        assert 500 < len(cache) <= 10 * MIB // 10_000


def test_the_layers_used_longest_ago_go_first_and_a_base_after_the_layers_on_it() -> None:
    with patch("kubesched.scheduler.core.layer_cache._BUDGET", 10 * MIB):
        cache = LayerCache(NODES)
        base = Counted(10_000)
        above = Counted(10_000, base)
        cache.put("base", base)
        cache.put("above", above)
        for number in range(3000):
            cache.put(number, Counted(10_000))
            if number < 1500:
                assert cache.get("above") is above
        kept = set(cache._kept)
        assert "above" not in kept
        assert kept - {"base"} == set(range(3000 - len(kept - {"base"}), 3000))


def test_layers_that_have_grown_since_they_were_put_are_measured_as_they_are() -> None:
    with patch("kubesched.scheduler.core.layer_cache._BUDGET", 10 * MIB):
        cache = LayerCache(NODES)
        for number in range(400):
            layer = Counted(0)  # it has no arrays until it is refreshed
            cache.put(number, layer)
            layer.size = 100_000
            kept = sum(item.nbytes for item in cache._kept.values() if isinstance(item, Layer))
            assert kept < 17 * MIB
        assert kept < 11 * MIB


def test_with_more_nodes_there_is_memory_for_a_thousand_layers_of_that_many_rows() -> None:
    cache = LayerCache(range(100_000))
    for number in range(1200):
        cache.put(number, Counted(13 * 100_000))
    assert 900 < len(cache) < 1200
