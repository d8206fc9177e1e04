"""Upstream's figures: throughput in steps of a second, quantiles of histograms, and the file they are written to."""

from __future__ import annotations

import json

import pytest

from kubesched.lab.bench.items import (
    DataItem,
    HistogramStart,
    histogram_quantile,
    items_file,
    memory_items,
    throughput_item,
)
from kubesched.scheduler.framework.metrics import SchedulerMetrics


def test_throughput_leaves_out_the_first_interval_and_what_follows_the_last_tick() -> None:
    # Ticks at 11, 12, ... see 2, 5, 5, 11 bindings; the last one comes after the last tick.
    bound = [10.2, 10.9, 11.1, 11.5, 11.9, 13.1, 13.2, 13.3, 13.4, 13.5, 13.6, 14.5]
    item = throughput_item("Benchmark/Case/w/ns", 10.0, bound)
    assert item.labels == {"Metric": "SchedulingThroughput", "Name": "Benchmark/Case/w/ns"}
    assert item.unit == "pods/s"
    # 3 in the second interval; nothing in the third, so the fourth counts twice with its mean over both.
    assert item.data == {"Average": 3.0, "Perc50": 3.0, "Perc90": 3.0, "Perc95": 3.0, "Perc99": 3.0}


@pytest.mark.parametrize("bound", [[], [0.5], [0.5, 0.7, 1.9], [5.0, 5.1]])
def test_a_short_section_has_no_throughput(bound: list[float]) -> None:
    item = throughput_item("n", 0.0, bound)
    assert (item.data, item.unit, item.labels) == (None, "", {"Name": "n"})


def test_quantiles_are_linear_inside_a_bucket_and_end_at_the_largest_bound() -> None:
    bounds = (1.0, 2.0, 4.0)
    assert histogram_quantile(bounds, (2, 2, 0, 0), 0.25) == 0.5
    assert histogram_quantile(bounds, (2, 2, 0, 0), 0.75) == 1.5
    assert histogram_quantile(bounds, (0, 0, 4, 0), 0.5) == 3.0
    assert histogram_quantile(bounds, (1, 0, 0, 9), 0.99) == 4.0


def test_histograms_count_what_was_observed_since_the_start_and_merge_other_labels() -> None:
    metrics = SchedulerMetrics()
    family = metrics.scheduling_attempt_duration_seconds
    family.observe(30.0, "scheduled", "default-scheduler")
    start = HistogramStart(metrics)
    assert start.items("n") == []
    for profile in ("default-scheduler", "other"):
        family.observe(0.001, "scheduled", profile)
    family.observe(0.002, "unschedulable", "other")
    items = {item.labels["result"]: item for item in start.items("n")}
    assert sorted(items) == ["scheduled", "unschedulable"]
    assert items["scheduled"].labels["Metric"] == "scheduler_scheduling_attempt_duration_seconds"
    assert items["scheduled"].unit == "ms"
    assert items["scheduled"].data is not None
    assert items["scheduled"].data["Average"] == pytest.approx(1.0)
    assert items["scheduled"].data["Perc50"] == pytest.approx(0.5)


def test_memory_and_duration() -> None:
    usage, growth, duration = memory_items("n", 30.0, [100.0, 130.0, 120.0])
    assert usage.data is not None
    assert (usage.data["Max"], usage.data["Perc50"], usage.unit) == (130.0, 120.0, "MB")
    assert growth.data is not None
    assert growth.data["GrowthRate"] == pytest.approx(40.0)
    assert growth.unit == "MB/min"
    assert duration.data == {"Duration": 30.0}


def test_the_file_has_every_label_on_every_item() -> None:
    items = [
        DataItem(data={"Perc50": 2.0, "Average": 1.5}, unit="ms", labels={"Metric": "m", "event": "PodAdd"}),
        DataItem(data=None, unit="", labels={"Name": "n"}),
    ]
    text = items_file(items).decode()
    data = json.loads(text)
    assert data["version"] == "v1"
    assert data["dataItems"][0]["labels"] == {"Metric": "m", "Name": "not applicable", "event": "PodAdd"}
    assert data["dataItems"][1] == {
        "data": None,
        "unit": "",
        "labels": {"Metric": "not applicable", "Name": "n", "event": "not applicable"},
    }
    assert text.index('"Average"') < text.index('"Perc50"')
    assert json.loads(items_file([])) == {"version": "v1", "dataItems": None}
