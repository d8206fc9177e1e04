"""Request bodies: read within limits of size, memory and time, then decoded: JSON and YAML with positions, protobuf.

Only bytes that have arrived count against the memory for all bodies. A request that is opened and left half-sent
therefore costs almost nothing, and ends at the time limit. Callers: :mod:`.server` reads, the verb modules decode.
Unknown fields are found by :mod:`.writing`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from aiohttp import web

from kubesched.api.documents import Document, TextError, TooManyValuesError
from kubesched.api.jsontext import check_values
from kubesched.api.wire import ApiError
from kubesched.api.yamltext import parse_json, parsing_single
from kubesched.base.turns import Steps, finish, in_turns

__all__ = ["PROTOBUF", "Intake", "decode_body", "is_decodable", "media_type", "unsupported"]

#: Upstream's limit for a JSON body.
MAX_BODY: Final = 3 * 1024 * 1024
#: Most members and items in all objects and lists of a body. Checks, defaults and encoding take time for each value,
#: and must not block the event loop for long. The largest objects of real clusters have a tenth of these.
MAX_VALUES: Final = 50_000
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
#: Most bytes of YAML that are decoded without a pause.
_LONG_YAML: Final = 16 * 1024
_YAML: Final = frozenset({"application/yaml", "text/yaml", "application/x-yaml", "application/apply-patch+yaml"})


def media_type(content_type: str, default: str = "application/json") -> str:
    """Return the media type of a Content-Type header, without parameters."""
    return content_type.split(";", 1)[0].strip().lower() or default


def is_decodable(kind: str) -> bool:
    """True if bodies of a media type can be decoded here."""
    return kind in ("application/json", "*/*", PROTOBUF) or kind in _YAML or kind.endswith("+json")


def unsupported(*accepted: str) -> ApiError:
    """Return 415 for a body that has none of the accepted types (all that can be decoded here, if none is given)."""
    text = ", ".join(accepted or ("application/json", "application/yaml", PROTOBUF))
    message = f"the body of the request was in an unknown format - accepted media types include: {text}"
    return ApiError(415, "UnsupportedMediaType", message)


def decode_body(raw: bytes, content_type: str) -> Document:
    """Decode a JSON, YAML or protobuf body.

    Raises:
        ApiError: 415 for another media type, 400 with the position for text that does not parse, 413 for more than
            :data:`MAX_VALUES`.
    """
    return finish(_decoding(raw, content_type))


def _decoding(raw: bytes, content_type: str) -> Steps[Document]:
    """Decode as :func:`decode_body`, with pauses in YAML, which takes a hundred times as long as JSON."""
    kind = media_type(content_type)
    if not is_decodable(kind):
        raise unsupported()
    try:
        if kind == PROTOBUF:
            from .protobuf import decode_protobuf  # noqa: PLC0415 - its runtime is only loaded for clients that send it

            return Document(decode_protobuf(raw, MAX_VALUES))
        if kind not in _YAML:
            return parse_json(raw, most_values=MAX_VALUES)
        if raw.startswith(b"{"):  # clients send JSON as YAML
            with suppress(TextError):
                return parse_json(raw, most_values=MAX_VALUES)
        document = yield from parsing_single(raw, most_nodes=2 * MAX_VALUES)
        check_values(document.data, MAX_VALUES)  # counted again: aliases repeat values
        return document
    except TooManyValuesError as error:
        raise ApiError(413, "RequestEntityTooLarge", f"Request entity too large: {error}") from None
    except TextError as error:
        is_yaml = kind in _YAML
        problem = "error converting YAML to JSON: yaml" if is_yaml else "couldn't get version/kind; json parse error"
        raise ApiError.bad_request(f"{problem}: {error}") from None


class Intake:
    """Reader of bodies for one server: at most ``allowance`` bytes at once, and ``seconds`` for each body."""

    def __init__(self, *, allowance: int, seconds: float) -> None:
        self._free = allowance
        self._seconds = seconds
        #: Held while a long text is decoded in steps: its data takes many times the memory of the text.
        self._decoding = asyncio.Lock()
        #: Number of bodies that have begun to arrive and are not complete.
        self.waiting = 0

    async def read(self, request: web.BaseRequest) -> bytes:
        """Return the body of a request.

        Raises:
            ApiError: 400 for a body that cannot be read, 408 for one that takes too long, 413 for one that is too
                large, 429 when too much is being read already.
        """
        if not request.can_read_body:
            return b""
        if (request.content_length or 0) > MAX_BODY:
            raise _too_large()
        try:
            if request.content.is_eof():  # the body is complete already, as nearly always
                return await self._read(request)
            self.waiting += 1
            try:
                async with asyncio.timeout(self._seconds):
                    return await self._read(request)
            finally:
                self.waiting -= 1
        except TimeoutError:
            text = f"the body of the request was not complete after {self._seconds:g} seconds"
            raise ApiError(408, "Timeout", text) from None
        except web.RequestPayloadError as error:
            # Chunks or a compression that are malformed.
            what = str(error).rpartition("message:")[2].strip().split("\n", 1)[0] or "it ends too early"
            raise ApiError.bad_request(f"the body of the request cannot be read: {what[:200]}") from None

    async def decode(self, raw: bytes, content_type: str) -> Document | None:
        """Decode a long body in YAML while other requests have their turns; None for other bodies, which are quick.

        Raises:
            ApiError: as :func:`decode_body`.
        """
        if len(raw) < _LONG_YAML or media_type(content_type) not in _YAML:
            return None
        async with self._decoding:
            return await in_turns(_decoding(raw, content_type))

    async def _read(self, request: web.BaseRequest) -> bytes:
        parts: list[bytes] = []
        held = 0
        try:
            while part := await request.content.readany():
                if held + len(part) > MAX_BODY:
                    raise _too_large()
                if len(part) > self._free:
                    text = "too many request bodies are being read; try again later"
                    raise ApiError(429, "TooManyRequests", text, {"retryAfterSeconds": 1})
                self._free -= len(part)
                held += len(part)
                parts.append(part)
            return b"".join(parts)
        finally:
            self._free += held


def _too_large() -> ApiError:
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {MAX_BODY}")
