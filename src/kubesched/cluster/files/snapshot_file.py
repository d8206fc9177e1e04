"""Saved cluster: a file with every object, its UID, version and status, and the cluster's time.

JSON lines: a header, then one object a line, by kind and key. A name that ends in ``.gz`` is compressed. Equal states
at equal times give equal bytes. Dumps made with kubectl are read by :mod:`.dump_import`. Caller: the command line,
which starts a cluster's clock at :attr:`Snapshot.time`, and simulations.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from kubesched.api.kinds import EVENTS, KINDS, Kind
from kubesched.api.selectors import parse_int64
from kubesched.base.times import micro_time, parse_time
from kubesched.base.turns import Steps, finish
from kubesched.base.whole_file import whole_file

from ..admission import STATUS_KINDS
from ..schema import Stored
from ..store import Store

__all__ = ["Snapshot", "SnapshotError", "is_saved_cluster", "newest_moment", "read", "save", "saving"]

FORMAT: Final = "kubesched.io/cluster"
VERSION: Final = 1
#: Bytes written per step, which takes a tenth of a second. Between steps the cluster goes on.
_BYTES_PER_STEP: Final = 8 << 20
#: Latest start of a cluster's clock (the year 9000), in epoch seconds: timestamps have four digits for the year.
_LAST_START: Final = 221_845_392_000.0

#: Fields that record a past moment, in our form of JSON: to the second, and in this millennium.
_PAST: Final = re.compile(
    rb'"(?:acquireTime|completionTime|creationTimestamp|eventTime|finishedAt|firstTimestamp|lastHeartbeatTime'
    rb"|lastObservedTime|lastProbeTime|lastScheduleTime|lastSuccessfulTime|lastTimestamp|lastTransitionTime"
    rb'|lastUpdateTime|renewTime|startTime|startedAt|timeAdded)":"(2[^"]{18})'
)


class SnapshotError(ValueError):
    """File that is not a saved cluster, or that this version cannot read."""


class _Header(msgspec.Struct):
    format: str
    version: int
    resourceVersion: int  # noqa: N815 - as in the API
    objects: int
    #: Time of the cluster when it was saved; None in files of earlier versions.
    time: str | None = None
    #: Kinds that are not built in, as (group, version, kind, plural, namespaced, singular, short names).
    kinds: list[tuple[str, str, str, str, bool, str, tuple[str, ...]]] = []
    statusKinds: list[str] = []  # noqa: N815


class _Owner(msgspec.Struct):
    uid: str = ""


class _Metadata(msgspec.Struct):
    """Metadata that the store relies on."""

    name: str
    uid: str
    resourceVersion: str  # noqa: N815
    namespace: str = ""
    creationTimestamp: str = ""  # noqa: N815
    labels: dict[str, str] | None = None
    ownerReferences: list[_Owner] | None = None  # noqa: N815


class _Line(msgspec.Struct):
    apiVersion: str  # noqa: N815 - the wire's name
    kind: str
    metadata: _Metadata | None = None


_line = msgspec.json.Decoder(_Line).decode


# -- saving ------------------------------------------------------------------------------------------------


def save(store: Store, path: str | Path, *, time: float | None = None) -> int:
    """Save as :func:`saving` does, without pauses."""
    return finish(saving(store, path, time=time))


def saving(store: Store, path: str | Path, *, time: float | None = None) -> Steps[int]:
    """Write everything in a store to a file, in steps. Returns the number of objects.

    The file has the state at the first step.

    An existing file is replaced at the end, in one step. So at any time the file is either the old or the new one. The
    file holds Secrets, so only its owner can read it. Background work (garbage collection) is finished first. The
    restored cluster's clock starts at ``time`` (epoch seconds) or later; the default is the time of the store's clock.

    Raises:
        OSError: when the file cannot be written, or exists and is no regular file.
    """
    store.settle()
    tables = [(kind, table.present().kept()) for kind, table in store.tables.items() if kind == table.kind]
    built_in = set(KINDS)
    header = _Header(
        FORMAT,
        VERSION,
        store.resource_version,
        sum(len(moment.keys) for _, moment in tables),
        micro_time(store.clock.now() if time is None else time),
        [
            (one.group, one.version, one.kind, one.plural, one.namespaced, one.singular, one.short_names)
            for one, _ in tables
            if one not in built_in
        ],
        sorted(store.status_kinds - STATUS_KINDS),
    )
    lines = (moment.objects[key].raw for _, moment in tables for key in moment.keys)
    yield from _write(Path(path), chain((msgspec.json.encode(header),), lines))
    return header.objects


def _write(path: Path, lines: Iterable[bytes]) -> Steps[None]:
    if path.exists() and not path.is_file():
        raise OSError(None, "is there and is no regular file; give another name", str(path))
    with ExitStack() as stack:
        file: BinaryIO | gzip.GzipFile = stack.enter_context(whole_file(path, private=True))
        if path.resolve().suffix == ".gz":
            # No name and no time inside: equal clusters give equal bytes.
            packed = gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0)
            file = stack.enter_context(packed)
        written = 0
        for line in lines:
            file.write(line)
            file.write(b"\n")
            written += len(line)
            if written >= _BYTES_PER_STEP:
                written = 0
                yield


# -- reading -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Saved cluster that has been read and checked.

    Attributes:
        time: the cluster's time when it was saved, in epoch seconds. A clock that starts here or later is ahead of
            every moment that the objects name as past.
    """

    items: list[Stored]
    resource_version: int
    time: float
    kinds: tuple[Kind, ...]
    status_kinds: tuple[str, ...]

    def load_into(self, store: Store) -> None:
        """Replace the contents of a store. Versions and UIDs stay.

        Raises:
            RuntimeError: when the store is already watched.
        """
        for kind in self.kinds:
            store.register(kind)
        store.status_kinds.update(self.status_kinds)
        store.load(self.items, self.resource_version)


