"""Pods that wait for something to change.

Source: rules/queue §6.4 and §7 (upstream ``unschedulablePods``). Pods are also filed by
the plugins that rejected them, so that an event looks only at the pods it can help: with 100,000 pods waiting
for memory, an event about volumes costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, KeysView, Mapping
from operator import attrgetter
from typing import Final

from kubesched.base.turns import Steps

from ..framework.holding import Holder
from ..framework.metrics import GaugeValue
from ..framework.queued import QueuedPodInfo
from ..nodes.podinfo import PodInfo
from .heap import KeyedHeap

__all__ = ["RejectorKey", "UnschedulablePods"]

#: (scheduler name, plugin name).
RejectorKey = tuple[str, str]
#: The keys of what a pod names, see :class:`~kubesched.scheduler.framework.events.KeyedHint`.
PodKeys = Callable[[PodInfo], Iterable[str]]
_Keys = Mapping[RejectorKey, Collection[str]]
_NO_KEYS: Final[_Keys] = {}
#: So many pods are checked in one step.
_PER_STEP: Final = 256


def _no_keys() -> _Keys:
    return _NO_KEYS


class _Parked:
    """One waiting pod, and how it is filed at the moment."""

    __slots__ = ("filed", "gated", "held", "key", "names", "record", "sequence")

    def __init__(self, key: str, record: QueuedPodInfo, sequence: int) -> None:
        self.key = key
        self.record = record
        self.sequence = sequence
        self.gated = False
        self.filed: tuple[RejectorKey, ...] | None = None
        #: With the rejectors that find their pods by keys: those of this one.
        self.names: tuple[tuple[RejectorKey, str], ...] = ()
        #: What it has in common with others that only some deletions may help; None when any may.
        self.held: tuple[str, Hashable] | None = None


_by_sequence = attrgetter("sequence")


def _in_order(found: dict[str, _Parked]) -> list[tuple[str, QueuedPodInfo]]:
    # Buckets are nearly in order already, which makes this close to one pass.
    return [(parked.key, parked.record) for parked in sorted(found.values(), key=_by_sequence)]


class UnschedulablePods:
    """Waiting pods by ``namespace/name``, in the order they came.

    ``known_schedulers`` are the profiles with queueing hints: pods of others, like pods that no plugin
    rejected, are helped by any event. A pod is counted as gated or unschedulable by what it was when it was
    last put here, which keeps the gauges right whatever a caller changed.
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
        """``holders``: by scheduler name, the plugin that knows which deletions cannot help a pod.

        ``pod_keys``: the rejectors whose pods are also found by the keys of what they name.
        """
        self._pod_keys = pod_keys or {}
        self._by_name: dict[tuple[RejectorKey, str], dict[str, _Parked]] = {}
        self._known = frozenset(known_schedulers)
        self._holders = holders or {}
        #: The held pods, by scheduler name and what they have in common.
        self._held: dict[tuple[str, Hashable], dict[str, _Parked]] = {}
        self._entries: dict[str, _Parked] = {}
        self._by_rejector: dict[RejectorKey, dict[str, _Parked]] = {}
        self._always: dict[str, _Parked] = {}
        self._timeouts: KeyedHeap[QueuedPodInfo] = KeyedHeap(attrgetter("timestamp"))
        self._gated = gated
        self._waiting = waiting
        self._sequence = 0

    def put(self, key: str, record: QueuedPodInfo) -> bool:
        """Add a pod, or file it again after its record changed. True when the key is new."""
        parked = self._entries.get(key)
        new = parked is None
        gated = record.gated
        if parked is None:
            self._sequence += 1
            parked = self._entries[key] = _Parked(key, record, self._sequence)
            parked.gated = gated
            (self._gated if gated else self._waiting).value += 1
        else:
            parked.record = record
            if parked.gated is not gated:
                (self._gated if parked.gated else self._waiting).value -= 1
                (self._gated if gated else self._waiting).value += 1
                parked.gated = gated
        if gated:
            self._timeouts.remove(key)
        else:
            self._timeouts.put(key, record)
        self._file(parked)
        return new

    def remove(self, key: str) -> QueuedPodInfo | None:
        """Take a pod out; None when it is not here."""
        parked = self._entries.pop(key, None)
        if parked is None:
            return None
        (self._gated if parked.gated else self._waiting).value -= 1
        self._timeouts.remove(key)
        self._unfile(parked)
        return parked.record

    def file_again(self, key: str) -> None:
        """What the pod is held for may have ended."""
        parked = self._entries.get(key)
        if parked is not None:
            self._file(parked)

    def get(self, key: str) -> QueuedPodInfo | None:
        parked = self._entries.get(key)
        return None if parked is None else parked.record

    def candidates(
        self, rejectors: Iterable[RejectorKey], keys: Callable[[], _Keys] = _no_keys
    ) -> list[tuple[str, QueuedPodInfo]]:
        """The pods that one of the plugins rejected, and those any event helps, in the order they came.

        Of a rejector in ``keys`` only the pods with one of its keys; ``keys`` is not called when no pod waits for a plugin.
        """
        wanted = set(rejectors)
        found = self._candidates(wanted, keys)
        for held in self._held.values():
            found.update(
                (key, parked) for key, parked in held.items() if not wanted.isdisjoint(self._rejectors(parked.record))
            )
        return _in_order(found)

    def candidates_not_held(
        self, rejectors: Iterable[RejectorKey], keys: Callable[[], _Keys] = _no_keys
    ) -> list[tuple[str, QueuedPodInfo]]:
        """The same without held pods."""
        found = self._candidates(rejectors, keys)
        return _in_order(found) if found else []

    def held(self, keys: Iterable[str]) -> dict[str, QueuedPodInfo]:
        """Those of these pods that are held."""
        found = {key: self._entries.get(key) for key in keys}
        return {key: parked.record for key, parked in found.items() if parked is not None and parked.held is not None}

    def candidates_after_deletion(
        self,
        rejectors: Iterable[RejectorKey],
        node_name: str,
        nominated: Iterable[str],
        keys: Callable[[], _Keys] = _no_keys,
    ) -> list[tuple[str, QueuedPodInfo]]:
        """The same for the deletion of a pod on a node, without held pods that it cannot help.

        ``nominated`` are the pods nominated to the node, by ``namespace/name``.
        """
        found: dict[str, _Parked] = {}
        for key in nominated:
            parked = self._entries.get(key)
            if parked is None or parked.held is None:
                continue
            self._file(parked)  # perhaps it is not held any more
            if parked.held is not None:
                scheduler, own = parked.held
                if self._holders[scheduler].may_help_nominated(parked.record.pod_info, own, node_name):
                    found[key] = parked
        found.update(self._candidates(rejectors, keys))
        for (scheduler, common), held in self._held.items():
            if self._holders[scheduler].may_help(common, node_name):
                found.update(held)
        return _in_order(found)

    def _candidates(self, rejectors: Iterable[RejectorKey], keys: Callable[[], _Keys]) -> dict[str, _Parked]:
        found: dict[str, _Parked] = dict(self._always)
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

    def older_than(self, now: float, limit: float) -> list[tuple[str, QueuedPodInfo]]:
        """Gated or not: the pods whose last attempt is more than ``limit`` seconds ago."""
        entries = (parked for parked in self._entries.values() if now - parked.record.timestamp > limit)
        return [(parked.key, parked.record) for parked in sorted(entries, key=_by_sequence)]

    def oldest(self) -> float | None:
        """The earliest timestamp of a pod that is not gated."""
        head = self._timeouts.peek()
        return None if head is None else head.timestamp

    def pairs(self) -> list[tuple[str, QueuedPodInfo]]:
        return _in_order(self._entries)

    def keys(self) -> KeysView[str]:
        return self._entries.keys()

    def items(self) -> list[QueuedPodInfo]:
        """In no order."""
        return [parked.record for parked in self._entries.values()]

    def records(self) -> list[QueuedPodInfo]:
        return [record for _, record in self.pairs()]

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def _rejectors(self, record: QueuedPodInfo) -> tuple[RejectorKey, ...]:
        """Under what a pod is filed; empty for one that any event helps."""
        scheduler = record.pod_info.pod.spec.scheduler_name
        if scheduler not in self._known:
            return ()
        plugins = record.unschedulable_plugins
        if record.pending_plugins:
            plugins = plugins | record.pending_plugins
        return tuple([(scheduler, plugin) for plugin in plugins])

    def _hold(self, record: QueuedPodInfo) -> tuple[str, Hashable] | None:
        """Under what a pod is held, with its scheduler's name."""
        scheduler = record.pod_info.pod.spec.scheduler_name
        holder = self._holders.get(scheduler)
        if holder is None or record.pending_plugins or scheduler not in self._known:
            return None
        common = holder.hold_key(record.pod_info, record.unschedulable_plugins)
        return None if common is None else (scheduler, common)

    def _file(self, parked: _Parked) -> None:
        filed, held = self._rejectors(parked.record), self._hold(parked.record)
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

    def _unfile(self, parked: _Parked) -> None:
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
        """What is wrong, in steps between which pods may come and go."""
        problems = self._timeouts.check("unschedulable timeouts")
        wrong: set[str] = set()
        for number, (key, parked) in enumerate(list(self._entries.items())):
            if number % _PER_STEP == 0:
                yield
            if self._entries.get(key) is not parked:
                continue
            filed, held = self._rejectors(parked.record), parked.held
            if held is not None and key not in self._held.get(held, ()):
                wrong.add("what holds pods")
            if held is None:
                if set(parked.filed or ()) != set(filed):
                    wrong.add("rejector plugin")
                if set(parked.names) != set(self._names(filed, parked.record)):
                    wrong.add("what pods name")
                wrong.update("rejector plugin" for each in filed if key not in self._by_rejector.get(each, ()))
                wrong.update("what pods name" for each in parked.names if key not in self._by_name.get(each, ()))
                if not filed and key not in self._always:
                    wrong.add("pods without rejector")
            if (key in self._timeouts) is parked.record.gated:
                problems.append(f"unschedulable: {key} has a wrong timeout entry")
        yield
        free = [parked for parked in self._entries.values() if parked.held is None]
        for what, index, entries in (
            ("rejector plugin", self._by_rejector, sum(len(parked.filed or ()) for parked in free)),
            ("what pods name", self._by_name, sum(len(parked.names) for parked in free)),
            ("what holds pods", self._held, len(self._entries) - len(free)),
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
