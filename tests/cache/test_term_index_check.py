"""The check of the term index: it only looks, and it finds what is wrong."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
from term_kit import ZONE, a_cache, a_node, a_pod, anti_affinity, pods_of

from kubesched.api.decode import from_builtins
from kubesched.api.selectors import required_node_affinity
from kubesched.api.types import PodSpec
from kubesched.scheduler.cache import Cache
from kubesched.scheduler.cache.check import check_cache
from kubesched.scheduler.nodes.domain_counts import DomainCounts, RowMask


def an_observed_cache() -> tuple[Cache, list[DomainCounts]]:
    """Carried terms and rules with and without arrays; sums that are up to date, behind, and masked."""
    cache = a_cache()
    table, index = cache.table, cache.table.terms
    for number in range(4):
        cache.add_pod(a_pod(f"p{number}", f"n{number + 1}", {"app": "web"}, affinity=anti_affinity("web")))
    cache.add_pod(a_pod("p4", "n1", {}, affinity=anti_affinity("nobody")))
    index.counter(pods_of("db"))
    web = index.counter(pods_of("web"))
    [carried] = index.anti_terms("default", {"app": "web"})
    match = required_node_affinity(from_builtins({"containers": [], "nodeSelector": {"zone": "a"}}, PodSpec))
    held = [
        index.domains(web, ZONE),
        index.domains(carried, ZONE),
        DomainCounts(table, web, ZONE, RowMask(table, (ZONE,), match, lambda taints: not taints)),
        DomainCounts(table, None, ZONE, RowMask(table, (ZONE,))),
    ]
    for domains in held:
        domains.sync()
    cache.add_pod(a_pod("p5", "n2", {"app": "web"}))
    cache.remove_pod(cache.pods["p2"].pod)
    held[0].sync()
    return cache, held


def state_of(cache: Cache) -> Any:
    """All that the index and its readers keep, by identity where an array may not be replaced."""
    index = cache.table.terms
    counters = [*index.sets().values(), *index.carried().values()]
    return (
        [(id(item._dense), item.log.position, item.used, list(item.domains), dict(item.by_row)) for item in counters],
        [
            (id(item.counts), item.counts.tolist(), item._steps and item._steps._position, item._version)
            for item in cache.table.readers
        ],
        [(id(item._mask.rows), item._mask.version) for item in cache.table.readers if item._mask is not None],
        list(cache.table.labels.items()),
        list(index._awake),
        index._tick,
    )


def test_a_check_leaves_everything_as_it_was() -> None:
    cache, held = an_observed_cache()
    index = cache.table.terms
    without_arrays = [counter for counter in [*index.sets().values(), *index.carried().values()] if not counter.domains]
    assert len(without_arrays) == 2
    before = state_of(cache)
    assert check_cache(cache) == []
    assert state_of(cache) == before
    assert all(counter._dense is None for counter in without_arrays)
    cache.set_node(a_node("n4", zone="a", rack="r"))
    cache.remove_node("n1")
    before = state_of(cache)
    assert check_cache(cache) == []
    assert state_of(cache) == before
    for domains in held:
        domains.sync()
    assert check_cache(cache) == []


def test_what_the_last_carrier_leaves_behind_goes_with_it() -> None:
    cache = a_cache()
    index = cache.table.terms
    cache.add_pod(a_pod("p", "n1", {"app": "web"}, affinity=anti_affinity("web")))
    index.domains(index.anti_terms("default", {"app": "web"})[0], ZONE)
    index.domains(index.counter(pods_of("web")), ZONE)
    gc.disable()
    try:
        cache.remove_pod(cache.pods["p"].pod)
        assert [domains.counter for domains in cache.table.readers] == [index.counter(pods_of("web"))]
    finally:
        gc.enable()


def test_a_check_forgets_sums_without_a_holder() -> None:
    cache, held = an_observed_cache()
    assert len(cache.table.readers) == len(held)
    del held[2:]
    assert len(cache.table.readers) == len(held)


def _spoil_class(cache: Cache, held: list[DomainCounts]) -> None:
    group = next(iter(cache.table.terms.classes().values()))
    group.by_row[next(iter(group.by_row))] += 1


def _spoil_class_list(cache: Cache, held: list[DomainCounts]) -> None:
    next(group for group in cache.table.terms.classes().values() if group.counters).counters.clear()


def _spoil_rule_list(cache: Cache, held: list[DomainCounts]) -> None:
    cache.table.terms.sets()[pods_of("web")].classes.clear()


def _spoil_carried(cache: Cache, held: list[DomainCounts]) -> None:
    next(iter(cache.table.terms.carried().values())).by_row[0] += 1


def _lose_carried(cache: Cache, held: list[DomainCounts]) -> None:
    cache.table.terms.carried().popitem()


def _spoil_rule(cache: Cache, held: list[DomainCounts]) -> None:
    cache.table.terms.sets()[pods_of("db")].by_row[1] = 1


def _spoil_total(cache: Cache, held: list[DomainCounts]) -> None:
    cache.table.terms.sets()[pods_of("db")].total = 1


def _spoil_array(cache: Cache, held: list[DomainCounts]) -> None:
    cache.table.terms.sets()[pods_of("web")].dense(cache.table.capacity)[3] += 1


def _spoil_log(cache: Cache, held: list[DomainCounts]) -> None:
    cache.table.terms.sets()[pods_of("web")].log._entries[-1] = 0


def _kill_rule(cache: Cache, held: list[DomainCounts]) -> None:
    cache.table.terms.sets()[pods_of("db")].live = False


def _spoil_sum(place: int) -> Callable[[Cache, list[DomainCounts]], None]:
    def spoil(cache: Cache, held: list[DomainCounts]) -> None:
        held[place].counts[0] += 1

    return spoil


def _spoil_sum_total(cache: Cache, held: list[DomainCounts]) -> None:
    held[2].total += 1


def _spoil_absent(cache: Cache, held: list[DomainCounts]) -> None:
    held[1].counts[-1] = 1


def _spoil_present(cache: Cache, held: list[DomainCounts]) -> None:
    held[3].present[:] = False


def _spoil_mask(cache: Cache, held: list[DomainCounts]) -> None:
    assert held[2]._mask is not None
    held[2]._mask.rows[2] = True


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (_spoil_class, "pod class"),
        (_spoil_class_list, "do not agree"),
        (_spoil_rule_list, "do not agree"),
        (_spoil_carried, "carried term"),
        (_lose_carried, "the carried terms are not those"),
        (_spoil_rule, "counted rule"),
        (_spoil_total, "a counter's total is 1"),
        (_spoil_array, "a counter's array differs"),
        (_spoil_log, "domains of zone"),
        (_kill_rule, "a counter's total"),
        (_spoil_sum(0), "domains of zone"),
        (_spoil_sum(1), "domains of zone"),
        (_spoil_sum(2), "domains of zone"),
        (_spoil_sum(3), "domains of zone"),
        (_spoil_sum_total, "the totals of zone"),
        (_spoil_absent, "the totals of zone"),
        (_spoil_present, "domains of zone"),
        (_spoil_mask, "a mask of ('zone',)"),
    ],
)
def test_a_check_finds_what_was_spoilt(spoil: Callable[[Cache, list[DomainCounts]], None], found: str) -> None:
    cache, held = an_observed_cache()
    assert check_cache(cache) == []
    spoil(cache, held)
    problems = check_cache(cache)
    assert any(found in problem for problem in problems), problems
    if found.startswith("a mask"):
        assert sum(found in problem for problem in problems) == 1, "said once"


def test_a_mask_that_two_sums_share_is_reported_once() -> None:
    cache, held = an_observed_cache()
    other = DomainCounts(cache.table, None, "rack", held[2]._mask)
    other.sync()
    assert check_cache(cache) == []
    _spoil_mask(cache, held)
    assert sum("a mask of ('zone',)" in problem for problem in check_cache(cache)) == 1
