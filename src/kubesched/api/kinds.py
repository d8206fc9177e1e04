"""Table of resource kinds. To add a kind, add one row.

The embedded cluster stores every kind of the table. A kind with a ``type`` is decoded into typed objects for the
scheduler's informers.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Final

from . import groups, other_groups, resource, storage, types

__all__ = [
    "BUDGETS",
    "CLAIMS",
    "CONFIG_MAPS",
    "CORE_EVENTS",
    "COSCHEDULING_GROUPS",
    "CRON_JOBS",
    "CSI_DRIVERS",
    "CSI_NODES",
    "CSI_STORAGE_CAPACITIES",
    "DAEMON_SETS",
    "DEFINITIONS",
    "DEPLOYMENTS",
    "DEVICE_CLASSES",
    "DEVICE_TAINT_RULES",
    "ENDPOINT_SLICES",
    "EVENTS",
    "JOBS",
    "KINDS",
    "LEASES",
    "LIMIT_RANGES",
    "NAMESPACES",
    "NODES",
    "PODS",
    "POD_GROUPS",
    "PRIORITY_CLASSES",
    "REPLICATION_CONTROLLERS",
    "REPLICA_SETS",
    "RESOURCE_CLAIMS",
    "RESOURCE_CLAIM_TEMPLATES",
    "RESOURCE_QUOTAS",
    "RESOURCE_SLICES",
    "REVISIONS",
    "RUNTIME_CLASSES",
    "SERVICES",
    "SERVICE_ACCOUNTS",
    "STATEFUL_SETS",
    "STORAGE_CLASSES",
    "VOLCANO_GROUPS",
    "VOLUMES",
    "VOLUME_ATTACHMENTS",
    "WORKLOADS",
    "Kind",
    "kind_by_plural",
    "kind_of",
]


@dataclass(frozen=True, slots=True)
class Kind:
    """Resource kind: its names in manifests, in paths and in messages."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    type: type[Any] | None = None
    #: Other versions in which the kind is served. Their shapes are converted, see
    #: :mod:`kubesched.cluster.schema.versions`.
    also_served: tuple[str, ...] = ()
    #: True if a CustomResourceDefinition defines the kind. Objects are then checked by its schema.
    custom: bool = False
    #: Feature gate without which an API server does not serve the kind.
    gate: str = ""
    api_version: str = field(init=False, repr=False)
    #: Name of the resource in API errors: ``pods``, ``deployments.apps``.
    group_resource: str = field(init=False, repr=False)
    _hash: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        group = self.group
        object.__setattr__(self, "api_version", f"{group}/{self.version}" if group else self.version)
        object.__setattr__(self, "group_resource", f"{self.plural}.{group}" if group else self.plural)
        object.__setattr__(self, "_hash", hash((group, self.plural)))

    # Kinds are compared and looked up with every request, nearly always with themselves. Therefore there are fast
    # paths.

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Kind):
            return NotImplemented
        if self.plural != other.plural or self.group != other.group:
            return False
        return all(getattr(self, one.name) == getattr(other, one.name) for one in fields(self))

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return self.group_resource


def _k(
    group: str,
    kind: str,
    plural: str,
    *short: str,
    namespaced: bool = True,
    in_all: bool = False,
    decoded_as: type[Any] | None = None,
    version: str = "v1",
    also: tuple[str, ...] = (),
    gate: str = "",
    custom: bool = False,
) -> Kind:
    """Return a row of the table. Each kind is stored in one version; ``also`` names other versions that are served."""
    categories = ("all",) if in_all else ()
    names = (kind, plural, namespaced, kind.lower(), short, categories)
    return Kind(group, version, *names, decoded_as, also, custom=custom, gate=gate)


#: Older versions of ``resource.k8s.io`` that 1.36 serves.
_BETAS: Final = ("v1beta2", "v1beta1")


