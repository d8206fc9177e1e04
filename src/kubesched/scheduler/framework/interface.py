"""Interface for authors of plugins: the extension points, their contracts, and the handle.

A plugin is a class with a ``name`` that defines the methods of the points it extends; nothing else is needed. There are
two styles, and a plugin may mix them:

* **plain**: ``filter`` and ``score`` see one node at a time. Readable, right for most plugins.
* **fast**: ``ask`` returns a :class:`~kubesched.scheduler.framework.question.Question`, which answers for many rows of
  the node table at once. Its answers are kept for pods that are alike, and only changed rows are evaluated again.

:class:`Contract` is the reference: each method says when it is called, what it may change, and what each answer leads
to. At registration, plugins are checked against its signatures.

Source: rules/framework (upstream ``staging/src/k8s.io/kube-scheduler/framework``).
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection, Coroutine, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from kubesched.api.types import Pod
from kubesched.base.times import Clock

from ..nodes.nodeinfo import NodeInfo
from ..nodes.nominating import NominatingInfo, Nominations
from ..nodes.pod_groups import PodGroupStates
from ..nodes.podinfo import PodInfo
from .cycle_state import CycleState
from .demand import Demand
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
    "Handle",
    "IntArray",
    "NodeToStatus",
    "Normalize",
    "ObjectHandler",
    "Plugin",
    "PostFilterResult",
    "PreBindPreFlight",
    "ProfileView",
    "Reads",
    "Recorder",
    "RowArray",
    "VerdictArray",
]

#: Greatest score after normalisation; the least is 0.
MAX_NODE_SCORE: Final = 100


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """Result of PostFilter.

    Attributes:
        nominating: change of the pod's nomination; None for no change.
        preemption: the preemption that made room for the pod, for reports; None without one.
        act: what is left to do. In the trial of a pod group (``state.group`` is set), PostFilter only plans. With a
            nomination, ``act`` is called if the group will fit once that is done; without, if the member fails.
    """

    nominating: NominatingInfo | None = None
    preemption: Preemption | None = None
    act: Callable[[], Awaitable[object] | None] | None = None


@dataclass(frozen=True, slots=True)
class PreBindPreFlight:
    """Answer of PreBindPreFlight. ``allow_parallel``: this plugin's PreBind may run in parallel with others."""

    allow_parallel: bool = False


class NodeToStatus(Protocol):
    """Statuses of rejected nodes, by name; a node without an entry has the absent-nodes status."""

    def get(self, name: str) -> Status: ...

    def __len__(self) -> int:
        """Return the number of nodes that have a status of their own."""
        ...

    def nodes_for_code(self, code: Code) -> NodeList:
        """Return the nodes that were rejected with ``code``."""
        ...

    def rejecting(self, code: Code) -> frozenset[str]:
        """Return the names of the plugins that rejected nodes with ``code``; "" for a rejection by no plugin."""
        ...


class Recorder(Protocol):
    """Recorder of events; it returns at once."""

    def record(self, regarding: Any, type: str, reason: str, action: str, note: str, related: Any = None) -> None: ...  # noqa: A002 - upstream's word


class ObjectHandler(Protocol):
    """Handler of changes of a kind of object; called in the event loop, one object after the other."""

    def on_add(self, obj: Any, is_initial: bool) -> None: ...
    def on_update(self, old: Any, new: Any) -> None: ...

    def on_delete(self, obj: Any) -> None:
        """Take a deleted object, or a :class:`~kubesched.api.tombstone.DeletedFinalStateUnknown`."""
        ...


