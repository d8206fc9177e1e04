"""Objects whose owners are not in the input, such as pods of a dump without ReplicaSets.

The garbage collector of a cluster deletes objects without an owner. Objects that came without theirs are marked, and
stay. A ReplicaSet that is missing between a Deployment and its pods is made again, so that the Deployment does not make
other pods besides. Callers: imports of dumps, simulations with controllers, ``kubesched up``; read by the garbage collector.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kubesched.api.kinds import DEPLOYMENTS, PODS, REPLICA_SETS, kind_of

from ..controllers import ABSENT_OWNER, COLLECTED
from .manifests import Manifest

__all__ = ["absent_owners_remark", "with_marks"]

#: Label of a Deployment's pods and ReplicaSets.
_HASH: Final = "pod-template-hash"
#: Most owners named in a remark.
_MOST: Final = 3


def _owners(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    given = (data.get("metadata") or {}).get("ownerReferences")
    return [one for one in given if isinstance(one, Mapping)] if isinstance(given, list) else []


def with_marks(objects: Sequence[Manifest]) -> list[Manifest]:
    """Return the objects, with missing ReplicaSets; those that a cluster would collect bear an annotation.

    It would collect an object none of whose owners is there.
    """
    objects = [*_missing_sets(objects), *objects]
    present = {item.data["metadata"].get("uid") for item in objects}
    return [_marked(item) if _is_alone(item, present) else item for item in objects]


def _missing_sets(objects: Sequence[Manifest]) -> list[Manifest]:
    """Return the ReplicaSets that Deployments without any lack: of each, that of the most pods."""
    present = {item.data["metadata"].get("uid") for item in objects}
    deployments = {
        (item.namespace, item.name): item
        for item in objects
        if item.kind == DEPLOYMENTS and item.data["metadata"].get("uid")
    }
    for item in objects if deployments else ():
        if item.kind == REPLICA_SETS:
            for owner in _owners(item.data):
                deployments.pop((item.namespace, str(owner.get("name"))), None)
    sets: dict[tuple[str, str], Counter[tuple[str, str, str]]] = {}
    for item in objects if deployments else ():
        labels = item.data["metadata"].get("labels") or {} if item.kind == PODS else {}
        for owner in _owners(item.data) if labels.get(_HASH) else ():
            name, key = (
                str(owner.get("name")),
                (item.namespace, str(owner.get("name")).removesuffix(f"-{labels[_HASH]}")),
            )
            if owner.get("kind") == "ReplicaSet" and owner.get("uid") not in present and key in deployments:
                sets.setdefault(key, Counter())[name, str(owner.get("uid")), str(labels[_HASH])] += 1
    return [_replica_set(deployments[key], *counts.most_common(1)[0][0]) for key, counts in sets.items()]


def _replica_set(deployment: Manifest, name: str, uid: str, digest: str) -> Manifest:
    """Return a Deployment's ReplicaSet of this name and UID, whose pods have this hash as a label."""
    spec, own = deployment.data.get("spec") or {}, deployment.data["metadata"]
    template, selector = dict(spec.get("template") or {}), dict(spec.get("selector") or {})
    metadata = dict(template.get("metadata") or {})
    metadata["labels"] = {**(metadata.get("labels") or {}), _HASH: digest}
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), _HASH: digest}
    owner = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": deployment.name,
        "uid": own["uid"],
        "controller": True,
    }
    data = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": name,
            "namespace": deployment.namespace,
            "uid": uid,
            "labels": metadata["labels"],
            "ownerReferences": [owner],
        },
        "spec": {
            "replicas": spec.get("replicas", 1),
            "selector": selector,
            "template": {**template, "metadata": metadata},
        },
    }
    return Manifest(REPLICA_SETS, data, deployment.source)


def _is_alone(item: Manifest, present: set[Any]) -> bool:
    owners = _owners(item.data) if item.kind in COLLECTED else []
    if not owners:
        return False
    return not any(
        one.get("uid") in present or kind_of(str(one.get("apiVersion")), str(one.get("kind"))) is None for one in owners
    )


def _marked(item: Manifest) -> Manifest:
    metadata = item.data["metadata"]
    annotations = {**(metadata.get("annotations") or {}), ABSENT_OWNER: "true"}
    return Manifest(item.kind, {**item.data, "metadata": {**metadata, "annotations": annotations}}, item.source)


def absent_owners_remark(objects: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a remark about the marked objects among some, as plain data; none if no object is marked."""
    count, names = 0, dict[str, None]()
    for data in objects:
        if ((data.get("metadata") or {}).get("annotations") or {}).get(ABSENT_OWNER) == "true":
            count += 1
            names.update(dict.fromkeys(f"{one.get('kind')} {one.get('name')}" for one in _owners(data)))
    if not count:
        return []
    more = f", and {len(names) - _MOST:,} more" if len(names) > _MOST else ""
    who = f"{count:,} pods are" if count != 1 else "1 pod is"
    text = f"{who} owned by objects that are not in the input ({', '.join([*names][:_MOST])}{more}): they are kept, and nothing"
    return [f"{text} replaces or scales them; export the owners, such as replicasets and jobs, as well"]
