"""Explanations, typed: the schema of their JSON and YAML.

Field names are camelCase on the wire. Lists are sorted (by namespace, name, or size where said). Amounts of cpu are in
millicores, of memory and storage in bytes, of everything else in units.

The schema is versioned by ``apiVersion``: within ``kubesched.io/v1alpha1`` fields are only ever added.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from .records.schema import Record

__all__ = [
    "Alternative",
    "Criteria",
    "EvictionReport",
    "Explanation",
    "GroupEvictionReport",
    "GroupNewNodeReport",
    "GroupRemedyReport",
    "GroupState",
    "LostCandidate",
    "NewNodeReport",
    "NodeScore",
    "NotCreated",
    "ObstacleReport",
    "Pending",
    "PendingReason",
    "Placed",
    "PlacementReport",
    "PluginScore",
    "PodGroupReport",
    "PreemptionReport",
    "QueueState",
    "QuotaLimit",
    "Reason",
    "RemedyReport",
    "Turn",
    "Wake",
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


class Criteria(_Struct, frozen=True, kw_only=True):
    """Values by which candidates for preemption are compared, in this order; the smaller value wins, the later start.

    ``earliest_start`` is the start of the longest running victim of the highest priority, in seconds since the epoch.
    """

    budget_violations: int
    highest_priority: int
    priority_sum: int
    victims: int
    earliest_start: float


class LostCandidate(_Struct, frozen=True, kw_only=True):
    """Node whose victims were spared, and the criterion that decided against it."""

    node: str
    #: ``namespace/name``, the most important first.
    victims: list[str]
    budget_violations: int
    why: str
    criteria: Criteria | None = None


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
    criteria: Criteria | None = None
    #: Disruption budgets that the victims violate, as ``namespace/name``.
    budgets: list[str] = []
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
    """Pods without which a pod fits a node; ``of`` is the number of pods on the node, ``nodes`` the node of each pod.

    ``frees`` is what they give back besides room, in words, such as claims with devices.
    """

    node: str
    pods: list[str]
    of: int
    nodes: list[str] = []
    frees: list[str] = []


class NewNodeReport(_Struct, frozen=True, kw_only=True):
    """Kind of node of which one more lets a pod run: an empty node like ``like``. There are ``nodes`` of the kind.

    Nodes of a kind have equal labels (but the hostname), taints and amounts. Large clusters are sampled.
    """

    like: str
    nodes: int
    allocatable: dict[str, str | int | float] = {}


class PluginScore(_Struct, frozen=True, kw_only=True):
    """Score of one plugin for one node: raw, normalised to 0…100, and weighted, which is what counts."""

    plugin: str
    raw: int
    normalized: int
    weight: int
    score: int


class NodeScore(_Struct, frozen=True, kw_only=True):
    """Total of a node that fits, with the scores that it is the sum of."""

    node: str
    total: int
    scores: list[PluginScore]


class Turn(_Struct, frozen=True, kw_only=True):
    """Change after which another node wins alone. It was evaluated.

    ``kind`` is ``weight`` (``plugin`` has the weight ``weight``), or ``evictions`` (the pods ``pods`` leave the node).
    """

    kind: Literal["weight", "evictions"]
    text: str
    plugin: str = ""
    weight: int | None = None
    pods: list[str] = []


class Alternative(_Struct, frozen=True, kw_only=True):
    """Another node than the pod's own: by how much it lost, and what would have turned that.

    For a node that does not fit, ``total`` is null, and ``obstacles`` and ``remedies`` are about this node alone.
    """

    node: str
    fits: bool
    total: int | None = None
    #: Total of the pod's node minus the total of this node; negative if this node is better now.
    lost_by: int | None = None
    #: Weighted score of the pod's node minus that of this node, by plugin, without zeros; the largest first.
    differences: dict[str, int] = {}
    turns: list[Turn] = []
    obstacles: list[ObstacleReport] = []
    remedies: list[RemedyReport] = []


class Placed(_Struct, frozen=True, kw_only=True):
    """Pod with a node, and the choice among all nodes as it would be made now, without the pod on its node."""

    #: ``namespace/name``.
    pod: str
    workload: str
    node: str
    profile: str
    phase: str
    nodes: int
    #: Number of nodes that fit.
    feasible: int
    #: Number of nodes with the greatest total; the choice among them is random.
    tied: int
    #: Place of the pod's node among those that fit, from 1; nodes with equal totals share it. Null if it does not fit.
    rank: int | None
    #: Sentence that says why the node was chosen.
    decided: str
    best: list[NodeScore]
    #: Reasons against the nodes that do not fit.
    reasons: list[Reason] = []
    alternatives: list[Alternative] = []
    #: Decision by which the pod got its node, if the scheduler recorded it.
    decision: Record | None = None
    #: Obstacles at the pod's own node, if it would be rejected now.
    problems: list[ObstacleReport] = []
    remarks: list[str] = []


class Wake(_Struct, frozen=True, kw_only=True):
    """Event that makes a waiting pod worth another attempt, with the plugin that waits for it."""

    plugin: str
    #: Name as in metrics: resource and action, such as ``NodeUpdateNodeTaint``.
    event: str
    text: str


class QueueState(_Struct, frozen=True, kw_only=True):
    """State of a pod in the scheduling queue of a live scheduler. Times are in seconds."""

    place: Literal["Active", "Backoff", "Unschedulable", "Gated", "InFlight", "WaitingOnPermit", "Binding"]
    attempts: int = 0
    #: Time since the pod first entered the queue, or since its last move if that is not known.
    waited: float | None = None
    #: Number of pods before it, in the active queue.
    ahead: int | None = None
    #: Time until the backoff ends.
    backoff: float | None = None
    #: Time until the pod is tried again even without an event.
    retry: float | None = None
    rejected_by: list[str] = []
    #: Plugin that holds it back before scheduling, or plugins whose permission it waits for.
    held_by: list[str] = []
    wakes: list[Wake] = []
    nominated_node: str = ""


class Pending(_Struct, frozen=True, kw_only=True):
    """Pods without a node for the same reasons; the largest group first.

    ``message`` is the text of the pod's PodScheduled condition. ``reasons`` has the first reason against each node,
    ``obstacles`` every one. ``remedies``, ``evictions`` and ``new_nodes`` were tried against the cluster as it stands at the end;
    ``hints`` has them in words. For pods with scheduling gates each set of ``remedies`` begins with the removal of the
    gates; ``obstacles``, ``evictions`` and ``new_nodes`` are as they would be after that.
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
    new_nodes: list[NewNodeReport] = []
    #: State of objects that the pods need besides a node, such as their claims.
    waits_for: list[str] = []
    #: Plugins that failed to help with the explanation, and what that costs.
    remarks: list[str] = []
    #: Nodes that were asked for: what keeps the pods off each of them.
    alternatives: list[Alternative] = []
    #: State of the first pod in the queue of a live scheduler.
    queue: QueueState | None = None


