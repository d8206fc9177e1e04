"""A task that crashes ends ``up`` and ``simulate`` with its traceback and the exit code of a defect, ``run`` with that of kube-scheduler."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NoReturn

import pytest
from cli_kit import EXAMPLES, Ran, run, spawn

from kubesched.base.times import RealClock
from kubesched.cli import loading as up_loading
from kubesched.cli import up_command
from kubesched.cli.main import CRASHED
from kubesched.cluster.http import HttpServer, write_kubeconfig
from kubesched.cluster.store import Store
from kubesched.scheduler.scheduler import Scheduler
from task_kit import HOWS, How, kill, task_names

TESTS = Path(__file__).parents[1]

#: A plugin that kills a task of the process it runs in, as soon as there is one of that name and it waits.
KILLER = """
import asyncio, os, sys
sys.path.insert(0, os.environ["TESTS"])
from task_kit import kill, task_names
from kubesched.scheduler.framework.interface import Plugin

class Killer(Plugin):
    name = "Killer"

    def __init__(self, args, handle):
        self.loop, self.main = asyncio.get_running_loop(), asyncio.current_task()
        self.look()

    def look(self):
        if os.environ["KILL"] in task_names(self.main):
            self.loop.call_later(0.2, kill, self.main, os.environ["KILL"], os.environ["HOW"])
        else:
            self.loop.call_later(0.1, self.look)

    def filter(self, state, pod, node):
        return None