NAMESPACES: Final = _k("", "Namespace", "namespaces", "ns", namespaced=False, decoded_as=types.Namespace)
NODES: Final = _k("", "Node", "nodes", "no", namespaced=False, decoded_as=types.Node)
PODS: Final = _k("", "Pod", "pods", "po", in_all=True, decoded_as=types.Pod)

#: Every kind that the embedded cluster knows, in the order of discovery.
KINDS: Final[tuple[Kind, ...]] = (
    NAMESPACES,
    NODES,
    PODS,
    _k("", "Service", "services", "svc", in_all=True),
    _k("", "ReplicationController", "replicationcontrollers", "rc", in_all=True),
    _k("", "ConfigMap", "configmaps", "cm"),
    _k("", "Secret", "secrets"),
    _k("", "ServiceAccount", "serviceaccounts", "sa"),
    _k("", "Event", "events", "ev"),
    _k("", "Endpoints", "endpoints", "ep"),
    _k("", "LimitRange", "limitranges", "limits"),
    _k("", "ResourceQuota", "resourcequotas", "quota"),
    _k("", "PodTemplate", "podtemplates"),
    _k("", "PersistentVolume", "persistentvolumes", "pv", namespaced=False, decoded_as=storage.PersistentVolume),
    _k("", "PersistentVolumeClaim", "persistentvolumeclaims", "pvc", decoded_as=storage.PersistentVolumeClaim),
    _k("apps", "Deployment", "deployments", "deploy", in_all=True),
    _k("apps", "ReplicaSet", "replicasets", "rs", in_all=True),
    _k("apps", "StatefulSet", "statefulsets", "sts", in_all=True),
    _k("apps", "DaemonSet", "daemonsets", "ds", in_all=True),
    _k("apps", "ControllerRevision", "controllerrevisions"),
    _k("batch", "Job", "jobs", in_all=True),
    _k("batch", "CronJob", "cronjobs", "cj", in_all=True),
    _k("policy", "PodDisruptionBudget", "poddisruptionbudgets", "pdb"),
    _k("scheduling.k8s.io", "PriorityClass", "priorityclasses", "pc", namespaced=False),
    _k("storage.k8s.io", "StorageClass", "storageclasses", "sc", namespaced=False, decoded_as=storage.StorageClass),
    _k("storage.k8s.io", "CSINode", "csinodes", namespaced=False, decoded_as=storage.CSINode),
    _k("storage.k8s.io", "CSIDriver", "csidrivers", namespaced=False, decoded_as=storage.CSIDriver),
    _k("storage.k8s.io", "CSIStorageCapacity", "csistoragecapacities", decoded_as=storage.CSIStorageCapacity),
    _k(
        "storage.k8s.io",
        "VolumeAttachment",
        "volumeattachments",
        namespaced=False,
        decoded_as=storage.VolumeAttachment,
    ),
    _k("resource.k8s.io", "ResourceClaim", "resourceclaims", decoded_as=resource.ResourceClaim, also=_BETAS),
    _k("resource.k8s.io", "ResourceClaimTemplate", "resourceclaimtemplates", also=_BETAS),
    _k(
        "resource.k8s.io",
        "ResourceSlice",
        "resourceslices",
        namespaced=False,
        decoded_as=resource.ResourceSlice,
        also=_BETAS,
    ),
    _k(
        "resource.k8s.io",
        "DeviceClass",
        "deviceclasses",
        namespaced=False,
        decoded_as=resource.DeviceClass,
        also=_BETAS,
    ),
    _k("coordination.k8s.io", "Lease", "leases"),
    _k("events.k8s.io", "Event", "events", "ev"),
    _k("discovery.k8s.io", "EndpointSlice", "endpointslices"),
    _k("node.k8s.io", "RuntimeClass", "runtimeclasses", namespaced=False),
    _k("rbac.authorization.k8s.io", "Role", "roles"),
    _k("rbac.authorization.k8s.io", "RoleBinding", "rolebindings"),
    _k("rbac.authorization.k8s.io", "ClusterRole", "clusterroles", namespaced=False),
    _k("rbac.authorization.k8s.io", "ClusterRoleBinding", "clusterrolebindings", namespaced=False),
    _k("storage.k8s.io", "VolumeAttributesClass", "volumeattributesclasses", "vac", namespaced=False),
    _k("networking.k8s.io", "Ingress", "ingresses", "ing"),
    _k("networking.k8s.io", "IngressClass", "ingressclasses", namespaced=False),
    _k("networking.k8s.io", "NetworkPolicy", "networkpolicies", "netpol"),
    _k("autoscaling", "HorizontalPodAutoscaler", "horizontalpodautoscalers", "hpa", in_all=True, version="v2"),
    _k("certificates.k8s.io", "CertificateSigningRequest", "certificatesigningrequests", "csr", namespaced=False),
    _k(
        "admissionregistration.k8s.io",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        namespaced=False,
    ),
    _k(
        "admissionregistration.k8s.io",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        namespaced=False,
    ),
    _k("coordination.k8s.io", "LeaseCandidate", "leasecandidates", version="v1beta1"),
    _k(
        "scheduling.k8s.io",
        "PodGroup",
        "podgroups",
        version="v1alpha2",
        decoded_as=groups.PodGroup,
        gate="GenericWorkload",
    ),
    _k("scheduling.k8s.io", "Workload", "workloads", version="v1alpha2", gate="GenericWorkload"),
    _k(
        "resource.k8s.io",
        "DeviceTaintRule",
        "devicetaintrules",
        namespaced=False,
        version="v1beta2",
        decoded_as=resource.DeviceTaintRule,
        also=("v1alpha3",),
    ),
    _k(
        "apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions", "crd", "crds", namespaced=False
    ),
    # Stored without effect: nothing here reads them.
    _k("apiregistration.k8s.io", "APIService", "apiservices", namespaced=False),
    _k("flowcontrol.apiserver.k8s.io", "FlowSchema", "flowschemas", namespaced=False),
    _k("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration", "prioritylevelconfigurations", namespaced=False),
    _k("networking.k8s.io", "ServiceCIDR", "servicecidrs", namespaced=False),
    _k("networking.k8s.io", "IPAddress", "ipaddresses", "ip", namespaced=False),
    _k("admissionregistration.k8s.io", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", namespaced=False),
    _k(
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        namespaced=False,
    ),
    _k("admissionregistration.k8s.io", "MutatingAdmissionPolicy", "mutatingadmissionpolicies", namespaced=False),
    _k(
        "admissionregistration.k8s.io",
        "MutatingAdmissionPolicyBinding",
        "mutatingadmissionpolicybindings",
        namespaced=False,
    ),
    # Pod groups of other projects: custom resources elsewhere, read by the plugin PodGroupMigration.
    _k(
        "scheduling.x-k8s.io",
        "PodGroup",
        "podgroups",
        version="v1alpha1",
        decoded_as=other_groups.OtherPodGroup,
        gate="GenericWorkload",
        custom=True,
    ),
    _k(
        "scheduling.volcano.sh",
        "PodGroup",
        "podgroups",
        version="v1beta1",
        decoded_as=other_groups.OtherPodGroup,
        gate="GenericWorkload",
        custom=True,
    ),
)

_BY_KIND: Final = {
    (f"{kind.group}/{version}" if kind.group else version, kind.kind): kind
    for kind in KINDS
    for version in (kind.version, *kind.also_served)
}
_BY_PLURAL: Final = {(kind.group, kind.plural): kind for kind in KINDS}


def kind_of(api_version: str, kind: str) -> Kind | None:
    """Return the row for a manifest's ``apiVersion`` and ``kind``, or None if the table has none.

    The row may have another version. Then the manifest has to be converted before it is stored.
    """
    return _BY_KIND.get((api_version, kind))


def kind_by_plural(group: str, plural: str) -> Kind | None:
    """Return the row for a resource path, or None if the table has none."""
    return _BY_PLURAL.get((group, plural))


# Kinds to which some of the code refers by name.
BUDGETS: Final = _BY_PLURAL["policy", "poddisruptionbudgets"]
CLAIMS: Final = _BY_PLURAL["", "persistentvolumeclaims"]
CONFIG_MAPS: Final = _BY_PLURAL["", "configmaps"]
CORE_EVENTS: Final = _BY_PLURAL["", "events"]
COSCHEDULING_GROUPS: Final = _BY_PLURAL["scheduling.x-k8s.io", "podgroups"]
CRON_JOBS: Final = _BY_PLURAL["batch", "cronjobs"]
CSI_DRIVERS: Final = _BY_PLURAL["storage.k8s.io", "csidrivers"]
CSI_NODES: Final = _BY_PLURAL["storage.k8s.io", "csinodes"]
CSI_STORAGE_CAPACITIES: Final = _BY_PLURAL["storage.k8s.io", "csistoragecapacities"]
DAEMON_SETS: Final = _BY_PLURAL["apps", "daemonsets"]
DEFINITIONS: Final = _BY_PLURAL["apiextensions.k8s.io", "customresourcedefinitions"]
DEPLOYMENTS: Final = _BY_PLURAL["apps", "deployments"]
DEVICE_CLASSES: Final = _BY_PLURAL["resource.k8s.io", "deviceclasses"]
DEVICE_TAINT_RULES: Final = _BY_PLURAL["resource.k8s.io", "devicetaintrules"]
ENDPOINT_SLICES: Final = _BY_PLURAL["discovery.k8s.io", "endpointslices"]
EVENTS: Final = _BY_PLURAL["events.k8s.io", "events"]
JOBS: Final = _BY_PLURAL["batch", "jobs"]
LEASES: Final = _BY_PLURAL["coordination.k8s.io", "leases"]
LEASE_CANDIDATES: Final = _BY_PLURAL["coordination.k8s.io", "leasecandidates"]
LIMIT_RANGES: Final = _BY_PLURAL["", "limitranges"]
POD_GROUPS: Final = _BY_PLURAL["scheduling.k8s.io", "podgroups"]
PRIORITY_CLASSES: Final = _BY_PLURAL["scheduling.k8s.io", "priorityclasses"]
REPLICATION_CONTROLLERS: Final = _BY_PLURAL["", "replicationcontrollers"]
REPLICA_SETS: Final = _BY_PLURAL["apps", "replicasets"]
RESOURCE_CLAIMS: Final = _BY_PLURAL["resource.k8s.io", "resourceclaims"]
RESOURCE_CLAIM_TEMPLATES: Final = _BY_PLURAL["resource.k8s.io", "resourceclaimtemplates"]
RESOURCE_SLICES: Final = _BY_PLURAL["resource.k8s.io", "resourceslices"]
RESOURCE_QUOTAS: Final = _BY_PLURAL["", "resourcequotas"]
REVISIONS: Final = _BY_PLURAL["apps", "controllerrevisions"]
RUNTIME_CLASSES: Final = _BY_PLURAL["node.k8s.io", "runtimeclasses"]
SERVICE_ACCOUNTS: Final = _BY_PLURAL["", "serviceaccounts"]
SERVICES: Final = _BY_PLURAL["", "services"]
STATEFUL_SETS: Final = _BY_PLURAL["apps", "statefulsets"]
STORAGE_CLASSES: Final = _BY_PLURAL["storage.k8s.io", "storageclasses"]
VOLCANO_GROUPS: Final = _BY_PLURAL["scheduling.volcano.sh", "podgroups"]
VOLUMES: Final = _BY_PLURAL["", "persistentvolumes"]
VOLUME_ATTACHMENTS: Final = _BY_PLURAL["storage.k8s.io", "volumeattachments"]
WORKLOADS: Final = _BY_PLURAL["scheduling.k8s.io", "workloads"]
