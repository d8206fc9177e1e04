"""Trial of evictions at one node: the cluster is shown without some pods, and a pod is evaluated from PreFilter on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from typing import Final

from kubesched.scheduler.core.search import Search, prepared
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.failures import called
from kubesched.scheduler.framework.runtime import Framework
from kubesched.scheduler.nodes import NodeInfo, PodInfo
from kubesched.scheduler.nodes.nominating import nominations_that_count

from .foreign import what_if

__all__ = ["EvictionTrial", "PlacedPod"]

#: Most evaluations of a trial.
_MOST_EVALUATIONS: Final = 128
#: Most words of one plugin about what pods give back.
_MOST_FREED: Final = 64
_NAMING: Final = "running without_pods of plugin"

PlacedPod = tuple[NodeInfo, PodInfo]


class EvictionTrial:
    """Evaluations of a pod at one node without some other pods.

    Attributes:
        left: number of evaluations that may still be made.
    """

    def __init__(self, framework: Framework, search: Search, pod: PodInfo) -> None:
        self._framework = framework
        self._search = search
        self._pod = pod
        self.left = _MOST_EVALUATIONS

    @contextmanager
    def _without(self, pods: Iterable[PlacedPod]) -> Iterator[tuple[str, ...]]:
        gone = list(pods)
        with ExitStack() as stack:
            stack.enter_context(self._search.snapshot.without(gone))
            freed: list[str] = []
            for plugin in self._framework.plugins.values():
                if hasattr(plugin, "without_pods"):
                    make = partial(plugin.without_pods, [one for _, one in gone])
                    words = stack.enter_context(what_if(plugin.name, "without_pods", make))
                    freed += called(_NAMING, plugin.name, lambda words=words: [*map(str, islice(words, _MOST_FREED))])
            yield tuple(freed)

    def frees(self, pods: Iterable[PlacedPod]) -> tuple[str, ...]:
        """Return the claims and amounts that these pods give back, in words."""
        with self._without(pods) as freed:
            return tuple(sorted(freed))

    def least(self, node: NodeInfo, pods: Sequence[PlacedPod]) -> list[PlacedPod]:
        """The pods of these that have to go, none of them needless; none when it is not enough, or takes too long.

        Pods of a high priority are the first to stay.

        Raises:
            PluginFailedError: when a plugin fails.
        """
        if not pods or len(pods) >= self.left or not self.fits(node, pods):
            return []
        gone = sorted(pods, key=lambda one: (-one[1].priority, one[1].pod.key))
        for one in list(gone):
            fewer = [other for other in gone if other is not one]
            if self.fits(node, fewer):
                gone = fewer
        return gone

    def fits(self, node: NodeInfo, gone: Iterable[PlacedPod]) -> bool:
        """True if the pod fits the node when these pods are gone.

        Raises:
            PluginFailedError: when a plugin fails.
        """
        self.left -= 1
        framework, snapshot, state = self._framework, self._search.snapshot, prepared(CycleState(), False)
        with self._without(gone):
            outcome = framework.pre_filter(state, self._pod, snapshot.nodes())
            if outcome.status is not None or (outcome.nodes is not None and node.name not in outcome.nodes):
                return False
            there = self._search.nominations.nominated_pods_for_node(node.name)
            nominated = nominations_that_count(there, self._pod)
            return framework.filter_with_nominated(state, self._pod, snapshot, node, nominated) is None
