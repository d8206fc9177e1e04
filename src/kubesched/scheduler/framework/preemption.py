"""What preemption decides, as values: victims, candidates, the choice. And what it needs of an extender.

Source: rules/preemption. Written by the plugin DefaultPreemption; read by extenders, simulation and reports.
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
    """The pods to evict from one node, most important first, and how many of them violate a disruption budget."""

    pods: tuple[PodInfo, ...]
    pdb_violations: int = 0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node where evicting these pods makes room."""

    node_name: str
    victims: Victims


@dataclass(frozen=True, slots=True)
class Preemption:
    """One successful preemption: who is evicted where and for whom, and why the other nodes lost.

    Attributes:
        pod: the preemptor.
        chosen: the node that won, with its victims.
        others: makes a list of the candidates that lost, each with the criterion that decided against it.
        rejected: makes a map of node name to why its pods would not have helped, for nodes that were tried in vain.
            Both are to be called at once: what they read is only there within the attempt.
    """

    pod: PodInfo
    chosen: Candidate
    others: Callable[[], Sequence[tuple[Candidate, str]]]
    rejected: Callable[[], Mapping[str, Status]]


class PreemptionExtender(Protocol):
    """What preemption needs of an extender (rules/framework §8.8)."""

    @property
    def name(self) -> str: ...
    @property
    def ignorable(self) -> bool: ...
    @property
    def supports_preemption(self) -> bool: ...

    def is_interested(self, pod: PodInfo) -> bool: ...

    async def process_preemption(self, pod: PodInfo, victims: Mapping[str, Victims]) -> Mapping[str, Victims]:
        """The candidates that the extender accepts, perhaps with other victims. Raises when it cannot answer."""
        ...
