"""Events that are turned into JSON only when they are read.

A busy scheduler records an event for every pod, and few are ever read. In one process the embedded cluster keeps what the
writer made (:mod:`kubesched.client.event_writer`); a transport that sends JSON sees an ordinary mapping.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["EventRecord"]


class EventRecord(Mapping[str, Any]):
    """An event of events.k8s.io/v1 in its final form: nothing of what it was made from changes any more.

    Its members have the types of the API, and all texts can be written as JSON. As a mapping it is made at every look.
    """

    __slots__ = ("name", "namespace")

    def __init__(self, namespace: str, name: str) -> None:
        self.namespace = namespace
        self.name = name

    @abstractmethod
    def make(self) -> dict[str, Any]:
        """The object as plain data; equal at every call, and the caller's to change."""

    def __getitem__(self, member: str) -> Any:
        return self.make()[member]

    def __iter__(self) -> Iterator[str]:
        return iter(self.make())

    def __len__(self) -> int:
        return len(self.make())
