"""Job: pods that run to their end, counted once each, plain or indexed, with a limit on failures.

Pods carry the finalizer ``batch.kubernetes.io/job-tracking`` until they are counted, so that no deleted pod is lost
from the count. ``status.uncountedTerminatedPods`` holds the pods being counted. Rules: upstream ``job_controller.go``.
Policies are in :mod:`.job_policies`.

A job that is deleted in the background is removed before its pods; one that is deleted with ``--cascade=orphan`` leaves
its pods behind. Nothing would count these pods, so ``JobOrphans`` removes their finalizer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice, repeat
from typing import Any, Final

from kubesched.api.kinds import JOBS, PODS
from kubesched.api.selectors import parse_int64
from kubesched.api.types import Pod
from kubesched.api.wire import Item, tolerate
from kubesched.base.times import parse_time
from kubesched.client.event_writer import NORMAL, WARNING

from ..schema import has_condition
from .base import ObjectController, WorkloadController
from .context import Context, Data, controller_of, data_of, owner_key, spec_of, status_of
from .indexes import Indexes
from .job_groups import JobGroups
from .job_policies import FailedIndexes, failure_rule, met_criteria
from .ownership import Ownership
from .pods import is_finished, is_ready, pod_body

__all__ = ["COMPLETION_INDEX", "TRACKING", "JobOrphans", "Jobs", "completed_indexes", "finished_as"]
__all__ += ["indexed_spec", "job_labels"]

COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
TRACKING: Final = "batch.kubernetes.io/job-tracking"
#: Conditions that announce the end of a job, with the condition that follows when its pods have ended.
_TARGETS: Final = {"FailureTarget": "Failed", "SuccessCriteriaMet": "Complete"}
_FIRST_BACKOFF: Final = 10.0
_LONGEST_BACKOFF: Final = 600.0


def _delay(failures: int) -> float:
    """Return the seconds until a pod may be made after some failures: 10 s, doubling, at most 10 minutes."""
    return min(_FIRST_BACKOFF * 2.0 ** min(failures - 1, 30), _LONGEST_BACKOFF)


def _end_of(data: Data) -> Data:
    """Return the condition by which a job is over; empty when it is not."""
    conditions = (data.get("status") or {}).get("conditions") or ()
    ends = (one for one in conditions if one.get("type") in ("Complete", "Failed") and one.get("status") == "True")
    return next(ends, {})


def finished_as(data: Data) -> str:
    """Return ``Complete`` or ``Failed`` when the job is over, else an empty text."""
    return str(_end_of(data).get("type", ""))


def job_labels(name: str, uid: str) -> dict[str, str]:
    """Return the labels of a job's pods, under their current and their legacy names."""
    labels = {"job-name": name, "controller-uid": uid}
    return {**labels, **{f"batch.kubernetes.io/{label}": value for label, value in labels.items()}}


def indexed_spec(spec: Data, hostname: str) -> Data:
    """Return a template's spec for one index: its host name, and the index in the environment of every container."""
    variable = {
        "name": "JOB_COMPLETION_INDEX",
        "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{COMPLETION_INDEX}']"}},
    }

    def with_variable(container: Data) -> Data:
        given = container.get("env") or []
        has_it = any(one.get("name") == variable["name"] for one in given)
        return container if has_it else {**container, "env": [*given, variable]}

    parts = [part for part in ("initContainers", "containers") if spec.get(part)]
    return {**spec, "hostname": hostname, **{part: list(map(with_variable, spec[part])) for part in parts}}


async def _release(context: Context, pods: Iterable[Item]) -> None:
    """Remove the tracking finalizer from the pods that still exist."""
    for pod in pods:
        finalizers = pod.typed.metadata.finalizers
        if TRACKING in finalizers:
            left = [name for name in finalizers if name != TRACKING]
            with tolerate(404):
                await context.patch(pod, {"metadata": {"uid": pod.uid, "finalizers": left or None}})


