"""The installation matrix: every command from the built wheel, in fresh environments (``make matrix``).

One environment for the base and for each extra alone, each on the newest versions of the declared dependencies and on the
lowest ones that have a wheel for this Python. In every environment each command runs, or ends with one line that names the
extra to install. Nothing of the checkout is on any path: the commands start in an empty folder, with an empty environment.
With the extra ``run`` the tests that depend on the inside of libraries run, too, against the installed package.

The extra ``ray`` is installed on the newest versions only: its wheels take longer than all others together.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from email import message_from_string
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

ROOT: Final = Path(__file__).parents[2]
BASE: Final = ""
#: uv's words for the two columns.
NEWEST, LOWEST = "highest", "lowest-direct"
#: Not for users.
DEVELOPMENT: Final = frozenset({"dev", "docs"})
NEWEST_ONLY: Final = frozenset({"ray"})
_SECONDS: Final = 120.0

_FRAME: Final = "import kubesched; print(kubesched.simulate('examples/web-shop', nodes=20).to_pandas())"
_FIGURE: Final = (
    "import kubesched; kubesched.simulate('examples/web-shop', nodes=20).plot().savefig('p.png'); print('drawn')"
)
_SWEEP: Final = "kubesched sweep --set manifests=examples/web-shop --grid nodes=2,3 -q"


@dataclass(frozen=True)
class Check:
    """A command, the extra that brings what it needs, and a text of its output.

    A ``lasting`` command is stopped when it has shown the text and the commands of ``during`` have ended.
    """

    argv: tuple[str, ...]
    shows: str
    extra: str = BASE
    lasting: bool = False
    during: tuple[Check, ...] = ()

    def __str__(self) -> str:
        return " ".join(self.argv)


def check(
    line: str, shows: str, extra: str = BASE, *more: str, lasting: bool = False, during: Sequence[Check] = ()
) -> Check:
    return Check((*line.split(), *more), shows, extra, lasting, tuple(during))


#: In the order in which they run: some read what others have written.
CHECKS: Final = (
    check("kubesched --version", "kubesched"),
    check("kubesched --help", "COMMAND"),
    check("kubesched version", "1.36"),
    check("kubesched examples", "examples"),
    check("kubesched completion bash", "complete"),
    check("kubesched plugins", "NodeResourcesFit"),
    check("kubesched config check examples/config/packing.yaml", "NodeResourcesFit"),
    check("kubesched config convert examples/config/packing.yaml", "KubeSchedulerConfiguration"),
    check("kubesched demo --nodes 60 --fast", "without plugin"),
    check("kubesched simulate -f examples/web-shop --nodes 20 --save pods=p.csv --report page.html", "hollow-00019"),
    check("kubesched simulate -f examples/gpu-dra -o json", "Unschedulable"),
    check("kubesched simulate -f examples/web-shop --nodes 20 --decisions d.gz", "hollow-00019"),
    check("kubesched decisions d.gz", "hollow-00019"),
    check("kubesched audit -f examples/audit", "pod-never-schedulable: shop/report"),
    check("kubesched explain -f examples/explain/two-causes.yaml", "ask for 4 less cpu"),
    check(
        "kubesched capacity -f examples/planning/worker.yaml --cluster examples/planning/cluster.yaml",
        "What stops the next one",
    ),
    check(
        "kubesched plan --node-groups examples/planning/config/groups.yaml --demand examples/planning/config/demand.csv",
        "the cheapest",
    ),
    check("kubesched diff d.gz d.gz", "the same"),
    check("kubesched simulate -f examples/web-shop --nodes 9 --save pods=p.parquet", "hollow-00008", "parquet"),
    check(_SWEEP, "utilisation"),
    check(f"{_SWEEP} --plot sweep.png", "utilisation", "notebook"),
    check(f"{_SWEEP} --processes 1 --ray local", "utilisation", "ray"),
    check("kubesched trace alibaba-2020 pai_task_table.csv", "arrival"),
    check("kubesched import examples/web-shop -o saved.jsonl", "saved"),
    check("kubesched bench --nodes 20 --pods 20 --runs 1 -q", "20 of 20 pods bound"),
    check("kubesched conformance golden", "preFilter.nodes"),
    check("python -c", "log-agent-", "notebook", _FRAME),
    check("python -c", "drawn", "notebook", _FIGURE),
    check(
        "kubesched up --nodes 3 --port 0 --snapshot up.jsonl",
        "stop with Ctrl-C",
        "server",
        lasting=True,
        during=[
            check("kubesched import --kubeconfig kubesched.kubeconfig -o real.jsonl", "saved", "server"),
            check(
                "kubesched kubelets --kubeconfig kubesched.kubeconfig --nodes 2 --name far",
                "stop with Ctrl-C",
                "server",
                lasting=True,
            ),
            check(
                "kubesched run --kubeconfig kubesched.kubeconfig --leader-elect=false --bind-address 127.0.0.1 --secure-port {port}",
                "Serving securely",
                "run",
                lasting=True,
            ),
        ],
    ),
    check("kubesched view d.gz saved.jsonl --port 0", "stop with Ctrl-C", "server", lasting=True),
    check("kubesched up --nodes 3 --port 0 --tls --token", "stop with Ctrl-C", "run", lasting=True),
    check("kubesched bench --http --nodes 5 --pods 5 --runs 1 -q", "pods created", "server"),
    check("kubesched bench --run --nodes 5 --pods 5 --runs 1 -q", "pods with an event", "server"),
    check("kubesched run --help", "leader-elect", "server"),
    check("kubesched kubelets --help", "--delete-nodes"),
)


#: Tests of what depends on the inside of a library: its parsers, its reading of a kubeconfig. They run with the extra `run`.
TESTS: Final = (
    "tests/client/test_client_access.py",
    "tests/http/test_http_malformed.py",
    "tests/http/test_http_write_connections.py",
)
#: What these tests need besides.
TEST_PACKAGES: Final = ("hypothesis", "pytest")


@dataclass
class Installation:
    """A fresh environment with the wheel, and what went wrong in it."""

    extra: str
    resolution: str
    wheel: Path
    folder: Path
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.extra or 'base':<10}{'newest' if self.resolution == NEWEST else 'lowest'}"

    @property
    def has(self) -> frozenset[str]:
        """The extras whose packages are there, as far as commands differ by them."""
        return frozenset({BASE, self.extra} | ({"server"} if self.extra == "run" else set()))

    def run(self) -> None:
        begin = time.monotonic()
        try:
            self._install()
            _write_inputs(self._work)
            for each in CHECKS:
                self.check(each)
            if self.extra == "run":
                self._test()
        except subprocess.CalledProcessError as error:
            self.problems.append(f"cannot be installed:\n{error.stderr}")
        self.seconds = time.monotonic() - begin

    @property
    def _work(self) -> Path:
        return self.folder / "work"

    def _install(self) -> None:
        place = self.folder / "venv"
        _uv("venv", "--quiet", "--python", sys.executable, str(place))
        wanted = requirements(self.wheel, self.extra)
        pip = ("pip", "install", "--quiet", "--python", str(place / "bin/python"))
        # The wheel's requirements are given one by one: of a wheel's own uv would take the newest.
        _uv(*pip, "--resolution", self.resolution, "--only-binary", ":all:", *wanted)
        _uv(*pip, "--offline", "--no-deps", str(self.wheel))

    def _test(self) -> None:
        python = self.folder / "venv/bin/python"
        _uv("pip", "install", "--quiet", "--python", str(python), *TEST_PACKAGES)
        self.check(Check(("python", "-m", "pytest", *(str(ROOT / name) for name in TESTS)), ""))

    def check(self, each: Check) -> None:
        with self._started(each) as process:
            if each.extra not in self.has:
                self._refused(each, process)
            elif each.lasting:
                self._lasts(each, process)
            else:
                out, err = process.communicate(timeout=_SECONDS)
                if process.returncode != 0 or each.shows not in out + err:
                    self._problem(each, process.returncode, out + err, f"0 and the text {each.shows!r}")

    def _refused(self, each: Check, process: subprocess.Popen[str]) -> None:
        """The command cannot run here: one line says how that is changed, for what it would need, too."""
        for other in each.during:
            self.check(other)
        try:
            out, err = process.communicate(timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
        # What needs `run` needs `server`, too, and may miss the packages of that first.
        extras = {"server", "run"} if each.extra in ("server", "run") else {each.extra}
        advised = any(f"pip install 'kubesched[{name}]'" in err and f"'.[{name}]'" in err for name in extras)
        lines = err.splitlines()
        traceback = each.argv[0] == "kubesched" and (len(lines) != 1 or process.returncode != 1)
        if not advised or traceback or process.returncode == 0:
            self._problem(
                each, process.returncode, out + err, f"1 and one line with pip install 'kubesched[{each.extra}]'"
            )

    def _lasts(self, each: Check, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        seen = ""
        for line in process.stdout:
            seen += line
            if each.shows in line:
                for other in each.during:
                    self.check(other)
                break
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=_SECONDS)
        stopped = 1 if each.argv[1] == "run" else 0  # as kube-scheduler without leader election
        if process.returncode != stopped or each.shows not in seen or "Traceback" in seen + rest:
            self._problem(each, process.returncode, seen + rest, f"{stopped} and the text {each.shows!r}")

    def _started(self, each: Check) -> subprocess.Popen[str]:
        binaries = self.folder / "venv/bin"
        environment = {"PATH": f"{binaries}{os.pathsep}{os.defpath}", "HOME": str(self._work), "COLUMNS": "200"}
        argv = [word.format(port=_free_port()) if word == "{port}" else word for word in each.argv[1:]]
        errors = subprocess.STDOUT if each.lasting and each.extra in self.has else subprocess.PIPE
        return subprocess.Popen(
            [binaries / each.argv[0], *argv],
            cwd=self._work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )

    def _problem(self, each: Check, code: int, output: str, expected: str) -> None:
        shown = "\n".join(f"      {line}" for line in output.splitlines()[-12:])
        self.problems.append(f"{each}\n    exit code {code}, expected {expected}:\n{shown}")


def requirements(wheel: Path, extra: str = BASE) -> list[str]:
    """Return the requirements of a wheel with one of its extras. An extra that includes another one brings it along."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        text = archive.read(name).decode()
    lines = [Requirement(value) for value in message_from_string(text).get_all("Requires-Dist") or ()]
    found: list[str] = []
    for one in lines:
        if one.marker is None or one.marker.evaluate({"extra": extra}):
            if one.name == "kubesched":
                found += [each for name in one.extras for each in requirements(wheel, name)]
            else:
                found.append(f"{one.name}{one.specifier}")
    return sorted(set(found))


