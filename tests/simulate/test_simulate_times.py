"""Times in and out of a simulation: arrivals, the lives of pods, distributions, the course of a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kubesched.api.decode import from_builtins
from kubesched.api.types import Node
from kubesched.cluster.files import ManifestError
from kubesched.explain.fragmentation import Shapes
from kubesched.lab.simulate import Result, run_simulation
from kubesched.lab.simulate.results.course import Course
from kubesched.lab.simulate.results.pod_times import distribution
from kubesched.lab.simulate.results.result import PodTimes
from kubesched.scheduler.framework.metrics import SchedulerMetrics
from kubesched.scheduler.nodes.node_table import NodeTable
from kubesched.scheduler.plugins import in_tree_registry

JSON = dict[str, Any]
ARRIVAL, DURATION = "kubesched.io/arrival", "kubesched.io/duration"


def node(name: str, cpu: str = "4", **metadata: Any) -> JSON:
    amounts = {"cpu": cpu, "memory": "8Gi", "pods": "20"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, **metadata},
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def pod(name: str, cpu: str = "1", *, arrival: str = "", duration: str = "", **spec: Any) -> JSON:
    given = {ARRIVAL: arrival, DURATION: duration}
    annotations = {key: value for key, value in given.items() if value}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}


def run(*objects: JSON, **options: Any) -> Result:
    return run_simulation(objects, registry=in_tree_registry(), **options)


def by_name(result: Result) -> dict[str, PodTimes]:
    return {one.name: one for one in result.pods}


def test_each_pod_says_when_it_was_created_queued_bound_started_and_finished() -> None:
    result = run(node("n", "1"), pod("a", duration="60s"), pod("b", arrival="30s", duration="10s"))
    a, b = by_name(result)["a"], by_name(result)["b"]
    assert (a.created, a.queued, a.bound, a.started, a.finished, a.attempts) == (0, 0, 0, 1, 61, 1)
    assert (a.phase, a.node, a.removed, a.preempted, a.requests) == ("Succeeded", "n", None, False, {"cpu": 1000})
    assert (b.created, b.queued, b.bound, b.started, b.finished, b.attempts) == (30, 30, 61, 62, 72, 2)
    assert result.totals.attempts == 3
    times = result.times
    assert (times.makespan, times.waiting) == (72, None)
    assert times.wait is not None
    assert (times.wait.count, times.wait.mean, times.wait.max, times.wait.p50) == (2, 15.5, 31, 15.5)
    assert times.turnaround is not None
    assert (times.turnaround.mean, times.turnaround.max) == (51.5, 61)


def test_pods_that_wait_or_are_gated_are_said_to_wait_and_not_to_be_queued() -> None:
    gated = pod("gated", schedulingGates=[{"name": "hold"}])
    result = run(node("n", "1"), pod("big", "2", arrival="10s"), gated, until=100.0)
    big, held = by_name(result)["big"], by_name(result)["gated"]
    assert (big.created, big.queued, big.bound, big.phase) == (10, 10, None, "Pending")
    assert big.attempts >= 1
    assert (held.created, held.queued, held.attempts) == (0, None, 0)
    assert result.times.waiting is not None
    assert (result.times.waiting.count, result.times.waiting.max) == (1, result.virtual_seconds - 10)
    assert result.times.wait is None
    assert result.times.makespan is None


def test_a_preempted_pod_stays_in_the_list_with_its_end() -> None:
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9}
    result = run(high, node("n", "1"), pod("low"), pod("urgent", arrival="1m", priorityClassName="high"))
    low, urgent = by_name(result)["low"], by_name(result)["urgent"]
    assert low.preempted
    assert low.removed is not None
    assert low.removed >= 60
    assert not urgent.preempted
    assert urgent.bound == low.removed
    assert result.totals.removed == 1


def test_objects_of_every_kind_arrive_nodes_and_workloads_too() -> None:
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "w"}}}
    template = {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    workload = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "w", "annotations": {ARRIVAL: "2h"}},
        "spec": {**spec, "template": template},
    }
    late = node("late", annotations={ARRIVAL: "1h"})
    result = run(late, pod("p"), workload)
    pods = by_name(result)
    assert pods["p"].bound is not None
    assert 3600 <= pods["p"].bound <= 3611  # without any node a pod is tried again after its backoff
    assert [one.created for one in pods.values() if one.workload == "Deployment/w"] == [7200, 7200]
    assert (result.stopped, result.virtual_seconds) == ("settled", 7201)


def test_the_default_limit_begins_with_the_last_arrival() -> None:
    result = run(pod("p", arrival="240h", duration="20h"), nodes=1)
    assert (result.stopped, result.totals.succeeded) == ("settled", 1)
    cut = run(pod("p", arrival="240h", duration="20h"), pod("q", arrival="1h"), nodes=1, until=7200.0)
    assert (cut.stopped, cut.totals.pods) == ("until", 1)
    assert cut.warnings == ["1 object was still to arrive when the run ended, the next after 864000 s"]


def test_bad_arrivals_are_reported_together_and_one_in_a_template_has_no_effect() -> None:
    with pytest.raises(ManifestError) as raised:
        run(pod("a", arrival="soon"), pod("b", arrival="-5s"), nodes=1)
    first, second = str(raised.value).splitlines()
    assert "Pod a: metadata.annotations[kubesched.io/arrival]: 'soon' is not a duration" in first
    assert "Pod b: metadata.annotations[kubesched.io/arrival]: '-5s' is before the start" in second
    metadata = {"labels": {"app": "w"}, "annotations": {ARRIVAL: "5m"}}
    template = {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"app": "w"}}, "template": template}
    result = run({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "w"}, "spec": spec}, nodes=1)
    assert any("has no effect in a pod template" in text for text in result.warnings)
    assert result.pods[0].created == 0


def test_pods_that_arrive_and_are_refused_are_reported() -> None:
    bad = pod("p", arrival="5s")
    bad["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "-1"
    result = run(bad, nodes=1)
    assert [item.pods for item in result.refused] == [["default/p"]]
    assert result.totals.refused == 1


def test_utilisation_is_the_mean_over_time_and_fragmentation_what_pods_cannot_use() -> None:
    # One node of 4 cpu; 3 cpu are requested from 0 to 101 s of 201 s, then nothing.
    result = run(node("n", "4"), pod("a", "3", duration="100s"), pod("b", "3", arrival="200s", duration="0s"))
    [cpu] = [one for one in result.times.resources if one.name == "cpu"]
    end = result.virtual_seconds
    assert cpu.utilisation == pytest.approx(0.75 * (101 + 1) / end, abs=1e-5)
    assert cpu.peak_utilisation == 0.75
    # While a pod runs the one free cpu is of no use to the other pod.
    assert cpu.fragmentation == pytest.approx(102 / end, abs=1e-5)
    series = result.series
    assert series.requested["cpu"][:1] == [3000]
    assert series.fragmentation["cpu"][0] == 1.0
    assert series.on_nodes[0] == 1
    assert series.times == sorted(set(series.times))
    assert series.times[-1] == end
    lengths = {len(column) for column in (series.active, series.gated, *series.requested.values())}
    assert lengths == {len(series.times)}


def test_fragmentation_agrees_with_a_plain_count() -> None:
    rng = np.random.default_rng(5)
    table = NodeTable()
    sizes = rng.integers(1, 17, 12).tolist()
    for number, size in enumerate(sizes):
        amounts = {"cpu": str(size), "memory": "64Gi", "pods": "10" if number else "0"}
        table.set_node(from_builtins({"metadata": {"name": f"n{number}"}, "status": {"allocatable": amounts}}, Node))
    requests = [{"cpu": 1000 * int(size)} for size in rng.integers(1, 20, 200)]
    lost = 0
    for request in requests:
        lost += sum(1000 * size for number, size in enumerate(sizes) if not number or 1000 * size < request["cpu"])
    expected = lost / len(requests) / (1000 * sum(sizes))
    assert Shapes(requests).fragmentation(table)["cpu"] == pytest.approx(expected, abs=1e-6)
    assert Shapes(requests).fragmentation(table)["memory"] == 0.0
    assert Shapes([]).fragmentation(table)["cpu"] == 0.0


def test_a_long_series_is_thinned_out_evenly_and_ends_with_the_run() -> None:
    course = Course(NodeTable(), SchedulerMetrics().pending_pods, Shapes([]), most=50)
    for moment in range(3_000):
        course.observe(float(moment), moment)
    series, _ = course.finish(2_999.5, 7)
    assert 25 <= len(series.times) <= 51
    assert series.times[0] == 0
    assert (series.times[-1], series.on_nodes[-1]) == (2_999.5, 7)
    gaps = np.diff(series.times[:-1])
    assert gaps.max() <= 2 * gaps.min()
    assert series.on_nodes[:-1] == [int(time) for time in series.times[:-1]]


def test_distributions_interpolate_and_are_absent_without_pods() -> None:
    found = distribution([0.0, 10.0])
    assert found is not None
    assert (found.count, found.mean, found.p50, found.p90, found.p99, found.max) == (2, 5, 5, 9, 9.9, 10)
    assert distribution([]) is None


def test_the_same_run_has_the_same_times() -> None:
    objects = [node("n", "2"), *(pod(f"p{number}", arrival=f"{7 * number}s", duration="30s") for number in range(12))]
    assert run(*objects, seed=4) == run(*objects, seed=4)


# -- what is not honoured is said ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("object_", "said"),
    [
        (
            {**pod("p"), "metadata": {"name": "p", "annotations": {"kubesched.io/arival": "3h"}}},
            "Pod p: annotation kubesched.io/arival is none of kubesched's; did you mean kubesched.io/arrival?",
        ),
        (
            pod("p", schedulingGroup={"podGroupName": "x"}),
            "Pod p: schedulingGroup has no effect: pods are scheduled one by one without the feature gate GenericWorkload",
        ),
        (
            {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": "x"}},
            "PodGroup x has no effect: pods are scheduled one by one without the feature gate GenericWorkload",
        ),
    ],
    ids=["misspelled annotation", "scheduling group", "pod group"],
)
def test_what_is_not_honoured_is_a_warning(object_: JSON, said: str) -> None:
    result = run(object_, nodes=1)
    assert [text for text in result.warnings if said in text] == result.warnings != []
    assert result.totals.succeeded == 0


def test_annotations_that_a_live_scheduler_wrote_are_no_misspelling() -> None:
    written = {"kubesched.io/why-pending": "0/1 nodes", "kubesched.io/simulator-results-cut": "1 of 2 nodes are shown"}
    assert run({**pod("p"), "metadata": {"name": "p", "annotations": written}}, nodes=1).warnings == []


def test_misspelled_annotations_in_the_templates_of_a_cron_job_are_found() -> None:
    metadata = {"annotations": {"kubesched.io/Duration": "1m", DURATION: "1m"}}
    template = {"metadata": metadata, "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    spec = {"schedule": "0 * * * *", "jobTemplate": {"spec": {"template": template}}}
    result = run({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "w"}, "spec": spec}, until=60.0)
    (text,) = [text for text in result.warnings if "none of kubesched's" in text]
    assert text.endswith(
        "CronJob w: annotation kubesched.io/Duration is none of kubesched's; did you mean kubesched.io/duration?"
    )
