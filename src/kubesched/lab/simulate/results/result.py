"""What a simulation found: the typed result, which is also the schema of the JSON and YAML output.

Field names are camelCase on the wire. Lists are sorted (by namespace, name, or size where said), nothing depends
on the time or machine of the run, so equal input and seed give equal bytes. Amounts of cpu are in millicores,
of memory and storage in bytes, of everything else in units; times are virtual seconds since the start.

The schema is versioned by ``apiVersion``: within ``kubesched.io/v1alpha1`` fields are only ever added.
Written by :mod:`..run.simulation`, rendered by :mod:`.report`.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

__all__ = [
    "Distribution",
    "ErrorReport",
    "ExplanationReport",
    "MissingNode",
    "NodeUse",
    "Pending",
    "PendingReason",
    "Placement",
    "PodTimes",
    "Reason",
    "Refusal",
    "ResourceShare",
    "ResourceUse",
    "Result",
    "RunTimes",
    "Series",
    "Stopped",
    "Totals",
]

#: ``settled``: nothing will move any more. ``until``: the time given was over. ``noProgress``: pods are being tried
#: again and again without progress (a plugin that fails, for example), or a workload's pods are replaced without end in one moment.
Stopped = Literal["settled", "until", "noProgress"]

#: Why pods have no node. ``Unschedulable``: no node fits. ``SchedulingGated``: held back by a PreEnqueue plugin, most
#: often by scheduling gates. ``UnknownScheduler``: schedulerName is no profile's. ``NoNodes``: the cluster is empty.
#: ``SchedulerError``: a plugin failed. ``Deleting``: being deleted. ``Waiting``: nodes fit, but the pod was rejected
#: later (Reserve, Permit, binding) or the simulation ended before its turn.
PendingReason = Literal[
    "Unschedulable", "SchedulingGated", "UnknownScheduler", "NoNodes", "SchedulerError", "Deleting", "Waiting"
]


class _Struct(msgspec.Struct, frozen=True, rename="camel"):
    pass


class Totals(_Struct, frozen=True, kw_only=True):
    """Pods by what became of them, at the end."""

    nodes: int
    #: Pods the cluster took: placed + pending + those on missing nodes.
    pods: int
    #: With a node, finished ones included.
    placed: int
    #: Not finished, and bound to nodes that do not exist.
    on_missing_nodes: int = 0
    succeeded: int
    failed: int
    #: Without a node, for whatever reason.
    pending: int
    #: Of these: held back before scheduling.
    gated: int
    #: Pods the cluster did not take.
    refused: int
    #: Pods that were there and are gone (preempted or deleted).
    removed: int
    #: Scheduling attempts made.
    attempts: int


class ResourceUse(_Struct, frozen=True, kw_only=True):
    """One resource: what there is and what pods ask for."""

    name: str
    allocatable: int
    #: At the end.
    requested: int
    #: The most that was ever requested at once; only given for the whole cluster.
    peak: int | None = None


class Placement(_Struct, frozen=True, kw_only=True):
    """A pod with a node. ``workload`` is ``Kind/name`` of what made it, empty for a bare pod."""

    namespace: str
    name: str
    workload: str
    node: str
    phase: str
    #: When it was bound; None for a pod that came with a node.
    bound_at: float | None


class LostCandidate(_Struct, frozen=True, kw_only=True):
    """A node whose victims were spared, and the criterion that decided against it."""

    node: str
    #: ``namespace/name``, the most important first.
    victims: list[str]
    budget_violations: int
    why: str


class PreemptionReport(_Struct, frozen=True, kw_only=True):
    """One preemption: who was evicted where and for whom, and why it was not another node."""

    #: ``namespace/name`` of the preemptor.
    pod: str
    priority: int
    node: str
    #: ``namespace/name``, the most important first.
    victims: list[str]
    budget_violations: int
    at: float
    #: How many nodes were candidates, the chosen one included; the first of the others are listed.
    candidates: int
    lost: list[LostCandidate]
    #: Why evicting pods would not have helped, with the number of nodes.
    not_helpful: dict[str, int]


class NodeUse(_Struct, frozen=True, kw_only=True):
    """A node: cpu, memory, ephemeral-storage, pods and extended resources, in this order."""

    name: str
    zone: str
    resources: list[ResourceUse]


class Reason(_Struct, frozen=True, kw_only=True):
    """One reason against some nodes. ``examples`` are the first few of the ``nodes`` nodes, by name.

    ``preemptable``: removing pods from these nodes could help (code Unschedulable, not …AndUnresolvable).
    """

    text: str
    plugin: str
    nodes: int
    examples: list[str]
    preemptable: bool


class ExplanationReport(_Struct, frozen=True, kw_only=True):
    """What a plugin says of the nodes that it rejected. ``data`` is the plugin's own."""

    plugin: str
    text: str
    data: dict[str, Any]


