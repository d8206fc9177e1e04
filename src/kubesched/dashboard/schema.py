"""Documents of the dashboard's API, typed: the schema of their JSON.

Field names are camelCase on the wire. Times are seconds: since the epoch for a live cluster, since the start for a recording of
virtual time. Amounts of cpu are in millicores, of memory and storage in bytes, of everything else in units. Nodes are
rows: position ``i`` of each column is about node ``i``. A row keeps its node as long as the node exists; a free row has an empty name.

Within ``v1`` fields are only ever added. Explanations are documents of :mod:`kubesched.explain.report`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = [
    "Binding",
    "Change",
    "Condition",
    "Dashboard",
    "Eviction",
    "Fault",
    "LabelColumn",
    "Link",
    "Mode",
    "Moment",
    "NodeChange",
    "NodeColumns",
    "NodePage",
    "Part",
    "Place",
    "Played",
    "PluginWeight",
    "PodList",
    "PodPage",
    "PodRow",
    "PodShare",
    "Profile",
    "QueueCounts",
    "QueueGroup",
    "QueuePlace",
    "Queues",
    "Rates",
    "ResourceColumn",
    "RunInfo",
    "Sample",
    "ScoreColumn",
    "Series",
    "State",
    "TextColumn",
    "VerdictReason",
    "Verdicts",
]

#: Kind of what is shown. ``live``: a real cluster, read-only. ``embedded``: the cluster of ``kubesched up``. ``snapshot``: a saved
#: or imported cluster that stands still. ``recording``: a simulation or recorded decisions, with a time line.
Mode = Literal["live", "embedded", "snapshot", "recording"]

#: Place of a pod without a node in the scheduler; ``Permit`` waits for permission, ``Binding`` is being bound.
Place = Literal["Active", "Backoff", "Unschedulable", "Gated", "Permit", "Binding"]


class Part(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Base of documents and their parts."""


# -- overview ------------------------------------------------------------------------------------------


class RunInfo(Part, frozen=True, kw_only=True):
    """Cluster or recording that is shown; ``id`` is its number in the paths.

    ``end`` is None for what goes on. ``what_if``: proposals can be tried; ``writable``: they can be carried out, too.
    ``explains``: explanations are there for every pod at every moment, not only those that the recording has.
    """

    id: int
    name: str
    mode: Mode
    start: float
    end: float | None = None
    what_if: bool = False
    writable: bool = False
    explains: bool = True
    #: Sentences about what is not shown, such as a recording that began late.
    remarks: list[str] = []


class Dashboard(Part, frozen=True, kw_only=True):
    """Overview: the program, and one run, or two side by side."""

    api_version: str = "kubesched.io/dashboard/v1"
    kind: str = "Dashboard"
    #: Version of kubesched.
    version: str
    runs: list[RunInfo]


class Fault(Part, frozen=True, kw_only=True):
    """Answer to a request that failed: the reason in words."""

    error: str


# -- the map -------------------------------------------------------------------------------------------


class ResourceColumn(Part, frozen=True, kw_only=True):
    """Amounts of one resource by row. ``devices``: the devices of one driver, free and in use, from resource slices."""

    name: str
    unit: Literal["millicores", "bytes", "units"]
    devices: bool = False
    allocatable: list[int]
    requested: list[int]


class TextColumn(Part, frozen=True, kw_only=True):
    """Texts by row: ``index`` has the position in ``values``; -1 for none."""

    values: list[str]
    index: list[int]


class LabelColumn(Part, frozen=True, kw_only=True):
    """Values of one label by row, as in :class:`TextColumn`. Labels with very many values are left out."""

    key: str
    values: list[str]
    index: list[int]


class NodeColumns(Part, frozen=True, kw_only=True):
    """Nodes as columns. ``taints`` are in one text a node; ``status`` is ``Ready``, ``NotReady``, ``Cordoned`` or ``Failed``."""

    names: list[str]
    resources: list[ResourceColumn]
    labels: list[LabelColumn]
    taints: TextColumn
    status: TextColumn


class QueueCounts(Part, frozen=True, kw_only=True):
    """Pods without a node, by place."""

    active: int = 0
    backoff: int = 0
    unschedulable: int = 0
    gated: int = 0
    permit: int = 0
    binding: int = 0


class PluginWeight(Part, frozen=True, kw_only=True):
    """Score plugin of a profile, with its weight."""

    plugin: str
    weight: int


class Profile(Part, frozen=True, kw_only=True):
    """Profile of the scheduler; ``name`` is its schedulerName."""

    name: str
    scores: list[PluginWeight]


class Sample(Part, frozen=True, kw_only=True):
    """Figures of the cluster at one time. Shares are 0 to 1; what is not known is left out.

    ``bound`` and ``failed`` count attempts since the sample before. ``wait_p50`` and ``wait_p99`` are seconds from the queue to the
    binding, of pods bound since then; None if there were none.
    """

    at: float
    queue: QueueCounts
    on_nodes: int
    bound: int = 0
    failed: int = 0
    wait_p50: float | None = None
    wait_p99: float | None = None
    utilisation: dict[str, float] = {}
    fragmentation: dict[str, float] = {}
    cost: float | None = None


class State(Part, frozen=True, kw_only=True):
    """Everything about the cluster at one time. The change with version ``version + 1`` goes on from here."""

    version: int
    at: float
    nodes: NodeColumns
    sample: Sample
    profiles: list[Profile]


# -- changes -------------------------------------------------------------------------------------------


class NodeChange(Part, frozen=True, kw_only=True):
    """Node that came, went (empty name) or changed, whole. The resources are in the order of the columns, new ones at the end."""

    row: int
    name: str
    allocatable: dict[str, int] = {}
    requested: dict[str, int] = {}
    labels: dict[str, str] = {}
    taints: str = ""
    status: str = ""


