"""Search for the cheapest nodes that hold some pods: greedy, then better bit by bit, then by price from below.

    lower bound (:mod:`.bounds`) ──▶ greedy choice ──▶ nodes left out or replaced ──▶ cheaper choices, the cheapest first

A choice is a number of new nodes of each group. It is tried by the scheduler's cycle (:class:`.site.Site`) and, before it
is told, by a run of the whole cluster (``verify``). Choices are compared by price, then by the number of nodes, then by
their numbers in the order of the groups. The last step goes through all choices from the lower bound up, as long as the
work allows; what it has refused raises the bound, and the first that passes is the cheapest there is.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from .bounds import Floats, Problem, lower_bound
from .choices import Choice, Rules
from .site import Site

__all__ = ["EFFORT", "Purchase", "Steps", "Verify", "Waiting", "buy"]

#: Most placements of pods that are tried in a search, by default.
EFFORT: Final = 100_000
#: Most groups of which one more node is tried at a step, those that look best first.
_MOST_GROUPS: Final = 16
#: Most choices that are looked at from below; most of them that only a run has refused or not.
_MOST_CHOICES: Final = 50_000
_MOST_RUNS: Final = 100
#: Most steps in which nodes come.
_MOST_STEPS: Final = 5
#: Most doublings of the number of nodes that are added to a choice for pods that it leaves.
_MOST_DOUBLINGS: Final = 6
#: Most repairs of a choice that leaves pods without a node.
_MOST_REPAIRS: Final = 16

#: Pod that has no node, as (number of the demand, name); the number is -1 for a pod that was evicted.
Waiting = tuple[int, str]
#: Choices whose nodes come one after another, each when the pods have settled on those before.
Steps = tuple[Choice, ...]
#: Function that runs the whole cluster with the nodes of some steps. It returns the pods, apart from the given ones, that
#: have no node then.
Verify = Callable[[Steps, set[Waiting]], list[Waiting]]


@dataclass(slots=True)
class Purchase:
    """Result of the search.

    Attributes:
        choice: the nodes to add.
        steps: the same nodes in the order in which they have to come; one step if they may come at once.
        bound: price per hour that no choice is below.
        exact: True if no choice of a lower price, or of the same price with fewer nodes, holds the pods.
        without: pods that no choice gives a node, as (number of the demand, name).
        tried: number of choices that were tried by the scheduler.
        runs: number of runs of the whole cluster.
        verified: True if a run has placed all pods but those ``without``.
    """

    choice: Choice
    steps: Steps
    bound: float
    exact: bool = False
    without: list[tuple[int, str]] = field(default_factory=list)
    tried: int = 0
    runs: int = 0
    verified: bool = False


class _Search:
    def __init__(self, site: Site, rules: Rules, verify: Verify, effort: int) -> None:
        self.site, self.rules, self._verify = site, rules, verify
        self.effort = site.work + effort
        self.prices = [group.price for group in site.groups]
        self.wanted = list(site.order)
        self.without: list[tuple[int, str]] = []
        self.tried = self.runs = 0
        self._known: dict[Choice, bool] = {}
        #: Groups that replace others: all, if they are few, else those that seemed promising.
        self.active = set(range(len(self.prices))) if len(self.prices) <= _MOST_GROUPS else set()
        self._left: dict[Choice, int] = {}
        self._waiting: dict[Choice, list[Waiting]] = {}

    def want(self, without: Sequence[tuple[int, str]]) -> None:
        """Want all pods but some."""
        self.without, gone = list(without), set(without)
        self.wanted = [one for one in self.site.order if one not in gone]
        self._known.clear()
        self._left.clear()
        self._waiting.clear()

    def promising(self, choice: Sequence[int], left: Sequence[Waiting], weights: Sequence[float]) -> list[int]:
        """Return the groups that may have one more node and seem to hold most for its price, the best first."""
        count: dict[int, int] = {}
        for index, _ in left:
            count[index] = count.get(index, 0) + 1
        found = []
        for group in range(len(choice)):
            if not self.rules.allow([one + (index == group) for index, one in enumerate(choice)]):
                continue
            worth = max(weights[index] * min(number, self.site.held(index)[group]) for index, number in count.items())
            if worth:
                found.append((-worth / max(self.prices[group], 1e-9), group))
        best = [group for _, group in sorted(found)[:_MOST_GROUPS]]
        self.active.update(best)
        return best

    def counts(self) -> list[int]:
        """Return the number of wanted pods of each demand."""
        found = [0] * len(self.site.demands)
        for index, _ in self.wanted:
            found[index] += 1
        return found

    def price(self, choice: Sequence[int]) -> float:
        return sum(price * one for price, one in zip(self.prices, choice, strict=True))

    def rank(self, choice: Choice) -> tuple[float, int, Choice]:
        return round(self.price(choice), 9), sum(choice), choice

    @property
    def is_spent(self) -> bool:
        return self.site.work >= self.effort

    def fits(self, choice: Choice) -> bool:
        """Return True if the scheduler places all wanted pods with these nodes, by the cycle where that is enough."""
        if choice not in self._known:
            self.tried += 1
            self._known[choice] = not self.waiting(choice) if self.site.by_run else self.site.fits(choice, self.wanted)
        return self._known[choice]

    def left(self, choice: Choice) -> int:
        """Return the number of wanted pods that the scheduling cycle leaves without a node."""
        if choice not in self._left:
            self.tried += 1
            self._left[choice] = self.site.left(choice, self.wanted)
            self._known[choice] = not self._left[choice]
        return self._left[choice]

    def waiting(self, choice: Choice) -> list[Waiting]:
        """Return the wanted pods without a node after a run of the whole cluster with these nodes."""
        if choice not in self._waiting:
            self.runs += 1
            self.site.work += self.site.run_work
            self._waiting[choice] = self._verify((choice,), set(self.without))
        return self._waiting[choice]

    def waiting_after(self, steps: Steps) -> list[Waiting]:
        """Return the wanted pods without a node after a run in which nodes come in steps."""
        if len(steps) == 1:
            return self.waiting(steps[0])
        self.runs += 1
        return self._verify(steps, set(self.without))


def buy(site: Site, rules: Rules, verify: Verify, effort: int = EFFORT) -> Purchase:
    """Return the cheapest choice that was found for the site's pods.

    ``effort`` is a number of placements after which the search ends with what it has.

    Raises:
        NeedsRunError, PluginFailedError: see :class:`.trial.Trial`.
    """
    search = _Search(site, rules, verify, effort)
    with site.trial.same_ties():
        choice = None if site.by_run else _greedy(search)
    if search.without:
        left = search.without
        search.want(())
        whole = _lowest(search)
        if whole is not None:
            return _purchase(search, whole, search.price(whole), exact=True, verified=True)
        search.want(left)
    problem = site.problem(rules.most, search.counts())
    least, fractions = lower_bound(problem)
    least = max(least, search.price(rules.least))
    rounded = _rounded(rules, fractions)
    choice = rounded if choice is None else _best_of(search, [choice, rounded])
    choice, verified = _confirmed(search, choice)
    if not verified and (whole := _lowest(search)) is not None:
        return _purchase(search, whole, search.price(whole), exact=True, verified=True)
    if not verified:
        return _in_steps(search, choice, least)
    if site.by_run:
        choice = _improved(search, choice)
    choice, bound, exact = _from_below(search, problem, choice, least, verified)
    return _purchase(search, choice, bound, exact=exact, verified=verified)


def _purchase(search: _Search, choice: Choice, bound: float, *, exact: bool, verified: bool) -> Purchase:
    return Purchase(
        choice=choice,
        steps=(choice,),
        bound=min(bound, search.price(choice)),
        exact=exact,
        without=search.without,
        tried=search.tried,
        runs=search.runs,
        verified=verified,
    )


def _lowest(search: _Search) -> Choice | None:
    """Return the best choice that holds all wanted pods, where no other way has found one; None if there may be none."""
    top = search.rules.most
    problem = search.site.problem(top, search.counts())
    if not problem.is_met(np.array(top, dtype=float)):
        return None
    least, _ = lower_bound(problem)
    choice, _, exact = _from_below(search, problem, top, max(least, search.price(search.rules.least)), True)
    if exact and (choice != top or (search.rules.allow(top) and not search.waiting(top))):
        return choice
    return None


def _rounded(rules: Rules, fractions: Floats) -> Choice:
    """Return whole numbers of nodes from fractions, within the bounds and limits."""
    choice = list(rules.least)
    for group, fraction in enumerate(fractions):
        want = min(rules.most[group], int(np.ceil(fraction - 1e-6)))
        while choice[group] < want:
            more = [one + (index == group) for index, one in enumerate(choice)]
            if not rules.allow(more):
                break
            choice = more
    return tuple(choice)


def _greedy(search: _Search) -> Choice:
    """Add nodes of the group that places most for its price, until all pods are placed or no group places any.

    Pods that are left then are taken out of the wanted ones.
    """
    site, rules = search.site, search.rules
    choice = list(rules.least)
    weights = _weights(site)
    start = len(site.trial)
    names = site.add(choice)
    try:
        left = site.place(search.wanted)
        while left:
            best: tuple[float, int, int, int] | None = None
            for group in search.promising(choice, left, weights):
                placed = _placed_by_one_more(site, choice, group, left)
                value = sum(weights[index] for index, _ in placed)
                if placed:
                    rank = (-(value / max(search.prices[group], 1e-9)), group, len(placed), group)
                    best = min(best, rank) if best is not None else rank
            if best is None:
                break
            _, _, per_node, group = best
            count = max(1, int(0.7 * len(left) / per_node)) if len(left) > 4 * per_node else 1
            while count > 1 and not rules.allow([one + count * (index == group) for index, one in enumerate(choice)]):
                count //= 2
            start_at = list(choice)
            choice[group] += count
            added = [count if index == group else 0 for index in range(len(choice))]
            names += site.add(added, start_at)
            left = site.place(left)
    finally:
        site.trial.take_back(start)
        site.remove(names)
    search.want(left)
    return tuple(choice)


def _weights(site: Site) -> list[float]:
    """Return the size of a pod of each kind: its greatest share of what all pods ask for."""
    total: dict[str, float] = {}
    for one, requests in zip(site.demands, site.requests, strict=True):
        for name in ("cpu", "memory", *requests.scalars):
            total[name] = total.get(name, 0.0) + requests.get(name) * len(one.names)
    found = []
    for requests in site.requests:
        shares = [requests.get(name) / amount for name, amount in total.items() if amount]
        found.append(max(shares, default=0.0) + 1e-6)
    return found


def _placed_by_one_more(
    site: Site, choice: Sequence[int], group: int, left: Sequence[tuple[int, str]]
) -> list[tuple[int, str]]:
    """Return the pods that one more node of a group places."""
    before = len(site.trial)
    names = site.add([1 if index == group else 0 for index in range(len(choice))], choice)
    try:
        waiting = set(site.place(left))
        return [one for one in left if one not in waiting]
    finally:
        site.trial.take_back(before)
        site.remove(names)


def _best_of(search: _Search, starts: Sequence[Choice]) -> Choice:
    """Improve each of some choices, and return the best result; each gets its share of the work.

    A choice that was made node by node may leave pods when all nodes come at once, since pods take each other's places.
    """
    found = []
    total = search.effort
    for number, start in enumerate(dict.fromkeys(starts)):
        search.effort = search.site.work + (total - search.site.work) // (len(starts) + 1 - number)
        choice, holds = _repaired(search, start)
        found.append((not holds, search.rank(_improved(search, choice) if holds else choice)))
    search.effort = total
    return min(found)[1][2]


# -- better bit by bit -------------------------------------------------------------------------------------


def _improved(search: _Search, choice: Choice) -> Choice:
    """Leave nodes out, and replace them by cheaper ones, as long as that helps and the work allows."""
    improved = True
    while improved and not search.is_spent:
        improved = False
        for other in _neighbours(search, choice):
            if search.is_spent:
                break
            if search.fits(other):
                choice, improved = other, True
                break
    return choice


def _neighbours(search: _Search, choice: Choice) -> Iterator[Choice]:
    """Yield better choices nearby, those that save most first: many nodes less, one less, one or two replaced."""
    found = set()
    groups = range(len(choice))
    for less in groups:
        if not choice[less]:
            continue
        for step in {1, 2, choice[less] // 4, choice[less] // 2} - {0}:
            found.add(_changed(choice, {less: -step}))
            for more in sorted(search.active):
                if more != less:
                    found |= {_changed(choice, {less: -step, more: count}) for count in (1, 2, step)}
    rank = search.rank(choice)
    better = [one for one in found if search.rules.allow(one) and search.rank(one) < rank]
    yield from sorted(better, key=search.rank)


def _changed(choice: Choice, changes: dict[int, int]) -> Choice:
    return tuple(one + changes.get(index, 0) for index, one in enumerate(choice))


def _repaired(search: _Search, choice: Choice) -> tuple[Choice, bool]:
    """Return a choice with which the cycle leaves no pod without a node: the given one, or one with more nodes.

    Where no choice with more nodes of one group leaves fewer, the last one is returned, and False.
    """
    for _ in range(_MOST_REPAIRS):
        waiting = search.left(choice)
        if not waiting:
            return choice, True
        better = next((one for one in _more(search, choice) if search.left(one) < waiting), None)
        if better is None:
            return choice, False
        choice = better
    return choice, not search.left(choice)


def _more(search: _Search, choice: Choice) -> Iterator[Choice]:
    """Yield choices with 1, 2, 4, … more nodes of a group, the cheapest first, as long as the work allows."""
    for step in (1 << power for power in range(_MOST_DOUBLINGS)):
        more = [_changed(choice, {group: step}) for group in sorted(search.active)]
        for one in sorted((one for one in more if search.rules.allow(one)), key=search.rank):
            if search.is_spent:
                return
            yield one


def _confirmed(search: _Search, choice: Choice) -> tuple[Choice, bool]:
    """Return a choice that a run of the whole cluster has placed all wanted pods with, and True.

    Each time pods are left, as many nodes as they fill are added, of the cheapest group that can hold them.
    """
    for _ in range(_MOST_REPAIRS):
        waiting = search.waiting(choice)
        if not waiting:
            return choice, True
        more = _for_waiting(search, choice, waiting)
        if more is None or search.is_spent:
            return choice, False
        choice = more
    return choice, not search.waiting(choice)


def _in_steps(search: _Search, choice: Choice, least: float) -> Purchase:
    """Return a purchase whose nodes come in steps: at once, pods may spread over nodes that others need whole.

    The first step lacks the nodes that the pods which are left would fill; these come when the others have settled.
    Each further step has the nodes for pods that are still left.
    """
    waiting = search.waiting(choice)
    need = _needed(search, waiting)
    first = tuple(max(low, have - one) for low, have, one in zip(search.rules.least, choice, need, strict=True))
    steps: Steps = (choice,)
    if sum(first) and first != choice:
        steps = (first, tuple(have - one for have, one in zip(choice, first, strict=True)))
        waiting = search.waiting_after(steps)
    total = choice
    while waiting and len(steps) < _MOST_STEPS:
        more = _for_waiting(search, total, waiting)
        if more is None:
            break
        steps = (*steps, tuple(new - old for new, old in zip(more, total, strict=True)))
        total = more
        waiting = search.waiting_after(steps)
    return replace(_purchase(search, total, least, exact=False, verified=not waiting), steps=steps)


def _for_waiting(search: _Search, choice: Choice, waiting: Sequence[Waiting]) -> Choice | None:
    """Return the choice with as many more nodes as the pods fill that are left, or with one more; None if none may be."""
    need = _needed(search, waiting)
    one = tuple(int(index == next((at for at, count in enumerate(need) if count), None)) for index in range(len(need)))
    for more in (need, one):
        other = tuple(have + count for have, count in zip(choice, more, strict=True))
        if sum(more) and search.rules.allow(other):
            return other
    return None


def _needed(search: _Search, waiting: Sequence[Waiting]) -> Choice:
    """Return the nodes that pods fill, kind by kind, each of the group that holds them for the least."""
    kinds: dict[int, int] = {}
    for index, _ in waiting:
        if index >= 0:
            kinds[index] = kinds.get(index, 0) + 1
    need = [0] * len(search.prices)
    for kind, count in kinds.items():
        able = [(search.prices[group] * -(-count // held), group, held) for group, held in enumerate(search.site.held(kind)) if held and search.rules.most[group]]  # fmt: skip
        if able:
            _, group, held = min(able)
            need[group] += -(-count // held)
    return tuple(need)


# -- from below --------------------------------------------------------------------------------------------


def _from_below(
    search: _Search, problem: Problem, choice: Choice, least: float, verified: bool
) -> tuple[Choice, float, bool]:
    """Go through choices from the cheapest up. Return the best choice, the bound, and True if nothing better is left.

    A choice is refused by the conditions that every choice must meet, or by a run of the whole cluster: the cycle alone
    may take pods in another order than the queue.
    """
    if not verified:
        return choice, least, False
    bound = least
    for other in _by_price(search, choice, least):
        if other is None or search.is_spent:
            return choice, bound, False
        bound = max(bound, search.price(other))
        if search.rank(other) >= search.rank(choice):
            break
        if not problem.is_met(np.array(other, dtype=float)) or not search.rules.allow(other):
            continue
        if search.runs >= _MOST_RUNS:
            return choice, bound, False
        if not search.waiting(other):
            return other, search.price(other), True
    return choice, search.price(choice), True


def _by_price(search: _Search, best: Choice, least: float) -> Iterator[Choice | None]:
    """Yield choices in the order of their rank, from a price on, each once, up to the best known.

    None at last says that there are more than can be looked at.
    """
    rules = search.rules
    top = search.rank(best)
    heap = [(search.rank(rules.least), 0)]
    made = 0
    while made < _MOST_CHOICES:
        if not heap:
            return
        (price, _, choice), first = heapq.heappop(heap)
        if price >= least - 1e-9:
            yield choice
        for group in range(first, len(choice)):
            made += 1
            if choice[group] < rules.most[group]:
                other = _changed(choice, {group: 1})
                rank = search.rank(other)
                if rank <= top:
                    heapq.heappush(heap, (rank, group))
    yield None
