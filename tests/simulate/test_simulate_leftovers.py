"""Pods that have waited too long for an event: those that need not be tried could not have been placed.

Random clusters lose events, so that only the retries can find room. A search that remembers nothing is asked in the end about each pod
that still waits.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kubesched.api.kinds import NODES, PODS
from kubesched.cluster.store import Store
from kubesched.lab.simulate.embedded import Embedded
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual
from kubesched.scheduler.config import default_config
from kubesched.scheduler.core.diagnosis import Rejection
from kubesched.scheduler.core.observer import AttemptObserver
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.queued import QueuedPodInfo
from kubesched.scheduler.plugins import in_tree_registry
from kubesched.scheduler.queue import SchedulingQueue, leftovers
from kubesched.scheduler.scheduler import Scheduler

JSON = dict[str, Any]
GPU = "example.com/gpu"
IS_SWEEP = settings().max_examples > 100
#: Seconds within which a pod is placed that a retry would place: two waits of five minutes, and the pauses between them.
IN_TIME = 800.0


class Attempts(AttemptObserver):
    """Observer that counts attempts."""

    def __init__(self) -> None:
        self.count = 0

    def attempted(self, queued: QueuedPodInfo) -> None:
        self.count += 1


@contextmanager
def small_parts(turn: float) -> Iterator[None]:
    """Try few pods at once, so that few pods are enough for parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leftovers, "MOST_AT_ONCE", 2)
        patch.setattr(leftovers, "_TURNS_AT_ONCE", 1)
        patch.setattr(leftovers, "_TURN", turn)
        patch.setattr(leftovers, "_ROUND", 1e9)
        yield


