"""Cache of claims and volumes for VolumeBinding: an assume cache for each, volumes by class, and waits for changes.

All profiles share one cache, so that no two of them choose the same volume. Source: rules/volumes §2.2.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from kubesched.api.kinds import CLAIMS, NODES, VOLUMES
from kubesched.api.quantity import Quantity, QuantityError, parse_quantity
from kubesched.api.storage import BIND_COMPLETED, PersistentVolume, PersistentVolumeClaim, class_of
from kubesched.api.types import Node, NodeSelector, ObjectReference

from ...framework.interface import Handle
from ..assume_cache import AssumeCache, OnChange
from .capacity import Capacities
from .csi_nodes import CSINodes
from .csi_translation import MIGRATED, TranslationError, translation_of
from .node_affinity import Affinities, Reach

__all__ = [
    "Changes",
    "VolumeCache",
    "VolumeFacts",
    "claim_key",
    "is_fully_bound",
    "requested_storage",
    "required_affinity",
    "volume_capacity",
]

_log = logging.getLogger("kubesched.scheduler.plugins")

#: Texts for an object that cannot be assumed, in upstream's words.
_MISSING: Final = '{what} "{name}" not found'
_STALE: Final = '"{key}" is out of sync (stored: {stored}, assume: {assumed})'


def is_fully_bound(claim: PersistentVolumeClaim) -> bool:
    """True if the PV controller has finished binding the claim."""
    return bool(claim.spec.volume_name) and BIND_COMPLETED in claim.metadata.annotations


def requested_storage(claim: PersistentVolumeClaim) -> Quantity:
    """Storage that a claim requests; 0 when it requests none, or the text is not a quantity."""
    return _quantity(claim, "spec.resources.requests", claim.spec.resources.requests.get("storage"))


def volume_capacity(volume: PersistentVolume) -> Quantity:
    """Size of a volume; 0 when it is not given or is not a quantity."""
    return _quantity(volume, "spec.capacity", volume.spec.capacity.get("storage"))


def _quantity(obj: PersistentVolume | PersistentVolumeClaim, field: str, value: str | float | None) -> Quantity:
    if value is None:
        return Quantity(0)
    try:
        return parse_quantity(value)
    except QuantityError:
        _log.warning("%s: %s.storage %r is not a quantity; it counts as 0", obj.key, field, value)
        return Quantity(0)


def required_affinity(volume: PersistentVolume) -> NodeSelector | None:
    """Return a volume's required node affinity, as written."""
    affinity = volume.spec.node_affinity
    return affinity.required if affinity is not None else None


class VolumeFacts(NamedTuple):
    """Facts of a volume that decide which nodes a pod that is bound to it may use.

    Attributes:
        name: the volume's name.
        reach: the nodes that can reach it.
        plugin: the in-tree plugin of the volume, if it can be migrated to CSI; "" otherwise.
        migrated_reach: the nodes that can reach it where the plugin is migrated.
        problem: reason why it cannot be translated to CSI, which is an error where the plugin is migrated.
    """

    name: str
    reach: Reach
    plugin: str
    migrated_reach: Reach
    problem: str


