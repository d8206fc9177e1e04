"""CronJob: makes a Job at each time of its schedule, and removes finished ones beyond the limits.

Rules: upstream's ``cronjob_controllerv2.go``. When several times were missed, the last of them is made up for, within
``startingDeadlineSeconds``.
"""

from __future__ import annotations

import math
from datetime import tzinfo
from typing import Any, Final

from ...api.cron import Cron, CronError, parse_cron, time_zone
from ...api.kinds import CRON_JOBS, JOBS
from ...api.times import parse_time, timestamp
from ...api.wire import ApiError, Item
from ...client.event_writer import NORMAL, WARNING
from .base import ObjectController
from .context import BY_OWNER, Context, Data
from .jobs import finished_as
from .pods import owner_reference

__all__ = ["CronJobs"]

_SCHEDULED: Final = "batch.kubernetes.io/cronjob-scheduled-timestamp"
#: More missed times than this are reported.
_MOST_MISSED: Final = 100
#: Upstream looks a little after the time itself.
_AFTER: Final = 0.1


def _last_missed(cron: Cron, zone: tzinfo, earliest: float, now: float) -> tuple[float | None, bool]:
    """The last time after ``earliest`` and not after ``now``, and whether there are very many such times."""
    due, count = None, 0
    upcoming = cron.after(earliest, zone)
    while upcoming is not None and upcoming <= now and count <= _MOST_MISSED:
        due, count = upcoming, count + 1
        upcoming = cron.after(upcoming, zone)
    is_many = count > _MOST_MISSED
    back = 60.0
    while is_many and not cron.every:
        # Of very many times the last is found from the end.
        upcoming = cron.after(max(earliest, now - back), zone)
        while upcoming is not None and upcoming <= now:
            due, is_many = upcoming, False
            upcoming = cron.after(upcoming, zone)
        back *= 2
    if cron.every and due is not None:
        due += math.floor((now - due) / cron.every) * cron.every
    return due, count > _MOST_MISSED


