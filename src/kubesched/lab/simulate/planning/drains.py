"""Drains: what is on a node, what keeps it, and a run of the whole cluster in which nodes are drained one after another.

As ``kubectl drain`` does: the nodes are cordoned, each pod is evicted if its disruption budget allows it, and the next one
follows when a new pod has its place on another node. Pods of DaemonSets go with their node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kubesched.api.kinds import NODES, PODS
from kubesched.api.types import Pod
from kubesched.api.wire import MERGE_PATCH, ApiError
from kubesched.cluster.controllers import Budgets
from kubesched.cluster.files import Manifest

from ..inputs.storing import store_objects
from ..results.result import Stopped
from ..run.own_thread import outside_any_loop
from ..run.simulation import Session, simulate
from ..run.virtual_time import run_virtual
from ..trials.evictable import budget_of, ends_with_node
from .capacity import QUIET
from .plan_report import Drain, Move
from .question import as_created
from .whole_run import settled_start

__all__ = ["Drained", "drained"]

#: Virtual seconds that a pod gets to go, that its successor gets to run, and that a budget gets to recover.
_SECONDS: Final = 600.0
_PATIENCE: Final = 3


@dataclass(slots=True)
class Drained:
    """Result of a run: the drains that were done, and the node at which it ended early, if any, with the reason."""

    drains: list[Drain] = field(default_factory=list)
    failed: str = ""
    why: str = ""


def drained(arguments: Mapping[str, Any], nodes: Sequence[str], about: Mapping[str, tuple[str, float]]) -> Drained:
    """Run the whole cluster, and drain nodes in this order. ``about`` has the group and the price of each node."""
    result = Drained()

    async def drive(session: Session) -> Stopped:
        await settled_start(session, running=True)
        store = session.embedded.store
        there = {pod.uid for pod in session.embedded.pods()}
        waiting = {pod.uid for pod in session.embedded.pods() if not pod.spec.node_name}
        for name in nodes:
            store.patch(NODES, "", name, {"spec": {"unschedulable": True}}, patch_type=MERGE_PATCH)
        await session.quiet()
        moved: set[str] = set()
        for name in nodes:
            why = await _drain(session, name, about[name], result, moved)
            if why:
                result.failed, result.why = name, why
                return "settled"
        pods = session.embedded.pods()
        lost = there - {pod.uid for pod in pods} - moved
        pending = [pod.key for pod in pods if not pod.spec.node_name and pod.uid not in waiting]
        if nodes and (lost or pending):
            text = f"{pending[0]} has no node" if pending else f"{len(lost)} other pods were evicted"
            result.failed, result.why = nodes[-1], f"at the end {text}"
        return "settled"

    given = {**arguments, **QUIET, "drive": drive, "more_controllers": (Budgets,)}
    outside_any_loop(lambda: run_virtual(simulate(**given)))
    return result


async def _drain(session: Session, node: str, about: tuple[str, float], result: Drained, moved: set[str]) -> str:
    """Drain a node and delete it. Return why that is not possible; empty when it is done."""
    embedded = session.embedded
    there = sorted((pod for pod in embedded.pods() if pod.spec.node_name == node), key=lambda pod: pod.key)
    moves, ends = [], []
    for pod in there:
        moved.add(pod.uid)
        if ends_with_node(pod):
            ends.append(pod)
            continue
        budget = budget_of(embedded, pod)
        data = as_created(embedded.store.get(PODS, pod.namespace, pod.name).data())
        why = await _evict(session, pod)
        to = "" if why else await _again(session, pod, data)
        if not to:
            return why or f"{pod.key} would have no node: {_message(session, pod)}"
        moves.append(Move(pod=pod.key, to=to, budget=budget["metadata"]["name"] if budget is not None else ""))
    for pod in ends:
        embedded.store.delete(PODS, pod.namespace, pod.name, grace_period_seconds=0)
    embedded.store.delete(NODES, "", node)
    await session.quiet()
    group, price = about
    result.drains.append(Drain(node=node, group=group, price=price, moves=moves, ends=[pod.key for pod in ends]))
    return ""


async def _evict(session: Session, pod: Pod) -> str:
    """Evict a pod, and wait until it is gone. Return why that is not possible; empty when it is done."""
    store = session.embedded.store
    why = ""
    for _ in range(_PATIENCE):
        try:
            store.evict(pod.namespace, pod.name)
        except ApiError as error:
            why = f"{pod.key} cannot be evicted: {error}"
            await session.until_settled(session.now + _SECONDS)
            continue
        await session.until_settled(session.now + _SECONDS)
        if (pod.namespace, pod.name) in store.table(PODS).objects:
            return f"{pod.key} is evicted, but does not go within {_SECONDS:g} s"
        return ""
    return why


async def _again(session: Session, pod: Pod, data: dict[str, Any]) -> str:
    """Create an evicted pod again, as its controller would. Return its node; empty if it has none."""
    store = session.embedded.store
    data["metadata"] |= {"name": pod.name, "namespace": pod.namespace}
    if store_objects(store, [Manifest(PODS, data, "the drain")]):
        return ""
    await session.until_settled(session.now + _SECONDS)
    stored = store.table(PODS).objects.get((pod.namespace, pod.name))
    return stored.typed.spec.node_name if stored is not None else ""


def _message(session: Session, pod: Pod) -> str:
    found = session.explain([pod.key]).pending
    return found[0].message if found else "the cluster refuses it"
