"""The questions of a pod to the plugins of its profile, and the layers that answer them.

The plugins' keys say what their answers depend on (:data:`kubesched.scheduler.framework.asking.Key`). What follows for layers is a
:class:`Plan`, made once per pattern of keys. Used by :mod:`.search`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Final, NamedTuple

from ..framework.asking import FastPlugin, Key, PlainPlugin
from ..framework.cycle_state import CycleState
from ..framework.entries import FilterEntry
from ..framework.runtime import Framework, PreFilterOutcome
from ..nodes import NodeTable
from ..nodes.columns import RowArray
from ..nodes.nominated_rows import NominatedPods
from ..nodes.podinfo import PodInfo

__all__ = ["Asked", "Plan", "Questions", "Share"]

#: The points that decide about nodes.
_POINTS: Final = ("preFilter", "filter", "preScore", "score")


class Share:
    """The plugins of a profile that one layer evaluates.

    Attributes:
        filters, scores: entries, in the profile's order.
        pre_filters, pre_scores: names of those to call at PreFilter and PreScore.
        follow: plugins whose kept question may be replaced by that of the current pod.
        view: the nominated pods that the layer counts, None unless it is a nomination layer.
    """

    filters: tuple[FilterEntry, ...]
    view: NominatedPods | None = None

    def __init__(self, framework: Framework, at_filter: frozenset[str], at_score: frozenset[str]) -> None:
        self.filters = tuple(entry for entry in framework.filters if entry.name in at_filter)
        self.scores = tuple(entry for entry in framework.scores if entry.name in at_score)
        self.pre_filters = frozenset(name for name, _ in framework.points["preFilter"] if name in at_filter)
        self.pre_scores = frozenset(name for name, _ in framework.points["preScore"] if name in at_score)
        filtering = self.pre_filters.union(entry.name for entry in self.filters)
        scoring = self.pre_scores.union(entry.name for entry in self.scores)
        self.names = filtering | scoring
        fast = [plugin for name in sorted(self.names) if isinstance(plugin := framework.answering[name], FastPlugin)]
        self.follow = tuple(plugin for plugin in fast if plugin.follows)
        self._filtering = tuple(plugin for plugin in fast if plugin.name in filtering)
        self._scoring = tuple(plugin for plugin in fast if plugin.name in scoring)

    def changed(self, state: CycleState, pod: PodInfo, size: int) -> list[RowArray] | None:
        """The rows to filter again because of changes elsewhere, of ``size`` rows; None: every row may have changed.

        Raises:
            PluginFailedError: when a plugin fails.
        """
        return _all_of(plugin.changed(state, size) for plugin in self._filtering)

    def rescored(self, state: CycleState, size: int, *, same: bool) -> list[RowArray] | None:
        """Like :meth:`changed`, for scores; ``same`` when the feasible nodes are those of the last time."""
        return _all_of(plugin.rescored(state, size, same=same) for plugin in self._scoring)


def _all_of(named: Iterable[RowArray | None]) -> list[RowArray] | None:
    found: list[RowArray] = []
    for rows in named:
        if rows is None:
            return None
        if len(rows):
            found.append(rows)
    return found


class Plan:
    """The shares of the layers, for one pattern of keys.

    Attributes:
        absent: names of the plugins that the pod does not concern.
        signed: what the signature layer evaluates: the plugins whose answers change with a row's own node alone, without
            scores that are only normalised all together.
        unsigned: everything else that concerns the pod: what an interaction layer evaluates, or a full scan.
        can_interact: whether an interaction layer can evaluate it: each has a key and names the rows that change.
        has_others: whether some of it takes a call for every pod, such as plugins without a signature.
    """

    def __init__(self, framework: Framework, keys: dict[str, Key]) -> None:
        self.absent = frozenset(name for name, key in keys.items() if key is not None and not key)
        signed = frozenset(name for name, key in keys.items() if key is not None and len(key) == 1)
        concerned = frozenset(keys) - self.absent
        scored = signed - {entry.name for entry in framework.scores if entry.needs_all}
        self.signed = Share(framework, signed, scored)
        self.unsigned = unsigned = Share(framework, concerned - signed, concerned - scored)
        self.can_interact = scored == signed and all(key is not None for key in keys.values())
        self.has_others = not self.can_interact and bool(unsigned.names)
        failing = [entry.index for entry in unsigned.filters if framework.answering[entry.name].may_fail]
        #: The place of the first unsigned filter that may fail for a node, None without any.
        self._first_failing = min(failing, default=None)

    def is_answered(self, state: CycleState, outcome: PreFilterOutcome | None) -> bool:
        """Whether the signature layer answers everything: the others answered Skip at PreFilter, or there are none.

        ``outcome`` is theirs, None when they were not called.
        """
        others = self.unsigned
        if not others.names:
            return True
        went_well = outcome is not None and outcome.status is None and outcome.nodes is None
        return went_well and not others.scores and not others.pre_scores and others.names <= state.skip_filter

    def follows(self, filters: Iterable[FilterEntry]) -> bool:
        """Whether no filter comes after an unsigned one that may fail.

        An interaction layer calls no filter for nodes that its base rejects, whatever their order.
        """
        first = self._first_failing
        return first is None or all(entry.index < first for entry in filters)


class Signature(tuple[Key, ...]):
    """The keys of the plugins that a signature layer evaluates; None in the place of the others."""

    _hash: int

    def __init__(self, keys: Iterable[Key]) -> None:
        self._hash = super().__hash__()  # layers are looked up several times for a pod

    def __hash__(self) -> int:
        return self._hash


class Asked:
    """The keys of a pod's questions, and what follows from them.

    Attributes:
        keys: of the plugins that are asked at every attempt.
        signature: the key of the signature layer.
        linked: the keys of the plugins whose answers depend on other nodes, too: the key of an interaction layer.
        plan: the plan for pods with such keys.
    """

    __slots__ = ("keys", "linked", "plan", "signature")

    def __init__(self, keys: tuple[Key, ...], every: Sequence[Key], plan: Plan) -> None:
        self.keys = keys
        self.signature = Signature([key if key is not None and len(key) == 1 else None for key in every])
        self.linked: tuple[Hashable, ...] = tuple([key for key in every if key is not None and len(key) > 1])
        self.plan = plan


class _BySpec(NamedTuple):
    """The keys that pods with the same spec have in common; kept in the pod, and in the model of pods of its template.

    Attributes:
        keys: of all plugins; of those asked at every attempt, as they were first.
        each: the plugins that are asked at every attempt, with their places.
        last: what was asked last, alone in a list.
    """

    questions: Questions
    version: int
    keys: tuple[Key, ...]
    each: tuple[tuple[int, PlainPlugin], ...]
    last: list[Asked]


class Questions:
    """Asks the plugins of one profile about a pod, each at most once per attempt."""

    def __init__(self, framework: Framework, table: NodeTable) -> None:
        self._framework = framework
        self._table = table
        names = dict.fromkeys(name for point in _POINTS for name, _ in framework.points[point])
        self._plugins = [framework.answering[name] for name in names]
        self._plans: dict[tuple[int | None, ...], Plan] = {}

    def of(self, pod: PodInfo) -> Asked:
        """Ask them, at the start of an attempt. Where only the pod's spec was read, the key is kept.

        Raises:
            PluginFailedError: when a plugin fails.
        """
        self._framework.turn.number += 1
        known: _BySpec | None = pod.signature
        if known is None or not self._is_current(known):
            known = pod.signature = pod.model.signature if pod.model is not None else None
            if known is None or not self._is_current(known):
                return self._first(pod)
        keys = tuple([plugin.key(pod) for _, plugin in known.each])
        last = known.last[0]
        if last.keys != keys:
            every = list(known.keys)
            for (place, _), key in zip(known.each, keys, strict=True):
                every[place] = key
            last = known.last[0] = Asked(keys, every, self._plan(every))
        return last

    def _is_current(self, known: _BySpec) -> bool:
        return known.questions is self and known.version == self._table.questions_version

    def _first(self, pod: PodInfo) -> Asked:
        """Ask all plugins, and find out which have to be asked again for pods with the same spec."""
        keys = tuple([plugin.key(pod) for plugin in self._plugins])
        each = tuple([(place, plugin) for place, plugin in enumerate(self._plugins) if not plugin.keeps(pod)])
        asked = Asked(tuple([keys[place] for place, _ in each]), keys, self._plan(keys))
        pod.signature = _BySpec(self, self._table.questions_version, keys, each, [asked])
        if pod.model is not None:
            pod.model.signature = pod.signature
        return asked

    def _plan(self, keys: Sequence[Key]) -> Plan:
        shape = tuple([None if key is None else len(key) for key in keys])
        plan = self._plans.get(shape)
        if plan is None:
            names = [plugin.name for plugin in self._plugins]
            plan = self._plans[shape] = Plan(self._framework, dict(zip(names, keys, strict=True)))
        return plan
