"""The claims of pods' generic ephemeral volumes: made for the pod, owned by it, deleted with it.

Next: the scheduler finds the claim and places the pod; :mod:`.volumes` binds.
"""

from __future__ import annotations

from ...api.kinds import CLAIMS, PODS
from ...api.storage import claims_of
from ...api.types import Pod
from ...api.wire import Item
from .base import Controller
from .context import Context, Data, owners_of, tolerate
from .pods import is_finished, owner_reference

__all__ = ["EphemeralVolumes"]


class EphemeralVolumes(Controller):
    """Keys are pods."""

    name = "ephemeral-volume"
    component = "ephemeral-volume-controller"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._claims = self.watch(CLAIMS, self._claim_changed)
        self.watch(PODS, self._pod_changed)

    def _pod_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if new is not None and old is None and any(volume.ephemeral is not None for volume in new.typed.spec.volumes):
            self.queue.add(new.key)

    def _claim_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if new is None:
            for owner in owners_of(item):
                if owner.kind == PODS.kind:
                    self.queue.add(f"{item.namespace}/{owner.name}")

    async def reconcile(self, key: str) -> None:
        item = self.context.pods.get(key)
        if item is None or is_finished(item.typed) or self.context.is_going(item):
            return
        for claim, template in claims_of(item.typed):
            if template is not None and self._claims.get(claim) is None:
                await self._make(item, claim.partition("/")[2], template)

    async def _make(self, item: Item, name: str, template: Data) -> None:
        pod: Pod = item.typed
        given = template.get("metadata") or {}
        metadata = {key: given[key] for key in ("labels", "annotations") if given.get(key)}
        metadata |= {"name": name, "namespace": pod.namespace, "ownerReferences": [owner_reference(item)]}
        with tolerate("AlreadyExists"):
            await self.context.create(CLAIMS, pod.namespace, {"metadata": metadata, "spec": template.get("spec") or {}})