def _write_inputs(work: Path) -> None:
    """The few files that are the reader's own."""
    work.mkdir()
    (work / "pai_task_table.csv").write_text("job,task,1,Terminated,0,60,100,1,100,T4\n")
    (work / "golden").mkdir()
    recorded = "declaredfeatures.jsonl.gz"
    (work / "golden" / recorded).write_bytes((ROOT / "tests/golden" / recorded).read_bytes())


def _uv(*argv: str) -> None:
    subprocess.run([Path(sys.executable).parent / "uv", *argv], check=True, capture_output=True, text=True)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def installations(wheel: Path, scratch: Path, chosen: Sequence[str]) -> list[Installation]:
    """Every extra of ``pyproject.toml`` but those for development, in both columns."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [BASE, *(name for name in project["optional-dependencies"] if name not in DEVELOPMENT)]
    wanted = [extra for extra in extras if not chosen or (extra or "base") in chosen]
    cells = [
        (extra, each) for extra in wanted for each in (NEWEST, LOWEST) if each == NEWEST or extra not in NEWEST_ONLY
    ]
    return [Installation(extra, each, wheel, scratch / f"{extra or 'base'}-{each}") for extra, each in cells]


def main() -> int:
    parser = argparse.ArgumentParser(description="Every command from the built wheel, in fresh environments.")
    parser.add_argument("--wheel", type=Path, help="this wheel (default: one that is built from the checkout)")
    parser.add_argument("extras", nargs="*", metavar="EXTRA", help="only these; base: without an extra")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        wheel = options.wheel
        if wheel is None:
            _uv("build", "--wheel", "--quiet", "--out-dir", scratch, str(ROOT))
            (wheel,) = Path(scratch).glob("*.whl")
        cells = installations(wheel.resolve(), Path(scratch), options.extras)
        for cell in cells:
            cell.folder.mkdir()
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for cell, _ in zip(cells, pool.map(Installation.run, cells), strict=True):
                print(f"{cell}  {'FAILED' if cell.problems else 'ok':<6}  {cell.seconds:4.0f} s", flush=True)
                for problem in cell.problems:
                    print(f"  {problem}", flush=True)
    failed = sum(bool(cell.problems) for cell in cells)
    print(f"{len(cells) - failed} of {len(cells)} installations work, {len(CHECKS)} commands in each")
    return 1 if failed or not cells else 0


if __name__ == "__main__":
    sys.exit(main())
