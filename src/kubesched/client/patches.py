"""Smallest patches for the changes a scheduler writes: to a pod's status, to volumes and to claims.

:class:`~kubesched.client.port.ApiPort` builds its patches here (rules/cycle §10.2, §10.3; rules/volumes §2.12).
The functions are pure, over immutable objects.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from kubesched.api.decode import to_builtins
from kubesched.api.storage import BOUND_BY_CONTROLLER, SELECTED_NODE, PersistentVolume, PersistentVolumeClaim
from kubesched.api.types import Labels, ObjectMeta, Pod, PodCondition, PodStatus
from kubesched.base.times import timestamp

__all__ = ["StatusPatches", "claim_patch", "has_condition", "pod_status_patch", "update_pod_condition", "volume_patch"]

#: Most patches that are remembered.
_MOST: Final = 256


def update_pod_condition(status: PodStatus, condition: PodCondition, now: float) -> tuple[PodStatus, bool]:
    """Return ``status`` with ``condition`` set, and True if that is a change worth writing.

    ``lastTransitionTime`` becomes ``now`` (seconds since the epoch), unless the old condition of this type has the same
    status; in that case its time stays. A new ``observedGeneration`` alone is no change, and the status is returned
    unchanged.
    """
    index = next((i for i, known in enumerate(status.conditions) if known.type == condition.type), None)
    if index is None:
        added = msgspec.structs.replace(condition, last_transition_time=timestamp(now))
        return msgspec.structs.replace(status, conditions=(*status.conditions, added)), True

    old = status.conditions[index]
    if _is_same(old, condition):
        return status, False
    same_status = old.status == condition.status
    since = old.last_transition_time if same_status else timestamp(now)
    new = msgspec.structs.replace(condition, last_transition_time=since)
    conditions = (*status.conditions[:index], new, *status.conditions[index + 1 :])
    return msgspec.structs.replace(status, conditions=conditions), True


def has_condition(status: PodStatus, condition: PodCondition) -> bool:
    """True if :func:`update_pod_condition` would leave the status unchanged."""
    old = next((known for known in status.conditions if known.type == condition.type), None)
    return old is not None and _is_same(old, condition)


def _is_same(old: PodCondition, new: PodCondition) -> bool:
    return (
        old.status == new.status
        and old.reason == new.reason
        and old.message == new.message
        and old.last_probe_time == new.last_probe_time
    )


def pod_status_patch(old: PodStatus, new: PodStatus) -> dict[str, Any] | None:
    """Return the strategic merge patch from ``old`` to ``new``, or None if they agree.

    It covers what a scheduler writes: conditions, merged by type, and ``nominatedNodeName``, null if cleared. Other
    differences in the status are ignored.
    """
    status = _conditions_patch(old.conditions, new.conditions)
    if old.nominated_node_name != new.nominated_node_name:
        status["nominatedNodeName"] = new.nominated_node_name or None
    return {"status": status} if status else None


class StatusPatches:
    """Cache of patches for a condition and a nomination. It helps because most victims and rejected pods get equal
    patches.
    """

    def __init__(self) -> None:
        self._second = -1
        #: Patches of the present second. Key: old conditions, condition to set, and the generation at which it was
        #: observed.
        self._known: dict[tuple[tuple[PodCondition, ...], PodCondition, int], dict[str, Any]] = {}

    def patch(
        self, pod: Pod, condition: PodCondition | None, nominated_node_name: str | None, now: float
    ) -> dict[str, Any] | None:
        """Return the patch that sets a condition and a nomination, or None. Pods share parts of it: never change it.

        Equal to :func:`pod_status_patch` after :func:`update_pod_condition`.

        A field that is None is left unchanged. The UID is a precondition: the server answers 409 if another pod has
        that name.
        """
        meta, status = pod.metadata, pod.status
        changes = self._conditions(status, condition, meta.generation, now) if condition is not None else {}
        if nominated_node_name is not None and nominated_node_name != status.nominated_node_name:
            changes = {**changes, "nominatedNodeName": nominated_node_name or None}
        if not changes:
            return None
        return {"metadata": {"uid": meta.uid}, "status": changes} if meta.uid else {"status": changes}

    def _conditions(self, status: PodStatus, condition: PodCondition, generation: int, now: float) -> dict[str, Any]:
        second = int(now)
        if second != self._second or len(self._known) >= _MOST:
            self._second = second
            self._known.clear()
        key = status.conditions, condition, generation
        changes = self._known.get(key)
        if changes is None:
            observed = msgspec.structs.replace(condition, observed_generation=generation)
            after, _ = update_pod_condition(status, observed, now)
            patch = pod_status_patch(status, after)
            changes = self._known[key] = patch["status"] if patch is not None else {}
        return changes


def _conditions_patch(old: tuple[PodCondition, ...], new: tuple[PodCondition, ...]) -> dict[str, Any]:
    if old == new:
        return {}
    if not new:
        return {"conditions": None}
    if not old:
        return {"conditions": [to_builtins(condition) for condition in new]}
    before = {condition.type: condition for condition in old}
    after = {condition.type for condition in new}
    changes: list[dict[str, Any]] = []
    for condition in new:
        known = before.get(condition.type)
        if known is None:
            changes.append(to_builtins(condition))
        elif known != condition:
            changes.append(_changed_fields(to_builtins(known), to_builtins(condition)))
    changes.extend({"$patch": "delete", "type": name} for name in before if name not in after)
    patch: dict[str, Any] = {"$setElementOrder/conditions": [{"type": condition.type} for condition in new]}
    if changes:
        patch["conditions"] = changes
    return patch


def _changed_fields(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the changed fields of a condition, with null for removed fields, and its type as the merge key."""
    changed = {name: value for name, value in new.items() if old.get(name) != value}
    changed.update({name: None for name in old if name not in new})
    changed["type"] = new["type"]
    return changed


def volume_patch(volume: PersistentVolume) -> dict[str, Any]:
    """Return the merge patch for a volume's claimRef, and for the mark of an automatic binding if it has one.

    Upstream replaces the whole object, but only a part of it is known here. As upstream, the version is a precondition.
    """
    patch = _precondition(volume.metadata, BOUND_BY_CONTROLLER)
    patch["spec"] = {"claimRef": to_builtins(volume.spec.claim_ref)}
    return patch


def claim_patch(claim: PersistentVolumeClaim) -> dict[str, Any]:
    """Return the merge patch for the node that a claim is to be provisioned for. The version is a precondition."""
    return _precondition(claim.metadata, SELECTED_NODE)


def _precondition(meta: ObjectMeta, annotation: str) -> dict[str, Any]:
    """Return the start of a patch: an annotation, if the object has it, and the version of the object as a
    precondition.
    """
    annotations: Labels = {name: value for name, value in meta.annotations.items() if name == annotation}
    metadata: dict[str, Any] = {"uid": meta.uid, "resourceVersion": meta.resource_version}
    return {"metadata": {**metadata, "annotations": annotations} if annotations else metadata}
