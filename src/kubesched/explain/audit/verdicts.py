"""Verdicts of all Filter plugins of a profile on one node. Unlike in a cycle, a rejection does not end the calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kubesched.scheduler.core.plan import Asked
from kubesched.scheduler.core.search import Search, prepared
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.framework.runtime import Framework
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes import NodeInfo, PodInfo

__all__ = ["Verdict", "verdicts_on"]


class Verdict(NamedTuple):
    """Rejection of a node by one plugin; ``is_failure`` if the plugin failed instead."""

    plugin: str
    reason: str
    is_failure: bool = False


def verdicts_on(
    framework: Framework, search: Search, pod: PodInfo, node: NodeInfo
) -> tuple[list[Verdict], Asked | None]:
    """Return the rejections of a node, by plugin, and the keys of the pod's questions (None if a plugin failed).

    The pod must not be on the node, nor name it in its spec.
    """
    asked: Asked | None = None
    try:
        asked = search.ask(pod)
        state = prepared(CycleState(), False, asked.plan.absent)
        outcome = framework.pre_filter(state, pod, search.snapshot.nodes())
        if outcome.status is None:
            allowed = outcome.nodes is None or node.name in outcome.nodes
            found = [] if allowed else [_not_allowed(name) for name in outcome.restricting]
            for entry in framework.filters:
                if entry.name not in state.skip_filter:
                    verdict = entry.one(state, pod, search.table, node)
                    if verdict:
                        found.append(_of(entry.status(state, pod, verdict)))
            return list(dict.fromkeys(found)), asked
    except PluginFailedError:
        pass  # one plugin after the other tells which, and what the others say
    return list(dict.fromkeys(_one_by_one(framework, search, pod, node))), asked


def _one_by_one(framework: Framework, search: Search, pod: PodInfo, node: NodeInfo) -> Iterator[Verdict]:
    filters = {entry.name: entry for entry in framework.filters}
    for name in dict.fromkeys([*(name for name, _ in framework.points["preFilter"]), *filters]):
        framework.turn.number += 1
        state = prepared(CycleState(), False)
        try:
            outcome = framework.pre_filter(state, pod, search.snapshot.nodes(), {name})
            if outcome.status is not None:
                yield _of(outcome.status.with_plugin(name))
                continue
            if outcome.nodes is not None and node.name not in outcome.nodes:
                yield _not_allowed(name)
            if name in filters and name not in state.skip_filter:
                verdict = filters[name].one(state, pod, search.table, node)
                if verdict:
                    yield _of(filters[name].status(state, pod, verdict))
        except PluginFailedError as error:
            yield Verdict(name, str(error), is_failure=True)


def _of(status: Status) -> Verdict:
    return Verdict(status.plugin, "; ".join(status.reasons()))


def _not_allowed(plugin: str) -> Verdict:
    return Verdict(plugin, f"node is not among those that {plugin} allows")
