"""Traces in any form, and generated arrivals: what arrives, equal results from equal tables, and bad input."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kubesched
from kubesched.cluster.files import ManifestError
from kubesched.lab.simulate.inputs.table_files import write_table
from kubesched.lab.simulate.inputs.trace_files import trace_pods
from kubesched.lab.sweeps import SweepError
from kubesched.lab.traces.generators import daily_shape, fitted_shape, shaped_times

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

COLUMNS: dict[str, list[Any]] = {
    "arrival": [0, 90.5, None],
    "name": ["a", "b", "c"],
    "count": [1, 2, None],
    "duration": ["10m", "1h", ""],
    "cpu": [0.5, 1.0, 2.0],
    "memory": ["1Gi", "2Gi", None],
}
CSV = "arrival,name,count,duration,cpu,memory\n0,a,1,10m,0.5,1Gi\n90.5,b,2,1h,1,2Gi\n,c,,,2,\n"


def data(given: Any) -> list[Any]:
    found = [item.data for item in trace_pods(given, 0)]
    for pod in found:
        if pod["metadata"]["annotations"].pop("kubesched.io/arrival", "0s") != "0s":
            pod["metadata"]["annotations"]["arrives"] = "later"
        if pod["metadata"]["name"] in ("a", "c"):  # counted under the name of the table
            pod["metadata"]["annotations"].pop("kubesched.io/workload")
    return found


def test_all_forms_of_a_table_give_the_same_pods(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(CSV)
    rows = [dict(zip(COLUMNS, values, strict=True)) for values in zip(*COLUMNS.values(), strict=True)]
    lines = "\n".join(json.dumps(row) for row in rows) + "\n\n"
    (tmp_path / "t.jsonl").write_text(lines)
    (tmp_path / "z.ndjson.gz").write_bytes(gzip.compress(lines.encode()))
    with (tmp_path / "t.parquet").open("wb") as file:
        write_table(COLUMNS, "t.parquet", file)
    expected = data(tmp_path / "t.csv")
    assert [one["metadata"]["name"] for one in expected] == ["a", "b-0", "b-1", "c"]
    forms = [
        tmp_path / "t.jsonl",
        str(tmp_path / "z.ndjson.gz"),
        tmp_path / "t.parquet",
        COLUMNS,
        pd.DataFrame(COLUMNS),
        pl.DataFrame(COLUMNS, strict=False),
    ]
    for form in forms:
        assert data(form) == expected
    assert data([tmp_path / "t.csv", COLUMNS]) == expected * 2


def test_a_frame_is_simulated_and_a_frame_comes_out() -> None:
    durations = pd.to_timedelta(["60s", "120s"])
    frame = pd.DataFrame({"name": ["a", "b"], "arrival": [0, 30], "duration": durations, "cpu": [4, 8]})
    result = kubesched.simulate(trace=frame, nodes=1)
    found = result.to_pandas("pods").set_index("name")
    assert found.loc["a", "finished"] == 61
    assert found.loc["b", "bound"] == 61
    assert found.loc["b", "finished"] == 182
    again = kubesched.simulate(trace=result.to_pandas("pods")[["name", "workload"]], nodes=1)
    assert again.totals.placed == 2


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.jsonl", '{"cpu": 1}\n[1]\n', "t.jsonl:2: '[1]': expected an object such as"),
        ("t.jsonl", '{"cpu": 1,\n', "t.jsonl:1: is no JSON: "),
        ("t.jsonl", '{"colour": 1}\n', "t.jsonl:1: column 'colour' is not known"),
        ("t.jsonl", '{"cpu": "lots"}\n', "t.jsonl:1: column cpu: 'lots': expected an amount"),
        ("t.jsonl", "\n", "t.jsonl: holds no line"),
        ("t.parquet", "no parquet", "t.parquet: cannot be read: "),
        ("t.yaml", "kind: Arrival\nstreams: []\n", "t.yaml: kind: 'Arrival'; expected Arrivals"),
    ],
)
def test_bad_files_are_named_by_line_and_column(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ManifestError) as found:
        trace_pods(tmp_path / name, 0)
    assert message in str(found.value)


def test_the_problems_of_a_long_table_are_cut() -> None:
    with pytest.raises(ManifestError) as found:
        trace_pods({"cpu": ["lots"] * 5000}, 0)
    assert len(found.value.problems) == 101
    assert found.value.problems[-1].startswith("there are more problems")


def test_bad_columns_and_forms_are_named() -> None:
    for given, message in (
        ({"cpu": [1, 2], "name": ["a"]}, "trace: its columns have 1, 2 values; expected equal numbers"),
        ({"cpu": []}, "trace: has no rows"),
        ({"cpu": [-1]}, "trace:1: column cpu: '-1': must not be negative"),
        (3, "trace: int: expected a path, a data frame"),
    ):
        with pytest.raises(ManifestError) as found:
            kubesched.simulate(trace=given, nodes=1)
        assert message in str(found.value)


def test_parquet_without_its_library_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ManifestError, match=r"t\.parquet: Parquet needs pyarrow, .*pip install 'kubesched\[parquet\]'"):
        trace_pods(tmp_path / "t.parquet", 0)


# -- generated arrivals ------------------------------------------------------------------------------------


def test_a_poisson_stream_has_its_rate_and_equal_seeds_give_equal_tables() -> None:
    stream = {"name": "p", "poisson": {"rate": "60/h"}, "duration": {"exponential": "10m"}, "cpu": 1}
    tables = [kubesched.arrivals([stream], until="100h", seed=seed) for seed in (1, 1, 2)]
    assert tables[0] == tables[1] != tables[2]
    assert len(tables[0]["arrival"]) == pytest.approx(6000, abs=400)
    durations = np.array([float(one) for one in tables[0]["duration"]])
    assert durations.mean() == pytest.approx(600, rel=0.1)
    assert float(tables[0]["arrival"][-1]) < 360_000
    assert set(tables[0].to_frame().columns) == {"arrival", "name", "workload", "duration", "cpu"}


def test_a_diurnal_stream_follows_the_day_and_the_week() -> None:
    shape = {"rate": "60/h", "peak": "14:00", "swing": 0.9, "weekend": 0.2}
    table = kubesched.arrivals([{"name": "d", "diurnal": shape}], until="336h")
    times = np.array([float(one) for one in table["arrival"]])
    assert len(times) == pytest.approx(336 * 60, rel=0.05)
    hours = np.bincount((times // 3600).astype(int) % 24, minlength=24)
    assert hours.argmax() in (12, 13, 14, 15)
    assert hours.argmin() in (0, 1, 2, 3)
    days = np.bincount((times // 86400).astype(int) % 7, minlength=7)  # the first is a Wednesday
    assert set(days.argsort()[:2]) == {3, 4}


@pytest.mark.parametrize("size", [1_000_000_000, {"uniform": [1e18, 2e30]}])
def test_bursts_are_bounded(size: Any) -> None:
    bursts = {"every": "1h", "size": size, "regular": True}
    with pytest.raises(ManifestError, match=r"bursts: .* arrivals were drawn; expected at most 1,000,000; lower size"):
        kubesched.arrivals([{"name": "b", "bursts": bursts}], until="3h")


def test_bursts_are_near_each_other() -> None:
    bursts = {"every": "1h", "size": 10, "within": "60s", "regular": True}
    table = kubesched.arrivals([{"name": "b", "bursts": bursts, "count": {"choice": [2]}}], until="3h")
    times = np.array([float(one) for one in table["arrival"]])
    assert len(times) == 30
    assert set((times // 3600).astype(int)) == {0, 1, 2}
    assert (times % 3600 <= 60).all()
    assert len(trace_pods({"streams": [{"name": "b", "bursts": bursts}], "until": 7200}, 0)) == 20


def test_a_stream_fitted_to_a_table_has_its_rates_and_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    times = shaped_times(rng, 1 / 60, 0, 14 * 86400, daily_shape(12, 1.0))
    lines = [f"{time:.0f},{'1h' if index % 4 else '2h'},{2 if index % 4 else 8}" for index, time in enumerate(times)]
    (tmp_path / "past.csv").write_text("arrival,duration,cpu\n" + "\n".join(lines) + "\n")
    (tmp_path / "plan.yaml").write_text(
        "apiVersion: kubesched.io/v1alpha1\nkind: Arrivals\nuntil: 168h\n"
        "streams:\n- {name: f, fitted: {table: past.csv, scale: 2}, memory: 1Gi}\n"
    )
    pods = trace_pods(tmp_path / "plan.yaml", 3)
    assert len(pods) == pytest.approx(len(times), rel=0.1)  # half the time at twice the rate
    requests = [one.data["spec"]["containers"][0]["resources"]["requests"] for one in pods]
    assert {one["memory"] for one in requests} == {"1Gi"}
    assert sum(one["cpu"] == "8" for one in requests) / len(pods) == pytest.approx(0.25, abs=0.03)
    rate, hours, days = fitted_shape(times.tolist())
    assert rate == pytest.approx(1 / 60, rel=0.05)
    assert np.argmax(hours) in (10, 11, 12, 13)
    assert len(days) == 7


def test_a_template_is_the_pod_that_arrives() -> None:
    template = {
        "metadata": {"labels": {"app": "t"}, "annotations": {"note": "x"}},
        "spec": {
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": "i", "resources": {"requests": {"memory": "1Gi", "cpu": "9"}}}],
        },
    }
    stream = {"name": "t", "poisson": {"rate": "1/m"}, "cpu": 2, "labels": "tier=x", "template": template}
    pod = trace_pods({"streams": [stream], "until": "1h"}, 0)[0].data
    assert pod["metadata"]["labels"] == {"app": "t", "tier": "x"}
    assert pod["metadata"]["annotations"]["note"] == "x"
    assert pod["spec"]["tolerations"] == [{"operator": "Exists"}]
    assert pod["spec"]["containers"][0]["resources"] == {"requests": {"memory": "1Gi", "cpu": "2"}}


def test_the_seed_of_the_simulation_decides_unless_the_plan_has_one() -> None:
    plan: dict[str, Any] = {"until": "2h", "streams": [{"name": "p", "poisson": {"rate": "30/h"}, "duration": "1m"}]}

    def times(run: int, **more: Any) -> list[float]:
        return [one.created for one in kubesched.simulate(trace={**plan, **more}, nodes=1, seed=run).pods]

    assert times(1) == times(1) != times(2)
    assert times(1, seed=5) == times(2, seed=5)


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        ({"name": "x"}, "streams[0]: ['name']: expected one of poisson, diurnal, bursts, fitted"),
        ({"poisson": {"rate": "fast"}}, "streams[0].poisson.rate: 'fast': expected a rate such as 30/h"),
        ({"poisson": {"rate": 0}}, "streams[0].poisson.rate: 0: expected a number or a duration such as 90s, above 0"),
        ({"poisson": {"rats": 1}}, "streams[0].poisson: {'rats': 1}: expected a mapping with rate"),
        ({"poisson": {"rate": 1e9}}, "expected at most 1,000,000 arrivals; lower the rate"),
        ({"diurnal": {"rate": 1, "peak": "noon"}}, "streams[0].diurnal.peak: 'noon': expected a time of day"),
        ({"diurnal": {"rate": 1, "swing": 2}}, "streams[0].diurnal.swing: 2: expected a number from 0 to 1"),
        ({"diurnal": {"rate": 1, "hours": [1]}}, "streams[0].diurnal.hours: [1]: expected a list of 24 weights"),
        ({"bursts": {"every": "1h"}}, "streams[0].bursts.size: None: expected a value, or a mapping with one of"),
        ({"bursts": {"every": "1h", "size": "x"}}, "streams[0].bursts.size: 'x': expected a number"),
        ({"fitted": {}}, "streams[0].fitted.table: None: expected the path of a table"),
        ({"poisson": {"rate": 1}, "colour": 1}, "streams[0]: column 'colour' is not known"),
        (
            {"poisson": {"rate": 1}, "cpu": {"normal": 1}},
            "streams[0].cpu: {'normal': 1}: expected a value, or a mapping",
        ),
        (
            {"poisson": {"rate": 1}, "duration": {"uniform": [2, 1]}},
            "streams[0].duration.uniform: [2, 1]: expected the",
        ),
        ({"poisson": {"rate": 1}, "cpu": {"choice": {}}}, "streams[0].cpu.choice: {}: expected a list of values"),
        ({"poisson": {"rate": 1}, "cpu": "lots"}, "column cpu: 'lots': expected an amount such as 500m"),
        ({"poisson": {"rate": 1}, "from": "2h"}, "streams[0].until: 3600.0: expected a time after from"),
    ],
)
def test_bad_streams_are_named_by_path_and_value(stream: dict[str, Any], message: str) -> None:
    with pytest.raises(ManifestError) as found:
        kubesched.simulate(trace={"until": "1h", "streams": [stream]}, nodes=1)
    assert message in str(found.value)


def test_a_sweep_takes_a_trace(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(CSV)
    table = kubesched.sweep({"nodes": [1, 2]}, arguments={"trace": str(tmp_path / "t.csv")}, processes=0)
    assert [one["placed"] for one in table.to_dicts()] == [4, 4]
    with pytest.raises(SweepError, match="a simulation needs manifests, or a trace"):
        kubesched.sweep({"nodes": [1]}, processes=0)


def test_the_documentation_names_every_process_and_distribution() -> None:
    page = (Path(__file__).parents[2] / "docs" / "arrivals.md").read_text(encoding="utf-8")
    names = ("poisson", "diurnal", "bursts", "fitted", "exponential", "lognormal", "uniform", "choice")
    assert [name for name in names if f"`{name}" not in page and f"`{{{name}" not in page] == []
