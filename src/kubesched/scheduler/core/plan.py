"""Questions of a pod to the plugins of its profile, and the plan that assigns them to layers.

Each plugin gives a key that its answers about the pod depend on (:data:`kubesched.scheduler.framework.asking.Key`). A
plugin is *signed* for the pod if its answers change only with a row's own node. The signature layer evaluates the
signed plugins; an interaction layer or a full scan evaluates the unsigned ones. A :class:`Plan` holds this assignment;
it is made once per pattern of keys. Used by :mod:`.search`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Final, NamedTuple

from ..framework.asking import ABSENT, FastPlugin, Key, PlainPlugin
from ..framework.cycle_state import CycleState
from ..framework.entries import FilterEntry
from ..framework.outcomes import PreFilterOutcome
from ..framework.runtime import Framework
from ..nodes import NodeTable
from ..nodes.columns import RowArray
from ..nodes.nominated_rows import NominatedPods
from ..nodes.podinfo import PodInfo

__all__ = ["Asked", "Plan", "Questions", "Share"]

#: Extension points that decide about nodes.
_POINTS: Final = ("preFilter", "filter", "preScore", "score")


class Share:
    """Share of a profile's plugins that one layer evaluates.

    Attributes:
        filters, scores: entries, in the profile's order.
        pre_filters, pre_scores: names of the plugins to call at PreFilter and PreScore.
        names: names of all plugins of the share.
        follow: plugins whose kept question may be replaced by the current pod's.
        view: the nominated pods that a nomination layer counts; None for other layers.
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
        """Return the rows to filter again because of changes elsewhere; None if every row may have changed.

        ``size`` is the number of rows.

        Raises:
            PluginFailedError: when a plugin fails.
        """
        return _all_of(plugin.changed(state, size) for plugin in self._filtering)

    def rescored(self, state: CycleState, size: int, *, same: bool) -> list[RowArray] | None:
        """Return the rows to score again because of changes elsewhere; None if every row may have changed.

        ``same``: the feasible nodes did not change since the last call.
        """
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
    """Plan for one pattern of keys: the plugins' shares of the layers.

    Attributes:
        absent: names of the plugins that have nothing to do for the pod.
        keyless: names of the plugins that give no key, so that nothing is kept of their answers.
        signed: share of the signature layer: the signed plugins, without scores that can only be normalised over all
            nodes together.
        unsigned: all other plugins that have something to do for the pod; an interaction layer or a full scan calls
            them.
        can_interact: an interaction layer can evaluate ``unsigned``: each plugin has a key and names rows that change.
        has_others: ``unsigned`` has plugins, and some of them have to be called for every pod, for example plugins
            without a key.
    """

    def __init__(self, framework: Framework, keys: dict[str, Key]) -> None:
        self.absent = frozenset(name for name, key in keys.items() if key is not None and not key)
        self.keyless = frozenset(name for name, key in keys.items() if key is None)
        signed = frozenset(name for name, key in keys.items() if key is not None and len(key) == 1)
        concerned = frozenset(keys) - self.absent
        scored = signed - {entry.name for entry in framework.scores if entry.needs_all}
        self.signed = Share(framework, signed, scored)
        self.unsigned = unsigned = Share(framework, concerned - signed, concerned - scored)
        self.can_interact = scored == signed and not self.keyless
        self.has_others = not self.can_interact and bool(unsigned.names)
        failing = [entry.index for entry in unsigned.filters if framework.answering[entry.name].may_fail]
        #: Index of the first unsigned filter that may fail for a node, or None.
        self._first_failing = min(failing, default=None)

    def is_answered(self, state: CycleState, outcome: PreFilterOutcome | None) -> bool:
        """Return True if the signature layer answers for all plugins.

        It does if there are no unsigned plugins, or if all of them answered Skip at PreFilter. ``outcome`` is the
        result of the unsigned plugins' PreFilter; None when they were not called.
        """
        others = self.unsigned
        if not others.names:
            return True
        went_well = outcome is not None and outcome.status is None and outcome.nodes is None
        return went_well and not others.scores and not others.pre_scores and others.names <= state.skip_filter

    def may_interact_after(self, filters: Iterable[FilterEntry]) -> bool:
        """Return True if an interaction layer may have a base with these filters.

        All of them must come before the first unsigned filter that may fail. An interaction layer calls no unsigned
        filter for nodes that its base rejects. So it would miss the failure of an unsigned filter that is configured
        before the rejecting filter.
        """
        first = self._first_failing
        return first is None or all(entry.index < first for entry in filters)


class Signature(tuple[Key, ...]):
    """Key of a signature layer: the keys of the plugins that it evaluates, with None in place of all other plugins."""

    _hash: int

    def __init__(self, keys: Iterable[Key]) -> None:
        self._hash = super().__hash__()  # computed once: layers are looked up several times for a pod

    def __hash__(self) -> int:
        return self._hash


class Asked:
    """Keys of a pod's questions, and the layer keys and the plan that follow from them.

    Attributes:
        keys: keys of the plugins that are asked at every attempt.
        signature: key of the signature layer.
        linked: keys of the plugins whose answers also depend on other nodes; with the signature, key of an interaction
            layer.
        plan: plan for pods with keys of this pattern.
    """

    __slots__ = ("keys", "linked", "plan", "signature")

    def __init__(self, keys: tuple[Key, ...], every: Sequence[Key], plan: Plan) -> None:
        self.keys = keys
        self.signature = Signature([key if key is not None and len(key) == 1 else None for key in every])
        self.linked: tuple[Hashable, ...] = tuple([key for key in every if key is not None and len(key) > 1])
        self.plan = plan


class _BySpec(NamedTuple):
    """Keys that pods with equal specs share. They are kept in the pod, and in the model pod of its template.

    Attributes:
        questions: the :class:`Questions` that asked.
        version: the node table's ``questions_version`` at that time.
        keys: keys of all plugins; for the plugins that are asked at every attempt, their first answers.
        each: the plugins that are asked at every attempt, with their index in ``keys``.
        last: list of one element, the result of the last attempt.
    """

    questions: Questions
    version: int
    keys: tuple[Key, ...]
    each: tuple[tuple[int, PlainPlugin], ...]
    last: list[Asked]


class Questions:
    """Questions of one profile: asks its plugins about a pod, each at most once per attempt."""

    def __init__(self, framework: Framework, table: NodeTable) -> None:
        self._framework = framework
        self._table = table
        names = dict.fromkeys(name for point in _POINTS for name, _ in framework.points[point])
        self._plugins = [framework.answering[name] for name in names]
        self._plans: dict[tuple[int | None, ...], Plan] = {}

    def of(self, pod: PodInfo) -> Asked:
        """Return the keys of a pod's questions; call it at the start of an attempt.

        A plugin that reads only the pod's spec is asked once per spec, and its key is kept.

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

    def sign_by_spec(self, pod: PodInfo) -> bool:
        """Return True if all pods with the spec of ``pod``, which was asked about last, have one signature."""
        known: _BySpec | None = pod.signature
        return known is not None and not any(len(key or ABSENT) == 1 for key in known.last[0].keys)

    def _is_current(self, known: _BySpec) -> bool:
        return known.questions is self and known.version == self._table.questions_version

    def _first(self, pod: PodInfo) -> Asked:
        """Ask all plugins, and note the plugins that must be asked again for other pods with this spec."""
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
