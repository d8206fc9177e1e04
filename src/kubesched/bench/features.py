"""Fake node features: what upstream's topic nodedeclaredfeatures replaces the feature library by.

Every feature is needed by each pod that has resources of its own (spec "Benchmark workload format" section 4, topic hook).
Caller: :mod:`.execute`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

from kubesched.api.types import Pod
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.interface import Plugin, Reads
from kubesched.framework.nodeinfo import NodeInfo
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.registry import Registry
from kubesched.framework.status import Status
from kubesched.plugins import names

__all__ = ["with_features"]


def with_features(registry: Registry, features: Sequence[str]) -> Registry:
    """The registry itself without features, else a copy whose NodeDeclaredFeatures knows these and no others."""
    if not features:
        return registry
    needed = frozenset(features)

    def needs(pod: Pod) -> bool:
        return pod.spec.resources is not None

    class FakeFeatures(Plugin):
        """The nodes that declare every feature."""

        name = names.NODE_DECLARED_FEATURES
        reads: ClassVar[Reads] = Reads.NODE
        signs_spec = True

        def sign(self, pod: PodInfo) -> Hashable | None:
            return needs(pod.pod)

        def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
            declared = node.node.status.declared_features if node.node is not None else ()
            if needs(pod.pod) and not needed.issubset(declared):
                return Status.unresolvable("node(s) didn't match Pod's required features")
            return None

    changed = registry.copy()
    changed.unregister(FakeFeatures.name)
    changed.register(FakeFeatures)
    return changed
