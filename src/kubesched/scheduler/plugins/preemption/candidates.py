"""Candidate nodes of preemption: the nodes to try, and the number of candidates that is enough (rules/preemption §3.2
and §4.1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ...framework.preemption import Candidate, Victims
from ...framework.status import Code, Status
from ...nodes.nodeinfo import NodeInfo
from .choose import choose
from .dry_run import DryRun

__all__ = ["Found", "candidates_wanted", "find_candidates"]


class Found:
    """Results of dry runs, node by node.

    Attributes:
        errors: the distinct errors; they matter only without candidates.
    """

    def __init__(self) -> None:
        self.clean: list[Candidate] = []
        self.violating: list[Candidate] = []
        self.statuses: dict[str, Status] = {}
        self.errors: list[str] = []

    def __bool__(self) -> bool:
        return bool(self.clean or self.violating)

    def candidates(self) -> list[Candidate]:
        """Return the candidates, first those that violate no disruption budget."""
        return self.clean + self.violating

    def best(self, now: float) -> Candidate:
        """Return the best candidate. There must be a candidate."""
        return choose(self.candidates(), now)[0]

    def histogram(self) -> Counter[str]:
        """Count nodes by reason."""
        return Counter(reason for status in self.statuses.values() for reason in status.reasons())

    @property
    def tried_in_vain(self) -> int:
        """Number of nodes that have a reason."""
        return len(self.statuses)

    def rejected(self) -> dict[str, Status]:
        """Return why preemption does not help, by node name."""
        return self.statuses


def candidates_wanted(nodes: int, percentage: int, absolute: int) -> int:
    """Number of candidates to look for among this many nodes."""
    return min(nodes, max(nodes * percentage // 100, absolute))


def find_candidates(dry_run: DryRun, nodes: Iterable[NodeInfo], wanted: int) -> Found:
    """Try nodes in this order until ``wanted`` candidates are found, and one of them violates no budget."""
    found = Found()
    for node in nodes:
        outcome = dry_run.node(node)
        if isinstance(outcome, Victims) and not outcome.pods:
            outcome = Status.from_error(f'expected at least one victim pod on node "{node.name}"')
        if isinstance(outcome, Status):
            found.statuses[node.name] = outcome
            if outcome.code is Code.ERROR and outcome.message() not in found.errors:
                found.errors.append(outcome.message())
            continue
        candidates = found.violating if outcome.pdb_violations else found.clean
        if len(candidates) < wanted:
            candidates.append(Candidate(node.name, outcome))
        if found.clean and len(found.clean) + len(found.violating) >= wanted:
            break
    return found
