"""What must hold when an update changes more than metadata.

Caller: ``store`` for update and patch, after it has decided which sections come from whom.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import msgspec

from ...api.kinds import NODES, PODS
from ...api.wire import ApiError
from ..schema import Document, Stored, drop_nulls, open_section
from .admission import Admission, default_pod_spec
from .checks import check_pod_spec
from .kind_defaults import fill_kind_defaults
from .kind_validation import check_kind, check_kind_update
from .pod_updates import check_pod_update
from .validation import Causes

__all__ = ["checked_spec_change"]


def checked_spec_change(
    admission: Admission,
    old: Stored,
    before: Document,
    after: Document,
    changed: Sequence[str],
    causes: Causes,
    *,
    resize: bool,
) -> None:
    """Default and check the changed sections of ``after``, in place.

    Raises:
        ApiError: 400 for wrong types, 403 by policy. Invalid values go into ``causes``.
    """
    if old.kind == PODS:
        if "spec" in changed:
            _pod_spec_change(admission, before, after, causes, resize=resize)
        return
    for section in list(after):
        open_section(after, section)
    if "spec" in changed and after.get("spec"):
        # A copy: a patch shares what it put there with its caller. Nulls of custom resources are data.
        after["spec"] = deepcopy(after["spec"]) if old.kind.custom else drop_nulls(after["spec"])
    data = old.data()
    if old.kind == NODES or old.kind.custom or any(section != "status" for section in changed):
        fill_kind_defaults(old.kind, after, admission)
        check_kind(old.kind, after, causes, admission, data)
    check_kind_update(old.kind, data, after, causes)


def _pod_spec_change(admission: Admission, before: Document, after: Document, causes: Causes, *, resize: bool) -> None:
    old_spec: dict[str, Any] = msgspec.json.decode(before["spec"])
    new_spec = open_section(after, "spec")
    if not isinstance(new_spec, dict):
        raise ApiError.bad_request(f"spec: must be an object, got {new_spec!r}")
    new_spec = drop_nulls(new_spec)
    default_pod_spec(old_spec)  # saved ones may lack defaults
    if resize:
        new_spec = _resized(old_spec, new_spec)
    default_pod_spec(new_spec)
    # A manifest applied again brings none of what admission wrote into the pod when it was created.
    for field in ("priority", "preemptionPolicy", "priorityClassName"):
        if field not in new_spec and field in old_spec:
            new_spec[field] = old_spec[field]
    if not resize:
        admission.default_tolerations(new_spec)
    after["spec"] = new_spec
    check_pod_update(old_spec, new_spec, causes, resize=resize)
    check_pod_spec(new_spec, causes)


def _resized(old_spec: dict[str, Any], new_spec: dict[str, Any]) -> dict[str, Any]:
    """The old spec with the new resources of its containers: a resize drops every other change.

    With other containers, or another order, it is the new spec as it was given, which validation then refuses.
    """
    result = dict(old_spec)
    for field in ("containers", "initContainers"):
        old, new = old_spec.get(field) or [], new_spec.get(field) or []
        if [item.get("name") for item in old] != [item.get("name") for item in new]:
            return new_spec
        if old:
            result[field] = [
                {**before, **{key: after[key] for key in ("resources", "resizePolicy") if key in after}}
                for before, after in zip(old, new, strict=True)
            ]
    return result
