"""The cache against a model that only keeps dicts, and the checker against sabotage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cache_kit import NODE_NAMES, NODES, PODS, add, node_like, pod_like
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from builders import a_node, a_pod, a_port, a_taint, an_image
from kubesched.api.types import Node, Pod
from kubesched.scheduler.cache import Cache, CacheError
from kubesched.scheduler.cache.check import check_cache, checking
from kubesched.scheduler.nodes.podinfo import PodInfo

_uids = st.sampled_from([f"u{index}" for index in range(6)])
_names = st.sampled_from(NODE_NAMES)
_pods = st.integers(0, len(PODS) - 1)


@pytest.fixture(autouse=True)
def one_row_in_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubesched.scheduler.cache.check._ROWS_PER_STEP", 1)


class CacheMachine(RuleBasedStateMachine):
    """Every call in every state; the model says which are refused."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = Cache()
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.assumed: set[str] = set()
        self.checking = checking(self.cache)

    @invariant()
    def what_changes_while_it_is_checked_is_no_problem(self) -> None:
        found: list[str] = []
        try:
            next(self.checking)
        except StopIteration as done:
            found, self.checking = done.value, checking(self.cache)
        assert found == []

    @initialize()
    def watched_labels(self) -> None:
        for key in ("disk", "rank", "topology.kubernetes.io/zone"):
            self.cache.table.labels.column(key)

    def _try(self, allowed: bool, call: Callable[..., None], *args: Any) -> bool:
        if allowed:
            call(*args)
        else:
            with pytest.raises(CacheError):
                call(*args)
        return allowed

    @rule(name=_names, variant=st.integers(0, len(NODES) - 1))
    def set_node(self, name: str, variant: int) -> None:
        self.nodes[name] = node_like(variant, name)
        self.cache.set_node(self.nodes[name])

    @rule(name=_names)
    def remove_node(self, name: str) -> None:
        if self._try(name in self.nodes, self.cache.remove_node, name):
            del self.nodes[name]

    @rule(uid=_uids, name=_names, variant=_pods)
    def assume(self, uid: str, name: str, variant: int) -> None:
        pod = pod_like(variant, uid, name)
        if self._try(uid not in self.pods, self.cache.assume_pod, PodInfo(pod)):
            self.pods[uid] = pod
            self.assumed.add(uid)

    @rule(uid=_uids, name=_names)
    def forget(self, uid: str, name: str) -> None:
        known = self.pods.get(uid)
        allowed = known is None or (known.spec.node_name == name and uid in self.assumed)
        if self._try(allowed, self.cache.forget_pod, pod_like(0, uid, name)) and known is not None:
            del self.pods[uid]
            self.assumed.discard(uid)

    @rule(uid=_uids, name=_names, variant=_pods)
    def add(self, uid: str, name: str, variant: int) -> None:
        pod = pod_like(variant, uid, name)
        if self._try(uid not in self.pods or uid in self.assumed, self.cache.add_pod, PodInfo(pod)):
            self.pods[uid] = pod
            self.assumed.discard(uid)

    @rule(uid=_uids, new_uid=_uids, name=_names, variant=_pods)
    def update(self, uid: str, new_uid: str, name: str, variant: int) -> None:
        if new_uid != uid and new_uid in self.pods:
            return  # two pods of one UID: the API server cannot show that
        known = self.pods.get(uid)
        pod = pod_like(variant, new_uid, name)
        allowed = known is not None and uid not in self.assumed and known.spec.node_name == name
        if self._try(allowed, self.cache.update_pod, pod_like(0, uid, name), PodInfo(pod)):
            del self.pods[uid]
            self.pods[new_uid] = pod

    @rule(uid=_uids, name=_names)
    def remove(self, uid: str, name: str) -> None:
        if self._try(uid in self.pods, self.cache.remove_pod, pod_like(0, uid, name)):
            del self.pods[uid]
            self.assumed.discard(uid)

    @invariant()
    def agrees_with_the_model(self) -> None:
        cache = self.cache
        assert check_cache(cache) == []
        assert {uid: info.pod for uid, info in cache.pods.items()} == self.pods
        assert cache.assumed == self.assumed
        nodes = cache.snapshot().nodes()
        assert {node.name: node.node for node in nodes} == self.nodes
        assert len(nodes) == len(self.nodes) == len(cache.table)
        for node in nodes:
            assert set(node.pods) == {uid for uid, pod in self.pods.items() if pod.spec.node_name == node.name}
        known = self.nodes.keys() | {pod.spec.node_name for pod in self.pods.values()}
        assert {info.name for info in cache.table.all_infos()} == known


TestCache = CacheMachine.TestCase
TestCache.settings = settings(max_examples=40, stateful_step_count=30)


# -- the checker itself ------------------------------------------------------------------------------------


def a_cache() -> Cache:
    """Something in every column and index."""
    cache = Cache()
    cache.set_node(
        a_node("a", labels={"disk": "ssd"}, images=[an_image("app:1", 10)], allocatable={"example.com/gpu": 2})
    )
    cache.set_node(a_node("b", labels={"disk": "hdd"}))
    add(
        cache,
        a_pod("p", on="a", requests={"cpu": "1", "memory": "1Gi", "example.com/gpu": 1, "ephemeral-storage": "1"}, ports=[a_port(80)], claims=["c"]),
        a_pod("q", on="a"),
        a_pod("g", on="ghost", cpu="1"),
    )  # fmt: skip
    cache.assume_pod(PodInfo(a_pod("r", on="b", cpu="2")))
    cache.table.labels.column("disk")
    assert check_cache(cache) == []
    return cache


