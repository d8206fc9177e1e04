"""Objects of every kind, made bad by their schemas and sent in every way to a whole cluster: no 5xx, no stall, no growth.

``KUBESCHED_FUZZ_SECONDS`` makes it run for longer (``make fuzz``), ``KUBESCHED_FUZZ_SEED`` is the first seed.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import pytest
from cpu_turns import Turns, timed_turns
from fuzz_kit import Requests, Resource, resources_of
from http_full import FullCluster, living
from http_world import TABLE, Api, a_definition

from kubesched.cli.memory import give_back

SECONDS = float(os.environ.get("KUBESCHED_FUZZ_SECONDS", "0"))
SEED = int(os.environ.get("KUBESCHED_FUZZ_SEED", "1"))
#: Requests of one seed; then everything is deleted.
REQUESTS = 150
#: What one turn of the event loop may take of the CPU (seconds), the client's share among it.
LONGEST_TURN = 1.0
#: How far the memory may rise after the first seeds (bytes): what is remembered by number fills up for hours, as texts of
#: pods, distinct pods of the scheduler, and an hour of events.
MOST_GROWTH = 300 << 20


def resident(cluster: FullCluster) -> int:
    """The memory of this process (bytes), what is free in it given back as far as possible, as ``kubesched up`` does."""
    gc.collect()
    give_back(cluster.embedded.store)
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Fuzzing:
    """One cluster under fire. ``answers`` counts the codes."""

    def __init__(self, cluster: FullCluster, api: Api, turns: Turns, failures: list[logging.LogRecord]) -> None:
        self._cluster, self._api, self._turns, self._failures = cluster, api, turns, failures
        self.answers: Counter[int] = Counter()
        self.sent = 0
        #: What the longest turn for one request took (seconds).
        self.longest = 0.0

    async def seed(self, seed: int, resources: list[Resource], schemas: dict[str, Any]) -> None:
        requests = Requests(Random(seed), resources, schemas)
        first = list(requests.first())
        for number in range(len(first) + REQUESTS):
            one = first[number] if number < len(first) else requests.next()
            where = f"seed {seed}, request {number}: {one.method} {one.path} {one.query} {one.content_type} {one.raw[:3000]!r}"
            await asyncio.sleep(0)  # what making the request took is no part of the next turn
            self._turns.longest = 0.0
            answer = await self._api(
                one.method, one.path, raw=one.raw or None, type=one.content_type or None, **one.query
            )
            await asyncio.sleep(0)
            self.sent += 1
            self.longest = max(self.longest, self._turns.longest)
            self.answers[answer.status] += 1
            is_upstream = answer.status in (501, 504) or b"field not declared in schema" in answer.raw
            assert answer.status < 500 or is_upstream, f"{where}: {answer.status} {answer.raw[:1000]!r}"
            assert b"Traceback" not in answer.raw, where
            assert self._turns.longest < LONGEST_TURN, f"{where}: held the loop for {self._turns.longest:.2f} s"
            assert not self._failures, f"{where}: {self._failures[0].getMessage()}: {self._failures[0].exc_text}"
        await self.settle(f"seed {seed}")
        await self.clean(resources)
        await self.settle(f"seed {seed}, deleting")
        await self.forget()
        assert (await self._api.get("/readyz")).status == 200

    async def settle(self, where: str) -> None:
        """Give the controllers a moment, and see that none had a defect."""
        self._turns.longest = 0.0
        await asyncio.sleep(0.3 if not SECONDS else 1.0)
        assert self._turns.longest < LONGEST_TURN, (
            f"{where}: what followed held the loop for {self._turns.longest:.2f} s"
        )
        assert not self._failures, f"{where}: {self._failures[0].getMessage()}: {self._failures[0].exc_text}"

    async def forget(self) -> None:
        """Drop the events and the history, which are kept on purpose: what grows from seed to seed is a leak."""
        for namespace in (await self._api.get("/api/v1/namespaces")).data["items"]:
            path = f"/api/v1/namespaces/{namespace['metadata']['name']}/events"
            assert (await self._api.delete(path)).status == 200
        self._cluster.embedded.store.compact()

    async def clean(self, resources: list[Resource]) -> None:
        """Delete what was made, workloads before their pods."""
        for resource in sorted(resources, key=lambda one: one.plural in ("pods", "nodes")):
            if resource.plural in ("namespaces", "events", "customresourcedefinitions") or not resource.is_listed:
                continue
            found = await self._api.get(resource.collection(), accept=TABLE)
            assert found.status == 200, (resource.plural, found.raw[:1000])
            for row in found.data["rows"]:
                metadata = row["object"]["metadata"]
                if metadata["name"] in ("n0", "n1", "n2", "fuzz"):
                    continue
                path = f"{resource.collection()}/{metadata['name']}"
                if metadata.get("finalizers"):
                    await self._api.patch(path, {"metadata": {"finalizers": None}})
                await self._api.delete(path, gracePeriodSeconds=0)


async def run_fuzz(seconds: float, seeds: int, failures: list[logging.LogRecord]) -> Fuzzing:
    begun, baseline, seed = time.monotonic(), 0, SEED
    async with living(heartbeats=None) as cluster, aiohttp.ClientSession() as session:
        api = Api(cluster.server, session)
        await api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", a_definition())
        # Objects may ask for two thousand million pods.
        quota = {"metadata": {"name": "fuzz"}, "spec": {"hard": {"pods": "100", "count/jobs.batch": "50"}}}
        assert (await api.post("/api/v1/namespaces/default/resourcequotas", quota)).status == 201
        resources, schemas = await resources_of(api)
        assert len(resources) > 40
        with timed_turns() as turns:
            fuzzing = Fuzzing(cluster, api, turns, failures)
            while seed < SEED + seeds or time.monotonic() < begun + seconds:
                await fuzzing.seed(seed, resources, schemas)
                seed += 1
                if seed == SEED + 20:
                    baseline = resident(cluster)
                if SECONDS and seed % 20 == 0:
                    done = f"{time.monotonic() - begun:.0f} s: {seed - SEED} seeds, {fuzzing.sent} requests"
                    figures = (
                        f"{resident(cluster) >> 20} MiB, longest turn {fuzzing.longest:.2f} s, {dict(fuzzing.answers)}"
                    )
                    sys.stderr.write(f"{done}, {figures}\n")
        if baseline:
            grown = resident(cluster) - baseline
            assert grown < MOST_GROWTH, f"{grown >> 20} MiB more than after the first seeds"
    return fuzzing


def test_no_object_makes_a_cluster_fail(caplog: pytest.LogCaptureFixture) -> None:
    failures: list[logging.LogRecord] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info:
                self.format(record)
                failures.append(record)

    handler = Collector()
    logging.getLogger("kubesched").addHandler(handler)
    try:
        fuzzing = asyncio.run(run_fuzz(SECONDS, 1, failures))
    finally:
        logging.getLogger("kubesched").removeHandler(handler)
    good = sum(count for code, count in fuzzing.answers.items() if code < 300)
    assert good > fuzzing.sent / 20, fuzzing.answers  # else nothing is tried but the first checks
