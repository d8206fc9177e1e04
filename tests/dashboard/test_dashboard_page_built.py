"""The page of the dashboard is the one that was built from the sources beside it, and its types are those of the API."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from kubesched.dashboard.json_schema import documents_schema

ROOT = Path(__file__).parents[2]
UI = ROOT / "ui"
STATIC = ROOT / "src/kubesched/dashboard/static"
#: Folders and files that the page is built from, as in ``ui/scripts/after.mjs``.
SOURCES = (
    "index.html",
    "package.json",
    "package-lock.json",
    "tsconfig.json",
    "vite.config.ts",
    "public",
    "scripts",
    "src",
    "../docs/dashboard-schema.json",
)
AGAIN = "run `make ui`, and commit what it writes"


def hashes(root: Path, *names: str) -> dict[str, str]:
    """Return the hash of each file at or below the names, by its path from the root."""
    found: dict[str, str] = {}
    for name in names:
        path = root / name
        if path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
            continue
        files = sorted(each for each in path.rglob("*") if each.is_file())
        found |= {str(each.relative_to(root)): hashlib.sha256(each.read_bytes()).hexdigest() for each in files}
    return found


def test_the_types_of_the_page_are_made_from_the_schema_of_the_api() -> None:
    assert json.loads((ROOT / "docs/dashboard-schema.json").read_text()) == documents_schema(), AGAIN


@pytest.mark.parametrize(("part", "root", "names"), [("sources", UI, SOURCES), ("results", STATIC, (".",))])
def test_the_page_was_built_from_its_sources(part: str, root: Path, names: tuple[str, ...]) -> None:
    built = json.loads((UI / "built.json").read_text())
    assert hashes(root, *names) == built[part], AGAIN


def test_the_page_loads_nothing_from_elsewhere_and_has_nothing_inline() -> None:
    page = (STATIC / "index.html").read_text()
    assert re.findall(r'(?:src|href)="(?!\./)', page) == []
    assert re.findall(r"<style|<script(?![^>]* src=)| style=| on\w+=", page) == []
    styles = (STATIC / "style.css").read_text()
    assert re.findall(r"@import|url\((?!data:)", styles) == []


def test_the_page_is_small_and_names_what_is_compiled_in() -> None:
    assert sum(each.stat().st_size for each in STATIC.iterdir()) < 450_000
    licences = (STATIC / "licences.txt").read_text()
    assert [name for name in ("preact", "@preact/signals", "uplot") if f"\n{name} " not in f"\n{licences}"] == []


def test_exact_versions_are_pinned_without_addresses() -> None:
    package = json.loads((UI / "package.json").read_text())
    versions = {**package["dependencies"], **package["devDependencies"]}
    assert {name: version for name, version in versions.items() if not re.fullmatch(r"\d+\.\d+\.\d+", version)} == {}
    assert "://" not in (UI / "package-lock.json").read_text()
