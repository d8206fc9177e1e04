"""The columns of table output, kind by kind: upstream's names and order.

One row of a table per column: title, how to get the cell, and 1 when only ``-o wide`` shows it. Kinds without an
entry show their name and age. Caller: :mod:`.tables`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from .cells import (
    Cell,
    Data,
    access_cell,
    addresses_cell,
    age_cell,
    as_items,
    at,
    claim_state_cell,
    count_cell,
    endpoints_cell,
    event_cells,
    get_cell,
    hosts_cell,
    hpa_reference_cell,
    job_completions_cell,
    job_duration_cell,
    job_state_cell,
    joined,
    labels_text,
    node_cells,
    pod_template_cell,
    ports_cell,
    quota_cell,
    ready_of_cell,
    role_cell,
    selector_cell,
    service_external_cell,
    service_ports_cell,
    since_cell,
    slice_endpoints_cell,
    storage_class_name_cell,
    subjects_cell,
    terminating_or_cell,
    volume_claim_cell,
)
from .pod_cells import pod_cells

__all__ = ["COLUMNS", "GENERIC", "Column", "Layout"]


class Column(NamedTuple):
    """One column. ``type`` is OpenAPI's."""

    title: str
    priority: int = 0
    type: str = "string"


class Layout(NamedTuple):
    """The columns of a kind and how to fill a row of them."""

    columns: tuple[Column, ...]
    cells: Callable[[Data, float], list[Any]]


# -- the table -------------------------------------------------------------------------------------------

_NAME: Final = get_cell("metadata.name")
Row = tuple[str, Cell] | tuple[str, Cell, int] | tuple[str, Cell, int, str]


def _layout(*rows: Row) -> Layout:
    columns = tuple(Column(row[0], *row[2:]) for row in rows)
    cells = [row[1] for row in rows]
    return Layout(columns, lambda data, now: [cell(data, now) for cell in cells])


_REPLICAS: Final[tuple[Row, ...]] = (
    ("Name", _NAME),
    ("Desired", get_cell("spec.replicas", 0), 0, "integer"),
    ("Current", get_cell("status.replicas", 0), 0, "integer"),
    ("Ready", get_cell("status.readyReplicas", 0), 0, "integer"),
    ("Age", age_cell),
    ("Containers", pod_template_cell("name"), 1),
    ("Images", pod_template_cell("image"), 1),
    ("Selector", selector_cell("spec.selector"), 1),
)
_TEMPLATE: Final[tuple[Row, ...]] = (
    ("Containers", pod_template_cell("name"), 1),
    ("Images", pod_template_cell("image"), 1),
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
    event_cells,
)
_CREATED: Final[Row] = ("Created At", get_cell("metadata.creationTimestamp"))

