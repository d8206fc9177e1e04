"""State of PodTopologySpread's Filter for a pod: pods per domain by hard constraint, and the limits.

Used by :mod:`.pod_topology_spread`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kubesched.base.change_log import Follower

from ..nodes.columns import IntArray, IntpArray, RowArray, joined
from ..nodes.podinfo import PodInfo
from .compiled_constraints import CompiledConstraints

__all__ = ["MISSING", "SKEWED", "FilterState"]

#: Verdicts: a node lacks a label, or its domain has too many pods.
MISSING: Final = 1
SKEWED: Final = 2


class FilterState:
    """Counts and limits by hard constraint. The arrays are shared and never changed; ``added`` holds what-ifs."""

    __slots__ = ("_changes", "_compiled", "_domains", "added", "allowed", "columns", "counts")

    def __init__(self, compiled: CompiledConstraints) -> None:
        self._compiled = compiled
        self._domains = list(compiled.domains)
        self._changes = [Follower.from_now(domains.log) for domains in compiled.domains]
        self.columns = [domains.column for domains in compiled.domains]
        self.counts = [domains.counts for domains in compiled.domains]
        #: Per constraint, the greatest number of pods with which a domain can still take another pod.
        self.allowed = [self._allowance(place, domains.counts) for place, domains in enumerate(compiled.domains)]
        #: Changes of counts by (place of the constraint, code of the domain).
        self.added: dict[tuple[int, int], int] = {}

    def _allowance(self, place: int, counts: IntArray) -> int:
        compiled = self._compiled
        constraint, domains = compiled.constraints[place], compiled.domains[place]
        least = 0 if domains.places < constraint.min_domains else domains.least(counts)
        return constraint.max_skew + least - compiled.own[place]

    def catch_up(self) -> RowArray | None:
        """Read the current counts. Return the rows whose verdict changed; None if they are not known."""
        compiled = self._compiled
        compiled.sync()
        touched: list[IntpArray] = []
        for place, domains in enumerate(compiled.domains):
            codes = self._changes[place].read() if domains is self._domains[place] else None
            if codes is None:
                return None
            if not codes:
                continue  # the counts are the same, so their minimum is, too
            before, was_allowed = self.counts[place], self.allowed[place]
            now = self.counts[place] = domains.counts
            allowed = self.allowed[place] = self._allowance(place, now)
            if allowed == was_allowed:
                changed = [code for code in set(codes) if (before.item(code) > allowed) != (now.item(code) > allowed)]
            else:
                changed = np.flatnonzero((before[:-1] > was_allowed) != (now[:-1] > allowed)).tolist()
            touched += [self.columns[place].rows_of(code) for code in changed]
        return joined(touched)

    def clone(self) -> FilterState:
        twin = FilterState.__new__(FilterState)
        # Among a state and its clones, only the one that a layer keeps catches up.
        twin._compiled, twin._domains, twin._changes = self._compiled, self._domains, self._changes
        twin.columns, twin.counts = self.columns, list(self.counts)
        twin.allowed, twin.added = list(self.allowed), dict(self.added)
        return twin

    def shift(self, pod: PodInfo, row: int, delta: int) -> None:
        """Add a pod to the counts of a node (``delta`` 1), or remove it (-1).

        Pods being deleted count here (rules/topology §B.13 quirk B-Q3, kept).
        """
        compiled = self._compiled
        for place, (constraint, domains) in enumerate(zip(compiled.constraints, compiled.domains, strict=True)):
            if not constraint.selector.matches(pod.labels) or not domains.includes(row):
                continue
            code = int(self.columns[place].codes[row])
            self.added[place, code] = self.added.get((place, code), 0) + delta
            counts = self.counts[place].copy()
            for (at, where), change in self.added.items():
                if at == place:
                    counts[where] += change
            self.allowed[place] = self._allowance(place, counts)

    def verdict(self, row: int) -> int:
        for place, column in enumerate(self.columns):
            code = column.codes.item(row)
            if code < 0:
                return MISSING
            count = self.counts[place].item(code)
            if self.added:
                count += self.added.get((place, code), 0)
            if count > self.allowed[place]:
                return SKEWED
        return 0
