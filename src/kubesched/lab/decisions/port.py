"""Port of a replay: informers that are filled from a file of decisions, and no server behind them.

Caller: :mod:`.replay`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kubesched.api.kinds import Kind
from kubesched.api.types import Pod
from kubesched.api.wire import ApiError
from kubesched.client.store import Store
from kubesched.scheduler.core.port import InformerHandler

__all__ = ["ReplayInformer", "ReplayPort"]

_log = logging.getLogger("kubesched.decisions")


class ReplayInformer:
    """Informer whose objects are put by the replay. Handlers are called at once."""

    behind = 0

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self._store = Store()
        self._handlers: list[InformerHandler] = []
        self._view: Callable[[Any], Any] = lambda obj: obj

    # -- the replay's side -----------------------------------------------------------------------------

    def put(self, key: str, obj: Any) -> None:
        """Take a new object, or another version of a known one."""
        obj = self._view(obj)
        old = self._store.objects.get(key)
        self._store.put(key, obj)
        for handler in self._handlers:
            if old is None:
                self._call(handler.on_add, obj, False)
            else:
                self._call(handler.on_update, old, obj)

    def remove(self, key: str) -> None:
        """Take the deletion of an object, if it is known."""
        obj = self._store.pop(key)
        if obj is not None:
            for handler in self._handlers:
                self._call(handler.on_delete, obj)

    def _call(self, handle: Callable[..., None], *arguments: Any) -> None:
        try:
            handle(*arguments)
        except Exception:
            _log.exception("a handler of %s failed during the replay", self.kind.plural)

    # -- the scheduler's side --------------------------------------------------------------------------

    def add_handler(self, handler: InformerHandler) -> None:
        self._handlers.append(handler)
        for obj in self.values():
            self._call(handler.on_add, obj, True)

    def get(self, namespace: str, name: str) -> Any:
        return self._store.objects.get(f"{namespace}/{name}" if namespace else name)

    def get_by_key(self, key: str) -> Any:
        return self._store.objects.get(key)

    def values(self) -> list[Any]:
        return list(self._store.objects.values())

    def keys(self) -> list[str]:
        return list(self._store.objects)

    def show_as(self, view: Callable[[Any], Any]) -> None:
        self._view = view

    def keep_documents(self, wanted: Callable[[Any], bool]) -> None:
        """Do nothing: documents are not in the file."""

    def document(self, key: str) -> bytes | None:
        return None

    def add_index(self, name: str, function: Callable[[Any], Iterable[str]]) -> None:
        self._store.add_index(name, function)

    def by_index(self, name: str, value: str) -> list[Any]:
        return self._store.by_index(name, value)

    @property
    def has_synced(self) -> bool:
        return True

    async def run(self) -> None:
        """Do nothing: the replay delivers."""

    async def wait_synced(self) -> bool:
        return True

    def stop(self) -> None:
        """Do nothing."""


class _Silent:
    """Recorder that drops all events."""

    def record(self, regarding: Any, type: str, reason: str, action: str, note: str, related: Any = None) -> None:  # noqa: A002 - upstream's word
        return


class ReplayPort:
    """Port that writes nothing.

    Attributes:
        informers: informers that the scheduler asked for, by the plural of their kind; those of custom kinds, which are
            not in the file, by plural and group.
    """

    at_once = False

    def __init__(self) -> None:
        self.informers: dict[str, ReplayInformer] = {}

    def informer(self, kind: Kind, field_selector: str = "") -> ReplayInformer:
        name = kind.group_resource if kind.custom else kind.plural
        return self.informers.setdefault(name, ReplayInformer(kind))

    def recorder(self, scheduler_name: str) -> _Silent:
        return _Silent()

    async def is_served(self, kind: Kind) -> bool:
        return True

    def is_written(self, pod: Pod, *, condition: Any = None, nominated_node_name: str | None = None) -> bool:
        return True

    async def patch_pod_status(
        self, pod: Pod, *, condition: Any = None, nominated_node_name: str | None = None
    ) -> None:
        return None

    async def bind(self, pod: Pod, node_name: str) -> None:
        raise _refused()

    async def read_pod(self, pod: Pod) -> Pod | None:
        raise _refused()

    async def bind_volume(self, volume: Any) -> Any:
        raise _refused()

    async def select_node(self, claim: Any) -> Any:
        raise _refused()

    async def delete_pod(self, pod: Pod) -> bool:
        raise _refused()

    async def get_object(self, kind: Kind, namespace: str, name: str) -> Any:
        raise _refused()

    async def create_object(self, kind: Kind, namespace: str, obj: Mapping[str, Any]) -> Any:
        raise _refused()

    async def patch_object(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: Mapping[str, Any],
        *,
        subresource: str = "",
        merge: bool = True,
    ) -> Any:
        raise _refused()

    async def delete_object(self, kind: Kind, namespace: str, name: str, uid: str) -> None:
        raise _refused()


def _refused() -> ApiError:
    return ApiError(403, "Forbidden", "a replay of decisions writes nothing")
