"""Allocator of devices: allocation on one node, and verdicts for many nodes (rules/devices §8).

The result of a search depends on the claims and on the state of a node. The state consists of the services that its
visible devices offer to the requests, and of the devices in use. Nodes in equal states share one search. Verdicts are
kept per row; only rows whose slices, allocations or labels changed are computed again.
"""

from __future__ import annotations

import random
import uuid
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import Final

from kubesched.api.cel.meter import EvaluationInterruptedError
from kubesched.api.resource import AllocationResult, ResourceClaim
from kubesched.api.types import Node
from kubesched.base.change_log import ChangeLog, Follower

from .allocated import AllocatedDevices, PoolID
from .device_search import DeviceSearch, Pick, SearchProblemError, SearchTimeoutError
from .failures import AllocationError, AllocationTimeoutError, InvalidPoolsError
from .interface import ClassLookup, Verdict
from .inventory import Inventory
from .pools import PoolState
from .remembered import NO_KIND, Outcome, Remembered, Rows, Scores, Verdicts
from .results import allocation_result
from .selectors import Selector, SelectorCache
from .survey import Survey, devices_of_class, survey
from .view import NodeView
from .wanted import Problem, Wanted, content_key, shape_key

__all__ = ["Allocator", "ClaimDemand"]

#: Most contents of claims that are kept, and most shapes of claims whose verdicts are kept.
_MOST_CONTENTS: Final = 1024
_MOST_DEMANDS: Final = 64
_KEPT_CHANGES: Final = 1 << 16
#: Entry in the log of rows: a device of the pools that nodes have in common was allocated or released.
_COMMON: Final = -1


class ClaimDemand:
    """Demand of unallocated claims, prepared once per scheduling attempt.

    ``wanted`` is the claims' content. ``remembered`` may be shared with claims whose classes have other names but equal
    selectors.
    """

    def __init__(self, claims: Sequence[ResourceClaim], wanted: Wanted, remembered: Remembered) -> None:
        self.claims = tuple(claims)
        self.wanted = wanted
        self.remembered = remembered


