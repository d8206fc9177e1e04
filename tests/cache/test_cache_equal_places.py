"""Places of equal numbers, few and many distinct ones, against a plain count."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kubesched.scheduler.nodes.columns import equal_places


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 3), max_size=40))
def test_every_distinct_number_is_found_once_with_all_its_places(numbers: list[int]) -> None:
    found = [(number, places.tolist()) for number, places in equal_places(np.array(numbers, np.uint64))]
    wanted = [(number, [place for place, other in enumerate(numbers) if other == number]) for number in set(numbers)]
    assert found == sorted(wanted)
