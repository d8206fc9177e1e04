"""What hollow kubelets read of the cluster: changes of single objects. Caller: :mod:`.hollow`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final

import msgspec

from ...api.kinds import Kind
from ...api.turns import in_batches
from ...api.wire import Item, Transport
from ...client.reflector import YIELD_INTERVAL, Reflector

__all__ = ["Sink", "pod_ip"]

_log = logging.getLogger("kubesched.cluster")

#: What reading data of other types than expected raises.
_UNREADABLE: Final = (TypeError, ValueError, AttributeError, LookupError, msgspec.DecodeError)


class _PodStatus(msgspec.Struct):
    podIP: str | None = None  # noqa: N815 - the wire's name


class _PodView(msgspec.Struct):
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


_pod_view: Final = msgspec.json.Decoder(_PodView).decode


def pod_ip(pod: Item) -> str:
    """The address of a pod; empty when it has none yet."""
    return _pod_view(pod.raw).status.podIP or ""


class Sink:
    """One kind of object from a reflector, as changes of single objects, for those that select ``fields``.

    ``known`` has the keys of those there are. ``gone`` receives the key, and the final state of an object whose deletion
    was seen; ``note`` what went wrong and is tried again.
    """

    def __init__(
        self,
        client: Transport,
        kind: Kind,
        known: Mapping[str, Any],
        changed: Callable[[Item], None],
        gone: Callable[[str, Item | None], None],
        note: Callable[[str], None],
        rng: Random,
        fields: str = "",
    ) -> None:
        self.kind = kind
        self._known = known
        self._changed = changed
        self._gone = gone
        self._note = note
        self._unread: dict[str, int] = {}  # the version that was last complained of
        self._reflector = Reflector(
            client,
            kind,
            self,
            rng=rng,
            field_selector=fields,
            page_size=0,
            watch_timeout=None,
            on_error=lambda error: note(f"watching {kind}: {error}"),
        )

    async def run(self) -> None:
        """List, then watch, until cancelled."""
        await self._reflector.run()

    async def replace(self, items: list[Item], version: int) -> None:
        """A complete list: what is not in it was deleted."""
        keys: set[str] = set()
        async for part in in_batches(items, YIELD_INTERVAL):
            keys.update(item.key for item in part)
        async for known in in_batches(list(self._known), YIELD_INTERVAL):
            for key in known:
                if key not in keys:
                    self._gone(key, None)
        async for part in in_batches(items, YIELD_INTERVAL):
            for item in part:
                self.upsert(item)

    def upsert(self, item: Item) -> None:
        """An object was added or modified. One that cannot be read, from whatever server, costs no other its kubelet."""
        try:
            self._changed(item)
        except _UNREADABLE as error:
            if self._unread.get(item.key) != item.resource_version:
                self._unread[item.key] = item.resource_version
                text = f"{item.kind.kind} {item.key} at resourceVersion {item.resource_version} is left alone: {error}"
                _log.warning("hollow kubelets: %s", text)
                self._note(text)

    def remove(self, items: Sequence[Item]) -> None:
        """Objects were deleted."""
        for item in items:
            self._gone(item.key, item)
