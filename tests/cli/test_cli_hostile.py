"""Input, output and surroundings that are not as they should be: an error in words and its exit code, never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_kit import GOLDEN, run

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}\n"
CONFIG = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
SWEEP = ("sweep", "--set", "manifests=pod.yaml", "--grid", "nodes=1", "--processes", "0")
UP = ("up", "--kubeconfig-out", "kc")

#: Commands that read a file, which stands where the @ is.
READERS: tuple[tuple[str, ...], ...] = (
    ("simulate", "-f", "@"),
    ("simulate", "-f", "pod.yaml", "--from", "@"),
    ("simulate", "--trace", "@"),
    ("simulate", "-f", "pod.yaml", "--config", "@"),
    ("simulate", "-f", "pod.yaml", "--stages", "@"),
    ("simulate", "-f", "pod.yaml", "--nodes", "1", "--node-template", "@"),
    ("simulate", "-f", "pod.yaml", "--plugin-module", "@"),
    ("sweep", "@"),
    *(("trace", name, "@") for name in ("alibaba-2018", "alibaba-2020", "alibaba-2023", "google-2019", "philly")),
    (*UP, "--snapshot", "saved.jsonl", "--from", "@"),
    (*UP, "--config", "@"),
    (*UP, "--nodes", "1", "--node-template", "@"),
    (*UP, "--tls-cert", "@", "--tls-key", "@"),
    ("import", "@", "-o", "out.jsonl"),
    ("import", "--kubeconfig", "@", "-o", "out.jsonl"),
    ("bench", "@"),
    ("bench", "--kubeconfig", "@"),
    ("conformance", "@"),
    ("config", "check", "@"),
    ("config", "convert", "@"),
    ("plugins", "--plugin-module", "@"),
)
#: Files that none of them can read.
BAD = ("missing", "pod.yaml/below", "binary", "cut.gz", "deep.json")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "pod.yaml": POD,
        "config.yaml": CONFIG,
        "bad.yaml": "kind: [\n",
        "deep.json": "[" * 100_000,
    }.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 40)
    (tmp_path / "cut.gz").write_bytes(b"\x1f\x8b" + bytes(30))
    return tmp_path


@pytest.mark.parametrize("command", READERS, ids=" ".join)
def test_what_cannot_be_read_is_named(
    command: tuple[str, ...], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(place.iterdir())
    for bad in BAD:
        ran = run(capsys, *(bad if part == "@" else part for part in command))
        assert (ran.code in (1, 2), "Traceback" in ran.err, "internal error" in ran.err) == (True, False, False), ran
        assert Path(bad).stem in ran.err + ran.out, (bad, ran)
    assert sorted(place.iterdir()) == before


#: What each command returns: done, could not be done, wrong usage.
CODES: tuple[tuple[int, tuple[object, ...]], ...] = (
    (0, ("demo", "--fast", "--nodes", 10)),
    (2, ("demo", "--nodes", 0)),
    (0, ("simulate", "-f", "pod.yaml")),  # a pending pod is a result
    (1, ("simulate", "-f", "bad.yaml")),
    (2, ("simulate",)),
    (0, SWEEP),
    (1, (*SWEEP[:2], "manifests=missing", *SWEEP[3:])),
    (2, (*SWEEP, "--grid", "nodes=1")),
    (0, ("trace", "philly", "--help")),
    (1, ("trace", "philly", "missing")),
    (2, ("trace", "philly", "a", "b")),
    (1, ("up", "--config", "bad.yaml")),
    (2, ("up", "--host", "0.0.0.0")),
    (0, ("import", "pod.yaml", "-o", "out.jsonl")),
    (1, ("import", "folder", "-o", "out.jsonl")),
    (2, ("import", "-o", "out.jsonl")),
    (0, ("bench", "--nodes", 2, "--pods", 2, "--runs", 1, "--quiet")),
    (1, ("bench", "missing.yaml")),
    (2, ("bench", "--pid", 1)),
    (0, ("conformance", GOLDEN / "config.jsonl.gz", "--quiet")),
    (1, ("conformance", "folder")),
    (2, ("conformance",)),
    (0, ("config", "check", "config.yaml")),
    (1, ("config", "check", "bad.yaml")),
    (2, ("config", "check")),
    (0, ("plugins",)),
    (1, ("plugins", "--plugin-module", "missing")),
    (2, ("plugins", "--no-such")),
    (0, ("completion", "bash")),
    (2, ("completion", "dash")),
    (0, ("version",)),
    (2, ("version", "more")),
    (0, ("run", "--version")),
    (1, ("run", "--no-such")),  # as kube-scheduler
)


@pytest.mark.parametrize(("code", "command"), CODES, ids=lambda value: str(value).replace(str(GOLDEN), "golden"))
def test_exit_codes_are_as_documented(
    code: int, command: tuple[object, ...], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = run(capsys, *command)
    assert ran.code == code, ran
    assert "Traceback" not in ran.err
    assert code == 0 or ran.err


def shell(line: str, **environment: str) -> tuple[int, str]:
    """The exit code and stderr of a line of shell, in which ``$K`` is kubesched."""
    everything = {**os.environ, **environment, "K": f"{sys.executable} -m kubesched"}
    done = subprocess.run(["bash", "-c", line], capture_output=True, env=everything, timeout=60, check=False)
    return done.returncode, done.stderr.decode()


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("$K version >/dev/full", (1, "kubesched: the output cannot be written: No space left on device\n")),
        ("$K run --help >/dev/full", (1, "kubesched: the output cannot be written: No space left on device\n")),
        (
            "$K simulate -f pod.yaml -q --report /dev/full",
            (1, "kubesched: --report /dev/full: cannot be written: No space left on device\n"),
        ),
        ("$K version >&-", (0, "")),
        ("$K run --version >&- 2>&- <&-", (0, "")),
        ("$K config check missing 2>&-", (1, "")),
        ("$K run --config bad.yaml 2>&1 >/dev/null | grep -c 'bad.yaml: yaml: line 2' >&2", (0, "1\n")),
        ("set -o pipefail; $K run --help | head -1", (0, "")),
        ("set -o pipefail; $K plugins | head -1", (0, "")),
    ],
)
def test_an_output_that_takes_nothing(line: str, want: tuple[int, str], place: Path) -> None:
    assert shell(line) == want


def test_names_that_are_no_text_and_a_locale_without_letters(place: Path) -> None:
    text = POD + "---\napiVersion: v1\nkind: Nopé\nmetadata: {name: x}\n"
    (place / os.fsdecode(b"\xff\xc3\xa9.yaml")).write_text(text)
    files = "-f $'\\xff\\xc3\\xa9.yaml' -q --report page.html --save pods=pods.csv"
    ascii_only = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    for output, environment in (("table", ascii_only), ("yaml", {}), ("json", ascii_only)):
        code, errors = shell(f"$K simulate {files} -o {output} >out", **environment)
        assert code == 0, errors
        assert "v1 Nopé is not known here" in errors
    assert any("Nopé" in one for one in json.loads((place / "out").read_bytes())["warnings"])
