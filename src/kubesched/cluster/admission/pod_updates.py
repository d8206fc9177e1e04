"""What an update of a pod may still change. Rules and texts: upstream ``pkg/apis/core/validation``. Caller: ``updates``."""

from __future__ import annotations

from typing import Any, Final

from .kind_updates import without
from .validation import Causes

__all__ = ["check_pod_update"]

_UPDATE_TEXT: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def check_pod_update(old: dict[str, Any], new: dict[str, Any], causes: Causes, *, resize: bool = False) -> None:
    """Whether ``new`` changes only what an update may change; both are plain specs.

    ``resize`` is the subresource of that name: containers' resources may change and nothing else.
    """
    left, right = dict(old), dict(new)
    if resize:
        for side in (left, right):
            side["containers"] = [without(item, ("resources", "resizePolicy")) for item in side.get("containers") or ()]
            side["initContainers"] = [
                without(item, ("resources", "resizePolicy")) for item in side.get("initContainers") or ()
            ]
        if left != right:
            causes.forbidden("spec", "only cpu and memory resources are mutable")
        return
    for side in (left, right):
        for field in ("containers", "initContainers"):
            side[field] = [without(item, ("image",)) for item in side.get(field) or ()]
    _check_deadline(left.pop("activeDeadlineSeconds", None), right.pop("activeDeadlineSeconds", None), causes)
    grace = left.pop("terminationGracePeriodSeconds", None)
    if right.pop("terminationGracePeriodSeconds", None) != grace and not (
        grace is not None and grace < 0 and new.get("terminationGracePeriodSeconds") == 1
    ):
        causes.forbidden("spec", _UPDATE_TEXT)
        return
    kept = [without(item, ("tolerationSeconds",)) for item in right.pop("tolerations", None) or []]
    if any(without(item, ("tolerationSeconds",)) not in kept for item in left.pop("tolerations", None) or []):
        causes.forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")
    gates = left.pop("schedulingGates", None) or []
    for gate in right.pop("schedulingGates", None) or []:
        if gate not in gates:
            why = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            causes.forbidden("spec.schedulingGates", why)
    if gates:
        _check_gated(left, right, causes)
    if left != right:
        causes.forbidden("spec", _UPDATE_TEXT)


def _check_deadline(old: Any, new: Any, causes: Causes) -> None:
    path = "spec.activeDeadlineSeconds"
    if new is None:
        if old is not None:
            causes.invalid(path, None, "must not update from a positive integer to nil value")
    elif new < 0:
        causes.invalid(path, new, "must be greater than or equal to 0")
    elif old is not None and new > old:
        causes.invalid(path, new, f"must be less than or equal to previous value {old}")


def _check_gated(left: dict[str, Any], right: dict[str, Any], causes: Causes) -> None:
    """A gated pod's node selector and required node affinity may be narrowed; narrowing is taken out of both sides."""
    old_selector, new_selector = left.pop("nodeSelector", None) or {}, right.pop("nodeSelector", None) or {}
    if any(new_selector.get(key) != value for key, value in old_selector.items()):
        causes.invalid("spec.nodeSelector", new_selector, "only additions are allowed (no mutations or deletions)")
    old_affinity, new_affinity = dict(left.pop("affinity", None) or {}), dict(right.pop("affinity", None) or {})
    old_node, new_node = old_affinity.pop("nodeAffinity", None) or {}, new_affinity.pop("nodeAffinity", None) or {}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    old_terms = (old_node.get(required) or {}).get("nodeSelectorTerms")
    new_terms = (new_node.get(required) or {}).get("nodeSelectorTerms")
    if old_terms is not None:
        path = f"spec.affinity.nodeAffinity.{required}.nodeSelectorTerms"
        if new_terms is None or len(new_terms) != len(old_terms):
            causes.invalid(path, new_terms, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")
        else:
            for index, (old, new) in enumerate(zip(old_terms, new_terms, strict=True)):
                for field in ("matchExpressions", "matchFields"):
                    before, after = old.get(field) or [], new.get(field) or []
                    if after[: len(before)] != before:
                        causes.invalid(
                            f"{path}[{index}].{field}", after, "only additions are allowed (no mutations or deletions)"
                        )
    if old_affinity or new_affinity:
        left["affinity"], right["affinity"] = old_affinity, new_affinity
