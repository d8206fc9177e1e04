"""Job: pods that run to their end, counted once each, plain or indexed, with a limit on failures.

Pods carry the finalizer ``batch.kubernetes.io/job-tracking`` until they are counted, so that none is lost when
it is deleted; ``status.uncountedTerminatedPods`` holds those being counted. Rules: upstream ``job_controller.go``.
Left out: success and failure policies, per-index backoff, pod replacement policy. Counting is in :mod:`.job_status`,
pods of deleted jobs are in :mod:`.job_orphans`.
"""

from __future__ import annotations

from typing import Any, Final

from ...api.kinds import JOBS
from ...api.times import parse_time
from ...api.wire import Item
from ...client.event_writer import NORMAL, WARNING
from ..schema import has_condition
from .base import WorkloadController
from .context import Context, Data, tolerate
from .job_status import COMPLETION_INDEX, TRACKING, Count, completed_indexes, format_indexes
from .pods import conditions_with, is_finished, is_ready, pod_body

__all__ = ["COMPLETION_INDEX", "TRACKING", "Jobs", "finished_as", "indexed_spec", "job_labels", "release_pod"]

_FIRST_BACKOFF: Final = 10.0
_LONGEST_BACKOFF: Final = 600.0


def finished_as(data: Data) -> str:
    """``Complete`` or ``Failed`` when the job is over."""
    for condition in (data.get("status") or {}).get("conditions") or ():
        if condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True":
            return str(condition["type"])
    return ""


def job_labels(name: str, uid: str) -> dict[str, str]:
    """The labels of a job's pods, under their names of now and of before."""
    labels = {"job-name": name, "controller-uid": uid}
    return {**labels, **{f"batch.kubernetes.io/{label}": value for label, value in labels.items()}}


def indexed_spec(spec: Data, hostname: str) -> Data:
    """A template's spec for one index: a host name of its own, and the index in every container's environment."""
    variable = {
        "name": "JOB_COMPLETION_INDEX",
        "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{COMPLETION_INDEX}']"}},
    }
    result = {**spec, "hostname": hostname}
    for part in ("initContainers", "containers"):
        if spec.get(part):
            result[part] = [
                container
                if any(one.get("name") == variable["name"] for one in container.get("env") or ())
                else {**container, "env": [*(container.get("env") or ()), variable]}
                for container in spec[part]
            ]
    return result


async def release_pod(context: Context, pod: Item) -> None:
    """Take the tracking finalizer off a pod, if it still exists."""
    finalizers = pod.typed.metadata.finalizers
    if TRACKING not in finalizers:
        return
    left = [name for name in finalizers if name != TRACKING]
    with tolerate(404):
        await context.patch(pod, {"metadata": {"uid": pod.uid, "finalizers": left or None}})


