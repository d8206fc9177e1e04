"""Time by plugin: what a stopwatch adds up, and which metrics a sampled attempt leaves behind."""

from __future__ import annotations

import asyncio
import itertools
import threading
from typing import Any

from framework_kit import make_plugin, profile

from builders import a_node, create_nodes
from kubesched.api.kinds import PODS
from kubesched.cli.busy_plugins import busy
from kubesched.cluster.kubelets import node_template
from kubesched.lab.simulate.embedded import Embedded
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual
from kubesched.scheduler.cache import Cache
from kubesched.scheduler.config import default_config
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.metrics import SchedulerMetrics
from kubesched.scheduler.framework.plugin_times import PluginTime, PluginTimes, Stopwatch
from kubesched.scheduler.framework.slow_calls import watching_plugins, work_of
from kubesched.scheduler.plugins import in_tree_registry


def test_calls_are_added_up_and_the_longest_has_its_pod() -> None:
    times, ticks = PluginTimes(), itertools.count(step=2)
    framework = profile(make_plugin("Slow", filter=lambda self, state, pod, node: None))
    times.attach([framework], now=lambda: float(next(ticks)))
    cache = Cache()
    cache.set_node(a_node("n1"))
    table = cache.snapshot().table
    for name in ("a", "b"):
        framework.stopwatch.begin(f"default/{name}", sampled=False)
        framework.filters[0].one(CycleState(), None, table, table.info(0))  # type: ignore[arg-type]
    [row] = times.take()
    assert (row.plugin, row.point, row.calls, row.total, row.mean) == ("Slow", "Filter", 2, 4.0, 2.0)
    assert (row.longest, row.pod) == (2.0, "default/a")
    assert times.rows() == []


def test_a_search_that_is_not_sampled_is_not_timed() -> None:
    ticks = itertools.count()
    watch = Stopwatch(SchedulerMetrics(), lambda: float(next(ticks)))
    watch.begin("default/a", sampled=False)
    assert not watch.is_on
    watch.begin("default/b", sampled=True)
    assert watch.is_on
    watch.asked("Fit", "Filter", watch.now())
    assert watch.end() == {"Filter": 1.0}
    assert not watch.is_on


def _pod(name: str, cpu: str) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": [container]}}


def test_sampled_attempts_leave_series_of_every_point() -> None:
    async def run() -> tuple[set[str], set[tuple[str, str]]]:
        embedded = Embedded(default_config(), in_tree_registry(), clock=VirtualClock(asyncio.get_running_loop()))
        create_nodes(embedded.store, 2, node_template(cpu="40"))
        async with embedded.running():
            for number in range(20):
                embedded.store.create(PODS, "default", _pod(f"p{number}", "1"))
            await asyncio.sleep(20)
        metrics = embedded.scheduler.metrics
        points = {labels[0] for labels in metrics.framework_extension_point_duration_seconds.children}
        return points, {(labels[0], labels[1]) for labels in metrics.plugin_execution_duration_seconds.children}

    points, plugins = run_virtual(run())
    assert {"Filter", "Permit", "PostBind", "Sign"} <= points
    assert {("NodeResourcesFit", "Filter"), ("NodeResourcesFit", "Score")} <= plugins


def test_many_slow_nodes_are_named_with_pod_and_time_for_each() -> None:
    reported, texts = threading.Event(), list[str]()

    def report(text: str) -> None:
        texts.append(text)
        reported.set()

    def wait(self: Any, *args: Any) -> None:
        reported.wait(0.01)

    framework = profile(make_plugin("Steady", filter=wait))
    cache = Cache()
    cache.set_node(a_node("n1"))
    table = cache.snapshot().table
    framework.stopwatch.begin("shop/web-1", sampled=False)
    plugins = framework.plugins.values()
    with watching_plugins(plugins, report, seconds=0.04, progress=lambda: 0, work=work_of([framework])):
        while not reported.is_set():
            framework.filters[0].one(CycleState(), None, table, table.info(0))  # type: ignore[arg-type]
    [text] = texts
    assert text.startswith("plugin Steady has taken about 0.")
    assert " s in filter, in many calls, about 0.0" in text
    assert text.endswith(" nodes, for pod shop/web-1; nothing else was done meanwhile")


def test_a_plugin_that_takes_much_of_the_time_is_named() -> None:
    rows = [PluginTime("Slow", "Filter", 2, 3.0, 2.0, "shop/web"), PluginTime("Fit", "Filter", 90, 0.1, 0.01, "a/b")]
    assert busy(rows, 60.0) == (
        "plugins that took much of the last 60 s, estimated from samples: "
        "Slow at Filter 50% (mean call 1.5 s, longest 2 s, for pod shop/web)"
    )
    assert busy(rows[1:], 60.0) == ""
