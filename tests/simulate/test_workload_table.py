"""Tables of pods that arrive over time: what a line becomes, and what is said of lines that cannot be used."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from kubesched.cluster.files import ManifestError
from kubesched.lab.simulate import run_simulation
from kubesched.lab.simulate.inputs.workload_table import COLUMNS, parse_table, read_table
from kubesched.scheduler.plugins import in_tree_registry

TABLE = """\
arrival,name,count,duration,exit,cpu,memory,example.com/gpu,labels,nodeSelector,priorityClassName,namespace
# warm-up first
0,warm,,10m,,500m,1Gi,0,,,,

1h30m,train,2,90,Failed,4,16Gi,2,app=t tier=x,zone=a,urgent,ml
"""


def test_each_line_becomes_pods_with_arrival_duration_and_requests(tmp_path: Path) -> None:
    file = tmp_path / "pods.csv"
    file.write_text("\ufeff" + TABLE, encoding="utf-8")
    warm, first, second = read_table(file)
    assert (warm.name, first.name, second.name, first.namespace) == ("warm", "train-0", "train-1", "ml")
    assert warm.data["metadata"]["annotations"] == {
        "kubesched.io/arrival": "0s",
        "kubesched.io/duration": "600s",
        "kubesched.io/workload": "Trace/pods",
    }
    assert warm.data["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "500m", "memory": "1Gi"}}
    assert first.data["metadata"]["labels"] == {"app": "t", "tier": "x"}
    assert first.data["metadata"]["annotations"] == {
        "kubesched.io/arrival": "5400s",
        "kubesched.io/duration": "90s",
        "kubesched.io/exit": "Failed",
        "kubesched.io/workload": "Trace/train",
    }
    spec = first.data["spec"]
    assert (spec["nodeSelector"], spec["priorityClassName"]) == ({"zone": "a"}, "urgent")
    assert spec["containers"][0]["resources"]["limits"] == {"example.com/gpu": "2"}
    assert first.source == f"{file}:5"


def test_the_pods_run_when_they_arrive() -> None:
    pods = parse_table("arrival,duration,cpu\n0,60,4\n30,60,8\n1m30s,0,1\n", "t.csv")
    result = run_simulation(pods, registry=in_tree_registry(), nodes=1)
    found = {one.name: (one.created, one.bound, one.finished) for one in result.pods}
    assert found["pod-2"] == (0, 0, 61)
    assert found["pod-3"] == (30, 61, 122)
    assert found["pod-4"][0] == 90
    assert result.totals.succeeded == 3


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("", ["t.csv: has no header"]),
        ("arrival,name\n", ["t.csv: holds no line below the header"]),
        (
            "arrival,colour,cpu,cpu\n1,2,3,4\n",
            ["t.csv:1: column cpu occurs twice", "t.csv:1: column 'colour' is not known"],
        ),
        ("arrival,cpu\n1\n1,2,3\n", ["t.csv:2: has 1 values, where the header has 2", "t.csv:3: has 3 values"]),
        (
            "arrival,duration,count,cpu,exit\nsoon,1x,0,lots,Maybe\n-5s,1,1,-1,\n",
            [
                "t.csv:2: column count: '0'",
                "t.csv:2: column arrival: 'soon'",
                "t.csv:2: column duration: '1x'",
                "t.csv:2: column exit: 'Maybe'",
                "t.csv:2: column cpu: 'lots'",
                "t.csv:3: column arrival: '-5s': must not be negative",
                "t.csv:3: column cpu: '-1': must not be negative",
            ],
        ),
        ("example.com/gpu,labels\n1500m,a=b c\n", ["column labels: 'a=b c'", "1500m': must be a whole number"]),
        ('arrival,name\n1,"open\n', ["is no table in CSV"]),
        (f"arrival\n{'9' * 400}\n", [f"'{'9' * 60}…': must not be negative, and must have an end"]),
        (f"count\n{'9' * 5000}\n", ["expected a whole number from 1 to 250000"]),
        ("name,namespace\na\0b,c d\n", ["t.csv:2: column name: 'a\\x00b'", "t.csv:2: column namespace: 'c d'"]),
        ("count\n99999999999\n", ["expected a whole number from 1 to 250000"]),
        ("arrival\nnan\ninf\n1e400\n\u0661\n", ["t.csv:2", "t.csv:3", "t.csv:4", "t.csv:5"]),
    ],
)
def test_every_value_that_cannot_be_used_is_named(table: str, expected: list[str]) -> None:
    with pytest.raises(ManifestError) as raised:
        parse_table(table, "t.csv")
    text = str(raised.value)
    assert [part for part in expected if part not in text] == []


def test_a_table_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_bytes(b"arrival\n\xff\xfe\n")
    with pytest.raises(ManifestError, match=r"x\.csv: line 2: cannot be read: byte 0xff is no text in UTF-8"):
        read_table(file)


def test_a_table_may_be_gzipped_or_in_utf_16(tmp_path: Path) -> None:
    text = "arrival,name,cpu\n0,a,1\n"
    files = {"plain": text.encode(), "wide": text.encode("utf-16"), "zipped": gzip.compress(text.encode("utf-16"))}
    found = []
    for name, content in files.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "pods").write_bytes(content)
        found.append([item.data for item in read_table(tmp_path / name / "pods")])
    assert found == [found[0]] * 3
    (tmp_path / "cut").write_bytes(gzip.compress(text.encode() * 99)[:50])
    with pytest.raises(ManifestError, match="cut: cannot be read: Compressed file ended"):
        read_table(tmp_path / "cut")
    with pytest.raises(ManifestError, match="none: cannot be read: No such file or directory"):
        read_table(tmp_path / "none")


def test_the_documentation_names_every_column() -> None:
    page = (Path(__file__).parents[2] / "docs" / "simulate.md").read_text(encoding="utf-8")
    assert [name for name in COLUMNS if f"`{name}`" not in page] == []
