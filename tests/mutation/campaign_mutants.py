"""Faults in what the invariants rest on, each played by the campaign until an invariant breaks (``make campaign-mutants``).

The faults are listed in ``invariants.toml``. Each is made in a copy of the source, and the seeds are played in a process
of its own. Ends with 0 if every fault was noticed, and with 1 if one was not.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_TESTS: Final = (ROOT / "tests" / "controlplane", ROOT / "tests")
#: Plays the seeds in its arguments, and ends with the first that breaks an invariant and the first line about it.
_PLAY: Final = """
import sys
from campaign import play
for seed in range(int(sys.argv[1])):
    try:
        play(seed)
    except BaseException as error:
        print(seed, (str(error) or repr(error)).splitlines()[0])
        break
"""


@dataclass(frozen=True)
class Mutant:
    """Fault at one place. ``path`` is relative to the package; ``before`` is there once, and becomes ``after``."""

    name: str
    path: str
    before: str
    after: str

    def source(self, package: Path) -> str:
        """Return the module with the fault.

        Raises:
            ValueError: when the place is not found, or found twice.
        """
        text = (package / self.path).read_text("utf-8")
        if text.count(self.before) != 1:
            raise ValueError(f"{self.path} has {text.count(self.before)} places for {self.name!r}, not one")
        return text.replace(self.before, self.after)


def mutants() -> list[Mutant]:
    """Return the faults of the list."""
    listed = tomllib.loads((ROOT / "tests" / "mutation" / "invariants.toml").read_text("utf-8"))
    return [Mutant(**entry) for entry in listed["mutant"]]


def noticed(mutant: Mutant, seeds: int) -> str:
    """Return the seed whose day breaks an invariant, and which; empty if none does."""
    with tempfile.TemporaryDirectory(prefix="campaign-mutant-") as folder:
        package = Path(folder) / "kubesched"
        shutil.copytree(ROOT / "src" / "kubesched", package, ignore=shutil.ignore_patterns("__pycache__"))
        (package / mutant.path).write_text(mutant.source(package), "utf-8")
        paths = os.pathsep.join([folder, *map(str, _TESTS)])
        process = subprocess.run(
            [sys.executable, "-c", _PLAY, str(seeds)],
            env=os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=True,
        )
        return process.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="only faults whose name has this text")
    options = parser.parse_args()
    chosen = [mutant for mutant in mutants() if options.only in mutant.name]
    lines: list[str] = []

    def play(mutant: Mutant) -> str:
        found = noticed(mutant, options.seeds)
        print(f"{mutant.name}: {f'seed {found}' if found else f'NOT NOTICED in {options.seeds} seeds'}", flush=True)
        return found

    with ThreadPoolExecutor(options.jobs) as pool:
        lines = list(pool.map(play, chosen))
    print(f"{sum(map(bool, lines))} of {len(chosen)} noticed")
    return 0 if all(lines) else 1


if __name__ == "__main__":
    sys.exit(main())
