"""The table that compares gangs by Permit with pod groups, on small workloads, and the example plugin for gangs by Permit."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from policy_kit import POLICIES, load

import kubesched
from kubesched.cli.main import main
from kubesched.lab.traces import GangForm, TraceTask

gang_table = load("gang_table")
PLUGIN = POLICIES.parent / "plugins" / "gang_by_permit.py"


def bound(tasks: list[TraceTask], form: GangForm, **options: Any) -> dict[str, float]:
    objects = [each for task in tasks for each in task.as_objects(gang=form)]
    result = kubesched.simulate(objects, nodes=1, node_resources={"nvidia.com/gpu": 4}, until="2h", **options)
    return {each.name: each.bound_at or 0.0 for each in result.placements}


def test_a_gang_by_permit_holds_places_until_its_time_is_over_and_a_pod_group_does_not() -> None:
    running, gang = TraceTask("running", 0, 300, 2, gpus=1), TraceTask("gang", 10, 60, 3, gpus=1)
    small = TraceTask("small", 20, 30, 2, gpus=1)
    held = bound([running, gang, small], "labels", plugins=[PLUGIN])
    assert held["small-0"] >= 70, "two pods of the gang hold the free GPUs for a minute"
    free = bound([running, gang, small], "PodGroup", gates=gang_table.GROUPS)
    assert free["small-0"] == free["small-1"] == 20
    for found in (held, free):
        assert len({found[f"gang-{number}"] for number in range(3)}) == 1, "all begin together"
        assert 300 <= found["gang-0"] < 600


def test_pods_with_a_wrong_number_of_members_are_no_gang() -> None:
    labels = {"pod-group.scheduling.sigs.k8s.io/name": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "many"}
    container = {"name": "c", "image": "i"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "labels": labels},
        "spec": {"containers": [container]},
    }
    assert len(kubesched.simulate([pod], nodes=1, plugins=[PLUGIN]).placements) == 1


def test_the_workload_requests_the_load_and_has_the_published_sizes() -> None:
    trace = gang_table.drawn(jobs=4000, gpus=32, load=1.3, seed=1)
    work = sum(task.instances * (task.duration or 0) for task in trace.tasks)
    assert work / 32 / max(task.arrival for task in trace.tasks) == pytest.approx(1.3, rel=0.01)
    shares = [sum(task.instances == size for task in trace.tasks) / 4000 for size in gang_table.SIZES]
    assert shares == pytest.approx(gang_table.SHARES, abs=0.02)


def test_a_trace_of_philly_takes_the_place_of_the_drawn_jobs(tmp_path: Path) -> None:
    def job(name: str, *machines: int) -> dict[str, Any]:
        detail = [{"ip": "m", "gpus": ["g"] * count} for count in machines]
        times = {"start_time": "2017-10-07 02:00:00", "end_time": "2017-10-07 03:00:00"}
        return {"jobid": name, "submitted_time": "2017-10-07 01:00:00", "attempts": [{**times, "detail": detail}]}

    path = tmp_path / "cluster_job_log"
    path.write_text(json.dumps([job("one", 1), job("wide", 4, 2, 2), job("huge", 8, 8, 8), job("last", 8)]))
    found = gang_table.run("kubesched", seed=0, jobs=9, nodes=1, trace=path)
    assert found["jobs"] == 4, "three jobs, one of them in two parts; one is too large"
    assert found["started"] == 4
    assert found["makespan"] == pytest.approx(3, rel=0.01)


def test_the_sweep_makes_all_runs_of_the_table_and_all_jobs_start(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(POLICIES / "config/gangs-compared.yaml")
    given = ["--set", "jobs=6", "--set", "nodes=1", "--grid", "seed=0", "--processes", "0", "-o", "csv"]
    assert main(["sweep", file, *given]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["scheduler"] for row in rows] == list(gang_table.SCHEDULERS)
    assert {(row["started"], row["jobs"], row["error"]) for row in rows} == {("6", "6", "")}
    assert all(0 < float(row["at work"]) <= 100 and float(row["makespan"]) > 1 for row in rows)
