"""Support for extenders when a scheduler is assembled: their order, their events for requeueing, their view of the
cluster.

Used by :mod:`..scheduler`.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubesched.api.types import Node, Pod

from ..config import ConfigError, KubeSchedulerConfiguration
from ..informers import Informers
from ..nodes import NodeTable
from ..nodes.nodeinfo import NodeInfo
from .interface import EXTENDER_NAME, ConnectedExtender, Extender, in_run_time_order

__all__ = ["ExtenderRejections", "checked_extenders", "connect_extenders"]


class ExtenderRejections:
    """Stand-in for extenders among the plugins. It registers nearly every event, since any may help pods that extenders
    rejected.
    """

    name = EXTENDER_NAME


class _View:
    """View of the cluster in which extenders look things up."""

    def __init__(self, table: NodeTable, informers: Informers) -> None:
        self._table = table
        self._pods, self._nodes = informers.pods, informers["nodes"]

    def node(self, name: str) -> NodeInfo | None:
        node = self._table.get(name)
        return node if node is not None and node.node is not None else None

    def pod_document(self, pod: Pod) -> bytes | None:
        return self._pods.document(pod.key)

    def node_document(self, node: Node) -> bytes | None:
        return self._nodes.document(node.name)


def checked_extenders(config: KubeSchedulerConfiguration, given: Sequence[Extender]) -> tuple[Extender, ...]:
    """Return the extenders in the order of their calls, if every configured extender is among them.

    Raises:
        ConfigError: stage ``framework``, naming the extenders that would silently be left out.
    """
    names = {extender.name for extender in given}
    if missing := [extender.url_prefix for extender in config.extenders if extender.url_prefix not in names]:
        text = f"couldn't build extenders: nothing here calls the configured extender {', '.join(missing)}"
        raise ConfigError("framework", [text])
    return in_run_time_order(given)


def connect_extenders(extenders: Sequence[Extender], table: NodeTable, informers: Informers) -> None:
    """Keep the JSON of nodes and waiting pods for extenders that send whole objects. The JSON has fields that are not
    decoded.
    """
    connected = [extender for extender in extenders if isinstance(extender, ConnectedExtender)]
    if connected:
        informers["nodes"].keep_documents(lambda node: True)
        informers.pods.keep_documents(lambda pod: not pod.spec.node_name)
        view = _View(table, informers)
        for extender in connected:
            extender.connect(view)