def read(path: str | Path) -> Snapshot:
    """Read and check a saved cluster.

    Raises:
        SnapshotError: when the file is not a saved cluster, is damaged, or was written by a later version. The message
            names the file, the line and the object.
        OSError: when the file cannot be read.
    """
    path = Path(path)
    lines = _read_lines(path)
    header = _header(path, lines)
    custom = tuple(Kind(*row, custom=True) for row in header.kinds)
    kinds = {(kind.api_version, kind.kind): kind for kind in (*KINDS, *custom) if kind != EVENTS}
    items: list[Stored] = []
    keys: set[tuple[Kind, str, str]] = set()
    for number, raw in enumerate(lines, 2):
        try:
            item = _item(raw, kinds, header.resourceVersion)
        except SnapshotError as error:
            raise SnapshotError(f"{path}: line {number}: {error}") from None
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise SnapshotError(f"{path}: line {number} is damaged: {error}") from None
        key = (item.kind, item.namespace, item.name)
        if key in keys:
            raise SnapshotError(f"{path}: line {number} is damaged: {item.kind.kind} {item.key} occurs twice")
        keys.add(key)
        items.append(item)
    if len(items) != header.objects:
        what = "is cut short" if len(items) < header.objects else "is damaged"
        raise SnapshotError(f"{path}: {what}: {header.objects} objects were saved, {len(items)} are there")
    return Snapshot(items, header.resourceVersion, _time(path, header, items), custom, tuple(header.statusKinds))


def is_saved_cluster(path: str | Path) -> bool:
    """True if a file begins as a saved cluster does, of any version.

    Raises:
        OSError: when the file cannot be read.
    """
    with closing(_read_lines(Path(path))) as lines, suppress(SnapshotError):
        _header(Path(path), lines, versions=False)
        return True
    return False


def _header(path: Path, lines: Iterator[bytes], *, versions: bool = True) -> _Header:
    first = next(lines, b"")
    if not first:
        raise SnapshotError(f"{path}: is not a saved cluster: it is empty")
    try:
        header = msgspec.json.decode(first, type=_Header)
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise SnapshotError(f"{path}: is not a saved cluster: the first line is no header") from None
    if header.format != FORMAT:
        raise SnapshotError(f"{path}: is not a saved cluster: format {header.format!r}, expected {FORMAT!r}")
    if versions and header.version > VERSION:
        raise SnapshotError(f"{path}: was saved in format version {header.version}; this program reads up to {VERSION}")
    return header


def _item(raw: bytes, kinds: dict[tuple[str, str], Kind], last_version: int) -> Stored:
    """Return the stored object of one line.

    Raises:
        SnapshotError: when its kind is unknown.
        ValueError, msgspec.DecodeError: when the store or its readers could not work with the object.
    """
    if not raw.isascii():
        raw.decode("utf-8")
    line = _line(raw)
    kind, metadata = kinds.get((line.apiVersion, line.kind)), line.metadata
    if kind is None:
        raise SnapshotError(f"{line.apiVersion} {line.kind} is not known here")
    if metadata is None or not metadata.name or not metadata.uid:
        raise ValueError(f"a {line.kind} needs metadata.name and metadata.uid")
    if bool(metadata.namespace) is not kind.namespaced:
        found = f"namespace {metadata.namespace!r}" if metadata.namespace else "no namespace"
        raise ValueError(f"{line.kind} {metadata.name}: has {found}")
    version = metadata.resourceVersion
    number = parse_int64(version) if version.isdigit() else None
    if number is None or not 0 < number <= last_version:
        text = f"metadata.resourceVersion: must be a number from 1 to the header's {last_version}, got {version!r}"
        raise ValueError(f"{line.kind} {metadata.name}: {text}")
    if metadata.creationTimestamp:
        parse_time(metadata.creationTimestamp)
    item = Stored(kind, raw, msgspec.to_builtins(metadata), number)
    if kind.type is not None:
        _ = item.typed  # decoded here, and shared with later readers
    return item


def _time(path: Path, header: _Header, items: list[Stored]) -> float:
    """Return the time when a cluster was saved: the header's, else the newest moment in its objects."""
    if header.time is None:
        return newest_moment(items)
    try:
        time = parse_time(header.time)
    except (ValueError, OverflowError) as error:
        raise SnapshotError(f"{path}: header: time: {error}") from None
    if not 0 <= time <= _LAST_START:
        raise SnapshotError(f"{path}: header: time: {header.time} is not between the years 1970 and 9000")
    return time


def newest_moment(items: Iterable[Stored]) -> float:
    """Return the latest time in any object's fields that record something past, such as its creation.

    It is in epoch seconds, rounded up, and 0 without such a time. Objects of another cluster have times of that
    cluster's clock, which may be ahead of ours.
    """
    for text in sorted({text for item in items for text in _PAST.findall(item.raw)}, reverse=True):
        with suppress(ValueError):  # fields of saved objects may have any text
            return parse_time(f"{text.decode()}Z") + 1.0
    return 0.0


def _read_lines(path: Path) -> Generator[bytes, None, None]:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    try:
        with gzip.open(path) if packed else path.open("rb") as source:
            for line in source:
                yield line.rstrip(b"\n")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise SnapshotError(f"{path}: is damaged: {error}") from None
