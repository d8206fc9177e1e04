"""The list of faults in what the invariants rest on: each is one change of the source as it is."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from campaign_mutants import ROOT, Mutant, mutants

PACKAGE = ROOT / "src" / "kubesched"


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.name)
def test_a_fault_is_one_change_of_the_source(mutant: Mutant) -> None:
    before, after = (PACKAGE / mutant.path).read_text("utf-8"), mutant.source(PACKAGE)
    assert ast.dump(ast.parse(after)) != ast.dump(ast.parse(before))


def test_the_faults_are_those_of_the_page() -> None:
    page = (ROOT / "docs" / "mutation-testing.md").read_text("utf-8")
    table = page.partition("## Faults in what the invariants rest on")[2]
    assert [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines() if line.startswith("| ")][1:] == [
        mutant.name for mutant in mutants()
    ]


def test_a_fault_whose_place_is_gone_is_reported(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("limit = 3\nlimit = 3\n")
    with pytest.raises(ValueError, match="2 places"):
        Mutant("more", "module.py", "limit = 3", "limit = 4").source(tmp_path)
