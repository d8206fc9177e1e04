"""Answers to "how many more fit?", typed: the schema of their JSON and YAML.

Field names are camelCase on the wire. Amounts of cpu are in millicores, of memory and storage in bytes, of everything
else in units. The schema is versioned by ``apiVersion``: within ``kubesched.io/v1alpha1`` fields are only ever added.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from kubesched.explain.report import Pending

__all__ = ["Amount", "Answer", "Asked", "Capacity", "NodeFit", "Preempting", "StopReason", "ZoneFit"]

#: Reason why counting ended. ``full``: the next pod has no node. ``most``: as many fit as were asked for at most; more may.
#: ``refused``: the cluster's admission refused the next pod, for example by a quota.
StopReason = Literal["full", "most", "refused"]


class _Struct(msgspec.Struct, frozen=True, rename="camel"):
    pass


class Asked(_Struct, frozen=True, kw_only=True):
    """Kind of pod that was asked about; ``share`` of them are in a copy of the mix, ``placed`` found a node."""

    name: str
    namespace: str
    share: int
    placed: int
    requests: dict[str, int] = {}


class NodeFit(_Struct, frozen=True, kw_only=True):
    """Node that got pods: their number, and by name of what was asked about."""

    node: str
    zone: str
    pods: int
    by_name: dict[str, int]


class ZoneFit(_Struct, frozen=True, kw_only=True):
    """Zone: its nodes, those among them that got pods, and the pods. ``zone`` is empty for nodes without one."""

    zone: str
    nodes: int
    used: int
    pods: int


class Amount(_Struct, frozen=True, kw_only=True):
    """Resource over all nodes: allocatable, requested before, and with the new pods."""

    name: str
    allocatable: int
    before: int
    after: int


class Preempting(_Struct, frozen=True, kw_only=True):
    """Answer where the new pods may evict pods of lower priority.

    ``evicted`` are the numbers of evicted pods by workload, or ``namespace/name`` of a bare pod; the greatest first.
    """

    copies: int
    placed: int
    victims: int
    evicted: dict[str, int]
    stopped: StopReason
    stops: list[Pending]
    refused: str = ""


class Answer(_Struct, frozen=True, kw_only=True):
    """Number of further copies of some pods that the scheduler places, one after another, until one has no node.

    Attributes:
        copies: complete copies of the mix that fit; with one pod, the number of pods.
        placed: pods that found a node, those of the last, incomplete copy included.
        pods: the kinds of pods.
        stopped: why counting ended.
        stops: why the next pods have no node, as in ``kubesched explain``.
        refused: message of the cluster's admission about the next pod.
        nodes: nodes that got pods, those with the most first.
        zones: all zones, by name.
        resources: amounts of the whole cluster.
        preempting: the answer with preemption, where it was asked for.
        how: ``cycle``: by the scheduling cycle over the standing cluster; ``run``: by a run of the whole cluster in
            virtual time, because of ``why_run``.
    """

    copies: int
    placed: int
    pods: list[Asked]
    stopped: StopReason
    stops: list[Pending] = []
    refused: str = ""
    nodes: list[NodeFit] = []
    zones: list[ZoneFit] = []
    resources: list[Amount] = []
    preempting: Preempting | None = None
    how: Literal["cycle", "run"] = "cycle"
    why_run: str = ""


class Capacity(_Struct, frozen=True, kw_only=True):
    """Document of ``kubesched capacity``: an answer for the whole mix, or one for each kind of pod alone.

    ``pending`` is the number of the cluster's own pods that have no node, which were tried before.
    """

    api_version: str = "kubesched.io/v1alpha1"
    kind: str = "Capacity"
    answers: list[Answer]
    cluster_nodes: int
    cluster_pods: int
    pending: int
    seed: int = 0
    warnings: list[str] = []
