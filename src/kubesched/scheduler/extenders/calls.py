"""Calls to all interested extenders for one pod: filter one after the other, prioritize all at once, bind with the
first extender that binds.

Called by :mod:`.lane` and :mod:`..core.binding`. Source: rules/framework §8.5 to §8.7.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from kubesched.base.tasks import child, ended_from_outside, running_task

from ..framework.interface import MAX_NODE_SCORE
from ..framework.metrics import GaugeValue
from ..framework.status import Status
from ..nodes.nodeinfo import NodeInfo
from ..nodes.podinfo import PodInfo
from .interface import Extender, ExtenderError

__all__ = ["Filtered", "bind", "filter_nodes", "may_bind", "prioritize"]

T = TypeVar("T")

_log = logging.getLogger("kubesched.scheduler")

#: Factor from an extender's score (0…10) to a plugin's (0…100).
_SCALE: Final = MAX_NODE_SCORE // 10
#: Bound of the sum of extenders' contributions to a node: with the plugins' total it still fits into 64 bits.
_MOST: Final = 1 << 60


@dataclass(slots=True)
class Filtered:
    """Nodes that all extenders accept, and the rejections of the other nodes by name."""

    nodes: list[NodeInfo]
    rejections: dict[str, Status] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return [node.name for node in self.nodes]


async def filter_nodes(extenders: Sequence[Extender], pod: PodInfo, nodes: Sequence[NodeInfo]) -> Filtered:
    """Ask each interested extender in turn about the nodes that the previous one accepted, as long as nodes are left.

    Raises:
        ExtenderError: from the first extender that fails and is not ignorable.
    """
    found = Filtered(list(nodes))
    for extender in extenders:
        if not extender.supports_filter or not extender.is_interested(pod):
            continue
        # A node may have been removed while the previous extender was awaited.
        found.nodes = [node for node in found.nodes if node.node is not None]
        if not found.nodes:
            break
        given = {node.name: node for node in found.nodes}
        try:
            answer = await _answer(extender, "filter", extender.filter(pod, tuple(found.nodes)))
            unknown = next((name for name in answer.names if name not in given), None)
            if unknown is not None:
                text = f'claims a filtered node "{unknown}" which is not found in the input node list'
                raise ExtenderError(f'extender "{extender.name}" {text}')
        except ExtenderError as error:
            if not extender.ignorable:
                raise
            _log.warning("extender %s is ignorable, its failure to filter is ignored: %s", extender.name, error)
            continue
        found.nodes = [given[name] for name in dict.fromkeys(answer.names)]
        statuses = {name: Status.unschedulable(reason) for name, reason in answer.failed.items()}
        statuses |= {name: Status.unresolvable(reason) for name, reason in answer.failed_and_unresolvable.items()}
        for name, status in statuses.items():
            if name in given:
                found.rejections[name] = status
            else:  # an extender may name other nodes; they must not count in the pod's message
                _log.warning("extender %s rejects node %s, which it was not given", extender.name, name)
    return found


async def prioritize(
    extenders: Sequence[Extender], pod: PodInfo, nodes: Sequence[NodeInfo], running: GaugeValue
) -> Mapping[str, int]:
    """Return the points that all interested extenders together add to each node's total, by node name.

    The extenders are called at the same time. An extender that fails adds nothing, ignorable or not. ``running`` counts
    the calls under way.
    """
    calls = [
        child(_points(extender, pod, nodes, running), f"prioritize {extender.name} {pod.key}")
        for extender in extenders
        if extender.supports_prioritize and extender.is_interested(pod)
    ]
    totals: dict[str, int] = {}
    if calls:
        try:
            await asyncio.wait(calls)
        finally:
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)
    for call in calls:
        for name, points in call.result().items():
            totals[name] = max(-_MOST, min(_MOST, totals.get(name, 0) + points))
    return totals


async def _points(
    extender: Extender, pod: PodInfo, nodes: Sequence[NodeInfo], running: GaugeValue
) -> Mapping[str, int]:
    running.inc()
    try:
        answer = await _answer(extender, "prioritize", extender.prioritize(pod, nodes))
    except ExtenderError as error:
        _log.warning("extender %s failed to prioritize and adds nothing: %s", extender.name, error)
        return {}
    finally:
        running.dec()
    return {name: score * extender.weight * _SCALE for name, score in answer.items()}


def may_bind(extenders: Sequence[Extender], pod: PodInfo) -> bool:
    """True if :func:`bind` has an extender to call."""
    return any(extender.is_binder and extender.is_interested(pod) for extender in extenders)


async def bind(extenders: Sequence[Extender], pod: PodInfo, node_name: str) -> bool:
    """Let the first interested extender that can bind bind the pod. False if the Bind plugins have to do that.

    Raises:
        ExtenderError: from an extender that fails and is not ignorable.
    """
    for extender in extenders:
        if extender.is_binder and extender.is_interested(pod):
            try:
                await _answer(extender, "bind", extender.bind(pod, node_name))
            except ExtenderError as error:
                if not extender.ignorable:
                    raise
                _log.warning("extender %s is ignorable, its failure to bind is ignored: %s", extender.name, error)
            else:
                return True
    return False


async def _answer(extender: Extender, verb: str, work: Awaitable[T]) -> T:
    """Return an extender's answer. Every failure of the extender becomes an ExtenderError."""
    task = running_task()
    try:
        return await work
    except (ExtenderError, KeyboardInterrupt):
        raise
    except BaseException as error:
        if ended_from_outside(task, error):
            raise
        _log.exception("extender %s failed in %s", extender.name, verb)
        raise ExtenderError(f'extender "{extender.name}" failed in {verb}: {type(error).__name__}: {error}') from error
