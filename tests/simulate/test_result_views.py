"""A result in Python: plain data, tables, data frames, plots, and its look in a notebook."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest

import kubesched
from kubesched import SimulationResult
from kubesched.lab.simulate.results.plots import PLOTS
from kubesched.lab.simulate.results.report import render_json
from kubesched.lab.simulate.results.tables import TABLES

JSON = dict[str, Any]


def node(name: str, cpu: str) -> JSON:
    amounts = {"cpu": cpu, "memory": "8Gi", "pods": "20", "example.com/gpu": "2"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": amounts}}


def pod(name: str, cpu: str, *, duration: str = "", gpus: int = 0, **spec: Any) -> JSON:
    annotations = {"kubesched.io/duration": duration} if duration else {}
    requests = {"cpu": cpu, **({"example.com/gpu": str(gpus)} if gpus else {})}
    container = {"name": "c", "image": "i", "resources": {"requests": requests, "limits": dict(requests)}}
    metadata = {"name": name, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}


@pytest.fixture(scope="module")
def result() -> SimulationResult:
    high = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 9,
    }
    late = pod("late", "2", priorityClassName="high")
    late["metadata"]["annotations"]["kubesched.io/arrival"] = "20m"
    return kubesched.simulate(
        [
            high,
            pod("first", "2", duration="10m", gpus=1),
            pod("second", "1", duration="5m"),
            pod("low", "2"),
            late,
            pod("other", "1", schedulerName="another"),
        ],
        nodes=[node("a", "2"), node("b", "1")],
        until="1h",
        events=[{"at": 1, "do": "label", "nodes": ["a"], "labels": {"x": "y"}}],
    )


@pytest.fixture(scope="module")
def empty() -> SimulationResult:
    return kubesched.simulate([])


def test_plain_data_is_the_json_output(result: SimulationResult) -> None:
    expected = msgspec.json.decode(render_json(result))
    assert result.to_dict() == expected
    assert msgspec.json.decode(result.to_json()) == expected
    assert msgspec.json.decode(result.to_json(), type=SimulationResult) == result


@pytest.mark.parametrize("name", TABLES)
def test_every_table_has_columns_of_one_length(name: str, result: SimulationResult, empty: SimulationResult) -> None:
    for one in (result, empty):
        columns = one.table(name)
        assert len({len(values) for values in columns.values()}) == 1
    assert any(result.table(name).values()) or name in (
        "groups",
        "node_groups",
    )  # test_group_outcomes.py, test_autoscaling.py


def test_tables_have_the_figures_of_the_result(result: SimulationResult) -> None:
    pods = result.table()
    rows = {name: index for index, name in enumerate(pods["name"])}
    assert len(rows) == len(result.pods)
    first = rows["first"]
    assert [pods[name][first] for name in ("node", "phase", "bound", "finished", "wait", "attempts", "preempted")] == [
        "a", "Succeeded", 0.0, 601.0, 0.0, 1, False,
    ]  # fmt: skip
    assert [pods[f"request.{name}"][first] for name in ("cpu", "example.com/gpu")] == [2000, 1]
    assert pods["wait"][rows["other"]] is None
    assert pods["created"][rows["late"]] == 1200.0
    nodes = result.table("nodes")
    for name, index in (("allocatable", 0), ("requested", 1)):
        total = sum(
            amount for amount, resource in zip(nodes[name], nodes["resource"], strict=True) if resource == "cpu"
        )
        [cpu] = [use for use in result.resources if use.name == "cpu"]
        assert total == (cpu.allocatable, cpu.requested)[index]
    pending = result.table("pending")
    assert (pending["count"], pending["namespace"][0]) == ([group.count for group in result.pending], "default")
    assert result.table("series")["requested.cpu"] == result.series.requested["cpu"]
    assert result.table("resources")["utilisation"][0] == result.times.resources[0].utilisation


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("name", TABLES)
def test_data_frames_have_the_tables_columns_and_values(
    name: str, library: str, result: SimulationResult, empty: SimulationResult
) -> None:
    frame = getattr(result, f"to_{library}")(name)
    columns = result.table(name)
    assert list(frame.columns) == list(columns)
    assert frame.shape == (len(next(iter(columns.values()))), len(columns))
    first = next(iter(columns))
    assert list(frame[first]) == columns[first]
    assert result.to_frame(name, library).shape == frame.shape
    assert empty.to_frame(name, library).shape[0] == len(next(iter(empty.table(name).values())))


def test_whichever_library_is_installed_is_used(result: SimulationResult, monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(result.to_frame()).__module__.startswith("pandas")
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert type(result.to_frame()).__module__.startswith("polars")
    with pytest.raises(ImportError, match=r"pandas, which is not installed: pip install 'kubesched\[notebook\]'"):
        result.to_pandas()
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ImportError, match="data frames need pandas or polars"):
        result.to_frame()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError):
        result.plot()


def test_unknown_names_are_refused_with_the_known_ones(result: SimulationResult) -> None:
    with pytest.raises(ValueError, match="no table is named 'pod'; there are pods, nodes, resources"):
        result.to_frame("pod")
    with pytest.raises(ValueError, match="library='dask': expected pandas or polars"):
        result.to_frame("pods", "dask")
    with pytest.raises(ValueError, match="no plot is named 'pie'; there are utilisation, queue"):
        result.plot("pie")
    with pytest.raises(ValueError, match="resource='gpu': the cluster has cpu, memory, "):
        result.plot("utilisation", resource="gpu")


@pytest.mark.parametrize("kind", [None, *PLOTS])
def test_every_plot_is_drawn_also_of_a_run_without_pods(
    kind: str | None, result: SimulationResult, empty: SimulationResult
) -> None:
    for one in (result, empty):
        figure = one.plot(kind)
        assert len(figure.axes) == (4 if kind is None else 1)
        assert all(axes.get_title() and axes.get_xlabel() for axes in figure.axes)


def test_a_plot_shows_the_series_and_is_a_picture_in_a_notebook(result: SimulationResult) -> None:
    figure = result.plot("utilisation", resource="cpu")
    [line] = figure.axes[0].lines
    series = result.series
    assert list(line.get_xdata()) == series.times
    expected = [100 * used / 3000 for used in series.requested["cpu"]]
    assert list(line.get_ydata()) == pytest.approx(expected)
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_a_plot_is_drawn_into_given_axes(result: SimulationResult) -> None:
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    assert result.plot("queue", axes=axes) is axes
    assert axes.get_title() == "Pods in the scheduling queue"


def test_plots_have_units_and_runs_of_different_lengths_share_axes(
    result: SimulationResult, empty: SimulationResult
) -> None:
    from matplotlib.figure import Figure

    end = result.series.times[-1]
    axes = Figure().subplots()
    for one in (result, empty, result):
        one.plot("utilisation", axes=axes)
        assert axes.get_xlim() == (0, end)
    assert axes.get_xlabel() in ("virtual minutes", "virtual hours")
    assert len(axes.get_xticks()) < 12
    (alone,) = empty.plot("queue").axes
    assert alone.get_xlabel() == "at the start, after which nothing changed"
    assert [text.get_text() for text in alone.texts] == ["none"]
    (waits,) = result.plot("waits").axes
    assert waits.yaxis.get_major_formatter()(1_000_000) == "1,000,000"
    assert all(tick == int(tick) for tick in waits.get_yticks())


def test_axes_are_refused_where_there_are_several_plots(result: SimulationResult) -> None:
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    with pytest.raises(ValueError, match="axes take one plot; name one of"):
        result.plot(axes=axes)


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += f"{data} "


def test_a_notebook_shows_counts_resources_and_reasons_escaped(
    result: SimulationResult, empty: SimulationResult
) -> None:
    parser = _Text()
    result = msgspec.structs.replace(result, warnings=["<script>&"])
    parser.feed(result._repr_html_())
    assert parser.open == []
    drawn = {"svg", "path", "rect", "line", "text", "style"}
    assert parser.tags == {"p", "b", "br", "table", "tr", "th", "td", "div"} | drawn
    assert "<script>&" in parser.text
    assert f"2 nodes, {result.totals.pods} pods" in parser.text
    assert result.pending[0].message in parser.text
    assert "example.com/gpu" in parser.text
    refused = kubesched.simulate(pod("Not A Name", "1"))
    assert "Not A Name" in refused._repr_html_()
    assert "0 pods" in empty._repr_html_()
