"""One plugin, a cache, and every way of asking it; the answers of all forms must be the same."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from builders import a_stopwatch
from kubesched.api.types import Node, Pod
from kubesched.scheduler.cache import Cache
from kubesched.scheduler.config import DEFAULT_GATES, FeatureGates
from kubesched.scheduler.core.handle import Backends, ProfileHandle
from kubesched.scheduler.framework.asking import answering
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.entries import FilterEntry, ScoreEntry
from kubesched.scheduler.framework.status import Code, Status
from kubesched.scheduler.nodes import NodeList
from kubesched.scheduler.nodes.podinfo import PodInfo


class StillClock:
    def now(self) -> float:
        return 0.0


class Bench:
    """Nodes and pods, and plugins that evaluate them."""

    def __init__(
        self,
        nodes: Iterable[Node] = (),
        pods: Iterable[Pod] = (),
        gates: FeatureGates = DEFAULT_GATES,
        client: Any = None,
        services: Sequence[Any] = (),
    ) -> None:
        """``services`` are those of the namespace ``ns``."""
        self.cache = Cache()

        def informed_in(kind: str, namespace: str) -> Sequence[Any]:
            return services if (kind, namespace) == ("services", "ns") else ()

        backends = Backends(
            StillClock(),
            random.Random(0),
            self.cache.snapshot(),
            gates=gates,
            client=client,
            informed_in=informed_in,
        )
        self.handle = ProfileHandle("default-scheduler", backends)
        for node in nodes:
            self.cache.set_node(node)
        for pod in pods:
            self.cache.add_pod(PodInfo(pod))

    @property
    def nodes(self) -> NodeList:
        return self.cache.snapshot().nodes()

    def build(self, plugin: type, args: Any = None) -> Any:
        return answering(plugin(args, self.handle), self.handle)

    def outcomes(self, plugin: Any, pod: Pod) -> dict[str, tuple[int, tuple[str, ...]] | None] | Status:
        """Node to (code, reasons), None where it passes; or PreFilter's Skip or rejection.

        Nodes that PreFilter leaves out are asked all the same.
        """
        found, state, info, table = PodInfo(pod), CycleState(), self.nodes, self.cache.table
        if "preFilter" in plugin.points:
            answer = plugin.pre_filter(state, found, info)
            if isinstance(answer, Status):
                return answer
        entry = FilterEntry(plugin, 0, a_stopwatch())
        verdicts = entry.many(state, found, table, info.rows)
        assert verdicts.dtype == np.uint64
        outcomes: dict[str, tuple[int, tuple[str, ...]] | None] = {}
        for node, verdict in zip(info, verdicts.tolist(), strict=True):
            one = entry.one(state, found, table, node)
            assert one == verdict, f"{node.name}: verdict says {one}, verdicts {verdict}"
            alone = int(entry.many(state, found, table, np.array([node.row], np.int64))[0])
            assert alone == verdict, f"{node.name}: verdicts of one row says {alone}, of all {verdict}"
            outcomes[node.name] = None
            if verdict:
                status = entry.status(state, found, verdict)
                assert status.plugin == plugin.name
                outcomes[node.name] = (int(status.code), tuple(status.reasons()))
        return outcomes

    def scores(self, plugin: Any, pod: Pod, *, final: bool = False) -> dict[str, int] | Status:
        """Node to raw score, or to what normalising makes of it; or PreScore's Skip or error."""
        found, state, info, table = PodInfo(pod), CycleState(), self.nodes, self.cache.table
        if "preScore" in plugin.points:
            status = plugin.pre_score(state, found, info)
            if isinstance(status, Status):
                return status
        entry = ScoreEntry(plugin, 1, a_stopwatch())
        scores = entry.many(state, found, table, info.rows)
        assert scores.dtype == np.int64
        for node, score in zip(info, scores.tolist(), strict=True):
            one = entry.one(state, found, table, node)
            assert one == score, f"{node.name}: score says {one}, scores {score}"
            alone = int(entry.many(state, found, table, np.array([node.row], np.int64))[0])
            assert alone == score, f"{node.name}: scores of one row says {alone}, of all {score}"
        if final:
            scores = entry.final_of_all(state, found, info, scores)
            assert scores.min() >= 0
            assert scores.max() <= 100
        return dict(zip(info.names(), scores.tolist(), strict=True))


def is_skip(answer: Mapping[str, Any] | Status) -> bool:
    return isinstance(answer, Status) and answer.code is Code.SKIP
