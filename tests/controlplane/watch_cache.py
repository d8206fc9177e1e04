"""Watch cache of one of several API servers over one store: what it shows may come late, as in an HA control plane.

Writes and consistent reads go to the store. A list at resourceVersion "0" and all watches show what the cache has seen,
which is what the store had some seconds ago. kube-apiserver's rules:

* a list at a version that the cache has not reached gets 504 "Too large resource version"
* a watch from such a version waits, and leaves out what the client has
* after a restart the cache is as the store, and its history begins there
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from typing import Any, Unpack

from kubesched.api.kinds import Kind
from kubesched.api.wire import ApiError, ListOptions, ListPage, WatchOptions
from kubesched.base.turns import Steps
from kubesched.cluster.schema import Stored
from kubesched.cluster.store import Store
from kubesched.cluster.store.fields import Filter
from kubesched.cluster.store.table import Change, Table, Watch, initial_events

__all__ = ["Past", "WatchCache"]

#: Seconds by which sums of times may be wrong.
_ROUNDING = 1e-6


class Past:
    """Versions of a store by the time at which they were written."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._times: list[float] = [self._loop.time()]
        self._versions: list[int] = [store.resource_version]
        store.follow(self._changed)

    def _changed(self, item: Stored | None, old: Stored | None) -> None:
        self._times.append(self._loop.time())
        self._versions.append(self._store.resource_version)

    def version(self, seconds: float) -> int:
        """Return the version that the store had some seconds ago."""
        if not seconds:
            return self._store.resource_version
        after = bisect_right(self._times, self._loop.time() - seconds + _ROUNDING)
        return self._versions[max(after, 1) - 1]


class WatchCache:
    """Store as an API server shows it."""

    def __init__(self, store: Store, past: Past) -> None:
        self._store = store
        self._past = past
        self._views: dict[Kind, _View] = {}
        self._by_plural: dict[str, _View] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def lag(self, seconds: float, kind: Kind | None = None) -> None:
        """Show the changes of a kind, or of all kinds, so many seconds late from now on. Time never goes back for it."""
        for view in self._all() if kind is None else [self._view(kind)]:
            view.lag(seconds)

    def restart(self) -> None:
        """Begin again with what the store has, without a history."""
        for view in self._all():
            view.restart()

    def lacks(self, plural: str, version: int) -> bool:
        """Return True if the cache of these objects has not reached a version."""
        view = self._by_plural.get(plural)
        return view is not None and version > view.version

    def _all(self) -> list[_View]:
        return [self._view(kind) for kind, table in self._store.tables.items() if kind == table.kind]

    def _view(self, kind: Kind) -> _View:
        table = self._store.table(kind)
        if table.kind not in self._views:
            view = self._views[table.kind] = _View(self._store, table, self._past)
            self._by_plural[kind.plural] = view
        return self._views[table.kind]

    # -- reading -----------------------------------------------------------------------------------------

    def listing(
        self, kind: Kind, namespace: str = "", *, resource_version_match: str = "", **options: Unpack[ListOptions]
    ) -> Steps[ListPage]:
        """List as the store, but for a list that may be older than the store."""
        wanted = options.get("resource_version", "")
        if wanted and not resource_version_match and not options.get("continue_token"):
            version = self._reached(kind, wanted)
            options = {**options, "resource_version": str(version)}
            resource_version_match = "Exact"
        return self._store.listing(kind, namespace, resource_version_match=resource_version_match, **options)

    def watching(self, kind: Kind, namespace: str = "", **options: Unpack[WatchOptions]) -> Steps[Watch]:
        """Watch what the cache sees. The state that a watch begins with is as new as a list at that version."""
        view, filter_ = self._view(kind), Filter(kind, namespace, options)
        wanted, marker = options.get("resource_version", ""), options.get("send_initial_events", False)
        if wanted not in ("", "0") and not marker:
            version = int(wanted)
            return _LateWatch(view, filter_, view.position_after(version), None, lambda: max(version, view.version))
        version = self._reached(kind, wanted) if wanted else self._store.resource_version
        position = view.position_after(version)
        page = yield from self._store.listing(
            kind,
            namespace,
            label_selector=options.get("label_selector", ""),
            field_selector=options.get("field_selector", ""),
            resource_version=str(version),
            resource_version_match="Exact",
        )
        first = initial_events(kind, page.items, version, marker=marker)
        return _LateWatch(view, filter_, position, first, lambda: max(version, view.version))

    def _reached(self, kind: Kind, wanted: str) -> int:
        """Return the version of the cache.

        Raises:
            ApiError: 504, if it has not reached the wanted one.
        """
        version = self._view(kind).version
        if int(wanted) > version:
            raise ApiError.too_new(int(wanted), version)
        return version


class _View:
    """Table as far as the cache has seen it, for its watches."""

    def __init__(self, store: Store, table: Table, past: Past) -> None:
        self._store = store
        self._table = table
        self._past = past
        self._seconds = 0.0
        self._version = store.resource_version
        self._begin = 0
        self._waiting: dict[Watch, None] = {}
        self._loop = asyncio.get_running_loop()
        table.followers.append(self._changed)

    def lag(self, seconds: float) -> None:
        self._version = self.version
        self._seconds = seconds
        self._wake()

    def restart(self) -> None:
        self._version = self._begin = self._store.resource_version

    @property
    def version(self) -> int:
        """Version up to which the cache has seen everything. It lists anew when the store has forgotten what follows."""
        self._version = max(self._version, self._past.version(self._seconds))
        if self._version < self._table.floor:
            self._version = self._store.resource_version
        return self._version

    def _changed(self, item: Stored | None, old: Stored | None) -> None:
        if self._seconds:
            self._loop.call_later(self._seconds, self._wake)
        else:
            self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for watch in waiting:
            watch.wake()

    # -- for a Watch, as the methods of Table ------------------------------------------------------------

    @property
    def floor(self) -> int:
        return max(self._begin, self._table.floor)

    @property
    def end(self) -> int:
        return self._table.position_after(self.version)

    def since(self, sequence: int, count: int | None = None) -> list[Change] | None:
        seen = max(0, self.end - sequence)
        return self._table.since(sequence, seen if count is None else min(seen, count))

    def position_after(self, version: int) -> int:
        """Return the sequence number of the first change newer than a version.

        Raises:
            ApiError: 410, when changes after that version are no longer known.
        """
        if version < self._begin:
            raise ApiError.expired(f"too old resource version: {version} ({self._begin})")
        return self._table.position_after(version)

    def attach(self, watch: Watch) -> None:
        self._table.attach(watch)

    def detach(self, watch: Watch) -> None:
        self._table.detach(watch)
        self._waiting.pop(watch, None)

    def wait_for_change(self, watch: Watch) -> None:
        self._waiting[watch] = None


class _LateWatch(Watch):
    """Watch that may have begun after what its cache has seen."""

    def __init__(self, view: _View, *rest: Any) -> None:
        super().__init__(view, *rest)  # type: ignore[arg-type]  # it has what a Watch needs of a Table

    @property
    def pending(self) -> bool:
        return self.closed or self.begins or self._is_expired or self.position < self._table.end
