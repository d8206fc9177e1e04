"""Savings in attempts that fail as before change nothing: the trace is the same, event by event, as when nothing is saved.

Random batches that do not fit all at once run twice, once with what the search remembers of rejections switched off, and with
dry runs also where no pod has a lower priority. Every queued pod with its history, the order of the queue, conditions, events,
metrics and preemptions must be equal at every moment; only the number of nodes that plugins evaluated is smaller.
"""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from builders import Preemptions
from kubesched.api.kinds import EVENTS, NODES, PODS, Kind, kind_of
from kubesched.lab.simulate import embedded as embedded_module
from kubesched.lab.simulate.embedded import Embedded
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual
from kubesched.scheduler import scheduler as scheduler_module
from kubesched.scheduler.config import default_config
from kubesched.scheduler.core.known_rejection import KnownRejection
from kubesched.scheduler.framework.queued import QueuedPodInfo
from kubesched.scheduler.nodes.placed_pods import PlacedPods
from kubesched.scheduler.plugins import in_tree_registry
from kubesched.scheduler.plugins.preemption.hold import VictimsAwaited

JSON = dict[str, Any]
GPU = "example.com/gpu"
#: Priority classes: value and preemptionPolicy.
CLASSES = {"high": (5, "PreemptLowerPriority"), "higher": (10, "PreemptLowerPriority"), "patient": (10, "Never")}
END = 3_000.0


@dataclass
class Trace:
    """All that can be seen of a run.

    ``known``: how often a rejection was remembered; ``without_victims``: how often no pod had a lower priority.
    """

    states: list[tuple[Any, ...]] = field(default_factory=list)
    metrics: list[tuple[Any, ...]] = field(default_factory=list)
    objects: dict[str, list[JSON]] = field(default_factory=dict)
    preemptions: list[tuple[Any, ...]] = field(default_factory=list)
    known: int = 0
    without_victims: int = 0


def pod_budget(rng: random.Random) -> JSON:
    spec = {"maxUnavailable": rng.randrange(3), "selector": {"matchLabels": {"team": "a"}}}
    return {"metadata": {"name": "budget", "namespace": "default"}, "spec": spec}


def node(rng: random.Random, name: str) -> JSON:
    amounts = {
        "cpu": str(rng.choice((4, 8))),
        "memory": "32Gi",
        "pods": str(rng.choice((3, 110))),
        GPU: str(rng.choice((0, 4, 8))),
    }
    taints = [{"key": "lab", "effect": "NoSchedule"}] if rng.random() < 0.2 else []
    metadata = {"name": name, "labels": {"zone": rng.choice("ab")}}
    return {"metadata": metadata, "spec": {"taints": taints}, "status": {"allocatable": amounts, "capacity": amounts}}


def kinds_of_pods(rng: random.Random) -> list[JSON]:
    """Specs with labels; the pods of a batch share them."""
    kinds = []
    for _ in range(rng.randrange(2, 6)):
        requests = {"cpu": str(rng.choice((1, 2, 3))), "memory": "1Gi"}
        if rng.random() < 0.7:
            requests[GPU] = str(rng.choice((1, 2, 4, 8)))
        spec: JSON = {
            "containers": [{"name": "c", "image": "i", "resources": {"requests": requests, "limits": requests}}]
        }
        if rng.random() < 0.4:
            spec["priorityClassName"] = rng.choice(tuple(CLASSES))
        if rng.random() < 0.2:
            spec["nodeSelector"] = {"zone": rng.choice("abc")}
        kinds.append({"labels": {"team": rng.choice("ab")}, "spec": spec})
    return kinds


