"""The exposition: the specification's tables, label allow-lists, resets, and what the API client reports."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families
from server_kit import OPEN, Answer, Client, run, running, serving

from kubesched.api.kinds import NODES
from kubesched.api.wire import ApiError
from kubesched.cli.run.connections import BUILD_INFO
from kubesched.client.backoff import TokenBucket
from kubesched.client.http import HttpTransport
from kubesched.client.metered import MeteredTransport
from kubesched.scheduler.config import DEFAULT_GATES, FEATURES
from kubesched.scheduler.framework import metrics as scheduler
from kubesched.scheduler.framework.metrics import MetricDef, SchedulerMetrics, exponential_buckets
from kubesched.scheduler.server import Exposition, ProcessMetrics, process_metrics, resources
from kubesched.scheduler.server.process_metrics import RequestMetrics

ALL = (*scheduler.DEFINITIONS, *process_metrics.DEFINITIONS, *process_metrics.SLI_DEFINITIONS, *resources.DEFINITIONS)
KINDS = {"C": "counter", "G": "gauge", "H": "histogram"}


@dataclass(frozen=True)
class Row:
    """A metric of the specification; empty ``level`` where it names none."""

    name: str
    kind: str
    labels: tuple[str, ...]
    buckets: tuple[float, ...]
    level: str
    gate: str


def buckets(text: str) -> tuple[float, ...]:
    expression = re.fullmatch(r"exp\((.*)\)", "exp(0.001, 2, 15)" if text == "S" else text)
    if expression is None:
        return tuple(float(item) for item in text.split())
    first, factor, count = (float(item) for item in expression[1].split(","))
    return exponential_buckets(first, factor, int(count))


def table() -> Iterator[Row]:
    for line in (Path(__file__).parent / "metrics_table.txt").read_text().splitlines():
        if not line.startswith("#"):
            name, kind, labels, bounds, level, gate = (cell.strip() for cell in line.split("|"))
            yield Row(name, KINDS[kind], tuple(labels.split()), buckets(bounds), level, gate)


TABLE = {row.name: row for row in table()}


@pytest.mark.parametrize("row", TABLE.values(), ids=lambda row: row.name)
def test_a_metric_is_as_specified(row: Row) -> None:
    [found] = [definition for definition in ALL if definition.full_name == row.name]
    assert (found.kind, found.labels) == (row.kind, row.labels)
    assert found.buckets == pytest.approx(row.buckets)
    assert row.level in ("", found.level)
    assert found.gate == row.gate.removeprefix("-")
    if row.gate:
        assert FEATURES[found.gate].default is not row.gate.startswith("-")
    assert found.help.endswith(".")


def test_the_scheduler_has_no_metric_that_is_not_specified() -> None:
    names = {row.full_name for row in (*scheduler.DEFINITIONS, *resources.DEFINITIONS)}
    assert names == {name for name in TABLE if name.startswith(("scheduler_", "kube_pod_"))}
    assert len({row.full_name for row in ALL}) == len(ALL)


def test_every_metric_is_on_its_page() -> None:
    text = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    for definition in ALL:
        assert f"| `{definition.full_name}` | {definition.kind} |" in text


# -- the text ----------------------------------------------------------------------------------------------------


def series(text: str) -> dict[str, float]:
    """Every line of an exposition: name with labels to value."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            assert name not in found, "a series comes twice"
            found[name] = float(value)
    return found


def types(text: str) -> dict[str, str]:
    return {line.split()[2]: line.split()[3] for line in text.splitlines() if line.startswith("# TYPE ")}


async def scraped(metrics: SchedulerMetrics, **options: Any) -> str:
    process = ProcessMetrics(DEFAULT_GATES, BUILD_INFO)
    return (await Exposition(process, metrics, **options).text()).decode()


