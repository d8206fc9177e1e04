"""What the scheduler needs of an extender: a service outside of it that takes part in scheduling.

:class:`Extender` is implemented by :class:`kubesched.scheduler.extenders.http.HttpExtender` and by in-process objects of
programs and tests. Callers: :mod:`kubesched.scheduler.extenders.lane` (filter, prioritize), the binding cycle (bind),
and preemption. Source: rules/framework §8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar, runtime_checkable

from kubesched.api.types import Node, Pod

from ..framework.preemption import Victims
from ..nodes.nodeinfo import NodeInfo
from ..nodes.podinfo import PodInfo

__all__ = [
    "EXTENDER_NAME",
    "ClusterView",
    "ConnectedExtender",
    "Extender",
    "ExtenderError",
    "FilterAnswer",
    "InProcessExtender",
    "in_run_time_order",
    "is_involved",
]

#: The plugin name under which rejections by extenders are counted, and requeued by events.
EXTENDER_NAME: Final = "Extender"

E = TypeVar("E", bound="Extender")


class ExtenderError(Exception):
    """An extender could not be reached, answered with an error, or answered nonsense. The message is for users."""


@dataclass(frozen=True, slots=True)
class FilterAnswer:
    """What an extender's filter says.

    Attributes:
        names: the nodes that pass, in the extender's order; every one was among those it was given.
        failed: node name to why it was rejected; removing other pods may help there.
        failed_and_unresolvable: the same where removing other pods does not help.
    """

    names: Sequence[str]
    failed: Mapping[str, str] = field(default_factory=dict)
    failed_and_unresolvable: Mapping[str, str] = field(default_factory=dict)


class Extender(Protocol):
    """One extender. Every coroutine raises :class:`ExtenderError` when there is no usable answer, and nothing else.

    While it waits, cache and queue go on changing: a :class:`NodeInfo` shows the present, not the moment of the call.
    """

    @property
    def name(self) -> str:
        """In messages and reports; of an HTTP extender its URL prefix."""
        ...

    @property
    def ignorable(self) -> bool:
        """Whether an attempt goes on without it when it fails."""
        ...

    @property
    def weight(self) -> int: ...
    @property
    def supports_filter(self) -> bool: ...
    @property
    def supports_prioritize(self) -> bool: ...
    @property
    def supports_preemption(self) -> bool: ...
    @property
    def is_binder(self) -> bool: ...

    def is_interested(self, pod: PodInfo) -> bool:
        """Whether it takes part in scheduling this pod (``managedResources``)."""
        ...

    async def filter(self, pod: PodInfo, nodes: Sequence[NodeInfo]) -> FilterAnswer: ...

    async def prioritize(self, pod: PodInfo, nodes: Sequence[NodeInfo]) -> Mapping[str, int]:
        """Node name to score, without the weight; 0 to 10 by convention."""
        ...

    async def process_preemption(self, pod: PodInfo, victims: Mapping[str, Victims]) -> Mapping[str, Victims]:
        """The candidates that it accepts, perhaps with other victims. The answer replaces what it was given."""
        ...

    async def bind(self, pod: PodInfo, node_name: str) -> None: ...

    async def close(self) -> None:
        """Called once, when the scheduler has stopped."""
        ...


class InProcessExtender:
    """Base of extenders that are Python objects in the scheduler's process: define the verbs that it offers.

    Works in virtual time, too. It may wait for whatever it likes; other pods are scheduled meanwhile.
    """

    name = "in-process extender"
    ignorable = False
    weight = 1

    @property
    def supports_filter(self) -> bool:
        return self._defines("filter")

    @property
    def supports_prioritize(self) -> bool:
        return self._defines("prioritize")

    @property
    def supports_preemption(self) -> bool:
        return self._defines("process_preemption")

    @property
    def is_binder(self) -> bool:
        return self._defines("bind")

    def _defines(self, verb: str) -> bool:
        return getattr(type(self), verb) is not getattr(InProcessExtender, verb)

    def is_interested(self, pod: PodInfo) -> bool:
        return True

    async def filter(self, pod: PodInfo, nodes: Sequence[NodeInfo]) -> FilterAnswer:
        return FilterAnswer([node.name for node in nodes])

    async def prioritize(self, pod: PodInfo, nodes: Sequence[NodeInfo]) -> Mapping[str, int]:
        return {}

    async def process_preemption(self, pod: PodInfo, victims: Mapping[str, Victims]) -> Mapping[str, Victims]:
        return victims

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        raise ExtenderError(f"extender {self.name} does not bind")

    async def close(self) -> None:
        return


class ClusterView(Protocol):
    """What extenders that send whole objects look up at the scheduler."""

    def node(self, name: str) -> NodeInfo | None:
        """A node with its pods as they are now; None when there is none of that name."""
        ...

    def pod_document(self, pod: Pod) -> bytes | None:
        """A pod without a node as JSON of the API server, with all its fields; None when that is not known."""
        ...

    def node_document(self, node: Node) -> bytes | None: ...


@runtime_checkable
class ConnectedExtender(Protocol):
    """An extender that wants a view of the cluster. The scheduler then keeps the JSON of nodes and of waiting pods."""

    def connect(self, view: ClusterView) -> None: ...


def in_run_time_order(extenders: Iterable[E]) -> tuple[E, ...]:
    """Ignorable extenders come after all others; the order is kept otherwise."""
    return tuple(sorted(extenders, key=lambda extender: extender.ignorable))


def is_involved(extenders: Iterable[Extender], pod: PodInfo) -> bool:
    """Whether some extender has to be awaited to choose the node of a pod. One that only binds has not."""
    return any(
        (extender.supports_filter or extender.supports_prioritize or extender.supports_preemption)
        and extender.is_interested(pod)
        for extender in extenders
    )