def column(name: str, index: Any, value: Any) -> Callable[[Cache], None]:
    """Overwrite one element of a column of node a's row."""

    def spoil(cache: Cache) -> None:
        row = cache.snapshot().get("a").row
        getattr(cache.table, name)[(*index, row) if index else row] = value

    return spoil


def on_a(change: Callable[[Any], Any]) -> Callable[[Cache], None]:
    return lambda cache: change(cache.snapshot().get("a"))


def on_table(change: Callable[[Any], Any]) -> Callable[[Cache], None]:
    return lambda cache: change(cache.table)


def on_cache(change: Callable[[Cache], Any]) -> Callable[[Cache], None]:
    def spoil(cache: Cache) -> None:
        change(cache)

    return spoil


def _label(table: Any) -> None:
    table.labels.column("disk").codes[table.row_of("a")] = -1


def _free_row(table: Any) -> None:
    table.requested[0, table._free[-1]] = 5


def _swap_rows(table: Any) -> None:
    rows = table._row_of
    rows["a"], rows["b"] = rows["b"], rows["a"]


SABOTAGE: list[tuple[str, Callable[[Cache], None], str]] = [
    ("requested cpu column", column("requested", (0,), 7), "node a: column requested cpu is 7, recounted 1000"),
    ("requested memory column", column("requested", (1,), 7), "column requested memory is 7"),
    ("ephemeral storage column", column("requested", (2,), 7), "column ephemeral-storage is 7"),
    ("pods column", column("requested", (3,), 7), "column pods is 7, recounted 2"),
    ("gpu column", column("requested", (4,), 7), "column example.com/gpu is 7, recounted 1"),
    ("allocatable cpu column", column("allocatable", (0,), 7), "column allocatable cpu is 7, the node says 4000"),
    ("allocatable pods column", column("allocatable", (3,), 7), "column allocatable pods is 7"),
    ("allocatable gpu column", column("allocatable", (4,), 7), "column allocatable example.com/gpu is 7"),
    ("non-zero column", column("nonzero", (1,), 7), "column non-zero is [1100, 7]"),
    ("alive column", column("alive", (), False), "column alive is False"),
    ("unschedulable column", column("unschedulable", (), True), "column unschedulable differs"),
    ("features column", column("features", (), 8), "column features differs"),
    ("taint column", on_table(lambda table: table.taints.set(table.row_of("a"), (a_taint("x:NoSchedule"),))), "column taints differs"),
    ("label column", on_table(_label), "column of label disk says None, the node 'ssd'"),
    ("a free row", on_table(_free_row), "is free but its columns are not empty"),
    ("requested of the node", on_a(lambda node: setattr(node.requested, "milli_cpu", 7)), "node a: requested cpu is 7"),
    ("requested memory of the node", on_a(lambda node: setattr(node.requested, "memory", 7)), "node a: requested memory is 7"),
    ("requested storage of the node", on_a(lambda node: setattr(node.requested, "ephemeral_storage", 7)), "node a: requested ephemeral-storage is 7"),
    ("requested scalars of the node", on_a(lambda node: node.requested.scalars.update({"x.io/y": 1})), "node a: requested scalars is"),
    ("non-zero requests of the node", on_a(lambda node: setattr(node, "nonzero_cpu", 7)), "node a: non-zero requests is"),
    ("claims of the node", on_a(lambda node: node.pvc_counts.clear()), "node a: claim counts is {}"),
    ("allocatable of the node", on_a(lambda node: setattr(node.allocatable, "milli_cpu", 7)), "node a: allocatable is"),
    ("a port that no pod holds", on_a(lambda node: node.used_ports.add([("0.0.0.0", "TCP", 99)])), "node a: host ports"),
    ("row number of the node", on_a(lambda node: setattr(node, "row", 63)), "node a: row is 63"),
    ("a pod lost from its node", on_a(lambda node: node.pods.pop("q-uid")), "pod ns/q is cached for node 'a' but accounted on ''"),
    ("an unknown pod", on_a(lambda node: node.pods.update(x=PodInfo(a_pod("x")))), "pod ns/x is accounted on node a but not cached"),
    ("the port index", on_table(lambda table: table.port_rows.clear()), "the host port index differs"),
    ("the claim counts", on_table(lambda table: table.pvc_counts.clear()), "the claim counts differ"),
    ("the image table", on_table(lambda table: table.images.states.clear()), "the image table differs"),
    ("the node tree", on_table(lambda table: table.tree.remove("b")), "the node tree does not list exactly"),
    ("the node order", on_table(lambda table: setattr(table, "_order", table.order()[:1])), "the node order does not list exactly"),
    ("the name index", on_table(_swap_rows), "the name index differs"),
    ("a pod lost from the map", on_cache(lambda cache: cache.pods.pop("p-uid")), "pod ns/p is accounted on node a but not cached"),
    ("another copy in the map", on_cache(lambda cache: cache.pods.update({"p-uid": PodInfo(a_pod("p", on="a"))})), "pod ns/p is cached for node 'a' but accounted on 'a'"),
    ("an unknown assumed pod", on_cache(lambda cache: cache.assumed.add("nobody")), "pod nobody is assumed but not cached"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "spoil", "report"), SABOTAGE, ids=[row[0] for row in SABOTAGE])
def test_sabotage_is_reported(name: str, spoil: Callable[[Cache], None], report: str) -> None:
    cache = a_cache()
    spoil(cache)
    problems = check_cache(cache)
    assert any(report in problem for problem in problems), problems
