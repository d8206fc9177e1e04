"""Preemptions in a result: who was evicted where and for whom, and why it was not another node."""

from __future__ import annotations

from collections import Counter
from typing import Final

from kubesched.scheduler.framework.preemption import Preemption

from .result import LostCandidate, PreemptionReport

__all__ = ["preemption_report"]

#: Of the candidates that lost so many are listed; of each kind of reason one at least.
_MOST: Final = 8


def preemption_report(preemption: Preemption, now: float) -> PreemptionReport:
    """To be called when the preemption is reported: what it reads is only there then. ``now``: virtual seconds."""
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
