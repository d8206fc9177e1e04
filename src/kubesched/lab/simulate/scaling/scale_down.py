"""Scale-down: nodes that little is requested of, since when, and whether their pods could go elsewhere now.

The rules are those that cluster-autoscaler documents: utilisation and time, pods that keep their node, budgets, and a place
for every pod, found by the scheduler's own cycle. Caller: :mod:`.autoscaler`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from kubesched.api.kinds import NODES, PODS
from kubesched.api.requests import CPU, MEMORY
from kubesched.api.types import Pod
from kubesched.base.change_log import Follower
from kubesched.scheduler.config import FeatureGates
from kubesched.scheduler.nodes import NodeInfo, NodeTable

from ..embedded import Embedded
from ..trials.drain_trial import DrainTrial
from ..trials.evictable import budget_of, forbidden, held_by_budget, movable, uncontrolled
from .fleet import Fleet
from .settings import AutoscalerSettings

__all__ = ["Underused", "stays"]

#: Seconds until a node that could not go is looked at again.
_AGAIN: Final = 300.0
_DISABLED: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
_SAFE: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
_SAFE_VOLUMES: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
_SYSTEM: Final = "kube-system"


class Underused:
    """Nodes below the threshold, by group, in the order in which their time is up.

    A node that could not go comes again later. What was found while nothing else moved holds until something does.
    """

    def __init__(self, fleet: Fleet, settings: AutoscalerSettings) -> None:
        self._fleet, self._settings = fleet, settings
        #: By group: the moment from which a node may go, by name, ascending; and of those that come again.
        self._due: list[dict[str, float]] = [{} for _ in fleet.groups]
        self._again: list[dict[str, tuple[float, bool]]] = [{} for _ in fleet.groups]
        self._rows: dict[int, str] = {}

    def follow(self, table: NodeTable) -> None:
        """Begin to follow a table, or another one."""
        self._table = table
        self._journal = Follower(table.journal)

    def update(self, now: float) -> None:
        """Note what has changed."""
        if not self._journal.is_behind:
            return
        entries = self._journal.read()
        table = self._table
        rows = table.order().tolist() if entries is None else {entry >> 1 for entry in entries}
        for row in rows:
            if not table.alive[row]:
                continue
            info = table.info(row)
            machine = self._fleet.alive.get(info.name)
            if machine is None or machine.coming is not None:
                continue
            due, again = self._due[machine.group], self._again[machine.group]
            if _utilisation(info) >= self._settings.scale_down_utilization_threshold:
                due.pop(info.name, None)
                again.pop(info.name, None)
            elif info.name not in due and info.name not in again:
                due[info.name] = now + self._settings.scale_down_unneeded_time

    def forget(self, name: str, group: int) -> None:
        """Drop a node that is gone, or about to go."""
        self._due[group].pop(name, None)
        self._again[group].pop(name, None)

    def later(self, name: str, group: int, now: float, *, at_rest: bool) -> None:
        """Note that a node cannot go now. ``at_rest`` is True if nothing else moves."""
        self.forget(name, group)
        self._again[group][name] = (now + _AGAIN, at_rest)

    def next(self, *, at_rest: bool) -> float:
        """Return the next moment at which a node may go; ``math.inf`` for none. ``at_rest``: nothing else moves."""
        first = math.inf
        for index in self._with_spare():
            first = min(first, next(iter(self._due[index].values()), math.inf))
            for when, rested in self._again[index].values():
                if not (at_rest and rested):
                    first = min(first, when)
                    break
        return first

    def candidates(self, now: float) -> Iterator[tuple[str, int]]:
        """Yield the nodes whose time is up, with their group."""
        for index in self._with_spare():
            due = [name for name, when in self._due[index].items() if when <= now]
            yield from ((name, index) for name in due)
            yield from ((name, index) for name in [one for one, (when, _) in self._again[index].items() if when <= now])

    def _with_spare(self) -> Iterator[int]:
        fleet = self._fleet
        return (index for index, group in enumerate(fleet.groups) if fleet.counts[index] > group.minimum)


def _utilisation(info: NodeInfo) -> float:
    """Return the larger requested part of cpu and memory; of a node with GPUs, the part of these."""
    there, asked = info.allocatable, info.requested
    gpus = [name for name, amount in there.scalars.items() if amount and name.endswith("/gpu")]
    shares = [asked.get(name) / there.get(name) for name in gpus or (CPU, MEMORY) if there.get(name)]
    return max(shares, default=0.0)


def stays(embedded: Embedded, gates: FeatureGates, settings: AutoscalerSettings, name: str) -> tuple[str, list[Pod]]:
    """Return why a node cannot go now, empty if it can, and the pods that have to move.

    Raises:
        PluginFailedError: when a plugin fails.
    """
    info = embedded.scheduler.cache.table.get(name)
    stored = embedded.store.table(NODES).objects.get(("", name))
    if info is None or stored is None:
        return "is gone", []
    if stored.typed.metadata.annotations.get(_DISABLED) == "true":
        return f"annotation {_DISABLED}=true", []
    pods = movable(one.pod for one in info.pods.values())
    for pod in pods:
        why = "is being deleted" if pod.metadata.deletion_timestamp else _keeps(embedded, settings, pod)
        if why:
            return why, pods
    if not pods:
        return "", pods
    trial = DrainTrial(embedded, gates, {name: pods})
    with trial.begun():
        fits = trial.drain(name)
        trial.undo()
    return "" if fits else trial.why, pods


def _keeps(embedded: Embedded, settings: AutoscalerSettings, pod: Pod) -> str:
    """Return why a pod keeps its node; empty if it may be evicted."""
    why = forbidden(pod)
    if not why and pod.metadata.annotations.get(_SAFE) != "true":
        why = uncontrolled(pod)
        if not why and settings.skip_nodes_with_local_storage:
            why = _local_storage(embedded, pod)
        if not why and settings.skip_nodes_with_system_pods and pod.namespace == _SYSTEM:
            why = "" if budget_of(embedded, pod) else f"pod {pod.key} is of {_SYSTEM}, and no budget is about it"
    return why or held_by_budget(embedded, pod)


def _local_storage(embedded: Embedded, pod: Pod) -> str:
    """Return the volume of a pod that would be lost; empty for none."""
    stored = embedded.store.table(PODS).objects.get((pod.namespace, pod.name))
    spec: dict[str, Any] = stored.data().get("spec") or {} if stored is not None else {}
    safe = pod.metadata.annotations.get(_SAFE_VOLUMES, "").split(",")
    for volume in spec.get("volumes") or ():
        on_disk = "emptyDir" in volume and (volume["emptyDir"] or {}).get("medium") != "Memory"
        if ("hostPath" in volume or on_disk) and volume.get("name") not in [one.strip() for one in safe]:
            return f"pod {pod.key} has local storage: volume {volume.get('name')}"
    return ""
