"""Get and list over HTTP: bytes as they are stored, joined; tables and metadata when asked for.

Caller: :mod:`.dispatch`. Watches are in :mod:`.watching`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from aiohttp import web

from ...api.turns import Steps, finish, in_turns
from ...api.wire import Item, ListPage
from ..schema import encode
from ..store import Store
from .calls import Call
from .scaling import SCALES
from .tables import BATCH, TableMaker, metadata_only

__all__ = ["Shape", "answer_object", "answer_scale", "get_object", "list_objects"]


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
        metadata = {"resourceVersion": str(item.resource_version)}
        return finish(self.tables.table([item], self._store.clock.now(), metadata, headers=headers))


async def list_objects(store: Store, call: Call) -> web.Response:
    """A page of objects. A long one lets others have their turn; it shows one moment all the same."""
    call.query.check_list(watch=False)
    page = await in_turns(read_page(store, call))
    return call.answer(await in_turns(shape_list(store, call, page)))


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


def shape_list(store: Store, call: Call, page: ListPage) -> Steps[bytes]:
    """A page as a list, a table, or bare metadata."""
    resource, form = call.resource, call.form
    metadata: dict[str, Any] = {"resourceVersion": page.resource_version}
    if page.continue_token:
        metadata["continue"] = page.continue_token
    if page.remaining is not None:
        metadata["remainingItemCount"] = page.remaining
    if form.transform == "Table":
        return (yield from TableMaker(call).table(page.items, store.clock.now(), metadata))
    version = form.version or "v1"
    kind, api_version = f"{resource.kind.kind}List", resource.api_version
    if form.transform:
        kind, api_version = "PartialObjectMetadataList", f"meta.k8s.io/{version}"
    batches: list[bytes] = []
    for start in range(0, len(page.items), BATCH):
        if start:
            yield
        raws = (item.raw for item in page.items[start : start + BATCH])
        batches.append(
            b",".join([metadata_only(raw, version) if form.transform else resource.outward(raw) for raw in raws])
        )
    head = encode({"kind": kind, "apiVersion": api_version, "metadata": metadata})
    return b"".join((head[:-1], b',"items":[', b",".join(batches), b"]}\n"))
