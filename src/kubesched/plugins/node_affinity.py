"""NodeAffinity: node selectors, required and preferred node affinity, and the affinity an operator adds.

PreFilter, Filter, PreScore, Score (spec "Node-level scheduler plugins" section 7.6).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

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
from kubesched.config.args import NodeAffinityArgs
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import ActionType, ClusterEvent, ClusterEventWithHint, EventResource, QueueingHint
from kubesched.framework.interface import Handle, IntArray, Normalize, Plugin, Reads, RowArray, VerdictArray
from kubesched.framework.nodeinfo import NodeInfo
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.status import Status

from . import names

if TYPE_CHECKING:
    from kubesched.cache import NodeList, NodeTable

__all__ = ["NodeAffinity"]

_ENFORCED: Final = 1
_POD: Final = 2
_SCORE_KEY: Final = f"PreScore{names.NODE_AFFINITY}"


class NodeAffinity(Plugin):
    """Selectors are compiled once per attempt (or signature) and evaluated over label columns."""

    name = names.NODE_AFFINITY
    signs_spec = True
    reads: ClassVar[Reads] = Reads.NODE
    normalize: ClassVar[Normalize | None] = Normalize.FORWARD
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

    def sign(self, pod: PodInfo) -> Hashable | None:
        affinity, selector = pod.spec.affinity, pod.spec.node_selector
        return (
            affinity.node_affinity if affinity is not None else None,
            None if selector is None else tuple(sorted(selector.items())),
        )

    # -- filter ----------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeList) -> frozenset[str] | Status | None:
        affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
        required = affinity.required if affinity else None
        if required is None and pod.spec.node_selector is None and self._added_required is None:
            return Status.skip()
        state.write(self.name, required_node_affinity(pod.spec))
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
            return Status.unresolvable(self.REASON_CONFLICT)
        return frozenset(named)

    def _required(self, state: CycleState, pod: PodInfo) -> RequiredNodeAffinity:
        kept = state.get(self.name)
        return kept if kept is not None else required_node_affinity(pod.spec)

    def filter_rows(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> VerdictArray:
        verdicts = np.where(nodes.matches_affinity(self._required(state, pod), rows), 0, _POD).astype(np.uint64)
        if self._added_required is not None:
            verdicts[~nodes.matches_selector(self._added_required, rows)] = _ENFORCED
        return verdicts

    def filter_row(self, state: CycleState, pod: PodInfo, nodes: NodeTable, node: NodeInfo) -> int:
        labels = node.labels
        if self._added_required is not None and not self._added_required.matches(labels, node.name):
            return _ENFORCED
        return 0 if self._required(state, pod).matches(labels, node.name) else _POD

    def verdict_status(self, state: CycleState, pod: PodInfo, verdict: int) -> Status:
        return Status.unresolvable(self.REASON_ENFORCED if verdict == _ENFORCED else self.REASON_POD)

    # -- score -----------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeList) -> Status | None:
        affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
        preferred = affinity.preferred if affinity else None
        if preferred is None and self._added_preferred is None:
            return Status.skip()
        try:
            state.write(_SCORE_KEY, self._all_preferences(pod))
        except SelectorError as error:
            return Status.from_error(error)
        return None

    def _all_preferences(self, pod: PodInfo) -> PreferredTerms:
        """What the operator and the pod prefer.

        Raises:
            SelectorError: when one of the pod's terms cannot be parsed.
        """
        affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
        own = preferred_terms((affinity.preferred if affinity else None) or ())
        added = self._added_preferred.terms if self._added_preferred is not None else ()
        return PreferredTerms((*added, *own.terms))

    def _preferences(self, state: CycleState, pod: PodInfo) -> PreferredTerms:
        """What PreScore wrote, else compiled now: a profile may have the plugin at Score only."""
        kept: PreferredTerms | None = state.get(_SCORE_KEY)
        return kept if kept is not None else self._all_preferences(pod)

    def score_rows(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> IntArray:
        preferences = self._preferences(state, pod)
        scores = np.zeros(len(rows), np.int64)
        for weight, term in preferences.terms:
            scores += weight * nodes.matches_term(term, rows)
        return scores

    def score_row(self, state: CycleState, pod: PodInfo, nodes: NodeTable, node: NodeInfo) -> int:
        return self._preferences(state, pod).score(node.labels, node.name)

    # -- queue -----------------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        node = ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL)
        return [ClusterEventWithHint(node, self._after_node)]

    def _after_node(self, pod: PodInfo, old: Node | None, new: Node) -> QueueingHint:
        """Only the pod's own affinity is compared between old and new node (upstream quirk Q3, kept)."""
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
