"""The arithmetic of a rolling update: how large each ReplicaSet of a deployment may be now. Pure functions.

Rules: upstream ``deployment/rolling.go`` and ``sync.go`` (proportional scaling). Caller: :mod:`.deployments`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...api.selectors import parse_int64
from ...api.wire import Item
from .pods import resolve_count

__all__ = ["Member", "Rollout", "plan_rolling", "plan_scaling"]


@dataclass(frozen=True, slots=True)
class Rollout:
    """What a deployment's spec says, percentages resolved."""

    replicas: int
    recreate: bool
    surge: int
    unavailable: int
    paused: bool
    deadline: float
    history: int

    @classmethod
    def of(cls, spec: dict[str, Any]) -> Rollout:
        """Read a spec; defaults are 25 % and 25 %, 600 s, 10 old sets."""
        replicas = int(spec.get("replicas", 1))
        strategy = spec.get("strategy") or {}
        recreate = strategy.get("type") == "Recreate"
        rolling = strategy.get("rollingUpdate") or {}
        surge = unavailable = 0
        if not recreate:
            surge = resolve_count(rolling.get("maxSurge", "25%"), replicas, up=True)
            unavailable = min(resolve_count(rolling.get("maxUnavailable", "25%"), replicas, up=False), replicas)
            if not surge and not unavailable:
                unavailable = 1  # otherwise nothing could ever move
        deadline = float(spec.get("progressDeadlineSeconds") or 600)
        history = int(spec.get("revisionHistoryLimit", 10))
        return cls(replicas, recreate, surge, unavailable, bool(spec.get("paused")), deadline, history)


class Member:
    """One ReplicaSet of a deployment."""

    def __init__(self, item: Item) -> None:
        self.refresh(item)

    def refresh(self, item: Item) -> None:
        """Adopt a newer version."""
        self.item = item
        self.data = item.data()
        self.spec: dict[str, Any] = self.data.get("spec") or {}
        self.replicas = int(self.spec.get("replicas", 1))

    def annotation(self, name: str) -> str:
        value: str = (self.data["metadata"].get("annotations") or {}).get(name, "")
        return value

    @property
    def revision(self) -> int:
        return max(0, parse_int64(self.annotation("deployment.kubernetes.io/revision")) or 0)

    @property
    def order(self) -> tuple[str, str]:
        """Oldest first."""
        return (self.data["metadata"].get("creationTimestamp") or "", self.item.name)

    @property
    def conditions(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (self.data.get("status") or {}).get("conditions") or []
        return found

    def count(self, field: str) -> int:
        """A number of its status."""
        return int((self.data.get("status") or {}).get(field) or 0)


def plan_rolling(rollout: Rollout, new: Member, old: list[Member]) -> list[tuple[Member, int]]:
    """The sizes to set now: the new set grows into the surge, old sets shrink as far as availability allows."""
    plan: dict[int, int] = {}
    members = [*old, new]
    total = sum(member.replicas for member in members)
    grown = new.replicas
    if new.replicas > rollout.replicas:
        grown = rollout.replicas
    elif new.replicas < rollout.replicas:
        allowed = rollout.replicas + rollout.surge - total
        grown = new.replicas + max(0, min(allowed, rollout.replicas - new.replicas))
    if grown != new.replicas:
        # One step at a time, as upstream: what shrinks is decided when the new set has its pods.
        return [(new, grown)]
    plan = _shrink_old(rollout, new, old, total)
    result = [(member, plan.get(index, member.replicas)) for index, member in enumerate(old)]
    return [*result, (new, new.replicas)]


def _shrink_old(rollout: Rollout, new: Member, old: list[Member], total: int) -> dict[int, int]:
    sizes = {index: member.replicas for index, member in enumerate(old)}
    if not any(sizes.values()):
        return sizes
    minimum = rollout.replicas - rollout.unavailable
    new_unavailable = new.replicas - new.count("availableReplicas")
    # Pods that never became available hold nothing up: they go first.
    most = total - minimum - new_unavailable
    if most <= 0:
        return sizes
    for index, member in enumerate(old):
        if most <= 0:
            break
        unhealthy = sizes[index] - min(sizes[index], member.count("availableReplicas"))
        drop = min(most, unhealthy)
        sizes[index] -= drop
        most -= drop
    available = sum(member.count("availableReplicas") for member in [*old, new])
    spare = available - minimum
    for index, size in list(sizes.items()):
        if spare <= 0:
            break
        drop = min(size, spare)
        sizes[index] -= drop
        spare -= drop
    return sizes


def plan_scaling(rollout: Rollout, members: list[Member]) -> list[tuple[Member, int]]:
    """The sizes after the replica count changed: spread over the sets in proportion, the largest first."""
    active = [member for member in members if member.replicas]
    if len(active) <= 1:
        target = active[0] if active else members[-1] if members else None
        return [(target, rollout.replicas)] if target is not None else []
    total = sum(member.replicas for member in active)
    allowed = rollout.replicas + (rollout.surge if rollout.replicas else 0)
    left = allowed - total
    ordered = sorted(active, key=lambda member: (-member.replicas, member.order))
    sizes: list[int] = []
    for member in ordered:
        share = member.replicas * allowed / total
        step = round(share) - member.replicas if left else 0
        step = max(min(step, left), 0) if left > 0 else min(max(step, left), 0)
        step = max(step, -member.replicas)
        sizes.append(member.replicas + step)
        left -= step
    if left:
        sizes[0] = max(0, sizes[0] + left)
    return list(zip(ordered, sizes, strict=True))
