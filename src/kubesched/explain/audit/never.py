"""Pods that no node would take even without any other pod.

All pods are taken off their nodes in a what-if, and the plugins are asked about every node. Plugins whose answer needs
more than the cluster's other pods to go are not counted, nor is a rejection at PreFilter, which waits for an object: a pod
that nothing else rejects may run some day.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import numpy as np

from kubesched.api.groups import group_key
from kubesched.api.types import Pod
from kubesched.base.turns import finish
from kubesched.scheduler.core.search import Search, prepared
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.entries import FilterEntry
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.framework.runtime import Framework
from kubesched.scheduler.nodes import PodInfo
from kubesched.scheduler.plugins.demands.words import counted, listed

from ..obstacles import Obstacle, names_at, obstacles_of_plugin, rejected_by
from ..pod_groups import GroupExplainer
from .view import View, distinct

__all__ = ["LEFT_OUT", "audit_never", "audit_strangers"]

#: Plugins that are not counted, because an empty cluster is no answer to them: rules about other pods' presence, and
#: devices, volumes and attachments, which stay taken as long as claims exist.
LEFT_OUT: Final = frozenset(("InterPodAffinity", "DynamicResources", "VolumeBinding", "NodeVolumeLimits"))

#: Most distinct pods that are tried; most findings with details (the largest), and most details of each.
_MOST_PODS: Final = 5000
_MOST_DETAILED: Final = 100
_MOST_DETAILED_WIDE: Final = 1000
_MOST_OBSTACLES: Final = 4
#: Most characters of a detail.
_MOST_TEXT: Final = 500


class _Found(NamedTuple):
    """Pods that no node would take, the filters that reject them, and what stands in the way of the first one."""

    workload: str
    pods: list[Pod]
    rejecting: Sequence[FilterEntry]
    obstacles: Sequence[Obstacle]


def audit_never(view: View) -> None:
    """Add a finding for each distinct pending pod that no node would take; one finding for the members of a pod group."""
    table = view.table
    waiting = sorted(distinct(view, view.pending), key=lambda item: (-len(item[1]), item[1][0].key))
    if not waiting or not len(table):
        return
    if len(waiting) > _MOST_PODS:
        left = len(waiting) - _MOST_PODS
        view.findings.cannot_check(f"whether {left:,} of {len(waiting):,} distinct pending pods can ever be scheduled")
    detailed = _MOST_DETAILED_WIDE if view.limits.is_wide else _MOST_DETAILED
    most_groups = detailed
    of_groups: dict[str, _Found] = {}
    placed = [(node, pod) for node in table.all_infos() if node.node is not None for pod in list(node.pods.values())]
    with view.scheduler.cache.snapshot().without(placed):
        for workload, pods in waiting[:_MOST_PODS]:
            profile = view.profile(pods[0])
            if profile is None:
                continue
            framework, search = profile
            pod = view.seen(pods[0])
            with suppress(PluginFailedError):  # an attempt fails, and reports it; nothing is known about the nodes
                rejecting = _rejecting(framework, search, pod)
                if rejecting:
                    found = _obstacles(framework, search, pod, rejecting) if detailed > 0 else []
                    detailed -= 1
                    if not (key := group_key(pod.pod)):
                        _report(view, _Found(workload, pods, rejecting, found))
                    elif key in of_groups:
                        of_groups[key].pods.extend(pods)
                    else:
                        of_groups[key] = _Found(workload, list(pods), rejecting, found)
    explained = finish(GroupExplainer(view.scheduler).explaining(list(of_groups)[:most_groups]))
    summaries = {one.group: one.summary for one in explained}
    for key, each in of_groups.items():
        _report(view, each, key, summaries.get(key, ""))


def audit_strangers(view: View) -> None:
    """Add a finding for each schedulerName of pending pods that no profile has."""
    waiting: dict[str, list[Pod]] = {}
    for pod in view.pending:
        if view.profile(pod) is None:
            waiting.setdefault(pod.spec.scheduler_name, []).append(pod)
    for name, pods in waiting.items():
        view.findings.add(
            "pod-unknown-scheduler",
            f'{counted(len(pods), "pod")} for the scheduler "{name}", and no profile has this name: only another scheduler '
            "places them",
            "Pod",
            [one.key for one in pods],
        )


def _rejecting(framework: Framework, search: Search, pod: PodInfo) -> list[FilterEntry]:
    """Return the filters that reject nodes if together they reject all; none otherwise.

    Raises:
        PluginFailedError: when a plugin fails.
    """
    table = search.table
    rejected = np.zeros(len(table), np.bool_)
    rejecting: list[FilterEntry] = []
    for entry in framework.filters:
        if entry.name in LEFT_OUT:
            continue
        framework.turn.number += 1
        state = prepared(CycleState(), False)
        if framework.pre_filter(state, pod, search.snapshot.nodes(), {entry.name}).status is not None:
            continue  # it waits for an object, such as a claim that is not bound: more may follow
        framework.turn.number += 1
        here = rejected_by(framework, entry, table, pod)
        if here.any():
            rejecting.append(entry)
            rejected |= here
    return rejecting if rejected.all() else []


def _obstacles(
    framework: Framework, search: Search, pod: PodInfo, rejecting: Sequence[FilterEntry]
) -> Sequence[Obstacle]:
    found = [one for entry in rejecting for one in obstacles_of_plugin(framework, entry, search.table, pod)]
    return sorted(found, key=lambda one: (-int(one.stands.sum()), one.plugin, one.text))


def _report(view: View, each: _Found, group: str = "", summary: str = "") -> None:
    workload, pods, rejecting, found = each
    rows, namespace = view.table.order(), pods[0].namespace
    texts = [
        f"{counted(int(one.stands.sum()), 'node')}: {one.text[:_MOST_TEXT]} [{one.plugin}]: "
        f"{listed(names_at(view.table, rows[one.stands], 2), int(one.stands.sum()))}"
        for one in found[:_MOST_OBSTACLES]
    ]
    if len(found) > _MOST_OBSTACLES:
        texts.append(f"{len(found) - _MOST_OBSTACLES} more obstacles")
    if summary:
        texts.insert(0, summary[:_MOST_TEXT])
    who = f"{counted(len(pods), 'pod')} of {workload} in {namespace}" if workload else _named(pods)
    if group:
        who = f"{counted(len(pods), 'member')} of pod group {group}"
    view.findings.add(
        "pod-never-schedulable",
        f"{who}: none of {counted(len(rows), 'node')} would take {'one' if group else 'it'} even without any other pod",
        "Pod",
        [one.key for one in pods],
        namespace=namespace,
        workload=workload,
        plugin=rejecting[0].name if len(rejecting) == 1 else "",
        details=texts,
        advice="change the pod, or add nodes that it fits; `kubesched explain` finds the smallest changes",
    )


def _named(pods: Sequence[Pod]) -> str:
    return pods[0].key if len(pods) == 1 else f"{len(pods):,} pods like {pods[0].key}"