#: State of a pod group. ``Scheduled``: no member needs a node. ``Waiting``: it fits now, and its turn has not come.
#: ``Unschedulable``: a gang fits nowhere, or members of a basic group do not fit. ``Incomplete``: fewer members exist than
#: a gang needs. ``SchedulingGated``: too few members are free of scheduling gates. ``Missing``: the PodGroup object does
#: not exist. ``SchedulerError``: a plugin failed, or the members' schedulerName is no profile's.
GroupState = Literal[
    "Scheduled", "Waiting", "Unschedulable", "Incomplete", "SchedulingGated", "Missing", "SchedulerError"
]


class PlacementReport(_Struct, frozen=True, kw_only=True):
    """Placement of a pod group, and what came of its trial there.

    ``name`` is the value of the topology label; empty for all nodes. Of the members that need a node, ``fit`` found one;
    ``lacking`` more are needed.
    """

    name: str
    nodes: int
    fit: int
    lacking: int
    #: True if the group would be scheduled there.
    fits: bool


class GroupRemedyReport(_Struct, frozen=True, kw_only=True):
    """Changes after which a pod group fits, all of them made to each member that needs a node, or to the group itself."""

    changes: list[str]
    #: Placement that holds the group then; empty for all nodes.
    placement: str
    #: Number of members that find a node there.
    fit: int