@contextmanager
def lost_events() -> Iterator[None]:
    """Lose the events that could help waiting pods."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SchedulingQueue, "move_all_to_active_or_backoff_queue", lambda self, *args: None)
        patch.setattr(SchedulingQueue, "move_after_deletions", lambda self, *args: None)
        yield


def node(rng: random.Random, name: str) -> JSON:
    amounts = {
        "cpu": str(rng.choice((2, 4))),
        "memory": "8Gi",
        "pods": str(rng.choice((3, 110))),
        GPU: str(rng.choice((0, 2))),
    }
    taints = [{"key": "lab", "effect": "NoSchedule"}] if rng.random() < 0.3 else []
    metadata = {"name": name, "labels": {"zone": rng.choice("ab")}}
    return {"metadata": metadata, "spec": {"taints": taints}, "status": {"allocatable": amounts, "capacity": amounts}}


def kind_of_pods(rng: random.Random) -> JSON:
    requests = {"cpu": str(rng.choice((1, 2, 3)))}
    if rng.random() < 0.4:
        requests[GPU] = str(rng.choice((1, 2)))
    container: JSON = {"name": "c", "image": "i", "resources": {"requests": requests, "limits": requests}}
    spec: JSON = {"containers": [container], "priority": rng.choice((0, 0, 0, 5))}
    if rng.random() < 0.3:
        spec["nodeSelector"] = {"zone": rng.choice("abc")}
    if rng.random() < 0.2:
        spec["preemptionPolicy"] = "Never"
    if rng.random() < 0.15:
        container["ports"] = [{"containerPort": 80, "hostPort": 80}]
    if rng.random() < 0.15:
        term = {"labelSelector": {"matchLabels": {"team": "a"}}, "topologyKey": "zone"}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return {"labels": {"team": rng.choice("ab")}, "spec": spec}


def sibling(rng: random.Random, kind: JSON) -> JSON:
    """A kind of pods that requests the same amounts, and differs in one thing that decides about nodes."""
    spec = dict(kind["spec"])
    what = rng.randrange(3)
    if what == 0:
        spec["nodeSelector"] = {"zone": rng.choice("abc")}
    elif what == 1:
        spec["tolerations"] = [{"operator": "Exists"}]
    else:
        spec["priority"] = 5 - spec["priority"]
    return {"labels": kind["labels"], "spec": spec}


def change(rng: random.Random, store: Store) -> None:
    """Make room somewhere, or take it."""
    nodes = [item.name for item in store.list(NODES).items]
    placed = [item for item in store.list(PODS).items if item.typed.spec.node_name]
    what = rng.randrange(5)
    if what == 0 and placed:
        gone = rng.choice(placed)
        store.delete(PODS, gone.namespace, gone.name, grace_period_seconds=0)
    elif what == 1:
        store.patch(NODES, "", rng.choice(nodes), {"spec": {"unschedulable": rng.random() < 0.4}})
    elif what == 2:
        amounts = {"cpu": str(rng.choice((2, 6))), GPU: str(rng.choice((0, 3)))}
        store.patch(NODES, "", rng.choice(nodes), {"status": {"allocatable": amounts}}, subresource="status")
    elif what == 3:
        store.patch(NODES, "", rng.choice(nodes), {"metadata": {"labels": {"zone": rng.choice("abc")}}})
    else:
        waiting = [item for item in store.list(PODS).items if not item.typed.spec.node_name]
        if waiting:
            pod = rng.choice(waiting)
            store.patch(PODS, pod.namespace, pod.name, {"metadata": {"labels": {"team": rng.choice("ab")}}})


def waiting_pods(embedded: Embedded) -> list[QueuedPodInfo]:
    views = embedded.scheduler.queue.views
    assert views.check() == []
    (_, records) = next(each for each in views.records() if each[0] == "Unschedulable")
    return [record for record in records if not record.gated]


def rejection(embedded: Embedded, record: QueuedPodInfo) -> Rejection:
    """Ask a search that remembers nothing; the pod must be rejected."""
    search = embedded.scheduler.profiles["default-scheduler"].search
    found = search.evaluate(CycleState(), record.pod_info)
    assert isinstance(found, Rejection), f"{record.key} waits, though it fits"
    return found


def an_embedded(seed: int, attempts: Attempts) -> Embedded:
    clock = VirtualClock(asyncio.get_running_loop())
    return Embedded(
        default_config(), in_tree_registry(), clock=clock, seed=seed, observers=[attempts], believe_priority=True
    )


async def build(rng: random.Random, store: Store) -> None:
    """Create nodes, and more pods than they have room for."""
    for number in range(rng.randrange(1, 4)):
        store.create(NODES, "", node(rng, f"n{number}"))
    model = kind_of_pods(rng)
    for kind in range(rng.randrange(1, 4)):
        if kind:
            model = sibling(rng, model) if rng.random() < 0.7 else kind_of_pods(rng)
        for place in range(rng.randrange(3, 14)):
            pod = {"metadata": {"name": f"p{kind}-{place}", "labels": model["labels"]}, "spec": model["spec"]}
            store.create(PODS, "default", pod)
        await asyncio.sleep(rng.choice((0.0, 50.0)))


async def play(seed: int, *, seconds: float = IN_TIME, all_tried: bool = False) -> tuple[int, int]:
    """Play a cluster; return the numbers of pods that wait in the end and of attempts that were made without events.

    ``all_tried``: each pod had its turn in these seconds.
    """
    rng, attempts = random.Random(seed), Attempts()
    embedded = an_embedded(seed, attempts)
    async with embedded.running():
        await build(rng, embedded.store)
        await asyncio.sleep(rng.uniform(20, 400))
        with lost_events():
            for _ in range(rng.randrange(1, 6)):
                change(rng, embedded.store)
                await asyncio.sleep(rng.uniform(0, 200))
        before = attempts.count
        for _ in range(10):
            await asyncio.sleep(seconds / 10)
            assert embedded.scheduler.queue.views.check() == []
        await asyncio.sleep(rng.uniform(0, 40))
        tried = attempts.count - before
        left = waiting_pods(embedded)
        for record in left:
            why = rejection(embedded, record)
            assert record.unschedulable_plugins == why.diagnosis.unschedulable_plugins, record.key
            if all_tried:
                (condition,) = record.pod_info.pod.status.conditions
                assert condition.message.startswith(why.message()), record.key
        queue = embedded.scheduler.queue
        rejectors = {record.key: set(record.unschedulable_plugins) for record in left}
        nominated = {record.key for record in left if queue.nominator.node_of(record.uid)}
        queue.activate({record.key: record.pod_info.pod for record in left})
        await asyncio.sleep(0.1)
        again = waiting_pods(embedded)
        assert {record.key: record.unschedulable_plugins for record in again} == rejectors, (
            "an attempt ends in another way"
        )
        assert {record.key for record in again if queue.nominator.node_of(record.uid)} == nominated, (
            "a pod could preempt"
        )
        assert embedded.check() == []
    return len(left), tried


@settings(max_examples=settings().max_examples if IS_SWEEP else 12)
@given(seed=st.integers(0, 1 << 32))
def test_no_pod_waits_that_a_retry_would_place(seed: int) -> None:
    with small_parts(turn=1e6):
        run_virtual(play(seed))


@settings(max_examples=settings().max_examples if IS_SWEEP else 6)
@given(seed=st.integers(0, 1 << 32))
def test_conditions_say_what_an_attempt_would_say_once_each_pod_had_its_turn(seed: int) -> None:
    with small_parts(turn=1.0):
        run_virtual(play(seed, seconds=2_000.0, all_tried=True))


async def watch_waking(seed: int) -> int:
    """Change a cluster, with all events. Return how many pods waited in the end."""
    rng, attempts = random.Random(seed), Attempts()
    embedded = an_embedded(seed, attempts)
    left: list[QueuedPodInfo] = []
    async with embedded.running():
        await build(rng, embedded.store)
        await asyncio.sleep(30)
        for _ in range(8):
            change(rng, embedded.store)
            await asyncio.sleep(30)
            left = waiting_pods(embedded)
            for record in left:
                rejection(embedded, record)
    return len(left)


@settings(max_examples=settings().max_examples if IS_SWEEP else 12)
@given(seed=st.integers(0, 1 << 32))
@example(seed=5137)  # a node without room is changed, and then has room
def test_deletions_and_changed_nodes_wake_the_pods_that_fit_then(seed: int) -> None:
    """Pods are held, by cpu and by other resources, from the deletions and changes that cannot help them, and from no others."""
    run_virtual(watch_waking(seed))


def test_retries_are_saved() -> None:
    """Otherwise the tests above test nothing."""
    with small_parts(turn=1e6):
        played = [run_virtual(play(seed)) for seed in range(6)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scheduler, "_kind_of", lambda self, pod: None)
        plain = [run_virtual(play(seed)) for seed in range(6)]
    assert sum(waiting for waiting, _ in played) > 20
    assert sum(attempts for _, attempts in played) < 0.8 * sum(attempts for _, attempts in plain)
