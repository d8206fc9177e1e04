"""Hold of pods that lack resources: they do not wait for any deleted pod (see :mod:`...framework.holding`).

A preemptor waits for its own victims. The hold applies if its preemption used the fast dry run. Only amounts of resources
decide where such a pod may run, so a deletion helps only if enough is free on the node afterwards. While its victims
terminate, the pod cannot preempt again (rules/preemption §3.1). So room that further evictions would make does not count.

Any other pod waits for room if each node lacks resources for it, or is ruled out by a filter that reads the node alone.
A deletion changes one node, so it helps only if enough is free on that node afterwards, or if pods can be evicted. The same
is true of a change of a node.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from kubesched.api.requests import Resources

from ...framework.entries import FilterEntry
from ...framework.interface import Handle
from ...nodes.node_table import CPU_ROW, EPHEMERAL_ROW, MEMORY_ROW, PODS_ROW
from ...nodes.nominated_rows import requested_by
from ...nodes.podinfo import PodInfo
from .alike import Amounts
from .importance import is_terminating_by_preemption
from .outcomes import FastTrial

__all__ = ["VictimsAwaited"]

#: Number of preemptors above which preemptors that no longer wait are dropped.
_MANY: Final = 1024
#: Plugin that compares requests with a node's free amounts.
_FIT: Final = "NodeResourcesFit"
#: Plugin whose PostFilter concerns pods with claims only.
_DEVICES: Final = "DynamicResources"


class _Awaiting(NamedTuple):
    """A preemptor's requests, the amounts it needs, plugins that may have rejected it, and the node of its victims."""

    requests: Resources
    amounts: Amounts
    rejectors: frozenset[str]
    node_name: str


class _Key(NamedTuple):
    """Key of preemptors that the same deletions may help."""

    priority: int
    amounts: Amounts


class _Room(NamedTuple):
    """Key of pods that wait for room: ``evicts`` is False for pods that never preempt.

    ``lacks`` is False for pods that no node has rejected for lack of resources. If a node is changed that has no room, they have
    to be tried: they wait for room there from then on.
    """

    priority: int
    amounts: Amounts
    evicts: bool
    lacks: bool