class Binding(Part, frozen=True, kw_only=True):
    """Pod that was bound to the node of a row."""

    pod: str
    row: int


class Eviction(Part, frozen=True, kw_only=True):
    """Preemption: ``victims`` on the node of a row made room for a pod. Names are ``namespace/name``."""

    pod: str
    row: int
    victims: list[str]


class Change(Part, frozen=True, kw_only=True):
    """Increment of a :class:`State`. Version ``n`` follows on ``n - 1``.

    ``rows`` are those whose pods changed; ``requested`` has the new amounts by resource, in the order of ``rows``. Of
    ``bound`` and ``preempted`` the first are listed, ``bound_count`` and ``preempted_count`` count all.
    """

    version: int
    at: float
    rows: list[int] = []
    requested: dict[str, list[int]] = {}
    nodes: list[NodeChange] = []
    bound: list[Binding] = []
    bound_count: int = 0
    preempted: list[Eviction] = []
    preempted_count: int = 0
    #: None if the figures did not change.
    sample: Sample | None = None


class Played(Part, frozen=True, kw_only=True):
    """Changes in the order of time, with versions from 1. In a recording they lead from one moment to another; of a live cluster
    they are bindings and preemptions that it remembers.
    """

    changes: list[Change]


class Series(Part, frozen=True, kw_only=True):
    """Samples in the order of time, thinned out evenly, for charts."""

    samples: list[Sample]


# -- queues and pods -----------------------------------------------------------------------------------


class QueueGroup(Part, frozen=True, kw_only=True):
    """Pods in one place of the queue that wait for one reason. ``pod`` is the one that waits longest, ``namespace/name``.

    ``until`` is the time at which the first of them is tried again without an event.
    """

    workload: str
    count: int
    pod: str
    why: str
    rejected_by: list[str] = []
    attempts: int = 0
    #: Seconds that ``pod`` has waited.
    waited: float | None = None
    until: float | None = None


class QueuePlace(Part, frozen=True, kw_only=True):
    """Place of the queue: its pods in groups, the largest first; ``left_out`` pods are in groups that are not listed."""

    place: Place
    count: int
    groups: list[QueueGroup]
    left_out: int = 0
    #: Seconds that the longest waiting pod has waited.
    longest: float | None = None


class Rates(Part, frozen=True, kw_only=True):
    """Pods per second, over the last ten seconds."""

    arriving: float = 0.0
    bound: float = 0.0
    failed: float = 0.0


class Queues(Part, frozen=True, kw_only=True):
    """Scheduling queue, by place."""

    at: float
    places: list[QueuePlace]
    rates: Rates


class PodRow(Part, frozen=True, kw_only=True):
    """Pod in a list. ``state`` is the place of a pod that waits, else its phase."""

    namespace: str
    name: str
    workload: str
    state: str
    node: str = ""
    priority: int = 0
    created: float | None = None


class PodList(Part, frozen=True, kw_only=True):
    """Pods that were asked for, pending ones first; ``total`` counts those that are not listed, too."""

    pods: list[PodRow]
    total: int


class Link(Part, frozen=True, kw_only=True):
    """Object that belongs to another. ``namespace`` is empty for an object without one."""

    kind: str
    namespace: str = ""
    name: str
    #: State in one word or sentence, if it has one.
    state: str = ""


class Moment(Part, frozen=True, kw_only=True):
    """Event in a pod's life, such as ``created``, ``tried``, ``rejected``, ``nominated``, ``bound``, ``started``, ``evicted``, ``finished``."""

    at: float
    what: str
    text: str = ""
    node: str = ""


class PodPage(Part, frozen=True, kw_only=True):
    """Pod: its facts and the events of its life in the order of time.

    ``complete``: the life is known from the start; otherwise events from before the program's start may be missing.
    """

    pod: PodRow
    uid: str = ""
    scheduler_name: str = ""
    requests: dict[str, int] = {}
    links: list[Link] = []
    life: list[Moment] = []
    complete: bool = True
    message: str = ""


class PodShare(Part, frozen=True, kw_only=True):
    """Pod on a node, with what it asks for."""

    namespace: str
    name: str
    workload: str
    phase: str
    priority: int = 0
    requests: dict[str, int] = {}


class Condition(Part, frozen=True, kw_only=True):
    """Condition of a node, such as ``Ready``."""

    type: str
    status: str
    message: str = ""


class NodePage(Part, frozen=True, kw_only=True):
    """Node: its facts and its pods, the largest first; ``left_out`` are not listed."""

    row: int
    name: str
    status: str
    allocatable: dict[str, int]
    requested: dict[str, int]
    labels: dict[str, str] = {}
    taints: list[str] = []
    conditions: list[Condition] = []
    pods: list[PodShare] = []
    left_out: int = 0


class VerdictReason(Part, frozen=True, kw_only=True):
    """Reason against nodes, and the plugin that gave it."""

    plugin: str
    text: str
    nodes: int


class ScoreColumn(Part, frozen=True, kw_only=True):
    """Weighted score of one plugin by row; 0 where the pod does not fit."""

    plugin: str
    weight: int
    scores: list[int]


class Verdicts(Part, frozen=True, kw_only=True):
    """Verdict on each node for one pod, as if it were placed now. ``verdict`` has, by row: the position of the first reason
    against the node, -1 where the pod fits, -2 for a free row.
    """

    pod: str
    at: float
    reasons: list[VerdictReason]
    verdict: list[int]
    #: Row of the pod's own node, or None.
    own: int | None = None
    scores: list[ScoreColumn] = []
