"""CronJobs in a whole cluster: virtual time begins at midnight, the 1st of January 2025."""

from __future__ import annotations

import asyncio

import pytest
from controllers_world import CRON_JOBS, JOBS, Data, World, job, play

from kubesched.api.kinds import CORE_EVENTS
from kubesched.api.wire import ApiError


def cron_job(name: str, schedule: str = "*/10 * * * *", seconds: str = "60s", **spec: object) -> Data:
    template = {"spec": job(name, seconds)["spec"]}
    return {"metadata": {"name": name}, "spec": {"schedule": schedule, "jobTemplate": template, **spec}}


def events(world: World, name: str) -> list[str]:
    found = [item.data() for item in world.store.list(CORE_EVENTS).items]
    return [event["reason"] for event in found if event["involvedObject"]["name"] == name]


def test_a_job_is_made_at_each_time_and_old_ones_are_removed() -> None:
    async def scenario(world: World) -> None:
        world.create(CRON_JOBS, cron_job("tick", successfulJobsHistoryLimit=2))
        await asyncio.sleep(601)
        assert world.names(JOBS) == ["tick-28928170"]
        status = world.get(CRON_JOBS, "tick")["status"]
        assert [one["name"] for one in status["active"]] == ["tick-28928170"]
        assert status["lastScheduleTime"] == "2025-01-01T00:10:00Z"
        made = world.get(JOBS, "tick-28928170")["metadata"]
        assert made["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"] == "2025-01-01T00:10:00Z"
        assert made["ownerReferences"][0]["kind"] == "CronJob"
        await asyncio.sleep(3600)
        status = world.get(CRON_JOBS, "tick")["status"]
        assert len([name for name in world.names(JOBS) if name.startswith("tick-")]) <= 3
        assert status["lastScheduleTime"] == "2025-01-01T01:10:00Z"
        assert status["lastSuccessfulTime"].startswith("2025-01-01T01:01:0")
        assert {"SuccessfulCreate", "SawCompletedJob", "SuccessfulDelete"} <= set(events(world, "tick"))
        world.store.delete(CRON_JOBS, "default", "tick")
        await world.settle()
        assert world.names(JOBS) == []

    play(scenario)


@pytest.mark.parametrize(("policy", "active", "made"), [("Allow", 3, 3), ("Forbid", 1, 1), ("Replace", 1, 3)])
def test_what_happens_when_the_job_before_still_runs(policy: str, active: int, made: int) -> None:
    async def scenario(world: World) -> None:
        world.create(CRON_JOBS, cron_job("slow", seconds="10h", concurrencyPolicy=policy))
        await asyncio.sleep(1810)
        status = world.get(CRON_JOBS, "slow")["status"]
        assert len(status["active"]) == active
        reasons = events(world, "slow")
        assert reasons.count("SuccessfulCreate") <= made
        assert ("JobAlreadyActive" in reasons) == (policy == "Forbid")
        assert ("SuccessfulDelete" in reasons) == (policy == "Replace")
        last = "2025-01-01T00:10:00Z" if policy == "Forbid" else "2025-01-01T00:30:00Z"
        assert status["lastScheduleTime"] == last
        world.store.delete(CRON_JOBS, "default", "slow")
        await world.settle()

    play(scenario)


def test_a_suspended_one_makes_up_for_the_last_time_only_within_its_deadline() -> None:
    async def scenario(world: World) -> None:
        world.create(CRON_JOBS, cron_job("late", suspend=True))
        world.create(CRON_JOBS, cron_job("strict", suspend=True, startingDeadlineSeconds=30))
        world.create(CRON_JOBS, cron_job("often", "* * * * *", suspend=True))
        await asyncio.sleep(3.5 * 3600 + 300)
        assert world.names(JOBS) == []
        for name in ("late", "strict", "often"):
            world.patch(CRON_JOBS, name, {"spec": {"suspend": False}})
        await asyncio.sleep(1)
        assert world.names(JOBS) == ["late-28928370", "often-28928375"]
        assert "TooManyMissedTimes" in events(world, "often")
        assert "TooManyMissedTimes" not in events(world, "late")
        for name in ("late", "strict", "often"):
            world.store.delete(CRON_JOBS, "default", name)
        await world.settle()

    play(scenario)


def test_time_zones_are_honoured() -> None:
    async def scenario(world: World) -> None:
        world.create(CRON_JOBS, cron_job("tokyo", "30 9 * * *", timeZone="Asia/Tokyo"))
        await asyncio.sleep(1900)
        assert world.get(CRON_JOBS, "tokyo")["status"]["lastScheduleTime"] == "2025-01-01T00:30:00Z"
        world.store.delete(CRON_JOBS, "default", "tokyo")
        await world.settle()

    play(scenario)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schedule": "61 * * * *"}, 'spec.schedule: Invalid value: "61 * * * *": minute: end of range (61)'),
        ({"timeZone": "Mars/Olympus"}, 'spec.timeZone: Invalid value: "Mars/Olympus": unknown time zone'),
        ({"timeZone": "Local"}, "spec.timeZone: Invalid value"),
        ({"concurrencyPolicy": "Maybe"}, "spec.concurrencyPolicy: Unsupported value"),
        ({"startingDeadlineSeconds": -1}, "spec.startingDeadlineSeconds: Invalid value: -1"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_written(change: Data, message: str) -> None:
    async def scenario(world: World) -> None:
        data = cron_job("bad")
        data["spec"].update(change)
        with pytest.raises(ApiError) as raised:
            world.create(CRON_JOBS, data)
        assert raised.value.code == 422
        assert message in str(raised.value)
        with pytest.raises(ApiError, match="must be no more than 52 characters"):
            world.create(CRON_JOBS, cron_job("x" * 53))

    play(scenario)
