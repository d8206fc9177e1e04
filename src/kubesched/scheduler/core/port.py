"""Port to an API server: the protocols that the scheduler calls.

``client`` implements them over any transport, real or embedded; the scheduler imports neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from kubesched.api.kinds import Kind
from kubesched.api.storage import PersistentVolume, PersistentVolumeClaim
from kubesched.api.types import Pod, PodCondition
from kubesched.api.wire import Item

from ..framework.interface import Recorder

__all__ = ["Informer", "InformerHandler", "Port", "Recorder"]


class InformerHandler(Protocol):
    """Handler of an informer's changes; called in the event loop, one object after the other."""

    def on_add(self, obj: Any, is_initial: bool) -> None: ...
    def on_update(self, old: Any, new: Any) -> None: ...
    def on_delete(self, obj: Any) -> None: ...


class Informer(Protocol):
    """A local copy of one kind of object, kept current."""

    @property
    def kind(self) -> Kind: ...

    @property
    def behind(self) -> int:
        """Number of objects for which a handler failed. The informer delivers them again."""
        ...

    @property
    def has_synced(self) -> bool:
        """True if the first list was delivered to every handler."""
        ...

    def add_handler(self, handler: InformerHandler) -> None: ...
    def get(self, namespace: str, name: str) -> Any: ...
    def get_by_key(self, key: str) -> Any: ...
    def values(self) -> list[Any]: ...
    def keys(self) -> list[str]: ...
    def show_as(self, view: Callable[[Any], Any]) -> None: ...
    def keep_documents(self, wanted: Callable[[Any], bool]) -> None: ...
    def document(self, key: str) -> bytes | None: ...
    def add_index(self, name: str, function: Callable[[Any], Iterable[str]]) -> None: ...
    def by_index(self, name: str, value: str) -> list[Any]: ...
    async def run(self) -> None: ...
    async def wait_synced(self) -> bool: ...
    def stop(self) -> None: ...


class Port(Protocol):
    """Port for bindings, status patches, deletions, events and informers."""

    @property
    def at_once(self) -> bool:
        """True if writes end at once, without waiting; see :func:`kubesched.base.at_once.begin`."""
        ...

    def informer(self, kind: Kind, field_selector: str = "") -> Informer: ...
    def recorder(self, scheduler_name: str) -> Recorder: ...

    async def is_served(self, kind: Kind) -> bool:
        """Return False if the API server does not know the kind."""
        ...

    async def bind(self, pod: Pod, node_name: str) -> None: ...

    async def read_pod(self, pod: Pod) -> Pod | None:
        """Return exactly this pod, by UID, as the API server has it now; None if it is gone."""
        ...

    def is_written(
        self, pod: Pod, *, condition: PodCondition | None = None, nominated_node_name: str | None = None
    ) -> bool:
        """Return True if :meth:`patch_pod_status` with these arguments would change nothing."""
        ...

    async def patch_pod_status(
        self, pod: Pod, *, condition: PodCondition | None = None, nominated_node_name: str | None = None
    ) -> Item | None:
        """Write a condition and a nomination (None: leave it, "": clear it).

        Return the pod as written, or None when nothing would change.
        """
        ...

    async def bind_volume(self, volume: PersistentVolume) -> PersistentVolume:
        """Write a volume's claimRef and the mark of an automatic binding. Return the volume as written.

        A conflict with another writer is an error.
        """
        ...

    async def select_node(self, claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
        """Write the node that a claim is to be provisioned for. Return the claim as written.

        A conflict with another writer is an error.
        """
        ...

    async def delete_pod(self, pod: Pod) -> bool:
        """Delete exactly this pod, by UID, with its own grace period; False if it is gone already."""
        ...

    async def get_object(self, kind: Kind, namespace: str, name: str) -> Any: ...
    async def create_object(self, kind: Kind, namespace: str, obj: Mapping[str, Any]) -> Any: ...
    async def patch_object(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: Mapping[str, Any],
        *,
        subresource: str = "",
        merge: bool = True,
    ) -> Any: ...
    async def delete_object(self, kind: Kind, namespace: str, name: str, uid: str) -> None: ...
