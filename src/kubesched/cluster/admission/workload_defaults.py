"""Defaults of the kinds that make pods, as far as kubectl, selectors or controllers read them.

``kubectl rollout status`` refuses a set whose update strategy has no type, ``kubectl describe`` prints strategies and
ports, and a Job is found by the labels and the selector that the server gives it. Rules: upstream ``apps/v1`` and
``batch/v1`` defaults and the Job strategy. Caller: :mod:`.kind_validation`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ...api.cron import CronError, parse_cron, time_zone
from ...api.wire import ApiError
from .validation import Causes

__all__ = ["WORKLOAD_DEFAULTS", "check_cron_job"]

Data = dict[str, Any]

#: Names of Jobs add eleven characters.
_LONGEST_CRON_JOB: Final = 52
_CONCURRENCY: Final = ("Allow", "Forbid", "Replace")


def _section(owner: Data, field: str, path: str) -> Data:
    """A member that must be an object, created when absent."""
    value = owner.get(field)
    if value is None:
        value = owner[field] = {}
    if not isinstance(value, dict):
        raise ApiError.bad_request(f"{path}: must be an object, got {value!r}")
    return value


def _fill(owner: Data, values: Mapping[str, Any]) -> None:
    for field, value in values.items():
        if owner.get(field) is None:
            owner[field] = value


def _rolling(spec: Data, field: str, values: Mapping[str, Any]) -> None:
    """A strategy is a rolling one unless it says otherwise, and has these numbers."""
    strategy = _section(spec, field, f"spec.{field}")
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        _fill(_section(strategy, "rollingUpdate", f"spec.{field}.rollingUpdate"), values)


def _template(spec: Data, path: str = "spec.template") -> Data:
    """The template with the protocol of its ports, which is half the key of a port."""
    template = _section(spec, "template", path)
    pod = _section(template, "spec", f"{path}.spec")
    for field in ("initContainers", "containers"):
        containers = pod.get(field)
        for container in containers if isinstance(containers, list) else ():
            ports = container.get("ports") if isinstance(container, dict) else None
            for port in ports if isinstance(ports, list) else ():
                if isinstance(port, dict) and not port.get("protocol"):
                    port["protocol"] = "TCP"
    return template


def _deployment(data: Data) -> None:
    spec = _section(data, "spec", "spec")
    _fill(spec, {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600})
    _rolling(spec, "strategy", {"maxUnavailable": "25%", "maxSurge": "25%"})
    _template(spec)


def _replica_set(data: Data) -> None:
    spec = _section(data, "spec", "spec")
    _fill(spec, {"replicas": 1})
    _template(spec)


def _replication_controller(data: Data) -> None:
    """Selector and labels are those of the template when there are none."""
    spec = _section(data, "spec", "spec")
    _fill(spec, {"replicas": 1})
    labels = _section(_template(spec), "metadata", "spec.template.metadata").get("labels")
    if labels and isinstance(labels, dict):
        _fill(spec, {"selector": dict(labels)})
        _fill(data["metadata"], {"labels": dict(labels)})


def _stateful_set(data: Data) -> None:
    spec = _section(data, "spec", "spec")
    _fill(spec, {"replicas": 1, "podManagementPolicy": "OrderedReady", "revisionHistoryLimit": 10})
    _rolling(spec, "updateStrategy", {"partition": 0})
    _template(spec)


def _daemon_set(data: Data) -> None:
    spec = _section(data, "spec", "spec")
    _fill(spec, {"revisionHistoryLimit": 10})
    _rolling(spec, "updateStrategy", {"maxUnavailable": 1, "maxSurge": 0})
    _template(spec)


def _job_spec(spec: Data, path: str) -> Data:
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = spec["parallelism"] = 1
    _fill(spec, {"parallelism": 1, "backoffLimit": 6, "completionMode": "NonIndexed", "suspend": False})
    return _template(spec, f"{path}.template")


def _job(data: Data) -> None:
    """A Job gets the labels and the selector by which its pods, and only its pods, are found."""
    spec = _section(data, "spec", "spec")
    template = _job_spec(spec, "spec")
    if spec.get("manualSelector") or spec.get("selector") is not None:
        return
    name, uid = data["metadata"]["name"], data["metadata"]["uid"]
    labels = _section(
        _section(template, "metadata", "spec.template.metadata"), "labels", "spec.template.metadata.labels"
    )
    for prefix in ("", "batch.kubernetes.io/"):
        labels[f"{prefix}controller-uid"] = uid
        labels[f"{prefix}job-name"] = name
    spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}


def _cron_job(data: Data) -> None:
    spec = _section(data, "spec", "spec")
    values = {"concurrencyPolicy": "Allow", "suspend": False}
    _fill(spec, {**values, "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1})
    template = _section(spec, "jobTemplate", "spec.jobTemplate")
    _template(_section(template, "spec", "spec.jobTemplate.spec"), "spec.jobTemplate.spec.template")


def check_cron_job(data: Data, causes: Causes, admission: object) -> None:
    """The schedule and the time zone are read when a CronJob is written, not when it is due."""
    spec, name = data["spec"], data["metadata"]["name"]
    if len(name) > _LONGEST_CRON_JOB:
        causes.invalid("metadata.name", name, f"must be no more than {_LONGEST_CRON_JOB} characters")
    schedule, zone = spec.get("schedule") or "", spec.get("timeZone")
    if not schedule:
        causes.required("spec.schedule")
    else:
        try:
            parse_cron(schedule)
        except CronError as error:
            causes.invalid("spec.schedule", schedule, str(error))
    if zone is not None:
        try:
            if not zone or zone.lower() == "local":
                raise CronError("timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones")
            time_zone(zone)
        except CronError as error:
            causes.invalid("spec.timeZone", zone, str(error))
    policy = spec.get("concurrencyPolicy")
    if policy not in _CONCURRENCY:
        causes.unsupported("spec.concurrencyPolicy", policy, _CONCURRENCY)
    for field in ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        value = spec.get(field)
        if value is not None and value < 0:
            causes.invalid(f"spec.{field}", value, "must be greater than or equal to 0")


#: By resource and group; each fills in defaults in place. Raises 400 for members of the wrong type.
WORKLOAD_DEFAULTS: Final[dict[str, Callable[[Data], None]]] = {
    "deployments.apps": _deployment,
    "replicasets.apps": _replica_set,
    "replicationcontrollers": _replication_controller,
    "statefulsets.apps": _stateful_set,
    "daemonsets.apps": _daemon_set,
    "jobs.batch": _job,
    "cronjobs.batch": _cron_job,
}
