"""Nodes of a run over time: each state of each node, from the moment it began.

The book follows every change of a node in the store, so it is complete whatever made the change: manifests, events,
the autoscaler, the kubelets. Caller: :mod:`..run.session`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kubesched.api.kinds import NODES
from kubesched.api.quantity import QuantityError
from kubesched.api.requests import PODS as POD_COUNT
from kubesched.api.requests import Resources
from kubesched.api.types import Node, Taint
from kubesched.cluster.schema import Stored

from .node_status import node_status
from .pod_times import amounts
from .result import NodeTimes

__all__ = ["MOST_LABELS", "NodeBook", "node_amounts", "taint_text"]

#: Most labels of a node that are kept, the first by name.
MOST_LABELS: Final = 32
#: Label whose value is the node's name.
_HOSTNAME: Final = "kubernetes.io/hostname"


def node_amounts(node: Node) -> dict[str, int]:
    """Return allocatable amounts: cpu in millicores, memory and storage in bytes; empty for unreadable ones."""
    try:
        found = Resources.from_list(node.status.allocatable)
    except QuantityError:
        return {}
    return {**amounts(found), POD_COUNT: found.allowed_pods}


def taint_text(taint: Taint) -> str:
    """Return a taint as kubectl writes it: ``key=value:effect``."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


class NodeBook:
    """Book of every node of a run. Times are virtual seconds since the start, which ``now`` returns."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._closed: list[NodeTimes] = []
        self._open: dict[str, NodeTimes] = {}

    def changed(self, item: Stored | None, old: Stored | None) -> None:
        """Note a change in the store. The store calls this for every created, changed or removed object."""
        stored = item if item is not None else old
        if stored is None or stored.kind is not NODES:
            return
        if item is None:
            self.gone(stored.name)
        else:
            self.put(item.typed)

    def put(self, node: Node) -> None:
        """Note a node that came or changed."""
        before, after = self._open.pop(node.name, None), _state(node, self._now())
        if before is not None and _same(before, after):
            self._open[node.name] = before
            return
        self._close(before, after.since, is_gone=False)
        self._open[node.name] = after

    def gone(self, name: str) -> None:
        """Note that a node was deleted."""
        self._close(self._open.pop(name, None), self._now(), is_gone=True)

    def _close(self, state: NodeTimes | None, now: float, *, is_gone: bool) -> None:
        """Keep a state that is over, unless it lasted no time."""
        if state is not None and state.since < now:
            self._closed.append(
                NodeTimes(
                    name=state.name,
                    since=state.since,
                    until=now,
                    gone=is_gone,
                    status=state.status,
                    taints=state.taints,
                    labels=state.labels,
                    allocatable=state.allocatable,
                )
            )

    def nodes(self) -> list[NodeTimes]:
        """Return the states of all nodes by name and time."""
        return sorted([*self._closed, *self._open.values()], key=lambda one: (one.name, one.since))


def _state(node: Node, now: float) -> NodeTimes:
    labels = sorted((key, value) for key, value in node.metadata.labels.items() if key != _HOSTNAME)
    return NodeTimes(
        name=node.name,
        since=now,
        status=node_status(node),
        taints=[taint_text(one) for one in node.spec.taints],
        labels=dict(labels[:MOST_LABELS]),
        allocatable=node_amounts(node),
    )


def _same(before: NodeTimes, after: NodeTimes) -> bool:
    return (before.status, before.taints, before.labels, before.allocatable) == (
        after.status,
        after.taints,
        after.labels,
        after.allocatable,
    )
