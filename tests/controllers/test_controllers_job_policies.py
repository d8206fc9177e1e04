"""Job policies: failures that end a job or do not count, failures by index, early success, replacement of pods."""

from __future__ import annotations

import asyncio
from typing import Any

from controllers_world import JOBS, Data, World, condition, job, play, pod_template

from kubesched.api.kinds import PODS

INDEX = "batch.kubernetes.io/job-completion-index"


#: Pods with index 1 succeed; all pods take 20 s to stop.
SLOW = f"""stages:
- {{name: start, selector: {{phase: Pending, deleted: false}}, next: {{phase: Running}}}}
- {{name: stop, selector: {{deleted: true}}, delay: {{seconds: 20}}, next: {{delete: true}}}}
- name: end
  selector: {{phase: Running, deleted: false, matchLabels: {{{INDEX}: "1"}}}}
  delay: {{seconds: 1}}
  next: {{phase: Succeeded}}
"""


def by_index(codes: dict[int, int]) -> str:
    """Stage rules in which pods run for a second, and those of some indexes end with an exit code."""
    text = "stages:\n- {name: start, selector: {phase: Pending, deleted: false}, next: {phase: Running}}\n"
    text += "- {name: stop, selector: {deleted: true}, delay: {seconds: 5}, next: {delete: true}}\n"
    running = "phase: Running, deleted: false"
    for index, code in codes.items():
        where = f'{running}, matchLabels: {{{INDEX}: "{index}"}}'
        text += f"- {{name: f{index}, selector: {{{where}}}, delay: {{seconds: 1}}, failure: {{rate: 1, exitCode: {code}}}, "
        text += "next: {phase: Succeeded}}\n"
    listed = ", ".join(f'"{index}"' for index in codes)
    others = f"matchExpressions: [{{key: {INDEX}, operator: NotIn, values: [{listed}]}}]"
    text += f"- {{name: end, selector: {{{running}, {others}}}, delay: {{seconds: 1}}, next: {{phase: Succeeded}}}}\n"
    return text


def indexed(completions: int, **spec: Any) -> Data:
    given = {"completionMode": "Indexed", "completions": completions, "parallelism": completions, **spec}
    return {"metadata": {"name": "j"}, "spec": {**given, "template": pod_template("j", restartPolicy="Never")}}


def on_codes(action: str, *codes: int) -> Data:
    return {"rules": [{"action": action, "onExitCodes": {"operator": "In", "values": list(codes)}}]}


def ended(world: World) -> tuple[str, Any, Any, Any]:
    """Reason of the end, indexes that completed and failed, and the count of failures."""
    data = world.get(JOBS, "j")
    found = [condition(data, type_) for type_ in ("Complete", "Failed")]
    reason = next((reason for status, reason in found if status == "True"), "")
    status = data["status"]
    return reason, status.get("completedIndexes"), status.get("failedIndexes"), status.get("failed")


def test_an_exit_code_fails_the_job_at_once() -> None:
    async def scenario(world: World) -> None:
        world.create(JOBS, indexed(3, podFailurePolicy=on_codes("FailJob", 42)))
        await world.settle()
        assert ended(world)[0] == "PodFailurePolicy"
        found = [one for one in world.get(JOBS, "j")["status"]["conditions"] if one["type"] == "FailureTarget"]
        assert found[0]["message"].startswith("Container main for pod default/j-1-")
        assert found[0]["message"].endswith(" failed with exit code 42 matching FailJob rule at index 0")

    play(scenario, stages=by_index({1: 42}))


def test_an_ignored_failure_does_not_count() -> None:
    async def scenario(world: World) -> None:
        world.create(JOBS, indexed(2, backoffLimit=0, podFailurePolicy=on_codes("Ignore", 42)))
        await asyncio.sleep(40)
        assert ended(world) == ("", "0", None, None)
        assert len([one for one in world.store.list(PODS, "default").items if "j-1-" in one.name]) > 1
        world.store.delete(JOBS, "default", "j", propagation_policy="Foreground")

    play(scenario, stages=by_index({1: 42}))


def test_each_index_has_its_own_failures() -> None:
    async def scenario(world: World) -> None:
        world.create(JOBS, indexed(4, backoffLimitPerIndex=1))
        await world.settle()
        assert ended(world) == ("FailedIndexes", "0,2,3", "1", 2)
        pods = [one.typed for one in world.store.list(PODS, "default").items]
        counts = [pod.metadata.annotations["batch.kubernetes.io/job-index-failure-count"] for pod in pods]
        assert sorted(counts) == ["0", "0", "0", "0", "1"]

    play(scenario, stages=by_index({1: 1}))


