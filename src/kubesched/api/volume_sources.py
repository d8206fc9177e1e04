"""Sources of pod volumes and PersistentVolumes that scheduling reads: where the data of a volume is.

Most sources have the same shape in both. If one differs, its type has the fields of both. Source: rules/volumes §1.2,
§3.1, §7.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .structs import Struct

__all__ = [
    "ISCSI",
    "RBD",
    "AWSElasticBlockStore",
    "AzureDisk",
    "AzureFile",
    "CSISource",
    "Cinder",
    "ClaimSource",
    "EphemeralSource",
    "GCEPersistentDisk",
    "PortworxVolume",
    "VsphereVolume",
]


class ClaimSource(Struct, frozen=True):
    """Source of a pod volume: ``persistentVolumeClaim``."""

    claim_name: str = ""
    read_only: bool = False


class EphemeralSource(Struct, frozen=True):
    """Source of a pod volume: ``ephemeral``, a claim that is made for the pod. The template is plain data."""

    volume_claim_template: dict[str, Any] | None = None


class AWSElasticBlockStore(Struct, frozen=True):
    volume_id: str = msgspec.field(default="", name="volumeID")
    read_only: bool = False


class GCEPersistentDisk(Struct, frozen=True):
    pd_name: str = ""
    read_only: bool = False


class AzureDisk(Struct, frozen=True):
    disk_name: str = ""
    disk_uri: str = msgspec.field(default="", name="diskURI")
    kind: str | None = None


class AzureFile(Struct, frozen=True):
    secret_name: str = ""
    share_name: str = ""
    secret_namespace: str | None = None


class Cinder(Struct, frozen=True):
    volume_id: str = msgspec.field(default="", name="volumeID")


class PortworxVolume(Struct, frozen=True):
    volume_id: str = msgspec.field(default="", name="volumeID")


class VsphereVolume(Struct, frozen=True):
    volume_path: str = ""


class ISCSI(Struct, frozen=True):
    iqn: str = ""
    read_only: bool = False


class RBD(Struct, frozen=True):
    monitors: tuple[str, ...] = ()
    pool: str = ""
    image: str = ""
    read_only: bool = False


class CSISource(Struct, frozen=True):
    """Source of a pod volume or a PersistentVolume: ``csi``. The source of a pod volume has no handle."""

    driver: str = ""
    volume_handle: str = ""
