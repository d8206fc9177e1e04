"""Demands of a pod on its node, as Filter plugins name them for explanations.

A plugin names each demand that it checks, and how the demand could be weaker. The reader runs the plugin's own filter on
a pod that makes this demand alone: that shows where the demand stands in the way. So a demand holds words and changes,
and no second filter.
Reader: :mod:`kubesched.explain`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from kubesched.api.types import Pod, PodSpec

from ..nodes.nodeinfo import NodeInfo
from ..nodes.podinfo import PodInfo
from .question import IntArray, RowArray

__all__ = ["Amounts", "Change", "Demand"]


def _unchanged(pod: Pod) -> Pod:
    return pod


def _nobody(row: int) -> Iterable[tuple[NodeInfo, PodInfo]]:
    return ()


def _no_data(rows: RowArray) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class Change:
    """Change of a pod, or of an object that it uses.

    Attributes:
        text: the change in words, as an imperative: ``tolerate the taint dedicated=gpu:NoSchedule``.
        of: makes the changed pod.
        around: of a change of another object, such as a claim: a what-if, within which the plugin sees the changed object.
    """

    text: str
    of: Callable[[Pod], Pod] = _unchanged
    around: Callable[[], AbstractContextManager[object]] = nullcontext

    @classmethod
    def of_spec(cls, text: str, of: Callable[[PodSpec], PodSpec]) -> Change:
        """Make a change of the pod's spec."""
        return cls(text, lambda pod: replace(pod, spec=of(pod.spec)))


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
        without: the change that drops it; None when no change does.
        weaker: smaller changes, the smallest first; each is tried before the demand is dropped.
        amounts: of a demand for an amount: the amount that each node lacks. Dropping it is then no proposal.
        data: the numbers of ``text`` for programs, at the same rows: names to plain data.
        holders: returns the pods, each with its node, that stand in the way of this demand at a row. Only pods of other
            nodes have to be named: those of the node itself are tried in any case.
    """

    text: Callable[[RowArray], str]
    without: Change | None
    weaker: Sequence[Change] = field(default=())
    amounts: Amounts | None = None
    data: Callable[[RowArray], Mapping[str, Any]] = _no_data
    holders: Callable[[int], Iterable[tuple[NodeInfo, PodInfo]]] = _nobody
