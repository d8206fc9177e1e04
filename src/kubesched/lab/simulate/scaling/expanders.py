"""Expanders: which of several groups gets the new nodes, by the criteria that cluster-autoscaler documents.

Each expander leaves the best options; the next one chooses among those, and chance among what is left.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ...node_groups import NodeGroup

__all__ = ["EXPANDERS", "Option", "chosen"]

#: Memory, in bytes, that costs as much as a core of cpu where clouds sell both, about.
_MEMORY_OF_A_CORE: Final = 7.5 * 2**30
#: Worth of a pod without requests, in cores.
_LEAST_WORTH: Final = 0.01
#: Relative difference below which two scores are equal.
_EQUAL: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Option:
    """Nodes that a group would get, and what for.

    Attributes:
        group: the group.
        count: number of new nodes.
        pods: number of pods that would be on them.
        asked: requests of these pods: cpu in millicores, memory in bytes.
        there: allocatable amounts of all the new nodes, in the same units.
    """

    group: NodeGroup
    count: int
    pods: int
    asked: tuple[int, int]
    there: tuple[int, int]

    @property
    def waste(self) -> float:
        """Part of cpu and part of memory that would be idle, added."""
        return sum(1 - asked / there for asked, there in zip(self.asked, self.there, strict=True) if there)

    @property
    def dearness(self) -> float:
        """Price per hour of the nodes for the worth of the pods, in cores."""
        cpu, memory = self.asked
        return self.group.price * self.count / max(cpu / 1000 + memory / _MEMORY_OF_A_CORE, _LEAST_WORTH * self.pods)


#: Score of an option by the name of the expander; the least is the best. None leaves all.
EXPANDERS: Final[dict[str, Callable[[Option], float] | None]] = {
    "random": None,
    "price": lambda option: option.dearness,
    "least-waste": lambda option: option.waste,
    "most-pods": lambda option: -option.pods,
    "least-nodes": lambda option: option.count,
    "priority": lambda option: -option.group.priority,
}


def chosen(options: Sequence[Option], expanders: Sequence[str], rng: random.Random) -> Option:
    """Return the option that the expanders choose."""
    left = list(options)
    for name in expanders:
        score = EXPANDERS[name]
        if score is None or len(left) < 2:
            continue
        scores = [score(one) for one in left]
        best = min(scores)
        left = [one for one, value in zip(left, scores, strict=True) if value - best <= _EQUAL * max(1.0, abs(best))]
    return left[0] if len(left) == 1 else rng.choice(left)
