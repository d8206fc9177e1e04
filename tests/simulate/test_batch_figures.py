"""Figures of batch runs over time, units of columns, and the looks of results in Python."""

from __future__ import annotations

import inspect
import io
import pydoc
from typing import Any

import pytest

import kubesched
from kubesched.lab.simulate.results.column_units import unit_of
from kubesched.lab.simulate.results.report import render_table

JSON = dict[str, Any]


def node(name: str, cpu: str = "4", memory: str = "8Gi") -> JSON:
    amounts = {"cpu": cpu, "memory": memory, "pods": "20"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": amounts}}


def pod(name: str, cpu: str = "1", duration: str = "", exit_: str = "Succeeded", **spec: Any) -> JSON:
    annotations = {"kubesched.io/duration": duration, "kubesched.io/exit": exit_} if duration else {}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}


def lines(result: kubesched.SimulationResult, title: str) -> list[list[str]]:
    text = [line.text for line in render_table(result)]
    begin = text.index(title) + 1
    end = text.index("", begin) if "" in text[begin:] else len(text)
    return [line.split() for line in text[begin:end]]


def test_a_batch_that_has_ended_shows_its_use_over_time_and_what_was_lost() -> None:
    pods = [pod("good", "3", "99s"), pod("bad", "1", "99s", "Failed")]
    result = kubesched.simulate([node("n"), *pods])
    [cpu] = [one for one in result.times.resources if one.name == "cpu"]
    assert (cpu.utilisation, cpu.peak_utilisation) == (1.0, 1.0)
    assert cpu.goodput == 0.75
    assert lines(result, "Cluster")[:2] == [
        ["RESOURCE", "REQUESTED", "ALLOCATABLE", "SHARE", "PEAK", "MEAN", "GOODPUT"],
        ["cpu", "0", "4", "0%", "4", "100%", "75%"],
    ]
    assert result.table("resources")["goodput"][0] == 0.75


def test_preempted_work_is_lost() -> None:
    high = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 9,
    }
    late = pod("late", "4", "100s", priorityClassName="high")
    late["metadata"]["annotations"]["kubesched.io/arrival"] = "100s"
    result = kubesched.simulate([node("n"), high, pod("low", "4", "1h"), late])
    [cpu] = [one for one in result.times.resources if one.name == "cpu"]
    assert cpu.utilisation > 0.8
    assert 0.3 < cpu.goodput < 0.55


def test_a_column_has_one_unit() -> None:
    result = kubesched.simulate([node("a", "8", "64Gi"), node("b", "2500m", "512Mi"), pod("p", "1500m")])
    nodes = lines(result, "Nodes (requested/allocatable)")
    assert [row[3] for row in nodes[1:]] in (["1.5/8", "0/2.5"], ["0/8", "1.5/2.5"])
    assert [row[5] for row in nodes[1:]] == ["0Gi/64Gi", "0Gi/0.5Gi"]


@pytest.mark.parametrize(
    ("resource", "most", "amount", "text"),
    [
        ("cpu", 4000, 1500, "1.5"),
        ("cpu", 4000, 1, "<0.01"),
        ("cpu", 4_000_000, 1_500_500, "1500"),
        ("memory", 1 << 41, 1 << 30, "<0.01Ti"),
        ("memory", 1 << 31, 1 << 29, "0.5Gi"),
        ("memory", 0, 0, "0"),
        ("nvidia.com/gpu", 8, 3, "3"),
    ],
)
def test_amounts_are_written_in_the_unit_of_their_column(resource: str, most: int, amount: int, text: str) -> None:
    assert unit_of(resource, [most, 0]).text(amount) == text


# -- looks -------------------------------------------------------------------------------------------------


def test_the_repr_of_a_result_is_five_lines_whatever_the_result() -> None:
    pods = [pod(f"p{number}") for number in range(300)]
    for result in (kubesched.simulate([]), kubesched.simulate([node("n"), *pods]), kubesched.simulate(pods, until=1)):
        text = repr(result)
        assert len(text.splitlines()) == 5
        assert len(text) < 700
    assert text.startswith(
        "SimulationResult: 0 nodes, 300 pods: 0 placed, 300 pending\nended after 1s of virtual time (until)"
    )
    assert "pending: 300 of default/p0: " in text


def test_the_view_in_notebooks_has_plots_and_escapes_texts() -> None:
    bad = pod("bad<script>", "1")
    view = kubesched.simulate([node("n"), pod("p", "1", "60s"), bad])._repr_html_()
    assert "<svg" in view
    assert "goodput" in view
    assert "<script>" not in view


@pytest.mark.parametrize("name", ["simulate", "Simulation"])
def test_help_shows_each_argument_with_its_meaning(name: str) -> None:
    page = io.StringIO()
    pydoc.Helper(output=page)(getattr(kubesched, name))
    text = page.getvalue()
    arguments = list(inspect.signature(getattr(kubesched, name)).parameters)
    assert "unknown" not in arguments
    assert "options" not in arguments
    assert [one for one in arguments if f"    {one}: " not in text] == []
    assert {"nodes", "events", "controllers", "until"} <= set(arguments)


def test_exceptions_plugin_and_status_are_importable_from_the_package() -> None:
    from kubesched import ConfigError, ManifestError, Plugin, PluginError, Status, SweepError, TraceError

    assert issubclass(ManifestError, Exception)
    assert {ConfigError, PluginError, SweepError, TraceError} <= set(Exception.__subclasses__()) | set(
        ValueError.__subclasses__()
    )

    class Never(Plugin):
        name = "Never"

        def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
            return Status.unschedulable("never")

    result = kubesched.simulate([node("n"), pod("p")], plugins=[Never])
    assert result.totals.pending == 1
    assert sorted(set(kubesched.__all__)) == sorted(kubesched.__all__)
