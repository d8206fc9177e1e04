"""Choice of the best candidate, by five criteria (rules/preemption §6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ...framework.preemption import Candidate
from .importance import earliest_start

__all__ = ["PER_VICTIM", "TIE", "choose", "criteria", "losers"]

#: Addend per victim, so that negative priorities cannot make more victims look better.
PER_VICTIM: Final = 1 << 31
#: Reason why a candidate lost although it is as good as the chosen one.
TIE: Final = "as good by every criterion; any of them may be taken"


#: Criteria in order: the reason why a candidate loses by it, and the value to compare. The least value wins.
_CRITERIA: Final[tuple[tuple[str, Callable[[Candidate, float], float]], ...]] = (
    ("more disruption budgets violated", lambda candidate, now: candidate.victims.pdb_violations),
    ("a victim of higher priority", lambda candidate, now: candidate.victims.pods[0].priority),
    (
        "a greater sum of priorities",
        lambda candidate, now: sum(pod.priority + PER_VICTIM for pod in candidate.victims.pods),
    ),
    ("more victims", lambda candidate, now: len(candidate.victims.pods)),
    ("its most important victims have run longer", lambda candidate, now: -earliest_start(candidate.victims.pods, now)),
)


def criteria(candidate: Candidate, now: float) -> tuple[int, int, int, int, float]:
    """Return the values by which candidates are compared.

    They are the number of budgets violated, the highest priority of a victim, the sum of priorities, the number of
    victims, and the earliest start of a victim of the highest priority, in seconds since the epoch.
    """
    victims = candidate.victims.pods
    priorities = [pod.priority for pod in victims]
    start = earliest_start(victims, now)
    return candidate.victims.pdb_violations, max(priorities), sum(priorities), len(victims), start


def choose(candidates: Sequence[Candidate], now: float) -> tuple[Candidate, list[tuple[Candidate, str]]]:
    """Return the best candidate (there must be one), and the others with the reason why they lost."""
    best, lost = list(candidates), []
    for reason, value in _CRITERIA:
        if len(best) == 1:
            break
        values = [value(candidate, now) for candidate in best]
        least = min(values)
        lost += [(candidate, reason) for candidate, each in zip(best, values, strict=True) if each != least]
        best = [candidate for candidate, each in zip(best, values, strict=True) if each == least]
    lost += [(candidate, TIE) for candidate in best[1:]]
    return best[0], lost


def losers(candidates: Sequence[Candidate], chosen: Candidate, now: float) -> list[tuple[Candidate, str]]:
    """Return the candidates that lost against ``chosen``, with the reason."""
    best, lost = choose(candidates, now)
    if best.node_name == chosen.node_name:
        return lost
    # ``best`` and ``chosen`` are as good as each other: they swap places.
    return [(best if candidate.node_name == chosen.node_name else candidate, reason) for candidate, reason in lost]
