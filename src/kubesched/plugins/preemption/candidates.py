"""Which nodes a dry run is made on, and how many candidates are enough (spec "Preemption" sections 3.2 and 4.1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kubesched.framework.nodeinfo import NodeInfo
from kubesched.framework.preemption import Candidate, Victims
from kubesched.framework.status import Code, Status

from .dry_run import DryRun

__all__ = ["Found", "candidates_wanted", "find_candidates"]


@dataclass(slots=True)
class Found:
    """What dry runs found.

    Attributes:
        candidates: those that violate no disruption budget first.
        statuses: node name to why its pods would not help.
        errors: the distinct errors; they matter only without candidates.
    """

    candidates: list[Candidate] = field(default_factory=list)
    statuses: dict[str, Status] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


def candidates_wanted(nodes: int, percentage: int, absolute: int) -> int:
    """How many candidates are looked for among this many nodes."""
    return min(nodes, max(nodes * percentage // 100, absolute))


def find_candidates(dry_run: DryRun, nodes: Iterable[NodeInfo], wanted: int) -> Found:
    """Try nodes in this order until ``wanted`` candidates are found, one of them without a budget violated."""
    found = Found()
    violating: list[Candidate] = []
    for node in nodes:
        outcome = dry_run.node(node)
        if isinstance(outcome, Victims) and not outcome.pods:
            outcome = Status.from_error(f'expected at least one victim pod on node "{node.name}"')
        if isinstance(outcome, Status):
            found.statuses[node.name] = outcome
            if outcome.code is Code.ERROR and outcome.message() not in found.errors:
                found.errors.append(outcome.message())
            continue
        candidates = violating if outcome.pdb_violations else found.candidates
        if len(candidates) < wanted:
            candidates.append(Candidate(node.name, outcome))
        if found.candidates and len(found.candidates) + len(violating) >= wanted:
            break
    found.candidates += violating
    return found
