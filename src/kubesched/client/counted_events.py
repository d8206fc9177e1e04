"""Events as controllers and kubelets write them: core/v1, repetitions counted, floods cut short.

Written as client-go's legacy recorder does, which is what upstream's controllers use (``events_cache.go``): the same
event again raises ``count``; from the tenth different message of one kind within ten minutes on, all go into one
``(combined from similar events)``; and one object gets 25 writes, then one every five minutes. That last rule is what
keeps a ReplicaSet of thousands of pods cheap: nothing is built or sent for what it leaves out.

Callers: the embedded cluster's controllers and hollow kubelets. The scheduler's events (events.k8s.io, series) follow
other rules, see :mod:`.events`; both describe objects and name events by :mod:`.event_objects`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from kubesched.api.kinds import CORE_EVENTS
from kubesched.api.times import Clock, micro_time, timestamp
from kubesched.api.wire import MERGE_PATCH, ApiError, Item, Transport

from .event_objects import EventNames, Reference

__all__ = ["NORMAL", "WARNING", "CountingRecorder"]

NORMAL: Final = "Normal"
WARNING: Final = "Warning"

#: The message with this number, among different ones of one type and reason, is the first to be combined.
_COMBINE_FROM: Final = 10
_COMBINE_SECONDS: Final = 600.0
_BURST: Final = 25.0
_REFILL_SECONDS: Final = 300.0
#: Objects cached, the least recently used is forgotten first; and events cached of each.
_SUBJECTS: Final = 4096
_WRITTEN: Final = 64
_COMBINED: Final = "(combined from similar events): "


@dataclass(slots=True)
class _Written:
    """An event as far as it was counted; ``name`` is empty until it has been sent."""

    first: float
    count: int = 0
    name: str = ""


@dataclass(slots=True)
class _Group:
    """What one object has of one type and reason."""

    last: float
    messages: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Subject:
    """What one component has said about one object."""

    at: float
    tokens: float = _BURST
    groups: dict[tuple[str, str], _Group] = field(default_factory=dict)
    written: dict[tuple[str, str, str], _Written] = field(default_factory=dict)


class CountingRecorder:
    """Records events by any transport. ``note`` receives those that were refused; they are not tried again."""

    def __init__(self, client: Transport, clock: Clock, note: Callable[[str], None]) -> None:
        self._client = client
        self._clock = clock
        self._note = note
        self._subjects: OrderedDict[tuple[str, str], _Subject] = OrderedDict()
        self._names = EventNames()

    async def record(
        self, about: Item, component: str, type_: str, reason: str, message: str, *, host: str = ""
    ) -> None:
        """Say something about an object in the name of a component. Never raises what the transport raises."""
        now = self._clock.now()
        subject = self._subject(component, about.uid, now)
        message, key = _combined(subject, type_, reason, message, now)
        written = subject.written.get((type_, reason, key))
        if written is None:
            if len(subject.written) >= _WRITTEN:
                del subject.written[next(iter(subject.written))]
            written = subject.written[type_, reason, key] = _Written(now)
        written.count += 1
        subject.tokens = min(_BURST, subject.tokens + max(0.0, now - subject.at) / _REFILL_SECONDS)
        subject.at = now
        if subject.tokens < 1.0:
            return
        subject.tokens -= 1.0
        try:
            if written.name:
                patch = {"count": written.count, "message": message, "lastTimestamp": timestamp(now)}
                namespace = about.namespace or "default"
                try:
                    await self._client.patch(CORE_EVENTS, namespace, written.name, patch, patch_type=MERGE_PATCH)
                    return
                except ApiError as error:
                    if error.code != 404:
                        raise  # otherwise it has expired: created again
            await self._create(about, component, type_, reason, message, host, written, now)
        except (ApiError, OSError) as error:
            # No event can be written to a namespace that is being or was deleted; this is normal.
            if not (isinstance(error, ApiError) and error.code in (403, 404)):
                self._note(f"event {reason} about {about.kind} {about.key}: {error}")

    def _subject(self, component: str, uid: str, now: float) -> _Subject:
        key = (component, uid)
        subject = self._subjects.get(key)
        if subject is None:
            if len(self._subjects) >= _SUBJECTS:
                self._subjects.popitem(last=False)
            subject = self._subjects[key] = _Subject(now)
        else:
            self._subjects.move_to_end(key)
        return subject

    async def _create(
        self,
        about: Item,
        component: str,
        type_: str,
        reason: str,
        message: str,
        host: str,
        written: _Written,
        now: float,
    ) -> None:
        namespace = about.namespace or "default"
        regarding = Reference(
            about.kind.api_version, about.kind.kind, about.namespace, about.name, about.uid, str(about.resource_version)
        )
        event: dict[str, Any] = {
            "apiVersion": CORE_EVENTS.api_version,
            "kind": CORE_EVENTS.kind,
            "involvedObject": regarding.to_wire(),
            "reason": reason,
            "message": message,
            "source": {"component": component, **({"host": host} if host else {})},
            "firstTimestamp": timestamp(written.first),
            # Upstream's controllers leave it out; client models refuse events.k8s.io without it.
            "eventTime": micro_time(written.first),
            "lastTimestamp": timestamp(now),
            "count": written.count,
            "type": type_,
            "reportingComponent": component,
            "reportingInstance": host,
        }
        while True:
            name = self._names.next(about.name, now)
            event["metadata"] = {"name": name, "namespace": namespace}
            try:
                await self._client.create(CORE_EVENTS, namespace, event)
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
                continue  # another component recorded it in this instant
            written.name = name
            return


def _combined(subject: _Subject, type_: str, reason: str, message: str, now: float) -> tuple[str, str]:
    """The message to show, and what makes it a repetition: one key for all that are combined."""
    group = subject.groups.get((type_, reason))
    if group is None or now - group.last > _COMBINE_SECONDS:
        group = subject.groups[type_, reason] = _Group(now)
    group.last = now
    messages = group.messages
    if message in messages or len(messages) < _COMBINE_FROM - 1:
        messages.add(message)
        return message, message
    return _COMBINED + message, _COMBINED
