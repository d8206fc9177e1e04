"""What a plugin author sees: the extension points, their contracts, and the handle.

A plugin is a class with a ``name`` that defines the methods of the points it extends; nothing else is
needed. There are two styles, and a plugin may mix them:

* **plain**: ``filter`` and ``score`` see one node at a time. Readable, right for most plugins.
* **fast**: ``ask`` gives a :class:`~kubesched.scheduler.framework.question.Question`, which answers for many rows of the node table at
  once. Its answers are kept for pods that are alike, and only changed rows are evaluated again.

:class:`Contract` is the reference: each method says when it is called, what it may change, and what each
answer leads to. Its signatures are what plugins are checked against at registration.

Source: rules/framework (upstream ``staging/src/k8s.io/kube-scheduler/framework``).
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from kubesched.api.types import Pod
from kubesched.base.times import Clock

from ..nodes.nodeinfo import NodeInfo
from ..nodes.nominating import NominatingInfo, Nominations
from ..nodes.podinfo import PodInfo
from .cycle_state import CycleState
from .events import ClusterEventWithHint
from .preemption import Preemption, PreemptionExtender
from .question import NOT_SCORED, IntArray, Normalize, Question, Reads, RowArray, VerdictArray
from .queued import QueuedPodInfo
from .status import Code, Status

if TYPE_CHECKING:
    from ..nodes import NodeList, NodeTable, Snapshot
    from .metrics import SchedulerMetrics
    from .waiting import PodsInPreBind, WaitingPods

__all__ = [
    "MAX_NODE_SCORE",
    "NOT_SCORED",
    "Contract",
    "Explanation",
    "Handle",
    "IntArray",
    "NodeToStatus",
    "Normalize",
    "ObjectHandler",
    "Plugin",
    "PostFilterResult",
    "PreBindPreFlight",
    "Reads",
    "Recorder",
    "RowArray",
    "VerdictArray",
    "WhatIf",
]

#: Scores lie in 0…100 after normalising.
MAX_NODE_SCORE: Final = 100


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """``nominating``: what becomes of the pod's nomination; ``preemption``: what was done for it, for reports."""

    nominating: NominatingInfo | None = None
    preemption: Preemption | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why nodes do not fit a pod, in plain words, and as data for programs."""

    text: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PreBindPreFlight:
    """``allow_parallel``: this PreBind may run in parallel with others."""

    allow_parallel: bool = False


class NodeToStatus(Protocol):
    """Why each node was rejected; nodes without an entry have the absent-nodes status."""

    def get(self, name: str) -> Status: ...

    def __len__(self) -> int:
        """How many nodes have a status of their own."""
        ...

    def nodes_for_code(self, code: Code) -> NodeList:
        """The nodes that were rejected with ``code``."""
        ...

    def rejecting(self, code: Code) -> frozenset[str]:
        """The plugins that rejected nodes with ``code``; the empty name for a rejection by something else."""
        ...


class Recorder(Protocol):
    """Records events; returns at once."""

    def record(self, regarding: Any, type: str, reason: str, action: str, note: str, related: Any = None) -> None: ...  # noqa: A002 - upstream's word


class ObjectHandler(Protocol):
    """Receives the changes of a kind of object; called in the event loop, one object after the other."""

    def on_add(self, obj: Any, is_initial: bool) -> None: ...
    def on_update(self, old: Any, new: Any) -> None: ...

    def on_delete(self, obj: Any) -> None:
        """``obj`` may be a :class:`~kubesched.api.tombstone.DeletedFinalStateUnknown`."""
        ...


class WhatIf(Protocol):
    """What a plugin may call of its profile, to find out what would happen if; see ``framework.runtime.Framework``."""

    metrics: SchedulerMetrics
    #: Point key to (plugin name, weight), in order.
    points: Mapping[str, Sequence[tuple[str, int]]]
    #: The Filter plugins, as ``framework.entries.FilterEntry``.
    filters: tuple[Any, ...]

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeList) -> object: ...
    def has_active_extensions(self, state: CycleState) -> bool: ...
    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> None: ...
    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> None: ...
    def filter_with_nominated(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, node: NodeInfo, nominated: Sequence[PodInfo]
    ) -> Status | None: ...


class Handle(Protocol):
    """What a plugin can reach. ``snapshot`` is only valid inside a scheduling cycle."""

    @property
    def profile_name(self) -> str: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def random(self) -> random.Random: ...
    @property
    def snapshot(self) -> Snapshot: ...
    @property
    def waiting_pods(self) -> WaitingPods: ...
    @property
    def pods_in_pre_bind(self) -> PodsInPreBind: ...
    @property
    def framework(self) -> WhatIf:
        """The profile itself. Not while its plugins are built."""
        ...

    @property
    def recorder(self) -> Recorder:
        """Records events in the profile's name."""
        ...

    @property
    def extenders(self) -> Sequence[PreemptionExtender]:
        """The configured extenders, in the order in which they are called."""
        ...

    @property
    def client(self) -> Any:
        """The scheduler's API port."""
        ...

    def live_pod(self, pod: Pod) -> Pod | None:
        """The pod as the API server last showed it; None when it is gone."""
        ...

    def clear_nomination(self, pod: Pod, node_name: str) -> None:
        """End a pod's nomination to a node, in memory at once and in its status soon after."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run work in a task of its own, which the scheduler supervises. It must not raise."""
        ...

    def gate(self, name: str) -> bool:
        """Whether a feature gate is on."""
        ...

    def activate(self, pods: Mapping[str, Pod]) -> None:
        """Move pods (``namespace/name`` to pod) to the active queue, whatever their backoff."""
        ...

    @property
    def nominations(self) -> Nominations:
        """Which pods are nominated to which nodes."""
        ...

    def informed(self, kind: str) -> Mapping[str, Any]:
        """Objects of a watched kind by ``namespace/name`` (kinds as in ``api.kinds``: ``namespaces``, ``services``, …)."""
        ...

    def informed_in(self, kind: str, namespace: str) -> Sequence[Any]:
        """Objects of a watched kind in one namespace. A plugin has kinds watched by naming them in ``informs``."""
        ...

    def watch(self, kind: str, handler: ObjectHandler, *, relays: bool = False) -> None:
        """Have a kind watched, and receive every object of it that is known already and every change.

        The handler is called before the queue's hints are. To be called while the plugin is built. One that ``relays``
        has a method ``add_handler``: hints are evaluated for the events that it passes on to the handlers added there,
        and not for those of the informer.
        """
        ...

    def shared(self, name: str, make: Callable[[], Any]) -> Any:
        """What several plugins, or a plugin in several profiles, keep together: made once, by the first that needs it.

        It may have a method ``problems() -> Iterable[str]``, which the cache comparer calls: what is not as it should be.
        """
        ...

    def node_changed(self, node_name: str) -> None:
        """Something else than the node and its pods changed that is read for a node, such as its CSINode.

        It is put in the change journal, so what layers remember of the node is evaluated again.
        """
        ...

    def ask_again(self) -> None:
        """Something changed that questions ``by_spec`` depend on besides the pod and the nodes: all pods are asked for again."""
        ...