"""


def up(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    hook: Callable[[asyncio.Task[Any]], None],
) -> Ran:
    """``kubesched up`` in this process; the hook is called when it runs and everything waits."""
    greet = up_command._greet

    def greet_and_hook(*arguments: Any) -> None:
        greet(*arguments)
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_later(0.02, hook, task)

    with monkeypatch.context() as patched:
        patched.setattr(up_command, "_greet", greet_and_hook)
        return run(
            capsys, "up", "--nodes", 1, "--kubeconfig-out", folder / "kc", "--snapshot", folder / "saved.jsonl.gz"
        )


def test_each_task_of_up_that_dies_ends_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names: list[str] = []

    def look_and_stop(main: asyncio.Task[Any]) -> None:
        names.extend(task_names(main))
        os.kill(os.getpid(), signal.SIGTERM)

    # A hundred runs: what takes most of each and is not what they are about is done once, or not at all.
    registry, own = up_loading.load_registry()
    monkeypatch.setattr(up_loading, "load_registry", lambda modules: (registry, own))
    monkeypatch.setattr(up_command, "collector_paused", lambda *given, **options: nullcontext())
    assert up(capsys, monkeypatch, tmp_path, look_and_stop).code == 0
    assert {"scheduler", "event-expiry", "events", "kubelets", "controllers"} < set(names)
    for name, how in zip(names, itertools.cycle(HOWS), strict=False):  # both ways for all: the simulation's tests
        ran = up(capsys, monkeypatch, tmp_path, lambda main, name=name, how=how: kill(main, name, how))  # type: ignore[misc]
        assert ran.code == CRASHED, (name, ran)
        assert f"kubesched: internal error: task {name} " in ran.err, (name, ran)
        assert "Traceback (most recent call last):" in ran.err
        assert ("KilledError" in ran.err) is (how == "raise"), (name, ran)
        assert "saved " in ran.out, (name, ran)  # what the store holds is not in doubt


def test_the_process_of_up_ends_with_the_traceback(tmp_path: Path) -> None:
    name = "hollow-timers"
    plugin = tmp_path / "killer.py"
    plugin.write_text(KILLER)
    ran = spawn(
        *("up", "--nodes", 1, "--quiet", "--plugin-module", plugin, "--kubeconfig-out", tmp_path / "kc"),
        TESTS=str(TESTS),
        KILL=name,
        HOW="raise",
    )
    assert ran.code == CRASHED, ran
    assert "task_kit.KilledError: " + name in ran.err
    assert f"kubesched: internal error: task {name} failed: KilledError: {name}\n" in ran.err


@pytest.mark.parametrize(("name", "how"), [("scheduler", "raise"), ("informer-nodes", "cancel"), ("events", "raise")])
def test_simulate_ends_with_the_traceback(
    name: str, how: How, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = tmp_path / "killer.py"
    plugin.write_text(KILLER)
    for variable, value in (("TESTS", str(TESTS)), ("KILL", name), ("HOW", how)):
        monkeypatch.setenv(variable, value)
    ran = run(capsys, "simulate", "-f", EXAMPLES / "web-shop", "--nodes", 3, "--plugin-module", plugin)
    assert ran.code == CRASHED, ran
    assert ran.out == ""
    assert "Traceback (most recent call last):" in ran.err
    assert f"kubesched: internal error: task {name} " in ran.err


@pytest.mark.parametrize(
    "command",
    [
        ("simulate", "-f", EXAMPLES / "web-shop", "--nodes", 3),
        ("demo", "--fast", "--nodes", 30),
        ("bench", "--nodes", 5, "--pods", 5, "--quiet"),
    ],
    ids=lambda command: str(command[0]),
)
def test_a_dead_scheduler_loop_ends_every_command(
    command: tuple[object, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Scheduler) -> NoReturn:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(Scheduler, "_schedule", broken)
    ran = run(capsys, *command)
    assert ran.code == CRASHED, ran
    assert "in broken\n" in ran.err
    assert "kubesched: internal error: task scheduler failed: ZeroDivisionError: a defect\n" in ran.err


def test_a_task_that_wants_to_end_the_process_does_not_choose_the_exit_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def leaving(self: Scheduler) -> NoReturn:
        raise SystemExit(0)

    monkeypatch.setattr(Scheduler, "_schedule", leaving)
    ran = run(capsys, "simulate", "-f", EXAMPLES / "web-shop", "--nodes", 3)
    assert ran.code == CRASHED, ran
    assert "in leaving\n" in ran.err
    assert "kubesched: internal error: SystemExit: 0\n" in ran.err


def test_a_task_of_a_plugin_that_dies_is_not_taken_for_a_defect_of_kubesched(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plugin = tmp_path / "spawning.py"
    plugin.write_text(
        "from kubesched.scheduler.framework import Plugin\n\n\n"
        "async def work():\n    raise ZeroDivisionError('mine')\n\n\n"
        "class Spawning(Plugin):\n    name = 'Spawning'\n\n"
        "    def __init__(self, args, handle):\n        self.handle = handle\n\n"
        "    def filter(self, state, pod, node):\n        self.handle.spawn(work(), 'work')\n        return None\n"
    )
    options = ("--plugin-module", plugin, "--enable-plugin", "Spawning", "--nodes", 2)
    ran = run(capsys, "simulate", "-f", EXAMPLES / "web-shop", *options)
    assert ran.code == CRASHED, ran
    assert "ZeroDivisionError: mine" in ran.err
    assert f"It was raised at {plugin}:5, which is not part of kubesched: probably a defect of a plugin.\n" in ran.err
    assert "This is a defect of kubesched" not in ran.err


def test_run_ends_with_the_traceback_and_upstreams_exit_code(tmp_path: Path) -> None:
    """One traceback: that of the task. Those that end with it have nothing to report."""
    plugin, config = tmp_path / "killer.py", tmp_path / "kc"
    plugin.write_text(KILLER)

    async def main() -> Ran:
        store = Store(RealClock(), random=random.Random(1))
        async with HttpServer(store) as server:
            write_kubeconfig(config, server.url)
            arguments = ("--kubeconfig", config, "--leader-elect=false", "--secure-port", 0)
            own = ("--plugin-module", plugin, "--enable-plugin", "Killer")
            killing = {"TESTS": str(TESTS), "KILL": "events", "HOW": "raise"}
            return await asyncio.to_thread(spawn, "run", *arguments, *own, **killing)

    ran = asyncio.run(main())
    assert ran.code == 1, ran
    assert 'err="task events failed: KilledError: events"' in ran.err
    assert "task_kit.KilledError: events" in ran.err
    assert "without being stopped" not in ran.err
