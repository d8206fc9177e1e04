"""Quotas that keep pods from being made: workloads whose next pod would exceed one, and how far it has to be raised.

The use of a quota is that of its status; the arithmetic is that of admission (:mod:`kubesched.api.quotas`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any, Final

import msgspec

from kubesched.api.decode import from_builtins
from kubesched.api.kinds import LIMIT_RANGES, RESOURCE_QUOTAS, Kind, kind_of
from kubesched.api.quotas import Amounts, QuotaRules, nanos, pod_use
from kubesched.api.types import Pod
from kubesched.base.turns import Steps
from kubesched.cluster.admission import fill_container, show_amount
from kubesched.scheduler.core.diagnosis import Rejection
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.nodes import PodInfo
from kubesched.scheduler.plugins.demands.words import counted
from kubesched.scheduler.scheduler import Scheduler

from .objects import Objects
from .report import NotCreated, QuotaLimit
from .workloads import Workloads

__all__ = ["finding_not_created", "quota_notes"]

#: Kinds that make pods, with the fields of their spec that say how many.
_MAKERS: Final = {
    ("apps/v1", "ReplicaSet"): "replicas",
    ("apps/v1", "StatefulSet"): "replicas",
    ("v1", "ReplicationController"): "replicas",
    ("batch/v1", "Job"): "parallelism",
}
#: Most workloads in an answer, and quotas of a namespace that are read.
_MOST_WORKLOADS: Final = 64
_MOST_QUOTAS: Final = 32
#: Pods and workloads that are looked at in one step.
_STEP: Final = 1000


class _Quotas:
    """Quotas of one namespace, with what is used of each."""

    def __init__(self, objects: Objects, namespace: str) -> None:
        self._quotas: list[tuple[str, QuotaRules, Amounts]] = []
        for item in list(objects.documents(RESOURCE_QUOTAS, namespace))[:_MOST_QUOTAS]:
            used = ((item.get("status") or {}).get("used") or {}).items()
            self._quotas.append(
                (
                    item["metadata"]["name"],
                    QuotaRules(item.get("spec") or {}),
                    {name: nanos(text) for name, text in used},
                )
            )

    def limits(self, pod: Pod, missing: int, *, ends: bool) -> list[QuotaLimit]:
        """Return the limits of which too little is left for so many pods like this one; none if there is enough for one.

        ``ends``: the pod has a deadline.
        """
        use = pod_use(pod)
        counting = [(quota, rules, used) for quota, rules, used in self._quotas if rules.covers(pod, ends=ends)]
        if not any(rules.exceeded(use, used) for _, rules, used in counting):
            return []
        every = {name: missing * amount for name, amount in use.items()}
        return [
            QuotaLimit(
                quota=quota,
                resource=name,
                asked=show_amount(name, use[name]),
                used=show_amount(name, used.get(name, 0)),
                limit=show_amount(name, rules.hard[name]),
                needed=show_amount(name, used.get(name, 0) + every[name]),
            )
            for quota, rules, used in counting
            for name in rules.exceeded(every, used)
        ]

    def unasked(self, pod: Pod, *, ends: bool) -> list[str]:
        """Return what quotas demand of the pod's containers and these do not ask for. ``ends``: the pod has a deadline."""
        covering = [(quota, rules) for quota, rules, _ in self._quotas if rules.covers(pod, ends=ends)]
        return [f"{quota}: {text}" for quota, rules in covering for text in rules.unasked(pod)]


def finding_not_created(
    scheduler: Scheduler,
    objects: Objects,
    pods: Iterable[Pod],
    namespace: str | None = None,
    names: Collection[str] = (),
) -> Steps[list[NotCreated]]:
    """Return the workloads that lack pods because of quotas, most missing pods first, in steps.

    ``namespace`` and ``names``, as ``namespace/name``, narrow the question if they are given.
    """
    limited = {item["metadata"].get("namespace", "") for item in objects.documents(RESOURCE_QUOTAS, namespace or "")}
    if not limited:
        return []
    existing, samples = Counter[str](), dict[str, Pod]()
    for done, pod in enumerate(pods):
        if done % _STEP == 0:
            yield
        owner = next((one for one in pod.metadata.owner_references if one.controller), None)
        if owner is not None and pod.namespace in limited and pod.status.phase not in ("Succeeded", "Failed"):
            existing[owner.uid] += 1
            samples.setdefault(owner.uid, pod)
    quotas = {name: _Quotas(objects, name) for name in limited}
    found: list[tuple[NotCreated, Pod, str]] = []
    for version, kind in _MAKERS:
        table = kind_of(version, kind)
        for done, item in enumerate(list(objects.documents(table, namespace or "")) if table is not None else ()):
            if done % _STEP == 0:
                yield
            meta = item["metadata"]
            home = quotas.get(meta.get("namespace", ""))
            wanted = _wanted(item, _MAKERS[version, kind])
            missing = wanted - existing[meta["uid"]]
            if home is None or missing <= 0 or table is None:
                continue
            following = _next_pod(objects, item, table, samples.get(meta["uid"]))
            if following is None:
                continue
            template = ((item.get("spec") or {}).get("template") or {}).get("spec") or {}
            ends = template.get("activeDeadlineSeconds") is not None
            limits, unasked = home.limits(following, missing, ends=ends), home.unasked(following, ends=ends)
            if limits or unasked:
                one = NotCreated(
                    namespace=meta["namespace"],
                    workload=Workloads(objects).of(following),
                    wanted=wanted,
                    existing=existing[meta["uid"]],
                    limits=limits,
                    unasked=unasked,
                )
                if not names or one.name in names:
                    found.append((one, following, meta["uid"]))
    found.sort(key=lambda each: (each[0].existing - each[0].wanted, each[0].namespace, each[0].workload))
    told = []
    for one, following, uid in found[:_MOST_WORKLOADS]:
        event = objects.warning(one.namespace, uid)
        told.append(_with_hints(scheduler, msgspec.structs.replace(one, event=event), following))
        yield
    return told


