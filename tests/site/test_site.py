"""The documentation as a site: it builds without a warning, loads nothing from elsewhere, and its pictures are current."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from recordings import DOCS, ROOT, drawing, recorded

#: Attributes whose address a browser loads without being asked, by element. Links to follow are in others.
_LOADS = {
    "audio": "src", "embed": "src", "iframe": "src", "img": "src", "link": "href", "object": "data", "script": "src",
    "source": "src", "video": "src",
}  # fmt: skip
_STYLES = re.compile(r"""(?:url\(\s*|@import\s+)["']?([^"')\s]+)""")


def build(folder: Path, *, config: Path = ROOT / "mkdocs.yml") -> subprocess.CompletedProcess[str]:
    argv = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--site-dir",
        str(folder),
        "--config-file",
        str(config),
    ]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = build(folder)
    assert built.returncode == 0, built.stderr
    return folder


class _Loads(HTMLParser):
    """Addresses that a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag != "link" or given.get("rel") not in ("canonical", "next", "prev"):
            self.found += [value for name, value in attrs if value and name in (_LOADS.get(tag), "srcset", "poster")]
        self.found += _STYLES.findall(given.get("style") or "")


def loads(file: Path) -> list[str]:
    """Addresses that a file of the site has a browser load."""
    text = file.read_text(encoding="utf-8")
    if file.suffix != ".html":
        return _STYLES.findall(text)
    page = _Loads()
    page.feed(text)
    return page.found + [
        url for style in re.findall(r"<style>(.*?)</style>", text, re.S) for url in _STYLES.findall(style)
    ]


def elsewhere(folder: Path) -> Iterator[str]:
    """Addresses that are loaded from elsewhere, or that lead nowhere."""
    for file in sorted(path for path in folder.rglob("*") if path.suffix in (".html", ".css", ".svg")):
        for address in loads(file):
            path = address.partition("#")[0].partition("?")[0]
            # The page of errors is served for every address, so its own are from the root.
            there = folder / path.removeprefix("/") if file.name == "404.html" else file.parent / path
            if not address.startswith("data:") and ("//" in address or not there.exists()):
                yield f"{file.relative_to(folder)}: {address}"


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    assert list(elsewhere(site)) == []


def test_every_page_is_built_and_can_be_searched(site: Path) -> None:
    pages = {page.relative_to(DOCS).with_suffix(".html") for page in DOCS.rglob("*.md")}
    built = {page.relative_to(site) for page in site.rglob("*.html")}
    assert built == pages | {Path("404.html"), Path("changelog.html"), Path("contributing.html")}
    index = (site / "search/search_index.js").read_text(encoding="utf-8")
    assert [str(page) for page in pages if f'"{page}' not in index and page.name != "index.html"] == []


def test_links_to_files_outside_of_the_pages_lead_to_pages_or_are_names(site: Path) -> None:
    pages = {"CHANGELOG.md": "changelog", "CONTRIBUTING.md": "contributing", "README.md": "index"}
    links = [
        (page, name)
        for page in DOCS.glob("*.md")
        for name in re.findall(r"\]\(\.\./([^)#]+)\)", page.read_text(encoding="utf-8"))
    ]
    assert (DOCS / "index.md", "CONTRIBUTING.md") in links
    for page, name in links:
        html = (site / page.name).with_suffix(".html").read_text(encoding="utf-8")
        assert (f'<a href="{pages[name]}.html">' if name in pages else f"<code>{name}</code>") in html
    assert '<a href="tour.html">' in (site / "contributing.html").read_text(encoding="utf-8")


def test_broken_links_and_pages_outside_of_the_navigation_are_refused(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/page.md").write_text("# Page\n[gone](gone.md) [no heading](#nothing) [root](/page.md)\n")
    (tmp_path / "docs/forgotten.md").write_text("# Forgotten\n")
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    text = re.sub(r"^hooks:.*\n", "", text, flags=re.MULTILINE).partition("\nnav:")[0]
    (tmp_path / "mkdocs.yml").write_text(f"{text}\nnav: [page.md, missing.md]\n")
    built = build(tmp_path / "site", config=tmp_path / "mkdocs.yml")
    assert built.returncode == 1
    warnings = "\n".join(line for line in built.stderr.splitlines() if "WARNING" in line)
    for name in ("gone.md", "#nothing", "/page.md"):
        assert f"contains a link '{name}'" in warnings or f"contains an absolute link '{name}'" in warnings
    assert "missing.md" in warnings
    assert re.search(r"WARNING .*not included in the \"nav\" configuration:\n  - forgotten.md", built.stderr)


def test_what_is_loaded_from_elsewhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(
        "<link rel=stylesheet href=//fonts.example/x.css><script src=https://example.com/x.js></script><img src=here.svg>"
        "<a href=https://example.com>a link</a><link rel=next href=https://example.com/next><img src=gone.png>"
        "<style>p { background: url(https://example.com/p.png) }</style>"
    )
    (tmp_path / "here.svg").write_text(
        "<svg><style>@font-face { src: url('https://example.com/f.woff') }</style></svg>"
    )
    assert list(elsewhere(tmp_path)) == [
        "here.svg: https://example.com/f.woff",
        "page.html: //fonts.example/x.css",
        "page.html: https://example.com/x.js",
        "page.html: gone.png",
        "page.html: https://example.com/p.png",
    ]


def test_every_recording_is_in_a_page_and_has_a_command() -> None:
    assert {path.stem for path in (DOCS / "recordings").iterdir()} == recorded().keys()


#: The demo runs in real time and prints how long it took.
@pytest.mark.parametrize("name", [name for name, command in recorded().items() if "demo" not in command])
def test_a_recording_is_what_its_command_prints(name: str) -> None:
    text = (DOCS / "recordings" / f"{name}.svg").read_text(encoding="utf-8")
    assert drawing(name, recorded()[name]) == text, "run: make recordings"
