"""The reading half of the store: tables, get, list in pages, and watch.

The token of a page names the version of the first page and the last key shown, so every page shows one moment. A token of
a version that is no longer known can be traded for one of version -1, which continues at that key with the current state.
Caller: :class:`.store.Store`, which adds the verbs that write.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final, Unpack

import msgspec

from ...api.kinds import CORE_EVENTS, EVENTS, KINDS, Kind
from ...api.turns import Steps, finish
from ...api.wire import ApiError, ListOptions, ListPage
from ..schema import Stored, encode
from .events import new_item
from .fields import Filter, Selectors
from .key_order import Key, Moment
from .table import Table, Watch, initial_events

__all__ = ["BATCH", "Reading"]

#: Objects evaluated in one step of a long list.
BATCH: Final = 1024
#: Changes of events that are kept at most: clients read events soon, and nearly every pod has some.
_EVENT_HISTORY: Final = 1_000
#: The greatest resource version that can be: 64 bits.
_MAX_VERSION: Final = (1 << 64) - 1
_CONTINUE_EXPIRED: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


class Opening(Selectors, total=False):
    """Where a watch begins and what it shows, see :meth:`Reading.watching`. When it ends is left to transports."""

    resource_version: str
    send_initial_events: bool
    timeout_seconds: float | None


class Reading:
    """Tables of every kind and what can be asked of them. One counter numbers the changes of all kinds."""

    def __init__(self, history: int, backlog: int) -> None:
        self._history = history
        self._backlog = backlog
        self._version = 0
        self._tables: dict[Kind, Table] = {}
        for kind in KINDS:
            self.register(kind)
        # One table, two names: see .events.
        self._tables[EVENTS] = self._tables[CORE_EVENTS]

    # -- tables ----------------------------------------------------------------------------------------

    def register(self, kind: Kind) -> None:
        """Serve one more kind (custom resources); a kind already served stays as it is."""
        history = min(self._history, _EVENT_HISTORY) if kind is CORE_EVENTS else self._history
        self._tables.setdefault(kind, Table(kind, history, self._backlog))

    def table(self, kind: Kind) -> Table:
        """The table of a kind.

        Raises:
            ApiError: 404, for a kind the store does not serve.
        """
        table = self._tables.get(kind)
        if table is None:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        return table

    @property
    def tables(self) -> Mapping[Kind, Table]:
        return self._tables

    @property
    def resource_version(self) -> int:
        """The version of the latest change of any kind."""
        return self._version

    def compact(self, kind: Kind | None = None) -> None:
        """Forget the history of one kind or of all: older versions and continue tokens answer 410."""
        for table in [self.table(kind)] if kind is not None else list(self._tables.values()):
            table.compact()

    # -- reading ---------------------------------------------------------------------------------------

    def get(self, kind: Kind, namespace: str, name: str) -> Stored:
        """One object, or 404."""
        item = self.table(kind).objects.get((namespace if kind.namespaced else "", name))
        if item is None:
            raise ApiError.not_found(kind, name)
        return item if kind.group != EVENTS.group else new_item(item)

    def list(
        self, kind: Kind, namespace: str = "", *, resource_version_match: str = "", **options: Unpack[ListOptions]
    ) -> ListPage:
        """:meth:`listing` without a pause."""
        return finish(self.listing(kind, namespace, resource_version_match=resource_version_match, **options))

    def listing(
        self, kind: Kind, namespace: str = "", *, resource_version_match: str = "", **options: Unpack[ListOptions]
    ) -> Steps[ListPage]:
        """Objects in key order. Pages of one list all show the version of the first page.

        The steps are those of a long list; all of it shows the moment of the first step.

        Raises:
            ApiError: 400 for bad selectors or versions, 410 for an expired token (with another one that continues in
                the present) or exact version, 504 for a version that is still in the future.
        """
        table, filter_ = self.table(kind), Filter(kind, namespace, options)
        version, after = self._version, None
        if token := options.get("continue_token", ""):
            version, after = _read_token(token)
            version = self._parse_version(str(version)) if version > 0 else self._version
        else:
            wanted = self._parse_version(options.get("resource_version", ""))
            if resource_version_match == "Exact":
                if not wanted:
                    raise ApiError.bad_request("resourceVersionMatch Exact needs a resourceVersion greater than 0")
                version = wanted
        try:
            moment = table.at(version)
        except ApiError:
            if after is None:
                raise
            raise ApiError.expired(_CONTINUE_EXPIRED, continue_token=_write_token(-1, after)) from None
        return (yield from _make_page(moment, filter_, version, after, options.get("limit", 0)))

    def watch(self, kind: Kind, namespace: str = "", **options: Unpack[Opening]) -> Watch:
        """:meth:`watching` without a pause."""
        return finish(self.watching(kind, namespace, **options))

    def watching(self, kind: Kind, namespace: str = "", **options: Unpack[Opening]) -> Steps[Watch]:
        """Changes after a version; without one, or with ``send_initial_events``, the current state is sent first.

        The steps are those of a long initial state, which shows the moment of the first step.
        ``send_initial_events`` ends that state with the bookmark that streaming lists wait for.

        Raises:
            ApiError: 410 when the version is older than the history, 504 when it is in the future.
        """
        table, filter_ = self.table(kind), Filter(kind, namespace, options)
        version = self._parse_version(options.get("resource_version", ""))
        send_initial_events = options.get("send_initial_events", False)
        if version and not send_initial_events:
            return Watch(table, filter_, table.position_after(version), None, lambda: self._version)
        version, position = self._version, table.end
        page = yield from _make_page(table.present(), filter_, version, None, 0)
        first = initial_events(kind, page.items, version, marker=send_initial_events)
        return Watch(table, filter_, position, first, lambda: self._version)

    def _parse_version(self, text: str) -> int:
        if text in ("", "0"):
            return 0
        if not (text.isascii() and text.isdigit() and len(text) <= 20) or int(text) > _MAX_VERSION:
            shown = text if len(text) <= 40 else f"{text[:40]}..."
            raise ApiError.bad_request(f'invalid resource version "{shown}": must be a number of 64 bits')
        version = int(text)
        if version > self._version:
            details = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}
            message = f"Too large resource version: {version}, current: {self._version}"
            raise ApiError(504, "Timeout", message, {**details, "retryAfterSeconds": 1})
        return version


def _make_page(moment: Moment, filter_: Filter, version: int, after: Key | None, limit: int) -> Steps[ListPage]:
    """The objects after a key that a filter selects, at most ``limit`` unless that is 0.

    All of the page is as it is in the first step.
    """
    moment = moment.within(filter_.namespace)
    start = 0 if after is None else moment.after(after)
    count = len(moment.keys)
    found: list[Stored] = []
    rest = 0
    if limit > 0 and not filter_.selects:
        found, rest = moment.items(start, start + limit), max(0, count - start - limit)
    else:
        if count - start > BATCH:
            moment = moment.kept()
        for place in range(start, count, BATCH):
            if place > start:
                yield
            items = moment.items(place, place + BATCH)
            if filter_.selects:
                items = [item for item in items if filter_.matches(item)]
            found += items
            if 0 < limit < len(found):
                rest = 1  # how many more there are is not said
                del found[limit:]
                break
    page: list[Any] = [new_item(item) for item in found] if filter_.kind.group == EVENTS.group else found
    if not rest:
        return ListPage(page, str(version))
    token = _write_token(version, (found[-1].namespace, found[-1].name))
    return ListPage(page, str(version), token, None if filter_.selects else rest)


class _Token(msgspec.Struct):
    """What a page's token holds: the version, negative for the present, and the last key shown."""

    v: str
    rv: int
    start: Key


def _write_token(version: int, last: Key) -> str:
    return base64.urlsafe_b64encode(encode(_Token("meta.k8s.io/v1", version, last))).rstrip(b"=").decode()


def _read_token(token: str) -> tuple[int, Key]:
    try:
        found = msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)), type=_Token)
    except (ValueError, msgspec.DecodeError):
        found = None
    if found is None or not found.rv:
        raise ApiError.bad_request("continue key is not valid: it must be the token of an earlier page")
    return found.rv, found.start
