"""One scheduling profile: its plugins, built and put in order, and the points of the queue and the scheduling cycle.

Plugins are called by the :class:`~kubesched.scheduler.framework.driver.Driver`, directed by the table in :mod:`.points`; what
is here is how PreFilter, PostFilter and Permit merge answers. The points of the binding cycle are
:mod:`.binding_points`.

Filter and Score over many nodes are driven by the decision core in ``scheduler``; here are their entries.

Source: rules/framework §4 (upstream ``frameworkImpl``).
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ..config.errors import ArgsTypeError, ConfigError
from ..nodes.nodeinfo import NodeInfo
from ..nodes.nominating import NominatingMode
from ..nodes.podinfo import PodInfo
from .asking import Turn, answering
from .binding_points import BindingPoints
from .concerned import Concerns
from .cycle_state import CycleState
from .driver import Driver
from .entries import FilterEntry, ScoreEntry
from .failures import PluginFailedError
from .interface import MAX_NODE_SCORE, Handle, NodeToStatus, PostFilterResult
from .metrics import CounterValue, SchedulerMetrics
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
from .status import Code, Status, is_success

if TYPE_CHECKING:
    from ..nodes import NodeList, NodeTable, Snapshot

__all__ = ["Framework", "PostFilterAnswer", "PreFilterOutcome"]

#: What PostFilter leads to: a result to act on, and the status; None is success.
PostFilterAnswer = tuple[PostFilterResult | None, Status | None]

_log = logging.getLogger("kubesched.scheduler.framework")
#: Exceptions of a constructor that are defects of its code rather than words about its arguments.
_DEFECTS: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    SystemExit,
    TypeError,
)

#: The points whose plugins are counted: keys and labels. (rules/metrics-and-client §2.1)
_EVALUATING: Final = (("preFilter", "PreFilter"), ("filter", "Filter"), ("preScore", "PreScore"), ("score", "Score"))

#: A Permit plugin cannot hold a pod longer than this (seconds).
MAX_PERMIT_WAIT: Final = 15 * 60.0


@dataclass(slots=True)
class PreFilterOutcome:
    """The merged answers of all PreFilter plugins.

    ``nodes`` are the only node names worth filtering (None: all); ``restricting`` the plugins that restricted them;
    ``status`` a rejection of the whole pod, or None.
    """

    nodes: frozenset[str] | None = None
    status: Status | None = None
    restricting: list[str] = field(default_factory=list)

    def restrict(self, plugin: str, allowed: frozenset[str]) -> None:
        """A plugin allows only these nodes; ``status`` is a rejection when none is left."""
        self.restricting.append(plugin)
        self.nodes = allowed if self.nodes is None else self.nodes & allowed
        if self.nodes:
            return
        if len(self.restricting) == 1:
            message = f"node(s) didn't satisfy plugin {plugin}"
        else:
            message = f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(self.restricting))}] simultaneously"
        self.status = Status.unresolvable(message)


def _said(error: BaseException) -> str:
    """The text of an error; with its type and place when it does not say what is wrong with the arguments."""
    if not isinstance(error, _DEFECTS) or isinstance(error, ArgsTypeError):
        return str(error)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} (at {frame.filename}:{frame.lineno})"


def _built(name: str, factory: PluginFactory, args: Callable[[str], Any], handle: Handle) -> Any:
    """A plugin of a profile.

    Raises:
        ConfigError: when it cannot be built.
    """
    try:
        return factory(args(name), handle)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a factory raises is a configuration error to the user
        bare = getattr(factory, "__init__", None) is object.__init__
        hint = "; derive the class from kubesched.scheduler.framework.Plugin" if bare else ""
        raise ConfigError("framework", [f'initializing plugin "{name}": {_said(error)}{hint}']) from error


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
    ) -> None:
        """Build every plugin named in ``points`` (point key to (name, weight) in order) once.

        Raises:
            ConfigError: ``initializing plugin "…": …`` when a plugin cannot be built.
        """
        self.profile_name = profile_name
        self.metrics = metrics
        self._driver = Driver(profile_name, metrics, handle.clock)
        self.plugins: dict[str, Any] = {}
        for name in dict.fromkeys(name for entries in points.values() for name, _ in entries):
            self.plugins[name] = _built(name, registry[name], args, handle)
        self.turn = Turn()
        #: By name, the plugins as the decision core asks them.
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
        pre_filter, filter_, pre_score, score = self._evaluations()
        self._pre_filtered, self._pre_scored = pre_filter, pre_score
        self.filters = tuple(
            FilterEntry(self.answering[name], index, filter_[name])
            for index, (name, _) in enumerate(self.points["filter"])
        )
        self.scores = tuple(
            ScoreEntry(self.answering[name], weight or 1, evaluations=score[name])
            for name, weight in self.points["score"]
        )
        #: The greatest total score that a node can have.
        self.most_total = MAX_NODE_SCORE * sum([entry.weight for entry in self.scores])
        self._with_extensions = tuple(
            plugin for plugin in self._points["preFilter"] if self.answering[plugin.name].has_what_if
        )
        #: The PreEnqueue methods, by plugin, in order. What one raises, and nonsense, is an Error status.
        self.pre_enqueue_plugins: Mapping[str, Callable[[PodInfo], Status | None]] = {
            plugin.name: partial(self._pre_enqueue, plugin) for plugin in self._points["preEnqueue"]
        }
        throughout = frozenset(name for name, plugin in self.answering.items() if plugin.asks.throughout)
        #: The plugins to call after the choice of a node, by the names of those that the pod has no question to.
        self.concerned = Concerns(self._points, throughout).without
        #: The points of the binding cycle.
        self.binding = BindingPoints(self._driver, self.concerned)

    def _evaluations(self) -> list[dict[str, CounterValue]]:
        """By point and plugin, the count of its evaluations. The series of all plugins exist from the start, at 0."""
        total = self.metrics.plugin_evaluation_total
        return [
            {plugin.name: total.labels(plugin.name, label, self.profile_name) for plugin in self._points[key]}
            for key, label in _EVALUATING
        ]

    def now(self) -> float:
        return self._driver.now()

    def observe_success(self, point: str, seconds: float) -> None:
        """Record how long all plugins of a point took that the decision core drives itself."""
        self._driver.observe(point, Code.SUCCESS, seconds)

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
        """The plugins whose rejections can be lifted by cluster events, in order of first use."""
        keys = ("preEnqueue", "preFilter", "filter", "reserve", "permit")
        return [self.plugins[name] for name in dict.fromkeys(name for key in keys for name, _ in self.points[key])]

    # -- scheduling cycle ------------------------------------------------------------------------------

    def pre_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeList, only: Container[str] | None = None
    ) -> PreFilterOutcome:
        """Run the PreFilter plugins (all, or those named in ``only``); merge the nodes they allow (spec section 4.5).

        Plugins that answer Skip are added to ``state.skip_filter``.

        Raises:
            PluginFailedError: when a plugin fails or answers what PreFilter must not.
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
                # The others still run: preemption may follow and needs their state.
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
        """The names of a point's plugins before this one."""
        names = [other.name for other in self._points[point.key]]
        return names[: names.index(plugin)]

    def _at(self, point: Point, only: Container[str] | None, absent: frozenset[str]) -> Sequence[Any]:
        """The plugins of a point: all, or those named in ``only``, without the absent ones."""
        plugins = self._points[point.key]
        if only is None and not absent:
            return plugins
        return [plugin for plugin in plugins if (only is None or plugin.name in only) and plugin.name not in absent]

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> None:
        """Inform the PreFilter plugins of a pod added to a node in a what-if.

        Raises:
            PluginFailedError: from the first plugin that fails.
        """
        self._extension(ADD_POD, state, pod, added, node)

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> None:
        """Inform the PreFilter plugins of a pod removed from a node in a what-if.

        Raises:
            PluginFailedError: from the first plugin that fails.
        """
        self._extension(REMOVE_POD, state, pod, removed, node)

    def has_active_extensions(self, state: CycleState, skip: AbstractSet[str] = frozenset()) -> bool:
        """Whether some plugin must be informed of pods added or removed in a what-if; those in ``skip`` need not."""
        return any(plugin.name not in state.skip_filter and plugin.name not in skip for plugin in self._with_extensions)

    def _extension(self, point: Point, state: CycleState, pod: PodInfo, other: PodInfo, node: NodeInfo) -> None:
        plugins = (plugin for plugin in self._with_extensions if plugin.name not in state.skip_filter)
        problem = self._driver.each(state, point, plugins, pod, other, node)
        if problem is not None:
            raise PluginFailedError.of(problem)

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

    def filter_with_nominated(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, node: NodeInfo, nominated: Sequence[PodInfo]
    ) -> Status | None:
        """Filter one node as if these pods ran there, and, if that passes, as it is (spec section 4.8).

        ``nominated`` are the pods nominated to the node that count for the pod.

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
        """Filter one node as if ``others`` ran there. ``trial`` is a clone of the attempt's state, to be thrown away.

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
        """Run the PostFilter plugins until one succeeds (spec section 4.9).

        The answer is awaitable when a plugin's is: one that has to wait for the API server or an extender.
        """
        if state.skip_all_post_filter:
            return None, Status.unschedulable("All PostFilter plugins are skipped")
        chosen: PostFilterResult | None = None
        reasons: list[str] = []
        first = ""

        def take(plugin: str, result: PostFilterResult | None, status: Status | None) -> bool | Status:
            nonlocal chosen, first
            if status is None or status.code is Code.SUCCESS:
                chosen = result
                return Status(Code.SUCCESS)
            if status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                chosen = result
                return status.with_plugin(plugin)
            if not status.is_rejected:
                chosen = None
                return Status.from_error(status.as_error() or RuntimeError(status.message()), plugin)
            first = first or plugin
            reasons.extend(status.reasons())
            if (
                result is not None
                and result.nominating is not None
                and (result.nominating.mode is NominatingMode.OVERRIDE)
            ):
                chosen = result
            return True

        start = self._driver.now()

        def finish(status: Status | None) -> PostFilterAnswer:
            if status is None:
                status = Status(Code.UNSCHEDULABLE, *reasons, plugin=first)
            self._driver.observed(POST_FILTER, start, status)
            return chosen, None if is_success(status) else status

        async def go_on(waiting: Any, answer: Awaitable[Any], left: Sequence[Any]) -> PostFilterAnswer:
            more, status = self._driver.outcome(
                POST_FILTER, waiting, await self._driver.awaited(POST_FILTER, waiting, answer), take
            )
            for plugin in left if more else ():
                asked = await self._driver.ask_async(state, POST_FILTER, plugin, pod, statuses)
                more, status = self._driver.outcome(POST_FILTER, plugin, asked, take)
                if not more:
                    break
            return finish(status)

        plugins = self._points[POST_FILTER.key]
        for place, plugin in enumerate(plugins):
            answer = self._driver.ask_or_await(state, POST_FILTER, plugin, pod, statuses)
            if not isinstance(answer, tuple):
                return go_on(plugin, answer, plugins[place + 1 :])
            more, status = self._driver.outcome(POST_FILTER, plugin, answer, take)
            if not more:
                return finish(status)
        return finish(None)

    @property
    def has_post_filter(self) -> bool:
        return bool(self._points["postFilter"])

    def pre_score(
        self, state: CycleState, pod: PodInfo, nodes: NodeList, only: Container[str] | None = None
    ) -> Status | None:
        """Prepare scoring (all plugins, or those named in ``only``). None on success.

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
        """Undo Reserve for all its plugins in reverse order, also those that never ran. A failure is only logged."""
        for plugin in self.concerned(state.absent).unreserve:
            self._driver.ask(state, UNRESERVE, plugin, pod, node_name)  # logs a failure; the others still run

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> tuple[Status | None, dict[str, float]]:
        """Run Permit: (status, plugin to seconds it wants to wait). A Wait status has a non-empty map."""
        plugins = self.concerned(state.absent).permit
        if not plugins:
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
        """Close every plugin that can be closed; the errors, as texts."""
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
