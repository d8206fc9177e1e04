"""The columns of table output, kind by kind: upstream's names and order.

One row of a table per column: title, how to get the cell, and 1 when only ``-o wide`` shows it. Kinds without an
entry show their name and age. Caller: :mod:`.tables`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from .durations import age, human_duration, moment
from .pod_cells import pod_cells

__all__ = ["COLUMNS", "GENERIC", "Column", "Layout"]

Data = Mapping[str, Any]
Cell = Callable[[Data, float], Any]


class Column(NamedTuple):
    """One column. ``type`` is OpenAPI's."""

    title: str
    priority: int = 0
    type: str = "string"


class Layout(NamedTuple):
    """The columns of a kind and how to fill a row of them."""

    columns: tuple[Column, ...]
    cells: Callable[[Data, float], list[Any]]


# -- small readers ---------------------------------------------------------------------------------------


def _dict(value: Any) -> Data:
    return value if isinstance(value, dict) else {}


def _items(value: Any) -> list[Data]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _at(data: Any, path: str) -> Any:
    for part in path.split("."):
        data = data.get(part) if isinstance(data, dict) else None
    return data


def _get(path: str, default: Any = "<none>") -> Cell:
    """The value at a dotted path."""
    parts = path.split(".")

    def cell(data: Data, now: float) -> Any:
        value: Any = data
        for part in parts:
            value = value.get(part) if isinstance(value, dict) else None
        return default if value is None or value == "" else value

    return cell


def _count(path: str) -> Cell:
    """How many members a list or object has."""

    def cell(data: Data, now: float) -> int:
        value = _at(data, path)
        return len(value) if isinstance(value, list | dict) else 0

    return cell


def _age(data: Data, now: float) -> str:
    return age(_dict(data.get("metadata")).get("creationTimestamp"), now)


def _since(path: str, default: str = "<none>") -> Cell:
    def cell(data: Data, now: float) -> str:
        value = _at(data, path)
        return age(value, now) if value else default

    return cell


def _names(items: Sequence[Any], limit: int = 0) -> str:
    texts = [str(item) for item in items]
    if limit and len(texts) > limit:
        return ",".join(texts[:limit]) + f" + {len(texts) - limit} more..."
    return ",".join(texts) or "<none>"


def labels_text(labels: Any) -> str:
    """Labels as ``a=b,c=d``."""
    return ",".join(f"{key}={value}" for key, value in sorted(_dict(labels).items())) or "<none>"


def selector_text(selector: Any) -> str:
    """A label selector, or a plain map, as kubectl writes it."""
    data = _dict(selector)
    if not ("matchLabels" in data or "matchExpressions" in data):
        return labels_text(data)
    parts = [f"{key}={value}" for key, value in sorted(_dict(data.get("matchLabels")).items())]
    for item in _items(data.get("matchExpressions")):
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


def _selector(path: str) -> Cell:
    return lambda data, now: selector_text(_at(data, path))


def _pod_template(field: str) -> Cell:
    """The names or images of a template's containers."""

    def cell(data: Data, now: float) -> str:
        spec = _at(data, "spec.jobTemplate.spec.template.spec") or _at(data, "spec.template.spec")
        containers = _items(_dict(spec or _at(data, "template.spec")).get("containers"))
        return _names([item.get(field, "") for item in containers])

    return cell


_ACCESS: Final = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _access(path: str) -> Cell:
    return lambda data, now: ",".join(_ACCESS.get(mode, str(mode)) for mode in _at(data, path) or ())


# -- kinds with a mind of their own ----------------------------------------------------------------------


def _node_cells(data: Data, now: float) -> list[Any]:
    metadata, spec, status = _dict(data.get("metadata")), _dict(data.get("spec")), _dict(data.get("status"))
    conditions = {item.get("type"): item.get("status") for item in _items(status.get("conditions"))}
    state = {"True": "Ready", None: "Unknown"}.get(conditions.get("Ready"), "NotReady")
    if spec.get("unschedulable"):
        state += ",SchedulingDisabled"
    roles = []
    for key, value in _dict(metadata.get("labels")).items():
        if key.startswith("node-role.kubernetes.io/") and key[24:]:
            roles.append(key[24:])
        elif key == "kubernetes.io/role" and value:
            roles.append(value)
    addresses = {item.get("type"): item.get("address") for item in reversed(_items(status.get("addresses")))}
    info = _dict(status.get("nodeInfo"))
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


