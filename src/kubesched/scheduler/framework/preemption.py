"""Preemption's decisions as values (victims, candidates, the choice), and its protocol for extenders.

The plugin DefaultPreemption writes the values; extenders, the simulation and reports read them.

Source: rules/preemption.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..nodes.podinfo import PodInfo
from .status import Status

__all__ = ["Candidate", "Preemption", "PreemptionExtender", "Victims"]


@dataclass(frozen=True, slots=True)
class Victims:
    """Pods to evict from one node, most important first, and the number of them that violate a disruption budget."""

    pods: tuple[PodInfo, ...]
    pdb_violations: int = 0


@dataclass(frozen=True, slots=True)
class Candidate:
    """Candidate of a preemption: a node, and the pods whose eviction makes room there."""

    node_name: str
    victims: Victims


@dataclass(frozen=True, slots=True)
class Preemption:
    """Successful preemption: the preemptor, its node and victims, and why the other nodes lost.

    ``others``, ``rejected`` and ``budgets`` must be called within the attempt: afterwards the data that they read has changed.

    Attributes:
        pod: the preemptor.
        chosen: the node that won, with its victims.
        others: returns the candidates that lost, each with the criterion that decided against it.
        rejected: returns, by node name, why evictions there would not have made room.
        budgets: returns the disruption budgets that the victims violate, as ``namespace/name``.
    """

    pod: PodInfo
    chosen: Candidate
    others: Callable[[], Sequence[tuple[Candidate, str]]]
    rejected: Callable[[], Mapping[str, Status]]
    budgets: Callable[[], Sequence[str]] = tuple


class PreemptionExtender(Protocol):
    """Extender as preemption calls it (rules/framework §8.8)."""

    @property
    def name(self) -> str: ...
    @property
    def ignorable(self) -> bool: ...
    @property
    def supports_preemption(self) -> bool: ...

    def is_interested(self, pod: PodInfo) -> bool: ...

    async def process_preemption(self, pod: PodInfo, victims: Mapping[str, Victims]) -> Mapping[str, Victims]:
        """Return the candidates that the extender accepts, possibly with other victims; raise if it cannot answer.

        Keys are node names.
        """
        ...