class Allocator:
    """Allocator of devices, with all that is remembered between calls.

    ``now`` and ``timeout`` (seconds, 0 for none) limit the search on one node. ``rng`` makes the IDs of shares.
    For ``strict_counters`` see :mod:`.device_search`.
    """

    def __init__(
        self,
        inventory: Inventory,
        allocated: AllocatedDevices,
        classes: ClassLookup,
        *,
        now: Callable[[], float],
        timeout: float = 0.0,
        rng: random.Random,
        strict_counters: bool = False,
    ) -> None:
        self.inventory = inventory
        self.allocated = allocated
        self._features = inventory.features
        self._classes = classes
        self._now = now
        self._timeout = timeout
        self._rng = rng
        self._strict_counters = strict_counters
        #: Time at which the evaluation of one node has to end; None when none is under way, or without a limit.
        self._end: float | None = None
        self._selectors = SelectorCache(
            list_type_attributes=self._features.list_type_attributes, interrupted=self._is_expired
        )
        self._contents: OrderedDict[bytes, tuple[Wanted, bytes]] = OrderedDict()
        self._demands: OrderedDict[bytes, Remembered] = OrderedDict()
        self._numbers = count()
        self._views: dict[str, NodeView] = {}
        self._rows: dict[str, int] = {}
        self._nodes: list[Node | None] = []
        #: Names of nodes by their own pools.
        self._nodes_of: dict[PoolID, set[str]] = {}
        self._changed_nodes = Follower.from_now(inventory.changed)
        self._changed_pools = Follower.from_now(allocated.changed)
        #: Log of rows whose nodes see other devices or other uses of devices; it may also contain :data:`_COMMON`.
        self._changed_rows: ChangeLog[int] = ChangeLog(_KEPT_CHANGES)
        #: Searches made, for statistics and tests.
        self.searches = 0

    # -- claims ------------------------------------------------------------------------------------------------

    def demand(self, claims: Sequence[ResourceClaim]) -> ClaimDemand:
        """Prepare unallocated claims, in order. This never fails: faults of claims are reported per node, as upstream.

        Selectors get the time allowance of an attempt with this call.
        """
        self._selectors.allowance.renew()
        key = content_key(claims)
        known = self._contents.get(key)
        if known is None or not known[0].is_current:
            wanted = Wanted(claims, self._features, self._classes, self._selectors)
            known = self._contents[key] = wanted, shape_key(claims, wanted.classes)
            if len(self._contents) > _MOST_CONTENTS:
                self._contents.popitem(last=False)
        self._contents.move_to_end(key)
        wanted, shape = known
        remembered = self._demands.get(shape)
        if remembered is None:
            remembered = self._demands[shape] = Remembered(
                wanted, self.allocated, next(self._numbers), Follower(self._changed_rows)
            )
            if len(self._demands) > _MOST_DEMANDS:
                self._demands.popitem(last=False)
        self._demands.move_to_end(shape)
        return ClaimDemand(claims, wanted, remembered)

    # -- one node ----------------------------------------------------------------------------------------------

    def allocate(self, demand: ClaimDemand, node: Node) -> tuple[AllocationResult, ...] | None:
        """Return one result per claim of the demand, or None when the node lacks devices. Changes nothing.

        Raises:
            InvalidPoolsError, AllocationTimeoutError, AllocationError: see :mod:`.failures`.
        """
        self._refresh()
        view = self._view(node)
        with self._limited(node.name):
            outcome = self._outcome(demand, view)
            if isinstance(outcome, Problem):
                raise AllocationError(self._problem(demand, view, outcome).message(demand.claims))
        if outcome is Verdict.INVALID_POOLS:
            raise InvalidPoolsError
        if isinstance(outcome, Verdict):
            return None
        wanted = demand.wanted
        return tuple(
            allocation_result(claim, want, [_own(wanted, pick) for pick in picks], view, wanted, self._share_id)
            for claim, want, picks in zip(demand.claims, wanted.claims, outcome, strict=True)
        )

    def _problem(self, demand: ClaimDemand, view: NodeView, found: Problem) -> Problem:
        """Return the problem with the names of the claims' own classes. ``found`` may name classes of other claims."""
        if demand.wanted is demand.remembered.wanted:
            return found
        again = self._search(Remembered(demand.wanted, self.allocated, NO_KIND, Follower(self._changed_rows)), view)
        return again if isinstance(again, Problem) else found

    def surveys(self, demand: ClaimDemand, nodes: Iterable[Node]) -> Iterator[list[Survey]]:
        """Survey the devices of each node for each request of the demand; see :mod:`.survey`.

        Nodes in equal states get one object, up to names; of those in an incomplete pool nothing is counted.

        Raises:
            AllocationTimeoutError: when the selectors take too long.
            AllocationError: when a slice's node selector cannot be parsed.
        """
        self._refresh()
        remembered = demand.remembered
        known: dict[Hashable, list[Survey]] = {}
        for node in nodes:
            view = self._view(node)
            with self._limited(node.name):
                state = remembered.state_of(view)
                if state not in known:
                    known[state] = survey(demand.wanted, [remembered.supply(pool) for pool in view.pools])
            yield known[state]

    def devices_of_class(self, name: str, nodes: Iterable[Node]) -> list[tuple[int, int]]:
        """Count a class's devices by node, as (devices, devices in use); (0, 0) if that is unknown.

        Selectors get one time allowance for all nodes. When it is used up, the list ends early: call again with the
        remaining nodes.
        """
        selectors = self._selectors_of(name)
        if selectors is None:
            return [(0, 0) for _ in nodes]
        counts: list[tuple[int, int]] = []
        with suppress(EvaluationInterruptedError):
            for node in nodes:
                try:
                    pools = [(pool, pool.in_use(self.allocated)) for pool in self._view(node).pools]
                    counts.append(devices_of_class(selectors, pools) or (0, 0))
                except AllocationError:
                    counts.append((0, 0))
        return counts

    def all_of_class(self, name: str) -> tuple[int, int]:
        """Count all devices of a class in the cluster, as (devices, devices in use); (0, 0) if that is unknown."""
        selectors = self._selectors_of(name)
        if selectors is None:
            return 0, 0
        pools = [(pool, pool.in_use(self.allocated)) for pool in self.inventory.whole_pools()]
        with suppress(EvaluationInterruptedError):
            return devices_of_class(selectors, pools) or (0, 0)
        return 0, 0

    def _selectors_of(self, name: str) -> list[Selector] | None:
        """Return the selectors of a class, with a time allowance; None without the class."""
        found = self._classes(name)
        if found is None:
            return None
        self._selectors.allowance.renew()
        self._refresh()
        expressions = [item.cel.expression if item.cel is not None else "" for item in found.spec.selectors]
        return [self._selectors.selector(expression) for expression in expressions]

    @contextmanager
    def _limited(self, node_name: str) -> Iterator[None]:
        """Limit the time that one node may take, for selectors and the search together.

        Raises:
            AllocationTimeoutError: when it took longer.
        """
        before = self._end
        if before is None and self._timeout > 0:
            self._end = self._now() + self._timeout
        try:
            yield
        except (EvaluationInterruptedError, SearchTimeoutError):
            raise AllocationTimeoutError(f"node {node_name}: timed out trying to allocate devices") from None
        finally:
            self._end = before

    def _is_expired(self) -> bool:
        return self._end is not None and self._now() > self._end

    def _share_id(self) -> str:
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4))

    def _view(self, node: Node) -> NodeView:
        view = self._views.get(node.name)
        if view is None or (view.node is not node and view.node.labels != node.labels):
            self._drop_view(node.name)
            view = self._views[node.name] = NodeView(node, self.inventory)
            for _, pool in view.own:
                self._nodes_of.setdefault(pool.id, set()).add(node.name)
        return view

    def _drop_view(self, name: str) -> None:
        view = self._views.pop(name, None)
        if view is None:
            return
        for _, pool in view.own:
            names = self._nodes_of[pool.id]
            names.discard(name)
            if not names:
                del self._nodes_of[pool.id]

    def _outcome(self, demand: ClaimDemand, view: NodeView, state: Hashable = None) -> Outcome:
        """Return the result of the search on a node.

        Nodes in the same ``state`` (None: compute it) share the result.
        """
        remembered = demand.remembered
        state = state or remembered.state_of(view)
        outcome = remembered.outcomes.get(state)
        if outcome is None or isinstance(outcome, Problem):
            # A problem is not shared: its text may name a device or pool of the node.
            outcome = remembered.outcomes[state] = self._search(remembered, view)
        return outcome

    def _search(self, remembered: Remembered, view: NodeView) -> Outcome:
        self.searches += 1
        search = DeviceSearch(
            remembered.wanted,
            view.pools,
            remembered.supply,
            self._is_expired,
            places=remembered.places(view),
            strict_counters=self._strict_counters,
        )
        try:
            solution = search.run()
        except SearchProblemError as error:
            return error.problem
        if solution is not None:
            return solution
        if any(pool.state is PoolState.INVALID for pool in view.pools):
            return Verdict.INVALID_POOLS
        return Verdict.CANNOT_ALLOCATE

    # -- many nodes --------------------------------------------------------------------------------------------

    def set_node(self, row: int, node: Node | None) -> None:
        """Set the node in a row (None: no node). To be called again whenever the node object changes."""
        while row >= len(self._nodes):
            self._nodes.append(None)
        before = self._nodes[row]
        self._nodes[row] = node
        if before is not None and (node is None or node.name != before.name) and self._rows.get(before.name) == row:
            del self._rows[before.name]
            self._drop_view(before.name)
        if node is not None:
            self._rows[node.name] = row
        self._changed_rows.append(row)

    def verdicts(self, demand: ClaimDemand, rows: Rows) -> Verdicts:
        """Return the :class:`Verdict` of each of these rows, for which :meth:`set_node` was called.

        Nodes that are equal up to names are evaluated once. Other rows are not evaluated.

        Raises:
            AllocationTimeoutError: when a search took too long; the attempt of the pod ends.
        """
        remembered = self._caught_up(demand)
        remembered.bring_up_to_date(rows, lambda row: self._verdict(demand, row))
        return remembered.verdicts[rows]

    def verdict(self, demand: ClaimDemand, row: int) -> Verdict:
        """Return the verdict of one row.

        Raises:
            AllocationTimeoutError: as :meth:`verdicts`.
        """
        return Verdict(self._caught_up(demand).verdict_of(row, lambda row: self._verdict(demand, row)))

    def _caught_up(self, demand: ClaimDemand) -> Remembered:
        """Return the memory for a demand, after noting there the rows that changed."""
        self._refresh()
        remembered = demand.remembered
        remembered.resize(len(self._nodes))
        rows = remembered.changes.read()
        if rows is None:
            remembered.rows_changed(None)
        elif rows:
            if _COMMON in rows:
                remembered.common_pools_changed()
            remembered.rows_changed([row for row in rows if row != _COMMON])
        return remembered

    def follower(self) -> Follower[int]:
        """Return a follower of changes from now on, for :meth:`changed`."""
        self._refresh()
        return Follower.from_now(self._changed_rows)

    def changed(self, follower: Follower[int], demand: ClaimDemand | None = None) -> list[int] | None:
        """Return the rows whose devices may have changed since the last call with this follower; None: all rows.

        With ``demand`` only changes that matter to these claims count.
        """
        self._refresh()
        rows = follower.read()
        if rows is None or _COMMON not in rows:
            return rows
        if demand is None or self.uses_common_pools(demand):
            return None
        return [row for row in rows if row != _COMMON]

    def uses_common_pools(self, demand: ClaimDemand) -> bool:
        """True if the common pools of nodes evaluated so far have devices for these claims."""
        try:
            with self._limited("any"):
                return any(demand.remembered.matters(common) for common in self.inventory.common_pools())
        except AllocationTimeoutError:
            return True  # the attempt reports it for a node

    def preferences(self, demand: ClaimDemand, rows: Rows) -> Scores:
        """Score rows: for each request with ``firstAvailable``, 8 minus the index of the alternative that serves it.

        Rows that the claims do not fit score 0. Source: rules/devices §5.5.

        Raises:
            AllocationTimeoutError: see :meth:`verdicts`.
        """
        self.verdicts(demand, rows)
        return demand.remembered.scores[rows]

    def _verdict(self, demand: ClaimDemand, row: int) -> tuple[Verdict, int, int]:
        """Return the verdict, the score and the kind of a row."""
        node = self._nodes[row]
        if node is None:
            return Verdict.CANNOT_ALLOCATE, 0, NO_KIND
        with self._limited(node.name):
            return self._verdict_on(demand, node)

    def _verdict_on(self, demand: ClaimDemand, node: Node) -> tuple[Verdict, int, int]:
        """Return the verdict, the score and the kind of a node."""
        remembered, kind = demand.remembered, NO_KIND
        try:
            view = self._view(node)
            kind = remembered.kind_of(view)
            state = remembered.state_of(view, kind)
            answer = remembered.answers.get(state)
            if answer is not None:
                return *answer, kind
            outcome = self._outcome(demand, view, state)
            if isinstance(outcome, tuple) and view.is_odd:
                self.allocate(demand, node)  # a result that cannot be built is an error
        except AllocationError:
            return Verdict.ERROR, 0, kind
        if isinstance(outcome, Problem):
            return Verdict.ERROR, 0, kind
        if isinstance(outcome, Verdict):
            answer = outcome, 0
        else:
            chosen = (pick.want for picks in outcome for pick in picks)
            answer = Verdict.FITS, remembered.wanted.preference(chosen)
        if not view.is_odd:
            remembered.answers[state] = answer
        return *answer, kind

    def _refresh(self) -> None:
        """Take note of changed slices and allocations."""
        self.inventory.settle()
        names, pools = self._changed_nodes.read(), self._changed_pools.read()
        if names is None:
            self._views.clear()
            self._nodes_of.clear()
            self._changed_rows.forget()
        else:
            for name in dict.fromkeys(names):
                self._drop_view(name)
                self._note(name)
        changed = dict.fromkeys(self.allocated.pools() if pools is None else pools)
        for common in self.inventory.common_pools():
            if common.touched(changed):
                self._changed_rows.append(_COMMON)
        for pool in changed:
            for name in self._nodes_of.get(pool, ()):
                self._note(name)

    def _note(self, name: str) -> None:
        """Log that the node of this name sees other devices or uses."""
        row = self._rows.get(name)
        if row is not None:
            self._changed_rows.append(row)


def _own(wanted: Wanted, pick: Pick) -> Pick:
    """Return the pick with the names of these claims. It may have been found for other claims with the same demand."""
    want = wanted.wants[pick.want.index]
    return pick if want is pick.want else Pick(want, pick.position, pick.consumption)
