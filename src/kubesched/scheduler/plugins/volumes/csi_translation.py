"""Translation of in-tree volume sources to the CSI volumes that serve them today.

The functions return plain data: the driver of an in-tree source, the volume's handle at that driver, and the volume's
node affinity in the driver's topology keys. Callers decide whether migration applies, each by its own rule
(rules/volumes §2.9 and §5.4).

Source: rules/volumes §7 (upstream ``staging/src/k8s.io/csi-translation-lib``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec.structs import replace

from kubesched.api.storage import PersistentVolumeSpec
from kubesched.api.types import Labels, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Volume
from kubesched.api.volume_sources import (
    AWSElasticBlockStore,
    AzureDisk,
    AzureFile,
    Cinder,
    GCEPersistentDisk,
    PortworxVolume,
    VsphereVolume,
)

__all__ = [
    "BETA_REGION",
    "BETA_ZONE",
    "DELIMITER",
    "GA_REGION",
    "GA_ZONE",
    "MIGRATED",
    "TRANSLATIONS",
    "Translation",
    "TranslationError",
    "translation_of",
]

GA_ZONE: Final = "topology.kubernetes.io/zone"
GA_REGION: Final = "topology.kubernetes.io/region"
BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION: Final = "failure-domain.beta.kubernetes.io/region"

#: Separator of zones in a label's value, for a volume that several zones can reach.
DELIMITER: Final = "__"
_EBS_VOLUME: Final = re.compile(r"vol-[^/]*")


class TranslationError(ValueError):
    """An in-tree source has no CSI form; the text says why."""


def _ebs_handle(source: AWSElasticBlockStore, labels: Labels | None) -> str:
    volume_id = source.volume_id
    if not volume_id.startswith("aws://"):
        return volume_id
    try:
        name = urlsplit(volume_id).path.strip("/")
    except ValueError as error:
        raise TranslationError(f"invalid disk name ({volume_id}): {error}") from None
    if _EBS_VOLUME.fullmatch(name) is None:
        raise TranslationError(f"invalid format for AWS volume ({volume_id})")
    return name


def _gce_handle(source: GCEPersistentDisk, labels: Labels | None) -> str:
    disk = source.pd_name
    label = (labels or {}).get(BETA_ZONE) or (labels or {}).get(GA_ZONE)
    zones = label.split(DELIMITER) if label else []
    if len(zones) > 1:
        return f"projects/UNSPECIFIED/regions/{_region_of(zones)}/disks/{disk}"
    zone = zones[0] if zones else "UNSPECIFIED"
    return f"projects/UNSPECIFIED/zones/{zone}/disks/{disk}"


def _region_of(zones: list[str]) -> str:
    regions = set()
    for zone in zones:
        parts = zone.split("-")
        if len(parts) != 3:
            raise TranslationError(f"zone in unexpected format, expected: {{locale}}-{{region}}-{{zone}}, got: {zone}")
        regions.add("-".join(parts[:2]))
    if len(regions) != 1:
        raise TranslationError(f"zones of several regions: {', '.join(sorted(regions))}")
    return regions.pop()


def _azure_disk_handle(source: AzureDisk, labels: Labels | None) -> str:
    if source.kind and source.kind.lower() != "managed":
        raise TranslationError(f"azureDisk of kind {source.kind} has no CSI form, only Managed has")
    return source.disk_uri


def _volume_id(source: Cinder | PortworxVolume, labels: Labels | None) -> str:
    return source.volume_id


def _volume_path(source: VsphereVolume, labels: Labels | None) -> str:
    return source.volume_path


def _no_handle(source: AzureFile, labels: Labels | None) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Translation:
    """Translation of one in-tree volume type.

    Attributes:
        source: the field that holds the type's source, in a pod volume and in a PersistentVolume's spec.
        plugin: the type's in-tree name, which storage classes use as provisioner.
        driver: the CSI driver.
        zone_key: the driver's topology key for zones; "" when the affinity of its volumes stays as it is.
    """

    source: str
    plugin: str
    driver: str
    zone_key: str
    _handle: Callable[[Any, Labels | None], str]

    def handle(self, owner: Volume | PersistentVolumeSpec, labels: Labels | None = None) -> str:
        """Handle of a volume that has the source; ``labels`` are the labels of a PersistentVolume.

        The handle is "" for azureFile, whose volumes scheduling never counts by handle.

        Raises:
            TranslationError: when the source has no CSI form.
        """
        return self._handle(getattr(owner, self.source), labels)

    def required_affinity(self, labels: Labels, required: NodeSelector | None) -> NodeSelector | None:
        """Translate the required node affinity of a PersistentVolume of this type (rules/volumes §7.3)."""
        if not self.zone_key:
            return required
        terms = required.node_selector_terms if required is not None else ()
        zone, region = _label_family(labels, terms)
        if _uses(terms, zone):
            terms = _renamed(terms, zone, self.zone_key)
        elif zone in labels:
            zones = sorted({part.strip() for part in labels[zone].split(DELIMITER)} - {""})
            if zones:
                added = NodeSelectorRequirement(key=self.zone_key, operator="In", values=tuple(zones))
                terms = tuple(
                    replace(term, match_expressions=(*term.match_expressions, added))
                    for term in terms or (NodeSelectorTerm(),)
                )
        if region == BETA_REGION and _uses(terms, region):
            terms = _renamed(terms, region, GA_REGION)
        if required is None and not terms:
            return None
        return NodeSelector(node_selector_terms=terms)


_Terms = tuple[NodeSelectorTerm, ...]


def _label_family(labels: Labels, terms: _Terms) -> tuple[str, str]:
    """Zone and region keys that the volume uses: the GA keys, unless the volume has only the beta zone key."""
    keys = {requirement.key for term in terms for requirement in term.match_expressions}
    for where in (keys, labels):
        if GA_ZONE in where:
            return GA_ZONE, GA_REGION
        if BETA_ZONE in where:
            return BETA_ZONE, BETA_REGION
    return GA_ZONE, GA_REGION


def _uses(terms: _Terms, key: str) -> bool:
    """True if some term restricts the key to values."""
    return any(
        requirement.key == key and requirement.values for term in terms for requirement in term.match_expressions
    )


def _renamed(terms: _Terms, old: str, new: str) -> _Terms:
    return tuple(
        replace(
            term,
            match_expressions=tuple(
                replace(requirement, key=new) if requirement.key == old else requirement
                for requirement in term.match_expressions
            ),
        )
        for term in terms
    )


#: Translations by in-tree name, in the order in which the sources of a volume are tried.
TRANSLATIONS: Final[dict[str, Translation]] = {
    row.plugin: row
    for row in (
        Translation(
            "aws_elastic_block_store",
            "kubernetes.io/aws-ebs",
            "ebs.csi.aws.com",
            "topology.ebs.csi.aws.com/zone",
            _ebs_handle,
        ),
        Translation(
            "gce_persistent_disk",
            "kubernetes.io/gce-pd",
            "pd.csi.storage.gke.io",
            "topology.gke.io/zone",
            _gce_handle,
        ),
        Translation("azure_disk", "kubernetes.io/azure-disk", "disk.csi.azure.com", "", _azure_disk_handle),
        Translation(
            "cinder",
            "kubernetes.io/cinder",
            "cinder.csi.openstack.org",
            "topology.cinder.csi.openstack.org/zone",
            _volume_id,
        ),
        Translation("portworx_volume", "kubernetes.io/portworx-volume", "pxd.portworx.com", "", _volume_id),
        Translation("azure_file", "kubernetes.io/azure-file", "file.csi.azure.com", "", _no_handle),
        Translation("vsphere_volume", "kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com", "", _volume_path),
    )
}
_ROWS: Final = tuple((row.source, row) for row in TRANSLATIONS.values())

#: In-tree names whose volumes the scheduler treats as CSI volumes. Volumes of other names can be translated, but are
#: not treated so.
MIGRATED: Final = frozenset(
    {
        "kubernetes.io/aws-ebs",
        "kubernetes.io/gce-pd",
        "kubernetes.io/azure-disk",
        "kubernetes.io/cinder",
        "kubernetes.io/portworx-volume",
    }
)


def translation_of(owner: Volume | PersistentVolumeSpec) -> Translation | None:
    """Return the translation of the in-tree source of a pod volume or a PersistentVolume's spec; None without one."""
    for source, row in _ROWS:
        if getattr(owner, source, None) is not None:
            return row
    return None
