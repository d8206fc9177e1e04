"""Reader of a file of decisions, as it is or while it grows. Files are hostile: each step is bounded.

A file may be compressed or plain. Its last line may be torn, as the scheduler may still be writing it or was killed. It
is left out then, with a remark.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final

import msgspec

from .rows import AttemptReader
from .schema import (
    FORMAT,
    FORMAT_VERSION,
    Bound,
    Change,
    Decided,
    Ended,
    Gone,
    Header,
    Nominated,
    Plugins,
    Put,
    Record,
    Tried,
)

__all__ = ["AnyLine", "DecisionsError", "LineReader", "is_decision_file", "read_lines", "read_records"]

AnyLine = Header | Put | Change | Gone | Decided | Nominated | Record

#: Bytes of the longest line. An object of an API server has at most 1.5 MiB, and a record far less.
_LONGEST: Final = 8 << 20
#: Bytes that are read, and that are unpacked, at a time.
_PIECE: Final = 1 << 16
_UNPACKED: Final = 1 << 20
_MAGIC: Final = b"\x1f\x8b"
_RECORD: Final = b'{"type":"record"'
_LINE: Final = b'{"type":"'
_ROW: Final = b"["
#: End of a compressed file to which more can be written: that of an empty block, after each write.
_WHOLE_BLOCK: Final = b"\0\0\xff\xff"
_decode_line: Final = msgspec.json.Decoder(AnyLine).decode
_decode_row: Final = msgspec.json.Decoder(Plugins | Tried | Bound | Ended).decode
_decode_record: Final = msgspec.json.Decoder(Record).decode


class DecisionsError(ValueError):
    """File that is no file of decisions, or is damaged. The text names the file and the line."""


class LineReader:
    """Reader of the lines of a file, which may grow between two calls of :meth:`more`."""

    def __init__(self, path: str | Path) -> None:
        """Open the file.

        Raises:
            OSError: if it cannot be read.
        """
        self.path = Path(path)
        #: Number of the last line that was read.
        self.number = 0
        self._file: BinaryIO = self.path.open("rb")
        self._packed: bool | None = None
        self._unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
        #: Beginning of a line whose end was not read yet.
        self._rest = b""
        self._last = b""

    def __enter__(self) -> LineReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    @property
    def is_replaced(self) -> bool:
        """True if the path names another file by now."""
        try:
            return os.stat(self.path).st_ino != os.fstat(self._file.fileno()).st_ino  # noqa: PTH116 - beside fstat
        except OSError:
            return False

    @property
    def torn(self) -> str:
        """Remark about the end of what was read, with file and line; "" if it ends with a whole line."""
        cut = self._packed and not self._unpacker.eof and not self._last.endswith(_WHOLE_BLOCK)
        if not self._rest and not cut:
            return ""
        return (
            f"{self.path}: line {self.number + 1} is torn and left out: "
            "the scheduler that wrote it was killed, or is still writing"
        )

    def more(self) -> Iterator[bytes]:
        """Yield the whole lines that are there and were not read yet, without their ends.

        Raises:
            DecisionsError: if the file is damaged or a line is too long.
            OSError: if it cannot be read.
        """
        while piece := self._file.read(_PIECE):
            if self._packed is None:
                self._packed = piece.startswith(_MAGIC)
            self._last = (self._last + piece[-len(_WHOLE_BLOCK) :])[-len(_WHOLE_BLOCK) :]
            for part in self._unpack(piece) if self._packed else (piece,):
                yield from self._split(part)

    def _unpack(self, piece: bytes) -> Iterator[bytes]:
        while piece:
            if self._unpacker.eof:  # another member follows
                self._unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
            try:
                yield self._unpacker.decompress(piece, _UNPACKED)
            except zlib.error as error:
                raise DecisionsError(f"{self.path}: line {self.number + 1}: cannot be unpacked: {error}") from None
            piece = self._unpacker.unconsumed_tail or self._unpacker.unused_data

    def _split(self, part: bytes) -> Iterator[bytes]:
        lines = (self._rest + part).split(b"\n")
        self._rest = lines.pop()
        for line in (*lines, None):
            if len(self._rest if line is None else line) > _LONGEST:
                raise DecisionsError(f"{self.path}: line {self.number + 1}: is longer than {_LONGEST >> 20} MiB")
            if line is not None:
                self.number += 1
                yield line


@dataclass(slots=True)
class _Checked:
    """Decoder of the lines of one file, which begins with a header."""

    reader: LineReader
    header: Header | None = None
    attempts: AttemptReader = field(default_factory=AttemptReader)

    def lines(self, raw: bytes) -> Sequence[AnyLine]:
        """Return what a line says: itself; of a row the moment of a decision, its record, both or nothing.

        Raises:
            DecisionsError: if it is none.
        """
        where = f"{self.reader.path}: line {self.reader.number}"
        try:
            if raw.startswith(_ROW) and self.header is not None:
                return self._row(raw, where)
            line: AnyLine = _decode_line(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if self.header is None:
                raise DecisionsError(f"{where}: is no header: this is no file of decisions") from None
            raise DecisionsError(f"{where}: is no line of a file of decisions: {error}") from None
        if self.header is None:
            if not isinstance(line, Header) or line.format != FORMAT:
                raise DecisionsError(f"{where}: is no header: this is no file of decisions")
            if line.format_version > FORMAT_VERSION:
                text = f"format version {line.format_version}; this program reads up to {FORMAT_VERSION}"
                raise DecisionsError(f"{where}: {text}")
            self.header = line
        return (line,)

    def _row(self, raw: bytes, where: str) -> Sequence[Decided | Record]:
        row = _decode_row(raw)
        try:
            return self.attempts.take(row, len(raw))
        except ValueError as error:
            raise DecisionsError(f"{where}: {error}") from None

    def record(self, raw: bytes) -> Record | None:
        """Return the record that a line ends; None for another line."""
        if self.header is not None and raw.startswith(_LINE):
            if not raw.startswith(_RECORD):
                return None
            try:
                return _decode_record(raw)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                pass  # reported below
        return next((line for line in self.lines(raw) if isinstance(line, Record)), None)


def _nothing(remark: str) -> None:
    pass


def read_lines(path: str | Path, *, on_torn: Callable[[str], object] = _nothing) -> Iterator[tuple[int, AnyLine]]:
    """Yield every line with its number, header first. A torn last line is left out; ``on_torn`` gets a remark then.

    Raises:
        DecisionsError: if the file is no file of decisions or is damaged.
        OSError: if it cannot be read.
    """
    with LineReader(path) as reader:
        checked = _Checked(reader)
        for raw in reader.more():
            for line in checked.lines(raw):
                yield reader.number, line
        if checked.header is None:
            raise DecisionsError(f"{path}: line 1: is no header: this is no file of decisions")
        if remark := reader.torn:
            on_torn(remark)


def read_records(
    path: str | Path, *, follow: bool = False, on_torn: Callable[[str], object] = _nothing
) -> Iterator[Record | None]:
    """Yield every record. A torn last line is left out; ``on_torn`` gets a remark then.

    With ``follow`` also those that are written later: None each time that all was read. A file that takes the path's
    place is read next, and a torn line is remarked on when that happens.

    Raises:
        DecisionsError: if the file is no file of decisions or is damaged.
        OSError: if it cannot be read.
    """
    while True:
        with LineReader(path) as reader:
            checked = _Checked(reader)
            while True:
                replaced = follow and reader.is_replaced  # asked first: what was written before is read below
                for raw in reader.more():
                    record = checked.record(raw)
                    if record is not None:
                        yield record
                if not follow and checked.header is None:
                    raise DecisionsError(f"{path}: line 1: is no header: this is no file of decisions")
                if not follow or replaced:
                    if remark := reader.torn:
                        on_torn(remark)
                    break
                yield None
        if not follow:
            return


def is_decision_file(path: Path) -> bool:
    """Return True if a file begins as a file of decisions does.

    Raises:
        OSError: if it cannot be read.
    """
    with LineReader(path) as reader, closing(reader.more()) as lines:  # type: ignore[type-var]
        try:
            raw = next(lines, None)
            return raw is not None and isinstance(_Checked(reader).lines(raw)[0], Header)
        except DecisionsError:
            return False
