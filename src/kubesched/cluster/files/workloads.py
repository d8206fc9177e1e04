"""Workload manifests turned into the pods they would make, without running a controller.

Each pod carries its template's labels, an owner reference and the name its controller would give it. Names and
UIDs are derived from the workload, so the same files give the same pods. Caller: simulations and the command line.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from ...api.kinds import JOBS, PODS, Kind, kind_of
from ..controllers import COMPLETION_INDEX, TRACKING, completed_indexes, finished_as, indexed_spec
from .manifests import Manifest, ManifestError, Manifests

__all__ = ["expand_workloads"]

_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_DAEMON_TOLERATIONS: Final = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)


#: More pods than this in one workload are taken for a slip of the pen.
_MOST_PODS: Final = 250_000


def expand_workloads(
    manifests: Iterable[Manifest], *, node_names: Sequence[str] = (), tracked: bool = False
) -> Manifests:
    """The same objects, each workload followed by what it makes.

    Deployment (with its ReplicaSet), ReplicaSet, ReplicationController, StatefulSet (with its claims), Job (as many
    pods as may run at once) and DaemonSet (one pod for each of ``node_names``). A CronJob makes nothing and leaves a
    warning. ``tracked`` pods of Jobs have the finalizer that a running Job controller removes. Store the result with ``restore=True``, which keeps the UIDs that owner references name.

    Raises:
        ManifestError: for a workload whose template or replica count is unusable.
    """
    result = Manifests()
    for manifest in manifests:
        kind = manifest.kind.group_resource
        if kind == "cronjobs.batch":
            result.warnings.append(f"{manifest.source}: CronJob {manifest.name} makes no pods here: nothing starts it")
            result.objects.append(manifest)
        elif kind in _MAKERS:
            owner = _with_uid(manifest)
            result.objects.append(owner)
            made = _MAKERS[kind](owner, node_names)
            if tracked and kind == JOBS.group_resource:
                for pod in made:
                    metadata = pod.data["metadata"]
                    metadata["finalizers"] = [*(metadata.get("finalizers") or ()), TRACKING]
            result.objects += made
        else:
            result.objects.append(manifest)
    return result


# -- pieces ------------------------------------------------------------------------------------------------


def _digest(*parts: str, length: int = 10) -> str:
    """A short name part from a hash, in the letters of generated names."""
    number = int.from_bytes(hashlib.sha256("\0".join(parts).encode()).digest(), "big")
    text = ""
    for _ in range(length):
        number, index = divmod(number, len(_LETTERS))
        text += _LETTERS[index]
    return text


def _uid(*parts: str) -> str:
    digits = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:32]}"


def _with_uid(manifest: Manifest) -> Manifest:
    """The workload with a UID that owner references can name."""
    data = msgspec.json.decode(msgspec.json.encode(manifest.data))
    metadata = data["metadata"]
    if not metadata.get("name"):
        metadata["name"] = metadata["generateName"] + _digest(manifest.source, length=5)
    metadata.setdefault("uid", _uid(manifest.kind.group_resource, manifest.namespace, metadata["name"]))
    return Manifest(manifest.kind, data, manifest.source)


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
    if value > _MOST_PODS:
        raise ManifestError(
            f"{manifest.source}: spec.{field}: {value} pods are more than the {_MOST_PODS} that one workload is expanded to"
        )
    return value


def _template(manifest: Manifest) -> dict[str, Any]:
    template = _spec(manifest).get("template")
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        raise ManifestError(f"{manifest.source}: spec.template.spec is missing; write the pod that is to be made there")
    return template


def _reference(owner: Manifest) -> dict[str, Any]:
    return {
        "apiVersion": owner.kind.api_version,
        "kind": owner.kind.kind,
        "name": owner.name,
        "uid": owner.data["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _pod(owner: Manifest, name: str, *, labels: dict[str, str] | None = None, generate: str = "") -> Manifest:
    template = msgspec.json.decode(msgspec.json.encode(_template(owner)))
    given = template.get("metadata") or {}
    metadata: dict[str, Any] = {"name": name, "namespace": owner.namespace}
    if generate:
        metadata["generateName"] = generate
    metadata["labels"] = {**(given.get("labels") or {}), **(labels or {})}
    if given.get("annotations"):
        metadata["annotations"] = given["annotations"]
    metadata["ownerReferences"] = [_reference(owner)]
    data = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    return Manifest(PODS, data, owner.source)


def _random_named(owner: Manifest, count: int, labels: dict[str, str] | None = None) -> list[Manifest]:
    prefix = f"{owner.name}-"
    seed = owner.data["metadata"]["uid"]
    # Five letters collide among some thousand pods; a dict keeps the order and finds out.
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
    template = msgspec.json.decode(msgspec.json.encode(_template(owner)))
    digest = _digest(msgspec.json.encode(template).decode())
    labels = {"pod-template-hash": digest}
    metadata = template.setdefault("metadata", {})
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    selector = dict(_spec(owner).get("selector") or {})
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), **labels}
    name = f"{owner.name}-{digest}"
    kind = _replica_sets()
    data = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {
            "name": name,
            "namespace": owner.namespace,
            "uid": _uid(kind.group_resource, owner.namespace, name),
            "labels": metadata["labels"],
            "ownerReferences": [_reference(owner)],
        },
        "spec": {"replicas": _count(owner, "replicas", 1), "selector": selector, "template": template},
    }
    replica_set = Manifest(kind, data, owner.source)
    return [replica_set, *_replicas(replica_set, node_names)]


def _replica_sets() -> Kind:
    kind = kind_of("apps/v1", "ReplicaSet")
    assert kind is not None
    return kind


def _stateful_set(owner: Manifest, node_names: Sequence[str]) -> list[Manifest]:
    made: list[Manifest] = []
    claims = _spec(owner).get("volumeClaimTemplates") or []
    first = int((_spec(owner).get("ordinals") or {}).get("start") or 0)
    for index in range(first, first + _count(owner, "replicas", 1)):
        name = f"{owner.name}-{index}"
        pod = _pod(
            owner,
            name,
            labels={"apps.kubernetes.io/pod-index": str(index), "statefulset.kubernetes.io/pod-name": name},
        )
        volumes = pod.data["spec"].setdefault("volumes", [])
        for claim in claims:
            made.append(_claim(owner, claim, name))
            volume_name = claim["metadata"]["name"]
            volumes[:] = [item for item in volumes if item.get("name") != volume_name]
            volumes.append({"name": volume_name, "persistentVolumeClaim": {"claimName": made[-1].name}})
        made.append(pod)
    return made


def _claim(owner: Manifest, template: dict[str, Any], pod_name: str) -> Manifest:
    kind = kind_of("v1", "PersistentVolumeClaim")
    assert kind is not None
    data = msgspec.json.decode(msgspec.json.encode(template))
    metadata = data.setdefault("metadata", {})
    if not metadata.get("name"):
        raise ManifestError(f"{owner.source}: spec.volumeClaimTemplates: a template needs metadata.name")
    metadata["name"] = f"{metadata['name']}-{pod_name}"
    metadata["namespace"] = owner.namespace
    return Manifest(kind, {**data, "apiVersion": "v1", "kind": kind.kind}, owner.source)


def _job(owner: Manifest, node_names: Sequence[str]) -> list[Manifest]:
    """The pods that may run at once, as the Job controller would make them; it can continue with them."""
    spec, status = _spec(owner), owner.data.get("status")
    status = status if isinstance(status, dict) else {}
    parallelism, completions = _count(owner, "parallelism", 1), _count(owner, "completions", 0)
    if spec.get("suspend") or finished_as(owner.data):
        return []
    count = min(parallelism, completions or parallelism)
    done = completed_indexes(owner.data) if spec.get("completionMode") == "Indexed" else set()
    succeeded = status.get("succeeded")
    if completions and isinstance(succeeded, int):
        count = min(count, max(0, completions - succeeded))
    labels = {
        "batch.kubernetes.io/job-name": owner.name,
        "job-name": owner.name,
        "batch.kubernetes.io/controller-uid": owner.data["metadata"]["uid"],
        "controller-uid": owner.data["metadata"]["uid"],
    }
    pods = _random_named(owner, count, labels)
    if spec.get("completionMode") == "Indexed":
        left = (index for index in range(completions) if index not in done)
        for index, pod in zip(left, pods, strict=False):
            metadata = pod.data["metadata"]
            metadata["labels"][COMPLETION_INDEX] = str(index)
            metadata["annotations"] = {**(metadata.get("annotations") or {}), COMPLETION_INDEX: str(index)}
            suffix = _digest(owner.data["metadata"]["uid"], str(index), length=5)
            metadata["name"] = f"{owner.name}-{index}-{suffix}"
            metadata["generateName"] = f"{owner.name}-{index}-"
            pod.data["spec"] = indexed_spec(pod.data["spec"], f"{owner.name}-{index}")
    return pods


def _daemon_set(owner: Manifest, node_names: Sequence[str]) -> list[Manifest]:
    pods = []
    for node_name in node_names:
        suffix = _digest(owner.data["metadata"]["uid"], node_name, length=5)
        pod = _pod(owner, f"{owner.name}-"[:58] + suffix, generate=f"{owner.name}-")
        spec = pod.data["spec"]
        affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
        required = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
        field = {"key": "metadata.name", "operator": "In", "values": [node_name]}
        terms = required.get("nodeSelectorTerms") or [{}]
        required["nodeSelectorTerms"] = [{**term, "matchFields": [field]} for term in terms]
        tolerations = spec.setdefault("tolerations", [])
        tolerations += [
            {"key": key, "operator": "Exists", "effect": effect}
            for key, effect in _DAEMON_TOLERATIONS
            if not any(item.get("key") == key and item.get("effect") == effect for item in tolerations)
        ]
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
