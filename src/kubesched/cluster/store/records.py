"""Tables of all kinds, lists and watches on them, and the last steps of every write.

These steps are version, history, followers and background work. A list is read in pages. The token of a page names the
version of the first page and the last key shown, so every page shows one moment. When that version is no longer known,
the client gets a token of version -1, which continues at that key with the current state. Modules that follow changes
(deletion, quotas, expiry of events) or write in addition to the verbs build on this module; the writing verbs are in
:mod:`.store`.
"""

from __future__ import annotations

import asyncio
import base64
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Unpack

import msgspec

from kubesched.api.jsontext import has_more_containers
from kubesched.api.kinds import CORE_EVENTS, EVENTS, KINDS, Kind
from kubesched.api.wire import ApiError, ListOptions, ListPage, WatchOptions
from kubesched.base.times import Clock, timestamp
from kubesched.base.turns import Steps, finish

from ..schema import Document, Stored, encode, encode_clean, stored
from .events import new_item
from .fields import Filter
from .key_order import Key, Moment
from .table import Follower, Table, Watch, initial_events

__all__ = ["Records"]

#: Most bytes of an object as JSON: etcd's limit of a request.
MOST_BYTES: Final = 3 << 19
#: Most objects and lists within an object: each takes time and memory whenever something reads it.
MOST_OBJECTS: Final = 50_000
#: Bytes below which an object need not be checked for :data:`MOST_OBJECTS`.
_LARGE: Final = 2 * MOST_OBJECTS
#: Objects that background work handles before other tasks get a turn.
STEPS_PER_TURN: Final = 256
#: Objects evaluated in one step of a long list.
BATCH: Final = 1024
#: Most changes of events that are kept: clients read events soon, and nearly every pod has some.
_EVENT_HISTORY: Final = 1_000
#: Greatest possible resource version: 64 bits.
_MAX_VERSION: Final = (1 << 64) - 1
_CONTINUE_EXPIRED: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


