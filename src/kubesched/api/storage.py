"""Storage objects as the scheduler reads them: claims, volumes, classes, and CSI drivers' reports about nodes.

As in :mod:`.types`, only fields that scheduling needs are declared. Source: rules/volumes.
"""

from __future__ import annotations

from typing import Any, Final

from .structs import Int32, ResourceList, Struct
from .types import LabelSelector, NodeSelector, ObjectMeta, ObjectReference, Pod
from .volume_sources import (
    AWSElasticBlockStore,
    AzureDisk,
    AzureFile,
    Cinder,
    CSISource,
    GCEPersistentDisk,
    PortworxVolume,
    VsphereVolume,
)

__all__ = [
    "BIND_COMPLETED",
    "BOUND_BY_CONTROLLER",
    "LEGACY_CLASS",
    "MIGRATED_PLUGINS",
    "NO_PROVISIONER",
    "SELECTED_NODE",
    "WAIT_FOR_FIRST_CONSUMER",
    "CSIDriver",
    "CSINode",
    "CSIStorageCapacity",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "StorageClass",
    "VolumeAttachment",
    "claims_of",
    "class_of",
]

#: Annotations (rules/volumes §1.3), in order: the claim's binding is complete; it was bound automatically; the node
#: chosen for provisioning; the class, in objects older than the field; the in-tree plugins that are migrated on a node.
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
LEGACY_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
MIGRATED_PLUGINS: Final = "storage.alpha.kubernetes.io/migrated-plugins"

#: Provisioner of a class whose volumes are made by hand.
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"


# -- claims and volumes ------------------------------------------------------------------------------------


class VolumeResources(Struct, frozen=True):
    requests: ResourceList = {}


class PersistentVolumeClaimSpec(Struct, frozen=True):
    """Spec of a claim. ``storage_class_name`` is None if no class was named and there was no default class."""

    access_modes: tuple[str, ...] = ()
    selector: LabelSelector | None = None
    resources: VolumeResources = VolumeResources()
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaimStatus(Struct, frozen=True):
    phase: str = ""


class PersistentVolumeClaim(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()

    @property
    def key(self) -> str:
        """Key of the claim: ``namespace/name``."""
        meta = self.metadata
        return f"{meta.namespace}/{meta.name}"


class VolumeNodeAffinity(Struct, frozen=True):
    required: NodeSelector | None = None


class PersistentVolumeSpec(Struct, frozen=True):
    capacity: ResourceList = {}
    access_modes: tuple[str, ...] = ()
    claim_ref: ObjectReference | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    volume_attributes_class_name: str | None = None
    aws_elastic_block_store: AWSElasticBlockStore | None = None
    azure_disk: AzureDisk | None = None
    azure_file: AzureFile | None = None
    cinder: Cinder | None = None
    csi: CSISource | None = None
    gce_persistent_disk: GCEPersistentDisk | None = None
    portworx_volume: PortworxVolume | None = None
    vsphere_volume: VsphereVolume | None = None


class PersistentVolumeStatus(Struct, frozen=True):
    phase: str = ""


class PersistentVolume(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def key(self) -> str:
        """The name, as volumes have no namespace."""
        return self.metadata.name


def class_of(obj: PersistentVolume | PersistentVolumeClaim) -> str:
    """Return the class of a claim or a volume: the old annotation if there is one, otherwise the field."""
    legacy = obj.metadata.annotations.get(LEGACY_CLASS)
    return legacy if legacy is not None else obj.spec.storage_class_name or ""


def claims_of(pod: Pod) -> list[tuple[str, dict[str, Any] | None]]:
    """Return the keys of the claims that a pod's volumes use. A claim that is made for the pod comes with its
    template.
    """
    found: list[tuple[str, dict[str, Any] | None]] = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            name = volume.persistent_volume_claim.claim_name
            if name:
                found.append((f"{pod.namespace}/{name}", None))
        elif volume.ephemeral is not None:
            template = volume.ephemeral.volume_claim_template or {}
            found.append((f"{pod.namespace}/{pod.name}-{volume.name}", template))
    return found


# -- classes and drivers -----------------------------------------------------------------------------------


class TopologySelectorLabelRequirement(Struct, frozen=True):
    key: str = ""
    values: tuple[str, ...] = ()


class TopologySelectorTerm(Struct, frozen=True):
    match_label_expressions: tuple[TopologySelectorLabelRequirement, ...] = ()


class StorageClass(Struct, frozen=True):
    """Storage class. ``volume_binding_mode`` is None if absent; an API server always sets it."""

    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()

    @property
    def name(self) -> str:
        return self.metadata.name


class VolumeNodeResources(Struct, frozen=True):
    """Number of volumes that a driver can attach to a node. ``count`` is None without a limit; 0 is a limit."""

    count: Int32 | None = None


class CSINodeDriver(Struct, frozen=True):
    name: str = ""
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(Struct, frozen=True):
    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: CSINodeSpec = CSINodeSpec()

    @property
    def name(self) -> str:
        return self.metadata.name


class CSIDriverSpec(Struct, frozen=True):
    attach_required: bool | None = None
    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class CSIDriver(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: CSIDriverSpec = CSIDriverSpec()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def attaches(self) -> bool:
        """True if volumes have to be attached to a node. The driver may say that they do not."""
        return self.spec.attach_required is not False


class CSIStorageCapacity(Struct, frozen=True):
    """Free capacity of a class in a part of the cluster. Quantities are None if unknown."""

    metadata: ObjectMeta = ObjectMeta()
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: str | int | float | None = None
    maximum_volume_size: str | int | float | None = None


class VolumeAttachmentSource(Struct, frozen=True):
    persistent_volume_name: str | None = None
    inline_volume_spec: dict[str, Any] | None = None


class VolumeAttachmentSpec(Struct, frozen=True):
    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachmentStatus(Struct, frozen=True):
    attached: bool = False


class VolumeAttachment(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
    status: VolumeAttachmentStatus = VolumeAttachmentStatus()

    @property
    def is_attached(self) -> bool:
        """True if the volume may be used on the node: it is attached, and not about to be detached."""
        return self.status.attached and self.metadata.deletion_timestamp is None
