"""ReplicaSet and ReplicationController: the wanted number of pods of a template.

Surplus pods are deleted in upstream's order (``ActivePodsWithRanks``). Next: the scheduler places the pods that are created here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from kubesched.api.kinds import PODS, REPLICA_SETS, REPLICATION_CONTROLLERS
from kubesched.api.selectors import parse_int64
from kubesched.api.wire import ApiError, Item

from .base import WorkloadController
from .context import BY_OWNER, Context, controller_of, data_of, spec_of, status_of
from .ownership import Ownership
from .pods import is_finished, is_ready, pod_body, ready_since

__all__ = ["ReplicaSets", "ReplicationControllers"]

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}


def _in_deletion_order(pods: Iterable[Item], neighbours: Counter[str]) -> list[Item]:
    """Return the pods in the order of deletion. ``neighbours`` counts related pods by node."""

    def rank(item: Item) -> tuple[Any, ...]:
        pod = item.typed
        return (
            bool(pod.spec.node_name),
            _PHASES.get(pod.status.phase, 0),
            is_ready(pod),
            parse_int64(pod.metadata.annotations.get(DELETION_COST, "0")) or 0,
            -neighbours[pod.spec.node_name],
            -(ready_since(pod) or 0.0),
        )

    by_name = sorted(pods, key=lambda item: item.name)
    newest_first = sorted(by_name, key=lambda item: item.typed.metadata.creation_timestamp or "", reverse=True)
    return sorted(newest_first, key=rank)


class ReplicaSets(WorkloadController):
    """Controller that keeps ``spec.replicas`` active pods of each set."""

    name = "replicaset"
    kind = REPLICA_SETS

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._ownership = Ownership(self, context.pods, is_wanted=lambda _, pod: not is_finished(pod.typed))

    async def reconcile_object(self, item: Item) -> None:
        await self._ownership.settle(item)
        await self.act_and_report(item, self._manage(item), self._write_status)

    async def _manage(self, item: Item) -> None:
        """Create missing pods or delete surplus ones.

        The first refusal ends the work: other pods would be refused too.
        """
        if self.context.is_going(item):
            return
        spec = spec_of(item)
        active, burst = self._active(item), self.context.settings.burst
        wanted = await self.bounded(item, int(spec.get("replicas", 1)))
        missing = wanted - len(active)
        if missing > 0:
            body = pod_body(item, spec.get("template") or {})
            for _ in range(min(missing, burst)):
                await self.create_owned(item, PODS, body)
        elif missing < 0:
            ranked = _in_deletion_order(active, self._neighbours(item, active))
            await self.delete_owned(item, *ranked[: min(-missing, burst)])
        if abs(missing) > burst:
            self.queue.add(item.key)  # the next reconcile does the rest; after a refusal, the next try does

    def _active(self, item: Item) -> list[Item]:
        context = self.context
        return [pod for pod in context.owned_pods(item.uid) if not is_finished(pod.typed) and not context.is_going(pod)]

    def _neighbours(self, item: Item, active: list[Item]) -> Counter[str]:
        """Count active pods by node, of this set and of other sets of the same owner."""
        counts = Counter(pod.typed.spec.node_name for pod in active)
        owner = controller_of(item)
        for sibling in self.cache.indexed(BY_OWNER, owner.uid) if owner is not None else ():
            if sibling.uid != item.uid:
                counts.update(pod.typed.spec.node_name for pod in self._active(sibling))
        return counts

    async def _write_status(self, item: Item, failure: ApiError | None) -> None:
        old = status_of(item).get("conditions") or ()
        labels = ((spec_of(item).get("template") or {}).get("metadata") or {}).get("labels") or {}
        active = self._active(item)
        ready = [pod for pod in active if is_ready(pod.typed)]
        labelled = sum(labels.items() <= pod.typed.metadata.labels.items() for pod in active)
        conditions = [one for one in old if one.get("type") != "ReplicaFailure"]
        if failure is not None:
            # The first message stays. Later messages only name other pods, and each of them would be one more event.
            known = [one for one in old if one.get("type") == "ReplicaFailure"]
            conditions += known or [self.context.condition("ReplicaFailure", "True", "FailedCreate", failure.message)]
        status = {
            "replicas": len(active),
            "fullyLabeledReplicas": labelled or None,
            "readyReplicas": len(ready) or None,
            "availableReplicas": sum([self.is_available(item, pod) for pod in ready]) or None,
            "observedGeneration": data_of(item)["metadata"].get("generation"),
            "conditions": conditions or None,
        }
        await self.context.write_status(item, status)


class ReplicationControllers(ReplicaSets):
    """Controller of ReplicationControllers. It works like the controller of ReplicaSets."""

    name = "replicationcontroller"
    component = "replication-controller"
    kind = REPLICATION_CONTROLLERS
