"""How the cells of table rows are read from objects: small readers, and kinds with special rules.

Every reader takes the object as plain data and the time, and survives any data. Caller: :mod:`.columns`; pods are in
:mod:`.pod_cells`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from .durations import age, human_duration, moment

Data = Mapping[str, Any]
Cell = Callable[[Data, float], Any]


# -- small readers ---------------------------------------------------------------------------------------


def as_dict(value: Any) -> Data:
    return value if isinstance(value, dict) else {}


def as_items(value: Any) -> list[Data]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def at(data: Any, path: str) -> Any:
    for part in path.split("."):
        data = data.get(part) if isinstance(data, dict) else None
    return data


def get_cell(path: str, default: Any = "<none>") -> Cell:
    """The value at a dotted path."""
    parts = path.split(".")

    def cell(data: Data, now: float) -> Any:
        value: Any = data
        for part in parts:
            value = value.get(part) if isinstance(value, dict) else None
        return default if value is None or value == "" else value

    return cell


def count_cell(path: str) -> Cell:
    """How many members a list or object has."""

    def cell(data: Data, now: float) -> int:
        value = at(data, path)
        return len(value) if isinstance(value, list | dict) else 0

    return cell


def age_cell(data: Data, now: float) -> str:
    return age(as_dict(data.get("metadata")).get("creationTimestamp"), now)


def since_cell(path: str, default: str = "<none>") -> Cell:
    def cell(data: Data, now: float) -> str:
        value = at(data, path)
        return age(value, now) if value else default

    return cell


def joined(items: Sequence[Any], limit: int = 0) -> str:
    texts = [str(item) for item in items]
    if limit and len(texts) > limit:
        return ",".join(texts[:limit]) + f" + {len(texts) - limit} more..."
    return ",".join(texts) or "<none>"


def labels_text(labels: Any) -> str:
    """Labels as ``a=b,c=d``."""
    return ",".join(f"{key}={value}" for key, value in sorted(as_dict(labels).items())) or "<none>"


def selector_text(selector: Any) -> str:
    """A label selector, or a plain map, as kubectl writes it."""
    data = as_dict(selector)
    if not ("matchLabels" in data or "matchExpressions" in data):
        return labels_text(data)
    parts = [f"{key}={value}" for key, value in sorted(as_dict(data.get("matchLabels")).items())]
    for item in as_items(data.get("matchExpressions")):
        key, operator, values = item.get("key"), item.get("operator"), ",".join(map(str, item.get("values") or ()))
        parts.append(
            {
                "In": f"{key} in ({values})",
                "NotIn": f"{key} notin ({values})",
                "Exists": f"{key}",
                "DoesNotExist": f"!{key}",
            }.get(str(operator), f"{key} {operator} {values}")
        )
    return ",".join(parts) or "<none>"


def selector_cell(path: str) -> Cell:
    return lambda data, now: selector_text(at(data, path))


def pod_template_cell(field: str) -> Cell:
    """The names or images of a template's containers."""

    def cell(data: Data, now: float) -> str:
        spec = at(data, "spec.jobTemplate.spec.template.spec") or at(data, "spec.template.spec")
        containers = as_items(as_dict(spec or at(data, "template.spec")).get("containers"))
        return joined([item.get(field, "") for item in containers])

    return cell


_ACCESS: Final = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def access_cell(path: str) -> Cell:
    def cell(data: Data, now: float) -> str:
        modes = at(data, path)
        return ",".join(_ACCESS.get(str(mode), str(mode)) for mode in modes) if isinstance(modes, list) else ""

    return cell


# -- kinds with special rules ------------------------------------------------------------------------------


