"""Hints at changes that would help a pod that fits nowhere. Each is tried: the changed pod is put through the search.

Caller: :mod:`.pending`. Tried are: one more toleration, no node selector or affinity, weaker rules between pods
(:mod:`.advice_between_pods`), smaller requests, and removing other pods.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from kubesched.api.quantity import format_bytes, format_milli
from kubesched.api.requests import CPU, EPHEMERAL_STORAGE, MEMORY
from kubesched.api.taints import NO_EXECUTE, NO_SCHEDULE, tolerated
from kubesched.api.types import Container, Pod, PodSpec, ResourceRequirements, Taint, Toleration
from kubesched.scheduler.core.diagnosis import Rejection
from kubesched.scheduler.core.search import Search
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.nodes import NodeList
from kubesched.scheduler.nodes.podinfo import PodInfo

from .advice_between_pods import between_pods

__all__ = ["format_amount", "hints_for"]

#: Most taints that are tried one by one.
_MOST_TAINTS: Final = 8


def format_amount(resource: str, amount: int) -> str:
    """Return an amount as a person writes it: ``500m`` of cpu, ``1.5Gi`` of memory, ``8`` of anything else."""
    if resource == CPU:
        return format_milli(amount)
    if resource in (MEMORY, EPHEMERAL_STORAGE):
        return format_bytes(amount)
    return str(amount)


def hints_for(
    search: Search,
    nodes: NodeList,
    pod: PodInfo,
    rejected_by: Collection[str] = (),
    namespaces: Mapping[str, dict[str, str]] = MappingProxyType({}),
) -> list[str]:
    """Return changes that would let the pod fit right now, best first. Without any, return those that come nearest.

    ``nodes`` are all nodes, ``rejected_by`` the plugins that rejected some, ``namespaces`` the labels of namespaces by
    name.
    """
    spec = pod.spec
    found = []
    for taint in _untolerated(nodes, pod)[:_MOST_TAINTS]:
        toleration = Toleration(key=taint.key, operator="Exists", effect=taint.effect)
        fits = _feasible(search, pod, msgspec.structs.replace(spec, tolerations=(*spec.tolerations, toleration)))
        if fits:
            text = f"{taint.key}={taint.value}" if taint.value else taint.key
            found.append((fits, f"tolerate the taint {text}:{taint.effect}: {_nodes(fits)} would fit"))
    if spec.node_selector or (spec.affinity is not None and spec.affinity.node_affinity is not None):
        affinity = spec.affinity
        if affinity is not None:
            affinity = msgspec.structs.replace(affinity, node_affinity=None)
        fits = _feasible(search, pod, msgspec.structs.replace(spec, node_selector=None, affinity=affinity))
        if fits:
            found.append((fits, f"drop the node selector and node affinity: {_nodes(fits)} would fit"))
    found += between_pods(list(nodes), pod, namespaces, rejected_by, lambda changed: _feasible(search, pod, changed))
    found += _smaller(search, nodes, pod)
    return [text for _, text in sorted(found, key=lambda item: -item[0])]


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _rows(search: Search, pod: PodInfo, spec: PodSpec) -> list[int]:
    """Return the rows of nodes where the pod would fit with another spec."""
    variant = PodInfo(Pod(pod.metadata, spec, msgspec.structs.replace(pod.status, nominated_node_name="")))
    try:
        evaluation = search.evaluate(CycleState(), variant)
    except PluginFailedError:
        return []
    return [] if isinstance(evaluation, Rejection) else evaluation.feasible.tolist()


def _feasible(search: Search, pod: PodInfo, spec: PodSpec) -> int:
    return len(_rows(search, pod, spec))


def _untolerated(nodes: NodeList, pod: PodInfo) -> list[Taint]:
    """Return distinct taints that keep the pod off some node, the most frequent first."""
    counts: dict[Taint, int] = {}
    for node in nodes:
        for taint in node.taints:
            if taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not tolerated(taint, pod.spec.tolerations):
                plain = Taint(key=taint.key, value=taint.value, effect=taint.effect)
                counts[plain] = counts.get(plain, 0) + 1
    return sorted(counts, key=lambda taint: (-counts[taint], taint.key, taint.value, taint.effect))


def _smaller(search: Search, all_nodes: NodeList, pod: PodInfo) -> list[tuple[int, str]]:
    """Return hints at the lacking resources of nodes where the pod would fit but for its requests."""
    nothing = msgspec.structs.replace(
        pod.spec,
        containers=tuple(_free(item) for item in pod.spec.containers),
        init_containers=tuple(_free(item) for item in pod.spec.init_containers),
        resources=None,
        overhead={},
    )
    rows = set(_rows(search, pod, nothing))
    if not rows:
        return []
    nodes = [node for node in all_nodes if node.row in rows]
    wanted = pod.fit_requests
    asked = {CPU: wanted.milli_cpu, MEMORY: wanted.memory, EPHEMERAL_STORAGE: wanted.ephemeral_storage}
    asked.update(wanted.scalars)
    hints = []
    for name, amount in asked.items():
        if amount <= 0:
            continue
        # Of equally free nodes, one that has the resource at all is worth naming.
        most = max(
            nodes, key=lambda node: (node.allocatable.get(name) - node.requested.get(name), node.allocatable.get(name))
        )
        free = most.allocatable.get(name) - most.requested.get(name)
        if free >= amount:
            continue
        largest = max(node.allocatable.get(name) for node in nodes)
        text = f"{name}: asks for {format_amount(name, amount)}, "
        if largest == 0:
            text += f"and no node the pod may run on has any; add nodes with {name}"
        elif amount > largest:
            text += f"but the largest node it may run on has {format_amount(name, largest)}; ask for less or add larger nodes"
        elif free <= 0:
            text += "and none is free on any node it may run on"
        else:
            text += f"the most that is free on one node is {format_amount(name, free)} ({most.name})"
        hints.append((0, text))
    empty = sum(
        all(amount <= node.allocatable.get(name) for name, amount in asked.items() if amount > 0)
        and node.allocatable.allowed_pods > 0
        for node in nodes
    )
    if empty:
        hints.append((0, f"free resources: {_nodes(empty)} would fit if other pods were removed"))
    return hints


def _free(container: Container) -> Container:
    return msgspec.structs.replace(container, resources=ResourceRequirements())
