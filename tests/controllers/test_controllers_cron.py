"""CronJobs start Jobs by the cluster's clock, and every namespace has a ServiceAccount."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from controllers_world import JOBS, Data, World, job, kind, play

from kubesched.api.kinds import CORE_EVENTS, NAMESPACES
from kubesched.api.times import parse_time
from kubesched.api.wire import ApiError
from kubesched.cluster.admission import last_due, next_due

CRON_JOBS, ACCOUNTS = kind("cronjobs", "batch"), kind("serviceaccounts")


def cron_job(name: str = "tick", schedule: str = "*/10 * * * *", seconds: str = "10s", **spec: object) -> Data:
    made = job(name, seconds)
    return {"metadata": {"name": name}, "spec": {"schedule": schedule, "jobTemplate": {"spec": made["spec"]}, **spec}}


def reasons(world: World) -> list[str]:
    return [item.data()["reason"] for item in world.store.list(CORE_EVENTS, "default").items]


def test_a_job_is_started_at_each_moment_and_old_ones_are_removed() -> None:
    async def scenario(world: World) -> None:
        made = world.create(CRON_JOBS, cron_job(successfulJobsHistoryLimit=2))
        created = parse_time(made["metadata"]["creationTimestamp"])
        await asyncio.sleep(3630)
        names = world.names(JOBS)
        assert len(names) == 2
        now = world.get(CRON_JOBS, "tick")
        last = parse_time(now["status"]["lastScheduleTime"])
        assert last % 600 == 0
        assert created + 3000 < last <= created + 3630
        assert f"tick-{int(last // 60)}" in names
        assert now["status"]["lastSuccessfulTime"] > now["status"]["lastScheduleTime"]
        assert "active" not in now["status"]
        assert {"SuccessfulCreate", "SawCompletedJob", "SuccessfulDelete"} <= set(reasons(world))
        scheduled = world.get(JOBS, names[-1])["metadata"]["annotations"][
            "batch.kubernetes.io/cronjob-scheduled-timestamp"
        ]
        assert parse_time(scheduled) == last
        world.patch(CRON_JOBS, "tick", {"spec": {"suspend": True}})
        await asyncio.sleep(1800)
        assert world.names(JOBS) == names

    play(scenario)


@pytest.mark.parametrize(("policy", "running"), [("Allow", 3), ("Forbid", 1), ("Replace", 1)])
def test_a_job_that_still_runs(policy: str, running: int) -> None:
    async def scenario(world: World) -> None:
        world.create(CRON_JOBS, cron_job(seconds="2h", concurrencyPolicy=policy))
        await asyncio.sleep(601)
        first = world.names(JOBS)
        await asyncio.sleep(1200)
        assert len(world.names(JOBS)) == running
        assert (world.names(JOBS)[0] in first) is (policy != "Replace")
        assert len(world.get(CRON_JOBS, "tick")["status"]["active"]) == running
        assert ("JobAlreadyActive" in reasons(world)) is (policy == "Forbid")
        world.store.delete(CRON_JOBS, "default", "tick")
        await world.settle()
        assert world.names(JOBS) == []

    play(scenario)


def test_a_moment_that_is_too_long_ago_is_missed() -> None:
    async def scenario(world: World) -> None:
        made = world.create(CRON_JOBS, cron_job(suspend=True, startingDeadlineSeconds=30))
        now = parse_time(made["metadata"]["creationTimestamp"])
        await asyncio.sleep(600 - now % 600 + 60)
        world.patch(CRON_JOBS, "tick", {"spec": {"suspend": False}})
        await asyncio.sleep(30)
        assert world.names(JOBS) == []
        assert "MissSchedule" in reasons(world)

    play(scenario)


@pytest.mark.parametrize(
    ("schedule", "why"),
    [
        ("", "spec.schedule: Required value"),
        ("* * * *", "expected exactly 5 fields, found 4"),
        ("* * * * * *", "expected exactly 5 fields, found 6"),
        ("61 * * * *", "bad minute"),
        ("0 0 30 2 *", "bad day-of-month"),
        ("TZ=UTC * * * * *", "use timeZone field instead"),
    ],
)
def test_schedules_that_cannot_be_read_are_refused(schedule: str, why: str) -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(ApiError, match=why) as caught:
            world.create(CRON_JOBS, cron_job(schedule=schedule))
        assert caught.value.code == 422
        with pytest.raises(ApiError, match="unknown time zone Mars/Base"):
            world.create(CRON_JOBS, cron_job(timeZone="Mars/Base"))

    play(scenario, nodes=0)


def test_moments_of_schedules() -> None:
    noon = datetime(2026, 3, 28, 12, 0, tzinfo=UTC).timestamp()
    assert last_due("* * * * *", "", noon) == noon
    assert last_due("* * * * *", "", noon - 0.5) == noon - 60
    assert next_due("* * * * *", "", noon) == noon + 60
    assert next_due("@hourly", "", noon) == noon + 3600
    assert next_due("30 14 * * ?", "Asia/Kolkata", noon) == noon + 86400 - 3 * 3600
    # Clocks go forward in the night: nine in the morning comes an hour earlier.
    assert next_due("0 9 * * *", "Europe/Berlin", noon) == noon + 19 * 3600


def test_every_namespace_has_its_default_account() -> None:
    async def scenario(world: World) -> None:
        world.create(NAMESPACES, {"metadata": {"name": "team"}})
        await world.settle()
        assert world.names(ACCOUNTS, "team") == world.names(ACCOUNTS, "default") == ["default"]
        world.store.delete(ACCOUNTS, "team", "default")
        await world.settle()
        assert world.names(ACCOUNTS, "team") == ["default"]
        world.store.delete(NAMESPACES, "", "team")
        await world.settle()
        assert not world.exists(NAMESPACES, "team")

    play(scenario, nodes=0)
