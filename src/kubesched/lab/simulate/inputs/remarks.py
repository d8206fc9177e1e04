"""Warnings about parts of an input that have no effect, or that never end. There is one warning for each kind of part.

Caller: :mod:`.intake`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from difflib import get_close_matches
from typing import Any, Final

from kubesched.api.kinds import COSCHEDULING_GROUPS, CRON_JOBS, JOBS, VOLCANO_GROUPS, Kind
from kubesched.cluster.controllers import ABSENT_OWNER, DEVICES_ANNOTATION
from kubesched.cluster.files import Manifest
from kubesched.cluster.kubelets import DURATION, FAILED
from kubesched.cluster.schema import root_type, unknown_paths
from kubesched.explain.annotations.simulator import CUT
from kubesched.explain.annotations.why import WHY_PENDING
from kubesched.explain.workloads import WORKLOAD
from kubesched.scheduler.config import KubeSchedulerConfiguration

from .arrivals import ARRIVAL, template_arrival

__all__ = ["endless", "is_served", "not_honoured", "unknown_fields", "unread_groups", "without_gates"]

#: Kinds that are stored but have no effect here, with their effect in a real cluster.
_INERT: Final = {
    "horizontalpodautoscalers.autoscaling": "nothing is scaled by load",
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": "webhooks are not called",
    "validatingwebhookconfigurations.admissionregistration.k8s.io": "webhooks are not called",
    "networkpolicies.networking.k8s.io": "there is no traffic",
    "ingresses.networking.k8s.io": "there is no traffic",
}

#: Plugin that reads groups of other projects.
_READER: Final = "PodGroupMigration"
_ONE_BY_ONE: Final = ": pods are scheduled one by one without the feature gate GenericWorkload; AllPodGroups=true turns on all about groups"

#: Prefix of annotations of our own. An annotation with it that nothing reads or writes is most likely misspelled.
_PREFIX: Final = "kubesched.io/"
#: Annotations that a live scheduler writes when it is asked to; a dump has them, and nothing reads them.
_WRITTEN: Final = frozenset({WHY_PENDING, CUT})
_ANNOTATIONS: Final = frozenset(
    {ARRIVAL, DURATION, FAILED, ABSENT_OWNER, DEVICES_ANNOTATION, WORKLOAD}
    | {_PREFIX + name for name in ("exit", "capacity", "capacity-of", "topology", "volumes-per-node", "hollow", "load")}
)


def is_served(kind: Kind, features: Set[str]) -> bool:
    """True if the cluster has a kind, given the feature gates of pod groups that are on."""
    return not kind.gate or kind.gate in features


def unknown_fields(objects: Iterable[Manifest]) -> list[str]:
    """Return a warning for each field that Kubernetes does not know: most likely a typing mistake, which is ignored."""
    found: dict[tuple[str, str], list[Manifest]] = {}
    for item in objects:
        for path in unknown_paths(root_type(item.kind.group, item.kind.kind), item.data):
            found.setdefault((item.kind.kind, path), []).append(item)
    return [
        f'{items[0].source}: {kind} {items[0].name}: unknown field "{path}" is ignored{_also(items)}'
        for (kind, path), items in found.items()
    ]


def not_honoured(objects: Sequence[Manifest], features: Set[str] = frozenset()) -> list[str]:
    """Return a warning for each kind that has no effect here but in a real cluster, and for misplaced annotations.

    ``features`` are the feature gates of pod groups that are on.
    """
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
    return texts + without_gates(objects, features) + _unknown_annotations(objects)


def without_gates(objects: Sequence[Manifest], features: Set[str]) -> list[str]:
    """Return a warning for each kind, and for the groups of pods, whose feature gate is off.

    ``features`` are the feature gates of pod groups that are on.
    """
    found: dict[Kind, list[Manifest]] = {}
    for item in objects:
        if not is_served(item.kind, features):
            found.setdefault(item.kind, []).append(item)
    texts = [
        f"{items[0].source}: {kind.kind} {items[0].name} has no effect{_ONE_BY_ONE}{_also(items)}"
        for kind, items in found.items()
    ]
    grouped = [item for item in objects if any("schedulingGroup" in spec for _, spec in _pod_parts(item))]
    if grouped and "GenericWorkload" not in features:
        first = grouped[0]
        named = f"{first.kind.kind} {first.name}"
        texts.append(f"{first.source}: {named}: schedulingGroup has no effect{_ONE_BY_ONE}{_also(grouped)}")
    return texts


def unread_groups(objects: Iterable[Manifest], config: KubeSchedulerConfiguration, features: Set[str]) -> list[str]:
    """Return a warning for each kind of groups of other projects, unless a profile has the plugin that reads them."""
    if any(_READER in profile.plugins.enabled_names() for profile in config.profiles):
        return []
    found: dict[str, list[Manifest]] = {}
    for item in objects:
        if item.kind in (COSCHEDULING_GROUPS, VOLCANO_GROUPS) and is_served(item.kind, features):
            found.setdefault(item.kind.api_version, []).append(item)
    return [
        f"{items[0].source}: {kind} PodGroup {items[0].name} has no effect: no profile enables {_READER}{_also(items)}"
        for kind, items in found.items()
    ]


def _unknown_annotations(objects: Sequence[Manifest]) -> list[str]:
    """Return a warning for each annotation of our own prefix that nothing reads."""
    found: dict[str, list[Manifest]] = {}
    for item in objects:
        names = {name for annotations, _ in _pod_parts(item) for name in annotations if name.startswith(_PREFIX)}
        for name in sorted(names - _ANNOTATIONS - _WRITTEN):
            found.setdefault(name, []).append(item)
    texts = []
    for name, items in found.items():
        near = get_close_matches(name.lower(), sorted(_ANNOTATIONS), 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        first = items[0]
        texts.append(
            f"{first.source}: {first.kind.kind} {first.name}: annotation {name} is none of kubesched's{hint}"
            f"{_also(items)}"
        )
    return texts


def _pod_parts(item: Manifest) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yield annotations and spec of an object, and of the templates in it."""
    data: Any = item.data
    while isinstance(data, dict):
        metadata, spec = data.get("metadata"), data.get("spec")
        annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
        spec = spec if isinstance(spec, dict) else {}
        yield annotations if isinstance(annotations, dict) else {}, spec
        data = spec.get("template") or spec.get("jobTemplate")


