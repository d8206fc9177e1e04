"""Events that are turned into JSON only when they are read.

A busy scheduler records an event for every pod, and few are ever read. In one process the embedded cluster keeps what the
writer made (:mod:`kubesched.client.event_writer`); a transport that sends JSON is given the object.
"""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["EventRecord"]


class EventRecord(Protocol):
    """An event of events.k8s.io/v1 in its final form: nothing of what it was made from changes any more.

    Its members have the types of the API, and all texts can be written as JSON.
    """

    @property
    def namespace(self) -> str: ...

    @property
    def name(self) -> str: ...

    def make(self) -> dict[str, Any]:
        """The object as plain data; equal at every call, and the caller's to change."""
        ...
