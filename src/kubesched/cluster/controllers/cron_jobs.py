"""CronJob: makes a Job at each time of its schedule, and removes finished ones beyond the limits.

Rules: upstream's ``cronjob_controllerv2.go``. If several times were missed, only the last one is made up for, within
``startingDeadlineSeconds``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import tzinfo
from itertools import islice
from typing import Final

from kubesched.api.cron import Cron, CronError, parse_cron, time_zone
from kubesched.api.kinds import CRON_JOBS, JOBS
from kubesched.api.wire import Item
from kubesched.base.times import parse_time, timestamp
from kubesched.client.event_writer import NORMAL, WARNING

from .base import ObjectController
from .context import BY_OWNER, Context, Data, data_of, spec_of, status_of
from .jobs import finished_as
from .pods import owned_body

__all__ = ["CronJobs"]

_SCHEDULED: Final = "batch.kubernetes.io/cronjob-scheduled-timestamp"
#: More missed times than this are reported.
_MOST_MISSED: Final = 100
#: Seconds after the scheduled time at which the schedule is looked at, as upstream does.
_AFTER: Final = 0.1


def _times(cron: Cron, zone: tzinfo, after: float, until: float) -> Iterator[float]:
    upcoming = cron.after(after, zone)
    while upcoming is not None and upcoming <= until:
        yield upcoming
        upcoming = cron.after(upcoming, zone)


def _last_missed(cron: Cron, zone: tzinfo, earliest: float, now: float) -> tuple[float | None, bool]:
    """Return the last scheduled time in ``(earliest, now]``, and True for more than ``_MOST_MISSED`` such times."""
    missed = list(islice(_times(cron, zone, earliest, now), _MOST_MISSED + 1))
    if not missed:
        return None, False
    is_many, back = len(missed) > _MOST_MISSED, 60.0
    if cron.every:
        return missed[-1] + math.floor((now - missed[-1]) / cron.every) * cron.every, is_many
    if is_many:
        missed.clear()
    while not missed:  # too many: find the last by looking back from the end
        missed = list(_times(cron, zone, max(earliest, now - back), now))
        back *= 2
    return missed[-1], is_many


class CronJobs(ObjectController):
    """Controller of CronJobs."""

    name = "cronjob"
    kind = CRON_JOBS
    created = "Created job {name}"
    refused = "Error creating job: {error}"
    deleted = "Deleted job {name}"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._jobs = context.owned_cache(JOBS)
        context.watch(JOBS, self.enqueue_owner)

    async def reconcile_object(self, item: Item) -> None:
        self.queue.forget_timers(item.key)
        jobs = self._jobs.indexed(BY_OWNER, item.uid)
        status = await self._follow(item, jobs)
        if not self.context.is_going(item):
            await self._start(item, status, jobs)
        await self._clean(await self.context.write_status(item, status), jobs)

    async def _follow(self, item: Item, jobs: list[Item]) -> Data:
        """Return the status, updated by the state of the jobs."""
        status = dict(status_of(item))
        by_uid = {job.uid: job for job in jobs}
        active = []
        for reference in status.get("active") or ():
            job = by_uid.get(reference.get("uid", ""))
            if job is None:
                await self.record(item, NORMAL, "MissingJob", f"Active job went missing: {reference.get('name')}")
            elif ended := finished_as(data_of(job)):
                text = f"Saw completed job: {job.name}, condition: {ended}"
                await self.record(item, NORMAL, "SawCompletedJob", text)
                if ended == "Complete":
                    done = status_of(job).get("completionTime")
                    status["lastSuccessfulTime"] = max(done or "", status.get("lastSuccessfulTime") or "") or None
            else:
                active.append(reference)
        status["active"] = active or None
        return status

    async def _start(self, item: Item, status: Data, jobs: list[Item]) -> None:
        """Create the job that is due, if any, and set the timer for the next."""
        spec, now = spec_of(item), self.context.now()
        if spec.get("suspend"):
            return
        try:
            cron, zone = parse_cron(spec.get("schedule") or ""), time_zone(spec.get("timeZone") or "")
        except CronError as error:
            text = f"unparseable schedule {spec.get('schedule')!r}: {error}"
            await self.record(item, WARNING, "UnparseableSchedule", text)
            return
        upcoming = cron.after(now, zone)
        if upcoming is not None:
            self.queue.add_after(item.key, upcoming - now + _AFTER)
        deadline = spec.get("startingDeadlineSeconds")
        begin = status.get("lastScheduleTime") or data_of(item)["metadata"].get("creationTimestamp")
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
            await self.delete_owned(item, *(job for job in jobs if job.uid in active))
            status["active"] = None
        await self._create(item, spec, status, due)

    async def _create(self, item: Item, spec: Data, status: Data, due: float) -> None:
        template, name = spec.get("jobTemplate") or {}, f"{item.name}-{int(due) // 60}"
        type_ = {"apiVersion": "batch/v1", "kind": "Job"}
        body = {**type_, **owned_body(item, template, name=name, annotations={_SCHEDULED: timestamp(due)})}
        # The job may exist although writing the status failed.
        known = self._jobs.get(f"{item.namespace}/{name}")
        job = known or await self.create_owned(item, JOBS, body, tolerated=409)
        active = [one for one in status.get("active") or () if one.get("uid") != job.uid]
        if not finished_as(data_of(job)):
            active.append({**type_, "name": job.name, "namespace": job.namespace, "uid": job.uid})
        status |= {"active": active or None, "lastScheduleTime": timestamp(due)}

    async def _clean(self, item: Item, jobs: list[Item]) -> None:
        """Remove the oldest finished jobs beyond the limits."""

        def begun(job: Item) -> tuple[str, str]:
            return status_of(job).get("startTime") or data_of(job)["metadata"].get("creationTimestamp") or "", job.name

        staying = sorted((job for job in jobs if not self.context.is_going(job)), key=begun)
        for limit, how in (("successfulJobsHistoryLimit", "Complete"), ("failedJobsHistoryLimit", "Failed")):
            found = [job for job in staying if finished_as(data_of(job)) == how]
            if (keep := spec_of(item).get(limit)) is not None:
                await self.delete_owned(item, *found[: max(0, len(found) - int(keep))])