def _also(items: Sequence[Manifest]) -> str:
    """Return the end of a remark about the first object that applies to all of them."""
    more = len(items) - 1
    return "" if not more else f" (and so for {more:,} more {'object' if more == 1 else 'objects'})"


def _completions(job: Manifest) -> int:
    wanted = (job.data.get("spec") or {}).get("completions")
    return wanted if isinstance(wanted, int) else 0


def _parallelism(job: Manifest) -> int:
    wanted = (job.data.get("spec") or {}).get("parallelism")
    return wanted if isinstance(wanted, int) else 1


def _ends(template: object) -> bool:
    """True if the pods of a template end by themselves."""
    metadata = template.get("metadata") if isinstance(template, dict) else None
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return isinstance(annotations, dict) and bool(annotations.get(DURATION))


def endless(objects: Sequence[Manifest]) -> list[str]:
    """Return warnings about Jobs and CronJobs whose pods do not end, so that later pods are never made."""
    texts = []
    jobs = [
        item
        for item in objects
        if item.kind == JOBS
        and _completions(item) > _parallelism(item)
        and not _ends((item.data.get("spec") or {}).get("template"))
    ]
    if jobs:
        job = jobs[0]
        what = f"so only the {_parallelism(job)} of its {_completions(job)} pods that may run at once are simulated"
        also = _also(jobs)
        texts.append(
            f"{job.source}: Job {job.name}: its pods run without end, as they have no {DURATION}; {what}{also}"
        )
    crons = []
    for item in objects:
        template = (item.data.get("spec") or {}).get("jobTemplate") if item.kind == CRON_JOBS else None
        if template is not None and not _ends((template.get("spec") or {}).get("template")):
            crons.append(item)
    if crons:
        what = f"its pods run without end, as they have no {DURATION}"
        texts.append(f"{crons[0].source}: CronJob {crons[0].name}: {what}{_also(crons)}")
    return texts
