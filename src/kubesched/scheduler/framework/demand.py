"""Demands of a pod on its node, as Filter plugins name them for explanations.

A plugin names each demand that it checks, and how the demand could be weaker. The reader runs the plugin's own filter on
a pod that makes this demand alone: that shows where the demand stands in the way. So a demand holds words and changes,
and no second filter.
Reader: :mod:`kubesched.explain`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kubesched.api.types import PodSpec

from .question import IntArray, RowArray

__all__ = ["Amounts", "Change", "Demand"]


@dataclass(frozen=True, slots=True)
class Change:
    """Change of a pod's spec.

    Attributes:
        text: the change in words, as an imperative: ``tolerate the taint dedicated=gpu:NoSchedule``.
        of: makes the changed spec.
    """

    text: str
    of: Callable[[PodSpec], PodSpec]


@dataclass(frozen=True, slots=True)
class Amounts:
    """Amounts that a demand lacks.

    Attributes:
        asked: the amount that the pod asks for.
        lacking: int64[len(rows)], the amount that each row lacks; 0 where there is enough.
        less: returns the change that lowers the pod's request by a given amount.
    """

    asked: int
    lacking: Callable[[RowArray], IntArray]
    less: Callable[[int], Change]


@dataclass(frozen=True, slots=True)
class Demand:
    """One demand of a pod that could be weaker.

    Attributes:
        text: the demand and its numbers at the rows where it stands in the way, such as
            ``cpu: asks for 100; at most 32 is free (n1)``.
        without: the change that drops the demand. None if no change of this pod can drop it, for example when other
            pods keep this pod away.
        weaker: smaller changes, the smallest first; each is tried before the demand is dropped.
        amounts: the amount that each node lacks, if the demand is for an amount of a resource. Such a demand is
            lowered, never dropped.
    """

    text: Callable[[RowArray], str]
    without: Change | None
    weaker: Sequence[Change] = field(default=())
    amounts: Amounts | None = None
