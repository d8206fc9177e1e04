"""Which volume suits a claim, and what binds the two. Pure functions over plain data; caller: :mod:`.volumes`.

Rules: upstream ``pv_controller`` and ``component-helpers/storage/volume``: same class and mode, all access modes,
enough capacity, labels by the claim's selector; the smallest that suits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ...api.decode import DecodeError, from_builtins
from ...api.quantity import QuantityError, parse_quantity
from ...api.selectors import Selector, SelectorError, compile_label_selector
from ...api.types import LabelSelector
from ...api.wire import Item

__all__ = ["PV_PROTECTION", "best_volume", "claim_reference", "class_name", "may_bind", "mismatch"]

Data = dict[str, Any]

PV_PROTECTION: Final = "kubernetes.io/pv-protection"
_BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"


def class_name(data: Data) -> str:
    """The storage class of a claim or volume: the old annotation wins over the field."""
    annotations = data["metadata"].get("annotations") or {}
    return str(annotations.get(_BETA_CLASS, data["spec"].get("storageClassName")) or "")


def claim_reference(claim: Item) -> Data:
    """What a volume says about the claim it is bound to."""
    kind = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    return {**kind, "namespace": claim.namespace, "name": claim.name, "uid": claim.uid}


def may_bind(volume: Data, claim: Data) -> bool:
    """Whether a volume is free, or set aside for this very claim."""
    reference = volume["spec"].get("claimRef") or {}
    if not reference:
        return True
    metadata = claim["metadata"]
    same = (reference.get("namespace"), reference.get("name")) == (metadata.get("namespace"), metadata["name"])
    return same and reference.get("uid") in (None, "", metadata["uid"])


def mismatch(volume: Data, claim: Data) -> str:
    """Why a volume cannot be that of a claim, in upstream's words; empty when it can."""
    body, spec = volume["spec"], claim["spec"]
    if "deletionTimestamp" in volume["metadata"]:
        return f'the volume is marked for deletion "{volume["metadata"]["name"]}"'
    if _size(body.get("capacity")) < _size((spec.get("resources") or {}).get("requests")):
        return "requested PV is too small"
    if class_name(volume) != class_name(claim):
        return "storageClassName does not match"
    if (body.get("volumeAttributesClassName") or "") != (spec.get("volumeAttributesClassName") or ""):
        return "volumeAttributesClassName does not match"
    if body.get("volumeMode", "Filesystem") != spec.get("volumeMode", "Filesystem"):
        return "incompatible volumeMode"
    if not set(spec.get("accessModes") or ()) <= set(body.get("accessModes") or ()):
        return "incompatible accessMode"
    return ""


def best_volume(reserved: Iterable[Item], free: Iterable[Item], claim: Data) -> Item | None:
    """The volume reserved for a claim, or else the smallest free one that suits."""
    for item in reserved:
        data = item.data()
        if "deletionTimestamp" not in data["metadata"] and data["spec"].get("claimRef") and may_bind(data, claim):
            return item
    selector = _selector(claim["spec"].get("selector"))
    found: list[tuple[int, str, Item]] = []
    for item in free:
        data = item.data()
        if (data.get("status") or {}).get("phase") not in (None, "", "Available") or mismatch(data, claim):
            continue
        if selector is None or selector.matches(data["metadata"].get("labels") or {}):
            found.append((_size(data["spec"].get("capacity")), item.name, item))
    return min(found, key=lambda one: one[:2])[2] if found else None


def _size(amounts: Data | None) -> int:
    try:
        return parse_quantity((amounts or {}).get("storage", "0")).nanos
    except QuantityError:
        return 0


def _selector(given: Any) -> Selector | None:
    if not given:
        return None
    try:
        return compile_label_selector(from_builtins(given, LabelSelector))
    except (DecodeError, SelectorError):
        return compile_label_selector(None)  # a selector that cannot be read matches nothing