def test_a_failed_index_is_not_tried_again_and_too_many_fail_the_job() -> None:
    async def scenario(world: World) -> None:
        policy = on_codes("FailIndex", 42)
        world.create(JOBS, indexed(4, backoffLimitPerIndex=5, maxFailedIndexes=1, podFailurePolicy=policy))
        await world.settle()
        assert ended(world)[0] == "MaxFailedIndexesExceeded"
        assert ended(world)[2] == "1,2"

    play(scenario, stages=by_index({1: 42, 2: 42}))


def test_a_success_policy_ends_the_job_when_its_indexes_have_completed() -> None:
    async def scenario(world: World) -> None:
        rules = [{"succeededIndexes": "1-2"}, {"succeededIndexes": "0,3", "succeededCount": 1}]
        world.create(JOBS, indexed(4, successPolicy={"rules": rules}))
        await world.settle()
        data = world.get(JOBS, "j")
        assert ended(world)[:2] == ("SuccessPolicy", "0,3")
        assert condition(data, "SuccessCriteriaMet") == ("True", "SuccessPolicy")
        assert {one.get("message") for one in data["status"]["conditions"]} >= {"Matched rules at index 1"}

    play(scenario, stages=by_index({1: 1, 2: 1}))


def test_a_pod_is_replaced_when_it_has_ended_if_the_policy_says_so() -> None:
    async def scenario(world: World) -> None:
        body = job("j", seconds="1h", podReplacementPolicy="Failed")
        body["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 20
        world.create(JOBS, body)
        await asyncio.sleep(5)
        [pod] = world.pods()
        world.store.delete(PODS, "default", pod.name)
        await asyncio.sleep(10)
        assert world.pods() == []
        assert world.get(JOBS, "j")["status"]["terminating"] == 1
        await asyncio.sleep(60)
        assert len(world.pods()) == 1

    play(scenario)


def test_a_failed_job_waits_for_its_pods_to_end() -> None:
    async def scenario(world: World) -> None:
        body = job("j", seconds="1h", parallelism=2, completions=2, activeDeadlineSeconds=10)
        body["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 20
        world.create(JOBS, body)
        await asyncio.sleep(5)
        assert world.get(JOBS, "j")["status"]["uncountedTerminatedPods"] == {}
        await asyncio.sleep(10)
        data = world.get(JOBS, "j")
        assert (condition(data, "FailureTarget"), condition(data, "Failed")) == (("True", "DeadlineExceeded"), ("", ""))
        status = data["status"]
        assert (status.get("active"), status["ready"], status["terminating"], status["failed"]) == (None, 0, 2, 2)
        await world.settle()
        data = world.get(JOBS, "j")
        assert condition(data, "Failed") == ("True", "DeadlineExceeded")
        assert (data["status"]["terminating"], data["status"]["failed"]) == (0, 2)

    play(scenario, stages=SLOW)


def test_a_job_that_met_its_criteria_is_complete_when_its_other_pods_have_ended() -> None:
    async def scenario(world: World) -> None:
        world.create(JOBS, indexed(3, successPolicy={"rules": [{"succeededIndexes": "1"}]}))
        await asyncio.sleep(4)
        data = world.get(JOBS, "j")
        assert condition(data, "SuccessCriteriaMet") == ("True", "SuccessPolicy")
        assert (condition(data, "Complete"), data["status"]["terminating"]) == (("", ""), 2)
        assert "completionTime" not in data["status"]
        await world.settle()
        data = world.get(JOBS, "j")
        assert condition(data, "Complete") == ("True", "SuccessPolicy")
        assert (data["status"].get("failed"), "completionTime" in data["status"]) == (None, True)

    play(scenario, stages=SLOW)


def test_a_deleted_pod_has_failed_at_once_unless_pods_are_replaced_when_they_have_ended() -> None:
    async def scenario(world: World) -> None:
        for name, policy in (("early", "TerminatingOrFailed"), ("late", "Failed")):
            world.create(JOBS, job(name, seconds="1h", podReplacementPolicy=policy))
        await asyncio.sleep(5)
        for pod in world.pods():
            world.store.delete(PODS, "default", pod.name)
        await asyncio.sleep(2)
        found = [world.get(JOBS, name)["status"] for name in ("early", "late")]
        assert [(one.get("failed"), one["terminating"]) for one in found] == [(1, 1), (None, 1)]
        await asyncio.sleep(13)
        assert [pod.metadata.labels["job-name"] for pod in world.pods()] == ["early"]

    play(scenario, stages=SLOW)
