"""Room for a pod group: the bound never hides a group that fits, and a change that is too small costs one member."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from group_kit import GANG, TOPOLOGY, WHOLE, Cluster
from hypothesis import given, settings
from hypothesis import strategies as st

from kubesched.api.kinds import NODES
from kubesched.lab.simulate.run.virtual_time import run_virtual
from kubesched.scheduler.core.group_cycle import GroupCycle
from kubesched.scheduler.core.group_room import GroupRoom
from kubesched.scheduler.core.group_submit import Submission

#: Drawn runs; with the profile for sweeps thousands.
DRAWN = 25 if settings().max_examples < 100 else settings().max_examples


async def a_full_cluster(cluster: Cluster, nodes: int = 6) -> None:
    for number in range(nodes):
        cluster.node(f"n{number}", "4", rack=f"r{number % 2}")
        cluster.pod(f"full-{number}", cpu="4", node=f"n{number}")
    await asyncio.sleep(1)


# -- what a change costs -----------------------------------------------------------------------------------


def test_a_deletion_that_makes_too_little_room_costs_one_member_of_each_gang() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            await a_full_cluster(cluster)
            for number in range(5):
                cluster.gang(f"g{number}", 4, cpu="2")
            await asyncio.sleep(60)
            before = len(cluster.cycles)
            told = cluster.told("g0-0")
            cluster.delete("full-0")
            await asyncio.sleep(60)
            assert len(cluster.cycles) - before == 5
            assert cluster.told("g0-0") == told
            cluster.delete("full-1")
            await asyncio.sleep(60)
            assert sorted(len(cluster.in_group(f"g{number}")) for number in range(5)) == [0, 0, 0, 0, 4]
            assert cluster.problems() == []

    run_virtual(main())


def test_room_in_two_racks_does_not_wake_a_gang_confined_to_one() -> None:
    async def main() -> None:
        async with Cluster(TOPOLOGY) as cluster:
            await a_full_cluster(cluster)
            cluster.gang("g", 2, cpu="4", key="rack")
            await asyncio.sleep(60)
            before = len(cluster.cycles)
            cluster.delete("full-0")
            cluster.delete("full-1")
            await asyncio.sleep(60)
            assert len(cluster.cycles) - before == 1
            cluster.delete("full-2")
            await asyncio.sleep(60)
            assert sorted(cluster.placed()[name] for name in cluster.in_group("g")) == ["n0", "n2"]

    run_virtual(main())


def test_a_gang_is_tried_in_any_case_when_it_was_not_for_long_or_evictions_may_help() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            await a_full_cluster(cluster)
            cluster.gang("g", 4, cpu="2")
            await asyncio.sleep(60)
            before = len(cluster.cycles)
            await asyncio.sleep(330)
            assert len(cluster.cycles) - before >= 4  # after five minutes all members are tried
            cluster.group("high", 8)
            for number in range(8):
                cluster.pod(f"high-{number}", "high", "4", priority=100)
            await asyncio.sleep(60)
            before = len(cluster.cycles)
            cluster.delete("full-0")
            await asyncio.sleep(60)
            assert sum(key.startswith("default/high-") for key in cluster.cycles[before:]) >= 8

    run_virtual(main())


# -- never hides a fit -------------------------------------------------------------------------------------


class _Checked:
    """Groups that the bound would have left alone. They are tried all the same."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.claimed: set[str] = set()
        self.claims = 0
        self.wrong: list[str] = []
        shortage, submit, schedule = GroupRoom.shortage, Submission.submit, GroupCycle._schedule

        def claiming(room: GroupRoom, key: str, queued: Any) -> str:
            if shortage(room, key, queued):
                self.claimed.add(key)
                self.claims += 1
            return ""

        async def submitting(submission: Submission, group: Any, outcome: Any) -> Any:
            if group.key in self.claimed and outcome.is_feasible:
                self.wrong.append(group.key)
            return await submit(submission, group, outcome)

        async def scheduling(cycle: GroupCycle, queued: Any) -> None:
            self.claimed.clear()
            await schedule(cycle, queued)

        monkeypatch.setattr(GroupRoom, "shortage", claiming)
        monkeypatch.setattr(Submission, "submit", submitting)
        monkeypatch.setattr(GroupCycle, "_schedule", scheduling)


