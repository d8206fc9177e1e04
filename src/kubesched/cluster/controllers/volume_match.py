"""Which volume suits a claim. Pure functions over plain data; caller: :mod:`.volumes`.

Rules: upstream ``pv_controller`` and ``component-helpers/storage/volume``: same class and mode, all access modes,
enough capacity, labels by the claim's selector; the smallest that suits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...api.decode import DecodeError, from_builtins
from ...api.quantity import QuantityError, parse_quantity
from ...api.selectors import Selector, SelectorError, compile_label_selector
from ...api.types import LabelSelector
from ...api.wire import Item

__all__ = ["best_volume", "may_bind"]

Data = dict[str, Any]


def may_bind(volume: Data, claim: Data) -> bool:
    """Whether a volume is free, or set aside for this very claim."""
    reference = volume["spec"].get("claimRef") or {}
    if not reference:
        return True
    metadata = claim["metadata"]
    same = (reference.get("namespace"), reference.get("name")) == (metadata.get("namespace"), metadata["name"])
    return same and reference.get("uid") in (None, "", metadata["uid"])


def best_volume(volumes: Iterable[Item], claim: Data, *, reserved_only: bool = False) -> Item | None:
    """The volume set aside for a claim, or else the smallest that suits.

    ``reserved_only`` leaves the choice among free volumes to the scheduler.
    """
    spec = claim["spec"]
    wanted = _size((spec.get("resources") or {}).get("requests"))
    modes = set(spec.get("accessModes") or ())
    selector = _selector(spec.get("selector"))
    best: tuple[int, str] | None = None
    found: Item | None = None
    for item in volumes:
        data = item.data()
        body = data["spec"]
        if "deletionTimestamp" in data["metadata"] or not may_bind(data, claim):
            continue
        if body.get("claimRef"):
            return item
        if reserved_only or (data.get("status") or {}).get("phase") not in (None, "", "Available"):
            continue
        if (body.get("storageClassName") or "") != (spec.get("storageClassName") or ""):
            continue
        if body.get("volumeMode", "Filesystem") != spec.get("volumeMode", "Filesystem"):
            continue
        if not modes <= set(body.get("accessModes") or ()):
            continue
        if selector is not None and not selector.matches(data["metadata"].get("labels") or {}):
            continue
        size = _size(body.get("capacity"))
        if size >= wanted and (best is None or (size, item.name) < best):
            best, found = (size, item.name), item
    return found


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
