"""Keys are in order whenever they are read, whatever was written before."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from kubesched.cluster.store import key_order
from kubesched.cluster.store.key_order import KeyOrder

NUMBERS = st.integers(0, 30)


@given(st.lists(st.one_of(st.none(), NUMBERS), max_size=200), st.integers(0, 20), st.sampled_from([1, 3, 64]))
def test_the_order_is_that_of_a_sorted_set(steps: list[int | None], most_gone: int, step_size: int) -> None:
    """A number adds its key, or removes the key when it is there; None reads."""
    order = KeyOrder()
    wanted: set[tuple[str, str]] = set()
    with patch.object(key_order, "_MOST_GONE", most_gone), patch.object(key_order, "_STEP", step_size):
        for step in [*steps, None]:
            if step is None:
                assert order.read() == sorted(wanted)
                continue
            key = ("default", f"{step:02}")
            if key in wanted:
                wanted.remove(key)
                order.remove(key)
            else:
                wanted.add(key)
                order.add(key)


def test_removed_keys_are_not_kept_when_nobody_reads() -> None:
    order = KeyOrder()
    for number in range(20_000):
        order.add(("default", f"{number * 7919 % 20_000:05}"))
        if number >= 100:
            order.remove(("default", f"{(number - 100) * 7919 % 20_000:05}"))
    assert len(order._order) + len(order._rest) + len(order._gone) < 500
    assert len(order.read()) == 100
