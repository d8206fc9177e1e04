"""Defaults and checks of kinds other than Pod: small functions in two tables, one row to add a kind.

The defaults of workloads are in :mod:`.workload_defaults`. Caller: ``store`` on create and update. Objects arrive as private plain data and defaults are filled in place.
A field of the wrong type is 400; an invalid value is a cause.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, Final

from ...api.decode import DecodeError, from_builtins
from ...api.kinds import CLAIMS, NODES, PRIORITY_CLASSES, VOLUMES, Kind
from ...api.selectors import SelectorError, compile_label_selector, is_label_value, is_qualified_name
from ...api.types import LabelSelector
from ...api.wire import ApiError
from .admission import HIGHEST_USER_PRIORITY, Admission, default_pod_spec
from .devices import DEVICE_CHECKS, DEVICE_DEFAULTS, DEVICE_UPDATES
from .pod_validation import check_pod_spec, decode_pod_spec
from .services import default_service
from .validation import LABEL_VALUE_TEXT, QUALIFIED_TEXT, Causes, check_labels, check_quantities, forbidden
from .workload_defaults import WORKLOAD_DEFAULTS, check_cron_job

__all__ = ["check_kind", "check_kind_update", "checks_spec_only", "default_kind", "fill_defaults"]

Data = dict[str, Any]

_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_NOT_READY: Final = "node.kubernetes.io/not-ready"
_NODE_INFO: Final = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)
_SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def _mapping(owner: Data, field: str, path: str) -> Data:
    """A member that must be an object; absent reads as empty."""
    value = owner.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ApiError.bad_request(f"{path}: must be an object, got {value!r}")
    return value


def _spec(data: Data) -> Data:
    """The spec, created when absent."""
    spec = _mapping(data, "spec", "spec")
    data["spec"] = spec
    return spec


# -- defaults ----------------------------------------------------------------------------------------------


def _default_node(data: Data, admission: Admission) -> None:
    status = _mapping(data, "status", "status")
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = dict(_mapping(status, "capacity", "status.capacity"))
    if status.get("nodeInfo"):
        # A real server writes these even when they are unknown, and clients with typed models require them.
        info = _mapping(status, "nodeInfo", "status.nodeInfo")
        status["nodeInfo"] = {**dict.fromkeys(_NODE_INFO, ""), **info}


def _is_ready(node: Data) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any((one.get("type"), one.get("status")) == ("Ready", "True") for one in conditions)


def _default_namespace(data: Data, admission: Admission) -> None:
    labels = data["metadata"].setdefault("labels", {})
    labels.setdefault("kubernetes.io/metadata.name", data["metadata"]["name"])
    _spec(data).setdefault("finalizers", ["kubernetes"])


def _default_priority_class(data: Data, admission: Admission) -> None:
    data.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _default_storage_class(data: Data, admission: Admission) -> None:
    data.setdefault("reclaimPolicy", "Delete")
    data.setdefault("volumeBindingMode", "Immediate")


def _default_claim(data: Data, admission: Admission) -> None:
    spec = _spec(data)
    spec.setdefault("volumeMode", "Filesystem")
    if "storageClassName" not in spec:
        name = admission.default_storage_class()
        if name:
            spec["storageClassName"] = name


def _default_volume(data: Data, admission: Admission) -> None:
    spec = _spec(data)
    spec.setdefault("volumeMode", "Filesystem")
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")


def _default_secret(data: Data, admission: Admission) -> None:
    data.setdefault("type", "Opaque")
    texts = _mapping(data, "stringData", "stringData")
    if texts:
        coded = {key: base64.b64encode(str(text).encode()).decode() for key, text in texts.items()}
        data["data"] = {**_mapping(data, "data", "data"), **coded}
    data.pop("stringData", None)


_DEFAULTS: Final[dict[str, Callable[[Data, Admission], None]]] = {
    "nodes": _default_node,
    "namespaces": _default_namespace,
    "priorityclasses.scheduling.k8s.io": _default_priority_class,
    "storageclasses.storage.k8s.io": _default_storage_class,
    "persistentvolumeclaims": _default_claim,
    "persistentvolumes": _default_volume,
    "secrets": _default_secret,
    "services": lambda data, admission: default_service(data),
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


def fill_defaults(kind: Kind, data: Data, admission: Admission) -> None:
    """Fill in defaults, in place."""
    fill = _DEFAULTS.get(kind.group_resource)
    if fill is not None:
        fill(data, admission)
    fill_workload = WORKLOAD_DEFAULTS.get(kind.group_resource)
    if fill_workload is not None:
        fill_workload(data)
    fill_device = DEVICE_DEFAULTS.get(kind.group_resource)
    if fill_device is not None:
        fill_device(data, admission.now)


def default_kind(kind: Kind, data: Data, admission: Admission, *, keep_status: bool) -> None:
    """Fill in defaults and the first status, in place. Node status is kept: kubelets register with it."""
    fill_defaults(kind, data, admission)
    if kind == NODES and admission.taint_new_nodes and not keep_status and not _is_ready(data):
        taints = _spec(data).setdefault("taints", [])
        if all(taint.get("key") != _NOT_READY for taint in taints):
            taints.append({"key": _NOT_READY, "effect": "NoSchedule"})
    if kind == NODES or kind.custom or (keep_status and data.get("status")):
        return
    first = _FIRST_STATUS.get(kind.group_resource)
    if first is not None:
        data["status"] = first(data)
    else:
        data.pop("status", None)


# -- checks ------------------------------------------------------------------------------------------------


def _check_node(data: Data, causes: Causes, admission: Admission) -> None:
    status = _mapping(data, "status", "status")
    for field in ("capacity", "allocatable"):
        check_quantities(NODES, _mapping(status, field, f"status.{field}"), f"status.{field}", causes)
    taints = _mapping(data, "spec", "spec").get("taints") or []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        path = f"spec.taints[{index}]"
        if not isinstance(taint, dict):
            raise ApiError.bad_request(f"{path}: must be an object, got {taint!r}")
        key, value, effect = taint.get("key") or "", taint.get("value") or "", taint.get("effect") or ""
        if not is_qualified_name(key):
            causes.invalid(f"{path}.key", key, QUALIFIED_TEXT)
        if not is_label_value(value):
            causes.invalid(f"{path}.value", value, LABEL_VALUE_TEXT)
        if not effect:
            causes.required(f"{path}.effect")
        elif effect not in _EFFECTS:
            causes.unsupported(f"{path}.effect", effect, _EFFECTS)
        if (key, effect) in seen:
            causes.duplicate(path, f"{key}:{effect}: taints must be unique by key and effect pair")
        seen.add((key, effect))


def _check_priority_class(data: Data, causes: Causes, admission: Admission) -> None:
    name, value = data["metadata"]["name"], data.get("value", 0)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ApiError.bad_request(f"value: must be an integer, got {value!r}")
    if name.startswith("system-"):
        if _SYSTEM_PRIORITIES.get(name) != value:
            why = "priority class names with 'system-' prefix are reserved for system use only"
            causes.forbidden("metadata.name", why)
    elif value > HIGHEST_USER_PRIORITY:
        causes.forbidden("value", f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}")
    if data["preemptionPolicy"] not in ("PreemptLowerPriority", "Never"):
        causes.unsupported("preemptionPolicy", data["preemptionPolicy"], ("Never", "PreemptLowerPriority"))
    if data.get("globalDefault"):
        current = admission.global_default()
        if current is not None and current.name != name:
            why = f"PriorityClass {current.name} is already marked as default. Only one default can exist"
            raise forbidden(PRIORITY_CLASSES, name, why)


def _selector(value: Any, path: str, causes: Causes) -> LabelSelector | None:
    """A label selector that is well formed, or None with a cause added when its requirements are not."""
    if value is None:
        return None
    try:
        selector = from_builtins(value, LabelSelector)
    except DecodeError as error:
        raise ApiError.bad_request(f"{path}: {error}") from None
    try:
        compile_label_selector(selector, path)
    except SelectorError as error:
        causes.selector(str(error))
        return None
    return selector


def _check_budget(data: Data, causes: Causes, admission: Admission) -> None:
    spec = _mapping(data, "spec", "spec")
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        causes.invalid("spec", {}, "minAvailable and maxUnavailable cannot be both set")
    _selector(spec.get("selector"), "spec.selector", causes)


def _check_workload(data: Data, causes: Causes, admission: Admission) -> None:
    """Selector, template and replica count of the kinds that make pods."""
    spec = _mapping(data, "spec", "spec")
    replicas = spec.get("replicas", 0)
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise ApiError.bad_request(f"spec.replicas: must be an integer, got {replicas!r}")
    if replicas < 0:
        causes.invalid("spec.replicas", replicas, "must be greater than or equal to 0")
    template = _mapping(spec, "template", "spec.template")
    labels = _mapping(
        _mapping(template, "metadata", "spec.template.metadata"), "labels", "spec.template.metadata.labels"
    )
    check_labels(labels, "spec.template.metadata.labels", causes)
    if data.get("kind") == "ReplicationController":
        wanted = spec.get("selector")
        selector = LabelSelector(match_labels=wanted) if isinstance(wanted, dict) else None
    else:
        selector = _selector(spec.get("selector"), "spec.selector", causes)
        if spec.get("selector") is None and data.get("kind") != "Job":
            causes.required("spec.selector")
    if selector is not None and not compile_label_selector(selector).matches(labels):
        causes.invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    pod_spec = dict(_mapping(template, "spec", "spec.template.spec"))
    typed = decode_pod_spec(pod_spec)
    found = Causes()
    if data.get("kind") == "Job" and typed.restart_policy not in ("OnFailure", "Never"):
        found.unsupported("spec.restartPolicy", typed.restart_policy, ("OnFailure", "Never"))
    elif data.get("kind") != "Job" and typed.restart_policy not in ("", "Always"):
        found.unsupported("spec.restartPolicy", typed.restart_policy, ("Always",))
    copy = _deep_copy(pod_spec)
    default_pod_spec(copy)
    check_pod_spec(decode_pod_spec(copy), found)
    for path, reason, message in found:
        causes.append((f"spec.template.{path}", reason, message))


def _deep_copy(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _deep_copy(value) for key, value in data.items()}
    return [_deep_copy(item) for item in data] if isinstance(data, list) else data


def _check_lease(data: Data, causes: Causes, admission: Admission) -> None:
    spec = _mapping(data, "spec", "spec")
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and (not isinstance(duration, int) or duration <= 0):
        causes.invalid("spec.leaseDurationSeconds", duration, "must be greater than 0")
    if transitions is not None and (not isinstance(transitions, int) or transitions < 0):
        causes.invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0")


def _check_claim(data: Data, causes: Causes, admission: Admission) -> None:
    spec = _mapping(data, "spec", "spec")
    if not spec.get("accessModes"):
        causes.required("spec.accessModes", "at least 1 access mode is required")
    requests = _mapping(_mapping(spec, "resources", "spec.resources"), "requests", "spec.resources.requests")
    path = "spec.resources[storage]"
    if "storage" not in requests:
        causes.required(path)
    amounts = check_quantities(CLAIMS, requests, "spec.resources.requests", causes)
    if "storage" in amounts and amounts["storage"].nanos == 0:
        causes.invalid(path, str(requests["storage"]), "must be greater than zero")


def _check_volume(data: Data, causes: Causes, admission: Admission) -> None:
    capacity = _mapping(_mapping(data, "spec", "spec"), "capacity", "spec.capacity")
    for name, amount in check_quantities(VOLUMES, capacity, "spec.capacity", causes).items():
        if amount.nanos == 0:
            causes.invalid(f"spec.capacity[{name}]", str(capacity[name]), "must be greater than zero")


def _check_storage_class(data: Data, causes: Causes, admission: Admission) -> None:
    if not data.get("provisioner"):
        causes.required("provisioner")
    mode = data.get("volumeBindingMode")
    if mode not in ("Immediate", "WaitForFirstConsumer"):
        causes.unsupported("volumeBindingMode", mode, ("Immediate", "WaitForFirstConsumer"))


def _check_csi_node(data: Data, causes: Causes, admission: Admission) -> None:
    drivers = _mapping(data, "spec", "spec").get("drivers")
    for index, driver in enumerate(drivers if isinstance(drivers, list) else ()):
        path = f"spec.drivers[{index}]"
        for name in ("name", "nodeID"):
            if isinstance(driver, dict) and not driver.get(name):
                causes.required(f"{path}.{name}")
        limits = _mapping(driver, "allocatable", f"{path}.allocatable") if isinstance(driver, dict) else {}
        count = limits.get("count")
        if isinstance(count, int) and count < 0:
            causes.invalid(f"{path}.allocatable.count", count, "must be greater than or equal to 0")


_CHECKS: Final[dict[str, Callable[[Data, Causes, Admission], None]]] = {
    "nodes": _check_node,
    "priorityclasses.scheduling.k8s.io": _check_priority_class,
    "poddisruptionbudgets.policy": _check_budget,
    "deployments.apps": _check_workload,
    "replicasets.apps": _check_workload,
    "statefulsets.apps": _check_workload,
    "daemonsets.apps": _check_workload,
    "replicationcontrollers": _check_workload,
    "jobs.batch": _check_workload,
    "cronjobs.batch": check_cron_job,
    "leases.coordination.k8s.io": _check_lease,
    "persistentvolumeclaims": _check_claim,
    "persistentvolumes": _check_volume,
    "storageclasses.storage.k8s.io": _check_storage_class,
    "csinodes.storage.k8s.io": _check_csi_node,
}


def checks_spec_only(kind: Kind) -> bool:
    """Whether the defaults and checks of a kind are of its spec alone: a change of its status repeats none of them."""
    return kind.group_resource in DEVICE_CHECKS


def check_kind(kind: Kind, data: Data, causes: Causes, admission: Admission) -> None:
    """The checks of one kind, if it has any.

    Raises:
        ApiError: 400 for wrong types, 403 by policy.
    """
    check = _CHECKS.get(kind.group_resource)
    if check is not None:
        check(data, causes, admission)
    check_device = DEVICE_CHECKS.get(kind.group_resource)
    if check_device is not None:
        check_device(data, causes)


#: Members that an update may not change; (dotted path, message).
_IMMUTABLE: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "priorityclasses.scheduling.k8s.io": (
        ("value", "may not be changed in an update."),
        ("preemptionPolicy", "may not be changed in an update."),
    ),
    "storageclasses.storage.k8s.io": (
        ("provisioner", "updates to provisioner are forbidden."),
        ("parameters", "updates to parameters are forbidden."),
        ("reclaimPolicy", "updates to reclaimPolicy are forbidden."),
        ("volumeBindingMode", "field is immutable"),
    ),
    "deployments.apps": (("spec.selector", "field is immutable"),),
    "replicasets.apps": (("spec.selector", "field is immutable"),),
    "statefulsets.apps": (("spec.selector", "field is immutable"),),
    "daemonsets.apps": (("spec.selector", "field is immutable"),),
    "jobs.batch": (("spec.selector", "field is immutable"), ("spec.completions", "field is immutable")),
    "persistentvolumeclaims": (
        ("spec.accessModes", "spec is immutable after creation except resources.requests for bound claims"),
        ("spec.volumeMode", "spec is immutable after creation except resources.requests for bound claims"),
    ),
    "resourceclaims.resource.k8s.io": (("spec", "field is immutable"),),
    "resourceclaimtemplates.resource.k8s.io": (("spec", "field is immutable"),),
    "resourceslices.resource.k8s.io": (
        ("spec.nodeName", "field is immutable"),
        ("spec.driver", "field is immutable"),
        ("spec.pool.name", "field is immutable"),
    ),
}


def check_kind_update(kind: Kind, old: Data, new: Data, causes: Causes) -> None:
    """Members that may not change."""
    for path, why in _IMMUTABLE.get(kind.group_resource, ()):
        if _at(old, path) != _at(new, path):
            causes.invalid(path, _at(new, path), why)
    check_device = DEVICE_UPDATES.get(kind.group_resource)
    if check_device is not None:
        check_device(old, new, causes)


def _at(data: Any, path: str) -> Any:
    for part in path.split("."):
        data = data.get(part) if isinstance(data, dict) else None
    return data