class Jobs(WorkloadController):
    """Runs each job to completion."""

    name = "job"
    component = "job-controller"
    kind = JOBS

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._last_failure: dict[str, float] = {}

    async def reconcile_object(self, item: Item, data: Data) -> None:
        pods = self.context.owned_pods(item.uid)
        if "deletionTimestamp" in data["metadata"] or finished_as(data):
            await self._release(pods)
            await self._expire(item, data)
            return
        count = Count(data, pods, self.context.is_going)
        if count.newly_failed:
            self._last_failure[item.uid] = self.context.now()
        item = await self._count(item, data, count)
        data = item.data()
        if await self._judge(item, data, count):
            self.queue.forget_timers(item.key)  # of its deadline
            await self._release(self.context.owned_pods(item.uid))
            self._last_failure.pop(item.uid, None)
        else:
            action = self._manage(item, data, count)
            await self.act_and_report(item, action, lambda fresh, failure: self._write_counts(fresh, count))

    # -- counting --------------------------------------------------------------------------------------

    async def _count(self, item: Item, data: Data, count: Count) -> Item:
        """Count finished pods: note them, remove their finalizer, add them to the totals."""
        if not count.uncounted and not count.fresh:
            return item
        status = dict(data.get("status") or {})
        status["uncountedTerminatedPods"] = count.uncounted_status()
        item = await self.context.write_status(item, data, status)
        for pod in count.to_release:
            await release_pod(self.context, pod)
        data = item.data()
        status = dict(data.get("status") or {})
        status.pop("uncountedTerminatedPods", None)
        status.update(count.totals())
        return await self.context.write_status(item, data, status)

    async def _release(self, pods: list[Item]) -> None:
        for pod in pods:
            await release_pod(self.context, pod)

    # -- judging ---------------------------------------------------------------------------------------

    async def _judge(self, item: Item, data: Data, count: Count) -> bool:
        """Whether the job is over; if so its pods are stopped and the condition is written."""
        spec = data["spec"]
        deadline = spec.get("activeDeadlineSeconds")
        begun = (data.get("status") or {}).get("startTime")
        if count.failed > int(spec.get("backoffLimit", 6)):
            await self._end(
                item, count, "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
            )
            return True
        if deadline is not None and begun and not spec.get("suspend"):
            left = parse_time(begun) + float(deadline) - self.context.now()
            if left <= 0:
                await self._end(
                    item, count, "Failed", "DeadlineExceeded", "Job was active longer than specified deadline"
                )
                return True
            self.queue.add_after(item.key, left)
        completions = spec.get("completions")
        done = not count.active and not count.going if completions is None else True
        enough = count.succeeded > 0 if completions is None else count.succeeded >= int(completions)
        if enough and done and (begun or count.succeeded):
            await self._end(item, count, "Complete", "CompletionsReached", "Reached expected number of succeeded pods")
            return True
        return False

    async def _end(self, item: Item, count: Count, type_: str, reason: str, message: str) -> None:
        for pod in count.active:
            await self.delete_pod(item, pod)
        data = item.data()
        status, now = dict(data.get("status") or {}), self.context.now_text()
        first = "SuccessCriteriaMet" if type_ == "Complete" else "FailureTarget"
        conditions = conditions_with(status.get("conditions"), first, "True", reason, message, now)
        status["conditions"] = conditions_with(conditions, type_, "True", reason, message, now)
        status.pop("active", None)
        status.pop("ready", None)
        if type_ == "Failed":
            status["failed"] = count.failed + len(count.active)
        else:
            status["completionTime"] = now
        await self.context.write_status(item, data, status)
        if type_ == "Failed":
            await self.record(item, WARNING, reason, message)
        else:
            await self.record(item, NORMAL, "Completed", "Job completed")

    async def _expire(self, item: Item, data: Data) -> None:
        """Delete a finished job after ``ttlSecondsAfterFinished``."""
        ttl = data["spec"].get("ttlSecondsAfterFinished")
        if ttl is None or "deletionTimestamp" in data["metadata"]:
            return
        ends = [
            parse_time(condition["lastTransitionTime"])
            for condition in (data.get("status") or {}).get("conditions") or ()
            if condition.get("type") in ("Complete", "Failed") and condition.get("lastTransitionTime")
        ]
        left = max(ends, default=self.context.now()) + float(ttl) - self.context.now()
        if left > 0:
            self.queue.add_after(item.key, left)
        else:
            await self.context.delete(item)

    # -- running ---------------------------------------------------------------------------------------

    async def _manage(self, item: Item, data: Data, count: Count) -> None:
        """As many pods as may run at once, and no more than are still wanted."""
        spec = data["spec"]
        if spec.get("suspend"):
            for pod in count.active:
                await self._drop(item, pod)
            return
        parallelism = int(spec.get("parallelism", 1))
        completions = spec.get("completions")
        if completions is None:
            wanted = len(count.active) if count.succeeded else parallelism
            wanted = min(wanted, parallelism)
        else:
            wanted = min(parallelism, max(0, int(completions) - count.succeeded))
        surplus = len(count.active) - wanted
        if surplus > 0:
            ranked = sorted(count.active, key=lambda pod: (bool(pod.typed.spec.node_name), is_ready(pod.typed)))
            for pod in ranked[:surplus]:
                await self._drop(item, pod)
            return
        missing = min(-surplus, self.context.settings.burst)
        if not missing:
            return
        wait = self._backoff(item, count)
        if wait > 0:
            self.queue.add_after(item.key, wait)
            return
        if spec.get("completionMode") == "Indexed":
            taken = count.busy_indexes | completed_indexes(data)
            free = (index for index in range(int(completions or 0)) if index not in taken)
            for index, _ in zip(free, range(missing), strict=False):
                await self._create(item, data, index)
        else:
            for _ in range(missing):
                await self._create(item, data, None)
        if missing < -surplus:
            self.queue.add(item.key)  # the rest at the next look; after a refusal, when it is tried again

    async def _drop(self, item: Item, pod: Item) -> None:
        """Stop a pod that is wanted no more; it counts neither as succeeded nor as failed."""
        await release_pod(self.context, pod)
        await self.delete_pod(item, pod)

    def _backoff(self, item: Item, count: Count) -> float:
        """Seconds until the next pod may be made after failures: 10 s, doubling, at most 10 minutes."""
        last = self._last_failure.get(item.uid)
        if last is None or not count.failed:
            return 0.0
        delay = min(_FIRST_BACKOFF * 2.0 ** min(count.failed - 1, 30), _LONGEST_BACKOFF)
        return last + delay - self.context.now()

    async def _create(self, item: Item, data: Data, index: int | None) -> None:
        labels = job_labels(item.name, item.uid)
        annotations: dict[str, str] = {}
        generate = f"{item.name}-"
        if index is not None:
            labels[COMPLETION_INDEX] = annotations[COMPLETION_INDEX] = str(index)
            generate = f"{item.name}-{index}-"
        template = data["spec"].get("template") or {}
        spec = template.get("spec") or {}
        if "restartPolicy" not in spec:
            spec = {**spec, "restartPolicy": "Never"}
        if index is not None:
            spec = indexed_spec(spec, f"{item.name}-{index}")
        body = pod_body(
            item,
            template,
            generate=generate,
            labels=labels,
            annotations=annotations,
            finalizers=[TRACKING],
            spec=spec,
        )
        await self.create_pod(item, body)

    async def _write_counts(self, item: Item, count: Count) -> None:
        """Active, ready and terminating as they are now; when the job began or was suspended."""
        data = item.data()
        status: dict[str, Any] = dict(data.get("status") or {})
        now = self.context.now_text()
        pods = [pod for pod in self.context.owned_pods(item.uid) if not is_finished(pod.typed)]
        active = [pod for pod in pods if not self.context.is_going(pod)]
        status["active"] = len(active) or None
        status["ready"] = sum(is_ready(pod.typed) for pod in active)
        status["terminating"] = len(pods) - len(active)
        suspended = bool(data["spec"].get("suspend"))
        was = has_condition(data, "Suspended")
        word = "Suspended" if suspended else "Resumed"
        if suspended != was:
            status["conditions"] = conditions_with(
                status.get("conditions"), "Suspended", str(suspended), f"Job{word}", f"Job {word.lower()}", now
            )
        if suspended:
            status.pop("startTime", None)
        elif "startTime" not in status:
            status["startTime"] = now
            if data["spec"].get("activeDeadlineSeconds") is not None:
                self.queue.add_after(item.key, float(data["spec"]["activeDeadlineSeconds"]))
        if data["spec"].get("completionMode") == "Indexed":
            status["completedIndexes"] = format_indexes(completed_indexes(data) | count.fresh_indexes) or None
        await self.context.write_status(item, data, status)
        if suspended != was:
            await self.record(item, NORMAL, word, f"Job {word.lower()}")
