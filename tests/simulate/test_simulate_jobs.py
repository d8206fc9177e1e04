"""Jobs run to completion, CronJobs make Jobs, and with all controllers every workload's pods are theirs."""

from __future__ import annotations

from typing import Any

import pytest

from kubesched.cluster.files import ManifestError
from kubesched.lab.simulate import Result, run_simulation
from kubesched.scheduler.plugins import in_tree_registry

JSON = dict[str, Any]


def template(duration: str = "60s", *, cpu: str = "1", exit_: str = "Succeeded") -> JSON:
    annotations = {"kubesched.io/duration": duration, "kubesched.io/exit": exit_}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    spec = {"restartPolicy": "Never", "containers": [container]}
    return {"metadata": {"annotations": annotations, "labels": {"app": "w"}}, "spec": spec}


def job(name: str = "w", duration: str = "60s", *, exit_: str = "Succeeded", cpu: str = "1", **spec: Any) -> JSON:
    body = {"template": template(duration, exit_=exit_, cpu=cpu), **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": body}


def run(*objects: JSON, **options: Any) -> Result:
    return run_simulation(objects, registry=in_tree_registry(), **options)


@pytest.mark.parametrize("controllers", [False, True])
def test_a_job_runs_to_completion_some_pods_at_a_time(controllers: bool) -> None:
    result = run(job(parallelism=2, completions=5), nodes=1, controllers=controllers)
    assert (result.totals.pods, result.totals.succeeded, result.stopped) == (5, 5, "settled")
    assert {one.workload for one in result.pods} == {"Job/w"}
    starts = sorted(one.created for one in result.pods)
    assert starts[:2] == [0, 0]
    assert 61 <= starts[2] <= starts[3] <= 61.2
    assert 122 <= starts[4] <= 122.4
    assert result.warnings == []


def test_an_indexed_job_runs_each_index_once() -> None:
    result = run(job(parallelism=2, completions=5, completionMode="Indexed"), nodes=1)
    assert result.totals.succeeded == 5
    assert sorted(one.name.split("-")[1] for one in result.pods) == list("01234")


def test_failed_pods_are_made_again_up_to_the_limit() -> None:
    result = run(job(exit_="Failed", backoffLimit=2), nodes=1)
    assert (result.totals.pods, result.totals.failed, result.stopped) == (3, 3, "settled")


def test_a_job_may_arrive_and_its_deadline_ends_it() -> None:
    late = job(duration="10h", activeDeadlineSeconds=100)
    late["metadata"]["annotations"] = {"kubesched.io/arrival": "1h"}
    result = run(late, nodes=1)
    [one] = result.pods
    assert one.created == 3600
    assert one.removed is not None
    assert 3700 <= one.removed <= 3740
    assert result.stopped == "settled"


def test_jobs_of_a_dump_go_on_from_where_they_were() -> None:
    dumped = job(parallelism=1, completions=3)
    dumped["metadata"]["uid"] = "job-1"
    dumped["status"] = {"succeeded": 1, "active": 1, "startTime": "2025-01-01T00:00:00Z"}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "w", "uid": "job-1", "controller": True}
    metadata = {"name": "w-abcde", "uid": "pod-1", "ownerReferences": [owner]}
    metadata["finalizers"] = ["batch.kubernetes.io/job-tracking"]
    running = {"apiVersion": "v1", "kind": "Pod", **template()}
    running["metadata"] = {**running["metadata"], **metadata}
    # As in a real dump: a pod that its job's selector does not match would be released.
    running["metadata"]["labels"] = {"batch.kubernetes.io/controller-uid": "job-1"}
    for placed in (True, False):
        running["spec"]["nodeName"] = "hollow-00000" if placed else ""
        running["status"] = {"phase": "Running" if placed else "Pending"}
        result = run(dumped, running, nodes=1)
        assert (result.totals.pods, result.totals.succeeded) == (2, 2), placed
    over = job(completions=1)
    over["metadata"]["uid"] = "job-2"
    over["status"] = {"conditions": [{"type": "Complete", "status": "True"}], "succeeded": 1}
    assert run(over, nodes=1).totals.pods == 0


def test_a_cron_job_makes_jobs_until_the_end() -> None:
    cron = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "tick"},
        "spec": {"schedule": "*/15 * * * *", "jobTemplate": {"spec": {"template": template()}}},
    }
    result = run(cron, nodes=1, until=7200.0)
    assert (result.stopped, result.virtual_seconds) == ("until", 7200)
    assert [round(one.created) for one in result.pods] == [900, 1800, 2700, 3600, 4500, 5400, 6300]
    assert {one.workload for one in result.pods} == {"CronJob/tick"}
    assert sum(one.finished is not None for one in result.pods) == 7


def test_a_cron_job_that_cannot_work_is_refused_at_once() -> None:
    bad = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "bad"}}
    with pytest.raises(ManifestError, match=r"spec\.jobTemplate\.spec\.template\.spec is missing"):
        run({**bad, "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {}}}}})
    with pytest.raises(ManifestError, match=r"spec\.jobTemplate\.spec is missing"):
        run({**bad, "spec": {"schedule": "* * * * *", "jobTemplate": 5}})
    spec = {"schedule": "61 * * * *", "jobTemplate": {"spec": {"template": template()}}}
    with pytest.raises(ManifestError, match="minute: end of range"):
        run({**bad, "spec": spec})


def test_a_job_that_waits_for_its_quota_is_no_refusal() -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "default"},
        "spec": {"hard": {"requests.cpu": "2"}},
    }
    result = run(quota, job(parallelism=4, completions=4), nodes=1)
    assert result.totals.succeeded == 4
    assert result.refused == []
    [text] = [text for text in result.warnings if "exceeded quota" in text]
    assert "more like this" in text


def test_with_all_controllers_deployments_follow_their_replicas_and_nodes_that_fail() -> None:
    body = template("900h")
    del body["spec"]["restartPolicy"]
    spec = {"replicas": 3, "selector": {"matchLabels": {"app": "w"}}, "template": body}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "w"}, "spec": spec}
    result = run(deployment, nodes=2, controllers=True, until=600.0)
    assert result.totals.placed == 3
    assert {one.workload for one in result.pods} == {"Deployment/w"}


def test_a_queue_that_the_default_limit_cuts_is_remarked() -> None:
    pods = job(parallelism=3, completions=3, cpu="7", duration="20h")
    result = run(pods, nodes=1)
    assert (result.stopped, result.totals.pending) == ("until", 1)
    assert [text for text in result.warnings if "--until gives it more time" in text] == [
        "the run ended a day after the last arrival, which is the default, while pods were pending (1); "
        "--until gives it more time"
    ]
    assert not [text for text in run(pods, nodes=1, until=90000.0).warnings if "--until" in text]
