"""Result of a simulation, typed: the schema of the JSON and YAML output.

Field names are camelCase on the wire. Lists are sorted (by namespace, name, or size where said), nothing depends on the
time or machine of the run, so equal input and seed give equal bytes. Amounts of cpu are in millicores, of memory and
storage in bytes, of everything else in units; times are virtual seconds since the start.

The schema is versioned by ``apiVersion``: within ``kubesched.io/v1alpha1`` fields are only ever added. Written by
:mod:`..run.simulation`, rendered by :mod:`.report`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from kubesched.explain.report import Explanation, NotCreated, Pending, PodGroupReport, PreemptionReport

__all__ = [
    "BlockedPod",
    "Distribution",
    "DrainReport",
    "ErrorReport",
    "EventReport",
    "GroupOutcome",
    "GroupUse",
    "MissingNode",
    "NodeTimes",
    "NodeUse",
    "Placement",
    "PodTimes",
    "Refusal",
    "ResourceShare",
    "ResourceUse",
    "Result",
    "RunTimes",
    "Scaling",
    "Series",
    "Stopped",
    "Totals",
]

#: Reason why a run ended. ``settled``: nothing will move any more. ``until``: the given time was over. ``noProgress``:
#: pods are tried again and again in vain (a plugin fails, for example), or a workload's pods are replaced without end
#: in one moment.
Stopped = Literal["settled", "until", "noProgress"]


class _Struct(msgspec.Struct, frozen=True, rename="camel"):
    pass


class Totals(_Struct, frozen=True, kw_only=True):
    """Counts of pods by their state at the end."""

    nodes: int
    #: Pods that the cluster accepted: placed + pending + those on missing and on failed nodes.
    pods: int
    #: Pods with a node, finished ones included.
    placed: int
    #: Pods that are not finished, and bound to nodes that do not exist.
    on_missing_nodes: int = 0
    #: Pods that are not finished, on nodes that have failed.
    on_failed_nodes: int = 0
    succeeded: int
    failed: int
    #: Pods without a node, for whatever reason.
    pending: int
    #: Pending pods that are held back before scheduling.
    gated: int
    #: Pods that the cluster refused.
    refused: int
    #: Pods that were stored and are gone (preempted or deleted).
    removed: int
    #: Scheduling attempts.
    attempts: int


class ResourceUse(_Struct, frozen=True, kw_only=True):
    """Amounts of one resource: allocatable and requested."""

    name: str
    allocatable: int
    #: Amount at the end.
    requested: int
    #: Most that was ever requested at once; only given for the whole cluster, and not for devices.
    peak: int | None = None


class Placement(_Struct, frozen=True, kw_only=True):
    """Pod with a node. ``workload`` is the ``Kind/name`` that made it, empty for a bare pod."""

    namespace: str
    name: str
    workload: str
    node: str
    phase: str
    #: Time of its binding; None for a pod that came with a node.
    bound_at: float | None


class NodeUse(_Struct, frozen=True, kw_only=True):
    """Node with its amounts of cpu, memory, ephemeral-storage, pods, extended resources and devices, in this order.

    The devices of a class ``gpu`` are the resource ``gpu (devices)``; ``requested`` are those in use.
    """

    name: str
    zone: str
    resources: list[ResourceUse]
    #: ``Ready``, or ``NotReady`` for a failed node, which counts neither in sums nor in totals; a cordoned node has
    #: ``,SchedulingDisabled`` after it.
    status: str = "Ready"


class NodeTimes(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """State of a node from ``since`` to ``until``, in virtual seconds since the start; also of nodes that are gone.

    A node has a record for each state, one after the other. ``until`` is None for the state at the end of the run; ``gone`` if
    the node was deleted then. ``status`` is as in :class:`NodeUse`; ``taints`` are ``key=value:effect``. Of the labels, the
    hostname is left out, and very many. Devices are not in ``allocatable``.
    """

    name: str
    since: float = 0.0
    until: float | None = None
    gone: bool = False
    status: str = "Ready"
    taints: list[str] = []
    labels: dict[str, str] = {}
    allocatable: dict[str, int] = {}


class Refusal(_Struct, frozen=True, kw_only=True):
    """Pods that the cluster refused, by manifest and message. ``source`` is file, document and line."""

    workload: str
    message: str
    source: str
    count: int
    pods: list[str]


class MissingNode(_Struct, frozen=True, kw_only=True):
    """Node that does not exist, and the pods that are bound to it: they do not run and are not placed."""

    node: str
    count: int
    #: ``namespace/name``, sorted.
    pods: list[str]


class ErrorReport(_Struct, frozen=True, kw_only=True):
    """Exception inside the run, most often a plugin's: its text, its place, and its count.

    ``text`` is the first message about it.
    """

    text: str
    type: str
    file: str
    line: int
    count: int


class BlockedPod(_Struct, frozen=True, kw_only=True):
    """Pod, as ``namespace/name``, that keeps a drain from its end, and why."""

    pod: str
    why: str


class DrainReport(_Struct, frozen=True, kw_only=True):
    """Drain of one node: when it was over (None: it is not), the pods that it evicted, and those that block it."""

    node: str
    finished: float | None
    #: ``namespace/name``, in the order of eviction.
    evicted: list[str]
    blocked: list[BlockedPod] = []


class EventReport(_Struct, frozen=True, kw_only=True):
    """Event that happened: its time, its action, and the nodes or the object that it changed."""

    at: float
    action: str
    targets: list[str]
    #: Time at which it was undone, for an event that lasts some time.
    undone: float | None = None
    drains: list[DrainReport] = []
    #: Reason, for what the autoscaler did.
    why: str = ""


class GroupUse(_Struct, frozen=True, kw_only=True):
    """Node group over the run: the numbers of its nodes, their hours, and what they cost.

    A node counts, and costs, from its order to its end. ``removed`` are those that went otherwise than by interruption.
    """

    name: str
    #: Price of a node per hour.
    price: float
    minimum: int
    maximum: int
    #: Nodes at the end, those on their way included, and the most at once.
    nodes: int
    peak: int
    added: int
    removed: int
    interrupted: int
    node_hours: float
    cost: float


class Scaling(_Struct, frozen=True, kw_only=True):
    """Node groups of a run: cost and hours over :attr:`Result.virtual_seconds`, in all and by group."""

    #: Expanders that chose the groups of new nodes, in order.
    expander: list[str]
    cost: float
    node_hours: float
    groups: list[GroupUse]
    #: Time from the active queue to the binding, of pods for which nodes were ordered; None when there were none.
    wait: Distribution | None = None


class PodTimes(_Struct, frozen=True, kw_only=True):
    """Times of one pod, also of pods that are gone. Each pod that had the same name has a record of its own.

    Times are virtual seconds since the start; None for events that have not happened, or had happened before the start.
    ``phase`` is the last one.
    """

    namespace: str
    name: str
    workload: str
    #: Pod group, in the same namespace; empty for a pod on its own.
    group: str = ""
    #: Last node; empty when the pod was never bound.
    node: str
    phase: str
    created: float
    #: Time when it first entered the active queue; later than ``created`` for a gated pod.
    queued: float | None = None
    bound: float | None = None
    started: float | None = None
    finished: float | None = None
    #: Time when it was deleted for good, by preemption or by its controller.
    removed: float | None = None
    #: Scheduling attempts.
    attempts: int = 0
    #: True if it was the victim of a preemption.
    preempted: bool = False
    #: Requests: cpu in millicores, memory and storage in bytes, everything else in units.
    requests: dict[str, int] = {}
    priority: int = 0


class Distribution(_Struct, frozen=True, kw_only=True):
    """Distribution of durations in seconds: count, mean, percentiles (linear interpolation), maximum."""

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
    #: Mean over time of the requested share of the allocatable amount.
    utilisation: float
    #: Maximum of the requested share of the allocatable amount.
    peak_utilisation: float
    #: Mean over time of :attr:`Series.fragmentation`.
    fragmentation: float
    #: Part of :attr:`utilisation` by pods whose work was not lost: they succeeded, or still run. Work is lost when a pod
    #: fails, or is preempted, evicted or deleted before its end; but not of pods that serve, such as a Deployment's.
    goodput: float = 0.0


class GroupOutcome(_Struct, frozen=True, kw_only=True):
    """Pod group of a run, also one that is gone, and what became of its members.

    ``members`` exist at the end: ``placed`` of them with a node, finished ones included, and ``waiting`` without. ``policy``
    is empty and ``min_count`` 0 for a group that does not exist at the end.
    """

    namespace: str
    name: str
    policy: Literal["gang", "basic", ""]
    min_count: int
    members: int
    placed: int
    waiting: int
    #: Value of the topology label that the nodes of the members share; empty without such a label.
    placement: str = ""
    #: Number of nodes that members are on.
    nodes: int = 0
    #: Time when the first member entered the active queue, or was created if none did; None if no member was seen.
    since: float | None = None
    #: Time when as many members as a gang needs, or the first of a basic group, were bound; None if they were not.
    bound: float | None = None
    #: Time from ``since`` to ``bound``, or to the end of the run.
    wait: float | None = None
    #: Reason why members wait at the end; for some groups only, where there are many.
    why: PodGroupReport | None = None


class RunTimes(_Struct, frozen=True, kw_only=True):
    """Times of the whole run. A distribution is None when there is no such pod."""

    #: Time from the first creation of a pod during the run to the last end of one; None when no pod finished.
    makespan: float | None = None
    #: Time from the active queue to the binding, of pods bound during the run.
    wait: Distribution | None = None
    #: Time from creation to the end, of pods that finished during the run.
    turnaround: Distribution | None = None
    #: Time since the active queue, of pods that are not bound at the end.
    waiting: Distribution | None = None
    resources: list[ResourceShare] = []


class Series(_Struct, frozen=True, kw_only=True):
    """Run over time: parallel lists, one entry per moment of ``times``.

    Each entry holds until the next. Moments are thinned out evenly, to at most some thousand; the last is the end of
    the run.
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
    #: By resource, 0 to 1: the expected share of the free amount that a pod of this run cannot use, because it is on
    #: nodes where the pod does not fit by its requests. Requests are weighted by their frequency (the measure of the
    #: FGD study).
    fragmentation: dict[str, list[float]] = {}
    #: By node group: nodes that are ordered or there. Empty in a run without node groups.
    nodes: dict[str, list[int]] = {}
    #: Cost of the node groups so far; empty in a run without them.
    cost: list[float] = []


