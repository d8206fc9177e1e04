"""The kinds that controllers work on, by name. Caller: every module of this package."""

from __future__ import annotations

from typing import Final

from ...api.kinds import Kind, kind_by_plural

__all__ = [
    "BUDGETS",
    "CLAIMS",
    "DAEMON_SETS",
    "DEPLOYMENTS",
    "JOBS",
    "LEASES",
    "REPLICATION_CONTROLLERS",
    "REPLICA_SETS",
    "REVISIONS",
    "STATEFUL_SETS",
    "STORAGE_CLASSES",
    "VOLUMES",
]


def _known(group: str, plural: str) -> Kind:
    kind = kind_by_plural(group, plural)
    assert kind is not None, f"{plural} must be in the table of kinds"
    return kind


BUDGETS: Final = _known("policy", "poddisruptionbudgets")
CLAIMS: Final = _known("", "persistentvolumeclaims")
DAEMON_SETS: Final = _known("apps", "daemonsets")
DEPLOYMENTS: Final = _known("apps", "deployments")
JOBS: Final = _known("batch", "jobs")
LEASES: Final = _known("coordination.k8s.io", "leases")
REPLICATION_CONTROLLERS: Final = _known("", "replicationcontrollers")
REPLICA_SETS: Final = _known("apps", "replicasets")
REVISIONS: Final = _known("apps", "controllerrevisions")
STATEFUL_SETS: Final = _known("apps", "statefulsets")
STORAGE_CLASSES: Final = _known("storage.k8s.io", "storageclasses")
VOLUMES: Final = _known("", "persistentvolumes")
