"""Handle of plugins: the scheduler's services for them (see ``framework.interface.Handle``)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kubesched.api.types import Pod
from kubesched.base.tasks import Supervisor
from kubesched.base.times import Clock

from ..config import DEFAULT_GATES, FeatureGates
from ..framework.interface import ObjectHandler, Recorder
from ..framework.preemption import PreemptionExtender
from ..framework.runtime import Framework
from ..framework.waiting import PodsInPreBind, WaitingPods
from ..nodes import Snapshot
from ..nodes.nominating import Nominations, NoNominations
from ..nodes.pod_groups import PodGroupStates
from ..queue import SchedulingQueue
from .status_writer import StatusWriter

__all__ = ["Backends", "PluginRequests", "ProfileHandle"]


@dataclass(frozen=True, slots=True)
class Backends:
    """Services behind the handles of all profiles.

    Attributes:
        clock, random, snapshot, client, gates, waiting_pods, pods_in_pre_bind, extenders, live_pod, clear_nomination,
            spawn: see :class:`~kubesched.scheduler.framework.interface.Handle`.
        recorder: returns the recorder of events for a scheduler name.
        activate: moves pods (by ``namespace/name``) to the active queue.
        nominations: returns the queue's nominator.
        informed: returns the objects of a watched kind, by key.
        informed_in: returns the objects of a kind (plural) in a namespace.
        watch: starts to watch a kind (plural) and delivers its changes to a handler. The last argument is True if the
            handler relays the changes to the queue.
        pod_groups: members of pod groups, see :class:`~kubesched.scheduler.framework.interface.Handle`.
        node_changed: marks a node as changed in the journal.
        parts: objects that plugins share, by name.
    """

    clock: Clock
    random: random.Random
    snapshot: Snapshot
    client: Any = None
    gates: FeatureGates = DEFAULT_GATES
    waiting_pods: WaitingPods = field(default_factory=WaitingPods)
    pods_in_pre_bind: PodsInPreBind = field(default_factory=PodsInPreBind)
    extenders: Sequence[PreemptionExtender] = ()
    recorder: Callable[[str], Recorder] = lambda scheduler_name: _NoRecorder()
    live_pod: Callable[[Pod], Pod | None] = lambda pod: pod
    clear_nomination: Callable[[Pod, str], None] = lambda pod, node_name: None
    spawn: Callable[[Coroutine[Any, Any, None], str], None] = lambda work, name: work.close()
    activate: Callable[[Mapping[str, Pod]], None] = lambda pods: None
    nominations: Callable[[], Nominations] = NoNominations
    informed: Callable[[str], Mapping[str, Any]] = lambda kind: {}
    informed_in: Callable[[str, str], Sequence[Any]] = lambda kind, namespace: ()
    watch: Callable[[str, ObjectHandler, bool], None] = lambda kind, handler, relays: None
    node_changed: Callable[[str], None] = lambda name: None
    pod_groups: PodGroupStates | None = None
    parts: dict[str, Any] = field(default_factory=dict)


class _NoRecorder:
    """Recorder that drops all events."""

    def record(self, regarding: Any, type: str, reason: str, action: str, note: str, related: Any = None) -> None:  # noqa: A002 - upstream's word
        return


class ProfileHandle:
    """Handle of one profile's plugins, on top of the shared backends."""

    #: Assigned when the profile is built.
    framework: Framework

    def __init__(self, profile_name: str, backends: Backends) -> None:
        self.profile_name = profile_name
        self._backends = backends

    @property
    def clock(self) -> Clock:
        return self._backends.clock

    @property
    def random(self) -> random.Random:
        return self._backends.random

    @property
    def snapshot(self) -> Snapshot:
        return self._backends.snapshot

    @property
    def waiting_pods(self) -> WaitingPods:
        return self._backends.waiting_pods

    @property
    def pods_in_pre_bind(self) -> PodsInPreBind:
        return self._backends.pods_in_pre_bind

    @property
    def extenders(self) -> Sequence[PreemptionExtender]:
        return self._backends.extenders

    @property
    def pod_groups(self) -> PodGroupStates | None:
        return self._backends.pod_groups

    @property
    def recorder(self) -> Recorder:
        return self._backends.recorder(self.profile_name)

    @property
    def client(self) -> Any:
        return self._backends.client

    def live_pod(self, pod: Pod) -> Pod | None:
        return self._backends.live_pod(pod)

    def clear_nomination(self, pod: Pod, node_name: str) -> None:
        self._backends.clear_nomination(pod, node_name)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._backends.spawn(work, name)

    def gate(self, name: str) -> bool:
        return self._backends.gates.enabled(name)

    def activate(self, pods: Mapping[str, Pod]) -> None:
        self._backends.activate(pods)

    @property
    def nominations(self) -> Nominations:
        return self._backends.nominations()

    def informed(self, kind: str) -> Mapping[str, Any]:
        return self._backends.informed(kind)

    def informed_in(self, kind: str, namespace: str) -> Sequence[Any]:
        return self._backends.informed_in(kind, namespace)

    def watch(self, kind: str, handler: ObjectHandler, *, relays: bool = False) -> None:
        self._backends.watch(kind, handler, relays)

    def shared(self, name: str, make: Callable[[], Any]) -> Any:
        parts = self._backends.parts
        if name not in parts:
            parts[name] = make()
        return parts[name]

    def node_changed(self, node_name: str) -> None:
        self._backends.node_changed(node_name)

    def ask_again(self) -> None:
        self._backends.snapshot.table.ask_again()


class PluginRequests:
    """Requests of plugins to the queue and the status writer.

    Plugins are built before the queue, because the queue is built from them. So this object is made first, gets its
    queue with :meth:`connect`, and fulfils requests from then on.
    """

    _queue: SchedulingQueue
    _statuses: StatusWriter

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._tasks: set[asyncio.Task[None]] = set()

    def connect(self, queue: SchedulingQueue, statuses: StatusWriter) -> None:
        """Set the parts that fulfil the requests. Call it before the first cycle."""
        self._queue, self._statuses = queue, statuses

    def nominations(self) -> Nominations:
        return self._queue.nominator

    def activate(self, pods: Mapping[str, Pod]) -> None:
        self._queue.activate(pods)

    def clear_nomination(self, pod: Pod, node_name: str) -> None:
        self._queue.end_nomination(pod)
        # The informer's pod may not show the field yet, and then nothing would be written. Filled in here, the field
        # is always cleared.
        status = msgspec.structs.replace(pod.status, nominated_node_name=node_name)
        self._statuses.write(msgspec.structs.replace(pod, status=status), None, "")

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self._supervisor.spawn(work, name, lasting=False)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def busy(self) -> bool:
        """True while tasks of plugins are under way."""
        return bool(self._tasks)

    async def finish(self) -> None:
        """Wait for the tasks of plugins."""
        if self._tasks:
            await asyncio.wait(self._tasks)