class GroupEvictionReport(_Struct, frozen=True, kw_only=True):
    """Pods without which a pod group fits a placement.

    ``lower_priority`` is True if all are of lower priority than the group, and its members may preempt.
    """

    placement: str
    #: ``namespace/name``, sorted, and the node of each.
    pods: list[str]
    nodes: list[str]
    lower_priority: bool


class GroupNewNodeReport(_Struct, frozen=True, kw_only=True):
    """Nodes without which a pod group does not fit: ``count`` empty ones like the node ``like``, in ``placement``."""

    like: str
    count: int
    placement: str
    allocatable: dict[str, str | int | float] = {}


class PodGroupReport(_Struct, frozen=True, kw_only=True):
    """Pod group with members that need a node, or that was asked for; each number is that of a trial of the group.

    ``members`` exist, of which ``scheduled`` have a node, ``queued`` may be tried now, ``gated`` are held by scheduling
    gates or other plugins, and ``deleting`` go away. ``fit`` of the queued members find a node in the placement where most do,
    which is the first of ``placements``; ``lacking`` more are needed. ``obstacles`` are those of ``next``, the first member
    that finds no node there when the others are on theirs.
    """

    #: ``namespace/name``.
    group: str
    state: GroupState
    #: Sentence with the state, its numbers, and what is nearest to help.
    summary: str
    policy: Literal["gang", "basic", ""]
    min_count: int
    #: Label whose value is the same for the nodes of all members; empty for no constraint.
    topology: str
    members: int
    scheduled: int
    queued: int
    gated: int
    deleting: int = 0
    fit: int = 0
    lacking: int = 0
    #: Message of the group's condition ``PodGroupScheduled``, or of the plugin that holds its members.
    message: str = ""
    #: Members that need a node, as ``namespace/name``, sorted.
    pods: list[str] = []
    #: Placements, the nearest first; only the first of the ``placements_tried``.
    placements: list[PlacementReport] = []
    placements_tried: int = 0
    next: str = ""
    obstacles: list[ObstacleReport] = []
    remedies: list[GroupRemedyReport] = []
    evictions: GroupEvictionReport | None = None
    new_nodes: list[GroupNewNodeReport] = []
    #: Proposals in words.
    hints: list[str] = []
    #: Sentences about what was not tried.
    remarks: list[str] = []


class QuotaLimit(_Struct, frozen=True, kw_only=True):
    """Resource of a quota of which too little is left for one more pod. Amounts are as Kubernetes writes them.

    ``needed`` is the limit with which all missing pods can be made.
    """

    quota: str
    resource: str
    asked: str
    used: str
    limit: str
    needed: str


class NotCreated(_Struct, frozen=True, kw_only=True):
    """Workload whose pods cannot all be made, because quotas stand in the way of the next one.

    ``fits`` is the number of nodes that the next pod would fit now.
    """

    namespace: str
    workload: str
    wanted: int
    existing: int
    limits: list[QuotaLimit] = []
    #: Amounts that a quota demands of each container and the pod lacks, such as ``cpu for: main``, after its name.
    unasked: list[str] = []
    fits: int = 0
    hints: list[str] = []
    #: Last event of the workload's controller.
    event: str = ""

    @property
    def name(self) -> str:
        """Namespace and name of the workload, ``namespace/name``."""
        return f"{self.namespace}/{self.workload.partition('/')[2]}"


class Explanation(_Struct, frozen=True, kw_only=True):
    """Explanation of pods: the document of ``kubesched explain`` and of a live scheduler."""

    api_version: str = "kubesched.io/v1alpha1"
    kind: str = "Explanation"
    #: Pod groups of the pods in question, by name. Without a name in question, their members are not in ``pending``.
    pod_groups: list[PodGroupReport] = []
    pending: list[Pending] = []
    #: Workloads that lack pods for quotas, most missing pods first.
    not_created: list[NotCreated] = []
    placed: list[Placed] = []
    #: Preemptions in which a pod of the question was evicted, the newest last.
    evicted: list[PreemptionReport] = []
    #: Names that no pod has.
    absent: list[str] = []
    #: Sentences about pods that are gone, from the cluster's events.
    notes: list[str] = []
