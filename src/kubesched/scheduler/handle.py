"""What the scheduler gives its plugins to work with (see ``framework.interface.Handle``)."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubesched.api.times import Clock
from kubesched.api.types import Pod
from kubesched.cache import Snapshot
from kubesched.config import DEFAULT_GATES, FeatureGates
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.waiting import WaitingPods

__all__ = ["Backends", "ProfileHandle"]


@dataclass(frozen=True, slots=True)
class Backends:
    """What all profiles share.

    Attributes:
        clock, random, snapshot, client, gates, waiting_pods: see :class:`~kubesched.framework.interface.Handle`.
        activate: moves pods (by ``namespace/name``) to the active queue.
        nominated_pods: the pods nominated to a node.
        informed: the objects of a watched kind by key.
        informed_in: the objects of a kind (plural) in a namespace.
    """

    clock: Clock
    random: random.Random
    snapshot: Snapshot
    client: Any = None
    gates: FeatureGates = DEFAULT_GATES
    waiting_pods: WaitingPods = field(default_factory=WaitingPods)
    activate: Callable[[Mapping[str, Pod]], None] = lambda pods: None
    nominated_pods: Callable[[str], list[PodInfo]] = lambda node_name: []
    informed: Callable[[str], Mapping[str, Any]] = lambda kind: {}
    informed_in: Callable[[str, str], Sequence[Any]] = lambda kind, namespace: ()


class ProfileHandle:
    """One profile's view of the shared parts."""

    def __init__(self, profile_name: str, backends: Backends) -> None:
        self.profile_name = profile_name
        self._backends = backends

    @property
    def clock(self) -> Clock:
        return self._backends.clock

    @property
    def random(self) -> random.Random:
        return self._backends.random

    @property
    def snapshot(self) -> Snapshot:
        return self._backends.snapshot

    @property
    def waiting_pods(self) -> WaitingPods:
        return self._backends.waiting_pods

    @property
    def client(self) -> Any:
        return self._backends.client

    def gate(self, name: str) -> bool:
        return self._backends.gates.enabled(name)

    def activate(self, pods: Mapping[str, Pod]) -> None:
        self._backends.activate(pods)

    def nominated_pods(self, node_name: str) -> list[PodInfo]:
        return self._backends.nominated_pods(node_name)

    def informed(self, kind: str) -> Mapping[str, Any]:
        return self._backends.informed(kind)

    def informed_in(self, kind: str, namespace: str) -> Sequence[Any]:
        return self._backends.informed_in(kind, namespace)