GENERIC: Final = _layout(("Name", _NAME), ("Age", age_cell))

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
        node_cells,
    ),
    "events": _EVENTS,
    "events.events.k8s.io": _EVENTS,
    "namespaces": _layout(("Name", _NAME), ("Status", get_cell("status.phase", "Active")), ("Age", age_cell)),
    "services": _layout(
        ("Name", _NAME),
        ("Type", get_cell("spec.type", "ClusterIP")),
        ("Cluster-IP", get_cell("spec.clusterIP")),
        ("External-IP", service_external_cell),
        ("Port(s)", service_ports_cell),
        ("Age", age_cell),
        ("Selector", selector_cell("spec.selector"), 1),
    ),
    "replicationcontrollers": _layout(*_REPLICAS),
    "replicasets.apps": _layout(*_REPLICAS),
    "deployments.apps": _layout(
        ("Name", _NAME),
        ("Ready", ready_of_cell),
        ("Up-to-date", get_cell("status.updatedReplicas", 0), 0, "integer"),
        ("Available", get_cell("status.availableReplicas", 0), 0, "integer"),
        ("Age", age_cell),
        *_TEMPLATE,
        ("Selector", selector_cell("spec.selector"), 1),
    ),
    "statefulsets.apps": _layout(("Name", _NAME), ("Ready", ready_of_cell), ("Age", age_cell), *_TEMPLATE),
    "daemonsets.apps": _layout(
        ("Name", _NAME),
        ("Desired", get_cell("status.desiredNumberScheduled", 0), 0, "integer"),
        ("Current", get_cell("status.currentNumberScheduled", 0), 0, "integer"),
        ("Ready", get_cell("status.numberReady", 0), 0, "integer"),
        ("Up-to-date", get_cell("status.updatedNumberScheduled", 0), 0, "integer"),
        ("Available", get_cell("status.numberAvailable", 0), 0, "integer"),
        ("Node Selector", lambda data, now: labels_text(at(data, "spec.template.spec.nodeSelector"))),
        ("Age", age_cell),
        *_TEMPLATE,
        ("Selector", selector_cell("spec.selector"), 1),
    ),
    "controllerrevisions.apps": _layout(
        ("Name", _NAME),
        (
            "Controller",
            lambda data, now: joined([i.get("name") for i in as_items(at(data, "metadata.ownerReferences"))]),
        ),
        ("Revision", get_cell("revision", 0), 0, "integer"),
        ("Age", age_cell),
    ),
    "jobs.batch": _layout(
        ("Name", _NAME),
        ("Status", job_state_cell),
        ("Completions", job_completions_cell),
        ("Duration", job_duration_cell),
        ("Age", age_cell),
        *_TEMPLATE,
        ("Selector", selector_cell("spec.selector"), 1),
    ),
    "cronjobs.batch": _layout(
        ("Name", _NAME),
        ("Schedule", get_cell("spec.schedule")),
        ("Timezone", get_cell("spec.timeZone")),
        ("Suspend", lambda data, now: str(bool(at(data, "spec.suspend")))),
        ("Active", count_cell("status.active"), 0, "integer"),
        ("Last Schedule", since_cell("status.lastScheduleTime")),
        ("Age", age_cell),
        *_TEMPLATE,
    ),
    "podtemplates": _layout(
        ("Name", _NAME),
        ("Containers", pod_template_cell("name")),
        ("Images", pod_template_cell("image")),
        ("Pod Labels", lambda data, now: labels_text(at(data, "template.metadata.labels"))),
    ),
    "persistentvolumeclaims": _layout(
        ("Name", _NAME),
        ("Status", terminating_or_cell("status.phase")),
        ("Volume", get_cell("spec.volumeName", "")),
        ("Capacity", get_cell("status.capacity.storage", "")),
        ("Access Modes", access_cell("status.accessModes")),
        ("StorageClass", get_cell("spec.storageClassName", "")),
        ("VolumeAttributesClass", get_cell("spec.volumeAttributesClassName", "<unset>")),
        ("Age", age_cell),
        ("VolumeMode", get_cell("spec.volumeMode", "<unset>"), 1),
    ),
    "persistentvolumes": _layout(
        ("Name", _NAME),
        ("Capacity", get_cell("spec.capacity.storage", "")),
        ("Access Modes", access_cell("spec.accessModes")),
        ("Reclaim Policy", get_cell("spec.persistentVolumeReclaimPolicy", "")),
        ("Status", terminating_or_cell("status.phase")),
        ("Claim", volume_claim_cell),
        ("StorageClass", get_cell("spec.storageClassName", "")),
        ("VolumeAttributesClass", get_cell("spec.volumeAttributesClassName", "<unset>")),
        ("Reason", get_cell("status.reason", "")),
        ("Age", age_cell),
        ("VolumeMode", get_cell("spec.volumeMode", "<unset>"), 1),
    ),
    "storageclasses.storage.k8s.io": _layout(
        ("Name", storage_class_name_cell),
        ("Provisioner", get_cell("provisioner")),
        ("ReclaimPolicy", get_cell("reclaimPolicy", "Delete")),
        ("VolumeBindingMode", get_cell("volumeBindingMode", "Immediate")),
        ("AllowVolumeExpansion", lambda data, now: str(bool(data.get("allowVolumeExpansion"))).lower()),
        ("Age", age_cell),
    ),
    "volumeattributesclasses.storage.k8s.io": _layout(
        ("Name", _NAME), ("DriverName", get_cell("driverName")), ("Age", age_cell)
    ),
    "csinodes.storage.k8s.io": _layout(
        ("Name", _NAME), ("Drivers", count_cell("spec.drivers"), 0, "integer"), ("Age", age_cell)
    ),
    "csidrivers.storage.k8s.io": _layout(
        ("Name", _NAME),
        ("AttachRequired", get_cell("spec.attachRequired", True), 0, "boolean"),
        ("PodInfoOnMount", get_cell("spec.podInfoOnMount", False), 0, "boolean"),
        ("StorageCapacity", get_cell("spec.storageCapacity", False), 0, "boolean"),
        ("TokenRequests", lambda d, now: joined([i.get("audience") for i in as_items(at(d, "spec.tokenRequests"))])),
        ("RequiresRepublish", get_cell("spec.requiresRepublish", False), 0, "boolean"),
        ("Modes", lambda data, now: joined(at(data, "spec.volumeLifecycleModes") or ["Persistent"])),
        ("Age", age_cell),
    ),
    "csistoragecapacities.storage.k8s.io": _layout(
        ("Name", _NAME),
        ("StorageClassName", get_cell("storageClassName", "")),
        ("Capacity", get_cell("capacity", "<unset>")),
    ),
    "volumeattachments.storage.k8s.io": _layout(
        ("Name", _NAME),
        ("Attacher", get_cell("spec.attacher")),
        ("PV", get_cell("spec.source.persistentVolumeName", "")),
        ("Node", get_cell("spec.nodeName")),
        ("Attached", get_cell("status.attached", False), 0, "boolean"),
        ("Age", age_cell),
    ),
    "priorityclasses.scheduling.k8s.io": _layout(
        ("Name", _NAME),
        ("Value", get_cell("value", 0), 0, "integer"),
        ("Global-Default", get_cell("globalDefault", False), 0, "boolean"),
        ("Age", age_cell),
        ("PreemptionPolicy", get_cell("preemptionPolicy")),
    ),
    "podgroups.scheduling.k8s.io": GENERIC,
    "poddisruptionbudgets.policy": _layout(
        ("Name", _NAME),
        ("Min Available", lambda data, now: str(get_cell("spec.minAvailable", "N/A")(data, now))),
        ("Max Unavailable", lambda data, now: str(get_cell("spec.maxUnavailable", "N/A")(data, now))),
        ("Allowed Disruptions", get_cell("status.disruptionsAllowed", 0), 0, "integer"),
        ("Age", age_cell),
    ),
    "configmaps": _layout(
        ("Name", _NAME),
        ("Data", lambda data, now: count_cell("data")(data, now) + count_cell("binaryData")(data, now), 0, "integer"),
        ("Age", age_cell),
    ),
    "secrets": _layout(
        ("Name", _NAME),
        ("Type", get_cell("type", "Opaque")),
        ("Data", count_cell("data"), 0, "integer"),
        ("Age", age_cell),
    ),
    "serviceaccounts": _layout(("Name", _NAME), ("Secrets", count_cell("secrets"), 0, "integer"), ("Age", age_cell)),
    "resourcequotas": _layout(
        ("Name", _NAME), ("Request", quota_cell("requests")), ("Limit", quota_cell("limits")), ("Age", age_cell)
    ),
    "limitranges": _layout(("Name", _NAME), _CREATED),
    "endpoints": _layout(("Name", _NAME), ("Endpoints", endpoints_cell), ("Age", age_cell)),
    "endpointslices.discovery.k8s.io": _layout(
        ("Name", _NAME),
        ("AddressType", get_cell("addressType")),
        ("Ports", ports_cell),
        ("Endpoints", slice_endpoints_cell),
        ("Age", age_cell),
    ),
    "leases.coordination.k8s.io": _layout(
        ("Name", _NAME), ("Holder", get_cell("spec.holderIdentity", "")), ("Age", age_cell)
    ),
    "leasecandidates.coordination.k8s.io": _layout(
        ("Name", _NAME),
        ("LeaseName", get_cell("spec.leaseName")),
        ("BinaryVersion", get_cell("spec.binaryVersion")),
        ("EmulationVersion", get_cell("spec.emulationVersion", "")),
        ("PingTime", get_cell("spec.pingTime", "")),
        ("RenewTime", get_cell("spec.renewTime", "")),
        ("Strategy", get_cell("spec.strategy")),
        ("Age", age_cell),
    ),
    "runtimeclasses.node.k8s.io": _layout(("Name", _NAME), ("Handler", get_cell("handler")), ("Age", age_cell)),
    "resourceclaims.resource.k8s.io": _layout(("Name", _NAME), ("State", claim_state_cell), ("Age", age_cell)),
    "resourceslices.resource.k8s.io": _layout(
        ("Name", _NAME),
        ("Node", get_cell("spec.nodeName", "")),
        ("Driver", get_cell("spec.driver", "")),
        ("Pool", get_cell("spec.pool.name", "")),
        ("Age", age_cell),
    ),
    "ingresses.networking.k8s.io": _layout(
        ("Name", _NAME),
        ("Class", get_cell("spec.ingressClassName")),
        ("Hosts", hosts_cell),
        ("Address", addresses_cell),
        ("Ports", lambda data, now: "80, 443" if at(data, "spec.tls") else "80"),
        ("Age", age_cell),
    ),
    "ingressclasses.networking.k8s.io": _layout(
        ("Name", _NAME),
        ("Controller", get_cell("spec.controller")),
        ("Parameters", get_cell("spec.parameters.name")),
        ("Age", age_cell),
    ),
    "networkpolicies.networking.k8s.io": _layout(
        ("Name", _NAME), ("Pod-Selector", selector_cell("spec.podSelector")), ("Age", age_cell)
    ),
    "horizontalpodautoscalers.autoscaling": _layout(
        ("Name", _NAME),
        ("Reference", hpa_reference_cell),
        ("Targets", lambda data, now: "<unknown>"),
        ("MinPods", lambda data, now: str(get_cell("spec.minReplicas", "<unset>")(data, now))),
        ("MaxPods", get_cell("spec.maxReplicas", 0), 0, "integer"),
        ("Replicas", get_cell("status.currentReplicas", 0), 0, "integer"),
        ("Age", age_cell),
    ),
    "roles.rbac.authorization.k8s.io": _layout(("Name", _NAME), _CREATED),
    "clusterroles.rbac.authorization.k8s.io": _layout(("Name", _NAME), _CREATED),
    **{
        f"{name}.rbac.authorization.k8s.io": _layout(
            ("Name", _NAME),
            ("Role", role_cell),
            ("Age", age_cell),
            ("Users", subjects_cell("User"), 1),
            ("Groups", subjects_cell("Group"), 1),
            ("ServiceAccounts", subjects_cell("ServiceAccount"), 1),
        )
        for name in ("rolebindings", "clusterrolebindings")
    },
    **{
        f"{name}.admissionregistration.k8s.io": _layout(
            ("Name", _NAME), ("Webhooks", count_cell("webhooks"), 0, "integer"), ("Age", age_cell)
        )
        for name in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
    },
    "customresourcedefinitions.apiextensions.k8s.io": _layout(("Name", _NAME), _CREATED),
}
