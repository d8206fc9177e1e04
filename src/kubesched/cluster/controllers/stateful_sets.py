"""StatefulSet: numbered pods, made in order and replaced in reverse order, each with its own claims.

Rules: upstream ``stateful_set_control.go``: OrderedReady and Parallel, RollingUpdate with a partition, OnDelete.
Claims outlive their pods (retention policy Retain). After this module, :mod:`.volumes` binds the claims, and the scheduler places the pods.
"""

from __future__ import annotations

from typing import Any

from kubesched.api.kinds import CLAIMS, PODS, REVISIONS, STATEFUL_SETS
from kubesched.api.selectors import parse_int64
from kubesched.api.wire import ApiError, Item
from kubesched.client.event_writer import NORMAL, WARNING

from .base import WorkloadController
from .context import Context, Data, data_of, spec_of, status_of
from .ownership import Ownership
from .pods import is_finished, is_ready, pod_body
from .revisions import REVISION_LABEL, Revisions, revision_template

__all__ = ["StatefulSets"]


def _ordinal(owner: Item, pod: Item) -> int | None:
    text = pod.name.removeprefix(f"{owner.name}-")
    return parse_int64(text) if text.isdigit() else None


def _is_member(owner: Item, pod: Item) -> bool:
    return _ordinal(owner, pod) is not None


def _claim_name(template: Data) -> str:
    """Return the name in a template of claims; empty if it has none.

    Such a template is not refused, but no claim can be made from it, because the claim's name would be invalid.
    """
    return (template.get("metadata") or {}).get("name") or ""


