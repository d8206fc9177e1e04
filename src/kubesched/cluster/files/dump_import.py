"""A real cluster's objects, from ``kubectl get -o yaml`` or ``-o json``, made ready for the embedded one.

Kept: nodes, pods, and what decides where pods go. Left out: Secrets and everything else that scheduling does not read,
quotas (they would refuse what exists already), pods that are being deleted, and in every container what may
hold a secret (environment, command, arguments, probes) and is not needed. A node that was unresponsive there is a failed node
here. Of annotations only Kubernetes' and our own are kept, and no parameters of drivers: both may hold anything.
Caller: :mod:`.snapshot_file`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ...api.kinds import KINDS, NAMESPACES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, Kind
from ...api.resource import CLAIM_FINALIZER
from ...api.wire import ApiError
from ..kubelets import FAILED
from ..store import Store
from .manifests import Manifest, ManifestError, Manifests, manifest_files, parse_manifests, read_text

__all__ = ["IMPORTED_KINDS", "Import", "import_dump", "import_manifests"]

#: What is kept, in the order in which it has to be stored.
KEPT: Final = (
    "namespaces",
    "priorityclasses.scheduling.k8s.io",
    "runtimeclasses.node.k8s.io",
    "storageclasses.storage.k8s.io",
    "csidrivers.storage.k8s.io",
    "deviceclasses.resource.k8s.io",
    "limitranges",
    "nodes",
    "csinodes.storage.k8s.io",
    "csistoragecapacities.storage.k8s.io",
    "resourceslices.resource.k8s.io",
    "devicetaintrules.resource.k8s.io",
    "services",
    "deployments.apps",
    "replicasets.apps",
    "replicationcontrollers",
    "statefulsets.apps",
    "daemonsets.apps",
    "controllerrevisions.apps",
    "cronjobs.batch",
    "jobs.batch",
    "workloads.scheduling.k8s.io",
    "podgroups.scheduling.k8s.io",
    "poddisruptionbudgets.policy",
    "persistentvolumes",
    "persistentvolumeclaims",
    "volumeattachments.storage.k8s.io",
    "resourceclaimtemplates.resource.k8s.io",
    "resourceclaims.resource.k8s.io",
    "pods",
)
_ORDER: Final = {name: number for number, name in enumerate(KEPT)}
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
#: Ends of the domains whose annotations come along; what others write in theirs is theirs.
_DOMAINS: Final = (".kubernetes.io", ".k8s.io", ".kubesched.io")
#: Finalizers that a controller here removes again.
_FINALIZERS: Final = frozenset(
    {
        "batch.kubernetes.io/job-tracking",
        "kubernetes.io/pvc-protection",
        "kubernetes.io/pv-protection",
        CLAIM_FINALIZER,
    }
)
_SECRETIVE: Final = (
    "env",
    "envFrom",
    "command",
    "args",
    "lifecycle",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
)
_BUILT_IN: Final = frozenset({"system-cluster-critical", "system-node-critical"})


#: What is worth asking a real cluster for.
IMPORTED_KINDS: Final = tuple(kind for kind in KINDS if kind.group_resource in _ORDER)


@dataclass(slots=True)
class Import:
    """What was read: objects in an order in which they can be stored, remarks, and what was left out by kind."""

    objects: list[Manifest] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    def store_in(self, store: Store) -> list[str]:
        """Create everything with its UIDs and status; what is refused is returned as text. Existing objects stay."""
        refused: list[str] = []
        for manifest in self.objects:
            try:
                store.create(manifest.kind, manifest.namespace, manifest.data, restore=True)
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    refused.append(f"{manifest.source}: {error.message}")
        store.change_identities()
        return refused


def import_dump(paths: Iterable[str | Path]) -> Import:
    """Read dumps: files (also ``.gz``) and the YAML and JSON files below directories. The same object twice counts once.

    Raises:
        ManifestError: for a path that does not exist, text that does not parse, or fields of the wrong type.
    """
    problems: list[str] = []

    def read() -> Iterator[Manifests]:
        for path, _ in manifest_files(paths, problems):
            try:
                yield parse_manifests(read_text(path), str(path).removesuffix(".gz"))
            except ManifestError as error:
                problems.extend(error.problems)

    found = import_manifests(read())
    if problems:
        raise ManifestError(*problems)
    return found


def import_manifests(sources: Iterable[Manifests]) -> Import:
    """Choose, clean and order what was read. The same object twice counts once."""
    result = Import()
    seen: dict[tuple[Kind, str, str], None] = {}
    namespaces: dict[str, str] = {}
    for found in sources:
        result.warnings += found.warnings
        for manifest in found.objects:
            kind = manifest.kind
            if kind.group_resource not in _ORDER:
                result.left_out[kind.group_resource] += 1
                continue
            key = (kind, manifest.namespace, manifest.name)
            if key in seen:
                continue
            seen[key] = None
            if kind == PODS and manifest.data["metadata"].get("deletionTimestamp"):
                result.left_out["pods being deleted"] += 1
                continue
            if kind.plural == "priorityclasses" and manifest.name in _BUILT_IN:
                continue
            if manifest.namespace:
                namespaces.setdefault(manifest.namespace, manifest.source)
            result.objects.append(Manifest(kind, _cleaned(kind, manifest.data), manifest.source))
    result.objects += [
        Manifest(NAMESPACES, {"metadata": {"name": name}}, source)
        for name, source in namespaces.items()
        if (NAMESPACES, "", name) not in seen
    ]
    result.objects.sort(key=lambda manifest: _ORDER[manifest.kind.group_resource])
    return result


def _cleaned(kind: Kind, data: dict[str, Any]) -> dict[str, Any]:
    """An object without what must not or need not come along. A new object where anything changes."""
    metadata = {key: value for key, value in data["metadata"].items() if key not in ("managedFields", "selfLink")}
    annotations = _known_annotations(metadata)
    finalizers = [name for name in metadata.get("finalizers") or () if name in _FINALIZERS]
    if kind == NODES and _is_unresponsive(data):
        annotations[FAILED] = "true"
    for name, value in (("annotations", annotations), ("finalizers", finalizers)):
        metadata.pop(name, None)
        if value:
            metadata[name] = value
    generation = metadata.pop("generation", None)
    result = {**data, "metadata": metadata}
    status = data.get("status")
    if isinstance(status, dict) and "observedGeneration" in status:
        # Generations start again; what had been observed stays observed.
        result["status"] = {**status, "observedGeneration": int(status["observedGeneration"] == generation)}
    if kind.plural == "storageclasses":
        result.pop("parameters", None)
    elif kind.group == RESOURCE_CLAIMS.group and kind != RESOURCE_SLICES:
        result |= {key: _without_parameters(result[key]) for key in ("spec", "status") if key in result}
    elif kind.plural == "persistentvolumes" and isinstance(data.get("spec"), dict):
        result["spec"] = _without_attributes(data["spec"])
    elif kind.plural == "volumeattachments" and isinstance(data.get("status"), dict):
        result["status"] = {key: value for key, value in data["status"].items() if key != "attachmentMetadata"}
    elif kind.plural == "statefulsets" and isinstance(data.get("spec"), dict):
        result["spec"] = dict(data["spec"])
        _clean_each(result["spec"], "volumeClaimTemplates", _without_notes)
    path = _TEMPLATES.get(kind.plural)
    return _without_secrets(result, path) if path is not None else result


def _known_annotations(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Those of Kubernetes' and our own domains, without the copy of the manifest that ``kubectl apply`` keeps."""
    given = metadata.get("annotations") or {}
    return {
        key: value
        for key, value in given.items()
        if key != _LAST_APPLIED and f".{key.partition('/')[0]}".endswith(_DOMAINS) and "/" in key
    }


