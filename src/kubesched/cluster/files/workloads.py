"""Workload manifests expanded into their pods, without running a controller.

Each pod has its template's labels, an owner reference and the name its controller would give it. Names and UIDs are
derived from the workload, so equal files give equal pods. Caller: simulations and the command line.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from copy import deepcopy
from itertools import islice
from typing import Any, Final

import msgspec

from kubesched.api.kinds import CLAIMS, CRON_JOBS, JOBS, PODS, REPLICA_SETS
from kubesched.api.wire import Item

from ..controllers import (
    COMPLETION_INDEX,
    MOST_PODS,
    TRACKING,
    completed_indexes,
    daemon_spec,
    finished_as,
    indexed_spec,
    job_labels,
    pod_body,
    replica_set_body,
)
from ..schema import letters_of
from .manifests import Manifest, ManifestError, Manifests

__all__ = ["expand_workloads"]

#: A workload with more pods than this is refused as a typing error.


def expand_workloads(
    manifests: Iterable[Manifest], *, node_names: Sequence[str] = (), tracked: bool = False
) -> Manifests:
    """Return the objects, each workload followed by its pods and other dependents.

    Deployment (with its ReplicaSet), ReplicaSet, ReplicationController, StatefulSet (with its claims), Job (as many
    pods as may run at once) and DaemonSet (one pod for each of ``node_names``). A CronJob makes nothing and leaves a
    warning. ``tracked`` pods of Jobs have the finalizer that a running Job controller removes. Store the result with
    ``restore=True``, which keeps the UIDs in owner references.

    Raises:
        ManifestError: for a workload whose template or replica count is unusable.
    """
    result = Manifests()
    for manifest in manifests:
        make = _MAKERS.get(manifest.kind.group_resource)
        if manifest.kind == CRON_JOBS:
            result.warnings.append(f"{manifest.source}: CronJob {manifest.name} makes no pods here: nothing starts it")
        if make is None:
            result.objects.append(manifest)
            continue
        owner = _with_uid(manifest)
        made = make(owner, node_names)
        if tracked and manifest.kind == JOBS:
            for pod in made:
                pod.data["metadata"].setdefault("finalizers", []).append(TRACKING)
        result.objects += [owner, *made]
    return result


# -- pieces ------------------------------------------------------------------------------------------------


def _digest(*parts: str, length: int = 10) -> str:
    """Return part of a name, from a hash, in the letters of generated names."""
    return letters_of(int.from_bytes(hashlib.sha256("\0".join(parts).encode()).digest(), "big"), length)


def _uid(*parts: str) -> str:
    digits = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:32]}"


def _with_uid(manifest: Manifest) -> Manifest:
    """Return the workload with a UID, for owner references."""
    data = deepcopy(manifest.data)
    metadata = data["metadata"]
    if not metadata.get("name"):
        metadata["name"] = metadata["generateName"] + _digest(manifest.source, length=5)
    metadata.setdefault("uid", _uid(manifest.kind.group_resource, manifest.namespace, metadata["name"]))
    return Manifest(manifest.kind, data, manifest.source)


def _item(owner: Manifest) -> Item:
    """Return the workload in the form that controllers use."""
    return Item(owner.kind, b"", owner.namespace, owner.name, owner.data["metadata"]["uid"], 0)


def _spec(manifest: Manifest) -> dict[str, Any]:
    spec = manifest.data.get("spec")
    if not isinstance(spec, dict):
        raise ManifestError(f"{manifest.source}: spec is missing; a {manifest.kind.kind} needs one with a template")
    return spec


def _count(manifest: Manifest, field: str, default: int) -> int:
    value = _spec(manifest).get(field)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ManifestError(f"{manifest.source}: spec.{field}: must be a number that is not negative, got {value!r}")
    if value > MOST_PODS:
        most = f"the {MOST_PODS} that one workload is expanded to"
        raise ManifestError(f"{manifest.source}: spec.{field}: {value} pods are more than {most}")
    return value


def _template(manifest: Manifest) -> dict[str, Any]:
    """Return a copy of the pod template."""
    template = _spec(manifest).get("template")
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        raise ManifestError(f"{manifest.source}: spec.template.spec is missing; write the pod that is to be made there")
    return deepcopy(template)


def _pod(owner: Manifest, name: str, *, generate: str = "", **more: Any) -> Manifest:
    """Return a pod of the template; ``more`` is as for :func:`~..controllers.pod_body`."""
    body = pod_body(_item(owner), _template(owner), name=name, **more)
    body["metadata"]["namespace"] = owner.namespace
    if generate:
        body["metadata"]["generateName"] = generate
    return Manifest(PODS, body, owner.source)


def _random_named(owner: Manifest, count: int, labels: dict[str, str] | None = None) -> list[Manifest]:
    prefix = f"{owner.name}-"
    seed = owner.data["metadata"]["uid"]
    # Names of five letters collide among some thousand pods. The dict detects collisions and keeps the order.
    suffixes: dict[str, None] = {}
    attempt = 0
    while len(suffixes) < count:
        suffixes.setdefault(_digest(seed, str(attempt), length=5))
        attempt += 1
    return [_pod(owner, prefix[:58] + suffix, labels=labels, generate=prefix) for suffix in suffixes]


# -- makers ------------------------------------------------------------------------------------------------


def _replicas(owner: Manifest, node_names: Sequence[str]) -> list[Manifest]:
    return _random_named(owner, _count(owner, "replicas", 1))


def _deployment(owner: Manifest, node_names: Sequence[str]) -> list[Manifest]:
    template = _template(owner)
    digest = _digest(msgspec.json.encode(template).decode())
    data = replica_set_body(_item(owner), {**_spec(owner), "template": template}, digest)
    name = data["metadata"]["name"]
    uid = _uid(REPLICA_SETS.group_resource, owner.namespace, name)
    data["metadata"] |= {"namespace": owner.namespace, "uid": uid}
    data["spec"]["replicas"] = _count(owner, "replicas", 1)
    data |= {"apiVersion": REPLICA_SETS.api_version, "kind": REPLICA_SETS.kind}
    replica_set = Manifest(REPLICA_SETS, data, owner.source)
    return [replica_set, *_replicas(replica_set, node_names)]


def _stateful_set(owner: Manifest, node_names: Sequence[str]) -> list[Manifest]:
    made: list[Manifest] = []
    claims = _spec(owner).get("volumeClaimTemplates") or []
    first = int((_spec(owner).get("ordinals") or {}).get("start") or 0)
    for index in range(first, first + _count(owner, "replicas", 1)):
        name = f"{owner.name}-{index}"
        labels = {"apps.kubernetes.io/pod-index": str(index), "statefulset.kubernetes.io/pod-name": name}
        pod = _pod(owner, name, labels=labels)
        volumes = pod.data["spec"].setdefault("volumes", [])
        for claim in claims:
            made.append(_claim(owner, claim, name))
            volume_name = claim["metadata"]["name"]
            volumes[:] = [item for item in volumes if item.get("name") != volume_name]
            volumes.append({"name": volume_name, "persistentVolumeClaim": {"claimName": made[-1].name}})
        made.append(pod)
    return made


def _claim(owner: Manifest, template: dict[str, Any], pod_name: str) -> Manifest:
    data = deepcopy(template)
    metadata = data.setdefault("metadata", {})
    if not metadata.get("name"):
        raise ManifestError(f"{owner.source}: spec.volumeClaimTemplates: a template needs metadata.name")
    metadata |= {"name": f"{metadata['name']}-{pod_name}", "namespace": owner.namespace}
    return Manifest(CLAIMS, {**data, "apiVersion": CLAIMS.api_version, "kind": CLAIMS.kind}, owner.source)


def _job(owner: Manifest, node_names: Sequence[str]) -> list[Manifest]:
    """Return the pods that may run at once, as the Job controller would make them.

    That controller can go on with them.
    """
    spec, status = _spec(owner), owner.data.get("status")
    status = status if isinstance(status, dict) else {}
    parallelism, completions = _count(owner, "parallelism", 1), _count(owner, "completions", 0)
    if spec.get("suspend") or finished_as(owner.data):
        return []
    count = min(parallelism, completions or parallelism)
    succeeded, uid = status.get("succeeded"), owner.data["metadata"]["uid"]
    if completions and isinstance(succeeded, int):
        count = min(count, max(0, completions - succeeded))
    labels = job_labels(owner.name, uid)
    if spec.get("completionMode") != "Indexed":
        return _random_named(owner, count, labels)
    pods = []
    for index in islice(completed_indexes(owner.data).missing(completions), count):
        name, number = f"{owner.name}-{index}", {COMPLETION_INDEX: str(index)}
        full_name = f"{name}-{_digest(uid, str(index), length=5)}"
        pod = _pod(owner, full_name, generate=f"{name}-", labels={**labels, **number}, annotations=number)
        pod.data["spec"] = indexed_spec(pod.data["spec"], name)
        pods.append(pod)
    return pods


def _daemon_set(owner: Manifest, node_names: Sequence[str]) -> list[Manifest]:
    pods = []
    for node_name in node_names:
        suffix = _digest(owner.data["metadata"]["uid"], node_name, length=5)
        pod = _pod(owner, f"{owner.name}-"[:58] + suffix, generate=f"{owner.name}-")
        pod.data["spec"] = daemon_spec(pod.data["spec"], node_name)
        pods.append(pod)
    return pods


_MAKERS: Final = {
    "deployments.apps": _deployment,
    "replicasets.apps": _replicas,
    "replicationcontrollers": _replicas,
    "statefulsets.apps": _stateful_set,
    "jobs.batch": _job,
    "daemonsets.apps": _daemon_set,
}
