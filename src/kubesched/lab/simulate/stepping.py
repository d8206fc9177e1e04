"""Simulation in steps: from moment to moment of virtual time, with queue and nodes to look into.

The run is :func:`.run.simulation.simulate`, unchanged, on a virtual-time loop that stands still between the calls.
Callers: programs and notebooks, as ``kubesched.Simulation``.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, TypeVar, Unpack

from kubesched.api.types import Pod
from kubesched.cluster.files import Manifests
from kubesched.explain import Explanation

from .embedded import Embedded
from .entry import Options, arguments_text, options_of, seconds_of, shown_signature
from .inputs.events import NodeChoice, PlannedEvent, kind_named, node_choice
from .inputs.given import Objects, manifests_of
from .inputs.intake import gather
from .inputs.storing import apply_objects
from .planning.buying import EFFORT
from .planning.capacity import MOST, capacity_now, capacity_of, copied, missing_objects
from .planning.capacity_report import Capacity
from .planning.entry import CapacityResult, Groups, PlanResult, asked_of, groups_of
from .planning.plan import demanded, plan_of
from .planning.removing import removal_of
from .results.outcome import node_uses
from .results.result import DrainReport, NodeUse, Refusal, Stopped
from .results.views import SimulationResult
from .run.own_thread import outside_any_loop
from .run.simulation import Session, simulate
from .run.virtual_time import VirtualTimeLoop, close

__all__ = ["QueuedPod", "Simulation"]

T = TypeVar("T")


class QueuedPod(NamedTuple):
    """Pod in the scheduling queue."""

    namespace: str
    name: str
    #: ``Active``, ``Backoff``, ``Unschedulable``, ``Gated`` or ``InFlight``.
    place: str
    attempts: int
    #: Plugins that rejected it at its last attempt.
    rejected_by: tuple[str, ...]
    #: End of its backoff, in virtual seconds since the start; None when it is not backing off.
    retry_at: float | None


class Simulation:
    """Simulated cluster under way. The arguments are those of ``kubesched.simulate``.

    When a new object is returned, everything at time 0 has happened: pods that fit are bound. Between calls time stands
    still. As a context manager it closes itself; ``until`` is where :meth:`run` ends.

    Raises:
        ManifestError, ConfigError, PluginError, ValueError: see ``kubesched.simulate``.
        TaskCrashedError: here and in every method, when a part of the simulated cluster crashed.
    """

    def __init__(self, manifests: Objects = (), **options: Unpack[Options]) -> None:
        arguments = options_of(manifests, **options)
        self._arguments = arguments
        self._engine = _Engine(arguments)
        self._close = weakref.finalize(self, self._engine.close)
        try:
            self._do(self._session.quiet)
        except BaseException:
            self.close()
            raise

    # -- time ------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Virtual seconds since the start."""
        return self._session.now

    def step(self) -> bool:
        """Move to the next moment at which something happens, and do all of it. False when nothing will move again."""
        return self._do(self._session.step)

    def advance(self, time: str | float) -> float:
        """Let time pass: seconds, or a text such as ``"10m"``. Returns :attr:`now`.

        Raises:
            ValueError: when it is no time.
        """
        seconds = seconds_of("time", time)

        self._do(lambda: self._session.advance(seconds))
        return self.now

    def run(self, until: str | float | None = None) -> SimulationResult:
        """Go on until nothing moves any more, at most until that time since the start. More may be done afterwards.

        Raises:
            ValueError: when ``until`` is no time.
        """
        end = self._session.until if until is None else seconds_of("until", until)
        self._engine.stopped = self._do(lambda: self._session.until_settled(end))
        return self.result()

    # -- changes ---------------------------------------------------------------------------------------

    def create(self, objects: Objects) -> list[Refusal]:
        """Create objects now, as a user of the API would; workloads become pods. Returns the pods that were refused.

        Raises:
            ManifestError: for objects that cannot be used, and when anything but a pod is refused; nothing is created
                then.
        """
        intake = gather(
            manifests_of(objects, "objects"),
            present=self.embedded.nodes(),
            controllers=self._session.controllers,
            features=self.embedded.store.admission.features,
        )
        return self._do_now(lambda: self._session.create(intake))

    def delete(self, kind: str, name: str, namespace: str = "default") -> None:
        """Delete an object now: ``delete("Pod", "web-1")``, ``delete("Node", "n1")``.

        Raises:
            ValueError: when no kind has this name.
            ApiError: when there is no such object.
        """
        found = kind_named(str(kind))
        if found is None:
            raise ValueError(f"no kind is named {kind!r}; write for example 'Pod' or 'Node'")
        where = namespace if found.namespaced else ""
        self._do_now(lambda: self.embedded.store.delete(found, where, name))

    def apply(self, objects: Objects) -> list[Refusal]:
        """Create objects that are not there, and change those that are, as ``kubectl apply``. Returns refused pods.

        Only controllers carry out a change of a workload: with ``controllers=True``, or for Jobs.

        Raises:
            ManifestError: for objects that cannot be used; nothing is created then. A change that is refused is
                named, and earlier ones stay.
        """
        given = manifests_of(objects, "objects")
        tables = self.embedded.store.table
        known = [one for one in given.objects if (one.namespace, one.name) in tables(one.kind).objects]
        fresh = Manifests([one for one in given.objects if one not in known], given.warnings, given.problems)
        refused = self.create(fresh)
        self._do_now(lambda: apply_objects(self.embedded.store, known))
        return refused

    # -- nodes -----------------------------------------------------------------------------------------

    def drain(self, nodes: Any, *, force: bool = False, timeout: str | float | None = None) -> list[DrainReport]:
        """Cordon nodes and evict their pods, as disruption budgets allow: the first pods now, others as time passes.

        Args:
            nodes: a name, a list of names with wildcards, or a mapping such as ``{"zone": "zone-b"}``.
            force: True evicts pods without a controller, too; otherwise they block the drain.
            timeout: seconds, or a text such as ``"10m"``, after which it gives up.

        Returns:
            The state of each drain; ``result().events`` has it at any later time.

        Raises:
            ManifestError: when ``nodes`` is no choice of nodes.
            ValueError: when no node matches, or ``timeout`` is no time.
        """
        seconds = None if timeout is None else seconds_of("timeout", timeout)
        self._act("drain", nodes, force=force, timeout=seconds)
        return self._session.events()[-1].drains

    def cordon(self, nodes: Any) -> list[str]:
        """Keep new pods off nodes. Returns their names; for ``nodes`` and errors see :meth:`drain`."""
        return self._act("cordon", nodes)

    def uncordon(self, nodes: Any) -> list[str]:
        """Let nodes take new pods again. Returns their names; for ``nodes`` and errors see :meth:`drain`."""
        return self._act("uncordon", nodes)

    def fail(self, nodes: Any) -> list[str]:
        """Make nodes stop responding: they are NotReady after 40 s, and lose their pods after another 300 s.

        Returns their names; for ``nodes`` and errors see :meth:`drain`.
        """
        return self._act("fail", nodes)

    def recover(self, nodes: Any) -> list[str]:
        """Bring failed nodes back. Returns their names; for ``nodes`` and errors see :meth:`drain`."""
        return self._act("recover", nodes)

    def _act(self, action: str, nodes: Any, **details: Any) -> list[str]:
        choice: NodeChoice = node_choice(nodes)
        if not any(choice.matches(node) for node in self.embedded.nodes()):
            raise ValueError(f"no node matches {choice.text}")
        event = PlannedEvent(self.now, action, choice, None, details, action)
        return self._do(lambda: self._session.act(event))

    # -- looking ---------------------------------------------------------------------------------------

    @property
    def pods(self) -> list[Pod]:
        """All pods in the store, in the order of namespace and name."""
        return sorted(self.embedded.pods(), key=lambda pod: (pod.namespace, pod.name))

    @property
    def nodes(self) -> list[NodeUse]:
        """All nodes by name, with the requests on them, from the scheduler's cache."""
        return node_uses(self.embedded)

    def explain(self, *pods: str, node: str | Sequence[str] = ()) -> Explanation:
        """Explain pods now: ``explain("web-1", "shop/web-2")``; without names, all pods that have no node.

        ``node`` names nodes to compare with. Evicted pods are explained, too.

        Raises:
            ValueError: when there is no such pod or node.
        """
        names = [name if "/" in name else f"default/{name}" for name in pods]
        against = [node] if isinstance(node, str) else list(node)
        known = {one.name for one in self.embedded.nodes()}
        found = self._session.explain(names, against)
        if found.absent:
            raise ValueError(f"there is no such pod or pod group: {', '.join(found.absent)}")
        if unknown := [name for name in against if name not in known]:
            raise ValueError(f"there is no such node: {', '.join(unknown)}")
        return found

    def capacity(
        self,
        pods: Objects,
        *,
        mix: Mapping[str, int] | None = None,
        until_full: bool = False,
        preemption: bool = False,
        most: int = MOST,
    ) -> CapacityResult:
        """Count how many more of some pods fit now: see ``kubesched.capacity``. The simulation stays as it is.

        Raises:
            ManifestError, ValueError: see ``kubesched.capacity``.
        """
        question, counting = asked_of(pods, mix=mix, until_full=until_full, preemption=preemption, most=most)
        arguments = self._copy()
        here = not preemption and not missing_objects(self.embedded, question)

        async def now() -> Capacity | None:
            return capacity_now(self.embedded, question, counting, arguments["gates"]) if here else None

        found = self._do(now)
        if found is None:
            found = outside_any_loop(lambda: capacity_of(arguments, question, counting))
        return CapacityResult.of(found)

    def plan(
        self,
        groups: Groups = (),
        demand: Objects = (),
        *,
        catalogue: str | os.PathLike[str] | None = None,
        remove: bool = False,
        effort: int = EFFORT,
    ) -> PlanResult:
        """Find nodes to add for the pods that have none now, or to remove: see ``kubesched.plan``.

        The simulation stays as it is.

        Raises:
            ManifestError, ValueError: see ``kubesched.plan``.
        """
        kinds = groups_of(groups, catalogue)
        if not kinds and not remove:
            raise ValueError("groups: give the kinds of nodes that can be added")
        arguments = demanded(self._copy(), manifests_of(demand, "demand"))
        find = removal_of if remove else plan_of
        return PlanResult.of(outside_any_loop(lambda: find(arguments, kinds, effort)))

    def _copy(self) -> dict[str, Any]:
        """Return the arguments of a simulation that starts with the cluster as it is now."""
        arguments = {**self._arguments, "manifests": self._do_now(lambda: copied(self.embedded))}
        # New pods of the copy must not get the UIDs of the pods that there are.
        return arguments | {"nodes": 0, "stages": (), "until": None, "seed": ~self._arguments["seed"]}

    @property
    def queue(self) -> list[QueuedPod]:
        """Pods in the scheduling queue: active ones first, then those in backoff, then those that wait for an event."""
        queue = self.embedded.scheduler.queue
        views = queue.views
        start = self.embedded.clock.now() - self.now
        found = []
        for pod in (*views.pods_in_active(), *views.pods_in_backoff(), *views.unschedulable_pods()):
            record = views.get_pod(pod.name, pod.namespace)
            if record is None:
                continue
            retry = record.backoff_expiration
            found.append(
                QueuedPod(
                    namespace=pod.namespace,
                    name=pod.name,
                    place=views.where(pod),
                    attempts=record.attempts,
                    rejected_by=tuple(sorted(record.unschedulable_plugins | record.pending_plugins)),
                    retry_at=None if retry is None else round(retry - start, 6),
                )
            )
        return found

    @property
    def embedded(self) -> Embedded:
        """The cluster itself, with ``store``, ``scheduler.queue``, ``scheduler.cache`` and everything else."""
        return self._session.embedded

    def result(self) -> SimulationResult:
        """Return the report of ``kubesched.simulate`` if the run ended now."""
        stopped = self._engine.stopped

        async def report() -> SimulationResult:
            return SimulationResult.of(self._session.complete(self._session.look(stopped)))

        return self._do(report)

    # -- the end ---------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop the cluster. May be called twice."""
        self._close()

    def __enter__(self) -> Simulation:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def _session(self) -> Session:
        return self._engine.session

    def _do(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return outside_any_loop(lambda: self._engine.do(work()))

    def _do_now(self, change: Callable[[], T]) -> T:
        """Make a change, and do everything that follows from it now."""

        async def make() -> T:
            answer = change()
            await self._session.quiet()
            return answer

        return self._do(make)


Simulation.__signature__ = shown_signature(returns=inspect.Signature.empty)  # type: ignore[attr-defined]
if Simulation.__doc__:  # Python leaves docstrings out with -OO
    Simulation.__doc__ = Simulation.__doc__.replace("    Raises:", f"{arguments_text()}    Raises:", 1)


class _Engine:
    """Loop and run of a simulation.

    It does not refer to the user's :class:`Simulation`, so that a forgotten simulation can be collected.
    """

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.stopped: Stopped = "until"
        self._loop = VirtualTimeLoop()
        self._ready: asyncio.Future[Session] = self._loop.create_future()
        self._end: asyncio.Future[None] = self._loop.create_future()
        self._run = self._loop.create_task(simulate(**arguments, drive=self._drive), name="simulation")
        try:
            self.session = outside_any_loop(lambda: self.do(self._started()))
        except BaseException:
            self.close()
            raise

    async def _drive(self, session: Session) -> Stopped:
        self._ready.set_result(session)
        await self._end
        return self.stopped

    async def _started(self) -> Session:
        return await self._ready

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run some work on the loop to its end.

        Raises:
            TaskCrashedError: when a part crashed; other errors that end the simulation are raised as well.
        """
        if self._loop.is_closed():
            work.close()
            raise RuntimeError("the simulation is closed")
        return self._loop.run_until_complete(self._unless_ended(work))

    async def _unless_ended(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(work)
        await asyncio.wait((task, self._run), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        task.cancel()
        await asyncio.wait((task,))
        self._run.result()  # raises the error of the run
        raise RuntimeError("the simulation has ended")

    def close(self) -> None:
        """End the run, in any state."""
        if not self._loop.is_closed():
            outside_any_loop(lambda: close(self._loop))
