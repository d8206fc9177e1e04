"""Placement of pods one after the other by one profile: the real plugins and the real search, without queue and binding.

There is no time, nothing is bound, and a pod that fits nowhere is left out. Reserve is called, so plugins keep their
assignments. Callers: example policies and their tests (:class:`Placement`, without a cluster), and :mod:`..planning`
(:class:`Placing`, over the cache of a scheduler that stands still).
"""

from __future__ import annotations

import enum
import random
from collections.abc import Iterable, Iterator

from kubesched.api.types import Node, Pod
from kubesched.base.times import RealClock
from kubesched.scheduler.cache import Cache
from kubesched.scheduler.config import KubeSchedulerConfiguration
from kubesched.scheduler.core.diagnosis import Rejection
from kubesched.scheduler.core.full_scan import Evaluation, Rotation
from kubesched.scheduler.core.handle import Backends
from kubesched.scheduler.core.profiles import build_frameworks
from kubesched.scheduler.core.search import Decision, Search
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.framework.metrics import SchedulerMetrics
from kubesched.scheduler.framework.registry import Registry
from kubesched.scheduler.framework.runtime import Framework
from kubesched.scheduler.nodes.nominating import NoNominations
from kubesched.scheduler.nodes.podinfo import PodInfo

__all__ = ["Placement", "Placing", "Ties"]


class Ties(enum.Enum):
    """Rule for the choice among several best nodes."""

    #: Each with the same chance, as the scheduler does.
    RANDOM = "random"
    #: The first in a random order of the nodes, which is the same for all pods.
    FIRST = "first"


class _First(random.Random):
    """Random source that chooses the first candidate."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return 0 if stop is None else start


class Placing:
    """Placement over a cache by a profile's search.

    Attributes:
        cache: the nodes, and the pods placed so far.
        framework: the profile; its plugins by name are in ``framework.plugins``.
    """

    def __init__(self, cache: Cache, framework: Framework, search: Search) -> None:
        self.cache = cache
        self.framework = framework
        self._search = search

    def place(self, pod: Pod) -> str | None:
        """Place a pod. Returns its node, or None when it fits nowhere, or a Reserve plugin rejected it.

        Raises:
            PluginFailedError: when a plugin fails.
        """
        info = PodInfo(pod)
        decision = self.find(info)
        return decision.node.name if isinstance(decision, Decision) and self.keep(info, decision) else None

    def find(self, pod: PodInfo) -> Decision | Rejection:
        """Return the best node for a pod, using cached answers. Nothing is placed.

        Raises:
            PluginFailedError: when a plugin fails.
        """
        return self._search.find(pod)

    def keep(self, pod: PodInfo, decision: Decision) -> bool:
        """Put the pod on the node that was found; False when a Reserve plugin rejected it.

        Raises:
            PluginFailedError: when a plugin fails.
        """
        node_name = decision.node.name
        assumed = pod.on_node(node_name)
        self.cache.assume_pod(assumed)
        rejection = self.framework.reserve(decision.state, assumed, node_name)
        if rejection is None:
            return True
        self.take_back(pod, decision)
        if not rejection.is_rejected:
            raise PluginFailedError.of(rejection)
        return False

    def take_back(self, pod: PodInfo, decision: Decision) -> None:
        """Undo :meth:`keep`, with Unreserve called."""
        assumed = pod.on_node(decision.node.name)
        self.framework.unreserve(decision.state, assumed, decision.node.name)
        self.cache.forget_pod(assumed.pod)

    def evaluate(self, pod: Pod) -> Evaluation | Rejection:
        """Return the answers of the plugins for a pod on every node, without a cache. Nothing is placed.

        Raises:
            PluginFailedError: when a plugin fails.
        """
        return self._search.evaluate(CycleState(), PodInfo(pod))

    def place_all(self, pods: Iterable[Pod]) -> Iterator[str | None]:
        """Place one pod after the other, and yield the results of :meth:`place`."""
        return map(self.place, pods)


class Placement(Placing):
    """Placement on nodes of its own, by a profile of its own."""

    def __init__(
        self,
        nodes: Iterable[Node],
        config: KubeSchedulerConfiguration,
        registry: Registry,
        *,
        seed: int = 0,
        ties: Ties = Ties.RANDOM,
    ) -> None:
        """``config`` has one profile. All randomness comes from ``seed``.

        Raises:
            ConfigError: when the profile cannot be built.
        """
        rng = random.Random(seed)
        cache = Cache()
        snapshot = cache.snapshot()
        backends = Backends(RealClock(), random.Random(rng.getrandbits(64)), snapshot, node_changed=cache.node_changed)
        (framework,) = build_frameworks(config, registry, backends, SchedulerMetrics()).values()
        choice = random.Random(rng.getrandbits(64)) if ties is Ties.RANDOM else _First()
        super().__init__(cache, framework, Search(framework, snapshot, NoNominations(), choice, Rotation()))
        ordered = list(nodes)
        rng.shuffle(ordered)
        for node in ordered:
            self.cache.set_node(node)