class Pending(_Struct, frozen=True, kw_only=True):
    """Pods without a node for the same reasons; the largest group first.

    ``message`` is the text of the pod's PodScheduled condition. ``hints`` are changes that would help; each was tried
    against the cluster as it stands at the end.
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
    explanations: list[ExplanationReport] = []
    #: The state of what the pods need besides a node, such as their claims.
    waits_for: list[str] = []


class Refusal(_Struct, frozen=True, kw_only=True):
    """Pods that the cluster refused, by manifest and message. ``source`` is file, document and line."""

    workload: str
    message: str
    source: str
    count: int
    pods: list[str]


class MissingNode(_Struct, frozen=True, kw_only=True):
    """A node that does not exist, and the pods that are bound to it: they do not run and are not placed."""

    node: str
    count: int
    #: ``namespace/name``, sorted.
    pods: list[str]


class ErrorReport(_Struct, frozen=True, kw_only=True):
    """An exception inside the run, most often a plugin's: what it was, where it was raised, and how often.

    ``text`` is what was first said about it.
    """

    text: str
    type: str
    file: str
    line: int
    count: int


class PodTimes(_Struct, frozen=True, kw_only=True):
    """One pod's life, gone ones included. Each pod that had the same name has a record of its own.

    Times are virtual seconds since the start; None for what has not happened, or had happened before the start.
    ``phase`` is the last one.
    """

    namespace: str
    name: str
    workload: str
    #: The last one; empty when it was never bound.
    node: str
    phase: str
    created: float
    #: First entered the active queue; later than ``created`` for a gated pod.
    queued: float | None = None
    bound: float | None = None
    started: float | None = None
    finished: float | None = None
    #: Deleted for good, by preemption or by its controller.
    removed: float | None = None
    #: Scheduling attempts.
    attempts: int = 0
    #: Whether it was the victim of a preemption.
    preempted: bool = False
    #: What it asks for: cpu in millicores, memory and storage in bytes, everything else in units.
    requests: dict[str, int] = {}


class Distribution(_Struct, frozen=True, kw_only=True):
    """Seconds of some pods: how many there are, mean, percentiles (linear interpolation), maximum."""

    count: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


class ResourceShare(_Struct, frozen=True, kw_only=True):
    """Shares of one resource of the whole cluster, 0 to 1, over the time of the run."""

    name: str
    #: Mean over time of requested by allocatable.
    utilisation: float
    #: The highest at any moment.
    peak_utilisation: float
    #: Mean over time of :attr:`Series.fragmentation`.
    fragmentation: float


class RunTimes(_Struct, frozen=True, kw_only=True):
    """Times of the whole run. A distribution is None when there is no such pod."""

    #: From the first creation of a pod during the run to the last end of one; None when no pod finished.
    makespan: float | None = None
    #: From the active queue to the binding, of pods bound during the run.
    wait: Distribution | None = None
    #: From creation to the end, of pods that finished during the run.
    turnaround: Distribution | None = None
    #: How long pods that are not bound at the end have waited since they entered the active queue.
    waiting: Distribution | None = None
    resources: list[ResourceShare] = []


class Series(_Struct, frozen=True, kw_only=True):
    """The run over time: parallel lists, one entry per moment of ``times``.

    Each entry holds until the next. Moments are thinned out evenly, so that there are at most some thousand; the last is
    the end of the run.
    """

    #: Virtual seconds since the start, ascending.
    times: list[float] = []
    #: Pods in the scheduling queue by place.
    active: list[int] = []
    backoff: list[int] = []
    unschedulable: list[int] = []
    gated: list[int] = []
    #: Pods on nodes, as the scheduler accounts them: bound or assumed, not finished.
    on_nodes: list[int] = []
    #: By resource: allocatable and requested amounts of the whole cluster.
    allocatable: dict[str, list[int]] = {}
    requested: dict[str, list[int]] = {}
    #: By resource, 0 to 1: the expected share of what is free that a pod of this run cannot use, as it is on nodes where the
    #: pod does not fit by its requests. Pods count by how frequent their requests are (the measure of the FGD study).
    fragmentation: dict[str, list[float]] = {}


class Result(_Struct, frozen=True, kw_only=True):
    """A whole simulation."""

    api_version: str = "kubesched.io/v1alpha1"
    kind: str = "SimulationResult"
    seed: int
    stopped: Stopped
    virtual_seconds: float
    totals: Totals
    #: The whole cluster.
    resources: list[ResourceUse]
    nodes: list[NodeUse]
    placements: list[Placement]
    pending: list[Pending]
    refused: list[Refusal]
    warnings: list[str]
    #: In the order in which they happened.
    preemptions: list[PreemptionReport] = []
    #: By name.
    missing_nodes: list[MissingNode] = []
    #: In the order in which they were first met; the run went on, but what it found may be wrong.
    errors: list[ErrorReport] = []
    #: By creation, namespace and name.
    pods: list[PodTimes] = []
    times: RunTimes = RunTimes()
    series: Series = Series()
