"""ResourceClaims of pods: made from templates, recorded in the pod, released and freed when pods end.

    pod with a template ──▶ claim, owned by the pod, recorded in ``status.resourceClaimStatuses``
    consumer ended or gone ──▶ out of ``reservedFor``; after the last one the allocation and the finalizer go too
    generated claim, unused, pod ended ──▶ deleted

Claims that the scheduler makes for extended resources are owned by their pod as well, and are treated in the same way.
Rules: upstream ``pkg/controller/resourceclaim``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kubesched.api.decode import to_builtins
from kubesched.api.kinds import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from kubesched.api.resource import CLAIM_FINALIZER, ResourceClaim
from kubesched.api.types import Pod, PodResourceClaim
from kubesched.api.wire import ApiError, Item
from kubesched.client.event_writer import WARNING

from ..kubelets import claim_names
from .base import Controller
from .context import BY_OWNER, Context, controller_of, version_of
from .pods import is_finished, owned_body

__all__ = ["ResourceClaims", "claims_of"]

#: Annotation on a claim that was made from a template: the pod's own name of the claim.
POD_CLAIM: Final = "resource.kubernetes.io/pod-claim-name"
#: Index of pods by the claims that they use.
_BY_CLAIM: Final = "resource claim"
_POD, _CLAIM = "pod:", "claim:"


def claims_of(pod: Pod) -> Iterator[str]:
    """Yield the names of the claims that a pod uses, without names that are not known yet."""
    return filter(None, claim_names(pod))


def _has_ended(pod: Pod) -> bool:
    """True if a pod will never use its claims again."""
    return is_finished(pod) or (pod.metadata.deletion_timestamp is not None and not pod.spec.node_name)


class ResourceClaims(Controller):
    """Controller of ResourceClaims. Keys are ``pod:namespace/name`` and ``claim:namespace/name``."""

    name = "resourceclaim"
    component = "resource_claim"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._claims = context.owned_cache(RESOURCE_CLAIMS)
        self._templates = context.watch(RESOURCE_CLAIM_TEMPLATES, self._template_changed)
        context.pods.add_index(_BY_CLAIM, lambda pod: [f"{pod.namespace}/{name}" for name in claims_of(pod.typed)])
        #: Keys of pods that wait for a template, by the template's key.
        self._waiting: dict[str, dict[str, None]] = {}
        context.watch(PODS, self._pod_changed)
        context.watch(RESOURCE_CLAIMS, self._claim_changed)
        self.each(context.pods, self._reconcile_pod, _POD)
        self.each(self._claims, self._reconcile_claim, _CLAIM)

    def _pod_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        pod: Pod = item.typed
        if not pod.spec.resource_claims and pod.status.extended_resource_claim_status is None:
            return
        if new is None or _has_ended(pod):
            for name in claims_of(pod):
                self.queue.add(f"{_CLAIM}{item.namespace}/{name}")
            for claim in self._claims.indexed(BY_OWNER, item.uid):  # also a claim that was made too late to be recorded
                self.queue.add(f"{_CLAIM}{claim.key}")
        elif pod.metadata.deletion_timestamp is None and (old is None or self._needs_work(item, old.typed)):
            self.queue.add(f"{_POD}{item.key}")

    def _needs_work(self, item: Item, before: Pod) -> bool:
        """True if a changed pod may need work: it lost a recorded claim, or was placed without one."""
        pod: Pod = item.typed
        if len(pod.status.resource_claim_statuses) < len(before.status.resource_claim_statuses):
            return True
        return pod.spec.node_name != before.spec.node_name and any(
            (claim := self._claims.get(f"{item.namespace}/{name}")) is None or not _is_reserved(claim, pod)
            for name in claims_of(pod)
        )

    def _claim_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        claim: ResourceClaim = item.typed
        # A reservation may arrive after its pod has ended.
        if new is not None and (claim.metadata.deletion_timestamp is not None or self._seems_stale(new)):
            self.queue.add(f"{_CLAIM}{item.key}")
        if new is None or claim.status.allocation is not None:
            # Enqueue pods whose claim is gone, and placed pods without a reservation.
            for pod in self.context.pods.indexed(_BY_CLAIM, item.key):
                if new is None or (pod.typed.spec.node_name and not _is_reserved(item, pod.typed)):
                    self.queue.add(f"{_POD}{pod.key}")

    def _seems_stale(self, item: Item) -> bool:
        """True if the cache shows that a claim is reserved for a pod that has ended."""
        pods, consumers = self.context.pods, item.typed.status.reserved_for
        return any(one.is_pod and not _may_use(pods.get(f"{item.namespace}/{one.name}"), one.uid) for one in consumers)

    def _template_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if new is not None:
            for key in self._waiting.pop(new.key, ()):
                self.queue.add(key)

    async def _reconcile_pod(self, item: Item) -> None:
        if self.context.is_going(item) or is_finished(item.typed):
            return
        pod: Pod = item.typed
        recorded = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
        made: list[dict[str, str]] = []
        for wanted in pod.spec.resource_claims:
            template, name = wanted.resource_claim_template_name, recorded.get(wanted.name, "")
            if template is None or name is None or self._claims.get(f"{pod.namespace}/{name}"):
                continue
            claim = self._made_before(pod, wanted) or await self._make(item, wanted, template)
            if claim is not None:
                made.append({"name": wanted.name, "resourceClaimName": claim.name})
        if made:
            changed = await self.context.patch_status(item, {"resourceClaimStatuses": made}, unless=(404,))
            if changed is None:
                return  # the claim is gone
            item, pod = changed, changed.typed
        for name in claims_of(pod) if pod.spec.node_name else ():
            claim = self._claims.get(f"{pod.namespace}/{name}")
            # The pod was placed by hand, without a scheduler, or lost its reservation.
            if claim is not None and claim.typed.status.allocation is not None and not _is_reserved(claim, pod):
                consumer = {"resource": "pods", "name": item.name, "uid": item.uid}
                await self.context.patch_status(claim, {"reservedFor": [consumer]}, unless=())

    def _made_before(self, pod: Pod, wanted: PodResourceClaim) -> Item | None:
        """Return a claim that was made for the pod but not recorded, because recording failed."""
        made = (one for one in self._claims.indexed(BY_OWNER, pod.uid) if not one.typed.metadata.deletion_timestamp)
        return next((one for one in made if one.typed.metadata.annotations.get(POD_CLAIM) == wanted.name), None)

    async def _make(self, item: Item, wanted: PodResourceClaim, name: str) -> Item | None:
        """Create the claim of a template, owned by the pod."""
        template = self._templates.get(f"{item.namespace}/{name}")
        if template is None:
            text = f'resourceclaimtemplate.resource.k8s.io "{name}" not found'
            self._waiting.setdefault(f"{item.namespace}/{name}", {})[f"{_POD}{item.key}"] = None
            await self._report(item, wanted, f'resource claim template "{name}": {text}')
            return None
        spec: dict[str, Any] = template.data().get("spec") or {}
        prefix = f"{item.name}-{wanted.name}-"
        body = owned_body(item, spec, generate=prefix, annotations={POD_CLAIM: wanted.name})
        try:
            return await self.context.create(RESOURCE_CLAIMS, item.namespace, body)
        except ApiError as error:
            await self._report(item, wanted, f"create ResourceClaim {prefix}: {error.message}")
            raise

    async def _report(self, item: Item, wanted: PodResourceClaim, why: str) -> None:
        await self.record(item, WARNING, "FailedResourceClaimCreation", f"PodResourceClaim {wanted.name}: {why}")

    async def _reconcile_claim(self, item: Item) -> None:
        if self._seems_stale(item) or _is_protected_in_vain(item.typed):
            # The end of a pod is often known before the changes that it causes, so the live object is needed.
            live = await self.context.get(RESOURCE_CLAIMS, item.namespace, item.name)
            if live is None:
                return
            item = await self._release(live)
        if item.typed.status.reserved_for or item.typed.metadata.deletion_timestamp is not None:
            return
        owner = controller_of(item)
        if owner is not None and owner.kind == PODS.kind and not await self._has_user(item, owner.name, owner.uid):
            await self.context.delete(item)  # generated from a template

    async def _release(self, item: Item) -> Item:
        """Remove reservations of ended pods. After the last one remove the allocation, then the finalizer."""
        claim: ResourceClaim = item.typed
        status = claim.status
        valid = [one for one in status.reserved_for if not one.is_pod or await self._has_user(item, one.name, one.uid)]
        if len(valid) == len(status.reserved_for) and not _is_protected_in_vain(claim):
            return item
        frees = not valid and CLAIM_FINALIZER in claim.metadata.finalizers
        changes: dict[str, Any] = {"reservedFor": to_builtins(valid) or None}
        if frees:
            changes["allocation"] = None
        if len(valid) < len(status.reserved_for) or status.allocation is not None:
            change = {"metadata": version_of(item), "status": changes}
            item = await self.context.patch(item, change, subresource="status")
        if frees:
            finalizers = [name for name in claim.metadata.finalizers if name != CLAIM_FINALIZER]
            item = await self.context.patch(item, {"metadata": {**version_of(item), "finalizers": finalizers or None}})
        return item

    async def _has_user(self, item: Item, name: str, uid: str) -> bool:
        """True if the pod of a reservation may still use the claim. The server is asked if the cache lacks the pod."""
        known = self.context.pods.get(f"{item.namespace}/{name}")
        return _may_use(known or await self.context.get(PODS, item.namespace, name), uid)


def _may_use(pod: Item | None, uid: str) -> bool:
    return pod is not None and pod.uid == uid and not _has_ended(pod.typed)


def _is_protected_in_vain(claim: ResourceClaim) -> bool:
    """True if a claim is deleted and only its finalizer keeps it."""
    going = claim.metadata.deletion_timestamp is not None
    return going and not claim.status.reserved_for and CLAIM_FINALIZER in claim.metadata.finalizers


def _is_reserved(claim: Item, pod: Pod) -> bool:
    return any(consumer.uid == pod.uid for consumer in claim.typed.status.reserved_for)
