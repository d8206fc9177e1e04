"""Defaults, first status, templates and policies by kind: everything that needs more than the fields of one type.

A rule that can be written in ``rules.txt`` of the schema is written there. Caller: ``store`` on create and update, with
private plain data whose form has been checked. Invalid values are added to the causes. Rules: the API reference,
upstream ``apps/v1`` and ``batch/v1`` defaults and the Job strategy.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from kubesched.api.decode import from_builtins
from kubesched.api.kinds import CLAIMS, NAMESPACES, NODES, POD_GROUPS, PRIORITY_CLASSES, RESOURCE_CLAIM_TEMPLATES, Kind
from kubesched.api.requests import is_extended_resource
from kubesched.api.selectors import compile_label_selector, label_selector_problem
from kubesched.api.types import LabelSelector

from ..schema import fill_defaults, has_condition, holders, members, root_type, types
from .admission import Admission, default_template
from .checks import at, check_object
from .metadata import STATUS_KINDS
from .pod_checks import check_mounts
from .pod_groups import check_new_group, default_group, resolve_priority
from .validation import Causes, check_labels, forbidden

__all__ = ["admit_new", "check_kind", "default_kind", "fill_kind_defaults"]

Data = dict[str, Any]

_NOT_READY: Final = "node.kubernetes.io/not-ready"
_ADMIN_LABEL: Final = "resource.kubernetes.io/admin-access"
_ADMIN_TEXT: Final = f"admin access to devices requires the `{_ADMIN_LABEL}: true` label on the containing namespace"
#: Names of kinds in messages about an empty selector; the one of ReplicaSets is upstream's.
_SELECTED: Final = {
    "Deployment": "deployment",
    "ReplicaSet": "deployment",
    "StatefulSet": "statefulset",
    "DaemonSet": "daemonset",
}


# -- defaults ----------------------------------------------------------------------------------------------


def _node(data: Data, admission: Admission) -> None:
    spec, ranges = data["spec"], data["spec"].get("podCIDRs") or []
    if spec.get("podCIDR") and ranges[:1] != [spec["podCIDR"]]:
        spec["podCIDRs"] = [spec["podCIDR"]]
    elif ranges and not spec.get("podCIDR"):
        spec["podCIDR"] = ranges[0]
    status = data.get("status") or {}
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])
    # As a kubelet does when a client adds an extended resource to its node.
    for name in filter(is_extended_resource, status.get("capacity") or ()):
        status["allocatable"].setdefault(name, status["capacity"][name])
    if status.get("nodeInfo"):
        # A real server writes these even when they are unknown, and clients with typed models require them.
        known = types()["NodeSystemInfo"].fields
        absent = {name: "" for name, field in known.items() if field.required and name not in status["nodeInfo"]}
        status["nodeInfo"] = {**absent, **status["nodeInfo"]}


def _namespace(data: Data, admission: Admission) -> None:
    data["metadata"].setdefault("labels", {}).setdefault("kubernetes.io/metadata.name", data["metadata"]["name"])


def _claim(data: Data, admission: Admission) -> None:
    if "storageClassName" not in data["spec"]:
        name = admission.default_storage_class()
        if name:
            data["spec"]["storageClassName"] = name


def _secret(data: Data, admission: Admission) -> None:
    texts = data.pop("stringData", None)
    if texts:
        coded = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
        data["data"] = {**(data.get("data") or {}), **coded}


def _service(data: Data, admission: Admission) -> None:
    for port in data["spec"].get("ports") or ():
        if "port" in port and not port.get("targetPort"):
            port["targetPort"] = port["port"]


def _replication_controller(data: Data, admission: Admission) -> None:
    """Take selector and labels from the template where they are missing."""
    labels = ((data["spec"].get("template") or {}).get("metadata") or {}).get("labels")
    if labels:
        if not data["spec"].get("selector"):
            data["spec"]["selector"] = dict(labels)
        if not data["metadata"].get("labels"):
            data["metadata"]["labels"] = dict(labels)


def _job(data: Data, admission: Admission) -> None:
    """Give a Job the labels and the selector that match its pods, and only its pods. A Job without labels has its pods'."""
    spec, metadata = data["spec"], data["spec"]["template"].setdefault("metadata", {})
    if not spec.get("manualSelector") and not any((spec.get("selector") or {}).values()):
        labels = metadata["labels"] = dict(metadata.get("labels") or {})
        for prefix in ("", "batch.kubernetes.io/"):
            labels[f"{prefix}controller-uid"] = data["metadata"]["uid"]
            labels[f"{prefix}job-name"] = data["metadata"]["name"]
        spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": data["metadata"]["uid"]}}
    if metadata.get("labels") and not data["metadata"].get("labels"):
        data["metadata"]["labels"] = dict(metadata["labels"])