class PluginTimeReport(_Struct, frozen=True, kw_only=True):
    """Real time of one plugin at one extension point, in seconds; ``share`` is its part of all plugins' time."""

    plugin: str
    point: str
    calls: int
    total: float
    mean: float
    longest: float
    share: float
    #: Pod of the longest call, ``namespace/name``.
    pod: str


class Result(_Struct, frozen=True, kw_only=True):
    """Result of a whole simulation."""

    api_version: str = "kubesched.io/v1alpha1"
    kind: str = "SimulationResult"
    seed: int
    stopped: Stopped
    virtual_seconds: float
    totals: Totals
    #: Resources of the whole cluster.
    resources: list[ResourceUse]
    nodes: list[NodeUse]
    placements: list[Placement]
    pending: list[Pending]
    refused: list[Refusal]
    warnings: list[str]
    #: Pod groups by namespace and name.
    groups: list[GroupOutcome] = []
    #: Workloads that lack pods because of quotas, most missing pods first.
    not_created: list[NotCreated] = []
    #: Preemptions in the order in which they happened.
    preemptions: list[PreemptionReport] = []
    #: Events of the run in the order of time.
    events: list[EventReport] = []
    #: Explanation of the pods that were asked for.
    explanation: Explanation | None = None
    #: Real time by plugin and extension point, most time first; empty unless it was asked for.
    plugin_times: list[PluginTimeReport] = []
    #: Missing nodes by name.
    missing_nodes: list[MissingNode] = []
    #: Exceptions in the order in which they were first met. The run went on, but its results may be wrong.
    errors: list[ErrorReport] = []
    #: Pods by creation, namespace and name.
    pods: list[PodTimes] = []
    #: States of nodes over the run, by name and time.
    node_times: list[NodeTimes] = []
    times: RunTimes = RunTimes()
    series: Series = Series()
    #: Node groups, their hours and cost; None in a run without them.
    scaling: Scaling | None = None
