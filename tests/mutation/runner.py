"""Mutation testing: draw small faults, and see whether a test notices each (``make mutants``).

The checkout is copied; faults are made in the copies only. The tests run once as they are, to learn which test runs which
lines and how long it takes. Then each mutant runs against the tests of its lines: those of its own package first, the
fastest first, until one fails. A mutant that runs far longer than the tests did is noticed, too.

Ends with 0 if every mutant was noticed, with 1 if some survived, and with 2 if the tests fail without a fault.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

import plugin
from mutants import Mutant, mutants_of

ROOT: Final = Path(__file__).parents[2]
HERE: Final = Path("tests/mutation")
#: The packages of the scheduler, and the folder of the tests of each.
PACKAGES: Final = {"core": "scheduler", "framework": "framework", "nodes": "cache", "cache": "cache", "queue": "queue"}
_LEFT_OUT: Final = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "node_modules")
#: The exit codes of pytest: a test failed, or a module could not be imported.
_NOTICED: Final = (1, 2)


class LineTests:
    """Tests by the lines they run, and the time each takes."""

    def __init__(self, traces: Sequence[dict[str, Any]]) -> None:
        self.seconds: dict[str, float] = {}
        self._lines: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        for trace in traces:
            self.seconds |= trace["seconds"]
            for path, lines in trace["lines"].items():
                for line, tests in lines.items():
                    self._lines[path][line].update(trace["tests"][number] for number in tests)

    def of(self, mutant: Mutant) -> list[list[str]]:
        """The tests that run the lines of the mutant: those of its package, then the others, each the fastest first."""
        lines = self._lines[str(mutant.path)]
        found = set[str]().union(*(lines[str(line)] for line in mutant.lines))
        if found == {""}:  # runs when the module is imported: any test that uses the module may notice
            found = set[str]().union(*lines.values())
        tests = sorted(found - {""}, key=lambda test: self.seconds[test])
        own = f"tests/{PACKAGES.get(mutant.package, mutant.package)}/"
        parts = [[t for t in tests if t.startswith(own)], [t for t in tests if not t.startswith(own)]]
        return [part for part in parts if part]


def _pytest(copy: Path, arguments: Sequence[str], output: Path | None, seconds: float, **more: str) -> int | None:
    """Run tests in a copy; None if they take longer than that many seconds."""
    paths = os.pathsep.join([str(copy / "src"), str(copy / HERE)])
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-x", "-p", "no:xdist", "-p", "plugin", *arguments],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": paths} | more,
        stdout=output.open("w") if output else None,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        # What its tests started may live on: the whole session ends.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _traced(copy: Path, folders: Sequence[str], jobs: int) -> LineTests:
    """The tests, run once without a fault; again only after a change of the source or the tests."""
    files = sorted(f for folder in folders for f in (copy / "tests" / folder).rglob("test_*.py"))
    sources = [f for part in ("src", "tests") for f in sorted((copy / part).rglob("*.py")) if f.parent != copy / HERE]
    content = [*(f.read_bytes() for f in sources), *(str(f.relative_to(copy)).encode() for f in (*sources, *files))]
    digest = sha256(b"".join(content))
    kept = Path(sys.prefix) / "mutants.json"
    if kept.exists() and (known := json.loads(kept.read_text()))["digest"] == digest.hexdigest():
        # Compile everything once, so that no mutant has to.
        _pytest(copy, ["--collect-only", "-qq", *map(str, files)], copy / "output.txt", 3600)
        return LineTests(known["traces"])
    outs = [copy / f"trace-{job}.json" for job in range(jobs)]

    def run(job: int) -> int | None:
        mine = [str(f) for f in files[job::jobs]]
        return _pytest(copy, mine, None, 3600, **{plugin.TRACE: str(outs[job])})

    with ThreadPoolExecutor(jobs) as pool:
        if any(end != 0 for end in pool.map(run, range(jobs))):
            raise SystemExit(2)
    traces = [json.loads(out.read_text()) for out in outs]
    kept.write_text(json.dumps({"digest": digest.hexdigest(), "traces": traces}))
    return LineTests(traces)


def _survives(mutant: Mutant, copy: Path, tests: LineTests) -> bool:
    path, output, order = copy / mutant.path, copy / "output.txt", copy / "tests.json"
    original, times = path.read_text("utf-8"), path.stat()
    path.write_text(mutant.source(), "utf-8")
    # Another time than the compiled module's, so that this one is read.
    os.utime(path, (times.st_atime, times.st_mtime + 10))
    try:
        for part in tests.of(mutant):
            order.write_text(json.dumps({test: tests.seconds[test] for test in part}))
            files = list(dict.fromkeys(test.split("::")[0] for test in part))
            seconds = 60 + 5 * sum(tests.seconds[test] for test in part)
            more = {plugin.TESTS: str(order), "PYTHONDONTWRITEBYTECODE": "1"}
            end = _pytest(copy, files, output, seconds, **more)
            if end is None or end < 0 or end in _NOTICED:
                return False
            if end:
                raise RuntimeError(f"pytest ended with {end}:\n{output.read_text()}")
        return True
    finally:
        path.write_text(original, "utf-8")
        os.utime(path, (times.st_atime, times.st_mtime))


def _drawn(root: Path, modules: Sequence[str], sample: int, seed: int) -> list[Mutant]:
    known = tomllib.loads((root / HERE / "equivalent.toml").read_text("utf-8"))["mutant"]
    source = root / "src" / "kubesched" / "scheduler"
    files = sorted(
        file
        for name in modules
        for file in ([source / name] if name.endswith(".py") else (source / name).rglob("*.py"))
    )
    population = [mutant for file in files for mutant in mutants_of(root, file)]
    print(f"{len(population)} mutants of {len(files)} modules", flush=True)
    random.Random(seed).shuffle(population)

    def is_equivalent(mutant: Mutant) -> bool:
        return any(str(mutant.path) == k["path"] and k["diff"].strip("\n") in mutant.diff() for k in known)

    return list(islice((m for m in population if m.works() and not is_equivalent(m)), sample))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("modules", nargs="*", default=list(PACKAGES), help="packages, or modules such as queue/heap.py")
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--tests", nargs="*", default=sorted({*PACKAGES.values()}), help="the folders of tests")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies = [Path(folder).resolve() / str(job) for job in range(options.jobs)]
        shutil.copytree(ROOT, copies[0], ignore=_LEFT_OUT)
        drawn = _drawn(copies[0], options.modules, options.sample, options.seed)
        tests = _traced(copies[0], options.tests, options.jobs)
        for copy in copies[1:]:
            shutil.copytree(copies[0], copy)
        free: SimpleQueue[Path] = SimpleQueue()
        for copy in copies:
            free.put(copy)

        def survives(mutant: Mutant) -> bool:
            copy, start = free.get(), time.monotonic()
            try:
                survived = _survives(mutant, copy, tests)
            finally:
                free.put(copy)
            fate = "noticed" if not survived else "SURVIVED" if tests.of(mutant) else "SURVIVED, no test runs it"
            diff = f"\n{mutant.diff()}\n" if survived else ""
            print(f"{mutant.path}:{mutant.lines.start} {fate} {time.monotonic() - start:.1f} s{diff}", flush=True)
            return survived

        with ThreadPoolExecutor(options.jobs) as pool:
            survivors = [mutant for mutant, lives in zip(drawn, pool.map(survives, drawn), strict=True) if lives]
    total = Counter(mutant.package for mutant in drawn)
    alive = Counter(mutant.package for mutant in survivors)
    for package in sorted(total):
        noticed = total[package] - alive[package]
        print(f"{package}: {noticed} of {total[package]} noticed, {100 * noticed / total[package]:.0f} %")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
