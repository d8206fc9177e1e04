"""Files of the page: compiled from the folder ``ui`` of the checkout, read into memory once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath
from typing import Final

__all__ = ["StaticFile", "static_files"]

_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".map": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
#: Folder whose files have the hash of their content in their names.
_HASHED: Final = "assets/"
#: Page in place of one that was not compiled.
_MISSING: Final = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>kubesched</title>"
    "<p>The page is not part of this installation: in a checkout, compile it with <code>make ui</code>."
)


@dataclass(frozen=True, slots=True)
class StaticFile:
    """File of the page. One that is ``immutable`` has another name when its content changes."""

    body: bytes
    content_type: str
    immutable: bool = False


@cache
def static_files() -> dict[str, StaticFile]:
    """Return the files by their path below ``/ui/``; the page itself is ``index.html``."""
    found = dict(_below(files("kubesched.dashboard").joinpath("static"), ""))
    found.setdefault("index.html", StaticFile(_MISSING.encode(), _TYPES[".html"]))
    return found


def _below(folder: Traversable, prefix: str) -> list[tuple[str, StaticFile]]:
    if not folder.is_dir():
        return []
    found = []
    for entry in folder.iterdir():
        path = f"{prefix}{entry.name}"
        if entry.is_dir():
            found += _below(entry, f"{path}/")
        elif (kind := _TYPES.get(PurePosixPath(entry.name).suffix)) is not None:
            found.append((path, StaticFile(entry.read_bytes(), kind, path.startswith(_HASHED))))
    return found