def plan(seed: int) -> list[tuple[float, str, Kind, JSON]]:
    """Return the objects to create: time, namespace, kind and manifest of each."""
    rng = random.Random(seed)
    found: list[tuple[float, str, Kind, JSON]] = [
        (0.0, "", NODES, node(rng, f"n{number}")) for number in range(rng.randrange(2, 5))
    ]
    found.append((rng.uniform(0, 500), "", NODES, node(rng, "late")))
    classes = kind_of("scheduling.k8s.io/v1", "PriorityClass")
    assert classes is not None
    for name, (value, policy) in CLASSES.items():
        found.insert(0, (0.0, "", classes, {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy}))
    budgets = kind_of("policy/v1", "PodDisruptionBudget")
    assert budgets is not None
    if rng.random() < 0.5:
        found.append((rng.uniform(0, 300), "default", budgets, pod_budget(rng)))
    for number, kind in enumerate(kinds_of_pods(rng)):
        later = rng.uniform(20, 200)
        begin = later if "priorityClassName" in kind["spec"] else rng.choice((0.0, later))
        for place in range(rng.randrange(5, 16)):
            metadata = {
                "name": f"p{number}-{place}",
                "labels": kind["labels"],
                "annotations": {"kubesched.io/duration": f"{rng.choice((30, 240, 700))}s"},
            }
            at = begin + (rng.uniform(0, 60) if rng.random() < 0.3 else 0.0)
            found.append((at, "default", PODS, {"metadata": metadata, "spec": kind["spec"]}))
    return sorted(found, key=lambda item: item[0])


@contextmanager
def memory(on: bool, trace: Trace) -> Iterator[None]:
    """Count what is saved, or save nothing."""
    has_below = PlacedPods.has_below

    def may_have_victims(self: PlacedPods, priority: int) -> bool:
        found = not on or has_below(self, priority)
        trace.without_victims += not found
        return found

    known = KnownRejection.current

    def current(rejection: KnownRejection, why: Any) -> Any:
        found = known(rejection, why) if on else None
        trace.known += found is not None
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PlacedPods, "has_below", may_have_victims)
        patch.setattr(KnownRejection, "current", current)
        # Which deletions are awaited depends on lower priorities, too. It changes when pods are tried, so it is off in both runs.
        patch.setattr(VictimsAwaited, "_room", lambda self, pod, rejectors: None)
        yield


def state(embedded: Embedded, record: QueuedPodInfo) -> tuple[Any, ...]:
    return (
        record.key,
        embedded.scheduler.queue.views.where(record.pod_info.pod),
        record.attempts,
        record.timestamp,
        record.backoff_expiration,
        record.unschedulable_count,
        sorted(record.unschedulable_plugins),
        record.was_flushed_from_unschedulable,
    )


def without_versions(data: JSON) -> JSON:
    """Versions count all writes; of events that end at one instant the order of the last writes may differ."""
    del data["metadata"]["resourceVersion"]
    data.get("regarding", {}).pop("resourceVersion", None)
    return data


def look(embedded: Embedded, trace: Trace, now: float, *, users: bool) -> None:
    """Note down every queued pod; then ``users`` may change some."""
    assert embedded.scheduler.queue.views.check() == []
    views = embedded.scheduler.queue.views
    queued, summary = views.pending_pods()
    records = [views.get_pod(pod.name, pod.namespace) for pod in queued]
    trace.states.append((now, summary, [state(embedded, record) for record in records if record is not None]))
    if users:
        interfere(embedded, now)


def interfere(embedded: Embedded, now: float) -> None:
    """Now and then delete or relabel a waiting pod."""
    rng = random.Random(round(now * 1000))
    pods = sorted(embedded.scheduler.queue.views.unschedulable_pods(), key=lambda pod: pod.key)
    if pods and rng.random() < 0.15:
        pod = rng.choice(pods)
        if rng.random() < 0.5:
            embedded.store.delete(PODS, pod.namespace, pod.name)
        else:
            patch = {"metadata": {"labels": {"team": rng.choice("abc")}}}
            embedded.store.patch(PODS, pod.namespace, pod.name, patch)


