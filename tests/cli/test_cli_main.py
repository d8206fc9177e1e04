"""Common behaviour of all commands: help, exit codes, no traceback, interruption, pipes, colour."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
from importlib import import_module

import pytest
from cli_kit import EXAMPLES, run, spawn

from kubesched.cli.main import build_parser

COMMANDS = ("demo", "simulate", "sweep", "trace", "bench", "conformance", "config", "plugins", "version", "kubelets")


def test_help_names_every_command_and_imports_nothing_heavy() -> None:
    code = (
        "import sys; from kubesched.cli.main import build_parser; build_parser().format_help(); "
        "print(sorted({'numpy', 'rich', 'yaml', 'msgspec'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    text = build_parser().format_help()
    assert all(name in text for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_a_module(capsys: pytest.CaptureFixture[str], command: str) -> None:
    ran = run(capsys, command, "--help")
    assert ran.code == 0
    assert ran.out.startswith(f"usage: kubesched {command}")
    assert callable(import_module(f"kubesched.cli.{command}_command").run)


def test_version_is_said_in_both_ways(capsys: pytest.CaptureFixture[str]) -> None:
    from kubesched import __version__

    assert run(capsys, "--version").out == f"kubesched {__version__}\n"
    assert f'"kubesched":"{__version__}"' in run(capsys, "version", "--json").out
    assert "kubernetes  1.36" in run(capsys, "version").out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["frobnicate"], "invalid choice: 'frobnicate'"),
        (["simulate"], "give manifests with -f, a cluster with --from, or a table of pods with --trace"),
        (["simulate", "-f", "x", "--nodes", "-1"], "argument --nodes: must not be negative: -1"),
        (["simulate", "-f", "x", "--nodes", "many"], "argument --nodes: invalid whole number value: 'many'"),
        (["simulate", "-f", "x", "--until", "nan"], "argument --until: must be a duration"),
        (["simulate", "-f", "x", "-o", "xml"], "invalid choice: 'xml'"),
        (["bench", "--runs", "0"], "argument --runs: must be at least 1: 0"),
        (["bench", "--shape", "odd"], "invalid choice: 'odd'"),
        (["config"], "the following arguments are required: ACTION"),
        (["up", "--host", "0.0.0.0"], "--host 0.0.0.0: other machines can reach it"),
        (["up", "--host", "::"], "or insist with --insecure-without-token"),
        (["up", "--host", "cluster.example", "--tls"], "add --token --tls"),
        (["up", "--allowed-host", "http://a"], "--allowed-host 'http://a' is no host name"),
    ],
)
def test_wrong_usage_is_exit_code_2(capsys: pytest.CaptureFixture[str], argv: list[str], message: str) -> None:
    ran = run(capsys, *argv)
    assert ran.code == 2
    assert message in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("is_wrapped", [False, True], ids=["", "while a class is made"])
def test_an_interrupt_is_exit_code_130(
    is_wrapped: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(options: object) -> int:
        if is_wrapped:
            raise RuntimeError("Error calling __set_name__") from KeyboardInterrupt()
        raise KeyboardInterrupt

    monkeypatch.setattr("kubesched.cli.version_command.run", interrupted)
    ran = run(capsys, "version")
    assert (ran.code, ran.err) == (130, "kubesched: interrupted\n")


def test_ctrl_c_in_the_middle_of_a_run_ends_cleanly() -> None:
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "kubesched.cli", "demo", "--nodes", "300"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    # The line is written by the scheduler's task, which is then what the signal interrupts.
    while "pods bound" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, "kubesched: interrupted\n")


def test_a_defect_of_ours_prints_its_traceback_and_has_an_exit_code_of_its_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(options: object) -> int:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("kubesched.cli.version_command.run", broken)
    ran = run(capsys, "version")
    assert ran.code == 70
    assert ran.err.startswith("Traceback (most recent call last):\n")
    assert "in broken\n" in ran.err
    assert "kubesched: internal error: ZeroDivisionError: oh\n" in ran.err


@pytest.mark.parametrize("command", [f"simulate -f {EXAMPLES / 'web-shop'} --nodes 3", "run --help"])
def test_a_reader_that_goes_away_is_no_error(command: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "kubesched.cli", *command.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert process.wait(timeout=30) == 0
    process.stderr.close()


def test_piped_output_has_no_colour_even_when_asked_for_elsewhere() -> None:
    ran = spawn(
        "simulate", "-f", EXAMPLES / "gates-and-taints", EXAMPLES / "nodes", FORCE_COLOR="1", TERM="xterm-256color"
    )
    assert ran.code == 0
    assert "\x1b" not in ran.out + ran.err


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs pseudo-terminals")
@pytest.mark.parametrize(
    ("given", "plain"),
    [
        ({"TERM": "xterm-256color"}, False),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, True),
        ({"TERM": "dumb"}, True),
    ],
    ids=["colour", "NO_COLOR", "dumb"],
)
def test_on_a_terminal_there_is_colour_and_a_progress_bar_that_goes_away_unless_it_is_to_be_plain(
    given: dict[str, str], plain: bool
) -> None:
    master, slave = os.openpty()
    argv = [sys.executable, "-m", "kubesched.cli", "simulate", "-f", str(EXAMPLES / "web-shop"), "--nodes", "3"]
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | given | {"COLUMNS": "100"}
    process = subprocess.Popen(argv, stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    seen = b""
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:  # Linux says so when the other side is closed
            break
        if not chunk:
            break
        seen += chunk
    os.close(master)
    assert process.wait(timeout=30) == 0
    assert (b"\x1b" not in seen) is plain
    assert (b"pods bound" not in seen) is plain
    assert b"Nodes (requested/allocatable)" in seen


def test_the_package_runs_as_a_module(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["kubesched", "version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("kubesched", run_name="__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("kubesched ")


def test_a_signal_while_the_loop_is_being_closed_is_not_reported() -> None:
    """The loop closes the socket that signals wake it with before it gives up the signals."""
    code = """
