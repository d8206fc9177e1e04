"""Disks that pods name themselves, without a claim, and that two pods of a node cannot always share.

Source: rules/volumes §3.1.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from kubesched.api.types import Volume

__all__ = ["Disk", "DiskUse", "conflicts", "disk_uses"]

#: What identifies a disk, its type first.
Disk = tuple[str, ...]
#: A disk, and whether it is used in a way that tolerates others that do so, too: only reading.
DiskUse = tuple[Disk, bool]


def disk_uses(volumes: Sequence[Volume]) -> tuple[DiskUse, ...]:
    """The disks that volumes name. A Ceph image is one disk for each monitor: a shared monitor is enough for a conflict."""
    found: list[DiskUse] = []
    for volume in volumes:
        if (gce := volume.gce_persistent_disk) is not None:
            found.append((("gce", gce.pd_name), gce.read_only))
        if (aws := volume.aws_elastic_block_store) is not None:
            found.append((("aws", aws.volume_id), False))  # not even reading is shared
        if (iscsi := volume.iscsi) is not None:
            found.append((("iscsi", iscsi.iqn), iscsi.read_only))
        if (rbd := volume.rbd) is not None:
            found += [(("rbd", monitor, rbd.pool, rbd.image), rbd.read_only) for monitor in rbd.monitors]
    return tuple(found)


def conflicts(use: DiskUse, others: Container[DiskUse]) -> bool:
    """Whether a use of a disk is in conflict with one of the others."""
    disk, shared = use
    return (disk, False) in others or (not shared and (disk, True) in others)
