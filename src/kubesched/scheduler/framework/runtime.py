"""Framework of one profile: its plugins, built and in order, and the extension points of queue and scheduling cycle.

The :class:`~kubesched.scheduler.framework.driver.Driver` calls the plugins, by the table in :mod:`.points`. This module
merges the answers of PreFilter and PostFilter (into :mod:`.outcomes`) and of Permit. The points of the binding cycle
are in :mod:`.binding_points`. Filter and Score are called by the decision core in ``scheduler.core``, through the
entries that this module makes.

Source: rules/framework §4 (upstream ``frameworkImpl``).
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ..config.errors import ArgsTypeError, ConfigError
from ..nodes.nodeinfo import NodeInfo
from ..nodes.podinfo import PodInfo
from .asking import Turn, answering
from .binding_points import BindingPoints
from .concerned import Concerns
from .cycle_state import CycleState
from .driver import Driver
from .entries import FilterEntry, ScoreEntry
from .failures import PluginFailedError
from .group_points import GroupPoints
from .interface import MAX_NODE_SCORE, Handle, NodeToStatus
from .metrics import CounterValue, SchedulerMetrics
from .outcomes import PostFilterAnswer, PostFilterOutcome, PreFilterOutcome
from .plugin_times import Stopwatch
from .points import (
    ADD_POD,
    PERMIT,
    POINTS,
    POST_FILTER,
    PRE_ENQUEUE,
    PRE_FILTER,
    PRE_SCORE,
    REMOVE_POD,
    RESERVE,
    UNRESERVE,
    Point,
)
from .queued import QueuedPodInfo
from .registry import PluginFactory
from .status import Code, Status

if TYPE_CHECKING:
    from ..nodes import NodeList, NodeTable, Snapshot

__all__ = ["Framework"]

_log = logging.getLogger("kubesched.scheduler.framework")
#: Exceptions that mean a defect in a constructor's code; others are messages about its arguments.
_DEFECTS: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    SystemExit,
    TypeError,
)

#: Points at which plugins are counted: key and metric label (rules/metrics-and-client §2.1).
_EVALUATING: Final = (("preFilter", "PreFilter"), ("filter", "Filter"), ("preScore", "PreScore"), ("score", "Score"))

#: Longest time that a Permit plugin can hold a pod, in seconds.
MAX_PERMIT_WAIT: Final = 15 * 60.0


def _said(error: BaseException) -> str:
    """Return the text of an error, with its type and place if it is a defect of the constructor's code."""
    if not isinstance(error, _DEFECTS) or isinstance(error, ArgsTypeError):
        return str(error)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} (at {frame.filename}:{frame.lineno})"


def _built(name: str, factory: PluginFactory, args: Callable[[str], Any], handle: Handle) -> Any:
    """Build a plugin of a profile.

    Raises:
        ConfigError: when the plugin cannot be built.
    """
    try:
        return factory(args(name), handle)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # to the user, any error of a factory is a configuration error
        bare = getattr(factory, "__init__", None) is object.__init__
        hint = "; derive the class from kubesched.scheduler.framework.Plugin" if bare else ""
        raise ConfigError("framework", [f'initializing plugin "{name}": {_said(error)}{hint}']) from error


