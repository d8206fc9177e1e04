"""Results as files: tables as CSV, JSON and Parquet, and the page with plots."""

from __future__ import annotations

import csv
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from kubesched.lab.simulate import Result, run_simulation
from kubesched.lab.simulate.inputs.table_files import TableFileError, check_file, write_table
from kubesched.lab.simulate.inputs.workload_table import parse_table
from kubesched.lab.simulate.results.html_report import render_html
from kubesched.lab.simulate.results.svg_charts import histogram, step_chart
from kubesched.lab.simulate.results.tables import TABLES, table
from kubesched.scheduler.plugins import in_tree_registry


@pytest.fixture(scope="module")
def result() -> Result:
    pods = parse_table("arrival,name,duration,cpu\n0,a,60,8\n5,<b>,1,1\n10,c,60,8\n10,d,,99\n".replace("<b>", "b"), "t")
    return run_simulation(pods, registry=in_tree_registry(), nodes=1, until=900.0)


@pytest.mark.parametrize("name", list(TABLES))
def test_the_three_formats_hold_the_same(result: Result, name: str, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = table(result, name)
    for ending in ("csv", "json", "parquet"):
        path = tmp_path / f"t.{ending}"
        with path.open("wb") as file:
            write_table(columns, path, file)
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    assert json.loads((tmp_path / "t.json").read_text()) == rows
    assert parquet.read_table(tmp_path / "t.parquet").to_pylist() == rows
    with (tmp_path / "t.csv").open(newline="") as text:
        found = list(csv.DictReader(text))
    assert found == [{key: "" if value is None else str(value) for key, value in row.items()} for row in rows]


def test_the_name_of_a_file_says_its_format() -> None:
    with pytest.raises(TableFileError, match=r"must end with \.csv, \.json or \.parquet"):
        check_file("t.txt")


def test_parquet_without_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(TableFileError, match=r"pip install 'kubesched\[parquet\]'"):
        check_file(tmp_path / "t.parquet")


class Page(HTMLParser):
    """Tags that do not match, and attributes that would load something."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.problems: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)
        if tag in ("script", "link", "img", "iframe", "object"):
            self.problems.append(tag)
        self.problems += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href", "srcset") or name[:2] == "on"]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("meta", "br") and (not self.open or self.open.pop() != tag):
            self.problems.append(f"</{tag}>")


def check_page(text: str) -> None:
    page = Page()
    page.feed(text)
    page.close()
    assert (page.problems, page.open) == ([], [])
    assert not re.search(r"url\(|@import|http", text.replace('http-equiv="Content-Security-Policy"', ""))
    for chart in re.findall(r"<svg.*?</svg>", text):
        ET.fromstring(chart)
    assert "nan" not in text


def test_the_page_is_whole_loads_nothing_and_shows_times_and_plots(result: Result) -> None:
    text = render_html(result, "A <script>title</script>")
    check_page(text)
    assert "&lt;script&gt;title" in text
    for part in ("Makespan: 2m 4s", "default/c", "waiting in the queue until bound", "mean fragmentation", "99 %"):
        assert part in text, part
    assert text.count("<svg") == 5


def test_a_page_of_nothing_is_whole() -> None:
    check_page(render_html(run_simulation([], registry=in_tree_registry())))


def test_charts_of_extreme_values_stay_within_their_frame() -> None:
    charts: list[tuple[str, dict[str, Any]]] = [
        ("zero", {"a": [0, 0]}),
        ("large", {"a": [1e15, 3e15]}),
        ("small", {"a": [1e-9, 2e-9]}),
    ]
    for title, lines in charts:
        chart = step_chart(title, [0.0, 1e7], lines)
        ET.fromstring(chart)
        numbers = [float(one) for one in re.findall(r"[VH ](-?[0-9.]+)", re.findall(r'<path d="([^"]*)"', chart)[0])]
        assert all(0 <= one <= 640 for one in numbers)
    ET.fromstring(step_chart("none", [], {"a": []}))
    ET.fromstring(histogram("none", []))
    assert histogram("all alike", [5.0] * 9).count("<rect") == 1


def texts(chart: str, kind: str) -> list[str]:
    return re.findall(f'class="{kind}">([^<]*)</text>', chart)


def test_axes_have_units_and_whole_numbers_of_pods_and_end_where_the_run_does() -> None:
    chart = step_chart("pods", [0.0, 3600.0, 30 * 86_400.0], {"": [1, 2, 0]})
    assert texts(chart, "x") == ["virtual days", "0", "10", "20", "30"]
    assert texts(chart, "y") == ["0", "1", "2"]
    assert texts(chart, "l") == []
    assert 'V28.0H626.0V193.0H626.0" fill' in chart, "from the top to the bottom, where the frame ends"
    assert texts(step_chart("many", [0.0, 60.0], {"": [0, 1_250_000]}), "y")[-1] == "1.25M"
    waits = histogram("waits", [1.0] * 999 + [7200.0])
    assert texts(waits, "x") == ["hours", "0", "0.5", "1", "1.5", "2"]
    assert 'height="1.0"' in waits, "one of a thousand is to be seen"


def test_what_lasts_a_moment_only_is_drawn_and_said() -> None:
    chart = step_chart("tiny", [0.0], {"active": [3]})
    assert texts(chart, "x") == ["at the start, after which nothing changed"]
    assert 'd="M60.0 44.0H626.0"' in chart


def test_a_legend_names_each_line_in_its_colour_and_takes_as_many_lines_as_it_needs() -> None:
    labels = ["cpu", "memory", "x" * 90, *(f"example.com/resource-{number}" for number in range(9))]
    chart = step_chart("shares", [0.0, 60.0], {label: [0.1, 0.2] for label in labels}, percent=True)
    assert [text for text in texts(chart, "l") if len(text) > 40] == []
    assert texts(chart, "l") == [label if len(label) <= 40 else "x" * 39 + "…" for label in labels]
    places = [(float(x), float(y)) for x, y in re.findall(r'<text x="([0-9.]+)" y="([0-9.]+)" class="l">', chart)]
    ends = [x + 6.2 * len(text) for (x, _), text in zip(places, texts(chart, "l"), strict=True)]
    assert max(ends) <= 640
    for (x, y), end, (following, below) in zip(places[:-1], ends[:-1], places[1:], strict=True):
        assert below > y or following > end, (x, y)
    strokes = re.findall(r'<path d="[^"]*" fill="none" stroke="([^"]*)" stroke-width="([^"]*)"([^/]*)/>', chart)
    assert len(strokes) == 2 * len(labels)
    drawn = [(colour, dashes) for colour, _, dashes in strokes]
    assert drawn[: len(labels)] == drawn[len(labels) :], "the legend shows what the lines look like"
    assert len(set(drawn)) == len(labels)
