"""Reader of one HTTP/1.1 answer from the pieces that arrive. Bytes in, an :class:`Answer` out.

The parser is llhttp, through httptools. This module does the work that the parser leaves to its user: it skips interim
answers, ends an answer without a length when the connection ends, and limits sizes. Caller: :mod:`.write_connections`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from kubesched.base.extras import needing

with needing("the client of an API server", "server"):
    import httptools

__all__ = ["Answer", "AnswerReader", "UnreadableAnswerError"]

_MOST_HEAD: Final = 64 << 10
_MOST_BODY: Final = 64 << 20


class UnreadableAnswerError(ConnectionError):
    """The bytes that arrived are not an answer in HTTP/1.1, or too long a one."""


class Answer(NamedTuple):
    """One answer. Names of headers are in lower case. ``is_last`` is true if the connection cannot be used again."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_last: bool


class AnswerReader:
    """Reader of one answer. Use another reader for the next."""

    __slots__ = ("_answer", "_body", "_head", "_headers", "_is_in_body", "_parser", "_size", "_wrong")

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        #: Bytes of the head and of the body so far.
        self._head = self._size = 0
        self._is_in_body = False
        self._wrong = ""
        self._answer: Answer | None = None

    def feed(self, data: bytes) -> Answer | None:
        """Take bytes. Return the answer if they complete it.

        Raises:
            UnreadableAnswerError: if the bytes are not an answer.
        """
        if self._answer is not None:
            return self._answer._replace(is_last=True) if data else self._answer
        if not self._is_in_body:
            self._head += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise UnreadableAnswerError("the server changed to another protocol") from None
        except httptools.HttpParserError as error:
            if self._answer is None:
                raise UnreadableAnswerError(f"the server did not answer in HTTP/1.1: {error}: {data[:80]!r}") from None
        if not self._is_in_body and self._answer is None and self._head > _MOST_HEAD:
            self._wrong = f"more than {_MOST_HEAD} bytes of headers"
        if self._wrong:
            raise UnreadableAnswerError(f"the server's answer has {self._wrong}")
        if self._answer is not None:
            del self._parser  # it refers to this reader, and the collector looks for cycles rarely
        return self._answer

    def end(self) -> Answer | None:
        """Take note of the end of the connection. Return the answer if that completes it."""
        lengths = {"content-length", "transfer-encoding"}
        if self._answer is None and self._is_in_body and not lengths & self._headers.keys():
            self.on_message_complete()
            del self._parser  # as in feed
        return self._answer

    # -- called by the parser ------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._answer is not None:  # more than one answer to a request
            self._answer = self._answer._replace(is_last=True)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._answer is None:
            key, text = name.decode("latin-1").lower(), value.decode("latin-1")
            self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text

    def on_headers_complete(self) -> None:
        headers = self._headers
        self._is_in_body = self._parser.get_status_code() >= 200
        if (coding := headers.get("transfer-encoding", "chunked")).lower() != "chunked":
            self._wrong = f"the transfer encoding {coding[:80]!r}"
        self._limit(int(headers.get("content-length", 0)))

    def on_body(self, body: bytes) -> None:
        if self._answer is None:
            self._body.append(body)
            self._size += len(body)
            self._limit(self._size)

    def on_message_complete(self) -> None:
        if not self._is_in_body:
            self._headers, self._head = {}, 0  # an interim answer; another one follows
        elif self._answer is None:
            parser = self._parser
            is_last = not parser.should_keep_alive()
            self._answer = Answer(parser.get_status_code(), self._headers, b"".join(self._body), is_last)

    def _limit(self, size: int) -> None:
        if size > _MOST_BODY:
            self._wrong = f"more than {_MOST_BODY} bytes"
