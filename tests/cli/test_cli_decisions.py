"""``kubesched decisions``: tables, filters, replay, and what is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from cli_kit import EXAMPLES, run

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """File of the web shop's decisions."""
    from kubesched.cli.main import main

    path = tmp_path_factory.mktemp("recorded") / "shop.gz"
    files = [str(EXAMPLES / name) for name in ("web-shop", "nodes")]
    assert main(["simulate", "-f", *files, "--decisions", str(path), "-q"]) == 0
    return path


def test_decisions_are_shown_filtered_and_as_json(recorded: Path, capsys: Capture) -> None:
    capsys.readouterr()
    table = run(capsys, "decisions", recorded, "--pod", "shop/cache-2")
    head, row = table.out.splitlines()
    assert head.split() == ["TIME", "POD", "OUTCOME", "NODE", "TOTAL", "TIES", "FIT", "WHY"]
    assert row.split()[1:3] == ["shop/cache-2", "bound"]
    assert "NodeResourcesFit +" in row
    lines = run(capsys, "decisions", recorded, "--last", "3", "-o", "json").out.splitlines()
    assert [json.loads(line)["seq"] for line in lines] == [24, 25, 26]
    assert run(capsys, "decisions", recorded, "--outcome", "error").out == "no decision matches\n"
    assert run(capsys, "decisions", recorded, "--until", "2001-01-01T00:00:00Z").out == "no decision matches\n"
    assert "SEARCH" in run(capsys, "decisions", recorded, "-o", "wide").out
    assert run(capsys, "decisions", recorded, "--last", "1", "-o", "yaml").out.startswith("---\ntype: record\n")


def test_a_replay_says_what_would_differ(recorded: Path, capsys: Capture) -> None:
    capsys.readouterr()
    same = run(capsys, "decisions", "replay", recorded)
    assert same.out == f"26 decisions of {recorded}, made again by the default configuration: 0 would differ\n"
    packing = EXAMPLES / "config" / "packing.yaml"
    other = run(capsys, "decisions", "replay", recorded, "--config", packing)
    assert "8 would differ" in other.out.splitlines()[0]
    document = json.loads(run(capsys, "decisions", "replay", recorded, "--config", packing, "-o", "json").out)
    assert document["counts"] == [{"kind": "otherNode", "plugin": "NodeResourcesFit", "decisions": 8}]
    assert len(document["differences"]) == document["differing"] == 8
    one = run(capsys, "decisions", "replay", recorded, "--config", packing, "--pod", "cache-0")
    assert one.out.startswith(f"1 decision of {recorded}")


def test_a_torn_last_line_is_left_out_and_named(recorded: Path, capsys: Capture, tmp_path: Path) -> None:
    capsys.readouterr()
    lines = gzip.decompress(recorded.read_bytes()).splitlines(keepends=True)
    torn = tmp_path / "torn"
    torn.write_bytes(b"".join(lines)[:-9])
    remark = f"kubesched: {torn}: line {len(lines)} is torn and left out: "
    for words in (["-o", "json"], ["replay"]):
        ran = run(capsys, "decisions", *(["replay", torn] if words == ["replay"] else [torn, *words]))
        assert (ran.code, ran.err.count(remark)) == (0, 1), ran


def test_wrong_usage_and_wrong_files_are_refused(recorded: Path, capsys: Capture, tmp_path: Path) -> None:
    capsys.readouterr()
    notes = tmp_path / "notes.txt"
    notes.write_text("mine\n")
    for code, text, argv in (
        (2, "expected FILE, or replay FILE", ("a", "b")),
        (2, "--config: belongs to kubesched decisions replay FILE", (recorded, "--config", "x")),
        (2, "--follow: a replay reads the file as it is", ("replay", recorded, "--follow")),
        (2, "--pod, --since and --until only", ("replay", recorded, "--last", "3")),
        (1, "line 1: is no header: this is no file of decisions", (notes,)),
        (1, "No such file or directory", (tmp_path / "none",)),
        (2, "must be a time such as", (recorded, "--since", "tomorrow")),
    ):
        ran = run(capsys, "decisions", *argv)
        assert (ran.code, text in ran.err) == (code, True), ran.err
    ran = run(capsys, "simulate", "-f", EXAMPLES / "web-shop", "--nodes", "2", "--decisions", notes)
    assert (ran.code, "exists and is no file of decisions" in ran.err) == (1, True)
    assert notes.read_text() == "mine\n"
