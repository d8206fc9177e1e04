"""Files that commands write their results to: what cannot be written is known before the work, and none is half written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest
from cli_kit import EXAMPLES, run

from kubesched.base.whole_file import whole_file
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


@pytest.mark.parametrize(
    ("before", "private", "after"),
    [
        (None, False, 0o644),
        (None, True, 0o600),
        (0o640, False, 0o640),
        (0o640, True, 0o640),
        (0o400 | 0o200, False, 0o600),
        (0o644, True, 0o600),  # as earlier versions wrote it
        (0o666, True, 0o600),
    ],
)
def test_private_files_are_their_owners_only(before: int | None, private: bool, after: int, place: Path) -> None:
    target, mask = place / "file", os.umask(0o022)
    try:
        if before is not None:
            target.touch()
            target.chmod(before)
        with whole_file(target, private=private) as file:
            (temporary,) = place.glob(".file*")
            while_written = temporary.stat().st_mode & 0o777
            file.write(b"text")
    finally:
        os.umask(mask)
    assert target.stat().st_mode & 0o777 == after
    assert while_written & 0o077 == 0 or (while_written, after) == (0o644, 0o644)


#: Writes half of a file, says so, and waits to be killed.
WRITER = """
import sys, time
from kubesched.base.whole_file import whole_file
with whole_file(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    print("writing", flush=True)
    time.sleep(60)
"""


def test_what_a_killed_writer_left_goes_with_the_next_one_and_a_living_one_is_not_disturbed(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved, pod = place / "c.jsonl", place / "pod.yaml"
    pod.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: i}]}\n")
    for living in (True, False):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, saved], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writing\n"
        if living:
            with pytest.raises(BlockingIOError, match="is being written by another process"), whole_file(saved):
                pass
            done = run(capsys, "import", pod, "-o", saved)
            assert (done.code, "is in use by another kubesched" in done.err) == (1, True)
        writer.kill()
        writer.communicate()
        assert not saved.exists()
        assert [path.name for path in place.glob(".c*")] == [".c.jsonl.tmp"]
        if living:
            with whole_file(saved) as file:
                file.write(b"whole")
            assert (saved.read_bytes(), list(place.glob(".c*"))) == (b"whole", [])
            saved.unlink()
    pod.write_text("not: kubernetes\n")  # whatever comes of it, the leftover goes at the start
    assert run(capsys, "import", pod, "-o", saved).code == 1
    assert list(place.glob(".c*")) == []


def test_a_temporary_file_that_is_a_link_is_not_followed(place: Path) -> None:
    (place / "other").write_text("before")
    (place / ".file.tmp").symlink_to("other")
    with pytest.raises(OSError, match="symbolic links"), whole_file(place / "file"):
        pass
    assert (place / "other").read_text() == "before"


@pytest.mark.parametrize("given", ["old.yaml", "./old.yaml", "link.yaml", "other.yaml"])
def test_config_convert_writes_over_nothing_unasked(
    given: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n# mine\n"
    for name in ("old.yaml", "other.yaml"):
        (place / name).write_text(text)
    (place / "link.yaml").symlink_to("old.yaml")
    done = run(capsys, "config", "convert", "old.yaml", "-o", given)
    assert (done.code, (place / given).read_text()) == (1, text)
    assert done.err == (
        f"kubesched: --output {given}: exists and is not overwritten; add --overwrite, or give another name\n"
    )
    assert run(capsys, "config", "convert", "old.yaml", "-o", given, "--overwrite").code == 0
    assert "parallelism: 16" in (place / given).read_text()
    assert run(capsys, "config", "convert", "other.yaml", "-o", "new.yaml").code == 0
    assert "parallelism: 16" in (place / "new.yaml").read_text()
    assert run(capsys, "config", "convert", "other.yaml", "-o", "none/new.yaml").err == (
        "kubesched: --output none/new.yaml: there is no directory none\n"
    )


@pytest.mark.parametrize(
    "option", ["-f", "--from", "--trace", "--config", "--stages", "--node-template", "--plugin-module"]
)
def test_a_result_never_takes_the_place_of_what_it_is_made_from(
    option: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "in.json").write_text("mine")
    others = () if option == "-f" else ("-f", "other")
    for output in (("--report", "in.json"), ("--save", "pods=./in.json")):
        done = run(capsys, "simulate", option, "in.json", *others, *output)
        assert done.code == 2
        assert "in.json: is read by this command, and is not overwritten" in done.err
        assert (place / "in.json").read_text() == "mine"


def test_a_file_in_a_directory_of_manifests_is_not_overwritten_and_a_new_one_may_be_made(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "in").mkdir()
    (place / "in" / "pod.json").write_text("mine")
    done = run(capsys, "simulate", "-f", "in", "--save", "pods=in/pod.json")
    assert (done.code, (place / "in" / "pod.json").read_text()) == (2, "mine")
    (place / "in" / "pod.json").write_text(
        '{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}'
    )
    assert run(capsys, "simulate", "-f", "in", "--nodes", "1", "--save", "pods=in/new.csv").code == 0
