"""Preparation of a simulation's input: workloads are expanded, and objects put into their order of creation.

Caller: :mod:`..run.simulation` and the demonstration. An export of a live cluster is taken as it is: a workload whose
pods are in the export makes no pods of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from kubesched.api.decode import DecodeError, from_builtins
from kubesched.api.kinds import (
    CLAIMS,
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    NODES,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    RESOURCE_CLAIMS,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    VOLUMES,
    Kind,
)
from kubesched.api.selectors import required_node_affinity
from kubesched.api.taints import first_untolerated
from kubesched.api.types import Node, Pod
from kubesched.cluster.controllers import DEVICES_ANNOTATION, DevicesError, is_eligible, parse_devices
from kubesched.cluster.files import (
    Manifest,
    ManifestError,
    Manifests,
    absent_owners_remark,
    expand_workloads,
    load_manifests,
    object_manifests,
    with_marks,
)
from kubesched.cluster.kubelets import make_nodes

from ..results.node_status import is_failed
from .arrivals import arrival_of, wrong_durations
from .remarks import endless, is_served, not_honoured, unknown_fields, unread_groups, without_gates
from .storing import controller_of, refusals

__all__ = [
    "Controllers",
    "Intake",
    "Source",
    "gather",
    "in_order",
    "is_served",
    "is_unplaced",
    "unknown_fields",
    "unread_groups",
    "with_default_class",
    "without_gates",
    "wrong_devices",
]

#: Controllers of workloads that run.
Controllers: TypeAlias = Literal["none", "batch", "all"]

#: Loaded manifests, paths of files and directories, or objects as plain data. These may be mixed.
Source: TypeAlias = Manifests | Iterable[str | os.PathLike[str] | Mapping[str, Any] | Manifest]

#: Workloads for which the controllers make pods.
_DRIVEN: Final[dict[Controllers, frozenset[Kind]]] = {
    "none": frozenset(),
    "batch": frozenset((JOBS, CRON_JOBS)),
    "all": frozenset((DEPLOYMENTS, REPLICA_SETS, REPLICATION_CONTROLLERS, STATEFUL_SETS, DAEMON_SETS, JOBS, CRON_JOBS)),
}
_ORDER: Final = {
    "namespaces": 0,
    "priorityclasses.scheduling.k8s.io": 1,
    "runtimeclasses.node.k8s.io": 1,
    "storageclasses.storage.k8s.io": 1,
    "nodes": 2,
    "workloads.scheduling.k8s.io": 3,
    "podgroups.scheduling.k8s.io": 4,
    "podgroups.scheduling.volcano.sh": 4,
    "podgroups.scheduling.x-k8s.io": 4,
    "pods": 9,
}
#: Default StorageClass for a cluster without any, as in kind's clusters, so that claims without a class work.
_DEFAULT_CLASS: Final = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    "provisioner": "hollow.kubesched.io",
    "reclaimPolicy": "Delete",
    "volumeBindingMode": "WaitForFirstConsumer",
}


@dataclass(slots=True)
class Intake:
    """Objects to be stored, pods of workloads included, in the order of creation."""

    objects: list[Manifest] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    #: Workloads for which controllers make the pods, or further pods.
    driven: list[Manifest] = field(default_factory=list)
    #: UIDs of objects that own other objects of the input.
    owners: set[str] = field(default_factory=set)
    #: Later arrivals: seconds after the start, and the objects that arrive together at that time.
    later: list[tuple[float, list[Manifest]]] = field(default_factory=list)

    def everything(self) -> Iterator[Manifest]:
        """Yield all objects, also those that arrive later."""
        yield from self.objects
        for _, objects in self.later:
            yield from objects

    @property
    def driven_uids(self) -> set[str]:
        """Return the UIDs of :attr:`driven`."""
        return {item.data["metadata"].get("uid", "") for item in self.driven}

    def split(self) -> tuple[list[Manifest], list[Manifest]]:
        """Return the objects that exist when the cluster starts, and those that are created right after.

        The latter are pods to be placed, and new workloads. Pods that controllers could think are missing come together
        with their owners.
        """
        continued = self.driven_uids & self.owners
        started = self.driven_uids - continued
        before: list[Manifest] = []
        after: list[Manifest] = []
        for item in self.objects:
            metadata = item.data["metadata"]
            if item.kind == PODS:
                owner = controller_of(metadata) or {}
                is_new = is_unplaced(item) and owner.get("uid") not in continued
            else:
                is_new = bool(metadata.get("uid")) and metadata.get("uid") in started
            (after if is_new else before).append(item)
        return before, after

    @property
    def has_failed_nodes(self) -> bool:
        """True if there are nodes that are annotated as failed, or whose Ready condition is not True."""
        return any(item.kind == NODES and is_failed(from_builtins(item.data, Node)) for item in self.everything())

    @property
    def uses_storage(self) -> bool:
        """True if there are storage objects, or pods that use claims."""
        return any(
            item.kind in (CLAIMS, VOLUMES)
            or item.kind.group == STORAGE_CLASSES.group
            or (item.kind == PODS and _uses_claims(item.data))
            for item in self.everything()
        )

    @property
    def uses_devices(self) -> bool:
        """True if there are objects of dynamic resources, nodes with hollow devices, or pods with resource claims."""
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
    controllers: Controllers = "none",
    pods_end: bool = False,
    present: Sequence[Node] = (),
    features: Set[str] = frozenset(),
) -> Intake:
    """Load and expand the input. ``nodes`` hollow nodes are added to the nodes of the manifests.

    With ``controllers`` ``batch``, Jobs go on beyond their first pods, and CronJobs make Jobs; with ``all`` no workload
    is expanded. ``pods_end`` is True if rules let pods end, apart from annotations. A DaemonSet makes pods for all
    these nodes and for the ``present`` nodes. Kinds that need a feature gate of pod groups other than ``features`` are
    left out, with a warning.

    Raises:
        ManifestError: for input that cannot be read or used.
    """
    loaded = _load(source)
    objects = [
        Manifest(NODES, data, "hollow nodes") for data in make_nodes(nodes, node_template, zones=zones)
    ] + loaded.objects
    orphans: list[str] = []
    if controllers == "all":
        objects = with_marks(objects)
        orphans = absent_owners_remark(item.data for item in objects if item.kind == PODS)
    problems = [*loaded.problems, *wrong_devices(objects), *wrong_durations(objects)]
    names = [node.name for node in present] + [item.name for item in objects if item.kind == NODES]
    typed = [*present] + [from_builtins(item.data, Node) for item in objects if item.kind == NODES]
    made_already = _controllers(objects)
    intake = Intake(warnings=[*loaded.warnings, *unknown_fields(loaded.objects)], owners=made_already)
    for item in objects:
        if not is_served(item.kind, features):
            continue
        metadata = item.data["metadata"]
        try:
            arrival = arrival_of(item)
            is_made = metadata.get("uid") in made_already or controller_of(metadata) is not None
            made = [item] if is_made else _expand(item, names, typed, tracked=controllers != "none")
            if item.kind in _DRIVEN[controllers]:
                intake.driven.append(made[0])
                if controllers == "all" or _becomes_gang(item, features):
                    del made[1:]
            if arrival:
                intake.later.append((arrival, made))
            else:
                intake.objects += made
        except ManifestError as error:
            problems += error.problems
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            problems.append(_misshapen(item, error))
    if problems:
        raise ManifestError(*problems, *refusals(intake.everything(), intake.driven_uids))
    endings = [] if pods_end else endless(objects)
    intake.warnings = [*orphans, *not_honoured(objects, features), *endings, *intake.warnings]
    intake.objects = in_order(intake.objects)
    return intake


def _becomes_gang(item: Manifest, features: Set[str]) -> bool:
    """True if a Job's controller makes its group before its pods."""
    return item.kind == JOBS and "WorkloadWithJob" in features and is_eligible(item.data.get("spec") or {})