def _without_notes(data: dict[str, Any]) -> dict[str, Any]:
    """An object or template with its well-known annotations only."""
    metadata = data.get("metadata")
    if not isinstance(metadata, dict) or "annotations" not in metadata:
        return data
    cleaned = {key: value for key, value in metadata.items() if key != "annotations"}
    annotations = _known_annotations(metadata)
    if annotations:
        cleaned["annotations"] = annotations
    return {**data, "metadata": cleaned}


def _without_attributes(source: dict[str, Any]) -> dict[str, Any]:
    """A volume without its driver's parameters: CSI attributes and flexVolume options. References to Secrets stay."""
    result = dict(source)
    for name, secretive in (("csi", "volumeAttributes"), ("flexVolume", "options")):
        if isinstance(source.get(name), dict):
            result[name] = {key: value for key, value in source[name].items() if key != secretive}
    return result


def _without_ephemeral_notes(volume: dict[str, Any]) -> dict[str, Any]:
    """A pod's volume without attributes, and without foreign annotations of the claim it makes."""
    result = _without_attributes(volume)
    ephemeral = volume.get("ephemeral")
    if isinstance(ephemeral, dict) and isinstance(ephemeral.get("volumeClaimTemplate"), dict):
        template = _without_notes(ephemeral["volumeClaimTemplate"])
        result["ephemeral"] = {**ephemeral, "volumeClaimTemplate": template}
    return result


def _without_parameters(value: Any) -> Any:
    """A copy without what only drivers of devices read: the parameters of opaque configuration, data of device status."""
    if isinstance(value, dict):
        return {
            key: {"driver": item.get("driver", ""), "parameters": {}}
            if key == "opaque" and isinstance(item, dict)
            else _without_parameters(item)
            for key, item in value.items()
            if key != "data"
        }
    return [_without_parameters(item) for item in value] if isinstance(value, list) else value


def _clean_each(data: dict[str, Any], name: str, clean: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Clean every member of a list, if it is there."""
    if isinstance(data.get(name), list):
        data[name] = [clean(item) if isinstance(item, dict) else item for item in data[name]]


def _is_unresponsive(node: Mapping[str, Any]) -> bool:
    """Whether the node's Ready condition is Unknown."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "Unknown" for one in conditions)


_TEMPLATES: Final[dict[str, tuple[str, ...]]] = {
    "pods": ("spec",),
    "cronjobs": ("spec", "jobTemplate", "spec", "template", "spec"),
    "controllerrevisions": ("data", "spec", "template", "spec"),
    **dict.fromkeys(
        ("deployments", "replicasets", "replicationcontrollers", "statefulsets", "daemonsets", "jobs"),
        ("spec", "template", "spec"),
    ),
}


def _without_secrets(data: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """The same with cleaned containers at the pod spec that a path leads to."""
    if path:
        child = data.get(path[0])
        data = _without_notes(data)
        return {**data, path[0]: _without_secrets(child, path[1:])} if isinstance(child, dict) else data
    result = dict(data)
    result.pop("ephemeralContainers", None)
    _clean_each(result, "volumes", _without_ephemeral_notes)
    for name in ("initContainers", "containers"):
        if isinstance(data.get(name), list):
            result[name] = [
                {key: value for key, value in container.items() if key not in _SECRETIVE} for container in data[name]
            ]
    return result
