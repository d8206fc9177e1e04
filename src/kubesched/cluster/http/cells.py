"""Readers that compute cells of table rows for which a path is not enough. ``columns.txt`` names the readers.

A function ``read_NAME`` takes the object as plain data, the time, and the arguments in the table. Caller:
:mod:`.tables`.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any, Final

from kubesched.base.times import cached_time

from .jsonpath import find, found_all

__all__ = ["READERS", "age_of", "human_duration", "selector_text"]

Data = Mapping[str, Any]


def as_dict(value: Any) -> Data:
    return value if isinstance(value, dict) else {}


def as_items(value: Any) -> list[Data]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _sections(data: Data) -> tuple[Data, Data, Data]:
    return as_dict(data.get("metadata")), as_dict(data.get("spec")), as_dict(data.get("status"))


# -- ages, as kubectl shows them ----------------------------------------------------------------------------


_DAY: Final = 86400
#: Units by duration. A row has an upper bound in seconds, a unit and its seconds, and the finer unit shown after it
#: with its seconds.
_SCALES: Final[tuple[tuple[float, str, int, str, int], ...]] = (
    (120, "s", 1, "", 0),
    (600, "m", 60, "s", 1),
    (3 * 3600, "m", 60, "", 0),
    (8 * 3600, "h", 3600, "m", 60),
    (2 * _DAY, "h", 3600, "", 0),
    (8 * _DAY, "d", _DAY, "h", 3600),
    (730 * _DAY, "d", _DAY, "", 0),
    (8 * 365 * _DAY, "y", 365 * _DAY, "d", _DAY),
    (inf, "y", 365 * _DAY, "", 0),
)
_LIMITS: Final = [scale[0] for scale in _SCALES]


def human_duration(seconds: float) -> str:
    """Return a duration in one or two units. Longer durations are coarser."""
    total = int(seconds)
    if total < 0:
        return "<invalid>" if total < -1 else "0s"
    _, unit, length, fine_unit, fine_length = _SCALES[bisect(_LIMITS, total)]
    count, rest = divmod(total, length)
    fine = rest // fine_length if fine_length else 0
    return f"{count}{unit}{fine}{fine_unit}" if fine else f"{count}{unit}"


def moment(text: Any) -> float | None:
    """Return a timestamp in seconds since the epoch; None for anything else."""
    return cached_time(text) if isinstance(text, str) else None


def age_of(text: Any, now: float) -> str:
    """Return the time since a timestamp, as text."""
    then = moment(text)
    return "<unknown>" if then is None else human_duration(now - then)


# -- texts -------------------------------------------------------------------------------------------------


def _joined(items: Iterable[Any], limit: int = 0, default: str = "<none>") -> str:
    texts = [str(item) for item in items]
    if limit and len(texts) > limit:
        return ",".join(texts[:limit]) + f" + {len(texts) - limit} more..."
    return ",".join(texts) or default


def selector_text(value: Any) -> str:
    """Return a label selector, or a plain map, as kubectl writes it: ``a=b,c in (d,e)``."""
    data = as_dict(value)
    is_selector = "matchLabels" in data or "matchExpressions" in data
    labels = as_dict(data.get("matchLabels") if is_selector else data)
    parts = [f"{name}={label}" for name, label in sorted(labels.items())]
    for item in as_items(data.get("matchExpressions")):
        key, operator, values = item.get("key"), item.get("operator"), ",".join(map(str, item.get("values") or ()))
        forms = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }
        parts.append(str(forms.get(str(operator), f"{key} {operator} {values}")))
    return _joined(parts)


# -- readers for many kinds --------------------------------------------------------------------------------


def read_age(data: Data, now: float, path: str = ".metadata.creationTimestamp", default: str = "<unknown>") -> str:
    value = find(data, path)
    return age_of(value, now) if value else default


def read_each(data: Data, now: float, path: str, limit: str = "0", default: str = "<none>") -> str:
    """Return all values at a path; only the first ``limit`` of them if that is not 0."""
    return _joined(found_all(data, path), int(limit), default)


def read_count(data: Data, now: float, *paths: str) -> int:
    """Return the number of members of lists or objects."""
    return sum(len(value) for path in paths if isinstance(value := find(data, path), list | dict))


def read_selector(data: Data, now: float, path: str) -> str:
    return selector_text(find(data, path))


def read_pair(data: Data, now: float, left: str, right: str, default: str = "") -> str:
    """Return two values with a slash; ``default`` when both are missing."""
    values = [find(data, path) or default for path in (left, right)]
    return "/".join(map(str, values)) if any(value != "" for value in values) else ""


def read_flag(data: Data, now: float, path: str) -> str:
    return "true" if find(data, path) else "false"


def read_terminating_or(data: Data, now: float, path: str) -> str:
    return "Terminating" if find(data, ".metadata.deletionTimestamp") else str(find(data, path) or "")


_ACCESS: Final = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def read_access(data: Data, now: float, path: str) -> str:
    return _joined((_ACCESS.get(str(mode), mode) for mode in found_all(data, f"{path}[*]")), default="")


# -- readers for one kind ----------------------------------------------------------------------------------


def read_node(data: Data, now: float) -> list[Any]:
    """Return the whole row of a node."""
    metadata, spec, status = _sections(data)
    state = {"True": "Ready", "": "Unknown"}.get(_condition(status, "Ready"), "NotReady")
    if spec.get("unschedulable"):
        state += ",SchedulingDisabled"
    labels, prefix = as_dict(metadata.get("labels")), "node-role.kubernetes.io/"
    roles = {key.removeprefix(prefix) for key in labels if key.startswith(prefix)} | {labels.get("kubernetes.io/role")}
    addresses = {item.get("type"): item.get("address") for item in reversed(as_items(status.get("addresses")))}
    info = as_dict(status.get("nodeInfo"))
    return [
        metadata.get("name"),
        state,
        _joined(sorted(filter(None, roles))),
        read_age(data, now),
        info.get("kubeletVersion") or "",
        addresses.get("InternalIP") or "<none>",
        addresses.get("ExternalIP") or "<none>",
        *(info.get(name) or "<unknown>" for name in ("osImage", "kernelVersion", "containerRuntimeVersion")),
    ]


def read_event(data: Data, now: float) -> list[Any]:
    """Return the whole row of an event."""
    regarding = as_dict(data.get("involvedObject") or data.get("regarding"))
    source = as_dict(data.get("source") or data.get("deprecatedSource"))
    series = as_dict(data.get("series"))
    created = find(data, ".metadata.creationTimestamp")
    first = data.get("firstTimestamp") or data.get("deprecatedFirstTimestamp") or data.get("eventTime")
    last = data.get("lastTimestamp") or data.get("deprecatedLastTimestamp") or data.get("eventTime")
    component = source.get("component") or data.get("reportingComponent") or data.get("reportingController") or ""
    host = source.get("host")
    return [
        age_of(series.get("lastObservedTime") or last or created, now),
        data.get("type") or "",
        data.get("reason") or "",
        f"{str(regarding.get('kind', '')).lower()}/{regarding.get('name', '')}",
        regarding.get("fieldPath") or "",
        f"{component}, {host}" if host else component,
        str(data.get("message") or data.get("note") or "").strip(),
        age_of(first or created, now),
        series.get("count") or data.get("count") or data.get("deprecatedCount") or 1,
        find(data, ".metadata.name"),
    ]


def read_service_ports(data: Data, now: float) -> str:
    ports = as_items(find(data, ".spec.ports"))
    numbers = (":".join(str(one[key]) for key in ("port", "nodePort") if one.get(key)) for one in ports)
    return _joined(f"{number}/{one.get('protocol') or 'TCP'}" for number, one in zip(numbers, ports, strict=True))


def read_service_external(data: Data, now: float) -> str:
    spec = as_dict(data.get("spec"))
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName"))
    found = filter(None, (read_load_balancer(data, now), *(spec.get("externalIPs") or ())))
    return _joined(found, default="<pending>" if spec.get("type") == "LoadBalancer" else "<none>")


def read_hpa_targets(data: Data, now: float) -> str:
    """Return each metric of an autoscaler with its current value and its target; two of them, and how many more."""
    known, texts = as_items(find(data, ".status.currentMetrics")), []
    for index, metric in enumerate(as_items(find(data, ".spec.metrics"))):
        type_ = str(metric.get("type"))
        source = type_[:1].lower() + type_[1:]
        target = as_dict(find(metric, f".{source}.target"))
        current = as_dict(find(known[index], f".{source}.current")) if index < len(known) else {}
        is_share, of_resource = "averageUtilization" in target, source in ("resource", "containerResource")
        member = "averageUtilization" if is_share else "averageValue" if "averageValue" in target else "value"
        unit, end = (
            "%" if is_share else "",
            " (avg)" if member == "averageValue" and source in ("object", "external") else "",
        )
        values = [f"{found[member]}{unit}" if member in found else "" for found in (current, target)]
        name = f"{find(metric, f'.{source}.name')}: " if of_resource else ""
        texts.append(f"{name}{values[0] or '<unknown>'}/{values[1] or '<auto>'}{end}")
    return ", ".join(texts[:2]) + (f" + {len(texts) - 2} more..." if len(texts) > 2 else "") or "<none>"


def read_load_balancer(data: Data, now: float) -> str:
    found = as_items(find(data, ".status.loadBalancer.ingress"))
    return _joined((item.get("ip") or item.get("hostname") or "" for item in found), default="")


def read_ingress_ports(data: Data, now: float) -> str:
    return "80, 443" if find(data, ".spec.tls") else "80"


def read_job_state(data: Data, now: float) -> str:
    """Return the state of a job, as upstream: the order of the conditions does not matter."""
    true = {item.get("type") for item in as_items(find(data, ".status.conditions")) if item.get("status") == "True"}
    if find(data, ".metadata.deletionTimestamp"):
        true.add("Terminating")
    order = ("Complete", "Failed", "Terminating", "Suspended", "FailureTarget")
    return next((state for state in order if state in true), "Running")


def read_job_completions(data: Data, now: float) -> str:
    done, parallel = find(data, ".status.succeeded") or 0, find(data, ".spec.parallelism") or 0
    wanted = find(data, ".spec.completions")
    return f"{done}/{(f'1 of {parallel}' if parallel > 1 else 1) if wanted is None else wanted}"


def read_job_duration(data: Data, now: float) -> str:
    started, ended = moment(find(data, ".status.startTime")), moment(find(data, ".status.completionTime"))
    return "" if started is None else human_duration((now if ended is None else ended) - started)


def read_storage_class(data: Data, now: float) -> str:
    marked = find(data, ".metadata.annotations['storageclass.kubernetes.io/is-default-class']") == "true"
    return f"{find(data, '.metadata.name')}{' (default)' if marked else ''}"


def read_endpoints(data: Data, now: float) -> str:
    found = [
        f"{address.get('ip')}:{port.get('port')}" if port else str(address.get("ip"))
        for subset in as_items(data.get("subsets"))
        for address in as_items(subset.get("addresses"))
        for port in as_items(subset.get("ports")) or [{}]
    ]
    return _joined(found, 3)


def read_claim_state(data: Data, now: float) -> str:
    metadata, _, status = _sections(data)
    allocated = status.get("allocation") is not None
    states = {
        "deleted": metadata.get("deletionTimestamp"),
        "allocated": allocated,
        "pending": not allocated,
        "reserved": allocated and status.get("reservedFor"),
    }
    return ",".join(state for state, holds in states.items() if holds)


def read_group_policy(data: Data, now: float) -> str:
    return "Gang" if find(data, ".spec.schedulingPolicy.gang") is not None else "Basic"


def read_group_status(data: Data, now: float) -> str:
    """Return the state of a pod group by its conditions; the reason of a disruption if there is one."""
    conditions = {one.get("type"): one for one in as_items(find(data, ".status.conditions"))}
    if "DisruptionTarget" in conditions:
        return str(conditions["DisruptionTarget"].get("reason", ""))
    scheduled = conditions.get("PodGroupScheduled")
    if scheduled is None:
        return "Pending"
    return "Scheduled" if scheduled.get("status") == "True" else "Unschedulable"


def read_quota(data: Data, now: float, prefix: str) -> str:
    hard, used = as_dict(find(data, ".status.hard")), as_dict(find(data, ".status.used"))
    names = [name for name in sorted(hard) if name.startswith("limits.") is (prefix == "limits")]
    return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in names)


def read_subjects(data: Data, now: float, kind: str) -> str:
    found = [item for item in as_items(data.get("subjects")) if item.get("kind") == kind]
    names = ("namespace", "name") if kind == "ServiceAccount" else ("name",)
    return ", ".join("/".join(str(item.get(name)) for name in names) for item in found)


# -- pods ------------------------------------------------------------------------------------------------------


def read_pod(data: Data, now: float) -> list[Any]:
    """Return the whole row of a pod: ready containers, its state in a word, and more."""
    metadata, spec, status = _sections(data)
    initial = as_items(spec.get("initContainers"))
    sidecars = {item.get("name") for item in initial if item.get("restartPolicy") == "Always"}
    started, containers = as_items(status.get("initContainerStatuses")), as_items(status.get("containerStatuses"))
    total = len(as_items(spec.get("containers"))) + len(sidecars)
    counted = (*containers, *(item for item in started if item.get("name") in sidecars))
    ready = sum(1 for item in counted if item.get("ready") and "running" in as_dict(item.get("state")))
    if not containers and _condition(status, "Ready") == "True":
        ready = total  # hollow pods report the condition only
    gates = [_condition(status, str(gate.get("conditionType"))) for gate in spec.get("readinessGates") or ()]
    return [
        metadata.get("name"),
        f"{ready}/{total}",
        _word(metadata, status, _initializing(len(initial), started, sidecars)),
        _restarts((*started, *containers), now),
        age_of(metadata.get("creationTimestamp"), now),
        status.get("podIP") or "<none>",
        spec.get("nodeName") or "<none>",
        status.get("nominatedNodeName") or "<none>",
        f"{gates.count('True')}/{len(gates)}" if gates else "<none>",
    ]


def _condition(status: Data, name: str) -> str:
    found = (str(item.get("status")) for item in as_items(status.get("conditions")) if item.get("type") == name)
    return next(found, "")


def _restarts(statuses: Sequence[Data], now: float) -> str:
    total = sum(count for item in statuses if isinstance(count := item.get("restartCount"), int))
    ends = [moment(find(item, ".lastState.terminated.finishedAt")) for item in statuses] if total else []
    last = max((end for end in ends if end is not None), default=None)
    return str(total) if last is None else f"{total} ({human_duration(now - last)} ago)"


def _word(metadata: Data, status: Data, initializing: str) -> str:
    """Return the state in a word: the phase, or more specifically a reason, a waiting container or a deletion under
    way.
    """
    word = str(status.get("reason") or status.get("phase") or "Unknown")
    for item in as_items(status.get("conditions")):
        if item.get("type") == "PodScheduled" and item.get("reason") == "SchedulingGated":
            word = "SchedulingGated"
    if initializing:
        word = initializing
    else:
        running = False
        for item in reversed(as_items(status.get("containerStatuses"))):
            state = as_dict(item.get("state"))
            word_of_state = _state_word(state)
            word = word_of_state or word
            running = running or bool(not word_of_state and item.get("ready") and "running" in state)
        if word == "Completed" and running:
            word = "Running" if _condition(status, "Ready") == "True" else "NotReady"
    if metadata.get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in ("Succeeded", "Failed"):
            return "Terminating"
    return word


def _state_word(state: Data) -> str:
    waiting, terminated = as_dict(state.get("waiting")), as_dict(state.get("terminated"))
    reason = waiting.get("reason") or terminated.get("reason")
    if reason or not terminated:
        return str(reason or "")
    return f"Signal:{terminated['signal']}" if terminated.get("signal") else f"ExitCode:{terminated.get('exitCode', 0)}"


def _initializing(total: int, statuses: Sequence[Data], sidecars: set[Any]) -> str:
    for index, item in enumerate(statuses):
        state = as_dict(item.get("state"))
        terminated = state.get("terminated")
        if isinstance(terminated, dict) and not terminated.get("exitCode"):
            continue
        if item.get("name") in sidecars and item.get("started"):
            continue
        word = _state_word(state)
        return f"Init:{word}" if word and word != "PodInitializing" else f"Init:{index}/{total}"
    return ""


#: Readers by name.
READERS: Final[Mapping[str, Callable[..., Any]]] = {
    name.removeprefix("read_"): one for name, one in globals().items() if name.startswith("read_")
}
