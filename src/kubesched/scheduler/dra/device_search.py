"""Search for devices on one node, depth first with backtracking (rules/devices §8.3 to §8.8).

Devices are tried in upstream's order; the first complete solution wins.

When a taint or a constraint rejects a device, or a share is undone, upstream does not give back what the device
took from its pool's counters (rules/devices §8.10). Later devices may then be refused although they would fit. This
search keeps that accounting by default, because no other chooses the devices that upstream chooses. With
``strict_counters`` everything is given back.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kubesched.api.resource import MAX_RESULTS

from .capacity import Amount
from .constraint import Constraint
from .places import Passed, Places, PlacesWithOwn
from .pools import Pool, PoolState
from .supply import Supply
from .wanted import ClaimWant, Problem, Service, Want, Wanted

__all__ = ["DeviceSearch", "Pick", "Position", "SearchProblemError", "SearchTimeoutError", "Solution"]


class SearchProblemError(Exception):
    """An error in a claim, class or selector ends the search and the attempt of the pod."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.text)
        self.problem = problem


class SearchTimeoutError(Exception):
    """The search took too long."""


#: Index of a pool among the pools that the node sees, and index of a device in the pool.
Position = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Pick:
    """Device chosen for a want. ``consumption`` is the capacity that a share consumes; None for a device as a whole."""

    want: Want
    position: Position
    consumption: dict[str, Amount] | None


#: Picks of each claim.
Solution = tuple[tuple[Pick, ...], ...]


class _Outcome(enum.Enum):
    FAILED = enum.auto()
    DONE = enum.auto()
    #: The claim would get too many devices.
    EXCEEDED = enum.auto()


_FAILED: Final = _Outcome.FAILED
_DONE: Final = _Outcome.DONE
_EXCEEDED: Final = _Outcome.EXCEEDED
_START: Final = (0, 0)
_NOTHING: Final[dict[str, int]] = {}
#: Number of steps between two readings of the clock.
_STEPS: Final = 64


