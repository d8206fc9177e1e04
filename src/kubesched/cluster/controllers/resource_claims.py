"""ResourceClaims of pods: made from templates, recorded in the pod, released and freed when pods end.

    pod with a template ──▶ claim, owned by the pod, recorded in ``status.resourceClaimStatuses``
    consumer ended or gone ──▶ out of ``reservedFor``; after the last one the allocation and the finalizer go too
    generated claim, unused, pod ended ──▶ deleted

    pod group with a template ──▶ claim, owned by the group, recorded in the status of the group and of its members
    group gone ──▶ its reservation ends; members that end leave it

Claims of groups need the feature gate DRAWorkloadResourceClaims. Claims that the scheduler makes for extended resources
are owned by their pod as well, and are treated in the same way. Rules: upstream ``pkg/controller/resourceclaim``,
rules/groups §5.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Protocol

from kubesched.api.decode import to_builtins
from kubesched.api.groups import PodGroup, group_key
from kubesched.api.kinds import POD_GROUPS, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from kubesched.api.resource import CLAIM_FINALIZER, ClaimConsumer, ResourceClaim
from kubesched.api.types import Pod
from kubesched.api.wire import ApiError, Item
from kubesched.client.event_writer import WARNING

from ..kubelets import WatchCache, claim_names
from .base import Controller
from .context import BY_OWNER, Context, controller_of, version_of
from .pods import is_finished, owned_body

__all__ = ["ResourceClaims", "claims_of"]

#: Annotation on a claim that was made from a template: the pod's own name of the claim.
POD_CLAIM: Final = "resource.kubernetes.io/pod-claim-name"
#: Index of pods by the claims that they use.
_BY_CLAIM: Final = "resource claim"
#: Index of claims by the groups that they are reserved for.
_BY_RESERVATION: Final = "reserved for group"
_POD, _CLAIM, _GROUP = "pod:", "claim:", "podgroup:"
#: Most characters of a generated name before its random end.
_LONGEST_BASE: Final = 57


def claims_of(pod: Pod) -> Iterator[str]:
    """Yield the names of the claims that a pod uses, without names that are not known yet."""
    return filter(None, claim_names(pod))


def _has_ended(pod: Pod) -> bool:
    """True if a pod will never use its claims again."""
    return is_finished(pod) or (pod.metadata.deletion_timestamp is not None and not pod.spec.node_name)


class _Wanted(Protocol):
    """Entry of a pod's or a group's claims."""

    @property
    def name(self) -> str: ...


class ResourceClaims(Controller):
    """Controller of ResourceClaims.

    Keys are ``pod:namespace/name`` and ``claim:namespace/name``, and ``podgroup:namespace/name`` with the feature gate.
    """

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
        #: Pod groups; None without the feature gate. Then reservations for groups stay as they are.
        self._groups: WatchCache | None = None
        if "DRAWorkloadResourceClaims" in context.settings.features:
            self._groups = context.watch(POD_GROUPS, self._group_changed)
            self._claims.add_index(_BY_RESERVATION, _group_consumers)
            self.each(self._groups, self._reconcile_group, _GROUP)

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
            (claim := self._claims.get(f"{item.namespace}/{name}")) is None
            or not claim.typed.status.is_reserved_for(pod)
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
                if new is None or (pod.typed.spec.node_name and not claim.status.is_reserved_for(pod.typed)):
                    self.queue.add(f"{_POD}{pod.key}")

    def _seems_stale(self, item: Item) -> bool:
        """True if the cache shows that a claim is reserved for a pod that has ended, or for a group that is gone."""
        pods, groups, consumers = self.context.pods, self._groups, item.typed.status.reserved_for
        return any(
            (one.is_pod and not _may_use(pods.get(f"{item.namespace}/{one.name}"), one.uid))
            or (
                groups is not None and one.is_pod_group and not _is(groups.get(f"{item.namespace}/{one.name}"), one.uid)
            )
            for one in consumers
        )

    def _group_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        """Enqueue a group with claims, members that may have waited for it, and the claims of a group that is gone."""
        if new is None or (old is not None and old.uid != new.uid):
            for claim in self._claims.indexed(_BY_RESERVATION, item.key):
                self.queue.add(f"{_CLAIM}{claim.key}")
        if new is None:
            return
        has_claims = bool(new.typed.spec.resource_claims)
        if has_claims:
            self.queue.add(f"{_GROUP}{item.key}")
        if has_claims or old is None:
            for pod in self.context.members(item.key):
                if pod.typed.spec.resource_claims:
                    self.queue.add(f"{_POD}{pod.key}")

    def _template_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if new is not None:
            for key in self._waiting.pop(new.key, ()):
                self.queue.add(key)

    async def _reconcile_pod(self, item: Item) -> None:
        if self.context.is_going(item) or is_finished(item.typed):
            return
        pod: Pod = item.typed
        group: PodGroup | None = None
        if self._groups is not None and (key := group_key(pod)):
            known = self._groups.get(key)
            if known is None:
                return  # the claims may be the group's; the group enqueues the pod when it comes
            group = known.typed
        recorded = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
        made: list[dict[str, str]] = []
        for wanted in pod.spec.resource_claims:
            template, name = wanted.resource_claim_template_name, recorded.get(wanted.name, "")
            if template is None or name is None or self._claims.get(f"{pod.namespace}/{name}"):
                continue
            if group is not None and group.shares(wanted):
                found = _recorded_by(group, wanted.name)
            else:
                claim = self._made_before(pod.uid, wanted) or await self._make(item, wanted, template, _POD)
                found = claim.name if claim is not None else ""
            if found:
                made.append({"name": wanted.name, "resourceClaimName": found})
        if made:
            changed = await self.context.patch_status(item, {"resourceClaimStatuses": made}, unless=(404,))
            if changed is None:
                return  # the claim is gone
            item, pod = changed, changed.typed
        if pod.spec.node_name:
            await self._reserve(pod, group)

    async def _reserve(self, pod: Pod, group: PodGroup | None) -> None:
        """Reserve the claims of a pod that was placed by hand, without a scheduler, or lost its reservation."""
        shared = {
            one.resource_claim_name or _recorded_by(group, one.name)
            for one in (group.spec.resource_claims if group is not None else ())
        }
        for name in claims_of(pod):
            claim = self._claims.get(f"{pod.namespace}/{name}")
            if claim is None or claim.typed.status.allocation is None or claim.typed.status.is_reserved_for(pod):
                continue
            consumer = {"resource": "pods", "name": pod.name, "uid": pod.uid}
            if group is not None and name in shared:
                consumer = {"resource": POD_GROUPS.plural, "name": group.metadata.name, "uid": group.metadata.uid}
                consumer["apiGroup"] = POD_GROUPS.group
            await self.context.patch_status(claim, {"reservedFor": [consumer]}, unless=())

    async def _reconcile_group(self, item: Item) -> None:
        """Make the claims of a group from their templates, and record them in its status."""
        if self.context.is_going(item):
            return
        group: PodGroup = item.typed
        made: list[dict[str, str]] = []
        for wanted in group.spec.resource_claims:
            template, name = wanted.resource_claim_template_name, _recorded_by(group, wanted.name)
            if template is None or self._claims.get(f"{item.namespace}/{name}"):
                continue
            claim = self._made_before(item.uid, wanted) or await self._make(item, wanted, template, _GROUP)
            if claim is not None:
                made.append({"name": wanted.name, "resourceClaimName": claim.name})
        if made:
            await self.context.patch_status(item, {"resourceClaimStatuses": made})

    def _made_before(self, uid: str, wanted: _Wanted) -> Item | None:
        """Return a claim that was made for a pod or a group but not recorded, because recording failed."""
        made = (one for one in self._claims.indexed(BY_OWNER, uid) if not one.typed.metadata.deletion_timestamp)
        return next((one for one in made if one.typed.metadata.annotations.get(POD_CLAIM) == wanted.name), None)

    async def _make(self, item: Item, wanted: _Wanted, name: str, prefix_of_key: str) -> Item | None:
        """Create the claim of a template, owned by the pod or group."""
        template = self._templates.get(f"{item.namespace}/{name}")
        if template is None:
            text = f'resourceclaimtemplate.resource.k8s.io "{name}" not found'
            self._waiting.setdefault(f"{item.namespace}/{name}", {})[f"{prefix_of_key}{item.key}"] = None
            await self._report(item, wanted, f'resource claim template "{name}": {text}')
            return None
        spec: dict[str, Any] = template.data().get("spec") or {}
        prefix = _base_name(item.name, wanted.name)
        body = owned_body(item, spec, generate=prefix, annotations={POD_CLAIM: wanted.name})
        try:
            return await self.context.create(RESOURCE_CLAIMS, item.namespace, body)
        except ApiError as error:
            await self._report(item, wanted, f"create ResourceClaim {prefix}: {error.message}")
            raise

    async def _report(self, item: Item, wanted: _Wanted, why: str) -> None:
        text = f"{item.kind.kind}ResourceClaim {wanted.name}: {why}"
        await self.record(item, WARNING, "FailedResourceClaimCreation", text)

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
        valid = [one for one in status.reserved_for if await self._is_valid(item, one)]
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

    async def _is_valid(self, item: Item, consumer: ClaimConsumer) -> bool:
        """True if a reservation goes on: its pod or group may still use the claim."""
        if consumer.is_pod:
            return await self._has_user(item, consumer.name, consumer.uid)
        if self._groups is None or not consumer.is_pod_group:
            return True
        known = self._groups.get(f"{item.namespace}/{consumer.name}")
        return _is(known or await self.context.get(POD_GROUPS, item.namespace, consumer.name), consumer.uid)

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


def _is(item: Item | None, uid: str) -> bool:
    return item is not None and item.uid == uid


def _recorded_by(group: PodGroup | None, name: str) -> str:
    """Return the name of the claim that a group's status has for an entry; an empty text if there is none yet."""
    statuses = group.status.resource_claim_statuses if group is not None else ()
    return next((one.resource_claim_name or "" for one in statuses if one.name == name), "")


def _group_consumers(item: Item) -> list[str]:
    return [f"{item.namespace}/{one.name}" for one in item.typed.status.reserved_for if one.is_pod_group]


def _base_name(owner: str, claim: str) -> str:
    """Return the beginning of a generated name. Parts that are too long are cut in proportion to their lengths."""
    room = _LONGEST_BASE - 2
    if (total := len(owner) + len(claim)) > room:
        first = max(1, room * len(owner) // total)
        owner, claim = owner[:first], claim[: room - first]
    return f"{owner}-{claim}-"
