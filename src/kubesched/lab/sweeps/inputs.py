"""Digest of everything that a run's result depends on. When it changes, a former result is not used again.

It covers kubesched's version, the function, the run's arguments, and the content of files and directories: every text
or path among the arguments that exists is read, and those that a file of events or arrivals names. Callers: :mod:`.running`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

from kubesched import __version__
from kubesched.api.documents import TextError
from kubesched.api.yamltext import read_single
from kubesched.cluster.files import ManifestError, read_text

from .plan import Run

__all__ = ["Digests"]

#: Most bytes that are read. A larger file counts by size and time of change. In a larger directory, only the first
#: files by name count.
_LARGEST: Final = 64 << 20
_MOST_FILES: Final = 10_000
#: Most bytes of a file of events or arrivals in which names of files are looked for.
_LARGEST_NAMING: Final = 1 << 20


class Digests:
    """Digests of runs of one function. Every file is read once."""

    def __init__(self, function: str) -> None:
        self._function = function
        self._contents: dict[str, str] = {}
        self._inside: dict[str, frozenset[str]] = {}

    def of(self, run: Run) -> str:
        named = {*_paths(run.arguments), *_paths(self._function.rpartition(":")[0])}
        paths = sorted(named.union(*map(self._named_inside, named)))
        contents = [(path, self._content(path)) for path in paths]
        whole = (__version__, self._function, run.arguments, contents)
        encoded = msgspec.json.encode(whole, order="sorted", enc_hook=_opaque)
        return hashlib.sha256(encoded).hexdigest()[:16]

    def _named_inside(self, path: str) -> frozenset[str]:
        """Return the files that a file of events or arrivals names: configurations and tables."""
        known = self._inside.get(path)
        if known is None:
            known = self._inside[path] = _named_inside(Path(path))
        return known

    def _content(self, path: str) -> str:
        known = self._contents.get(path)
        if known is None:
            known = self._contents[path] = _content(Path(path))
        return known


def _opaque(value: Any) -> str:
    """Return a path as its text. For any other value that is not plain data, return the name of its type."""
    return str(value) if isinstance(value, Path) else f"<{type(value).__module__}.{type(value).__qualname__}>"


def _paths(value: Any) -> Iterator[str]:
    """Yield texts and paths in a value that are names of files or directories."""
    if isinstance(value, Mapping):
        for part in value.values():
            yield from _paths(part)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for part in value:
            yield from _paths(part)
    elif isinstance(value, str | Path) and str(value) and os.path.exists(value):  # noqa: PTH110 - Path.exists raises for texts that are no path
        yield str(value)


def _named_inside(place: Path) -> frozenset[str]:
    if place.suffix not in (".yaml", ".yml", ".json") or not place.is_file() or place.stat().st_size > _LARGEST_NAMING:
        return frozenset()
    try:
        document = read_single(read_text(place), str(place))
    except (TextError, ManifestError):  # the run names what is wrong with it
        return frozenset()
    is_naming = isinstance(document, Mapping) and document.get("kind") in ("Events", "Arrivals")
    return frozenset(_paths(document)) if is_naming else frozenset()


def _content(place: Path) -> str:
    whole = hashlib.sha256()
    for file in islice(_files(place), _MOST_FILES):
        whole.update(os.fsencode(file.relative_to(place)) + b"\0")
        try:
            about = file.stat()
            if about.st_size > _LARGEST:
                whole.update(f"{about.st_size} {about.st_mtime_ns}".encode())
            else:
                whole.update(hashlib.sha256(file.read_bytes()).digest())
        except OSError as error:
            whole.update(f"{error.errno}".encode())
    return whole.hexdigest()


def _files(place: Path) -> Iterator[Path]:
    """Yield the regular files of a directory, always in the same order; for a file, the file itself."""
    if place.is_file():
        yield place
    for directory, below, names in os.walk(place):
        below[:] = sorted(name for name in below if name != "__pycache__")
        for name in sorted(names):
            file = Path(directory, name)
            if file.is_file():
                yield file
