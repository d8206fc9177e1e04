"""Volumes that a pod uses, and nodes that reach them: read from the objects, for tests."""

from __future__ import annotations

from collections.abc import Mapping

from kubesched.api.storage import PersistentVolume
from kubesched.api.types import Pod

ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
DRIVER = "disk.example"


def claims_of(pod: Pod) -> list[str]:
    found = [
        one.persistent_volume_claim.claim_name for one in pod.spec.volumes if one.persistent_volume_claim is not None
    ]
    return found + [f"{pod.name}-{one.name}" for one in pod.spec.volumes if one.ephemeral is not None]


def zone_of(volume: PersistentVolume) -> str:
    """The zone of a volume; empty for one that is somewhere else or everywhere."""
    affinity = volume.spec.node_affinity
    terms = affinity.required.node_selector_terms if affinity is not None and affinity.required is not None else ()
    return next((one.values[0] for term in terms for one in term.match_expressions if one.key == ZONE), "")


def reaches(volume: PersistentVolume, labels: Mapping[str, str]) -> bool:
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return True
    return any(
        all(labels.get(one.key) in one.values for one in term.match_expressions)
        for term in affinity.required.node_selector_terms
    )
