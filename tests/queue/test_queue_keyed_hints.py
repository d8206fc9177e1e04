"""Hints with keys: pods that do not name what an event is about are not evaluated; the outcome is the same without keys."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from queue_kit import SCHEDULER, FakeClock, a_pod, changed

from kubesched.api.types import Pod
from kubesched.scheduler.framework.events import ActionType, ClusterEvent, EventResource, KeyedHint, QueueingHint
from kubesched.scheduler.framework.queued import by_priority
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.queue import SchedulingQueue

CLAIM_ADD = ClusterEvent(EventResource.RESOURCE_CLAIM, ActionType.ADD)


def _names(pod: Pod | PodInfo) -> list[str]:
    return pod.metadata.labels.get("names", "").split("+")


class World:
    """A queue whose plugin rejects every pod; events are about the name they carry, or about all (``None``)."""

    def __init__(self, *, keyed: bool) -> None:
        self.evaluated: list[str] = []
        hint = KeyedHint(self._hint, _names, lambda old, new: None if new is None else (new,)) if keyed else self._hint
        self.queue = SchedulingQueue(
            clock=FakeClock(),
            order=by_priority,
            pre_enqueue={SCHEDULER: {}},
            queueing_hints={SCHEDULER: {CLAIM_ADD: [("devices", hint)]}},
        )

    def _hint(self, pod: PodInfo, old: Any, new: Any, /) -> QueueingHint:
        self.evaluated.append(pod.pod.name)
        return QueueingHint.QUEUE if new is None or new in _names(pod.pod) else QueueingHint.SKIP

    def reject(self, pod: Pod) -> None:
        self.queue.add(pod)
        record = self.queue.pop_nowait()
        assert record is not None
        record.unschedulable_plugins = {"devices"}
        self.queue.add_unschedulable_if_not_present(record, self.queue.scheduling_cycle)
        self.queue.done(record.uid)

    def event(self, name: str | None) -> None:
        self.queue.move_all_to_active_or_backoff_queue(CLAIM_ADD, None, name)


def test_only_pods_that_name_the_object_are_evaluated() -> None:
    world = World(keyed=True)
    for name, names in (("a", "x"), ("b", "y"), ("c", "x+y"), ("d", "")):
        world.reject(a_pod(name, labels={"names": names}))
    world.event("x")
    assert world.evaluated == ["a", "c"]
    assert world.queue.views.check() == []


def test_a_pod_that_names_something_else_now_is_found_by_that() -> None:
    world = World(keyed=True)
    old = a_pod("a", labels={"names": "x"})
    world.reject(old)
    world.queue.update(old, changed(old, labels={"names": "y"}))
    world.event("x")
    assert world.evaluated == []
    world.event("y")
    assert world.evaluated == ["a"]
    assert world.queue.views.check() == []


@pytest.mark.parametrize("seed", range(20))
def test_keys_change_nothing_but_the_work(seed: int) -> None:
    random = Random(seed)
    worlds = [World(keyed=True), World(keyed=False)]
    pods: dict[str, Pod] = {}
    for step in range(60):
        kind = random.choice(("add", "add", "update", "delete", "event", "event", "all"))
        names = "+".join(random.sample("uvwxyz", random.randrange(4)))
        name = f"p{step}" if kind == "add" or not pods else random.choice(sorted(pods))
        pod, key = a_pod(name, labels={"names": names}), random.choice("uvwxyz")
        for world in worlds:
            if kind == "add":
                world.reject(pod)
            elif kind == "update" and name in pods:
                world.queue.update(pods[name], pod)
            elif kind == "delete" and name in pods:
                world.queue.delete(pods[name])
            elif kind in ("event", "all"):
                world.event(None if kind == "all" and step % 5 == 0 else key)
            assert world.queue.views.check() == []
        if kind == "delete":
            pods.pop(name, None)
        elif kind == "add" or name in pods:
            pods[name] = pod
        assert _state(worlds[0]) == _state(worlds[1])
    assert len(worlds[0].evaluated) < len(worlds[1].evaluated)


def _state(world: World) -> tuple[list[str], str]:
    pods, summary = world.queue.views.pending_pods()
    return sorted(pod.name for pod in pods), summary