class CronJobs(ObjectController):
    """Keys are those of CronJobs."""

    name = "cronjob"
    component = "cronjob-controller"
    kind = CRON_JOBS

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._jobs = context.owned_cache(JOBS)
        self.watch(JOBS, self.enqueue_owner)

    async def reconcile_object(self, item: Item, data: Data) -> None:
        self.queue.forget_timers(item.key)
        jobs = self._jobs.indexed(BY_OWNER, item.uid)
        status = await self._follow(item, data, jobs)
        if "deletionTimestamp" not in data["metadata"]:
            await self._start(item, data, status, jobs)
        item = await self.context.write_status(item, data, status)
        await self._clean(item, data["spec"], jobs)

    # -- following -------------------------------------------------------------------------------------

    async def _follow(self, item: Item, data: Data, jobs: list[Item]) -> Data:
        """The status after what has become of the jobs."""
        status: Data = dict(data.get("status") or {})
        by_uid = {job.uid: job for job in jobs}
        active = []
        for reference in status.get("active") or ():
            job = by_uid.get(reference.get("uid", ""))
            if job is None:
                await self.record(item, NORMAL, "MissingJob", f"Active job went missing: {reference.get('name')}")
                continue
            ended = finished_as(job.data())
            if not ended:
                active.append(reference)
                continue
            text = f"Saw completed job: {job.name}, condition: {ended}"
            await self.record(item, NORMAL, "SawCompletedJob", text)
            if ended == "Complete":
                done = (job.data().get("status") or {}).get("completionTime")
                status["lastSuccessfulTime"] = max(done or "", status.get("lastSuccessfulTime") or "") or None
        status["active"] = active or None
        return status

    # -- starting --------------------------------------------------------------------------------------

    async def _start(self, item: Item, data: Data, status: Data, jobs: list[Item]) -> None:
        """Make the job that is due, if any, and set the timer for the next."""
        spec, now = data["spec"], self.context.now()
        if spec.get("suspend"):
            return
        try:
            cron, zone = parse_cron(spec.get("schedule") or ""), time_zone(spec.get("timeZone") or "")
        except CronError as error:
            await self.record(
                item, WARNING, "UnparseableSchedule", f"unparseable schedule {spec.get('schedule')!r}: {error}"
            )
            return
        upcoming = cron.after(now, zone)
        if upcoming is not None:
            self.queue.add_after(item.key, upcoming - now + _AFTER)
        deadline = spec.get("startingDeadlineSeconds")
        begin = status.get("lastScheduleTime") or data["metadata"].get("creationTimestamp")
        # A time in the future comes from a cluster whose clock was ahead of this one's.
        earliest = min(parse_time(begin), now) if begin else now
        if deadline is not None:
            earliest = max(earliest, now - float(deadline))
        due, is_many = _last_missed(cron, zone, earliest, now)
        if due is None:
            return
        if is_many:
            text = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
            await self.record(item, WARNING, "TooManyMissedTimes", text)
        active = {reference["uid"] for reference in status.get("active") or ()}
        if active and spec.get("concurrencyPolicy") == "Forbid":
            text = "Not starting job because prior execution is running and concurrency policy is Forbid"
            await self.record(item, NORMAL, "JobAlreadyActive", text)
            return
        if spec.get("concurrencyPolicy") == "Replace":
            for job in jobs:
                if job.uid in active:
                    await self.context.delete(job)
                    await self.record(item, NORMAL, "SuccessfulDelete", f"Deleted job {job.name}")
            status["active"] = None
        await self._create(item, spec, status, due)

    async def _create(self, item: Item, spec: Data, status: Data, due: float) -> None:
        template: Data = spec.get("jobTemplate") or {}
        given: Data = template.get("metadata") or {}
        name = f"{item.name}-{int(due) // 60}"
        metadata: dict[str, Any] = {
            "name": name,
            "annotations": {**(given.get("annotations") or {}), _SCHEDULED: timestamp(due)},
            "ownerReferences": [owner_reference(item)],
        }
        if given.get("labels"):
            metadata["labels"] = given["labels"]
        body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template.get("spec") or {}}
        try:
            job = await self.context.create(JOBS, item.namespace, body)
        except ApiError as error:
            if error.code != 409:
                await self.record(item, WARNING, "FailedCreate", f"Error creating job: {error.message}")
                raise
            known = self._jobs.get(f"{item.namespace}/{name}")
            if known is None:
                raise
            job = known  # made already; only the status was not written
        else:
            await self.record(item, NORMAL, "SuccessfulCreate", f"Created job {name}")
        reference = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": job.name,
            "namespace": job.namespace,
            "uid": job.uid,
        }
        listed = [one for one in status.get("active") or () if one.get("uid") != job.uid]
        status["active"] = listed if finished_as(job.data()) else [*listed, reference]
        status["active"] = status["active"] or None
        status["lastScheduleTime"] = timestamp(due)

    # -- cleaning --------------------------------------------------------------------------------------

    async def _clean(self, item: Item, spec: Data, jobs: list[Item]) -> None:
        """Remove the oldest finished jobs beyond the limits."""
        ended: dict[str, list[tuple[str, Item]]] = {"Complete": [], "Failed": []}
        for job in jobs:
            data = job.data()
            how = finished_as(data)
            if how and "deletionTimestamp" not in data["metadata"]:
                begun = (data.get("status") or {}).get("startTime") or data["metadata"].get("creationTimestamp") or ""
                ended[how].append((begun, job))
        for how, limit in (("Complete", "successfulJobsHistoryLimit"), ("Failed", "failedJobsHistoryLimit")):
            keep = spec.get(limit)
            if keep is None:
                continue
            found = sorted(ended[how], key=lambda pair: (pair[0], pair[1].name))
            for _, job in found[: max(0, len(found) - int(keep))]:
                await self.context.delete(job)
                await self.record(item, NORMAL, "SuccessfulDelete", f"Deleted job {job.name}")
