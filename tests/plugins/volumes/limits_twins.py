"""Plain twins of the filters about volumes: straight from the specification, one node at a time, nothing kept.

Only the API types of the package are used, so a mistake in an index, a column or a signature is not made twice. Rules:
rules/volumes §3 to §5 and §7.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubesched.api.storage import PersistentVolume, PersistentVolumeClaim
from kubesched.api.types import Node, Pod, Volume

#: (code, reasons), or None where the node passes.
Outcome = tuple[int, tuple[str, ...]] | None
SKIP = "skip"
U, UU = 2, 3


class FailedError(Exception):
    """The attempt fails."""


@dataclass
class World:
    """Everything there is: nodes, the pods on them, and objects by kind and key."""

    nodes: dict[str, Node] = field(default_factory=dict)
    pods: list[Pod] = field(default_factory=list)
    objects: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def find(self, plural: str, key: str) -> Any:
        return self.objects.get(plural, {}).get(key)

    def on(self, node: str) -> list[Pod]:
        return [pod for pod in self.pods if pod.spec.node_name == node]


def _claim_names(pod: Pod) -> list[str]:
    return [item.persistent_volume_claim.claim_name for item in pod.spec.volumes if item.persistent_volume_claim]


# -- restrictions (rules/volumes §3) -----------------------------------------------------------------------------------


def _conflict(mine: Volume, other: Volume) -> bool:
    if (a := mine.gce_persistent_disk) and (b := other.gce_persistent_disk) and a.pd_name == b.pd_name:
        return not (a.read_only and b.read_only)
    if (c := mine.aws_elastic_block_store) and (d := other.aws_elastic_block_store):
        return c.volume_id == d.volume_id
    if (e := mine.iscsi) and (f := other.iscsi) and e.iqn == f.iqn:
        return not (e.read_only and f.read_only)
    if (g := mine.rbd) and (h := other.rbd) and (g.pool, g.image) == (h.pool, h.image):
        return bool(set(g.monitors) & set(h.monitors)) and not (g.read_only and h.read_only)
    return False


def restrictions(world: World, pod: Pod) -> dict[str, Outcome] | str | Outcome:
    exclusive = set()
    for name in _claim_names(pod):
        claim = world.find("persistentvolumeclaims", f"{pod.namespace}/{name}")
        if claim is None:
            return UU, (f'persistentvolumeclaim "{name}" not found',)
        if "ReadWriteOncePod" in claim.spec.access_modes:
            exclusive.add(name)
    in_use = {
        name
        for name in exclusive
        if any(other.namespace == pod.namespace and name in _claim_names(other) for other in world.pods)
    }
    inline = any(
        item.gce_persistent_disk or item.aws_elastic_block_store or item.iscsi or item.rbd for item in pod.spec.volumes
    )
    if not inline and not in_use:
        return SKIP
    found: dict[str, Outcome] = {}
    for node in world.nodes:
        there = [item for other in world.on(node) for item in other.spec.volumes]
        if any(_conflict(mine, other) for mine in pod.spec.volumes for other in there):
            found[node] = (U, ("node(s) had no available disk",))
        elif in_use:
            text = (
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
                "already in-use by another pod"
            )
            found[node] = (U, (text,))
        else:
            found[node] = None
    return found


# -- zones (rules/volumes §4) ------------------------------------------------------------------------------------------

_ZONE, _REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
_OLD_ZONE, _OLD_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
_FOUR = (_OLD_ZONE, _OLD_REGION, _ZONE, _REGION)


def _demands(volume: PersistentVolume) -> list[tuple[str, set[str]]]:
    found = []
    for key in _FOUR:
        if key in volume.metadata.labels:
            values = [value.strip() for value in volume.metadata.labels[key].split("__")]
            if all(values):
                found.append((key, set(values)))
    return found


def zones(world: World, pod: Pod) -> dict[str, Outcome] | str | Outcome:
    demands: list[tuple[str, set[str]]] = []
    for name in _claim_names(pod):
        if not name:
            return UU, ("PersistentVolumeClaim had no name",)
        claim: PersistentVolumeClaim | None = world.find("persistentvolumeclaims", f"{pod.namespace}/{name}")
        if claim is None:
            return UU, (f'persistentvolumeclaim "{name}" not found',)
        if not claim.spec.volume_name:
            class_name = claim.spec.storage_class_name
            if not class_name:
                return UU, ("PersistentVolumeClaim had no pv name and storageClass name",)
            storage_class = world.find("storageclasses", class_name)
            if storage_class is None:
                return UU, (f'storageclass.storage.k8s.io "{class_name}" not found',)
            if storage_class.volume_binding_mode is None:
                return UU, (f'VolumeBindingMode not set for StorageClass "{class_name}"',)
            if storage_class.volume_binding_mode != "WaitForFirstConsumer":
                return UU, ("PersistentVolume had no name",)
            continue
        volume = world.find("persistentvolumes", claim.spec.volume_name)
        if volume is None:
            return UU, (f'persistentvolume "{claim.spec.volume_name}" not found',)
        demands += _demands(volume)
    if not demands:
        return SKIP
    return {name: _in_zone(node, demands) for name, node in world.nodes.items()}


def _in_zone(node: Node, demands: Sequence[tuple[str, set[str]]]) -> Outcome:
    labels = node.metadata.labels
    if not any(key in labels for key in _FOUR):
        return None
    newer = {_OLD_ZONE: _ZONE, _OLD_REGION: _REGION}
    for key, values in demands:
        value = labels[key] if key in labels else labels.get(newer.get(key, key))
        if value not in values:
            return UU, ("node(s) had no available volume zone",)
    return None


# -- limits (rules/volumes §5) -----------------------------------------------------------------------------------------

_EBS = ("kubernetes.io/aws-ebs", "ebs.csi.aws.com")
_GCE = ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io")
_AZURE = ("kubernetes.io/azure-disk", "disk.csi.azure.com")
_FILES = "kubernetes.io/azure-file"


def _in_tree(owner: Any) -> tuple[str, str, str | None] | None:
    """(plugin, driver, handle) of the four in-tree types that the worlds have; a handle None has no CSI form."""
    if owner.gce_persistent_disk is not None:
        return (*_GCE, f"projects/UNSPECIFIED/zones/UNSPECIFIED/disks/{owner.gce_persistent_disk.pd_name}")
    if owner.aws_elastic_block_store is not None:
        text = owner.aws_elastic_block_store.volume_id
        if text.startswith("aws://"):
            match = re.fullmatch(r"aws://[^/]*/+(vol-[^/]*)/*", text)
            return (*_EBS, match.group(1) if match else None)
        return (*_EBS, text)
    if owner.azure_disk is not None:
        bad = owner.azure_disk.kind not in (None, "", "Managed")
        return (*_AZURE, None if bad else owner.azure_disk.disk_uri)
    if owner.azure_file is not None:
        return _FILES, "file.csi.azure.com", "never counted"
    return None


def _countable(world: World, pod: Pod, has_csi_node: bool, is_new: bool) -> dict[str, str]:
    """Unique name to driver."""
    found: dict[str, str] = {}

    def count(driver: str, handle: str) -> None:
        if driver and handle:
            found[f"{driver}/{handle}"] = driver

    for item in pod.spec.volumes:
        if item.persistent_volume_claim is None and item.ephemeral is None:
            in_tree = _in_tree(item)
            if in_tree is not None and has_csi_node and in_tree[0] != _FILES:
                if in_tree[2] is None:
                    raise FailedError("conversion")
                count(in_tree[1], in_tree[2])
            continue
        name = item.persistent_volume_claim.claim_name if item.persistent_volume_claim else f"{pod.name}-{item.name}"
        if not name:
            raise FailedError("no name")
        key = f"{pod.namespace}/{name}"
        claim = world.find("persistentvolumeclaims", key)
        if claim is None:
            if is_new:
                raise LookupError(f'looking up PVC {key}: persistentvolumeclaim "{name}" not found')
            continue
        if item.ephemeral is not None and not any(
            owner.controller and owner.uid == pod.uid for owner in claim.metadata.owner_references
        ):
            raise FailedError("not owner")
        volume = world.find("persistentvolumes", claim.spec.volume_name) if claim.spec.volume_name else None
        if volume is not None:
            if volume.spec.csi is not None:
                count(volume.spec.csi.driver, volume.spec.csi.volume_handle)
            else:
                in_tree = _in_tree(volume.spec)
                if in_tree is not None and has_csi_node and in_tree[0] != _FILES and in_tree[2] is not None:
                    count(in_tree[1], in_tree[2])
            continue
        storage_class = world.find("storageclasses", claim.spec.storage_class_name or "")
        if storage_class is None:
            continue
        driver = storage_class.provisioner
        names = dict([_EBS, _GCE, _AZURE])
        if driver == _FILES or (driver in names and not has_csi_node):
            continue
        count(names.get(driver, driver), f"random-{key}")
    return found


def limits(world: World, pod: Pod, scaling: bool) -> dict[str, Outcome] | str:
    """Raises FailedError when the attempt fails."""
    if not any(
        item.persistent_volume_claim or item.ephemeral or _in_tree(item) is not None for item in pod.spec.volumes
    ):
        return SKIP
    return {name: _within_limits(world, pod, name, scaling) for name in world.nodes}


def _within_limits(world: World, pod: Pod, node: str, scaling: bool) -> Outcome:
    csi_node = world.find("csinodes", node)
    try:
        new = _countable(world, pod, csi_node is not None, True)
    except LookupError as error:
        return UU, (str(error),)
    drivers = {} if csi_node is None else {driver.name: driver.allocatable for driver in csi_node.spec.drivers}
    for driver in sorted(set(new.values())) if scaling else ():
        known = world.find("csidrivers", driver)
        if known is not None and known.spec.prevent_pod_scheduling_if_missing and driver not in drivers:
            return U, (f"{driver} CSI driver is not installed on the node",)
    counts = {name: each.count for name, each in drivers.items() if each is not None and each.count is not None}
    if not new or not counts:
        return None
    attached: dict[str, str] = {}
    for other in world.on(node):
        attached.update(_countable(world, other, True, False))
    number: dict[str, int] = {}
    for driver in attached.values():
        number[driver] = number.get(driver, 0) + 1
    for driver in _still_attached(world, node, attached):
        number[driver] = number.get(driver, 0) + 1
    wanted: dict[str, int] = {}
    for unique, driver in new.items():
        if unique not in attached:
            wanted[driver] = wanted.get(driver, 0) + 1
    if any(number.get(driver, 0) + more > counts[driver] for driver, more in wanted.items() if driver in counts):
        return U, ("node(s) exceed max volume count",)
    return None


def _still_attached(world: World, node: str, attached: Mapping[str, str]) -> Iterable[str]:
    found = {}
    for attachment in world.objects.get("volumeattachments", {}).values():
        spec = attachment.spec
        if spec.node_name != node or not spec.attacher or not spec.source.persistent_volume_name:
            continue
        volume = world.find("persistentvolumes", spec.source.persistent_volume_name)
        if volume is not None and volume.spec.csi is not None:
            found[f"{spec.attacher}/{volume.spec.csi.volume_handle}"] = spec.attacher
    return [driver for unique, driver in found.items() if unique not in attached]
