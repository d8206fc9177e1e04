"""Preemptions in a result: victims, node and preemptor, and why other nodes were not chosen."""

from __future__ import annotations

from collections import Counter
from typing import Final

from kubesched.scheduler.framework.preemption import Preemption

from .report import LostCandidate, PreemptionReport

__all__ = ["preemption_report"]

#: Most lost candidates that are listed, except that each kind of reason is listed at least once.
_MOST: Final = 8


def preemption_report(preemption: Preemption, now: float) -> PreemptionReport:
    """Return the report of a preemption; ``now`` is in virtual seconds.

    Call it when the preemption is reported: it reads data that exists only then.
    """
    lost = list(preemption.others())
    kinds = {why: place for place, (_, why) in reversed(list(enumerate(lost)))}
    shown = sorted({*kinds.values(), *range(min(_MOST, len(lost)))})
    reasons = Counter(reason for status in preemption.rejected().values() for reason in status.reasons())
    chosen = preemption.chosen
    return PreemptionReport(
        pod=preemption.pod.key,
        priority=preemption.pod.priority,
        node=chosen.node_name,
        victims=[pod.key for pod in chosen.victims.pods],
        budget_violations=chosen.victims.pdb_violations,
        at=now,
        candidates=1 + len(lost),
        lost=[
            LostCandidate(
                node=candidate.node_name,
                victims=[pod.key for pod in candidate.victims.pods],
                budget_violations=candidate.victims.pdb_violations,
                why=why,
            )
            for candidate, why in (lost[place] for place in shown)
        ],
        not_helpful=dict(sorted(reasons.items())),
    )
