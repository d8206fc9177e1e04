"""The one way plugins are called, and the one loop over the plugins of a point.

What differs between points is a row of the table in :mod:`.points`; what a point makes of answers other than success
is the ``take`` function its caller gives. Used by :mod:`.runtime` and :mod:`.binding_points`.

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
from .points import Point
from .status import Code, Status
from .wrong_answer import WrongAnswerError

__all__ = ["Driver", "Take"]

_log = logging.getLogger("kubesched.scheduler.framework")

#: Sees (plugin name, value, status) of an answer. True: go on with the next plugin; a Status: end with it; False: go on
#: after success, else end with what the point's row makes of the status.
Take = Callable[[str, Any, Status | None], "bool | Status"]


class Driver:
    """Calls the plugins of one profile."""

    def __init__(self, profile_name: str, metrics: SchedulerMetrics, clock: Clock) -> None:
        self._profile_name = profile_name
        self._metrics = metrics
        self._clock = clock
        self._durations: dict[tuple[str, Code], Any] = {}

    def now(self) -> float:
        return self._clock.now()

    def observe(self, point: str, code: Code, seconds: float) -> None:
        """Record how long all plugins of a point took."""
        child = self._durations.get((point, code))
        if child is None:
            family = self._metrics.framework_extension_point_duration_seconds
            child = self._durations[point, code] = family.labels(point, code.label, self._profile_name)
        child.observe(seconds)

    def observed(self, point: Point, start: float, status: Status | None) -> None:
        """Record a point that began at ``start`` and ended with ``status``."""
        self.observe(point.label, Code.SUCCESS if status is None else status.code, self._clock.now() - start)

    # -- one plugin ------------------------------------------------------------------------------------

    def call(self, state: CycleState, point: Point, plugin: Any, *args: Any) -> Any:
        """Call the point's method of one plugin; sampled attempts record its duration.

        Raises:
            PluginFailedError: when the plugin raises.
        """
        method = point.methods[0]
        try:
            if not state.record_plugin_metrics:
                return getattr(plugin, method)(state, *args)
            start = self._clock.now()
            result = getattr(plugin, method)(state, *args)
            code = result.code if isinstance(result, Status) else Code.SUCCESS
            elapsed = self._clock.now() - start
            self._metrics.plugin_execution_duration_seconds.observe(elapsed, plugin.name, point.label, code.label)
        except PluginFailedError:
            raise
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            _log.exception("plugin %s failed in %s", plugin.name, method)
            raise PluginFailedError(plugin.name, error) from error
        return result

    def ask(self, state: CycleState, point: Point, plugin: Any, *args: Any) -> Answer:
        """One plugin's answer; what it raises, and what is no answer at all, is an Error status."""
        try:
            return self.read(point, plugin, self.call(state, point, plugin, *args))
        except PluginFailedError as failure:
            return None, Status.from_error(failure.error)

    def ask_or_await(self, state: CycleState, point: Point, plugin: Any, *args: Any) -> Answer | Awaitable[Any]:
        """Like :meth:`ask`; what can only be awaited is given as it is, for :meth:`awaited`."""
        try:
            answer = self.call(state, point, plugin, *args)
        except PluginFailedError as failure:
            return None, Status.from_error(failure.error)
        is_settled = answer is None or isinstance(answer, Status | tuple)
        return answer if not is_settled and inspect.isawaitable(answer) else self.read(point, plugin, answer)

    async def awaited(self, point: Point, plugin: Any, answer: Awaitable[Any]) -> Answer:
        """The answer of a plugin's coroutine."""
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
        """Read an answer; what is none is an Error status."""
        try:
            return point.read(point.methods[0], answer)
        except TypeError as problem:
            text = str(problem) if point.error else f'plugin "{plugin.name}" {problem}'
            return None, Status.from_error(WrongAnswerError(plugin, point.methods[0], text))

    @staticmethod
    def judge(point: Point, plugin: Any, status: Status) -> Status:
        """A status other than success, in the plugin's name: a rejection where the point allows it, else an error."""
        if point.may_reject and status.is_rejected:
            return status.with_plugin(plugin.name)
        error = status.as_error() or RuntimeError(f"unexpected status {status.code.label}")
        return Status.from_error(failed(point.error, plugin.name, error) if point.error else error, plugin.name)

    def outcome(
        self, point: Point, plugin: Any, answer: Answer, take: Take | None = None
    ) -> tuple[bool, Status | None]:
        """What an answer leads to: whether to go on with the next plugin, and what the point ends with if not."""
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
        """Ask plugins in order until one ends it; None when all went well."""
        for plugin in plugins:
            go_on, status = self.outcome(point, plugin, self.ask(state, point, plugin, *args), take)
            if not go_on:
                return status
        return None

    def run(
        self, state: CycleState, point: Point, plugins: Iterable[Any], *args: Any, take: Take | None = None
    ) -> Status | None:
        """Like :meth:`each`, and record how long it took."""
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
