"""Plans agree with brute force: every choice of nodes is simulated, and none that places all pods is better."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import kubesched
from kubesched.lab.node_groups import NodeGroup
from kubesched.lab.node_groups.offers import template_of
from kubesched.lab.simulate.entry import options_of
from kubesched.lab.simulate.inputs.given import manifests_of
from kubesched.lab.simulate.planning.drains import drained
from kubesched.lab.simulate.planning.plan import demanded, plan_of
from kubesched.lab.simulate.planning.removing import removal_of
from planning_kit import APPS, nodes, pod, running, specs

#: Few cases in the ordinary profile: a case takes some 300 ms.
_CASES = settings().max_examples if settings().max_examples >= 1000 else 6
_MOST = 2


@st.composite
def _groups(draw: st.DrawFn) -> list[NodeGroup]:
    made = []
    for number in range(draw(st.integers(1, 2))):
        taints = draw(st.sampled_from([[], [], [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]]))
        size = {"cpu": str(draw(st.integers(1, 4))), "memory": f"{draw(st.integers(1, 6))}Gi", "pods": "110"}
        made.append(
            NodeGroup(
                name=f"g{number}",
                template=template_of(size, labels={"disk": draw(st.sampled_from(["hdd", "ssd"]))}, taints=taints),
                maximum=_MOST,
                price=draw(st.sampled_from([0.0, 1.0, 1.5, 2.0, 3.0])),
                zones=draw(st.sampled_from([(), ("a",), ("b", "c")])),
            )
        )
    return made


def _places_all(cluster: list[Any], wanted: list[str], groups: list[NodeGroup], choice: tuple[int, ...]) -> bool:
    """Return True if all wanted pods have a node in a simulation in which these nodes are added."""
    with kubesched.Simulation(cluster) as simulation:
        simulation.advance(60)
        new = [item for group, count in zip(groups, choice, strict=True) for item in group.nodes(count)]
        simulation.create(new)
        simulation.run(until=7260)
        there = {one.name: one.spec.node_name for one in simulation.pods}
        return all(there.get(name) for name in wanted)


@settings(max_examples=_CASES)
@given(st.data())
def test_no_choice_of_nodes_is_better_than_the_plan(data: st.DataObject) -> None:
    there = data.draw(nodes(2))
    pods = [
        pod(f"new-{number}", data.draw(specs()), data.draw(st.sampled_from(APPS)))
        for number in range(data.draw(st.integers(1, 4)))
    ]
    cluster = there + data.draw(running(there, 2))
    groups = data.draw(_groups())
    plan = plan_of(demanded(options_of(cluster), manifests_of(pods, "pods")), groups)
    names = [one["metadata"]["name"] for one in pods]

    def rank(choice: tuple[int, ...]) -> tuple[float, int, tuple[int, ...]]:
        return (
            round(sum(group.price * count for group, count in zip(groups, choice, strict=True)), 9),
            sum(choice),
            choice,
        )

    choices = sorted(itertools.product(range(_MOST + 1), repeat=len(groups)), key=rank)
    found = next((choice for choice in choices if _places_all([*cluster, *pods], names, groups, choice)), None)
    if plan.steps:
        assert found is None  # at once no choice is enough
    elif plan.verified and not plan.unplaced:
        assert plan.exact
        assert found is not None
        counts = {one.group: one.count for one in plan.add}
        assert tuple(counts.get(group.name, 0) for group in groups) == found
        assert plan.bound <= plan.cost + 1e-9
    else:
        assert found is None


@settings(max_examples=_CASES)
@given(st.data())
def test_no_set_of_nodes_that_saves_more_can_go(data: st.DataObject) -> None:
    there = data.draw(nodes(3))
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}
    pods = data.draw(running(there, 3))
    for one in pods:
        one["metadata"]["ownerReferences"] = [owner]
    arguments = options_of([*there, *pods])
    removal = removal_of(arguments).removal
    assert removal is not None
    assert removal.exact
    kept = {one.node for one in removal.kept if one.why.startswith("budget")}
    names = [one["metadata"]["name"] for one in there if one["metadata"]["name"] not in kept]
    most = 0
    for size in range(1, len(names) + 1):
        for going in itertools.permutations(names, size):
            if not drained(arguments, going, dict.fromkeys(going, ("", 0.0))).failed:
                most = size
                break
    assert len(removal.drains) == most
