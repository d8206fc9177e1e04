"""Nodes in the cache: their order, nodes that are not there, images, ports and claims."""

from __future__ import annotations

import pytest
from cache_kit import add, picture

from builders import MIB, a_container, a_node, a_pod, a_port, an_image
from kubesched.api.quantity import QuantityError
from kubesched.api.types import ContainerImage
from kubesched.scheduler.cache import Cache, CacheError
from kubesched.scheduler.cache.check import check_cache
from kubesched.scheduler.nodes.node_tree import NodeTree, zone_key
from kubesched.scheduler.nodes.podinfo import PodInfo

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
OLD_ZONE, OLD_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"


# -- zones and order ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "labels", "want"),
    [
        ("no labels", {}, ""),
        ("a zone", {ZONE: "z"}, ":\x00:z"),
        ("a region", {REGION: "r"}, "r:\x00:"),
        ("both", {ZONE: "z", REGION: "r"}, "r:\x00:z"),
        ("deprecated labels", {OLD_ZONE: "z", OLD_REGION: "r"}, "r:\x00:z"),
        ("the deprecated label wins", {OLD_ZONE: "old", ZONE: "new"}, ":\x00:old"),
        ("even when it is empty", {OLD_ZONE: "", ZONE: "new"}, ""),
        ("each label for itself", {OLD_ZONE: "old", ZONE: "new", REGION: "r"}, "r:\x00:old"),
    ],
)
def test_zone_key(name: str, labels: dict[str, str], want: str) -> None:
    assert zone_key(labels) == want, name


def tree_of(**zones: str) -> NodeTree:
    tree = NodeTree()
    for zone, names in zones.items():
        for name in names:
            tree.add(name, {ZONE: zone})
    return tree


def test_the_order_goes_round_the_zones() -> None:
    tree = tree_of(z1="abc", z2="d", z3="ef")
    assert tree.order() == ["a", "d", "e", "b", "f", "c"]
    assert len(tree) == 6
    assert "f" in tree
    assert "g" not in tree


def test_a_zone_that_empties_comes_back_at_the_end() -> None:
    tree = tree_of(z1="ab", z2="cd")
    assert tree.remove("a")
    assert tree.remove("b")
    assert not tree.remove("b")
    assert tree.order() == ["c", "d"]
    tree.add("a", {ZONE: "z1"})
    assert tree.order() == ["c", "a", "d"]


def test_a_node_moves_to_the_end_of_its_new_zone_and_only_then() -> None:
    tree = tree_of(z1="ab", z2="cd")
    assert not tree.add("a", {ZONE: "z1", "other": "label"})
    assert tree.add("a", {ZONE: "z2"})
    assert tree.order() == ["b", "c", "d", "a"]


def test_an_empty_tree_has_an_empty_order() -> None:
    assert NodeTree().order() == []
    assert len(Cache().snapshot().nodes()) == 0


def test_the_list_of_nodes_is_made_again_for_added_and_removed_nodes_not_when_a_zone_changes() -> None:
    cache = Cache()
    for name, zone in zip("abcd", ("1", "1", "2", "2"), strict=True):
        cache.set_node(a_node(name, zone=zone))
    assert cache.snapshot().nodes().names() == ["a", "c", "b", "d"]
    cache.set_node(a_node("a", zone="2"))
    assert cache.snapshot().nodes().names() == ["a", "c", "b", "d"]
    cache.set_node(a_node("e", zone="3"))
    assert cache.snapshot().nodes().names() == ["b", "c", "e", "d", "a"]
    cache.remove_node("c")
    assert cache.snapshot().nodes().names() == ["b", "d", "e", "a"]


# -- nodes that are not there ------------------------------------------------------------------------------


def test_pods_that_come_before_their_node_wait_on_an_imaginary_one() -> None:
    cache = Cache()
    add(cache, a_pod("p", on="n", cpu="1"))
    assert len(cache.snapshot().nodes()) == 0
    with pytest.raises(KeyError, match='nodeinfo not found for node name "n"'):
        cache.snapshot().get("n")
    assert cache.get_pod("p-uid") is not None
    with pytest.raises(CacheError, match=r"^node n is not found$"):
        cache.remove_node("n")
    cache.set_node(a_node("n"))
    assert cache.snapshot().get("n").requested.milli_cpu == 1000
    assert check_cache(cache) == []


