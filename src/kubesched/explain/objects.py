"""API objects besides nodes and pods, as explanations read them: claims, volumes, classes, owners, events.

The port :class:`Objects` has two implementations: :class:`InformedObjects` here, for a live scheduler, and the embedded
cluster's store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from kubesched.api.kinds import Kind
from kubesched.scheduler.informers import Informers

__all__ = ["InformedObjects", "Objects"]


class Objects(Protocol):
    """Read access to API objects."""

    def knows(self, kind: Kind) -> bool:
        """Return True if objects of this kind can be read; if False, a missing object means nothing."""
        ...

    def get(self, kind: Kind, namespace: str, name: str) -> Any:
        """Return the typed object, or None. ``namespace`` is empty for kinds of the whole cluster."""
        ...

    def all(self, kind: Kind) -> Iterable[Any]:
        """Return all typed objects of a kind."""
        ...

    def documents(self, kind: Kind, namespace: str) -> Iterable[Mapping[str, Any]]:
        """Return all objects of a kind in a namespace as plain data, in wire names; every namespace if it is empty."""
        ...

    def controller(self, kind: Kind, namespace: str, name: str) -> tuple[str, str] | None:
        """Return kind and name of the controller that owns an object; None if there is none, or it is not known."""
        ...

    def warning(self, namespace: str, uid: str) -> str:
        """Return the newest warning event about an object as ``Reason: message``; empty if there is none."""
        ...


class InformedObjects:
    """Objects that a live scheduler watches: kinds that its plugins need."""

    def __init__(self, informers: Informers) -> None:
        self._informers = informers

    def knows(self, kind: Kind) -> bool:
        return kind.plural in self._informers

    def get(self, kind: Kind, namespace: str, name: str) -> Any:
        return self._informers.objects(kind.plural).get(f"{namespace}/{name}" if namespace else name)

    def all(self, kind: Kind) -> Iterable[Any]:
        return self._informers.objects(kind.plural).values()

    def documents(self, kind: Kind, namespace: str) -> Iterable[Mapping[str, Any]]:
        """Return nothing: a scheduler watches typed objects."""
        return ()

    def controller(self, kind: Kind, namespace: str, name: str) -> tuple[str, str] | None:
        """Return the owner of a ReplicaSet, which the default spread constraints watch; None for other workloads."""
        found = self.get(kind, namespace, name)
        owners = found["metadata"].get("ownerReferences") if isinstance(found, dict) else None
        return next(((owner["kind"], owner["name"]) for owner in owners or () if owner.get("controller")), None)

    def warning(self, namespace: str, uid: str) -> str:
        """Return nothing: a scheduler watches no events."""
        return ""
