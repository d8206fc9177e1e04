"""One scheduling profile: the plugins of each extension point, and the runner that calls them.

There is one way to call a plugin (:meth:`Framework.call`) and one loop for the points whose plugins answer
one after the other with a status (:meth:`Framework._run`); the table in :mod:`.points` says how their
answers are treated. PreFilter, PostFilter and Permit merge answers and have their own few lines.

Filter and Score over many nodes are driven by the decision core in ``scheduler``; here are their entries.

Source: spec "Scheduling framework" section 4 (upstream ``frameworkImpl``).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kubesched.api.tasks import child
from kubesched.config.errors import ConfigError

from .cycle_state import CycleState
from .entries import FilterEntry, PluginFailedError, ScoreEntry, failed
from .interface import Handle, NodeToStatus, PostFilterResult, PreBindPreFlight
from .metrics import SchedulerMetrics
from .nodeinfo import NodeInfo
from .nominating import NominatingInfo, NominatingMode
from .podinfo import PodInfo
from .points import BIND, PERMIT, POINTS, PRE_BIND, PRE_ENQUEUE, PRE_SCORE, RESERVE, Point
from .queued import QueuedPodInfo
from .registry import PluginFactory
from .status import Code, Status, is_success

if TYPE_CHECKING:
    from kubesched.cache import NodeList, NodeTable

__all__ = ["Framework", "PreFilterOutcome"]

_log = logging.getLogger("kubesched.framework")

#: A Permit plugin cannot hold a pod longer than this (seconds).
MAX_PERMIT_WAIT: Final = 15 * 60.0


@dataclass(slots=True)
class PreFilterOutcome:
    """What all PreFilter plugins said together.

    ``nodes`` are the only node names worth filtering (None: all); ``restricting`` the plugins that said so;
    ``status`` a rejection of the whole pod, or None.
    """

    nodes: frozenset[str] | None = None
    status: Status | None = None
    restricting: list[str] = field(default_factory=list)


class Framework:
    """The plugins of one profile, built and put in order."""

    def __init__(
        self,
        profile_name: str,
        points: Mapping[str, Sequence[tuple[str, int]]],
        registry: Mapping[str, PluginFactory],
        args: Callable[[str], Any],
        handle: Handle,
        metrics: SchedulerMetrics,
        *,
        percentage_of_nodes_to_score: int | None = None,
    ) -> None:
        """Build every plugin named in ``points`` (point key to (name, weight) in order) once.

        Raises:
            ConfigError: ``initializing plugin "…": …`` when a plugin cannot be built.
        """
        self.profile_name = profile_name
        self.percentage_of_nodes_to_score = percentage_of_nodes_to_score
        self.metrics = metrics
        self._clock = handle.clock
        self._random = handle.random
        self.plugins: dict[str, Any] = {}
        for name in dict.fromkeys(name for entries in points.values() for name, _ in entries):
            try:
                self.plugins[name] = registry[name](args(name), handle)
            except (Exception, SystemExit) as error:  # whatever a factory raises is a configuration error to the user
                raise ConfigError("framework", [f'initializing plugin "{name}": {error}']) from error
        self._points: dict[str, tuple[Any, ...]] = {
            point.key: tuple(self.plugins[name] for name, _ in points.get(point.key, ())) for point in POINTS
        }
        self.points = {point.key: list(points.get(point.key, ())) for point in POINTS}
        self.filters = tuple(FilterEntry(plugin, index) for index, plugin in enumerate(self._points["filter"]))
        self.scores = tuple(ScoreEntry(self.plugins[name], weight or 1) for name, weight in points.get("score", ()))
        pre_filters = self._points["preFilter"]
        self._with_extensions = tuple(plugin for plugin in pre_filters if hasattr(plugin, "add_pod"))
        self._durations: dict[tuple[str, Code], Any] = {}

    # -- calling ---------------------------------------------------------------------------------------

    def call(self, state: CycleState, point: str, plugin: Any, method: str, *args: Any) -> Any:
        """Call one plugin's method; sampled attempts record its duration.

        Raises:
            PluginFailedError: when the plugin raises.
        """
        try:
            if not state.record_plugin_metrics:
                return getattr(plugin, method)(*args)
            start = self._clock.now()
            result = getattr(plugin, method)(*args)
            code = result.code if isinstance(result, Status) else Code.SUCCESS
            elapsed = self._clock.now() - start
            self.metrics.plugin_execution_duration_seconds.observe(elapsed, plugin.name, point, code.label)
        except PluginFailedError:
            raise
        except (Exception, SystemExit) as error:
            _log.exception("plugin %s failed in %s", plugin.name, method)
            raise PluginFailedError(plugin.name, error) from error
        return result

    def observe(self, point: str, code: Code, seconds: float) -> None:
        """Record how long all plugins of a point took."""
        child = self._durations.get((point, code))
        if child is None:
            family = self.metrics.framework_extension_point_duration_seconds
            child = self._durations[point, code] = family.labels(point, code.label, self.profile_name)
        child.observe(seconds)

    def observe_success(self, point: str, seconds: float) -> None:
        self.observe(point, Code.SUCCESS, seconds)

    def now(self) -> float:
        return self._clock.now()

    def _status(self, point: Point, plugin: Any, answer: Any) -> Status | None:
        """An answer as a status; anything else a plugin may have returned is a failure."""
        if answer is None or isinstance(answer, Status):
            return answer
        return Status.from_error(TypeError(f"returned {answer!r} from {point.methods[0]}; expected None or a Status"))

    def _run(
        self,
        point: Point,
        call: Callable[[Any], Any],
        on_answer: Callable[[Any, Status], bool] | None = None,
    ) -> Status | None:
        """Ask the plugins of a point in order until one does not answer Success.

        ``on_answer`` sees each other answer first and returns True to go on with the next plugin. Rejections
        are passed on where the point allows them; everything else becomes an Error that names the plugin.
        """
        plugins = self._points[point.key]
        if not plugins:
            return None
        start = self._clock.now()
        result: Status | None = None
        for plugin in plugins:
            try:
                status = self._status(point, plugin, call(plugin))
            except PluginFailedError as failure:
                status = Status.from_error(failure.error)
            if status is None or status.code is Code.SUCCESS:
                continue
            if on_answer is not None and on_answer(plugin, status):
                continue
            result = self._judge(point, plugin, status)
            break
        self.observe(point.label, Code.SUCCESS if result is None else result.code, self._clock.now() - start)
        return result

    @staticmethod
    def _judge(point: Point, plugin: Any, status: Status) -> Status:
        if point.may_reject and status.is_rejected:
            return status.with_plugin(plugin.name)
        error = status.as_error() or RuntimeError(f"unexpected status {status.code.label}")
        return Status.from_error(failed(point.error, plugin.name, error), plugin.name)

    # -- queue -----------------------------------------------------------------------------------------

    def pre_enqueue_plugins(self) -> dict[str, Callable[[PodInfo], Status | None]]:
        """Plugin name to its PreEnqueue method, in order. What the method raises, and nonsense, is an Error status."""
        return {plugin.name: partial(self._pre_enqueue, plugin) for plugin in self._points["preEnqueue"]}

    def _pre_enqueue(self, plugin: Any, pod: PodInfo) -> Status | None:
        try:
            status = self._status(PRE_ENQUEUE, plugin, plugin.pre_enqueue(pod))
        except (Exception, SystemExit) as error:
            _log.exception("plugin %s failed in pre_enqueue", plugin.name)
            status = Status.from_error(error)
        if status is None or status.code is Code.SUCCESS:
            return None
        return self._judge(PRE_ENQUEUE, plugin, status)

    @property
    def queue_sort(self) -> Any:
        """The profile's QueueSort plugin."""
        return self._points["queueSort"][0]

    def less(self, first: QueuedPodInfo, second: QueuedPodInfo) -> bool:
        return bool(self.queue_sort.less(first, second))

    def event_plugins(self) -> list[Any]:
        """The plugins whose rejections can be lifted by cluster events, in order of first use."""
        keys = ("preEnqueue", "preFilter", "filter", "reserve", "permit")
        return list(dict.fromkeys(plugin for key in keys for plugin in self._points[key]))

    # -- scheduling cycle ------------------------------------------------------------------------------

    def pre_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeList, only: Container[str] | None = None
    ) -> PreFilterOutcome:
        """Ask the PreFilter plugins (all, or those named in ``only``); merge the nodes they allow (spec section 4.5).

        Plugins that answer Skip are added to ``state.skip_filter``.

        Raises:
            PluginFailedError: when a plugin fails or answers what PreFilter must not.
        """
        start = self._clock.now()
        outcome = PreFilterOutcome()
        skipped: set[str] = set()
        try:
            for plugin in self._points["preFilter"]:
                if only is not None and plugin.name not in only:
                    continue
                answer = self.call(state, "PreFilter", plugin, "pre_filter", state, pod, nodes)
                if answer is None:
                    continue
                if isinstance(answer, frozenset | set):
                    self._restrict(outcome, plugin.name, frozenset(answer))
                    if outcome.nodes is not None and not outcome.nodes:
                        break
                elif isinstance(answer, Status) and answer.code is Code.SKIP:
                    skipped.add(plugin.name)
                elif isinstance(answer, Status) and answer.code is Code.SUCCESS:
                    continue
                elif isinstance(answer, Status) and answer.code is Code.UNSCHEDULABLE:
                    # The others still run: preemption may follow and needs their state.
                    outcome.status = answer.with_plugin(plugin.name)
                elif isinstance(answer, Status) and answer.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                    outcome = PreFilterOutcome(status=answer.with_plugin(plugin.name))
                    break
                elif isinstance(answer, Status):
                    error = answer.as_error() or RuntimeError(f"unexpected status {answer.code.label}")
                    raise PluginFailedError(plugin.name, error)
                else:
                    problem = (
                        f"returned {answer!r} from pre_filter; expected None, a Status or a frozenset of node names"
                    )
                    raise PluginFailedError(plugin.name, TypeError(problem))
        except PluginFailedError as failure:
            self.observe("PreFilter", Code.ERROR, self._clock.now() - start)
            raise PluginFailedError(
                failure.plugin, failed("running PreFilter plugin", failure.plugin, failure.error)
            ) from failure
        finally:
            state.skip_filter |= skipped
        code = Code.SUCCESS if outcome.status is None else outcome.status.code
        self.observe("PreFilter", code, self._clock.now() - start)
        return outcome

    @staticmethod
    def _restrict(outcome: PreFilterOutcome, name: str, allowed: frozenset[str]) -> None:
        outcome.restricting.append(name)
        outcome.nodes = allowed if outcome.nodes is None else outcome.nodes & allowed
        if outcome.nodes:
            return
        if len(outcome.restricting) == 1:
            message = f"node(s) didn't satisfy plugin {outcome.restricting[0]}"
        else:
            message = f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(outcome.restricting))}] simultaneously"
        outcome.status = Status.unresolvable(message)

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> None:
        """Tell the PreFilter plugins of a pod added to a node in a what-if.

        Raises:
            PluginFailedError: from the first plugin that fails.
        """
        self._extension("add_pod", "AddPod", state, pod, added, node)

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> None:
        """Tell the PreFilter plugins of a pod removed from a node in a what-if.

        Raises:
            PluginFailedError: from the first plugin that fails.
        """
        self._extension("remove_pod", "RemovePod", state, pod, removed, node)

    def _extension(
        self, method: str, label: str, state: CycleState, pod: PodInfo, other: PodInfo, node: NodeInfo
    ) -> None:
        for plugin in self._with_extensions:
            if plugin.name in state.skip_filter:
                continue
            try:
                answer = self.call(state, "PreFilter", plugin, method, state, pod, other, node)
            except PluginFailedError as failure:
                error = failure.error
            else:
                if answer is None or (isinstance(answer, Status) and answer.code is Code.SUCCESS):
                    continue
                if isinstance(answer, Status):
                    error = answer.as_error() or RuntimeError(f"unexpected status {answer.code.label}")
                else:
                    error = TypeError(f"returned {answer!r} from {method}; expected None or a Status")
            raise PluginFailedError(plugin.name, failed(f"running {label} on PreFilter plugin", plugin.name, error))

    def filter_node(self, state: CycleState, pod: PodInfo, table: NodeTable, node: NodeInfo) -> Status | None:
        """Run the filters on one node; the first rejection, or None.

        Raises:
            PluginFailedError: when a plugin fails.
        """
        for entry in self.filters:
            if entry.name in state.skip_filter:
                continue
            verdict = entry.one(state, pod, table, node)
            if verdict:
                return entry.status(state, pod, verdict)
        return None

    def post_filter(
        self, state: CycleState, pod: PodInfo, statuses: NodeToStatus
    ) -> tuple[PostFilterResult | None, Status | None]:
        """Ask the PostFilter plugins until one makes room (spec section 4.9)."""
        if state.skip_all_post_filter:
            return None, Status.unschedulable("All PostFilter plugins are skipped")
        start = self._clock.now()
        result, status = self._post_filter(state, pod, statuses)
        self.observe("PostFilter", Code.SUCCESS if status is None else status.code, self._clock.now() - start)
        return result, status

    def _post_filter(
        self, state: CycleState, pod: PodInfo, statuses: NodeToStatus
    ) -> tuple[PostFilterResult | None, Status | None]:
        remembered: PostFilterResult | None = None
        reasons: list[str] = []
        first = ""
        for plugin in self._points["postFilter"]:
            try:
                answer = self.call(state, "PostFilter", plugin, "post_filter", state, pod, statuses)
            except PluginFailedError as failure:
                return None, Status.from_error(failure.error, plugin.name)
            if not _is_post_filter_answer(answer):
                problem = (
                    f'plugin "{plugin.name}" returned {answer!r} from post_filter; expected a pair of result and status'
                )
                return None, Status.from_error(TypeError(problem), plugin.name)
            result, status = answer
            if is_success(status):
                return result, status
            if status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                return result, status.with_plugin(plugin.name)
            if not status.is_rejected:
                return None, Status.from_error(status.as_error() or RuntimeError(status.message()), plugin.name)
            first = first or plugin.name
            reasons += status.reasons()
            nominating: NominatingInfo | None = result.nominating if result is not None else None
            if nominating is not None and nominating.mode is NominatingMode.OVERRIDE:
                remembered = result
        return remembered, Status(Code.UNSCHEDULABLE, *reasons, plugin=first)

    @property
    def has_post_filter(self) -> bool:
        return bool(self._points["postFilter"])

    def pre_score(
        self, state: CycleState, pod: PodInfo, nodes: NodeList, only: Container[str] | None = None
    ) -> Status | None:
        """Prepare scoring (all plugins, or those named in ``only``). None on success.

        Plugins that answer Skip are added to ``state.skip_score``.
        """
        skipped: set[str] = set()

        def skip(plugin: Any, status: Status) -> bool:
            if status.code is Code.SKIP:
                skipped.add(plugin.name)
            return status.code is Code.SKIP

        status = self._run(
            PRE_SCORE,
            lambda plugin: (
                self.call(state, "PreScore", plugin, "pre_score", state, pod, nodes)
                if only is None or plugin.name in only
                else None
            ),
            skip,
        )
        state.skip_score |= skipped
        return status

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Run Reserve; on failure the caller runs :meth:`unreserve`."""
        return self._run(RESERVE, lambda plugin: self._reserve(state, plugin, pod, node_name))

    def _reserve(self, state: CycleState, plugin: Any, pod: PodInfo, node_name: str) -> Any:
        if not hasattr(plugin, "reserve"):
            return None
        return self.call(state, "Reserve", plugin, "reserve", state, pod, node_name)

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Undo Reserve for all its plugins in reverse order, also those that never ran. A failure is only logged."""
        for plugin in reversed(self._points["reserve"]):
            if hasattr(plugin, "unreserve"):
                try:
                    self.call(state, "Unreserve", plugin, "unreserve", state, pod, node_name)
                except PluginFailedError:
                    continue  # logged by call; the others still have to be undone

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> tuple[Status | None, dict[str, float]]:
        """Run Permit: (status, plugin to seconds it wants to wait). A Wait status comes with a non-empty map."""
        asked: dict[str, float] = {}
        waiting: dict[str, float] = {}
        last_wait: Status | None = None

        def ask(plugin: Any) -> Any:
            answer = self.call(state, "Permit", plugin, "permit", state, pod, node_name)
            if isinstance(answer, tuple) and len(answer) == 2:
                answer, seconds = answer
                if isinstance(seconds, bool) or not isinstance(seconds, int | float) or math.isnan(seconds):
                    problem = TypeError(f"returned a waiting time of {seconds!r} from permit; expected seconds")
                    return Status.from_error(problem)
                asked[plugin.name] = max(0.0, seconds)
            return answer

        def hold(plugin: Any, status: Status) -> bool:
            nonlocal last_wait
            if status.code is not Code.WAIT:
                return False
            waiting[plugin.name] = min(asked.get(plugin.name, 0.0), MAX_PERMIT_WAIT)
            last_wait = status.with_plugin(plugin.name)
            return True

        status = self._run(PERMIT, ask, hold)
        if status is None and last_wait is not None:
            return last_wait.with_reasons(["one or more plugins asked to wait and no plugin rejected pod"]), waiting
        return status, {}

    # -- binding cycle ---------------------------------------------------------------------------------

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Find out which PreBind plugins have work: Skip when none has (spec section 4.13).

        A PreBind plugin without this method always has work.
        """
        skipped: set[str] = set()
        parallel: set[str] = set()
        plugins = self._points["preBind"]
        for plugin in plugins:
            if not hasattr(plugin, "pre_bind_pre_flight"):
                continue
            try:
                answer = self.call(state, "PreBindPreFlight", plugin, "pre_bind_pre_flight", state, pod, node_name)
            except PluginFailedError as failure:
                return Status.from_error(failed("running PreBindPreFlight", plugin.name, failure.error), plugin.name)
            preflight, status = answer if isinstance(answer, tuple) and len(answer) == 2 else (None, answer)
            if not (status is None or isinstance(status, Status)):
                problem = TypeError(f"returned {answer!r} from pre_bind_pre_flight; expected None, a Status or a pair")
                return Status.from_error(failed("running PreBindPreFlight", plugin.name, problem), plugin.name)
            if isinstance(preflight, PreBindPreFlight) and preflight.allow_parallel:
                parallel.add(plugin.name)
            if status is None or status.code is Code.SUCCESS:
                continue
            if status.code is Code.SKIP:
                skipped.add(plugin.name)
            elif status.code is Code.ERROR:
                error = failed("running PreBindPreFlight", plugin.name, status.as_error())
                return Status.from_error(error, plugin.name)
            else:
                return Status.from_error(
                    f'PreBindPreFlight {plugin.name} returned "{status.code.label}", which is unsupported. '
                    "It is supposed to return Success, Skip, or Error status",
                    plugin.name,
                )
        state.skip_pre_bind, state.parallel_pre_bind = frozenset(skipped), frozenset(parallel)
        return Status.skip() if len(skipped) == len(plugins) else None

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Run PreBind group by group; plugins of one group run beside each other."""
        start = self._clock.now()
        status = await self._pre_bind(state, pod, node_name)
        self.observe("PreBind", Code.SUCCESS if status is None else status.code, self._clock.now() - start)
        return status

    async def _pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        for group in self._pre_bind_groups(state):
            if len(group) == 1:
                status = await self._pre_bind_one(state, group[0], pod, node_name)
                if status is not None:
                    return status
                continue
            tasks = [
                child(self._pre_bind_one(state, plugin, pod, node_name), f"PreBind {plugin.name} {pod.key}")
                for plugin in group
            ]
            try:
                for task in asyncio.as_completed(tasks):
                    status = await task
                    if status is not None:
                        return status
            finally:
                for task_ in tasks:
                    task_.cancel()
                await asyncio.wait(tasks)
        return None

    def _pre_bind_groups(self, state: CycleState) -> list[list[Any]]:
        groups: list[list[Any]] = []
        last_was_parallel = False
        for plugin in self._points["preBind"]:
            is_parallel = plugin.name in state.parallel_pre_bind
            if plugin.name in state.skip_pre_bind:
                # A skipped plugin that may not run beside others still splits groups; a parallel one does not.
                last_was_parallel = last_was_parallel and is_parallel
            elif is_parallel and last_was_parallel:
                groups[-1].append(plugin)
            else:
                groups.append([plugin])
                last_was_parallel = is_parallel
        return groups

    async def _pre_bind_one(self, state: CycleState, plugin: Any, pod: PodInfo, node_name: str) -> Status | None:
        return await self._await_status(PRE_BIND, state, plugin, "pre_bind", pod, node_name)

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Ask the Bind plugins in order; the first that does not skip decides. Skip when all do."""
        start = self._clock.now()
        result: Status | None = Status.skip()
        for plugin in self._points["bind"]:
            result = await self._await_status(BIND, state, plugin, "bind", pod, node_name, skip_passes=True)
            if result is None or result.code is not Code.SKIP:
                break
        self.observe("Bind", Code.SUCCESS if result is None else result.code, self._clock.now() - start)
        return result

    async def _await_status(
        self,
        point: Point,
        state: CycleState,
        plugin: Any,
        method: str,
        pod: PodInfo,
        node_name: str,
        *,
        skip_passes: bool = False,
    ) -> Status | None:
        """One plugin of the binding cycle, awaited if need be; None on success."""
        try:
            answer = self.call(state, point.label, plugin, method, state, pod, node_name)
            if inspect.isawaitable(answer):
                answer = await _awaited(plugin, answer)
            status = self._status(point, plugin, answer)
        except PluginFailedError as failure:
            status = Status.from_error(failure.error)
        if is_success(status):
            return None
        assert status is not None
        if skip_passes and status.code is Code.SKIP:
            return status
        return self._judge(point, plugin, status)

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Inform the PostBind plugins; a failure is only logged."""
        plugins = self._points["postBind"]
        if not plugins:
            return
        start = self._clock.now()
        for plugin in plugins:
            try:
                self.call(state, "PostBind", plugin, "post_bind", state, pod, node_name)
            except PluginFailedError:
                continue  # logged by call; the pod is bound whatever this plugin thinks
        self.observe("PostBind", Code.SUCCESS, self._clock.now() - start)

    def close(self) -> list[str]:
        """Close every plugin that can be closed; the errors, as texts."""
        errors = []
        for name, plugin in self.plugins.items():
            if hasattr(plugin, "close"):
                try:
                    plugin.close()
                except (Exception, SystemExit) as error:
                    errors.append(f"{name} failed to close: {error}")
        return errors


def _is_post_filter_answer(answer: Any) -> bool:
    return (
        isinstance(answer, tuple)
        and len(answer) == 2
        and isinstance(answer[0], PostFilterResult | None)
        and isinstance(answer[1], Status | None)
    )


async def _awaited(plugin: Any, answer: Awaitable[Any]) -> Any:
    try:
        return await answer
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise  # it is we who were called off, not something the plugin waited for
        raise PluginFailedError(plugin.name, RuntimeError("what it waited for was cancelled")) from error
    except (Exception, SystemExit) as error:
        _log.exception("plugin %s failed", plugin.name)
        raise PluginFailedError(plugin.name, error) from error
