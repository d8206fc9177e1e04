"""What-if changes leave no trace: the table is the same before and after, whatever happens in between."""

from __future__ import annotations

import pytest
from cache_kit import NODES, PODS, add, node_like, picture, pod_like
from hypothesis import given
from hypothesis import strategies as st

from builders import a_node, a_pod, a_port
from kubesched.scheduler.cache import Cache
from kubesched.scheduler.cache.check import check_cache, check_table
from kubesched.scheduler.nodes.podinfo import PodInfo

_variants = st.integers(0, len(PODS) - 1)


class StopError(Exception):
    pass


@given(
    nodes=st.lists(st.integers(0, len(NODES) - 1), min_size=1, max_size=4),
    there=st.lists(st.tuples(st.integers(0, 3), _variants), max_size=10),
    taken=st.sets(st.integers(0, 9)),
    extra=st.lists(st.tuples(st.integers(0, 3), _variants), max_size=3),
    fails=st.booleans(),
)
def test_what_if_changes_are_undone(
    nodes: list[int],
    there: list[tuple[int, int]],
    taken: set[int],
    extra: list[tuple[int, int]],
    fails: bool,
) -> None:
    cache = Cache()
    for index, variant in enumerate(nodes):
        cache.set_node(node_like(variant, f"n{index}"))
    pods = [pod_like(variant, f"p{index}", f"n{at % len(nodes)}") for index, (at, variant) in enumerate(there)]
    # Seen before, so that the pods of a what-if bring no new resource.
    add(cache, *(pod_like(variant, f"seen{variant}", "n0") for variant in range(len(PODS))))
    add(cache, *pods)
    # One of two holders of a port may be gone already: the port is free, its other holder still there.
    cache.remove_pod(pod_like(1, "seen1"))
    snapshot = cache.snapshot()
    before = picture(cache.table)
    assert check_cache(cache) == []
    victims = [pods[index] for index in sorted(taken) if index < len(pods)]
    pairs = [(snapshot.get(pod.spec.node_name), cache.pods[pod.uid]) for pod in victims]

    def play() -> None:
        with snapshot.without(pairs):
            assert check_table(cache.table) == []
            for pod in victims:
                assert pod.uid not in snapshot.get(pod.spec.node_name).pods
            for index, (at, variant) in enumerate(extra):
                node = snapshot.get(f"n{at % len(nodes)}")
                guest = PodInfo(pod_like(variant, f"guest{index}", node.name))
                with snapshot.with_pods(node, [guest]):
                    assert list(node.pods)[-1] == guest.uid
                    assert check_table(cache.table) == []
            if fails:
                raise StopError

    if fails:
        with pytest.raises(StopError):
            play()
    else:
        play()
    assert picture(cache.table) == before
    assert check_cache(cache) == []


def test_a_victim_that_is_not_there_changes_nothing() -> None:
    cache = Cache()
    cache.set_node(a_node("a"))
    cache.set_node(a_node("b"))
    add(cache, a_pod("p", on="a", cpu="1", ports=[a_port(80)]))
    snapshot, before = cache.snapshot(), picture(cache.table)
    pod = cache.pods["p-uid"]
    with pytest.raises(KeyError, match="p-uid"), snapshot.without([(snapshot.get("a"), pod), (snapshot.get("b"), pod)]):
        raise AssertionError("not reached")
    assert picture(cache.table) == before


def test_without_shows_the_resources_that_would_be_free() -> None:
    cache = Cache()
    cache.set_node(a_node("a", cpu="4"))
    add(cache, a_pod("p", on="a", cpu="3", ports=[a_port(80)], claims=["c"]))
    snapshot = cache.snapshot()
    node = snapshot.get("a")
    position = cache.table.journal.position
    with snapshot.without([(node, cache.pods["p-uid"])]):
        assert node.requested.milli_cpu == 0
        assert int(cache.table.requested[0, node.row]) == 0
        assert cache.table.port_rows == {}
        assert not snapshot.is_pvc_used("ns/c")
    assert node.requested.milli_cpu == 3000
    assert cache.table.journal.position == position


def test_the_order_of_the_pods_is_kept_through_a_what_if() -> None:
    cache = Cache()
    cache.set_node(a_node("a"))
    add(cache, *(a_pod(name, on="a") for name in "xyz"))
    snapshot = cache.snapshot()
    node = snapshot.get("a")
    with snapshot.without([(node, cache.pods["x-uid"]), (node, cache.pods["y-uid"])]):
        assert list(node.pods) == ["z-uid"]
    assert list(node.pods) == ["x-uid", "y-uid", "z-uid"]


def test_a_list_of_nodes_is_a_sequence_in_the_order_of_its_rows() -> None:
    cache = Cache()
    for name in "abc":
        cache.set_node(a_node(name))
    nodes = cache.snapshot().nodes()
    assert len(nodes) == 3
    assert [node.name for node in nodes] == nodes.names() == ["a", "b", "c"]
    assert nodes[1].name == "b"
    assert [cache.table.info(row).name for row in nodes.rows.tolist()] == ["a", "b", "c"]
