"""Files that commands write their results to: what cannot be written is known before the work, and none is half written."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import pytest
from cli_kit import EXAMPLES, run

from kubesched.api.whole_file import whole_file
from kubesched.cli import simulate_command, sweep_command

SIMULATE = ("simulate", "-f", EXAMPLES / "gates-and-taints", "--nodes", "1")


def unexpected(*given: Any, **options: Any) -> NoReturn:
    raise AssertionError("the work was begun")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.csv").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--report", "none/out.html"), "--report none/out.html: there is no directory none"),
        (("--report", "folder.csv"), "--report folder.csv: cannot be written: Is a directory"),
        (("--report", "/proc/out.html"), "--report /proc/out.html: cannot be written: "),
        (("--report", ""), "--report: the name of the file is empty"),
        (("--save", "pods=none/pods.csv"), "--save none/pods.csv: there is no directory none"),
        (("--save", "pods=folder.csv"), "--save folder.csv: cannot be written: Is a directory"),
        (("--save", "pods=/proc/pods.csv"), "--save /proc/pods.csv: cannot be written: "),
        (("--save", "pods=pods.txt"), "--save pods.txt: the name must end with .csv, .json or .parquet"),
        (("--save", "pods=a.csv", "--save", "nodes=./a.csv"), "a.csv: two outputs would be written to it"),
        (("--save", "pods=a.csv", "--report", "a.csv"), "a.csv: two outputs would be written to it"),
    ],
)
def test_simulate_refuses_before_the_run_what_it_cannot_write(
    arguments: tuple[str, ...],
    message: str,
    place: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(simulate_command, "run_simulation", unexpected)
    done = run(capsys, *SIMULATE, *arguments)
    assert done.code in (1, 2)
    assert done.err.startswith(f"kubesched: {message}")
    assert [path.name for path in place.iterdir()] == ["folder.csv"]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--results", "none/runs.jsonl"), "none/runs.jsonl: No such file or directory"),
        (("--results", "folder.csv"), "folder.csv: Is a directory"),
        (("--plot", "none/plot.png"), "--plot none/plot.png: there is no directory none"),
        (("--plot", "/proc/plot.png"), "--plot /proc/plot.png: cannot be written: "),
    ],
)
def test_sweep_refuses_before_the_runs_what_it_cannot_write(
    option: tuple[str, str],
    message: str,
    place: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if option[0] == "--plot":
        pytest.importorskip("matplotlib")
        monkeypatch.setattr(sweep_command, "execute", unexpected)
    given = f"manifests={EXAMPLES / 'gates-and-taints'}"
    done = run(capsys, "sweep", "--set", given, "--grid", "nodes=1,2", "--processes", "0", *option)
    assert done.code == 1
    assert done.err.startswith(f"kubesched: {message}")
    assert [path.name for path in place.iterdir()] == ["folder.csv"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_what_was_there_stays_when_a_run_or_its_writing_ends_early(
    error: BaseException, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "page.html").write_text("before")

    def write(columns: Any, path: str, file: Any) -> None:
        file.write(b"half")
        raise error

    monkeypatch.setattr(simulate_command, "write_table", write)
    done = run(capsys, *SIMULATE, "--report", "page.html", "--save", "pods=pods.csv")
    assert done.code == (130 if isinstance(error, KeyboardInterrupt) else 1)
    assert (place / "page.html").read_text() == "before"
    assert sorted(path.name for path in place.iterdir()) == ["folder.csv", "page.html"]


def test_results_are_written_and_links_and_permissions_stay(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "real.html").write_text("before")
    (place / "real.html").chmod(0o640)
    (place / "link.html").symlink_to("real.html")
    done = run(capsys, *SIMULATE, "--report", "link.html", "--save", "pods=pods.csv")
    assert done.code == 0
    assert (place / "link.html").is_symlink()
    assert (place / "real.html").read_text().startswith("<!doctype html>")
    assert (place / "real.html").stat().st_mode & 0o777 == 0o640
    assert (place / "pods.csv").read_text().startswith("namespace,")
    assert sorted(path.name for path in place.iterdir()) == ["folder.csv", "link.html", "pods.csv", "real.html"]


def test_a_read_only_file_is_not_replaced(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "kept.csv").write_text("before")
    monkeypatch.setattr("os.access", lambda path, mode: False)  # the superuser may write to every file
    with pytest.raises(PermissionError, match=r"kept\.csv"), whole_file("kept.csv") as file:
        file.write(b"after")
    assert (place / "kept.csv").read_text() == "before"


def test_a_pipe_is_written_to_directly(place: Path) -> None:
    with whole_file("/dev/null") as file:
        file.write(b"text")
    assert Path("/dev/null").is_char_device()
