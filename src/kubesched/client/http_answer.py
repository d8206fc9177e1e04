"""Reads one HTTP/1.1 answer from the pieces that arrive. Bytes in, an :class:`Answer` out.

What a server may send in answer to a write: interim answers, which are skipped, then one with a length, in chunks, or until
the end of the connection. Anything else is an error. Caller: :mod:`.write_connections`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = ["Answer", "AnswerReader", "UnreadableAnswerError"]

_MOST_HEAD: Final = 64 << 10
_MOST_BODY: Final = 64 << 20
_VERSIONS: Final = ("HTTP/1.1", "HTTP/1.0")
_WITHOUT_BODY: Final = (204, 304)
_HEXADECIMAL: Final = frozenset(b"0123456789abcdefABCDEF")


class UnreadableAnswerError(ConnectionError):
    """What arrived is no answer of HTTP/1.1, or too long a one."""


class Answer(NamedTuple):
    """Names of headers are in lower case. ``is_last``: the connection cannot be used again."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_last: bool


class AnswerReader:
    """One answer. Use another reader for the next."""

    __slots__ = ("_at", "_buffer", "_headers", "_is_chunked", "_is_last", "_length", "_parts", "_size", "_status")

    def __init__(self) -> None:
        self._buffer = b""
        self._headers: dict[str, str] | None = None
        self._status = 0
        self._is_last = self._is_chunked = False
        #: The body's length; None when it is chunked or ends with the connection.
        self._length: int | None = None
        #: The chunks read, their size in all, and where the next one begins.
        self._parts: list[bytes] = []
        self._size = self._at = 0

    def feed(self, data: bytes) -> Answer | None:
        """The answer, when these bytes complete it.

        Raises:
            UnreadableAnswerError: when it is none.
        """
        self._buffer = self._buffer + data if self._buffer else data
        if self._headers is None and not self._read_head():
            return None
        if self._is_chunked:
            return self._read_chunks()
        length = self._length
        if length is not None and len(self._buffer) >= length:
            return self._answer(self._buffer[:length], len(self._buffer) == length)
        _limit(len(self._buffer))
        return None

    def end(self) -> Answer | None:
        """The answer, when the end of the connection completes it."""
        if self._headers is None or self._is_chunked or self._length is not None:
            return None
        return self._answer(self._buffer, False)

    def _answer(self, body: bytes, is_all: bool) -> Answer:
        return Answer(self._status, self._headers or {}, body, self._is_last or not is_all)

    def _read_head(self) -> bool:
        """Read the status and the headers, if all of them are there."""
        while True:
            end = self._buffer.find(b"\r\n\r\n")
            if end > _MOST_HEAD or (end < 0 and len(self._buffer) > _MOST_HEAD):
                raise UnreadableAnswerError(f"the server's answer has more than {_MOST_HEAD} bytes of headers")
            if end < 0:
                return False
            first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
            self._buffer = self._buffer[end + 4 :]
            version, _, text = first.partition(" ")
            code = text[:3]
            if version not in _VERSIONS or len(code) < 3 or not (code.isascii() and code.isdigit()):
                raise UnreadableAnswerError(f"the server did not answer in HTTP/1.1: {first[:80]!r}")
            self._status = int(code)
            if 100 <= self._status < 200 and self._status != 101:
                continue
            headers: dict[str, str] = {}
            for line in lines:
                name, colon, value = line.partition(":")
                if not colon:
                    raise UnreadableAnswerError(f"the server's answer has a header without a colon: {line[:80]!r}")
                name, value = name.lower(), value.strip()
                headers[name] = f"{headers[name]}, {value}" if name in headers else value
            self._headers = headers
            self._read_framing(version, headers)
            return True

    def _read_framing(self, version: str, headers: Mapping[str, str]) -> None:
        """How long the body is, and whether another answer may follow it."""
        kept = headers.get("connection", "").lower()
        self._is_last = kept == "close" or (version == "HTTP/1.0" and kept != "keep-alive")
        coding, length = headers.get("transfer-encoding"), headers.get("content-length")
        if self._status in _WITHOUT_BODY:
            self._length = 0
        elif coding is not None:
            if coding.lower() != "chunked":
                raise UnreadableAnswerError(f"the server's answer has the transfer encoding {coding[:80]!r}")
            self._is_chunked = True
        elif length is not None:
            if not (length.isascii() and length.isdigit()):
                raise UnreadableAnswerError(f"the server's answer has the length {length[:80]!r}")
            _limit(int(length))
            self._length = int(length)

    def _read_chunks(self) -> Answer | None:
        buffer = self._buffer
        while True:
            end = buffer.find(b"\r\n", self._at)
            if end < 0:
                _limit(len(buffer) - self._at)
                return None
            digits = buffer[self._at : end].partition(b";")[0].strip()
            if not digits or len(digits) > 8 or not _HEXADECIMAL.issuperset(digits):
                raise UnreadableAnswerError(f"the server's answer has a chunk of the size {digits[:80]!r}")
            size = int(digits, 16)
            if not size:  # trailers may follow, and an empty line does
                end = buffer.find(b"\r\n\r\n", end)
                _limit(len(buffer) - self._at)
                return self._answer(b"".join(self._parts), end + 4 == len(buffer)) if end >= 0 else None
            self._size += size
            _limit(self._size)
            begin, stop = end + 2, end + 2 + size
            if len(buffer) < stop + 2:
                self._size -= size
                return None
            if buffer[stop : stop + 2] != b"\r\n":
                raise UnreadableAnswerError("the server's answer has a chunk longer than its size")
            self._parts.append(buffer[begin:stop])
            self._at = stop + 2


def _limit(size: int) -> None:
    if size > _MOST_BODY:
        raise UnreadableAnswerError(f"the server's answer has more than {_MOST_BODY} bytes")
