"""Topology constraints of a distinct pod, compiled once, and the counts that they use.

A :class:`CompiledConstraints` holds the hard or the soft constraints of pods that cannot be distinguished, with one
``DomainCounts`` per constraint. The cost of catching up grows with the number of pods that moved since the last such
pod.

Used by :mod:`.pod_topology_spread`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import numpy.typing as npt

from kubesched.api.selectors import Selector, required_node_affinity
from kubesched.api.taints import first_untolerated
from kubesched.api.types import Pod, Taint, TopologySpreadConstraint
from kubesched.base.change_log import ChangeLog, Follower

from ..framework.interface import Handle
from ..nodes.columns import ABSENT, IntArray, LabelColumn, RowArray
from ..nodes.domain_counts import Counter, DomainCounts, RowMask
from ..nodes.podinfo import PodInfo
from ..nodes.term_index import PodSet
from .topology_constraints import HARD, HOSTNAME, SOFT, Constraint, DefaultSelectors, compile_constraints

if TYPE_CHECKING:
    from ..nodes import NodeTable

__all__ = ["CompiledConstraints", "ConstraintCache"]

#: Memory for compiled pods, in bytes. A pod takes ``_POD_BYTES`` besides its masks and counts per domain, which are
#: as long as the table. The ``_LEAST_KEPT`` pods used last are kept regardless of their memory.
_BUDGET: Final = 32 << 20
_POD_BYTES: Final = 4 << 10
_LEAST_KEPT: Final = 32

_encode: Final = msgspec.msgpack.Encoder().encode


class CompiledConstraints:
    """Hard or soft constraints of a distinct pod, compiled.

    Attributes, current after :meth:`sync`:
        constraints: in the pod's order.
        own: 1 for each constraint that counts the pod itself, else 0.
        domains: per constraint, pods per domain among the nodes that the constraint includes. Where ``by_row``, only
            the topology is read.
        by_row: per constraint, True if it counts by node. Soft constraints on hostnames do.
        requires_all: True if only nodes with all topology keys take part.
    """

    def __init__(
        self,
        table: NodeTable,
        pod: PodInfo,
        kind: str,
        constraints: tuple[Constraint, ...],
        *,
        requires_all: bool,
        comparison: bool,
    ) -> None:
        self._table = table
        self.constraints = constraints
        self.requires_all = requires_all
        self.by_row = [kind == SOFT and constraint.key == HOSTNAME for constraint in constraints]
        self.own = [int(constraint.selector.matches(pod.labels)) for constraint in constraints]
        namespace = frozenset((pod.namespace,))
        #: Sets of counted pods, per constraint. An empty selector counts no existing pod, as upstream (rules/topology
        #: §B.13 quirk B-Q1).
        self._sets = [
            None
            if constraint.selector.is_empty or constraint.selector.matches_nothing
            else PodSet(((namespace, constraint.selector),), terminating=False)
            for constraint in constraints
        ]
        self._counters: list[Counter | None] = [None] * len(constraints)
        self._masks = self._make_masks(pod, comparison=comparison)
        self.domains: list[DomainCounts] = []
        #: (rows, column, its version, size) of the last call of :meth:`size`, by the constraint's place.
        self._sizes: dict[int, tuple[RowArray, LabelColumn, int, int]] = {}

    def _make_masks(self, pod: PodInfo, *, comparison: bool) -> list[RowMask | None]:
        """Masks of the nodes that each constraint includes; None for all nodes with the constraint's key. Equal masks
        are shared.
        """
        affinity = required_node_affinity(pod.spec)
        tolerations = pod.spec.tolerations

        def tolerates(taints: tuple[Taint, ...]) -> bool:
            return first_untolerated(taints, tolerations, comparison_operators=comparison) is None

        keys = tuple(dict.fromkeys(constraint.key for constraint in self.constraints)) if self.requires_all else ()
        shared: dict[tuple[bool, bool], RowMask] = {}
        masks: list[RowMask | None] = []
        for constraint in self.constraints:
            honors = (constraint.honors_affinity and not affinity.is_trivial, constraint.honors_taints)
            if not any(honors) and len(keys) <= 1:
                masks.append(None)
                continue
            if honors not in shared:
                taint_test: Callable[[tuple[Taint, ...]], bool] | None = tolerates if honors[1] else None
                shared[honors] = RowMask(self._table, keys, affinity if honors[0] else None, taint_test)
            masks.append(shared[honors])
        return masks

    def sync(self) -> None:
        """Catch up with pods, nodes and labels. Counters that aged out are registered again."""
        index = self._table.terms
        fresh = not self.domains
        for place, pod_set in enumerate(self._sets):
            counter, mask = self._counters[place], self._masks[place]
            stale = fresh
            if pod_set is not None and (counter is None or not index.touch(counter)):
                counter = self._counters[place] = index.counter(pod_set)
                stale = True
            key = self.constraints[place].key
            if self.by_row[place]:
                domains = self.domains[place] if not fresh else DomainCounts(self._table, None, key)
                domains.sync()
            elif mask is None and counter is not None:
                domains = index.domains(counter, key)
            elif stale:
                domains = DomainCounts(self._table, counter, key, mask)
                domains.sync()
            else:
                domains = self.domains[place]
                domains.sync()
            if fresh:
                self.domains.append(domains)
            else:
                self.domains[place] = domains

    # -- scoring ---------------------------------------------------------------------------------------

    def size(self, place: int, rows: RowArray) -> int:
        """Number of domains among the feasible nodes. Nodes without the key make up one domain, called ""."""
        column = self.domains[place].column
        known = self._sizes.get(place)
        if known is not None and known[0] is rows and known[1] is column and known[2] == column.version:
            return known[3]
        seen = np.bincount(column.at(rows) + 1, minlength=len(column.values) + 1) > 0
        size = int(seen.sum())
        empty = column.code_of.get("")
        if empty is not None and seen[0] and seen[empty + 1]:
            size -= 1
        if not rows.flags.writeable:
            self._sizes[place] = (rows, column, column.version, size)
        return size

    def has_nameless(self, place: int) -> bool:
        """True if nodes without the key belong to a domain "" that some node has as a value."""
        return not self.requires_all and "" in self.domains[place].column.code_of

    def per_domain(self, place: int) -> IntArray:
        """Pods per domain, int64[codes + 1]."""
        domains = self.domains[place]
        counter = self._counters[place]
        if counter is None or not self.has_nameless(place):
            return domains.counts
        empty = domains.column.code_of[""]
        # Nodes without the label belong to the domain "", which some node carries as a value here.
        mask = self._masks[place]
        rows = np.flatnonzero(self._table.alive & (domains.column.codes == ABSENT))
        if mask is not None:
            rows = rows[mask.rows[rows]]
        counts = domains.counts.copy()
        counts[empty] += int(counter.dense(self._table.capacity)[rows].sum())
        return counts

    def per_row(self, place: int) -> npt.NDArray[np.int32]:
        """Pods per node, int32[capacity], on all nodes, not only on those that the constraint includes.

        Updated in place.
        """
        counter, capacity = self._counters[place], self._table.capacity
        return np.zeros(capacity, np.int32) if counter is None else counter.dense(capacity)

    def counter(self, place: int) -> Counter | None:
        """Return the current counter of a constraint's pods; None when the constraint matches no pod."""
        return self._counters[place]

    # -- changes ----------------------------------------------------------------------------------------

    def follower(self, place: int) -> Follower[int]:
        """Follower of the domains whose count changes from now on. Where ``by_row``, it follows rows (``~row`` for a
        pod that left).
        """
        if not self.by_row[place]:
            return Follower.from_now(self.domains[place].log)
        counter = self._counters[place]
        return Follower.from_now(counter.log if counter is not None else ChangeLog(0))