class Records:
    """Tables of every kind, and the followers of their changes. One counter numbers the changes of all kinds."""

    def __init__(self, clock: Clock, history: int, backlog: int) -> None:
        self.clock = clock
        self._history = history
        self._backlog = backlog
        self._version = 0
        self._tables: dict[Kind, Table] = {}
        #: Followers, each with a test of the kinds that it follows.
        self._followers: list[tuple[Follower, Callable[[Kind], bool]]] = []
        self._second, self._timestamp = -1, ""
        self._background: deque[Iterator[None]] = deque()
        self._settling = False
        self._turn_is_due = False
        for kind in KINDS:
            self.register(kind)
        # Two names for one table; see .events.
        self._tables[EVENTS] = self._tables[CORE_EVENTS]

    # -- tables ----------------------------------------------------------------------------------------

    def register(self, kind: Kind) -> None:
        """Serve one more kind (custom resources). A kind already served stays as it is."""
        if kind in self._tables:
            return
        history = min(self._history, _EVENT_HISTORY) if kind is CORE_EVENTS else self._history
        table = self._tables[kind] = Table(kind, history, self._backlog)
        table.followers += [follower for follower, of in self._followers if of(kind)]

    def table(self, kind: Kind) -> Table:
        """Return the table of a kind.

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
        """Version of the latest change of any kind."""
        return self._version

    def compact(self, kind: Kind | None = None) -> None:
        """Forget the history of one kind or of all: older versions and continue tokens answer 410."""
        for table in [self.table(kind)] if kind is not None else list(self._tables.values()):
            table.compact()

    def follow(self, follower: Follower, of: Callable[[Kind], bool] = lambda kind: True) -> None:
        """Notify ``follower`` of every change of the kinds that ``of`` accepts, after the present followers."""
        self._followers.append((follower, of))
        for kind, table in self._tables.items():
            if kind == table.kind and of(kind):
                table.followers.append(follower)

    def forget_followers(self) -> None:
        """Drop all followers."""
        self._followers.clear()
        for table in self._tables.values():
            table.followers.clear()

    def now(self) -> str:
        """Return the clock's time as a timestamp."""
        second = int(self.clock.now())
        if second != self._second:
            self._second, self._timestamp = second, timestamp(second)
        return self._timestamp

    # -- reading ---------------------------------------------------------------------------------------

    def get(self, kind: Kind, namespace: str, name: str) -> Stored:
        """Return one object.

        Raises:
            ApiError: 404.
        """
        item = self.table(kind).objects.get((namespace if kind.namespaced else "", name))
        if item is None:
            raise ApiError.not_found(kind, name)
        return item if kind.group != EVENTS.group else new_item(item)

    def list(
        self, kind: Kind, namespace: str = "", *, resource_version_match: str = "", **options: Unpack[ListOptions]
    ) -> ListPage:
        """List as :meth:`listing`, without a pause."""
        return finish(self.listing(kind, namespace, resource_version_match=resource_version_match, **options))

    def listing(
        self, kind: Kind, namespace: str = "", *, resource_version_match: str = "", **options: Unpack[ListOptions]
    ) -> Steps[ListPage]:
        """List objects in key order, in steps for a long list. All pages of a list show the version of the first page.

        The whole page shows the moment of the first step.

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

    def watch(self, kind: Kind, namespace: str = "", **options: Unpack[WatchOptions]) -> Watch:
        """Watch as :meth:`watching`, without a pause."""
        return finish(self.watching(kind, namespace, **options))

    def watching(self, kind: Kind, namespace: str = "", **options: Unpack[WatchOptions]) -> Steps[Watch]:
        """Watch changes after a version; without one, or with ``send_initial_events``, the current state comes first.

        A long initial state takes steps; it shows the moment of the first step. ``send_initial_events`` ends that state
        with the bookmark that streaming lists wait for.

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
            raise ApiError.too_new(version, self._version)
        return version

    # -- the last steps of every write -------------------------------------------------------------------

    def commit(
        self,
        kind: Kind,
        document: Document,
        old: Stored | None = None,
        *,
        dry_run: bool = False,
        same_metadata: bool = False,
        most: float = math.inf,
    ) -> Stored:
        """Give a document the next version, store it and notify watches and followers. For this package.

        ``same_metadata``: the metadata is unchanged, which saves some work. ``most`` is the largest size in bytes for a
        client's write; the server's own writes have no limit.

        Raises:
            ApiError: 413 for an object that has become too large.
        """
        metadata = document["metadata"]
        if dry_run:
            version = 0 if old is None else old.resource_version
            metadata["resourceVersion"] = str(version)
            if old is None:
                del metadata["resourceVersion"]  # an object that is not stored yet has no version
            return _checked_size(Stored(kind, encode_clean(document), metadata, version), old, most)
        version = self._version + 1
        metadata["resourceVersion"] = str(version)
        item = _checked_size(stored(kind, document, version, old, same_metadata=same_metadata), old, most)
        return self.adopt(self._tables[kind], item, old)

    def adopt(self, table: Table, item: Stored, old: Stored | None = None) -> Stored:
        """Store an object in its final form, with the next version; ``old`` is the version before. For this package."""
        self._version = item.resource_version
        table.record("ADDED" if old is None else "MODIFIED", item, old)
        for follow in table.followers:
            follow(item, old)
        return item

    def remove(self, document: Document, old: Stored) -> Stored:
        """Remove an object for good; ``document`` is its last state. For this package."""
        version = self._version + 1
        document["metadata"]["resourceVersion"] = str(version)
        return self.removed(stored(old.kind, document, version, old), old)

    def removed(self, item: Stored, old: Stored) -> Stored:
        """Remove an object; ``item`` is its last state with the next version. For this package."""
        self._version, table = item.resource_version, self._tables[old.kind]
        table.record("DELETED", item, old)
        for follow in table.followers:
            follow(None, old)
        return item

    # -- background work -----------------------------------------------------------------------------------

    def defer(self, work: Iterator[None]) -> None:
        """Queue background work: garbage collection, namespace removal.

        It yields after each object, so that long work does not hold up the event loop. Objects may change between its
        steps, so it has to read each object anew.
        """
        self._background.append(work)

    def settle(self) -> None:
        """Do all background work now. In an event loop this happens by itself on its next turns."""
        self._advance(math.inf)

    def settle_later(self) -> None:
        """Let background work begin on the event loop's next turn; without a loop, do it now."""
        if self._turn_is_due or self._settling or not self._background:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.settle()
        else:
            self._turn_is_due = True
            loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_is_due = False
        try:
            self._advance(STEPS_PER_TURN)
        finally:
            self.settle_later()

    def _advance(self, steps: float) -> None:
        """Do background work, about ``steps`` steps of it."""
        if self._settling:
            return
        self._settling = True
        try:
            while self._background:
                for _ in self._background[0]:
                    steps -= 1
                    if steps <= 0:
                        return
                self._background.popleft()
        finally:
            self._settling = False


def _checked_size(item: Stored, old: Stored | None, most: float) -> Stored:
    """Return an object if its size is allowed, or if it is not larger than before.

    Raises:
        ApiError: 413 otherwise: many small patches could make an object of any size.
    """
    size = len(item.raw)
    if size < _LARGE or most == math.inf or (old is not None and size <= len(old.raw)):
        return item
    why = f"{size} bytes, and at most {most} are" if size > most else ""
    if not why and item.raw.count(b"{") > MOST_OBJECTS and has_more_containers(item.raw, MOST_OBJECTS):
        why = f"more than {MOST_OBJECTS} objects and lists, which are not"
    if why:
        raise ApiError(413, "RequestEntityTooLarge", f"Request entity too large: {item.name} would have {why} stored")
    return item


def _make_page(moment: Moment, filter_: Filter, version: int, after: Key | None, limit: int) -> Steps[ListPage]:
    """Return the objects after a key that a filter selects, at most ``limit`` unless that is 0.

    The whole page shows the moment of the first step.
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
                rest = 1  # the number of remaining objects is not computed
                del found[limit:]
                break
    page: list[Any] = [new_item(item) for item in found] if filter_.kind.group == EVENTS.group else found
    if not rest:
        return ListPage(page, str(version))
    token = _write_token(version, (found[-1].namespace, found[-1].name))
    return ListPage(page, str(version), token, None if filter_.selects else rest)


class _Token(msgspec.Struct):
    """Content of a page's token: the version (negative for the present) and the last key shown."""

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
