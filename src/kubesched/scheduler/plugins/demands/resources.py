"""Demands for amounts of resources."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from heapq import nsmallest
from typing import Final

import numpy as np
from msgspec.structs import replace

from kubesched.api.requests import CPU, MEMORY
from kubesched.api.types import Container, PodSpec, ResourceRequirements

from ...framework.demand import Amounts, Change, Demand
from ...framework.question import IntArray, RowArray
from ...nodes import NodeInfo, NodeTable, PodInfo
from ...nodes.node_table import PODS_ROW
from .words import MOST_APART, always, amount_text, listed

__all__ = ["amounts", "ask_less"]

#: Pods that one text lists.
_MOST_USERS: Final = 3


def amounts(pod: PodInfo, nodes: NodeTable, wanted: Mapping[str, int], delegated: Collection[str]) -> Iterator[Demand]:
    """Demands for each resource of ``wanted``, which maps resources to amounts.

    A ``delegated`` resource that a node does not list is not lacking there, because DynamicResources allocates it.
    """
    asked = [(resource, amount) for resource, amount in wanted.items() if amount > 0]
    apart = asked if len(asked) <= MOST_APART else [one for one in asked if one[0] in (CPU, MEMORY)]
    rest = [resource for resource, _ in asked if len(asked) > MOST_APART and resource not in (CPU, MEMORY)]
    if rest:
        shown = rest[:_MOST_USERS]
        drop = Change.of_spec("ask for cpu and memory only", partial(_with_plain, pod))
        yield Demand(always(f"{len(rest):,} resources besides cpu and memory: {listed(shown, len(rest))}"), drop)
    for resource, amount in apart:
        less = partial(ask_less, pod, resource)
        lacking = partial(_lacking, nodes, resource, amount, resource in delegated)
        yield Demand(partial(_text, nodes, resource, amount), less(amount), amounts=Amounts(amount, lacking, less))
    order = nodes.order()
    if (nodes.requested[PODS_ROW, order] >= nodes.allocatable[PODS_ROW, order]).any():
        yield Demand(partial(_pods_text, nodes), None)


def _pods_text(nodes: NodeTable, rows: RowArray) -> str:
    full = rows[nodes.requested[PODS_ROW, rows] >= nodes.allocatable[PODS_ROW, rows]]
    if not len(full):
        return "pods: the node has as many as it may have"
    most = int(full[nodes.allocatable[PODS_ROW, full].argmax()])
    count, limit = int(nodes.requested[PODS_ROW, most]), int(nodes.allocatable[PODS_ROW, most])
    return f"pods: each of these nodes has as many as it may have, at most {count:,} of {limit:,} ({nodes.info(most).name})"


def _lacking(nodes: NodeTable, resource: str, amount: int, is_delegated: bool, rows: RowArray) -> IntArray:
    index = nodes.column(resource)
    if index is None:
        return np.full(len(rows), 0 if is_delegated else amount, np.int64)
    capacity = nodes.allocatable[index, rows]
    lacking: IntArray = np.clip(amount - (capacity - nodes.requested[index, rows]), 0, amount)
    return np.where(capacity != 0, lacking, 0) if is_delegated else lacking


def _text(nodes: NodeTable, resource: str, amount: int, rows: RowArray) -> str:
    index = nodes.column(resource)
    asked = f"{resource}: asks for {amount_text(resource, amount)}"
    capacity = nodes.allocatable[index, rows] if index is not None else np.zeros(len(rows), np.int64)
    largest = int(capacity.max(initial=0))
    if largest <= 0 or index is None:
        return f"{asked}, and none of these nodes has any"
    free = capacity - nodes.requested[index, rows]
    place = int(free.argmax())
    nearest = nodes.info(int(rows[place]))
    users = _users(nearest, resource)
    where = f"{nearest.name}, used by {users}" if users else nearest.name
    most = f"at most {amount_text(resource, max(0, int(free[place])))} is free ({where})"
    if amount > largest:
        return f"{asked}, but the largest of these nodes has {amount_text(resource, largest)}; {most}"
    return f"{asked}; {most}"


def _users(node: NodeInfo, resource: str) -> str:
    """The pods of a node that ask for most of a resource."""
    asking = {other.pod.key: other.requests.get(resource) for other in node.pods.values()}
    using = [key for key, amount in asking.items() if amount > 0]
    largest = nsmallest(_MOST_USERS, using, key=lambda key: (-asking[key], key))
    return listed([f"{key} {amount_text(resource, asking[key])}" for key in largest], len(using))


def ask_less(pod: PodInfo, resource: str, amount: int) -> Change:
    """Make the change that asks for so much less of a resource."""
    total = pod.fit_requests.get(resource)
    if amount >= total:
        return Change.of_spec(f"ask for no {resource}", partial(_with_request, pod, resource, 0))
    text = f"ask for {amount_text(resource, amount)} less {resource}"
    return Change.of_spec(text, partial(_with_request, pod, resource, total - amount))


def _with_request(pod: PodInfo, resource: str, amount: int, spec: PodSpec) -> PodSpec:
    """The spec with this total amount of a resource: the first container requests all of it."""
    first, *others = spec.containers
    is_one = not spec.overhead and spec.resources is None
    is_one = is_one and not any(each.resources.requests for each in (*others, *spec.init_containers))
    requests = dict(first.resources.requests) if is_one else _totals(pod)
    requests[resource] = f"{amount}m" if resource == CPU else str(amount)
    return replace(
        spec,
        containers=(_asking(first, requests), *(_asking(other, {}) for other in others)),
        init_containers=tuple(_asking(container, {}) for container in spec.init_containers),
        overhead={},
        resources=None,
    )


def _with_plain(pod: PodInfo, spec: PodSpec) -> PodSpec:
    """The spec without requests but for cpu and memory."""
    kept = {name: amount for name, amount in _totals(pod).items() if name in (CPU, MEMORY)}
    first, *others = spec.containers
    return replace(
        spec,
        containers=(_asking(first, kept), *(_asking(other, {}) for other in others)),
        init_containers=tuple(_asking(container, {}) for container in spec.init_containers),
        overhead={},
        resources=None,
    )


def _totals(pod: PodInfo) -> dict[str, str | int | float]:
    wanted = pod.fit_requests
    named = {"cpu": f"{wanted.milli_cpu}m", "memory": str(wanted.memory)}
    named["ephemeral-storage"] = str(wanted.ephemeral_storage)
    return {**named, **{name: str(amount) for name, amount in wanted.scalars.items()}}


def _asking(container: Container, requests: Mapping[str, str | int | float]) -> Container:
    return replace(container, resources=ResourceRequirements(requests=dict(requests)))
