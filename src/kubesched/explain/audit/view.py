"""Cluster as the checks of an audit see it, and the collection of their findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from kubesched.api.types import Pod
from kubesched.base.times import cached_time
from kubesched.scheduler.config import KubeSchedulerConfiguration
from kubesched.scheduler.core.search import Search
from kubesched.scheduler.framework.runtime import Framework
from kubesched.scheduler.nodes import NodeTable, PodInfo
from kubesched.scheduler.scheduler import Scheduler

from ..objects import Objects
from ..workloads import Workloads
from .report import LEVELS, Finding, Omitted
from .rules import RULES, advice_for, source_for

__all__ = ["Findings", "Limits", "View", "distinct", "is_finished", "moment"]

#: Most objects and nodes that a finding names, unless the audit is wide.
_MOST_NAMES: Final = 5
#: Most findings of one rule, unless the audit is wide.
_MOST_FINDINGS: Final = 100
#: Most notes about what could not be checked, unless the audit is wide.
_MOST_NOTES: Final = 50


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of an audit.

    Attributes:
        is_wide: name every object, and keep every finding.
        older_than: seconds after which a pod that waits, or is being deleted, has taken too long.
        signatures: number of distinct signatures above which a workload has many.
    """

    is_wide: bool = False
    older_than: float = 600.0
    signatures: int = 100


class Findings:
    """Collection of findings; it fills in level, source and advice, and cuts lists of names."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._found: list[Finding] = []
        self._unchecked: dict[str, None] = {}

    def add(
        self, rule: str, message: str, kind: str, objects: Iterable[str], *, nodes: Iterable[str] = (), **more: Any
    ) -> None:
        """Add a finding about ``objects``. ``more`` are further fields of :class:`Finding`."""
        names, where = sorted(set(objects)), sorted(set(nodes))
        plugin = more.get("plugin", "")
        fields = {"advice": advice_for(rule, plugin), "source": source_for(rule, plugin), **more}
        self._found.append(
            Finding(
                level=RULES[rule].level,
                rule=rule,
                message=message,
                kind=kind,
                count=len(names),
                objects=self._cut(names),
                node_count=len(where),
                nodes=self._cut(where),
                **fields,
            )
        )

    def cannot_check(self, text: str) -> None:
        """Note what could not be checked; repetitions count once."""
        self._unchecked[text] = None

    def unchecked(self) -> list[str]:
        """Return the notes; beyond the limit only their number."""
        notes = list(self._unchecked)
        if self._limits.is_wide or len(notes) <= _MOST_NOTES:
            return notes
        return [*notes[:_MOST_NOTES], f"{len(notes) - _MOST_NOTES:,} more"]

    def _cut(self, names: list[str]) -> list[str]:
        return names if self._limits.is_wide else names[:_MOST_NAMES]

    def levels(self) -> Counter[str]:
        """Return the number of findings by level."""
        return Counter(one.level for one in self._found)

    def result(self) -> tuple[list[Finding], list[Omitted]]:
        """Return the findings in order, and what is beyond the limit."""
        order = {rule: place for place, rule in enumerate(RULES)}
        self._found.sort(
            key=lambda one: (LEVELS.index(one.level), order[one.rule], -one.count, one.namespace, one.objects)
        )
        kept: list[Finding] = []
        left: dict[str, list[int]] = {}
        seen: Counter[str] = Counter()
        for one in self._found:
            seen[one.rule] += 1
            if self._limits.is_wide or seen[one.rule] <= _MOST_FINDINGS:
                kept.append(one)
            else:
                left.setdefault(one.rule, []).append(one.count)
        return kept, [Omitted(rule=rule, findings=len(counts), objects=sum(counts)) for rule, counts in left.items()]


@dataclass(slots=True)
class View:
    """Cluster as the checks see it; none of them changes anything.

    Attributes:
        scheduler: the scheduler over the cluster, which decides nothing meanwhile.
        config: its configuration, with extenders that are not called here.
        objects: API objects besides nodes and pods.
        pods: pods that are not finished.
        now: moment to which ages refer, in seconds since the epoch.
        limits: limits of the audit.
        findings: collection of the findings.
    """

    scheduler: Scheduler
    config: KubeSchedulerConfiguration
    objects: Objects
    pods: list[Pod]
    now: float
    limits: Limits
    findings: Findings
    workloads: Workloads = field(init=False)

    def __post_init__(self) -> None:
        self.workloads = Workloads(self.objects)

    @property
    def table(self) -> NodeTable:
        return self.scheduler.cache.table

    @property
    def pending(self) -> list[Pod]:
        """Pods without a node that are not being deleted."""
        return [pod for pod in self.pods if not pod.spec.node_name and pod.metadata.deletion_timestamp is None]

    def profile(self, pod: Pod) -> tuple[Framework, Search] | None:
        """Return plugins and search of a pod's profile; None if the pod is another scheduler's."""
        name = pod.spec.scheduler_name
        framework = self.scheduler.frameworks.get(name)
        return (framework, self.scheduler.profiles[name].search) if framework is not None else None

    def seen(self, pod: Pod) -> PodInfo:
        """Return a pending pod as the scheduler sees it: without fields that feature gates turn off."""
        return PodInfo(self.scheduler.informers.live_pod(pod.namespace, pod.metadata.name) or pod)


def is_finished(pod: Pod) -> bool:
    return pod.status.phase in ("Succeeded", "Failed")


def moment(text: str | None) -> float | None:
    """Return a timestamp as seconds since the epoch; None without one, or for another text."""
    return cached_time(text) if text else None


def distinct(view: View, pods: Iterable[Pod]) -> Iterator[tuple[str, list[Pod]]]:
    """Return pods that are equal but for their names, with their workload."""
    groups: dict[tuple[str, bytes], list[Pod]] = {}
    for pod in pods:
        alike = msgspec.json.encode((pod.namespace, pod.metadata.labels, pod.spec))
        groups.setdefault((view.workloads.of(pod), alike), []).append(pod)
    return ((workload, group) for (workload, _), group in groups.items())
