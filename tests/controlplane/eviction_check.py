"""Check of a preemption, by counting pods one by one: were the budgets violated for nothing?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubesched.api.types import Pod
from kubesched.scheduler.nodes.nodeinfo import NodeInfo
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.plugins.preemption.preemptor import Preemptor
from kubesched.scheduler.scheduler import Scheduler

__all__ = ["needless_violation"]


def needless_violation(scheduler: Scheduler, preemptor: Preemptor, victims: Sequence[PodInfo], now: float) -> str:
    """Return what is wrong with a choice of victims; empty if nothing is, or if the pod has demands besides resources."""
    equal = [victim.key for victim in victims if victim.priority >= preemptor.priority]
    if equal:
        return f"{preemptor.key} evicts {equal}, whose priority is not lower"
    budgets = list(scheduler.informers.objects("poddisruptionbudgets").values())
    pod = preemptor.pods[0]
    if not _violations(victims, budgets) or not _is_plain(pod.pod):
        return ""
    for info in scheduler.cache.table.all_infos():
        if info.name not in preemptor.nodes and _makes_room(scheduler, info, pod, budgets):
            return f"{preemptor.key} violates a budget on {preemptor.place}; {info.name} makes room without that"
    return ""


def _is_plain(pod: Pod) -> bool:
    spec = pod.spec
    ports = any(container.ports for container in spec.containers)
    more = (spec.volumes, spec.resource_claims, spec.topology_spread_constraints, spec.affinity, spec.node_selector)
    return not ports and not any(more)


def _makes_room(scheduler: Scheduler, info: NodeInfo, pod: PodInfo, budgets: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if evicting pods of lower priority that no budget protects makes room for a plain pod."""
    node = info.node
    if node is None or node.spec.unschedulable or node.spec.taints:
        return False
    if scheduler.queue.nominator.nominated_pods_for_node(info.name):
        return False  # they hold resources, too
    if any(
        term
        for other in info.pods.values()
        if (affinity := other.pod.spec.affinity) is not None
        for term in (affinity,)
    ):
        return False  # their anti-affinity may exclude the pod
    lower = [other for other in info.pods.values() if other.priority < pod.priority]
    lower.sort(key=lambda other: -other.priority)  # the most important one uses up what a budget allows, as upstream
    freed: list[PodInfo] = []
    for other in lower:
        if not _violations([*freed, other], budgets):
            freed.append(other)
    cpu = info.requested.milli_cpu - sum(other.requests.milli_cpu for other in freed)
    return cpu + pod.requests.milli_cpu <= info.allocatable.milli_cpu


def _violations(victims: Sequence[PodInfo], budgets: Sequence[Mapping[str, Any]]) -> int:
    count = 0
    for budget in budgets:
        wanted = budget["spec"].get("selector", {}).get("matchLabels", {})
        status = budget.get("status", {})
        covered = [
            victim
            for victim in victims
            if victim.labels.items() >= wanted.items() and victim.pod.name not in status.get("disruptedPods", {})
        ]
        count += max(0, len(covered) - max(0, status.get("disruptionsAllowed", 0)))
    return count
