"""CronJob: a Job at each moment of a schedule, unless one of before is in the way; old Jobs are removed.

Rules: upstream ``pkg/controller/cronjob``. Only the last of several moments that have passed counts. The clock is the
cluster's, and waiting for it keeps no simulation going.
"""

from __future__ import annotations

from typing import Any, Final

from ...api.kinds import CRON_JOBS, JOBS
from ...api.times import parse_time, timestamp
from ...api.wire import ApiError, Item
from ...client.event_writer import NORMAL, WARNING
from ..admission import last_due, next_due
from .base import Controller
from .context import BY_OWNER, Context, Data
from .jobs import finished_as
from .pods import owner_reference

__all__ = ["CronJobs"]

_SCHEDULED: Final = "batch.kubernetes.io/cronjob-scheduled-timestamp"


class CronJobs(Controller):
    """Starts the Jobs of each CronJob and notes what became of them."""

    name = "cronjob"
    component = "cronjob-controller"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._cron_jobs = context.cache(CRON_JOBS)
        self._jobs = context.owned_cache(JOBS)
        self.watch(CRON_JOBS, self.enqueue)
        self.watch(JOBS, self._job_changed)

    def _job_changed(self, old: Item | None, new: Item | None) -> None:
        item = new or old
        if item is not None:
            for owner in item.typed["metadata"].get("ownerReferences") or ():
                if owner.get("controller") and owner.get("kind") == "CronJob":
                    self.queue.add(f"{item.namespace}/{owner['name']}")

    async def reconcile(self, key: str) -> None:
        item = self._cron_jobs.get(key)
        if item is None:
            return
        data = item.data()
        if "deletionTimestamp" in data["metadata"]:
            return
        spec: Data = data["spec"]
        jobs = [(job, job.data()) for job in self._jobs.indexed(BY_OWNER, item.uid)]
        status: Data = dict(data.get("status") or {})
        active = await self._note_finished(item, status, jobs)
        await self._remove_old(item, spec, jobs)
        zone, now = spec.get("timeZone") or "", self.context.now()
        if not spec.get("suspend"):
            try:
                due = self._due(data, last_due(spec["schedule"], zone, now))
                coming = next_due(spec["schedule"], zone, now)
            except ValueError as error:
                text = f"unparseable schedule: {spec['schedule']!r}: {error}"
                await self.record(item, WARNING, "UnparseableSchedule", text)
                due = coming = None
            if due is not None and await self._start(item, spec, due, active):
                status["lastScheduleTime"] = timestamp(due)
            if coming is not None:
                self.queue.add_after(key, coming - now, quiet=True)
        status["active"] = [_reference(job) for job in active] or None
        await self.context.write_status(item, data, status)

    def _due(self, data: Data, last: float | None) -> float | None:
        """The moment for which a Job has to be started; None when none has passed since the last one."""
        since = (data.get("status") or {}).get("lastScheduleTime") or data["metadata"]["creationTimestamp"]
        return last if last is not None and last > parse_time(since) else None

    async def _note_finished(self, item: Item, status: Data, jobs: list[tuple[Item, Data]]) -> list[Item]:
        """The Jobs that run; the others leave an event the first time they are seen finished."""
        listed = {reference.get("uid") for reference in status.get("active") or ()}
        active = []
        for job, data in jobs:
            result = finished_as(data)
            if not result:
                active.append(job)
            elif job.uid in listed:
                await self.record(
                    item, NORMAL, "SawCompletedJob", f"Saw completed job: {job.name}, condition: {result}"
                )
                if result == "Complete":
                    status["lastSuccessfulTime"] = (data.get("status") or {}).get("completionTime")
        for uid in listed - {job.uid for job, _ in jobs}:
            name = next(one.get("name") for one in status["active"] if one.get("uid") == uid)
            await self.record(item, NORMAL, "MissingJob", f"Active job went missing: {name}")
        return active

    async def _remove_old(self, item: Item, spec: Data, jobs: list[tuple[Item, Data]]) -> None:
        for result, limit in (("Complete", "successfulJobsHistoryLimit"), ("Failed", "failedJobsHistoryLimit")):
            if spec.get(limit) is None:
                continue
            over = [
                one for one in jobs if finished_as(one[1]) == result and "deletionTimestamp" not in one[1]["metadata"]
            ]
            over.sort(key=lambda one: one[1]["metadata"]["creationTimestamp"])
            for job, _ in over[: max(0, len(over) - int(spec[limit]))]:
                await self._delete(item, job)

    async def _delete(self, item: Item, job: Item) -> None:
        await self.context.delete(job)
        await self.record(item, NORMAL, "SuccessfulDelete", f"Deleted job {job.name}")

    async def _start(self, item: Item, spec: Data, due: float, active: list[Item]) -> bool:
        """Start the Job of a moment if nothing is in its way; whether it was started."""
        deadline = spec.get("startingDeadlineSeconds")
        if deadline is not None and due + float(deadline) < self.context.now():
            text = f"Missed scheduled time to start a job: {timestamp(due)}"
            await self.record(item, WARNING, "MissSchedule", text)
            return False
        policy = spec.get("concurrencyPolicy")
        if policy == "Forbid" and active:
            text = "Not starting job because prior execution is running and concurrency policy is Forbid"
            await self.record(item, NORMAL, "JobAlreadyActive", text)
            return False
        if policy == "Replace":
            for job in active:
                await self._delete(item, job)
            active.clear()
        try:
            job = await self.context.create(JOBS, item.namespace, _job(item, spec, due))
        except ApiError as error:
            if error.reason == "AlreadyExists":
                return True  # it was started before this status was written
            await self.record(item, WARNING, "FailedCreate", f"Error creating job: {error.message}")
            raise
        active.append(job)
        await self.record(item, NORMAL, "SuccessfulCreate", f"Created job {job.name}")
        return True


def _job(item: Item, spec: Data, due: float) -> Data:
    template = spec["jobTemplate"]
    given: Data = template.get("metadata") or {}
    metadata: dict[str, Any] = {
        "name": f"{item.name}-{int(due // 60)}",
        "annotations": {**(given.get("annotations") or {}), _SCHEDULED: timestamp(due)},
        "labels": given.get("labels") or {},
        "ownerReferences": [owner_reference(item)],
    }
    return {"metadata": metadata, "spec": template["spec"]}


def _reference(job: Item) -> Data:
    reference = {"apiVersion": job.kind.api_version, "kind": job.kind.kind, "namespace": job.namespace}
    return {**reference, "name": job.name, "uid": job.uid, "resourceVersion": str(job.resource_version)}
