"""Extension points of the binding cycle: PreBindPreFlight, PreBind, Bind, PostBind.

Part of a :class:`~kubesched.scheduler.framework.runtime.Framework`. Methods of PreBind and Bind may be coroutines.

Source: rules/framework §4.13, §4.14, §4.15.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kubesched.base.tasks import child

from ..nodes.podinfo import PodInfo
from .answers import Answer
from .concerned import Concerned
from .cycle_state import CycleState
from .driver import Driver
from .failures import PluginFailedError
from .interface import PreBindPreFlight
from .points import BIND, POST_BIND, PRE_BIND, PRE_BIND_PRE_FLIGHT
from .status import Code, Status
from .waiting import PodsInPreBind

__all__ = ["BindingPoints"]


class BindingPoints:
    """Binding points of one profile. ``concerned`` returns the plugins that an attempt does not leave out."""

    def __init__(
        self, driver: Driver, concerned: Callable[[frozenset[str]], Concerned], pre_binding: PodsInPreBind
    ) -> None:
        self._driver = driver
        self._concerned = concerned
        self._pre_binding = pre_binding

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Ask the PreBind plugins if they have work to do. Return None if one has, Skip if none has, or an Error.

        A PreBind plugin without this method always has work.
        """
        concerned = self._concerned(state.absent)
        if not concerned.pre_bind:
            return Status.skip()
        skipped: set[str] = set()
        parallel: set[str] = set()

        def take(plugin: str, preflight: PreBindPreFlight | None, status: Status | None) -> bool | Status:
            if preflight is not None and preflight.allow_parallel:
                parallel.add(plugin)
            if status is None or status.code in (Code.SUCCESS, Code.SKIP):
                if status is not None and status.code is Code.SKIP:
                    skipped.add(plugin)
                return True
            if status.code is Code.ERROR:
                return False
            return Status.from_error(
                f'PreBindPreFlight {plugin} returned "{status.code.label}", which is unsupported. '
                "It is supposed to return Success, Skip, or Error status",
                plugin,
            )

        plugins = concerned.pre_bind_pre_flight
        problem = self._driver.each(state, PRE_BIND_PRE_FLIGHT, plugins, pod, node_name, take=take)
        if problem is not None:
            return problem
        state.skip_pre_bind, state.parallel_pre_bind = frozenset(skipped), frozenset(parallel)
        return None if self.has_pre_bind_work(state, pod) else Status.skip()

    def has_pre_bind_work(self, state: CycleState, pod: PodInfo) -> bool:
        """Return True if a PreBind plugin did not skip this attempt."""
        return any(plugin.name not in state.skip_pre_bind for plugin in self._concerned(state.absent).pre_bind)

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Run PreBind group by group; the plugins of one group run at the same time.

        When one of them fails, the others are cancelled, each after a write under way.
        """
        start = self._driver.now()
        status = await self._run_groups(state, pod, node_name)
        self._driver.observed(PRE_BIND, start, status)
        return status

    async def _run_groups(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        for group in self._groups(state, self._concerned(state.absent).pre_bind):
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
                        self._pre_binding.end(pod.uid, tasks)
                        await asyncio.wait(tasks)
                        return status
            finally:
                for task_ in tasks:
                    task_.cancel()
                await asyncio.wait(tasks)
        return None

    @staticmethod
    def _groups(state: CycleState, plugins: Sequence[Any]) -> list[list[Any]]:
        groups: list[list[Any]] = []
        last_was_parallel = False
        for plugin in plugins:
            is_parallel = plugin.name in state.parallel_pre_bind
            if plugin.name in state.skip_pre_bind:
                # A skipped plugin that may not run in parallel still splits groups; a parallel one does not.
                last_was_parallel = last_was_parallel and is_parallel
            elif is_parallel and last_was_parallel:
                groups[-1].append(plugin)
            else:
                groups.append([plugin])
                last_was_parallel = is_parallel
        return groups

    async def _pre_bind_one(self, state: CycleState, plugin: Any, pod: PodInfo, node_name: str) -> Status | None:
        answer = await self._driver.ask_async(state, PRE_BIND, plugin, pod, node_name)
        return self._driver.outcome(PRE_BIND, plugin, answer)[1]

    def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | Awaitable[Status | None] | None:
        """Run the Bind plugins in order until one does not skip; its answer counts. Return Skip if all skip.

        The answer is awaitable if the plugin's answer is.
        """
        return self._bind(state, pod, node_name, self._concerned(state.absent).bind, self._driver.now())

    def _bind(
        self, state: CycleState, pod: PodInfo, node_name: str, plugins: Sequence[Any], start: float
    ) -> Status | Awaitable[Status | None] | None:
        for place, plugin in enumerate(plugins):
            answer = self._driver.ask_or_await(state, BIND, plugin, pod, node_name)
            if not isinstance(answer, tuple):
                return self._bind_later(state, pod, node_name, plugins[place:], answer, start)
            if not _skips(answer):
                return self._bound(plugin, answer, start)
        status = Status.skip()
        self._driver.observed(BIND, start, status)
        return status

    async def _bind_later(
        self,
        state: CycleState,
        pod: PodInfo,
        node_name: str,
        plugins: Sequence[Any],
        waiting: Awaitable[Any],
        start: float,
    ) -> Status | None:
        """Await the first Bind plugin's answer, and go on with the others if it skips."""
        plugin = plugins[0]
        answer = await self._driver.awaited(BIND, plugin, waiting)
        if _skips(answer):
            more = self._bind(state, pod, node_name, plugins[1:], start)
            return await more if isinstance(more, Awaitable) else more
        return self._bound(plugin, answer, start)

    def _bound(self, plugin: Any, answer: Answer, start: float) -> Status | None:
        _, status = self._driver.outcome(BIND, plugin, answer)
        self._driver.observed(BIND, start, status)
        return status

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Inform the PostBind plugins; a failure is only logged."""
        plugins = self._concerned(state.absent).post_bind
        if not plugins:
            if state.record_plugin_metrics:
                self._driver.observe(POST_BIND.label, Code.SUCCESS, 0.0)
            return
        start = self._driver.now()
        for plugin in plugins:
            try:
                self._driver.call(state, POST_BIND, plugin, pod, node_name)
            except PluginFailedError:
                continue  # logged by call; the pod is bound in any case
        self._driver.observed(POST_BIND, start, None)


def _skips(answer: Answer) -> bool:
    return answer[1] is not None and answer[1].code is Code.SKIP
