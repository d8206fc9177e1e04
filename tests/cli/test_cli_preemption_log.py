"""Messages of ``kubesched up`` about preemptions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from builders import a_pod
from kubesched.cli.preemption_log import PreemptionLog
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual
from kubesched.scheduler.framework.preemption import Candidate, Preemption, Victims
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes.podinfo import PodInfo


def preemption(number: int) -> Preemption:
    def candidate(node: str, *names: str) -> Candidate:
        return Candidate(node, Victims(tuple(PodInfo(a_pod(name)) for name in names)))

    return Preemption(
        PodInfo(a_pod(f"high{number}", priority=100)),
        candidate("n1", "low1", "low2"),
        lambda: [(candidate("n2", "low3"), "more victims")],
        lambda: {"n3": Status.unschedulable("Insufficient cpu")},
    )


def written(count: int, capsys: pytest.CaptureFixture[str]) -> list[str]:
    async def main() -> Any:
        log = PreemptionLog(VirtualClock(asyncio.get_running_loop()))
        for number in range(count):
            log.preempted(preemption(number))
        await asyncio.sleep(2)

    run_virtual(main())
    return capsys.readouterr().out.splitlines()


def test_a_preemption_is_described_with_the_nodes_that_lost(capsys: pytest.CaptureFixture[str]) -> None:
    first, *rest = written(1, capsys)
    assert first.startswith("preempted: ns/high0 (priority 100) on n1 at 20")
    assert rest == ["  evicted: ns/low1, ns/low2", "  not n2: more victims", "  1 node not helped: Insufficient cpu"]


def test_of_many_in_a_second_the_first_are_described_and_the_others_counted(capsys: pytest.CaptureFixture[str]) -> None:
    lines = written(50, capsys)
    assert sum("(priority 100)" in line for line in lines) == 3
    assert lines[-1] == "preempted: 47 more pods in the same second; kubectl get events shows who was evicted"
