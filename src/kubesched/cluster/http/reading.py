"""Get and list over HTTP: bytes as they are stored; tables and metadata when asked for.

A list is one answer when it is short. A long one is sent part by part, so that it neither holds the event loop nor is
kept whole:

    head ── "items": [ ── part, part, part ── ]        as JSON, indented JSON or YAML; the bytes are those of one piece

A part has the bytes of some objects. Without a length to be said beforehand the answer is sent in chunks; a client that
reads slowly holds up its own answer only. Caller: :mod:`.dispatch`. Watches are in :mod:`.watching`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import web

from ...api.turns import Steps, in_turns
from ...api.wire import Item, ListPage
from .answers import begin_stream, set_headers, whole
from .calls import Call
from .tables import form_of

__all__ = ["answer_list", "answer_object", "list_objects", "read_page"]

_log = logging.getLogger("kubesched.cluster")


def answer_object(call: Call, item: Item, status: int = 200) -> web.Response:
    """An object as answer to a read or a write, in the form asked for."""
    return call.answer(form_of(call).object(item), status)


async def list_objects(call: Call) -> web.StreamResponse:
    """A page of objects. A long one lets others have their turn; it shows one moment all the same."""
    call.query.check_list(watch=False)
    return await answer_list(call, await in_turns(read_page(call)))


def read_page(call: Call) -> Steps[ListPage]:
    """The page a list request asks for."""
    query = call.query
    version, match = query.text("resourceVersion"), query.text("resourceVersionMatch")
    limit, token = max(0, query.number("limit") or 0), query.text("continue")
    if token:
        version = match = ""
    elif version == "0":
        limit = 0  # as from upstream's watch cache, which does not page
    elif version and limit and not match:
        match = "Exact"  # upstream's older rule: a limited list at a version means that very version
    return call.store.listing(
        call.resource.kind,
        call.target.namespace,
        label_selector=query.text("labelSelector"),
        field_selector=query.text("fieldSelector"),
        limit=limit,
        continue_token=token,
        resource_version=version,
        resource_version_match=match,
    )


async def answer_list(call: Call, page: ListPage) -> web.StreamResponse:
    """A page as a list, a table, or bare metadata."""
    metadata: dict[str, Any] = {"resourceVersion": page.resource_version}
    if page.continue_token:
        metadata["continue"] = page.continue_token
    if page.remaining is not None:
        metadata["remainingItemCount"] = page.remaining
    form = form_of(call)
    return await answer_parts(call, form.head(metadata), form.member, page.items, form.part)


async def answer_parts(
    call: Call, head: dict[str, Any], member: str, items: Sequence[Item], shape: Callable[[Sequence[Item]], bytes]
) -> web.StreamResponse:
    """A list of objects; ``shape`` gives the JSON of some, with commas between them, and is used until the answer is sent."""
    style = call.style
    if len(items) <= style.batch:
        return call.answer(whole(head, member, [shape(items)] if items else []) + b"\n")
    begin, end = style.around(whole(head, member, [b"0"]) + b"\n")
    before, after = style.around(b'{"items":[0]}\n')
    response = web.StreamResponse()
    set_headers(response, style.content_type, call.warnings)
    begun = False
    try:
        for start in range(0, len(items), style.batch):
            text = style.write(b'{"items":[%b]}\n' % shape(items[start : start + style.batch]))
            if not begun:
                await begin_stream(response, call.request)
                begun = True
            await response.write((style.between if start else begin) + text[len(before) : len(text) - len(after)])
            await asyncio.sleep(0)
        await response.write(end)
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
