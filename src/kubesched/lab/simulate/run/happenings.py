"""Events of a run carried out at their times: changes of nodes, drains, deletions, another configuration, and their end.

Every change is a write to the store, as a user of the API would make it; controllers and kubelets do the rest. Caller:
:class:`.session.Session`.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kubesched.api.kinds import NODES, Kind
from kubesched.api.types import Node
from kubesched.api.wire import MERGE_PATCH, ApiError
from kubesched.cluster.kubelets import FAILED
from kubesched.scheduler.config import KubeSchedulerConfiguration

from ..embedded import Embedded
from ..inputs.events import PlannedEvent, kind_named
from ..results.result import EventReport
from ..scaling.drains import Drain

__all__ = ["Happenings"]

#: Function that undoes what an event did to one node.
_Undo = Callable[[], object]
#: Members of an object's metadata that a new object gets anew.
_GIVEN: Final = ("uid", "resourceVersion", "creationTimestamp", "generation")


@dataclass(slots=True)
class _Happened:
    """Event that has happened, as it is reported."""

    at: float
    event: PlannedEvent
    targets: list[str] = field(default_factory=list)
    drains: list[Drain] = field(default_factory=list)
    undone: float | None = None


class Happenings:
    """Planned events of one run, drains under way, and what has happened.

    Times are virtual seconds since the start. ``seed`` decides the nodes that are chosen at random.
    """

    def __init__(self, planned: Iterable[PlannedEvent], seed: int) -> None:
        self._random = random.Random(f"events {seed}")
        self._count = 0
        self._heap: list[tuple[float, int, PlannedEvent | Callable[[], Awaitable[None]]]] = []
        self._happened: list[_Happened] = []
        self._remarks: list[str] = []
        for event in planned:
            self._push(event.at, event)

    def _push(self, at: float, what: PlannedEvent | Callable[[], Awaitable[None]]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, what))

    @property
    def last(self) -> float:
        """Time of the last planned event; 0 when there is none."""
        return max((at for at, _, _ in self._heap), default=0.0)

    def __len__(self) -> int:
        return len(self._heap)

    def next(self, *, at_rest: bool) -> float | None:
        """Return the time of the next event, or of the next try of a drain; None when nothing is left.

        ``at_rest`` is True if nothing else moves. Then a drain that got nowhere is not tried again.
        """
        tries = [one.next_try for one in self._drains() if not (at_rest and one.is_stuck)]
        return min([*(at for at, _, _ in self._heap[:1]), *tries], default=None)

    def _drains(self) -> Iterable[Drain]:
        return (one for happened in self._happened for one in happened.drains if one.is_active)

    async def carry_out(self, embedded: Embedded, now: float, *, at_rest: bool) -> bool:
        """Do everything that is due at ``now``. True if anything may have changed."""
        did = False
        while self._heap and self._heap[0][0] <= now:
            _, _, what = heapq.heappop(self._heap)
            if isinstance(what, PlannedEvent):
                await self.do(embedded, what, now)
            else:
                await what()
            did = True
        for drain in list(self._drains()):
            if drain.next_try <= now:
                did |= drain.step(embedded, now, at_rest=at_rest)
        return did

    # -- doing -----------------------------------------------------------------------------------------

    async def do(self, embedded: Embedded, event: PlannedEvent, now: float) -> list[str]:
        """Carry out an event now. Returns the nodes or the object that it changed, by name."""
        happened = _Happened(now, event)
        self._happened.append(happened)
        undo: list[tuple[str, _Undo]] = []
        if event.action == "configure":
            before = embedded.scheduler.config
            await self._configure(embedded, event.details["config"], happened)
            if event.lasts is not None:
                self._push(now + event.lasts, lambda: self._undo_config(embedded, before, happened, now, event.lasts))
            return happened.targets
        if "object" in event.details:
            given = event.details["object"]
            kind = kind_named(given["kind"])
            assert kind is not None  # checked when it was read
            namespace = given["namespace"] if kind.namespaced else ""
            self._try(
                happened,
                f"{kind.kind} {given['name']}",
                undo,
                lambda: _delete(embedded, kind, namespace, given["name"]),
            )
        else:
            for node in self._chosen(embedded, event):
                name = node.name
                self._try(happened, name, undo, lambda node=node: self._change(embedded, event, node, happened, now))  # type: ignore[misc]
            if not happened.targets and not self._was_refused(event):
                self._remarks.append(
                    f"{event.where}: {event.action}: no node matches {event.nodes.text if event.nodes else ''}"
                )
        if event.lasts is not None:
            self._push(now + event.lasts, lambda: self._undo(undo, happened, now + (event.lasts or 0.0)))
        return happened.targets

    def _was_refused(self, event: PlannedEvent) -> bool:
        return any(text.startswith(f"{event.where}: ") for text in self._remarks)

    def _try(
        self, happened: _Happened, target: str, undo: list[tuple[str, _Undo]], change: Callable[[], _Undo]
    ) -> None:
        try:
            undo.append((target, change()))
            happened.targets.append(target)
        except ApiError as error:
            self._remarks.append(f"{happened.event.where}: {happened.event.action} of {target} was refused: {error}")

    async def _undo(self, undo: list[tuple[str, _Undo]], happened: _Happened, now: float) -> None:
        happened.undone = now
        for target, back in undo:
            try:
                back()
            except ApiError as error:
                if error.code != 404:  # the node is gone
                    self._remarks.append(f"{happened.event.where}: end of {happened.event.action} of {target}: {error}")

    async def _configure(self, embedded: Embedded, config: KubeSchedulerConfiguration, happened: _Happened) -> None:
        await embedded.restart_scheduler(config)
        happened.targets.append("scheduler")

    async def _undo_config(
        self,
        embedded: Embedded,
        config: KubeSchedulerConfiguration,
        happened: _Happened,
        at: float,
        lasts: float | None,
    ) -> None:
        happened.undone = at + (lasts or 0.0)
        await embedded.restart_scheduler(config)

    def _chosen(self, embedded: Embedded, event: PlannedEvent) -> list[Node]:
        if event.nodes is None:
            return []
        found = sorted((node for node in embedded.nodes() if event.nodes.matches(node)), key=lambda node: node.name)
        count = event.nodes.count
        if count is None or count >= len(found):
            return found
        return sorted(self._random.sample(found, count), key=lambda node: node.name)

    def _change(self, embedded: Embedded, event: PlannedEvent, node: Node, happened: _Happened, now: float) -> _Undo:
        """Do to one node what an event says. Returns the function that undoes it."""
        action, details, name = event.action, event.details, node.name
        if action == "drain":
            happened.drains.append(Drain(name, now, force=details["force"], timeout=details["timeout"]))
            action = "cordon"
        if action in ("cordon", "uncordon"):
            before = node.spec.unschedulable
            _patch(embedded, name, {"spec": {"unschedulable": action == "cordon" or None}})
            drains = happened.drains[-1:]

            def back() -> None:
                for drain in drains:
                    drain.end()
                _patch(embedded, name, {"spec": {"unschedulable": before or None}})

            return back
        if action in ("fail", "recover"):
            was = node.metadata.annotations.get(FAILED)
            _patch(embedded, name, {"metadata": {"annotations": {FAILED: "true" if action == "fail" else None}}})
            return lambda: _patch(embedded, name, {"metadata": {"annotations": {FAILED: was}}})
        if action == "label":
            labels = details["labels"]
            old = {key: node.metadata.labels.get(key) for key in labels}
            _patch(embedded, name, {"metadata": {"labels": labels}})
            return lambda: _patch(embedded, name, {"metadata": {"labels": old}})
        if action in ("taint", "untaint"):
            return _taint(embedded, name, details["taints"], add=action == "taint")
        if action == "resize":
            return _resize(embedded, name, details["resources"])
        return _delete(embedded, NODES, "", name)

    # -- looking ---------------------------------------------------------------------------------------

    def reports(self) -> list[EventReport]:
        """Return what has happened, in the order of time."""
        return [
            EventReport(
                at=one.at,
                action=one.event.action,
                targets=[*one.targets],
                undone=one.undone,
                drains=[drain.report() for drain in one.drains],
            )
            for one in self._happened
        ]

    def remarks(self) -> list[str]:
        """Return what did not happen as planned, and drains that did not end."""
        left = [text for happened in self._happened for drain in happened.drains for text in drain.remarks()]
        if self._heap:
            count, (at, _, _) = len(self._heap), self._heap[0]
            events = "1 event was" if count == 1 else f"{count:,} events were"
            left.append(f"{events} still to happen when the run ended, the next after {at:g} s")
        return [*self._remarks, *left]


def _patch(embedded: Embedded, name: str, patch: Mapping[str, Any], subresource: str = "") -> None:
    embedded.store.patch(NODES, "", name, patch, patch_type=MERGE_PATCH, subresource=subresource)


def _taint(embedded: Embedded, name: str, taints: list[dict[str, str]], *, add: bool) -> _Undo:
    """Add taints to a node, or remove those with the same key, and effect if one is given."""

    def given() -> list[dict[str, Any]]:
        return list((embedded.store.get(NODES, "", name).data().get("spec") or {}).get("taints") or [])

    def is_meant(taint: Mapping[str, Any]) -> bool:
        return any(
            taint.get("key") == one["key"] and one.get("effect", taint.get("effect")) == taint.get("effect")
            for one in taints
        )

    def write(wanted: list[dict[str, Any]]) -> None:
        _patch(embedded, name, {"spec": {"taints": wanted or None}})

    before = [one for one in given() if is_meant(one)]
    write([one for one in given() if not is_meant(one)] + ([dict(one) for one in taints] if add else []))
    return lambda: write([one for one in given() if not is_meant(one)] + before)


def _resize(embedded: Embedded, name: str, resources: Mapping[str, str]) -> _Undo:
    status = embedded.store.get(NODES, "", name).data().get("status") or {}
    old = {part: {key: (status.get(part) or {}).get(key) for key in resources} for part in ("capacity", "allocatable")}
    _patch(embedded, name, {"status": {"capacity": resources, "allocatable": resources}}, "status")
    return lambda: _patch(embedded, name, {"status": old}, "status")


def _delete(embedded: Embedded, kind: Kind, namespace: str, name: str) -> _Undo:
    data = embedded.store.get(kind, namespace, name).data()
    metadata = {key: value for key, value in data["metadata"].items() if key not in _GIVEN}
    embedded.store.delete(kind, namespace, name)
    return lambda: embedded.store.create(kind, namespace, {**data, "metadata": metadata}, restore=True)
