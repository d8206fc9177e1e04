"""The table of a sweep: columns, missing values, summaries with a confidence interval, other forms."""

import csv
import io
import json
import math
import statistics

import numpy as np
import pytest

from kubesched.lab.sweeps import SweepError, SweepTable
from kubesched.lab.sweeps.functions import Outcome
from kubesched.lab.sweeps.plan import Run
from kubesched.lab.sweeps.summary import mean_interval
from kubesched.lab.sweeps.text import summary_lines


def table() -> SweepTable:
    results = [
        (Run({"policy": policy, "seed": seed}, {}), Outcome({"share": base + seed, "note": f"<{seed}>", "extra": None}))
        for policy, base in (("a", 10), ("b", 20.5))
        for seed in range(3)
    ]
    return SweepTable.of([*results, (Run({"policy": "b", "nodes": 4}, {}), Outcome(error="ValueError: no"))])


def test_a_row_has_every_column() -> None:
    found = table()
    assert found.columns == ("policy", "seed", "nodes", "share", "note", "extra", "error")
    assert all(tuple(row) == found.columns for row in found.rows)
    assert found.rows[-1] == {
        "policy": "b", "seed": None, "nodes": 4, "share": None, "note": None, "extra": None, "error": "ValueError: no",
    }  # fmt: skip
    assert found.failed == (found.rows[-1],)


def test_other_forms_have_the_same_rows() -> None:
    found = table()
    assert json.loads(found.to_json()) == found.to_dicts()
    rows = list(csv.reader(io.StringIO(found.to_csv())))
    assert rows[0] == list(found.columns)
    assert rows[4] == ["b", "0", "", "20.5", "<0>", "", ""]
    assert "<td>&lt;0&gt;</td>" in found._repr_html_()


def test_a_summary_is_by_all_parameters_but_the_seed() -> None:
    first, second = table().summary(figures=["share"])
    assert first.group == {"policy": "a", "nodes": None}
    assert (first.runs, first.mean, first.median, first.least, first.most) == (3, 11, 11, 10, 12)
    half = 4.3027 * 1 / math.sqrt(3)
    assert (first.low, first.high) == pytest.approx((11 - half, 11 + half))
    assert second.mean == 21.5
    assert [one.mean for one in table().summary(by=[])] == [statistics.fmean((11, 21.5))]
    assert table().numeric_figures() == ["share"]


def test_names_that_are_not_there_are_refused() -> None:
    with pytest.raises(SweepError, match="there is no figure shares; expected one of share"):
        table().summary(figures=["shares"])
    with pytest.raises(SweepError, match="there is no parameter size; expected one of policy, seed, nodes"):
        table().summary(by=["size"])
    with pytest.raises(SweepError, match="a figure named seed, which is a column already"):
        SweepTable.of([(Run({"seed": 1}, {}), Outcome({"seed": 1}))])


@pytest.mark.parametrize("degrees", [1, 2, 9, 30, 45, 60, 200])
def test_the_interval_covers_95_percent(degrees: int) -> None:
    """The t distribution's density, integrated over the interval that the table of quantiles gives."""
    count = degrees + 1
    values = [0.0] * (count - 1) + [1.0]
    low, high = mean_interval(values)
    assert low is not None
    assert high is not None
    factor = (high - low) / 2 / (statistics.stdev(values) / math.sqrt(count))
    scale = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(degrees * math.pi)
    points = np.linspace(-factor, factor, 400_001)
    covered = np.trapezoid(scale * (1 + points**2 / degrees) ** (-(degrees + 1) / 2), points)
    # Between the rows of the table the interval is rather too wide.
    assert 0.94999 <= covered <= (0.95001 if degrees in (1, 2, 9, 30, 60) else 0.952)
    assert mean_interval([3.0]) == (None, None)


def test_lines_of_a_summary() -> None:
    head, first, second = summary_lines(table().summary(figures=["share"]))
    assert head.split("  ")[0] == "policy"
    assert first.split() == ["a", "-", "share", "3", "11", "8.52", "to", "13.48", "11", "10", "12"]
    assert len(second) == len(head)


def test_data_frames_have_the_columns_and_rows() -> None:
    pandas = pytest.importorskip("pandas")
    frame = table().to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == list(table().columns)
    assert frame["share"].sum() == 97.5
    with pytest.raises(ValueError, match="library='excel'"):
        table().to_frame("excel")


def test_plots_have_means_and_intervals() -> None:
    pytest.importorskip("matplotlib")
    (axes,) = table().plot("share").axes
    (bars,) = axes.containers
    assert [text.get_text() for text in axes.get_xticklabels()] == ["a", "b"]
    assert bars.lines[0].get_ydata().tolist() == [11, 21.5]
    low, high = bars.lines[2][0].get_segments()[0][:, 1]
    assert (low, high) == pytest.approx((11 - 4.3027 / math.sqrt(3), 11 + 4.3027 / math.sqrt(3)))
    # Numbers are drawn at their places, in order, and the others as lines of their own.
    runs = [
        (Run({"nodes": nodes, "policy": policy, "seed": seed}, {}), Outcome({"share": nodes * seed}))
        for nodes in (20, 5)
        for policy in ("a", "b")
        for seed in range(2)
    ]
    found = SweepTable.of(runs)
    (axes,) = found.plot().axes
    assert [line.lines[0].get_xdata().tolist() for line in axes.containers] == [[5, 20], [5, 20]]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["policy a", "policy b"]
    assert found.plot(x="seed", axes=axes) is axes
    with pytest.raises(SweepError, match="there is no parameter size"):
        found.plot(x="size")
    with pytest.raises(SweepError, match="there is no figure waits; expected one of share"):
        found.plot("waits")
