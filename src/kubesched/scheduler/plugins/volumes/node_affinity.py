"""Nodes that can reach a volume, by its required node affinity. Equal affinities are compiled once.

Only labels decide: upstream evaluates the affinity for a node without a name, so field requirements always pass.
Source: rules/volumes §2.8.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import numpy as np

from kubesched.api.selectors import NodeSelectorMatcher, Operator, TermMatcher
from kubesched.api.types import NodeSelector

from ...nodes import NodeTable
from ...nodes.columns import BoolArray, RowArray

__all__ = ["Affinities", "NodeReach", "Reach", "reaches", "reaches_rows"]

#: Most compiled affinities that are kept without a known volume. Affinities of translated volumes have none.
_MOST_IDLE: Final = 4096
#: Most distinct affinities whose results are all remembered. With more, affinities of at most ``_FEW_VOLUMES`` volumes
#: are not.
_MANY_AFFINITIES: Final = 64
_FEW_VOLUMES: Final = 32


class NodeReach:
    """Nodes that a required node affinity allows.

    Attributes:
        selector: the affinity. Equal affinities share a NodeReach, so it can be compared by identity.
        volumes: number of volumes that have it.
        single: label key and values, if the affinity demands only that the label has one of these values.
    """

    __slots__ = ("_matcher", "selector", "single", "volumes")

    def __init__(self, selector: NodeSelector) -> None:
        self.selector = selector
        self.volumes = 0
        compiled = NodeSelectorMatcher.compile(selector)
        self._matcher = NodeSelectorMatcher(tuple(TermMatcher(term.labels, ()) for term in compiled.terms))
        self.single: tuple[str, frozenset[str]] | None = None
        if len(self._matcher.terms) == 1 and len(self._matcher.terms[0].labels) == 1:
            requirement = self._matcher.terms[0].labels[0]
            if requirement.operator is Operator.IN:
                self.single = requirement.key, requirement.values

    def allows(self, labels: Mapping[str, str]) -> bool:
        """True if a node with these labels can reach the volume."""
        return self._matcher.matches(labels, "")

    def allows_rows(self, nodes: NodeTable, rows: RowArray) -> BoolArray:
        """Return the answers of :meth:`allows` for many nodes; bool[len(rows)]."""
        return nodes.matches_selector(self._matcher, rows)


#: Nodes that can reach a volume; None stands for every node.
Reach: TypeAlias = "NodeReach | None"


def reaches(reach: Reach, labels: Mapping[str, str]) -> bool:
    """True if a node with these labels can reach a volume."""
    return reach is None or reach.allows(labels)


def reaches_rows(reach: Reach, nodes: NodeTable, rows: RowArray) -> BoolArray:
    """Return the answers of :func:`reaches` for many nodes; bool[len(rows)]."""
    return np.ones(len(rows), np.bool_) if reach is None else reach.allows_rows(nodes, rows)


class Affinities:
    """Cache of :class:`NodeReach` objects, one for each distinct node selector."""

    def __init__(self) -> None:
        self._known: dict[NodeSelector, NodeReach] = {}
        self._idle = 0

    def of(self, required: NodeSelector | None) -> Reach:
        """Return the nodes that a required node affinity allows; None for all of them."""
        if required is None:
            return None
        found = self._known.get(required)
        if found is None:
            if self._idle >= _MOST_IDLE:
                self._known = {key: reach for key, reach in self._known.items() if reach.volumes}
                self._idle = 0
            found = self._known[required] = NodeReach(required)
            self._idle += 1
        return found

    def is_shared(self, reach: Reach) -> bool:
        """True if so many volumes have the affinity that its results per node should be remembered.

        Local disks do not count as shared: each node has its own affinity, so remembered results would displace others.
        """
        if reach is None:
            return True
        several = _FEW_VOLUMES if len(self._known) - self._idle > _MANY_AFFINITIES else 1
        return reach.volumes > several

    def count(self, required: NodeSelector | None, change: int) -> None:
        """Note that a volume with this affinity came (1) or went (-1)."""
        reach = self.of(required)
        if reach is None:
            return
        self._idle += (reach.volumes + change == 0) - (reach.volumes == 0)
        reach.volumes += change
