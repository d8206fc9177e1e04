"""Readings of scenarios with pod groups: ways to play them in which a declared difference is undone.

Each undoes what ``docs/differences.md`` declares about pod groups, so that a vector that agrees then differs for no
other reason. Chance is undone by playing again with other choices among nodes of equal score.

Called by :mod:`.groups`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kubesched.api.groups import PodGroup
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.interface import NodeToStatus, PostFilterResult
from kubesched.scheduler.framework.preemption import Preemption
from kubesched.scheduler.framework.registry import Registry
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.plugins.default_preemption import DefaultPreemption
from kubesched.scheduler.plugins.preemption.groups import Unit, units

from .group_promises import CHANCE

__all__ = ["AS_IT_IS", "Reading", "readings"]

_Answer = tuple[PostFilterResult | None, Status | None]
#: Different choices among nodes of equal score that are tried.
_SEEDS: Final = 4


class _Eager(DefaultPreemption):
    """Preemption that evicts while the group is still being tried."""

    def post_filter(self, state: CycleState, pod: PodInfo, statuses: NodeToStatus) -> _Answer | Awaitable[_Answer]:
        return self._at_once(super().post_filter(state, pod, statuses))

    async def _at_once(self, answer: _Answer | Awaitable[_Answer]) -> _Answer:
        result, status = answer if isinstance(answer, tuple) else await answer
        if result is not None and result.act is not None:
            if (waiting := result.act()) is not None:
                await waiting
            result = PostFilterResult(result.nominating, result.preemption)
        return result, status


class _Cannibal(DefaultPreemption):
    """Preemption that counts a group's own members among the possible victims."""

    def group_units(self, key: str) -> list[Unit]:
        return units(self.handle.snapshot.table, self.handle.informed("podgroups"), "")


class _Forgetful(DefaultPreemption):
    """Preemption that forgets where the group would be placed."""

    async def post_filter_group(
        self, key: str, pods: Sequence[PodInfo], simulate: Any
    ) -> tuple[Mapping[str, str] | Status, Preemption | None]:
        answer, preemption = await super().post_filter_group(key, pods, simulate)
        return (answer if isinstance(answer, Status) else {}), preemption


class _Literal(DefaultPreemption):
    """Preemption that takes empty constraints of a group for constraints."""

    def is_constrained(self, group: PodGroup) -> bool:
        return group.spec.scheduling_constraints is not None


@dataclass(frozen=True, slots=True)
class Reading:
    """Way to play a scenario.

    Attributes:
        why: the declared difference that it undoes.
        retries: groups are tried again without a reason, after every backoff.
        preemption: the plugin in place of DefaultPreemption, or None.
        seed: decides between nodes of equal score.
    """

    why: str = ""
    retries: bool = False
    preemption: type[DefaultPreemption] | None = None
    seed: int = 0

    def registry(self, registry: Registry) -> Registry:
        """Return the plugins to play with."""
        if self.preemption is None:
            return registry
        twin = registry.copy()
        twin.unregister(DefaultPreemption.name)
        twin.register(self.preemption)
        return twin


AS_IT_IS: Final = Reading()

_RETRIES: Final = "a group is tried again when something may help it, not after every backoff"
_UNDONE: Final = (
    ("", None),
    ("no pod is evicted for a group that does not fit", _Eager),
    ("a group does not evict its own members", _Cannibal),
    ("a group is nominated where the simulation has placed it", _Forgetful),
    ("empty constraints are none", _Literal),
)


def readings() -> Iterator[Reading]:
    """Yield the readings after the plain one, those that change least first."""
    for seed in range(1, _SEEDS):
        yield Reading(CHANCE, seed=seed)
    for why, preemption in _UNDONE:
        for seed in range(_SEEDS):
            for retries in (False, True):
                if preemption is None and not retries:
                    continue
                parts = [_RETRIES] if retries else []
                parts += [why] if why else []
                yield Reading("; ".join(parts), retries, preemption, seed)
