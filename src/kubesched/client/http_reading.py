"""Reader of an API server's answers: lists, watch events, Status objects. Bytes in, items and errors out.

Of each object only the few fields of an :class:`~kubesched.api.wire.Item` are decoded. Caller: :mod:`.http`.
"""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from kubesched.api.kinds import Kind
from kubesched.api.wire import ApiError, Item, ListPage, Transport, WatchEvent, version_number
from kubesched.base.turns import Steps

__all__ = [
    "MOST_LIST",
    "AnswerTooLongError",
    "Held",
    "error_of",
    "has_cause",
    "held_of",
    "read_events",
    "read_item",
    "reading_list",
    "status_error",
]

#: Most bytes of lists that are being read at one time. 300,000 pods of 5 KB each, as one list, take 1.5 GB.
MOST_LIST: Final = 2 << 30
#: Most characters of a text that a server says of an error.
_MOST_WORDS: Final = 1_000
#: Most bytes of one event. API servers keep objects of 1.5 MiB at most.
_LINE_LIMIT: Final = 16 * 1024 * 1024
#: A list of more bytes is decoded in parts of about this size: 160 MB at once would take 0.1 s.
_PART: Final = 4 * 1024 * 1024
_ITEMS_PER_STEP: Final = 512
_ITEMS: Final = b'"items":['
#: Number of bytes within which the items of a list must begin.
_MOST_HEAD: Final = 64 * 1024


class AnswerTooLongError(ConnectionError):
    """A peer sent more bytes than it may. The connection was closed."""

    def __init__(self, limit: int, what: str = "the answer") -> None:
        super().__init__(errno.EMSGSIZE, f"{what} is longer than {limit} bytes, which is the limit")


class Held:
    """Bytes of answers that are being read, at most ``limit``. All kinds are listed together, and any list may be endless."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes = 0

    @contextmanager
    def share(self) -> Iterator[Callable[[int], None]]:
        """Yield a function that charges bytes until the end of the block.

        Raises (the function):
            AnswerTooLongError: if the bytes of all blocks together would exceed the limit; nothing is charged.
        """
        mine = 0

        def charge(count: int) -> None:
            nonlocal mine
            if self._bytes + count > self._limit:
                raise AnswerTooLongError(self._limit)
            self._bytes += count
            mine += count

        try:
            yield charge
        finally:
            self._bytes -= mine


def held_of(transport: Transport) -> Held:
    """Return the account of a transport's lists, ``transport.held``; a new one if it has none."""
    held: Held | None = getattr(transport, "held", None)
    return held if held is not None else Held(MOST_LIST)


class _Metadata(msgspec.Struct, rename="camel"):
    name: str | None = ""
    namespace: str | None = ""
    uid: str | None = ""
    resource_version: str | None = ""


class _Object(msgspec.Struct):
    kind: str | None = None
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _ListMetadata(msgspec.Struct, rename="camel"):
    resource_version: str | None = ""
    continue_: str | None = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None


class _List(msgspec.Struct):
    metadata: _ListMetadata = msgspec.field(default_factory=_ListMetadata)
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: str = ""
    object: msgspec.Raw = msgspec.Raw(b"{}")


#: Errors of decoding bytes that a peer sent.
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_object = msgspec.json.Decoder(_Object).decode
_list = msgspec.json.Decoder(_List).decode
_event = msgspec.json.Decoder(_Event).decode


def reading_list(kind: Kind, raw: bytes | bytearray) -> Steps[ListPage]:
    """Read a page of a list, in steps: a server may send all objects in one page.

    Raises:
        ApiError: 500, if the bytes are not a list.
    """
    metadata = _ListMetadata()
    items: list[Item] = []
    try:
        for part in _parts(raw):
            metadata = part.metadata
            for item in part.items or ():
                items.append(_item(kind, bytes(item)))
                if len(items) % _ITEMS_PER_STEP == 0:
                    yield
    except _UNREADABLE as error:
        raise _unreadable(f"list of {kind}", error, raw) from None
    return ListPage(items, metadata.resource_version or "", metadata.continue_ or "", metadata.remaining_item_count)


