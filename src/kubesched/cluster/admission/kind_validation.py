"""Checks of objects other than pods: their fields and members, their pod templates, and what depends on other objects.

Caller: ``store`` on create and update, with data whose form has been checked. An invalid value is a cause. What belongs
to a type is in the tables of :mod:`.checks`, what one field may hold in ``rules.txt`` of the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ...api.decode import from_builtins
from ...api.kinds import PRIORITY_CLASSES, Kind
from ...api.selectors import compile_label_selector, label_selector_problem
from ...api.types import LabelSelector
from ..schema import root_type
from .admission import Admission
from .checks import check_changes, check_object
from .kind_defaults import template_of
from .kind_updates import KIND_UPDATES
from .pod_checks import check_mounts
from .validation import Causes, check_labels, forbidden

__all__ = ["check_kind", "check_kind_update"]

Data = dict[str, Any]

#: How messages about an empty selector name a kind; that of ReplicaSets is upstream's.
_SELECTED: Final = {
    "Deployment": "deployment",
    "ReplicaSet": "deployment",
    "StatefulSet": "statefulset",
    "DaemonSet": "daemonset",
}
_ADMIN_LABEL: Final = "resource.kubernetes.io/admin-access"
_ADMIN_TEXT: Final = f"admin access to devices requires the `{_ADMIN_LABEL}: true` label on the containing namespace"


def _check_template(kind: Kind, data: Data, causes: Causes) -> None:
    """The pod template of a kind that makes pods, and the selector that must match it."""
    found = template_of(kind, data)
    if found is None:
        return
    path, template = found
    labels = (template.get("metadata") or {}).get("labels") or {}
    check_labels(labels, f"{path}.metadata.labels", causes)
    spec = data.get("spec") or {}
    wanted = spec.get("selector") if kind.plural != "cronjobs" else None
    if kind.plural == "replicationcontrollers":
        selector = LabelSelector(match_labels=wanted) if wanted else None
    else:
        selector = from_builtins(wanted, LabelSelector) if wanted is not None else None
        if wanted is not None and not any(wanted.values()) and kind.kind in _SELECTED:
            causes.invalid("spec.selector", wanted, f"empty selector is invalid for {_SELECTED[kind.kind]}")
    # One that cannot be compiled has been reported.
    is_read = selector is not None and not label_selector_problem(selector)
    if is_read and not compile_label_selector(selector).matches(labels):
        causes.invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    pod_spec = template.get("spec") or {}
    if pod_spec.get("ephemeralContainers"):
        causes.forbidden(f"{path}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template")
    policy = pod_spec.get("restartPolicy", "Always")
    if kind.group == "batch":
        if policy == "Always":
            causes.required(f"{path}.spec.restartPolicy", 'valid values: "OnFailure", "Never"')
    elif kind.plural != "podtemplates":
        if policy != "Always":
            causes.unsupported(f"{path}.spec.restartPolicy", policy, ("Always",))
        if pod_spec.get("activeDeadlineSeconds") is not None:
            where = f"{path}.spec.activeDeadlineSeconds"
            causes.forbidden(where, "activeDeadlineSeconds in ReplicaSet is not Supported")
    claims = [(claim.get("metadata") or {}).get("name", "") for claim in spec.get("volumeClaimTemplates") or ()]
    check_mounts(pod_spec, f"{path}.spec", causes, claims)


def _check_admin_access(data: Data, causes: Causes, admission: Admission) -> None:
    """Devices with admin access are for the namespaces with a label (spec "DynamicResources" section 1)."""
    spec = data.get("spec") or {}
    spec = spec.get("spec") or spec
    requests = (spec.get("devices") or {}).get("requests") or ()
    if any((request.get("exactly") or {}).get("adminAccess") for request in requests) and (
        admission.namespace_labels(data["metadata"]["namespace"]).get(_ADMIN_LABEL) != "true"
    ):
        causes.forbidden("", _ADMIN_TEXT)


def _check_global_default(data: Data, causes: Causes, admission: Admission) -> None:
    name, default = data["metadata"]["name"], admission.global_default()
    current = default["metadata"]["name"] if default is not None else name
    if data.get("globalDefault") and current != name:
        why = f"PriorityClass {current} is already marked as default. Only one default can exist"
        raise forbidden(PRIORITY_CLASSES, name, why)


#: Checks that depend on other objects.
_POLICIES: Final[Mapping[str, Callable[[Data, Causes, Admission], None]]] = {
    "priorityclasses.scheduling.k8s.io": _check_global_default,
    "resourceclaims.resource.k8s.io": _check_admin_access,
    "resourceclaimtemplates.resource.k8s.io": _check_admin_access,
}


def check_kind(kind: Kind, data: Data, causes: Causes, admission: Admission, old: Data | None = None) -> None:
    """The checks of one kind: the rules of its fields first, then its own. ``old`` is the state before an update.

    Raises:
        ApiError: 400 for values that cannot be decoded, 403 by policy.
    """
    if kind.custom:
        if kind.group_resource in admission.custom:
            admission.custom[kind.group_resource].check(data, old, causes)
        return
    causes.kind = kind
    type_ = root_type(kind.group, kind.kind)
    if type_ is not None:
        check_object(type_.name, data, "", causes)
    _check_template(kind, data, causes)
    policy = _POLICIES.get(kind.group_resource)
    if policy is not None:
        policy(data, causes, admission)


def check_kind_update(kind: Kind, old: Data, new: Data, causes: Causes) -> None:
    """Members that may not change, and what else depends on the state before."""
    type_ = None if kind.custom else root_type(kind.group, kind.kind)
    if type_ is not None:
        check_changes(type_.name, old, new, causes)
    check = KIND_UPDATES.get(kind.group_resource)
    if check is not None:
        check(old, new, causes)
