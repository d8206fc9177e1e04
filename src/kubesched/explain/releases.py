"""Evictions that free what pods hold besides room, such as the devices of their claims.

Preemption frees no devices, so its dry run does not find these. Here the cluster is shown without the pods and without
what they hold, and the pod is evaluated from PreFilter on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from kubesched.scheduler.core.search import Search
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.framework.runtime import Framework
from kubesched.scheduler.nodes import NodeInfo

from .eviction_trial import EvictionTrial, PlacedPod
from .evictions import Evictions, candidates, potential_victims
from .obstacles import Obstacles

__all__ = ["releases_for"]

#: Most nodes that are tried, and nodes that are looked at for pods to evict.
_MOST_NODES: Final = 16
_MOST_LOOKED_AT: Final = 4096


def releases_for(framework: Framework, search: Search, obstacles: Obstacles) -> Evictions | None:
    """The fewest evictions found that free what a plugin lacks; None when none of the nodes that were tried would do."""
    names = [one.name for one in framework.plugins.values() if hasattr(one, "without_pods")]
    if not any(one.plugin in names for one in obstacles.found):
        return None
    trial = EvictionTrial(framework, search, obstacles.pod)
    best: Evictions | None = None
    nodes = islice(candidates(framework, search, obstacles, names), _MOST_LOOKED_AT)
    held = (node for node in nodes if any(_held(obstacles, names, node)))
    try:
        for node in islice(held, _MOST_NODES):
            victims = _victims(trial, node, obstacles, names)
            if victims and (best is None or len(victims) < len(best.pods)):
                ordered = sorted((one.pod.key, at.name) for at, one in victims)
                keys, places = zip(*ordered, strict=True)
                best = Evictions(node.name, keys, len(node.pods), places, trial.frees(victims))
            if len(best.pods if best is not None else ()) == 1 or trial.left <= 0:
                break
    except PluginFailedError as error:
        obstacles.note(error, "not all evictions were tried")
    return best


def _held(obstacles: Obstacles, names: Sequence[str], node: NodeInfo) -> Iterator[PlacedPod]:
    """The pods that the demands of these plugins name at a node."""
    for one in obstacles.found:
        if one.plugin in names and one.demand is not None:
            yield from one.demand.holders(node.row)


def _victims(trial: EvictionTrial, node: NodeInfo, obstacles: Obstacles, names: Sequence[str]) -> list[PlacedPod]:
    """The pods that have to go, none of them needless: the named holders if that is enough, or else of all pods there."""
    holders = {one.uid: (at, one) for at, one in _held(obstacles, names, node)}
    every = {one.uid: (at, one) for at, one in potential_victims(obstacles, node)}
    for some in (holders, every) if holders.keys() != every.keys() else (holders,):
        found = trial.least(node, list(some.values()))
        if found:
            return found
    return []