def test_before_anything_happened_there_is_what_upstream_shows() -> None:
    async def main() -> None:
        text = await scraped(SchedulerMetrics())
        shown = {name for name in types(text) if name.startswith("scheduler_")}
        without_labels = {
            name for name, row in TABLE.items() if name.startswith("scheduler_") and not row.labels and not row.gate
        }
        assert shown == {*without_labels, "scheduler_pending_pods"}
        values = series(text)
        for queue in ("active", "backoff", "unschedulable", "gated"):
            assert values[f'scheduler_pending_pods{{queue="{queue}"}}'] == 0
        assert values["scheduler_preemption_attempts_total"] == 0
        assert values['scheduler_preemption_victims_bucket{le="64"}'] == 0
        assert values['version_info{binary="1.36",component="kube",emulation="1.36",min_compat="1.35"}'] == 1
        assert len([name for name in values if name.startswith("kubernetes_feature_enabled")]) == len(FEATURES)
        assert values['kubernetes_feature_enabled{name="SchedulerQueueingHints",stage=""}'] == 1
        assert values['kubernetes_feature_enabled{name="GenericWorkload",stage="ALPHA"}'] == 0
        assert values['kubernetes_feature_enabled{name="OpportunisticBatching",stage="BETA"}'] == 1
        [build] = [name for name in values if name.startswith("kubernetes_build_info")]
        assert all(label in build for label in ('git_version="v1.36.0"', 'major="1"', 'minor="36"', 'platform="'))
        assert "python_info" in types(text)
        stable = sum(row.level == "STABLE" for row in scheduler.DEFINITIONS)
        assert values['registered_metrics_total{deprecated_version="",stability_level="STABLE"}'] == stable

    run(main())


def test_gates_decide_what_is_shown() -> None:
    async def main() -> None:
        metrics = SchedulerMetrics({**DEFAULT_GATES.values, "GenericWorkload": True})
        assert "scheduler_podgroup_scheduling_algorithm_duration_seconds" in types(await scraped(metrics))

    run(main())


def written() -> SchedulerMetrics:
    metrics = SchedulerMetrics()
    metrics.schedule_attempts_total.inc("scheduled", "a")
    for value in (0.0005, 0.003, 99):
        metrics.scheduling_attempt_duration_seconds.observe(value, "scheduled", "a")
    metrics.plugin_execution_duration_seconds.observe(0.00001, 'odd"\\\n', "Filter", "Success")
    metrics.unschedulable_pods.labels("Fit", "a").set(3)
    return metrics


def test_series_are_written_as_prometheus_reads_them() -> None:
    async def main() -> None:
        text = await scraped(written())
        values = series(text)
        assert values['scheduler_schedule_attempts_total{profile="a",result="scheduled"}'] == 1
        stem = "scheduler_scheduling_attempt_duration_seconds"
        assert "# HELP scheduler_schedule_attempts_total [STABLE] " in text
        counts = {
            bound: values[f'{stem}_bucket{{le="{bound}",profile="a",result="scheduled"}}']
            for bound in ("0.001", "0.002", "0.004", "16.384", "+Inf")
        }
        assert counts == {"0.001": 1, "0.002": 1, "0.004": 2, "16.384": 2, "+Inf": 3}
        assert values[f'{stem}_count{{profile="a",result="scheduled"}}'] == 3
        assert values[f'{stem}_sum{{profile="a",result="scheduled"}}'] == pytest.approx(99.0035)
        assert types(text)[stem] == "histogram"
        assert types(text)["scheduler_unschedulable_pods"] == "gauge"
        parsed = {family.name: family for family in text_string_to_metric_families(text)}
        odd = {sample.labels["plugin"] for sample in parsed["scheduler_plugin_execution_duration_seconds"].samples}
        assert odd == {'odd"\\\n'}
        names = [name for name in types(text) if not name.startswith(("process_", "python_"))]
        assert names == sorted(names)

    run(main())


def test_bounds_are_written_as_go_writes_them() -> None:
    async def main() -> None:
        process = ProcessMetrics(DEFAULT_GATES, {})
        RequestMetrics(process, "h").transferred("GET", 0, 2_000_000)
        values = series((await Exposition(process).text()).decode())
        stem = "rest_client_response_size_bytes_bucket"
        bounds = [re.search('le="(.*?)"', name) for name in values if name.startswith(stem)]
        assert [bound[1] for bound in bounds if bound] == (
            [
                "64",
                "256",
                "512",
                "1024",
                "4096",
                "16384",
                "65536",
                "262144",
                "1.048576e+06",
                "4.194304e+06",
                "1.6777216e+07",
                "+Inf",
            ]
        )

    run(main())


