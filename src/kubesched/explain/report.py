"""Explanations, typed: the schema of their JSON and YAML.

Field names are camelCase on the wire. Lists are sorted (by namespace, name, or size where said). Amounts of cpu are in
millicores, of memory and storage in bytes, of everything else in units.

The schema is versioned by ``apiVersion``: within ``kubesched.io/v1alpha1`` fields are only ever added.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

__all__ = [
    "EvictionReport",
    "LostCandidate",
    "ObstacleReport",
    "Pending",
    "PendingReason",
    "PreemptionReport",
    "Reason",
    "RemedyReport",
]

#: Reason why pods have no node. ``Unschedulable``: no node fits. ``SchedulingGated``: held back by a PreEnqueue plugin,
#: most often by scheduling gates. ``UnknownScheduler``: schedulerName is no profile's. ``NoNodes``: the cluster is
#: empty. ``SchedulerError``: a plugin failed. ``Deleting``: being deleted. ``Waiting``: nodes fit, but the pod was
#: rejected later (Reserve, Permit, binding) or the simulation ended before its turn.
PendingReason = Literal[
    "Unschedulable", "SchedulingGated", "UnknownScheduler", "NoNodes", "SchedulerError", "Deleting", "Waiting"
]


class _Struct(msgspec.Struct, frozen=True, rename="camel"):
    pass


class LostCandidate(_Struct, frozen=True, kw_only=True):
    """Node whose victims were spared, and the criterion that decided against it."""

    node: str
    #: ``namespace/name``, the most important first.
    victims: list[str]
    budget_violations: int
    why: str


class PreemptionReport(_Struct, frozen=True, kw_only=True):
    """Preemption: victims, node and preemptor, and why other nodes were not chosen."""

    #: ``namespace/name`` of the preemptor.
    pod: str
    priority: int
    node: str
    #: ``namespace/name``, the most important first.
    victims: list[str]
    budget_violations: int
    at: float
    #: Number of candidate nodes, the chosen one included; the first of the others are listed.
    candidates: int
    lost: list[LostCandidate]
    #: Number of nodes by the reason why evicting pods there would not have helped.
    not_helpful: dict[str, int]


class Reason(_Struct, frozen=True, kw_only=True):
    """Reason against some nodes. ``examples`` are the first few of the ``nodes`` nodes, by name.

    ``preemptable``: removing pods from these nodes could help (code Unschedulable, not …AndUnresolvable).
    """

    text: str
    plugin: str
    nodes: int
    examples: list[str]
    preemptable: bool


class ObstacleReport(_Struct, frozen=True, kw_only=True):
    """One thing that keeps pods off nodes, with its numbers; a node may have several. ``examples`` are names of nodes.

    ``data`` has the numbers for programs, as the plugin gives them.
    """

    plugin: str
    text: str
    nodes: int
    examples: list[str]
    data: dict[str, Any] = {}


class RemedyReport(_Struct, frozen=True, kw_only=True):
    """Changes of a pod that help when all of them are made; ``nodes`` fit then, of which ``examples`` are some."""

    changes: list[str]
    nodes: int
    examples: list[str]


class EvictionReport(_Struct, frozen=True, kw_only=True):
    """Pods of one node without which a pod fits there; ``of`` is the number of pods on the node."""

    node: str
    pods: list[str]
    of: int


class Pending(_Struct, frozen=True, kw_only=True):
    """Pods without a node for the same reasons; the largest group first.

    ``message`` is the text of the pod's PodScheduled condition. ``reasons`` has the first reason against each node,
    ``obstacles`` every one. ``remedies`` and ``evictions`` were tried against the cluster as it stands at the end;
    ``hints`` has them in words.
    """

    reason: PendingReason
    workload: str
    message: str
    count: int
    #: ``namespace/name``, sorted.
    pods: list[str]
    reasons: list[Reason] = []
    gates: list[str] = []
    scheduler_name: str = ""
    hints: list[str] = []
    obstacles: list[ObstacleReport] = []
    remedies: list[RemedyReport] = []
    evictions: EvictionReport | None = None
    #: State of objects that the pods need besides a node, such as their claims.
    waits_for: list[str] = []
