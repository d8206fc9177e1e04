"""Questions about pods, and pods made from templates. Caller: the workload controllers and the budgets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from kubesched.api.selectors import parse_int64
from kubesched.api.types import Pod
from kubesched.api.wire import Item
from kubesched.base.times import cached_time

from ..kubelets import ready_condition
from ..schema import letters_of

__all__ = ["is_finished", "is_ready", "owned_body", "owner_reference", "pod_body", "ready_since", "resolve_count"]
__all__ += ["template_hash"]

_FINISHED: Final = ("Succeeded", "Failed")


def is_finished(pod: Pod) -> bool:
    """True if a pod has run to its end."""
    return pod.status.phase in _FINISHED


def is_ready(pod: Pod) -> bool:
    """True if a pod's Ready condition is True."""
    condition = ready_condition(pod)
    return condition is not None and condition.status == "True"


def ready_since(pod: Pod) -> float | None:
    """Return the time since when a pod has been ready, in seconds since the epoch; None when it is not ready.

    A time that cannot be read counts as long ago.
    """
    condition = ready_condition(pod)
    if condition is None or condition.status != "True":
        return None
    return cached_time(condition.last_transition_time or "") or 0.0


def template_hash(template: Any, collisions: int = 0) -> str:
    """Return a short name for a pod template. Another number of collisions gives another name."""
    raw = msgspec.json.encode(template, order="deterministic") + str(collisions or "").encode()
    return letters_of(int.from_bytes(hashlib.sha256(raw).digest(), "big"), 10)


def owner_reference(owner: Item) -> dict[str, Any]:
    """Return the reference that marks ``owner`` as the controller."""
    kind = {"apiVersion": owner.kind.api_version, "kind": owner.kind.kind}
    return {**kind, "name": owner.name, "uid": owner.uid, "controller": True, "blockOwnerDeletion": True}


def owned_body(
    owner: Item,
    template: Mapping[str, Any],
    *,
    name: str = "",
    generate: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the object that a template describes, controlled by ``owner``. ``spec`` replaces the template's."""
    given = template.get("metadata") or {}
    metadata: dict[str, Any] = {"ownerReferences": [owner_reference(owner)]}
    metadata |= {"name": name} if name else {"generateName": generate or f"{owner.name}-"}
    for field, more in (("labels", labels), ("annotations", annotations)):
        if merged := {**(given.get(field) or {}), **(more or {})}:
            metadata[field] = merged
    return {"metadata": metadata, "spec": spec if spec is not None else template.get("spec") or {}}


def pod_body(owner: Item, template: Mapping[str, Any], finalizers: Iterable[str] = (), **fields: Any) -> dict[str, Any]:
    """Return a pod of a template; ``fields`` as for :func:`owned_body`."""
    body = {"apiVersion": "v1", "kind": "Pod", **owned_body(owner, template, **fields)}
    if all_finalizers := [*((template.get("metadata") or {}).get("finalizers") or ()), *finalizers]:
        body["metadata"]["finalizers"] = all_finalizers
    return body


def resolve_count(value: Any, total: int, *, up: bool) -> int:
    """Return a number, or a percentage of ``total`` rounded up or down. An unreadable value counts as 0."""
    if not isinstance(value, str):
        return int(value or 0)
    text = value.strip()
    number = max(0, parse_int64(text.removesuffix("%")) or 0)
    if not text.endswith("%"):
        return number
    return -(-number * total // 100) if up else number * total // 100
