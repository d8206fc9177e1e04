"""Capacity agrees with brute force: a simulation in which pods are created one by one until one has no node."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import kubesched
from kubesched.lab.simulate.entry import options_of
from kubesched.lab.simulate.inputs.given import manifests_of
from kubesched.lab.simulate.planning import capacity
from kubesched.lab.simulate.planning.question import question_of
from planning_kit import APPS, nodes, pod, running, specs

#: Few cases in the ordinary profile: a case takes some 50 ms.
_CASES = settings().max_examples if settings().max_examples >= 1000 else 12
#: Most copies that are counted in a case.
_MOST = 30


def _one_by_one(cluster: list[Any], asked: list[dict[str, Any]], seed: int) -> tuple[int, Counter[str]]:
    """Return the number of complete copies of the pods that fit, and the numbers of pods by node."""
    where: Counter[str] = Counter()
    with kubesched.Simulation(cluster, seed=seed) as simulation:
        for copy in range(_MOST):
            made = [
                {**one, "metadata": {**one["metadata"], "name": f"{one['metadata']['name']}-{copy}"}} for one in asked
            ]
            simulation.create(made)
            simulation.advance(60)
            found = {one.name: one.spec.node_name for one in simulation.pods}
            nodes = [found[one["metadata"]["name"]] for one in made]
            where.update(filter(None, nodes))
            if not all(nodes):
                return copy, where
    return _MOST, where


@settings(max_examples=_CASES)
@given(st.data())
def test_the_count_of_one_kind_of_pod_and_their_nodes_are_those_of_a_simulation(data: st.DataObject) -> None:
    there = data.draw(nodes())
    cluster = there + data.draw(running(there))
    asked = pod("new", data.draw(specs()), data.draw(st.sampled_from(APPS)))
    (found,) = kubesched.capacity(cluster, asked, seed=3, most=_MOST).answers
    assert found.how == "cycle"
    copies, where = _one_by_one(cluster, [asked], 3)
    assert found.copies == copies
    assert {one.node: one.pods for one in found.nodes} == where


@settings(max_examples=_CASES)
@given(st.data())
def test_the_copies_of_a_mix_are_those_of_a_simulation(data: st.DataObject) -> None:
    there = data.draw(nodes())
    cluster = there + data.draw(running(there))
    asked = [pod(f"new-{app}", data.draw(specs()), app) for app in ("web", "db")]
    (found,) = kubesched.capacity(cluster, asked, seed=3, most=_MOST).answers
    copies, where = _one_by_one(cluster, asked, 3)
    assert found.copies == copies
    assert {one.node: one.pods for one in found.nodes} == where


@settings(max_examples=_CASES // 2)
@given(st.data())
def test_a_run_of_the_whole_cluster_counts_the_same(data: st.DataObject) -> None:
    there = data.draw(nodes())
    cluster = there + data.draw(running(there))
    asked = pod("new", data.draw(specs()), data.draw(st.sampled_from(APPS)))
    counting = capacity.Counting(most=_MOST)
    arguments, question = options_of(cluster), question_of(manifests_of(asked, "pods"))
    (by_cycle,) = capacity.capacity_of(arguments, question, counting).answers
    counted, by_run = capacity.run_of(arguments, question, counting, preemption=False)
    assert (counted.copies, counted.stopped) == (by_cycle.copies, by_cycle.stopped)
    assert by_run.placed == by_cycle.placed
