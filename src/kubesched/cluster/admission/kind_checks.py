"""What relates the members of objects other than pods, by type; see :mod:`.checks`, which is the caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ipaddress import ip_address
from itertools import combinations
from typing import Any, Final

from ...api.requests import is_extended_resource
from ...api.selectors import is_label_value, is_qualified_name
from .custom import check_definition
from .secrets import check_config_map, check_secret
from .services import check_ports
from .validation import LABEL_VALUE_TEXT, QUALIFIED_TEXT, Causes, check_quantities
from .volumes import check_access_modes, check_volume

__all__ = ["KIND_CHECKS", "SYSTEM_PRIORITIES"]

Data = dict[str, Any]

#: Values of the classes that every cluster has.
SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_HIGHEST_USER_PRIORITY: Final = 1_000_000_000
_LONGEST_CRON_JOB: Final = 52
#: Labels that a generated selector of a Job has one of.
_OWN_LABELS: Final = ("batch.kubernetes.io/controller-uid", "controller-uid")
#: Bounds of indexed Jobs: of what runs at once and may fail, and lower ones for very many indexes with limits of their own.
_MOST_INDEXED: Final = 100_000
_MANY_COMPLETIONS: Final = 100_000
_MOST_WITH_MANY: Final = 10_000
#: Amounts of a limit range, the smallest first, and how messages call them.
_IN_ORDER: Final = {"min": "min", "defaultRequest": "default request", "default": "default", "max": "max"}
_LIMITS: Final = (*_IN_ORDER, "maxLimitRequestRatio")
#: The scopes of quotas: all are about pods.
_SCOPES: Final = (
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
)
_EXCLUSIVE: Final = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})
_COMPUTE: Final = frozenset({"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"})
#: Resources that quotas know by name; of others, such as counts of kinds, scopes are not checked.
_QUOTA_RESOURCES: Final = _COMPUTE | {
    "pods",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "resourcequotas",
    "services.nodeports",
    "services.loadbalancers",
    "ephemeral-storage",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.ephemeral-storage",
}


# -- nodes -------------------------------------------------------------------------------------------------


def _node_spec(spec: Data, path: str, causes: Causes) -> None:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(spec.get("taints") or ()):
        pair = (taint.get("key") or "", taint.get("effect") or "")
        if pair in seen:
            text = f"{pair[0]}:{pair[1]}: taints must be unique by key and effect pair"
            causes.duplicate(f"{path}.taints[{index}]", text)
        seen.add(pair)
    ranges = spec.get("podCIDRs") or []
    if len(ranges) > len({":" in text for text in ranges}):
        causes.invalid(f"{path}.podCIDRs", ranges, "may specify no more than one CIDR for each IP family")


def _node_status(status: Data, path: str, causes: Causes) -> None:
    for field in ("capacity", "allocatable"):
        for name, amount in check_quantities(status.get(field), f"{path}.{field}", causes).items():
            if (name == "pods" or is_extended_resource(name)) and amount.nanos % 10**9:
                causes.invalid(f"{path}.{field}[{name}]", str(amount), "must be an integer")


def check_taint(taint: Data, path: str, causes: Causes) -> None:
    key, value = (taint.get(name) or "" for name in ("key", "value"))
    if not is_qualified_name(key):
        causes.invalid(f"{path}.key", key, QUALIFIED_TEXT)
    if not is_label_value(value):
        causes.invalid(f"{path}.value", value, LABEL_VALUE_TEXT)


def _priority_class(data: Data, path: str, causes: Causes) -> None:
    name, value = data["metadata"]["name"], data.get("value", 0)
    if name.startswith("system-"):
        if SYSTEM_PRIORITIES.get(name) != value:
            why = "priority class names with 'system-' prefix are reserved for system use only"
            causes.forbidden("metadata.name", why)
    elif value > _HIGHEST_USER_PRIORITY:
        causes.forbidden("value", f"maximum allowed value of a user defined priority is {_HIGHEST_USER_PRIORITY}")


# -- workloads ---------------------------------------------------------------------------------------------


def _budget(spec: Data, path: str, causes: Causes) -> None:
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        causes.invalid(path, spec, "minAvailable and maxUnavailable cannot be both set")


def _deployment(spec: Data, path: str, causes: Causes) -> None:
    strategy = spec["strategy"]
    if strategy["type"] == "Recreate" and strategy.get("rollingUpdate") is not None:
        why = "may not be specified when strategy `type` is 'Recreate'"
        causes.forbidden(f"{path}.strategy.rollingUpdate", why)
    deadline, ready = spec["progressDeadlineSeconds"], spec.get("minReadySeconds") or 0
    if deadline <= ready:
        causes.invalid(f"{path}.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")


def _rolling(rolling: Data, path: str, causes: Causes) -> None:
    none, most = (0, "0%"), rolling.get("maxUnavailable", 0)
    if most in none and rolling.get("maxSurge", 0) in none:
        causes.invalid(f"{path}.maxUnavailable", most, "may not be 0 when `maxSurge` is 0")


def _stateful_update(strategy: Data, path: str, causes: Causes) -> None:
    rolling = strategy.get("rollingUpdate")
    if strategy["type"] == "OnDelete" and rolling is not None:
        causes.invalid(f"{path}.rollingUpdate", rolling, "only allowed for updateStrategy '\"RollingUpdate\"'")


def _job(data: Data, path: str, causes: Causes) -> None:
    spec = data["spec"]
    selector = spec.get("selector")
    if selector is None:
        causes.required("spec.selector")
    elif not spec.get("manualSelector") and not any(key in (selector.get("matchLabels") or ()) for key in _OWN_LABELS):
        causes.invalid("spec.selector", selector, "`selector` not auto-generated")


def _job_spec(spec: Data, path: str, causes: Causes) -> None:
    failed, running = spec.get("maxFailedIndexes"), spec.get("parallelism") or 0
    if spec.get("completionMode") != "Indexed":
        for field in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if spec.get(field) is not None:
                causes.invalid(f"{path}.{field}", spec[field], "requires indexed completion mode")
        return
    completions = spec.get("completions")
    if completions is None:
        causes.required(f"{path}.completions", "when completion mode is Indexed")
        return
    if running > _MOST_INDEXED:
        text = f"must be less than or equal to {_MOST_INDEXED} when completion mode is Indexed"
        causes.invalid(f"{path}.parallelism", running, text)
    if failed is not None and failed > completions:
        causes.invalid(f"{path}.maxFailedIndexes", failed, "must be less than or equal to completions")
    if failed is not None and failed > _MOST_INDEXED:
        causes.invalid(f"{path}.maxFailedIndexes", failed, f"must be less than or equal to {_MOST_INDEXED}")
    if spec.get("backoffLimitPerIndex") is None:
        if failed is not None:
            causes.required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    elif completions > _MANY_COMPLETIONS:
        if failed is None:
            text = f"must be specified when completions is above {_MANY_COMPLETIONS}"
            causes.required(f"{path}.maxFailedIndexes", text)
        for field, value in (("parallelism", running), ("maxFailedIndexes", failed or 0)):
            if value > _MOST_WITH_MANY:
                text = (
                    f"must be less than or equal to {_MOST_WITH_MANY} when completions are above {_MANY_COMPLETIONS} "
                    "and used with backoff limit per index"
                )
                causes.invalid(f"{path}.{field}", value, text)


def _cron_job(data: Data, path: str, causes: Causes) -> None:
    name, job = data["metadata"]["name"], (data["spec"].get("jobTemplate") or {}).get("spec") or {}
    if len(name) > _LONGEST_CRON_JOB:
        causes.invalid("metadata.name", name, f"must be no more than {_LONGEST_CRON_JOB} characters")
    where = "spec.jobTemplate.spec"
    if job.get("selector") is not None:
        causes.invalid(f"{where}.selector", job["selector"], "`selector` will be auto-generated")
    if job.get("manualSelector"):
        causes.unsupported(f"{where}.manualSelector", True, ("nil", "false"))


def _autoscaler(spec: Data, path: str, causes: Causes) -> None:
    most = spec.get("maxReplicas", 0)
    if most < spec["minReplicas"]:
        causes.invalid(f"{path}.maxReplicas", most, "must be greater than or equal to `minReplicas`")


# -- amounts -----------------------------------------------------------------------------------------------


def _claim(spec: Data, path: str, causes: Causes) -> None:
    check_access_modes(spec, path, causes)
    requests = (spec.get("resources") or {}).get("requests") or {}
    amounts = check_quantities(requests, f"{path}.resources.requests", causes)
    if "storage" not in requests:
        causes.required(f"{path}.resources[storage]")
    elif amounts["storage"].nanos == 0:
        causes.invalid(f"{path}.resources[storage]", str(requests["storage"]), "must be greater than zero")


def _quota(spec: Data, path: str, causes: Causes) -> None:
    check_quantities(spec.get("hard"), f"{path}.hard", causes)
    _scopes(spec, spec.get("scopes") or [], f"{path}.scopes", causes)
    selector = spec.get("scopeSelector") or {}
    where, found = f"{path}.scopeSelector.matchExpressions", selector.get("matchExpressions") or []
    _scopes(spec, [one.get("scopeName") or "" for one in found], where, causes, selector)
    for one in found:
        scope, operator, values = one.get("scopeName"), one.get("operator") or "", one.get("values") or []
        if scope in _SCOPES and scope != "PriorityClass" and operator != "Exists":
            text = (
                "must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
                "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or "
                "ResourceQuotaScopeCrossNamespacePodAffinity"
            )
            causes.invalid(f"{where}.operator", operator, text)
        if operator in ("In", "NotIn") and not values:
            text = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            causes.required(f"{where}.values", text)
        elif operator in ("Exists", "DoesNotExist") and values:
            text = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            causes.invalid(f"{where}.values", values, text)


def _scopes(spec: Data, scopes: list[str], path: str, causes: Causes, shown: object = None) -> None:
    """Scopes that exist, that apply to what is limited, and that do not exclude each other."""
    limited = _QUOTA_RESOURCES & (spec.get("hard") or {}).keys()
    for scope in scopes:
        if scope not in _SCOPES:
            if shown is None:
                causes.invalid(path, scopes, "unsupported scope")
            else:
                causes.invalid(f"{path}.scopeName", scope, "unsupported scope")
        elif limited - ({"pods"} if scope == "BestEffort" else _COMPUTE | {"pods"}):
            causes.invalid(path, shown or scopes, "unsupported scope applied to resource")
    if any(pair <= set(scopes) for pair in _EXCLUSIVE):
        causes.invalid(path, shown or scopes, "conflicting scopes")


def _limit_range(item: Data, path: str, causes: Causes) -> None:
    """As upstream: the smallest amount, the defaults and the largest amount of a resource are in this order."""
    amounts = {name: check_quantities(item.get(name), f"{path}.{name}", causes) for name in _LIMITS}
    for (low, low_text), (high, high_text) in combinations(_IN_ORDER.items(), 2):
        for name, least in amounts[low].items():
            most = amounts[high].get(name)
            if most is not None and least.nanos > most.nanos:
                why = f"{low_text} value {item[low][name]} is greater than {high_text} value {item[high][name]}"
                causes.invalid(f"{path}.{low}[{name}]", str(item[low][name]), why)


# -- others ------------------------------------------------------------------------------------------------


def _attachment_source(source: Data, path: str, causes: Causes) -> None:
    given = [name for name in ("persistentVolumeName", "inlineVolumeSpec") if source.get(name)]
    if not given:
        causes.required(path, "must specify one of inlineVolumeSpec and persistentVolumeName")
    elif len(given) > 1:
        causes.forbidden(path, "must specify exactly one of inlineVolumeSpec and persistentVolumeName")


def _endpoint_slice(data: Data, path: str, causes: Causes) -> None:
    family = data.get("addressType")
    for index, endpoint in enumerate(data.get("endpoints") or ()):
        for number, text in enumerate(endpoint.get("addresses") or ()):
            where = f"endpoints[{index}].addresses[{number}]"
            try:
                version = ip_address(text).version if family in ("IPv4", "IPv6") else 0
            except ValueError:
                causes.invalid(where, text, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")
                continue
            if version and family != f"IPv{version}":
                causes.invalid(where, text, f"must be an {family} address")


def _ingress(spec: Data, path: str, causes: Causes) -> None:
    if not spec.get("rules") and spec.get("defaultBackend") is None:
        causes.invalid(path, spec, "either `defaultBackend` or `rules` must be specified")


KIND_CHECKS: Final[Mapping[str, Callable[[Data, str, Causes], None]]] = {
    "NodeSpec": _node_spec,
    "NodeStatus": _node_status,
    "Taint": check_taint,
    "PriorityClass": _priority_class,
    "PodDisruptionBudgetSpec": _budget,
    "DeploymentSpec": _deployment,
    "RollingUpdateDeployment": _rolling,
    "RollingUpdateDaemonSet": _rolling,
    "StatefulSetUpdateStrategy": _stateful_update,
    "Job": _job,
    "JobSpec": _job_spec,
    "CronJob": _cron_job,
    "V2HorizontalPodAutoscalerSpec": _autoscaler,
    "ServiceSpec": check_ports,
    "Secret": check_secret,
    "ConfigMap": check_config_map,
    "PersistentVolumeClaimSpec": _claim,
    "PersistentVolumeSpec": check_volume,
    "ResourceQuotaSpec": _quota,
    "LimitRangeItem": _limit_range,
    "VolumeAttachmentSource": _attachment_source,
    "EndpointSlice": _endpoint_slice,
    "IngressSpec": _ingress,
    "CustomResourceDefinition": check_definition,
}
