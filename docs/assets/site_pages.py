"""Hooks of the site for files outside of ``docs``. Called by MkDocs (``mkdocs.yml``).

CONTRIBUTING.md and CHANGELOG.md become pages. Links are written for readers of the repository, and are changed here for readers of
the site.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_ROOT: Final = Path(__file__).parents[2]
#: File of the repository to page of the site.
_PAGES: Final = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "README.md": "index.md"}
_LONG_NAME: Final = re.compile(r"[\w/.]{16,}")
_BREAK: Final = re.compile(r"(?<=\w[_/])|(?<=[a-z\d])(?=[A-Z])")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files that are no page of ``docs``."""
    for name, page in _PAGES.items():
        if files.get_file_from_path(page) is None:
            text = (_ROOT / name).read_text(encoding="utf-8")
            files.append(File.generated(config, page, content=re.sub(r"\]\(docs/", "](", text)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links that leave ``docs`` into links to pages of the site, or into the name of the file."""

    def inside(link: re.Match[str]) -> str:
        text, name = link.groups()
        return f"[{text}]({_PAGES[name]})" if name in _PAGES else f"{text} (`{name}`)"

    in_folder = "/" in page.file.src_uri  # its links with .. stay in docs
    return markdown if in_folder else re.sub(r"\[([^]]+)\]\(\.\./([^)#]+)\)", inside, markdown)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Let long names in tables break after an underscore or slash, or before a capital. The search has read the page."""

    def breakable(text: re.Match[str]) -> str:
        return _LONG_NAME.sub(lambda name: _BREAK.sub("<wbr>", name[0]), text[0])

    return re.sub(r"<td.*?</td>", lambda cell: re.sub(r">[^<]+", breakable, cell[0]), output, flags=re.DOTALL)