class ProfileView(Protocol):
    """The part of a profile that a plugin may call, to try how a pod would fare with other pods on the nodes.

    See ``framework.runtime.Framework``.
    """

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
    """Handle of a plugin: the scheduler's services (rules/framework §9).

    ``snapshot`` is only valid inside a scheduling cycle.
    """

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
    def framework(self) -> ProfileView:
        """The profile itself. It does not exist yet while its plugins are built."""
        ...

    @property
    def pod_groups(self) -> PodGroupStates | None:
        """Members of pod groups, by their state; None while the gate GenericWorkload is off."""
        ...

    @property
    def recorder(self) -> Recorder:
        """Recorder of events in the profile's name."""
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
        """Return the pod as the API server last showed it; None when it is gone."""
        ...

    def clear_nomination(self, pod: Pod, node_name: str) -> None:
        """End a pod's nomination to a node, in memory at once and in its status soon after."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run work in a task of its own, which the scheduler supervises. It must not raise."""
        ...

    def gate(self, name: str) -> bool:
        """Return True if a feature gate is on."""
        ...

    def activate(self, pods: Mapping[str, Pod]) -> None:
        """Move pods (``namespace/name`` to pod) to the active queue, even if they are in backoff."""
        ...

    @property
    def nominations(self) -> Nominations:
        """Nominations of pods to nodes."""
        ...

    def informed(self, kind: str) -> Mapping[str, Any]:
        """Return the objects of a watched kind, by ``namespace/name``.

        Kinds are plural, as in ``api.kinds``: ``namespaces``, ``services``, …
        """
        ...

    def informed_in(self, kind: str, namespace: str) -> Sequence[Any]:
        """Return the objects of a watched kind in one namespace. Kinds in a plugin's ``informs`` are watched."""
        ...

    def watch(self, kind: str, handler: ObjectHandler, *, relays: bool = False) -> None:
        """Watch a kind: the handler receives every object that is known already, and every change.

        Call it while the plugin is built. The handler is called before the queue's hints are called. With ``relays``,
        the handler must have a method ``add_handler``. Then hints are not evaluated for the informer's events, but for
        the events that the handler passes on to the handlers added there.
        """
        ...

    def shared(self, name: str, make: Callable[[], Any]) -> Any:
        """Return the object that plugins share under this name; the first call makes it.

        Several plugins can share an object, or one plugin in several profiles. If it has a method
        ``problems() -> Iterable[str]``, the cache comparer calls that to find inconsistencies.
        """
        ...

    def node_changed(self, node_name: str) -> None:
        """Note that further data about a node changed, besides the node object and its pods: for example its CSINode.

        The node goes into the change journal, and layers evaluate it again.
        """
        ...

    def ask_again(self) -> None:
        """Note a change of data, other than pods and nodes, that questions ``by_spec`` depend on.

        Plugins are asked again for all pods.
        """
        ...


class Plugin:
    """Base class of plugins: keeps ``args`` and ``handle``. Deriving from it is convenient, not required.

    A plugin class is called as ``cls(args, handle)``. ``args`` is the typed args object of an in-tree plugin; for any
    other plugin it is the plain data of ``pluginConfig``, or None without it.
    """

    #: Name in configuration, messages and metrics.
    name: ClassVar[str] = ""

    def __init__(self, args: Any, handle: Handle) -> None:
        self.args = args
        self.handle = handle