def _dated(taint: Data | None, admission: Admission) -> None:
    if taint and not taint.get("timeAdded"):
        taint["timeAdded"] = admission.now()


def _slice(data: Data, admission: Admission) -> None:
    for device in data["spec"].get("devices") or ():
        for taint in device.get("taints") or ():
            _dated(taint, admission)


_DEFAULTS: Final[dict[str, Callable[[Data, Admission], None]]] = {
    "nodes": _node,
    "namespaces": _namespace,
    "persistentvolumeclaims": _claim,
    "secrets": _secret,
    "services": _service,
    "replicationcontrollers": _replication_controller,
    "jobs.batch": _job,
    "resourceslices.resource.k8s.io": _slice,
    "podgroups.scheduling.k8s.io": default_group,
    "devicetaintrules.resource.k8s.io": lambda data, admission: _dated(data["spec"].get("taint"), admission),
}

#: First status of a new object, for kinds where the server resets the client's status.
_FIRST_STATUS: Final[dict[str, Callable[[Data], Data]]] = {
    "namespaces": lambda data: {"phase": "Active"},
    "services": lambda data: {"loadBalancer": {}},
    "ingresses.networking.k8s.io": lambda data: {"loadBalancer": {}},
    "persistentvolumeclaims": lambda data: {"phase": "Pending"},
    # In a real cluster, the volume controller turns Pending into this phase at once. Here the object has it from the
    # start.
    "persistentvolumes": lambda data: {
        "phase": "Bound" if (data["spec"].get("claimRef") or {}).get("uid") else "Available"
    },
}


@cache
def _zero_status(kind: Kind) -> Data:
    """Return the status of a new object: required numbers are 0, required truths false."""
    type_ = root_type(kind.group, kind.kind)
    status = types().get(type_.fields["status"].type) if type_ is not None else None
    zeros = {"int": 0, "int32": 0, "bool": False}
    required = (field for field in (status.fields.items() if status is not None else ()) if field[1].required)
    return {name: zeros[field.type] for name, field in required if field.type in zeros and not field.shape}


@cache
def _template_path(type_: str) -> tuple[str, ...]:
    """Return the path of the pod template in objects of a type; empty for types without pods."""
    for name, _, inner in members(type_, holders(frozenset(["PodTemplateSpec"]))):
        return (name,) if inner == "PodTemplateSpec" else (name, *_template_path(inner))
    return ()


def fill_kind_defaults(kind: Kind, data: Data, admission: Admission) -> None:
    """Fill in defaults, in place."""
    if kind.custom:
        if kind.group_resource in admission.custom:
            admission.custom[kind.group_resource].fill(data)
        return
    type_ = root_type(kind.group, kind.kind)
    if type_ is not None:
        if "spec" in type_.fields and data.get("spec") is None and type_.fields["spec"].type != "any":
            data["spec"] = {}
        fill_defaults(type_.name, data)
        path = _template_path(type_.name)
        template = at(data, path) if path else None
        if template and template.get("spec"):
            default_template(template["spec"])
    fill = _DEFAULTS.get(kind.group_resource)
    if fill is not None:
        fill(data, admission)


