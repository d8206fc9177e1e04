"""Extenders' part in preemption: they may drop candidates and change victims (rules/preemption §5)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from ..framework.preemption import Candidate, PreemptionExtender, Victims
from ..nodes.podinfo import PodInfo

__all__ = ["ask_extenders", "interested"]

_log = logging.getLogger("kubesched.scheduler.plugins")


def interested(extenders: Sequence[PreemptionExtender], pod: PodInfo) -> list[PreemptionExtender]:
    """Return the extenders to call about a preemption for the pod."""
    return [extender for extender in extenders if extender.supports_preemption and extender.is_interested(pod)]


async def ask_extenders(
    extenders: Sequence[PreemptionExtender], pod: PodInfo, candidates: Sequence[Candidate]
) -> list[Candidate]:
    """Return the candidates that all extenders accept. Each extender receives the answer of the previous one.

    Raises:
        Exception: the error of an extender that is not ignorable.
    """
    left: dict[str, Victims] = {candidate.node_name: candidate.victims for candidate in candidates}
    for extender in extenders:
        try:
            answer = await extender.process_preemption(pod, left)
        except Exception as error:
            if not extender.ignorable:
                raise
            _log.warning("skipping extender %s, which is ignorable: %s", extender.name, error)
            continue
        left = _with_victims(extender, pod, answer)
        if not left:
            break
    return [Candidate(name, victims) for name, victims in left.items()]


def _with_victims(extender: PreemptionExtender, pod: PodInfo, answer: Mapping[str, Victims]) -> dict[str, Victims]:
    """Return the nodes of an answer that can be candidates. If the extender is ignorable, other nodes are dropped.

    Raises:
        RuntimeError: when there are other nodes and the extender is not ignorable.
    """
    problems = {
        name: problem for name, victims in answer.items() if (problem := _problem(extender, pod, name, victims))
    }
    if problems and not extender.ignorable:
        raise RuntimeError(next(iter(problems.values())))
    for problem in problems.values():
        _log.warning("extender %s is ignorable, this is left out of its answer: %s", extender.name, problem)
    return {name: victims for name, victims in answer.items() if name not in problems}


def _problem(extender: PreemptionExtender, pod: PodInfo, node_name: str, victims: Victims) -> str:
    """Return why the victims cannot be evicted from the node, empty if they can."""
    if not victims.pods:
        return f'expected at least one victim pod on node "{node_name}"'
    for victim in victims.pods:
        if victim.priority >= pod.priority:
            return (
                f'extender "{extender.name}" claims to preempt pod {victim.key} on node "{node_name}", whose priority '
                f"{victim.priority} is not lower than {pod.priority}"
            )
        if victim.spec.node_name != node_name:
            return (
                f'extender "{extender.name}" claims to preempt pod {victim.key} on node "{node_name}", where it is not'
            )
    return ""
