"""ResourceClaims of pods: made from templates, recorded in the pod, released and freed when pods end.

    pod with a template ──▶ claim, owned by the pod, recorded in ``status.resourceClaimStatuses``
    consumer ended or gone ──▶ out of ``reservedFor``; after the last one the allocation and the finalizer go too
    generated claim, unused, pod ended ──▶ deleted

Claims that the scheduler makes for extended resources are owned by their pod as well and are treated alike. Rules:
upstream ``pkg/controller/resourceclaim``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ...api.decode import to_builtins
from ...api.kinds import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from ...api.resource import CLAIM_FINALIZER, ClaimConsumer, ResourceClaim
from ...api.types import Pod, PodResourceClaim
from ...api.wire import ApiError, Item
from ...client.event_writer import WARNING
from ..kubelets import claim_names
from .base import Controller
from .context import BY_OWNER, Context, controller_of
from .pods import is_finished, owner_reference

__all__ = ["ResourceClaims", "claims_of"]

#: The pod's own name of a claim, on claims that were made from a template.
POD_CLAIM: Final = "resource.kubernetes.io/pod-claim-name"
#: Index of pods by the claims that they use.
_BY_CLAIM: Final = "resource claim"
_POD, _CLAIM = "pod:", "claim:"


def claims_of(pod: Pod) -> Iterator[str]:
    """The names of the claims that a pod uses, as far as they are known."""
    return filter(None, claim_names(pod))


def _claim_keys(item: Item) -> list[str]:
    return [f"{item.namespace}/{name}" for name in claims_of(item.typed)]


def _has_ended(pod: Pod) -> bool:
    """Whether a pod will never use its claims again."""
    return is_finished(pod) or (pod.metadata.deletion_timestamp is not None and not pod.spec.node_name)


class ResourceClaims(Controller):
    """Keys are ``pod:namespace/name`` and ``claim:namespace/name``."""

    name = "resourceclaim"
    component = "resource_claim"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._claims = context.owned_cache(RESOURCE_CLAIMS)
        self._templates = self.watch(RESOURCE_CLAIM_TEMPLATES, self._template_changed)
        context.pods.add_index(_BY_CLAIM, _claim_keys)
        #: Pods that wait for a template, by the template's key.
        self._waiting: dict[str, dict[str, None]] = {}
        self.watch(PODS, self._pod_changed)
        self.watch(RESOURCE_CLAIMS, self._claim_changed)

    # -- noticing --------------------------------------------------------------------------------------

    def _pod_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        pod: Pod = item.typed
        if not pod.spec.resource_claims and pod.status.extended_resource_claim_status is None:
            return
        if new is None or _has_ended(pod):
            for name in claims_of(pod):
                self.queue.add(f"{_CLAIM}{item.namespace}/{name}")
            for claim in self._claims.indexed(BY_OWNER, item.uid):  # also one that was made too late to be recorded
                self.queue.add(f"{_CLAIM}{claim.key}")
        elif pod.metadata.deletion_timestamp is None and (old is None or self._needs_work(item, old.typed)):
            self.queue.add(f"{_POD}{item.key}")

    def _needs_work(self, item: Item, before: Pod) -> bool:
        """Whether a change of a pod can mean something to do: it lost a recorded claim, or was placed without one."""
        pod: Pod = item.typed
        if len(pod.status.resource_claim_statuses) < len(before.status.resource_claim_statuses):
            return True
        return pod.spec.node_name != before.spec.node_name and any(
            (claim := self._claims.get(f"{item.namespace}/{name}")) is None or not _is_reserved(claim, pod)
            for name in claims_of(pod)
        )

    def _claim_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if new is not None:
            claim: ResourceClaim = new.typed
            # A reservation may arrive after its pod has ended.
            if claim.metadata.deletion_timestamp is not None or any(
                self._may_be_stale(new, consumer) for consumer in claim.status.reserved_for
            ):
                self.queue.add(f"{_CLAIM}{new.key}")
        if new is None or new.typed.status.allocation is not None:
            self._wake_users(item)

    def _may_be_stale(self, claim: Item, consumer: ClaimConsumer) -> bool:
        pod = self.context.pods.get(f"{claim.namespace}/{consumer.name}")
        return pod is None or pod.uid != consumer.uid or _has_ended(pod.typed)

    def _wake_users(self, item: Item) -> None:
        """Reconcile the pods that use a claim which is gone, or that were placed and have no reservation (any more)."""
        gone = self._claims.get(item.key) is None
        for pod in self.context.pods.indexed(_BY_CLAIM, item.key):
            if gone or (pod.typed.spec.node_name and not _is_reserved(item, pod.typed)):
                self.queue.add(f"{_POD}{pod.key}")

    def _template_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if new is not None:
            for key in self._waiting.pop(new.key, ()):
                self.queue.add(key)

    async def reconcile(self, key: str) -> None:
        if key.startswith(_POD):
            await self._reconcile_pod(key.removeprefix(_POD))
        else:
            await self._reconcile_claim(key.removeprefix(_CLAIM))

    # -- pods ------------------------------------------------------------------------------------------

    async def _reconcile_pod(self, key: str) -> None:
        item = self.context.pods.get(key)
        if item is None or self.context.is_going(item) or is_finished(item.typed):
            return
        pod: Pod = item.typed
        recorded = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
        made: list[dict[str, str]] = []
        for wanted in pod.spec.resource_claims:
            template = wanted.resource_claim_template_name
            if template is None:
                continue
            if wanted.name in recorded:
                name = recorded[wanted.name]
                if name is None or self._claims.get(f"{pod.namespace}/{name}") is not None:
                    continue
            claim = self._made_before(pod, wanted) or await self._make(item, wanted, template)
            if claim is not None:
                made.append({"name": wanted.name, "resourceClaimName": claim.name})
        if made:
            changed = await self.context.patch_status(item, {"resourceClaimStatuses": made}, unless=(404,))
            if changed is None:
                return  # it is gone
            item, pod = changed, changed.typed
        if pod.spec.node_name:
            for name in claims_of(pod):
                await self._reserve(item, name)

    def _made_before(self, pod: Pod, wanted: PodResourceClaim) -> Item | None:
        """A claim that was made, and not recorded because that failed."""
        for item in self._claims.indexed(BY_OWNER, pod.uid):
            metadata = item.typed.metadata
            if metadata.annotations.get(POD_CLAIM) == wanted.name and metadata.deletion_timestamp is None:
                return item
        return None

    async def _make(self, item: Item, wanted: PodResourceClaim, name: str) -> Item | None:
        """The claim of a template, owned by the pod."""
        template = self._templates.get(f"{item.namespace}/{name}")
        if template is None:
            text = f'resourceclaimtemplate.resource.k8s.io "{name}" not found'
            self._waiting.setdefault(f"{item.namespace}/{name}", {})[f"{_POD}{item.key}"] = None
            await self._report(item, wanted, f'resource claim template "{name}": {text}')
            return None
        spec: dict[str, Any] = template.data().get("spec") or {}
        given = spec.get("metadata") or {}
        metadata = {
            "generateName": f"{item.name}-{wanted.name}-",
            "ownerReferences": [owner_reference(item)],
            "annotations": {**(given.get("annotations") or {}), POD_CLAIM: wanted.name},
        }
        if given.get("labels"):
            metadata["labels"] = given["labels"]
        try:
            return await self.context.create(
                RESOURCE_CLAIMS, item.namespace, {"metadata": metadata, "spec": spec.get("spec") or {}}
            )
        except ApiError as error:
            await self._report(item, wanted, f"create ResourceClaim {metadata['generateName']}: {error.message}")
            raise

    async def _report(self, item: Item, wanted: PodResourceClaim, why: str) -> None:
        await self.record(item, WARNING, "FailedResourceClaimCreation", f"PodResourceClaim {wanted.name}: {why}")

    async def _reserve(self, item: Item, name: str) -> None:
        """Reserve an allocated claim for a pod that no scheduler has placed."""
        claim = self._claims.get(f"{item.namespace}/{name}")
        if claim is None or claim.typed.status.allocation is None:
            return
        if _is_reserved(claim, item.typed):
            return
        consumer = {"resource": "pods", "name": item.name, "uid": item.uid}
        await self.context.patch_status(claim, {"reservedFor": [consumer]}, unless=())

    # -- claims ----------------------------------------------------------------------------------------

    async def _reconcile_claim(self, key: str) -> None:
        item = self._claims.get(key)
        if item is None:
            return
        if await self._is_held_in_vain(item):
            # The end of a pod is often known before what followed from it: what is written has to be current.
            item = await self.context.get(RESOURCE_CLAIMS, item.namespace, item.name)
            if item is None:
                return
            item = await self._release(item)
        claim: ResourceClaim = item.typed
        if not claim.status.reserved_for and claim.metadata.deletion_timestamp is None:
            await self._delete_unused(item)

    async def _is_held_in_vain(self, item: Item) -> bool:
        """Whether a claim is reserved for pods that have ended, or protected although it is deleted and unused."""
        claim: ResourceClaim = item.typed
        for consumer in claim.status.reserved_for:
            if not await self._uses(item, consumer):
                return True
        going = claim.metadata.deletion_timestamp is not None
        return going and not claim.status.reserved_for and CLAIM_FINALIZER in claim.metadata.finalizers

    async def _release(self, item: Item) -> Item:
        """Remove reservations of ended pods; after the last one the allocation, then the finalizer."""
        claim: ResourceClaim = item.typed
        status = claim.status
        valid = [consumer for consumer in status.reserved_for if await self._uses(item, consumer)]
        if len(valid) == len(status.reserved_for) and (valid or claim.metadata.deletion_timestamp is None):
            return item
        ours = CLAIM_FINALIZER in claim.metadata.finalizers
        frees = not valid and ours and status.allocation is not None
        if len(valid) < len(status.reserved_for) or frees:
            changes: dict[str, Any] = {"reservedFor": to_builtins(valid) or None}
            if frees:
                changes["allocation"] = None
            item = await self.context.patch(item, {"metadata": _version(item), "status": changes}, subresource="status")
        if ours and not valid:
            finalizers = [name for name in claim.metadata.finalizers if name != CLAIM_FINALIZER]
            item = await self.context.patch(item, {"metadata": {**_version(item), "finalizers": finalizers or None}})
        return item

    async def _uses(self, item: Item, consumer: ClaimConsumer) -> bool:
        """Whether a claim stays reserved for a consumer; only pods are ever released here."""
        if consumer.api_group or consumer.resource != "pods":
            return True
        pod = await self._pod(f"{item.namespace}/{consumer.name}")
        return pod is not None and pod.uid == consumer.uid and not _has_ended(pod.typed)

    async def _pod(self, key: str) -> Item | None:
        """A pod, or None when there is none; a cache that lags behind does not count as an absence."""
        return self.context.pods.get(key) or await self.context.get(PODS, *key.split("/", 1))

    async def _delete_unused(self, item: Item) -> None:
        """Delete a generated claim whose pod has ended or is gone."""
        owner = controller_of(item)
        if owner is None or owner.kind != PODS.kind:
            return
        pod = await self._pod(f"{item.namespace}/{owner.name}")
        if pod is None or pod.uid != owner.uid or _has_ended(pod.typed):
            await self.context.delete(item)


def _version(item: Item) -> dict[str, str]:
    """What makes a patch fail with a conflict when the object has changed since."""
    return {"uid": item.uid, "resourceVersion": str(item.resource_version)}


def _is_reserved(claim: Item, pod: Pod) -> bool:
    return any(consumer.uid == pod.uid for consumer in claim.typed.status.reserved_for)
