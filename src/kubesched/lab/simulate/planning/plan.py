"""Nodes to buy: the cheapest that were found for the pods without a node, verified by a run of the whole cluster.

    cluster + demand ──settle──▶ pods without a node ──:mod:`.buying`──▶ choice of nodes ──run──▶ Plan

Callers: ``kubesched plan``, ``kubesched.plan`` and ``Simulation.plan``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from kubesched.api.kinds import NODES
from kubesched.base.collector import collector_off
from kubesched.cluster.files import ManifestError, Manifests
from kubesched.explain.report import Pending
from kubesched.scheduler.config import DEFAULT_GATES

from ...node_groups import NodeGroup, members, with_models
from ..embedded import Embedded
from ..inputs.storing import store_objects
from ..results.outcome import node_uses
from ..results.pod_times import amounts
from ..results.result import NodeUse, Stopped
from ..run.own_thread import outside_any_loop
from ..run.simulation import Session, simulate
from ..run.virtual_time import run_virtual
from ..trials.new_nodes import daemon_pods, pending_pods
from ..trials.trial import NeedsRunError
from .buying import EFFORT, Purchase, Steps, Waiting, buy
from .capacity import QUIET, sizes_of
from .choices import Rules, shared_limits
from .plan_report import Bought, NewNode, Plan
from .site import Site
from .timeless import timeless
from .whole_run import settled_start, unqueued

__all__ = ["demanded", "plan_of"]

#: Virtual seconds that pods get to find their nodes in a run.
_SECONDS: Final = 7_200.0
#: Nodes of a group beyond one for each pod, which a spread over domains may need.
_SPARE: Final = 8


class Outcome(msgspec.Struct):
    """Outcome of a run with some new nodes: pods without a node, evicted pods, and the new nodes."""

    waiting: list[str] = []
    evicted: int = 0
    explained: list[Pending] = []
    nodes: list[NewNode] = []


def demanded(arguments: Mapping[str, Any], demand: Manifests) -> dict[str, Any]:
    """Return the arguments with the demand added to the cluster's objects, and without times.

    Raises:
        ManifestError: for an object that the cluster has already.
    """
    cluster: Manifests = arguments["manifests"]
    known = {(item.kind, item.namespace, item.name) for item in cluster.objects}
    twice = [
        f"{item.source}: {item.kind.kind} {item.name}: is in the cluster already; give it another name"
        for item in demand.objects
        if item.name and (item.kind, item.namespace, item.name) in known
    ]
    if twice:
        raise ManifestError(*twice)
    both = Manifests(
        [*cluster.objects, *demand.objects],
        [*cluster.warnings, *demand.warnings],
        [*cluster.problems, *demand.problems],
    )
    return {**arguments, "manifests": timeless(both)}


def plan_of(
    arguments: Mapping[str, Any],
    groups: Sequence[NodeGroup],
    effort: int = EFFORT,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Plan:
    """Return the plan for the pods of a cluster that have no node. ``arguments`` are those of a simulation.

    ``effort`` is the number of placements after which the search ends with the best that it has.
    Must not be called inside a running event loop.

    Raises:
        ManifestError: for groups without a model, and as :func:`..run.simulation.simulate`.
        ConfigError, TaskCrashedError: see :func:`..run.simulation.simulate`.
        PluginFailedError: when a plugin fails.
    """
    found: list[Plan] = []

    async def drive(session: Session) -> Stopped:
        await settled_start(session)
        found.append(_plan(session.embedded, arguments, groups, effort, on_progress))
        return "settled"

    with collector_off():
        result = run_virtual(simulate(**{**arguments, **QUIET, "drive": drive}))
    return msgspec.structs.replace(found[0], warnings=list(result.warnings), seed=int(arguments.get("seed", 0)))


def _plan(
    embedded: Embedded,
    arguments: Mapping[str, Any],
    groups: Sequence[NodeGroup],
    effort: int,
    on_progress: Callable[[int], None],
) -> Plan:
    nodes = [item.data() for item in embedded.store.table(NODES).items()]
    groups = with_models(groups, nodes)
    existing = members(groups, nodes)
    pods, others = pending_pods(embedded)
    gates = arguments.get("gates", DEFAULT_GATES)
    try:
        site = Site(embedded, gates, groups, pods)
        purchase, outcome = _bought(site, arguments, existing, effort, on_progress)
    except NeedsRunError:
        site = Site(embedded, gates, groups, pods, by_run=True)
        purchase, outcome = _bought(site, arguments, existing, effort, on_progress)
    count, there, _ = sizes_of(embedded)
    bought = [
        _row(group, number, len(existing[group.name]), outcome)
        for group, number in zip(groups, purchase.choice, strict=True)
        if number
    ]
    return Plan(
        add=bought,
        cost=round(sum(one.cost for one in bought), 9),
        bound=purchase.bound,
        exact=purchase.exact,
        wanted=len(pods),
        placed=len(pods) - len(outcome.waiting),
        unplaced=outcome.explained,
        left_out=len(others),
        ready_after=max((one.ready_after for one in bought), default=0.0),
        nodes=outcome.nodes,
        steps=[
            {group.name: number for group, number in zip(groups, step, strict=True) if number}
            for step in (purchase.steps if len(purchase.steps) > 1 else ())
        ],
        tried=purchase.tried,
        runs=purchase.runs,
        verified=purchase.verified,
        cluster_nodes=count,
        cluster_pods=there,
    )


def _bought(
    site: Site,
    arguments: Mapping[str, Any],
    existing: Mapping[str, Sequence[str]],
    effort: int,
    on_progress: Callable[[int], None],
) -> tuple[Purchase, Outcome]:
    """Search for a choice, and return it with the run that verified it.

    Raises:
        NeedsRunError: see :class:`.site.Site`.
    """
    outcomes: dict[Steps, Outcome] = {}
    wanted = {f"{site.demands[index].pod.namespace}/{name}": (index, name) for index, name in site.order}

    def verify(steps: Steps, without: set[Waiting]) -> list[Waiting]:
        if steps not in outcomes:
            outcomes[steps] = _outcome(arguments, site.groups, steps)
            on_progress(len(outcomes))
        outcome = outcomes[steps]
        waiting = [wanted[key] for key in outcome.waiting if key in wanted]
        return [one for one in waiting if one not in without] + [(-1, "")] * outcome.evicted

    with site.trial.begun():
        purchase = buy(site, _rules(site, existing), verify, effort)
    verify(purchase.steps, set())
    return purchase, outcomes[purchase.steps]


def _rules(site: Site, existing: Mapping[str, Sequence[str]]) -> Rules:
    """Return the bounds of a choice. A group gets few more nodes than there are pods, apart from its minimum."""
    groups = site.groups
    have = [len(existing[group.name]) for group in groups]
    least = tuple(max(0, group.minimum - count) for group, count in zip(groups, have, strict=True))
    most = tuple(
        max(low, min(group.maximum - count, len(site.order) + _SPARE))
        for group, count, low in zip(groups, have, least, strict=True)
    )
    if not any(group.limits for group in groups):
        return Rules(least, most)
    each = [amounts(site.capacity(index)) for index in range(len(groups))]
    used: dict[str, dict[str, int]] = {}
    table = site.embedded.scheduler.cache.table
    for group in groups:
        for name in existing[group.name]:
            node = table.get(name)
            for resource, amount in amounts(node.allocatable).items() if node is not None else ():
                pool = used.setdefault(group.pool, {})
                pool[resource] = pool.get(resource, 0) + amount
    shared = shared_limits([group.pool for group in groups], [group.limits for group in groups], each, used)
    return Rules(least, most, shared)


def _outcome(arguments: Mapping[str, Any], groups: Sequence[NodeGroup], steps: Steps) -> Outcome:
    """Run the whole cluster: its pods settle, the nodes are added in steps, and the pods without a node get theirs."""
    outcome = Outcome()

    async def drive(session: Session) -> Stopped:
        await settled_start(session)
        embedded = session.embedded
        before = {pod.uid for pod in embedded.pods() if pod.spec.node_name}
        wanted = {pod.uid for pod in pending_pods(embedded)[0]}
        taken = {node.name for node in embedded.nodes()}
        new: dict[str, str] = {}
        for choice in steps:
            for group, count in zip(groups, choice, strict=True):
                nodes = group.nodes(count, taken={*taken, *new})
                store_objects(embedded.store, nodes)
                new |= {node.name: group.name for node in nodes}
            for node in embedded.nodes():
                if node.name in new and node.name not in taken:
                    store_objects(embedded.store, daemon_pods(embedded, node))
            taken |= new.keys()
            await session.until_settled(session.now + _SECONDS)
        pods = embedded.pods()
        waiting = sorted(pod.key for pod in pods if pod.uid in wanted and not pod.spec.node_name)
        outcome.waiting = waiting
        outcome.evicted = len((before | wanted) - {pod.uid for pod in pods})
        outcome.explained = unqueued(session.explain(waiting).pending) if waiting else []
        there: dict[str, list[str]] = {}
        for pod in pods:
            there.setdefault(pod.spec.node_name, []).append(pod.key)
        outcome.nodes = [
            _new_node(use, new[use.name], there.get(use.name, [])) for use in node_uses(embedded) if use.name in new
        ]
        return "settled"

    # The cluster that was asked about stands still in this thread's event loop.
    outside_any_loop(lambda: run_virtual(simulate(**{**arguments, **QUIET, "drive": drive})))
    return outcome


def _new_node(use: NodeUse, group: str, pods: list[str]) -> NewNode:
    return NewNode(
        node=use.name,
        group=group,
        zone=use.zone,
        pods=sorted(pods),
        allocatable={one.name: one.allocatable for one in use.resources},
        requested={one.name: one.requested for one in use.resources},
    )


def _row(group: NodeGroup, count: int, existing: int, outcome: Outcome) -> Bought:
    zones: dict[str, int] = {}
    for node in outcome.nodes:
        if node.group == group.name and node.zone:
            zones[node.zone] = zones.get(node.zone, 0) + 1
    return Bought(
        group=group.name,
        count=count,
        price=group.price,
        cost=round(group.price * count, 9),
        existing=existing,
        maximum=group.maximum,
        zones=dict(sorted(zones.items())),
        ready_after=group.ready_after,
        interruptions=group.spot_failure_rate * count,
    )
