"""Hints of the topology plugins are found by label keys: no pod that an event helps is missed, and few others are met."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from builders import a_pod
from kubesched.api.decode import from_builtins
from kubesched.api.types import Affinity, Pod, TopologySpreadConstraint
from kubesched.scheduler.framework.events import EventResource, KeyedHint, QueueingHint
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.nodes.term_index import TermIndex
from kubesched.scheduler.plugins import inter_pod_affinity_hints, pod_topology_spread_hints
from kubesched.scheduler.plugins.topology_constraints import HARD, compile_constraints

_OPERATORS: tuple[tuple[str, list[str]], ...] = (
    ("In", ["x"]),
    ("In", ["x", "y"]),
    ("NotIn", ["x"]),
    ("Exists", []),
    ("DoesNotExist", []),
    ("Gt", ["x"]),
)


def some_selector(random: Random) -> Any:
    kind = random.randrange(6)
    if kind == 0:
        return None
    if kind == 1:
        return {}
    expressions = [
        {"key": random.choice("ab"), "operator": operator, "values": values}
        for operator, values in random.choices(_OPERATORS[: 6 if random.random() < 0.1 else 5], k=random.randrange(3))
    ]
    labels = {random.choice("ab"): random.choice("xyz")} if random.random() < 0.6 else {}
    return {"matchLabels": labels, "matchExpressions": expressions}


def some_labels(random: Random) -> dict[str, str]:
    return {key: random.choice("xyz") for key in "ab" if random.random() < 0.6}


def some_pod(random: Random, name: str, *, on: str) -> Pod:
    def terms() -> list[dict[str, Any]]:
        return [{"labelSelector": some_selector(random), "topologyKey": "zone"} for _ in range(random.randrange(3))]

    required = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = {"podAffinity": {required: terms()}, "podAntiAffinity": {required: terms()}}
    constraints = [
        {
            "topologyKey": "zone",
            "maxSkew": 1,
            "whenUnsatisfiable": HARD,
            "labelSelector": some_selector(random),
            "matchLabelKeys": random.choice(([], ["a"])),
        }
        for _ in range(random.randrange(3))
    ]
    pod = a_pod(
        name,
        on=on,
        namespace=random.choice(("one", "two")),
        labels=some_labels(random),
        topology_spread_constraints=tuple(from_builtins(item, TopologySpreadConstraint) for item in constraints),
    )
    if random.random() < 0.2:
        return pod
    spec = msgspec.structs.replace(pod.spec, affinity=from_builtins(affinity, Affinity))
    return msgspec.structs.replace(pod, spec=spec)


def hint_of(events: Any) -> KeyedHint:
    (found,) = (item.hint for item in events if item.event.resource == EventResource.POD)
    assert isinstance(found, KeyedHint)
    return found


def constraints_of(pod: PodInfo) -> Any:
    return compile_constraints(pod.spec.topology_spread_constraints, HARD, pod.labels)


HINTS = {
    "affinity": hint_of(inter_pod_affinity_hints.events(lambda: TermIndex(None))),  # type: ignore[arg-type]
    "spreading": hint_of(pod_topology_spread_hints.events(constraints_of)),
}


def helps(hint: KeyedHint, waiting: PodInfo, old: Pod | None, new: Pod | None) -> bool:
    try:
        return hint(waiting, old, new) is QueueingHint.QUEUE
    except ValueError:  # a selector that cannot be read: the queue takes this for Queue
        return True


@pytest.mark.parametrize("plugin", HINTS)
@pytest.mark.parametrize("seed", range(3))
def test_a_pod_that_an_event_helps_has_one_of_its_keys(plugin: str, seed: int) -> None:
    random, hint = Random(seed), HINTS[plugin]
    helped = skipped = 0
    for _ in range(250):
        waiting = PodInfo(some_pod(random, "waiting", on=""))
        old = some_pod(random, random.choice(("waiting", "other")), on=random.choice(("node", "node", "")))
        new = a_pod(old.name, namespace=old.namespace, on=old.spec.node_name, labels=some_labels(random))
        keys = set(hint.of_pod(waiting))
        for before, after in ((None, old), (old, None), (old, new)):
            of_event = hint.of_event(before, after)
            met = of_event is None or not keys.isdisjoint(of_event)
            if helps(hint, waiting, before, after):
                helped += 1
                assert met, (waiting.pod, before, after)
            skipped += not met
    assert helped > 50
    assert skipped > 50
