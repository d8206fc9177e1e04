"""Lookup of the rules that may match a pod. A rule has a label selector; the index is by a label value in the selector.

The lookup takes a namespace and labels. It returns the rules that demand one of these label values, and the rules whose
selector demands no label value at all. Of thousands of rules it returns a handful, and the caller checks each of them.

Used by :mod:`.term_index`: once for the selectors whose pods it counts, and once for the affinity terms of pods.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Final, Generic, TypeVar

from kubesched.api.selectors import Operator, Selector
from kubesched.api.types import Labels

__all__ = ["TermLookup", "narrowest"]

T = TypeVar("T", bound=Hashable)
_Pair = tuple[str, str]

#: Most entries (namespaces times values) of a rule. A rule that needs more is filed under "any namespace" instead.
_MOST_HOMES: Final = 64


def narrowest(selector: Selector) -> tuple[_Pair, ...]:
    """Return the (key, value) pairs of the In requirement with the fewest values; () without an In requirement.

    Labels that match the selector have one of these pairs.
    """
    best: tuple[_Pair, ...] = ()
    for requirement in selector.requirements:
        if requirement.operator is Operator.IN and (not best or len(requirement.values) < len(best)):
            best = tuple((requirement.key, value) for value in sorted(requirement.values))
    return best


class TermLookup(Generic[T]):
    """Rules by namespace (None: any) and demanded label pair (None: no demand). A search returns each rule at most
    once.
    """

    def __init__(self) -> None:
        self._scopes: dict[str | None, dict[_Pair | None, dict[T, None]]] = {}
        self._homes: dict[T, list[tuple[str | None, _Pair | None]]] = {}

    def __len__(self) -> int:
        return len(self._homes)

    def __iter__(self) -> Iterator[T]:
        return iter(self._homes)

    def __contains__(self, item: T) -> bool:
        return item in self._homes

    def add(self, item: T, namespaces: frozenset[str] | None, selector: Selector) -> None:
        """File a rule; ``namespaces`` None means any."""
        pairs: tuple[_Pair | None, ...] = narrowest(selector) or (None,)
        scopes: tuple[str | None, ...] = (None,)
        if namespaces is not None and len(namespaces) * len(pairs) <= _MOST_HOMES:
            scopes = tuple(namespaces)
        homes = [] if selector.matches_nothing else [(scope, pair) for scope in scopes for pair in pairs]
        self._homes[item] = homes
        for scope, pair in homes:
            self._scopes.setdefault(scope, {}).setdefault(pair, {})[item] = None

    def remove(self, item: T) -> None:
        """Remove a rule.

        Raises:
            KeyError: when the rule was not added.
        """
        for scope, pair in self._homes.pop(item):
            shelves = self._scopes[scope]
            shelf = shelves[pair]
            del shelf[item]
            if not shelf:
                del shelves[pair]
                if not shelves:
                    del self._scopes[scope]

    def candidates(self, namespace: str, labels: Labels) -> list[T]:
        """Return every rule that may match a pod; some of them do not."""
        found: list[T] = []
        for scope in (namespace, None):
            shelves = self._scopes.get(scope)
            if shelves is None:
                continue
            shelf = shelves.get(None)
            if shelf is not None:
                found.extend(shelf)
            if labels:
                for pair in labels.items():
                    shelf = shelves.get(pair)
                    if shelf is not None:
                        found.extend(shelf)
        return found