def _parts(raw: bytes | bytearray) -> Iterator[_List]:
    """Yield a list as shorter lists with the same metadata, each of about ``_PART`` bytes except the last.

    A cut is made after a ``}``, where the following bytes equal the beginning of the first item. The cut is used only
    if the part before it is complete JSON. Go's encoder and this project's write such lists; any other list stays
    whole.
    """
    start = raw.find(_ITEMS, 0, _MOST_HEAD) + len(_ITEMS)
    if start < len(_ITEMS) or len(raw) <= _PART:
        yield _list(raw)
        return
    head = raw[:start]
    between = b"}," + raw[start : raw.find(b":", start) + 1]
    while len(raw) - start > _PART:
        end = raw.find(between, start + _PART) + 1
        if not end:
            break
        try:
            part = _list(head + raw[start:end] + b"]}")
        except _UNREADABLE:
            break  # the cut is within an object, or the list is not JSON
        yield part
        start = end + 1
    yield _list(head + raw[start:])


def read_item(kind: Kind, raw: bytes | bytearray) -> Item:
    """Read one object.

    Raises:
        ApiError: 500, if the bytes are not an object.
    """
    try:
        return _item(kind, bytes(raw))
    except _UNREADABLE as error:
        raise _unreadable(str(kind), error, raw) from None


def _item(kind: Kind, raw: bytes) -> Item:
    """Return an item from its bytes. The items of a real server's list lack kind and version, which are added here."""
    found = _object(raw)
    if found.kind is None and len(raw) > 2:
        raw = b'{"kind":"' + kind.kind.encode() + b'","apiVersion":"' + kind.api_version.encode() + b'",' + raw[1:]
    metadata = found.metadata
    return Item(
        kind,
        raw,
        metadata.namespace or "",
        metadata.name or "",
        metadata.uid or "",
        version_number(metadata.resource_version),
    )


async def read_events(kind: Kind, chunks: AsyncIterator[bytes]) -> AsyncIterator[list[WatchEvent]]:
    """Yield the events of a stream, one in each line, in batches as they arrive. A last line cut short is dropped."""
    rest: list[bytes] = []
    held = 0
    async for chunk in chunks:
        end = chunk.rfind(b"\n")
        if end < 0:
            rest.append(chunk)
            held += len(chunk)
            if held > _LINE_LIMIT:
                raise AnswerTooLongError(_LINE_LIMIT, f"watch of {kind}: an event")
            continue
        lines = b"".join((*rest, chunk[:end])).split(b"\n")
        rest, held = [chunk[end + 1 :]], len(chunk) - end - 1
        batch = []
        for line in lines:
            if not line:
                continue
            try:
                event = _event(line)
                if event.type == "ERROR":
                    refusal = status_error(bytes(event.object), 500)
                    break
                batch.append(WatchEvent(event.type, _item(kind, bytes(event.object))))
            except _UNREADABLE as error:
                raise _unreadable(f"watch of {kind}", error, line) from None
        else:
            if batch:
                yield batch
            continue
        if batch:
            yield batch
        raise refusal


def _unreadable(what: str, error: Exception, raw: bytes | bytearray) -> ApiError:
    text = f"{what}: the server's answer cannot be read: {error}; it begins with {bytes(raw[:60])!r}"
    if raw[:1] == b"<":
        text += ". This looks like a page for people: check the server address, and what is between"
    return ApiError(500, "InternalError", text)


def status_error(raw: bytes | bytearray, code: int) -> ApiError:
    """Return the error in a Status. Any other body is quoted.

    Fields with types that a Status does not have are ignored.
    """
    try:
        status = msgspec.json.decode(raw)
    except _UNREADABLE:
        status = None
    if not isinstance(status, dict) or status.get("kind") != "Status":
        text = raw[:256].decode("utf-8", "replace").strip() or "no message"
        return ApiError(code, _REASONS.get(code, "Unknown"), f"the server answered {code}: {text}")
    return error_of(status, code, f"the server answered {code}")


def error_of(status: Mapping[str, Any], code: int, message: str) -> ApiError:
    """Return the error that a Status describes. ``code`` and ``message`` stand in for missing fields."""
    said, reason, text, details = (status.get(name) for name in ("code", "reason", "message", "details"))
    if isinstance(said, int) and 100 <= said < 600:
        code = said
    return ApiError(
        code,
        reason[:_MOST_WORDS] if isinstance(reason, str) and reason else _REASONS.get(code, "Unknown"),
        text[:_MOST_WORDS] if isinstance(text, str) and text else message,
        details if isinstance(details, dict) else None,
    )


def has_cause(error: ApiError, reason: str) -> bool:
    """True if a Status names this reason among its causes."""
    causes = error.details.get("causes")
    return isinstance(causes, list) and any(isinstance(one, dict) and one.get("reason") == reason for one in causes)


_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