def completed_indexes(data: Data) -> Indexes:
    """Return the indexes that a job's status lists as completed."""
    completions = int((data.get("spec") or {}).get("completions") or 0)
    return Indexes.parse((data.get("status") or {}).get("completedIndexes") or "", completions)


def index_of(pod: Pod) -> int | None:
    """Return the completion index of a pod."""
    text = pod.metadata.annotations.get(COMPLETION_INDEX) or pod.metadata.labels.get(COMPLETION_INDEX) or ""
    return parse_int64(text) if text.isdigit() else None


class Count:
    """Evaluation of a job and its pods.

    ``succeeded``, ``failed`` and ``completed`` are the values once all finished pods are counted.
    """

    def __init__(self, data: Data, pods: list[Item], is_going: Callable[[Item], bool]) -> None:
        status = data.get("status") or {}
        noted = status.get("uncountedTerminatedPods") or {}
        #: UIDs of pods that are being counted, by outcome.
        self.uncounted = {name: dict.fromkeys(noted.get(name) or ()) for name in ("succeeded", "failed")}
        self.indexed = (data.get("spec") or {}).get("completionMode") == "Indexed"
        self._noted = completed_indexes(data)
        newly: set[int] = set()
        self.active: list[Item] = []
        self.going: list[Item] = []
        self.to_release: list[Item] = []
        self.newly_failed = False
        #: Pods that have neither ended nor been counted.
        self.open: list[Item] = []
        #: Text of the failure by the pod failure policy; empty if the job goes on.
        self.failure = ""
        spec, failed = data.get("spec") or {}, []
        self.busy_indexes: set[int | None] = set()
        waits = spec.get("podReplacementPolicy") == "Failed"  # a pod is replaced once it has ended
        for item in pods:
            pod: Pod = item.typed
            phase, index = pod.status.phase, index_of(pod)
            tracked = TRACKING in pod.metadata.finalizers
            rule = failure_rule(spec, item) if phase == "Failed" else None
            if phase == "Failed" and index is not None:
                failed.append((index, item))
            if rule is not None and rule.action == "FailJob":
                self.failure = self.failure or rule.text
            if phase == "Succeeded" and tracked:
                if self.indexed and (index is None or index in newly or index in self._noted):
                    self.to_release.append(item)  # another pod has already completed this index
                    continue
                if index is not None:
                    newly.add(index)
                self._end(item, "succeeded")
            elif tracked and rule is not None and rule.action == "Ignore":
                self.to_release.append(item)
                self.newly_failed = True  # the next pod waits all the same
            elif tracked and (phase == "Failed" or (is_going(item) and not (waits and pod.spec.node_name))):
                # A pod that never reached a node has nothing to stop. It is gone as soon as its finalizer is removed.
                self._end(item, "failed")
            elif not is_finished(pod):
                self.open.append(item)
            if not is_finished(pod):
                (self.going if is_going(item) else self.active).append(item)
                self.busy_indexes |= {index} if waits or not is_going(item) else set()
        #: Failures by index, of a job that limits them so.
        self.by_index = FailedIndexes(data, failed) if spec.get("backoffLimitPerIndex") is not None else None
        #: Indexes completed by the status, and by pods that have succeeded since.
        self.completed = self._noted.union(newly)
        self.failed = int(status.get("failed") or 0) + len(self.uncounted["failed"])
        self.succeeded = int(status.get("succeeded") or 0) + len(self.uncounted["succeeded"])
        if self.indexed:
            self.succeeded = len(self.completed)

    def _end(self, item: Item, outcome: str) -> None:
        self.to_release.append(item)
        if not any(item.uid in uids for uids in self.uncounted.values()):
            self.uncounted[outcome][item.uid] = None
            self.newly_failed |= outcome == "failed"

    def uncounted_status(self) -> dict[str, list[str]]:
        """Return ``uncountedTerminatedPods`` of the status."""
        return {name: list(uids) for name, uids in self.uncounted.items() if uids}

    def totals(self) -> dict[str, Any]:
        """Return the totals of the status once all pods are counted."""
        result: dict[str, Any] = {"succeeded": self.succeeded or None, "failed": self.failed or None}
        if self.indexed:
            result["completedIndexes"] = str(self.completed) or None
        if self.by_index is not None:
            result["failedIndexes"] = str(self.by_index.over)
        return result


