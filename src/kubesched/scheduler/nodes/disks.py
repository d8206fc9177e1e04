"""Disks that pods name without a claim, and the rule when two pods on a node cannot share one.

Source: rules/volumes §3.1.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from kubesched.api.types import Volume

__all__ = ["Disk", "DiskUse", "conflicts", "disk_uses"]

#: Identity of a disk: its type, and the names within the type.
Disk = tuple[str, ...]
#: Use of a disk: the disk, and True if it is only read; uses that only read can share a disk.
DiskUse = tuple[Disk, bool]


def disk_uses(volumes: Sequence[Volume]) -> tuple[DiskUse, ...]:
    """Return the uses of disks that volumes name.

    A Ceph image counts as one disk for each of its monitors: one common monitor is enough for a conflict.
    """
    found: list[DiskUse] = []
    for volume in volumes:
        if (gce := volume.gce_persistent_disk) is not None:
            found.append((("gce", gce.pd_name), gce.read_only))
        if (aws := volume.aws_elastic_block_store) is not None:
            found.append((("aws", aws.volume_id), False))  # cannot be shared, not even for reading
        if (iscsi := volume.iscsi) is not None:
            found.append((("iscsi", iscsi.iqn), iscsi.read_only))
        if (rbd := volume.rbd) is not None:
            found += [(("rbd", monitor, rbd.pool, rbd.image), rbd.read_only) for monitor in rbd.monitors]
    return tuple(found)


def conflicts(use: DiskUse, others: Container[DiskUse]) -> bool:
    """Return True if a use of a disk conflicts with one of the others."""
    disk, shared = use
    return (disk, False) in others or (not shared and (disk, True) in others)
