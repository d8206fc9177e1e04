"""A plugin of pytest for ``runner.py``: which test runs which lines, and the tests of one mutant in a given order."""

from __future__ import annotations

import faulthandler
import json
import os
import resource
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from coverage import Coverage
from hypothesis import Phase, settings

#: A JSON file with the tests to run, in this order: seconds by id.
TESTS = "KUBESCHED_MUTANT_TESTS"
#: Where the lines that each test ran are written, and its seconds.
TRACE = "KUBESCHED_MUTANT_TRACE"
_BYTES = 8 << 30


class _Trace:
    def __init__(self, out: Path) -> None:
        self._out = out
        self._coverage = Coverage(data_file=None, source_pkgs=["kubesched.scheduler"], config_file=False)
        self._coverage.start()
        self._seconds: dict[str, float] = defaultdict(float)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._coverage.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self._coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        data, tests = self._coverage.get_data(), {"": 0}
        lines: dict[str, dict[int, list[int]]] = {}
        for file in data.measured_files():
            found = data.contexts_by_lineno(file)
            path = str(Path(file).relative_to(Path.cwd()))
            lines[path] = {line: [tests.setdefault(test, len(tests)) for test in ids] for line, ids in found.items()}
        self._out.write_text(json.dumps({"lines": lines, "seconds": self._seconds, "tests": list(tests)}))


class _Only:
    """These tests, and an end of the process if one takes far longer than it should: a mutant may loop without end."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds
        self._order = {test: place for place, test in enumerate(seconds)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self._order), key=lambda item: self._order[item.nodeid])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        with Path(os.devnull).open("w") as nowhere:
            faulthandler.dump_traceback_later(30 + 5 * self._seconds[item.nodeid], exit=True, file=nowhere)
            try:
                return (yield)
            finally:
                faulthandler.cancel_dump_traceback_later()


def pytest_configure(config: pytest.Config) -> None:
    # A failure is all that is asked for; making its example smaller takes longer than finding it.
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("mutants", settings.get_profile("default"), phases=phases)
    settings.load_profile("mutants")
    # A mutant that collects without end must not take the machine's memory.
    resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
    if out := os.environ.get(TRACE):
        config.pluginmanager.register(_Trace(Path(out)))
    if tests := os.environ.get(TESTS):
        config.pluginmanager.register(_Only(json.loads(Path(tests).read_text())))