def test_labels_that_are_not_allowed_are_added_up() -> None:
    async def main() -> None:
        metrics = written()
        for profile in ("b", "c"):
            metrics.schedule_attempts_total.inc("scheduled", profile)
            metrics.scheduling_attempt_duration_seconds.observe(1, "scheduled", profile)
        allowed = {
            "scheduler_schedule_attempts_total,profile": ["a"],
            "scheduler_scheduling_attempt_duration_seconds,profile": ["a"],
        }
        values = series(await scraped(metrics, allowed_labels=allowed))
        assert values['scheduler_schedule_attempts_total{profile="a",result="scheduled"}'] == 1
        assert values['scheduler_schedule_attempts_total{profile="unexpected",result="scheduled"}'] == 2
        stem = "scheduler_scheduling_attempt_duration_seconds"
        assert values[f'{stem}_count{{profile="unexpected",result="scheduled"}}'] == 2
        assert values[f'{stem}_bucket{{le="1.024",profile="unexpected",result="scheduled"}}'] == 2
        assert values[f'{stem}_bucket{{le="0.512",profile="unexpected",result="scheduled"}}'] == 0
        assert not any('profile="b"' in name for name in values)

    run(main())


def test_replaced_labels_are_counted_once() -> None:
    async def main() -> None:
        metrics = written()
        process = ProcessMetrics(DEFAULT_GATES, {})
        exposition = Exposition(process, metrics, allowed_labels={"scheduler_schedule_attempts_total,profile": []})
        for _ in range(2):
            values = series((await exposition.text()).decode())
        assert values["cardinality_enforcement_unexpected_categorizations_total"] == 1

    run(main())


def test_disabled_metrics_are_left_out_and_unknown_names_listed() -> None:
    async def main() -> None:
        process = ProcessMetrics(DEFAULT_GATES, {})
        exposition = Exposition(
            process,
            written(),
            disabled=["scheduler_unschedulable_pods", "nothing"],
            allowed_labels={"scheduler_pending_pods,colour": ["red"], "scheduler_pending_pods,queue": ["active"]},
        )
        text = (await exposition.text()).decode()
        assert "scheduler_unschedulable_pods" not in text
        assert series(text)["disabled_metrics_total"] == 2
        assert exposition.unknown == ["nothing", "scheduler_pending_pods,colour"]

    run(main())


# -- over HTTP ---------------------------------------------------------------------------------------------------


def with_metrics(client: Client, answer: Answer) -> dict[str, float]:
    assert answer.status == 200
    return series(answer.text)


def test_the_endpoint(tmp_path: Path) -> None:
    async def main() -> None:
        metrics = written()
        async with running(serving(tmp_path), authorization=OPEN, scheduler_metrics=metrics) as client:
            accept = ("Accept", "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5")
            answer = await client("/metrics", headers=[accept])
            assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"
            assert answer.headers["Process-Start-Time-Unix"] == str(int(client.clock.time))
            assert answer.headers["Cache-Control"] == "no-cache, private"
            assert not answer.text.endswith("# EOF\n")
            for method in ("POST", "PUT", "PATCH"):
                assert (await client("/metrics", method)).headers["Content-Type"].startswith("text/plain; version")
            for coding, packed in (("gzip", True), ("br, gzip;q=0.5", True), ("gzip;q=0", False), ("br", False)):
                answer = await client("/metrics", headers=[("Accept-Encoding", coding)])
                assert (answer.headers.get("Content-Encoding") == "gzip") is packed, coding
                assert b"scheduler_pending_pods" in (gzip.decompress(answer.body) if packed else answer.body)
            values = series((await client("/metrics")).text)
            assert values['authenticated_user_requests{username="other"}'] >= 8
            assert values['authorization_attempts_total{result="allowed"}'] >= 8
            answer = await client("/metrics", "DELETE")
            assert answer.text == "metrics reset\n"
            values = series((await client("/metrics")).text)
            assert values['scheduler_schedule_attempts_total{profile="a",result="scheduled"}'] == 0
            assert values['scheduler_unschedulable_pods{plugin="Fit",profile="a"}'] == 3
            assert values['registered_metrics_total{deprecated_version="",stability_level="STABLE"}'] > 0
            assert values['kubernetes_feature_enabled{name="OpportunisticBatching",stage="BETA"}'] == 1

    run(main())


