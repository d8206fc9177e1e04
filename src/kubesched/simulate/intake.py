"""Manifests into a store: what is expanded, in which order objects are created, and what was refused.

Caller: :mod:`.simulation` and the demonstration. An export of a live cluster is taken as it is: a workload whose
pods are in the export makes no pods of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from kubesched.api.decode import DecodeError, from_builtins
from kubesched.api.kinds import CLAIMS, NAMESPACES, NODES, PODS, RESOURCE_CLAIMS, STORAGE_CLASSES, VOLUMES
from kubesched.api.selectors import required_node_affinity
from kubesched.api.taints import first_untolerated
from kubesched.api.types import Node, Pod
from kubesched.api.wire import ApiError
from kubesched.cluster.controllers import DEVICES_ANNOTATION, DevicesError, parse_devices
from kubesched.cluster.files import (
    Manifest,
    ManifestError,
    Manifests,
    expand_workloads,
    load_manifests,
    object_manifests,
)
from kubesched.cluster.http import unknown_in_manifest
from kubesched.cluster.kubelets import make_nodes
from kubesched.cluster.store import Store

from .arrivals import ARRIVAL, arrival_of, template_arrival
from .result import Refusal

__all__ = [
    "Intake",
    "Source",
    "check_devices",
    "gather",
    "in_order",
    "store_objects",
    "unknown_fields",
    "with_default_class",
]

#: Loaded manifests, or paths of files and directories, or objects as plain data; also mixed.
Source: TypeAlias = Manifests | Iterable[str | os.PathLike[str] | Mapping[str, Any] | Manifest]

_ORDER: Final = {
    "namespaces": 0,
    "priorityclasses.scheduling.k8s.io": 1,
    "runtimeclasses.node.k8s.io": 1,
    "storageclasses.storage.k8s.io": 1,
    "nodes": 2,
    "pods": 9,
}
#: What a fresh cluster contains; a manifest with the same is not a mistake.
_BUILT_IN: Final = frozenset(
    (
        *(("namespaces", name) for name in ("default", "kube-node-lease", "kube-public", "kube-system")),
        *(("priorityclasses.scheduling.k8s.io", name) for name in ("system-cluster-critical", "system-node-critical")),
    )
)


#: What a cluster without a StorageClass of its own gets, as kind's clusters have: claims without a class just work.
_DEFAULT_CLASS: Final = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    "provisioner": "hollow.kubesched.io",
    "reclaimPolicy": "Delete",
    "volumeBindingMode": "WaitForFirstConsumer",
}


#: Kinds that are stored and do nothing, and what they would do.
_INERT: Final = {
    "cronjobs.batch": "the clock starts no jobs",
    "horizontalpodautoscalers.autoscaling": "nothing is scaled by load",
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": "webhooks are not called",
    "validatingwebhookconfigurations.admissionregistration.k8s.io": "webhooks are not called",
}


@dataclass(slots=True)
class Intake:
    """Everything to be stored, pods of workloads included, in the order of creation."""

    objects: list[Manifest] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    #: What arrives later: seconds after the start, and the objects that then arrive together.
    later: list[tuple[float, list[Manifest]]] = field(default_factory=list)

    def everything(self) -> Iterator[Manifest]:
        """All objects, those that arrive later included."""
        yield from self.objects
        for _, objects in self.later:
            yield from objects

    @property
    def uses_storage(self) -> bool:
        """Whether there are storage objects, or pods that use claims."""
        return any(
            item.kind in (CLAIMS, VOLUMES)
            or item.kind.group == STORAGE_CLASSES.group
            or (item.kind == PODS and _uses_claims(item.data))
            for item in self.everything()
        )

    @property
    def uses_devices(self) -> bool:
        """Whether there are objects of dynamic resources, nodes with hollow devices, or pods with resource claims."""
        return any(
            item.kind.group == RESOURCE_CLAIMS.group
            or (item.kind == NODES and _devices(item) is not None)
            or (item.kind == PODS and (item.data.get("spec") or {}).get("resourceClaims"))
            for item in self.everything()
        )


def gather(
    source: Source,
    *,
    nodes: int = 0,
    node_template: Mapping[str, Any] | None = None,
    zones: Sequence[str] = (),
    present: Sequence[Node] = (),
) -> Intake:
    """Load and expand; ``nodes`` hollow nodes are added to those of the manifests.

    A DaemonSet makes pods for all of these, and for the nodes that are ``present`` already.

    Raises:
        ManifestError: for what cannot be read or used.
    """
    loaded = _load(source)
    objects = [
        Manifest(NODES, data, "hollow nodes") for data in make_nodes(nodes, node_template, zones=zones)
    ] + loaded.objects
    check_devices(objects)
    names = [node.name for node in present] + [item.name for item in objects if item.kind == NODES]
    typed = [*present] + [from_builtins(item.data, Node) for item in objects if item.kind == NODES]
    made_already = _controllers(objects)
    intake = Intake(warnings=[*loaded.warnings, *unknown_fields(loaded.objects)])
    problems: list[str] = []
    cut: list[tuple[Manifest, int]] = []
    for item in objects:
        metadata = item.data["metadata"]
        try:
            arrival = arrival_of(item)
            if metadata.get("uid") in made_already or _controller(metadata) is not None:
                made = [item]
            else:
                made = _expand(item, names, typed, intake.warnings)
            if arrival:
                intake.later.append((arrival, made))
            else:
                intake.objects += made
            if item.kind.group_resource == "jobs.batch" and _completions(item) > len(made) - 1 > 0:
                cut.append((item, len(made) - 1))
        except ManifestError as error:
            problems.append(str(error))
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            problems.append(_misshapen(item, error))
    if problems:
        raise ManifestError.of(problems)
    intake.warnings = [*_not_honoured(objects), *_partly_run(cut), *intake.warnings]
    intake.objects = in_order(intake.objects)
    return intake


def check_devices(objects: Iterable[Manifest]) -> None:
    """Refuse nodes whose annotation of hollow devices cannot be read.

    Raises:
        ManifestError: naming the node and what would be right.
    """
    read: set[str] = set()  # the nodes of a template share one text
    problems: list[str] = []
    for item in objects:
        text = _devices(item) if item.kind == NODES else None
        if text is not None and text not in read:
            read.add(text)
            try:
                parse_devices(text)
            except DevicesError as error:
                problems.append(f"{item.source}: Node {item.name}: {error}")
    if problems:
        raise ManifestError.of(problems)


def _devices(node: Manifest) -> str | None:
    annotations = node.data["metadata"].get("annotations")
    text = annotations.get(DEVICES_ANNOTATION) if isinstance(annotations, Mapping) else None
    return text if isinstance(text, str) else None


def with_default_class(objects: Sequence[Manifest]) -> list[Manifest]:
    """The objects, with the default StorageClass ``standard`` in front when there is no StorageClass among them."""
    if any(item.kind == STORAGE_CLASSES for item in objects):
        return list(objects)
    return [Manifest(STORAGE_CLASSES, dict(_DEFAULT_CLASS), "default storage class"), *objects]


def _uses_claims(pod: Mapping[str, Any]) -> bool:
    volumes = (pod.get("spec") or {}).get("volumes")
    return any(
        isinstance(volume, Mapping) and ("persistentVolumeClaim" in volume or "ephemeral" in volume)
        for volume in (volumes if isinstance(volumes, list) else ())
    )


def unknown_fields(objects: Iterable[Manifest]) -> list[str]:
    """A warning for each field that Kubernetes does not know: most likely a slip of the pen that is ignored."""
    found: dict[tuple[str, str], list[Manifest]] = {}
    for item in objects:
        for path in unknown_in_manifest(item.kind, item.data):
            found.setdefault((item.kind.kind, path), []).append(item)
    return [
        f'{items[0].source}: {kind} {items[0].name}: unknown field "{path}" is ignored{_also(items)}'
        for (kind, path), items in found.items()
    ]


def _not_honoured(objects: Sequence[Manifest]) -> list[str]:
    """A warning for each kind that acts in a real cluster and does nothing here, and for annotations in the wrong place."""
    found: dict[str, list[Manifest]] = {}
    for item in objects:
        if item.kind.group_resource in _INERT:
            found.setdefault(item.kind.group_resource, []).append(item)
    texts = [
        f"{items[0].source}: {items[0].kind.kind} {items[0].name} has no effect in a simulation: {_INERT[kind]}{_also(items)}"
        for kind, items in found.items()
    ]
    misplaced = [item for item in objects if template_arrival(item)]
    if misplaced:
        first = misplaced[0]
        texts.append(
            f"{first.source}: {first.kind.kind} {first.name}: {ARRIVAL} has no effect in a pod template; write it into the "
            f"metadata of the {first.kind.kind} itself{_also(misplaced)}"
        )
    return texts


def _also(items: Sequence[Manifest]) -> str:
    """That a remark about the first of the objects is true of the others."""
    more = len(items) - 1
    return "" if not more else f" (and so for {more:,} more {'object' if more == 1 else 'objects'})"


def in_order(objects: Iterable[Manifest]) -> list[Manifest]:
    """Objects in an order of creation in which nothing is missed: namespaces first, pods last."""
    return sorted(objects, key=lambda item: _ORDER.get(item.kind.group_resource, 5))


def _expand(item: Manifest, names: Sequence[str], nodes: Sequence[Node], warnings: list[str]) -> list[Manifest]:
    """An object and the pods it makes."""
    expanded = expand_workloads([item], node_names=names)
    if item.kind.group_resource not in _INERT:
        warnings += expanded.warnings
    made = expanded.objects
    if item.kind.group_resource == "daemonsets.apps":
        return [made[0], *(pod for pod, node in zip(made[1:], nodes, strict=True) if _daemon_runs_on(pod, node))]
    return made


def _misshapen(item: Manifest, error: Exception) -> str:
    """What is wrong with a workload that cannot be expanded; workloads are not checked field by field when loaded."""
    what = f"{item.source}: {item.kind.kind} {item.name}"
    template = (item.data.get("spec") or {}).get("template")
    try:
        from_builtins(template, Pod)
    except DecodeError as found:
        message, _, path = str(found).partition(" - at `$")
        return f"{what}: spec.template{path.removesuffix('`')}: {message[:1].lower()}{message[1:]}"
    return f"{what}: a field of its spec has the wrong type: {error}"


def _load(source: Source) -> Manifests:
    if isinstance(source, Manifests):
        return source
    result = Manifests()
    paths: list[str | Path] = []
    for index, item in enumerate(source):
        if isinstance(item, Manifest):
            result.objects.append(item)
        elif isinstance(item, Mapping):
            found = object_manifests(item, f"object {index}")
            result.objects += found.objects
            result.warnings += found.warnings
        else:
            paths.append(os.fspath(item))
    if paths:
        found = load_manifests(paths)
        result.objects += found.objects
        result.warnings += found.warnings
    return result


def _controller(metadata: Mapping[str, Any]) -> Mapping[str, Any] | None:
    references = metadata.get("ownerReferences")
    for reference in references if isinstance(references, list) else ():
        if isinstance(reference, Mapping) and reference.get("controller"):
            controller: Mapping[str, Any] = reference
            return controller
    return None


def _controllers(objects: Iterable[Manifest]) -> set[str]:
    """UIDs of what has dependents among the objects."""
    owners = (_controller(item.data["metadata"]) for item in objects)
    return {owner.get("uid", "") for owner in owners if owner is not None}


def _daemon_runs_on(manifest: Manifest, node: Node) -> bool:
    """Whether the DaemonSet controller would make a pod for this node: affinity and taints, nothing else."""
    pod = from_builtins(manifest.data, Pod)
    affinity = required_node_affinity(pod.spec)
    return affinity.matches(node.labels, node.name) and (
        first_untolerated(node.spec.taints, pod.spec.tolerations) is None
    )


def _completions(job: Manifest) -> int:
    wanted = (job.data.get("spec") or {}).get("completions")
    return wanted if isinstance(wanted, int) else 0


def _partly_run(jobs: Sequence[tuple[Manifest, int]]) -> list[str]:
    """A warning when only the first pods of some Jobs are simulated; ``jobs`` with the number of these pods."""
    if not jobs:
        return []
    job, made = jobs[0]
    what = f"only the {made} of its {_completions(job)} pods that may run at once are simulated"
    return [f"{job.source}: Job {job.name}: {what}{_also([item for item, _ in jobs])}"]


# -- storing -----------------------------------------------------------------------------------------------


def store_objects(store: Store, objects: Iterable[Manifest]) -> list[Refusal]:
    """Create the objects; pods that the cluster refuses are returned, grouped by place and message.

    Namespaces that are used but not defined are made. A pod that brings a UID or a status is from a live
    cluster and keeps both.

    Raises:
        ManifestError: when anything but a pod is refused; all of it is named.
    """
    problems: list[str] = []
    refused: dict[tuple[str, str, str], list[str]] = {}
    for item in objects:
        if item.kind.namespaced:
            _ensure_namespace(store, item)
        is_pod = item.kind == PODS
        restore = not is_pod or bool(item.data.get("status")) or bool(item.data["metadata"].get("uid"))
        try:
            store.create(item.kind, item.namespace, item.data, restore=restore)
        except ApiError as error:
            if (item.kind.group_resource, item.name) in _BUILT_IN and error.code == 409:
                continue
            if not is_pod:
                problems.append(f"{item.source}: {item.kind.kind} {item.name} was refused: {error}")
                continue
            owner = _controller(item.data["metadata"])
            workload = f"{owner['kind']}/{owner['name']}" if owner is not None else ""
            name = item.name or item.data["metadata"].get("generateName", "")
            # One message for all pods of a workload: the name is in the list.
            text = str(error).replace(f'"{name}"', '"…"') if owner is not None else str(error)
            refused.setdefault((item.source, workload, text), []).append(f"{item.namespace}/{name}")
    if problems:
        raise ManifestError.of(problems)
    return [
        Refusal(workload=workload, message=message, source=source, count=len(pods), pods=sorted(pods))
        for (source, workload, message), pods in refused.items()
    ]


def _ensure_namespace(store: Store, item: Manifest) -> None:
    if ("", item.namespace) not in store.table(NAMESPACES).objects:
        try:
            store.create(NAMESPACES, "", {"metadata": {"name": item.namespace}})
        except ApiError as error:
            raise ManifestError(f"{item.source}: namespace {item.namespace}: {error}") from None
