"""Signature layers remember; they must never remember wrongly.

A random cluster changes; whenever pods of some signature are evaluated, what the layer holds must be what a
search that remembers nothing finds, and what the filters say when called node by node.
"""

from __future__ import annotations

from unittest.mock import patch

import msgspec
import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from builders import (
    a_node,
    a_pod,
    a_port,
    a_taint,
    a_toleration,
    an_image,
    info,
    node_affinity,
    requirement,
    term,
)
from kubesched.api.types import Node, Pod
from kubesched.scheduler.cache.check import check_cache
from kubesched.scheduler.core.ranking import INFEASIBLE
from kubesched.scheduler.core.search import Decision
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes.podinfo import PodInfo
from search_kit import House, best_names, brute_force, reasons

_ssd, _zone_a = term(requirement("disk", "In", "ssd")), term(requirement("topology.kubernetes.io/zone", "In", "a"))
_fast = term(requirement("rank", "Gt", "4"))

#: One pod per signature; each is kept from some nodes or drawn to some by another plugin.
KINDS: list[Pod] = [
    a_pod("plain"),
    a_pod("large", cpu="1500m", memory="2Gi", image="app"),
    a_pod("ports", ports=[a_port(80)], requests={"example.com/gpu": 0}),
    a_pod("gpu", requests={"example.com/gpu": 1}, tolerations=[a_toleration("hard")]),
    a_pod("soft", cpu="100m", tolerations=[a_toleration("soft-a"), a_toleration("node.kubernetes.io/unschedulable")]),
    a_pod("prefers", affinity=node_affinity(preferred=[(1, _ssd), (3, _zone_a), (2, _fast)]), image="app"),
    a_pod("picky", node_selector={"disk": "ssd"}, host_network=True, host_users=False),
]
_then = st.lists(st.sampled_from(KINDS), max_size=3, unique_by=lambda pod: pod.name)

nodes = st.builds(
    lambda cpu, gpus, disk, zone, rank, taints, closed, image, feature: a_node(
        "",
        cpu=cpu,
        memory="4Gi",
        pods=4,
        allocatable={"example.com/gpu": gpus} if gpus else {},
        zone=zone,
        labels={**({"disk": disk} if disk else {}), **({"rank": rank} if rank else {})},
        taints=[a_taint(text) for text in taints],
        unschedulable=closed,
        images=[an_image("app:latest", image)] if image else [],
        features=["UserNamespacesHostNetworkSupport"] if feature else [],
    ),
    st.sampled_from(["1", "2", "4"]),
    st.sampled_from([0, 0, 1]),
    st.sampled_from(["", "ssd", "hdd"]),
    st.sampled_from(["", "a", "b"]),
    st.sampled_from(["", "3", "7"]),
    st.sampled_from([(), (), ("soft-a:PreferNoSchedule",), ("soft-a:PreferNoSchedule", "soft-b:PreferNoSchedule"), ("hard:NoSchedule",)]),
    st.sampled_from([False, False, False, True]),
    st.sampled_from([0, 0, 200, 900]),
    st.booleans(),
)  # fmt: skip

#: Mostly nodes that are there already.
_names = st.one_of(st.integers(0, 9), st.integers(0, 9), st.integers(0, 180)).map("n{}".format)


def named(node: Node, name: str) -> Node:
    return msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, name=name, uid=f"{name}-uid"))


