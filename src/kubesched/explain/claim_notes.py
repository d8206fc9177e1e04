"""Notes about claims that pods wait for: the state of each claim, free storage, and the last event about it.

They are read from the objects, so they hold whatever made the pod wait. Caller: :mod:`.groups`.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubesched.api.kinds import CLAIMS, CSI_STORAGE_CAPACITIES, STORAGE_CLASSES, VOLUMES
from kubesched.api.quantity import QuantityText, format_bytes, int_value
from kubesched.api.storage import (
    BIND_COMPLETED,
    SELECTED_NODE,
    WAIT_FOR_FIRST_CONSUMER,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    class_of,
)
from kubesched.api.types import LabelSelector, NodeSelector, Pod

from .device_notes import device_notes
from .objects import Objects

__all__ = ["claim_notes"]

#: Most segments and classes that one note lists.
_MOST: int = 5


def claim_notes(objects: Objects, pod: Pod) -> list[str]:
    """Return a sentence for each claim that the pod waits for or that limits its nodes; then the free storage."""
    notes: list[str] = []
    for name, is_ephemeral in _names(pod):
        item = objects.get(CLAIMS, pod.namespace, name)
        if item is None:
            made = "; it is made when the ephemeral volume controller sees the pod" if is_ephemeral else ""
            notes.append(f"claim {name} does not exist{made}")
        else:
            notes += _claim(objects, item)
    return list(dict.fromkeys((*notes, *device_notes(objects, pod))))


def _names(pod: Pod) -> Iterator[tuple[str, bool]]:
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            yield volume.persistent_volume_claim.claim_name, False
        elif volume.ephemeral is not None:
            yield f"{pod.name}-{volume.name}", True


def _claim(objects: Objects, claim: PersistentVolumeClaim) -> Iterator[str]:
    name, spec, annotations = claim.metadata.name, claim.spec, claim.metadata.annotations
    volume: PersistentVolume | None = objects.get(VOLUMES, "", spec.volume_name) if spec.volume_name else None
    if claim.metadata.deletion_timestamp is not None:
        yield f"claim {name} is being deleted"
    elif spec.volume_name and volume is None:
        if BIND_COMPLETED in annotations:
            yield f"claim {name} is lost: its volume {spec.volume_name} does not exist any more"
        else:
            yield f"claim {name} waits for volume {spec.volume_name}, which does not exist"
    elif volume is not None and BIND_COMPLETED in annotations:
        affinity = volume.spec.node_affinity
        if affinity is not None and affinity.required is not None:
            yield f"claim {name} is bound to volume {volume.name}, which only nodes with {_nodes(affinity.required)} reach"
    elif volume is not None:
        yield f"claim {name} waits for volume {volume.name}{_last_event(objects, claim)}"
    else:
        yield from _unbound(objects, claim)


def _unbound(objects: Objects, claim: PersistentVolumeClaim) -> Iterator[str]:
    name, wanted = claim.metadata.name, class_of(claim)
    classes = sorted(item.metadata.name for item in objects.all(STORAGE_CLASSES))
    storage_class: StorageClass | None = objects.get(STORAGE_CLASSES, "", wanted) if wanted else None
    if storage_class is None:
        known = f" (there is {', '.join(classes[:_MOST])})" if classes else " (there is none)"
        missing = f"names the class {wanted}, which does not exist{known}" if wanted else "names no class"
        yield f"claim {name} {missing}: it waits for a volume made by hand"
        return
    node = claim.metadata.annotations.get(SELECTED_NODE)
    request = claim.spec.resources.requests.get("storage")
    if node:
        what = f"a volume of class {wanted} for node {node}"
    elif storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER:
        what = f"a node that a volume of class {wanted} can reach"
    else:
        what = f"a volume of class {wanted}"
    asked = f", {_amount(request)} asked" if request is not None else ""
    yield f"claim {name} waits for {what}{asked}{_last_event(objects, claim)}"
    yield from _free(objects, wanted, request)


def _free(objects: Objects, wanted: str, request: QuantityText | None) -> Iterator[str]:
    """Yield the free capacity of a class by segment, from the capacity objects."""
    found: list[CSIStorageCapacity] = list(objects.all(CSI_STORAGE_CAPACITIES))
    mine = [one for one in found if one.storage_class_name == wanted and one.capacity is not None]
    places = sorted((_segment(one.node_topology), one.capacity) for one in mine)
    asked = f", {_amount(request)} asked" if request is not None else ""
    for segment, capacity in places[:_MOST]:
        yield f"{segment} has {_amount(capacity)} free of class {wanted}{asked}"
    if len(places) > _MOST:
        yield f"{len(places) - _MOST} more places have capacity of class {wanted}"


def _last_event(objects: Objects, claim: PersistentVolumeClaim) -> str:
    """Return the text of the newest warning about a claim, as an addition to a sentence."""
    text = objects.warning(claim.metadata.namespace, claim.metadata.uid)
    return f" ({text})" if text else ""


def _amount(quantity: QuantityText | None) -> str:
    return format_bytes(int_value(quantity)) if quantity is not None else "?"


def _segment(topology: LabelSelector | None) -> str:
    if topology is None:
        return "no node"
    parts = [value for _, value in sorted(topology.match_labels.items())]
    parts += [f"{one.key} {one.operator} {','.join(one.values)}" for one in topology.match_expressions]
    return " and ".join(parts) or "every node"


def _nodes(selector: NodeSelector) -> str:
    terms = []
    for term in selector.node_selector_terms:
        parts = []
        for one in (*term.match_expressions, *term.match_fields):
            equal = one.operator == "In" and len(one.values) == 1
            values = one.values[0] if equal else f"({', '.join(one.values)})"
            parts.append(f"{one.key}={values}" if equal else f"{one.key} {one.operator} {values}")
        terms.append(" and ".join(parts))
    return " or ".join(terms) or "no label at all"
