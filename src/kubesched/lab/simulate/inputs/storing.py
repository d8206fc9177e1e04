"""Storing of objects: missing namespaces are created, and refusals are collected.

Callers: :mod:`..run.simulation`, the demonstration and ``kubesched up``.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Final

from kubesched.api.kinds import NAMESPACES, NODES, PODS
from kubesched.api.wire import ApiError
from kubesched.base.times import FixedClock
from kubesched.cluster.files import Manifest, ManifestError
from kubesched.cluster.store import Store

from ..results.result import Refusal

__all__ = [
    "RefusedError",
    "apply_objects",
    "check_objects",
    "controller_of",
    "ensure_namespace",
    "refusals",
    "store_objects",
]

#: Objects of a fresh cluster. A manifest of one of them is not a mistake.
_BUILT_IN: Final = frozenset(
    (
        *(("namespaces", name) for name in ("default", "kube-node-lease", "kube-public", "kube-system")),
        *(("priorityclasses.scheduling.k8s.io", name) for name in ("system-cluster-critical", "system-node-critical")),
    )
)


class RefusedError(ManifestError):
    """Objects other than pods were refused; ``pods`` are the pods that were refused as well."""

    def __init__(self, problems: Sequence[str], pods: Sequence[Refusal]) -> None:
        super().__init__(*problems)
        self.pods = pods


def controller_of(metadata: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the owner reference that names an object's controller, if there is one."""
    references = metadata.get("ownerReferences")
    for reference in references if isinstance(references, list) else ():
        if isinstance(reference, dict) and reference.get("controller"):
            controller: Mapping[str, Any] = reference
            return controller
    return None


def store_objects(store: Store, objects: Iterable[Manifest], driven: Container[str] = ()) -> list[Refusal]:
    """Create the objects. Returns the pods that the cluster refuses, grouped by place and message.

    ``driven`` are UIDs of workloads whose controllers try again, so that pods that exceed a quota are made when the
    quota allows them.

    Namespaces that are used but not defined are created. A pod that brings a UID or a status is from a live cluster and
    keeps both. Objects controlled by a refused object are left out.

    Raises:
        RefusedError: when an object other than a pod is refused; all such objects are named.
    """
    objects = list(objects)
    kept = [item.data["metadata"] for item in objects]
    if brought := [str(one["uid"]) for one in kept if one.get("uid") and one.get("creationTimestamp")]:
        # A dump of a simulated cluster has the UIDs that this one would give to new objects.
        store.change_identities(zlib.crc32("".join(brought).encode()))
    problems: list[str] = []
    without: set[str] = set()  # UIDs of refused objects
    refused: dict[tuple[str, str, str], list[str]] = {}
    for item in objects:
        metadata = item.data["metadata"]
        owner = controller_of(metadata)
        owner_uid = owner.get("uid", "") if owner is not None else ""
        if owner_uid in without:
            without.add(metadata.get("uid") or owner_uid)
            continue
        is_pod = item.kind == PODS
        restore = not is_pod or bool(item.data.get("status")) or bool(metadata.get("uid"))
        try:
            if item.kind.namespaced:
                ensure_namespace(store, item)
            store.create(item.kind, item.namespace, item.data, restore=restore)
            continue
        except ManifestError as error:
            found = error.problems
        except ApiError as error:
            if _is_built_in(item, error):
                continue
            if is_pod:
                if owner_uid in driven and "exceeded quota" in str(error):
                    continue
                workload = f"{owner['kind']}/{owner['name']}" if owner is not None else ""
                name = item.name or metadata.get("generateName", "")
                # One message for all pods of a workload, without their names: the list has these.
                text = str(error).replace(f'"{name}"', '"…"') if owner is not None else str(error)
                refused.setdefault((item.source, workload, text), []).append(f"{item.namespace}/{name}")
                continue
            found = (_refusal(item, error),)
        problems += found
        if metadata.get("uid"):
            without.add(metadata["uid"])
    pods = [
        Refusal(workload=workload, message=message, source=source, count=len(names), pods=sorted(names))
        for (source, workload, message), names in refused.items()
    ]
    if problems:
        raise RefusedError(problems, pods)
    return pods


def apply_objects(store: Store, objects: Iterable[Manifest]) -> None:
    """Change objects that exist to what manifests say; fields that they do not mention stay.

    Raises:
        ManifestError: with every change that is refused.
    """
    problems = []
    for item in objects:
        body = {name: value for name, value in item.data.items() if name != "status"}
        try:
            store.patch(item.kind, item.namespace, item.name, body)
            if item.kind == NODES and item.data.get("status"):
                status = {"status": item.data["status"]}
                store.patch(item.kind, "", item.name, status, subresource="status")
        except ApiError as error:
            problems.append(_refusal(item, error))
    if problems:
        raise ManifestError(*problems)


def check_objects(store: Store, objects: Iterable[Manifest]) -> None:
    """Check that :func:`store_objects` can create the objects, apart from refused pods. Nothing is stored.

    Each is compared with the objects in the store, and all of them with each other in a store of their own.

    Raises:
        RefusedError: when an object other than a pod would be refused; all such objects are named.
    """
    namespaces: set[str] = set()
    tried: list[Manifest] = []
    for item in objects:
        # Single pods may be refused, namespaces may not: one pod of each namespace is enough.
        if item.kind != PODS or item.namespace not in namespaces:
            tried.append(item)
        if item.kind == PODS:
            namespaces.add(item.namespace)
    problems: list[str] = []
    try:
        store_objects(Store(FixedClock(), random=random.Random(0)), tried)
    except RefusedError as error:
        problems += error.problems
    there = store.table(NAMESPACES).objects
    for item in tried:
        if item.kind == PODS or (item.kind.namespaced and ("", item.namespace) not in there):
            continue  # a new namespace is empty: nothing can clash
        try:
            store.create(item.kind, item.namespace, item.data, restore=True, dry_run=True)
        except ApiError as error:
            if not _is_built_in(item, error):
                problems.append(_refusal(item, error))
    if problems:
        raise RefusedError(list(dict.fromkeys(problems)), ())


def _is_built_in(item: Manifest, error: ApiError) -> bool:
    return (item.kind.group_resource, item.name) in _BUILT_IN and error.code == 409


def _refusal(item: Manifest, error: ApiError) -> str:
    return f"{item.source}: {item.kind.kind} {item.name} was refused: {error}"


def ensure_namespace(store: Store, item: Manifest) -> None:
    """Create the namespace of an object if it does not exist.

    Raises:
        ManifestError: when it is refused.
    """
    if ("", item.namespace) not in store.table(NAMESPACES).objects:
        try:
            store.create(NAMESPACES, "", {"metadata": {"name": item.namespace}})
        except ApiError as error:
            raise ManifestError(f"{item.source}: namespace {item.namespace}: {error}") from None


def refusals(objects: Iterable[Manifest], driven: Container[str] = ()) -> list[str]:
    """Return the refusals of an empty cluster for the objects, pods included. The cluster is then forgotten.

    It is meant for an input that has other problems already, so that all problems can be reported together.
    """
    store = Store(FixedClock(), random=random.Random(0))
    problems: list[str] = []
    try:
        pods = store_objects(store, objects, driven)
    except RefusedError as error:
        problems += error.problems
        pods = [*error.pods]
    for refusal in pods:
        more = f" (and so for {refusal.count - 1:,} more of its pods)" if refusal.count > 1 else ""
        problems.append(f"{refusal.source}: Pod {refusal.pods[0]} was refused: {refusal.message}{more}")
    return problems
