"""Unschedulable pods: pods that wait for a change in the cluster.

Pods are indexed by the plugins that rejected them, so that an event looks only at pods that it may help. When 100,000
pods wait for memory, an event about volumes costs nothing.

Source: rules/queue §6.4, §7 (upstream ``unschedulablePods``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, KeysView, Mapping
from operator import attrgetter
from typing import Final

from kubesched.base.turns import Steps

from ..framework.holding import Holder
from ..framework.metrics import GaugeValue
from ..framework.queued import QueuedPodInfo
from ..nodes.podinfo import PodInfo
from .heap import KeyedHeap

__all__ = ["Parked", "RejectorKey", "UnschedulablePods"]

#: Rejector: (scheduler name, plugin name) of a plugin that rejected a pod.
RejectorKey = tuple[str, str]
#: Function that returns a pod's hint keys, see :class:`~kubesched.scheduler.framework.events.KeyedHint`.
PodKeys = Callable[[PodInfo], Iterable[str]]
#: Scheduler name, hold key and rejectors of a held pod. Pods with equal ones are held together.
_Hold = tuple[str, Hashable, tuple[RejectorKey, ...]]
_Keys = Mapping[RejectorKey, Collection[str]]
_NO_KEYS: Final[_Keys] = {}
#: Pods that are checked in one step.
_PER_STEP: Final = 256


def _no_keys() -> _Keys:
    return _NO_KEYS


class Parked:
    """Waiting pod, with its present entries in the indexes.

    ``sequence`` orders pods by arrival. ``since`` is the time of the last attempt, in epoch seconds, or a later time if the
    pod need not be tried so soon. ``turn`` is the time of an attempt that others have made needless. ``filed`` are the rejectors under which the pod is indexed. It is empty if any
    event helps the pod, and None before the pod is indexed.
    """

    __slots__ = ("filed", "gated", "held", "key", "names", "record", "sequence", "since", "stamp", "turn")

    def __init__(self, key: str, record: QueuedPodInfo, sequence: int) -> None:
        self.key = key
        self.record = record
        self.sequence = sequence
        self.gated = False
        #: The record's timestamp when ``since`` was set from it.
        self.stamp = self.since = record.timestamp
        self.turn: float | None = None
        self.filed: tuple[RejectorKey, ...] | None = None
        #: (rejector, hint key) of the pod, for rejectors that find their pods by hint keys.
        self.names: tuple[tuple[RejectorKey, str], ...] = ()
        #: Not None if the pod is held: only deletions and changes on some nodes may help it.
        self.held: _Hold | None = None


_by_sequence = attrgetter("sequence")


class UnschedulablePods:
    """Unschedulable pods, by ``namespace/name``, in the order of arrival.

    ``known_schedulers`` are the names of the profiles with queueing hints. Any event helps a pod of another scheduler,
    and a pod that no plugin rejected. The gauges count a pod as gated or as waiting by its state when it was last put
    here. So they stay right even if a caller has changed the record since.

    A **held** pod is one that a :class:`~kubesched.scheduler.framework.holding.Holder` keeps from deletions, and changes of
    nodes, that cannot help it. It is only indexed by its hold key.
    """

    __slots__ = (
        "_always", "_by_name", "_by_rejector", "_entries", "_gated", "_held", "_holders", "_known", "_pod_keys", "_sequence", "_timeouts",
        "_waiting",
    )  # fmt: skip

    def __init__(
        self,
        known_schedulers: Iterable[str],
        gated: GaugeValue,
        waiting: GaugeValue,
        holders: Mapping[str, Holder] | None = None,
        pod_keys: Mapping[RejectorKey, PodKeys] | None = None,
    ) -> None:
        """``holders``: scheduler name to the plugin that knows the deletions that cannot help a pod.

        ``pod_keys``: rejector to the function that returns the hint keys by which its pods are found.
        """
        self._pod_keys = pod_keys or {}
        self._by_name: dict[tuple[RejectorKey, str], dict[str, Parked]] = {}
        self._known = frozenset(known_schedulers)
        self._holders = holders or {}
        self._held: dict[_Hold, dict[str, Parked]] = {}
        self._entries: dict[str, Parked] = {}
        self._by_rejector: dict[RejectorKey, dict[str, Parked]] = {}
        self._always: dict[str, Parked] = {}
        self._timeouts: KeyedHeap[Parked] = KeyedHeap(attrgetter("since"))
        self._gated = gated
        self._waiting = waiting
        self._sequence = 0

    def put(self, key: str, record: QueuedPodInfo) -> bool:
        """Add a pod, or index it again after its record changed. True if the key is new."""
        parked = self._entries.get(key)
        new = parked is None
        gated = record.gated
        if parked is None:
            self._sequence += 1
            parked = self._entries[key] = Parked(key, record, self._sequence)
            parked.gated = gated
            (self._gated if gated else self._waiting).value += 1
        else:
            parked.record = record
            if parked.gated is not gated:
                (self._gated if parked.gated else self._waiting).value -= 1
                (self._gated if gated else self._waiting).value += 1
                parked.gated = gated
        if parked.stamp != record.timestamp:
            parked.stamp = parked.since = record.timestamp
            parked.turn = None
        if gated:
            self._timeouts.remove(key)
        else:
            self._timeouts.put(key, parked)
        self._file(parked)
        return new

    def remove(self, key: str) -> QueuedPodInfo | None:
        """Remove and return a pod; None when it is not here."""
        parked = self._entries.pop(key, None)
        if parked is None:
            return None
        (self._gated if parked.gated else self._waiting).value -= 1
        self._timeouts.remove(key)
        self._unfile(parked)
        return parked.record

    def file_again(self, key: str) -> None:
        """Index a pod again, because the reason to hold it may have ended."""
        parked = self._entries.get(key)
        if parked is not None:
            self._file(parked)

    def get(self, key: str) -> QueuedPodInfo | None:
        parked = self._entries.get(key)
        return None if parked is None else parked.record

    def candidates(
        self, rejectors: Iterable[RejectorKey], keys: Callable[[], _Keys] = _no_keys
    ) -> list[tuple[str, QueuedPodInfo]]:
        """Return the pods that one of the rejectors rejected, and the pods that any event helps, in order of arrival.

        ``keys`` returns hint keys by rejector. For a rejector with hint keys, only its pods with one of these keys are
        returned. ``keys`` is not called when no pod waits for a rejector.
        """
        wanted = set(rejectors)
        found = self._candidates(wanted, keys)
        for (_, _, filed), held in self._held.items():
            if not wanted.isdisjoint(filed):
                found.update(held)
        return self.in_order(found.values())

    def candidates_not_held(
        self, rejectors: Iterable[RejectorKey], keys: Callable[[], _Keys] = _no_keys
    ) -> list[tuple[str, QueuedPodInfo]]:
        """Like :meth:`candidates`, without held pods."""
        found = self._candidates(rejectors, keys)
        return self.in_order(found.values()) if found else []

    def held(self, keys: Iterable[str]) -> dict[str, QueuedPodInfo]:
        """Return the pods among these keys that are held, by key."""
        found = {key: self._entries.get(key) for key in keys}
        return {key: parked.record for key, parked in found.items() if parked is not None and parked.held is not None}

    def candidates_on_node(
        self,
        rejectors: Iterable[RejectorKey],
        node_name: str,
        nominated: Iterable[str],
        keys: Callable[[], _Keys] = _no_keys,
    ) -> list[tuple[str, QueuedPodInfo]]:
        """Like :meth:`candidates`, for a change of a node, or the deletion of a pod on it.

        Held pods that the change cannot help are left out. ``nominated`` are the keys of the pods nominated to the node.
        """
        found: dict[str, Parked] = {}
        for key in nominated:
            parked = self._entries.get(key)
            if parked is None or parked.held is None:
                continue
            self._file(parked)  # the pod may no longer have to be held
            if parked.held is not None:
                scheduler, own, _ = parked.held
                if self._holders[scheduler].may_help_nominated(parked.record.pod_info, own, node_name):
                    found[key] = parked
        found.update(self._candidates(rejectors, keys))
        wanted = set(rejectors)
        for (scheduler, common, filed), held in self._held.items():
            if not wanted.isdisjoint(filed) and self._holders[scheduler].may_help(common, node_name):
                found.update(held)
        return self.in_order(found.values())

    def _candidates(self, rejectors: Iterable[RejectorKey], keys: Callable[[], _Keys]) -> dict[str, Parked]:
        found: dict[str, Parked] = dict(self._always)
        if not self._by_rejector:
            return found
        named_keys = keys()
        for rejector in rejectors:
            named = named_keys.get(rejector)
            if named is None:
                found.update(self._by_rejector.get(rejector, ()))
                continue
            for key in named:
                found.update(self._by_name.get((rejector, key), ()))
        return found

    def overdue(self, now: float, limit: float) -> Iterator[Parked]:
        """Take out and yield the pods that are not gated and have waited longer than ``limit`` seconds, the longest wait first.

        Each of them is to be removed, or to be given to :meth:`postpone`, before the next call.
        """
        while (parked := self._timeouts.peek()) is not None and now - parked.since > limit:
            self._timeouts.pop()
            yield parked

    def postpone(self, parked: Parked, since: float) -> None:
        """Let a pod's timeout begin at another time."""
        parked.since = since
        self._timeouts.put(parked.key, parked)

    def gated_older_than(self, now: float, limit: float) -> list[Parked]:
        """Return the gated pods whose last attempt is more than ``limit`` seconds ago."""
        if not self._gated.value:
            return []
        return [one for one in self._entries.values() if one.gated and now - one.record.timestamp > limit]

    def oldest(self) -> float | None:
        """Return the earliest time from which a pod that is not gated waits, or None."""
        head = self._timeouts.peek()
        return None if head is None else head.since

    def parked(self, record: QueuedPodInfo) -> Parked | None:
        """Return the entry of a pod that waits here; None if it does not."""
        parked = self._entries.get(record.key)
        return parked if parked is not None and parked.record is record else None

    @staticmethod
    def in_order(found: Iterable[Parked]) -> list[tuple[str, QueuedPodInfo]]:
        """Return pods, with their keys, in the order of arrival."""
        # The pods of an index are nearly in order, so sorting takes little more than one pass.
        return [(parked.key, parked.record) for parked in sorted(found, key=_by_sequence)]

    def pairs(self) -> list[tuple[str, QueuedPodInfo]]:
        return self.in_order(self._entries.values())

    def keys(self) -> KeysView[str]:
        return self._entries.keys()

    def items(self) -> list[QueuedPodInfo]:
        """Return all records, in no order."""
        return [parked.record for parked in self._entries.values()]

    def records(self) -> list[QueuedPodInfo]:
        return [record for _, record in self.pairs()]

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def _rejectors(self, record: QueuedPodInfo) -> tuple[RejectorKey, ...]:
        """Return the rejectors under which a pod is indexed; empty if any event helps it."""
        scheduler = record.pod_info.pod.spec.scheduler_name
        if scheduler not in self._known:
            return ()
        plugins = record.unschedulable_plugins
        if record.pending_plugins:
            plugins = plugins | record.pending_plugins
        return tuple([(scheduler, plugin) for plugin in plugins])

    def _hold(self, record: QueuedPodInfo, filed: tuple[RejectorKey, ...]) -> _Hold | None:
        """Return by what a pod with these rejectors is held; None if it is not."""
        scheduler = record.pod_info.pod.spec.scheduler_name
        holder = self._holders.get(scheduler)
        if holder is None or record.pending_plugins or scheduler not in self._known:
            return None
        common = holder.hold_key(record.pod_info, record.unschedulable_plugins)
        return None if common is None else (scheduler, common, filed)

    def _file(self, parked: Parked) -> None:
        filed = self._rejectors(parked.record)
        held = self._hold(parked.record, filed)
        names = self._names(filed, parked.record) if self._pod_keys and held is None else ()
        if filed == parked.filed and held == parked.held and names == parked.names:
            return
        self._unfile(parked)
        parked.filed, parked.held, parked.names = filed, held, names
        key = parked.key
        if held is not None:
            self._held.setdefault(held, {})[key] = parked
            return
        if not filed:
            self._always[key] = parked
        for rejector in filed:
            bucket = self._by_rejector.get(rejector)
            if bucket is None:
                bucket = self._by_rejector[rejector] = {}
            bucket[key] = parked
        for name in names:
            self._by_name.setdefault(name, {})[key] = parked

    def _names(self, filed: tuple[RejectorKey, ...], record: QueuedPodInfo) -> tuple[tuple[RejectorKey, str], ...]:
        return tuple(
            (rejector, key)
            for rejector in filed
            if (keys := self._pod_keys.get(rejector)) is not None
            for key in dict.fromkeys(keys(record.pod_info))
        )

    def _unfile(self, parked: Parked) -> None:
        filed = parked.filed
        if filed is None:
            return
        key = parked.key
        if parked.held is not None:
            held = self._held[parked.held]
            del held[key]
            if not held:
                del self._held[parked.held]
            return
        if not filed:
            del self._always[key]
        for rejector in filed:
            bucket = self._by_rejector[rejector]
            del bucket[key]
            if not bucket:
                del self._by_rejector[rejector]
        for name in parked.names:
            bucket = self._by_name[name]
            del bucket[key]
            if not bucket:
                del self._by_name[name]

    def checking(self) -> Steps[list[str]]:
        """Return the inconsistencies as texts, in steps between which pods may come and go."""
        problems = self._timeouts.check("unschedulable timeouts")
        wrong: set[str] = set()
        for number, (key, parked) in enumerate(list(self._entries.items())):
            if number % _PER_STEP == 0:
                yield
            if self._entries.get(key) is not parked:
                continue
            filed, held = self._rejectors(parked.record), parked.held
            if held is not None and (key not in self._held.get(held, ()) or set(held[2]) != set(filed)):
                wrong.add("hold key")
            if held is None:
                if set(parked.filed or ()) != set(filed):
                    wrong.add("rejector plugin")
                if set(parked.names) != set(self._names(filed, parked.record)):
                    wrong.add("hint key")
                wrong.update("rejector plugin" for each in filed if key not in self._by_rejector.get(each, ()))
                wrong.update("hint key" for each in parked.names if key not in self._by_name.get(each, ()))
                if not filed and key not in self._always:
                    wrong.add("pods without rejector")
            if (key in self._timeouts) is parked.record.gated:
                problems.append(f"unschedulable: {key} has a wrong timeout entry")
        yield
        free = [parked for parked in self._entries.values() if parked.held is None]
        for what, index, entries in (
            ("rejector plugin", self._by_rejector, sum(len(parked.filed or ()) for parked in free)),
            ("hint key", self._by_name, sum(len(parked.names) for parked in free)),
            ("hold key", self._held, len(self._entries) - len(free)),
        ):
            buckets: Iterable[Collection[str]] = index.values()
            if sum(map(len, buckets)) != entries or not all(buckets):
                wrong.add(what)
        if len(self._always) != sum(not parked.filed for parked in free):
            wrong.add("pods without rejector")
        problems += [f"unschedulable: the index by {what} is wrong" for what in sorted(wrong)]
        pods = len(self._entries)
        gated = sum(parked.record.gated for parked in self._entries.values())
        if len(self._timeouts) != pods - gated:
            problems.append("unschedulable: timeouts of pods that are not here")
        if (self._gated.value, self._waiting.value) != (gated, pods - gated):
            problems.append(
                f"unschedulable: {gated} gated of {pods}, "
                f"the metrics say {self._gated.value:g} gated and {self._waiting.value:g} not"
            )
        return problems
