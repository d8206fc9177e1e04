"""What the scheduler needs of an API server, stated as small protocols.

``client`` implements them over any transport, real or embedded; the scheduler imports neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from kubesched.api.kinds import Kind
from kubesched.api.types import Pod, PodCondition

__all__ = ["Informer", "InformerHandler", "Port", "Recorder"]


class InformerHandler(Protocol):
    """Receives changes; called in the event loop, one object after the other."""

    def on_add(self, obj: Any, is_initial: bool) -> None: ...
    def on_update(self, old: Any, new: Any) -> None: ...
    def on_delete(self, obj: Any) -> None: ...


class Informer(Protocol):
    """A local copy of one kind of object, kept current."""

    @property
    def behind(self) -> int:
        """How many objects some handler failed on; they are delivered again."""
        ...

    def add_handler(self, handler: InformerHandler) -> None: ...
    def get(self, namespace: str, name: str) -> Any: ...
    def get_by_key(self, key: str) -> Any: ...
    def values(self) -> list[Any]: ...
    def keys(self) -> list[str]: ...
    def add_index(self, name: str, function: Callable[[Any], Iterable[str]]) -> None: ...
    def by_index(self, name: str, value: str) -> list[Any]: ...
    async def run(self) -> None: ...
    async def wait_synced(self) -> bool: ...
    def stop(self) -> None: ...


class Recorder(Protocol):
    """Records events in the name of one profile; returns at once."""

    def record(self, regarding: Any, type: str, reason: str, action: str, note: str, related: Any = None) -> None: ...  # noqa: A002 - upstream's word


class Port(Protocol):
    """Bindings, status patches, events and informers."""

    def informer(self, kind: Kind, field_selector: str = "") -> Informer: ...
    def recorder(self, scheduler_name: str) -> Recorder: ...

    async def bind(self, pod: Pod, node_name: str) -> None: ...

    async def patch_pod_status(
        self, pod: Pod, *, condition: PodCondition | None = None, nominated_node_name: str | None = None
    ) -> bool:
        """Write a condition and a nomination (None: leave it, "": clear it); False when nothing would change."""
        ...