class Framework:
    """Framework of one profile: its plugins, built and in order."""

    def __init__(
        self,
        profile_name: str,
        points: Mapping[str, Sequence[tuple[str, int]]],
        registry: Mapping[str, PluginFactory],
        args: Callable[[str], Any],
        handle: Handle,
        metrics: SchedulerMetrics,
    ) -> None:
        """Build every plugin that ``points`` names, once.

        ``points`` is point key to (plugin name, weight), in order. ``args`` returns a plugin's arguments by its name.

        Raises:
            ConfigError: ``initializing plugin "…": …`` when a plugin cannot be built.
        """
        self.profile_name = profile_name
        self.metrics = metrics
        #: Stopwatch of the profile's plugins.
        self.stopwatch = Stopwatch(metrics, handle.clock.now)
        self._driver = Driver(profile_name, metrics, handle.clock, self.stopwatch)
        self.plugins: dict[str, Any] = {}
        for name in dict.fromkeys(name for entries in points.values() for name, _ in entries):
            self.plugins[name] = _built(name, registry[name], args, handle)
        self.turn = Turn()
        #: Plugin name to the object through which the decision core asks it.
        self.answering = {
            name: answering(plugin, handle, self.turn, {key for key, listed in points.items() if name in dict(listed)})
            for name, plugin in self.plugins.items()
        }
        self._points: dict[str, tuple[Any, ...]] = {
            point.key: tuple(self.answering[name].at(point.key) for name, _ in points.get(point.key, ()))
            for point in POINTS
        }
        self.points: Mapping[str, Sequence[tuple[str, int]]] = {
            point.key: list(points.get(point.key, ())) for point in POINTS
        }
        self._make_entries()
        self._with_extensions = tuple(
            plugin for plugin in self._points["preFilter"] if self.answering[plugin.name].has_what_if
        )
        #: PreEnqueue by plugin name, in order. An exception, or an answer of the wrong form, becomes an Error status.
        self.pre_enqueue_plugins: Mapping[str, Callable[[PodInfo], Status | None]] = {
            plugin.name: partial(self._pre_enqueue, plugin) for plugin in self._points["preEnqueue"]
        }
        throughout = frozenset(name for name, plugin in self.answering.items() if plugin.asks.throughout)
        #: Function that returns the plugins to call after the choice of a node; its argument names the plugins that
        #: the pod has no question to.
        self.concerned = Concerns(self._points, throughout).without
        #: The points of the binding cycle.
        self.binding = BindingPoints(self._driver, self.concerned, handle.pods_in_pre_bind)
        #: The points of pod groups.
        self.groups = GroupPoints(
            self._driver, self._points, {name: weight or 1 for name, weight in self.points["placementScore"]}
        )

    def _make_entries(self) -> None:
        """Make the entries through which the decision core asks the Filter and Score plugins."""
        pre_filter, filter_, pre_score, score = self._evaluations()
        self._pre_filtered, self._pre_scored = pre_filter, pre_score
        self.filters = tuple(
            FilterEntry(self.answering[name], index, self.stopwatch, filter_[name])
            for index, (name, _) in enumerate(self.points["filter"])
        )
        self.scores = tuple(
            ScoreEntry(self.answering[name], weight or 1, self.stopwatch, evaluations=score[name])
            for name, weight in self.points["score"]
        )
        #: Greatest total score that a node can have.
        self.most_total = MAX_NODE_SCORE * sum([entry.weight for entry in self.scores])

    def _evaluations(self) -> list[dict[str, CounterValue]]:
        """Return a counter of evaluations by plugin, for each of four points. All exist from the start, at 0."""
        total = self.metrics.plugin_evaluation_total
        return [
            {plugin.name: total.labels(plugin.name, label, self.profile_name) for plugin in self._points[key]}
            for key, label in _EVALUATING
        ]

    def now(self) -> float:
        return self._driver.now()

    def observe(self, point: str, seconds: float, code: Code = Code.SUCCESS) -> None:
        """Record the seconds and the result of a point whose plugins the decision core calls itself."""
        self._driver.observe(point, code, seconds)

    # -- queue -----------------------------------------------------------------------------------------

    def _pre_enqueue(self, plugin: Any, pod: PodInfo) -> Status | None:
        try:
            answer = plugin.pre_enqueue(pod)
            if answer is None:
                return None
            _, status = self._driver.read(PRE_ENQUEUE, plugin, answer)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            _log.exception("plugin %s failed in pre_enqueue", plugin.name)
            status = Status.from_error(error)
        if status is None or status.code is Code.SUCCESS:
            return None
        return self._driver.judge(PRE_ENQUEUE, plugin, status)

    @property
    def queue_sort(self) -> Any:
        """The profile's QueueSort plugin."""
        return self._points["queueSort"][0]

    def less(self, first: QueuedPodInfo, second: QueuedPodInfo) -> bool:
        return bool(self.queue_sort.less(first, second))

    def event_plugins(self) -> list[Any]:
        """Return the plugins whose rejections cluster events can lift, in order of their first use."""
        keys = ("preEnqueue", "preFilter", "filter", "reserve", "permit")
        return [self.plugins[name] for name in dict.fromkeys(name for key in keys for name, _ in self.points[key])]

    # -- scheduling cycle ------------------------------------------------------------------------------

    def pre_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeList, only: Container[str] | None = None
    ) -> PreFilterOutcome:
        """Run the PreFilter plugins (all, or those named in ``only``) and merge their answers (rules/framework §4.5).

        Plugins that answer Skip are added to ``state.skip_filter``.

        Raises:
            PluginFailedError: when a plugin fails, or gives an answer that PreFilter does not allow.
        """
        outcome = PreFilterOutcome()
        skipped: set[str] = set()

        def take(plugin: str, allowed: frozenset[str] | None, status: Status | None) -> bool | Status:
            if status is not None and status.code is Code.SKIP:
                skipped.add(plugin)
                return True
            self._pre_filtered[plugin].value += 1
            if allowed is not None:
                outcome.restrict(plugin, allowed)
                if outcome.nodes:
                    return True
                state.pre_filter_ended_by = plugin
                return outcome.status or False
            if status is None or status.code is Code.SUCCESS:
                return True
            if status.code is Code.UNSCHEDULABLE:
                # The other plugins still run: preemption may follow and needs their state.
                outcome.status = status.with_plugin(plugin)
                return True
            state.pre_filter_ended_by = plugin
            if status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                outcome.nodes, outcome.restricting = None, []
                outcome.status = status.with_plugin(plugin)
                return outcome.status
            return False

        absent = state.absent
        plugins = self._at(PRE_FILTER, only, absent)
        start = self._driver.now()
        ended = self._driver.each(state, PRE_FILTER, plugins, pod, nodes, take=take)
        if state.pre_filter_ended_by:
            absent = absent.intersection(self._before(PRE_FILTER, state.pre_filter_ended_by))
        state.skip_filter |= absent.union(skipped)
        if ended is None or ended is outcome.status:
            self._driver.observed(PRE_FILTER, start, outcome.status)
            return outcome
        self._driver.observed(PRE_FILTER, start, ended)
        raise PluginFailedError.of(ended)

    def _before(self, point: Point, plugin: str) -> Sequence[str]:
        """Return the names of a point's plugins that come before this plugin."""
        names = [other.name for other in self._points[point.key]]
        return names[: names.index(plugin)]

    def _at(self, point: Point, only: Container[str] | None, absent: frozenset[str]) -> Sequence[Any]:
        """Return the plugins of a point (all, or those named in ``only``), without the absent ones."""
        plugins = self._points[point.key]
        if only is None and not absent:
            return plugins
        return [plugin for plugin in plugins if (only is None or plugin.name in only) and plugin.name not in absent]

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> None:
        """Tell the PreFilter plugins to assume that a pod was added to a node.

        Raises:
            PluginFailedError: from the first plugin that fails.
        """
        self._extension(ADD_POD, state, pod, added, node)

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> None:
        """Tell the PreFilter plugins to assume that a pod was removed from a node.

        Raises:
            PluginFailedError: from the first plugin that fails.
        """
        self._extension(REMOVE_POD, state, pod, removed, node)

    def has_active_extensions(self, state: CycleState, skip: AbstractSet[str] = frozenset()) -> bool:
        """Return True if :meth:`add_pod` and :meth:`remove_pod` have a plugin to call, apart from those in ``skip``."""
        return any(plugin.name not in state.skip_filter and plugin.name not in skip for plugin in self._with_extensions)

    def _extension(self, point: Point, state: CycleState, pod: PodInfo, other: PodInfo, node: NodeInfo) -> None:
        plugins = (plugin for plugin in self._with_extensions if plugin.name not in state.skip_filter)
        problem = self._driver.each(state, point, plugins, pod, other, node)
        if problem is not None:
            raise PluginFailedError.of(problem)

    def filter_node(self, state: CycleState, pod: PodInfo, table: NodeTable, node: NodeInfo) -> Status | None:
        """Run the filters on one node. Return the first rejection, or None.

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

    def filter_with_nominated(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, node: NodeInfo, nominated: Sequence[PodInfo]
    ) -> Status | None:
        """Filter a node as if its nominated pods ran there; if it passes, also without them (rules/framework §4.8).

        ``nominated`` are the pods nominated to the node that count for the pod. Return the first rejection, or None.

        Raises:
            PluginFailedError: when a plugin fails.
        """
        if nominated:
            status = self.filter_with_pods(state.clone(), pod, snapshot, node, nominated)
            if status is not None:
                return status
        return self.filter_node(state, pod, snapshot.table, node)

    def filter_with_pods(
        self, trial: CycleState, pod: PodInfo, snapshot: Snapshot, node: NodeInfo, others: Sequence[PodInfo]
    ) -> Status | None:
        """Filter one node as if ``others`` ran there. Return the first rejection, or None.

        ``trial`` is a clone of the attempt's state, of no use afterwards.

        Raises:
            PluginFailedError: when a plugin fails.
        """
        with snapshot.with_pods(node, others):
            for other in others:
                self.add_pod(trial, pod, other, node)
            return self.filter_node(trial, pod, snapshot.table, node)

    def post_filter(
        self, state: CycleState, pod: PodInfo, statuses: NodeToStatus
    ) -> PostFilterAnswer | Awaitable[PostFilterAnswer]:
        """Run the PostFilter plugins until one succeeds (rules/framework §4.9).

        The answer is awaitable if a plugin's answer is, because it has to wait for the API server or an extender.
        """
        if state.skip_all_post_filter:
            return None, Status.unschedulable("All PostFilter plugins are skipped")
        outcome = PostFilterOutcome()
        start = self._driver.now()

        def finish(status: Status | None) -> PostFilterAnswer:
            answer = outcome.answer(status)
            self._driver.observed(POST_FILTER, start, answer[1])
            return answer

        async def go_on(waiting: Any, answer: Awaitable[Any], left: Sequence[Any]) -> PostFilterAnswer:
            asked = await self._driver.awaited(POST_FILTER, waiting, answer)
            more, status = self._driver.outcome(POST_FILTER, waiting, asked, outcome.take)
            for plugin in left if more else ():
                asked = await self._driver.ask_async(state, POST_FILTER, plugin, pod, statuses)
                more, status = self._driver.outcome(POST_FILTER, plugin, asked, outcome.take)
                if not more:
                    break
            return finish(status)

        plugins = self._points[POST_FILTER.key]
        for place, plugin in enumerate(plugins):
            answer = self._driver.ask_or_await(state, POST_FILTER, plugin, pod, statuses)
            if not isinstance(answer, tuple):
                return go_on(plugin, answer, plugins[place + 1 :])
            more, status = self._driver.outcome(POST_FILTER, plugin, answer, outcome.take)
            if not more:
                return finish(status)
        return finish(None)

    @property
    def has_post_filter(self) -> bool:
        return bool(self._points["postFilter"])

    def pre_score(
        self, state: CycleState, pod: PodInfo, nodes: NodeList, only: Container[str] | None = None
    ) -> Status | None:
        """Run the PreScore plugins (all, or those named in ``only``). Return None on success.

        Plugins that answer Skip are added to ``state.skip_score``.
        """
        absent = state.absent
        if not self._points["preScore"]:
            state.skip_score |= absent
            return None
        skipped: set[str] = set()

        def take(plugin: str, _: None, status: Status | None) -> bool:
            if status is None or status.code is not Code.SKIP:
                self._pre_scored[plugin].value += 1
                return False
            skipped.add(plugin)
            return True

        status = self._driver.run(state, PRE_SCORE, self._at(PRE_SCORE, only, absent), pod, nodes, take=take)
        state.skip_score |= absent.union(skipped)
        return status

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Run Reserve; on failure the caller runs :meth:`unreserve`."""
        plugins = self.concerned(state.absent).reserve
        return self._driver.run(state, RESERVE, plugins, pod, node_name) if plugins else None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Undo Reserve: call all its plugins in reverse order, also those that never ran. A failure is only logged."""
        start = self._driver.now()
        for plugin in self.concerned(state.absent).unreserve:
            self._driver.ask(state, UNRESERVE, plugin, pod, node_name)  # logs a failure; the others still run
        self._driver.observed(UNRESERVE, start, None)

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> tuple[Status | None, dict[str, float]]:
        """Run Permit. Return the status, and for a Wait status the seconds that each plugin wants to wait."""
        concerned = self.concerned(state.absent)
        plugins = concerned.permit_alone if pod.pod.spec.scheduling_group is None else concerned.permit
        if not plugins:
            if state.record_plugin_metrics:
                self._driver.observe(PERMIT.label, Code.SUCCESS, 0.0)
            return None, {}
        waiting: dict[str, float] = {}
        last_wait: Status | None = None

        def take(plugin: str, seconds: float | None, status: Status | None) -> bool:
            nonlocal last_wait
            if status is None or status.code is not Code.WAIT:
                return False
            waiting[plugin] = min(seconds or 0.0, MAX_PERMIT_WAIT)
            last_wait = status.with_plugin(plugin)
            return True

        status = self._driver.run(state, PERMIT, plugins, pod, node_name, take=take)
        if status is None and last_wait is not None:
            return last_wait.with_reasons(["one or more plugins asked to wait and no plugin rejected pod"]), waiting
        return status, {}

    def close(self) -> list[str]:
        """Close every plugin that has a method ``close``. Return the errors as texts."""
        errors = []
        for name, plugin in self.plugins.items():
            if hasattr(plugin, "close"):
                try:
                    plugin.close()
                except KeyboardInterrupt:
                    raise
                except BaseException as error:
                    errors.append(f"{name} failed to close: {error}")
        return errors
