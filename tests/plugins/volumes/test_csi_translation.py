"""In-tree volume sources as CSI volumes: names, handles, topology (rules/volumes §7)."""

from __future__ import annotations

import re

import pytest

from kubesched.api.decode import from_builtins
from kubesched.api.types import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Volume
from kubesched.api.volume_sources import ISCSI, GCEPersistentDisk
from kubesched.scheduler.plugins.volumes.csi_translation import (
    BETA_REGION,
    BETA_ZONE,
    GA_REGION,
    GA_ZONE,
    MIGRATED,
    TRANSLATIONS,
    Translation,
    TranslationError,
    translation_of,
)

EBS = TRANSLATIONS["kubernetes.io/aws-ebs"]
GCE = TRANSLATIONS["kubernetes.io/gce-pd"]
AZURE = TRANSLATIONS["kubernetes.io/azure-disk"]
CINDER = TRANSLATIONS["kubernetes.io/cinder"]
PORTWORX = TRANSLATIONS["kubernetes.io/portworx-volume"]
VSPHERE = TRANSLATIONS["kubernetes.io/vsphere-volume"]


def a_volume(row: Translation, source: dict[str, str]) -> Volume:
    field = re.sub("_([a-z])", lambda match: match.group(1).upper(), row.source)
    return from_builtins({"name": "v", field: source}, Volume)


