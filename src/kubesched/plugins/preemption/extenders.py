"""What extenders say of the candidates (spec "Preemption" section 5)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from kubesched.framework.podinfo import PodInfo
from kubesched.framework.preemption import Candidate, PreemptionExtender, Victims

__all__ = ["ask_extenders", "interested"]

_log = logging.getLogger("kubesched.plugins")


def interested(extenders: Sequence[PreemptionExtender], pod: PodInfo) -> list[PreemptionExtender]:
    """The extenders to call about a preemption for the pod."""
    return [extender for extender in extenders if extender.supports_preemption and extender.is_interested(pod)]


async def ask_extenders(
    extenders: Sequence[PreemptionExtender], pod: PodInfo, candidates: Sequence[Candidate]
) -> list[Candidate]:
    """The candidates that are left; each extender's answer replaces what it was given.

    Raises:
        Exception: what an extender raises that is not ignorable.
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
        left = _with_victims(extender, answer)
        if not left:
            break
    return [Candidate(name, victims) for name, victims in left.items()]


def _with_victims(extender: PreemptionExtender, answer: Mapping[str, Victims]) -> dict[str, Victims]:
    empty = [name for name, victims in answer.items() if not victims.pods]
    if empty and not extender.ignorable:
        raise RuntimeError(f'expected at least one victim pod on node "{empty[0]}"')
    return {name: victims for name, victims in answer.items() if victims.pods}
