"""The arithmetic of a rolling update: how large each ReplicaSet of a deployment may be now. Pure functions.

Rules: upstream ``deployment/rolling.go`` and ``sync.go`` (proportional scaling). Caller: :mod:`.deployments`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ...api.selectors import parse_int64
from ...api.wire import Item
from .context import spec_of, status_of
from .pods import resolve_count

__all__ = ["REVISION", "Member", "Rollout", "plan_rolling", "plan_scaling"]

REVISION: Final = "deployment.kubernetes.io/revision"


class Rollout:
    """What a deployment's spec says, percentages resolved. Defaults are 25 % and 25 %, 600 s, 10 old sets."""

    def __init__(self, spec: dict[str, Any]) -> None:
        strategy = spec.get("strategy") or {}
        rolling = strategy.get("rollingUpdate") or {}
        self.replicas = int(spec.get("replicas", 1))
        self.recreate = strategy.get("type") == "Recreate"
        self.surge = self.unavailable = 0
        if not self.recreate:
            self.surge = resolve_count(rolling.get("maxSurge", "25%"), self.replicas, up=True)
            unavailable = resolve_count(rolling.get("maxUnavailable", "25%"), self.replicas, up=False)
            # With neither of both nothing could ever move.
            self.unavailable = min(unavailable, self.replicas) or int(not self.surge)
        self.paused = bool(spec.get("paused"))
        self.deadline = float(spec.get("progressDeadlineSeconds") or 600)
        self.history = int(spec.get("revisionHistoryLimit", 10))


class Member:
    """One ReplicaSet of a deployment. Members are ordered by ``order``, oldest first."""

    def __init__(self, item: Item) -> None:
        self.refresh(item)

    def refresh(self, item: Item) -> None:
        """Adopt a newer version."""
        metadata = item.typed["metadata"]
        self.item, self.spec, self.status = item, spec_of(item), status_of(item)
        self.annotations: dict[str, str] = metadata.get("annotations") or {}
        self.replicas = int(self.spec.get("replicas", 1))
        self.revision = max(0, parse_int64(self.annotations.get(REVISION, "")) or 0)
        self.order = (metadata.get("creationTimestamp") or "", item.name)

    def count(self, field: str) -> int:
        """A number of its status."""
        return int(self.status.get(field) or 0)


def plan_rolling(rollout: Rollout, new: Member, old: list[Member]) -> list[tuple[Member, int]]:
    """The sizes to set now: the new set grows into the surge, old sets shrink as far as availability allows."""
    total = sum(member.replicas for member in [*old, new])
    grown = min(rollout.replicas, new.replicas + max(0, rollout.replicas + rollout.surge - total))
    if grown != new.replicas:
        # One step at a time, as upstream: what shrinks is decided when the new set has its pods.
        return [(new, grown)]
    sizes = [member.replicas for member in old]
    available = [member.count("availableReplicas") for member in old]
    new_available = new.count("availableReplicas")
    minimum = rollout.replicas - rollout.unavailable
    most = total - minimum - (new.replicas - new_available)
    if most > 0:
        # Pods that never became available hold nothing up: they go first.
        _shrink(sizes, (size - ready for size, ready in zip(sizes, available, strict=True)), most)
        _shrink(sizes, sizes, sum(available) + new_available - minimum)
    return [*zip(old, sizes, strict=True), (new, new.replicas)]


def _shrink(sizes: list[int], limits: Iterable[int], most: int) -> None:
    """Lower each size by its limit at most, and all of them by ``most`` together, the first ones first."""
    for index, limit in enumerate(limits):
        drop = max(0, min(limit, most))
        sizes[index] -= drop
        most -= drop


def plan_scaling(rollout: Rollout, members: list[Member]) -> list[tuple[Member, int]]:
    """The sizes after the replica count changed: spread over the sets in proportion, the largest first."""
    active = [member for member in members if member.replicas]
    if len(active) <= 1:
        return [(target, rollout.replicas) for target in (active or members)[-1:]]
    total = sum(member.replicas for member in active)
    allowed = rollout.replicas + (rollout.surge if rollout.replicas else 0)
    left = allowed - total
    ordered = sorted(active, key=lambda member: (-member.replicas, member.order))
    sizes: list[int] = []
    for member in ordered:
        step = round(member.replicas * allowed / total) - member.replicas
        step = max(min(step, left), 0) if left > 0 else min(max(step, left), 0)
        sizes.append(member.replicas + step)
        left -= step
    sizes[0] = max(0, sizes[0] + left)
    return list(zip(ordered, sizes, strict=True))
