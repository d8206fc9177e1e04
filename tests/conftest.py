"""Shared by all tests: hypothesis profiles, signals, compiled modules, the collector of garbage."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import sys

import pytest
from hypothesis import HealthCheck, settings

_SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)

settings.register_profile("default", deadline=None, max_examples=60, derandomize=True, suppress_health_check=_SLOW)
settings.register_profile("sweep", deadline=None, max_examples=2000, suppress_health_check=_SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# A shell starts what runs in the background with SIGINT ignored, and the programs that tests start inherit that: they could
# not be interrupted.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests start the commands hundreds of times, and each worker imports all tests. Where modules are not kept compiled, as images
# of containers have it, each of these compiles the whole package first.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

#: With 300 a worker takes 150 MB more.
_TESTS_PER_FULL_PASS = 100
_tests = itertools.count()


@pytest.hookimpl(optionalhook=True)  # some of these tests run without pytest-xdist
def pytest_xdist_auto_num_workers() -> int:
    """Return the number of workers: two more than cores, because many tests wait for programs that they have started."""
    return (os.cpu_count() or 1) + 2


def pytest_runtest_setup() -> None:
    """While a test runs, the collector traverses what that test has made, and not again all tests and modules that there are.

    Commands that are run in this process make a full pass each, which would take longer than all else they do.
    """
    if next(_tests) % _TESTS_PER_FULL_PASS == 0:
        gc.unfreeze()
        gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """The last full pass, which finds what no test has closed or awaited, looks at everything."""
    gc.unfreeze()
