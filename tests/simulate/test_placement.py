"""Placing pods one after the other without a cluster around the search."""

from typing import Any

import pytest

from builders import a_node, a_pod
from kubesched.lab.simulate.trials.placement import Placement, Ties
from kubesched.scheduler.config import default_config, load_config_data
from kubesched.scheduler.framework import Plugin, Status
from kubesched.scheduler.plugins import in_tree_registry

NODES = [a_node(f"n{index}", cpu="4") for index in range(8)]


def test_pods_are_placed_until_nothing_fits() -> None:
    cluster = Placement(NODES[:2], default_config(), in_tree_registry())
    placed = list(cluster.place_all(a_pod(f"p{index}", cpu="3") for index in range(3)))
    assert sorted(filter(None, placed)) == ["n0", "n1"]
    assert placed[2] is None
    assert cluster.place(a_pod("small", cpu="1")) in {"n0", "n1"}


@pytest.mark.parametrize("ties", Ties)
def test_the_seed_decides(ties: Ties) -> None:
    def run(seed: int) -> list[str | None]:
        cluster = Placement(NODES, default_config(), in_tree_registry(), seed=seed, ties=ties)
        return list(cluster.place_all(a_pod(f"p{index}", cpu="1") for index in range(12)))

    assert run(1) == run(1)
    assert len({tuple(run(seed)) for seed in range(4)}) > 1


class Reluctant(Plugin):
    """Rejects one pod at Reserve."""

    name = "Reluctant"
    undone: list[str] = []

    def reserve(self, state: Any, pod: Any, node_name: str) -> Status | None:
        return Status.unschedulable("no") if pod.name == "unwanted" else None

    def unreserve(self, state: Any, pod: Any, node_name: str) -> None:
        self.undone.append(pod.name)


def test_reserve_may_reject_and_ties_go_to_the_first_node() -> None:
    Reluctant.undone.clear()
    registry = in_tree_registry()
    registry.register(Reluctant)
    needed = ("PrioritySort", "NodeResourcesFit", "DefaultBinder", "Reluctant")
    plugins = {
        "multiPoint": {"disabled": [{"name": "*"}], "enabled": [{"name": name} for name in needed]},
        "score": {"disabled": [{"name": "*"}]},
    }
    config = load_config_data(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"schedulerName": "default-scheduler", "plugins": plugins}],
        }
    )
    cluster = Placement(NODES, config, registry, seed=3, ties=Ties.FIRST)
    assert cluster.place(a_pod("unwanted", cpu="4")) is None
    assert Reluctant.undone == ["unwanted"]
    where = [cluster.place(a_pod(f"p{index}", cpu="2")) for index in range(16)]
    # Two pods fill a node; then comes the next, and no node is left out.
    assert where[0::2] == where[1::2]
    assert len(set(where)) == 8
    spread = Placement(NODES, config, registry, seed=3, ties=Ties.RANDOM)
    others = [spread.place(a_pod(f"p{index}", cpu="2")) for index in range(16)]
    assert others[0::2] != others[1::2]
