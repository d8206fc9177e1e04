"""Fake node features, in place of the feature library, as in upstream's topic nodedeclaredfeatures.

Every feature is needed by each pod that has resources of its own (rules/benchmark-format §4, topic hook). Caller:
:mod:`.execute`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kubesched.scheduler.framework.interface import Plugin
from kubesched.scheduler.framework.question import Question, Reads, RowArray, VerdictArray
from kubesched.scheduler.framework.registry import Registry
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes.nodeinfo import NodeInfo
from kubesched.scheduler.nodes.podinfo import PodInfo

if TYPE_CHECKING:
    from kubesched.scheduler.nodes import NodeTable

__all__ = ["with_features"]


def with_features(registry: Registry, features: Sequence[str]) -> Registry:
    """Return a registry whose NodeDeclaredFeatures plugin knows these features only.

    Without features the given registry itself is returned, otherwise a copy.
    """
    if not features:
        return registry
    needed = frozenset(features)

    class Features(Question):
        """Features of a node that the pod needs."""

        by_spec = True
        reads = Reads.NODE

        def __init__(self, nodes: NodeTable) -> None:
            self.key = True
            self._nodes = nodes

        def verdicts(self, rows: RowArray) -> VerdictArray:
            return np.array([self.verdict(self._nodes.info(row)) for row in rows.tolist()], np.uint64)

        def verdict(self, node: NodeInfo) -> int:
            declared = node.node.status.declared_features if node.node is not None else ()
            return int(not needed.issubset(declared))

        def why(self, verdict: int) -> Status:
            return Status.unresolvable("node(s) didn't match Pod's required features")

    class FakeFeatures(Plugin):
        """Plugin that admits the nodes that declare every needed feature."""

        name = "NodeDeclaredFeatures"
        asks = Features

        def ask(self, pod: PodInfo, nodes: NodeTable) -> Question | None:
            return Features(nodes) if pod.spec.resources is not None else None

    changed = registry.copy()
    changed.unregister(FakeFeatures.name)
    changed.register(FakeFeatures)
    return changed
