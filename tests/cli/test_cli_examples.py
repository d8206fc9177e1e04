"""``kubesched examples``: the examples, where the reader is."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_kit import EXAMPLES, run


def test_the_examples_are_copied_and_nothing_is_overwritten(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    missing = run(capsys, "simulate", "-f", "examples/web-shop", "--nodes", "20")
    assert missing.err.endswith(
        "there is no such file or directory; `kubesched examples` copies the examples to here\n"
    )
    assert run(capsys, "examples").code == 0
    copied = {path.relative_to(tmp_path / "examples") for path in (tmp_path / "examples").rglob("*") if path.is_file()}
    there = {path.relative_to(EXAMPLES) for path in EXAMPLES.rglob("*") if path.is_file()}
    assert copied == {path for path in there if not any(part.startswith((".", "__pycache__")) for part in path.parts)}
    again = run(capsys, "examples")
    assert (again.code, again.err) == (
        1, "kubesched: examples: exists already and is not overwritten; give another name\n",
    )  # fmt: skip
    assert run(capsys, "examples", tmp_path / "here/mine").code == 0


@pytest.mark.parametrize("folder", ["plain/file", ""])
def test_a_folder_that_cannot_be_made_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain").write_text("")
    ran = run(capsys, "examples", folder)
    assert (ran.code, len(ran.err.splitlines())) == (1, 1)