class VictimsAwaited:
    """Preemptors of one profile that wait for victims, by UID, and the keys of pods that wait for room."""

    def __init__(self, plugin: str, handle: Handle, is_evicting: Callable[[str], bool]) -> None:
        """``is_evicting`` returns True if evictions for a preemptor's UID are under way."""
        self._plugin = plugin
        self._handle = handle
        self._is_evicting = is_evicting
        self._pods: dict[str, _Awaiting] = {}
        self._most = _MANY
        #: Plugins that may reject a preemptor, by the filters it skipped; only the last entry is kept.
        self._rejectors: dict[frozenset[str], frozenset[str]] = {}
        #: Plugins whose rejections end by deletions on the rejected node only, and by room there; None before its first use.
        self._of_room: frozenset[str] | None = None
        #: Filter that knows the amounts of other resources than cpu, memory and ephemeral storage.
        self._fit: FilterEntry | None = None

    def add(self, trial: FastTrial, node_name: str) -> None:
        """Note that a pod preempts on a node."""
        skipped = trial.state.skip_filter
        rejectors = self._rejectors.get(skipped)
        if rejectors is None:
            filters = {entry.name for entry in self._handle.framework.filters}
            self._rejectors = {skipped: frozenset((filters - skipped) | {self._plugin})}
            rejectors = self._rejectors[skipped]
        self._pods[trial.pod.uid] = _Awaiting(trial.pod.requests, trial.amounts, rejectors, node_name)
        if len(self._pods) > self._most:
            node_of = self._handle.nominations.node_of
            self._pods = {uid: known for uid, known in self._pods.items() if node_of(uid) or uid == trial.pod.uid}
            self._most = max(_MANY, 2 * len(self._pods))

    def forget(self, uid: str) -> None:
        """Let every deletion be evaluated for a pod again."""
        self._pods.pop(uid, None)

    def key(self, pod: PodInfo, rejectors: AbstractSet[str]) -> Hashable | None:
        """See :meth:`..Holder.hold_key`."""
        known = self._pods.get(pod.uid)
        if known is None:
            return self._room(pod, rejectors)
        if pod.requests != known.requests or not rejectors <= known.rejectors:
            return None
        nominated = self._handle.nominations.node_of(pod.uid)
        if nominated != known.node_name or not self._waits(pod, nominated):
            return None
        return _Key(pod.priority, known.amounts)

    def may_help(self, key: Hashable, node_name: str) -> bool:
        """See :meth:`..Holder.may_help`."""
        assert isinstance(key, _Key | _Room)
        if isinstance(key, _Room) and (
            not key.lacks or (key.evicts and self._handle.snapshot.table.placed.has_below(key.priority))
        ):
            return True
        return self._has_capacity(key, node_name, "")

    def may_help_nominated(self, pod: PodInfo, key: Hashable, node_name: str) -> bool:
        """See :meth:`..Holder.may_help_nominated`."""
        assert isinstance(key, _Key | _Room)
        return self._has_capacity(key, node_name, pod.uid)  # the pod has a key, so it waits for victims on this node

    def _room(self, pod: PodInfo, rejectors: AbstractSet[str]) -> _Room | None:
        """Return the key of a pod that waits for room; None if deletions may help it otherwise.

        Pods of groups and pods that may need devices are not held, because more than room decides about them.
        """
        if self._of_room is None:
            framework = self._handle.framework
            alone = {entry.name for entry in framework.filters if entry.is_local and not entry.reads_pods}
            others = {name for name, _ in framework.points["postFilter"]} - {self._plugin, _DEVICES}
            fits = [entry for entry in framework.filters if entry.name == _FIT]
            self._fit = next((entry for entry in fits if not entry.is_plain), None)
            is_known = bool(fits) and not others and not self._handle.extenders
            self._of_room = frozenset({*alone, _FIT, self._plugin}) if is_known else frozenset()
        if not rejectors or not rejectors <= self._of_room:
            return None
        if pod.spec.scheduling_group is not None or pod.spec.resource_claims:
            return None
        if self._handle.nominations.node_of(pod.uid):
            return None
        amounts = self._amounts(pod)
        if amounts is None:
            return None
        return _Room(pod.priority, amounts, pod.spec.preemption_policy != "Never", _FIT in rejectors)

    def _amounts(self, pod: PodInfo) -> Amounts | None:
        """Return the amounts that a pod needs on a node; None if a device may stand for one, or no node has the resource."""
        wanted = pod.fit_requests
        if wanted.scalars:
            question = self._fit.plugin.ask(pod, self._handle.snapshot.table) if self._fit is not None else None
            amounts = question.amounts() if question is not None else None
            return None if amounts is None else tuple(amounts)
        counted = (CPU_ROW, wanted.milli_cpu), (MEMORY_ROW, wanted.memory), (EPHEMERAL_ROW, wanted.ephemeral_storage)
        return (PODS_ROW, 1), *(entry for entry in counted if entry[1] > 0)

    def _waits(self, pod: PodInfo, node_name: str) -> bool:
        """True if victims of the pod are still there."""
        if self._is_evicting(pod.uid):
            return True
        table = self._handle.snapshot.table
        row = table.row_of(node_name)
        return row is not None and any(
            is_terminating_by_preemption(other) and other.priority < pod.priority
            for other in table.info(row).pods.values()
        )

    def _has_capacity(self, key: _Key | _Room, node_name: str, uid: str) -> bool:
        """True if the amounts are free on a node, after subtracting the requests of other pods nominated there (not
        ``uid``).
        """
        table = self._handle.snapshot.table
        row = table.row_of(node_name)
        if row is None:
            return False
        capacity, used = table.allocatable.item, table.requested.item
        free = []
        for index, amount in key.amounts:
            left = capacity(index, row) - used(index, row) - amount
            if left < 0:
                return False  # this stays so until the last victim is gone
            free.append(left)
        nominated = self._handle.nominations.nominated_pods_for_node(node_name)
        coming = requested_by([each for each in nominated if each.priority >= key.priority and each.uid != uid], table)
        return all(coming[index] <= left for (index, _), left in zip(key.amounts, free, strict=True))
