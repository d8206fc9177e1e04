"""Import of a real cluster's objects, from ``kubectl get -o yaml`` or ``-o json``, into the embedded cluster.

The import keeps nodes, pods, and the objects that decide where pods go. It leaves out Secrets and everything else that
scheduling does not read, quotas (they would refuse new objects), and pods that are being deleted. It also leaves
out text that may hold a secret or personal words: environment, command, arguments and probes of containers, messages in
a status, annotations other than Kubernetes', our own and those of groups, and parameters of drivers. A node that was unresponsive
becomes a failed node; an object without its owners is marked, so that it is not collected. Caller: :mod:`.snapshot_file`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kubesched.api.kinds import (
    KINDS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
    STORAGE_CLASSES,
    Kind,
)
from kubesched.api.resource import CLAIM_FINALIZER
from kubesched.api.wire import ApiError

from ..admission import SYSTEM_PRIORITIES
from ..kubelets import FAILED
from ..schema import has_condition, table_lines
from ..store import Store
from .absent_owners import with_marks
from .manifests import Manifest, Manifests, manifest_files, parse_manifests, read_text

__all__ = ["IMPORTED_KINDS", "Import", "import_dump", "import_manifests"]

#: Kinds that are kept, with their place in the order of storing.
_ORDER: Final = {line: number for number, line in enumerate(table_lines("kept.txt", __package__))}
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
#: Domains whose annotations are kept, by their endings. Annotations of other domains may hold anything.
_DOMAINS: Final = (".kubernetes.io", ".k8s.io", ".kubesched.io")
#: Annotations of other domains that are kept: they are names and numbers of groups of pods.
_OF_GROUPS: Final = frozenset(
    {
        "kueue.x-k8s.io/pod-group-total-count",
        "scheduling.volcano.sh/group-min-member",
        "scheduling.volcano.sh/group-name",
    }
)
#: Finalizers that a controller here removes again.
_FINALIZERS: Final = frozenset(
    {"batch.kubernetes.io/job-tracking", "kubernetes.io/pvc-protection", "kubernetes.io/pv-protection", CLAIM_FINALIZER}
)
_SECRETIVE: Final = frozenset(
    {"env", "envFrom", "command", "args", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe"}
)
#: Members that are left out, by the name of the object, or list of objects, that contains them.
_LEFT_OUT: Final[dict[str, frozenset[str]]] = {
    "metadata": frozenset({"managedFields", "selfLink"}),
    "spec": frozenset({"ephemeralContainers"}),
    "containers": _SECRETIVE,
    "initContainers": _SECRETIVE,
    # Only drivers read these: members of volumes, attachments, and devices of claims.
    "csi": frozenset({"volumeAttributes"}),
    "flexVolume": frozenset({"options"}),
    "status": frozenset({"attachmentMetadata"}),
    "devices": frozenset({"data"}),
}

#: Kinds worth reading from a real cluster.
IMPORTED_KINDS: Final = tuple(kind for kind in KINDS if kind.group_resource in _ORDER)


@dataclass(slots=True)
class Import:
    """Import that has been read: objects in the order of storing, remarks, and numbers of left-out objects by kind."""

    objects: list[Manifest] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    def store_in(self, store: Store) -> list[str]:
        """Create all objects with their UIDs and status. Returns the refusals as text. Existing objects stay."""
        refused: list[str] = []
        for manifest in self.objects:
            try:
                store.create(manifest.kind, manifest.namespace, manifest.data, restore=True)
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    refused.append(f"{manifest.source}: {error.message}")
        store.change_identities()
        return refused


def import_dump(paths: Iterable[str | Path], *, deleting: bool = False) -> Import:
    """Read dumps: files (also ``.gz``) and the YAML and JSON files below directories. Repeated objects count once.

    ``deleting`` keeps pods that are being deleted, and quotas: the cluster is only looked at.

    Raises:
        ManifestError: for a path that does not exist, text that does not parse, or fields of the wrong type.
    """
    found = Manifests()
    for path, _ in manifest_files(paths, found.problems):
        with found.collecting():
            found.extend(parse_manifests(read_text(path), str(path).removesuffix(".gz")))
    return import_manifests(found.close(), deleting=deleting)


def import_manifests(found: Manifests, *, deleting: bool = False) -> Import:
    """Choose, clean and order objects that were read. Repeated objects count once.

    ``deleting`` keeps pods that are being deleted, and quotas: the cluster is only looked at.
    """
    result = Import(warnings=found.warnings)
    seen: set[tuple[Kind, str, str]] = set()
    namespaces: dict[str, str] = {}
    for manifest in found.objects:
        kind = manifest.kind
        if kind.group_resource not in _ORDER or (kind == RESOURCE_QUOTAS and not deleting):
            result.left_out[kind.group_resource] += 1
            continue
        key = (kind, manifest.namespace, manifest.name)
        if key in seen or (kind == PRIORITY_CLASSES and manifest.name in SYSTEM_PRIORITIES):
            continue
        seen.add(key)
        if kind == PODS and not deleting and manifest.data["metadata"].get("deletionTimestamp"):
            result.left_out["pods being deleted"] += 1
            continue
        if manifest.namespace:
            namespaces.setdefault(manifest.namespace, manifest.source)
        result.objects.append(Manifest(kind, _cleaned(kind, manifest.data), manifest.source))
    result.objects = with_marks(result.objects)
    result.objects += [
        Manifest(NAMESPACES, {"metadata": {"name": name}}, source)
        for name, source in namespaces.items()
        if (NAMESPACES, "", name) not in seen
    ]
    result.objects.sort(key=lambda manifest: _ORDER[manifest.kind.group_resource])
    return result


def _cleaned(kind: Kind, data: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of an object without the parts that must not, or need not, be kept."""
    if kind == RESOURCE_SLICES:  # the attributes of a device may have any names
        result = {**data, "metadata": _stripped(data["metadata"], "metadata")}
    else:
        result = _stripped(data)
    metadata = result["metadata"]
    if kind == NODES and has_condition(data, "Ready", "Unknown"):
        metadata["annotations"] = {**metadata.get("annotations", {}), FAILED: "true"}
    finalizers = [name for name in metadata.pop("finalizers", None) or () if name in _FINALIZERS]
    if finalizers:
        metadata["finalizers"] = finalizers
    generation = metadata.pop("generation", None)
    status = result.get("status")
    if isinstance(status, dict):
        status = result["status"] = _wordless(status)
        if "observedGeneration" in status:
            # Generations start again at 1. An observed generation stays observed.
            status["observedGeneration"] = int(status["observedGeneration"] == generation)
    if kind == STORAGE_CLASSES:
        result.pop("parameters", None)
    return result


