"""Pods of a question, such as "how many more of these fit?", and as many copies of them as it takes.

A pod is asked about as it is; a workload by the pods that its controller would make, its replicas being the proportion.
Other objects of the input, such as a PriorityClass or a DaemonSet, belong to the cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Final

from kubesched.api.kinds import (
    CLAIMS,
    CRON_JOBS,
    DEPLOYMENTS,
    JOBS,
    NODES,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
)
from kubesched.cluster.files import Manifest, ManifestError, Manifests, expand_workloads

__all__ = ["MOST_SHARE", "AskedPod", "Question", "as_created", "pod_like", "question_of"]

#: Most pods of one kind in a copy of the mix.
MOST_SHARE: Final = 10_000
#: Most kinds of pods in a question.
_MOST_KINDS: Final = 1_000
#: Most names of pods that are compared with a name that no pod has.
_MOST_COMPARED: Final = 5_000
#: Ordinal of the first made pod of a StatefulSet, beyond those that it has.
_FIRST_ORDINAL: Final = 1_000_000
_REPLICATED: Final = (DEPLOYMENTS, REPLICA_SETS, REPLICATION_CONTROLLERS, STATEFUL_SETS)
#: Metadata that belongs to one pod, and not to its copies.
_OWN: Final = ("name", "generateName", "uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink")
_IN_TIME: Final = ("kubesched.io/arrival", "kubesched.io/duration", "kubesched.io/exit")

#: Function that returns the objects of a pod's copy of some number, the pod last.
Maker = Callable[[int], list[Manifest]]


@dataclass(frozen=True, slots=True)
class AskedPod:
    """Pod that is asked about.

    Attributes:
        name: name for people, such as ``web`` or ``Deployment/web``; unique in its question.
        share: number of these pods in a copy of the mix.
        make: returns the objects of a copy, by its number.
        infix: middle of the copies' names, which differs for a Pod and a workload of one name.
    """

    name: str
    namespace: str
    share: int
    make: Maker
    infix: str = "more"

    @property
    def pod(self) -> Manifest:
        """The first copy."""
        return self.make(0)[-1]


@dataclass(frozen=True, slots=True)
class Question:
    """Pods that are asked about, and objects that the cluster needs for them.

    Attributes:
        pods: the kinds of pods, at least one.
        objects: other objects of the input.
    """

    pods: tuple[AskedPod, ...]
    objects: tuple[Manifest, ...]

    def alone(self) -> list[Question]:
        """Return a question about each kind of pod alone."""
        return [Question((replace(one, share=1),), self.objects) for one in self.pods]


def question_of(given: Manifests, mix: Mapping[str, int] | None = None) -> Question:
    """Return the question about the pods of an input. ``mix`` has other proportions than the input's, by name.

    Raises:
        ManifestError: for objects that cannot be asked about, an input without pods, and names that no pod has.
    """
    problems = [*given.problems]
    asked: list[AskedPod] = []
    others: list[Manifest] = []
    names: Counter[tuple[str, str]] = Counter()
    for item in given.objects:
        try:
            # Copies of a Pod and of a workload of one name need different names.
            same = names[item.namespace, item.name]
            found = _asked(item, f"more-{same + 1}" if same else "more")
        except ManifestError as error:
            problems += error.problems
            continue
        if found is None:
            others.append(item)
        else:
            asked.append(found)
            names[item.namespace, item.name] += 1
    if not asked and not problems:
        problems.append("there is no pod to ask about; give a Pod, or a workload such as a Deployment")
    if len(asked) > _MOST_KINDS:
        problems.append(f"{len(asked):,} kinds of pods are asked about; the most are {_MOST_KINDS:,}")
    pods = _named(asked)
    if mix:
        pods = _mixed(pods, mix, problems)
    if problems:
        raise ManifestError(*problems)
    return Question(tuple(one for one in pods if one.share), tuple(others))


def pod_like(name: str, cluster: Iterable[Manifest]) -> Manifest:
    """Return the pod of a cluster that a question names as its model, by ``name`` or ``namespace/name``.

    Raises:
        ManifestError: when there is no such pod, or a pod of this name in several namespaces.
    """
    namespace, _, short = name.rpartition("/")
    pods = [one for one in cluster if one.kind == PODS]
    found = [one for one in pods if one.name == short and namespace in ("", one.namespace)]
    if len(found) == 1:
        return found[0]
    if found:
        places = ", ".join(sorted(f"{one.namespace}/{one.name}" for one in found))
        raise ManifestError(f"--like {name}: is the name of several pods; give one of {places}")
    near = get_close_matches(short, [one.name for one in pods[:_MOST_COMPARED]], 3)
    have = f"; did you mean {' or '.join(near)}?" if near else f"; it has {len(pods):,} pods"
    raise ManifestError(f"--like {name}: the cluster has no pod of this name{have}")


def _mixed(pods: list[AskedPod], mix: Mapping[str, int], problems: list[str]) -> list[AskedPod]:
    """Return the pods with other proportions; those that are not named are left out."""
    known = {one.name: one for one in pods} | {one.name.rpartition("/")[2]: one for one in pods}
    shares: dict[str, int] = {}
    for name, share in mix.items():
        if name not in known:
            problems.append(
                f"--mix {name}={share}: no pod has this name; there are {', '.join(one.name for one in pods)}"
            )
        elif isinstance(share, bool) or not isinstance(share, int) or not 0 < share <= MOST_SHARE:
            problems.append(f"--mix {name}={share}: expected a whole number from 1 to {MOST_SHARE}")
        else:
            shares[known[name].name] = share
    return [replace(one, share=shares.get(one.name, 0)) for one in pods]


def _named(asked: Iterable[AskedPod]) -> list[AskedPod]:
    """Return the pods with the shortest names that are unique: without the namespace where that is enough."""
    pods = list(asked)
    count: dict[str, int] = {}
    for one in pods:
        count[one.name] = count.get(one.name, 0) + 1
    return [one if count[one.name] == 1 else replace(one, name=f"{one.namespace}/{one.name}") for one in pods]


def _asked(item: Manifest, infix: str) -> AskedPod | None:
    """Return what is asked about by an object; None for an object that makes no pods. ``infix`` is in copies' names."""
    if item.kind == PODS:
        body = as_created(item.data)
        return AskedPod(
            item.name or "pod",
            item.namespace,
            1,
            _copies(item, body, f"{(item.name or 'pod')[:200]}-{infix}"),
            infix,
        )
    if item.kind == CRON_JOBS:
        raise ManifestError(f"{item.source}: CronJob {item.name}: give its jobTemplate as a Job")
    if item.kind == NODES:
        raise ManifestError(
            f"{item.source}: Node {item.name}: nodes belong into the cluster: --cluster, --from or --nodes"
        )
    if item.kind == STATEFUL_SETS:
        share = _share(item, "replicas")
        return AskedPod(f"StatefulSet/{item.name}", item.namespace, share, _ordinals(item), infix)
    if item.kind in _REPLICATED or item.kind == JOBS:
        field = "parallelism" if item.kind == JOBS else "replicas"
        share = _share(item, field)
        one = {**item.data, "spec": {**(item.data.get("spec") or {}), field: 1, "suspend": False}}
        if item.kind != JOBS:
            del one["spec"]["suspend"]
        pod = expand_workloads([Manifest(item.kind, one, item.source)]).objects[-1]
        name = item.name or "pod"
        return AskedPod(
            f"{item.kind.kind}/{name}",
            item.namespace,
            share,
            _copies(item, as_created(pod.data), f"{name[:200]}-{infix}"),
            infix,
        )
    return None