class DeviceSearch:
    """One search on one node.

    ``supply`` returns the state of a pool. ``expired`` is called now and then; True ends the search. ``places`` keeps,
    from one search to the next, the pools that have to be evaluated.
    """

    def __init__(
        self,
        wanted: Wanted,
        pools: Sequence[Pool],
        supply: Callable[[Pool], Supply],
        expired: Callable[[], bool],
        *,
        places: Places | PlacesWithOwn | None = None,
        strict_counters: bool = False,
    ) -> None:
        self._strict = strict_counters
        self._places = places
        self._wanted = wanted
        self._pools = pools
        self._make_supply = supply
        self._supplies: list[Supply | None] = [None] * len(pools)
        self._expired = expired
        self._all: dict[int, list[Position]] = {}
        self._picks: list[list[Pick]] = [[] for _ in wanted.claims]
        self._picked: dict[Position, int] = {}
        self._picked_by: list[set[Position]] = [set() for _ in wanted.claims]
        self._constraints = [[Constraint(spec) for spec in claim.constraints] for claim in wanted.claims]
        #: Amounts that shares chosen in this search consume, by device. A device with an entry has taken its counters.
        self._consumed: dict[Position, dict[str, int]] = {}
        self._counted: dict[int, dict[tuple[str, str], int]] = {}
        self._passed = Passed()
        #: Number of calls of the recursive search, for tests and statistics.
        self.steps = 0

    def run(self) -> Solution | None:
        """Return the devices for every claim, or None.

        Raises:
            SearchProblemError: when a claim, class or selector cannot be used.
            SearchTimeoutError: when the search took too long.
        """
        total = 0
        for claim in self._wanted.claims:
            total += self._validate(claim)
        # The recursion goes one level deeper for each device chosen and for each request.
        depth = 2 * total + 4 * len(self._wanted.wants) + 200
        if depth > sys.getrecursionlimit() - 300:
            sys.setrecursionlimit(depth + 1000)
        if self._search(0, 0, None, 0, _START) is not _DONE:
            return None
        return tuple(map(tuple, self._picks))

    def _supply(self, number: int) -> Supply:
        supply = self._supplies[number]
        if supply is None:
            supply = self._supplies[number] = self._make_supply(self._pools[number])
        return supply

    # -- before the search -------------------------------------------------------------------------------------

    def _validate(self, claim: ClaimWant) -> int:
        """Check a claim, and list the devices of its requests with mode ``All``. Return the most devices that the claim
        may get.
        """
        total = most = 0
        for request in claim.requests:
            numbers = []
            for want in request.wants:
                if want.problem is not None:
                    raise SearchProblemError(want.problem)
                if want.takes_all:
                    self._all[want.index] = self._every(want)
                    numbers.append(len(self._all[want.index]))
                else:
                    numbers.append(want.count)
            total += min(numbers)
            most += min(max(numbers), MAX_RESULTS)
        if total > MAX_RESULTS:
            text = f": number of requested devices {total} exceeds the claim limit of {MAX_RESULTS}"
            raise SearchProblemError(Problem(text, claim.index))
        if claim.problem is not None:
            raise SearchProblemError(claim.problem)
        return most

    def _every(self, want: Want) -> list[Position]:
        """List all devices that a want selects and whose capacity suffices, in use or not."""
        for pool in self._pools:
            if pool.state is PoolState.INCOMPLETE:
                raise SearchProblemError(want.all_devices_problem(pool.id, "being updated"))
            if pool.state is PoolState.INVALID:
                raise SearchProblemError(want.all_devices_problem(pool.id, "invalid"))
        positions: list[Position] = []
        for number in range(len(self._pools)):
            supply = self._supply(number)
            for place, service in enumerate(supply.services):
                selected = service.selects[want.index]
                if isinstance(selected, Problem):
                    raise SearchProblemError(selected)
                if selected and supply.has_capacity(want, place, {}):
                    positions.append((number, place))
        return positions

    # -- the search --------------------------------------------------------------------------------------------

    def _search(self, c: int, r: int, want: Want | None, k: int, start: Position) -> _Outcome:
        """Choose devices from request ``r`` of claim ``c`` on.

        ``k`` devices are chosen for ``want`` already. The search for the next device begins at ``start``.
        """
        self.steps += 1
        if self.steps % _STEPS == 0 and self._expired():
            raise SearchTimeoutError
        claims = self._wanted.claims
        if c == len(claims):
            return _DONE
        requests = claims[c].requests
        if r == len(requests):
            outcome = self._search(c + 1, 0, None, 0, _START)
            return _FAILED if outcome is _EXCEEDED else outcome
        if want is None:
            request = requests[r]
            if request.is_list:
                return self._first_available(c, r, request.wants)
            want = request.wants[0]
        if want.takes_all:
            return self._next_of_all(c, r, want, k)
        if k == want.count:
            return self._search(c, r + 1, None, 0, _START)
        if len(self._picks[c]) + want.count - k > MAX_RESULTS:
            return _EXCEEDED
        if not self._can_succeed(want, want.count - k, start):
            return _FAILED
        for position, problem in self._acceptable(want, start):
            if self._is_taken(want, position):
                continue
            if problem is not None:
                raise SearchProblemError(problem)
            if not self._take(want, position, must=False):
                continue
            outcome = self._search(c, r, want, k + 1, (position[0], position[1] + 1))
            if outcome is _DONE:
                return _DONE
            self._give_back(want)
            if outcome is _EXCEEDED:
                return _EXCEEDED
        return _FAILED

    def _first_available(self, c: int, r: int, wants: Sequence[Want]) -> _Outcome:
        exceeded = True
        for want in wants:
            outcome = self._search(c, r, want, 0, _START)
            if outcome is _DONE:
                return _DONE
            exceeded = exceeded and outcome is _EXCEEDED
        return _EXCEEDED if exceeded else _FAILED

    def _next_of_all(self, c: int, r: int, want: Want, k: int) -> _Outcome:
        positions = self._all[want.index]
        if not positions:
            return _FAILED
        if k == len(positions):
            return self._search(c, r + 1, None, 0, _START)
        if len(self._picks[c]) + len(positions) - k > MAX_RESULTS:
            return _EXCEEDED
        number, place = position = positions[k]
        supply = self._supply(number)
        if supply.is_in_use(want, place) or self._is_taken(want, position) or not self._take(want, position, must=True):
            return _FAILED
        outcome = self._search(c, r, want, k + 1, _START)
        if outcome is not _DONE:
            self._give_back(want)
        return outcome

    # -- candidates --------------------------------------------------------------------------------------------

    def _candidates(self, want: Want, start: Position) -> Iterator[tuple[Position, Problem | None]]:
        """Yield the devices to try from a position on. Incomplete and invalid pools have none."""
        first, least = start
        for number in self._numbers(want, first):
            candidates = self._supply(number).candidates(want)
            if not candidates and self._places is not None:
                self._places.close(want, number)
            for place, problem in candidates:
                if number > first or place >= least:
                    yield (number, place), problem

    def _numbers(self, want: Want, number: int) -> Iterator[int]:
        """Yield the numbers of the pools to evaluate, beginning at a number."""
        if self._places is None:
            yield from range(number, len(self._pools))
            return
        while (number := self._places.next_open(want, number)) < len(self._pools):
            yield number
            number += 1

    def _acceptable(self, want: Want, start: Position) -> Iterator[tuple[Position, Problem | None]]:
        """Yield the candidates, except candidates in pools where the constraints reject every device.

        A rejected device may keep a part of its pool's counters. :meth:`_make_up` takes that part when the pool is
        evaluated.
        """
        chosen = self._pools_of_value(want)
        if chosen is None:
            yield from self._candidates(want, start)
            return
        number, least = start
        for place in chosen:
            if place < number:
                continue
            self._passed.add(want, number, place)
            yield from self._candidates_of(want, place, least if place == start[0] else 0)
            number = place + 1
        self._passed.add(want, number, len(self._pools))

    def _candidates_of(self, want: Want, number: int, least: int) -> Iterator[tuple[Position, Problem | None]]:
        for place, problem in self._supply(number).candidates(want):
            if place >= least:
                yield (number, place), problem

    def _pools_of_value(self, want: Want) -> list[int] | None:
        """Return, in order, the places of the pools that may have a device with the value of the devices chosen so far.

        Pools from which devices were chosen are among them. None when no constraint asks for a certain value.
        """
        if self._places is None:
            return None
        constraints = self._constraints[want.claim]
        if not constraints or any(each.is_distinct for each in constraints):
            return None
        for constraint in constraints:
            value = constraint.value_for(want)
            if value is not None:
                found = set(self._places.with_value(want, constraint.name, value))
                found.update(pick.position[0] for picks in self._picks for pick in picks)
                return sorted(found)
        return None

    def _can_succeed(self, want: Want, count: int, start: Position) -> bool:
        """False if no attempt can succeed: fewer than ``count`` devices are left to try, and none of them has a
        problem.

        A device with counters is always tried, because the counters that it keeps affect later alternatives.
        """
        if count < 2:
            return True
        for (number, place), problem in self._candidates(want, start):
            count -= 1
            if count == 0 or problem is not None:
                return True
            if not self._strict and self._supply(number).services[place].model.consumes:
                return True
        return False

    def _is_taken(self, want: Want, position: Position) -> bool:
        """True if the device was chosen before in this search and the want cannot share it."""
        return position in (self._picked_by[want.claim] if want.admin else self._picked)

    # -- choosing ----------------------------------------------------------------------------------------------

    def _take(self, want: Want, position: Position, *, must: bool) -> bool:
        """Choose a device if capacity, counters, taints and constraints allow it.

        With ``must`` the request is for all devices. A constraint that rejects this device is then an error, even if
        its capacity is short.
        """
        number, place = position
        supply = self._supply(number)
        service = supply.services[place]
        has_capacity = supply.has_capacity(want, place, self._consumed.get(position, _NOTHING))
        if not has_capacity and not must:
            return False
        claim = want.claim
        if service.model.consumes:
            if not self._wanted.features.partitionable_devices:
                return False
            self._make_up(number)
            if not self._count(position, service, 1):
                return False
        if not service.tolerated[want.index]:
            self._reject(position, service)
            return False
        for index, constraint in enumerate(self._constraints[claim]):
            if constraint.add(want, service):
                continue
            for added in self._constraints[claim][:index]:
                added.remove(want)
            self._reject(position, service)
            if must:
                device = f"{supply.pool.id}/{supply.pool.devices[place].name}"
                text = f", request {want.short}: cannot add device {device} because a claim constraint would not be satisfied"
                raise SearchProblemError(Problem(text, claim))
            return False
        if not has_capacity:
            for added in self._constraints[claim]:
                added.remove(want)
            self._reject(position, service)
            return False
        self._picks[claim].append(Pick(want, position, self._mark(want, position, service)))
        return True

    def _mark(self, want: Want, position: Position, service: Service) -> dict[str, Amount] | None:
        """Note that a device is chosen. Return the capacity that a share of it consumes; None for a whole device."""
        if not service.model.shared:
            self._picked[position] = self._picked.get(position, 0) + 1
            self._picked_by[want.claim].add(position)
            return None
        consumption = service.consumption[want.index]
        assert consumption is not None
        totals = self._consumed.setdefault(position, {})
        for name, (amount, _) in consumption.items():
            totals[name] = totals.get(name, 0) + amount
        return consumption

    def _give_back(self, want: Want) -> None:
        """Undo the latest choice for a claim."""
        claim = want.claim
        pick = self._picks[claim].pop()
        position = pick.position
        if pick.consumption is not None:
            self._give_back_share(position, pick.consumption)
        else:
            self._picked[position] -= 1
            if not self._picked[position]:
                del self._picked[position]
            self._picked_by[claim].discard(position)
        for constraint in self._constraints[claim]:
            constraint.remove(want)
        service = self._supply(position[0]).services[position[1]]
        if service.model.consumes and (self._strict or not service.model.shared):
            self._count(position, service, -1)

    def _give_back_share(self, position: Position, consumption: Mapping[str, Amount]) -> None:
        """Take back the capacity that a share consumes.

        Upstream sees by consumed amounts whether a device has shares. A device whose shares name no amounts therefore
        still counts as shared after its last share is undone. A device whose amounts are all 0 no longer counts as
        shared after the first undo.
        """
        totals = self._consumed.get(position, {})
        for name, (amount, _) in consumption.items():
            totals[name] = totals.get(name, 0) - amount
        if self._strict:
            is_gone = not any(pick.position == position for picks in self._picks for pick in picks)
        else:
            is_gone = bool(consumption) and not any(totals.values())
        if is_gone:
            self._consumed.pop(position, None)

    def _reject(self, position: Position, service: Service) -> None:
        """Note that a device is not chosen, although it took its part of the counters."""
        if self._strict and service.model.consumes:
            self._count(position, service, -1)

    def _make_up(self, number: int) -> None:
        """Take the parts that rejected devices keep from the counters of a pool that the search has skipped."""
        if self._strict:
            return
        supply = self._supply(number)
        exhausted: set[int] = set()
        for want in self._passed.wants_of(number):
            if want.index in exhausted:
                continue  # No device of the want got a part of the counters, and less is left now.
            took = False
            for place, problem in supply.candidates(want):
                service = supply.services[place]
                if problem is None and service.model.consumes:
                    took = self._count((number, place), service, 1) or took
            if not took:
                exhausted.add(want.index)

    def _count(self, position: Position, service: Service, sign: int) -> bool:
        """Take a device's use from the counters of its pool, or put it back. False when the counters do not suffice.

        The first share of a device takes its part; further shares take nothing. No counter of the pool may be
        overdrawn. Only counters that the device uses can become too small.
        """
        number, place = position
        supply = self._supply(number)
        if service.model.shared and (position in self._consumed or supply.has_share(place)):
            return True
        if sign > 0 and supply.in_use.is_overdrawn:
            return False
        available = supply.in_use.available
        assert available is not None
        totals = self._counted.setdefault(number, {})
        enough = True
        for name, counters in service.model.consumes:
            for counter, amount in counters:
                total = totals[name, counter] = totals.get((name, counter), 0) + sign * amount
                if total > available[name][counter]:
                    enough = False
        if sign < 0 or enough:
            return True
        self._count(position, service, -1)
        return False