def test_a_node_that_leaves_before_its_pods_becomes_a_ghost_and_goes_with_the_last() -> None:
    cache = Cache()
    cache.set_node(a_node("n", images=[an_image("app:1", 1)]))
    add(cache, a_pod("p", on="n", cpu="1"), a_pod("q", on="n", cpu="1"))
    cache.remove_node("n")
    assert len(cache.table) == 0
    assert cache.table.images.states == {}
    assert [node.name for node in cache.table.all_infos()] == ["n"]
    with pytest.raises(CacheError, match=r"^node n is not found$"):
        cache.remove_node("n")
    cache.update_pod(a_pod("p", on="n"), PodInfo(a_pod("p", on="n", cpu="3")))
    ghost = cache.table.get("n")
    assert ghost is not None
    assert ghost.requested.milli_cpu == 4000
    assert check_cache(cache) == []
    cache.remove_pod(a_pod("p", on="n"))
    cache.remove_pod(a_pod("q", on="n"))
    assert list(cache.table.all_infos()) == []
    assert check_cache(cache) == []


def test_a_ghost_comes_back_to_life_with_its_pods() -> None:
    cache = Cache()
    cache.set_node(a_node("n"))
    add(cache, a_pod("p", on="n", cpu="1"))
    cache.remove_node("n")
    cache.set_node(a_node("n", cpu="9"))
    node = cache.snapshot().get("n")
    assert (node.allocatable.milli_cpu, node.requested.milli_cpu) == (9000, 1000)
    assert check_cache(cache) == []


def test_a_row_is_used_again_and_carries_nothing_over() -> None:
    cache = Cache()
    cache.set_node(a_node("old", unschedulable=True, features=["UserNamespacesHostNetworkSupport"], labels={"k": "v"}))
    row = cache.snapshot().get("old").row
    cache.table.labels.column("k")
    add(cache, a_pod("p", on="old", cpu="1", ports=[a_port(80)], claims=["c"]))
    cache.remove_node("old")
    cache.remove_pod(a_pod("p"))
    empty = picture(cache.table)
    cache.set_node(a_node("new", exactly={}))
    assert cache.snapshot().get("new").row == row
    assert check_cache(cache) == []
    cache.remove_node("new")
    after = picture(cache.table)
    assert {**empty, "journal": 0} == {**after, "journal": 0}


def test_the_table_grows_and_keeps_what_it_has() -> None:
    cache = Cache()
    cache.table.labels.column("rank")
    for index in range(200):
        cache.set_node(a_node(f"n{index}", labels={"rank": str(index)}, allocatable={"example.com/gpu": index}))
        add(cache, a_pod(f"p{index}", on=f"n{index}", requests={"example.com/gpu": 1}))
    assert cache.table.capacity >= 200
    assert len(cache.snapshot().nodes()) == 200
    assert check_cache(cache) == []
    gpu = cache.table.column("example.com/gpu")
    assert gpu is not None
    assert [int(cache.table.allocatable[gpu, node.row]) for node in cache.snapshot().nodes()] == list(range(200))


def test_columns_keep_their_types_while_the_table_grows() -> None:
    cache, types = Cache(), {}
    for count in (0, 300):
        for index in range(count):
            cache.set_node(a_node(f"n{index}", allocatable={"example.com/gpu": 1}))
        table = cache.table
        numbers = (table.allocatable, table.requested, table.nonzero, table.features)
        types[count] = (
            {str(column.dtype) for column in numbers},
            {str(c.dtype) for c in (table.alive, table.unschedulable)},
        )
    assert types == {0: ({"int64"}, {"bool"}), 300: ({"int64"}, {"bool"})}


def test_a_node_with_a_broken_amount_is_refused_and_nothing_changes() -> None:
    cache = Cache()
    cache.set_node(a_node("n"))
    before = picture(cache.table)
    for name in ("n", "fresh"):
        with pytest.raises(QuantityError, match="many"):
            cache.set_node(a_node(name, cpu="many"))
    assert picture(cache.table) == before


# -- images ------------------------------------------------------------------------------------------------


def sizes(cache: Cache) -> dict[str, tuple[int, int]]:
    return {name: (state.size, len(state.rows)) for name, state in cache.table.images.states.items()}


def test_an_image_keeps_the_size_first_seen_until_its_last_node_goes() -> None:
    cache = Cache()
    cache.set_node(a_node("a", images=[an_image("app:1", 1)]))
    cache.set_node(a_node("b", images=[an_image("app:1", 2)]))
    assert sizes(cache) == {"app:1": (1 * MIB, 2)}
    cache.set_node(a_node("a"))
    assert sizes(cache) == {"app:1": (1 * MIB, 1)}
    cache.set_node(a_node("a", images=[an_image("app:1", 3)]))
    assert sizes(cache) == {"app:1": (1 * MIB, 2)}
    cache.remove_node("a")
    cache.remove_node("b")
    assert sizes(cache) == {}
    cache.set_node(a_node("b", images=[an_image("app:1", 2)]))
    assert sizes(cache) == {"app:1": (2 * MIB, 1)}


