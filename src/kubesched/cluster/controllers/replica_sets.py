"""ReplicaSet and ReplicationController: as many pods of a template as wanted.

Which pods go first when there are too many follows upstream's order (``ActivePodsWithRanks``). Orphans are not
adopted: only pods that name the set as their controller count. Next: the scheduler places what is created here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from ...api.kinds import REPLICA_SETS, REPLICATION_CONTROLLERS
from ...api.selectors import parse_int64
from ...api.wire import ApiError, Item
from .base import WorkloadController
from .context import BY_OWNER, Context, Data, controller_of
from .pods import conditions_with, is_finished, is_ready, pod_body, ready_since

__all__ = ["DELETION_COST", "ReplicaSets", "ReplicationControllers", "deletion_order"]

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}


def deletion_order(pods: list[Item], neighbours: Counter[str]) -> Callable[[Item], tuple[Any, ...]]:
    """A sort key that puts the pods to lose first in front; ``neighbours`` counts related pods by node."""

    def key(item: Item) -> tuple[Any, ...]:
        pod = item.typed
        cost = pod.metadata.annotations.get(DELETION_COST, "0")
        since = ready_since(pod)
        return (
            bool(pod.spec.node_name),
            _PHASES.get(pod.status.phase, 0),
            is_ready(pod),
            parse_int64(cost) or 0,
            -neighbours[pod.spec.node_name] if pod.spec.node_name else 0,
            -(since or 0.0),
            _newest_first(pod.metadata.creation_timestamp or ""),
            item.name,
        )

    return key


def _newest_first(created: str) -> tuple[int, ...]:
    """Timestamps compare as text; this turns the order round."""
    return tuple(-ord(letter) for letter in created)


class ReplicaSets(WorkloadController):
    """Keeps ``spec.replicas`` active pods of each set."""

    name = "replicaset"
    component = "replicaset-controller"
    kind = REPLICA_SETS

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._delete_first = deletion_order

    async def reconcile_object(self, item: Item, data: Data) -> None:
        await self.act_and_report(item, self._manage(item, data), self._write_status)

    async def _manage(self, item: Item, data: Data) -> None:
        """Create or delete what is missing or too much; the first refusal ends it, as the others would be refused too."""
        if "deletionTimestamp" in data["metadata"]:
            return
        spec = data.get("spec") or {}
        active, burst = self._active(item), self.context.settings.burst
        missing = int(spec.get("replicas", 1)) - len(active)
        if missing > 0:
            body = pod_body(item, spec.get("template") or {}, generate=f"{item.name}-")
            for _ in range(min(missing, burst)):
                await self.create_pod(item, body)
        elif missing < 0:
            active.sort(key=self._delete_first(active, self._neighbours(item, active)))
            for pod in active[: min(-missing, burst)]:
                await self.delete_pod(item, pod)
        if abs(missing) > burst:
            self.queue.add(item.key)  # the rest at the next look; after a refusal, when it is tried again

    def _active(self, item: Item) -> list[Item]:
        context = self.context
        return [pod for pod in context.owned_pods(item.uid) if not is_finished(pod.typed) and not context.is_going(pod)]

    def _neighbours(self, item: Item, active: list[Item]) -> Counter[str]:
        """Active pods by node, of this set and of its siblings under one owner."""
        counts = Counter(pod.typed.spec.node_name for pod in active)
        owner = controller_of(item)
        for sibling in self.cache.indexed(BY_OWNER, owner.uid) if owner is not None else ():
            if sibling.uid != item.uid:
                counts.update(pod.typed.spec.node_name for pod in self._active(sibling))
        return counts

    async def _write_status(self, item: Item, failure: ApiError | None) -> None:
        data = item.data()
        spec, old = data.get("spec") or {}, data.get("status") or {}
        labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
        active = self._active(item)
        status: Data = {
            "replicas": len(active),
            "fullyLabeledReplicas": sum(labels.items() <= pod.typed.metadata.labels.items() for pod in active),
            "readyReplicas": sum(is_ready(pod.typed) for pod in active),
            "availableReplicas": sum([self.is_available(item, spec, pod) for pod in active]),
        }
        status = {name: count for name, count in status.items() if count or name == "replicas"}
        if "generation" in data["metadata"]:
            status["observedGeneration"] = data["metadata"]["generation"]
        failed = [one for one in old.get("conditions") or () if one.get("type") == "ReplicaFailure"]
        conditions = [one for one in old.get("conditions") or () if one.get("type") != "ReplicaFailure"]
        if failure is not None:
            # The first message stays: the next ones name other pods, and each would be one more event.
            conditions += failed or conditions_with(
                None, "ReplicaFailure", "True", "FailedCreate", failure.message, self.context.now_text()
            )
        if conditions:
            status["conditions"] = conditions
        await self.context.write_status(item, data, status)


class ReplicationControllers(ReplicaSets):
    """The same for the older kind."""

    name = "replicationcontroller"
    component = "replication-controller"
    kind = REPLICATION_CONTROLLERS
