"""Lists: in one answer when they are short, else part by part, so that a long one neither holds the event loop nor is kept whole.

    head ── "items": [ ── part, part, part ── ]        as JSON, indented JSON or YAML; the bytes are those of one piece

A part has the bytes of some objects. Without a length to be said beforehand the answer is sent in chunks; a client that
reads slowly holds up its own answer only. Caller: :mod:`.reading`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from aiohttp import web

from ...api.wire import Item
from ...api.yamltext import to_yaml
from ..schema import encode
from .answers import JSON, YAML, begin_stream, set_headers
from .calls import Call

__all__ = ["BATCH", "answer_parts", "whole"]

#: Objects in one part, some milliseconds of work.
BATCH: Final = 256
#: As YAML, which takes 0.6 ms for a pod.
_YAML_BATCH: Final = 16

_log = logging.getLogger("kubesched.cluster")


def whole(head: Mapping[str, Any], member: str, parts: Iterable[bytes]) -> bytes:
    """The JSON of an object whose last member is the list of these parts."""
    return b'%b,"%b":[%b]}' % (encode(head)[:-1], member.encode(), b",".join(parts))


async def answer_parts(
    call: Call, head: dict[str, Any], member: str, items: Sequence[Item], shape: Callable[[Sequence[Item]], bytes]
) -> web.StreamResponse:
    """A list of objects; ``shape`` gives the JSON of some, with commas between them, and is used until the answer is sent."""
    form = _Yaml if call.form.media_type == YAML else _Indented if call.pretty else _Json
    if len(items) <= form.batch:
        return call.answer(whole(head, member, [shape(items)] if items else []) + b"\n")
    writer = form(head, member)
    response = web.StreamResponse()
    set_headers(response, writer.content_type, call.warnings)
    begun = False
    try:
        for start in range(0, len(items), writer.batch):
            text = writer.part(shape(items[start : start + writer.batch]))
            if not begun:
                await begin_stream(response, call.request)
                await response.write(writer.begin)
                begun = True
            await response.write(writer.between + text if start else text)
            await asyncio.sleep(0)
        await response.write(writer.end)
        await response.write_eof()
    except ConnectionError:
        pass  # the client has disconnected
    except Exception:
        if not begun:
            raise
        # Half an answer cannot become an error any more; without its end the client sees that it is one.
        _log.exception("%s %s failed after the answer had begun", call.request.method, call.request.path)
        if call.request.transport is not None:
            call.request.transport.abort()
    return response


class _Json:
    """How a list is written in parts."""

    content_type = JSON
    batch = BATCH
    between = b","

    def __init__(self, head: dict[str, Any], member: str) -> None:
        self.begin = whole(head, member, [])[:-2]
        self.end = b"]}\n"

    def part(self, raw: bytes) -> bytes:
        return raw


class _Indented(_Json):
    between = b",\n"

    def __init__(self, head: dict[str, Any], member: str) -> None:
        super().__init__(head, member)
        self._frame = b"{%b:[" % encode(member), b"]}"
        self._open, self._close = b"{\n  %b: [\n" % encode(member), b"\n  ]\n}"
        text = msgspec.json.format(encode(head), indent=2)
        self.begin = text.removesuffix(b"\n}") + b",\n" + self._open.removeprefix(b"{\n")
        self.end = self._close + b"\n"

    def part(self, raw: bytes) -> bytes:
        before, after = self._frame
        text = msgspec.json.format(before + raw + after, indent=2)
        return text[len(self._open) : -len(self._close)]


class _Yaml(_Json):
    """Its members are sorted."""

    content_type = YAML
    batch = _YAML_BATCH
    between = b""

    def __init__(self, head: dict[str, Any], member: str) -> None:
        super().__init__(head, member)
        parts = [{name: value for name, value in head.items() if (name < member) is first} for first in (True, False)]
        before, after = (to_yaml(part).encode("utf-8", "surrogatepass") if part else b"" for part in parts)
        self.begin, self.end = b"%b%b:\n" % (before, member.encode()), after

    def part(self, raw: bytes) -> bytes:
        return to_yaml(msgspec.json.decode(b"[%b]" % raw)).encode("utf-8", "surrogatepass")