def test_an_update_that_drops_the_only_holder_forgets_the_size_first() -> None:
    cache = Cache()
    cache.set_node(a_node("a", images=[an_image("app:1", 1)]))
    cache.set_node(a_node("a", images=[an_image("app:1", 5)]))
    assert sizes(cache) == {"app:1": (5 * MIB, 1)}


def test_every_name_of_an_image_counts() -> None:
    cache = Cache()
    cache.set_node(a_node("a", images=[ContainerImage(names=("app:1", "app@sha256:x"), size_bytes=7)]))
    assert sizes(cache) == {"app:1": (7, 1), "app@sha256:x": (7, 1)}
    assert cache.snapshot().get("a").image_names == {"app:1", "app@sha256:x"}


# -- ports and claims --------------------------------------------------------------------------------------


def used(cache: Cache, name: str = "n") -> set[tuple[str, str, int]]:
    return set(cache.snapshot().get(name).used_ports)


def test_ports_are_a_set_with_defaults_filled_in() -> None:
    cache = Cache()
    cache.set_node(a_node("n"))
    add(
        cache,
        a_pod("p", on="n", ports=[a_port(80), a_port(0), a_port(-1), a_port(81, "UDP", "10.0.0.1")]),
        a_pod(
            "q",
            on="n",
            init=[
                a_container("s", ports=[a_port(90)], always=True),
                a_container("i", ports=[a_port(91)]),
            ],
        ),
    )
    assert used(cache) == {("0.0.0.0", "TCP", 80), ("10.0.0.1", "UDP", 81), ("0.0.0.0", "TCP", 90)}


def test_removing_one_of_two_holders_frees_the_port() -> None:
    """Upstream's set does not count (quirk Q6, kept)."""
    cache = Cache()
    cache.set_node(a_node("n"))
    add(cache, a_pod("p", on="n", ports=[a_port(80)]), a_pod("q", on="n", ports=[a_port(80)]))
    cache.remove_pod(a_pod("p", on="n"))
    assert used(cache) == set()
    assert check_cache(cache) == []
    cache.remove_pod(a_pod("q", on="n"))
    assert cache.table.port_rows == {}
    assert check_cache(cache) == []


def test_the_port_index_lists_rows_by_protocol_and_port_whatever_the_address() -> None:
    cache = Cache()
    for name, ip in (("a", "10.0.0.1"), ("b", "")):
        cache.set_node(a_node(name))
        add(cache, a_pod(name, on=name, ports=[a_port(80, ip=ip)]))
    rows = {cache.snapshot().get(name).row for name in "ab"}
    assert cache.table.port_rows == {("TCP", 80): rows}


def test_claims_are_counted_by_volume_and_namespace() -> None:
    cache = Cache()
    cache.set_node(a_node("n"))
    add(cache, a_pod("p", on="n", claims=["c", "c"]), a_pod("q", on="n", namespace="other", claims=["c"]))
    snapshot = cache.snapshot()
    assert cache.table.pvc_counts == {"ns/c": 2, "other/c": 1}
    assert snapshot.is_pvc_used("ns/c")
    cache.remove_pod(a_pod("p", on="n"))
    assert not snapshot.is_pvc_used("ns/c")
    assert snapshot.is_pvc_used("other/c")
    assert not snapshot.is_pvc_used("ns/unknown")


# -- resources -----------------------------------------------------------------------------------------------


def test_resources_that_only_pods_name_take_no_columns_until_a_node_has_one() -> None:
    """Any pod may name 25,000 that nobody has, and a column takes 16 bytes of each node."""
    cache = Cache()
    cache.set_node(a_node("a"))
    shape = cache.table.requested.shape
    requests = {f"example.com/r{number}": 2 for number in range(1_000)}
    add(cache, a_pod("p", requests=requests, on="a"), a_pod("q", requests={"example.com/r7": 3}, on="b"))
    assert cache.table.requested.shape == shape
    assert cache.table.column("example.com/r7") is None
    cache.set_node(a_node("c", allocatable={"example.com/r7": 4}))
    index = cache.table.column("example.com/r7")
    rows = [info.row for name in "abc" if (info := cache.table.get(name)) is not None]
    assert index is not None
    assert cache.table.requested[index, rows].tolist() == [2, 3, 0]
    assert check_cache(cache) == []
    cache.remove_pod(a_pod("p", requests=requests, on="a"))
    assert cache.table.requested[index, rows].tolist() == [0, 3, 0]
    assert check_cache(cache) == []
