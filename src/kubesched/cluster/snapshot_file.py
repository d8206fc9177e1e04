"""A whole embedded cluster in a file, and back: every object with its UID, version and status.

JSON lines: a header, then one object a line, by kind and key. A name that ends in ``.gz`` is compressed. The same
state always gives the same bytes. Dumps made with kubectl are read by :mod:`.dump_import`. Caller: the command line
and simulations.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from ..api.kinds import KINDS, Kind
from .dump_import import Import, import_dump
from .metadata import STATUS_KINDS
from .store import Store

__all__ = ["Import", "SnapshotError", "import_dump", "restore", "save"]

FORMAT: Final = "kubesched.io/cluster"
VERSION: Final = 1


class SnapshotError(ValueError):
    """A file that is no saved cluster, or one that this version cannot read."""


class _Header(msgspec.Struct):
    format: str
    version: int
    resourceVersion: int  # noqa: N815 - as in the API
    objects: int
    #: Kinds that are not built in, as (group, version, kind, plural, namespaced, singular, short names).
    kinds: list[tuple[str, str, str, str, bool, str, tuple[str, ...]]] = []
    statusKinds: list[str] = []  # noqa: N815


class _Line(msgspec.Struct):
    apiVersion: str  # noqa: N815 - the wire's name
    kind: str


_line = msgspec.json.Decoder(_Line).decode


def save(store: Store, path: str | Path) -> int:
    """Write everything in a store to a file; returns how many objects. An existing file is replaced at the end.

    Background work (garbage collection) is finished first.

    Raises:
        OSError: when the file cannot be written.
    """
    store.settle()
    tables = [(kind, table.items()) for kind, table in store.tables.items() if kind == table.kind]
    built_in = set(KINDS)
    header = _Header(
        FORMAT,
        VERSION,
        store.resource_version,
        sum(len(items) for _, items in tables),
        [
            (one.group, one.version, one.kind, one.plural, one.namespaced, one.singular, one.short_names)
            for one, _ in tables
            if one not in built_in
        ],
        sorted(store.status_kinds - STATUS_KINDS),
    )
    _write(Path(path), (msgspec.json.encode(header), *(item.raw for _, items in tables for item in items)))
    return header.objects


def _write(path: Path, lines: Iterable[bytes]) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        if path.suffix == ".gz":
            # No name and no time inside: the same cluster, the same bytes.
            with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0) as packed:
                _write_lines(packed, lines)
        else:
            _write_lines(file, lines)
    os.replace(temporary, path)  # noqa: PTH105 - atomic on every system


def _write_lines(file: Any, lines: Iterable[bytes]) -> None:
    for line in lines:
        file.write(line)
        file.write(b"\n")


def restore(store: Store, path: str | Path) -> int:
    """Replace what is in a store by a saved cluster; returns how many objects. Versions and UIDs stay.

    Raises:
        SnapshotError: when the file is not a saved cluster, is damaged, or comes from a later version.
        RuntimeError: when somebody watches the store already.
        OSError: when the file cannot be read.
    """
    path = Path(path)
    lines = _read_lines(path)
    first = next(lines, b"")
    try:
        header = msgspec.json.decode(first, type=_Header)
    except msgspec.DecodeError:
        raise SnapshotError(f"{path}: is not a saved cluster: the first line is no header") from None
    if header.format != FORMAT:
        raise SnapshotError(f"{path}: is not a saved cluster: format {header.format!r}, expected {FORMAT!r}")
    if header.version > VERSION:
        raise SnapshotError(f"{path}: was saved in format version {header.version}; this program reads up to {VERSION}")
    for group, version, name, plural, namespaced, singular, short in header.kinds:
        store.register(Kind(group, version, name, plural, namespaced, singular, short, custom=True))
    store.status_kinds.update(header.statusKinds)
    kinds = {(kind.api_version, kind.kind): kind for kind, table in store.tables.items() if kind == table.kind}
    items: list[tuple[Kind, bytes]] = []
    for number, raw in enumerate(lines, 2):
        try:
            line = _line(raw)
        except msgspec.DecodeError as error:
            raise SnapshotError(f"{path}: line {number} is damaged: {error}") from None
        kind = kinds.get((line.apiVersion, line.kind))
        if kind is None:
            raise SnapshotError(f"{path}: line {number}: {line.apiVersion} {line.kind} is not known here")
        items.append((kind, raw))
    if len(items) != header.objects:
        raise SnapshotError(f"{path}: is cut short: {header.objects} objects were saved, {len(items)} are there")
    store.load(items, header.resourceVersion)
    return len(items)


def _read_lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    try:
        with gzip.open(path) if packed else path.open("rb") as source:
            for line in source:
                yield line.rstrip(b"\n")
    except (EOFError, gzip.BadGzipFile) as error:
        raise SnapshotError(f"{path}: is damaged: {error}") from None
