"""The faults that ``make mutants`` makes, and how it finds the tests of a line."""

from __future__ import annotations

from pathlib import Path

from mutants import Mutant, mutants_of
from runner import LineTests

SOURCE = '''"""A module."""
from typing import Final

LIMIT: Final[int] = 3


@decorated(1)
def put(self, pod: int = 0) -> bool:
    """Put it."""
    if self.closed:
        return False
    self.items.append(pod)
    return len(self.items) < LIMIT
'''


def faults(tmp_path: Path, source: str = SOURCE) -> dict[str, Mutant]:
    """The mutants of a module by the line that takes the place of another."""
    path = tmp_path / "src" / "nodes" / "items.py"
    path.parent.mkdir(parents=True)
    path.write_text(source)
    mutants = [mutant for mutant in mutants_of(tmp_path, path) if mutant.works()]
    return {line[1:].strip(): m for m in mutants for line in m.diff().splitlines()[3:] if line.startswith("+")}


def test_statements_are_left_out_and_conditions_turned_round(tmp_path: Path) -> None:
    found = faults(tmp_path)

    assert {"pass", "if not (self.closed):", "return len(self.items) <= LIMIT", "self.items.append(None)"} <= set(found)
    assert "LIMIT: Final[int] = 4" in found
    assert "return True" in found


def test_annotations_decorators_docstrings_and_logs_stay(tmp_path: Path) -> None:
    changed = "\n".join(faults(tmp_path, SOURCE + '    _log.error("full: %s", pod)\n'))

    for kept in ("bool", "decorated", "Put it", "A module", "_log"):
        assert kept not in changed.replace("-> bool:", "")


def test_the_rest_of_the_module_stays_as_it_is(tmp_path: Path) -> None:
    mutant = faults(tmp_path)["if not (self.closed):"]

    assert mutant.source().replace("not (self.closed)", "self.closed") == SOURCE
    assert (mutant.path, mutant.package) == (Path("src/nodes/items.py"), "nodes")


def test_a_mutant_runs_against_the_tests_of_its_line_its_own_package_and_the_fastest_first(tmp_path: Path) -> None:
    found = faults(tmp_path)
    slow, fast, other = "tests/cache/test_a.py::slow", "tests/cache/test_a.py::fast", "tests/queue/test_b.py::other"
    seconds = {slow: 2.0, fast: 1.0, other: 0.1}
    lines = {"4": [0], "10": [1, 2, 3], "13": [3]}
    trace = {"tests": ["", slow, fast, other], "seconds": seconds, "lines": {"src/nodes/items.py": lines}}
    tests = LineTests([trace])

    assert tests.of(found["if not (self.closed):"]) == [[fast, slow], [other]]
    assert tests.of(found["return len(self.items) <= LIMIT"]) == [[other]]
    assert tests.of(found["self.items.append(None)"]) == []  # no test runs it
    assert tests.of(found["LIMIT: Final[int] = 4"]) == [[fast, slow], [other]]  # runs when the module is imported
