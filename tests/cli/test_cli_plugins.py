"""Plugins that are slow, never return, print, or are not enabled; and Ctrl-C in the middle of them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli_cluster import POD as ONE
from cli_cluster import cluster
from cli_kit import run

import kubesched
from kubesched.cli import interrupts
from kubesched.cluster.files import read
from kubesched.lab.simulate.results.result import Result

import msgspec  # isort: skip

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}\n"
CONFIG = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
#: Says on stderr when it is called, and never returns; ``swallow`` catches interrupts as well.
ENDLESS = """\
import sys
from kubesched.scheduler.framework import Plugin

class Endless(Plugin):
    name = "Endless"

    def filter(self, state, pod, node):
        sys.stderr.write("called\\n")
        sys.stderr.flush()
        caught = False
        while True:
            try:
                while not caught:
                    pass
                sys.stderr.write("caught\\n")
                sys.stderr.flush()
                caught = False
            except {swallow}:
                caught = True
"""
LOUD = """\
from kubesched.scheduler.framework import Plugin

print("imported")

class Loud(Plugin):
    name = "Loud"

    def filter(self, state, pod, node):
        print("filtering")
        return None
"""


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    path = tmp_path / "pod.yaml"
    path.write_text(POD)
    return path


@contextmanager
def started(*argv: object) -> Iterator[subprocess.Popen[str]]:
    """The command in a process of its own, which is gone at the end."""
    command = [sys.executable, "-m", "kubesched.cli", *map(str, argv)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(process: subprocess.Popen[str], text: str) -> str:
    """The first line on stderr that has the text."""
    assert process.stderr is not None
    return next(line for line in process.stderr if text in line)


@pytest.mark.parametrize(("swallow", "presses"), [("ZeroDivisionError", 1), ("BaseException", 3)])
def test_a_plugin_that_never_returns_is_named_and_ctrl_c_ends_it(
    pod: Path, tmp_path: Path, swallow: str, presses: int
) -> None:
    module = tmp_path / "endless.py"
    module.write_text(ENDLESS.format(swallow=swallow))
    with started("simulate", "-f", pod, "--nodes", 1, "--plugin-module", module, "-q") as process:
        wait_for(process, "called")
        line = wait_for(process, "plugin Endless has been in filter for more than 1 s")
        assert f"{module}:" in line
        for press in range(presses):
            process.send_signal(signal.SIGINT)
            if press < presses - 1:
                wait_for(process, "caught")
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert "interrupted" in err if presses == 1 else "ended at once" in err


def test_ctrl_c_twice_ends_a_cluster_whose_plugin_never_returns(pod: Path, tmp_path: Path) -> None:
    module, snapshot = tmp_path / "endless.py", tmp_path / "saved.jsonl"
    module.write_text(ENDLESS.format(swallow="ZeroDivisionError"))
    files = ("--kubeconfig-out", tmp_path / "kubeconfig", "--snapshot", snapshot)
    with started("up", "-f", pod, "--nodes", 1, "--plugin-module", module, *files) as process:
        wait_for(process, "called")
        process.send_signal(signal.SIGINT)
        wait_for(process, "plugin Endless has been in filter")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert not snapshot.exists()  # it was still starting


def test_the_second_ctrl_c_ends_a_cluster_whose_plugin_never_returns_and_it_is_saved(tmp_path: Path) -> None:
    module, snapshot = tmp_path / "endless.py", tmp_path / "saved.jsonl"
    module.write_text(ENDLESS.format(swallow="ZeroDivisionError"))
    with cluster(tmp_path, "--nodes", "1", "--plugin-module", str(module), "--snapshot", str(snapshot)) as running:
        running.request("/api/v1/namespaces/default/pods", ONE)
        wait_for(running.process, "called")
        running.process.send_signal(signal.SIGINT)
        wait_for(running.process, "stopping is held up by code that does not return, such as a plugin; Ctrl-C again")
        running.process.send_signal(signal.SIGINT)
        _, errors = running.process.communicate(timeout=60)
    assert running.process.returncode == 130
    assert errors.endswith("kubesched: interrupted\n")
    assert "Traceback" not in errors
    assert ("default", "one") in {(item.namespace, item.name) for item in read(snapshot).items}
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [
        "endless.py",
        "kubeconfig",
        "saved.jsonl",
    ]


def test_what_plugins_print_is_no_part_of_a_document(
    capsys: pytest.CaptureFixture[str], pod: Path, tmp_path: Path
) -> None:
    module = tmp_path / "loud.py"
    module.write_text(LOUD)
    given = ("simulate", "-f", pod, "--nodes", 1, "--plugin-module", module)
    for output in ("json", "yaml"):
        ran = run(capsys, *given, "-o", output)
        decode = msgspec.json.decode if output == "json" else msgspec.yaml.decode
        assert decode(ran.out, type=Result).totals.placed == 1
        assert ran.err == "imported\nfiltering\n"
    assert "filtering" in run(capsys, *given).out


def test_a_plugin_is_enabled_by_name(capsys: pytest.CaptureFixture[str], pod: Path, tmp_path: Path) -> None:
    module, config = tmp_path / "loud.py", tmp_path / "config.yaml"
    module.write_text(LOUD)
    config.write_text(CONFIG)
    given = ("simulate", "-f", pod, "--nodes", 1, "--plugin-module", module, "--config", config)
    ran = run(capsys, *given)
    assert "filtering" not in ran.out
    assert f"plugin Loud was loaded, but no profile of {config} enables it" in ran.err
    ran = run(capsys, *given, "--enable-plugin", "Loud")
    assert "filtering" in ran.out
    assert "no profile" not in ran.err
    ran = run(capsys, *given, "--enable-plugin", "Lout")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "imported\nkubesched: --enable-plugin Lout: no plugin has this name; did you mean Loud?\n"
    ran = run(capsys, "config", "check", config, "--plugin-module", module, "--enable-plugin", "Loud")
    assert "Loud" in ran.out


def test_broken_packages_are_said_and_do_not_stop_the_command(pod: Path, tmp_path: Path) -> None:
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[kubesched.scheduler.plugins]\nbroken = no_such_module:Plugin\n")
    (tmp_path / "garbled-1.0.dist-info").mkdir()
    (tmp_path / "garbled-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: garbled\nVersion: 1.0\n")
    (tmp_path / "garbled-1.0.dist-info" / "entry_points.txt").write_bytes(b"[kubesched.scheduler.plugins]\nx = \xff\n")
    path = os.pathsep.join((str(tmp_path), str(Path(kubesched.__file__).parents[1])))
    command = [sys.executable, "-m", "kubesched.cli", "simulate", "-f", str(pod), "--nodes", "1", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0
    result = msgspec.json.decode(done.stdout, type=Result)
    assert result.totals.placed == 1
    garbled, broken = result.warnings
    assert garbled.startswith("entry points of package garbled cannot be read: UnicodeDecodeError: ")
    assert broken == (
        "entry point broken = no_such_module:Plugin is left out: ModuleNotFoundError: No module named 'no_such_module'"
    )
    assert done.stderr == f"kubesched: {garbled}\nkubesched: {broken}\n"


class HeldUpError(Exception):
    """Interruption of what held the loop up."""


def hold_up(deadline: float) -> None:
    while time.monotonic() < deadline:
        pass


@pytest.mark.parametrize("signals", [2, 3])
def test_a_second_signal_counts_that_comes_at_once(signals: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, it was taken for the first one, so pressing Ctrl-C twice was not enough."""
    monkeypatch.setattr(interrupts, "_HELD_UP_SECONDS", 0.3)

    def held_up() -> None:
        raise HeldUpError

    async def main() -> None:
        loop, deadline, came_round = asyncio.get_running_loop(), time.monotonic() + 30, asyncio.Event()
        interrupts.add_signal_handler(loop, signal.SIGUSR1, came_round.set, held_up=held_up)
        for _ in range(signals):
            signal.raise_signal(signal.SIGUSR1)  # its handler is called before this returns
        with pytest.raises(HeldUpError):
            hold_up(deadline)
        assert not came_round.is_set()
        async with asyncio.timeout(30):
            await came_round.wait()

    before = signal.getsignal(signal.SIGUSR1)
    asyncio.run(main())
    signal.signal(signal.SIGUSR1, before)