@pytest.mark.parametrize(
    ("source", "plugin", "driver"),
    [
        ("aws_elastic_block_store", "kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
        ("gce_persistent_disk", "kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
        ("azure_disk", "kubernetes.io/azure-disk", "disk.csi.azure.com"),
        ("cinder", "kubernetes.io/cinder", "cinder.csi.openstack.org"),
        ("portworx_volume", "kubernetes.io/portworx-volume", "pxd.portworx.com"),
        ("azure_file", "kubernetes.io/azure-file", "file.csi.azure.com"),
        ("vsphere_volume", "kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
    ],
)
def test_every_in_tree_type_has_its_driver(source: str, plugin: str, driver: str) -> None:
    row = TRANSLATIONS[plugin]
    assert (row.source, row.driver) == (source, driver)


def test_azure_files_and_vsphere_volumes_are_translatable_but_never_treated_as_csi() -> None:
    assert set(TRANSLATIONS) - MIGRATED == {"kubernetes.io/azure-file", "kubernetes.io/vsphere-volume"}


def test_the_source_of_a_volume_names_its_translation() -> None:
    assert translation_of(Volume(name="v", gce_persistent_disk=GCEPersistentDisk(pd_name="d"))) is GCE
    assert translation_of(Volume(name="v", iscsi=ISCSI(iqn="q"))) is None


@pytest.mark.parametrize(
    ("row", "source", "labels", "handle"),
    [
        (EBS, {"volumeID": "vol-1"}, None, "vol-1"),
        (EBS, {"volumeID": "aws://us-east-1a/vol-1"}, None, "vol-1"),
        (EBS, {"volumeID": "aws:///vol-1/"}, None, "vol-1"),
        (EBS, {}, None, ""),
        (GCE, {"pdName": "d"}, None, "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"),
        (GCE, {"pdName": "d"}, {}, "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"),
        (GCE, {"pdName": "d"}, {GA_ZONE: "eu-west1-b"}, "projects/UNSPECIFIED/zones/eu-west1-b/disks/d"),
        (GCE, {"pdName": "d"}, {BETA_ZONE: "b", GA_ZONE: "g"}, "projects/UNSPECIFIED/zones/b/disks/d"),
        (
            GCE,
            {"pdName": "d"},
            {GA_ZONE: "eu-west1-b__eu-west1-c"},
            "projects/UNSPECIFIED/regions/eu-west1/disks/d",
        ),
        (AZURE, {"diskURI": "/subscriptions/x"}, None, "/subscriptions/x"),
        (AZURE, {"diskURI": "/subscriptions/x", "kind": "managed"}, None, "/subscriptions/x"),
        (CINDER, {"volumeID": "c"}, None, "c"),
        (PORTWORX, {"volumeID": "p"}, None, "p"),
        (VSPHERE, {"volumePath": "[store] disk"}, None, "[store] disk"),
    ],
)  # fmt: skip
def test_handles(row: Translation, source: dict[str, str], labels: dict[str, str] | None, handle: str) -> None:
    assert row.handle(a_volume(row, source), labels) == handle


@pytest.mark.parametrize(
    ("row", "source", "labels"),
    [
        (EBS, {"volumeID": "aws://us-east-1a/disk-1"}, None),
        (EBS, {"volumeID": "aws://zone/a/vol-1"}, None),
        (EBS, {"volumeID": "aws://[broken/vol-1"}, None),
        (GCE, {"pdName": "d"}, {GA_ZONE: "eu-west1-b__eu-west2-b"}),
        (GCE, {"pdName": "d"}, {GA_ZONE: "a__b"}),
        (AZURE, {"diskURI": "x", "kind": "Dedicated"}, None),
    ],
)
def test_sources_without_a_csi_form_are_errors(
    row: Translation, source: dict[str, str], labels: dict[str, str] | None
) -> None:
    with pytest.raises(TranslationError):
        row.handle(a_volume(row, source), labels)


def term(**values: tuple[str, ...]) -> NodeSelectorTerm:
    keys = {"ga": GA_ZONE, "beta": BETA_ZONE, "ga_region": GA_REGION, "beta_region": BETA_REGION, "disk": "disk"}
    keys["csi"] = EBS.zone_key
    return NodeSelectorTerm(
        match_expressions=tuple(
            NodeSelectorRequirement(key=keys[name], operator="In", values=found) for name, found in values.items()
        )
    )


@pytest.mark.parametrize(
    ("labels", "terms", "expected"),
    [
        ({}, None, None),
        ({}, (), ()),
        ({}, (term(disk=("ssd",)),), (term(disk=("ssd",)),)),
        # The zone key is renamed in every term.
        ({}, (term(ga=("a",)), term(ga=("b",))), (term(csi=("a",)), term(csi=("b",)))),
        ({}, (term(beta=("a",)),), (term(csi=("a",)),)),
        # Both keys: the GA one counts.
        ({}, (term(ga=("a",), beta=("b",)),), (term(csi=("a",), beta=("b",)),)),
        # Labels count when the affinity does not name the key.
        ({GA_ZONE: "b__a__ a__"}, None, (term(csi=("a", "b")),)),
        ({GA_ZONE: "b"}, (term(disk=("ssd",)), term(disk=("hdd",))),
         (term(disk=("ssd",), csi=("b",)), term(disk=("hdd",), csi=("b",)))),
        ({GA_ZONE: " __"}, None, None),
        ({BETA_ZONE: "b"}, None, (term(csi=("b",)),)),
        ({GA_ZONE: "g", BETA_ZONE: "b"}, None, (term(csi=("g",)),)),
        # Of the beta family the region is renamed, too.
        ({}, (term(beta=("a",), beta_region=("r",)),), (term(csi=("a",), ga_region=("r",)),)),
        ({}, (term(ga=("a",), beta_region=("r",)),), (term(csi=("a",), beta_region=("r",)),)),
        ({BETA_ZONE: "a"}, (term(beta_region=("r",)),), (term(ga_region=("r",), csi=("a",)),)),
    ],
)  # fmt: skip
def test_the_affinity_of_a_zonal_volume_is_in_the_drivers_keys(
    labels: dict[str, str], terms: tuple[NodeSelectorTerm, ...] | None, expected: tuple[NodeSelectorTerm, ...] | None
) -> None:
    required = None if terms is None else NodeSelector(node_selector_terms=terms)
    found = EBS.required_affinity(labels, required)
    assert (None if found is None else found.node_selector_terms) == expected


def test_the_affinity_of_types_without_a_zone_key_stays() -> None:
    required = NodeSelector(node_selector_terms=(term(ga=("a",)),))
    assert AZURE.required_affinity({GA_ZONE: "b"}, required) is required