def a_drawn_pod(rng: random.Random) -> dict[str, Any]:
    """Return fields of a pod's spec that filters of all kinds read."""
    drawn: dict[str, Any] = {}
    if rng.random() < 0.15:
        drawn["nodeSelector"] = {"rack": rng.choice(("r0", "r1"))}
    if rng.random() < 0.15:
        drawn["tolerations"] = [{"operator": "Exists"}]
    if rng.random() < 0.15:
        ports = [{"containerPort": 80, "hostPort": rng.choice((80, 81))}]
        requests = {"cpu": rng.choice(("1", "2"))}
        drawn["containers"] = [{"name": "c", "image": "a:1", "ports": ports, "resources": {"requests": requests}}]
    if rng.random() < 0.15:
        selector = {"matchLabels": {"app": "x"}}
        spread = {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
        drawn["topologySpreadConstraints"] = [spread]
    if rng.random() < 0.1:
        drawn["preemptionPolicy"] = "Never"
    return drawn


async def play(cluster: Cluster, rng: random.Random) -> None:
    for number in range(rng.randint(2, 6)):
        cluster.node(f"n{number}", str(rng.randint(1, 6)), rack=f"r{number % 2}")
    for step in range(rng.randint(8, 24)):
        draw = rng.random()
        if draw < 0.3:
            members, kinds = rng.randint(1, 7), rng.randint(1, 2)
            priority = rng.choice((0, 0, 0, 10))
            shapes = [(rng.choice(("1", "1", "2", "500m")), a_drawn_pod(rng)) for _ in range(kinds)]
            cluster.group(f"g{step}", rng.randint(1, members), key=rng.choice(("", "", "rack")), priority=priority)
            for number in range(members):
                cpu, spec = shapes[number % kinds]
                cluster.pod(f"g{step}-{number}", f"g{step}", cpu, priority, **spec)
        elif draw < 0.6:
            cluster.pod(f"p{step}", cpu=str(rng.randint(1, 3)), priority=rng.choice((0, 5)))
        elif draw < 0.9 and (placed := sorted(cluster.placed())):
            cluster.delete(rng.choice(placed))
        elif draw < 0.95:
            cluster.node(f"m{step}", str(rng.randint(1, 3)), rack=f"r{step % 2}")
        elif nodes := [item.typed.name for item in cluster.store.list(NODES).items]:
            name = rng.choice(nodes)
            taints = rng.choice(([], [{"key": "k", "effect": "NoSchedule"}]))
            cluster.store.patch(
                NODES, "", name, {"spec": {"taints": taints}}, patch_type="application/merge-patch+json"
            )
        await asyncio.sleep(rng.choice((0, 1, 15, 15)))
    await asyncio.sleep(60)


def wrong_claims(gates: tuple[str, ...], seed: int) -> tuple[list[str], int]:
    async def main() -> None:
        async with Cluster(gates, seed) as cluster:
            await play(cluster, random.Random(seed))

    with pytest.MonkeyPatch.context() as monkeypatch:
        checked = _Checked(monkeypatch)
        run_virtual(main())
    return checked.wrong, checked.claims


@settings(deadline=None, max_examples=DRAWN)
@given(st.sampled_from((GANG, TOPOLOGY, WHOLE)), st.integers(0, 1 << 32))
def test_no_group_that_the_bound_leaves_alone_would_fit(gates: tuple[str, ...], seed: int) -> None:
    assert wrong_claims(gates, seed)[0] == []


def test_the_bound_leaves_groups_alone_in_such_runs() -> None:
    assert sum(wrong_claims(GANG, seed)[1] for seed in range(6)) > 5
