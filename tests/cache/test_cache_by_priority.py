"""Data kept by priority: the pods below one on each row, and the nominated pods that count for one."""

from __future__ import annotations

import numpy as np
import pytest
from cache_kit import add

from builders import a_node, a_pod
from kubesched.api.types import Pod
from kubesched.scheduler.cache import Cache
from kubesched.scheduler.nodes import NodeTable
from kubesched.scheduler.nodes.lower_priority import LowerPriority
from kubesched.scheduler.nodes.nominated_rows import NominatedRows
from kubesched.scheduler.nodes.nominating import NoNominations
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.queue import Nominator

GPU, NOWHERE = "example.com/gpu", "example.com/nowhere"


def counted(table: NodeTable, priority: int) -> dict[str, dict[str, int]]:
    """Return the requests of the pods below a priority, by node, counted pod by pod."""
    found: dict[str, dict[str, int]] = {}
    for info in table.all_infos():
        amounts = found[info.name] = {"cpu": 0, "memory": 0, "pods": 0, GPU: 0}
        for pod in info.pods.values():
            if (pod.pod.spec.priority or 0) < priority:
                amounts["cpu"] += pod.requests.milli_cpu
                amounts["memory"] += pod.requests.memory
                amounts["pods"] += 1
                amounts[GPU] += pod.requests.scalars.get(GPU, 0)
    return found


def columns_of(lower: LowerPriority, table: NodeTable, priority: int) -> dict[str, dict[str, int]]:
    amounts, names = lower.of(priority).amounts, ("cpu", "memory", "pods", GPU)
    places = {name: table.column(name) for name in names}
    return {
        info.name: {name: int(amounts[place, info.row]) for name, place in places.items() if place is not None}
        for info in table.all_infos()
    }


def a_cluster() -> Cache:
    """Pods of priorities 0 to 2 with odd numbers of bytes, extended resources, and one that no node offers."""
    cache = Cache()
    for name in ("n0", "n1", "n2"):
        cache.set_node(a_node(name, allocatable={GPU: 8}))
    for number in range(9):
        requests: dict[str, str | int | float] = {
            GPU: number % 3,
            NOWHERE: 1,
            "cpu": f"{number}m",
            "memory": str(2**53 + number),
        }
        add(cache, a_pod(f"p{number}", on=f"n{number % 2}", priority=number % 3, requests=requests))
    return cache


def test_what_lower_pods_request_is_the_sum_of_their_requests() -> None:
    cache = a_cluster()
    table, lower = cache.table, LowerPriority(cache.table)

    for priority in (0, 1, 2, 3):
        assert columns_of(lower, table, priority) == counted(table, priority)

    add(cache, a_pod("late", on="n2", priority=1, requests={GPU: 5, "memory": str(2**53 + 1)}))
    cache.remove_pod(cache.pods["p3-uid"].pod)
    for priority in (0, 1, 2, 3):
        assert columns_of(lower, table, priority) == counted(table, priority)


def test_sums_of_lower_pods_stay_exact_while_the_table_grows() -> None:
    cache = a_cluster()
    table, lower = cache.table, LowerPriority(cache.table)
    assert columns_of(lower, table, 2) == counted(table, 2)

    for number in range(200):
        cache.set_node(a_node(f"m{number}", allocatable={GPU: 8, f"example.com/{number % 3}": 1}))

    assert columns_of(lower, table, 2) == counted(table, 2)
    assert lower.of(2).amounts.dtype == np.int64


@pytest.mark.parametrize("kind", [LowerPriority, lambda table: NominatedRows(table, NoNominations())])
def test_the_priority_that_was_used_last_is_kept(kind: type[LowerPriority]) -> None:
    kept = kind(a_cluster().table)
    first = kept.of(0)

    for priority in range(1, 100):
        kept.of(priority)
        assert kept.of(0) is first
    assert len(kept._kept) < 20


class Nominated:
    """A pod nominated to node n0, and what counts for pods of priority 1."""

    def __init__(self) -> None:
        self.cache = a_cluster()
        self.live: dict[str, PodInfo] = {}
        self.nominator = Nominator(find=self.live.get)
        self.rows = NominatedRows(self.cache.table, self.nominator)

    def deliver(self, pod: Pod) -> PodInfo:
        info = self.live[pod.key] = PodInfo(pod)
        self.nominator.add(pod)
        return info


def test_a_newer_version_of_a_nominated_pod_that_counts_the_same_notifies_no_reader() -> None:
    world = Nominated()
    world.deliver(a_pod("p", nominated="n0", priority=1, cpu="1"))
    seen = world.rows.of(1).log.position

    newer = world.deliver(a_pod("p", nominated="n0", priority=1, cpu="1"))

    view = world.rows.of(1)
    assert view.log.position == seen
    [[pod]] = view.pods.values()
    assert pod is newer


def test_a_nominated_pod_that_requests_something_else_is_counted_again() -> None:
    world = Nominated()
    world.deliver(a_pod("p", nominated="n0", priority=1, cpu="1"))
    row, seen = world.cache.table.row_of("n0"), world.rows.of(1).log.position
    assert world.rows.of(1).amounts()[0, row] == 1000

    world.deliver(a_pod("p", nominated="n0", priority=1, cpu="2"))

    assert world.rows.of(1).log.position > seen
    assert world.rows.of(1).amounts()[0, row] == 2000
    assert world.rows.of(2).pods == {}
