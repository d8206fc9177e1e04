"""Defaults that depend on more than their own object: what ``rules.txt`` of the schema cannot say.

Caller: ``store`` on create and update. Objects arrive as private plain data whose form has been checked; defaults are
filled in place. Rules: the API reference, upstream ``apps/v1`` and ``batch/v1`` defaults and the Job strategy.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, Final

from ...api.kinds import NODES, Kind
from ..schema import fill_defaults, has_condition, root_type, types
from .admission import Admission, default_template

__all__ = ["default_kind", "fill_kind_defaults", "template_of"]

Data = dict[str, Any]

_UNLIMITED: Final = 2**31 - 1
_NOT_READY: Final = "node.kubernetes.io/not-ready"


def _node(data: Data, admission: Admission) -> None:
    spec, ranges = data["spec"], data["spec"].get("podCIDRs") or []
    if spec.get("podCIDR") and ranges[:1] != [spec["podCIDR"]]:
        spec["podCIDRs"] = [spec["podCIDR"]]
    elif ranges and not spec.get("podCIDR"):
        spec["podCIDR"] = ranges[0]
    status = data.get("status") or {}
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])
    if status.get("nodeInfo"):
        # A real server writes these even when they are unknown, and clients with typed models require them.
        known = types()["NodeSystemInfo"].fields
        absent = {name: "" for name, field in known.items() if field.required and name not in status["nodeInfo"]}
        status["nodeInfo"] = {**absent, **status["nodeInfo"]}


def _namespace(data: Data, admission: Admission) -> None:
    data["metadata"].setdefault("labels", {}).setdefault("kubernetes.io/metadata.name", data["metadata"]["name"])
    data.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])


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


def _network_policy(data: Data, admission: Admission) -> None:
    if not data["spec"].get("policyTypes"):
        data["spec"]["policyTypes"] = ["Ingress", "Egress"] if data["spec"].get("egress") else ["Ingress"]


def _replication_controller(data: Data, admission: Admission) -> None:
    """Selector and labels are those of the template when there are none."""
    labels = ((data["spec"].get("template") or {}).get("metadata") or {}).get("labels")
    if labels:
        if not data["spec"].get("selector"):
            data["spec"]["selector"] = dict(labels)
        if not data["metadata"].get("labels"):
            data["metadata"]["labels"] = dict(labels)


def _job(data: Data, admission: Admission) -> None:
    """A Job gets the labels and the selector by which its pods, and only its pods, are found."""
    spec = data["spec"]
    if spec.get("manualSelector") or any((spec.get("selector") or {}).values()):
        return
    metadata = spec["template"].setdefault("metadata", {})
    labels = metadata["labels"] = dict(metadata.get("labels") or {})
    for prefix in ("", "batch.kubernetes.io/"):
        labels[f"{prefix}controller-uid"] = data["metadata"]["uid"]
        labels[f"{prefix}job-name"] = data["metadata"]["name"]
    spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": data["metadata"]["uid"]}}


def _job_spec(spec: Data) -> None:
    """Defaults that depend on other fields: without numbers one pod completes a Job, more at a time are a work queue."""
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    if spec.get("backoffLimitPerIndex") is not None:
        spec.setdefault("backoffLimit", _UNLIMITED)
    if spec.get("podFailurePolicy") is not None:
        spec.setdefault("podReplacementPolicy", "Failed")


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
    "networkpolicies.networking.k8s.io": _network_policy,
    "replicationcontrollers": _replication_controller,
    "jobs.batch": _job,
    "resourceslices.resource.k8s.io": _slice,
    "devicetaintrules.resource.k8s.io": lambda data, admission: _dated(data["spec"].get("taint"), admission),
}
#: Kinds that make pods, and where their template is.
_TEMPLATES: Final = {
    "podtemplates": ("template",),
    "replicationcontrollers": ("spec", "template"),
    "deployments.apps": ("spec", "template"),
    "replicasets.apps": ("spec", "template"),
    "statefulsets.apps": ("spec", "template"),
    "daemonsets.apps": ("spec", "template"),
    "jobs.batch": ("spec", "template"),
    "cronjobs.batch": ("spec", "jobTemplate", "spec", "template"),
}

#: The status a new object begins with, where the server resets what the client sent.
_FIRST_STATUS: Final[dict[str, Callable[[Data], Data]]] = {
    "namespaces": lambda data: {"phase": "Active"},
    "services": lambda data: {"loadBalancer": {}},
    "persistentvolumeclaims": lambda data: {"phase": "Pending"},
    # A real cluster's volume controller turns Pending into this at once; here nothing has to wait for it.
    "persistentvolumes": lambda data: {
        "phase": "Bound" if (data["spec"].get("claimRef") or {}).get("uid") else "Available"
    },
}


def template_of(kind: Kind, data: Data) -> tuple[str, Data] | None:
    """The path and the pod template of a kind that has one."""
    places = _TEMPLATES.get(kind.group_resource)
    if places is None:
        return None
    found: Any = data
    for place in places:
        found = (found or {}).get(place)
    return ".".join(places), found or {}


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
        if kind.group == "batch":
            spec = (
                data["spec"]
                if kind.plural == "jobs"
                else data["spec"].setdefault("jobTemplate", {}).setdefault("spec", {})
            )
            _job_spec(spec)
        fill_defaults(type_.name, data)
        template = template_of(kind, data)
        if template is not None and template[1].get("spec"):
            default_template(template[1]["spec"])
    fill = _DEFAULTS.get(kind.group_resource)
    if fill is not None:
        fill(data, admission)


def default_kind(kind: Kind, data: Data, admission: Admission, *, keep_status: bool) -> None:
    """Fill in defaults and the first status, in place. Node status is kept: kubelets register with it."""
    fill_kind_defaults(kind, data, admission)
    if kind == NODES and admission.taint_new_nodes and not keep_status and not has_condition(data, "Ready"):
        taints = data["spec"].setdefault("taints", [])
        if all(taint.get("key") != _NOT_READY for taint in taints):
            taints.append({"key": _NOT_READY, "effect": "NoSchedule"})
    if kind == NODES or kind.custom or (keep_status and data.get("status")):
        return
    first = _FIRST_STATUS.get(kind.group_resource)
    if first is not None:
        data["status"] = first(data)
    else:
        data.pop("status", None)
