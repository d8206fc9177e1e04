"""One browser for all tests of the dashboard, and the programs that they look at, started when first needed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from browser_kit import Program, Window, missing
from clusters import EVIL, hostile, live_cluster, recording


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    if lack := missing():
        # Continuous integration sets the variable: there a browser must not be missing.
        (pytest.fail if os.environ.get("KUBESCHED_BROWSER") == "required" else pytest.skip)(lack)
    window = Window(tmp_path_factory.mktemp("browser"))
    yield window
    window.close()


@pytest.fixture
def window(browser: Window) -> Iterator[Window]:
    """The window, of which nothing may be left to complain of when the test ends."""
    browser.resize(1400, 900)
    browser.prefer("light")
    yield browser
    assert browser.faults() == []


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[Program]:
    program = Program(folder, *arguments)
    try:
        yield program
    finally:
        program.stop()


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    folder = tmp_path_factory.mktemp("live")
    with running(folder, "up", "-f", str(live_cluster(folder)), "--stop-pods-after", "0s") as program:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": EVIL}
        status = {"status": {"conditions": [condition]}}
        program.request("/api/v1/namespaces/default/pods/evil/status", status, "PATCH")
        yield program


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    with running(tmp_path_factory.mktemp("empty"), "up", "--no-controllers") as program:
        yield program


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return recording(tmp_path_factory.mktemp("recorded"))


@pytest.fixture(scope="session")
def decisions(tmp_path_factory: pytest.TempPathFactory, recorded: tuple[Path, Path]) -> Iterator[Program]:
    with running(tmp_path_factory.mktemp("decisions"), "view", str(recorded[1])) as program:
        yield program


@pytest.fixture(scope="session")
def two(tmp_path_factory: pytest.TempPathFactory, recorded: tuple[Path, Path]) -> Iterator[Program]:
    """A result, and the same with texts in it that do harm, side by side."""
    with running(tmp_path_factory.mktemp("two"), "view", str(recorded[0]), str(hostile(recorded[0]))) as program:
        yield program