class Plugin:
    """Base class: keeps ``args`` and ``handle``. Deriving from it is convenient, not required.

    A plugin class is called as ``cls(args, handle)``: ``args`` is the typed args object of an in-tree
    plugin, the plain data of ``pluginConfig`` for any other (None when there is none).
    """

    #: The name in configuration, messages and metrics.
    name: ClassVar[str] = ""

    def __init__(self, args: Any, handle: Handle) -> None:
        self.args = args
        self.handle = handle


class Contract:
    """Every extension point's method. Never instantiated: read it, and define the methods you need.

    Wherever a ``Status | None`` is returned, None means Success. A method that raises fails the pod's attempt
    with code Error naming the plugin; nothing else is disturbed. ``state`` belongs to one attempt.

    Attributes:
        asks: the class of its questions, for a plugin with ``ask``.
        informs: kinds (plural, as in ``api.kinds``) that the plugin looks up through its handle and wants watched.
        normalize: ready-made normalisation for ``score``; None means scores are final, or ``normalize_score`` is defined.
    """

    asks: ClassVar[type[Question]]
    informs: ClassVar[tuple[str, ...]] = ()
    normalize: ClassVar[Normalize | None] = None

    # -- queue -----------------------------------------------------------------------------------------

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """May the pod enter the active queue? Cheap; no snapshot. Anything but Success keeps it out."""
        raise AssertionError("documentation only")

    def less(self, first: QueuedPodInfo, second: QueuedPodInfo) -> bool:
        """Whether ``first`` is scheduled before ``second``. One QueueSort plugin, the same in all profiles."""
        raise AssertionError("documentation only")

    def sort_key(self, queued: QueuedPodInfo) -> Any:
        """Optional in addition to ``less``: a key whose order is that of ``less``; makes the queue much faster."""
        raise AssertionError("documentation only")

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Which events may make a pod schedulable that this plugin rejected. Without it: nearly every event."""
        raise AssertionError("documentation only")

    def ask(self, pod: PodInfo, nodes: NodeTable) -> Question | None:
        """The pod's question to a fast plugin; None when the pod does not concern the plugin now.

        None leaves the plugin out of Filter and Score, and of what prepares them; where its class of questions says
        ``throughout``, out of Reserve to PostBind as well. PreEnqueue and PostFilter are called in any case. To be defined together with the class attribute ``asks``. Called at the start of an attempt, so it must be cheap.
        """
        raise AssertionError("documentation only")

    def sign(self, pod: PodInfo) -> Hashable | None:
        """Plain style: a value such that pods with equal values get equal answers from this plugin on equal nodes.

        ``()`` when the plugin reads nothing of the pod; None when it has no signature (results are then never reused).
        Called at the start of an attempt, so it must be cheap.
        """
        raise AssertionError("documentation only")

    # -- scheduling cycle ------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeList) -> frozenset[str] | Status | None:
        """Once per attempt, before any Filter. Compute what Filter needs and keep it in ``state``.

        Return a set of node names to allow only those, Skip to leave this plugin's Filter out of the attempt,
        Unschedulable or UnschedulableAndUnresolvable to reject the pod everywhere.
        """
        raise AssertionError("documentation only")

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None:
        """What if ``added`` ran on ``node`` too? Adjust what PreFilter kept in ``state`` (a clone)."""
        raise AssertionError("documentation only")

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None:
        """What if ``removed`` were gone from ``node``? Adjust what PreFilter kept in ``state`` (a clone)."""
        raise AssertionError("documentation only")

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Plain style: may the pod run on this node? Unschedulable: removing other pods may help."""
        raise AssertionError("documentation only")

    def post_filter(
        self, state: CycleState, pod: PodInfo, statuses: NodeToStatus
    ) -> tuple[PostFilterResult | None, Status | None] | Awaitable[tuple[PostFilterResult | None, Status | None]]:
        """After no node passed: try to free resources (preemption). Success ends the PostFilter phase.

        May be ``async``; no other pod is scheduled until it has returned.
        """
        raise AssertionError("documentation only")

    def explain(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> Sequence[Explanation]:
        """Optional, for reports: what the nodes in ``rows``, all of which this plugin's Filter rejected, lack for the pod."""
        raise AssertionError("documentation only")

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeList) -> Status | None:
        """Before scoring, with the feasible nodes (two or more). Skip leaves this plugin's Score out."""
        raise AssertionError("documentation only")

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int | Status:
        """Plain style: how good is this node? An int, 0…100 unless it is normalised afterwards."""
        raise AssertionError("documentation only")

    def normalize_score(self, state: CycleState, pod: PodInfo, nodes: NodeList, scores: IntArray) -> IntArray | Status:
        """Turn the raw scores of all feasible nodes (int64[len(nodes)], same order) into 0…100.

        ``Question.normalized`` does the same for scores that can be kept.
        """
        raise AssertionError("documentation only")

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """The pod was assumed on a node: set aside what it will use. A rejection undoes everything."""
        raise AssertionError("documentation only")

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Undo ``reserve``; also called when it never ran. Must not fail."""
        raise AssertionError("documentation only")

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | tuple[Status | None, float] | None:
        """Last word of the scheduling cycle. ``(Status.wait(), seconds)`` holds the pod until it is allowed."""
        raise AssertionError("documentation only")

    # -- binding cycle ---------------------------------------------------------------------------------

    def pre_bind_pre_flight(
        self, state: CycleState, pod: PodInfo, node_name: str
    ) -> Status | tuple[PreBindPreFlight | None, Status | None] | None:
        """Will ``pre_bind`` have work to do? Success or Skip; no side effects."""
        raise AssertionError("documentation only")

    def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Awaitable[Status | None] | Status | None:
        """Work that must be done before the binding (may be ``async``)."""
        raise AssertionError("documentation only")

    def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Awaitable[Status | None] | Status | None:
        """Write the binding to the API server (may be ``async``). Skip leaves it to the next Bind plugin."""
        raise AssertionError("documentation only")

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """The pod is bound. For information only."""
        raise AssertionError("documentation only")