class StatefulSets(WorkloadController):
    """Controller that keeps each set's numbered pods."""

    name = "statefulset"
    kind = STATEFUL_SETS
    created = "create Pod {name} in StatefulSet {owner} successful"
    refused = "create Pod {name} in StatefulSet {owner} failed error: {error}"
    deleted = "delete Pod {name} in StatefulSet {owner} successful"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._claims = context.cache(CLAIMS)
        self._revisions = Revisions(context)
        self._ownership = Ownership(self, context.pods, is_wanted=_is_member)
        self._history = Ownership(self, context.owned_cache(REVISIONS))

    async def reconcile_object(self, item: Item) -> None:
        if self.context.is_going(item):
            return
        await self._history.settle(item)
        await self._ownership.settle(item)
        status = status_of(item)
        seen_all = status.get("observedGeneration") == data_of(item)["metadata"].get("generation")
        update = await self._revisions.current(item, assumed=status.get("updateRevision", "") if seen_all else "")
        current = next((one for one in self._revisions.of(item) if one.name == status.get("currentRevision")), update)
        action = self._step(item, current, update)
        await self.act_and_report(item, action, lambda fresh, failure: self._write_status(fresh, current, update))

    async def _step(self, item: Item, current: Item, update: Item) -> None:
        """Create, remove, replace, in this order; stop at the first step that has to wait."""
        spec = spec_of(item)
        start = int((spec.get("ordinals") or {}).get("start") or 0)
        ordered = spec.get("podManagementPolicy", "OrderedReady") != "Parallel"
        strategy = spec.get("updateStrategy") or {}
        rolling = strategy.get("type", "RollingUpdate") == "RollingUpdate"
        first_new = start + int((strategy.get("rollingUpdate") or {}).get("partition") or 0)
        pods = {number: pod for pod in self.context.owned_pods(item.uid) if (number := _ordinal(item, pod)) is not None}
        wanted = range(start, start + await self.bounded(item, int(spec.get("replicas", 1))))
        made = 0
        for number in wanted:
            pod = pods.get(number)
            if pod is not None and is_finished(pod.typed) and not self.context.is_going(pod):
                type_, word = (WARNING, "Failed") if pod.typed.status.phase == "Failed" else (NORMAL, "Terminated")
                text = f"StatefulSet {item.key} is recreating {word.lower()} Pod {pod.name}"
                await self.record(item, type_, f"Recreating{word}Pod", text)
                await self.delete_owned(item, pod)
                return  # created again once it is gone
            if pod is None:
                await self._create(item, current if rolling and number < first_new else update, number)
                made += 1
                if ordered:
                    return
                if made >= self.context.settings.burst:
                    self.queue.add(item.key)  # the next reconcile does the rest
                    return
            elif ordered and not self._is_healthy(item, pod):
                return
        for number in sorted((number for number in pods if number not in wanted), reverse=True):
            await self.delete_owned(item, pods[number])
            if ordered:
                return
        for number in reversed(wanted) if strategy.get("type") != "OnDelete" else ():
            pod = pods.get(number)
            if number < first_new or pod is None:
                return
            if pod.typed.metadata.labels.get(REVISION_LABEL) != update.name and not self.context.is_going(pod):
                await self.delete_owned(item, pod)
                return
            if not self._is_healthy(item, pod):
                return

    def _is_healthy(self, item: Item, pod: Item) -> bool:
        """True if a pod is available and not being deleted."""
        running = pod.typed.status.phase == "Running" and not self.context.is_going(pod)
        return running and self.is_available(item, pod)

    async def _create(self, item: Item, revision: Item, number: int) -> None:
        name, template = f"{item.name}-{number}", revision_template(revision)
        spec: Data = dict(template.get("spec") or {})
        volumes = {volume.get("name"): volume for volume in spec.get("volumes") or ()}
        for claim in spec_of(item).get("volumeClaimTemplates") or ():
            volume, claim_name = _claim_name(claim), await self._ensure_claim(item, claim, name)
            volumes.pop(volume, None)
            volumes[volume] = {"name": volume, "persistentVolumeClaim": {"claimName": claim_name}}
        if volumes:
            spec["volumes"] = list(volumes.values())
        spec["hostname"] = name
        if service := spec_of(item).get("serviceName"):
            spec["subdomain"] = service
        labels = {
            REVISION_LABEL: revision.name,
            "statefulset.kubernetes.io/pod-name": name,
            "apps.kubernetes.io/pod-index": str(number),
        }
        await self.create_owned(item, PODS, pod_body(item, template, name=name, labels=labels, spec=spec))

    async def _ensure_claim(self, item: Item, claim: Data, pod_name: str) -> str:
        name = f"{_claim_name(claim)}-{pod_name}"
        if self._claims.get(f"{item.namespace}/{name}") is None:
            metadata: dict[str, Any] = {**(claim.get("metadata") or {}), "name": name}
            for field in ("namespace", "creationTimestamp"):
                metadata.pop(field, None)
            what = f"create Claim {name} Pod {pod_name} in StatefulSet {item.name}"
            try:
                await self.context.create(CLAIMS, item.namespace, {"metadata": metadata, "spec": claim.get("spec")})
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    await self.record(item, WARNING, "FailedCreate", f"{what} failed error: {error.message}")
                    raise
            else:
                await self.record(item, NORMAL, "SuccessfulCreate", f"{what} success")
        return name

    async def _write_status(self, item: Item, current: Item, update: Item) -> None:
        spec = spec_of(item)
        pods = [pod for pod in self.context.owned_pods(item.uid) if not is_finished(pod.typed)]
        labels = [pod.typed.metadata.labels.get(REVISION_LABEL) for pod in pods if not self.context.is_going(pod)]
        ready = sum(pod.typed.status.phase == "Running" and is_ready(pod.typed) for pod in pods)
        rolling = (spec.get("updateStrategy") or {}).get("type", "RollingUpdate") == "RollingUpdate"
        if rolling and labels.count(update.name) == len(pods) == ready == int(spec.get("replicas", 1)):
            current = update
        status = {
            "observedGeneration": data_of(item)["metadata"].get("generation", 0),
            "replicas": len(pods),
            "availableReplicas": sum([self.is_available(item, pod) for pod in pods]),
            "readyReplicas": ready or None,
            "currentReplicas": labels.count(current.name) or None,
            "updatedReplicas": labels.count(update.name) or None,
            "currentRevision": current.name,
            "updateRevision": update.name,
            "collisionCount": status_of(item).get("collisionCount", 0),
        }
        await self.context.write_status(item, status)
        await self._revisions.forget_old(item, current, update)
