"""Comparison, typed: the schema of the JSON and YAML output of ``kubesched diff``.

Field names are camelCase on the wire. Written by :mod:`.compare`, rendered by :mod:`.text` and :mod:`.page`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["KINDS", "ComparisonReport", "Figure", "Kind", "PodDifference", "SideReport", "WorkloadDifference"]

#: ``lost``: with a node in A, without one in B. ``gained``: the reverse. ``moved``: on another node. ``onlyA``,
#: ``onlyB``: the other side has no such pod. ``outcome``: it ended in another way. ``wait``: it waited longer or shorter.
Kind = Literal["lost", "gained", "moved", "onlyA", "onlyB", "outcome", "wait"]
KINDS: tuple[Kind, ...] = ("lost", "gained", "moved", "onlyA", "onlyB", "outcome", "wait")


class _Struct(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    pass


class SideReport(_Struct, frozen=True, kw_only=True):
    """One side: its name, and what it is: ``result``, ``cluster`` or ``decisions``."""

    name: str
    form: str


class Figure(_Struct, frozen=True, kw_only=True):
    """Figure of both sides; None where a side does not know it. Shares are from 0 to 1, times are virtual seconds."""

    name: str
    a: float | str | None
    b: float | str | None


class PodDifference(_Struct, frozen=True, kw_only=True):
    """Pod that differs, how, and why as far as the sides tell."""

    #: ``namespace/name`` in A; in B where A has no such pod.
    pod: str
    kind: Kind
    workload: str = ""
    #: Nodes; empty for none.
    a: str = ""
    b: str = ""
    #: Seconds from the queue to the binding; None when it was not bound during the run.
    wait_a: float | None = None
    wait_b: float | None = None
    why: str = ""


class WorkloadDifference(_Struct, frozen=True, kw_only=True):
    """Workload whose placed pods are otherwise dealt over zones, or are on another number of nodes."""

    namespace: str
    workload: str
    #: Placed pods by zone; the zone of nodes that have none, and of recorded runs, is empty.
    zones_a: dict[str, int]
    zones_b: dict[str, int]
    #: Number of nodes that these pods are on.
    nodes_a: int
    nodes_b: int


class ComparisonReport(_Struct, frozen=True, kw_only=True):
    """Comparison of two sides, without views."""

    api_version: str = "kubesched.io/v1alpha1"
    kind: str = "Comparison"
    a: SideReport
    b: SideReport
    #: Figures in the order of the results.
    figures: list[Figure]
    #: Number of pods that differ, by kind; pods that do not differ are ``same``.
    counts: dict[str, int]
    #: Pods that differ, by kind, workload and name.
    pods: list[PodDifference]
    #: Workloads whose pods have another number, zones or number of nodes.
    workloads: list[WorkloadDifference] = []
    #: Remarks, such as figures that a side cannot have.
    warnings: list[str] = []

    @property
    def differs(self) -> bool:
        """True if any pod or any figure differs."""
        return bool(self.pods) or any(one.a != one.b for one in self.figures if None not in (one.a, one.b))
