"""Plans for nodes, typed: the schema of their JSON and YAML.

Field names are camelCase on the wire. Prices are per hour, in the currency of the node groups; durations in seconds.
Amounts of cpu are in millicores, of memory and storage in bytes. The schema is versioned by ``apiVersion``: within
``kubesched.io/v1alpha1`` fields are only ever added.
"""

from __future__ import annotations

import msgspec

from kubesched.explain.report import Pending

__all__ = ["Bought", "Drain", "KeptNode", "Move", "NewNode", "Plan", "Removal"]


class _Struct(msgspec.Struct, frozen=True, rename="camel"):
    pass


class Bought(_Struct, frozen=True, kw_only=True):
    """Nodes to add of a group. ``price`` is that of one node, ``cost`` of all; ``interruptions`` are expected per hour."""

    group: str
    count: int
    price: float
    cost: float
    existing: int
    maximum: int
    zones: dict[str, int] = {}
    ready_after: float = 0.0
    interruptions: float = 0.0


class NewNode(_Struct, frozen=True, kw_only=True):
    """Node of the plan, with the pods on it after the run: those that had no node, and those of DaemonSets."""

    node: str
    group: str
    zone: str
    pods: list[str]
    allocatable: dict[str, int]
    requested: dict[str, int]


class Move(_Struct, frozen=True, kw_only=True):
    """Pod that is evicted, and the node of the pod that takes its place."""

    pod: str
    to: str
    budget: str = ""


class Drain(_Struct, frozen=True, kw_only=True):
    """Node that goes: its pods are evicted in this order, one after another, each after the last has its new node."""

    node: str
    group: str
    price: float
    moves: list[Move]
    #: Pods of DaemonSets and of the node itself, which go with it.
    ends: list[str] = []


class KeptNode(_Struct, frozen=True, kw_only=True):
    """Node that stays, and why."""

    node: str
    why: str


class Removal(_Struct, frozen=True, kw_only=True):
    """Nodes that can go, in the order of their drains.

    ``exact``: no set of nodes that saves more can go. ``bound`` is a saving that no set of nodes exceeds.
    """

    drains: list[Drain]
    saving: float
    bound: float
    exact: bool
    kept: list[KeptNode]


class Plan(_Struct, frozen=True, kw_only=True):
    """Document of ``kubesched plan``.

    Attributes:
        add: nodes to add, by group.
        cost: price per hour of the nodes to add.
        bound: price per hour that no choice of nodes is below.
        exact: no cheaper choice, and none of the same price with fewer nodes, places these pods.
        wanted, placed: pods that had no node, and those that have one in the run with the new nodes.
        unplaced: pods that no choice of nodes gives a node, and why.
        left_out: pods that wait for something else than nodes: scheduling gates, or another scheduler.
        ready_after: seconds until the last node is ready.
        nodes: the new nodes.
        steps: numbers of nodes by group, where they have to come one after another, each when the pods have settled on
            those before: at once, pods would spread over nodes that others need whole. Empty if they may come at once.
        removal: nodes that can go, where that was asked for.
        tried, runs: number of choices that were tried by the scheduling cycle, and by runs of the whole cluster.
        verified: a run of the whole cluster has placed all wanted pods but the unplaced ones, and evicted none.
    """

    api_version: str = "kubesched.io/v1alpha1"
    kind: str = "Plan"
    add: list[Bought] = []
    cost: float = 0.0
    bound: float = 0.0
    exact: bool = False
    wanted: int = 0
    placed: int = 0
    unplaced: list[Pending] = []
    left_out: int = 0
    ready_after: float = 0.0
    nodes: list[NewNode] = []
    steps: list[dict[str, int]] = []
    removal: Removal | None = None
    tried: int = 0
    runs: int = 0
    verified: bool = False
    cluster_nodes: int = 0
    cluster_pods: int = 0
    seed: int = 0
    warnings: list[str] = []