class Contract:
    """Contract of a plugin: the methods of all extension points. Read it, and define the methods that you need.

    The class is never instantiated. Wherever a ``Status | None`` is returned, None means Success. If a method raises,
    the pod's attempt fails with code Error and the plugin's name; nothing else is disturbed. ``state`` belongs to one
    attempt.

    Attributes:
        asks: the class of the questions that ``ask`` returns.
        informs: kinds (plural, as in ``api.kinds``) that the plugin looks up through its handle; they are watched.
        normalize: ready-made normalisation for ``score``. None: scores are final, or ``normalize_score`` is defined.
    """

    asks: ClassVar[type[Question]]
    informs: ClassVar[tuple[str, ...]] = ()
    normalize: ClassVar[Normalize | None] = None

    # -- queue -----------------------------------------------------------------------------------------

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """Decide if the pod may enter the active queue: Success lets it in, anything else keeps it out.

        The method must be cheap. There is no snapshot.
        """
        raise AssertionError("documentation only")

    def less(self, first: QueuedPodInfo, second: QueuedPodInfo) -> bool:
        """Return True if ``first`` is scheduled before ``second``. All profiles must have the same QueueSort plugin."""
        raise AssertionError("documentation only")

    def sort_key(self, queued: QueuedPodInfo) -> Any:
        """Optional, in addition to ``less``: return a key that orders pods as ``less`` does.

        It makes the queue much faster.
        """
        raise AssertionError("documentation only")

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return the events after which a pod that this plugin rejected may be schedulable.

        Without this method, such a pod is tried again after nearly every event.
        """
        raise AssertionError("documentation only")

    def ask(self, pod: PodInfo, nodes: NodeTable) -> Question | None:
        """Fast style: return the pod's question; None when the plugin has nothing to do for the pod now.

        After None, the plugin is not called at PreFilter, Filter, PreScore and Score. If its class of questions says
        ``throughout``, it is not called from Reserve to PostBind either. PreEnqueue and PostFilter are called in any
        case. A plugin that defines ``ask`` must also set the class attribute ``asks``. ``ask`` is called at the start
        of an attempt, so it must be cheap.
        """
        raise AssertionError("documentation only")

    def sign(self, pod: PodInfo) -> Hashable | None:
        """Plain style: return the pod's signature for this plugin.

        Pods with equal signatures must get equal answers from the plugin on equal nodes. Return ``()`` when the plugin
        reads nothing of the pod; return None when the pod has no signature, and its results are never reused. ``sign``
        is called at the start of an attempt, so it must be cheap.
        """
        raise AssertionError("documentation only")

    # -- scheduling cycle ------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeList) -> frozenset[str] | Status | None:
        """Compute what Filter needs, and keep it in ``state``. Called once per attempt, before any Filter.

        Return a set of node names to allow only these nodes, Skip to leave this plugin's Filter out of the attempt, or
        Unschedulable or UnschedulableAndUnresolvable to reject the pod everywhere.
        """
        raise AssertionError("documentation only")

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None:
        """Adjust PreFilter's data in ``state`` (a clone) as if ``added`` ran on ``node`` too."""
        raise AssertionError("documentation only")

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None:
        """Adjust PreFilter's data in ``state`` (a clone) as if ``removed`` were gone from ``node``."""
        raise AssertionError("documentation only")

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Plain style: decide if the pod may run on this node.

        Return Unschedulable if removing other pods may help, UnschedulableAndUnresolvable if it cannot.
        """
        raise AssertionError("documentation only")

    def post_filter(
        self, state: CycleState, pod: PodInfo, statuses: NodeToStatus
    ) -> tuple[PostFilterResult | None, Status | None] | Awaitable[tuple[PostFilterResult | None, Status | None]]:
        """Try to free resources (preemption). Called when no node passed. Success ends the PostFilter phase.

        The method may be ``async``; no other pod is scheduled until it has returned.
        """
        raise AssertionError("documentation only")

    def demands(self, pod: PodInfo, nodes: NodeTable) -> Iterable[Demand]:
        """Demands of a pod that this plugin's filter checks, for explanations: each in words, and how it could be weaker.

        Called for pods that fit nowhere, never during an attempt. A plugin without the method is explained by the
        reasons of its statuses.
        """
        raise AssertionError("documentation only")

    def new_node(self, name: str, like: NodeInfo) -> AbstractContextManager[object]:
        """Show, within a block, what a new node has besides its object, such as devices, when it is like another node.

        For explanations, which try if one more node of a kind would help. Without the method it has nothing.
        """
        raise AssertionError("documentation only")

    def without_pods(self, pods: Collection[PodInfo]) -> AbstractContextManager[Sequence[str]]:
        """Show, within a block, what is free besides room on nodes when these pods are gone, such as their devices.

        For explanations, which try what evictions would help. The value names what the pods give back, in words.
        """
        raise AssertionError("documentation only")

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeList) -> Status | None:
        """Prepare scoring. Called with the feasible nodes (two or more). Skip leaves this plugin's Score out."""
        raise AssertionError("documentation only")

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int | Status:
        """Plain style: return the node's score, an int; the greatest wins. 0…100 unless it is normalised later."""
        raise AssertionError("documentation only")

    def normalize_score(self, state: CycleState, pod: PodInfo, nodes: NodeList, scores: IntArray) -> IntArray | Status:
        """Turn the raw scores of all feasible nodes (int64[len(nodes)], same order) into 0…100.

        The scores of such a plugin cannot be kept; use ``Question.normalized`` for scores that can.
        """
        raise AssertionError("documentation only")

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Set aside the resources that the pod will use. Called when it was assumed on a node.

        A rejection undoes the whole attempt.
        """
        raise AssertionError("documentation only")

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Undo ``reserve``. This method must not fail. It is also called if ``reserve`` never ran."""
        raise AssertionError("documentation only")

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | tuple[Status | None, float] | None:
        """Allow, reject or hold the pod, at the end of the scheduling cycle.

        ``(Status.wait(), seconds)`` holds the pod until the plugin allows or rejects it. The end of the time rejects
        it, too.
        """
        raise AssertionError("documentation only")

    # -- binding cycle ---------------------------------------------------------------------------------

    def pre_bind_pre_flight(
        self, state: CycleState, pod: PodInfo, node_name: str
    ) -> Status | tuple[PreBindPreFlight | None, Status | None] | None:
        """Return Success if ``pre_bind`` will have work to do, else Skip. There must be no side effects."""
        raise AssertionError("documentation only")

    def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Awaitable[Status | None] | Status | None:
        """Do the work that must be done before the binding. The method may be ``async``."""
        raise AssertionError("documentation only")

    def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Awaitable[Status | None] | Status | None:
        """Write the binding to the API server. Skip leaves it to the next Bind plugin. The method may be ``async``.

        While 256 Bind plugins have not answered, no further pod is decided, except pods with extenders.
        """
        raise AssertionError("documentation only")

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Take note that the pod is bound. Nothing depends on the answer."""
        raise AssertionError("documentation only")
