"""Allocations that are decided and not written, and how long they count."""

from __future__ import annotations

from dra_kit import claim, results

from kubesched.scheduler.plugins.dynamic_resources.in_flight import InFlight


def test_an_allocation_counts_until_its_last_sharer_is_done() -> None:
    changes: list[str] = []
    in_flight = InFlight(changes.append)
    first, second = (claim(allocation=results(device)) for device in ("gpu-0", "gpu-1"))
    in_flight.signal("u", first)
    in_flight.signal("u", second)
    assert in_flight.allocation("u") == first.status.allocation  # the first one stays
    assert list(in_flight.claims()) == [first]
    assert not in_flight.maybe_remove("u")
    assert "u" in in_flight
    assert in_flight.maybe_remove("u")
    assert (in_flight.allocation("u"), len(in_flight)) == (None, 0)
    assert changes == ["u", "u"]


def test_a_written_allocation_ends_for_all_sharers() -> None:
    in_flight = InFlight(lambda uid: None)
    in_flight.signal("u", claim(allocation=results("gpu-0")))
    in_flight.signal("u", claim(allocation=results("gpu-0")))
    assert in_flight.maybe_remove("u", force=True)
    assert not in_flight.maybe_remove("u", force=True)
    assert not in_flight.maybe_remove("other")