def _share(item: Manifest, field: str) -> int:
    value = (item.data.get("spec") or {}).get(field)
    value = 1 if value is None else value
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MOST_SHARE:
        what = f"spec.{field}: {value!r}: is the number of pods in the mix: a whole number from 1 to {MOST_SHARE}"
        raise ManifestError(f"{item.source}: {item.kind.kind} {item.name}: {what}")
    return value


def as_created(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod as it is created: without a node, a status, and what belongs to one pod only."""
    metadata = {key: value for key, value in data["metadata"].items() if key not in _OWN}
    annotations = metadata.get("annotations")
    if isinstance(annotations, Mapping):
        metadata["annotations"] = {key: value for key, value in annotations.items() if key not in _IN_TIME}
    spec = data.get("spec")
    if isinstance(spec, Mapping):
        spec = {key: value for key, value in spec.items() if key != "nodeName"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _copies(item: Manifest, body: dict[str, Any], name: str) -> Maker:
    def make(number: int) -> list[Manifest]:
        metadata = {**body["metadata"], "name": f"{name}-{number}", "namespace": item.namespace}
        return [Manifest(PODS, {**body, "metadata": metadata}, item.source)]

    return make


def _ordinals(item: Manifest) -> Maker:
    """Return the maker of a StatefulSet's pods, each with its claims."""

    def make(number: int) -> list[Manifest]:
        spec = {**(item.data.get("spec") or {}), "replicas": 1, "ordinals": {"start": _FIRST_ORDINAL + number}}
        made = expand_workloads([Manifest(item.kind, {**item.data, "spec": spec}, item.source)]).objects[1:]
        pod = made[-1]
        data = as_created(pod.data)
        data["metadata"]["name"] = pod.name
        return [one for one in made if one.kind == CLAIMS] + [Manifest(PODS, data, item.source)]

    make(0)  # a template that cannot be used is refused at once
    return make