def _ready_of(data: Data, now: float) -> str:
    return f"{_at(data, 'status.readyReplicas') or 0}/{_at(data, 'spec.replicas') or 0}"


def _service_ports(data: Data, now: float) -> str:
    texts = []
    for port in _items(_at(data, "spec.ports")):
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        texts.append(f"{port.get('port')}{node}/{port.get('protocol') or 'TCP'}")
    return _names(texts)


def _service_external(data: Data, now: float) -> str:
    spec = _dict(data.get("spec"))
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName"))
    found = [item.get("ip") or item.get("hostname") or "" for item in _items(_at(data, "status.loadBalancer.ingress"))]
    found += spec.get("externalIPs") or []
    if not found and spec.get("type") == "LoadBalancer":
        return "<pending>"
    return _names(found)


def _job_state(data: Data, now: float) -> str:
    for item in _items(_at(data, "status.conditions")):
        if item.get("status") == "True" and item.get("type") in ("Complete", "Failed", "Suspended", "FailureTarget"):
            return str(item["type"])
    return "Terminating" if _at(data, "metadata.deletionTimestamp") else "Running"


def _job_completions(data: Data, now: float) -> str:
    done, wanted = _at(data, "status.succeeded") or 0, _at(data, "spec.completions")
    if wanted is not None:
        return f"{done}/{wanted}"
    parallel = _at(data, "spec.parallelism") or 0
    return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"


def _job_duration(data: Data, now: float) -> str:
    started, ended = moment(_at(data, "status.startTime")), moment(_at(data, "status.completionTime"))
    return "" if started is None else human_duration((now if ended is None else ended) - started)


def _event_cells(data: Data, now: float) -> list[Any]:
    regarding = _dict(data.get("involvedObject") or data.get("regarding"))
    source = _dict(data.get("source") or data.get("deprecatedSource"))
    series = _dict(data.get("series"))
    first = data.get("firstTimestamp") or data.get("deprecatedFirstTimestamp") or data.get("eventTime")
    last = data.get("lastTimestamp") or data.get("deprecatedLastTimestamp") or data.get("eventTime")
    count = series.get("count") or data.get("count") or data.get("deprecatedCount") or 1
    component = source.get("component") or data.get("reportingComponent") or data.get("reportingController") or ""
    host = source.get("host")
    return [
        age(series.get("lastObservedTime") or last or _at(data, "metadata.creationTimestamp"), now),
        data.get("type") or "",
        data.get("reason") or "",
        f"{str(regarding.get('kind', '')).lower()}/{regarding.get('name', '')}",
        regarding.get("fieldPath") or "",
        f"{component}, {host}" if host else component,
        str(data.get("message") or data.get("note") or "").strip(),
        age(first or _at(data, "metadata.creationTimestamp"), now),
        count,
        _at(data, "metadata.name"),
    ]


def _volume_claim(data: Data, now: float) -> str:
    claim = _dict(_at(data, "spec.claimRef"))
    return f"{claim.get('namespace')}/{claim.get('name')}" if claim else ""


def _terminating_or(path: str) -> Cell:
    def cell(data: Data, now: float) -> str:
        return "Terminating" if _at(data, "metadata.deletionTimestamp") else str(_at(data, path) or "")

    return cell


def _storage_class_name(data: Data, now: float) -> str:
    marked = _dict(_at(data, "metadata.annotations")).get("storageclass.kubernetes.io/is-default-class") == "true"
    return f"{_at(data, 'metadata.name')} (default)" if marked else str(_at(data, "metadata.name"))


def _endpoints(data: Data, now: float) -> str:
    found = [
        f"{address.get('ip')}:{port.get('port')}" if port else str(address.get("ip"))
        for subset in _items(data.get("subsets"))
        for address in _items(subset.get("addresses"))
        for port in _items(subset.get("ports")) or [{}]
    ]
    return _names(found, 3)


