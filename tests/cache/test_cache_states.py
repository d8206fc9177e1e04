"""The life of a pod in the cache: each cell of the state table, and who pays for the pod meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cache_kit import add

from builders import a_node, a_pod, info
from kubesched.api.types import Pod
from kubesched.scheduler.cache import Cache, CacheError
from kubesched.scheduler.cache.check import check_cache, compare_with_server
from kubesched.scheduler.nodes.podinfo import PodInfo

INITIAL, ASSUMED, ADDED = "Initial", "Assumed", "Added"

pod = a_pod("p", on="a", cpu="1")
elsewhere = a_pod("p", on="b", cpu="1")


def in_state(state: str) -> Cache:
    cache = Cache()
    for name in "ab":
        cache.set_node(a_node(name))
    if state == ASSUMED:
        cache.assume_pod(PodInfo(pod))
    elif state == ADDED:
        cache.add_pod(PodInfo(pod))
    return cache


def state_of(cache: Cache, uid: str = "p-uid") -> str:
    if cache.get_pod(uid) is None:
        assert not cache.is_assumed(uid)
        return INITIAL
    return ASSUMED if cache.is_assumed(uid) else ADDED


def cpu_on(cache: Cache, name: str) -> int:
    return cache.snapshot().get(name).requested.milli_cpu


Call = Callable[[Cache], None]
CALLS: dict[str, Call] = {
    "assume": lambda cache: cache.assume_pod(PodInfo(pod)),
    "forget": lambda cache: cache.forget_pod(pod),
    "forget elsewhere": lambda cache: cache.forget_pod(elsewhere),
    "add": lambda cache: cache.add_pod(PodInfo(pod)),
    "add elsewhere": lambda cache: cache.add_pod(PodInfo(elsewhere)),
    "update": lambda cache: cache.update_pod(pod, PodInfo(a_pod("p", on="a", cpu="3"))),
    "update to another node": lambda cache: cache.update_pod(pod, PodInfo(elsewhere)),
    "update to another uid": lambda cache: cache.update_pod(pod, PodInfo(a_pod("p", uid="other", on="a", cpu="3"))),
    "remove": lambda cache: cache.remove_pod(pod),
    "remove without knowing the node": lambda cache: cache.remove_pod(a_pod("p", cpu="1")),
}

#: State, call, state afterwards, cpu on (a, b) afterwards, error text.
CELLS: list[tuple[str, str, str, tuple[int, int], str]] = [
    (INITIAL, "assume", ASSUMED, (1000, 0), ""),
    (ASSUMED, "assume", ASSUMED, (1000, 0), "pod p-uid(ns/p) is in the cache, so can't be assumed"),
    (ADDED, "assume", ADDED, (1000, 0), "pod p-uid(ns/p) is in the cache, so can't be assumed"),
    (INITIAL, "forget", INITIAL, (0, 0), ""),
    (ASSUMED, "forget", INITIAL, (0, 0), ""),
    (ASSUMED, "forget elsewhere", ASSUMED, (1000, 0), "pod p-uid(ns/p) was assumed on b but assigned to a"),
    (ADDED, "forget", ADDED, (1000, 0), "pod p-uid(ns/p) wasn't assumed so cannot be forgotten"),
    (ADDED, "forget elsewhere", ADDED, (1000, 0), "pod p-uid(ns/p) was assumed on b but assigned to a"),
    (INITIAL, "add", ADDED, (1000, 0), ""),
    (ASSUMED, "add", ADDED, (1000, 0), ""),
    (ASSUMED, "add elsewhere", ADDED, (0, 1000), ""),
    (ADDED, "add", ADDED, (1000, 0), "pod p-uid(ns/p) was already in added state"),
    (INITIAL, "update", INITIAL, (0, 0), "pod p-uid(ns/p) is not added to scheduler cache, so cannot be updated"),
    (ASSUMED, "update", ASSUMED, (1000, 0), "assumed pod p-uid(ns/p) should not be updated"),
    (ADDED, "update", ADDED, (3000, 0), ""),
    (ADDED, "update to another node", ADDED, (1000, 0), "pod p-uid(ns/p) moved from node a to b, which cannot happen"),
    (INITIAL, "remove", INITIAL, (0, 0), "pod p-uid(ns/p) is not found in scheduler cache, so cannot be removed from it"),
    (ASSUMED, "remove", INITIAL, (0, 0), ""),
    (ADDED, "remove", INITIAL, (0, 0), ""),
    (ADDED, "remove without knowing the node", INITIAL, (0, 0), ""),
]  # fmt: skip


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell[0]}: {cell[1]}")
def test_cell(cell: tuple[str, str, str, tuple[int, int], str]) -> None:
    before, call, after, charged, error = cell
    cache = in_state(before)
    if error:
        with pytest.raises(CacheError) as caught:
            CALLS[call](cache)
        assert str(caught.value).startswith(error)
    else:
        CALLS[call](cache)
    assert state_of(cache) == after
    assert (cpu_on(cache, "a"), cpu_on(cache, "b")) == charged
    assert check_cache(cache) == []


@pytest.mark.parametrize("method", ["assume_pod", "forget_pod", "add_pod", "remove_pod"])
def test_a_pod_without_uid_has_no_key(method: str) -> None:
    nameless = a_pod(uid="", on="a")
    cache = in_state(INITIAL)
    with pytest.raises(CacheError, match=r"^cannot get cache key for pod with empty UID$"):
        getattr(cache, method)(PodInfo(nameless) if method in ("assume_pod", "add_pod") else nameless)
    assert check_cache(cache) == []


def test_an_update_may_bring_another_pod_of_the_same_name() -> None:
    cache = in_state(ADDED)
    CALLS["update to another uid"](cache)
    assert state_of(cache) == INITIAL
    assert state_of(cache, "other") == ADDED
    assert cpu_on(cache, "a") == 3000
    assert check_cache(cache) == []


def test_forgetting_twice_is_forgetting_once() -> None:
    cache = in_state(ASSUMED)
    CALLS["forget"](cache)
    CALLS["forget"](cache)
    assert state_of(cache) == INITIAL


def test_a_pod_assumed_on_one_node_and_confirmed_on_another_can_be_updated_there() -> None:
    cache = in_state(ASSUMED)
    CALLS["add elsewhere"](cache)
    cache.update_pod(elsewhere, PodInfo(a_pod("p", on="b", cpu="2")))
    assert (cpu_on(cache, "a"), cpu_on(cache, "b")) == (0, 2000)
    assert list(cache.snapshot().get("a").pods) == []


def test_confirming_what_was_assumed_notifies_no_reader_when_nothing_counts_differently() -> None:
    cache = in_state(ASSUMED)
    before = cache.table.journal.position
    CALLS["add"](cache)
    assert cache.table.journal.position == before
    CALLS["update"](cache)
    assert cache.table.journal.position > before


def test_what_is_removed_is_what_was_charged() -> None:
    """The API server may show another object than the one accounted."""
    cache = in_state(ADDED)
    cache.remove_pod(a_pod("p", on="a", cpu="3"))
    assert cpu_on(cache, "a") == 0
    assert check_cache(cache) == []


def test_the_cache_compares_itself_with_the_server() -> None:
    cache = Cache()
    cache.set_node(a_node("a"))
    cache.set_node(a_node("b"))
    add(cache, a_pod("x", on="a"), a_pod("y", on="ghost"))
    queued: list[Pod] = [a_pod("q")]
    known = [a_pod("x"), a_pod("y"), a_pod("q")]
    assert compare_with_server(cache, [a_node("a"), a_node("b"), a_node("ghost")], known, queued) == []
    assert compare_with_server(cache, [a_node("a"), a_node("c")], [a_pod("x"), a_pod("z")]) == [
        "Cache mismatch: missedNodes=['c'] redundantNodes=['b', 'ghost']",
        "Cache mismatch: missedPods=['z-uid'] redundantPods=['y-uid']",
    ]


def test_the_order_of_the_pods_on_a_node_is_that_of_their_coming() -> None:
    cache = in_state(INITIAL)
    add(cache, *(a_pod(name, on="a") for name in "xyz"))
    cache.remove_pod(a_pod("x", on="a"))
    add(cache, a_pod("w", on="a"))
    assert [item.name for item in cache.snapshot().get("a").pods.values()] == ["y", "z", "w"]
    assert info(name="v").key == "ns/v"