def default_kind(kind: Kind, data: Data, admission: Admission, *, keep_status: bool) -> None:
    """Fill in defaults and the first status, in place. Node status is kept: kubelets register with it."""
    if admission.features_off and (type_ := root_type(kind.group, kind.kind)) is not None:
        admission.drop_gated(type_.name, data, None)
    fill_kind_defaults(kind, data, admission)
    if kind == POD_GROUPS and not (keep_status and data["spec"].get("priority") is not None):
        resolve_priority(data, admission)
    if kind == NAMESPACES and not keep_status:
        finalizers = data["spec"].setdefault("finalizers", [])
        if "kubernetes" not in finalizers:
            finalizers.append("kubernetes")
    if kind == NODES and admission.taint_new_nodes and not keep_status and not has_condition(data, "Ready"):
        taints = data["spec"].setdefault("taints", [])
        if all(taint.get("key") != _NOT_READY for taint in taints):
            taints.append({"key": _NOT_READY, "effect": "NoSchedule"})
    if kind == NODES or kind.custom or (keep_status and data.get("status")):
        return
    data.pop("status", None)
    # Go's types write an empty status, below which JSON patches can add; that of pod groups is left out.
    if kind.group_resource in STATUS_KINDS and kind != POD_GROUPS:
        first = _FIRST_STATUS.get(kind.group_resource)
        data["status"] = first(data) if first is not None else dict(_zero_status(kind))


# -- checks ------------------------------------------------------------------------------------------------


def _check_template(kind: Kind, data: Data, places: tuple[str, ...], causes: Causes) -> None:
    """Check the pod template of a kind that makes pods, and that the selector matches it."""
    path, template = ".".join(places), at(data, places) or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    check_labels(labels, f"{path}.metadata.labels", causes)
    # A PodTemplate has no spec: there a field of that name is unknown and may be anything.
    spec = (data.get("spec") or {}) if places[0] == "spec" else {}
    wanted = spec.get("selector") if kind.plural != "cronjobs" else None
    if kind.plural == "replicationcontrollers":
        selector = LabelSelector(match_labels=wanted) if wanted else None
    else:
        selector = from_builtins(wanted, LabelSelector) if wanted is not None else None
        if wanted is not None and not any(wanted.values()) and kind.kind in _SELECTED:
            causes.invalid("spec.selector", wanted, f"empty selector is invalid for {_SELECTED[kind.kind]}")
    # A selector that does not compile has been reported.
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
    """Refuse requests for admin access, except in namespaces with the label that allows it (rules/devices §1)."""
    spec = data.get("spec") or {}
    if causes.kind == RESOURCE_CLAIM_TEMPLATES:
        spec = spec.get("spec") or {}
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


#: Checks that read other objects, by kind.
_POLICIES: Final[Mapping[str, Callable[[Data, Causes, Admission], None]]] = {
    "priorityclasses.scheduling.k8s.io": _check_global_default,
    "resourceclaims.resource.k8s.io": _check_admin_access,
    "resourceclaimtemplates.resource.k8s.io": _check_admin_access,
}


def check_kind(kind: Kind, data: Data, causes: Causes, admission: Admission, old: Data | None = None) -> None:
    """Check an object of a kind: first the rules of its fields, then its own. ``old`` is its state before an update.

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
        if _template_path(type_.name):
            _check_template(kind, data, _template_path(type_.name), causes)
    policy = _POLICIES.get(kind.group_resource)
    if policy is not None:
        policy(data, causes, admission)


def admit_new(kind: Kind, data: Data, admission: Admission) -> None:
    """Check a valid new object by the policies for its kind.

    Raises:
        ApiError: 403.
    """
    if kind is CLAIMS:
        admission.limits.check_claim(data, data["metadata"]["name"])
    elif kind is POD_GROUPS:
        check_new_group(data, admission)