class ConstraintCache:
    """Cache of compiled constraints by distinct pod; the least recently used are dropped."""

    def __init__(self, handle: Handle, defaults: Sequence[TopologySpreadConstraint], *, system: bool) -> None:
        """``defaults`` are the constraints of pods without their own; ``system`` is True if they are upstream's
        defaults.
        """
        self._handle = handle
        self._defaults = {kind: [item for item in defaults if item.when_unsatisfiable == kind] for kind in (HARD, SOFT)}
        self._any_default = bool(defaults)
        self._system = system
        self._selectors = DefaultSelectors(handle)
        self._comparison = handle.gate("TaintTolerationComparisonOperators")
        self._kept: OrderedDict[Hashable, CompiledConstraints | None] = OrderedDict()
        #: The pod whose text was made last, and the text. The text is needed several times in a row, also for the next
        #: pod of the template, which shares spec and labels.
        self._last: tuple[Pod | None, bytes] = (None, b"")

    def constraints(self, pod: PodInfo, kind: str) -> tuple[Constraint, ...]:
        """Compile a pod's constraints of a kind, its own or the default ones.

        Raises:
            SelectorError: when a selector of the pod cannot be parsed.
        """
        listed = pod.spec.topology_spread_constraints
        if listed:
            return compile_constraints(listed, kind, pod.labels)
        defaults = self._defaults[kind]
        selector = self._selectors.of(pod) if defaults else None
        return compile_constraints(defaults, kind, pod.labels, selector) if selector and not selector.is_empty else ()

    def has_no_default(self, pod: PodInfo) -> bool:
        """True if no default constraint applies to a pod without constraints of its own."""
        return not self._any_default or self._selectors.is_empty(pod)

    def interaction_key(self, pod: PodInfo) -> tuple[Selector | None, bytes]:
        """Key by which pods share compiled constraints: the fields that constraints read, and the default selector if
        it applies.
        """
        listed = pod.spec.topology_spread_constraints
        selector = self._selectors.of(pod) if self._any_default and not listed else None
        if not listed and (selector is None or selector.is_empty):
            return None, b""
        known, text = self._last
        spec, meta = pod.spec, pod.metadata
        if (
            known is None
            or known.spec is not spec
            or known.metadata.namespace != meta.namespace
            or known.metadata.labels is not meta.labels
        ):
            affinity = spec.affinity.node_affinity if spec.affinity is not None else None
            text = _encode((meta.namespace, meta.labels, listed, spec.node_selector, affinity, spec.tolerations))
            self._last = (pod.pod, text)
        return selector, text

    def of(self, pod: PodInfo, kind: str) -> CompiledConstraints | None:
        """Return a pod's constraints with current counts; None when there are none.

        Raises:
            SelectorError: when a selector of the pod cannot be parsed.
        """
        listed = pod.spec.topology_spread_constraints
        if not listed and not self._defaults[kind]:
            return None
        interaction_key = self.interaction_key(pod)
        selector = interaction_key[0]
        if not listed and selector is None:
            return None
        key = (kind, interaction_key)
        kept = self._kept
        if key in kept:
            kept.move_to_end(key)
            compiled = kept[key]
        else:
            compiled = kept[key] = self._compile(pod, kind, selector)
            table = self._handle.snapshot.table
            while len(kept) > max(_LEAST_KEPT, _BUDGET // (_POD_BYTES + 16 * table.capacity)):
                kept.popitem(last=False)
        if compiled is not None:
            compiled.sync()
        return compiled

    def _compile(self, pod: PodInfo, kind: str, selector: Selector | None) -> CompiledConstraints | None:
        listed = pod.spec.topology_spread_constraints or self._defaults[kind]
        constraints = compile_constraints(listed, kind, pod.labels, selector)
        if not constraints:
            return None
        requires_all = kind == HARD or bool(pod.spec.topology_spread_constraints) or not self._system
        table = self._handle.snapshot.table
        return CompiledConstraints(
            table, pod, kind, constraints, requires_all=requires_all, comparison=self._comparison
        )