class LayerMachine(RuleBasedStateMachine):
    """A cluster that changes in small and in large steps, evaluated through layers."""

    keep = 1 << 16

    def __init__(self) -> None:
        super().__init__()
        self._patch = patch("kubesched.scheduler.nodes.node_table._KEPT_CHANGES", self.keep)
        self._patch.start()
        self.house = House()
        self.count = 0
        self.placed: dict[str, Pod] = {}

    def teardown(self) -> None:
        try:
            for kind in KINDS:
                self.look_at(kind)
            assert check_cache(self.house.cache) == []
        finally:
            self._patch.stop()

    # -- what changes ----------------------------------------------------------------------------------

    @initialize(count=st.sampled_from([1, 5, 10, 20]), variants=st.lists(nodes, min_size=2, max_size=5))
    def some_nodes(self, count: int, variants: list[Node]) -> None:
        for index in range(count):
            self.house.cache.set_node(named(variants[index % len(variants)], f"n{index}"))
        for kind in KINDS:
            self.look_at(kind)

    @rule(name=_names, node=nodes, then=_then)
    def set_node(self, name: str, node: Node, then: list[Pod]) -> None:
        self.house.cache.set_node(named(node, name))
        self._look(then)

    @rule(name=_names, node=nodes, kind=st.sampled_from(KINDS), then=_then)
    def change_and_fill(self, name: str, node: Node, kind: Pod, then: list[Pod]) -> None:
        """Two changes of one row; the later one says nothing of the node object."""
        self.house.cache.set_node(named(node, name))
        self._place(kind, name)
        self._look(then)

    @rule(
        first=st.integers(0, 160),
        count=st.integers(9, 80),
        variants=st.lists(nodes, min_size=1, max_size=3),
        then=_then,
    )
    def set_many_nodes(self, first: int, count: int, variants: list[Node], then: list[Pod]) -> None:
        for index in range(first, first + count):
            self.house.cache.set_node(named(variants[index % len(variants)], f"n{index}"))
        self._look(then)

    @rule(data=st.data(), count=st.sampled_from([1, 1, 1, 12]), then=_then)
    def remove_nodes(self, data: st.DataObject, count: int, then: list[Pod]) -> None:
        there = sorted(node.name for node in self.house.cache.snapshot().nodes())
        for name in sorted(data.draw(st.sets(st.sampled_from(there), max_size=count))) if there else ():
            self.house.cache.remove_node(name)
        self._look(then)

    @rule(kind=st.sampled_from(KINDS), name=_names, then=_then)
    def add_pod(self, kind: Pod, name: str, then: list[Pod]) -> None:
        self._place(kind, name)
        self._look(then)

    @rule(kind=st.sampled_from(KINDS), count=st.integers(9, 40), then=_then)
    def add_many_pods(self, kind: Pod, count: int, then: list[Pod]) -> None:
        for index in range(count):
            self._place(kind, f"n{index}")
        self._look(then)

    def _place(self, kind: Pod, name: str) -> None:
        self.count += 1
        pod = pod_like(kind, f"p{self.count}").on_node(name)
        self.house.add(pod)
        self.placed[pod.uid] = pod

    def _look(self, kinds: list[Pod]) -> None:
        for kind in kinds:
            self.look_at(kind)

    @precondition(lambda self: self.placed)
    @rule(data=st.data(), count=st.sampled_from([1, 1, 15]), then=_then)
    def remove_pods(self, data: st.DataObject, count: int, then: list[Pod]) -> None:
        for uid in sorted(data.draw(st.sets(st.sampled_from(sorted(self.placed)), max_size=count))):
            self.house.cache.remove_pod(self.placed.pop(uid))
        self._look(then)

    @rule(kind=st.sampled_from(KINDS), forget=st.booleans(), then=_then)
    def schedule(self, kind: Pod, forget: bool, then: list[Pod]) -> None:
        """Find a node, assume the pod there, and perhaps think better of it."""
        self.count += 1
        pod = pod_like(kind, f"p{self.count}")
        decision = self.house.search.find(PodInfo(pod))
        if not isinstance(decision, Decision):
            return
        assumed = pod.on_node(decision.node.name)
        self.house.cache.assume_pod(PodInfo(assumed))
        if forget:
            self._look(then)
            self.house.cache.forget_pod(assumed)
        else:
            self.placed[assumed.uid] = assumed
        self._look(then)

    # -- what must hold --------------------------------------------------------------------------------

    def look_at(self, kind: Pod) -> None:
        house, pod = self.house, pod_like(kind, "looker")
        if not len(house.cache.table):
            assert house.failure(pod).all_nodes == 0
            return
        plain = brute_force(house, pod)
        assert not isinstance(plain, Status)
        fits = {name for name, status in plain.items() if status is None}
        if not fits:
            house.failure(pod)
            rejection, fresh = house.failure(pod), house.failure(pod, fresh=True)  # the first may be from memory
            assert rejection.message() == fresh.message()
            assert reasons(rejection.diagnosis.statuses) == reasons(fresh.diagnosis.statuses)
            assert reasons(rejection.diagnosis.statuses) == {
                name: (int(status.code), tuple(status.reasons()), status.plugin)
                for name, status in plain.items()
                if status is not None
            }
            assert rejection.diagnosis.unschedulable_plugins == fresh.diagnosis.unschedulable_plugins
            return
        evaluation = house.evaluate(pod)
        assert set(house.names(evaluation.feasible)) == fits
        decision = house.find(pod)
        assert decision.feasible == len(fits)
        assert decision.evaluated == len(house.cache.table)
        assert decision.node.name in best_names(house, evaluation)
        layer = house.search._layers.get((house.search.ask(info(pod)).signature, None))
        assert layer is not None
        rows = layer.feasible_rows()
        assert rows.tolist() == sorted(evaluation.feasible.tolist())
        assert layer.feasible == len(fits)
        if len(fits) > 1:
            assert evaluation.totals is not None
            want = dict(zip(evaluation.feasible.tolist(), evaluation.totals.tolist(), strict=True))
            assert dict(zip(rows.tolist(), layer.ranking.total[rows].tolist(), strict=True)) == want
            elsewhere = np.ones(len(layer.ranking.total), np.bool_)
            elsewhere[rows] = False
            assert (layer.ranking.total[elsewhere] == INFEASIBLE).all()


def pod_like(kind: Pod, name: str) -> Pod:
    return msgspec.structs.replace(kind, metadata=msgspec.structs.replace(kind.metadata, name=name, uid=f"{name}-uid"))


class ForgetfulMachine(LayerMachine):
    """LayerMachine with a journal that keeps next to nothing, so that layers fall behind it."""

    keep = 6


_machine = settings(max_examples=25, stateful_step_count=30, suppress_health_check=list(HealthCheck))
TestLayers = LayerMachine.TestCase
TestLayers.settings = _machine
TestForgetfulJournal = ForgetfulMachine.TestCase
TestForgetfulJournal.settings = _machine


def test_a_removed_node_leaves_the_scores_of_the_others() -> None:
    house = House([a_node(name, cpu="4", labels={"disk": "ssd"}) for name in ("n1", "n2", "n3")])
    pod = a_pod("p", cpu="1", affinity=node_affinity(preferred=[(1, _ssd)]))
    house.find(pod)
    house.cache.remove_node("n2")
    decision, evaluation = house.find(pod_like(pod, "q")), house.evaluate(pod)
    assert decision.feasible == 2
    assert decision.node.name in best_names(house, evaluation) == {"n1", "n3"}
