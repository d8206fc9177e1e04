"""Citations of the rules, such as ``rules/queue §4.2``: each names a page of ``docs/rules`` and a section there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RULES = ROOT / "docs" / "rules"
FILES = sorted(
    path
    for pattern in ("src/**/*.py", "tests/**/*.py", "bench/*.py", "docs/*.md")
    for path in ROOT.glob(pattern)
    if path != Path(__file__)
)
_GAP = r"(?:\s|\n\s*(?:#:?\s)?)*"
_NUMBER = r"(?:[A-Z]|\d+)(?:\.\d+)*"
_QUIRK = r"(?:[AB]-)?Q?\d+"
_PLACE = rf"§{_NUMBER}(?:{_GAP}quirks?{_GAP}{_QUIRK})?"
_CITATION = re.compile(rf"rules/([a-z-]+)((?:(?:,|{_GAP}and|{_GAP}to)?{_GAP}{_PLACE})+)")
_SECTION = re.compile(rf"§({_NUMBER})(?:{_GAP}quirks?{_GAP}({_QUIRK}))?")
#: Sections of other publications.
_OTHERS = re.compile(r"(?:RFC \d+|USENIX ATC \d+),? section\s")
#: A section or quirk that names no page.
_ORPHAN = re.compile(r"(?<![\w/])(?:spec(?:ification)? \"|(?:[Ss]ections?|[Qq]uirks?) \d|§)")


def sections_of(page: Path) -> tuple[set[str], dict[str, set[str]]]:
    """Numbers of the headings of a page, and the numbers of the list items of each section, without a leading Q."""
    numbers: set[str] = set()
    items: dict[str, set[str]] = {}
    section = ""
    for line in page.read_text().splitlines():
        if heading := re.match(rf"#+ ({_NUMBER})\.? ", line):
            section = heading[1]
            numbers.add(section)
        elif item := re.match(rf"(\d+)\. |\| ?\**({_QUIRK})\** ?\|", line):
            items.setdefault(section, set()).add((item[1] or item[2]).replace("Q", ""))
    return numbers, items


PAGES = {page.stem: sections_of(page) for page in RULES.glob("*.md")}


def wrong_citations(text: str) -> list[str]:
    """Citations that lead nowhere."""
    wrong = []
    for citation in _CITATION.finditer(text):
        name = citation[1]
        if name not in PAGES:
            wrong.append(f"rules/{name}: there is no such page")
            continue
        numbers, items = PAGES[name]
        for section, quirk in _SECTION.findall(citation[2]):
            if section not in numbers:
                wrong.append(f"rules/{name} has no section {section}")
            elif quirk and quirk.replace("Q", "") not in items.get(section, set()):
                wrong.append(f"rules/{name} §{section} has no quirk {quirk}")
    return wrong


@pytest.mark.parametrize("page", sorted(path.stem for path in RULES.glob("*.md") if path.stem != "index"))
def test_a_page_has_numbered_sections_and_is_listed(page: str) -> None:
    numbers, _ = PAGES[page]
    assert len(numbers) >= 5
    assert f"({page}.md)" in (RULES / "index.md").read_text()


def test_each_citation_leads_to_a_section() -> None:
    wrong = {str(file.relative_to(ROOT)): found for file in FILES if (found := wrong_citations(file.read_text()))}
    assert wrong == {}


def test_sections_are_cited_with_their_page() -> None:
    wrong = {}
    for file in FILES:
        if file.suffix == ".py":
            rest = _OTHERS.sub("", _CITATION.sub("", file.read_text()))
            if found := [rest[match.start() : match.end() + 30] for match in _ORPHAN.finditer(rest)]:
                wrong[str(file.relative_to(ROOT))] = found
    assert wrong == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("rules/queue §4.2 and §5", []),
        ("rules/queue §17 quirk 1", []),
        ("rules/queues §4", ["rules/queues: there is no such page"]),
        ("rules/queue §4.2, §99.1", ["rules/queue has no section 99.1"]),
        ("rules/queue §17 quirk 99", ["rules/queue §17 has no quirk 99"]),
    ],
)
def test_a_citation_that_leads_nowhere_is_found(text: str, found: list[str]) -> None:
    assert wrong_citations(text) == found
