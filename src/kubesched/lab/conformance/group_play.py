"""Player of scenarios with pod groups: the recorded operations are done to an embedded cluster, step by step.

The scheduler's informers and queue run, but its loop does not: pods are popped here, in rounds. Between two rounds the
clock jumps over every backoff. Time is virtual, so nothing but the operations decides the outcome.

Called by :mod:`.groups`. The format is described in the README next to the golden files.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from kubesched.api.kinds import POD_GROUPS, PODS, RESOURCE_CLAIMS, Kind, kind_of
from kubesched.api.types import Pod
from kubesched.api.wire import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, ApiError
from kubesched.client.port import ApiPort
from kubesched.cluster.store import InProcessClient, Store
from kubesched.scheduler.config import API_VERSION, KIND, FeatureGates, load_config_data
from kubesched.scheduler.framework.registry import Registry
from kubesched.scheduler.scheduler import Scheduler

from ..simulate.run.virtual_time import VirtualClock

__all__ = ["Event", "Player"]

JSON = dict[str, Any]

_PATCHES: Final = {"merge": MERGE_PATCH, "json": JSON_PATCH, "strategic": STRATEGIC_PATCH}
#: Backoff after each failure, and the time by which the clock jumps between rounds, in seconds.
_BACKOFF: Final = 30
_JUMP: Final = 32
#: Admission as it was in the recordings: objects are stored as they are given.
_ADMISSION: Final[dict[str, Any]] = {"auto_namespaces": True, "default_tolerations": False, "priority_admission": False}
_MOST_ROUNDS: Final = 9
#: Most cycles of a round: a scheduler that goes on and on is a failure.
_MOST_CYCLES: Final = 500
#: Turns of the event loop after which everything has been delivered.
_TURNS: Final = 12
#: Most pauses, and the seconds of each, in which writes that met a conflict are repeated. Pods at Permit wait longer.
_PAUSES: Final = 50
_PAUSE: Final = 0.02


@dataclass(frozen=True, slots=True)
class Event:
    """Event that the scheduler recorded, with the objects themselves."""

    regarding: Any
    related: Any
    type: str
    reason: str
    action: str
    note: str


class _Recorder:
    def __init__(self, events: list[Event]) -> None:
        self._events = events

    def record(self, regarding: Any, type: str, reason: str, action: str, note: str, related: Any = None) -> None:  # noqa: A002 - upstream's word
        self._events.append(Event(regarding, related, type, reason, action, note))


class _Port(ApiPort):
    """API port that keeps events here instead of sending them."""

    def __init__(self, store: Store, clock: VirtualClock) -> None:
        super().__init__(InProcessClient(store), clock=clock, rng=random.Random(1))
        self.recorded: list[Event] = []

    def informer(self, kind: Kind, field_selector: str = "", **options: Any) -> Any:
        return super().informer(kind, field_selector, watch_timeout=None, **options)

    def recorder(self, scheduler_name: str) -> Any:
        return _Recorder(self.recorded)


@dataclass(slots=True)
class Player:
    """Cluster and scheduler of one scenario.

    Attributes:
        store: the cluster.
        created: ``namespace/name`` of each pod that operations created, with (number of the phase, object).
        named: keys of pods that operations other than their creation name.
        deleted: keys of pods that operations deleted.
        retries: True if members that wait for an event are tried in every round, as in a backoff queue.
        uids: UID of every object that was created, by its kind and key.
    """

    store: Store
    port: _Port
    scheduler: Scheduler
    phase: int = -1
    created: dict[str, tuple[int, JSON]] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    uids: dict[str, str] = field(default_factory=dict)
    retries: bool = False

    @classmethod
    def of(cls, scenario: Mapping[str, Any], registry: Registry, gates: FeatureGates, seed: int = 0) -> Player:
        """Build cluster and scheduler. Call it in a loop of virtual time. ``seed`` decides between equal nodes.

        Raises:
            ConfigError: when the scheduler does not start with this configuration.
        """
        data = scenario.get("config") or {"apiVersion": API_VERSION, "kind": KIND}
        config = msgspec.structs.replace(
            load_config_data(data, gates=gates),
            pod_initial_backoff_seconds=_BACKOFF,
            pod_max_backoff_seconds=_BACKOFF,
        )
        clock = VirtualClock(asyncio.get_running_loop())
        store = Store(clock, random=random.Random(2), **_ADMISSION)
        port = _Port(store, clock)
        scheduler = Scheduler(config, registry, port, clock=clock, rng=random.Random(seed), gates=gates)
        operations = [operation for phase in scenario["phases"] for operation in phase["ops"]]
        named = {f"{each.get('namespace', '')}/{each['name']}" for each in operations if each.get("kind") == PODS.kind}
        return cls(store, port, scheduler, named=named)

    # -- operations ------------------------------------------------------------------------------------

    async def play(self, phase: Mapping[str, Any]) -> tuple[list[JSON], list[Event]]:
        """Do the operations of a phase, and run the rounds. Return the answers, and the events of the phase."""
        self.phase += 1
        self.port.recorded.clear()
        answers = []
        for operation in phase["ops"]:
            answers.append(self._answer(operation))
            await self._settle()
        await self._rounds()
        return answers, list(self.port.recorded)

    def _answer(self, operation: JSON) -> JSON:
        try:
            return self._do(operation)
        except ApiError as error:
            causes = [
                {name: value for name, value in cause.items() if name in ("reason", "field", "message")}
                for cause in error.details.get("causes", ())
            ]
            answer = {"code": error.code, "reason": error.reason, "message": error.message}
            return {**answer, "causes": causes} if causes else answer

    def _do(self, operation: JSON) -> JSON:
        if operation["op"] == "create":
            return self._create(operation["object"])
        namespace, name = operation.get("namespace", ""), operation["name"]
        kind = _kind_named(operation["kind"])
        key = f"{namespace}/{name}"
        if operation["op"] == "patch":
            format_, subresource = _PATCHES[operation.get("patchType", "merge")], operation.get("subresource", "")
            patch = operation["patch"]
            item = self.store.patch(kind, namespace, name, patch, patch_type=format_, subresource=subresource)
            return _code(200, kind, item)
        if operation["op"] == "delete":
            grace = operation.get("gracePeriodSeconds")
            self.store.delete(kind, namespace, name, grace_period_seconds=grace)
            if kind == PODS:
                self.deleted.add(key)
            return {"code": 200}
        raise ValueError(f"operation {operation['op']!r} is not known")

    def _create(self, obj: JSON) -> JSON:
        kind = kind_of(obj["apiVersion"], obj["kind"])
        if kind is None:
            raise ValueError(f"kind {obj['kind']!r} is not known")
        metadata = obj["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        item = self.store.create(kind, namespace, obj)
        key = f"{namespace}/{name}" if namespace else name
        if kind == PODS:
            self.created[key] = self.phase, obj
            self.deleted.discard(key)
        if status := obj.get("status"):
            self.store.patch(kind, namespace, name, {"status": status}, patch_type=MERGE_PATCH, subresource="status")
        self.uids[item.typed.metadata.uid if not isinstance(item.typed, dict) else item.typed["metadata"]["uid"]] = (
            f"{kind.kind.lower()} {key}"
        )
        return _code(201, kind, item)

    # -- rounds ----------------------------------------------------------------------------------------

    async def start(self) -> None:
        await self.scheduler.start()
        await self._settle()

    async def _settle(self) -> None:
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        for _ in range(_PAUSES):
            if not self.scheduler.busy:
                return
            await asyncio.sleep(_PAUSE)

    async def _rounds(self) -> None:
        await self._settle()
        seen, quiet = self._state(), 0
        for number in range(_MOST_ROUNDS):
            if number:
                await asyncio.sleep(_JUMP)
                await self._settle()
                if self.retries:
                    self._retry()
            cycles = await self._cycles()
            state = self._state()
            quiet = quiet + 1 if state == seen else 0
            seen = state
            views = self.scheduler.queue.views
            queued = views.pods_in_active() or views.pods_in_backoff() or (self.retries and self._waiting())
            if not number and not queued:
                return
            if number and ((not cycles and quiet) or quiet > 1):
                return

    def _retry(self) -> None:
        """Have the waiting members tried whatever has changed, as after five minutes."""
        queue, waiting = self.scheduler.queue, self._waiting()
        for pod in waiting.values():
            record = queue.views.get_pod(pod.name, pod.namespace)
            if record is not None:
                record.was_flushed_from_unschedulable = True
        queue.activate(waiting)

    def _waiting(self) -> dict[str, Pod]:
        """Return the members of groups that were tried and wait for an event, by key."""
        views = self.scheduler.queue.views
        waiting = [pod for pod in views.unschedulable_pods() if pod.spec.scheduling_group is not None]
        return {pod.key: pod for pod in waiting if views.where(pod) == "Unschedulable"}

    async def _cycles(self) -> int:
        queue, cycles = self.scheduler.queue, 0
        while queue.views.pods_in_active():
            queued = queue.pop_nowait()
            if queued is None:
                break
            cycles += 1
            if cycles > _MOST_CYCLES:
                raise RuntimeError(f"the round does not end: more than {_MOST_CYCLES} cycles")
            rest = self.scheduler.schedule_one(queued)
            if rest is not None:
                await rest
            await self._settle()
        return cycles

    def _state(self) -> list[tuple[str, str, str]]:
        return [
            (kind.plural, item.metadata.uid, item.metadata.resource_version)
            for kind in (PODS, POD_GROUPS, RESOURCE_CLAIMS)
            for item in (each.typed for each in self.store.list(kind).items)
        ]


def _kind_named(name: str) -> Kind:
    for api_version in ("v1", "scheduling.k8s.io/v1alpha2", "policy/v1", "resource.k8s.io/v1", "storage.k8s.io/v1"):
        if (kind := kind_of(api_version, name)) is not None:
            return kind
    raise ValueError(f"kind {name!r} is not known")


def _code(code: int, kind: Kind, item: Any) -> JSON:
    if kind != POD_GROUPS:
        return {"code": code}
    return {"code": code, "spec": item.data()["spec"]}
