"""Changes of claims and classes after which a pod's volumes may fit other nodes, for explanations.

Most fields of a claim cannot be changed once it is made, so these are claims made anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from kubesched.api.kinds import CLAIMS, STORAGE_CLASSES, VOLUMES, Kind
from kubesched.api.storage import (
    BIND_COMPLETED,
    NO_PROVISIONER,
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolumeClaim,
    StorageClass,
    class_of,
)

from ...framework.demand import Change
from .claims import Storage

__all__ = ["claim_changes"]

#: Most classes that are tried.
_MOST: Final = 3
_ONE_POD: Final = "ReadWriteOncePod"


def claim_changes(found: Storage, claim: PersistentVolumeClaim) -> Iterator[Change]:
    """Changes of a claim that may help, the smallest first."""
    name, key = claim.metadata.name, claim.key
    storage_class: StorageClass | None = found.find(STORAGE_CLASSES, class_of(claim)) if class_of(claim) else None
    if _ONE_POD in claim.spec.access_modes:
        words = f"make the claim {name} anew with ReadWriteOnce instead of {_ONE_POD}"
        yield _change(found, words, CLAIMS, key, claim, _shared)
    if BIND_COMPLETED in claim.metadata.annotations and claim.spec.volume_name:
        if storage_class is not None and _is_delayed(storage_class) and found.find(VOLUMES, claim.spec.volume_name):
            words = f"make the claim {name} anew with a new volume ({claim.spec.volume_name} keeps the data)"
            yield _change(found, words, CLAIMS, key, claim, _unbound)
        return
    if storage_class is not None and _is_delayed(storage_class):
        if storage_class.allowed_topologies:
            words = f"make the class {storage_class.name} anew without allowedTopologies"
            yield _change(found, words, STORAGE_CLASSES, storage_class.name, storage_class, _everywhere)
        return
    if not claim.spec.volume_name:
        classes = sorted(filter(_is_delayed, found.objects(STORAGE_CLASSES).values()), key=lambda one: str(one.name))
        for other in classes[:_MOST]:
            words = f"make the claim {name} anew with the class {other.name}, which waits for a pod ({WAIT_FOR_FIRST_CONSUMER})"
            yield _change(found, words, CLAIMS, key, claim, partial(_of_class, other.name))


def _is_delayed(storage_class: StorageClass) -> bool:
    """True if volumes of a class are made where a pod needs them."""
    return storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER and storage_class.provisioner not in (
        "",
        NO_PROVISIONER,
    )


def _change(found: Storage, words: str, kind: Kind, key: str, now: Any, of: Callable[[Any], Any]) -> Change:
    return Change(words, around=partial(found.what_if.changed, kind, key, of, now))


def _shared(claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
    modes = tuple("ReadWriteOnce" if mode == _ONE_POD else mode for mode in claim.spec.access_modes)
    return replace(claim, spec=replace(claim.spec, access_modes=modes))


def _unbound(claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
    return replace(
        claim,
        metadata=replace(claim.metadata, uid=f"{claim.metadata.uid} anew", annotations={}),
        spec=replace(claim.spec, volume_name=""),
        status=replace(claim.status, phase="Pending"),
    )


def _of_class(name: str, claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
    return replace(
        claim,
        metadata=replace(claim.metadata, annotations={}),
        spec=replace(claim.spec, storage_class_name=name),
    )


def _everywhere(storage_class: StorageClass) -> StorageClass:
    return replace(storage_class, allowed_topologies=())