def _slice_endpoints(data: Data, now: float) -> str:
    return _names([text for item in _items(data.get("endpoints")) for text in item.get("addresses") or ()], 3)


def _ports(data: Data, now: float) -> str:
    return _names([item.get("port") for item in _items(data.get("ports"))], 3) if data.get("ports") else "<unset>"


def _claim_state(data: Data, now: float) -> str:
    states = []
    if _at(data, "metadata.deletionTimestamp"):
        states.append("deleted")
    if _at(data, "status.allocation") is None:
        return ",".join([*states, "pending"])
    states.append("allocated")
    if _at(data, "status.reservedFor"):
        states.append("reserved")
    return ",".join(states)


def _hosts(data: Data, now: float) -> str:
    return _names([item["host"] for item in _items(_at(data, "spec.rules")) if item.get("host")] or ["*"], 3)


def _addresses(data: Data, now: float) -> str:
    found = _items(_at(data, "status.loadBalancer.ingress"))
    return ",".join(str(item.get("ip") or item.get("hostname") or "") for item in found)


def _quota(prefix: str) -> Cell:
    def cell(data: Data, now: float) -> str:
        hard, used = _dict(_at(data, "status.hard")), _dict(_at(data, "status.used"))
        names = [name for name in sorted(hard) if name.startswith("limits.") is (prefix == "limits")]
        return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in names)

    return cell


def _subjects(kind: str) -> Cell:
    def cell(data: Data, now: float) -> str:
        found = [item for item in _items(data.get("subjects")) if item.get("kind") == kind]
        return ", ".join(
            f"{item.get('namespace')}/{item.get('name')}" if kind == "ServiceAccount" else str(item.get("name"))
            for item in found
        )

    return cell


def _role(data: Data, now: float) -> str:
    return f"{_at(data, 'roleRef.kind')}/{_at(data, 'roleRef.name')}"


def _hpa_reference(data: Data, now: float) -> str:
    return f"{_at(data, 'spec.scaleTargetRef.kind')}/{_at(data, 'spec.scaleTargetRef.name')}"


# -- the table -------------------------------------------------------------------------------------------

_NAME: Final = _get("metadata.name")
Row = tuple[str, Cell] | tuple[str, Cell, int] | tuple[str, Cell, int, str]


def _layout(*rows: Row) -> Layout:
    columns = tuple(Column(row[0], *row[2:]) for row in rows)
    cells = [row[1] for row in rows]
    return Layout(columns, lambda data, now: [cell(data, now) for cell in cells])


_REPLICAS: Final[tuple[Row, ...]] = (
    ("Name", _NAME),
    ("Desired", _get("spec.replicas", 0), 0, "integer"),
    ("Current", _get("status.replicas", 0), 0, "integer"),
    ("Ready", _get("status.readyReplicas", 0), 0, "integer"),
    ("Age", _age),
    ("Containers", _pod_template("name"), 1),
    ("Images", _pod_template("image"), 1),
    ("Selector", _selector("spec.selector"), 1),
)
_TEMPLATE: Final[tuple[Row, ...]] = (
    ("Containers", _pod_template("name"), 1),
    ("Images", _pod_template("image"), 1),
)
_EVENTS: Final = Layout(
    (
        Column("Last Seen"),
        Column("Type"),
        Column("Reason"),
        Column("Object"),
        Column("Subobject", 1),
        Column("Source", 1),
        Column("Message"),
        Column("First Seen", 1),
        Column("Count", 1, "integer"),
        Column("Name", 1),
    ),
    _event_cells,
)
_CREATED: Final[Row] = ("Created At", _get("metadata.creationTimestamp"))

GENERIC: Final = _layout(("Name", _NAME), ("Age", _age))