def is_unplaced(item: Manifest) -> bool:
    """True if it is a pod that has no node yet."""
    return item.kind == PODS and not (item.data.get("spec") or {}).get("nodeName")


def wrong_devices(objects: Iterable[Manifest]) -> list[str]:
    """Return messages about nodes whose annotation of hollow devices cannot be read: the node, and a correct form."""
    read: set[str] = set()  # nodes of a template share a text: each is read once
    problems: list[str] = []
    for item in objects:
        text = _devices(item) if item.kind == NODES else None
        if text is not None and text not in read:
            read.add(text)
            try:
                parse_devices(text)
            except DevicesError as error:
                problems.append(f"{item.source}: Node {item.name}: {error}")
    return problems


def _devices(node: Manifest) -> str | None:
    annotations = node.data["metadata"].get("annotations")
    text = annotations.get(DEVICES_ANNOTATION) if isinstance(annotations, Mapping) else None
    return text if isinstance(text, str) else None


def with_default_class(objects: Sequence[Manifest]) -> list[Manifest]:
    """Return the objects. If none is a StorageClass, the default one, ``standard``, comes first."""
    if any(item.kind == STORAGE_CLASSES for item in objects):
        return list(objects)
    return [Manifest(STORAGE_CLASSES, dict(_DEFAULT_CLASS), "default storage class"), *objects]


