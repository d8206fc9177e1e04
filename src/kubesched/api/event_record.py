"""Records of events, which are turned into JSON only when they are read.

A busy scheduler records an event for every pod, and few events are ever read. In one process the embedded cluster keeps
the record that the writer made (:mod:`kubesched.client.event_writer`). A transport that sends JSON gets the object.
"""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["EventRecord"]


class EventRecord(Protocol):
    """Event of events.k8s.io/v1 in its final form. The data that it was made from no longer changes.

    Its members have the types of the API, and all texts can be written as JSON.
    """

    @property
    def namespace(self) -> str: ...

    @property
    def name(self) -> str: ...

    def make(self) -> dict[str, Any]:
        """Return the object as plain data. It is equal at every call, and the caller may change it."""
        ...