class Jobs(WorkloadController):
    """Controller that runs each job to completion."""

    name = "job"
    kind = JOBS

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._last_failure: dict[str, float] = {}
        self._ownership = Ownership(self, context.pods, finalizers=(TRACKING,))
        self._groups = JobGroups(context, self) if "WorkloadWithJob" in context.settings.features else None

    async def reconcile_object(self, item: Item) -> None:
        pods = self.context.owned_pods(item.uid)
        if self.context.is_going(item) or finished_as(data_of(item)):
            await _release(self.context, pods)
            await self._expire(item)
            return
        await self._ownership.settle(item)
        pods = self.context.owned_pods(item.uid)
        count = Count(data_of(item), pods, self.context.is_going)
        if count.newly_failed:
            self._last_failure[item.uid] = self.context.now()
        if any(count.uncounted.values()) or count.to_release:
            item = await self._count(item, count)
        if verdict := self._verdict(item, count):
            await self._end(item, count, *verdict)
            self.queue.forget_timers(item.key)  # timer of its deadline
            await _release(self.context, self.context.owned_pods(item.uid))
            self._last_failure.pop(item.uid, None)
        else:
            action = self._manage(item, count)
            await self.act_and_report(item, action, lambda fresh, failure: self._write_counts(fresh, count))

    async def _count(self, item: Item, count: Count) -> Item:
        """Count finished pods: note them, remove their finalizer, add them to the totals."""
        status = {**status_of(item), "uncountedTerminatedPods": count.uncounted_status()}
        item = await self.context.write_status(item, status)
        await _release(self.context, count.to_release)
        status = {**status_of(item), "uncountedTerminatedPods": {}, **count.totals()}
        return await self.context.write_status(item, status)

    def _verdict(self, item: Item, count: Count) -> tuple[str, str, str] | None:
        """Return type, reason and message of the condition that ends the job; None while the job goes on."""
        spec, begun = spec_of(item), status_of(item).get("startTime")
        for one in status_of(item).get("conditions") or ():
            if one["type"] in _TARGETS and one.get("status") == "True":  # the job waits for pods that are being stopped
                return _TARGETS[one["type"]], one.get("reason", ""), one.get("message", "")
        if count.failure:
            return "Failed", "PodFailurePolicy", count.failure
        if count.failed > int(spec.get("backoffLimit", 6)):
            return "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        deadline, completions = spec.get("activeDeadlineSeconds"), spec.get("completions")
        if deadline is not None and begun and not spec.get("suspend"):
            left = parse_time(begun) + float(deadline) - self.context.now()
            if left <= 0:
                return "Failed", "DeadlineExceeded", "Job was active longer than specified deadline"
            self.queue.add_after(item.key, left)
        if count.by_index is not None:
            over, most = len(count.by_index.over), spec.get("maxFailedIndexes")
            if most is not None and over > int(most):
                text = "Job has exceeded the specified maximal number of failed indexes"
                return "Failed", "MaxFailedIndexesExceeded", text
            if over and over + count.succeeded >= int(completions or 0):
                return "Failed", "FailedIndexes", "Job has failed indexes"
        if count.indexed and (text := met_criteria(spec, count.completed)):
            return "Complete", "SuccessPolicy", text
        if completions is None:
            enough = count.succeeded > 0 and not count.active and not count.going
        else:
            enough = count.succeeded >= int(completions)
        if enough and (begun or count.succeeded):
            return "Complete", "CompletionsReached", "Reached expected number of succeeded pods"
        return None

    async def _end(self, item: Item, count: Count, type_: str, reason: str, message: str) -> None:
        """Stop the pods of a job that is over, and write its condition once they have ended; before, its target."""
        await self.delete_owned(item, *count.active)
        going = [pod for pod in self.context.owned_pods(item.uid) if not is_finished(pod.typed)]
        status = {**status_of(item), "active": None, "ready": 0, "terminating": len(going)}
        status.setdefault("uncountedTerminatedPods", {})
        if type_ == "Failed":
            status["failed"] = (
                count.failed + sum(TRACKING in pod.typed.metadata.finalizers for pod in count.open) or None
            )
        target = next(name for name, end in _TARGETS.items() if end == type_)
        conditions = status.get("conditions")
        for one in (target,) if going else (target, type_):
            conditions = self.context.with_condition(conditions, one, "True", reason, message)
        status["conditions"] = conditions
        if type_ == "Complete" and not going:
            status["completionTime"] = self.context.now_text()
        await self.context.write_status(item, status)
        if not going:
            told = (WARNING, reason, message) if type_ == "Failed" else (NORMAL, "Completed", "Job completed")
            await self.record(item, *told)

    async def _expire(self, item: Item) -> None:
        """Delete a finished job after ``ttlSecondsAfterFinished``."""
        ttl = spec_of(item).get("ttlSecondsAfterFinished")
        if ttl is None or self.context.is_going(item):
            return
        ended, now = _end_of(data_of(item)).get("lastTransitionTime"), self.context.now()
        left = (parse_time(ended) if ended else now) + float(ttl) - now
        if left > 0:
            self.queue.add_after(item.key, left)
        else:
            await self.context.delete(item)

    async def _manage(self, item: Item, count: Count) -> None:
        """Create and delete pods, so that no more run than are allowed at once and are still wanted."""
        spec = spec_of(item)
        group = await self._groups.group_of(item) if self._groups is not None else ""
        if spec.get("suspend"):
            for pod in count.active:
                await self._drop(item, pod)
            return
        completions = spec.get("completions")
        parallelism = await self.bounded(item, int(spec.get("parallelism", 1)))
        if completions is None:
            wanted = min(parallelism, len(count.active)) if count.succeeded else parallelism
        else:
            over = len(count.by_index.over) if count.by_index is not None else 0
            wanted = min(parallelism, max(0, int(completions) - count.succeeded - over))
        missing = wanted - len(count.active)
        if missing > 0 and spec.get("podReplacementPolicy") == "Failed":
            missing = max(0, missing - len(count.going))
        if missing < 0:
            ranked = sorted(count.active, key=lambda pod: (bool(pod.typed.spec.node_name), is_ready(pod.typed)))
            for pod in ranked[:-missing]:
                await self._drop(item, pod)
        if missing <= 0:
            return
        wait = self._backoff(item, count)
        if wait > 0:
            self.queue.add_after(item.key, wait)
            return
        burst = self.context.settings.burst
        indexes: Iterable[int | None] = repeat(None)
        if count.indexed:
            free = completed_indexes(data_of(item)).missing(int(completions or 0))
            indexes = (index for index in free if index not in count.busy_indexes and self._may_run(item, count, index))
        for index in islice(indexes, min(missing, burst)):
            more = count.by_index.annotations(index) if count.by_index is not None and index is not None else {}
            await self._create(item, index, group, more)
        if missing > burst:
            self.queue.add(item.key)  # the next reconcile does the rest; after a refusal, the next try does

    async def _drop(self, item: Item, pod: Item) -> None:
        """Stop a pod that is no longer wanted. It counts neither as succeeded nor as failed."""
        await _release(self.context, [pod])
        await self.delete_owned(item, pod)

    def _may_run(self, item: Item, count: Count, index: int) -> bool:
        """True if an index may have a pod now. After a failure of it, the job is reconciled again when it may."""
        if count.by_index is None:
            return True
        failures, ended = count.by_index.last(index)
        left = ended + _delay(failures) - self.context.now() if failures else 0.0
        if index in count.by_index.over or left > 0:
            if index not in count.by_index.over:
                self.queue.add_after(item.key, left)
            return False
        return True

    def _backoff(self, item: Item, count: Count) -> float:
        """Return the seconds until the next pod may be made after failures: 10 s, doubling, at most 10 minutes."""
        last = self._last_failure.get(item.uid)
        if last is None or count.by_index is not None:
            return 0.0
        return last + _delay(max(1, count.failed)) - self.context.now()

    async def _create(self, item: Item, index: int | None, group: str, annotations: dict[str, str]) -> None:
        name, number = item.name, {}
        template = spec_of(item).get("template") or {}
        spec: Data = {"restartPolicy": "Never", **(template.get("spec") or {})}
        if index is not None:
            name, number = f"{name}-{index}", {COMPLETION_INDEX: str(index)}
            spec = indexed_spec(spec, name)
        if group:
            spec = {**spec, "schedulingGroup": {"podGroupName": group}}
        labels = job_labels(item.name, item.uid) | number
        fields: Data = {"labels": labels, "annotations": number | annotations, "finalizers": [TRACKING], "spec": spec}
        await self.create_owned(item, PODS, pod_body(item, template, generate=f"{name}-", **fields))

    async def _write_counts(self, item: Item, count: Count) -> None:
        """Write the current counts of active, ready and terminating pods, and the times of start or suspension."""
        spec, status = spec_of(item), dict(status_of(item))
        pods = [pod for pod in self.context.owned_pods(item.uid) if not is_finished(pod.typed)]
        active = [pod for pod in pods if not self.context.is_going(pod)]
        status["active"] = len(active) or None
        status["ready"] = sum(is_ready(pod.typed) for pod in active)
        status["terminating"] = len(pods) - len(active)
        status.setdefault("uncountedTerminatedPods", {})
        suspended = bool(spec.get("suspend"))
        changed, word = suspended != has_condition(data_of(item), "Suspended"), "Suspended" if suspended else "Resumed"
        if changed:
            condition = ("Suspended", str(suspended), f"Job{word}", f"Job {word.lower()}")
            status["conditions"] = self.context.with_condition(status.get("conditions"), *condition)
        if suspended:
            status["startTime"] = None
        elif "startTime" not in status:
            status["startTime"] = self.context.now_text()
            if spec.get("activeDeadlineSeconds") is not None:
                self.queue.add_after(item.key, float(spec["activeDeadlineSeconds"]))
        if count.indexed:
            known = Indexes([*completed_indexes(data_of(item)).ranges(), *count.completed.ranges()])
            status["completedIndexes"] = str(known) or None
        if count.by_index is not None:
            status["failedIndexes"] = str(count.by_index.over)
        await self.context.write_status(item, status)
        if changed:
            await self.record(item, NORMAL, word, f"Job {word.lower()}")


class JobOrphans(ObjectController):
    """Controller that releases the pods of deleted jobs. Rules: upstream's ``syncOrphanPod``."""

    name = "joborphan"
    kind = PODS

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._jobs = context.watch(JOBS, self._job_changed)

    def _job_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if new is None:
            for pod in self.context.owned_pods(item.uid):
                self.queue.add(pod.key)

    def enqueue(self, item: Item, old: Item | None, new: Item | None) -> None:
        if new is not None and self._is_orphan(new):
            super().enqueue(item, old, new)

    def _is_orphan(self, pod: Item) -> bool:
        """True if a pod has the finalizer and its job is not in our cache."""
        if TRACKING not in pod.typed.metadata.finalizers:
            return False
        job, owner = self._jobs.get(owner_key(pod, JOBS)), controller_of(pod)
        return job is None or owner is None or job.uid != owner.uid

    async def reconcile_object(self, item: Item) -> None:
        owner = controller_of(item)
        if not self._is_orphan(item):
            return
        if owner is None or owner.kind != JOBS.kind or await self.context.is_gone(JOBS, item.namespace, owner):
            await _release(self.context, [item])