def _uses_claims(pod: Mapping[str, Any]) -> bool:
    volumes = (pod.get("spec") or {}).get("volumes")
    return any(
        isinstance(volume, Mapping) and ("persistentVolumeClaim" in volume or "ephemeral" in volume)
        for volume in (volumes if isinstance(volumes, list) else ())
    )


def in_order(objects: Iterable[Manifest]) -> list[Manifest]:
    """Return objects in an order of creation that respects references: namespaces first, pods last."""
    return sorted(objects, key=lambda item: _ORDER.get(item.kind.group_resource, 5))


def _expand(item: Manifest, names: Sequence[str], nodes: Sequence[Node], *, tracked: bool) -> list[Manifest]:
    """Return an object and its pods. See :func:`~kubesched.cluster.files.expand_workloads` for ``tracked``."""
    if item.kind == CRON_JOBS:
        _check_job_template(item)
        return [item]
    made = expand_workloads([item], node_names=names, tracked=tracked).objects
    if item.kind.group_resource == "daemonsets.apps":
        return [made[0], *(pod for pod, node in zip(made[1:], nodes, strict=True) if _daemon_runs_on(pod, node))]
    return made


def _check_job_template(item: Manifest) -> None:
    """Refuse a CronJob whose job template is invalid, before any job is due."""
    spec = item.data.get("spec")
    template = spec.get("jobTemplate") if isinstance(spec, Mapping) else None
    job = {"metadata": {"name": item.name}, "spec": template.get("spec") if isinstance(template, Mapping) else None}
    try:
        expand_workloads([Manifest(JOBS, job, item.source)])
    except ManifestError as error:
        place, _, problem = str(error).partition(": spec")
        raise ManifestError(f"{place}: spec.jobTemplate.spec{problem}") from None


def _misshapen(item: Manifest, error: Exception) -> str:
    """Return the message about a workload that cannot be expanded. Loading does not check its fields one by one."""
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
            result.extend(object_manifests(item, f"object {index}", lenient=True))
        else:
            paths.append(os.fspath(item))
    if paths:
        result.extend(load_manifests(paths, lenient=True))
    return result


def _controllers(objects: Iterable[Manifest]) -> set[str]:
    """Return the UIDs of objects that own other objects."""
    owners = (controller_of(item.data["metadata"]) for item in objects)
    return {owner.get("uid", "") for owner in owners if owner is not None}


def _daemon_runs_on(manifest: Manifest, node: Node) -> bool:
    """True if the DaemonSet controller would make a pod for this node, by affinity and taints alone."""
    pod = from_builtins(manifest.data, Pod)
    affinity = required_node_affinity(pod.spec)
    return affinity.matches(node.labels, node.name) and (
        first_untolerated(node.spec.taints, pod.spec.tolerations) is None
    )