def _wanted(item: Mapping[str, Any], field: str) -> int:
    """Number of pods that a workload wants to have at once."""
    spec, status = item.get("spec") or {}, item.get("status") or {}
    count = spec.get(field)
    count = 1 if count is None else count
    if field == "parallelism":
        if spec.get("suspend") or any(
            one.get("type") in ("Complete", "Failed") and one.get("status") == "True"
            for one in status.get("conditions") or ()
        ):
            return 0
        if spec.get("completions") is not None:
            count = min(count, spec["completions"] - (status.get("succeeded") or 0))
    return int(count)


def _next_pod(objects: Objects, item: Mapping[str, Any], kind: Kind, sample: Pod | None) -> Pod | None:
    """The pod that a workload would make next: like the one that there is, or of its template with the defaults of limit ranges."""
    meta = item["metadata"]
    if sample is not None:
        status = msgspec.structs.replace(sample.status, phase="Pending", nominated_node_name="")
        spec = msgspec.structs.replace(sample.spec, node_name="")
        return msgspec.structs.replace(sample, spec=spec, status=status)
    template = deepcopy((item.get("spec") or {}).get("template") or {})
    containers = [
        one for key in ("initContainers", "containers") for one in (template.get("spec") or {}).get(key) or ()
    ]
    for ranges in objects.documents(LIMIT_RANGES, meta["namespace"]):
        for rule in (ranges.get("spec") or {}).get("limits") or ():
            for container in containers if rule.get("type") == "Container" else ():
                fill_container(container, rule)
    owner = {
        "apiVersion": kind.api_version, "kind": kind.kind, "name": meta["name"], "uid": meta["uid"], "controller": True
    }  # fmt: skip
    own = {"name": f"{meta['name']}-", "namespace": meta["namespace"], "uid": f"next of {meta['uid']}"}
    data = {**template, "metadata": {**(template.get("metadata") or {}), **own, "ownerReferences": [owner]}}
    try:
        return from_builtins(data, Pod)
    except (msgspec.ValidationError, ValueError):
        return None


def _with_hints(scheduler: Scheduler, one: NotCreated, pod: Pod) -> NotCreated:
    """Add what would help, and the nodes that the next pod fits now."""
    missing = one.wanted - one.existing
    raised = [f"raise {each.resource} of quota {each.quota} to {each.needed} (now {each.limit})" for each in one.limits]
    asked = [f"make the containers ask for what quota {text.replace(': ', ' demands: ', 1)}" for text in one.unasked]
    profile = scheduler.profiles.get(pod.spec.scheduler_name)
    fits, after = 0, ""
    if profile is not None:
        try:
            evaluation = profile.search.evaluate(CycleState(), PodInfo(pod))
        except PluginFailedError as error:
            after = f"; a plugin fails for the next one: {error}"
        else:
            fits = 0 if isinstance(evaluation, Rejection) else len(evaluation.feasible)
            text = (
                f"waits: {evaluation.message()}"
                if isinstance(evaluation, Rejection)
                else f"fits {counted(fits, 'node')}"
            )
            after = f"; the next one {text}"
    what = "the missing pod can be made" if missing == 1 else f"the {missing:,} missing pods can be made"
    hint = f"{' AND '.join([*raised, *asked])}: {what}{after}"
    return msgspec.structs.replace(one, fits=fits, hints=[hint])


def quota_notes(found: Iterable[NotCreated]) -> Iterator[str]:
    """Yield a sentence for each limit that stands in the way of a workload."""
    for one in found:
        for each in one.limits:
            yield f"quota {each.quota}: {each.resource} {each.used} of {each.limit} used, a pod asks for {each.asked}"
        yield from (f"quota {text.replace(': ', ' demands: ', 1)}" for text in one.unasked)
