"""What preemption decides, as values.

Source: spec "Preemption". Read by extenders.
"""

from __future__ import annotations

from dataclasses import dataclass

from .podinfo import PodInfo

__all__ = ["Victims"]


@dataclass(frozen=True, slots=True)
class Victims:
    """The pods to evict from one node, most important first, and how many of them violate a disruption budget."""

    pods: tuple[PodInfo, ...]
    pdb_violations: int = 0