async def play(seed: int, trace: Trace, *, users: bool) -> None:
    loop = asyncio.get_running_loop()
    embedded = Embedded(
        default_config(),
        in_tree_registry(),
        clock=VirtualClock(loop),
        seed=seed,
        observers=[
            Preemptions(lambda found: trace.preemptions.append((loop.time(), found.pod.key, found.chosen.node_name)))
        ],
    )
    scheduler = embedded.scheduler
    async with embedded.running():
        for at, namespace, kind, data in plan(seed):
            while loop.time() < at:
                await asyncio.sleep(min(at - loop.time(), 7.3))
                look(embedded, trace, loop.time(), users=users)
            embedded.store.create(kind, namespace, data, restore=kind == NODES)
        while loop.time() < END:
            await asyncio.sleep(7.3)
            look(embedded, trace, loop.time(), users=users)
        assert embedded.check() == []
    for kind in (PODS, EVENTS):
        trace.objects[kind.plural] = [without_versions(item.data()) for item in embedded.store.list(kind).items]
    for family in scheduler.metrics.collect():
        if family.name == "scheduler_plugin_evaluation_total":
            continue  # counts what was evaluated, which is what memory saves
        trace.metrics.append((family.name, sorted((labels, repr(value)) for labels, value in family.samples)))


def run(seed: int, *, remember: bool, users: bool = False) -> Trace:
    trace = Trace()
    with memory(remember, trace):
        run_virtual(play(seed, trace, users=users))
    return trace


def compare(seed: int, *, users: bool = False) -> Trace:
    kept, plain = run(seed, remember=True, users=users), run(seed, remember=False, users=users)
    assert plain.known == plain.without_victims == 0
    for part in ("states", "preemptions", "objects", "metrics"):
        assert getattr(kept, part) == getattr(plain, part), part
    return kept


@pytest.mark.parametrize("seed", range(8))
def test_memory_changes_nothing(seed: int) -> None:
    compare(seed)


@pytest.mark.parametrize("seed", [1, 6, 7])
def test_nor_does_it_while_users_delete_and_relabel_waiting_pods(seed: int) -> None:
    assert compare(seed, users=True).known > 0


def test_nor_does_it_when_others_have_their_turn_after_every_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """In real time a turn ends when its time is over; in virtual time it never does."""
    monkeypatch.setattr(scheduler_module, "_TURN_SECONDS", -1.0)
    assert compare(6, users=True).known > 0


def test_the_comparison_covers_what_is_remembered() -> None:
    """Otherwise the test above compares nothing."""
    traces = [run(seed, remember=True) for seed in range(8)]
    assert sum(trace.without_victims for trace in traces) > 100
    assert sum(trace.known for trace in traces) > 100
    assert sum(len(trace.preemptions) for trace in traces) > 0
    assert any("Insufficient" in str(trace.objects["events"]) for trace in traces)


async def rest_after_being_busy() -> list[JSON]:
    """Pods wait for room that is often freed but too small for them, and then not freed for longer than a series lasts."""
    embedded = Embedded(default_config(), in_tree_registry(), clock=VirtualClock(asyncio.get_running_loop()), seed=0)
    amounts = {"cpu": "10", "memory": "32Gi", "pods": "110"}
    async with embedded.running():
        node = {"metadata": {"name": "n"}, "status": {"allocatable": amounts, "capacity": amounts}}
        embedded.store.create(NODES, "", node, restore=True)
        for name, cpu, seconds in (
            ("full", "8", "5000s"),
            *((f"short-{at}", "100m", f"{at}s") for at in range(20, 300, 20)),
            *((f"waits-{number}", "4", "60s") for number in range(5)),
        ):
            metadata = {"name": name, "annotations": {"kubesched.io/duration": seconds}}
            spec = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}
            embedded.store.create(PODS, "default", {"metadata": metadata, "spec": spec})
        await asyncio.sleep(4_000)
        assert embedded.check() == []
        assert len(embedded.scheduler.queue.views.unschedulable_pods()) == 5
        return [without_versions(item.data()) for item in embedded.store.list(EVENTS).items]


def test_pods_that_were_not_tried_for_long_begin_a_new_series_of_events(monkeypatch: pytest.MonkeyPatch) -> None:
    patient = functools.partial(scheduler_module.Scheduler, max_in_unschedulable=900.0)
    monkeypatch.setattr(embedded_module, "Scheduler", patient)
    failed = [
        event
        for event in run_virtual(rest_after_being_busy())
        if event["regarding"]["name"] == "waits-0" and event["type"] == "Warning"
    ]
    assert len(failed) > 2
