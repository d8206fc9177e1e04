"""Which volume suits a claim, and what binds the two. Pure functions over objects; caller: :mod:`.volumes`.

Rules: upstream ``pv_controller`` and ``component-helpers/storage/volume``: same class and mode, all access modes,
enough capacity, labels by the claim's selector; the smallest that suits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ...api.quantity import QuantityError, QuantityText, parse_quantity
from ...api.selectors import SelectorError, compile_label_selector
from ...api.storage import PersistentVolume, PersistentVolumeClaim, class_of
from ...api.wire import Item

__all__ = ["PV_PROTECTION", "best_volume", "claim_reference", "may_bind", "mismatch"]

PV_PROTECTION: Final = "kubernetes.io/pv-protection"
_FILESYSTEM: Final = "Filesystem"


def claim_reference(claim: Item) -> dict[str, Any]:
    """What a volume says about the claim it is bound to."""
    kind = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    return {**kind, "namespace": claim.namespace, "name": claim.name, "uid": claim.uid}


def may_bind(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether a volume is free, or set aside for this very claim."""
    reference, metadata = volume.spec.claim_ref, claim.metadata
    if reference is None:
        return True
    same = (reference.namespace, reference.name) == (metadata.namespace, metadata.name)
    return same and reference.uid in ("", metadata.uid)


def mismatch(volume: PersistentVolume, claim: PersistentVolumeClaim) -> str:
    """Why a volume cannot be that of a claim, in upstream's words; empty when it can."""
    body, spec = volume.spec, claim.spec
    if volume.metadata.deletion_timestamp is not None:
        return f'the volume is marked for deletion "{volume.name}"'
    if _size(body.capacity) < _size(spec.resources.requests):
        return "requested PV is too small"
    if class_of(volume) != class_of(claim):
        return "storageClassName does not match"
    if (body.volume_attributes_class_name or "") != (spec.volume_attributes_class_name or ""):
        return "volumeAttributesClassName does not match"
    if (body.volume_mode or _FILESYSTEM) != (spec.volume_mode or _FILESYSTEM):
        return "incompatible volumeMode"
    if not set(spec.access_modes) <= set(body.access_modes):
        return "incompatible accessMode"
    return ""


def best_volume(reserved: Iterable[Item], free: Iterable[Item], claim: PersistentVolumeClaim) -> Item | None:
    """The volume reserved for a claim, or else the smallest free one that suits."""
    for item in reserved:
        volume: PersistentVolume = item.typed
        if volume.metadata.deletion_timestamp is None and volume.spec.claim_ref and may_bind(volume, claim):
            return item
    try:
        selector = compile_label_selector(claim.spec.selector) if claim.spec.selector is not None else None
    except SelectorError:
        return None  # a selector that cannot be read matches nothing
    found: list[tuple[int, str, Item]] = []
    for item in free:
        volume = item.typed
        if volume.status.phase not in ("", "Available") or mismatch(volume, claim):
            continue
        if selector is None or selector.matches(volume.metadata.labels):
            found.append((_size(volume.spec.capacity), item.name, item))
    return min(found, key=lambda one: one[:2])[2] if found else None


def _size(amounts: Mapping[str, QuantityText]) -> int:
    try:
        return parse_quantity(amounts.get("storage", "0")).nanos
    except QuantityError:
        return 0
