"""What PodTopologySpread's Filter knows of a pod's hard constraints: pods per domain, and how many each may have.

Rows whose labels name the same domains have one verdict, so they are groups: when a domain may take no more pods, a number
is compared, and not its nodes. Used by :mod:`.pod_topology_spread`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from kubesched.api.change_log import Follower
from kubesched.cache.columns import IntArray, IntpArray, RowArray, joined
from kubesched.framework.podinfo import PodInfo

from .compiled_constraints import CompiledConstraints

__all__ = ["MISSING", "SKEWED", "FilterState", "radix"]

#: Verdicts: a node lacks a label, or its domain has too many pods.
MISSING: Final = 1
SKEWED: Final = 2
#: So many numbers of groups are well within an intp.
_NUMBERS: Final = 1 << 62


class FilterState:
    """What Filter needs. The arrays are shared and never changed; AddPod and RemovePod go to ``added``."""

    __slots__ = ("_changes", "_compiled", "_domains", "_radix", "added", "allowed", "columns", "counts")

    def __init__(self, compiled: CompiledConstraints) -> None:
        self._compiled = compiled
        self._domains = list(compiled.domains)
        self._changes = [Follower.from_now(domains.log) for domains in compiled.domains]
        self.columns = [domains.column for domains in compiled.domains]
        self.counts = [domains.counts for domains in compiled.domains]
        #: Per constraint, the greatest number of pods a domain may have to take one more.
        self.allowed = [self._allowance(place, domains.counts) for place, domains in enumerate(compiled.domains)]
        #: (place of the constraint, code of the domain) to change.
        self.added: dict[tuple[int, int], int] = {}
        #: A group's number has a digit per constraint, 1 + code of the domain: what it counts, and how many there are.
        self._radix = radix([len(column.values) + 1 for column in self.columns])

    def _allowance(self, place: int, counts: IntArray) -> int:
        compiled = self._compiled
        constraint, domains = compiled.constraints[place], compiled.domains[place]
        least = 0 if domains.places < constraint.min_domains else domains.least(counts)
        return constraint.max_skew + least - compiled.own[place]

    def catch_up(self) -> list[tuple[int, list[int], IntArray, int]] | None:
        """Read the current counts: per constraint that counts other pods now, what was before; None when it is not known.

        Its place, the codes of the domains, perhaps repeated, and all counts and the allowance before.
        """
        compiled = self._compiled
        compiled.sync()
        moved: list[tuple[int, list[int], IntArray, int]] = []
        for place, domains in enumerate(compiled.domains):
            codes = self._changes[place].read() if domains is self._domains[place] else None
            if codes is None:
                return None
            if not codes:
                continue  # the counts are the same, hence the least of them
            moved.append((place, codes, self.counts[place], self.allowed[place]))
            now = self.counts[place] = domains.counts
            self.allowed[place] = self._allowance(place, now)
        return moved

    def flipped(self) -> RowArray | None:
        """Catch up; the rows whose verdict changed by it, None when they cannot be known."""
        moved = self.catch_up()
        if moved is None:
            return None
        touched: list[IntpArray] = []
        for place, codes, before, was_allowed in moved:
            now, allowed = self.counts[place], self.allowed[place]
            if allowed == was_allowed:
                changed = [code for code in set(codes) if (before.item(code) > allowed) != (now.item(code) > allowed)]
            else:
                changed = np.flatnonzero((before[:-1] > was_allowed) != (now[:-1] > allowed)).tolist()
            touched += [self.columns[place].rows_of(code) for code in changed]
        return joined(touched)

    def clone(self) -> FilterState:
        twin = FilterState.__new__(FilterState)
        # Of a state and its clones only one catches up: that of a layer.
        twin._compiled, twin._domains, twin._changes = self._compiled, self._domains, self._changes
        twin.columns, twin.counts, twin._radix = self.columns, list(self.counts), self._radix
        twin.allowed, twin.added = list(self.allowed), dict(self.added)
        return twin

    def counts_pod(self, pod: PodInfo) -> bool:
        """Whether some constraint would count a pod of the same namespace."""
        return any(constraint.selector.matches(pod.labels) for constraint in self._compiled.constraints)

    def shift(self, pod: PodInfo, row: int, delta: int) -> None:
        """One pod more or less on a node. Upstream quirk B-Q3, kept: pods being deleted count here."""
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

    # -- groups of rows with the same domains; none while pods are added or removed ---------------------

    def groups(self, rows: RowArray) -> RowArray | None:
        """The group of each row; None where they are too many to number."""
        groups: RowArray | None = None
        for column, (unit, _) in zip(self.columns, self._radix, strict=False):
            digits = (column.at(rows) + 1) * unit
            groups = digits if groups is None else groups + digits
        return groups

    def group(self, row: int) -> int:
        return sum(
            [(column.codes.item(row) + 1) * unit for column, (unit, _) in zip(self.columns, self._radix, strict=True)]
        )

    def verdicts_of(self, groups: Sequence[int]) -> list[int]:
        """The verdict on the rows of each group."""
        verdicts = [0] * len(groups)
        for counts, allowed, (unit, size) in zip(self.counts, self.allowed, self._radix, strict=True):
            of_digit = [MISSING, *[SKEWED if count > allowed else 0 for count in counts.tolist()]]
            verdicts = [known or of_digit[group // unit % size] for known, group in zip(verdicts, groups, strict=True)]
        return verdicts


def radix(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """What each digit of a number counts, and how many there are of it; empty when there are more numbers than an intp has."""
    unit, found = 1, []
    for size in sizes:
        found.append((unit, size))
        unit *= size
    return found if unit < _NUMBERS else []
