"""NodeAffinity: node selectors, required and preferred node affinity, and the affinity that an operator added.

PreFilter, Filter, PreScore, Score (rules/node-plugins §7.6).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from kubesched.api.selectors import (
    NodeSelectorMatcher,
    PreferredTerms,
    RequiredNodeAffinity,
    SelectorError,
    preferred_terms,
    required_node_affinity,
)
from kubesched.api.types import Node

from ..config.args import NodeAffinityArgs
from ..framework.demand import Demand
from ..framework.events import ActionType, ClusterEvent, ClusterEventWithHint, EventResource, QueueingHint
from ..framework.interface import Handle, Plugin
from ..framework.question import IntArray, Normalize, Question, Reads, RowArray, VerdictArray
from ..framework.status import Status
from ..nodes.nodeinfo import NodeInfo
from ..nodes.podinfo import PodInfo
from .demands import node as node_demands

if TYPE_CHECKING:
    from ..nodes import NodeList, NodeTable

__all__ = ["NodeAffinity"]

_ENFORCED: Final = 1
_POD: Final = 2


class _NodeTerms(Question):
    """Question about a pod's node selector and affinity, compiled once and evaluated over label columns."""

    by_spec = True
    reads = Reads.NODE
    normalize = Normalize.FORWARD
    stands_alone = frozenset({"filter", "score"})

    def __init__(
        self, pod: PodInfo, nodes: NodeTable, required: NodeSelectorMatcher | None, preferred: PreferredTerms | None
    ) -> None:
        """``required`` and ``preferred`` are the affinity that the operator added."""
        spec = pod.spec
        self._nodes = nodes
        self._spec = spec
        self._affinity = spec.affinity.node_affinity if spec.affinity is not None else None
        self._added_required, self._added_preferred = required, preferred
        selector = spec.node_selector
        self.key = (self._affinity, None if selector is None else tuple(sorted(selector.items())))

    # -- filter ----------------------------------------------------------------------------------------

    @cached_property
    def _required(self) -> RequiredNodeAffinity:
        return required_node_affinity(self._spec)

    def pre_filter(self, nodes: NodeList) -> frozenset[str] | Status | None:
        required = self._affinity.required if self._affinity else None
        if required is None and self._spec.node_selector is None and self._added_required is None:
            return Status.skip()
        if required is None or not required.node_selector_terms:
            return None
        named: set[str] = set()
        for term in required.node_selector_terms:
            of_term: set[str] | None = None
            for item in term.match_fields:
                if item.key == "metadata.name" and item.operator == "In":
                    of_term = set(item.values) if of_term is None else of_term & set(item.values)
            if of_term is None:
                return None
            named |= of_term
        if not named:
            return Status.unresolvable(NodeAffinity.REASON_CONFLICT)
        return frozenset(named)

    def verdicts(self, rows: RowArray) -> VerdictArray:
        verdicts = np.where(self._nodes.matches_affinity(self._required, rows), 0, _POD).astype(np.uint64)
        if self._added_required is not None:
            verdicts[~self._nodes.matches_selector(self._added_required, rows)] = _ENFORCED
        return verdicts

    def verdict(self, node: NodeInfo) -> int:
        labels = node.labels
        if self._added_required is not None and not self._added_required.matches(labels, node.name):
            return _ENFORCED
        return 0 if self._required.matches(labels, node.name) else _POD

    def why(self, verdict: int) -> Status:
        return Status.unresolvable(NodeAffinity.REASON_ENFORCED if verdict == _ENFORCED else NodeAffinity.REASON_POD)

    # -- score -----------------------------------------------------------------------------------------

    def pre_score(self, nodes: NodeList) -> Status | None:
        preferred = self._affinity.preferred if self._affinity else None
        if preferred is None and self._added_preferred is None:
            return Status.skip()
        try:
            _ = self._preferences
        except SelectorError as error:
            return Status.from_error(error)
        return None

    @cached_property
    def _preferences(self) -> PreferredTerms:
        """Preferences of the operator and of the pod.

        Raises:
            SelectorError: when one of the pod's terms cannot be parsed.
        """
        own = preferred_terms((self._affinity.preferred if self._affinity else None) or ())
        added = self._added_preferred.terms if self._added_preferred is not None else ()
        return PreferredTerms((*added, *own.terms))

    def scores(self, rows: RowArray) -> IntArray:
        scores = np.zeros(len(rows), np.int64)
        for weight, term in self._preferences.terms:
            scores += weight * self._nodes.matches_term(term, rows)
        return scores

    def score(self, node: NodeInfo) -> int:
        return self._preferences.score(node.labels, node.name)


class NodeAffinity(Plugin):
    """Required and preferred node affinity. Its question is :class:`_NodeTerms`."""

    name = "NodeAffinity"
    asks = _NodeTerms
    REASON_POD: Final = "node(s) didn't match Pod's node affinity/selector"
    REASON_ENFORCED: Final = "node(s) didn't match scheduler-enforced node affinity"
    REASON_CONFLICT: Final = "pod affinity terms conflict"

    def __init__(self, args: NodeAffinityArgs | None, handle: Handle) -> None:
        """Compile the added affinity.

        Raises:
            SelectorError: when any of its terms cannot be parsed.
        """
        super().__init__(args, handle)
        added = args.added_affinity if args is not None else None
        self._added_required: NodeSelectorMatcher | None = None
        self._added_preferred: PreferredTerms | None = None
        if added is not None:
            if added.required is not None:
                self._added_required = NodeSelectorMatcher.compile_strict(
                    added.required, "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
                )
            if added.preferred:
                self._added_preferred = preferred_terms(
                    added.preferred, "addedAffinity.preferredDuringSchedulingIgnoredDuringExecution"
                )

    def ask(self, pod: PodInfo, nodes: NodeTable) -> Question | None:
        return _NodeTerms(pod, nodes, self._added_required, self._added_preferred)

    # -- queue -----------------------------------------------------------------------------------------

    def demands(self, pod: PodInfo, nodes: NodeTable) -> Iterable[Demand]:
        return node_demands.labels(pod, nodes)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        node = ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL)
        return [ClusterEventWithHint(node, self._after_node)]

    def _after_node(self, pod: PodInfo, old: Node | None, new: Node) -> QueueingHint:
        """Compare only the pod's own affinity between old and new node (rules/node-plugins §11 quirk Q3, kept)."""
        labels = new.metadata.labels
        if self._added_required is not None and not self._added_required.matches(labels, new.name):
            return QueueingHint.SKIP
        required = required_node_affinity(pod.spec)
        if not required.matches(labels, new.name):
            if required.affinity is not None and required.affinity.error and required.node_selector.matches(labels):
                # Unparsable terms: upstream reports an error here, and an error counts as Queue.
                return QueueingHint.QUEUE
            return QueueingHint.SKIP
        if old is not None and required.matches(old.metadata.labels, old.name):
            return QueueingHint.SKIP
        return QueueingHint.QUEUE