def test_the_lease_is_shown() -> None:
    class Elector:
        leading = False
        slow_paths = 0

    async def main() -> None:
        elector: Any = Elector()
        process = ProcessMetrics(DEFAULT_GATES, {})
        exposition = Exposition(process)
        assert "leader_election_master_status" not in (await exposition.text()).decode()
        process.follow_election(elector)
        elector.leading, elector.slow_paths = True, 3
        values = series((await exposition.text()).decode())
        assert values['leader_election_master_status{name="kube-scheduler"}'] == 1
        assert values['leader_election_slowpath_total{name="kube-scheduler"}'] == 3

    run(main())


def test_requests_to_the_api_server_are_counted() -> None:
    tries = 0

    async def nodes(request: web.Request) -> web.Response:
        nonlocal tries
        tries += 1
        if tries == 1:
            return web.Response(status=429, headers={"Retry-After": "0"}, text="busy")
        if "watch" in request.query:
            return web.Response(text="")
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})

    async def main() -> None:
        app = web.Application()
        app.router.add_get("/api/v1/nodes", nodes)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        address: Any = runner.addresses[0]
        host = f"127.0.0.1:{address[1]}"
        process = ProcessMetrics(DEFAULT_GATES, {})
        observer = RequestMetrics(process, host)
        async with HttpTransport(f"http://{host}", observer=observer) as transport:
            metered = MeteredTransport(transport, limiter=TokenBucket(1000, 10), on_wait=observer.waited)
            await metered.list(NODES)
            async for _ in metered.watch(NODES, resource_version="1"):
                pass
            with pytest.raises(ApiError):
                await metered.create(NODES, "", {"metadata": {"name": "n"}})
            await runner.cleanup()
            with pytest.raises(OSError, match="annot connect"):
                await metered.list(NODES)
        values = {
            name.replace(host, "H"): value
            for name, value in series((await Exposition(process).text()).decode()).items()
        }
        requests = {name: value for name, value in values.items() if name.startswith("rest_client_requests_total")}
        assert requests == {
            'rest_client_requests_total{code="429",host="H",method="GET"}': 1,
            'rest_client_requests_total{code="200",host="H",method="GET"}': 2,
            'rest_client_requests_total{code="405",host="H",method="POST"}': 1,
            'rest_client_requests_total{code="<error>",host="H",method="GET"}': 1,
        }
        assert values['rest_client_request_retries_total{code="429",host="H",verb="GET"}'] == 1
        assert values['rest_client_request_duration_seconds_count{host="H",verb="GET"}'] == 4
        assert values['rest_client_rate_limiter_duration_seconds_count{host="H",verb="GET"}'] == 2
        assert values['rest_client_request_size_bytes_count{host="H",verb="POST"}'] == 1
        assert values['rest_client_request_size_bytes_sum{host="H",verb="POST"}'] > 20
        assert values['rest_client_response_size_bytes_sum{host="H",verb="GET"}'] > 20

    run(main())


def test_the_event_loop_goes_on_while_the_text_is_written() -> None:
    async def main() -> None:
        metrics = SchedulerMetrics()
        for number in range(300):
            metrics.plugin_execution_duration_seconds.observe(1, f"p{number}", "Filter", "Success")
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        text = await scraped(metrics)
        assert text.count("\nscheduler_plugin_execution_duration_seconds_bucket") == 300 * 21
        assert turns > 2
        counting.cancel()

    run(main())


def test_every_row_of_a_table_has_its_attribute() -> None:
    for kind, rows in (
        (process_metrics.ProcessMetrics, process_metrics.DEFINITIONS),
        (process_metrics.HealthMetrics, process_metrics.SLI_DEFINITIONS),
    ):
        declared: dict[str, str] = dict(kind.__annotations__)
        assert declared == {row.name: row.kind.capitalize() for row in rows}
        row: MetricDef
        for row in rows:
            assert bool(row.buckets) == (row.kind == "histogram")
