"""Search for a pod that extenders take part in, in two halves: before they are awaited, and after.

Nothing is kept between attempts, because an extender's answer takes longer than a scan. :mod:`.lane` uses this module.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from ..core.diagnosis import Diagnosis, NodeStatuses, Rejection
from ..core.search import Decision, Search, prepared
from ..framework.cycle_state import CycleState
from ..framework.group_trial import GroupTrial
from ..framework.status import Status
from ..nodes.nodeinfo import NodeInfo
from ..nodes.podinfo import PodInfo
from .interface import EXTENDER_NAME

__all__ = ["Candidates", "candidates", "choose"]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Nodes that fit a pod by the plugins, before extenders are awaited.

    ``statuses`` holds the other nodes' rejections, by name. ``restricting`` are the plugins that left nodes out at
    PreFilter. ``by_nomination`` is set when only the pod's nominated node was tried.
    """

    nodes: tuple[NodeInfo, ...]
    statuses: NodeStatuses
    restricting: tuple[str, ...]
    by_nomination: bool


def candidates(
    search: Search,
    pod: PodInfo,
    trial: GroupTrial | None = None,
    *,
    record_plugin_metrics: bool,
    try_nominated: bool,
) -> Candidates | Rejection:
    """First half: find the nodes to give to extenders. The nodes are sampled, since extenders are expensive.

    ``trial``: the trial of the pod's group; its rows are the only candidates.

    Raises:
        PluginFailedError: when a plugin fails.
    """
    state, table = prepared(CycleState(), record_plugin_metrics, trial=trial), search.table
    if not len(table):
        return Rejection.without_nodes(state)
    request = search.request(pod, state, sampled=True, try_nominated=try_nominated)
    found = search.timed(pod, record_plugin_metrics, lambda: search.scan.filter(request))
    if isinstance(found, Rejection):
        return found
    found.statuses.freeze()
    nodes = tuple([table.info(row) for row in found.feasible.tolist()])
    return Candidates(nodes, found.statuses, tuple(request.outcome.restricting), found.by_nomination)


def choose(
    search: Search,
    pod: PodInfo,
    given: Candidates,
    kept: Collection[str],
    rejections: Mapping[str, Status],
    contributions: Mapping[str, int],
    trial: GroupTrial | None = None,
    *,
    record_plugin_metrics: bool,
) -> Decision | Rejection:
    """Second half: choose among the nodes that extenders ``kept``, as the cluster is now.

    These nodes are filtered again and scored, so the decision is valid although the cluster may have changed since the
    first half. ``rejections`` are the extenders' reasons by node name; ``contributions`` are added to the totals, by
    node name.

    Raises:
        PluginFailedError: when a plugin fails.
    """
    state, table = prepared(CycleState(), record_plugin_metrics, trial=trial), search.table
    if not len(table):
        return Rejection.without_nodes(state)
    request = search.request(pod, state, only=kept, try_nominated=False)
    found = search.timed(pod, record_plugin_metrics, lambda: search.scan.evaluate(request))
    if not isinstance(found, Rejection):
        if found.totals is not None and contributions:
            names = [table.info(row).name for row in found.feasible.tolist()]
            found.totals[:] += np.array([contributions.get(name, 0) for name in names], np.int64)
        return search.choose(found, state)
    if request.outcome.status is not None:
        return found
    statuses = given.statuses
    for name, status in rejections.items():
        statuses.set(name, status)
    for status, rejected in found.diagnosis.statuses.groups():
        for name in rejected:
            statuses.set(name, status)
    shrank = (EXTENDER_NAME,) if len(kept) < len(given.nodes) and not given.by_nomination else ()
    restricting = (*given.restricting, *request.outcome.restricting, *shrank)
    return Rejection(found.all_nodes, Diagnosis.of(statuses, statuses.distinct(), restricting), state)
