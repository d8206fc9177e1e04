"""Interface between the scheduler and an extender, a service outside of it that takes part in scheduling.

:class:`Extender` is implemented by :class:`kubesched.scheduler.extenders.http.HttpExtender` and by in-process objects
of programs and tests. Callers: :mod:`.lane` (filter, prioritize), the binding cycle (bind), and preemption.
Source: rules/framework §8.
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

#: Plugin name under which rejections by extenders are counted. Events requeue the rejected pods under it.
EXTENDER_NAME: Final = "Extender"

E = TypeVar("E", bound="Extender")


class ExtenderError(Exception):
    """An extender could not be reached, answered with an error, or answered nonsense. The message is for users."""


@dataclass(frozen=True, slots=True)
class FilterAnswer:
    """Answer of an extender's filter.

    Attributes:
        names: the nodes that pass, in the extender's order. All of them are nodes that the extender was given.
        failed: reason of the rejection, by node name; preemption may help on these nodes.
        failed_and_unresolvable: reason of the rejection, by node name; preemption does not help on these nodes.
    """

    names: Sequence[str]
    failed: Mapping[str, str] = field(default_factory=dict)
    failed_and_unresolvable: Mapping[str, str] = field(default_factory=dict)


class Extender(Protocol):
    """One extender. Every coroutine raises only :class:`ExtenderError`, when there is no usable answer.

    While a coroutine waits, cache and queue go on changing: a :class:`NodeInfo` shows the present, not the moment of
    the call.
    """

    @property
    def name(self) -> str:
        """Name in messages and reports. An HTTP extender's name is its URL prefix."""
        ...

    @property
    def ignorable(self) -> bool:
        """True if an attempt goes on without the extender when it fails."""
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
        """True if the extender takes part in scheduling this pod (``managedResources``)."""
        ...

    async def filter(self, pod: PodInfo, nodes: Sequence[NodeInfo]) -> FilterAnswer: ...

    async def prioritize(self, pod: PodInfo, nodes: Sequence[NodeInfo]) -> Mapping[str, int]:
        """Scores by node name, without the weight; 0 to 10 by convention."""
        ...

    async def process_preemption(self, pod: PodInfo, victims: Mapping[str, Victims]) -> Mapping[str, Victims]:
        """Return the candidates that the extender accepts, perhaps with other victims, in place of ``victims``."""
        ...

    async def bind(self, pod: PodInfo, node_name: str) -> None: ...

    async def close(self) -> None:
        """Release resources. Called once, when the scheduler has stopped."""
        ...


class InProcessExtender:
    """Base of extenders that are Python objects in the scheduler's process: define the verbs that your extender offers.

    Such an extender works in virtual time, too. A verb may await anything; other pods are scheduled meanwhile.
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
    """View of the scheduler's cluster, for extenders that send whole objects."""

    def node(self, name: str) -> NodeInfo | None:
        """Return a node with its pods as they are now, or None when there is none of that name."""
        ...

    def pod_document(self, pod: Pod) -> bytes | None:
        """Return the API server's JSON of a pod without a node, with all its fields; None if the JSON is not kept."""
        ...

    def node_document(self, node: Node) -> bytes | None: ...


@runtime_checkable
class ConnectedExtender(Protocol):
    """Extender that needs a view of the cluster. For its sake the scheduler keeps the JSON of nodes and of waiting
    pods.
    """

    def connect(self, view: ClusterView) -> None: ...


def in_run_time_order(extenders: Iterable[E]) -> tuple[E, ...]:
    """Sort ignorable extenders after all others. Within both groups the order stays."""
    return tuple(sorted(extenders, key=lambda extender: extender.ignorable))


def is_involved(extenders: Iterable[Extender], pod: PodInfo) -> bool:
    """True if some extender has to be awaited to choose the pod's node. An extender that only binds does not count."""
    return any(
        (extender.supports_filter or extender.supports_prioritize or extender.supports_preemption)
        and extender.is_interested(pod)
        for extender in extenders
    )
