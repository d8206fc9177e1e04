"""StatefulSet: numbered pods, made in order and replaced in reverse order, each with its own claims.

Rules: upstream ``stateful_set_control.go``: OrderedReady and Parallel, RollingUpdate with a partition, OnDelete.
Claims outlive their pods (retention policy Retain). Next: claims go to :mod:`.volumes`, pods to the scheduler.
"""

from __future__ import annotations

from typing import Any, Final

from ...api.kinds import CLAIMS, STATEFUL_SETS
from ...api.selectors import parse_int64
from ...api.wire import ApiError, Item
from ...client.event_writer import NORMAL, WARNING
from .base import WorkloadController
from .context import Context, Data
from .pods import is_finished, is_ready, pod_body
from .revisions import REVISION_LABEL, Revisions, revision_template

__all__ = ["StatefulSets"]

#: Type and reason of what is said about a pod that has ended, by whether it failed.
_RECREATING: Final = {True: (WARNING, "RecreatingFailedPod"), False: (NORMAL, "RecreatingTerminatedPod")}


def _ordinal(owner: Item, pod: Item) -> int | None:
    text = pod.name.removeprefix(f"{owner.name}-")
    return parse_int64(text) if text.isdigit() else None


class StatefulSets(WorkloadController):
    """Keeps each set's numbered pods."""

    name = "statefulset"
    component = "statefulset-controller"
    kind = STATEFUL_SETS
    created = "create Pod {pod} in StatefulSet {owner} successful"
    refused = "create Pod {pod} in StatefulSet {owner} failed error: {error}"
    deleted = "delete Pod {pod} in StatefulSet {owner} successful"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._claims = context.cache(CLAIMS)
        self._revisions = Revisions(context)

    async def reconcile_object(self, item: Item, data: Data) -> None:
        if "deletionTimestamp" in data["metadata"]:
            return
        status = data.get("status") or {}
        seen_all = status.get("observedGeneration") == data["metadata"].get("generation")
        update = await self._revisions.current(item, data, assumed=status.get("updateRevision", "") if seen_all else "")
        current = next((one for one in self._revisions.of(item) if one.name == status.get("currentRevision")), update)
        action = self._step(item, data, current, update)
        await self.act_and_report(item, action, lambda fresh, failure: self._write_status(fresh, current, update))

    # -- one step --------------------------------------------------------------------------------------

    async def _step(self, item: Item, data: Data, current: Item, update: Item) -> None:
        """Do what may be done now: create, remove, replace, in this order; stop where something must be awaited."""
        spec = data["spec"]
        replicas = int(spec.get("replicas", 1))
        start = int((spec.get("ordinals") or {}).get("start") or 0)
        ordered = spec.get("podManagementPolicy", "OrderedReady") != "Parallel"
        strategy = spec.get("updateStrategy") or {}
        partition = int((strategy.get("rollingUpdate") or {}).get("partition") or 0)
        pods = {number: pod for pod in self.context.owned_pods(item.uid) if (number := _ordinal(item, pod)) is not None}
        wanted = range(start, start + replicas)
        for number in wanted:
            pod = pods.get(number)
            if pod is not None and is_finished(pod.typed) and not self.context.is_going(pod):
                failed = pod.typed.status.phase == "Failed"
                word = "failed" if failed else "terminated"
                text = f"StatefulSet {item.key} is recreating {word} Pod {pod.name}"
                await self.record(item, *_RECREATING[failed], text)
                await self.delete_pod(item, pod)
                return  # created again once it is gone
            if pod is None:
                old = strategy.get("type", "RollingUpdate") == "RollingUpdate" and number < start + partition
                await self._create(item, data, current if old else update, number)
                if ordered:
                    return
            elif ordered and not self._is_healthy(item, spec, pod):
                return
        surplus = sorted((number for number in pods if number not in wanted), reverse=True)
        for number in surplus:
            if not self.context.is_going(pods[number]):
                await self.delete_pod(item, pods[number])
            if ordered:
                return
        if strategy.get("type", "RollingUpdate") == "OnDelete":
            return
        for number in reversed(wanted):
            pod = pods.get(number)
            if number < start + partition or pod is None:
                return
            if pod.typed.metadata.labels.get(REVISION_LABEL) != update.name and not self.context.is_going(pod):
                await self.delete_pod(item, pod)
                return
            if not self._is_healthy(item, spec, pod):
                return

    def _is_healthy(self, item: Item, spec: Data, pod: Item) -> bool:
        """Running, ready for long enough, and staying."""
        if self.context.is_going(pod) or pod.typed.status.phase != "Running":
            return False
        return self.is_available(item, spec, pod)

    async def _create(self, item: Item, data: Data, revision: Item, number: int) -> None:
        name = f"{item.name}-{number}"
        template = revision_template(revision)
        spec: Data = dict(template.get("spec") or {})
        volumes = list(spec.get("volumes") or ())
        for claim in data["spec"].get("volumeClaimTemplates") or ():
            volume = claim["metadata"]["name"]
            claim_name = await self._ensure_claim(item, claim, name)
            volumes = [other for other in volumes if other.get("name") != volume]
            volumes.append({"name": volume, "persistentVolumeClaim": {"claimName": claim_name}})
        if volumes:
            spec["volumes"] = volumes
        spec["hostname"] = name
        if data["spec"].get("serviceName"):
            spec["subdomain"] = data["spec"]["serviceName"]
        labels = {
            REVISION_LABEL: revision.name,
            "statefulset.kubernetes.io/pod-name": name,
            "apps.kubernetes.io/pod-index": str(number),
        }
        await self.create_pod(item, pod_body(item, template, name=name, labels=labels, spec=spec))

    async def _ensure_claim(self, item: Item, claim: Data, pod_name: str) -> str:
        name = f"{claim['metadata']['name']}-{pod_name}"
        if self._claims.get(f"{item.namespace}/{name}") is None:
            metadata: dict[str, Any] = {**claim["metadata"], "name": name}
            metadata.pop("namespace", None)
            metadata.pop("creationTimestamp", None)
            what = f"create Claim {name} Pod {pod_name} in StatefulSet {item.name}"
            try:
                await self.context.create(CLAIMS, item.namespace, {"metadata": metadata, "spec": claim["spec"]})
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    await self.record(item, WARNING, "FailedCreate", f"{what} failed error: {error.message}")
                    raise
            else:
                await self.record(item, NORMAL, "SuccessfulCreate", f"{what} success")
        return name

    # -- status ----------------------------------------------------------------------------------------

    async def _write_status(self, item: Item, current: Item, update: Item) -> None:
        data = item.data()
        spec, before = data["spec"], data.get("status") or {}
        replicas = int(spec.get("replicas", 1))
        made = ready = available = on_current = on_update = 0
        for pod in self.context.owned_pods(item.uid):
            typed = pod.typed
            if is_finished(typed):
                continue
            made += 1
            ready += typed.status.phase == "Running" and is_ready(typed)
            available += self.is_available(item, spec, pod)
            if not self.context.is_going(pod):
                label = typed.metadata.labels.get(REVISION_LABEL)
                on_current += label == current.name
                on_update += label == update.name
        rolling = (spec.get("updateStrategy") or {}).get("type", "RollingUpdate") == "RollingUpdate"
        if rolling and on_update == made == ready == replicas:
            current, on_current = update, on_update
        status: Data = {
            "observedGeneration": data["metadata"].get("generation", 0),
            "replicas": made,
            "readyReplicas": ready,
            "availableReplicas": available,
            "currentReplicas": on_current,
            "updatedReplicas": on_update,
            "currentRevision": current.name,
            "updateRevision": update.name,
            "collisionCount": before.get("collisionCount", 0),
        }
        kept = ("replicas", "availableReplicas", "observedGeneration", "collisionCount")
        await self.context.write_status(item, data, {k: v for k, v in status.items() if v or k in kept})
        used = {current.name, update.name}
        used |= {pod.typed.metadata.labels.get(REVISION_LABEL, "") for pod in self.context.owned_pods(item.uid)}
        await self._revisions.forget_old(item, data, used)
