"""Checks of kinds other than Pod that relate several fields: small functions in a table, one row to add a kind.

What one field may hold is in ``rules.txt`` of the schema and checked by :mod:`.values`. Caller: ``store`` on create and
update, with data whose form has been checked. An invalid value is a cause.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any, Final

from ...api.decode import from_builtins
from ...api.equality import same_json
from ...api.kinds import CLAIMS, LIMIT_RANGES, NODES, PRIORITY_CLASSES, RESOURCE_QUOTAS, Kind
from ...api.selectors import SelectorError, compile_label_selector, is_label_value, is_qualified_name
from ...api.types import LabelSelector
from ..schema import root_type
from .admin_access import check_admin_access
from .admission import HIGHEST_USER_PRIORITY, Admission
from .definitions import check_definition
from .devices import DEVICE_CHECKS, DEVICE_UPDATES
from .kind_defaults import template_of
from .kind_updates import KIND_UPDATES
from .pod_validation import check_pod_spec
from .secrets import check_config_map, check_secret
from .services import check_ports
from .validation import LABEL_VALUE_TEXT, QUALIFIED_TEXT, Causes, check_labels, check_quantities, forbidden
from .values import check_values
from .volumes import check_volume

__all__ = ["SYSTEM_PRIORITIES", "check_kind", "check_kind_update"]

Data = dict[str, Any]

#: Values of the classes that every cluster has.
SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
#: How messages about an empty selector name a kind; that of ReplicaSets is upstream's.
_SELECTED: Final = {
    "Deployment": "deployment",
    "ReplicaSet": "deployment",
    "StatefulSet": "statefulset",
    "DaemonSet": "daemonset",
}
_LONGEST_CRON_JOB: Final = 52
#: Amounts of a limit range, the smallest first, and how messages call them.
_IN_ORDER: Final = {"min": "min", "defaultRequest": "default request", "default": "default", "max": "max"}
_LIMITS: Final = (*_IN_ORDER, "maxLimitRequestRatio")


def _check_node(data: Data, causes: Causes) -> None:
    status = data.get("status") or {}
    for field in ("capacity", "allocatable"):
        check_quantities(NODES, status.get(field), f"status.{field}", causes)
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(data["spec"].get("taints") or ()):
        path = f"spec.taints[{index}]"
        key, value, effect = taint.get("key") or "", taint.get("value") or "", taint.get("effect") or ""
        if not is_qualified_name(key):
            causes.invalid(f"{path}.key", key, QUALIFIED_TEXT)
        if not is_label_value(value):
            causes.invalid(f"{path}.value", value, LABEL_VALUE_TEXT)
        if (key, effect) in seen:
            causes.duplicate(path, f"{key}:{effect}: taints must be unique by key and effect pair")
        seen.add((key, effect))


def _check_priority_class(data: Data, causes: Causes) -> None:
    name, value = data["metadata"]["name"], data.get("value", 0)
    if name.startswith("system-"):
        if SYSTEM_PRIORITIES.get(name) != value:
            why = "priority class names with 'system-' prefix are reserved for system use only"
            causes.forbidden("metadata.name", why)
    elif value > HIGHEST_USER_PRIORITY:
        causes.forbidden("value", f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}")


def _selector(value: Data | None, path: str, causes: Causes) -> LabelSelector | None:
    """A label selector, or None with a cause added when its requirements are malformed."""
    if value is None:
        return None
    selector = from_builtins(value, LabelSelector)
    try:
        compile_label_selector(selector, path)
    except SelectorError as error:
        causes.selector(str(error))
        return None
    return selector


def _check_budget(data: Data, causes: Causes) -> None:
    spec = data["spec"]
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        causes.invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")
    _selector(spec.get("selector"), "spec.selector", causes)


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
        selector = _selector(wanted, "spec.selector", causes)
        if wanted is not None and not any(wanted.values()) and kind.kind in _SELECTED:
            causes.invalid("spec.selector", wanted, f"empty selector is invalid for {_SELECTED[kind.kind]}")
    if selector is not None and not compile_label_selector(selector).matches(labels):
        causes.invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    pod_spec = template.get("spec") or {}
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
    problems = Causes()
    claims = spec.get("volumeClaimTemplates") or ()
    check_pod_spec(pod_spec, problems, [(claim.get("metadata") or {}).get("name", "") for claim in claims])
    causes.extend((f"{path}.{where}", reason, message) for where, reason, message in problems)


def _check_deployment(data: Data, causes: Causes) -> None:
    spec, strategy = data["spec"], data["spec"]["strategy"]
    rolling = strategy.get("rollingUpdate")
    if strategy["type"] == "Recreate" and rolling is not None:
        why = "may not be specified when strategy `type` is 'Recreate'"
        causes.forbidden("spec.strategy.rollingUpdate", why)
    elif rolling is not None:
        _check_rolling(rolling, "spec.strategy.rollingUpdate", causes)
    deadline, ready = spec["progressDeadlineSeconds"], spec.get("minReadySeconds") or 0
    if deadline <= ready:
        causes.invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")


def _check_rolling(rolling: Data, path: str, causes: Causes) -> None:
    none = (0, "0%")
    if rolling.get("maxUnavailable", 0) in none and rolling.get("maxSurge", 0) in none:
        why = "may not be 0 when `maxSurge` is 0"
        causes.invalid(f"{path}.maxUnavailable", rolling.get("maxUnavailable", 0), why)


def _check_daemon_set(data: Data, causes: Causes) -> None:
    rolling = data["spec"]["updateStrategy"].get("rollingUpdate")
    if rolling is not None:
        _check_rolling(rolling, "spec.updateStrategy.rollingUpdate", causes)


def _check_stateful_set(data: Data, causes: Causes) -> None:
    strategy = data["spec"]["updateStrategy"]
    if strategy["type"] == "OnDelete" and strategy.get("rollingUpdate") is not None:
        why = "only allowed for updateStrategy '\"RollingUpdate\"'"
        causes.invalid("spec.updateStrategy.rollingUpdate", strategy["rollingUpdate"], why)


def _check_job(data: Data, causes: Causes) -> None:
    _check_job_spec(data["spec"], "spec", causes)
    if data["spec"].get("selector") is None:
        causes.required("spec.selector")


def _check_job_spec(spec: Data, path: str, causes: Causes) -> None:
    if spec.get("completionMode") == "Indexed" and spec.get("completions") is None:
        causes.required(f"{path}.completions", "when completion mode is Indexed")


def _check_cron_job(data: Data, causes: Causes) -> None:
    name = data["metadata"]["name"]
    if len(name) > _LONGEST_CRON_JOB:
        causes.invalid("metadata.name", name, f"must be no more than {_LONGEST_CRON_JOB} characters")
    _check_job_spec(data["spec"]["jobTemplate"]["spec"], "spec.jobTemplate.spec", causes)


def _check_autoscaler(data: Data, causes: Causes) -> None:
    least, most = data["spec"]["minReplicas"], data["spec"].get("maxReplicas", 0)
    if most < least:
        causes.invalid("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`")


def _check_claim(data: Data, causes: Causes) -> None:
    spec = data["spec"]
    modes = spec.get("accessModes") or ()
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        causes.forbidden("spec.accessModes", "may not use ReadWriteOncePod with other access modes")
    requests = (spec.get("resources") or {}).get("requests") or {}
    path = "spec.resources[storage]"
    if "storage" not in requests:
        causes.required(path)
    amounts = check_quantities(CLAIMS, requests, "spec.resources.requests", causes)
    if "storage" in amounts and amounts["storage"].nanos == 0:
        causes.invalid(path, str(requests["storage"]), "must be greater than zero")
    _selector(spec.get("selector"), "spec.selector", causes)


def _check_quota(data: Data, causes: Causes) -> None:
    check_quantities(RESOURCE_QUOTAS, (data.get("spec") or {}).get("hard"), "spec.hard", causes)


def _check_limit_range(data: Data, causes: Causes) -> None:
    """As upstream: the smallest amount, the defaults and the largest amount of a resource are in this order."""
    for index, item in enumerate((data.get("spec") or {}).get("limits") or ()):
        path = f"spec.limits[{index}]"
        amounts = {name: check_quantities(LIMIT_RANGES, item.get(name), f"{path}.{name}", causes) for name in _LIMITS}
        for (low, low_text), (high, high_text) in combinations(_IN_ORDER.items(), 2):
            for name, least in amounts[low].items():
                most = amounts[high].get(name)
                if most is not None and least.nanos > most.nanos:
                    why = f"{low_text} value {item[low][name]} is greater than {high_text} value {item[high][name]}"
                    causes.invalid(f"{path}.{low}[{name}]", str(item[low][name]), why)


def _check_capacity(data: Data, causes: Causes) -> None:
    _selector(data.get("nodeTopology"), "nodeTopology", causes)


def _check_attachment(data: Data, causes: Causes) -> None:
    source = data["spec"].get("source") or {}
    given = [name for name in ("persistentVolumeName", "inlineVolumeSpec") if source.get(name)]
    if not given:
        causes.required("spec.source", "must specify one of inlineVolumeSpec and persistentVolumeName")
    elif len(given) > 1:
        causes.forbidden("spec.source", "must specify exactly one of inlineVolumeSpec and persistentVolumeName")


def _check_ingress(data: Data, causes: Causes) -> None:
    spec = data["spec"]
    if not spec.get("rules") and spec.get("defaultBackend") is None:
        causes.invalid("spec", spec, "either `defaultBackend` or `rules` must be specified")


_CHECKS: Final[Mapping[str, Callable[[Data, Causes], None]]] = {
    "nodes": _check_node,
    "priorityclasses.scheduling.k8s.io": _check_priority_class,
    "poddisruptionbudgets.policy": _check_budget,
    "deployments.apps": _check_deployment,
    "statefulsets.apps": _check_stateful_set,
    "daemonsets.apps": _check_daemon_set,
    "jobs.batch": _check_job,
    "cronjobs.batch": _check_cron_job,
    "horizontalpodautoscalers.autoscaling": _check_autoscaler,
    "services": check_ports,
    "secrets": check_secret,
    "configmaps": check_config_map,
    "persistentvolumeclaims": _check_claim,
    "persistentvolumes": check_volume,
    "csistoragecapacities.storage.k8s.io": _check_capacity,
    "resourcequotas": _check_quota,
    "limitranges": _check_limit_range,
    "volumeattachments.storage.k8s.io": _check_attachment,
    "ingresses.networking.k8s.io": _check_ingress,
    "customresourcedefinitions.apiextensions.k8s.io": check_definition,
    **DEVICE_CHECKS,
}


def _check_global_default(data: Data, causes: Causes, admission: Admission) -> None:
    name, current = data["metadata"]["name"], admission.global_default()
    if data.get("globalDefault") and current is not None and current.name != name:
        why = f"PriorityClass {current.name} is already marked as default. Only one default can exist"
        raise forbidden(PRIORITY_CLASSES, name, why)


#: Checks that depend on other objects.
_POLICIES: Final[Mapping[str, Callable[[Data, Causes, Admission], None]]] = {
    "priorityclasses.scheduling.k8s.io": _check_global_default,
    "resourceclaims.resource.k8s.io": check_admin_access,
    "resourceclaimtemplates.resource.k8s.io": check_admin_access,
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
    type_ = root_type(kind.group, kind.kind)
    if type_ is not None:
        check_values(type_.name, data, "", causes)
    _check_template(kind, data, causes)
    check = _CHECKS.get(kind.group_resource)
    if check is not None:
        check(data, causes)
    policy = _POLICIES.get(kind.group_resource)
    if policy is not None:
        policy(data, causes, admission)


#: Members that an update may not change; (dotted path, message).
_IMMUTABLE: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
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
    "daemonsets.apps": (("spec.selector", "field is immutable"),),
    "jobs.batch": (("spec.selector", "field is immutable"), ("spec.completionMode", "field is immutable")),
    "secrets": (("type", "field is immutable"),),
    "runtimeclasses.node.k8s.io": (("handler", "field is immutable"),),
    "rolebindings.rbac.authorization.k8s.io": (("roleRef", "cannot change roleRef"),),
    "clusterrolebindings.rbac.authorization.k8s.io": (("roleRef", "cannot change roleRef"),),
    "endpointslices.discovery.k8s.io": (("addressType", "field is immutable"),),
    "csistoragecapacities.storage.k8s.io": (
        ("nodeTopology", "field is immutable"),
        ("storageClassName", "field is immutable"),
    ),
    "persistentvolumes": (("spec.volumeMode", "field is immutable"),),
    "volumeattachments.storage.k8s.io": (("spec", "field is immutable"),),
    "resourceclaims.resource.k8s.io": (("spec", "field is immutable"),),
    "resourceclaimtemplates.resource.k8s.io": (("spec", "field is immutable"),),
    "resourceslices.resource.k8s.io": (
        ("spec.nodeName", "field is immutable"),
        ("spec.driver", "field is immutable"),
        ("spec.pool.name", "field is immutable"),
    ),
}


def check_kind_update(kind: Kind, old: Data, new: Data, causes: Causes) -> None:
    """Members that may not change, and what else depends on the state before."""
    for path, why in _IMMUTABLE.get(kind.group_resource, ()):
        if not same_json(_at(old, path), _at(new, path)):
            causes.invalid(path, _at(new, path), why)
    for check in (KIND_UPDATES.get(kind.group_resource), DEVICE_UPDATES.get(kind.group_resource)):
        if check is not None:
            check(old, new, causes)


def _at(data: Any, path: str) -> Any:
    for part in path.split("."):
        data = data.get(part) if isinstance(data, dict) else None
    return data
