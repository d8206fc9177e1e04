"""Get and list over HTTP: bytes as they are stored; tables and metadata when asked for.

Caller: :mod:`.dispatch`. Watches are in :mod:`.watching`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from aiohttp import web

from ...api.turns import Steps, in_turns
from ...api.wire import Item, ListPage
from ..store import Store
from .calls import Call
from .long_answers import answer_parts, whole
from .scaling import SCALES
from .tables import TableMaker, metadata_only

__all__ = ["Shape", "answer_list", "answer_object", "answer_scale", "get_object", "list_objects"]


def get_object(store: Store, call: Call) -> web.Response:
    """One object, in the form asked for."""
    item = store.get(call.resource.kind, call.target.namespace, call.target.name)
    return answer_object(store, call, item)


def answer_object(store: Store, call: Call, item: Item, status: int = 200) -> web.Response:
    """An object as answer to a read or a write."""
    return call.answer(Shape(store, call).object(item), status)


def answer_scale(store: Store, call: Call, scale: Item) -> web.Response:
    """A Scale, in the form asked for."""
    return answer_object(store, replace(call, resource=SCALES), scale)


class Shape:
    """The form in which one request wants its objects: as they are stored, as tables, or their metadata."""

    def __init__(self, store: Store, call: Call) -> None:
        self._store, self._resource, self._version = store, call.resource, call.form.version
        self.is_plain = not call.form.transform
        self.tables = TableMaker(call) if call.form.transform == "Table" else None

    def object(self, item: Item, *, headers: bool = True) -> bytes:
        """One object; ``headers``: a table has its columns."""
        if self.is_plain:
            return self._resource.outward(item.raw)
        if self.tables is None:
            return metadata_only(item.raw, self._version)
        head = self.tables.head({"resourceVersion": str(item.resource_version)}, headers=headers)
        return whole(head, "rows", [self.tables.rows([item], self._store.clock.now())])


async def list_objects(store: Store, call: Call) -> web.StreamResponse:
    """A page of objects. A long one lets others have their turn; it shows one moment all the same."""
    call.query.check_list(watch=False)
    return await answer_list(store, call, await in_turns(read_page(store, call)))


def read_page(store: Store, call: Call) -> Steps[ListPage]:
    """The page a list request asks for; a name in the path is a field selector here."""
    query, target = call.query, call.target
    version, match = query.text("resourceVersion"), query.text("resourceVersionMatch")
    limit, token = max(0, query.number("limit") or 0), query.text("continue")
    if token:
        version = match = ""
    elif version == "0":
        limit = 0  # as from upstream's watch cache, which does not page
    elif version and limit and not match:
        match = "Exact"  # upstream's older rule: a limited list at a version means that very version
    return store.listing(
        call.resource.kind,
        target.namespace,
        label_selector=query.text("labelSelector"),
        field_selector=query.text("fieldSelector"),
        limit=limit,
        continue_token=token,
        resource_version=version,
        resource_version_match=match,
    )


async def answer_list(store: Store, call: Call, page: ListPage) -> web.StreamResponse:
    """A page as a list, a table, or bare metadata."""
    resource, form = call.resource, call.form
    metadata: dict[str, Any] = {"resourceVersion": page.resource_version}
    if page.continue_token:
        metadata["continue"] = page.continue_token
    if page.remaining is not None:
        metadata["remainingItemCount"] = page.remaining
    if form.transform == "Table":
        tables, now = TableMaker(call), store.clock.now()
        return await answer_parts(call, tables.head(metadata), "rows", page.items, lambda part: tables.rows(part, now))
    if form.transform:
        version = form.version or "v1"
        head = {"kind": "PartialObjectMetadataList", "apiVersion": f"meta.k8s.io/{version}", "metadata": metadata}
        shape: Callable[[bytes], bytes] = lambda raw: metadata_only(raw, version)  # noqa: E731
    else:
        head = {"kind": f"{resource.kind.kind}List", "apiVersion": resource.api_version, "metadata": metadata}
        shape = resource.outward
    return await answer_parts(call, head, "items", page.items, lambda part: b",".join([shape(one.raw) for one in part]))
