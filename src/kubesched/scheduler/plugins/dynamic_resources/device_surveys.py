"""Surveys of the devices of all nodes, as explanations read them: one for nodes in equal states."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, Protocol

import numpy as np

from ...dra.allocator import ClaimDemand
from ...dra.failures import AllocationError
from ...dra.survey import Survey
from ...framework.question import IntArray, RowArray
from ...nodes import NodeTable
from .claim_state import ClaimState
from .device_holders import DeviceHolders
from .manager import DeviceManager, NodeAllocator

__all__ = ["PLENTY", "DeviceQuestion", "Surveys"]

#: More devices than a pod can ask for.
PLENTY: Final = 1 << 40


class DeviceQuestion(Protocol):
    """Question about a pod's devices, as far as it is read here."""

    @property
    def attempt(self) -> ClaimState: ...
    @property
    def problem(self) -> str: ...
    def demands(self, rows: RowArray) -> Iterator[tuple[RowArray | slice, ClaimDemand]]: ...


class Surveys:
    """Surveys of all nodes, one for nodes in equal states."""

    def __init__(
        self, question: DeviceQuestion, allocator: NodeAllocator, manager: DeviceManager, nodes: NodeTable
    ) -> None:
        self.manager = manager
        self.holders = DeviceHolders(self, manager, nodes)
        self._nodes = nodes
        self._kind_of = np.full(nodes.capacity, -1, np.int64)
        #: Keys of the claims, and the surveys, by kind of node.
        self._kinds: list[tuple[Sequence[str], list[Survey]]] = []
        order = nodes.order()
        numbers: dict[int, int] = {}
        with suppress(AllocationError):  # the nodes after this one have no numbers
            for positions, demand in question.demands(order):
                rows = order[positions].tolist()
                keys = [claim.key for claim in demand.claims]
                for row, found in zip(rows, allocator.surveys(demand, map(nodes.info, rows)), strict=False):
                    number = numbers.get(id(found))
                    if number is None:
                        number = numbers[id(found)] = len(self._kinds)
                        self._kinds.append((keys, found))
                    self._kind_of[row] = number

    def of(self, rows: RowArray, claim: str, requests: Callable[[str], bool]) -> list[tuple[str, list[Survey]]]:
        """The surveys of a claim's requests at some rows: (name of the first node, surveys) for each kind of node."""
        kinds, first = np.unique(self._kind_of[rows], return_index=True)
        found = []
        for kind, place in zip(kinds.tolist(), first.tolist(), strict=True):
            if kind >= 0:
                keys, surveys = self._kinds[kind]
                mine = [one for one in surveys if keys[one.claim] == claim and requests(one.request)]
                found.append((self._nodes.info(int(rows[place])).name, mine))
        return found

    def kind(self, row: int) -> int:
        """Number of the kind of a row's node; -1 where nothing is known."""
        return int(self._kind_of[row])

    def of_class(self, class_name: str, rows: RowArray) -> tuple[IntArray, IntArray]:
        """Free and matching devices of a class at some rows, int64[len(rows)]; plenty where nothing is asked of devices."""
        counts = np.full((2, len(self._kinds) + 1), PLENTY, np.int64)
        for kind, (_, surveys) in enumerate(self._kinds):
            for one in surveys:
                if one.class_name == class_name:
                    counts[:, kind] = one.free, one.matching
        free, matching = counts[:, self._kind_of[rows]]
        return free, matching

    def name(self, row: int) -> str:
        return self._nodes.info(row).name

    def everywhere(self, claim: str, requests: Callable[[str], bool]) -> list[Survey]:
        return [one for _, mine in self.of(self._nodes.order(), claim, requests) for one in mine]