def node_cells(data: Data, now: float) -> list[Any]:
    metadata, spec, status = as_dict(data.get("metadata")), as_dict(data.get("spec")), as_dict(data.get("status"))
    conditions = {item.get("type"): item.get("status") for item in as_items(status.get("conditions"))}
    state = {"True": "Ready", None: "Unknown"}.get(conditions.get("Ready"), "NotReady")
    if spec.get("unschedulable"):
        state += ",SchedulingDisabled"
    roles = []
    for key, value in as_dict(metadata.get("labels")).items():
        if key.startswith("node-role.kubernetes.io/") and key[24:]:
            roles.append(key[24:])
        elif key == "kubernetes.io/role" and value:
            roles.append(value)
    addresses = {item.get("type"): item.get("address") for item in reversed(as_items(status.get("addresses")))}
    info = as_dict(status.get("nodeInfo"))
    return [
        metadata.get("name"),
        state,
        ",".join(sorted(set(roles))) or "<none>",
        age(metadata.get("creationTimestamp"), now),
        info.get("kubeletVersion") or "",
        addresses.get("InternalIP") or "<none>",
        addresses.get("ExternalIP") or "<none>",
        info.get("osImage") or "<unknown>",
        info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def ready_of_cell(data: Data, now: float) -> str:
    return f"{at(data, 'status.readyReplicas') or 0}/{at(data, 'spec.replicas') or 0}"


def service_ports_cell(data: Data, now: float) -> str:
    texts = []
    for port in as_items(at(data, "spec.ports")):
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        texts.append(f"{port.get('port')}{node}/{port.get('protocol') or 'TCP'}")
    return joined(texts)


def service_external_cell(data: Data, now: float) -> str:
    spec = as_dict(data.get("spec"))
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName"))
    found = [item.get("ip") or item.get("hostname") or "" for item in as_items(at(data, "status.loadBalancer.ingress"))]
    found += spec.get("externalIPs") or []
    if not found and spec.get("type") == "LoadBalancer":
        return "<pending>"
    return joined(found)


def job_state_cell(data: Data, now: float) -> str:
    """Upstream's order (``printJob``), in whatever order the conditions are listed."""
    true = {item.get("type") for item in as_items(at(data, "status.conditions")) if item.get("status") == "True"}
    if at(data, "metadata.deletionTimestamp"):
        true.add("Terminating")
    order = ("Complete", "Failed", "Terminating", "Suspended", "FailureTarget")
    return next((state for state in order if state in true), "Running")


def job_completions_cell(data: Data, now: float) -> str:
    done, wanted = at(data, "status.succeeded") or 0, at(data, "spec.completions")
    if wanted is not None:
        return f"{done}/{wanted}"
    parallel = at(data, "spec.parallelism") or 0
    return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"


def job_duration_cell(data: Data, now: float) -> str:
    started, ended = moment(at(data, "status.startTime")), moment(at(data, "status.completionTime"))
    return "" if started is None else human_duration((now if ended is None else ended) - started)


def event_cells(data: Data, now: float) -> list[Any]:
    regarding = as_dict(data.get("involvedObject") or data.get("regarding"))
    source = as_dict(data.get("source") or data.get("deprecatedSource"))
    series = as_dict(data.get("series"))
    first = data.get("firstTimestamp") or data.get("deprecatedFirstTimestamp") or data.get("eventTime")
    last = data.get("lastTimestamp") or data.get("deprecatedLastTimestamp") or data.get("eventTime")
    count = series.get("count") or data.get("count") or data.get("deprecatedCount") or 1
    component = source.get("component") or data.get("reportingComponent") or data.get("reportingController") or ""
    host = source.get("host")
    return [
        age(series.get("lastObservedTime") or last or at(data, "metadata.creationTimestamp"), now),
        data.get("type") or "",
        data.get("reason") or "",
        f"{str(regarding.get('kind', '')).lower()}/{regarding.get('name', '')}",
        regarding.get("fieldPath") or "",
        f"{component}, {host}" if host else component,
        str(data.get("message") or data.get("note") or "").strip(),
        age(first or at(data, "metadata.creationTimestamp"), now),
        count,
        at(data, "metadata.name"),
    ]


def volume_claim_cell(data: Data, now: float) -> str:
    claim = as_dict(at(data, "spec.claimRef"))
    return f"{claim.get('namespace')}/{claim.get('name')}" if claim else ""


def terminating_or_cell(path: str) -> Cell:
    def cell(data: Data, now: float) -> str:
        return "Terminating" if at(data, "metadata.deletionTimestamp") else str(at(data, path) or "")

    return cell


def storage_class_name_cell(data: Data, now: float) -> str:
    marked = as_dict(at(data, "metadata.annotations")).get("storageclass.kubernetes.io/is-default-class") == "true"
    return f"{at(data, 'metadata.name')} (default)" if marked else str(at(data, "metadata.name"))


def endpoints_cell(data: Data, now: float) -> str:
    found = [
        f"{address.get('ip')}:{port.get('port')}" if port else str(address.get("ip"))
        for subset in as_items(data.get("subsets"))
        for address in as_items(subset.get("addresses"))
        for port in as_items(subset.get("ports")) or [{}]
    ]
    return joined(found, 3)


def slice_endpoints_cell(data: Data, now: float) -> str:
    return joined([text for item in as_items(data.get("endpoints")) for text in item.get("addresses") or ()], 3)


def ports_cell(data: Data, now: float) -> str:
    return joined([item.get("port") for item in as_items(data.get("ports"))], 3) if data.get("ports") else "<unset>"


def claim_state_cell(data: Data, now: float) -> str:
    states = []
    if at(data, "metadata.deletionTimestamp"):
        states.append("deleted")
    if at(data, "status.allocation") is None:
        return ",".join([*states, "pending"])
    states.append("allocated")
    if at(data, "status.reservedFor"):
        states.append("reserved")
    return ",".join(states)


def hosts_cell(data: Data, now: float) -> str:
    return joined([item["host"] for item in as_items(at(data, "spec.rules")) if item.get("host")] or ["*"], 3)


def addresses_cell(data: Data, now: float) -> str:
    found = as_items(at(data, "status.loadBalancer.ingress"))
    return ",".join(str(item.get("ip") or item.get("hostname") or "") for item in found)


def quota_cell(prefix: str) -> Cell:
    def cell(data: Data, now: float) -> str:
        hard, used = as_dict(at(data, "status.hard")), as_dict(at(data, "status.used"))
        names = [name for name in sorted(hard) if name.startswith("limits.") is (prefix == "limits")]
        return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in names)

    return cell


def subjects_cell(kind: str) -> Cell:
    def cell(data: Data, now: float) -> str:
        found = [item for item in as_items(data.get("subjects")) if item.get("kind") == kind]
        return ", ".join(
            f"{item.get('namespace')}/{item.get('name')}" if kind == "ServiceAccount" else str(item.get("name"))
            for item in found
        )

    return cell


def role_cell(data: Data, now: float) -> str:
    return f"{at(data, 'roleRef.kind')}/{at(data, 'roleRef.name')}"


def hpa_reference_cell(data: Data, now: float) -> str:
    return f"{at(data, 'spec.scaleTargetRef.kind')}/{at(data, 'spec.scaleTargetRef.name')}"