import asyncio, os, signal
from asyncio import selector_events
from kubesched.cli.interrupts import add_signal_handler, run_loop

def close_and_signal(loop, close=selector_events.BaseSelectorEventLoop._close_self_pipe):
    close(loop)
    os.kill(os.getpid(), signal.SIGTERM)

async def main():
    add_signal_handler(asyncio.get_running_loop(), signal.SIGTERM, lambda: None)

selector_events.BaseSelectorEventLoop._close_self_pipe = close_and_signal
run_loop(main())
print("ended")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("ended\n", "", 0)


#: Imports a module slowly that every command needs, and says when; and the same while the process ends.
SLOWLY = """
import sys, time

def say_and_sleep():
    print("now", flush=True)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        pass

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "WHEN":
            say_and_sleep()

sys.meta_path.insert(0, Slow())
if "WHEN" == "exit":
    import atexit
    atexit.register(say_and_sleep)
import runpy
runpy.run_module("MODULE", run_name="__main__")
"""


@pytest.mark.parametrize(
    ("module", "when", "arguments"),
    [
        ("kubesched", "asyncio", ("version",)),
        ("kubesched.cli", "kubesched.cli.main", ("version",)),
        ("kubesched", "numpy", ("simulate", "-f", ".")),
        ("kubesched", "kubesched.client.http", ("run", "--version")),
        ("kubesched", "exit", ("version",)),
    ],
)
def test_ctrl_c_while_the_program_is_imported_or_ends_is_quiet(
    module: str, when: str, arguments: tuple[str, ...]
) -> None:
    program = SLOWLY.replace("WHEN", when).replace("MODULE", module)
    command = [sys.executable, "-c", program, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while process.stdout.readline() != "now\n":
        assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err in ("", "kubesched: interrupted\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_service_manager_and_a_closed_terminal_end_a_command_as_ctrl_c_does(
    number: signal.Signals, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(number)
    monkeypatch.setattr("kubesched.cli.version_command.run", lambda options: os.kill(os.getpid(), number))
    ran = run(capsys, "version")
    assert (ran.code, ran.err) == (130, "kubesched: interrupted\n")
    assert signal.getsignal(number) is before


def test_run_is_named_as_people_type_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Usage:\n  kubesched run [flags]\n" in run(capsys, "run", "--help").out
    ran = run(capsys, "run", "--no-such-flag")
    assert (ran.code, ran.err) == (1, "Usage:\n  kubesched run [flags]\n\nError: unknown flag: --no-such-flag\n")