class VolumeCache:
    """Claims and volumes in their assumed versions, and indexes of the volumes.

    Attributes:
        claims, volumes: the assume caches, by key.
        csi_nodes, capacities: the objects of CSI drivers.
        free: volumes without a claimRef, by class and name.
        reserved: volumes with a claimRef, by the claim's ``namespace/name`` and the volume's name.
    """

    def __init__(self, handle: Handle) -> None:
        self.claims: AssumeCache[PersistentVolumeClaim] = AssumeCache(CLAIMS.plural, _MISSING, _STALE)
        self.volumes: AssumeCache[PersistentVolume] = AssumeCache(VOLUMES.plural, _MISSING, _STALE)
        self.affinities = Affinities()
        self.csi_nodes = CSINodes.of(handle)
        self.csi_nodes.listen(self._wake_all)
        self.capacities = Capacities(handle)
        self.free: dict[str, dict[str, PersistentVolume]] = {}
        self.reserved: dict[str, dict[str, PersistentVolume]] = {}
        self._facts: dict[str, VolumeFacts] = {}
        self._listeners: list[Callable[[PersistentVolume | None, PersistentVolume | None], None]] = []
        self._waiting: dict[str, set[Changes]] = {}
        self.volumes.add_handler(OnChange(self._volume_changed))
        for cache in (self.volumes, self.claims):
            cache.add_handler(OnChange(self._wake))
        handle.watch(VOLUMES.plural, self.volumes)
        handle.watch(CLAIMS.plural, self.claims)
        handle.watch(NODES.plural, _NodeEvents(self._wake_all))

    # -- volumes ---------------------------------------------------------------------------------------

    def listen(self, listener: Callable[[PersistentVolume | None, PersistentVolume | None], None]) -> None:
        """Call ``listener(old, new)`` whenever a volume changes, also by an assumption."""
        self._listeners.append(listener)

    def facts(self, name: str) -> VolumeFacts | None:
        """Return the facts of a bound volume; None when there is no such volume."""
        found = self._facts.get(name)
        if found is None:
            volume = self.volumes.find(name)
            if volume is None:
                return None
            found = self._facts[name] = self.facts_of(volume)
        return found

    def facts_of(self, volume: PersistentVolume) -> VolumeFacts:
        """Compute the facts of a volume."""
        required = required_affinity(volume)
        reach = self.affinities.of(required)
        translation = translation_of(volume.spec)
        if translation is None or translation.plugin not in MIGRATED:
            return VolumeFacts(volume.name, reach, "", None, "")
        try:
            translation.handle(volume.spec, volume.metadata.labels)
            migrated, problem = translation.required_affinity(volume.metadata.labels, required), ""
        except TranslationError as error:
            migrated, problem = None, str(error)
        return VolumeFacts(volume.name, reach, translation.plugin, self.affinities.of(migrated), problem)

    def reach_on(self, facts: VolumeFacts, node_name: str) -> tuple[Reach, str]:
        """Return the nodes that can reach a volume by the rules of one node, and why the volume cannot be translated
        there.
        """
        if facts.plugin and self.csi_nodes.is_migrated(node_name, facts.plugin):
            return facts.migrated_reach, facts.problem
        return facts.reach, ""

    def _volume_changed(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        if old is not None:
            self._facts.pop(old.name, None)
            self._unindex(old)
        if new is not None:
            self._index(new)
        before, after = (None if volume is None else required_affinity(volume) for volume in (old, new))
        if before is not after:
            if before is not None:
                self.affinities.count(before, -1)
            if after is not None:
                self.affinities.count(after, 1)
        for listener in self._listeners:
            listener(old, new)

    def _index(self, volume: PersistentVolume) -> None:
        index, key = self._place(volume)
        index.setdefault(key, {})[volume.name] = volume

    def _unindex(self, volume: PersistentVolume) -> None:
        index, key = self._place(volume)
        group = index.get(key)
        if group is not None:
            group.pop(volume.name, None)
            if not group:
                del index[key]

    def _place(self, volume: PersistentVolume) -> tuple[dict[str, dict[str, PersistentVolume]], str]:
        reference = volume.spec.claim_ref
        if reference is None:
            return self.free, class_of(volume)
        return self.reserved, claim_key(reference)

    # -- waiting ---------------------------------------------------------------------------------------

    def changes(self, keys: Iterable[str]) -> Changes:
        """Subscribe to changes of these claims and volumes, and of any node. The result has to be closed."""
        return Changes(self._waiting, keys)

    def _wake(self, old: Any, new: Any) -> None:
        if self._waiting:
            for waiting in self._waiting.get((old or new).key, ()):
                waiting.wake()

    def _wake_all(self) -> None:
        for group in self._waiting.values():
            for waiting in group:
                waiting.wake()


class Changes:
    """Alarm of one waiter, made by :meth:`VolumeCache.changes`."""

    def __init__(self, waiting: dict[str, set[Changes]], keys: Iterable[str]) -> None:
        self._waiting = waiting
        self._keys: set[str] = set()
        self._event = asyncio.Event()
        for key in keys:
            self.of(key)

    def of(self, key: str) -> None:
        """Add a claim or volume whose changes wake the waiter."""
        self._keys.add(key)
        self._waiting.setdefault(key, set()).add(self)

    def wake(self) -> None:
        self._event.set()

    async def next(self) -> None:
        """Wait for the next change; return at once when there was one since the last call."""
        await self._event.wait()
        self._event.clear()

    def close(self) -> None:
        """Stop being woken."""
        for key in self._keys:
            group = self._waiting[key]
            group.discard(self)
            if not group:
                del self._waiting[key]
        self._keys.clear()


def claim_key(reference: ObjectReference) -> str:
    """Return ``namespace/name`` of the claim that a volume's claimRef names."""
    return f"{reference.namespace}/{reference.name}"


class _NodeEvents:
    """Handler that calls ``wake`` when a node is removed or its labels change, because a wait for volumes may have to
    end then.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def on_add(self, obj: Node, is_initial: bool) -> None:
        return

    def on_update(self, old: Node, new: Node) -> None:
        if old.metadata.labels != new.metadata.labels:
            self._wake()

    def on_delete(self, obj: object) -> None:
        self._wake()