def _wordless(value: Any) -> Any:
    """Return a copy of a status with empty messages. Messages are free text; reasons are fixed words of Kubernetes."""
    if isinstance(value, list):
        return [_wordless(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: "" if key == "message" and isinstance(item, str) else _wordless(item) for key, item in value.items()}


def _stripped_items(values: list[Any], name: str) -> list[Any]:
    return [
        _stripped(item, name)
        if isinstance(item, dict)
        else _stripped_items(item, name)
        if isinstance(item, list)
        else item
        for item in values
    ]


def _stripped(value: dict[str, Any], name: str = "") -> dict[str, Any]:
    """Return a copy of an object without secrets, notes and parameters of drivers.

    ``name`` is its name in the object that it is part of.
    """
    if name == "opaque":
        return {"driver": value.get("driver", ""), "parameters": {}}
    left_out = _LEFT_OUT.get(name, ())
    # Most values are plain, and a dump has millions of them: no call for each.
    result: dict[str, Any] = {
        key: _stripped(item, key)
        if isinstance(item, dict)
        else _stripped_items(item, key)
        if isinstance(item, list)
        else item
        for key, item in value.items()
        if key not in left_out
    }
    if name == "metadata" and "annotations" in result:
        known = {
            key: value
            for key, value in (result.pop("annotations") or {}).items()
            if key in _OF_GROUPS
            or (key != _LAST_APPLIED and f".{key.partition('/')[0]}".endswith(_DOMAINS) and "/" in key)
        }
        if known:
            result["annotations"] = known
    return result