#: Layouts by group resource.
COLUMNS: Final[dict[str, Layout]] = {
    "pods": Layout(
        (
            Column("Name"),
            Column("Ready"),
            Column("Status"),
            Column("Restarts"),
            Column("Age"),
            Column("IP", 1),
            Column("Node", 1),
            Column("Nominated Node", 1),
            Column("Readiness Gates", 1),
        ),
        pod_cells,
    ),
    "nodes": Layout(
        (
            Column("Name"),
            Column("Status"),
            Column("Roles"),
            Column("Age"),
            Column("Version"),
            Column("Internal-IP", 1),
            Column("External-IP", 1),
            Column("OS-Image", 1),
            Column("Kernel-Version", 1),
            Column("Container-Runtime", 1),
        ),
        _node_cells,
    ),
    "events": _EVENTS,
    "events.events.k8s.io": _EVENTS,
    "namespaces": _layout(("Name", _NAME), ("Status", _get("status.phase", "Active")), ("Age", _age)),
    "services": _layout(
        ("Name", _NAME),
        ("Type", _get("spec.type", "ClusterIP")),
        ("Cluster-IP", _get("spec.clusterIP")),
        ("External-IP", _service_external),
        ("Port(s)", _service_ports),
        ("Age", _age),
        ("Selector", _selector("spec.selector"), 1),
    ),
    "replicationcontrollers": _layout(*_REPLICAS),
    "replicasets.apps": _layout(*_REPLICAS),
    "deployments.apps": _layout(
        ("Name", _NAME),
        ("Ready", _ready_of),
        ("Up-to-date", _get("status.updatedReplicas", 0), 0, "integer"),
        ("Available", _get("status.availableReplicas", 0), 0, "integer"),
        ("Age", _age),
        *_TEMPLATE,
        ("Selector", _selector("spec.selector"), 1),
    ),
    "statefulsets.apps": _layout(("Name", _NAME), ("Ready", _ready_of), ("Age", _age), *_TEMPLATE),
    "daemonsets.apps": _layout(
        ("Name", _NAME),
        ("Desired", _get("status.desiredNumberScheduled", 0), 0, "integer"),
        ("Current", _get("status.currentNumberScheduled", 0), 0, "integer"),
        ("Ready", _get("status.numberReady", 0), 0, "integer"),
        ("Up-to-date", _get("status.updatedNumberScheduled", 0), 0, "integer"),
        ("Available", _get("status.numberAvailable", 0), 0, "integer"),
        ("Node Selector", lambda data, now: labels_text(_at(data, "spec.template.spec.nodeSelector"))),
        ("Age", _age),
        *_TEMPLATE,
        ("Selector", _selector("spec.selector"), 1),
    ),
    "controllerrevisions.apps": _layout(
        ("Name", _NAME),
        (
            "Controller",
            lambda data, now: _names([i.get("name") for i in _items(_at(data, "metadata.ownerReferences"))]),
        ),
        ("Revision", _get("revision", 0), 0, "integer"),
        ("Age", _age),
    ),
    "jobs.batch": _layout(
        ("Name", _NAME),
        ("Status", _job_state),
        ("Completions", _job_completions),
        ("Duration", _job_duration),
        ("Age", _age),
        *_TEMPLATE,
        ("Selector", _selector("spec.selector"), 1),
    ),
    "cronjobs.batch": _layout(
        ("Name", _NAME),
        ("Schedule", _get("spec.schedule")),
        ("Timezone", _get("spec.timeZone")),
        ("Suspend", lambda data, now: str(bool(_at(data, "spec.suspend")))),
        ("Active", _count("status.active"), 0, "integer"),
        ("Last Schedule", _since("status.lastScheduleTime")),
        ("Age", _age),
        *_TEMPLATE,
    ),
    "podtemplates": _layout(
        ("Name", _NAME),
        ("Containers", _pod_template("name")),
        ("Images", _pod_template("image")),
        ("Pod Labels", lambda data, now: labels_text(_at(data, "template.metadata.labels"))),
    ),
    "persistentvolumeclaims": _layout(
        ("Name", _NAME),
        ("Status", _terminating_or("status.phase")),
        ("Volume", _get("spec.volumeName", "")),
        ("Capacity", _get("status.capacity.storage", "")),
        ("Access Modes", _access("status.accessModes")),
        ("StorageClass", _get("spec.storageClassName", "")),
        ("VolumeAttributesClass", _get("spec.volumeAttributesClassName", "<unset>")),
        ("Age", _age),
        ("VolumeMode", _get("spec.volumeMode", "<unset>"), 1),
    ),
    "persistentvolumes": _layout(
        ("Name", _NAME),
        ("Capacity", _get("spec.capacity.storage", "")),
        ("Access Modes", _access("spec.accessModes")),
        ("Reclaim Policy", _get("spec.persistentVolumeReclaimPolicy", "")),
        ("Status", _terminating_or("status.phase")),
        ("Claim", _volume_claim),
        ("StorageClass", _get("spec.storageClassName", "")),
        ("VolumeAttributesClass", _get("spec.volumeAttributesClassName", "<unset>")),
        ("Reason", _get("status.reason", "")),
        ("Age", _age),
        ("VolumeMode", _get("spec.volumeMode", "<unset>"), 1),
    ),
    "storageclasses.storage.k8s.io": _layout(
        ("Name", _storage_class_name),
        ("Provisioner", _get("provisioner")),
        ("ReclaimPolicy", _get("reclaimPolicy", "Delete")),
        ("VolumeBindingMode", _get("volumeBindingMode", "Immediate")),
        ("AllowVolumeExpansion", lambda data, now: str(bool(data.get("allowVolumeExpansion"))).lower()),
        ("Age", _age),
    ),
    "volumeattributesclasses.storage.k8s.io": _layout(
        ("Name", _NAME), ("DriverName", _get("driverName")), ("Age", _age)
    ),
    "csinodes.storage.k8s.io": _layout(
        ("Name", _NAME), ("Drivers", _count("spec.drivers"), 0, "integer"), ("Age", _age)
    ),
    "csidrivers.storage.k8s.io": _layout(
        ("Name", _NAME),
        ("AttachRequired", _get("spec.attachRequired", True), 0, "boolean"),
        ("PodInfoOnMount", _get("spec.podInfoOnMount", False), 0, "boolean"),
        ("StorageCapacity", _get("spec.storageCapacity", False), 0, "boolean"),
        ("TokenRequests", lambda d, now: _names([i.get("audience") for i in _items(_at(d, "spec.tokenRequests"))])),
        ("RequiresRepublish", _get("spec.requiresRepublish", False), 0, "boolean"),
        ("Modes", lambda data, now: _names(_at(data, "spec.volumeLifecycleModes") or ["Persistent"])),
        ("Age", _age),
    ),
    "volumeattachments.storage.k8s.io": _layout(
        ("Name", _NAME),
        ("Attacher", _get("spec.attacher")),
        ("PV", _get("spec.source.persistentVolumeName", "")),
        ("Node", _get("spec.nodeName")),
        ("Attached", _get("status.attached", False), 0, "boolean"),
        ("Age", _age),
    ),
    "priorityclasses.scheduling.k8s.io": _layout(
        ("Name", _NAME),
        ("Value", _get("value", 0), 0, "integer"),
        ("Global-Default", _get("globalDefault", False), 0, "boolean"),
        ("Age", _age),
        ("PreemptionPolicy", _get("preemptionPolicy")),
    ),
    "podgroups.scheduling.k8s.io": GENERIC,
    "poddisruptionbudgets.policy": _layout(
        ("Name", _NAME),
        ("Min Available", lambda data, now: str(_get("spec.minAvailable", "N/A")(data, now))),
        ("Max Unavailable", lambda data, now: str(_get("spec.maxUnavailable", "N/A")(data, now))),
        ("Allowed Disruptions", _get("status.disruptionsAllowed", 0), 0, "integer"),
        ("Age", _age),
    ),
    "configmaps": _layout(
        ("Name", _NAME),
        ("Data", lambda data, now: _count("data")(data, now) + _count("binaryData")(data, now), 0, "integer"),
        ("Age", _age),
    ),
    "secrets": _layout(
        ("Name", _NAME), ("Type", _get("type", "Opaque")), ("Data", _count("data"), 0, "integer"), ("Age", _age)
    ),
    "serviceaccounts": _layout(("Name", _NAME), ("Secrets", _count("secrets"), 0, "integer"), ("Age", _age)),
    "resourcequotas": _layout(
        ("Name", _NAME), ("Request", _quota("requests")), ("Limit", _quota("limits")), ("Age", _age)
    ),
    "limitranges": _layout(("Name", _NAME), _CREATED),
    "endpoints": _layout(("Name", _NAME), ("Endpoints", _endpoints), ("Age", _age)),
    "endpointslices.discovery.k8s.io": _layout(
        ("Name", _NAME),
        ("AddressType", _get("addressType")),
        ("Ports", _ports),
        ("Endpoints", _slice_endpoints),
        ("Age", _age),
    ),
    "leases.coordination.k8s.io": _layout(("Name", _NAME), ("Holder", _get("spec.holderIdentity", "")), ("Age", _age)),
    "leasecandidates.coordination.k8s.io": _layout(
        ("Name", _NAME),
        ("LeaseName", _get("spec.leaseName")),
        ("BinaryVersion", _get("spec.binaryVersion")),
        ("EmulationVersion", _get("spec.emulationVersion", "")),
        ("PingTime", _get("spec.pingTime", "")),
        ("RenewTime", _get("spec.renewTime", "")),
        ("Strategy", _get("spec.strategy")),
        ("Age", _age),
    ),
    "runtimeclasses.node.k8s.io": _layout(("Name", _NAME), ("Handler", _get("handler")), ("Age", _age)),
    "resourceclaims.resource.k8s.io": _layout(("Name", _NAME), ("State", _claim_state), ("Age", _age)),
    "resourceslices.resource.k8s.io": _layout(
        ("Name", _NAME),
        ("Node", _get("spec.nodeName", "")),
        ("Driver", _get("spec.driver", "")),
        ("Pool", _get("spec.pool.name", "")),
        ("Age", _age),
    ),
    "ingresses.networking.k8s.io": _layout(
        ("Name", _NAME),
        ("Class", _get("spec.ingressClassName")),
        ("Hosts", _hosts),
        ("Address", _addresses),
        ("Ports", lambda data, now: "80, 443" if _at(data, "spec.tls") else "80"),
        ("Age", _age),
    ),
    "ingressclasses.networking.k8s.io": _layout(
        ("Name", _NAME),
        ("Controller", _get("spec.controller")),
        ("Parameters", _get("spec.parameters.name")),
        ("Age", _age),
    ),
    "networkpolicies.networking.k8s.io": _layout(
        ("Name", _NAME), ("Pod-Selector", _selector("spec.podSelector")), ("Age", _age)
    ),
    "horizontalpodautoscalers.autoscaling": _layout(
        ("Name", _NAME),
        ("Reference", _hpa_reference),
        ("Targets", lambda data, now: "<unknown>"),
        ("MinPods", lambda data, now: str(_get("spec.minReplicas", "<unset>")(data, now))),
        ("MaxPods", _get("spec.maxReplicas", 0), 0, "integer"),
        ("Replicas", _get("status.currentReplicas", 0), 0, "integer"),
        ("Age", _age),
    ),
    "roles.rbac.authorization.k8s.io": _layout(("Name", _NAME), _CREATED),
    "clusterroles.rbac.authorization.k8s.io": _layout(("Name", _NAME), _CREATED),
    **{
        f"{name}.rbac.authorization.k8s.io": _layout(
            ("Name", _NAME),
            ("Role", _role),
            ("Age", _age),
            ("Users", _subjects("User"), 1),
            ("Groups", _subjects("Group"), 1),
            ("ServiceAccounts", _subjects("ServiceAccount"), 1),
        )
        for name in ("rolebindings", "clusterrolebindings")
    },
    **{
        f"{name}.admissionregistration.k8s.io": _layout(
            ("Name", _NAME), ("Webhooks", _count("webhooks"), 0, "integer"), ("Age", _age)
        )
        for name in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
    },
    "customresourcedefinitions.apiextensions.k8s.io": _layout(("Name", _NAME), _CREATED),
}
