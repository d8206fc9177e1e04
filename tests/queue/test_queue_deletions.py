"""Deletions of pods on nodes that come together lead to what they lead to one by one, with fewer evaluations of held pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from collections.abc import Set as AbstractSet
from random import Random
from typing import Any

import pytest
from queue_kit import POD_DELETE, SCHEDULER, Bench, Hints, a_pod

from kubesched.api.types import Pod
from kubesched.scheduler.framework.events import ActionType, ClusterEvent, EventResource, QueueingHint
from kubesched.scheduler.nodes.podinfo import PodInfo


class Hold:
    """A plugin that holds the pods named ``held-NODE-COUNT``, until so many pods have left their node."""

    def __init__(self) -> None:
        self.left: Counter[str] = Counter()
        self.evaluated: list[tuple[str, str]] = []
        #: No pod is held any more when it is evaluated again.
        self.released = False

    def hold_key(self, pod: PodInfo, rejectors: AbstractSet[str]) -> Hashable | None:
        return pod.name.rpartition("-")[0] if pod.name.startswith("held-") and not self.released else None

    def may_help(self, key: Hashable, node_name: str) -> bool:
        self.evaluated.append((str(key), node_name))
        _, node, count = str(key).split("-")
        return node == node_name and self.left[node] >= int(count)

    def may_help_nominated(self, pod: PodInfo, key: Hashable, node_name: str) -> bool:
        return self.may_help(key, node_name)


def fit(pod: PodInfo, old: Any, new: Any) -> QueueingHint:
    """Pods that are not held wait for one certain pod; those that are, for any but some."""
    helped = pod.name == f"for-{old.name}" or (pod.name.startswith("held-") and not old.name.startswith("useless"))
    return QueueingHint.QUEUE if helped else QueueingHint.SKIP


class Case:
    """A queue in which pods wait, and one pod is in flight."""

    def __init__(self, waiting: list[Pod]) -> None:
        self.hold = Hold()
        hints: Hints = {ClusterEvent(EventResource.POD, ActionType.DELETE): [("Fit", fit)]}
        self.bench = Bench(hints, holders={SCHEDULER: self.hold})
        for pod in waiting:
            self.bench.rejected(pod, "Fit")
            self.bench.clock.advance(0.01)
        self.bench.queue.add(a_pod("flying"))
        self.flying = self.bench.pop()

    def together(self, pods: list[Pod]) -> None:
        self.hold.left.update(pod.spec.node_name for pod in pods)
        self.bench.queue.move_after_deletions(pods)

    def one_by_one(self, pods: list[Pod]) -> None:
        for pod in pods:
            self.hold.left[pod.spec.node_name] += 1
            self.bench.event(POD_DELETE, pod, None)

    def outcome(self, waiting: list[Pod]) -> tuple[Any, ...]:
        queue = self.bench.queue
        assert queue.views.check() == []
        trace = queue.views.in_flight_trace()
        self.bench.fail(self.flying, "Fit")
        places = {pod.name: self.bench.place(pod) for pod in waiting}
        popped = []
        while (record := queue.pop_nowait()) is not None:
            popped.append(record.pod_info.name)
        return places, trace, popped


@pytest.mark.parametrize("seed", range(20))
def test_together_is_as_one_by_one(seed: int) -> None:
    rng = Random(seed)
    nodes = ("n1", "n2", "")
    gone = [a_pod(f"gone{number}", node=rng.choice(nodes)) for number in range(rng.randint(1, 8))]
    waiting = [a_pod(f"for-gone{number}") for number in range(9)]
    waiting += [
        a_pod(f"held-{rng.choice(nodes[:2])}-{rng.randint(1, 3)}-{number}", nominated=rng.choice(("", "n1", "n2")))
        for number in range(8)
    ]
    rng.shuffle(waiting)
    cases = Case(waiting), Case(waiting)
    cases[0].together(gone)
    cases[1].one_by_one(gone)
    assert cases[0].outcome(waiting) == cases[1].outcome(waiting)
    assert len(cases[0].hold.evaluated) <= len(cases[1].hold.evaluated)


def test_held_pods_are_evaluated_once_per_node() -> None:
    case = Case([a_pod("held-n1-3-a"), a_pod("held-n1-3-b"), a_pod("held-n2-3-c")])
    case.together([a_pod(f"gone{number}", node="n1") for number in range(3)])
    assert sorted(case.hold.evaluated) == [("held-n1-3", "n1"), ("held-n2-3", "n1")]
    assert [case.bench.pop().pod_info.name for _ in range(2)] == ["held-n1-3-a", "held-n1-3-b"]


@pytest.mark.parametrize(("nominated", "released"), [("", False), ("n1", False), ("n1", True)])
def test_held_pods_are_moved_by_any_of_the_deletions_on_their_node(nominated: str, released: bool) -> None:
    """The last one may be of no help, as that of a pod without volumes to one that waits for volumes to be detached."""
    held = a_pod("held-n1-3-a", nominated=nominated)
    cases = Case([held]), Case([held])
    for case, names in zip(
        cases, (("useless0", "useful", "useless1"), ("useless0", "useless1", "useless2")), strict=True
    ):
        case.hold.released = released
        case.together([a_pod(name, node="n1") for name in names])
        assert case.bench.queue.views.check() == []
    assert [case.bench.place(held) for case in cases] == ["Backoff", "Unschedulable"]
