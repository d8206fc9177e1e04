"""Driver of plugins: the one place that calls them, and the one loop over the plugins of an extension point.

The table in :mod:`.points` says how points differ. A caller's ``take`` function says what an answer other than success
leads to. Used by :mod:`.runtime` and :mod:`.binding_points`.

Source: rules/framework §4.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from kubesched.base.tasks import ended_from_outside, running_task
from kubesched.base.times import Clock

from .answers import Answer
from .cycle_state import CycleState
from .failures import PluginFailedError, failed
from .metrics import SchedulerMetrics
from .plugin_times import Stopwatch
from .points import Point
from .status import Code, Status
from .wrong_answer import WrongAnswerError

__all__ = ["Driver", "Take"]

_log = logging.getLogger("kubesched.scheduler.framework")

#: Function that decides about an answer: (plugin name, value, status) to what happens next. True: go on with the next
#: plugin. A Status: end the point with it. False: after success go on, otherwise end with the result of
#: :meth:`Driver.judge`.
Take = Callable[[str, Any, Status | None], "bool | Status"]


class Driver:
    """Driver of the plugins of one profile."""

    def __init__(self, profile_name: str, metrics: SchedulerMetrics, clock: Clock, stopwatch: Stopwatch) -> None:
        self._stopwatch = stopwatch
        self._profile_name = profile_name
        self._metrics = metrics
        self._clock = clock
        self._durations: dict[tuple[str, Code], Any] = {}

    def now(self) -> float:
        return self._clock.now()

    def observe(self, point: str, code: Code, seconds: float) -> None:
        """Record the seconds that all plugins of a point took together."""
        child = self._durations.get((point, code))
        if child is None:
            family = self._metrics.framework_extension_point_duration_seconds
            child = self._durations[point, code] = family.labels(point, code.label, self._profile_name)
        child.observe(seconds)

    def observed(self, point: Point, start: float, status: Status | None) -> None:
        """Record the duration of a point that began at ``start`` and ended now with ``status``."""
        self.observe(point.label, Code.SUCCESS if status is None else status.code, self._clock.now() - start)

    # -- one plugin ------------------------------------------------------------------------------------

    def call(self, state: CycleState, point: Point, plugin: Any, *args: Any) -> Any:
        """Call the point's method of one plugin; sampled attempts record its duration.

        Raises:
            PluginFailedError: when the plugin raises.
        """
        method = point.methods[0]
        try:
            stopwatch = self._stopwatch
            if not (state.record_plugin_metrics or stopwatch.times_all):
                return getattr(plugin, method)(state, *args)
            start = stopwatch.now()
            result = getattr(plugin, method)(state, *args)
            code = result.code if isinstance(result, Status) else Code.SUCCESS
            stopwatch.called(plugin.name, point.label, stopwatch.now() - start, code.label)
        except PluginFailedError:
            raise
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            _log.exception("plugin %s failed in %s", plugin.name, method)
            raise PluginFailedError(plugin.name, error) from error
        return result

    def ask(self, state: CycleState, point: Point, plugin: Any, *args: Any) -> Answer:
        """Call one plugin and read its answer. An exception or an answer of the wrong form becomes an Error status."""
        try:
            return self.read(point, plugin, self.call(state, point, plugin, *args))
        except PluginFailedError as failure:
            return None, Status.from_error(failure.error)

    def ask_or_await(self, state: CycleState, point: Point, plugin: Any, *args: Any) -> Answer | Awaitable[Any]:
        """Like :meth:`ask`, but return an awaitable answer as it is, for :meth:`awaited`."""
        try:
            answer = self.call(state, point, plugin, *args)
        except PluginFailedError as failure:
            return None, Status.from_error(failure.error)
        is_settled = answer is None or isinstance(answer, Status | tuple)
        return answer if not is_settled and inspect.isawaitable(answer) else self.read(point, plugin, answer)

    async def awaited(self, point: Point, plugin: Any, answer: Awaitable[Any]) -> Answer:
        """Await a plugin's coroutine and read its answer."""
        try:
            return self.read(point, plugin, await _awaited(plugin, answer))
        except PluginFailedError as failure:
            return None, Status.from_error(failure.error)

    async def ask_async(self, state: CycleState, point: Point, plugin: Any, *args: Any) -> Answer:
        """Like :meth:`ask`, for a method that may be a coroutine."""
        answer = self.ask_or_await(state, point, plugin, *args)
        return answer if isinstance(answer, tuple) else await self.awaited(point, plugin, answer)

    @staticmethod
    def read(point: Point, plugin: Any, answer: Any) -> Answer:
        """Read an answer. An answer of the wrong form becomes an Error status."""
        try:
            return point.read(point.methods[0], answer)
        except TypeError as problem:
            text = str(problem) if point.error else f'plugin "{plugin.name}" {problem}'
            return None, Status.from_error(WrongAnswerError(plugin, point.methods[0], text))

    @staticmethod
    def judge(point: Point, plugin: Any, status: Status) -> Status:
        """Add the plugin's name to a status other than success: a rejection if the point allows it, else an error."""
        if point.may_reject and status.is_rejected:
            return status.with_plugin(plugin.name)
        error = status.as_error() or RuntimeError(f"unexpected status {status.code.label}")
        return Status.from_error(failed(point.error, plugin.name, error) if point.error else error, plugin.name)

    def outcome(
        self, point: Point, plugin: Any, answer: Answer, take: Take | None = None
    ) -> tuple[bool, Status | None]:
        """Decide about an answer: (True, None) to go on with the next plugin, (False, status) to end the point."""
        value, status = answer
        verdict = take is not None and take(plugin.name, value, status)
        if isinstance(verdict, Status):
            return False, verdict
        if verdict or status is None or status.code is Code.SUCCESS:
            return True, None
        return False, self.judge(point, plugin, status)

    # -- all plugins of a point ------------------------------------------------------------------------

    def each(
        self, state: CycleState, point: Point, plugins: Iterable[Any], *args: Any, take: Take | None = None
    ) -> Status | None:
        """Ask the plugins in order until one ends the point. None when all of them went well."""
        for plugin in plugins:
            go_on, status = self.outcome(point, plugin, self.ask(state, point, plugin, *args), take)
            if not go_on:
                return status
        return None

    def run(
        self, state: CycleState, point: Point, plugins: Iterable[Any], *args: Any, take: Take | None = None
    ) -> Status | None:
        """Like :meth:`each`, and record the duration of the point."""
        start = self._clock.now()
        status = self.each(state, point, plugins, *args, take=take)
        self.observed(point, start, status)
        return status


async def _awaited(plugin: Any, answer: Awaitable[Any]) -> Any:
    task = running_task()
    try:
        return await answer
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if ended_from_outside(task, error):
            raise
        if isinstance(error, asyncio.CancelledError):
            raise PluginFailedError(plugin.name, RuntimeError("what it waited for was cancelled")) from error
        _log.exception("plugin %s failed", plugin.name)
        raise PluginFailedError(plugin.name, error) from error
